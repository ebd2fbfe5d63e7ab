//! Stands before a store: loses answers, opens gaps in which something else happens, and keeps
//! what was applied. Works the same for the world's own runner and for the engine's.

use std::collections::HashSet;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;

use dogwatch::core::ledger::{Aggregate, Change, Index, Key, Row};
use dogwatch::core::time::Timestamp;
use dogwatch::ports::{Applied, Hint, Ids, Loaded, Member, Store, StoreError};
use futures_util::future::BoxFuture;
use tokio::sync::broadcast;

use super::rng::Rng;

/// Why the last poll gave no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// In a gap between two steps: something else may happen.
    Gap,
    /// For the store.
    Store,
    /// For the clock.
    Clock,
}

struct State {
    rng: Rng,
    ids: u64,
    faults: bool,
    gaps: bool,
    waiting: Waiting,
    /// Applies that get no answer yet.
    away: usize,
    applied: Vec<Change>,
    /// The revisions of all that was applied.
    known: HashSet<String>,
    lost: u64,
    conflicts: u64,
}

/// Tries of one apply at a store that is really cut off.
const CUTS_MAX: u32 = 20;

impl State {
    fn record(&mut self, change: Change) {
        if self.known.insert(change.revision.0.clone()) {
            self.applied.push(change);
        }
    }
}

pub(crate) struct Gate {
    inner: Mutex<Option<Arc<dyn Store>>>,
    state: Mutex<State>,
}

impl Gate {
    pub(crate) fn new(seed: u64, inner: Arc<dyn Store>) -> Self {
        let state = State {
            rng: Rng::new(seed ^ 0x6A7E),
            ids: 0,
            faults: true,
            gaps: true,
            waiting: Waiting::Clock,
            away: 0,
            applied: vec![],
            known: HashSet::new(),
            lost: 0,
            conflicts: 0,
        };
        Self { inner: Mutex::new(Some(inner)), state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn inner(&self) -> Arc<dyn Store> {
        self.inner.lock().unwrap().clone().expect("the store is open")
    }

    /// Lets the store go, so that it can be closed.
    pub(crate) fn close(&self) {
        *self.inner.lock().unwrap() = None;
    }

    pub(crate) fn open(&self, inner: Arc<dyn Store>) {
        *self.inner.lock().unwrap() = Some(inner);
    }

    /// Whether answers get lost and whether there are gaps, from now on.
    pub(crate) fn set(&self, faults: bool, gaps: bool) {
        let mut state = self.state();
        (state.faults, state.gaps) = (faults, gaps);
        if !faults {
            state.away = 0;
        }
    }

    /// What was applied since this was last asked.
    pub(crate) fn applied(&self) -> Vec<Change> {
        std::mem::take(&mut self.state().applied)
    }

    /// Answers lost and conflicts since this was last asked.
    pub(crate) fn faults(&self) -> (u64, u64) {
        let mut state = self.state();
        (std::mem::take(&mut state.lost), std::mem::take(&mut state.conflicts))
    }

    /// What is waited for, asked after a poll without an answer.
    pub(crate) fn waiting(&self) -> Waiting {
        std::mem::replace(&mut self.state().waiting, Waiting::Clock)
    }

    /// With some luck something else happens here.
    async fn gap(&self) {
        let opens = {
            let mut state = self.state();
            state.gaps && state.rng.chance(4)
        };
        if !opens {
            return;
        }
        let mut passed = false;
        poll_fn(|_| {
            if passed {
                return Poll::Ready(());
            }
            passed = true;
            self.state().waiting = Waiting::Gap;
            Poll::Pending
        })
        .await;
    }

    /// Waits for the store, and says so.
    async fn ask<T>(&self, mut future: BoxFuture<'_, T>) -> T {
        poll_fn(|context| {
            let polled = future.as_mut().poll(context);
            if polled.is_pending() {
                self.state().waiting = Waiting::Store;
            }
            polled
        })
        .await
    }

    /// One fault lasts for some tries, so that a caller that tries again sees it too.
    fn fault(&self) -> bool {
        let mut state = self.state();
        if state.away > 0 {
            state.away -= 1;
            return true;
        }
        let begins = state.faults && state.rng.chance(6);
        if begins {
            state.away = state.rng.below(4);
        }
        begins
    }

    /// Applies. A store that is really cut off may have done it or not: the same change, sent
    /// again, finds out, and the world must know. Also answers whether that was so.
    async fn settle(
        &self,
        inner: &Arc<dyn Store>,
        change: &Change,
    ) -> Result<(Applied, bool), StoreError> {
        for tries in 0..CUTS_MAX {
            match self.ask(inner.apply(change.clone())).await {
                Ok(applied) => return Ok((applied, tries > 0)),
                Err(StoreError::Away(_)) => {}
                Err(error) => return Err(error),
            }
        }
        panic!("cut off {CUTS_MAX} times in a row");
    }

    async fn apply_through(&self, change: Change) -> Result<Applied, StoreError> {
        self.gap().await;
        let fault = self.fault();
        let unsent = fault && self.state().rng.chance(50);
        if unsent {
            self.state().lost += 1;
            return Err(StoreError::Away("the apply was not sent".into()));
        }
        let inner = self.inner();
        let (applied, cut) = self.settle(&inner, &change).await?;
        let mut state = self.state();
        match applied {
            Applied::Applied => state.record(change),
            Applied::Conflict => state.conflicts += 1,
            // The try that was cut off had done it.
            Applied::Already if cut => state.record(change),
            Applied::Already => {}
        }
        if fault || (cut && state.faults) {
            state.lost += 1;
            return Err(StoreError::Away("the answer was lost".into()));
        }
        Ok(applied)
    }
}

impl Store for Gate {
    fn load<'a>(
        &'a self,
        aggregate: &'a Aggregate,
        keys: &'a [Key],
    ) -> BoxFuture<'a, Result<Loaded, StoreError>> {
        Box::pin(async move {
            let inner = self.inner();
            let loaded = self.ask(inner.load(aggregate, keys)).await;
            drop(inner);
            self.gap().await;
            loaded
        })
    }

    fn apply(&self, change: Change) -> BoxFuture<'_, Result<Applied, StoreError>> {
        Box::pin(self.apply_through(change))
    }

    fn members<'a>(
        &'a self,
        index: &'a Index,
        until: u64,
        after: Option<&'a Member>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Member>, StoreError>> {
        Box::pin(async move { self.inner().members(index, until, after, limit).await })
    }

    fn rows<'a>(
        &'a self,
        aggregate: &'a Aggregate,
        after: Option<&'a Key>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<(Key, Row)>, StoreError>> {
        Box::pin(async move { self.inner().rows(aggregate, after, limit).await })
    }

    fn aggregates<'a>(
        &'a self,
        after: Option<&'a Aggregate>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Aggregate>, StoreError>> {
        Box::pin(async move { self.inner().aggregates(after, limit).await })
    }

    fn wakes(&self) -> broadcast::Receiver<Hint> {
        self.inner().wakes()
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp, StoreError>> {
        Box::pin(async move { self.inner().now().await })
    }
}

impl Ids for Gate {
    fn fresh(&self) -> String {
        let mut state = self.state();
        state.ids += 1;
        format!("{:026}", state.ids)
    }
}
