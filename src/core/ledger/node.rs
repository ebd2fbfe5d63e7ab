//! The operations of a node: beating and being buried. Owns that death is a decision and final.
//! Must not know what a node does.

use super::row::Beat as BeatRow;
use super::{Aggregate, Class, Key, Operation, Refusal, Situation, Working};
use crate::core::id::{BootId, SpoolId};
use crate::core::limits::LEASE_MS;

/// A node says that it lives.
#[derive(Debug, Clone)]
pub struct Beat {
    /// Which.
    pub boot: BootId,
    /// The spool it holds.
    pub spool: Option<SpoolId>,
}

impl Operation for Beat {
    type Output = u64;

    fn aggregate(&self) -> Aggregate {
        Aggregate::Node(self.boot.clone())
    }

    fn class(&self) -> Class {
        Class::HINT
    }

    fn needs(&self, _: &Working) -> Vec<Key> {
        vec![Key::beat()]
    }

    /// Answers the counter. A buried boot is refused and takes a new id.
    fn decide(&self, at: &Situation, rows: &mut Working) -> Result<u64, Refusal> {
        let before = rows.get::<BeatRow>(&Key::beat()).cloned();
        if before.as_ref().is_some_and(|beat| beat.buried_at.is_some()) {
            return Err(Refusal::Buried);
        }
        let counter = before.map_or(0, |beat| beat.counter) + 1;
        let spool = self.spool.clone();
        rows.put(Key::beat(), BeatRow { counter, spool, at: at.now, buried_at: None });
        Ok(counter)
    }
}

/// Somebody decides that a node is dead.
#[derive(Debug, Clone)]
pub struct Bury {
    /// Which.
    pub boot: BootId,
    /// The counter that was seen to stand still over one lease, in which the own beats were all
    /// answered.
    pub seen: u64,
}

impl Operation for Bury {
    type Output = ();

    fn aggregate(&self) -> Aggregate {
        Aggregate::Node(self.boot.clone())
    }

    fn class(&self) -> Class {
        Class::FINISHES
    }

    fn needs(&self, _: &Working) -> Vec<Key> {
        vec![Key::beat()]
    }

    fn decide(&self, at: &Situation, rows: &mut Working) -> Result<(), Refusal> {
        let Some(beat) = rows.get::<BeatRow>(&Key::beat()).cloned() else {
            return Err(Refusal::Unknown);
        };
        if beat.buried_at.is_some() {
            return Ok(());
        }
        // Where one boot holds the whole store, every other one is dead.
        let alone = at.sole_boot.as_ref().is_some_and(|boot| *boot != self.boot);
        if !alone && (beat.counter != self.seen || at.now.since_ms(beat.at) < LEASE_MS) {
            return Err(Refusal::Alive);
        }
        rows.put(Key::beat(), BeatRow { buried_at: Some(at.now), ..beat });
        Ok(())
    }
}

/// Forgets a buried node past its retention.
#[derive(Debug, Clone)]
pub struct ForgetNode {
    /// Which.
    pub boot: BootId,
}

impl Operation for ForgetNode {
    type Output = bool;

    fn aggregate(&self) -> Aggregate {
        Aggregate::Node(self.boot.clone())
    }

    fn class(&self) -> Class {
        Class::HINT
    }

    fn needs(&self, _: &Working) -> Vec<Key> {
        vec![Key::beat()]
    }

    /// Answers whether it is gone.
    fn decide(&self, at: &Situation, rows: &mut Working) -> Result<bool, Refusal> {
        let buried = rows.get::<BeatRow>(&Key::beat()).and_then(|beat| beat.buried_at);
        let due = buried
            .is_some_and(|buried| at.now.since_ms(buried) >= crate::core::limits::RETENTION_MS);
        if due {
            rows.delete(&Key::beat());
        }
        Ok(due)
    }
}
