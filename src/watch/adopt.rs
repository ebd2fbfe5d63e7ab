//! What became of an entry of the spool. Owns the order of the evidence: the exit record, then
//! the lock, then the record again under the lock, and only then `lost`. A pid is never evidence.
//! Blocking; must not know who asks.

use std::io::ErrorKind;
use std::time::UNIX_EPOCH;

use rustix::process::Signal;

use super::exit_record::{self, ExitRecord};
use super::ring::{self, Kept};
use super::sandbox::Group;
use super::spool::{ERR, Entry, EntryError, OUT, host_boot};
use super::stray;
use crate::core::execution::{Outcome, Status};
use crate::core::output::{Captured, capture};
use crate::core::time::Timestamp;
use crate::failpoint;
use crate::ports::Found;

/// Takes secrets out of text.
pub type Redactor = dyn Fn(&str) -> String + Send + Sync;

/// Said of an execution whose evidence somebody took away.
const REMOVED: &str = "its record was removed from the spool";

/// What ended a shim that left no record, as far as the bot knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Suspect {
    /// Nobody the bot knows of.
    Unknown,
    /// The bot itself, since the shim did not obey.
    Ourselves,
}

/// Judges an entry. Where nobody can say how it ended it writes so, once and for all.
pub(super) fn judge(
    entry: &Entry,
    now: Timestamp,
    suspect: Suspect,
    redact: &Redactor,
) -> Result<Found, EntryError> {
    if let Some(record) = recorded(entry, now) {
        return Ok(Found::Ended(outcome(entry, record, redact)));
    }
    let _lock = match entry.lock() {
        Ok(Some(lock)) => lock,
        Ok(None) => return Ok(Found::Held),
        Err(error) if error.is_missing() => return Ok(Found::Ended(removed(entry, redact))),
        Err(error) => return Err(error),
    };
    // The shim may have written it between the look and the lock.
    if let Some(record) = recorded(entry, now) {
        return Ok(Found::Ended(outcome(entry, record, redact)));
    }
    failpoint!("lost.before");
    let record = lost(entry, now, suspect);
    if let Err(error) = exit_record::write(&entry.dir, &record) {
        // The next start finds the same evidence and says the same.
        tracing::warn!(dir = %entry.dir.display(), %error, "cannot record a lost execution");
    }
    failpoint!("lost.after");
    Ok(Found::Ended(outcome(entry, record, redact)))
}

fn recorded(entry: &Entry, now: Timestamp) -> Option<ExitRecord> {
    exit_record::read(&entry.dir).unwrap_or_else(|error| {
        let reason = format!("its exit record cannot be read: {error}");
        Some(ExitRecord::bare(Status::Lost, &reason, now.as_ms()))
    })
}

/// Somebody removed the lock or all of it. Whether its shim lives can no longer be told, and what
/// it would write nobody would find: so it is ended.
fn removed(entry: &Entry, redact: &Redactor) -> Outcome {
    stray::signal_shim(&entry.dir, Signal::KILL);
    let mut outcome = Outcome::bare(Status::Lost, REMOVED);
    outcome.leftovers_killed = stray::kill(&entry.work);
    (outcome.stdout, outcome.stderr) = printed(entry, redact).unwrap_or_default();
    tracing::warn!(dir = %entry.dir.display(), "a spool entry was removed while its script ran");
    outcome
}

fn lost(entry: &Entry, now: Timestamp, suspect: Suspect) -> ExitRecord {
    let kept = ring::read(&entry.dir.join(OUT));
    let spec = entry.spec();
    let other_boot = spec.as_ref().is_ok_and(|spec| spec.host_boot != host_boot());
    let (status, reason) = if suspect == Suspect::Ourselves {
        (Status::Cancelled, "killed: its supervisor did not answer")
    } else if other_boot {
        (Status::Lost, "host-rebooted")
    } else {
        // Only a file that can be read proves that it never ran.
        match &kept {
            Ok(kept) if kept.started_ms.is_none() => (Status::Lost, "never-started"),
            Ok(_) => (Status::Lost, "shim-killed"),
            Err(_) => (Status::Lost, "shim-killed; its output file is damaged"),
        }
    };
    let started_ms = kept.ok().and_then(|kept| kept.started_ms);
    let mut record = ExitRecord::bare(status, reason, now.as_ms());
    // First those that cannot hide, then those that a group does not hold.
    let group = spec.ok().and_then(|spec| spec.group).filter(Group::is_ours);
    record.leftovers_killed = group.map_or(0, |group| group.end()) + stray::kill(&entry.work);
    record.elapsed_ms = started_ms.map_or(0, |at| last_sign_ms(entry).saturating_sub(at));
    tracing::warn!(
        dir = %entry.dir.display(), record.reason, log = entry.complaints(), "a shim left no record"
    );
    record
}

/// When its output files last changed, by the wall clock. How long it lived after that is unknown.
fn last_sign_ms(entry: &Entry) -> u64 {
    let changed = [OUT, ERR].iter().filter_map(|name| {
        let at = entry.dir.join(name).metadata().ok()?.modified().ok()?;
        u64::try_from(at.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok()
    });
    changed.max().unwrap_or(0)
}

fn outcome(entry: &Entry, record: ExitRecord, redact: &Redactor) -> Outcome {
    let (stdout, stderr) = printed(entry, redact).unwrap_or_default();
    Outcome {
        status: record.status,
        exit: record.exit,
        reason: record.reason,
        stdout,
        stderr,
        elapsed_ms: record.elapsed_ms,
        leftovers_killed: record.leftovers_killed,
    }
}

/// What it printed so far on stdout and stderr, `None` when there is no such entry.
pub(super) fn printed(entry: &Entry, redact: &Redactor) -> Option<(Captured, Captured)> {
    let text = |kept: Kept| capture(&kept.head, &kept.tail, kept.bytes, &redact);
    let stream = |name| match ring::read(&entry.dir.join(name)) {
        Ok(kept) => Some(text(kept)),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        // A power failure took it, so it was empty: one with content was on the disk before.
        Err(_unreadable) => Some(Captured::default()),
    };
    Some((stream(OUT)?, stream(ERR)?))
}
