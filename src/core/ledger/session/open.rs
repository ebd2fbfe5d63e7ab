//! `Open`: a person asks for a conversation at a place that has none. Owns the first message that
//! is posted for it, in a line of that place. Must not know how a place is written.
//!
//! What they say waits in the outbox with the root. Once that is posted, its receipt names the
//! conversation, and what was said enters it as what anybody says there.

use super::mail::{enqueue, needs};
use crate::core::execution::Address;
use crate::core::id::{IdError, ItemId, SessionId};
use crate::core::ledger::row::{Errand, Item, Opening, Tails};
use crate::core::ledger::{Aggregate, Class, Key, Operation, Refusal, Situation, Working};
use crate::core::limits::{MESSAGE_BYTES_MAX, ROOTS_WAITING_MAX};

/// Asks for a conversation, once.
#[derive(Debug, Clone)]
pub struct Open {
    /// What belongs to the place itself. No turn ever runs in it.
    pub session: SessionId,
    /// The item that posts the root: a repeat has the same.
    pub item: ItemId,
    /// The place.
    pub address: Address,
    /// What they say.
    pub opening: Opening,
}

impl Open {
    fn errand(&self, behind: u32) -> Errand {
        Errand::Root { address: self.address.clone(), opening: self.opening.clone(), behind }
    }
}

impl Operation for Open {
    type Output = ();

    fn aggregate(&self) -> Aggregate {
        Aggregate::Session(self.session.clone())
    }

    fn class(&self) -> Class {
        Class::ADMITS
    }

    fn needs(&self, have: &Working) -> Vec<Key> {
        needs(have, [Some(self.item.clone())], self.errand(0).line())
    }

    fn decide(&self, at: &Situation, rows: &mut Working) -> Result<(), Refusal> {
        if self.opening.text.len() > MESSAGE_BYTES_MAX {
            return Err(Refusal::Invalid("the text is longer than a row may be"));
        }
        if rows.get::<Item>(&Key::item(&self.item)).is_some() {
            return Ok(());
        }
        let line = self.errand(0).line();
        let last = rows.get::<Tails>(&Key::tails()).zip(line).and_then(|(t, line)| t.0.get(&line));
        let last = last.cloned().and_then(|last| rows.get::<Item>(&Key::item(&last)));
        // Those before the last may be done by now, so this may be too many, never too few.
        let behind = match last.map(|last| &last.errand) {
            Some(Errand::Root { behind, .. }) => behind.saturating_add(1),
            Some(_) | None => 0,
        };
        if behind >= ROOTS_WAITING_MAX {
            return Err(Refusal::Full(behind as usize));
        }
        enqueue(rows, at.now, Some(self.item.clone()), self.errand(behind), None);
        Ok(())
    }
}

/// The conversation that a root has begun, and where its answers go: what its channel answered is
/// the place of it.
pub fn begun(address: &Address, receipt: &str) -> Result<(SessionId, Address), IdError> {
    let at = Address { surface: address.surface.clone(), thread: receipt.to_owned() };
    Ok((SessionId::new(format!("{}/{receipt}", at.surface))?, at))
}
