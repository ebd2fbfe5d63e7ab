//! Where the bot was let in: what is kept of it, for the surface that knows how to speak there.
//! Must not know any surface.

use futures_util::future::BoxFuture;

use super::DeskError;
use crate::core::id::InstallationId;
use crate::core::installation::{Departure, Installation};
use crate::core::ledger::installation::Departed;
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
}
