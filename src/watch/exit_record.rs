//! The record of how an execution ended: `exit.json` in its directory. Owns its format and its
//! safe writing. Must not know who writes it: the shim does, or the bot under a dead shim's lock.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use nix::fcntl::posix_fallocate;
use serde::{Deserialize, Serialize};

use super::file;
use crate::core::execution::{Exit, Status};
use crate::core::limits::EXIT_RECORD_BYTES;
use crate::failpoint;

const NAME: &str = "exit.json";
const DRAFT: &str = "exit.tmp";
/// Version of the format.
const FORMAT: u32 = 1;
/// Longest reason that is kept; the rest of the record is far smaller than what is left.
const REASON_CHARS_MAX: usize = 400;

/// How an execution ended. What it printed stays in its output files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ExitRecord {
    /// Version of the format.
    format: u32,
    /// The version of dogwatch that wrote it.
    dogwatch: String,
    /// How it ended.
    pub(super) status: Status,
    /// The script's own exit.
    pub(super) exit: Option<Exit>,
    /// One line why.
    pub(super) reason: Option<String>,
    /// From "go" to the script's exit.
    pub(super) elapsed_ms: u64,
    /// Processes that were killed after it.
    pub(super) leftovers_killed: u32,
    /// When it was written, by the wall clock.
    pub(super) ended_ms: u64,
}

impl ExitRecord {
    /// A record without a process to report of.
    pub(super) fn bare(status: Status, reason: &str, ended_ms: u64) -> Self {
        Self {
            format: FORMAT,
            dogwatch: env!("CARGO_PKG_VERSION").to_owned(),
            status,
            exit: None,
            reason: Some(reason.chars().take(REASON_CHARS_MAX).collect()),
            elapsed_ms: 0,
            leftovers_killed: 0,
            ended_ms,
        }
    }
}

/// Takes the disk blocks that a record will need.
pub(super) fn reserve(dir: &Path) -> io::Result<()> {
    let file = file::open(&dir.join(DRAFT), OpenOptions::new().write(true).create_new(true))?;
    posix_fallocate(&file, 0, i64::try_from(EXIT_RECORD_BYTES).map_err(io::Error::other)?)?;
    Ok(())
}

/// Writes the record: into the reserved blocks, to the disk, then under its name. Should a power
/// failure take the name away, the draft is read, so nobody waits for the name to be on the disk.
pub(super) fn write(dir: &Path, record: &ExitRecord) -> io::Result<()> {
    let mut text = serde_json::to_vec(record)?;
    if text.len() > EXIT_RECORD_BYTES {
        return Err(io::Error::other("the exit record is too long"));
    }
    text.resize(EXIT_RECORD_BYTES, b'\n');
    failpoint!("record.before");
    let draft = dir.join(DRAFT);
    // Not truncated: that would give the reserved blocks back.
    let mut file = file::open(&draft, OpenOptions::new().write(true).create(true).truncate(false))?;
    file.write_all(&text)?;
    failpoint!("record.written");
    file.sync_all()?;
    failpoint!("record.synced");
    fs::rename(&draft, dir.join(NAME))?;
    failpoint!("record.after");
    Ok(())
}

/// Reads the record, `None` when there is none. A whole draft is one.
pub(super) fn read(dir: &Path) -> io::Result<Option<ExitRecord>> {
    let text = |name| match file::read(&dir.join(name), EXIT_RECORD_BYTES) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    };
    let record: ExitRecord = match text(NAME)? {
        Some(text) => serde_json::from_slice(&text)?,
        None => match text(DRAFT)?.and_then(|text| serde_json::from_slice(&text).ok()) {
            Some(record) => record,
            None => return Ok(None),
        },
    };
    if record.format == FORMAT {
        Ok(Some(record))
    } else {
        let what = format!("format {} of dogwatch {}", record.format, record.dogwatch);
        Err(io::Error::new(io::ErrorKind::InvalidData, what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        reserve(dir.path()).unwrap();
        assert_eq!(read(dir.path()).unwrap(), None);
        let mut record = ExitRecord::bare(Status::Failed, "\u{1F415}\u{1}".repeat(900).as_str(), 5);
        record.exit = Some(Exit::Signal(34));
        write(dir.path(), &record).unwrap();
        assert_eq!(read(dir.path()).unwrap(), Some(record));
    }

    #[test]
    fn a_draft_is_a_record_once_it_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let record = ExitRecord::bare(Status::Failed, "x", 5);
        write(dir.path(), &record).unwrap();
        // As after a power failure that came before the name was on the disk.
        let draft = dir.path().join(DRAFT);
        fs::rename(dir.path().join(NAME), &draft).unwrap();
        assert_eq!(read(dir.path()).unwrap(), Some(record.clone()));
        let whole = serde_json::to_vec(&record).unwrap();
        for length in 0..whole.len() {
            let mut torn = whole.clone();
            torn.truncate(length);
            torn.resize(EXIT_RECORD_BYTES, 0);
            fs::write(&draft, torn).unwrap();
            assert_eq!(read(dir.path()).unwrap(), None, "{length}");
        }
    }

    #[test]
    fn another_format_is_refused_in_words() {
        let dir = tempfile::tempdir().unwrap();
        let mut record = ExitRecord::bare(Status::Failed, "x", 5);
        record.format = 9;
        write(dir.path(), &record).unwrap();
        assert!(read(dir.path()).unwrap_err().to_string().contains("format 9"));
    }
}
