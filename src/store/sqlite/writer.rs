//! The one thread that writes. Owns batching, savepoints and how safe a commit is. Must not know
//! rows: it gets them as bytes.

use std::collections::VecDeque;
use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use rusqlite::{Connection, OptionalExtension, params};
use tokio::sync::{broadcast, mpsc, oneshot};

use super::fault::{closed, explain, given_up, replaced};
use super::lock::{Lock, is_same};
use super::schema;
use crate::core::ledger::Change;
use crate::core::limits::{COMMIT_APPLIES_MAX, COMMIT_FILL_MS, STORE_QUEUE_MAX};
use crate::ports::{Applied, Hint, StoreError};
use crate::store::time::boot_ms;
use crate::store::{check_scores, codec, hints_of};

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
    /// Refuses what cannot be stored, before anything is written.
    pub(super) fn of(change: Change) -> Result<Self, StoreError> {
        check_scores(&change)?;
        let aggregate = change.aggregate.to_string();
        let hints = hints_of(&change).collect();
        let mut rows = Vec::with_capacity(change.writes.len());
        for write in change.writes {
            let key = write.key.as_str().to_owned();
            let value = write.row.as_deref().map(codec::encode).transpose();
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
        Self::run(Committer {
            connection,
            full: None,
            durable_commits: Arc::default(),
            wakes,
            opened: path.metadata(),
            path: path.to_owned(),
            lock,
        })
    }

    fn run(committer: Committer) -> Result<Self, StoreError> {
        let (path, durable_commits) = (committer.path.clone(), committer.durable_commits.clone());
        let (queue, jobs) = mpsc::channel(STORE_QUEUE_MAX);
        let thread = thread::Builder::new()
            .name("store-writer".into())
            .spawn(move || committer.run(jobs))
            .map_err(|e| StoreError::Away(format!("no thread for the store: {e}")))?;
        Ok(Self { queue: Some(queue), thread: Some(thread), durable_commits, path })
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
    /// The file that the connection writes.
    opened: io::Result<Metadata>,
    path: PathBuf,
    lock: Lock,
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
        let begun = if is_same(&self.opened, &self.path) && self.lock.stands() {
            self.begin(durable).map_err(|e| explain(&self.path, "writing", &e))
        } else {
            Err(replaced(&self.path))
        };
        if let Err(error) = begun {
            for job in batch.drain(..) {
                let _gone = job.answer.send(Err(error.clone()));
            }
            return;
        }
        let since = boot_ms();
        let mut done: Vec<(Job, Answer)> = Vec::with_capacity(batch.len());
        while let Some(job) = batch.pop_front() {
            let answer = self.apply(&job.change).map_err(|e| explain(&self.path, "writing", &e));
            if self.connection.is_autocommit() {
                // SQLite gave up the whole transaction with this one, as it does when the disk is
                // full. The others before it are begun again without it.
                self.answer(job, answer.and_then(|_| Err(given_up(&self.path))));
                done.into_iter().rev().for_each(|(job, _)| batch.push_front(job));
                return;
            }
            done.push((job, answer));
            if boot_ms().saturating_sub(since) >= COMMIT_FILL_MS {
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
        if let Err(e) = self.write(change) {
            if !self.connection.is_autocommit() {
                run("ROLLBACK TO one")?;
                run("RELEASE one")?;
            }
            return Err(e);
        }
        run("RELEASE one")?;
        Ok(Applied::Applied)
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

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::core::id::SessionId;
    use crate::core::ledger::row::Summary;
    use crate::core::ledger::{Aggregate, Class, Key, Revision, Row, Write};

    fn committer() -> (TempDir, Committer) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.db");
        let committer = Committer {
            connection: schema::open_writer(&path).unwrap(),
            full: None,
            durable_commits: Arc::default(),
            wakes: broadcast::Sender::new(1),
            lock: Lock::take(&path).unwrap(),
            opened: path.metadata(),
            path,
        };
        (directory, committer)
    }

    fn encoded(name: &str, row: Option<usize>, class: Class) -> Encoded {
        let expected = row.is_none().then(|| Revision("1".into()));
        let row = row.map(|bytes| Row::Summary(Summary { upto: 0, text: "x".repeat(bytes) }));
        Encoded::of(Change {
            aggregate: Aggregate::Session(SessionId::new(name).unwrap()),
            revision: Revision(if row.is_some() { "1" } else { "2" }.into()),
            expected,
            writes: vec![Write { key: Key::summary(), row: row.map(Arc::new) }],
            index: vec![],
            class,
        })
        .unwrap()
    }

    fn large(name: &str, row: Option<usize>) -> Encoded {
        encoded(name, row, Class::FINISHES)
    }

    /// Commits all as one batch and answers what each was told.
    fn commit(committer: &mut Committer, changes: Vec<Encoded>) -> Vec<Answer> {
        let mut batch = VecDeque::new();
        let mut answers = vec![];
        for change in changes {
            let (answer, answered) = oneshot::channel();
            batch.push_back(Job { change, answer });
            answers.push(answered);
        }
        while !batch.is_empty() {
            committer.commit(&mut batch);
        }
        answers.into_iter().map(|mut answered| answered.try_recv().unwrap()).collect()
    }

    fn allow_pages(committer: &Committer, more: i64) {
        let connection = &committer.connection;
        let pages: i64 = connection.pragma_query_value(None, "page_count", |r| r.get(0)).unwrap();
        let limit = |_: &rusqlite::Row<'_>| Ok(());
        connection.pragma_update_and_check(None, "max_page_count", pages + more, limit).unwrap();
    }

    /// Refuses each row of aggregate b, without giving up the transaction.
    fn refuse_b(committer: &Committer) {
        let trigger = "CREATE TRIGGER not_b BEFORE INSERT ON rows
            WHEN new.aggregate = 'session/b' BEGIN SELECT RAISE(ABORT, 'not b'); END;";
        committer.connection.pragma_update(None, "max_page_count", 10_000).unwrap();
        committer.connection.execute_batch(trigger).unwrap();
    }

    #[test]
    fn one_durable_apply_makes_its_whole_batch_durable() {
        let (_directory, mut committer) = committer();
        let changes = [Class::HINT, Class::FINISHES, Class::HINT]
            .into_iter()
            .zip(["a", "b", "c"])
            .map(|(class, name)| encoded(name, Some(1), class));
        let answers = commit(&mut committer, changes.collect());
        assert_eq!(answers, vec![Ok(Applied::Applied); 3]);
        // Where the batch took too long it is more than one commit, the first of them durable.
        assert!(committer.durable_commits.load(Ordering::Relaxed) >= 1);
        commit(&mut committer, vec![encoded("d", Some(1), Class::HINT)]);
        let level = |r: &rusqlite::Row<'_>| r.get::<_, i64>(0);
        assert_eq!(committer.connection.pragma_query_value(None, "synchronous", level), Ok(1));
    }

    #[test]
    fn an_apply_that_cannot_be_written_leaves_nothing_in_the_commit_of_the_others() {
        let (_directory, mut committer) = committer();
        allow_pages(&committer, 10);
        let (first, second) = (large("a", Some(100)), large("c", Some(100)));
        let batch = vec![first, large("a", None), large("b", Some(90_000)), second];
        let mut answers = commit(&mut committer, batch);
        assert!(matches!(answers.remove(2), Err(StoreError::Away(_))));
        assert_eq!(answers, vec![Ok(Applied::Applied); 3]);
        refuse_b(&committer);
        let batch = vec![large("d", Some(1)), large("b", Some(1)), large("c", None)];
        let mut answers = commit(&mut committer, batch);
        assert!(matches!(answers.remove(1), Err(StoreError::Away(w)) if w.contains("not b")));
        assert_eq!(answers, vec![Ok(Applied::Applied); 2]);
        let names = "SELECT group_concat(name) FROM aggregates";
        let names = committer.connection.query_row(names, [], |r| r.get::<_, String>(0));
        assert_eq!(names.as_deref(), Ok("session/a,session/c,session/d"));
    }

    #[test]
    fn a_commit_that_fails_is_told_to_each_of_its_applies() {
        let (_directory, mut committer) = committer();
        let fails = "PRAGMA foreign_keys = ON;
            CREATE TABLE parent (id INTEGER PRIMARY KEY);
            CREATE TABLE orphan (parent INTEGER REFERENCES parent (id)
                DEFERRABLE INITIALLY DEFERRED);
            CREATE TRIGGER orphans AFTER INSERT ON rows BEGIN INSERT INTO orphan VALUES (7); END;";
        committer.connection.execute_batch(fails).unwrap();
        let batch = vec![large("a", Some(1)), large("a", Some(1)), large("b", None)];
        for answer in commit(&mut committer, batch) {
            let Err(StoreError::Away(words)) = answer else { panic!("{answer:?}") };
            assert!(words.contains("committing to"), "{words}");
        }
        assert_eq!(committer.durable_commits.load(Ordering::Relaxed), 0);
        committer.connection.execute_batch("DROP TRIGGER orphans").unwrap();
        let answers = commit(&mut committer, vec![large("a", Some(1))]);
        assert_eq!(answers, [Ok(Applied::Applied)]);
    }

    #[test]
    fn a_durable_batch_begins_with_full_and_any_other_with_normal() {
        let (_directory, mut committer) = committer();
        for (durable, level) in [(false, 1), (true, 2), (true, 2), (false, 1)] {
            committer.begin(durable).unwrap();
            let pragma = |r: &rusqlite::Row<'_>| r.get::<_, i64>(0);
            let found = committer.connection.pragma_query_value(None, "synchronous", pragma);
            assert_eq!(found, Ok(level));
            committer.end(false, durable).unwrap();
        }
    }

    #[tokio::test]
    async fn a_full_disk_is_said_so_loses_nothing_and_is_left_when_there_is_room() {
        let (_directory, committer) = committer();
        allow_pages(&committer, 40);
        let writer = Writer::run(committer).unwrap();
        assert_eq!(writer.apply(large("a", Some(90_000))).await, Ok(Applied::Applied));
        let (small, full) = futures_util::join!(
            writer.apply(large("b", Some(100))),
            writer.apply(large("c", Some(90_000)))
        );
        assert_eq!(small, Ok(Applied::Applied));
        let Err(StoreError::Away(words)) = full else { panic!("{full:?}") };
        assert!(words.contains("the disk is full") && words.contains("store.db"), "{words}");
        assert_eq!(writer.apply(large("a", None)).await, Ok(Applied::Applied));
        assert_eq!(writer.apply(large("c", Some(90_000))).await, Ok(Applied::Applied));
        assert_eq!(writer.apply(large("b", Some(100))).await, Ok(Applied::Already));
    }
}
