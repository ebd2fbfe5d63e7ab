//! What is wrong with a configuration. Owns the one form in which it is said: where, which key,
//! what, and the cure. Must not know what any key means.

use std::fmt;
use std::path::Path;

use serde::Serialize;

/// One mistake.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The file, `None` where no file is meant.
    pub file: Option<String>,
    /// From 1; 0 where no line is meant.
    pub line: usize,
    /// In characters, from 1; 0 where no column is meant.
    pub column: usize,
    /// The key with its sections, such as `limits.chain_wakes`; empty where no key is meant.
    pub key: String,
    /// What is wrong. Never repeats a value that may be a secret.
    pub what: String,
    /// What is allowed, or what to do.
    pub cure: String,
}

impl Problem {
    /// About a file as a whole.
    pub(super) fn of_file(file: &Path, what: impl Into<String>, cure: impl Into<String>) -> Self {
        Self { file: Some(file.display().to_string()), ..Self::bare("", what, cure) }
    }

    /// Without a place.
    pub(super) fn bare(
        key: impl Into<String>,
        what: impl Into<String>,
        cure: impl Into<String>,
    ) -> Self {
        Self {
            file: None,
            line: 0,
            column: 0,
            key: key.into(),
            what: what.into(),
            cure: cure.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{file}:")?;
            if self.line > 0 {
                write!(f, "{}:{}:", self.line, self.column)?;
            }
            f.write_str(" ")?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        write!(f, "{}", self.what)?;
        if self.cure.is_empty() { Ok(()) } else { write!(f, "\n    {}", self.cure) }
    }
}

/// A configuration that cannot be used, with everything that is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", listed(problems))]
pub struct ConfigError {
    /// At least one, in the order of the files.
    pub problems: Vec<Problem>,
}

pub(super) fn listed(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
