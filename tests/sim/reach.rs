//! What the worlds came through, counted. A simulator that stopped reaching something proves
//! nothing about it, so a count of 0 is a failure.

use std::collections::BTreeMap;

/// Counts by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Reach(BTreeMap<&'static str, u64>);

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
    pub(crate) fn expect(&self, wanted: &[&str]) {
        let missing: Vec<_> = wanted.iter().filter(|what| !self.0.contains_key(**what)).collect();
        assert!(missing.is_empty(), "never reached: {missing:?}; reached: {:#?}", self.0);
    }
}
