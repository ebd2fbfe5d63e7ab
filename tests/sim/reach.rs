//! What the worlds came through, counted. A simulator that stopped reaching something proves
//! nothing about it, so a count of 0 is a failure.

use std::collections::BTreeMap;

/// Counts by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Reach(BTreeMap<&'static str, u64>);

/// What happens in every world.
const EVERYWHERE: [&str; 47] = [
    "a chain spent",
    "a claim refused",
    "a claim too early",
    "a compaction",
    "a completion collected",
    "a conflict",
    "a duplicate by a second key",
    "a human receipt",
    "a late fact",
    "a late message in the log",
    "a late message that rides",
    "a message edited",
    "a message withdrawn",
    "a node crashed",
    "a notice in a tool result",
    "a remark",
    "a repeat that changed nothing",
    "a rider taken",
    "a session retired",
    "a stale holder refused",
    "a start refused",
    "a stop of everything",
    "a supersession",
    "a turn buried",
    "a turn buried by a claim",
    "a turn committed",
    "a turn handed over",
    "a turn of another person",
    "a turn resumed",
    "a turn stopped",
    "a waived completion",
    "adopted running",
    "adopted waiting",
    "an answer lost",
    "an arrival died",
    "an arrival put back alone",
    "an execution cancelled by a person",
    "an execution cancelled by the model",
    "an execution ended by its home",
    "an execution never started",
    "an execution timed out by the ledger",
    "an innocent spared beside a poisoned one",
    "an item dead",
    "an item of unknown outcome",
    "an outage",
    "notices folded",
    "rows forgotten",
];

/// What only several nodes come to.
const SEVERAL: [&str; 6] = [
    "a home gone",
    "a lane taken over",
    "a late result told to people",
    "a node buried",
    "a zombie refused",
    "an execution unattended",
];

/// What only a boot that is alone comes to.
const ALONE: [&str; 1] = ["a machine without power"];

impl Reach {
    pub(crate) fn count(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (what, count) in &other.0 {
            *self.0.entry(what).or_default() += count;
        }
    }

    /// Fails where something that must happen never did.
    pub(crate) fn expect_all(&self, sole: bool) {
        let special: &[&str] = if sole { &ALONE } else { &SEVERAL };
        let missing: Vec<&str> = EVERYWHERE
            .iter()
            .chain(special)
            .filter(|what| !self.0.contains_key(**what))
            .copied()
            .collect();
        assert!(missing.is_empty(), "never reached: {missing:?}; reached: {:#?}", self.0);
    }
}
