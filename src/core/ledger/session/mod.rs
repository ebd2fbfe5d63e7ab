//! The operations of a session, and what a turn's holder names with each of them.
//! Owns their meaning and how each recognises its own repeat. Must not know who runs them.
//!
//! | operation | a repeat is recognised by |
//! |---|---|
//! | `Accept` | dedupe keys |
//! | `Register` | start key |
//! | `Started`, `Adopt`, `Cancel` | state |
//! | `Complete`, `Overdue`, `HomeLost` | first terminal state |
//! | `Claim` | claim id |
//! | `Renew` | token |
//! | `Append` | expected length |
//! | `Commit` | turn committed under this fence |
//! | `Release` | last released fence |
//! | `Stop` | stop id |
//! | `Compact` | token |
//! | `PutSurface` | boot, mark, form and place |
//! | `LeaseItem`, `FailItem` | lease id |
//! | `DoneItem` | state |
//! | `Forget`, `Retire` | nothing left to do |
//! | `Void` | start key |
//! | `Open` | item id |

mod accept;
mod ahead;
mod append;
mod claim;
mod closing;
mod end;
mod executions;
mod forget;
mod mail;
mod open;
mod outbox;
mod register;
mod release;
mod stop;
mod surface;
mod take;
mod void;

pub use accept::{Accept, Accepted, Allowance};
pub use append::{Append, Appended, New};
pub use claim::{Claim, Claimed};
pub use closing::{Commit, Compact, Renew};
pub use executions::Started;
pub use executions::{
    Adopt, Behalf, Cancel, CancelAnswer, Complete, Completed, Go, HomeLost, Overdue,
};
pub use forget::{Forget, Retire};
pub use mail::{first_post_of, shown_by};
pub use open::{Open, begun};
pub use outbox::{DoneItem, FailItem, LeaseItem, Leased, Retry};
pub use register::{Register, Registered};
pub use release::{Release, Released, Why};
pub use stop::{Stop, StopAnswer};
pub use surface::{Placed, PutSurface};
pub use void::{Void, Voided};

use serde::{Deserialize, Serialize};

use super::operation::{Refusal, Situation};
use super::row::{Head, Lane, Turn, TurnState};
use super::{Key, Working};
use crate::core::id::{ClaimId, EntryNo, Fence, SessionId, TurnNo};

/// The lane token: every operation that a turn makes carries it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// The session.
    pub session: SessionId,
    /// The turn.
    pub turn: TurnNo,
    /// The fence.
    pub fence: Fence,
    /// The claim.
    pub claim: ClaimId,
}

impl Token {
    /// Does it hold the lane? A lease that ran out still holds while nobody else claimed.
    fn holds(&self, head: &Head) -> Result<(), Refusal> {
        match &head.lane {
            Some(lane)
                if lane.turn == self.turn
                    && lane.fence == self.fence
                    && lane.claim == self.claim =>
            {
                Ok(())
            }
            Some(_) | None => Err(Refusal::Fenced),
        }
    }
}

/// Is another boot's lane still its own? Never where this boot holds the store alone.
fn is_valid(lane: &Lane, at: &Situation) -> bool {
    at.sole_boot.is_none() && at.now < lane.until
}

/// The open turn, where its row was loaded.
fn open_turn(rows: &Working) -> Option<Turn> {
    if !rows.has(&Key::head()) {
        return None;
    }
    let key = Key::turn(rows.head().open?);
    if !rows.has(&key) {
        return None;
    }
    rows.get::<Turn>(&key).filter(|turn| turn.state == TurnState::Open).cloned()
}

/// The key of the open turn, once the head is there.
fn open_turn_key(rows: &Working) -> Option<Key> {
    if rows.has(&Key::head()) { rows.head().open.map(Key::turn) } else { None }
}

/// Keys of arrivals that a turn carries.
fn carried_keys(turn: &Turn) -> impl Iterator<Item = Key> {
    turn.carried.iter().map(|carried| Key::arrival(carried.seq))
}

/// Keys of log entries.
fn entry_keys(from: EntryNo, count: u64) -> impl Iterator<Item = Key> {
    (from..from.saturating_add(count)).map(Key::entry)
}
