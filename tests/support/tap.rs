//! Between a bot and its store: a test sees what is written and read, holds one write for ever
//! (that is where the bot is then killed), or takes the store away for a while.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use dogwatch::core::ledger::row::RowType;
use dogwatch::core::ledger::{Aggregate, Change, Index, Key, Row};
use dogwatch::core::time::Timestamp;
use dogwatch::ports::{Applied, Hint, Loaded, Member, Store, StoreError};
use futures_util::future::BoxFuture;
use tokio::sync::{broadcast, watch};

/// Where a write is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum At {
    /// It never happens.
    Before,
    /// It happened; nobody hears of it.
    After,
}

type Matches = Box<dyn Fn(&Change) -> bool + Send + Sync>;

/// What a test does to a store and hears of it. A clone is the same; it outlives the bot.
#[derive(Clone, Default)]
pub(crate) struct Hand(Arc<Shared>);

#[derive(Default)]
struct Shared {
    traps: Mutex<Vec<(At, Matches, watch::Sender<bool>)>>,
    applies: watch::Sender<u64>,
    /// Up to which time an index was read by its watcher.
    read: watch::Sender<BTreeMap<Index, u64>>,
    away: watch::Sender<bool>,
    held: watch::Sender<bool>,
}

/// One write that will be held.
pub(crate) struct Trap(watch::Receiver<bool>);

impl Trap {
    /// Waits until it has one.
    pub(crate) async fn caught(mut self) {
        self.0.wait_for(|caught| *caught).await.unwrap();
    }
}

impl Hand {
    /// Holds the next write that matches, once and for ever.
    pub(crate) fn trap(
        &self,
        at: At,
        matches: impl Fn(&Change) -> bool + Send + Sync + 'static,
    ) -> Trap {
        let (caught, hear) = watch::channel(false);
        self.0.traps.lock().unwrap().push((at, Box::new(matches), caught));
        Trap(hear)
    }

    /// Holds the next write of a row of this type for which `is` holds.
    pub(crate) fn trap_row<T: RowType + 'static>(
        &self,
        at: At,
        is: impl Fn(&T) -> bool + Send + Sync + 'static,
    ) -> Trap {
        self.trap(at, move |change| {
            change.writes.iter().filter_map(|write| T::of(write.row.as_ref()?)).any(&is)
        })
    }

    /// Holds nothing any more that it does not hold yet.
    pub(crate) fn disarm(&self) {
        self.0.traps.lock().unwrap().clear();
    }

    /// Every apply fails from now on, or works again.
    pub(crate) fn away(&self, away: bool) {
        self.0.away.send_replace(away);
    }

    /// Every apply waits from now on, or goes on: a process that stands still.
    pub(crate) fn hold(&self, held: bool) {
        self.0.held.send_replace(held);
    }

    /// Hears of each write.
    pub(crate) fn applies(&self) -> watch::Receiver<u64> {
        self.0.applies.subscribe()
    }

    /// Waits until this index was read up to this time.
    pub(crate) async fn read_up_to(&self, at: Timestamp, index: &Index) {
        let mut read = self.0.read.subscribe();
        let is = |read: &BTreeMap<Index, u64>| read.get(index).is_some_and(|to| *to >= at.as_ms());
        read.wait_for(is).await.unwrap();
    }
}

/// The store as a bot sees it.
pub(crate) struct Tap {
    inner: Arc<dyn Store>,
    hand: Hand,
}

impl Tap {
    pub(crate) fn new(inner: Arc<dyn Store>, hand: Hand) -> Self {
        Self { inner, hand }
    }

    fn caught(&self, change: &Change) -> Option<(At, watch::Sender<bool>)> {
        let mut traps = self.hand.0.traps.lock().unwrap();
        let place = traps.iter().position(|(_, matches, _)| matches(change))?;
        let (at, _, caught) = traps.remove(place);
        Some((at, caught))
    }
}

impl Store for Tap {
    fn load<'a>(
        &'a self,
        aggregate: &'a Aggregate,
        keys: &'a [Key],
    ) -> BoxFuture<'a, Result<Loaded, StoreError>> {
        self.inner.load(aggregate, keys)
    }

    fn apply(&self, change: Change) -> BoxFuture<'_, Result<Applied, StoreError>> {
        Box::pin(async move {
            let shared = &self.hand.0;
            shared.held.subscribe().wait_for(|held| !*held).await.unwrap();
            if *shared.away.borrow() {
                return Err(StoreError::Away("taken away by the test".into()));
            }
            let trap = self.caught(&change);
            if let Some((At::Before, caught)) = &trap {
                caught.send_replace(true);
                return std::future::pending().await;
            }
            let applied = self.inner.apply(change).await;
            shared.applies.send_modify(|count| *count += 1);
            if let Some((At::After, caught)) = &trap {
                caught.send_replace(true);
                return std::future::pending().await;
            }
            applied
        })
    }

    fn members<'a>(
        &'a self,
        index: &'a Index,
        until: u64,
        after: Option<&'a Member>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Member>, StoreError>> {
        Box::pin(async move {
            let members = self.inner.members(index, until, after, limit).await;
            // Somebody who reads to the end of time looks for the next one.
            if until < u64::MAX {
                self.hand.0.read.send_modify(|read| {
                    let last = read.entry(index.clone()).or_default();
                    *last = until.max(*last);
                });
            }
            members
        })
    }

    fn rows<'a>(
        &'a self,
        aggregate: &'a Aggregate,
        after: Option<&'a Key>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<(Key, Row)>, StoreError>> {
        self.inner.rows(aggregate, after, limit)
    }

    fn aggregates<'a>(
        &'a self,
        after: Option<&'a Aggregate>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Aggregate>, StoreError>> {
        self.inner.aggregates(after, limit)
    }

    fn wakes(&self) -> broadcast::Receiver<Hint> {
        self.inner.wakes()
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp, StoreError>> {
        self.inner.now()
    }
}
