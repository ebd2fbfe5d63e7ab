//! Keeps rows. Owns the row stores behind `ports::Store`, the envelope of a stored row and the
//! clocks that count the store's time. Must not know turns, executions or any operation.

mod alarm;
mod chosen;
pub mod codec;
pub mod manual;
pub mod memory;
pub mod redis;
pub mod sqlite;
pub mod time;

pub use self::chosen::{Choice, Chosen};
pub use self::redis::Redis;
pub use manual::{CountedIds, ManualClock};
pub use memory::Memory;
pub use sqlite::{Settings, Sqlite};
pub use time::{SystemClock, UlidIds};

use crate::core::ledger::{Change, Key};
use crate::core::limits::{KEYS_PER_LOAD_MAX, SCORE_MAX};
use crate::ports::{Hint, Member, StoreError};

/// What a change has to say to those who wait for index entries.
fn hints_of(change: &Change) -> impl Iterator<Item = Hint> {
    change.index.iter().filter_map(|write| {
        let member = Member {
            score: write.score?,
            aggregate: change.aggregate.clone(),
            key: write.key.clone(),
        };
        Some(Hint { index: write.index.clone(), member })
    })
}

/// A load names its keys one by one, so their number is bounded.
fn check_keys(keys: &[Key]) -> Result<(), StoreError> {
    if keys.len() > KEYS_PER_LOAD_MAX {
        return Err(StoreError::Data(format!(
            "a load of {} rows was asked, at most {KEYS_PER_LOAD_MAX} are allowed at once",
            keys.len()
        )));
    }
    Ok(())
}

/// Scores are what every store can keep in order.
fn check_scores(change: &Change) -> Result<(), StoreError> {
    match change.index.iter().find(|write| write.score > Some(SCORE_MAX)) {
        Some(write) => Err(StoreError::Data(format!(
            "row {} of {} has the score {:?} in {}, at most {SCORE_MAX} is allowed",
            write.key, change.aggregate, write.score, write.index
        ))),
        None => Ok(()),
    }
}
