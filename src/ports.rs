//! The traits between decisions and the world. Owns the outbound ports (`Store`, `Model`,
//! `Channel`, `Launcher`, `Clock`, `Ids`, `Meter`) and the inbound ones (`Desk`, `Installations`,
//! `ExitSink`).
//! Must not know any adapter.

mod desk;
mod files;
mod installations;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;

use crate::core::earlier::Earlier;
use crate::core::egress::Access;
use crate::core::execution::{Address, Execution, Outcome, PostSort};
use crate::core::id::{ExecutionId, FileId, ItemId, SessionId, SpoolId, TurnNo};
use crate::core::ledger::row::{Opening, Surface};
use crate::core::ledger::{Aggregate, Change, Fact, Index, Key, Revision, Row};
use crate::core::message::{Answer, Delta, ModelError, Request};
use crate::core::time::Timestamp;

pub use self::desk::{Command, Desk, DeskError, Done, Owned, SessionView, Shown};
pub use self::files::{FileError, FileText};
pub use self::installations::Installations;

// ---------------------------------------------------------------- Store

/// Why a store did not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// It may answer later; an apply may or may not have happened.
    #[error("the store does not answer: {0}")]
    Away(String),
    /// What it holds or was given cannot be used.
    #[error("the store's data cannot be used: {0}")]
    Data(String),
    /// Somebody else holds it.
    #[error("{0}")]
    Held(String),
}

/// What an apply did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    /// The rows are written.
    Applied,
    /// The aggregate has another revision; nothing is written.
    Conflict,
    /// This very apply was done before and is the last one.
    Already,
}

/// Rows at one revision; `None` where there is no such row.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Loaded {
    /// The id of the last apply, `None` for an aggregate that is not there.
    pub revision: Option<Revision>,
    /// One for each key asked, in order.
    pub rows: Vec<Option<Row>>,
}

/// One index member: a row of an aggregate, with its score.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member {
    /// When it is due, in most indexes. At most `SCORE_MAX`.
    pub score: u64,
    /// The aggregate.
    pub aggregate: Aggregate,
    /// The row in it.
    pub key: Key,
}

/// A hint that an index has something new. Lossy: a sweep stands behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hint {
    /// Which index.
    pub index: Index,
    /// The new member.
    pub member: Member,
}

/// A transactional row store. It knows nothing of turns or executions.
pub trait Store: Send + Sync + 'static {
    /// The rows of `keys` at one revision, atomically.
    fn load<'a>(
        &'a self,
        aggregate: &'a Aggregate,
        keys: &'a [Key],
    ) -> BoxFuture<'a, Result<Loaded, StoreError>>;

    /// Writes all of `change` if the aggregate still has the revision it expects, or nothing.
    fn apply(&self, change: Change) -> BoxFuture<'_, Result<Applied, StoreError>>;

    /// Members of `index` with score ≤ `until`, lowest first, after `after`, at most `limit`.
    fn members<'a>(
        &'a self,
        index: &'a Index,
        until: u64,
        after: Option<&'a Member>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Member>, StoreError>>;

    /// Rows of one aggregate in key order, after `after`, at most `limit`.
    fn rows<'a>(
        &'a self,
        aggregate: &'a Aggregate,
        after: Option<&'a Key>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<(Key, Row)>, StoreError>>;

    /// All aggregates in order, after `after`, at most `limit`.
    fn aggregates<'a>(
        &'a self,
        after: Option<&'a Aggregate>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Aggregate>, StoreError>>;

    /// Hints from now on.
    fn wakes(&self) -> broadcast::Receiver<Hint>;

    /// The store's own time.
    fn now(&self) -> BoxFuture<'_, Result<Timestamp, StoreError>>;
}

// ---------------------------------------------------------------- Clock, Ids

/// Time for the engine and for the adapters.
pub trait Clock: Send + Sync + 'static {
    /// Never less than before in this process.
    fn now(&self) -> Timestamp;
    /// Returns once `now()` is at least `at`.
    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()>;
    /// What the machine's own clock says, which may be set at any time: only for what others sign
    /// by theirs.
    fn wall(&self) -> Timestamp {
        self.now()
    }
    /// The store that several nodes share says that it is `now`: go on from there, never back.
    fn agree(&self, _now: Timestamp) {}
}

/// Fresh ids. Each call gives another text of 26 letters and digits.
pub trait Ids: Send + Sync + 'static {
    /// A fresh one.
    fn fresh(&self) -> String;
}

// ---------------------------------------------------------------- Model

/// A language model. Dropping the future cancels the call.
pub trait Model: Send + Sync + 'static {
    /// Asks once. `progress` hears pieces of the answer while they come.
    fn call<'a>(
        &'a self,
        request: &'a Request,
        progress: &'a mut (dyn FnMut(Delta) + Send),
    ) -> BoxFuture<'a, Result<Answer, ModelError>>;
}

// ---------------------------------------------------------------- Channel

/// Something to be posted, from the outbox. The only way anything is posted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Post {
    /// Its idempotency key.
    pub item: ItemId,
    /// The session it is of.
    pub session: SessionId,
    /// Where it goes.
    pub address: Address,
    /// What it says.
    pub text: String,
    /// What sort of post.
    pub sort: PostSort,
    /// An earlier try had an unknown outcome: this may repeat what was posted.
    pub may_repeat: bool,
    /// The message that shows its turn: the post takes it over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub surface: Option<Surface>,
}

/// Why a post failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChannelError {
    /// Try again, not before so many milliseconds.
    #[error("not posted: {what}")]
    Retry {
        /// What was seen.
        what: String,
        /// Wait at least so long.
        after_ms: u64,
    },
    /// It may have been posted. The next try is told so.
    #[error("nobody knows whether it was posted: {what}")]
    Unknown {
        /// What was seen.
        what: String,
        /// Wait at least so long.
        after_ms: u64,
    },
    /// It will never be possible.
    #[error("cannot be posted: {what}")]
    Never {
        /// What was seen.
        what: String,
    },
}

/// How an execution stands, for a message that shows it from its start to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Card {
    /// The idempotency key of this posting of it.
    pub item: ItemId,
    /// The session it is of.
    pub session: SessionId,
    /// The execution as it is now.
    pub execution: Execution,
    /// What posting it answered, where it is to be made final; `None` to post it.
    pub posted: Option<String>,
    /// An earlier try had an unknown outcome: it may be there already.
    pub may_repeat: bool,
}

/// The first message of a conversation that a person asks for where there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// Its idempotency key.
    pub item: ItemId,
    /// What belongs to the place.
    pub session: SessionId,
    /// The place.
    pub address: Address,
    /// Who asks, and for what.
    pub opening: Opening,
    /// An earlier try had an unknown outcome: it may be there already.
    pub may_repeat: bool,
}

/// What a person sees of a turn while it runs. Lossy, never stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Progress {
    /// A turn began or was resumed.
    Began {
        /// Which turn.
        turn: TurnNo,
        /// A completion started it.
        synthetic: bool,
    },
    /// A piece of text came.
    Text(String),
    /// The text so far will not be the answer: tools follow.
    Discarded,
    /// The text so far is a whole answer, to be posted when the turn is over. The model may be
    /// asked again before that.
    Whole,
    /// A tool runs.
    Tool {
        /// Its name.
        name: String,
    },
    /// The turn is over; its posts come by the outbox.
    Ended,
    /// The attempt failed, and its text so far is void; it is tried again, or given up.
    Failed {
        /// One line why.
        what: String,
        /// When it is tried again; `None` when the turn is over. Who must hear of that is told by
        /// a post.
        again_at: Option<Timestamp>,
    },
}

/// A place where people read.
pub trait Channel: Send + Sync + 'static {
    /// Posts once. The reference says what was posted, in the surface's own words.
    fn post(&self, post: Post) -> BoxFuture<'_, Result<String, ChannelError>>;
    /// Can a post to this address be delivered from this node now? What it cannot is left in the
    /// outbox, for another node or for later. Asked often; must return at once.
    fn reaches(&self, _address: &Address) -> bool {
        true
    }
    /// Does a message show each turn while it runs, so that its first post takes it over?
    fn has_surfaces(&self) -> bool {
        false
    }
    /// Does a message show how each execution stands?
    fn shows(&self) -> bool {
        false
    }
    /// Posts that message, or makes it final. The reference says where it is.
    fn show(&self, _card: Card) -> BoxFuture<'_, Result<String, ChannelError>> {
        let what = "executions are not shown here".to_owned();
        Box::pin(std::future::ready(Err(ChannelError::Never { what })))
    }
    /// Posts the first message of a conversation, and answers its place: the `thread` of the
    /// addresses of all that is said there.
    fn root(&self, _root: Root) -> BoxFuture<'_, Result<String, ChannelError>> {
        let what = "no conversation is begun here but by a person".to_owned();
        Box::pin(std::future::ready(Err(ChannelError::Never { what })))
    }
    /// What was said at this address before `before`, for an agent that was just called there.
    /// Asked once for a session. It may be that not all of it can be read: the answer says so.
    fn earlier<'a>(&'a self, _address: &'a Address, _before: Timestamp) -> BoxFuture<'a, Earlier> {
        Box::pin(std::future::ready(Earlier::default()))
    }
    /// Do people share files here?
    fn has_files(&self) -> bool {
        false
    }
    /// A text file that was shared at this address, and nowhere else.
    fn read_file<'a>(
        &'a self,
        _address: &'a Address,
        _file: &'a FileId,
    ) -> BoxFuture<'a, Result<FileText, FileError>> {
        Box::pin(std::future::ready(Err(FileError::Unknown)))
    }
    /// Shows what happens. Must return at once.
    fn progress(&self, session: &SessionId, address: &Address, progress: Progress);
}

// ---------------------------------------------------------------- Launcher

/// What to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// The session.
    pub session: SessionId,
    /// The execution in it.
    pub execution: ExecutionId,
    /// The script's source.
    pub python: String,
    /// Its deadline, from the moment it is let run.
    pub timeout_ms: u64,
    /// Between TERM and KILL.
    pub grace_ms: u64,
    /// What it may have of the network.
    pub access: Access,
}

/// Why nothing was launched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot be started: {what}")]
pub struct LaunchError {
    /// What was seen, and where.
    pub what: String,
}

/// A line and a message of a syntax error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyntaxFault {
    /// The line, from 1; 0 when Python does not say.
    pub line: u64,
    /// What Python says.
    pub message: String,
}

/// What a spool entry turned out to be at start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// A shim holds its lock: it waits for "go" or runs.
    Held,
    /// It is over; the outcome is also reported to the `ExitSink` when it is watched.
    Ended(Outcome),
}

/// One entry of the spool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpoolEntry {
    /// The session it was started for.
    pub session: SessionId,
    /// The execution.
    pub execution: ExecutionId,
    /// It was started with a network; see [`Launcher::allow`].
    pub networked: bool,
    /// What it is.
    pub found: Found,
}

/// What can be seen of a running script.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Glance {
    /// What it printed so far.
    pub stdout: crate::core::output::Captured,
    /// Likewise on stderr.
    pub stderr: crate::core::output::Captured,
    /// Its shim does not answer.
    pub stalled: bool,
}

/// Runs scripts, each under a shim of its own.
pub trait Launcher: Send + Sync + 'static {
    /// The spool this launcher holds.
    fn spool(&self) -> SpoolId;
    /// Compiles, does not run. `Err` when that could not be found out.
    fn check_syntax<'a>(
        &'a self,
        python: &'a str,
    ) -> BoxFuture<'a, Result<Option<SyntaxFault>, LaunchError>>;
    /// Can a script have a network here? The error says why not.
    fn has_network(&self) -> Result<(), LaunchError> {
        Ok(())
    }
    /// Says again what a script that was started with a network may have of it, since whoever holds
    /// it to that keeps nothing. Unknown is no error.
    fn allow<'a>(
        &'a self,
        _session: &'a SessionId,
        _execution: &'a ExecutionId,
        _access: &'a Access,
    ) -> BoxFuture<'a, Result<(), LaunchError>> {
        Box::pin(std::future::ready(Ok(())))
    }
    /// Starts the shim, which waits for `go`. Its end is reported to the `ExitSink`, once a boot.
    fn launch(&self, launch: Launch) -> BoxFuture<'_, Result<(), LaunchError>>;
    /// Lets it run; a second time changes nothing.
    fn go<'a>(
        &'a self,
        session: &'a SessionId,
        execution: &'a ExecutionId,
    ) -> BoxFuture<'a, Result<(), LaunchError>>;
    /// TERM, grace, KILL; its end is reported like any other. Unknown is no error.
    fn cancel<'a>(
        &'a self,
        session: &'a SessionId,
        execution: &'a ExecutionId,
    ) -> BoxFuture<'a, Result<(), LaunchError>>;
    /// Ends it now, whatever it is: for work that the ledger has ended. Unknown is no error.
    fn kill<'a>(
        &'a self,
        session: &'a SessionId,
        execution: &'a ExecutionId,
    ) -> BoxFuture<'a, Result<(), LaunchError>>;
    /// Everything in the spool that is not settled. A `Held` one is watched from now on.
    fn adopt(&self) -> BoxFuture<'_, Result<Vec<SpoolEntry>, LaunchError>>;
    /// How one ended that was settled, while that is kept: for a store that went back in time.
    fn recall<'a>(
        &'a self,
        _session: &'a SessionId,
        _execution: &'a ExecutionId,
    ) -> BoxFuture<'a, Option<Outcome>> {
        Box::pin(std::future::ready(None))
    }
    /// What it printed so far, `None` when the spool does not have it.
    fn glance<'a>(
        &'a self,
        session: &'a SessionId,
        execution: &'a ExecutionId,
    ) -> BoxFuture<'a, Option<Glance>>;
    /// The record is safe in the ledger: the spool sets it aside, forgets it after `SPOOL_KEEP_MS`.
    fn settled<'a>(
        &'a self,
        session: &'a SessionId,
        execution: &'a ExecutionId,
    ) -> BoxFuture<'a, ()>;
}

/// Hears of the end of what a launcher started or adopted.
pub trait ExitSink: Send + Sync + 'static {
    /// It is over. May be said twice.
    fn exited(&self, session: SessionId, execution: ExecutionId, outcome: Outcome);
}

// ---------------------------------------------------------------- Meter

/// How an apply ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ApplyEnd {
    /// Written.
    Applied,
    /// Somebody else wrote in between.
    Conflict,
    /// The answer was lost, the rows were not.
    Already,
    /// The store did not answer, or refused.
    Failed,
}

/// Hears what happened, to count it. Must return at once: nothing waits for it and nothing depends
/// on it.
pub trait Meter: Send + Sync + 'static {
    /// An apply ended, after so many milliseconds.
    fn applied(&self, _end: ApplyEnd, _ms: u64) {}
    /// The rows of an apply are written; these are what it made true.
    fn wrote(&self, _facts: &[Fact]) {}
    /// The model was asked, and answered after so many milliseconds.
    fn asked(&self, _answer: &Result<Answer, ModelError>, _ms: u64) {}
    /// A tool was called by this name, which may be any text; its result was an error or not.
    fn called(&self, _tool: &str, _ok: bool, _ms: u64) {}
}

/// Nobody counts.
impl Meter for () {}
