//! Invariants over what earlier steps saw: those of one moment are the ledger's own audit.

use std::collections::{BTreeMap, BTreeSet};

use dogwatch::core::arrival::{Arrival, Standing};
use dogwatch::core::execution::{Execution, Outcome, State};
use dogwatch::core::id::{ClaimId, ExecutionId, Seq};
use dogwatch::core::ledger::audit::{Snapshot, audit};
use dogwatch::core::ledger::row::{Head, Item, ItemState, RowType};
use dogwatch::core::ledger::{Aggregate, Index, Key, index_of};
use dogwatch::core::transcript::{Body, Entry};

/// What was true once and stays true.
#[derive(Debug, Default)]
pub(crate) struct History {
    sessions: BTreeMap<Aggregate, Seen>,
    /// Stops that ended everything, each counted once.
    pub(crate) stops_of_all: BTreeMap<Aggregate, u64>,
    /// Arrivals whose acceptance was answered.
    pub(crate) accepted: BTreeMap<Aggregate, BTreeSet<Seq>>,
    /// The claim that was answered last, by session.
    pub(crate) claims: BTreeMap<Aggregate, ClaimId>,
}

#[derive(Debug, Default)]
struct Seen {
    fence: u64,
    generation: u64,
    log: BTreeMap<Key, Entry>,
    ends: BTreeMap<ExecutionId, Outcome>,
    fates: BTreeMap<Seq, Standing>,
    delivered: BTreeMap<Key, ItemState>,
}

impl History {
    /// Everything that must hold after an apply to this session.
    pub(crate) fn check(
        &mut self,
        session: &Aggregate,
        rows: &Snapshot,
        index: &[(Index, Key, u64)],
    ) {
        let balance = audit(rows);
        assert!(balance.is_even(), "{session}: {:#?}", balance);
        let stops = self.stops_of_all.get(session).copied().unwrap_or(0);
        let accepted = self.accepted.get(session).cloned().unwrap_or_default();
        let seen = self.sessions.entry(session.clone()).or_default();
        let head = rows.get(&Key::head()).and_then(Head::of).cloned().unwrap_or_default();
        assert!(head.fence >= seen.fence, "the fence went back");
        assert!(head.generation >= seen.generation, "the generation went back");
        assert!(head.generation <= stops, "one stop counted twice");
        (seen.fence, seen.generation) = (head.fence, head.generation);
        seen.check_log(&head, rows);
        seen.check_ends(rows);
        seen.check_posts(rows);
        for seq in accepted {
            assert!(rows.contains_key(&Key::arrival(seq)), "the accepted arrival {seq} is lost");
        }
        let mut want: Vec<_> = rows
            .iter()
            .flat_map(|(key, row)| index_of(key, row).into_iter().map(|(i, s)| (i, key.clone(), s)))
            .collect();
        want.sort();
        let mut have = index.to_vec();
        have.sort();
        assert_eq!(have, want, "the indexes are not those of the rows");
    }
}

impl Seen {
    /// What is committed never changes, and nothing said twice enters it.
    fn check_log(&mut self, head: &Head, rows: &Snapshot) {
        for no in 0..head.tlen {
            let key = Key::entry(no);
            let Some(entry) = rows.get(&key).and_then(Entry::of) else { continue };
            match self.log.get(&key) {
                Some(before) => assert_eq!(before, entry, "the committed entry {no} changed"),
                None => {
                    let said = matches!(&entry.body, Body::Model { text, .. } if !text.is_empty()
                        && self.log.values().any(|other| other.body == entry.body && other.at == entry.at));
                    assert!(!said, "the model's word is twice in the log: {entry:?}");
                    self.log.insert(key, entry.clone());
                }
            }
        }
        let mut fence = 0;
        for no in 0..head.tlen {
            let Some(entry) = rows.get(&Key::entry(no)).and_then(Entry::of) else { continue };
            assert!(entry.fence >= fence, "entry {no} was written under an older fence");
            fence = entry.fence;
        }
    }

    /// Terminal is final, and so is a fate.
    fn check_ends(&mut self, rows: &Snapshot) {
        for execution in rows.values().filter_map(Execution::of) {
            if let State::Ended(outcome) = &execution.state {
                let first =
                    self.ends.entry(execution.id.clone()).or_insert_with(|| outcome.clone());
                assert_eq!(first, outcome, "the end of {} changed", execution.id);
            } else {
                assert!(!self.ends.contains_key(&execution.id), "{} lives again", execution.id);
            }
        }
        for arrival in rows.values().filter_map(Arrival::of) {
            if matches!(arrival.standing, Standing::Settled { .. } | Standing::Withdrawn) {
                let first =
                    self.fates.entry(arrival.seq).or_insert_with(|| arrival.standing.clone());
                assert_eq!(*first, arrival.standing, "the fate of {} changed", arrival.seq);
            } else {
                assert!(!self.fates.contains_key(&arrival.seq), "{} is undone", arrival.seq);
            }
        }
    }

    fn check_posts(&mut self, rows: &Snapshot) {
        for (key, item) in rows.iter().filter_map(|(key, row)| Some((key, Item::of(row)?))) {
            let ended = matches!(item.state, ItemState::Done(_) | ItemState::Dead(_));
            if ended {
                let first = self.delivered.entry(key.clone()).or_insert_with(|| item.state.clone());
                assert_eq!(*first, item.state, "{key} ended twice");
            }
        }
    }
}
