//! Every limit of the system, with its unit in its name. Owns their relations, which are asserted
//! when this is compiled.

mod egress;
mod slack;
mod watch;

pub use self::egress::*;
pub use self::slack::*;
pub use self::watch::*;

/// Life of a lane's lease.
pub const LEASE_MS: u64 = 15_000;
/// How often a running turn renews its lane, and a node its beat.
pub const RENEW_MS: u64 = 5_000;
/// Two own beats that were answered at most so far apart leave no gap in which a node stood still.
pub const BEAT_GAP_MS_MAX: u64 = 10_000;
/// First wait before something is tried again that the store did not answer; it doubles.
pub const AWAY_FIRST_MS: u64 = 1_000;
/// Longest such wait.
pub const AWAY_MS_MAX: u64 = 30_000;
/// When the store answers again, those who waited for it go on within so long, not all at once.
pub const BACK_SPREAD_MS: u64 = 1_000;
/// A clock that is set by more wakes those who sleep by it.
pub const CLOCK_SHIFT_MS: u64 = 1_000;
/// An answer to "what time is it" that took longer says nothing.
pub const CLOCK_ANSWER_MS_MAX: u64 = 1_000;
/// Sessions of an installation that is gone that are stopped before it is written down how far that
/// is.
pub const LEAVING_PAGE: usize = 64;
/// Installations that are told to be due before whoever hears it lags.
pub const INSTALLATIONS_KEPT_MAX: usize = 64;
/// A way to an installation that somebody has begun is open for so long.
pub const INVITATION_MS: u64 = 600_000;
/// Such ways that are remembered; the oldest goes.
pub const INVITATIONS_MAX: usize = 128;
/// Tokens are changed for new ones so long before they end, at the most.
pub const REFRESH_AHEAD_MS_MAX: u64 = 7_200_000;
/// Whoever changes tokens is alone with it for so long.
pub const REFRESH_LEASE_MS: u64 = 30_000;
/// First wait after tokens could not be changed; it doubles.
pub const REFRESH_AGAIN_FIRST_MS: u64 = 5_000;
/// Longest such wait.
pub const REFRESH_AGAIN_MS_MAX: u64 = 300_000;
/// How often what no event woke is looked for.
pub const SWEEP_MS: u64 = 5_000;
/// When rows past their retention that are still held are looked at again.
pub const FORGET_AGAIN_MS: u64 = 3_600_000;
/// Attempts at a turn before it is buried.
pub const ATTEMPTS_MAX: u32 = 5;
/// Attempts at a turn, its holder gone each time, before it is tried only while nothing else runs
/// in its process: so whatever takes a whole process along is found out alone.
pub const CROWD_ATTEMPTS_MAX: u32 = 2;
/// A turn that is tried alone has the process for itself for so long, unless the model answers
/// sooner; doubled each time that was too short to find out.
pub const ALONE_MS_MAX: u64 = 30_000;
/// First wait after a failed attempt; it doubles.
pub const BACKOFF_FIRST_MS: u64 = 5_000;
/// Longest wait after a failed attempt.
pub const BACKOFF_MS_MAX: u64 = 300_000;
/// An outage of the provider or the store does not count as an attempt for so long.
pub const OUTAGE_MS_MAX: u64 = 900_000;
/// Longest wait inside one tool call.
pub const BLOCKING_TOOL_MS_MAX: u64 = 300_000;
/// Until a model's server has taken the connection.
pub const MODEL_CONNECT_MS: u64 = 10_000;
/// Until a model's server has begun its answer, connecting included. A local server reads the whole
/// prompt first.
pub const MODEL_HEADER_MS: u64 = 120_000;
/// Silence of a model's stream after which the call is given up.
pub const MODEL_IDLE_MS: u64 = 60_000;
/// Silence after which a finished answer is not waited on for its usage.
pub const MODEL_TAIL_MS: u64 = 2_000;
/// A whole model call. Long: a healthy answer may be long, silence ends a sick one.
pub const MODEL_TOTAL_MS: u64 = 1_800_000;
/// Longest wait that a provider's own word can impose.
pub const MODEL_RETRY_AFTER_MS_MAX: u64 = 86_400_000;
/// Longest event of a model's stream.
pub const MODEL_EVENT_BYTES_MAX: usize = 1024 * 1024;
/// A whole stream, with what is not kept of it, or a whole answer that is not streamed.
pub const MODEL_STREAM_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Read of the body of an error.
pub const MODEL_ERROR_BYTES_MAX: usize = 64 * 1024;
/// Kept of what a provider says in an error, in characters.
pub const MODEL_SAID_CHARS_MAX: usize = 300;
/// Text of one answer, measured as JSON, as it is stored.
pub const MODEL_TEXT_BYTES_MAX: usize = 80 * 1024;
/// Calls of one answer with ids, names and arguments, measured as JSON, as they are stored.
pub const MODEL_CALLS_BYTES_MAX: usize = 144 * 1024;
/// Largest playbook of the scripted model.
pub const PLAYBOOK_BYTES_MAX: usize = 1024 * 1024;
/// Between TERM and KILL.
pub const KILL_GRACE_MS: u64 = 5_000;
/// The most that it may be configured to, milliseconds.
pub const GRACE_MS_MAX: u64 = 60_000;
/// How long a message is recognised as a repeat.
pub const DEDUPE_MS: u64 = 72 * 3_600_000;
/// Conversations that are to be begun at one place, and are not yet.
pub const ROOTS_WAITING_MAX: u32 = 50;
/// Unread people's messages and events of a session.
pub const PEOPLE_UNREAD_MAX: usize = 256;
/// Unread notices plus live executions of a session.
pub const NOTICES_UNREAD_AND_LIVE_MAX: usize = 256;
/// Live executions of a session.
pub const LIVE_PER_SESSION_MAX: usize = 50;
/// Executions of one person that are not over, in all sessions together.
pub const LIVE_PER_OWNER_MAX: u32 = 20;
/// The most that this may be configured to.
pub const LIVE_PER_OWNER_CONFIGURED_MAX: u32 = 10_000;
/// Executions of one person that they are shown, of all sessions together.
pub const OWNED_SHOWN_MAX: usize = 100;
/// Places of one person that are read together.
pub const PLACES_PER_PAGE: usize = 256;
/// After so long somebody looks whether a place that was taken is needed.
pub const PLACE_CHECKED_MS: u64 = 600_000;
/// And then as often as this, while it is.
pub const PLACE_CHECKED_AGAIN_MS: u64 = 3_600_000;
/// Messages of people that one take moves into a turn.
pub const TAKE_PEOPLE_MAX: usize = 16;
/// Notices that one take moves into a turn.
pub const TAKE_NOTICES_MAX: usize = 200;
/// Bytes of arrivals that one take moves into a turn.
pub const TAKE_BYTES_MAX: usize = 256 * 1024;
/// Arrivals that one turn carries.
pub const CARRIED_PER_TURN_MAX: usize = 512;
/// People of one turn, where it takes messages of several.
pub const PEOPLE_PER_TURN_MAX: usize = 64;
/// Keys by which one arrival is recognised.
pub const DEDUPE_KEYS_MAX: usize = 8;
/// Notices of one take that are shown whole; the rest are a digest.
pub const NOTICES_WHOLE_MAX: usize = 20;
/// A session is ready so long after a person's message, so that quick ones start one turn.
pub const SETTLE_MS: u64 = 400;
/// Longest message of a person.
pub const MESSAGE_BYTES_MAX: usize = 64 * 1024;
/// Largest row.
pub const ROW_BYTES_MAX: usize = 256 * 1024;
/// Deepest nesting in a row's JSON, so that what was written can be read again.
pub const ROW_DEPTH_MAX: usize = 100;
/// Applies that one commit of the embedded store takes.
pub const COMMIT_APPLIES_MAX: usize = 32;
/// A commit that has been filled for so long takes no more applies.
pub const COMMIT_FILL_MS: u64 = 2;
/// Applies that wait for the embedded store's writer, and reads for its readers.
pub const STORE_QUEUE_MAX: usize = 1_024;
/// Connections that read beside the writer.
pub const STORE_READERS: usize = 4;
/// The embedded store waits so long for a lock of another program.
pub const STORE_BUSY_MS: u64 = 5_000;
/// Making a connection to Redis takes at most so long.
pub const REDIS_CONNECT_MS: u64 = 2_000;
/// An answer of Redis takes at most so long; then its outcome is unknown.
pub const REDIS_ANSWER_MS: u64 = 5_000;
/// First wait after a connection to Redis could not be made; it doubles. Whoever asks meanwhile is
/// told at once that it is away.
pub const REDIS_RECONNECT_FIRST_MS: u64 = 50;
/// Longest such wait.
pub const REDIS_RECONNECT_MS_MAX: u64 = 2_000;
/// A connection to Redis on which nothing was said for so long is asked whether it is there.
pub const REDIS_PING_MS: u64 = 10_000;
/// Requests to Redis that wait for their turn on the connection.
pub const REDIS_QUEUE_MAX: usize = 1_024;
/// Requests that go to Redis in one piece: about what it reads at once, since it answers a piece
/// whole.
pub const REDIS_TOGETHER_MAX: usize = 16;
/// Such pieces without an answer: enough that neither side waits for the other; beyond, the next
/// one grows.
pub const REDIS_UNDER_WAY_MAX: usize = 8;
/// Times that a request follows a slot of a Redis Cluster, or waits for it.
pub const REDIS_CLUSTER_RETRIES_MAX: u32 = 6;
/// Rows, or members of a shard's index, that are read from Redis at once.
pub const ROWS_READ_MAX: usize = 1_000;
/// Highest score of an index member: what a Redis score holds exactly. The end of time is there.
pub const SCORE_MAX: u64 = (1 << 53) - 1;
/// What another node wrote is left to that node for so long at least: it knows of it already.
pub const HINT_HEAD_START_MS: u64 = 50;
/// After that the others look within so long, each at a time of its own.
pub const HINT_SPREAD_MS: u64 = 100;
/// Members that wait for that; with more of them the index is read.
pub const HINTS_WAITING_MAX: usize = 1_024;
/// Outbox items that are left to other nodes and remembered as such.
pub const ELSEWHERE_KEPT_MAX: usize = 4_096;
/// Hints kept for a slow listener; it hears of the rest by the sweep.
pub const HINTS_KEPT_MAX: usize = 1_024;
/// Sessions that stirred, kept for a slow listener; it looks at all when it missed some.
pub const STIRS_KEPT_MAX: usize = 64;
/// Where the kernel has no timer that counts suspension, a sleeper looks at the clock this often.
pub const CLOCK_LOOK_MS: u64 = 1_000;
/// How long ended rows are kept.
pub const RETENTION_MS: u64 = 90 * 86_400_000;
/// Rows that one forgetting removes.
pub const FORGET_ROWS_MAX: usize = 200;
/// Newest entries of a log that are read along before a session is claimed.
pub const LOG_AHEAD_ENTRIES_MAX: u64 = 512;
/// Keys that one operation loads in a round.
pub const KEYS_PER_LOAD_MAX: usize = 2_048;
/// Rounds of loading of one operation.
pub const LOAD_ROUNDS_MAX: usize = 3;
/// Tries of an operation against other nodes' writes.
pub const CONFLICT_RETRIES_MAX: u32 = 16;
/// Stop ids a session remembers.
pub const STOPS_KEPT_MAX: usize = 8;
/// Executions that are over and still listed.
pub const ENDED_LISTED_MAX: usize = 10;
/// Late facts an execution keeps.
pub const LATE_FACTS_MAX: usize = 4;
/// An outbox item is given up after so long.
pub const POST_MS_MAX: u64 = 48 * 3_600_000;
/// Life of an outbox item's lease.
pub const POST_LEASE_MS: u64 = 30_000;

/// Model calls of a turn.
pub const MODEL_CALLS_PER_TURN_MAX: u32 = 50;
/// Tool calls of a turn.
pub const TOOL_CALLS_PER_TURN_MAX: u32 = 200;
/// Tool calls in one answer of the model.
pub const TOOL_CALLS_PER_ANSWER_MAX: usize = 32;
/// Rounds that the checks at a turn's end may add.
pub const EXTRA_ROUNDS_MAX: u32 = 3;
/// Same call with the same arguments: the result carries an alert from this count.
pub const LOOP_ALERT_AT: u32 = 3;
/// Same call with the same arguments: the turn ends at this count.
pub const LOOP_END_AT: u32 = 5;
/// Unchanged probes of one execution after which a hint is given.
pub const PROBES_UNCHANGED_MAX: u32 = 3;
/// Calls of one answer that are kept at all; those beyond what is run get an error.
pub const CALLS_KEPT_PER_ANSWER_MAX: usize = 64;
/// Text of one answer, as JSON.
pub const ANSWER_TEXT_BYTES_MAX: usize = 96 * 1024;
/// Arguments of all calls of one answer, as JSON.
pub const ANSWER_ARGUMENTS_BYTES_MAX: usize = 128 * 1024;
/// A tool's name and a call's id, as JSON.
pub const CALL_NAME_BYTES_MAX: usize = 128;
/// Result of one tool call, as JSON.
pub const RESULT_BYTES_MAX: usize = 96 * 1024;
/// Synthetic turns of a chain.
pub const CHAIN_WAKES_MAX: u32 = 50;
/// Tokens of a chain.
pub const CHAIN_TOKENS_MAX: u64 = 2_000_000;
/// Executions of a chain.
pub const CHAIN_SPAWNS_MAX: u32 = 100;

/// Shortest deadline of a script.
pub const TIMEOUT_SECONDS_MIN: u64 = 1;
/// Longest deadline of a script.
pub const TIMEOUT_SECONDS_MAX: u64 = 86_400;
/// Longest name of an execution, in characters.
pub const NAME_CHARS_MAX: usize = 200;
/// Largest script.
pub const CODE_BYTES_MAX: usize = 64 * 1024;
/// Kept of each of stdout and stderr: half of it head, half of it tail.
pub const OUTPUT_BYTES_MAX: usize = 16 * 1024;
/// A registered execution that did not start by then never will.
pub const START_MS_MAX: u64 = 60_000;
/// After deadline and grace, before the ledger ends what its home did not.
pub const OVERDUE_MS: u64 = 10_000;
/// After deadline and grace, before work whose home is gone is lost.
pub const HOME_GONE_MS: u64 = 600_000;
/// A shim that does not answer for so long is shown as stalled.
pub const SHIM_ANSWER_MS: u64 = 5_000;
/// An exited script's pipes are abandoned after so long.
pub const DRAIN_MS: u64 = 500;
/// An exited script's pipes are left alone after so long a silence.
pub const DRAIN_IDLE_MS: u64 = 100;
/// What a script leaves running is hunted for so long after its end.
pub const LEFTOVERS_MS_MAX: u64 = 2_000;
/// Room kept on disk for an exit record, so that a full disk cannot lose it.
pub const EXIT_RECORD_BYTES: usize = 4 * 1024;
/// Largest specification of an execution in the spool.
pub const SPEC_BYTES_MAX: usize = 64 * 1024;
/// Largest file a script may write.
pub const SCRIPT_FILE_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Files that a script may have open, as its soft limit: it may raise it to the host's own.
pub const SCRIPT_FILES_MAX: u64 = 1_024;
/// Connections that a shim serves at once.
pub const SHIM_CONNECTIONS_MAX: usize = 8;
/// Orders that wait for a shim's answer.
pub const SHIM_ORDERS_MAX: usize = 16;
/// Compiling one script.
pub const SYNTAX_MS_MAX: u64 = 5_000;
/// Exit records and unknown spool entries are kept at least so long.
pub const SPOOL_KEEP_MS: u64 = 86_400_000;
/// A completion older than this says how late it is.
pub const DELAYED_MS: u64 = 300_000;
/// Longest text of the notices of one take.
pub const NOTICE_BYTES_MAX: usize = 80 * 1024;
/// What the model reads of what was said before it was called somewhere.
pub const EARLIER_BYTES_MAX: usize = 24 * 1024;
/// Of it, one message.
pub const EARLIER_MESSAGE_BYTES_MAX: usize = 4 * 1024;
/// Reading that takes no longer, or the model is told that it could not be read.
pub const EARLIER_MS_MAX: u64 = 10_000;
/// Longest result of one tool call as the model reads it, before notices are merged into it.
pub const TOOL_RESULT_BYTES_MAX: usize = 40 * 1024;

/// Longest id of a file that `read_file` takes, in characters.
pub const FILE_ID_CHARS_MAX: usize = 64;
/// Largest file that `read_file` reads.
pub const FILE_BYTES_MAX: usize = 256 * 1024;
/// Of it, what one call shows, as JSON; the rest of a result is for what stands beside it.
pub const FILE_SHOWN_BYTES_MAX: usize = TOOL_RESULT_BYTES_MAX - 4 * 1024;
/// Reading one takes no longer, or the model is told that it could not be read.
pub const FILE_MS_MAX: u64 = 30_000;
/// Highest number of a line that `read_file` takes: no file has more.
pub const FILE_LINES_MAX: u64 = FILE_BYTES_MAX as u64;

/// Largest argument text of one tool call: the largest script, with every third byte escaped.
pub const TOOL_ARGUMENTS_BYTES_MAX: usize = 192 * 1024;
/// Longest reason for staying silent, in characters.
pub const REASON_CHARS_MAX: usize = 500;
/// Lines of output that `watch__output` gives when it is not told.
pub const TAIL_LINES: u64 = 40;
/// Lines of output that `watch__output` gives at most.
pub const TAIL_LINES_MAX: u64 = 1_000;
/// Characters of somebody's text that an error repeats.
pub const ECHO_CHARS_MAX: usize = 80;
/// Names that an error lists.
pub const NAMES_IN_ERROR_MAX: usize = 12;
/// Largest configuration file.
pub const CONFIG_BYTES_MAX: usize = 256 * 1024;
/// Largest file that holds a secret.
pub const SECRET_BYTES_MAX: usize = 64 * 1024;
/// Agents of one configuration.
pub const AGENTS_MAX: usize = 100;
/// Longest instructions of an agent.
pub const INSTRUCTIONS_BYTES_MAX: usize = 32 * 1024;
/// A log file of this size is set aside, and a new one begun.
pub const LOG_FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Longest name of a chat in the terminal, in characters.
pub const CHAT_NAME_CHARS_MAX: usize = 64;
/// Chats that one terminal knows at a time.
pub const CHATS_MAX: usize = 64;
/// What waits to be shown in the terminal; beyond it progress is dropped, posts wait.
pub const TERMINAL_QUEUE_MAX: usize = 1_024;
/// Streamed text of one turn that the terminal holds; beyond it only the answer is shown.
pub const STREAM_BYTES_MAX: usize = 256 * 1024;
/// Posts that the terminal recognises when they come again.
pub const TERMINAL_POSTS_KEPT_MAX: usize = 256;
/// Terminals that are attached to one bot.
pub const TERMINALS_MAX: usize = 64;
/// Calls of one attached terminal at a time.
pub const TERMINAL_CALLS_MAX: usize = 8;
/// Largest frame between a terminal and its bot: a message or a post, each byte escaped.
pub const FRAME_BYTES_MAX: usize = 1024 * 1024;
/// The first word of a terminal that attaches.
pub const ATTACH_HELLO_MS_MAX: u64 = 5_000;
/// An attached terminal waits so long for an answer, also of a bot that is away.
pub const ATTACH_CALL_MS_MAX: u64 = 15_000;
/// First wait of a terminal before it looks for its bot again; it doubles.
pub const ATTACH_AGAIN_FIRST_MS: u64 = 50;
/// Longest wait between these looks.
pub const ATTACH_AGAIN_MS_MAX: u64 = 1_000;
/// A bot greets a terminal by then, or it is called silent.
pub const ATTACH_GREETING_MS_MAX: u64 = 10_000;
/// One of the attached terminals has shown a post by then, or it is posted again.
pub const TERMINAL_SHOWN_MS_MAX: u64 = 10_000;
/// Once one has shown it, the others have so long.
pub const TERMINAL_OTHERS_MS_MAX: u64 = 500;
/// Lines of history that the line editor keeps.
pub const TERMINAL_HISTORY_LINES_MAX: usize = 1_000;
/// Tries to hand in a typed message while the store is away.
pub const HAND_IN_TRIES_MAX: u32 = 5;
/// Between these tries.
pub const HAND_IN_RETRY_MS: u64 = 500;
/// First wait before a chat that ends looks again whether all is answered; it doubles.
pub const DRAIN_LOOK_FIRST_MS: u64 = 50;

/// Connections of the server at a time; more wait to be taken.
pub const HTTP_CONNECTIONS_MAX: usize = 256;
/// The head of a request is there by then, or its connection ends; so does one that is idle.
pub const HTTP_HEAD_MS: u64 = 5_000;
/// Largest head of a request.
pub const HTTP_HEAD_BYTES_MAX: usize = 16 * 1024;
/// Headers of a request.
pub const HTTP_HEADERS_MAX: usize = 64;
/// Silence inside a request's body.
pub const HTTP_BODY_MS: u64 = 5_000;
/// Largest body of a request.
pub const HTTP_BODY_BYTES_MAX: usize = 1024 * 1024;
/// A whole request, its body included.
pub const HTTP_REQUEST_MS: u64 = 30_000;
/// Connections end so long after the server is asked to end.
pub const HTTP_DRAIN_MS: u64 = 5_000;
/// Longest id of a request that is taken from its sender, in characters.
pub const REQUEST_ID_CHARS_MAX: usize = 64;
/// An answer of the store to a probe or a scrape.
pub const PROBE_MS_MAX: u64 = 2_000;
/// Probes and scrapes within so long share one look.
pub const PROBE_KEPT_MS: u64 = 1_000;
/// Index members that a scrape counts; more are not told apart from as many.
pub const SCRAPE_MEMBERS_MAX: usize = 1_000;
/// Until all is handed over when the bot is asked to end.
pub const HAND_OVER_MS_MAX: u64 = 25_000;

const _: () = assert!(RENEW_MS * 3 <= LEASE_MS);
const _: () = assert!(RENEW_MS < BEAT_GAP_MS_MAX && BEAT_GAP_MS_MAX < LEASE_MS);
const _: () = assert!(SWEEP_MS < LEASE_MS);
const _: () = assert!(LIVE_PER_SESSION_MAX < NOTICES_UNREAD_AND_LIVE_MAX);
const _: () = assert!(TAKE_PEOPLE_MAX <= PEOPLE_UNREAD_MAX);
const _: () = assert!(TAKE_NOTICES_MAX <= NOTICES_UNREAD_AND_LIVE_MAX);
const _: () = assert!(NOTICES_WHOLE_MAX <= TAKE_NOTICES_MAX);
const _: () = assert!(LOOP_ALERT_AT < LOOP_END_AT);
const _: () = assert!(MESSAGE_BYTES_MAX < ROW_BYTES_MAX);
const _: () = assert!(CODE_BYTES_MAX < ROW_BYTES_MAX);
// A model's answer is one row, and a script is the argument of a call: each of its bytes may become
// a two-byte escape once in the arguments.
const _: () = assert!(MODEL_TEXT_BYTES_MAX + MODEL_CALLS_BYTES_MAX < ROW_BYTES_MAX);
const _: () = assert!(CODE_BYTES_MAX * 2 < MODEL_CALLS_BYTES_MAX);
const _: () = assert!(MODEL_CONNECT_MS < MODEL_HEADER_MS && MODEL_TAIL_MS < MODEL_IDLE_MS);
const _: () = assert!(MODEL_HEADER_MS + MODEL_IDLE_MS < MODEL_TOTAL_MS);
// Each byte of output may become a two-byte JSON escape, in two streams, of the end of an execution
// and of one report after it.
const _: () = assert!(OUTPUT_BYTES_MAX * 2 * 2 * 2 < ROW_BYTES_MAX);
const _: () = assert!(CODE_BYTES_MAX < ANSWER_ARGUMENTS_BYTES_MAX);
const _: () = assert!(TOOL_CALLS_PER_ANSWER_MAX < CALLS_KEPT_PER_ANSWER_MAX);
// An answer is one row; so is a result, and a notice may be merged into it.
const _: () = assert!(
    ANSWER_TEXT_BYTES_MAX
        + ANSWER_ARGUMENTS_BYTES_MAX
        + CALLS_KEPT_PER_ANSWER_MAX * CALL_NAME_BYTES_MAX * 2
        < ROW_BYTES_MAX
);
const _: () = assert!(RESULT_BYTES_MAX * 2 < ROW_BYTES_MAX);
// A notice may ride with a tool result in one row.
const _: () = assert!((NOTICE_BYTES_MAX + TOOL_RESULT_BYTES_MAX) * 2 < ROW_BYTES_MAX);
// A stop touches every unread arrival with an entry for each of people's, everything the turn
// carries, and every live execution with the items that end it, in one load.
const _: () = assert!(
    PEOPLE_UNREAD_MAX * 2
        + NOTICES_UNREAD_AND_LIVE_MAX
        + CARRIED_PER_TURN_MAX
        + LIVE_PER_SESSION_MAX * 3
        < KEYS_PER_LOAD_MAX - 64
);
// A burial touches what the turn carries with its executions, and the turn's log.
const _: () = assert!(CARRIED_PER_TURN_MAX * 2 + 512 < KEYS_PER_LOAD_MAX);
const _: () = assert!(TAKE_PEOPLE_MAX + TAKE_NOTICES_MAX < CARRIED_PER_TURN_MAX);
const _: () = assert!(START_MS_MAX > LEASE_MS && START_MS_MAX < PLACE_CHECKED_MS);
const _: () = assert!(CODE_BYTES_MAX * 3 <= TOOL_ARGUMENTS_BYTES_MAX);
const _: () = assert!(TOOL_ARGUMENTS_BYTES_MAX < ROW_BYTES_MAX);
const _: () = assert!(DRAIN_IDLE_MS < DRAIN_MS);
const _: () = assert!(TERMINAL_SHOWN_MS_MAX < POST_LEASE_MS);
const _: () = assert!(TERMINAL_SHOWN_MS_MAX + SWEEP_MS < HAND_OVER_MS_MAX);
// Each byte of a message may become six in a frame.
const _: () = assert!(MESSAGE_BYTES_MAX * 6 + ROW_BYTES_MAX < FRAME_BYTES_MAX);
const _: () = assert!(PROBE_MS_MAX < HTTP_REQUEST_MS && HTTP_BODY_MS < HTTP_REQUEST_MS);
// What a shim does after a script's end is over before the ledger calls it overdue.
const _: () = assert!(DRAIN_MS + LEFTOVERS_MS_MAX < OVERDUE_MS);
