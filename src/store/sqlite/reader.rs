//! Threads that read, each with a connection of its own, so that no read waits for the writer and
//! the writer for no read. Owns the queries. Must not know rows: it answers bytes.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use rusqlite::{Connection, OptionalExtension, params};
use tokio::sync::{mpsc, oneshot};

use super::fault::{closed, explain};
use super::schema::{self, score, unscore};
use crate::core::limits::{STORE_QUEUE_MAX, STORE_READERS};
use crate::ports::StoreError;

type Job = Box<dyn FnOnce(&Connection) + Send>;

/// The way to the reading threads. Dropping it waits until they are done.
#[derive(Debug)]
pub(super) struct Readers {
    queue: Option<mpsc::Sender<Job>>,
    threads: Vec<JoinHandle<()>>,
    path: PathBuf,
}

impl Readers {
    pub(super) fn start(path: &Path) -> Result<Self, StoreError> {
        let (queue, jobs) = mpsc::channel::<Job>(STORE_QUEUE_MAX);
        let jobs = Arc::new(Mutex::new(jobs));
        let mut readers = Self { queue: Some(queue), threads: vec![], path: path.to_owned() };
        for _ in 0..STORE_READERS {
            let connection = schema::open_reader(path)?;
            let jobs = jobs.clone();
            let thread = thread::Builder::new()
                .name("store-reader".into())
                .spawn(move || {
                    // Whoever is idle waits in turn for the lock, the one who has it for a job.
                    let next =
                        || jobs.lock().unwrap_or_else(PoisonError::into_inner).blocking_recv();
                    while let Some(job) = next() {
                        job(&connection);
                    }
                })
                .map_err(|e| StoreError::Away(format!("no thread for the store: {e}")))?;
            readers.threads.push(thread);
        }
        Ok(readers)
    }

    /// Runs `query` on one of the connections.
    pub(super) async fn read<T, Q>(&self, query: Q) -> Result<T, StoreError>
    where
        T: Send + 'static,
        Q: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let gone = || closed(&self.path);
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move |connection| {
            // Who asked may have given up waiting.
            let _gone = answer.send(query(connection));
        });
        self.queue.as_ref().ok_or_else(gone)?.send(job).await.map_err(|_| gone())?;
        let answer = answered.await.map_err(|_| gone())?;
        answer.map_err(|e| explain(&self.path, "reading", &e))
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.queue.take();
        for thread in self.threads.drain(..) {
            let _over = thread.join();
        }
    }
}

/// Revision and rows as they are stored.
pub(super) type RawLoad = (Option<String>, Vec<Option<Vec<u8>>>);

/// Revision and rows of one moment.
pub(super) fn load(
    connection: &Connection,
    aggregate: &str,
    keys: &[String],
) -> rusqlite::Result<RawLoad> {
    // One transaction sees one moment.
    let moment = connection.unchecked_transaction()?;
    let revision = moment
        .prepare_cached("SELECT revision FROM aggregates WHERE name = ?1")?
        .query_row([aggregate], |row| row.get(0))
        .optional()?;
    let mut row =
        moment.prepare_cached("SELECT value FROM rows WHERE aggregate = ?1 AND key = ?2")?;
    let rows = keys
        .iter()
        .map(|key| row.query_row([aggregate, key], |row| row.get(0)).optional())
        .collect::<rusqlite::Result<_>>()?;
    Ok((revision, rows))
}

/// A member as it is stored, its score already as it was given.
pub(super) type RawMember = (u64, String, String);

const MEMBERS_FIRST: &str = "SELECT score, aggregate, key FROM members
    WHERE member_of = ?1 AND score <= ?2
    ORDER BY score, aggregate, key LIMIT ?3";
const MEMBERS_AFTER: &str = "SELECT score, aggregate, key FROM members
    WHERE member_of = ?1 AND score <= ?2 AND (score, aggregate, key) > (?4, ?5, ?6)
    ORDER BY score, aggregate, key LIMIT ?3";

/// A page of an index.
pub(super) fn members(
    connection: &Connection,
    index: &str,
    until: u64,
    after: Option<&RawMember>,
    limit: i64,
) -> rusqlite::Result<Vec<RawMember>> {
    let member = |row: &rusqlite::Row<'_>| Ok((unscore(row.get(0)?), row.get(1)?, row.get(2)?));
    match after {
        None => connection
            .prepare_cached(MEMBERS_FIRST)?
            .query_map(params![index, score(until), limit], member)?
            .collect(),
        Some((at, aggregate, key)) => connection
            .prepare_cached(MEMBERS_AFTER)?
            .query_map(params![index, score(until), limit, score(*at), aggregate, key], member)?
            .collect(),
    }
}

const ROWS: &str = "SELECT key, value FROM rows
    WHERE aggregate = ?1 AND key > ?2 ORDER BY key LIMIT ?3";

/// A page of the rows of an aggregate. No key is empty, so the empty one is before all.
pub(super) fn rows(
    connection: &Connection,
    aggregate: &str,
    after: &str,
    limit: i64,
) -> rusqlite::Result<Vec<(String, Vec<u8>)>> {
    connection
        .prepare_cached(ROWS)?
        .query_map(params![aggregate, after, limit], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect()
}

const AGGREGATES: &str = "SELECT name FROM aggregates WHERE name > ?1 ORDER BY name LIMIT ?2";

/// A page of the names of all aggregates.
pub(super) fn aggregates(
    connection: &Connection,
    after: &str,
    limit: i64,
) -> rusqlite::Result<Vec<String>> {
    connection
        .prepare_cached(AGGREGATES)?
        .query_map(params![after, limit], |row| row.get(0))?
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_is_a_search_in_an_index_and_nothing_is_sorted() {
        let dir = tempfile::tempdir().unwrap();
        let connection = schema::open_writer(&dir.path().join("store.db")).unwrap();
        for sql in [MEMBERS_FIRST, MEMBERS_AFTER, ROWS, AGGREGATES] {
            let mut plan = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let nulls = vec![rusqlite::types::Null; plan.parameter_count()];
            let steps: Vec<String> = plan
                .query_map(rusqlite::params_from_iter(nulls), |row| row.get(3))
                .unwrap()
                .collect::<rusqlite::Result<_>>()
                .unwrap();
            assert_eq!(steps.len(), 1, "{steps:?}");
            assert!(steps[0].starts_with("SEARCH"), "{steps:?}");
        }
    }
}
