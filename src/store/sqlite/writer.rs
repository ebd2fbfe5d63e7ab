//! The one thread that writes. Owns batching, savepoints and how safe a commit is. Must not know
//! rows: it gets them as bytes.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use rusqlite::{Connection, OptionalExtension, params};
use tokio::sync::{broadcast, mpsc, oneshot};

use super::fault::{closed, explain};
use super::lock::Lock;
use super::schema;
use crate::core::ledger::Change;
use crate::core::limits::{COMMIT_APPLIES_MAX, COMMIT_FILL_MS, STORE_QUEUE_MAX};
use crate::ports::{Applied, Hint, StoreError};
use crate::store::codec;
use crate::store::memory::hints_of;
use crate::store::time::boot_ms;

/// A change as the tables take it.
pub(super) struct Encoded {
    aggregate: String,
    expected: Option<String>,
    revision: String,
    rows: Vec<(String, Option<Vec<u8>>)>,
    members: Vec<(String, String, Option<i64>)>,
    hints: Vec<Hint>,
    durable: bool,
}

impl Encoded {
    /// Refuses rows that are too large, before anything is written.
    pub(super) fn of(change: Change) -> Result<Self, StoreError> {
        let aggregate = change.aggregate.to_string();
        let hints = hints_of(&change).collect();
        let mut rows = Vec::with_capacity(change.writes.len());
        for write in change.writes {
            let key = write.key.as_str().to_owned();
            let value = write.row.as_ref().map(codec::encode).transpose();
            rows.push((key, value.map_err(|e| e.of_row(&aggregate, write.key.as_str()))?));
        }
        let members = change.index.iter().map(|write| {
            let key = write.key.as_str().to_owned();
            (write.index.to_string(), key, write.score.map(schema::score))
        });
        Ok(Self {
            members: members.collect(),
            aggregate,
            expected: change.expected.map(|revision| revision.0),
            revision: change.revision.0,
            rows,
            hints,
            durable: change.class.durable,
        })
    }
}

type Answer = Result<Applied, StoreError>;

struct Job {
    change: Encoded,
    answer: oneshot::Sender<Answer>,
}

/// The way to the writing thread. Dropping it waits until what was sent is written.
#[derive(Debug)]
pub(super) struct Writer {
    queue: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    durable_commits: Arc<AtomicU64>,
    path: PathBuf,
}

impl Writer {
    pub(super) fn start(
        path: &Path,
        lock: Lock,
        wakes: broadcast::Sender<Hint>,
    ) -> Result<Self, StoreError> {
        let connection = schema::open_writer(path)?;
        let durable_commits = Arc::new(AtomicU64::new(0));
        let (queue, jobs) = mpsc::channel(STORE_QUEUE_MAX);
        let committer = Committer {
            connection,
            full: None,
            durable_commits: durable_commits.clone(),
            wakes,
            path: path.to_owned(),
            _lock: lock,
        };
        let thread = thread::Builder::new()
            .name("store-writer".into())
            .spawn(move || committer.run(jobs))
            .map_err(|e| StoreError::Away(format!("no thread for the store: {e}")))?;
        let (queue, thread) = (Some(queue), Some(thread));
        Ok(Self { queue, thread, durable_commits, path: path.to_owned() })
    }

    /// Once this has been polled the change may be written, whether or not the answer is awaited.
    pub(super) async fn apply(&self, change: Encoded) -> Answer {
        let (answer, answered) = oneshot::channel();
        let gone = || closed(&self.path);
        let queue = self.queue.as_ref().ok_or_else(gone)?;
        queue.send(Job { change, answer }).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }

    pub(super) fn durable_commits(&self) -> u64 {
        self.durable_commits.load(Ordering::Relaxed)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.queue.take();
        if let Some(thread) = self.thread.take() {
            let _over = thread.join();
        }
    }
}

struct Committer {
    // Fields are dropped in this order: the lock goes last.
    connection: Connection,
    /// The connection commits with `synchronous=FULL`, once that is known.
    full: Option<bool>,
    durable_commits: Arc<AtomicU64>,
    wakes: broadcast::Sender<Hint>,
    path: PathBuf,
    _lock: Lock,
}

impl Committer {
    fn run(mut self, mut jobs: mpsc::Receiver<Job>) {
        // A lone apply is committed at once: a batch is what came while the last one was written.
        while let Some(first) = jobs.blocking_recv() {
            let mut batch = VecDeque::from([first]);
            while batch.len() < COMMIT_APPLIES_MAX
                && let Ok(job) = jobs.try_recv()
            {
                batch.push_back(job);
            }
            while !batch.is_empty() {
                self.commit(&mut batch);
            }
        }
    }

    /// Writes as much of the batch as one commit takes, and answers it.
    fn commit(&mut self, batch: &mut VecDeque<Job>) {
        let durable = batch.iter().any(|job| job.change.durable);
        if let Err(e) = self.begin(durable) {
            let error = explain(&self.path, "writing", &e);
            for job in batch.drain(..) {
                let _gone = job.answer.send(Err(error.clone()));
            }
            return;
        }
        let since = boot_ms();
        let mut done = Vec::with_capacity(batch.len());
        while let Some(job) = batch.pop_front() {
            let answer = self.apply(&job.change).map_err(|e| explain(&self.path, "writing", &e));
            done.push((job, answer));
            // SQLite may have given up the whole transaction, as with a full disk.
            let given_up = self.connection.is_autocommit();
            if given_up || boot_ms().saturating_sub(since) >= COMMIT_FILL_MS {
                break;
            }
        }
        let wrote = done.iter().any(|(_, answer)| *answer == Ok(Applied::Applied));
        let ended = self.end(wrote, durable);
        for (job, answer) in done {
            self.answer(job, answer.and_then(|applied| ended.clone().map(|()| applied)));
        }
    }

    fn begin(&mut self, durable: bool) -> rusqlite::Result<()> {
        if self.full != Some(durable) {
            self.full = None;
            let level = if durable { "full" } else { "normal" };
            self.connection.pragma_update(None, "synchronous", level)?;
            self.full = Some(durable);
        }
        self.connection.prepare_cached("BEGIN IMMEDIATE")?.execute([]).map(|_| ())
    }

    fn end(&self, wrote: bool, durable: bool) -> Result<(), StoreError> {
        if self.connection.is_autocommit() {
            return Err(StoreError::Away(format!(
                "writing {}: the whole commit was given up with one of its applies; nothing of it \
                 was written",
                self.path.display()
            )));
        }
        let run = |sql| self.connection.prepare_cached(sql)?.execute([]);
        if !wrote {
            return run("ROLLBACK").map(|_| ()).map_err(|e| explain(&self.path, "leaving", &e));
        }
        if let Err(e) = run("COMMIT") {
            if !self.connection.is_autocommit() {
                // It answers the same way either way; the next batch needs a fresh start.
                let _rolled_back = run("ROLLBACK");
            }
            return Err(explain(&self.path, "committing to", &e));
        }
        if durable {
            self.durable_commits.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn answer(&self, job: Job, answer: Answer) {
        if answer == Ok(Applied::Applied) {
            for hint in job.change.hints {
                // Nobody listening is no error.
                let _listeners = self.wakes.send(hint);
            }
        }
        // Who asked may have given up waiting.
        let _gone = job.answer.send(answer);
    }

    fn apply(&self, change: &Encoded) -> rusqlite::Result<Applied> {
        let stored: Option<String> = self
            .connection
            .prepare_cached("SELECT revision FROM aggregates WHERE name = ?1")?
            .query_row([&change.aggregate], |row| row.get(0))
            .optional()?;
        if stored.as_ref() == Some(&change.revision) {
            return Ok(Applied::Already);
        }
        if stored != change.expected {
            return Ok(Applied::Conflict);
        }
        let run = |sql| self.connection.prepare_cached(sql)?.execute([]);
        run("SAVEPOINT one")?;
        let written = self.write(change);
        if written.is_err() && !self.connection.is_autocommit() {
            run("ROLLBACK TO one")?;
        }
        if !self.connection.is_autocommit() {
            run("RELEASE one")?;
        }
        written.map(|()| Applied::Applied)
    }

    fn write(&self, change: &Encoded) -> rusqlite::Result<()> {
        let sql = |text| self.connection.prepare_cached(text);
        sql("INSERT INTO aggregates (name, revision) VALUES (?1, ?2)
             ON CONFLICT (name) DO UPDATE SET revision = excluded.revision")?
        .execute(params![change.aggregate, change.revision])?;
        for (key, value) in &change.rows {
            match value {
                Some(value) => sql("INSERT INTO rows (aggregate, key, value) VALUES (?1, ?2, ?3)
                     ON CONFLICT (aggregate, key) DO UPDATE SET value = excluded.value")?
                .execute(params![change.aggregate, key, value])?,
                None => sql("DELETE FROM rows WHERE aggregate = ?1 AND key = ?2")?
                    .execute(params![change.aggregate, key])?,
            };
        }
        for (index, key, score) in &change.members {
            match score {
                Some(score) => {
                    sql("INSERT INTO members (member_of, aggregate, key, score)
                     VALUES (?1, ?2, ?3, ?4)
                     ON CONFLICT (member_of, aggregate, key) DO UPDATE SET score = excluded.score")?
                    .execute(params![index, change.aggregate, key, score])?
                }
                None => sql("DELETE FROM members
                     WHERE member_of = ?1 AND aggregate = ?2 AND key = ?3")?
                .execute(params![index, change.aggregate, key])?,
            };
        }
        Ok(())
    }
}
