//! What an operation is and what it makes. Owns the trait, the refusals and the change.
//! Must not know any operation or any store.

use std::sync::Arc;

use super::index::Index;
use super::key::{Aggregate, Key, Revision};
use super::row::Row;
use super::working::{Finished, Rows, Working};
use crate::core::id::{BootId, ExecutionId, Principal};
use crate::core::time::Timestamp;

/// What an operation may know besides rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Situation {
    /// The store's time.
    pub now: Timestamp,
    /// This boot holds the whole store alone, so a lane of any other boot is void.
    pub sole_boot: Option<BootId>,
}

/// What kind of write an operation is. Set by the operation, obeyed by the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Class {
    /// It must be on disk before it is answered.
    pub durable: bool,
    /// It lets new work in, so it is refused first when memory is short.
    pub admits: bool,
}

impl Class {
    /// Lets new work in; on disk.
    pub const ADMITS: Self = Self { durable: true, admits: true };
    /// Finishes accepted work; on disk.
    pub const FINISHES: Self = Self { durable: true, admits: false };
    /// Makes room for new work; may be lost with the process, and then that work is too.
    pub const RESERVES: Self = Self { durable: false, admits: true };
    /// May be lost with the process: it is found again or done again.
    pub const HINT: Self = Self { durable: false, admits: false };
}

/// Why an operation changed nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Another claim holds the lane.
    #[error("the lane is taken until {0:?}")]
    Busy(Timestamp),
    /// Whoever had it vanished, more than once: only a node where nothing else runs may try again.
    #[error("it may only be tried while nothing else runs here")]
    Crowd,
    /// Nothing is ready.
    #[error("nothing is ready")]
    Idle,
    /// Not before.
    #[error("not before {0:?}")]
    NotYet(Timestamp),
    /// The token, lease or boot is no longer the current one.
    #[error("somebody else has it by now")]
    Fenced,
    /// The session is stopped, or of a later generation.
    #[error("the session is stopped")]
    Stopped,
    /// Too much is unread.
    #[error("too much is unread ({0})")]
    Full(usize),
    /// Too much runs.
    #[error("{what} ({limit})")]
    Cap {
        /// Which cap.
        what: &'static str,
        /// Its size.
        limit: usize,
    },
    /// What this call would start was given up while nobody had registered it.
    #[error("its place was given up")]
    Void,
    /// The same key, another request.
    #[error("the same start key was used for another request")]
    Conflict,
    /// It belongs to this person, and whoever asked is somebody else, or not that person alone.
    #[error("it belongs to {0}")]
    Foreign(Principal),
    /// It is over.
    #[error("{0} is over")]
    Ended(ExecutionId),
    /// There is no such thing.
    #[error("unknown")]
    Unknown,
    /// The log has another length.
    #[error("the log has {0} entries")]
    Length(u64),
    /// The model has not answered everything, or its last word is missing.
    #[error("something is not answered yet")]
    Unseen,
    /// An entry or request is not allowed here.
    #[error("not allowed: {0}")]
    Invalid(&'static str),
    /// The node is buried; the process takes a new boot id.
    #[error("the node is buried")]
    Buried,
    /// The node still beats.
    #[error("the node lives")]
    Alive,
    /// An operation touched a row that it did not name: a bug of ours, nothing was written.
    #[error("the row {0} was not named")]
    Unnamed(Key),
}

/// One decision over the rows of one aggregate.
///
/// `needs` names exact keys, is asked again with what it has until it asks nothing new (at most
/// `LOAD_ROUNDS_MAX` rounds, all at one revision). `decide` is pure and edits the working copy.
pub trait Operation {
    /// What it answers.
    type Output;
    /// Whose rows.
    fn aggregate(&self) -> Aggregate;
    /// What kind of write.
    fn class(&self) -> Class;
    /// The rows it must see, given those it has.
    fn needs(&self, have: &Working) -> Vec<Key>;
    /// Rows that whoever goes on after it will need: read along with what it needs, where something
    /// is read at all; `kept` knows which rows need not be. Nothing is decided by them.
    fn ahead(&self, _have: &Working, _kept: &dyn Fn(&Key) -> bool) -> Vec<Key> {
        vec![]
    }
    /// The decision. Run again after a lost answer it recognises its own repeat.
    fn decide(&self, at: &Situation, rows: &mut Working) -> Result<Self::Output, Refusal>;
}

/// One row to be written; `None` deletes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// Which row.
    pub key: Key,
    /// Its new content.
    pub row: Option<Arc<Row>>,
}

/// One index entry to be set; `None` removes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexWrite {
    /// Which index.
    pub index: Index,
    /// The row.
    pub key: Key,
    /// Its new score.
    pub score: Option<u64>,
}

/// All that one apply writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Whose rows.
    pub aggregate: Aggregate,
    /// The revision it was decided at.
    pub expected: Option<Revision>,
    /// The random id of this apply; the same when it is repeated.
    pub revision: Revision,
    /// Rows.
    pub writes: Vec<Write>,
    /// Index entries.
    pub index: Vec<IndexWrite>,
    /// What kind of write.
    pub class: Class,
}

/// What the runner of an operation does next.
#[derive(Debug)]
pub enum Step<T> {
    /// Load these rows as well, at the revision of the rows it has.
    Load(Vec<Key>),
    /// Decided: what it answers and what it changes.
    Decided(Result<(T, Finished), Refusal>),
}

/// One step of running an operation over the rows loaded so far. No I/O: the runner loads and
/// applies. At most `LOAD_ROUNDS_MAX` times it asks for rows. `loaded` is left as it was, unless
/// something changes: then it is empty, and what it has become is in [`Finished::rows`].
pub fn step<O: Operation>(operation: &O, at: &Situation, loaded: &mut Rows) -> Step<O::Output> {
    let mut working = Working::new(std::mem::take(loaded));
    let mut wanted: Vec<Key> = operation.needs(&working);
    wanted.retain(|key| !working.has(key));
    if !wanted.is_empty() {
        wanted.sort();
        wanted.dedup();
        *loaded = working.into_loaded();
        return Step::Load(wanted);
    }
    match operation.decide(at, &mut working) {
        Ok(output) => Step::Decided(working.finish().map(|mut finished| {
            if !finished.changed {
                *loaded = std::mem::take(&mut finished.rows);
            }
            (output, finished)
        })),
        Err(refusal) => {
            *loaded = working.into_loaded();
            Step::Decided(Err(refusal))
        }
    }
}
