//! Rows in maps behind a mutex, for tests and the simulator. Owns the hooks by which those lose an
//! answer, lose power or go back in time. Must not know what the rows mean.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::{BoxFuture, ready};
use tokio::sync::broadcast;

use super::{check_keys, check_scores, codec, hints_of};
use crate::core::ledger::{Aggregate, Change, Index, Key, Revision, Row};
use crate::core::limits::HINTS_KEPT_MAX;
use crate::core::time::Timestamp;
use crate::ports::{Applied, Clock, Hint, Loaded, Member, Store, StoreError};

/// What goes wrong with the next apply. Its answer is `StoreError::Away` either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It does not reach the store.
    Unsent,
    /// It is done, and its answer is lost.
    Unanswered,
}

/// Everything a store holds at one moment. Rows are shared with it, not copied.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    lots: BTreeMap<Aggregate, Lot>,
    members: BTreeMap<Index, BTreeSet<Member>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Lot {
    revision: Option<Revision>,
    rows: BTreeMap<Key, Arc<Row>>,
    scores: BTreeMap<(Index, Key), u64>,
}

/// Values to be set in one aggregate. Setting them answers the patch that sets them back.
struct Patch {
    aggregate: Aggregate,
    revision: Option<Revision>,
    rows: Vec<(Key, Option<Arc<Row>>)>,
    scores: Vec<(Index, Key, Option<u64>)>,
}

impl Patch {
    fn of(change: Change) -> Self {
        let rows = change.writes.into_iter().map(|w| (w.key, w.row));
        let scores = change.index.into_iter().map(|w| (w.index, w.key, w.score));
        Self {
            aggregate: change.aggregate,
            revision: Some(change.revision),
            rows: rows.collect(),
            scores: scores.collect(),
        }
    }
}

impl Snapshot {
    fn set(&mut self, patch: Patch) -> Patch {
        let Patch { aggregate, revision, rows, scores } = patch;
        let lot = self.lots.entry(aggregate.clone()).or_default();
        let mut back = Patch {
            aggregate: aggregate.clone(),
            revision: std::mem::replace(&mut lot.revision, revision),
            rows: Vec::with_capacity(rows.len()),
            scores: Vec::with_capacity(scores.len()),
        };
        for (key, row) in rows {
            let before = match row {
                Some(row) => lot.rows.insert(key.clone(), row),
                None => lot.rows.remove(&key),
            };
            back.rows.push((key, before));
        }
        for (index, key, score) in scores {
            let at = (index.clone(), key.clone());
            let before = match score {
                Some(score) => lot.scores.insert(at, score),
                None => lot.scores.remove(&at),
            };
            let members = self.members.entry(index.clone()).or_default();
            let member = |score| Member { score, aggregate: aggregate.clone(), key: key.clone() };
            before.map(|score| members.remove(&member(score)));
            score.map(|score| members.insert(member(score)));
            if members.is_empty() {
                self.members.remove(&index);
            }
            back.scores.push((index, key, before));
        }
        if lot.revision.is_none() {
            self.lots.remove(&aggregate);
        }
        back.rows.reverse();
        back.scores.reverse();
        back
    }

    fn apply(&mut self, change: Change) -> (Applied, Option<Patch>) {
        let stored = self.lots.get(&change.aggregate).and_then(|lot| lot.revision.as_ref());
        if stored == Some(&change.revision) {
            (Applied::Already, None)
        } else if stored == change.expected.as_ref() {
            (Applied::Applied, Some(self.set(Patch::of(change))))
        } else {
            (Applied::Conflict, None)
        }
    }
}

#[derive(Default)]
struct State {
    now: Snapshot,
    /// What takes back the applies since the last durable one, oldest first.
    at_risk: Vec<Patch>,
    fault: Option<Fault>,
}

/// A store in memory.
pub struct Memory {
    state: Mutex<State>,
    clock: Arc<dyn Clock>,
    wakes: broadcast::Sender<Hint>,
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").finish_non_exhaustive()
    }
}

impl Memory {
    /// An empty store whose time is that of `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let wakes = broadcast::Sender::new(HINTS_KEPT_MAX);
        Self { state: Mutex::default(), clock, wakes }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is locked; a test that did has failed already.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything it holds.
    pub fn snapshot(&self) -> Snapshot {
        self.state().now.clone()
    }

    /// Holds what `snapshot` held: a store that went back in time.
    pub fn restore(&self, snapshot: Snapshot) {
        let mut state = self.state();
        state.now = snapshot;
        state.at_risk.clear();
    }

    /// The machine loses power: what was applied after the last durable apply is gone.
    pub fn lose_power(&self) {
        let mut state = self.state();
        while let Some(patch) = state.at_risk.pop() {
            state.now.set(patch);
        }
    }

    /// The next apply goes wrong in this way.
    pub fn fail_next(&self, fault: Fault) {
        self.state().fault = Some(fault);
    }

    fn apply_now(&self, change: Change) -> Result<Applied, StoreError> {
        check_rows(&change)?;
        check_scores(&change)?;
        let hints: Vec<Hint> = hints_of(&change).collect();
        let mut state = self.state();
        let fault = state.fault.take();
        if fault == Some(Fault::Unsent) {
            return Err(StoreError::Away("the apply was not sent".into()));
        }
        let durable = change.class.durable;
        let (applied, back) = state.now.apply(change);
        if let Some(back) = back {
            state.at_risk.push(back);
            if durable {
                state.at_risk.clear();
            }
            for hint in hints {
                // Nobody listening is no error.
                let _listeners = self.wakes.send(hint);
            }
        }
        if fault == Some(Fault::Unanswered) {
            return Err(StoreError::Away("the answer was lost".into()));
        }
        Ok(applied)
    }
}

/// Refuses what a store on disk could not keep.
fn check_rows(change: &Change) -> Result<(), StoreError> {
    for write in &change.writes {
        if let Some(row) = &write.row {
            codec::encode(row)
                .map_err(|e| e.of_row(&change.aggregate.to_string(), write.key.as_str()))?;
        }
    }
    Ok(())
}

fn beyond<T>(after: Option<&T>) -> (Bound<&T>, Bound<&T>) {
    (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded)
}

impl Store for Memory {
    fn load<'a>(
        &'a self,
        aggregate: &'a Aggregate,
        keys: &'a [Key],
    ) -> BoxFuture<'a, Result<Loaded, StoreError>> {
        let loaded = check_keys(keys).map(|()| {
            let state = self.state();
            let lot = state.now.lots.get(aggregate);
            let row = |key| lot.and_then(|lot| lot.rows.get(key)).map(|row| Row::clone(row));
            Loaded {
                revision: lot.and_then(|lot| lot.revision.clone()),
                rows: keys.iter().map(row).collect(),
            }
        });
        Box::pin(ready(loaded))
    }

    fn apply(&self, change: Change) -> BoxFuture<'_, Result<Applied, StoreError>> {
        // Nothing is done before it is polled, as with any other store.
        Box::pin(async move { self.apply_now(change) })
    }

    fn members<'a>(
        &'a self,
        index: &'a Index,
        until: u64,
        after: Option<&'a Member>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Member>, StoreError>> {
        let state = self.state();
        let members = state.now.members.get(index).map_or_else(Vec::new, |members| {
            let due = members.range(beyond(after)).take_while(|m| m.score <= until);
            due.take(limit).cloned().collect()
        });
        Box::pin(ready(Ok(members)))
    }

    fn rows<'a>(
        &'a self,
        aggregate: &'a Aggregate,
        after: Option<&'a Key>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<(Key, Row)>, StoreError>> {
        let state = self.state();
        let rows = state.now.lots.get(aggregate).map_or_else(Vec::new, |lot| {
            let page = lot.rows.range(beyond(after)).take(limit);
            page.map(|(key, row)| (key.clone(), Row::clone(row))).collect()
        });
        Box::pin(ready(Ok(rows)))
    }

    fn aggregates<'a>(
        &'a self,
        after: Option<&'a Aggregate>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Aggregate>, StoreError>> {
        let state = self.state();
        let page = state.now.lots.range(beyond(after)).take(limit);
        Box::pin(ready(Ok(page.map(|(aggregate, _)| aggregate.clone()).collect())))
    }

    fn wakes(&self) -> broadcast::Receiver<Hint> {
        self.wakes.subscribe()
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp, StoreError>> {
        Box::pin(ready(Ok(self.clock.now())))
    }
}
