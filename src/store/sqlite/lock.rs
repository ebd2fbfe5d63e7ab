//! The right to write a store. Owns the lock file beside it: the kernel holds the lock and drops
//! it with the process, so a file that was left behind stops nobody. Must not know `SQLite`.

use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process;

use nix::poll::poll;

use crate::ports::StoreError;

/// Held as long as it lives. The file stays: deleting it would let two hold it.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
    path: PathBuf,
}

/// Looks at a held lock, and what lies between two.
const LOCK_TRIES_MAX: u32 = 20;
const LOCK_WAIT_MS: u16 = 25;
/// Longest pid that is read from a lock file, in bytes.
const PID_BYTES_MAX: u64 = 20;

impl Lock {
    /// The lock of the store at `store`, or who holds it.
    pub(super) fn take(store: &Path) -> Result<Self, StoreError> {
        let path = beside(store);
        let away = |e: io::Error| {
            StoreError::Away(format!(
                "the lock file {} cannot be used ({e}): the directory must exist and be writable \
                 for this user",
                path.display()
            ))
        };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(away)?;
        if !lock_soon(&file).map_err(away)? {
            return Err(held(store, &path, &file));
        }
        // Only for the words of whoever finds it held; nothing is decided by it, and a disk that
        // is full has no room for it.
        let _unnamed = file.set_len(0).and_then(|()| writeln!(file, "{}", process::id()));
        Ok(Self { file, path })
    }

    /// Does it still stand under its name? Else another process may take it a second time.
    pub(super) fn stands(&self) -> bool {
        is_same(&self.file.metadata(), &self.path)
    }
}

/// Is this the file that stands under that name?
pub(super) fn is_same(file: &io::Result<Metadata>, path: &Path) -> bool {
    let id = |file: &Metadata| (file.dev(), file.ino());
    let named = path.metadata();
    file.as_ref().is_ok_and(|file| named.is_ok_and(|named| id(file) == id(&named)))
}

/// Takes a lock that a process which just died may seem to hold: one that it was starting has its
/// descriptors for a moment longer. Answers `false` when somebody really holds it.
fn lock_soon(file: &File) -> io::Result<bool> {
    for _ in 0..LOCK_TRIES_MAX {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(e)) => return Err(e),
        }
        // No descriptor: only the time passes.
        let _passed = poll(&mut [], LOCK_WAIT_MS);
    }
    Ok(false)
}

fn beside(store: &Path) -> PathBuf {
    let mut name = store.as_os_str().to_owned();
    name.push(".lock");
    PathBuf::from(name)
}

fn held(store: &Path, path: &Path, mut file: &File) -> StoreError {
    let mut text = String::new();
    let read = file.rewind().and_then(|()| file.take(PID_BYTES_MAX).read_to_string(&mut text));
    let pid = read.ok().and_then(|_| text.trim().parse::<u32>().ok());
    let who = pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"));
    StoreError::Held(format!(
        "the store {} is in use: {who} holds {}. One process writes a store at a time: end that \
         one first, or give this one another data directory. Reading (`audit`, `doctor`) works \
         beside it",
        store.display(),
        path.display()
    ))
}
