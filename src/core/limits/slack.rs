//! The limits of Slack: its own, and those that dogwatch keeps towards it.

use super::{
    HAND_OVER_MS_MAX, HTTP_REQUEST_MS, MODEL_TOTAL_MS, OWNED_SHOWN_MAX, POST_LEASE_MS, SWEEP_MS,
};

/// What Slack sends is acknowledged so long after it came, or not at all: then Slack sends it
/// again. It waits 3 s itself.
pub const SLACK_ACK_MS: u64 = 1_000;
/// Clocks of Slack and of this machine may differ by so much, in both directions.
pub const SLACK_SKEW_MS_MAX: u64 = 300_000;
/// Deliveries of Slack's that are in hand at once; more are not acknowledged.
pub const SLACK_IN_HAND_MAX: usize = 64;
/// Times that Slack sends an event again.
pub const SLACK_RETRIES_MAX: u32 = 3;
/// Answers to commands and presses that are on their way at once; more are dropped.
pub const SLACK_TOLD_MAX: usize = 16;
/// Longest such answer, in characters.
pub const SLACK_TOLD_CHARS_MAX: usize = 3_000;
/// Watchers that such an answer lists with a button each.
pub const SLACK_LISTED_MAX: usize = 10;
/// Commands whose repeats are recognised, beside the ledger's own ids.
pub const SLACK_COMMANDS_KEPT_MAX: usize = 1_024;
/// Files of one message that the model is told of.
pub const SLACK_FILES_SHOWN_MAX: usize = 20;
/// Shown of the name of a file, in characters.
pub const SLACK_FILE_NAME_CHARS_MAX: usize = 120;
/// Steps that Slack may send the bot on to, to where the bytes of a file are.
pub const SLACK_FILE_STEPS_MAX: usize = 2;
/// Messages of other bots that a thread takes within [`SLACK_BOTS_WINDOW_MS`].
pub const SLACK_BOT_MESSAGES_MAX: usize = 10;
/// The window in which they are counted.
pub const SLACK_BOTS_WINDOW_MS: u64 = 600_000;
/// Threads in which messages of other bots are counted.
pub const SLACK_BOT_THREADS_MAX: usize = 1_024;
/// First wait before the bot asks Slack again who it is; it doubles.
pub const SLACK_WHO_FIRST_MS: u64 = 1_000;
/// Longest such wait.
pub const SLACK_WHO_MS_MAX: u64 = 60_000;
/// Largest frame of Socket Mode. A message has at most 40,000 characters and 50 blocks, and an edit
/// holds it twice, so no event comes near it.
pub const SLACK_FRAME_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Until a connection of Socket Mode is there, its ticket included.
pub const SLACK_SOCKET_OPEN_MS: u64 = 20_000;
/// Until Slack has greeted on it.
pub const SLACK_SOCKET_HELLO_MS: u64 = 10_000;
/// Between the bot's own pings.
pub const SLACK_SOCKET_PING_MS: u64 = 15_000;
/// A connection on which nothing came for so long is deaf: it is made anew.
pub const SLACK_SOCKET_DEAF_MS: u64 = 75_000;
/// A connection that lived for so long was a good one: the waits begin anew.
pub const SLACK_SOCKET_STEADY_MS: u64 = 30_000;
/// First wait before a connection is opened after one that failed; it doubles.
pub const SLACK_SOCKET_AGAIN_FIRST_MS: u64 = 1_000;
/// Longest such wait.
pub const SLACK_SOCKET_AGAIN_MS_MAX: u64 = 60_000;
/// A connection that is left has so long for what is in hand.
pub const SLACK_SOCKET_LEAVE_MS: u64 = 5_000;
/// Frames that wait to be sent on a connection.
pub const SLACK_SOCKET_QUEUE_MAX: usize = 256;
/// Connections of Socket Mode that Slack gives an app.
pub const SLACK_SOCKETS_MAX: u8 = 10;
/// Until Slack has taken the connection.
pub const SLACK_CONNECT_MS: u64 = 5_000;
/// A whole call of Slack's Web API.
pub const SLACK_CALL_MS: u64 = 10_000;
/// Until the next call where Slack says "too many" but not how long.
pub const SLACK_LIMITED_MS: u64 = 5_000;
/// Longest wait that Slack's own word can impose.
pub const SLACK_LIMITED_MS_MAX: u64 = 3_600_000;
/// Largest answer of Slack's Web API.
pub const SLACK_ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Characters of Markdown in one message. Slack takes 12,000 in a block, and somewhat more in all.
pub const SLACK_BLOCK_CHARS_MAX: usize = 11_500;
/// Characters of a message's text beside or without blocks.
pub const SLACK_TEXT_CHARS_MAX: usize = 4_000;
/// Of either so many are kept free, for the mark of a repeat.
pub const SLACK_MARK_CHARS_MAX: usize = 100;
/// Messages of one post; what needs more is one message and a file.
pub const SLACK_PARTS_MAX: usize = 3;
/// Characters of the beginning that is shown of what is a file.
pub const SLACK_INTRO_CHARS_MAX: usize = 3_000;
/// Between messages into one channel, in the long run.
pub const SLACK_PACE_MS: u64 = 1_000;
/// Messages into one channel that need not keep that distance.
pub const SLACK_BURST_MAX: u64 = 4;
/// Channels whose pace is known, and limits that are known.
pub const SLACK_PACED_MAX: usize = 1_024;
/// One try of a post with all its calls and waits.
pub const SLACK_POST_MS_MAX: u64 = 20_000;
/// A call of a post is not begun when less is left of the try.
pub const SLACK_CALL_MS_MIN: u64 = 2_000;
/// Looking for what an earlier try has posted.
pub const SLACK_LOOK_MS_MAX: u64 = 10_000;
/// Pages of a thread that are looked at.
pub const SLACK_LOOK_PAGES_MAX: usize = 5;
/// Messages of such a page; Slack gives fewer to some.
pub const SLACK_LOOK_MESSAGES_MAX: usize = 200;
/// Pages that are read of what was said before the bot was called to a thread.
pub const SLACK_EARLIER_PAGES_MAX: usize = 3;
/// Looked at from so long before the first try on: clocks differ.
pub const SLACK_LOOK_BACK_MS: u64 = 3_600_000;
/// Posts of which is remembered what is posted of them.
pub const SLACK_POSTS_KEPT_MAX: usize = 256;
/// Between tries of what only an operator can mend.
pub const SLACK_MENDED_MS: u64 = 300_000;
/// Between changes of what is shown of one turn.
pub const SLACK_STATUS_MS: u64 = 1_000;
/// A status is set again after so long: Slack takes it away after two minutes.
pub const SLACK_STATUS_AGAIN_MS: u64 = 90_000;
/// Before a status is tried again that could not be set.
pub const SLACK_STATUS_RETRY_MS: u64 = 5_000;
/// A status that cannot be taken away is left to Slack after so long.
pub const SLACK_STATUS_LEFT_MS: u64 = 60_000;
/// A turn of which nothing was heard for so long is not shown any more.
pub const SLACK_STATUS_QUIET_MS_MAX: u64 = 2_400_000;
/// Threads in which a status is shown.
pub const SLACK_STATUSES_MAX: usize = 256;
/// Calls for statuses at a time.
pub const SLACK_STATUS_CALLS_MAX: usize = 4;
/// Until all statuses are taken away when the bot is asked to end.
pub const SLACK_STATUS_END_MS: u64 = 2_000;
/// Characters that are shown at once of an answer while it comes; fewer wait a moment for more.
pub const SLACK_STREAM_CHARS_MIN: usize = 256;
/// So long they wait, and so far apart are the calls that show them.
pub const SLACK_STREAM_MS: u64 = 1_000;
/// Bytes of an answer that are shown while it comes; the rest comes with the whole.
pub const SLACK_STREAM_BYTES_MAX: usize = 8_000;
/// Before a call is tried again that could not be made.
pub const SLACK_STREAM_RETRY_MS: u64 = 5_000;
/// After its turn has ended, a stream that no post takes over is closed.
pub const SLACK_STREAM_LEFT_MS: u64 = 3_000;
/// So long what a turn showed is known here after its end: its post may be late.
pub const SLACK_STREAM_KEPT_MS: u64 = 600_000;
/// Turns that are shown at a time.
pub const SLACK_STREAMS_MAX: usize = 256;
/// Calls for them at a time.
pub const SLACK_STREAM_CALLS_MAX: usize = 8;
/// How often what runs is looked at, for the last line of its message. Not for every line: Slack
/// takes about one edit a second in a channel, for all.
pub const SLACK_LOOK_MS: u64 = 10_000;
/// Such messages that are drawn at once.
pub const SLACK_DRAWN_AT_ONCE_MAX: usize = 8;
/// People whose home tab is kept true; the oldest are forgotten.
pub const SLACK_HOMES_MAX: usize = 1_000;
/// Between two drawings of one person's tab that nobody asked for, and before a failed one is tried
/// again.
pub const SLACK_HOME_MS: u64 = 5_000;
/// So long what begins or ends is gathered before it is looked at whose it was.
pub const SLACK_HOME_LOOK_MS: u64 = 1_000;
/// Home tabs that are published at once.
pub const SLACK_HOME_CALLS_MAX: usize = 4;
/// Tries of one drawing.
pub const SLACK_HOME_TRIES_MAX: u32 = 3;
/// Watchers in a home tab, each a block; Slack takes 100 blocks.
pub const SLACK_HOME_WATCHERS_MAX: usize = 80;
/// Threads that are listed in it, in one block of at most 3,000 characters.
pub const SLACK_HOME_THREADS_MAX: usize = 15;

const _: () = assert!(SLACK_HOME_WATCHERS_MAX + 10 <= 100);
const _: () = assert!(SLACK_HOME_WATCHERS_MAX <= OWNED_SHOWN_MAX);
const _: () = assert!(SLACK_ACK_MS * 2 < 3_000 && SLACK_TOLD_MAX <= SLACK_IN_HAND_MAX);
const _: () = assert!(SLACK_CALL_MS + SLACK_CONNECT_MS < SLACK_SOCKET_OPEN_MS);
const _: () = assert!(SLACK_SOCKET_PING_MS * 4 < SLACK_SOCKET_DEAF_MS);
const _: () = assert!(SLACK_SOCKET_HELLO_MS < SLACK_SOCKET_STEADY_MS);
const _: () = assert!(SLACK_SOCKET_LEAVE_MS < HAND_OVER_MS_MAX && SLACK_ACK_MS < HTTP_REQUEST_MS);
const _: () = assert!(SLACK_CONNECT_MS < SLACK_CALL_MS && SLACK_CALL_MS < SLACK_POST_MS_MAX);
// A try of a post ends while its lease still lives, and before the bot is ended by force.
const _: () = assert!(SLACK_POST_MS_MAX + SWEEP_MS <= POST_LEASE_MS);
const _: () = assert!(SLACK_POST_MS_MAX + SWEEP_MS <= HAND_OVER_MS_MAX);
const _: () = assert!(SLACK_LOOK_MS_MAX + SLACK_CALL_MS_MIN < SLACK_POST_MS_MAX);
const _: () = assert!(SLACK_MARK_CHARS_MAX < SLACK_TEXT_CHARS_MAX);
const _: () = assert!(SLACK_INTRO_CHARS_MAX + SLACK_TEXT_CHARS_MAX < SLACK_BLOCK_CHARS_MAX);
const _: () = assert!(SLACK_STREAM_CHARS_MIN < SLACK_STREAM_BYTES_MAX);
const _: () = assert!(SLACK_STREAM_BYTES_MAX < SLACK_BLOCK_CHARS_MAX - SLACK_MARK_CHARS_MAX);
const _: () = assert!(SLACK_PARTS_MAX as u64 <= SLACK_BURST_MAX);
const _: () =
    assert!(SLACK_STATUS_AGAIN_MS < 120_000 && MODEL_TOTAL_MS < SLACK_STATUS_QUIET_MS_MAX);
