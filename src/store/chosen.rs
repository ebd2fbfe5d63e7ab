//! The store that was chosen: a file of this machine, or Redis. Owns what differs between them for
//! whoever opens one. Must not know what is kept.

use std::path::PathBuf;
use std::sync::Arc;

use super::redis::health::{Finding, Verdict};
use super::{Redis, Sqlite, redis, sqlite};
use crate::ports::{Store, StoreError};

/// Which store, and where.
#[derive(Debug, Clone)]
pub enum Choice {
    /// One file, for one bot.
    Sqlite(sqlite::Settings),
    /// Redis, for several bots.
    Redis(redis::Settings),
}

/// A store as it was chosen.
#[derive(Debug, Clone)]
pub enum Chosen {
    /// One file, for one bot.
    Sqlite(Arc<Sqlite>),
    /// Redis, for several bots.
    Redis(Arc<Redis>),
}

impl Choice {
    /// The database's file, where it is one.
    pub fn file(&self) -> Option<&PathBuf> {
        match self {
            Self::Sqlite(settings) => Some(&settings.path),
            Self::Redis(_) => None,
        }
    }
}

impl Chosen {
    /// Opens it to be written, within a runtime. Redis must be fit to hold a ledger; what somebody
    /// should know of it otherwise is answered too.
    ///
    /// # Errors
    /// `Held` where another bot has the file; `Data` or `Away` where it cannot be used.
    pub async fn open(choice: &Choice) -> Result<(Self, Vec<Finding>), StoreError> {
        match choice {
            Choice::Sqlite(settings) => {
                Ok((Self::Sqlite(Arc::new(Sqlite::open(settings)?)), vec![]))
            }
            Choice::Redis(settings) => {
                let redis = Redis::open(settings)?;
                let findings = redis.health().await;
                let (refused, told): (Vec<_>, Vec<_>) = findings
                    .into_iter()
                    .filter(|finding| finding.verdict > Verdict::Ok)
                    .partition(|finding| finding.verdict == Verdict::Refuse);
                if refused.is_empty() {
                    return Ok((Self::Redis(Arc::new(redis)), told));
                }
                let words: Vec<_> = refused.iter().map(ToString::to_string).collect();
                Err(StoreError::Data(words.join("; ")))
            }
        }
    }

    /// Opens it to be looked at, beside a bot that runs.
    ///
    /// # Errors
    /// `Data` or `Away` where it cannot be read.
    pub fn look(choice: &Choice) -> Result<Self, StoreError> {
        Ok(match choice {
            Choice::Sqlite(settings) => Self::Sqlite(Arc::new(Sqlite::open_read_only(settings)?)),
            Choice::Redis(settings) => Self::Redis(Arc::new(Redis::open(settings)?)),
        })
    }

    /// As any store.
    pub fn rows(&self) -> Arc<dyn Store> {
        match self {
            Self::Sqlite(sqlite) => Arc::<Sqlite>::clone(sqlite),
            Self::Redis(redis) => Arc::<Redis>::clone(redis),
        }
    }

    /// Whoever opened it holds it alone.
    pub const fn is_sole(&self) -> bool {
        match self {
            Self::Sqlite(_) => true,
            Self::Redis(_) => false,
        }
    }
}
