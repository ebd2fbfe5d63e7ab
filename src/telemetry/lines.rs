//! The writer under the subscriber: one whole line at a time, redacted, into a bounded file or
//! stderr. Must not know what a line says.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tracing_subscriber::fmt::MakeWriter;

use crate::core::limits::LOG_FILE_BYTES_MAX;
use crate::core::redact::Redactor;

/// Where lines end.
pub(super) enum Target {
    /// Beside the program's answer.
    Stderr,
    /// A file.
    File {
        /// Its path.
        path: PathBuf,
        /// Open for appending.
        file: File,
        /// Its length.
        bytes: u64,
        /// It is set aside at this length.
        bytes_max: u64,
    },
}

impl Target {
    /// Opens a file for appending; its directory is made.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir)?;
        }
        let file = append(path)?;
        let bytes = file.metadata()?.len();
        Ok(Self::File { path: path.to_owned(), file, bytes, bytes_max: LOG_FILE_BYTES_MAX })
    }

    fn write(&mut self, line: &[u8]) -> io::Result<()> {
        match self {
            Self::Stderr => io::stderr().lock().write_all(line),
            Self::File { path, file, bytes, bytes_max } => {
                let length = u64::try_from(line.len()).unwrap_or(u64::MAX);
                if *bytes > 0 && bytes.saturating_add(length) > *bytes_max {
                    let mut aside = path.clone().into_os_string();
                    aside.push(".1");
                    std::fs::rename(&*path, aside)?;
                    *file = append(path)?;
                    *bytes = 0;
                }
                file.write_all(line)?;
                *bytes = bytes.saturating_add(length);
                Ok(())
            }
        }
    }
}

/// Only its owner may read it: names and errors of a conversation are in it.
fn append(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

/// Redacts whole lines and writes them one after the other.
#[derive(Clone)]
pub(super) struct Lines {
    target: Arc<Mutex<Target>>,
    redactor: Arc<Redactor>,
}

impl Lines {
    pub(super) fn new(target: Target, redactor: Redactor) -> Self {
        Self { target: Arc::new(Mutex::new(target)), redactor: Arc::new(redactor) }
    }

    /// Hands what was written to the kernel.
    pub(super) fn flush(&self) {
        let mut target = self.target.lock().unwrap_or_else(PoisonError::into_inner);
        let done = match &mut *target {
            Target::Stderr => io::stderr().flush(),
            Target::File { file, .. } => file.flush(),
        };
        // There is nowhere left to say that the log cannot be written.
        drop(done);
    }

    fn write(&self, line: &[u8]) -> io::Result<()> {
        let text = String::from_utf8_lossy(line);
        let clean = one_line(&self.redactor.redact(&text));
        let mut target = self.target.lock().unwrap_or_else(PoisonError::into_inner);
        target.write(clean.as_bytes())
    }
}

/// Nobody's text begins a line of its own or steers a terminal; only colours are left.
fn one_line(text: &str) -> String {
    let text = text.trim_end_matches('\n');
    let mut line = String::with_capacity(text.len() + 1);
    for (at, c) in text.char_indices() {
        let steers = c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
        let color = || text.get(at..).is_some_and(is_color);
        if !steers || c == '\t' || color() {
            line.push(c);
        } else {
            line.extend(c.escape_default());
        }
    }
    line.push('\n');
    line
}

/// Does it begin with `ESC [ numbers m`?
fn is_color(text: &str) -> bool {
    text.strip_prefix("\u{1b}[")
        .map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';'))
        .is_some_and(|rest| rest.starts_with('m'))
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lines")
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line { lines: self.clone(), bytes: Vec::new() }
    }
}

/// One event while it is being formatted. It is written when it is dropped, whole, so that a
/// secret which the formatter writes in pieces is seen in one.
pub(super) struct Line {
    lines: Lines,
    bytes: Vec<u8>,
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if !self.bytes.is_empty() {
            // There is nowhere left to say that the log cannot be written.
            drop(self.lines.write(&self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Lines, Target};
    use crate::core::redact::Redactor;

    #[test]
    fn a_full_file_is_set_aside_and_no_line_is_torn() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log/dogwatch.log");
        let mut target = Target::open(&path).unwrap();
        if let Target::File { bytes_max, .. } = &mut target {
            *bytes_max = 30;
        }
        let lines = Lines::new(target, Redactor::new(vec![]));
        for n in 0..5 {
            lines.write(format!("line {n} of five\n").as_bytes()).unwrap();
        }
        let read = |path: &std::path::Path| std::fs::read_to_string(path).unwrap();
        assert_eq!(read(&path), "line 4 of five\n");
        assert_eq!(
            read(&dir.path().join("log/dogwatch.log.1")),
            "line 2 of five\nline 3 of five\n"
        );
        drop(lines);
        // What is there is kept, and counted.
        let Target::File { bytes, .. } = Target::open(&path).unwrap() else { panic!() };
        assert_eq!(bytes, 15);
    }

    #[test]
    fn a_line_longer_than_the_file_may_be_is_still_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.log");
        let mut target = Target::open(&path).unwrap();
        if let Target::File { bytes_max, .. } = &mut target {
            *bytes_max = 3;
        }
        target.write(b"longer\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "longer\n");
    }
}
