//! What the terminal has to say, as data. Owns the events of `--json` and their shape.
//! Must not know how an event looks to a person.

use serde::{Deserialize, Serialize};

use crate::core::execution::{Execution, Exit, PostSort, State, Status};
use crate::core::id::{ExecutionId, ItemId, Principal, TurnNo};
use crate::core::time::Timestamp;
use crate::ports::{self, SessionView};

use super::chat::ChatName;

/// One event; one JSON object a line, its name in `event`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// Lines are read from now on.
    Ready {
        /// The chat that lines go to.
        chat: ChatName,
        /// When.
        at: Timestamp,
    },
    /// A message is taken, durably.
    Accepted {
        /// In which chat.
        chat: ChatName,
        /// Its dedupe key.
        key: String,
        /// When.
        at: Timestamp,
    },
    /// Something is posted.
    Post {
        /// In which chat.
        chat: ChatName,
        /// What it says, without control sequences.
        text: String,
        /// What sort of post.
        sort: PostSort,
        /// Its outbox item.
        item: ItemId,
        /// It may repeat an earlier one.
        may_repeat: bool,
        /// When.
        at: Timestamp,
    },
    /// What a turn does.
    Progress {
        /// In which chat.
        chat: ChatName,
        /// What.
        #[serde(flatten)]
        step: Step,
        /// When.
        at: Timestamp,
    },
    /// An execution was seen to start, to be asked to end, or to be over.
    Watcher {
        /// In which chat.
        chat: ChatName,
        /// Which, and where it stands now.
        #[serde(flatten)]
        work: Work,
        /// When.
        at: Timestamp,
    },
    /// The answer to a command.
    Command {
        /// In which chat it was given.
        chat: ChatName,
        /// The answer.
        #[serde(flatten)]
        reply: Reply,
        /// When.
        at: Timestamp,
    },
    /// A line was not taken, or something could not be done.
    Error {
        /// In which chat.
        chat: ChatName,
        /// What, and what now.
        what: String,
        /// When.
        at: Timestamp,
    },
    /// The bot of an attached terminal is away, or back.
    Link {
        /// It is back.
        up: bool,
        /// When.
        at: Timestamp,
    },
    /// The last event.
    Bye {
        /// A remark for people: what runs on.
        note: Option<String>,
        /// When.
        at: Timestamp,
    },
}

/// What a turn does, its kind in `kind`. Lossy, never stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Step {
    /// A turn began or was resumed.
    Began {
        /// Its number.
        turn: TurnNo,
        /// A completion started it.
        synthetic: bool,
    },
    /// A piece of text came.
    Text {
        /// The piece.
        text: String,
    },
    /// The text so far is not the answer.
    Discarded,
    /// The text so far is a whole answer; its post comes when the turn is over.
    Whole,
    /// A tool runs.
    Tool {
        /// Its name.
        name: String,
    },
    /// The turn is over.
    Ended,
    /// The attempt failed.
    Failed {
        /// One line why.
        what: String,
        /// When it is tried again; nothing when the turn is over.
        again_at: Option<Timestamp>,
    },
}

impl From<ports::Progress> for Step {
    fn from(progress: ports::Progress) -> Self {
        match progress {
            ports::Progress::Began { turn, synthetic } => Self::Began { turn, synthetic },
            ports::Progress::Text(text) => Self::Text { text },
            ports::Progress::Discarded => Self::Discarded,
            ports::Progress::Whole => Self::Whole,
            ports::Progress::Tool { name } => Self::Tool { name },
            ports::Progress::Ended => Self::Ended,
            ports::Progress::Failed { what, again_at } => Self::Failed { what, again_at },
        }
    }
}

/// Where work stands, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stand {
    /// In the record, nothing runs yet.
    Starting,
    /// It runs.
    Running,
    /// Somebody asked to end it.
    Cancelling,
    /// It did what it was started for.
    Completed,
    /// It failed.
    Failed,
    /// Its deadline passed.
    TimedOut,
    /// Somebody ended it.
    Cancelled,
    /// Nobody can say how it ended.
    Lost,
    /// A newer one took its place.
    Superseded,
}

impl Stand {
    /// Of an execution's state.
    pub const fn of(state: &State) -> Self {
        match state {
            State::Registered => Self::Starting,
            State::Running => Self::Running,
            State::Cancelling => Self::Cancelling,
            State::Ended(outcome) => Self::ended(outcome.status),
        }
    }

    /// Of an ended one's status.
    pub const fn ended(status: Status) -> Self {
        match status {
            Status::Completed => Self::Completed,
            Status::Failed => Self::Failed,
            Status::TimedOut => Self::TimedOut,
            Status::Cancelled => Self::Cancelled,
            Status::Lost => Self::Lost,
            Status::Superseded => Self::Superseded,
        }
    }

    /// Is it over?
    pub const fn is_over(self) -> bool {
        !matches!(self, Self::Starting | Self::Running | Self::Cancelling)
    }

    /// For people.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Cancelling => "cancelling",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::TimedOut => "timed out",
            Self::Cancelled => "cancelled",
            Self::Lost => "lost",
            Self::Superseded => "superseded",
        }
    }
}

/// One execution, as a table shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// Its id.
    pub id: ExecutionId,
    /// Its name.
    pub name: String,
    /// Where it stands.
    pub state: Stand,
    /// How long it has run, or ran, in milliseconds.
    pub elapsed_ms: u64,
    /// Its deadline from its start, in milliseconds.
    pub timeout_ms: u64,
    /// How it ended: `exit 3`, `signal 9`, or a reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<String>,
    /// The last line that it printed so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_line: Option<String>,
    /// It is not attended to, or its supervisor does not answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stalled: bool,
}

impl Work {
    /// Of an execution, at this instant.
    pub fn of(execution: &Execution, now: Timestamp) -> Self {
        let begun = execution.started_at.unwrap_or(execution.registered_at);
        let (elapsed_ms, ending) = match &execution.state {
            State::Registered | State::Running | State::Cancelling => (now.since_ms(begun), None),
            State::Ended(outcome) => {
                let exit = match outcome.exit {
                    Some(Exit::Code(0)) | None => None,
                    Some(Exit::Code(code)) => Some(format!("exit {code}")),
                    Some(Exit::Signal(signal)) => Some(format!("signal {signal}")),
                };
                (outcome.elapsed_ms, exit.or_else(|| outcome.reason.clone()))
            }
        };
        Self {
            id: execution.id.clone(),
            name: execution.name.clone(),
            state: Stand::of(&execution.state),
            elapsed_ms,
            timeout_ms: execution.timeout_ms,
            ending,
            last_line: None,
            stalled: execution.unattended,
        }
    }
}

/// The answer to a command, its name in `command`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Reply {
    /// What runs, oldest first, and what ended, newest first.
    Watchers {
        /// Not over.
        live: Vec<Work>,
        /// Over, the last ones.
        ended: Vec<Work>,
    },
    /// What the chat is doing.
    Status(Summary),
    /// The end of an execution was asked for.
    Cancel {
        /// Which.
        id: ExecutionId,
        /// What came of it.
        result: CancelResult,
    },
    /// Something was stopped.
    Stop {
        /// Everything, not only the turn.
        all: bool,
        /// A turn was open.
        turn: bool,
        /// Executions ended.
        ended: usize,
    },
    /// The commands.
    Help {
        /// For people.
        text: String,
    },
    /// Lines go to this chat now.
    Chat {
        /// Its name.
        name: ChatName,
    },
    /// The chats that this terminal knows.
    Chats {
        /// In order of name.
        chats: Vec<Summary>,
    },
}

/// What came of a cancel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CancelResult {
    /// Its end is asked for.
    Cancelling,
    /// It was over already.
    Over(Stand),
    /// It belongs to this person, who alone can end it.
    Foreign(Principal),
    /// There is no such execution in this chat.
    Unknown,
}

/// What a chat is doing, in numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Which chat.
    pub name: ChatName,
    /// The open turn.
    pub turn: Option<TurnNo>,
    /// Its attempt.
    pub attempt: Option<u32>,
    /// Unread messages.
    pub messages: usize,
    /// Unread results.
    pub results: usize,
    /// Executions that are not over.
    pub running: usize,
    /// Posts not delivered yet.
    pub unposted: usize,
    /// Stopped, until a person writes.
    pub stopped: bool,
    /// A failed turn is tried again then.
    pub again_at: Option<Timestamp>,
}

impl Summary {
    /// Of a session's view.
    pub fn of(chat: &ChatName, view: &SessionView) -> Self {
        Self {
            name: chat.clone(),
            turn: view.turn.map(|(turn, _)| turn),
            attempt: view.turn.map(|(_, attempt)| attempt),
            messages: view.people,
            results: view.notices,
            running: view.live.len(),
            unposted: view.unposted,
            stopped: view.stopped,
            again_at: view.not_before,
        }
    }
}
