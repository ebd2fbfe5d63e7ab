//! The spool: one directory for each execution, under a lock that one bot holds. Owns the layout:
//!
//! ```text
//! SPOOL/lock         held by the bot that has this spool
//! SPOOL/id           its random id
//! SPOOL/e/NAME/      one execution: spec.json lock ctl out err exit.tmp exit.json log
//! SPOOL/w/NAME/      where its script runs, apart from the record
//! SPOOL/egress/      of the egress process: its lock, its socket, its log
//! SPOOL/s/HOUR/NAME/ one that is settled, by the hour in which that was, so that a start looks at
//!                    none of them and the old ones go together
//! ```
//!
//! A sandboxed script reaches neither; without a sandbox one of the same user reaches both. Must
//! not know processes.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::poll::poll;
use sha2::{Digest, Sha256};

use super::spec::{self, Common, Spec};
use super::{exit_record, file, ring};
use crate::core::id::{ExecutionId, SessionId, SpoolId};
use crate::core::limits::SPOOL_KEEP_MS;
use crate::core::time::Timestamp;
use crate::failpoint;
use crate::ports::{Ids, Launch, LaunchError};

/// The script's file in its working directory.
pub(super) const SCRIPT: &str = "watcher.py";
/// The output files.
pub(super) const OUT: &str = "out";
pub(super) const ERR: &str = "err";
/// The lock that a shim holds for life.
pub(super) const LOCK: &str = "lock";
const LOG: &str = "log";
/// Settled entries stand together by this span.
const SETTLED_SPAN_MS: u64 = 3_600_000;
/// What is not whole yet ends so.
const DRAFT: &str = "new";
/// What is read of a shim's log.
const LOG_BYTES_MAX: usize = 2_048;
/// Longest id of a spool with what may stand around it.
const ID_BYTES_MAX: usize = 1_024;
/// Bytes of a digest that name an execution.
const NAME_BYTES: usize = 12;
/// Looks at a held lock of the spool, and what lies between two.
const LOCK_TRIES_MAX: u32 = 20;
const LOCK_WAIT_MS: u16 = 25;

/// Why a spool cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// Another process holds it.
    #[error(
        "the spool {path} is held by another dogwatch; stop that one, or give this one a spool \
         of its own"
    )]
    Held {
        /// The spool.
        path: PathBuf,
    },
    /// It cannot be used.
    #[error("the spool cannot be used: {what}: {source}; see that this user may write there")]
    Unusable {
        /// What was tried, and where.
        what: String,
        /// What the system said.
        source: io::Error,
    },
}

/// Something in the spool could not be done. The cause comes first and the cure last: where there
/// is little room the middle is left out, and a path may be long.
#[derive(Debug, thiserror::Error)]
#[error("{source}: cannot {what} {path}{}", cure(source))]
pub(super) struct EntryError {
    what: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl EntryError {
    /// Is it that there is nothing there, or something that was put in its place?
    pub(super) fn is_missing(&self) -> bool {
        use io::ErrorKind::{InvalidData, NotADirectory, NotFound};
        matches!(self.source.kind(), NotFound | InvalidData | NotADirectory)
    }
}

impl From<EntryError> for LaunchError {
    fn from(error: EntryError) -> Self {
        Self { what: error.to_string() }
    }
}

fn cure(source: &io::Error) -> &'static str {
    use io::ErrorKind::{PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    let kind = source.kind();
    if matches!(kind, StorageFull | QuotaExceeded) {
        "; free space there, or put the spool on another disk"
    } else if matches!(kind, PermissionDenied | ReadOnlyFilesystem) {
        "; let the user of dogwatch write there, or put the spool elsewhere"
    } else {
        ""
    }
}

pub(super) fn at<'a>(
    what: &'static str,
    path: &'a Path,
) -> impl FnOnce(io::Error) -> EntryError + use<'a> {
    move |source| EntryError { what, path: path.to_owned(), source }
}

/// One directory of the spool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// The record's directory.
    pub(super) dir: PathBuf,
    /// The script's.
    pub(super) work: PathBuf,
}

/// A spool of which only this process writes.
#[derive(Debug)]
pub(super) struct Spool {
    root: PathBuf,
    id: SpoolId,
    /// Held until the spool is dropped.
    lock: Arc<File>,
}

impl Spool {
    /// Opens the spool in `root`, which is made where it is missing.
    pub(super) fn open(root: &Path, ids: &dyn Ids) -> Result<Self, SpoolError> {
        let no = |what: &str, path: &Path| {
            let what = format!("{what} {}", path.display());
            move |source| SpoolError::Unusable { what, source }
        };
        directory(root).map_err(no("make", root))?;
        let root = fs::canonicalize(root).map_err(no("find", root))?;
        let path = root.join("lock");
        let lock = lock_file(&path).map_err(no("open", &path))?;
        if !lock_soon(&lock).map_err(no("lock", &path))? {
            return Err(SpoolError::Held { path: root });
        }
        for path in [root.join("e"), root.join("w"), root.join("s")] {
            directory(&path).map_err(no("make", &path))?;
        }
        tidy(&root).map_err(|e| no(e.what, &e.path)(e.source))?;
        let path = root.join("id");
        let id = spool_id(&path, ids).map_err(no("keep its id in", &path))?;
        Ok(Self { root, id, lock: Arc::new(lock) })
    }

    /// Does the lock still stand under its name? Else another bot may take the spool.
    pub(super) fn is_held(&self) -> bool {
        let id = |file: io::Result<fs::Metadata>| file.map(|file| (file.dev(), file.ino())).ok();
        let held = id(self.lock.metadata());
        held.is_some() && held == id(fs::metadata(self.root.join("lock")))
    }

    /// Its id.
    pub(super) fn id(&self) -> &SpoolId {
        &self.id
    }

    /// The directory of the egress process.
    pub(super) fn egress(&self) -> PathBuf {
        self.root.join("egress")
    }

    /// Where executions stand.
    pub(super) fn executions(&self) -> PathBuf {
        self.root.join("e")
    }

    /// Where an execution is kept, whether it is there or not.
    pub(super) fn entry(&self, session: &SessionId, execution: &ExecutionId) -> Entry {
        self.named(&name(session, execution))
    }

    /// A name of an execution that no other spool has.
    pub(super) fn unique(&self, session: &SessionId, execution: &ExecutionId) -> String {
        format!("{}-{}", self.id, name(session, execution))
    }

    /// A settled one, while it is kept.
    pub(super) fn settled(&self, session: &SessionId, execution: &ExecutionId) -> Option<Entry> {
        let name = name(session, execution);
        let dirs = self.hours().ok()?.into_iter().map(|(_, hour)| hour.join(&name));
        let dir = dirs.filter(|dir| dir.exists()).max()?;
        Some(Entry { dir, work: self.root.join("w").join(&name) })
    }

    /// Sets an entry aside, since the ledger has its record, and takes the script's directory away.
    pub(super) fn settle(&self, entry: &Entry, now: Timestamp) -> Result<(), EntryError> {
        let Some(name) = entry.dir.file_name().filter(|_| entry.dir.exists()) else {
            return remove(&entry.work);
        };
        if matches!(exit_record::read(&entry.dir), Ok(None)) && matches!(entry.lock(), Ok(None)) {
            // Its shim waits or runs though the ledger has an end: the next start must find it.
            return Ok(());
        }
        let hour = self.root.join("s").join((now.as_ms() / SETTLED_SPAN_MS).to_string());
        if !hour.exists() {
            directory(&hour).map_err(at("make", &hour))?;
            self.forget(now)?;
        }
        let place = hour.join(name);
        // Only where a store went back in time and the same end was settled twice.
        remove(&place)?;
        fs::rename(&entry.dir, &place).map_err(at("set aside", &entry.dir))?;
        // Last: what a script left there may be much.
        remove(&entry.work)?;
        failpoint!("settle.cleared");
        Ok(())
    }

    /// Removes what was settled so long ago that nobody will ask.
    pub(super) fn forget(&self, now: Timestamp) -> Result<(), EntryError> {
        let old = |at: &u64| {
            let last = at.saturating_add(1).saturating_mul(SETTLED_SPAN_MS);
            now.since_ms(Timestamp::from_ms(last)) > SPOOL_KEEP_MS
        };
        for (_, hour) in self.hours()?.iter().filter(|(at, _)| old(at)) {
            remove(hour)?;
        }
        Ok(())
    }

    fn hours(&self) -> Result<Vec<(u64, PathBuf)>, EntryError> {
        let path = self.root.join("s");
        let items = fs::read_dir(&path).map_err(at("read", &path))?;
        let hour = |item: io::Result<fs::DirEntry>| {
            let path = item.ok()?.path();
            Some((path.file_name()?.to_str()?.parse().ok()?, path))
        };
        Ok(items.filter_map(hour).collect())
    }

    fn named(&self, name: &str) -> Entry {
        Entry { dir: self.root.join("e").join(name), work: self.root.join("w").join(name) }
    }

    /// Makes an execution's directories, whole or not at all. The lock is taken before they have
    /// their name: whoever looks at the spool meanwhile finds none that seems to be dead.
    pub(super) fn create(
        &self,
        launch: &Launch,
        common: Common,
    ) -> Result<(Entry, File), EntryError> {
        let entry = self.entry(&launch.session, &launch.execution);
        let draft = entry.dir.with_extension(DRAFT);
        // Only one can make it, so nobody else's is removed below.
        DirBuilder::new().mode(0o700).create(&draft).map_err(at("make", &draft))?;
        if entry.dir.exists() {
            remove(&draft)?;
            return Err(at("make", &entry.dir)(io::ErrorKind::AlreadyExists.into()));
        }
        let lock = fill(&draft, &entry, launch, common).and_then(|lock| {
            fs::rename(&draft, &entry.dir).map_err(at("name", &entry.dir))?;
            sync(&self.root.join("e")).map(|()| lock)
        });
        if lock.is_err() {
            let _gone = remove(&draft).and_then(|()| entry.remove());
        }
        lock.map(|lock| (entry, lock))
    }

    /// All entries, those half made left out.
    pub(super) fn entries(&self) -> Result<Vec<Entry>, EntryError> {
        let path = self.root.join("e");
        let mut entries = Vec::new();
        for item in fs::read_dir(&path).map_err(at("read", &path))? {
            let item = item.map_err(at("read", &path))?;
            match item.file_name().to_str() {
                Some(name) if !name.contains('.') => entries.push(self.named(name)),
                Some(_) | None => {}
            }
        }
        entries.sort_by(|a, b| a.dir.cmp(&b.dir));
        Ok(entries)
    }
}

impl Entry {
    /// What its shim was told.
    pub(super) fn spec(&self) -> Result<Spec, EntryError> {
        spec::read(&self.dir)
    }

    /// Why it is not used: what it says it is belongs elsewhere.
    pub(super) fn foreign(&self) -> EntryError {
        let source = io::Error::other("it names another execution than its directory does");
        EntryError { what: "use", path: self.dir.join(spec::FILE), source }
    }

    /// Takes its lock: `None` while a shim lives.
    pub(super) fn lock(&self) -> Result<Option<File>, EntryError> {
        let path = self.dir.join(LOCK);
        // Not made where it is missing, since its holder may live; nor opened to write, since the
        // disk may not allow it.
        let file = file::open(&path, OpenOptions::new().read(true));
        let file = file.map_err(at("open", &path))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(source)) => Err(at("lock", &path)(source)),
        }
    }

    /// Takes its lock from who may just have died: `None` while a shim lives.
    pub(super) fn lock_soon(&self) -> Result<Option<File>, EntryError> {
        let path = self.dir.join(LOCK);
        let file = file::open(&path, OpenOptions::new().read(true)).map_err(at("open", &path))?;
        Ok(lock_soon(&file).map_err(at("lock", &path))?.then_some(file))
    }

    /// Where its shim may complain.
    pub(super) fn log(&self) -> Result<File, EntryError> {
        let path = self.dir.join(LOG);
        file::open(&path, OpenOptions::new().append(true).create(true)).map_err(at("open", &path))
    }

    /// What its shim complained of, at most the first lines.
    pub(super) fn complaints(&self) -> String {
        let read = file::read(&self.dir.join(LOG), LOG_BYTES_MAX).unwrap_or_default();
        String::from_utf8_lossy(&read).into_owned()
    }

    /// Forgets it.
    pub(super) fn remove(&self) -> Result<(), EntryError> {
        remove(&self.work)?;
        remove(&self.dir)
    }
}

/// The random id that Linux gives each boot of a host.
pub(super) fn host_boot() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

/// Short whatever the ids are, safe as a file name.
fn name(session: &SessionId, execution: &ExecutionId) -> String {
    // Neither id has control characters, so the line feed parts them.
    let digest = Sha256::digest(format!("{session}\n{execution}"));
    digest.iter().take(NAME_BYTES).fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

fn fill(draft: &Path, entry: &Entry, launch: &Launch, common: Common) -> Result<File, EntryError> {
    remove(&entry.work)?;
    directory(&entry.work).map_err(at("make", &entry.work))?;
    let script = entry.work.join(SCRIPT);
    write_new(&script, launch.python.as_bytes()).map_err(at("write", &script))?;
    Spec::new(launch, &entry.work, common).write(draft)?;
    let lock = lock_file(&draft.join(LOCK)).map_err(at("make a lock in", draft))?;
    lock.try_lock().map_err(io::Error::from).map_err(at("lock", draft))?;
    for name in [OUT, ERR] {
        let path = draft.join(name);
        ring::create(&path).map_err(at("write", &path))?;
    }
    exit_record::reserve(draft).map_err(at("write in", draft))?;
    Ok(lock)
}

fn spool_id(path: &Path, ids: &dyn Ids) -> io::Result<SpoolId> {
    match file::read(path, ID_BYTES_MAX) {
        Ok(text) => SpoolId::new(String::from_utf8_lossy(&text).trim()).map_err(io::Error::other),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let id = SpoolId::new(ids.fresh()).map_err(io::Error::other)?;
            let draft = path.with_extension(DRAFT);
            let _none = fs::remove_file(&draft);
            write_new(&draft, id.as_str().as_bytes())?.sync_all()?;
            fs::rename(&draft, path)?;
            Ok(id)
        }
        Err(e) => Err(e),
    }
}

/// Takes a lock that a process which just died may seem to hold: one that it was starting has its
/// descriptors for a moment longer. Answers `false` when somebody really holds it.
fn lock_soon(lock: &File) -> io::Result<bool> {
    for _ in 0..LOCK_TRIES_MAX {
        match lock.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(source)) => return Err(source),
        }
        // No descriptor: only the time passes.
        let _passed = poll(&mut [], LOCK_WAIT_MS);
    }
    Ok(false)
}

/// Removes what a bot that died left half made: nothing ran in it.
fn tidy(root: &Path) -> Result<(), EntryError> {
    let list = |path: PathBuf| -> Result<Vec<PathBuf>, EntryError> {
        let items = fs::read_dir(&path).map_err(at("read", &path))?;
        items.map(|item| item.map(|item| item.path()).map_err(at("read", &path))).collect()
    };
    for path in list(root.join("e"))? {
        if path.extension().is_some_and(|end| end == DRAFT) {
            remove(&path)?;
        }
    }
    for path in list(root.join("w"))? {
        if path.file_name().is_some_and(|name| !root.join("e").join(name).exists()) {
            remove(&path)?;
        }
    }
    Ok(())
}

fn directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn lock_file(path: &Path) -> io::Result<File> {
    file::open(path, OpenOptions::new().read(true).write(true).create(true).truncate(false))
}

/// Writes a file that must not be there yet.
pub(super) fn write_new(path: &Path, bytes: &[u8]) -> io::Result<File> {
    let mut file = file::open(path, OpenOptions::new().write(true).create_new(true))?;
    file.write_all(bytes)?;
    Ok(file)
}

fn remove(path: &Path) -> Result<(), EntryError> {
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(at("remove", path)(e)),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn sync(path: &Path) -> Result<(), EntryError> {
    file::directory(path).and_then(|dir| dir.sync_all()).map_err(at("write", path))
}
