//! What `SQLite`'s errors mean for whoever asked the store. Owns those words. Must not know SQL.

use std::path::Path;

use rusqlite::{Error, ErrorCode};

use crate::ports::StoreError;

/// The store's error for an error of `SQLite` while `doing` something with the file at `path`.
pub(super) fn explain(path: &Path, doing: &str, error: &Error) -> StoreError {
    let path = path.display();
    let Some(code) = error.sqlite_error_code() else {
        return StoreError::Data(format!("{doing} {path}: {error}"));
    };
    let is = |codes: &[ErrorCode]| codes.contains(&code);
    if is(&[ErrorCode::DatabaseCorrupt, ErrorCode::NotADatabase]) {
        StoreError::Data(format!(
            "{doing} {path}: the file is damaged or not a store ({error}); end every process that \
             uses it, keep a copy, and put a backup in its place"
        ))
    } else if is(&[ErrorCode::DiskFull]) {
        StoreError::Away(format!(
            "{doing} {path}: the disk is full; nothing was written, free some space"
        ))
    } else if is(&[ErrorCode::ReadOnly, ErrorCode::PermissionDenied, ErrorCode::CannotOpen]) {
        StoreError::Away(format!(
            "{doing} {path}: {error}; the file and its directory must exist and be writable for \
             this user"
        ))
    } else if is(&[ErrorCode::DatabaseBusy, ErrorCode::DatabaseLocked]) {
        StoreError::Away(format!(
            "{doing} {path}: another program keeps it locked ({error}); close whatever has it \
             open for writing, such as a sqlite3 shell"
        ))
    } else {
        StoreError::Away(format!("{doing} {path}: {error}"))
    }
}

/// The answer once the file that is written, or its lock, no longer stands under its name.
pub(super) fn replaced(path: &Path) -> StoreError {
    StoreError::Data(format!(
        "{path} or its lock was removed or replaced while it was in use; nothing more is written, \
         since nobody would find it: end this process, put the file back, and start again",
        path = path.display()
    ))
}

/// The answer for a thread of the store that is gone: the store is being closed.
pub(super) fn closed(path: &Path) -> StoreError {
    StoreError::Away(format!("the store {} is closed", path.display()))
}

/// The answer for an apply with which `SQLite` gave up its transaction, without saying why.
pub(super) fn given_up(path: &Path) -> StoreError {
    StoreError::Away(format!(
        "writing {}: it was given up, nothing of it was written",
        path.display()
    ))
}
