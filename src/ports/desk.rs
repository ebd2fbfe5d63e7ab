//! The one way in: what channels hand to the engine, and what they may ask of it. Must not know any
//! channel.

use std::collections::BTreeMap;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;

use super::Glance;
use crate::core::arrival::Incoming;
use crate::core::execution::{Address, Execution, Scope};
use crate::core::id::{ExecutionId, ItemId, PressId, Principal, SessionId, StopId, TurnNo};
use crate::core::ledger::row::{Opening, SurfaceForm};
use crate::core::ledger::session::Placed;
use crate::core::time::Timestamp;

/// Why the desk did not take something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum DeskError {
    /// Too much is unread.
    #[error("{0}")]
    Full(String),
    /// It is not as it must be.
    #[error("{0}")]
    Invalid(String),
    /// The store does not answer; it may or may not have been taken, a repeat is safe.
    #[error("{0}")]
    Away(String),
}

/// A command of a person. It works while the model is away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// End one execution.
    Cancel {
        /// Which.
        execution: ExecutionId,
        /// Which press.
        press: PressId,
    },
    /// End the turn, or everything.
    Stop {
        /// How much.
        scope: Scope,
        /// Which stop.
        stop: StopId,
        /// When it was said, by the clock that messages come with; now, if `None`. What was said
        /// before it and comes later clears nothing.
        #[serde(default)]
        said_at: Option<Timestamp>,
    },
    /// End this turn; nothing is done where it is not the open one any more.
    StopTurn {
        /// Which turn.
        turn: TurnNo,
        /// Which stop.
        stop: StopId,
        /// When it was said, by the clock that messages come with.
        said_at: Timestamp,
    },
}

/// What a command did, for the person who gave it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Done {
    /// The end of it is asked for.
    Cancelling,
    /// It was over already, with this status.
    Over(crate::core::execution::Status),
    /// There is no such execution here.
    Unknown,
    /// It belongs to this person, who alone can end it.
    Foreign(Principal),
    /// Stopped; so many executions were ended.
    Stopped {
        /// Executions ended.
        ended: usize,
        /// A turn was open.
        turn: bool,
    },
}

/// What a session is doing, for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionView {
    /// A turn is open: its number and attempt.
    pub turn: Option<(TurnNo, u32)>,
    /// Unread messages.
    pub people: usize,
    /// Unread completions.
    pub notices: usize,
    /// Stopped, until a person writes.
    pub stopped: bool,
    /// A failed turn is tried again then.
    pub not_before: Option<Timestamp>,
    /// Executions that are not over, oldest first.
    pub live: Vec<Execution>,
    /// The last ended ones, newest first, at most 10.
    pub ended: Vec<Execution>,
    /// Posts not delivered yet.
    pub unposted: usize,
    /// Where the messages are that show the live executions, as far as they are posted.
    #[serde(default)]
    pub shown: BTreeMap<ExecutionId, String>,
}

/// What one person has running, over all sessions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Owned {
    /// Executions that are not over, oldest first, at most
    /// [`OWNED_SHOWN_MAX`](crate::core::limits::OWNED_SHOWN_MAX).
    pub live: Vec<Execution>,
    /// Places of theirs that are taken: by these, by more, or by what is about to be registered.
    pub taken: usize,
    /// Places that they may take.
    pub cap: usize,
}

/// The message that shows a turn while it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// How it shows text.
    pub form: SurfaceForm,
    /// A hash of what it begins with.
    pub mark: String,
    /// Where it is, once that is known.
    pub at: Option<String>,
}

/// The one way in. Everything that enters a session comes through here.
pub trait Desk: Send + Sync + 'static {
    /// Takes an arrival, durably. Returning means it will not be lost.
    fn accept<'a>(
        &'a self,
        session: &'a SessionId,
        incoming: Incoming,
    ) -> BoxFuture<'a, Result<(), DeskError>>;
    /// Begins a conversation at a place that has none, durably: its first message is posted, then
    /// what the person says enters it. Both once for each `item`.
    fn open<'a>(
        &'a self,
        _session: &'a SessionId,
        _item: ItemId,
        _address: Address,
        _opening: Opening,
    ) -> BoxFuture<'a, Result<(), DeskError>> {
        let what = "conversations are not begun here".to_owned();
        Box::pin(std::future::ready(Err(DeskError::Invalid(what))))
    }
    /// Does what a person commands.
    fn command<'a>(
        &'a self,
        session: &'a SessionId,
        by: &'a Principal,
        command: Command,
    ) -> BoxFuture<'a, Result<Done, DeskError>>;
    /// Says what a session is doing.
    fn view<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<SessionView, DeskError>>;
    /// Sessions of which an execution was let run or ended, from now on. Lossy: who lagged looks
    /// at all.
    fn stirs(&self) -> broadcast::Receiver<SessionId>;
    /// Somebody reads who did not before: what waited for a reader is posted now.
    fn attended(&self) {}
    /// Sessions that have executions which live here; none where nothing does.
    fn at_home(&self) -> BoxFuture<'_, Result<Vec<SessionId>, DeskError>> {
        Box::pin(std::future::ready(Ok(vec![])))
    }
    /// What one person has running anywhere; nothing where nobody can.
    fn of_owner<'a>(&'a self, _owner: &'a Principal) -> BoxFuture<'a, Result<Owned, DeskError>> {
        Box::pin(std::future::ready(Ok(Owned::default())))
    }
    /// A turn is shown by such a message: said before it is asked for, and again once it is known
    /// where it is. Only what is answered [`Placed::Here`] may be shown.
    fn surface<'a>(
        &'a self,
        _session: &'a SessionId,
        _turn: TurnNo,
        _shown: Shown,
    ) -> BoxFuture<'a, Result<Placed, DeskError>> {
        Box::pin(std::future::ready(Ok(Placed::Over)))
    }
    /// What a running or ended execution printed; `None` where it does not live here.
    fn glance<'a>(
        &'a self,
        session: &'a SessionId,
        execution: &'a ExecutionId,
    ) -> BoxFuture<'a, Option<Glance>>;
}
