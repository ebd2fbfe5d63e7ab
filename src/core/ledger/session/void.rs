//! `Void`: is the place of an owner still needed? Owns that it is decided here, where the execution
//! would be, and that what is given up never begins. Must not know owners.

use super::mail::name;
use crate::core::execution::{Execution, Start};
use crate::core::id::{ExecutionId, SessionId};
use crate::core::ledger::row::{Item, ItemState, StartKey};
use crate::core::ledger::{Aggregate, Class, Key, Operation, Refusal, Situation, Working};
use crate::core::limits::{GRACE_MS_MAX, OVERDUE_MS, START_MS_MAX};
use crate::core::time::Timestamp;

/// Asks what became of a call for which a place was taken. Where nothing was registered, nothing
/// ever will be.
#[derive(Debug, Clone)]
pub struct Void {
    /// The session.
    pub session: SessionId,
    /// The call.
    pub start: Start,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Voided {
    /// It is live.
    Live,
    /// It is over, and an errand gives its place back.
    Leaving,
    /// It is over.
    Over,
    /// It never was, and cannot be any more.
    Void,
}

impl Void {
    fn start_key(&self) -> Key {
        Key::start(self.start.turn, self.start.entry, self.start.call)
    }

    fn execution(&self, have: &Working) -> Option<ExecutionId> {
        let key = self.start_key();
        if have.has(&key) { have.get::<StartKey>(&key)?.execution.clone() } else { None }
    }
}

impl Operation for Void {
    type Output = Voided;

    fn aggregate(&self) -> Aggregate {
        Aggregate::Session(self.session.clone())
    }

    fn class(&self) -> Class {
        // On disk before the place is free, or a late registration would find neither.
        Class::FINISHES
    }

    fn needs(&self, have: &Working) -> Vec<Key> {
        let mut keys = vec![self.start_key()];
        if let Some(id) = self.execution(have) {
            keys.push(Key::execution(&id));
            keys.extend(name::free(&id).as_ref().map(Key::item));
        }
        keys
    }

    fn decide(&self, at: &Situation, rows: &mut Working) -> Result<Voided, Refusal> {
        if rows.get::<StartKey>(&self.start_key()).is_none() {
            let void = StartKey { execution: None, request: String::new(), at: at.now };
            rows.put(self.start_key(), void);
            return Ok(Voided::Void);
        }
        let Some(id) = self.execution(rows) else { return Ok(Voided::Void) };
        let execution = rows.get::<Execution>(&Key::execution(&id));
        if execution.is_some_and(|execution| !execution.state.is_ended()) {
            return Ok(Voided::Live);
        }
        let errand = name::free(&id).and_then(|id| rows.get::<Item>(&Key::item(&id)));
        let Some(errand) = errand else { return Ok(Voided::Over) };
        // Behind a kill that nobody takes, such as on a machine that is gone for good.
        let is_past = errand.at.is_none()
            && execution.is_some_and(|execution| at.now >= ends_by_itself_at(execution));
        Ok(match &errand.state {
            ItemState::Pending | ItemState::Leased { .. } if !is_past => Voided::Leaving,
            ItemState::Pending
            | ItemState::Leased { .. }
            | ItemState::Done(_)
            | ItemState::Dead(_) => Voided::Over,
        })
    }
}

/// When its own shim has ended its process at the latest, whoever watches over that.
fn ends_by_itself_at(execution: &Execution) -> Timestamp {
    let begun_at = execution.started_at.unwrap_or(execution.registered_at);
    let runs_ms = execution.timeout_ms.saturating_add(GRACE_MS_MAX + OVERDUE_MS);
    begun_at.plus_ms(START_MS_MAX.saturating_add(runs_ms))
}
