//! Runs operations: load, decide, apply if the revision is unchanged. Owns the mailbox of each
//! aggregate and the rows kept after an apply. Must not know what any operation means.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::core::id::BootId;
use crate::core::ledger::{
    Aggregate, Change, Finished, Key, Operation, Refusal, Revision, Rows, Situation, Step, step,
};
use crate::core::limits::{CONFLICT_RETRIES_MAX, LOAD_ROUNDS_MAX};
use crate::failpoint;
use crate::ports::{Applied, ApplyEnd, Clock, Ids, Meter, Store, StoreError};

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

/// Rows at one revision.
#[derive(Debug, Clone, Default)]
struct Kept {
    revision: Option<Revision>,
    rows: Rows,
}

/// The rows of an aggregate as of the last apply, and whose turn it is to change them.
type Mailbox = Arc<tokio::sync::Mutex<Kept>>;

/// Runs operations over a store.
pub struct Ledger {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
    sole_boot: Option<BootId>,
    meter: Arc<dyn Meter>,
    mailboxes: Mutex<HashMap<Aggregate, Mailbox>>,
}

impl Ledger {
    /// `sole_boot` where this boot holds the whole store alone.
    pub fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn Ids>,
        sole_boot: Option<BootId>,
    ) -> Self {
        let mailboxes = Mutex::new(HashMap::new());
        Self { store, clock, ids, sole_boot, meter: Arc::new(()), mailboxes }
    }

    /// The same, counted by `meter`.
    #[must_use]
    pub fn metered(self, meter: Arc<dyn Meter>) -> Self {
        Self { meter, ..self }
    }

    /// The store, for reading.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Runs one operation. Run again after `StoreError::Away` it recognises its own repeat.
    pub async fn run<O: Operation>(&self, operation: &O) -> Result<O::Output, LedgerError> {
        let aggregate = operation.aggregate();
        let mailbox = self.mailbox(&aggregate);
        let mut kept = mailbox.lock().await;
        for tries in 0..CONFLICT_RETRIES_MAX {
            // Where this boot writes alone, the rows it kept are the rows there are.
            let fresh = kept.rows.is_empty();
            let before = std::mem::take(&mut *kept);
            let (output, mut finished, base) =
                match self.decide(operation, &aggregate, before).await {
                    Ok(decided) => decided,
                    // A refusal changes nothing, so it must rest on a fresh load.
                    Err(LedgerError::Refused(_)) if !fresh && self.sole_boot.is_none() => continue,
                    Err(error) => return Err(error),
                };
            if !finished.changed {
                if fresh || self.sole_boot.is_some() {
                    *kept = keep(base, finished.rows);
                    return Ok(output);
                }
                continue;
            }
            let facts = std::mem::take(&mut finished.facts);
            let (change, rows) = self.change(operation, &aggregate, base, finished);
            let revision = change.revision.clone();
            failpoint!(O, "before");
            match self.apply(change).await? {
                Applied::Applied | Applied::Already => {
                    failpoint!(O, "after");
                    self.meter.wrote(&facts);
                    *kept = keep(Some(revision), rows);
                    return Ok(output);
                }
                Applied::Conflict => {
                    let wait_ms = CONFLICT_WAIT_MS * u64::from(tries + 1);
                    self.clock.sleep_until(self.clock.now().plus_ms(wait_ms)).await;
                }
            }
        }
        Err(LedgerError::Contended { aggregate, tries: CONFLICT_RETRIES_MAX })
    }

    fn mailbox(&self, aggregate: &Aggregate) -> Mailbox {
        let mut mailboxes = self.mailboxes.lock().unwrap_or_else(PoisonError::into_inner);
        if mailboxes.len() >= MAILBOXES_MAX {
            mailboxes.retain(|_, mailbox| Arc::strong_count(mailbox) > 1);
        }
        Arc::clone(mailboxes.entry(aggregate.clone()).or_default())
    }

    /// Loads until the operation asks nothing new, all at one revision, and decides.
    async fn decide<O: Operation>(
        &self,
        operation: &O,
        aggregate: &Aggregate,
        mut have: Kept,
    ) -> Result<(O::Output, Finished, Option<Revision>), LedgerError> {
        let mut rounds = 0;
        loop {
            let at = Situation { now: self.clock.now(), sole_boot: self.sole_boot.clone() };
            let wanted = match step(operation, &at, &have.rows) {
                Step::Load(keys) => keys,
                Step::Decided(decided) => {
                    let (output, finished) = decided?;
                    return Ok((output, finished, have.revision));
                }
            };
            rounds += 1;
            debug_assert!(rounds <= LOAD_ROUNDS_MAX * 2, "an operation asks for ever");
            let loaded = self.store.load(aggregate, &wanted).await?;
            if loaded.revision == have.revision || have.rows.is_empty() {
                have.revision = loaded.revision;
                have.rows.extend(pair(wanted, loaded.rows));
                continue;
            }
            // Somebody wrote in between: everything is read again, at once.
            let mut keys: Vec<Key> = have.rows.into_keys().collect();
            keys.extend(wanted);
            let loaded = self.store.load(aggregate, &keys).await?;
            have = Kept { revision: loaded.revision, rows: pair(keys, loaded.rows).collect() };
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

fn pair(
    keys: Vec<Key>,
    rows: Vec<Option<crate::core::ledger::Row>>,
) -> impl Iterator<Item = (Key, Option<Arc<crate::core::ledger::Row>>)> {
    keys.into_iter().zip(rows.into_iter().map(|row| row.map(Arc::new)))
}

/// Keeps the rows that nearly every operation needs; the others are many and rarely needed twice.
fn keep(revision: Option<Revision>, rows: Rows) -> Kept {
    let frame = [Key::head(), Key::inbox(), Key::live(), Key::recent(), Key::tails()];
    let rows = rows.into_iter().filter(|(key, _)| {
        frame.contains(key) || ["u/", "c/"].iter().any(|list| key.as_str().starts_with(list))
    });
    let mut rows: Rows = rows.collect();
    if rows.len() > frame.len() * 4 {
        rows.retain(|key, _| frame.contains(key));
    }
    Kept { revision, rows }
}
