//! Where the bot was let in: what is kept of it, for the surface that knows how to speak there.
//! Must not know any surface.

use futures_util::future::BoxFuture;
use tokio::sync::broadcast;

use super::DeskError;
use crate::core::id::{InstallationId, LeaseId};
use crate::core::installation::{Departure, Grant, Installation, Redeemed};
use crate::core::ledger::installation::{Change, Departed};
use crate::core::time::Timestamp;

/// What is kept of installations, durably. Every repeat is safe.
pub trait Installations: Send + Sync + 'static {
    /// As it stands now, whichever node wrote it.
    fn find<'a>(
        &'a self,
        installation: &'a InstallationId,
    ) -> BoxFuture<'a, Result<Option<Installation>, DeskError>>;
    /// Its surface has said that it is whole, asked at `asked_at`. Answers whether that is still
    /// the newest word.
    fn confirm<'a>(
        &'a self,
        installation: &'a InstallationId,
        asked_at: Timestamp,
    ) -> BoxFuture<'a, Result<bool, DeskError>>;
    /// It has ended, at `source_at` by its surface's clock. Its work is stopped by and by.
    fn depart<'a>(
        &'a self,
        installation: &'a InstallationId,
        why: Departure,
        source_at: Option<Timestamp>,
    ) -> BoxFuture<'a, Result<Departed, DeskError>>;
    /// All there are.
    fn all(&self) -> BoxFuture<'_, Result<Vec<(InstallationId, Installation)>, DeskError>>;
    /// It was granted. Answers whether it was there before.
    fn install<'a>(
        &'a self,
        installation: &'a InstallationId,
        grant: Grant,
    ) -> BoxFuture<'a, Result<bool, DeskError>>;
    /// The bot's own id there.
    fn introduce<'a>(
        &'a self,
        installation: &'a InstallationId,
        bot: &'a str,
    ) -> BoxFuture<'a, Result<(), DeskError>>;
    /// Somebody begins an installation, known by this when it ends.
    fn invite<'a>(&'a self, hash: &'a str) -> BoxFuture<'a, Result<(), DeskError>>;
    /// Somebody comes back.
    fn redeem<'a>(&'a self, hash: &'a str) -> BoxFuture<'a, Result<Redeemed, DeskError>>;
    /// Installations whose tokens are to be changed now, from now on. Lossy; what is due stays due.
    fn due(&self) -> broadcast::Receiver<InstallationId>;
    /// The sealed tokens, for whoever is to change them; `None` where nobody is, or another one.
    fn lease_refresh<'a>(
        &'a self,
        installation: &'a InstallationId,
        lease: &'a LeaseId,
    ) -> BoxFuture<'a, Result<Option<String>, DeskError>>;
    /// What came of changing the tokens `of` under this lease. Answers whether it counts.
    fn refreshed<'a>(
        &'a self,
        installation: &'a InstallationId,
        tried: (&'a LeaseId, &'a str),
        change: &'a Change,
    ) -> BoxFuture<'a, Result<bool, DeskError>>;
}
