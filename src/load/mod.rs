//! `dogwatch load`: how much a store bears. Owns driving whole cycles of background work (register,
//! append, commit, complete, claim) through the ledger with a model that answers at once, and a
//! reference of the same run that decides nothing: on Redis the same rows read and written by a
//! bare loop, one read and one call of the script a step; elsewhere the same reads and writes
//! straight to the store. Must not know which store it is.

mod drive;
mod record;
mod report;

use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::core::id::IdError;
use crate::engine::LedgerError;
use crate::ports::{Clock, Store, StoreError};
use crate::store::redis::Bare;

pub use self::report::{Latency, Report};

/// Sessions at most.
pub const SESSIONS_MAX: u32 = 10_000;
/// Executions of each session in a round, at most.
pub const EXECUTIONS_MAX: u32 = 10_000;
/// Measured and reference in turn, so often; the medians are told.
const ROUNDS: usize = 3;

/// What the reference is, where it has a connection of its own.
const BARE: &str = "a bare loop of one read and one script a step";
/// What it is elsewhere.
const STORE: &str = "the same reads and writes straight to the store";

/// How much is driven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Sessions, all at once.
    pub sessions: u32,
    /// Executions of each, one after the other, in each round.
    pub executions: u32,
    /// This process holds the store alone.
    pub sole: bool,
}

/// A scratch store that nobody else uses.
#[derive(Clone)]
pub struct Scratch {
    /// It.
    pub store: Arc<dyn Store>,
    /// Its time.
    pub clock: Arc<dyn Clock>,
    /// What its server has used of processors since it started, in microseconds; `None` where the
    /// store is in this process.
    pub cpu_us: Option<CpuOf>,
    /// A bare connection to its server, for the reference; `None` where the reference goes through
    /// the store.
    pub bare: Option<Bare>,
}

/// Asks a server what it has used.
pub type CpuOf = Arc<dyn Fn() -> BoxFuture<'static, Option<u64>> + Send + Sync>;

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The ledger refused what it must not refuse, or the store went away.
    #[error("the load broke off: {0}")]
    Ledger(#[from] LedgerError),
    /// The store does not answer.
    #[error("the load broke off: {0}")]
    Store(#[from] StoreError),
    /// A name that is none.
    #[error("the load broke off: {0}")]
    Id(#[from] IdError),
    /// A claim found nothing to do, or a write of the reference conflicted: the store lost a write
    /// or somebody else uses it.
    #[error("the load broke off: {0}; does anything else use this store?")]
    Disturbed(&'static str),
}

/// Measures. `say` hears in one line what is going on.
pub async fn run(
    scratch: Scratch,
    settings: Settings,
    say: &mut (dyn FnMut(&str) + Send),
) -> Result<Report, LoadError> {
    // Also warms up connections and caches.
    say("recording what a session reads and writes");
    let script = drive::Lab::new(scratch.clone(), settings)?.record().await?;
    let mut rounds = vec![];
    for round in 1..=ROUNDS {
        say(&format!("round {round} of {ROUNDS}: through the ledger"));
        // As fresh as the sessions of the reference: a session's cost grows with its log.
        let measured = drive::Lab::new(scratch.clone(), settings)?.measure().await?;
        say(&format!("round {round} of {ROUNDS}: the reference"));
        let reference = record::replay(&scratch, &script, settings).await?;
        rounds.push(report::Round { measured, reference });
    }
    let against = if scratch.bare.is_some() { BARE } else { STORE };
    Ok(Report::of(settings, against, rounds))
}
