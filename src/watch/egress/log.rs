//! What was decided, one JSON object a line. Owns that nothing of a request stands there but its
//! method, host and port, and that it takes no more than two files of bounded size. Must not know
//! why something was decided.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use crate::core::limits::EGRESS_LOG_BYTES_MAX;
use crate::core::time::Timestamp;
use crate::watch::file;

/// The files in the directory: what goes on, and what was before.
const NEW: &str = "log";
const OLD: &str = "log.1";

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    /// It went on.
    Passed,
    /// It was not let.
    Denied,
    /// There were too many.
    RateLimited,
    /// The upstream gave no answer.
    Failed,
    /// It was ended on its way.
    Cut,
}

/// One line.
#[derive(Debug, Serialize)]
pub(super) struct Entry<'a> {
    /// When it was over.
    pub(super) at: String,
    /// Of which execution.
    pub(super) execution: &'a str,
    /// What it asked for.
    pub(super) method: &'a str,
    /// Where it went, as far as that was understood.
    pub(super) host: Option<String>,
    pub(super) port: Option<u16>,
    pub(super) verdict: Verdict,
    /// Why, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    /// The upstream's status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<u16>,
    /// Bytes to the upstream and from it, without heads.
    pub(super) up: u64,
    pub(super) down: u64,
}

/// An instant as the log has it.
pub(super) fn when(at: Timestamp) -> String {
    let ms = i64::try_from(at.as_ms()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_millisecond(ms).map_or_else(|_| ms.to_string(), |at| at.to_string())
}

/// The log. Both files are opened once, since the process gives up the right to open them.
#[derive(Debug)]
pub(super) struct Log(Mutex<Files>);

#[derive(Debug)]
struct Files {
    new: File,
    old: File,
    bytes: u64,
}

impl Log {
    /// Opens the files in a directory.
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let new = file::open(&dir.join(NEW), options.read(true).append(true).create(true))?;
        let mut options = OpenOptions::new();
        let old = file::open(&dir.join(OLD), options.write(true).create(true).truncate(false))?;
        let bytes = new.metadata()?.len();
        Ok(Self(Mutex::new(Files { new, old, bytes })))
    }

    /// Writes a line. Where the disk is full the line is lost and the request is not.
    pub(super) fn write(&self, entry: &impl Serialize) {
        let Ok(mut line) = serde_json::to_vec(entry) else { return };
        line.push(b'\n');
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _lost = files.write(&line);
    }
}

impl Files {
    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        let length = line.len() as u64;
        if self.bytes > 0 && self.bytes + length > EGRESS_LOG_BYTES_MAX {
            self.set_aside()?;
        }
        self.new.write_all(line)?;
        self.bytes += length;
        Ok(())
    }

    /// Copied and not renamed: the directory is not ours any more.
    fn set_aside(&mut self) -> io::Result<()> {
        self.new.rewind()?;
        self.old.set_len(0)?;
        self.old.rewind()?;
        io::copy(&mut (&self.new).take(EGRESS_LOG_BYTES_MAX), &mut self.old)?;
        self.new.set_len(0)?;
        self.bytes = 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_log_takes_two_files_of_bounded_size_and_loses_no_new_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let log = Log::open(dir.path()).unwrap();
        let line = "x".repeat(10_000);
        for number in 0..250 {
            log.write(&serde_json::json!({ "number": number, "text": line }));
        }
        // Another process goes on where this one ended.
        drop(log);
        Log::open(dir.path()).unwrap().write(&serde_json::json!({ "number": 250 }));
        let (new, old) = (fs::read(path(NEW)).unwrap(), fs::read(path(OLD)).unwrap());
        assert!(
            new.len() as u64 <= EGRESS_LOG_BYTES_MAX && old.len() as u64 <= EGRESS_LOG_BYTES_MAX
        );
        let numbers: Vec<u64> = [old, new]
            .concat()
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| {
                serde_json::from_slice::<serde_json::Value>(line).unwrap()["number"].clone()
            })
            .map(|number| number.as_u64().unwrap())
            .collect();
        let first = *numbers.first().unwrap();
        assert_eq!(numbers, (first..=250).collect::<Vec<_>>());
        assert!(first < 150, "the file that was set aside is gone");
    }
}
