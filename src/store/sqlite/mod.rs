//! The embedded store: one `SQLite` file in WAL mode, one thread that writes, a few that read. Owns
//! the file, its lock and its time. Must not know what the rows mean.
//!
//! An apply is a savepoint in a batch. A batch with a durable apply is committed with
//! `synchronous=FULL`, any other with NORMAL; both go to the same log, so order is kept: what a
//! power failure takes is always the end, never the middle. An aggregate keeps its revision when
//! its last row is deleted, so that a repeat of that apply is still recognised.

mod fault;
mod lock;
mod reader;
mod schema;
mod writer;

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use futures_util::future::{BoxFuture, ready};
use tokio::sync::broadcast;

use self::lock::Lock;
use self::reader::Readers;
use self::writer::{Encoded, Writer};
use super::time::Count;
use super::{check_keys, codec};
use crate::core::ledger::{Aggregate, Change, Index, Key, Revision, Row};
use crate::core::limits::HINTS_KEPT_MAX;
use crate::core::time::Timestamp;
use crate::ports::{Applied, Hint, Loaded, Member, Store, StoreError};

/// Where the store is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The database file. Beside it stand its `-wal`, its `-shm` and its `.lock`.
    pub path: PathBuf,
}

/// A store in a `SQLite` file. Opening and dropping it block; dropping waits for what was sent.
#[derive(Debug)]
pub struct Sqlite {
    // Fields are dropped in this order: the writer's connection, the last one, clears the log.
    readers: Readers,
    writer: Option<Writer>,
    wakes: broadcast::Sender<Hint>,
    time: Count,
    path: PathBuf,
}

impl Sqlite {
    /// Opens it to write, alone. Makes file and directory where there are none.
    ///
    /// # Errors
    /// `Held` where another process writes it, `Data` where the file is damaged, another program's
    /// or of a newer version, `Away` where it cannot be opened.
    pub fn open(settings: &Settings) -> Result<Self, StoreError> {
        make_directory(&settings.path)?;
        let path = true_path(&settings.path);
        let lock = Lock::take(&path)?;
        let wakes = broadcast::Sender::new(HINTS_KEPT_MAX);
        let writer = Writer::start(&path, lock, wakes.clone())?;
        let readers = Readers::start(&path)?;
        Ok(Self { writer: Some(writer), readers, wakes, time: Count::from_wall(), path })
    }

    /// Opens it to read, beside a process that writes it or without one. Its `apply` answers
    /// `Held` and its `wakes` stay silent.
    ///
    /// # Errors
    /// As for [`Sqlite::open`], but never for a lock; `Away` also where there is no such file.
    pub fn open_read_only(settings: &Settings) -> Result<Self, StoreError> {
        if !settings.path.exists() {
            return Err(StoreError::Away(format!(
                "there is no store at {}: name the data directory that dogwatch runs with, or \
                 start dogwatch first",
                settings.path.display()
            )));
        }
        let path = true_path(&settings.path);
        let readers = Readers::start(&path)?;
        let wakes = broadcast::Sender::new(1);
        Ok(Self { writer: None, readers, wakes, time: Count::from_wall(), path })
    }

    /// Commits since opening that were on disk before they were answered.
    pub fn durable_commits(&self) -> u64 {
        self.writer.as_ref().map_or(0, Writer::durable_commits)
    }
}

fn make_directory(path: &Path) -> Result<(), StoreError> {
    let Some(directory) = path.parent().filter(|d| !d.as_os_str().is_empty()) else {
        return Ok(());
    };
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(|e| {
        StoreError::Away(format!(
            "the directory {} cannot be made ({e}): make it, or name another one",
            directory.display()
        ))
    })
}

/// One name for one file, so that two ways to it meet at one lock.
fn true_path(path: &Path) -> PathBuf {
    if let Ok(path) = path.canonicalize() {
        return path;
    }
    match (path.parent().map(Path::canonicalize), path.file_name()) {
        (Some(Ok(directory)), Some(name)) => directory.join(name),
        _ => path.to_owned(),
    }
}

fn page(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

fn foreign(what: &str, name: &str) -> StoreError {
    StoreError::Data(format!(
        "{name} is no {what} that this program knows: use the dogwatch that wrote it, or a newer \
         one"
    ))
}

fn to_aggregate(name: &str) -> Result<Aggregate, StoreError> {
    Aggregate::parse(name).ok_or_else(|| foreign("aggregate", name))
}

fn to_row(aggregate: &str, key: &str, value: &[u8]) -> Result<Row, StoreError> {
    codec::decode(value).map_err(|e| e.of_row(aggregate, key))
}

impl Store for Sqlite {
    fn load<'a>(
        &'a self,
        aggregate: &'a Aggregate,
        keys: &'a [Key],
    ) -> BoxFuture<'a, Result<Loaded, StoreError>> {
        Box::pin(async move {
            check_keys(keys)?;
            let aggregate = aggregate.to_string();
            let names: Vec<String> = keys.iter().map(|key| key.as_str().to_owned()).collect();
            let (of, asked) = (aggregate.clone(), names.clone());
            let (revision, values) =
                self.readers.read(move |c| reader::load(c, &of, &asked)).await?;
            let row = |(key, value): (&String, Option<Vec<u8>>)| {
                value.map(|value| to_row(&aggregate, key, &value)).transpose()
            };
            let rows = names.iter().zip(values).map(row).collect::<Result<_, _>>()?;
            Ok(Loaded { revision: revision.map(Revision), rows })
        })
    }

    fn apply(&self, change: Change) -> BoxFuture<'_, Result<Applied, StoreError>> {
        Box::pin(async move {
            let Some(writer) = &self.writer else {
                return Err(StoreError::Held(format!(
                    "{} was opened to read only, nothing is written to it",
                    self.path.display()
                )));
            };
            writer.apply(Encoded::of(change)?).await
        })
    }

    fn members<'a>(
        &'a self,
        index: &'a Index,
        until: u64,
        after: Option<&'a Member>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Member>, StoreError>> {
        Box::pin(async move {
            let index = index.to_string();
            let raw = |m: &Member| (m.score, m.aggregate.to_string(), m.key.as_str().to_owned());
            let after = after.map(raw);
            let page = page(limit);
            let members = self
                .readers
                .read(move |c| reader::members(c, &index, until, after.as_ref(), page))
                .await?;
            let member = |(score, aggregate, key): reader::RawMember| {
                Ok(Member { score, aggregate: to_aggregate(&aggregate)?, key: Key::stored(key) })
            };
            members.into_iter().map(member).collect()
        })
    }

    fn rows<'a>(
        &'a self,
        aggregate: &'a Aggregate,
        after: Option<&'a Key>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<(Key, Row)>, StoreError>> {
        Box::pin(async move {
            let aggregate = aggregate.to_string();
            let after = after.map_or_else(String::new, |key| key.as_str().to_owned());
            let of = aggregate.clone();
            let page = page(limit);
            let rows = self.readers.read(move |c| reader::rows(c, &of, &after, page)).await?;
            let row = |(key, value): (String, Vec<u8>)| {
                let row = to_row(&aggregate, &key, &value)?;
                Ok((Key::stored(key), row))
            };
            rows.into_iter().map(row).collect()
        })
    }

    fn aggregates<'a>(
        &'a self,
        after: Option<&'a Aggregate>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Aggregate>, StoreError>> {
        Box::pin(async move {
            let after = after.map_or_else(String::new, ToString::to_string);
            let page = page(limit);
            let names = self.readers.read(move |c| reader::aggregates(c, &after, page)).await?;
            names.iter().map(|name| to_aggregate(name)).collect()
        })
    }

    fn wakes(&self) -> broadcast::Receiver<Hint> {
        self.wakes.subscribe()
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp, StoreError>> {
        Box::pin(ready(Ok(self.time.now())))
    }
}
