//! Runs operations: load, decide, apply if the revision is unchanged. Owns the mailbox of each
//! aggregate. Must not know what any operation means, nor what is kept of its rows.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::broadcast;

use super::kept::{Kept, SHELVED_BYTES_MAX};
use crate::core::id::BootId;
use crate::core::ledger::{
    Aggregate, Change, Finished, IndexWrite, Key, Operation, Refusal, Revision, Row, Rows,
    Situation, Step, step,
};
use crate::core::limits::{CONFLICT_RETRIES_MAX, HINTS_KEPT_MAX, LOAD_ROUNDS_MAX};
use crate::failpoint;
use crate::ports::{Applied, ApplyEnd, Clock, Hint, Ids, Member, Meter, Store, StoreError};

/// Mailboxes kept while nobody uses them.
const MAILBOXES_MAX: usize = 1_024;
/// Tries of an apply whose answer was lost; it is recognised by its revision.
const LOST_ANSWERS_MAX: u32 = 2;
/// First wait after a conflict with another node; it grows with each.
const CONFLICT_WAIT_MS: u64 = 2;

/// Why an operation came to nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    /// The ledger refuses it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The store did not answer, or cannot.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Other nodes wrote again and again.
    #[error("other nodes changed {aggregate} {tries} times in between; try again")]
    Contended {
        /// Which aggregate.
        aggregate: Aggregate,
        /// How often it was tried.
        tries: u32,
    },
}

impl LedgerError {
    /// The refusal, if it is one.
    pub const fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            Self::Store(_) | Self::Contended { .. } => None,
        }
    }
}

/// The rows of an aggregate as of the last apply, and whose turn it is to change them.
type Mailbox = Arc<tokio::sync::Mutex<Kept>>;

/// What an operation decided, and on which rows.
struct Decided<T> {
    result: Result<(T, Finished), Refusal>,
    kept: Kept,
    /// The rows were the store's own when they were looked at.
    fresh: bool,
}

/// Runs operations over a store.
pub struct Ledger {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
    sole_boot: Option<BootId>,
    meter: Arc<dyn Meter>,
    mailboxes: Mutex<HashMap<Aggregate, Mailbox>>,
    /// Bytes on all shelves.
    shelved: Arc<AtomicUsize>,
    conflicts: AtomicU64,
    /// What this ledger wrote into indexes.
    written: broadcast::Sender<Hint>,
}

impl Ledger {
    /// `sole_boot` where this boot holds the whole store alone.
    pub fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn Ids>,
        sole_boot: Option<BootId>,
    ) -> Self {
        Self {
            store,
            clock,
            ids,
            sole_boot,
            meter: Arc::new(()),
            mailboxes: Mutex::new(HashMap::new()),
            shelved: Arc::default(),
            conflicts: AtomicU64::new(0),
            written: broadcast::Sender::new(HINTS_KEPT_MAX),
        }
    }

    /// The same, counted by `meter`.
    #[must_use]
    pub fn metered(self, meter: Arc<dyn Meter>) -> Self {
        Self { meter, ..self }
    }

    /// This boot holds the whole store alone.
    pub const fn is_sole(&self) -> bool {
        self.sole_boot.is_some()
    }

    /// The store, for reading.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Applies so far that came to nothing, since another node had written in between.
    pub fn conflicts(&self) -> u64 {
        self.conflicts.load(Ordering::Relaxed)
    }

    /// Index members that this ledger writes, from now on.
    pub(super) fn written(&self) -> broadcast::Receiver<Hint> {
        self.written.subscribe()
    }

    /// Runs one operation. Run again after `StoreError::Away` it recognises its own repeat.
    pub async fn run<O: Operation>(&self, operation: &O) -> Result<O::Output, LedgerError> {
        let aggregate = operation.aggregate();
        let mailbox = self.mailbox(&aggregate);
        let mut kept = mailbox.lock().await;
        for tries in 0..CONFLICT_RETRIES_MAX {
            let before = std::mem::replace(&mut *kept, self.nothing());
            let decided = self.decide(operation, &aggregate, before).await?;
            let finished = match decided.result {
                Ok((output, finished)) if finished.changed => (output, finished),
                // It changes nothing, so it must rest on what the store has now.
                result => {
                    if self.is_current(&aggregate, &decided.kept, decided.fresh).await? {
                        *kept = decided.kept;
                        kept.sort();
                        return Ok(result.map(|(output, _)| output)?);
                    }
                    continue;
                }
            };
            let (output, mut finished) = finished;
            let facts = std::mem::take(&mut finished.facts);
            let mut after = decided.kept;
            let (change, rows) = self.change(operation, &aggregate, after.revision, finished);
            let (revision, index) = (change.revision.clone(), change.index.clone());
            failpoint!(O, "before");
            match self.apply(change).await? {
                Applied::Applied | Applied::Already => {
                    failpoint!(O, "after");
                    self.meter.wrote(&facts);
                    (after.revision, after.rows) = (Some(revision), rows);
                    after.sort();
                    *kept = after;
                    self.tell(&aggregate, index);
                    return Ok(output);
                }
                Applied::Conflict => {
                    self.conflicts.fetch_add(1, Ordering::Relaxed);
                    // Not all at once again: the revision is as good as chance.
                    let most = CONFLICT_WAIT_MS * u64::from(tries + 1);
                    let wait_ms = most + revision.0.bytes().map(u64::from).sum::<u64>() % most;
                    self.clock.sleep_until(self.clock.now().plus_ms(wait_ms)).await;
                }
            }
        }
        Err(LedgerError::Contended { aggregate, tries: CONFLICT_RETRIES_MAX })
    }

    /// Rows as this node knows them: what it kept since its last apply is not read again. For
    /// whoever shows them or holds the lane; decisions are made by operations.
    pub async fn read(
        &self,
        aggregate: &Aggregate,
        keys: &[Key],
    ) -> Result<Vec<Option<Arc<Row>>>, StoreError> {
        let mailbox = self.mailbox(aggregate);
        let mut kept = mailbox.lock().await;
        let missing = kept.take(keys.to_vec());
        if !missing.is_empty() {
            let loaded = self.store.load(aggregate, &missing).await?;
            if loaded.revision == kept.revision {
                kept.rows.extend(pair(missing, loaded.rows));
            } else {
                let loaded = self.store.load(aggregate, keys).await?;
                *kept = self.nothing();
                kept.revision = loaded.revision;
                kept.rows.extend(pair(keys.to_vec(), loaded.rows));
            }
        }
        let found = keys.iter().map(|key| kept.rows.get(key).cloned().flatten()).collect();
        kept.sort();
        Ok(found)
    }

    fn nothing(&self) -> Kept {
        Kept::nothing(Arc::clone(&self.shelved))
    }

    fn mailbox(&self, aggregate: &Aggregate) -> Mailbox {
        let mut mailboxes = self.mailboxes.lock().unwrap_or_else(PoisonError::into_inner);
        let full = self.shelved.load(Ordering::Relaxed) >= SHELVED_BYTES_MAX;
        if mailboxes.len() >= MAILBOXES_MAX || full {
            mailboxes.retain(|_, mailbox| Arc::strong_count(mailbox) > 1);
        }
        if let Some(mailbox) = mailboxes.get(aggregate) {
            return Arc::clone(mailbox);
        }
        let mailbox = Arc::new(tokio::sync::Mutex::new(self.nothing()));
        mailboxes.insert(aggregate.clone(), Arc::clone(&mailbox));
        mailbox
    }

    /// Where this boot writes alone, the rows it kept are the rows there are.
    async fn is_current(
        &self,
        aggregate: &Aggregate,
        kept: &Kept,
        fresh: bool,
    ) -> Result<bool, StoreError> {
        if fresh || self.sole_boot.is_some() {
            return Ok(true);
        }
        let key = kept.rows.keys().next().cloned().unwrap_or_else(Key::head);
        Ok(self.store.load(aggregate, &[key]).await?.revision == kept.revision)
    }

    /// Loads until the operation asks nothing new, all at one revision, and decides.
    async fn decide<O: Operation>(
        &self,
        operation: &O,
        aggregate: &Aggregate,
        mut have: Kept,
    ) -> Result<Decided<O::Output>, LedgerError> {
        let mut fresh = have.is_empty();
        let (mut rounds, mut tries) = (0, 0);
        loop {
            let at = Situation { now: self.clock.now(), sole_boot: self.sole_boot.clone() };
            let wanted = match step(operation, &at, &mut have.rows) {
                Step::Load(keys) => have.take(keys),
                Step::Decided(result) => return Ok(Decided { result, kept: have, fresh }),
            };
            if wanted.is_empty() {
                continue;
            }
            rounds += 1;
            debug_assert!(rounds <= LOAD_ROUNDS_MAX + 1, "an operation asks for ever");
            let ahead = have.ahead(operation, wanted.len());
            let keys = [wanted.as_slice(), &ahead].concat();
            let loaded = self.store.load(aggregate, &keys).await?;
            if loaded.revision != have.revision && !have.is_empty() {
                // Somebody wrote in between: all that is needed is read again, at once.
                (rounds, tries) = (0, tries + 1);
                if tries > CONFLICT_RETRIES_MAX {
                    return Err(LedgerError::Contended { aggregate: aggregate.clone(), tries });
                }
                let keys: Vec<Key> = have.rows.keys().cloned().chain(wanted).collect();
                let loaded = self.store.load(aggregate, &keys).await?;
                have = self.nothing();
                have.revision = loaded.revision;
                have.rows = pair(keys, loaded.rows).collect();
            } else {
                have.revision = loaded.revision;
                have.rows.extend(pair(keys, loaded.rows));
            }
            fresh = true;
        }
    }

    fn change<O: Operation>(
        &self,
        operation: &O,
        aggregate: &Aggregate,
        expected: Option<Revision>,
        finished: Finished,
    ) -> (Change, Rows) {
        let change = Change {
            aggregate: aggregate.clone(),
            expected,
            revision: Revision(self.ids.fresh()),
            writes: finished.writes,
            index: finished.index,
            class: operation.class(),
        };
        (change, finished.rows)
    }

    fn tell(&self, aggregate: &Aggregate, index: Vec<IndexWrite>) {
        for IndexWrite { index, key, score } in index {
            let Some(score) = score else { continue };
            let member = Member { score, aggregate: aggregate.clone(), key };
            // Nobody listening is no error.
            let _listeners = self.written.send(Hint { index, member });
        }
    }

    /// An apply whose answer was lost is repeated: the store knows its revision.
    async fn apply(&self, change: Change) -> Result<Applied, StoreError> {
        let mut lost = 0;
        loop {
            let began = self.clock.now();
            let answer = self.store.apply(change.clone()).await;
            self.meter.applied(apply_end(&answer), self.clock.now().since_ms(began));
            match answer {
                Err(StoreError::Away(_)) if lost < LOST_ANSWERS_MAX => lost += 1,
                answer => return answer,
            }
        }
    }
}

const fn apply_end(answer: &Result<Applied, StoreError>) -> ApplyEnd {
    match answer {
        Ok(Applied::Applied) => ApplyEnd::Applied,
        Ok(Applied::Conflict) => ApplyEnd::Conflict,
        Ok(Applied::Already) => ApplyEnd::Already,
        Err(_) => ApplyEnd::Failed,
    }
}

fn pair(keys: Vec<Key>, rows: Vec<Option<Row>>) -> impl Iterator<Item = (Key, Option<Arc<Row>>)> {
    keys.into_iter().zip(rows.into_iter().map(|row| row.map(Arc::new)))
}
