//! What a cycle reads and writes, and the same again straight to the store. Owns the recording
//! store and the reference loop. Must not know what the rows mean.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::broadcast;
use tokio::task::JoinSet;

use super::drive::{now, scratch_session};
use super::{LoadError, Scratch, Settings};
use crate::core::ledger::{Aggregate, Change, Index, Key, Revision, Row};
use crate::core::time::Timestamp;
use crate::ports::{Applied, Hint, Ids as _, Loaded, Member, Store, StoreError};
use crate::store::UlidIds;

/// One command to the store.
#[derive(Debug, Clone)]
pub(super) enum Command {
    Load(Vec<Key>),
    Apply(Box<Change>),
}

/// Counts what passes, and keeps it while it is asked to.
pub(super) struct Recorder {
    inner: Arc<dyn Store>,
    recording: AtomicBool,
    recorded: Mutex<Vec<Command>>,
    pub(super) loads: AtomicU64,
    pub(super) applies: AtomicU64,
    pub(super) conflicts: AtomicU64,
}

impl Recorder {
    pub(super) fn new(inner: Arc<dyn Store>) -> Self {
        Self {
            inner,
            recording: AtomicBool::new(false),
            recorded: Mutex::default(),
            loads: AtomicU64::new(0),
            applies: AtomicU64::new(0),
            conflicts: AtomicU64::new(0),
        }
    }

    pub(super) fn record(&self, on: bool) {
        self.recording.store(on, Ordering::Relaxed);
    }

    pub(super) fn take(&self) -> Vec<Command> {
        std::mem::take(&mut *self.recorded.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn note(&self, command: impl FnOnce() -> Command) {
        if self.recording.load(Ordering::Relaxed) {
            self.recorded.lock().unwrap_or_else(PoisonError::into_inner).push(command());
        }
    }
}

impl Store for Recorder {
    fn load<'a>(
        &'a self,
        aggregate: &'a Aggregate,
        keys: &'a [Key],
    ) -> BoxFuture<'a, Result<Loaded, StoreError>> {
        self.loads.fetch_add(1, Ordering::Relaxed);
        self.note(|| Command::Load(keys.to_vec()));
        self.inner.load(aggregate, keys)
    }

    fn apply(&self, change: Change) -> BoxFuture<'_, Result<Applied, StoreError>> {
        self.applies.fetch_add(1, Ordering::Relaxed);
        self.note(|| Command::Apply(Box::new(change.clone())));
        async move {
            let applied = self.inner.apply(change).await?;
            if applied == Applied::Conflict {
                self.conflicts.fetch_add(1, Ordering::Relaxed);
            }
            Ok(applied)
        }
        .boxed()
    }

    fn members<'a>(
        &'a self,
        index: &'a Index,
        until: u64,
        after: Option<&'a Member>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Member>, StoreError>> {
        self.inner.members(index, until, after, limit)
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

/// What one session's cycles read and write.
pub(super) struct Script {
    /// Before the first cycle.
    pub(super) opening: Vec<Command>,
    /// As many cycles as each session is driven through.
    pub(super) cycles: Vec<Command>,
}

/// The same reads and writes in as many fresh sessions at once, with nothing decided.
pub(super) async fn replay(
    scratch: &Scratch,
    script: &Arc<Script>,
    settings: Settings,
) -> Result<Duration, LoadError> {
    let mut sessions = vec![];
    for _ in 0..settings.sessions {
        let mut raw = Raw::new(Arc::clone(&scratch.store))?;
        raw.run(&script.opening).await?;
        sessions.push(raw);
    }
    let begun = now();
    let mut tasks = JoinSet::new();
    for mut raw in sessions {
        let script = Arc::clone(script);
        tasks.spawn(async move { raw.run(&script.cycles).await });
    }
    while let Some(done) = tasks.join_next().await {
        done.map_err(|_| LoadError::Disturbed("a task of the reference broke off"))??;
    }
    Ok(begun.elapsed())
}

/// One session of the reference.
struct Raw {
    store: Arc<dyn Store>,
    aggregate: Aggregate,
    revision: Option<Revision>,
}

impl Raw {
    fn new(store: Arc<dyn Store>) -> Result<Self, LoadError> {
        Ok(Self { store, aggregate: Aggregate::Session(scratch_session()?), revision: None })
    }

    async fn run(&mut self, commands: &[Command]) -> Result<(), LoadError> {
        for command in commands {
            match command {
                Command::Load(keys) => {
                    self.store.load(&self.aggregate, keys).await?;
                }
                Command::Apply(change) => {
                    let revision = Revision(UlidIds.fresh());
                    let change = Change {
                        aggregate: self.aggregate.clone(),
                        expected: self.revision.replace(revision.clone()),
                        revision,
                        ..change.as_ref().clone()
                    };
                    if self.store.apply(change).await? == Applied::Conflict {
                        return Err(LoadError::Disturbed("a write of the reference conflicted"));
                    }
                }
            }
        }
        Ok(())
    }
}
