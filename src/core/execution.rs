//! Background work: its states, its outcome, its homes. Owns the words for how work ends.
//! Must not know how a process is run or where a record is kept.

use std::ops::Not;

use serde::{Deserialize, Serialize};

use super::egress::Access;
use super::id::{
    BootId, ChainNo, EntryNo, ExecutionId, Generation, PressId, Principal, Seq, SpoolId,
    SupersessionKey, TurnNo,
};
use super::output::Captured;
use super::time::Timestamp;

/// What sort of background work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A watcher script in a process of its own.
    Script,
}

/// Who is told when the work ends, besides the record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Notify {
    /// The agent: a synthetic turn.
    #[default]
    Agent,
    /// A person: a post in the thread, the agent is not woken.
    Human,
    /// Both, each once.
    Both,
    /// Nobody: it is only listed.
    Silent,
}

impl Notify {
    /// Does the end of the work enter the inbox?
    pub const fn wakes_agent(self) -> bool {
        matches!(self, Self::Agent | Self::Both)
    }

    /// Is a person owed a post?
    pub const fn tells_human(self) -> bool {
        matches!(self, Self::Human | Self::Both)
    }
}

/// Where a reply goes. Frozen when a turn or an execution begins.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Address {
    /// Which adapter posts: `console`.
    pub surface: String,
    /// The thread in that surface's own words: for the console the name of the chat.
    pub thread: String,
}

/// What sort of post.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PostSort {
    /// The answer of a turn that a person started.
    Answer,
    /// The answer of a turn that a completion started.
    Woken,
    /// To people, apart from the agent.
    Human,
    /// Something could not be done or delivered.
    Failure,
}

/// How much a stop ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// The open turn.
    Turn,
    /// The open turn, everything in the background, and what was not read yet of it.
    All,
}

/// Where work lives, and so whose death it survives.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Home {
    /// In a spool directory: it survives the bot.
    Spool(SpoolId),
    /// In the process of one boot: it dies with it.
    Process(BootId),
}

/// Where an execution stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// In the record, nothing runs yet.
    Registered,
    /// It may run.
    Running,
    /// Somebody asked to end it; its home has not reported the end yet.
    Cancelling,
    /// Over. The first of these wins, always.
    Ended(Outcome),
}

impl State {
    /// Is it over?
    pub const fn is_ended(&self) -> bool {
        matches!(self, Self::Ended(_))
    }
}

/// How work ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It did what it was started for: exit 0.
    Completed,
    /// It exited with another code, died by a signal, or could not be started.
    Failed,
    /// Its deadline passed.
    TimedOut,
    /// Somebody ended it.
    Cancelled,
    /// Nobody can say how it ended.
    Lost,
    /// A newer one with the same key took its place.
    Superseded,
}

impl Status {
    /// As written in notices, pages and the API.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
            Self::Lost => "lost",
            Self::Superseded => "superseded",
        }
    }
}

/// How a process ended, as its parent saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

/// The one terminal record of an execution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// How it ended.
    pub status: Status,
    /// The true exit code or signal, where there was a process that ended.
    pub exit: Option<Exit>,
    /// One line why, where the status does not say it: `shim-killed`, `never-started`, ….
    pub reason: Option<String>,
    /// What it printed, sanitised, redacted and bounded.
    pub stdout: Captured,
    /// What it printed on stderr, likewise.
    pub stderr: Captured,
    /// How long it ran, by the clock of its supervisor.
    pub elapsed_ms: u64,
    /// Processes it left behind that were killed after it.
    pub leftovers_killed: u32,
}

impl Outcome {
    /// An end without a process to report of.
    pub fn bare(status: Status, reason: impl Into<String>) -> Self {
        Self {
            status,
            exit: None,
            reason: Some(reason.into()),
            stdout: Captured::default(),
            stderr: Captured::default(),
            elapsed_ms: 0,
            leftovers_killed: 0,
        }
    }
}

/// How a model receipt ended. Exactly one for every completion, in the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// A committed turn carried it.
    Acked,
    /// A committed turn fetched it with a tool.
    Collected,
    /// A newer execution with the same key took its place.
    Superseded,
    /// A stop ended the interest in it.
    Stopped,
    /// It could not be delivered.
    Dead(String),
    /// Nobody asked to be woken.
    Waived,
}

/// Where a completion's model receipt is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelReceipt {
    /// Not terminal yet.
    None,
    /// In the row of this arrival, which alone knows its fate.
    Arrival(Seq),
    /// There never was an arrival; this is the fate.
    Fate(Fate),
}

/// Whether a person was told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HumanReceipt {
    /// Nobody asked for it.
    None,
    /// To be posted when it ends, or in the outbox.
    Owed,
    /// Posted, with the surface's own reference.
    Done(String),
    /// It could not be posted.
    Dead(String),
}

/// Who asked for the end of an execution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CancelledBy {
    /// The model, in a turn that waits for the result.
    Model,
    /// A person: the notice rides with the next turn and does not wake.
    Person {
        /// Who.
        principal: Principal,
        /// Which press.
        press: PressId,
    },
}

/// A report that came after the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LateFact {
    /// When it came.
    pub at: Timestamp,
    /// What it said.
    pub outcome: Outcome,
}

/// The call that starts an execution. With its session it names the execution before there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Start {
    /// The turn.
    pub turn: TurnNo,
    /// The log entry that has the call.
    pub entry: EntryNo,
    /// Which call of that entry.
    pub call: u32,
}

/// The record of one execution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Execution {
    /// Its id in its session.
    pub id: ExecutionId,
    /// What sort of work.
    pub kind: Kind,
    /// Its name, as the model gave it.
    pub name: String,
    /// The turn that started it.
    pub turn: TurnNo,
    /// The log entry and the call in it that started it.
    pub call: (EntryNo, u32),
    /// Whose it is.
    pub owner: Principal,
    /// The generation it was started in.
    pub generation: Generation,
    /// The chain it draws from.
    pub chain: ChainNo,
    /// Where its posts go.
    pub address: Address,
    /// Where it lives.
    pub home: Home,
    /// The boot that attends to it.
    pub boot: BootId,
    /// Who is told of its end.
    pub notify: Notify,
    /// Its supersession key.
    pub key: Option<SupersessionKey>,
    /// Its own deadline, from its start.
    pub timeout_ms: u64,
    /// Where it stands.
    pub state: State,
    /// Who asked for its end.
    pub cancel: Option<CancelledBy>,
    /// When it was registered.
    pub registered_at: Timestamp,
    /// When it was let run.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// When the ledger looks after it, whatever its home does.
    pub due_at: Timestamp,
    /// Its home is away; it may still be running.
    pub unattended: bool,
    /// The model's receipt.
    pub model: ModelReceipt,
    /// The person's receipt.
    pub human: HumanReceipt,
    /// Reports after the end.
    pub late: Vec<LateFact>,
    /// A message where its posts go shows how it stands, from its start to its end.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub shown: bool,
    /// The turn that started it was shared, so its completion is.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub shared: bool,
    /// What it was allowed of the network when it was started, by name and without any secret.
    #[serde(default, skip_serializing_if = "Access::is_none")]
    pub access: Access,
}

impl Execution {
    /// The call that started it.
    pub const fn start(&self) -> Start {
        Start { turn: self.turn, entry: self.call.0, call: self.call.1 }
    }
}
