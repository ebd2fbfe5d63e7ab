//! A writer that is killed and a machine that loses power: what was acknowledged is there, and
//! what is there is a beginning of what was sent.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;

use dogwatch::core::ledger::{Aggregate, Change, Class, Index, Key};
use dogwatch::core::time::Timestamp;
use dogwatch::ports::{Applied, Store, StoreError};
use dogwatch::store::memory::Fault;
use dogwatch::store::{ManualClock, Memory, Settings, Sqlite};
use pretty_assertions::assert_eq;

use super::place::{ChangeExt, OnDisk, Place, change, numbered, session};

const CHILD_STORE: &str = "DOGWATCH_TEST_CHILD_STORE";
const ACK: &str = "acknowledged ";

fn lane() -> Aggregate {
    session("lane")
}

/// The apply with number `no` of a stream: each is one row and one index entry more.
pub(super) fn nth(no: u64) -> Change {
    let (before, after) = ((no - 1).to_string(), no.to_string());
    let class = if no.is_multiple_of(3) { Class::FINISHES } else { Class::HINT };
    change(&lane(), (no > 1).then_some(&before), &after)
        .put(&Key::entry(no), numbered(no))
        .score(Index::Due, &Key::entry(no), Some(no))
        .class(class)
}

/// How many applies of the stream a store has. They must be the first ones, whole.
pub(super) async fn prefix(store: &dyn Store) -> u64 {
    let rows = store.rows(&lane(), None, usize::MAX).await.unwrap();
    let members = store.members(&Index::Due, u64::MAX, None, usize::MAX).await.unwrap();
    let count = rows.len() as u64;
    let expected: Vec<_> = (1..=count).map(|no| (Key::entry(no), numbered(no))).collect();
    assert_eq!(rows, expected);
    let scores: Vec<u64> = members.iter().map(|m| m.score).collect();
    assert_eq!(scores, (1..=count).collect::<Vec<_>>());
    let revision = store.load(&lane(), &[]).await.unwrap().revision;
    assert_eq!(revision.map(|r| r.0), (count > 0).then(|| count.to_string()));
    count
}

#[tokio::test]
#[ignore = "not a test of its own: the process that a_killed_writer_… starts and kills"]
#[expect(clippy::disallowed_methods, reason = "its parent names the store by the environment")]
async fn child_writer() {
    let path = PathBuf::from(std::env::var(CHILD_STORE).expect("its parent names the store"));
    let store = Sqlite::open(&Settings { path }).unwrap();
    let mut out = io::stdout();
    for no in prefix(&store).await + 1.. {
        assert_eq!(store.apply(nth(no)).await, Ok(Applied::Applied));
        writeln!(out, "{ACK}{no}").unwrap();
    }
}

/// Ends the child by its id, whatever the test came to.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.kill().expect("it is ours");
        self.0.wait().expect("it is ours");
    }
}

#[expect(clippy::disallowed_methods, reason = "the process under test is this one, once more")]
fn start_child(store: &Path) -> Killed {
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "stores::crash::child_writer", "--ignored", "--nocapture"])
        .env(CHILD_STORE, store)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn();
    Killed(child.expect("it starts"))
}

fn acknowledged(line: &str) -> Option<u64> {
    // The harness may write its own words at the beginning of the first line.
    line.split_once(ACK)?.1.parse().ok()
}

#[tokio::test]
async fn a_killed_writer_lost_nothing_that_it_acknowledged() {
    let mut place = OnDisk::new();
    place.close();
    let mut last = 0;
    for going in [7, 14, 21, 28, 35] {
        let mut child = start_child(&place.path());
        let lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
        let mut acks = lines.map_while(Result::ok).filter_map(|line| acknowledged(&line));
        // Let it get going, kill it in the middle, then hear what it said until then.
        let first = acks.by_ref().nth(going).expect("it writes");
        drop(child);
        let told = acks.last().unwrap_or(first);
        assert!(told > last);

        // Nobody has to clean up: the lock is gone with the process (b110).
        let beside = Sqlite::open_read_only(&place.settings()).unwrap();
        let seen = prefix(&beside).await;
        drop(beside);
        place.open();
        let kept = prefix(place.sqlite()).await;
        assert_eq!(seen, kept, "a reader sees what a writer finds");
        assert!(kept >= told, "{told} were acknowledged, {kept} are there");
        assert!(kept <= told + 1, "one at most was under way");
        assert_eq!(place.sqlite().apply(nth(kept)).await, Ok(Applied::Already));
        place.close();
        last = kept;
    }
}

fn copy_cut(place: &OnDisk, to: &Path, log_bytes: u64) {
    fs::copy(place.path(), to).unwrap();
    let log = to.with_extension("db-wal");
    fs::copy(place.path().with_extension("db-wal"), &log).unwrap();
    OpenOptions::new().write(true).open(&log).unwrap().set_len(log_bytes).unwrap();
}

#[tokio::test]
async fn a_log_that_was_cut_anywhere_holds_a_beginning_of_the_stream() {
    let place = OnDisk::new();
    let count = 30;
    for no in 1..=count {
        place.sqlite().apply(nth(no)).await.unwrap();
    }
    let log = place.path().with_extension("db-wal");
    let bytes = File::open(log).unwrap().metadata().unwrap().len();
    let other = tempfile::tempdir().unwrap();
    let mut last = 0;
    let mut lengths = vec![];
    for cut in (0..=40).map(|part| bytes * part / 40) {
        let path = other.path().join(format!("{cut}.db"));
        copy_cut(&place, &path, cut);
        let store = Sqlite::open(&Settings { path }).unwrap();
        let kept = prefix(&store).await;
        assert!(kept >= last, "more of the log held less of the stream");
        last = kept;
        lengths.push(kept);
        // It goes on from there.
        assert_eq!(store.apply(nth(kept + 1)).await, Ok(Applied::Applied));
    }
    assert_eq!(last, count);
    lengths.dedup();
    assert!(lengths.len() > 10, "the cuts were not between the applies: {lengths:?}");
}

#[tokio::test]
async fn a_memory_store_that_loses_power_keeps_up_to_the_last_durable_apply() {
    for sent in 1..=10 {
        let store = Memory::new(Arc::new(ManualClock::new(Timestamp::ZERO)));
        for no in 1..=sent {
            store.apply(nth(no)).await.unwrap();
        }
        store.lose_power();
        assert_eq!(prefix(&store).await, sent / 3 * 3, "of {sent}");
    }
}

#[tokio::test]
async fn an_apply_of_the_memory_store_is_lost_before_or_after_it_is_done() {
    let store = Memory::new(Arc::new(ManualClock::new(Timestamp::ZERO)));
    for (fault, kept) in [(Fault::Unsent, 0), (Fault::Unanswered, 1)] {
        store.fail_next(fault);
        assert!(matches!(store.apply(nth(1)).await, Err(StoreError::Away(_))));
        assert_eq!(prefix(&store).await, kept, "{fault:?}");
    }
    assert_eq!(store.apply(nth(1)).await, Ok(Applied::Already));
    assert_eq!(store.apply(nth(2)).await, Ok(Applied::Applied));
}
