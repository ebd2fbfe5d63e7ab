//! The operations of a node: beating, being buried, and what must be seen before. Owns that death
//! is a decision and final. Must not know what a node does.

use std::collections::BTreeMap;

use super::row::Beat as BeatRow;
use super::{Aggregate, Class, Key, Operation, Refusal, Situation, Working};
use crate::core::id::{BootId, SpoolId};
use crate::core::limits::{BEAT_GAP_MS_MAX, LEASE_MS};
use crate::core::time::Timestamp;

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

/// What one node has seen of the others' beats, and of the answers to its own.
#[derive(Debug, Default)]
pub struct Vigil {
    /// Since when and until when all own beats were answered.
    own: Option<(Timestamp, Timestamp)>,
    /// The last beat of each other boot, and since when that is the last one.
    others: BTreeMap<BootId, (Timestamp, Timestamp)>,
}

/// What a look at the others comes to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sight {
    /// Boots that stood still for a lease, each with its last beat: to be buried.
    pub still: Vec<(BootId, Timestamp)>,
    /// Boots that are not among the living any more: somebody has buried them.
    pub gone: Vec<BootId>,
}

impl Vigil {
    /// An own beat was answered. After a gap this node may itself have stood still, so what it saw
    /// before that proves nothing.
    pub fn answered(&mut self, now: Timestamp) {
        self.own = match self.own {
            Some((since, last)) if now.since_ms(last) <= BEAT_GAP_MS_MAX => Some((since, now)),
            Some(_) | None => Some((now, now)),
        };
    }

    /// An own beat was not answered: the store may be away, and then nobody's is.
    pub fn unanswered(&mut self) {
        self.own = None;
    }

    /// Looks at the others: each boot that is not buried, with its last beat.
    pub fn look(&mut self, now: Timestamp, living: &[(BootId, Timestamp)]) -> Sight {
        let mut sight = Sight::default();
        let is_living = |boot: &BootId| living.iter().any(|(other, _)| other == boot);
        sight.gone = self.others.keys().filter(|boot| !is_living(boot)).cloned().collect();
        self.others.retain(|boot, _| is_living(boot));
        for (boot, beat) in living {
            let seen = self.others.entry(boot.clone()).or_insert((*beat, now));
            if seen.0 != *beat {
                *seen = (*beat, now);
            }
            let answered = self.own.filter(|(_, last)| now.since_ms(*last) <= BEAT_GAP_MS_MAX);
            if answered.is_some_and(|(since, _)| now.since_ms(since.max(seen.1)) >= LEASE_MS) {
                sight.still.push((boot.clone(), *beat));
            }
        }
        sight
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_ms(1_000_000 + ms)
    }

    fn other() -> BootId {
        BootId::new("other").unwrap()
    }

    #[test]
    fn who_stands_still_for_a_lease_is_to_be_buried_and_no_sooner() {
        let mut vigil = Vigil::default();
        for ms in [0, 5_000, 10_000, 14_999] {
            vigil.answered(at(ms));
            assert_eq!(vigil.look(at(ms), &[(other(), at(0))]), Sight::default(), "{ms}");
        }
        vigil.answered(at(15_000));
        let sight = vigil.look(at(15_000), &[(other(), at(0))]);
        assert_eq!(sight.still, [(other(), at(0))]);
        assert_eq!(vigil.look(at(15_001), &[]).gone, [other()]);
        assert_eq!(vigil.look(at(15_002), &[]), Sight::default());
    }

    #[test]
    fn who_beats_lives() {
        let mut vigil = Vigil::default();
        for ms in (0..100_000).step_by(5_000) {
            vigil.answered(at(ms));
            assert_eq!(vigil.look(at(ms), &[(other(), at(ms))]), Sight::default());
        }
    }

    #[test]
    fn a_node_that_was_not_answered_or_stood_still_begins_anew() {
        for stalled in [true, false] {
            let mut vigil = Vigil::default();
            for ms in [0, 5_000, 10_000] {
                vigil.answered(at(ms));
                vigil.look(at(ms), &[(other(), at(0))]);
            }
            // An hour later: the others may have stood still as well, or beaten unseen.
            let hour = 3_600_000;
            if !stalled {
                vigil.unanswered();
            }
            assert_eq!(vigil.look(at(hour), &[(other(), at(0))]), Sight::default());
            for ms in [0, 5_000, 10_000, 14_999] {
                vigil.answered(at(hour + ms));
                let sight = vigil.look(at(hour + ms), &[(other(), at(0))]);
                assert_eq!(sight, Sight::default(), "{stalled} {ms}");
            }
            vigil.answered(at(hour + 15_000));
            assert_eq!(vigil.look(at(hour + 15_000), &[(other(), at(0))]).still.len(), 1);
        }
    }
}
