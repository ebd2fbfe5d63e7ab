//! A look at a spool from outside: without its lock, beside the bot that works in it. Owns nothing
//! of it and changes nothing.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::spec;
use super::spool::SpoolError;
use crate::core::id::{ExecutionId, SessionId};

/// One entry of a spool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Its directory.
    pub dir: PathBuf,
    /// Whose it is; `None` where that cannot be read.
    pub execution: Option<(SessionId, ExecutionId)>,
}

/// What is in the spool at `root`, settled or not. One that was never made is empty.
///
/// # Errors
/// `Unusable` where it cannot be read.
pub fn look_at(root: &Path) -> Result<Vec<Seen>, SpoolError> {
    let mut dirs = list(&root.join("e"))?;
    for hour in list(&root.join("s"))? {
        dirs.extend(list(&hour)?);
    }
    dirs.sort();
    let seen = dirs.into_iter().filter_map(|dir| match spec::read(&dir) {
        // It was removed or set aside meanwhile.
        Err(_) if !dir.exists() => None,
        Err(_) => Some(Seen { dir, execution: None }),
        Ok(spec) => Some(Seen { dir, execution: Some((spec.session, spec.execution)) }),
    });
    Ok(seen.collect())
}

/// What is in a directory, what is half made left out.
fn list(path: &Path) -> Result<Vec<PathBuf>, SpoolError> {
    let read = || -> io::Result<Vec<PathBuf>> {
        fs::read_dir(path)?.map(|item| item.map(|item| item.path())).collect()
    };
    match read() {
        Ok(items) => Ok(items.into_iter().filter(|item| item.extension().is_none()).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(source) => {
            Err(SpoolError::Unusable { what: format!("read {}", path.display()), source })
        }
    }
}
