//! What of a spool is not settled: what a start has to look at. Owns what becomes of an entry that
//! cannot be used. Blocking; must not know who asks.

use rustix::process::Signal;

use super::adopt::{Suspect, judge};
use super::spool::{Entry, EntryError};
use super::{Shared, stray};
use crate::ports::SpoolEntry;

/// What in the spool is not settled, and forgets what is for long.
pub(super) fn scan(shared: &Shared) -> Result<Vec<(SpoolEntry, Entry)>, EntryError> {
    let now = shared.clock.now();
    if let Err(error) = shared.spool.forget(now) {
        tracing::warn!(%error, "old spool entries stay");
    }
    let mut all = Vec::new();
    for entry in shared.spool.entries()? {
        match look(shared, &entry) {
            Ok(found) => all.push((found, entry)),
            Err(error) => {
                tracing::warn!(dir = %entry.dir.display(), %error, "a spool entry is unusable");
                if is_dead(&entry) {
                    let _kept_for_a_while = shared.spool.settle(&entry, now);
                }
            }
        }
    }
    Ok(all)
}

/// May an unusable entry be set aside? A shim without a lock is ended first.
fn is_dead(entry: &Entry) -> bool {
    match entry.lock() {
        Ok(lock) => lock.is_some(),
        Err(error) if error.is_missing() => {
            stray::signal_shim(&entry.dir, Signal::KILL);
            true
        }
        Err(_) => false,
    }
}

fn look(shared: &Shared, entry: &Entry) -> Result<SpoolEntry, EntryError> {
    let spec = entry.spec()?;
    if shared.spool.entry(&spec.session, &spec.execution).dir != entry.dir {
        // A script that wrote it could end another's work.
        return Err(entry.foreign());
    }
    let found = judge(entry, shared.clock.now(), Suspect::Unknown, &*shared.redactor)?;
    let networked = spec.network.is_some();
    Ok(SpoolEntry { session: spec.session, execution: spec.execution, networked, found })
}
