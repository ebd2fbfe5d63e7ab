//! What a cycle reads and writes, and the same again with nothing decided. Owns the recording
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
use crate::store::redis::{Bare, BareStep};

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

/// The same rows in as many fresh sessions at once, with nothing decided.
pub(super) async fn replay(
    scratch: &Scratch,
    script: &Script,
    settings: Settings,
) -> Result<Duration, LoadError> {
    if let Some(bare) = &scratch.bare {
        let (opening, cycles) = (steps(&script.opening)?, steps(&script.cycles)?);
        let (opening, cycles) = (Arc::new(opening), Arc::new(cycles));
        let run = |session: Raw, steps: &Arc<Vec<BareStep>>| {
            session.step_through(bare.clone(), Arc::clone(steps)).boxed()
        };
        return race(settings, |raw| run(raw, &opening), |raw| run(raw, &cycles)).await;
    }
    let opening = Arc::new(script.opening.clone());
    let cycles = Arc::new(script.cycles.clone());
    let run = |session: Raw, commands: &Arc<Vec<Command>>| {
        session.repeat(Arc::clone(&scratch.store), Arc::clone(commands)).boxed()
    };
    race(settings, |raw| run(raw, &opening), |raw| run(raw, &cycles)).await
}

type Run = BoxFuture<'static, Result<Raw, LoadError>>;

/// How long it takes until all sessions are through.
async fn race(
    settings: Settings,
    open: impl Fn(Raw) -> Run,
    run: impl Fn(Raw) -> Run,
) -> Result<Duration, LoadError> {
    let mut sessions = vec![];
    for _ in 0..settings.sessions {
        sessions.push(open(Raw::new()?).await?);
    }
    let begun = now();
    let mut tasks = JoinSet::new();
    for raw in sessions {
        tasks.spawn(run(raw));
    }
    while let Some(done) = tasks.join_next().await {
        done.map_err(|_| LoadError::Disturbed("a task of the reference broke off"))??;
    }
    Ok(begun.elapsed())
}

/// Each apply with what was read before it.
fn steps(commands: &[Command]) -> Result<Vec<BareStep>, StoreError> {
    let (mut steps, mut reads) = (vec![], vec![]);
    for command in commands {
        match command {
            Command::Load(keys) => reads.extend(keys.iter().cloned()),
            Command::Apply(change) => {
                steps.push(BareStep::new(std::mem::take(&mut reads), change.as_ref().clone())?);
            }
        }
    }
    Ok(steps)
}

/// One session of the reference.
struct Raw {
    aggregate: Aggregate,
    revision: Option<Revision>,
}

impl Raw {
    fn new() -> Result<Self, LoadError> {
        Ok(Self { aggregate: Aggregate::Session(scratch_session()?), revision: None })
    }

    async fn step_through(
        mut self,
        bare: Bare,
        steps: Arc<Vec<BareStep>>,
    ) -> Result<Self, LoadError> {
        for step in steps.iter() {
            let revision = Revision(UlidIds.fresh());
            let expected = self.revision.replace(revision.clone());
            let applied = bare.step(&self.aggregate, expected.as_ref(), &revision, step).await?;
            undisturbed(applied)?;
        }
        Ok(self)
    }

    async fn repeat(
        mut self,
        store: Arc<dyn Store>,
        commands: Arc<Vec<Command>>,
    ) -> Result<Self, LoadError> {
        for command in commands.iter() {
            match command {
                Command::Load(keys) => {
                    store.load(&self.aggregate, keys).await?;
                }
                Command::Apply(change) => {
                    let revision = Revision(UlidIds.fresh());
                    let change = Change {
                        aggregate: self.aggregate.clone(),
                        expected: self.revision.replace(revision.clone()),
                        revision,
                        ..change.as_ref().clone()
                    };
                    undisturbed(store.apply(change).await?)?;
                }
            }
        }
        Ok(self)
    }
}

fn undisturbed(applied: Applied) -> Result<(), LoadError> {
    if applied == Applied::Conflict {
        return Err(LoadError::Disturbed("a write of the reference conflicted"));
    }
    Ok(())
}
