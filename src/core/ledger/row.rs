//! The rows of the aggregates. Owns their fields; each fact stands in one row only.
//! Must not know operations.

mod errand;
mod surface;

use std::collections::BTreeMap;
use std::ops::Not;

use serde::{Deserialize, Serialize};

use crate::core::arrival::Arrival;
use crate::core::execution::{Address, Execution, Start};
use crate::core::id::{
    BootId, ChainNo, ClaimId, EntryNo, ExecutionId, Fence, Generation, ItemId, LeaseId, Principal,
    Seq, SessionId, SpoolId, StopId, TurnNo,
};
use crate::core::installation::{Installation, Invitations};
use crate::core::time::Timestamp;
use crate::core::transcript::{Entry, Origin};

pub use errand::{Errand, Opening, post_line, show_line};
pub use surface::{Surface, SurfaceForm};

/// The right to run a session's turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lane {
    /// Whose.
    pub boot: BootId,
    /// The turn it is for.
    pub turn: TurnNo,
    /// Grows at every claim.
    pub fence: Fence,
    /// The claim that got it.
    pub claim: ClaimId,
    /// When the lease ends, where leases count.
    pub until: Timestamp,
    /// Nothing else runs in that boot: what ends the boot is this turn's doing.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub alone: bool,
}

/// Head of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Raised by `stop all`.
    pub generation: Generation,
    /// Stopped until a person writes.
    pub stopped: bool,
    /// When everything was last stopped, by its source: an older message that comes later is not
    /// answered, and clears nothing.
    pub stopped_until: Option<Timestamp>,
    /// The highest fence given.
    pub fence: Fence,
    /// Who may write the open turn.
    pub lane: Option<Lane>,
    /// The open turn.
    pub open: Option<TurnNo>,
    /// Turns opened so far.
    pub turns: TurnNo,
    /// Arrivals so far.
    pub arrivals: Seq,
    /// Executions so far; the number in their ids.
    pub executions: u64,
    /// Chains so far.
    pub chains: ChainNo,
    /// The chain of the newest message of a person; 0 before any.
    pub chain: ChainNo,
    /// Committed length of the log. Entries beyond it are the open turn's.
    pub tlen: EntryNo,
    /// Entries before this are forgotten.
    pub log_first: EntryNo,
    /// The model reads the log from here on, after the summary.
    pub log_from: EntryNo,
    /// A failed turn is not claimed before this.
    pub not_before: Timestamp,
    /// The last stops, so that a repeat changes nothing.
    pub stops: Vec<StopId>,
    /// The last fence that was released.
    pub released: Fence,
    /// When the inbox alone would make the session ready; kept by the framework.
    pub inbox_at: Option<Timestamp>,
    /// When the session is to be claimed; kept by the framework, scored in `ready`.
    pub wake_at: Option<Timestamp>,
}

/// One unread arrival, as far as taking needs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unread {
    /// Which arrival.
    pub seq: Seq,
    /// It starts a turn; otherwise it rides with the next.
    pub wakes: bool,
    /// It is claimed alone.
    pub solo: bool,
    /// Whose.
    pub principal: Principal,
    /// Not before this, so that quick messages start one turn.
    pub ready_at: Timestamp,
    /// Its size.
    pub bytes: u64,
    /// A completion's execution.
    pub execution: Option<ExecutionId>,
    /// The chain it draws from.
    pub chain: ChainNo,
    /// A turn may take it together with those of other people.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub shared: bool,
}

/// The one inbox: people and notices, each in arrival order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inbox {
    /// Messages, events and remarks.
    pub people: Vec<Unread>,
    /// Completions.
    pub notices: Vec<Unread>,
}

/// Ids of executions that are not over, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Live(pub Vec<ExecutionId>);

/// Ids of the executions that ended last, oldest first: what is listed of those that are over,
/// however many there were.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recent(pub Vec<ExecutionId>);

/// The last unfinished item of each destination.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tails(pub BTreeMap<String, ItemId>);

/// What the log before `log_from` said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// It covers the log up to here.
    pub upto: EntryNo,
    /// The text.
    pub text: String,
}

/// One arrival that an entry of a turn carries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carried {
    /// Which arrival.
    pub seq: Seq,
    /// A completion's execution.
    pub execution: Option<ExecutionId>,
    /// A tool fetched it.
    pub collect: bool,
}

/// How far a turn is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnState {
    /// It runs, or waits for its next attempt.
    Open,
    /// Its answer is in the log and in the outbox.
    Committed,
    /// It broke off for good.
    Dead(String),
    /// A person stopped it.
    Stopped,
}

/// The record of one turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// Its number.
    pub no: TurnNo,
    /// How it began.
    pub origin: Origin,
    /// Whose arrivals it takes.
    pub principal: Principal,
    /// Where its posts go.
    pub address: Address,
    /// The chain it draws from: the poorest of those folded into it.
    pub chain: ChainNo,
    /// It takes nothing more.
    pub solo: bool,
    /// Attempts since the last model entry.
    pub attempt: u32,
    /// Failures in a row, for the wait before the next attempt.
    pub failures: u32,
    /// Since when the provider or the store is away.
    pub outage_since: Option<Timestamp>,
    /// Where its log begins.
    pub base: EntryNo,
    /// How many entries it has.
    pub len: u64,
    /// How many of them stand before or at the last model entry.
    pub seen_len: u64,
    /// What its entries carry, in order.
    pub carried: Vec<Carried>,
    /// How many of those the model has answered.
    pub seen: usize,
    /// The fence it was last claimed or written under.
    pub fence: Fence,
    /// When it was opened.
    pub opened_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// How far it is.
    pub state: TurnState,
    /// It takes what is shared, of anybody; otherwise only what is its principal's.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub shared: bool,
    /// People besides its principal whose arrivals it took, each once. It may do what all may.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Principal>,
    /// The message that shows it while it runs, where its channel has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub surface: Option<Surface>,
}

impl Turn {
    /// Everybody whose arrivals it took.
    pub fn people(&self) -> impl Iterator<Item = &Principal> {
        std::iter::once(&self.principal).chain(&self.others)
    }
}

/// What is left of a chain: all that follows from one message of a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chain {
    /// Its number.
    pub no: ChainNo,
    /// When a person opened it.
    pub opened_at: Timestamp,
    /// Synthetic turns left.
    pub wakes: u32,
    /// Tokens left.
    pub tokens: u64,
    /// Executions left.
    pub spawns: u32,
}

impl Chain {
    /// Nothing more is started by itself from it.
    pub const fn is_spent(&self) -> bool {
        self.wakes == 0 || self.tokens == 0
    }
}

/// How far an outbox item is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemState {
    /// Not yet tried, or to be tried again.
    Pending,
    /// Somebody is at it.
    Leased {
        /// Which try.
        lease: LeaseId,
        /// Whose: where one boot holds the store, an earlier boot's lease is void.
        boot: BootId,
        /// Until when nobody else is.
        until: Timestamp,
    },
    /// Done; what the destination answered.
    Done(String),
    /// Given up.
    Dead(String),
}

/// One item of the outbox. Its id is fixed by what it says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// Its id.
    pub id: ItemId,
    /// What it asks for.
    pub errand: Errand,
    /// The execution whose human receipt it is.
    pub receipt_of: Option<ExecutionId>,
    /// When it was written.
    pub created_at: Timestamp,
    /// Not before this; `None` while an older one of its destination is unfinished.
    pub at: Option<Timestamp>,
    /// The next item of its destination, once there is one.
    pub next: Option<ItemId>,
    /// Tries so far.
    pub tries: u32,
    /// A lease ended without an answer: it may have been done.
    pub uncertain: bool,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// How far it is.
    pub state: ItemState,
}

/// The answer that a start key gives for ever.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartKey {
    /// The execution; `None` where its place was given up before there was one, so there is none.
    pub execution: Option<ExecutionId>,
    /// A hash of the request, so that another request with the same key is a conflict.
    pub request: String,
    /// When it was written.
    pub at: Timestamp,
}

/// The answer that a dedupe key gives while it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dedupe {
    /// The arrival it names; 0 for a change that came before its message.
    pub seq: Seq,
    /// When it was written.
    pub at: Timestamp,
    /// The message of this key has not come, but a change of it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub early: Option<Early>,
}

/// How a message is to be read once it comes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Early {
    /// So; `None` where it was deleted.
    pub text: Option<String>,
    /// When it was changed, by its source.
    pub source_at: Timestamp,
}

/// The newest execution with a supersession key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The execution.
    pub execution: ExecutionId,
    /// When it was registered.
    pub at: Timestamp,
}

/// A node's sign of life.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beat {
    /// Grows with each beat.
    pub counter: u64,
    /// The spool it holds.
    pub spool: Option<SpoolId>,
    /// When it last beat, by the store's time.
    pub at: Timestamp,
    /// When it was buried. Final.
    pub buried_at: Option<Timestamp>,
}

/// How many places an owner has taken; no row where that is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Places {
    /// Rows of places.
    pub taken: u32,
}

/// A place under an owner's cap, taken before there is an execution that needs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Where it runs.
    pub session: SessionId,
    /// The call that starts it.
    pub start: Start,
    /// When it was taken.
    pub at: Timestamp,
    /// When somebody looks whether it is still needed.
    pub check_at: Timestamp,
}

macro_rules! rows {
    ($($name:ident($type:ty),)*) => {
        /// Any row.
        #[expect(clippy::large_enum_variant, reason = "rows are passed behind an Arc")]
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Row {
            $(
                #[doc = concat!("See [`", stringify!($type), "`].")]
                $name($type),
            )*
        }

        /// A type that is a row.
        pub trait RowType: Clone {
            /// The row as this type.
            fn of(row: &Row) -> Option<&Self>;
            /// The row as this type, to be edited.
            fn of_mut(row: &mut Row) -> Option<&mut Self>;
            /// As a row.
            fn wrap(self) -> Row;
        }

        $(impl RowType for $type {
            fn of(row: &Row) -> Option<&Self> {
                if let Row::$name(x) = row { Some(x) } else { None }
            }
            fn of_mut(row: &mut Row) -> Option<&mut Self> {
                if let Row::$name(x) = row { Some(x) } else { None }
            }
            fn wrap(self) -> Row {
                Row::$name(self)
            }
        })*
    };
}

rows! {
    Head(Head),
    Inbox(Inbox),
    Live(Live),
    Recent(Recent),
    Tails(Tails),
    Summary(Summary),
    Arrival(Arrival),
    Turn(Turn),
    Entry(Entry),
    Execution(Execution),
    StartKey(StartKey),
    Holder(Holder),
    Dedupe(Dedupe),
    Chain(Chain),
    Item(Item),
    Beat(Beat),
    Installation(Installation),
    Invitations(Invitations),
    Places(Places),
    Place(Place),
}
