//! The history of a world: all rows as the applies made them, and what must hold at each apply,
//! given what was seen before. What can be seen in the rows of one moment is the ledger's audit.

use std::collections::{BTreeMap, BTreeSet};

use dogwatch::core::execution::Execution;
use dogwatch::core::id::{BootId, Seq, SessionId};
use dogwatch::core::ledger::audit::{Snapshot, audit};
use dogwatch::core::ledger::row::{Beat, Live, Place, RowType};
use dogwatch::core::ledger::session::Token;
use dogwatch::core::ledger::{Aggregate, Change, Index, Key, Row, index_of, owner};
use dogwatch::core::limits::LEASE_MS;
use dogwatch::core::time::Timestamp;
use dogwatch::ports::Member;

use super::places::PLACES_MAX;
use super::reach::Reach;
use super::seen::{Apply, Seen};

/// Who makes a change, and how.
#[derive(Debug, Clone)]
pub(crate) struct By {
    /// Which operation.
    pub(crate) operation: &'static str,
    /// Of which boot.
    pub(crate) boot: BootId,
    /// As the holder of this lane.
    pub(crate) token: Option<Token>,
}

/// A row that changed.
#[derive(Debug)]
pub(crate) struct Move {
    pub(crate) key: Key,
    pub(crate) before: Option<Row>,
    pub(crate) after: Option<Row>,
}

impl Move {
    /// Before and after, where it is a row of this type.
    pub(crate) fn of<T: RowType>(&self) -> Option<(Option<&T>, Option<&T>)> {
        let before = self.before.as_ref().and_then(T::of);
        let after = self.after.as_ref().and_then(T::of);
        (before.is_some() || after.is_some()).then_some((before, after))
    }
}

/// What is known besides one session's rows.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub(crate) sole: bool,
    /// Since when there are no faults any more.
    pub(crate) drained_from: Option<Timestamp>,
    /// Boots that are dead for good.
    pub(crate) buried: BTreeSet<BootId>,
    /// Stops of everything, each counted once.
    pub(crate) stops_of_all: BTreeMap<SessionId, u64>,
    pub(crate) reach: Reach,
}

#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) facts: Facts,
    rows: BTreeMap<Aggregate, Snapshot>,
    members: BTreeMap<Index, BTreeSet<Member>>,
    scores: BTreeMap<(Aggregate, Key), BTreeMap<Index, u64>>,
    sessions: BTreeMap<SessionId, Seen>,
    /// Arrivals that were forgotten, past their retention.
    pub(crate) forgotten: BTreeSet<(SessionId, Seq)>,
}

impl History {
    pub(crate) fn snapshot(&self, aggregate: &Aggregate) -> Snapshot {
        self.rows.get(aggregate).cloned().unwrap_or_default()
    }

    pub(crate) fn row<T: RowType>(&self, aggregate: &Aggregate, key: &Key) -> Option<T> {
        self.rows.get(aggregate)?.get(key).and_then(T::of).cloned()
    }

    pub(crate) fn members(&self, index: &Index, until: u64) -> Vec<Member> {
        let members = self.members.get(index).into_iter().flatten();
        members.take_while(|member| member.score <= until).cloned().collect()
    }

    /// Everything that is written, for comparing it with the store.
    pub(crate) fn all(
        &self,
    ) -> (&BTreeMap<Aggregate, Snapshot>, &BTreeMap<Index, BTreeSet<Member>>) {
        (&self.rows, &self.members)
    }

    /// The store has fewer applies than before: what is here now is what there is.
    pub(crate) fn rebase(&mut self, aggregate: &Aggregate, rows: Snapshot) {
        let keys: BTreeSet<Key> =
            self.snapshot(aggregate).into_keys().chain(rows.keys().cloned()).collect();
        for key in keys {
            let want = rows.get(&key).map_or_else(Vec::new, |row| index_of(&key, row));
            let have =
                self.scores.get(&(aggregate.clone(), key.clone())).cloned().unwrap_or_default();
            for index in have.into_keys() {
                self.score(aggregate, &key, index, None);
            }
            for (index, score) in want {
                self.score(aggregate, &key, index, Some(score));
            }
        }
        if let Some(session) = aggregate.session() {
            let seen = self.sessions.entry(session.clone()).or_default();
            seen.rebase(&rows);
        }
        self.rows.insert(aggregate.clone(), rows);
    }

    /// A row has one score in an index.
    fn score(&mut self, aggregate: &Aggregate, key: &Key, index: Index, score: Option<u64>) {
        let member = |score| Member { score, aggregate: aggregate.clone(), key: key.clone() };
        let set = self.members.entry(index.clone()).or_default();
        let scores = self.scores.entry((aggregate.clone(), key.clone())).or_default();
        let before = match score {
            Some(score) => scores.insert(index, score),
            None => scores.remove(&index),
        };
        before.map(|score| set.remove(&member(score)));
        score.map(|score| set.insert(member(score)));
    }

    /// Everything that must hold after an apply.
    pub(crate) fn check(&mut self, change: Change, by: &By) {
        let aggregate = change.aggregate.clone();
        let lot = self.rows.entry(aggregate.clone()).or_default();
        let mut moves = vec![];
        for write in change.writes {
            let before = match &write.row {
                Some(row) => lot.insert(write.key.clone(), row.as_ref().clone()),
                None => lot.remove(&write.key),
            };
            moves.push(Move { key: write.key, before, after: write.row.as_deref().cloned() });
        }
        for write in change.index {
            self.score(&aggregate, &write.key, write.index, write.score);
        }
        self.check_index(&aggregate, &moves);
        let Some(session) = aggregate.session() else {
            self.check_owner(&aggregate, &moves);
            return self.check_node(&aggregate, &moves, by);
        };
        self.check_places(session);
        let rows = self.rows.get(&aggregate).unwrap();
        let balance = audit(rows);
        assert!(balance.is_even(), "{session} after {}: {balance:#?}", by.operation);
        let seen = self.sessions.entry(session.clone()).or_default();
        seen.check(&mut self.facts, &Apply { session, rows, moves: &moves, by });
        for (before, _) in moves.iter().filter(|m| m.after.is_none()).filter_map(Move::of) {
            let arrival: &dogwatch::core::arrival::Arrival = before.unwrap();
            self.forgotten.insert((session.clone(), arrival.seq));
        }
    }

    fn check_index(&self, aggregate: &Aggregate, moves: &[Move]) {
        for Move { key, after, .. } in moves {
            let mut want = after.as_ref().map_or_else(Vec::new, |row| index_of(key, row));
            want.sort();
            let have = self.scores.get(&(aggregate.clone(), key.clone()));
            let have: Vec<_> = have.into_iter().flatten().map(|(i, s)| (i.clone(), *s)).collect();
            assert_eq!(have, want, "the index entries of {key} are not those of its row");
        }
    }

    /// What is live has a place.
    fn check_places(&self, session: &SessionId) {
        let aggregate = Aggregate::Session(session.clone());
        let live = self.row::<Live>(&aggregate, &Key::live()).unwrap_or_default();
        for id in live.0 {
            let execution: Execution = self.row(&aggregate, &Key::execution(&id)).unwrap();
            let key = Key::place(session, &execution.start());
            let of = Aggregate::Owner(execution.owner);
            assert!(self.row::<Place>(&of, &key).is_some(), "{id} of {session} has no place");
        }
    }

    /// Places are counted, never more than the cap, and none is given back under live work.
    fn check_owner(&self, aggregate: &Aggregate, moves: &[Move]) {
        let Aggregate::Owner(_) = aggregate else { return };
        let rows = self.snapshot(aggregate);
        assert_eq!(owner::audit(&rows), Vec::<String>::new(), "{aggregate}");
        let places = rows.values().filter_map(Place::of).count();
        assert!(places <= PLACES_MAX as usize, "{aggregate} has {places} places");
        for (before, after) in moves.iter().filter_map(Move::of::<Place>) {
            if after.is_none() {
                self.check_places(&before.unwrap().session);
            }
        }
    }

    fn check_node(&mut self, aggregate: &Aggregate, moves: &[Move], by: &By) {
        let Aggregate::Node(boot) = aggregate else { return };
        for (before, after) in moves.iter().filter_map(Move::of::<Beat>) {
            let Some(after) = after else { continue };
            let Some(before) = before else { continue };
            assert!(before.buried_at.is_none(), "{boot} changed after its burial");
            assert!(after.counter >= before.counter, "the counter of {boot} went back");
            if let Some(buried_at) = after.buried_at {
                let alone = self.facts.sole && by.boot != *boot;
                let early = buried_at.since_ms(before.at) < LEASE_MS;
                assert!(alone || !early, "{boot} was buried early");
                self.facts.buried.insert(boot.clone());
                self.facts.reach.count("a node buried");
            }
        }
    }

    /// Things that an apply cannot show.
    pub(crate) fn accepted(&self, session: &SessionId, seq: Seq) {
        let aggregate = Aggregate::Session(session.clone());
        let there = self.rows.get(&aggregate).is_some_and(|r| r.contains_key(&Key::arrival(seq)));
        let forgotten = self.forgotten.contains(&(session.clone(), seq));
        assert!(there || forgotten, "the accepted arrival {seq} is lost");
    }
}

/// Nothing begins before its time.
pub(crate) fn not_early(what: &str, due: Option<Timestamp>, at: Timestamp) {
    let due = due.unwrap_or_else(|| panic!("{what} without a time for it"));
    assert!(at >= due, "{what} {} ms early", due.since_ms(at));
}
