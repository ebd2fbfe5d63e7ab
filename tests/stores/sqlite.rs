//! What only the embedded store must do: locks, versions, safety of commits, reading beside.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use dogwatch::core::ledger::{Class, Index, Key};
use dogwatch::core::limits::COMMIT_APPLIES_MAX;
use dogwatch::ports::{Applied, Store, StoreError};
use dogwatch::store::{Settings, Sqlite};
use futures_util::future::join_all;
use pretty_assertions::assert_eq;
use rusqlite::Connection;

use super::place::{ChangeExt, OnDisk, Place, change, numbered, session};

fn settings(path: impl AsRef<Path>) -> Settings {
    Settings { path: path.as_ref().to_owned() }
}

#[track_caller]
fn assert_words(error: &StoreError, parts: &[&str]) {
    let words = error.to_string();
    for part in parts {
        assert!(words.contains(part), "{part} is missing in: {words}");
    }
}

#[tokio::test]
async fn a_second_writer_is_refused_in_words_and_the_first_goes_on() {
    let place = OnDisk::new();
    let error = Sqlite::open(&place.settings()).unwrap_err();
    assert!(matches!(error, StoreError::Held(_)), "{error:?}");
    let pid = std::process::id().to_string();
    assert_words(&error, &["store.db", "store.db.lock", &pid, "end that one first"]);
    let apply = change(&session("a"), None, "1").put(&Key::head(), numbered(1));
    assert_eq!(place.sqlite().apply(apply).await, Ok(Applied::Applied));
}

/// A process that a bot was just starting when it died has the bot's descriptors until its exec.
#[test]
fn a_writer_that_has_just_died_holds_nobody_up() {
    let mut place = OnDisk::new();
    place.close();
    let lock = fs::File::open(place.path().with_extension("db.lock")).unwrap();
    lock.try_lock().unwrap();
    let held = std::thread::spawn(move || {
        std::thread::park_timeout(std::time::Duration::from_millis(60));
        drop(lock);
    });
    place.open();
    held.join().unwrap();
}

#[test]
fn a_second_writer_by_another_name_of_the_file_is_refused() {
    let place = OnDisk::new();
    let other = tempfile::tempdir().unwrap();
    let link = other.path().join("link.db");
    symlink(place.path(), &link).unwrap();
    assert!(matches!(Sqlite::open(&settings(link)), Err(StoreError::Held(_))));
}

#[test]
fn b110_a_lock_file_that_was_left_behind_stops_nobody() {
    let mut place = OnDisk::new();
    place.close();
    let lock = place.path().with_extension("db.lock");
    assert!(lock.exists(), "the file stays, the lock does not");
    // A pid that lives is no proof either.
    fs::write(&lock, "1\n").unwrap();
    place.open();
    assert_eq!(fs::read_to_string(&lock).unwrap(), format!("{}\n", std::process::id()));
}

#[test]
fn what_people_say_is_readable_for_the_owner_only() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("made/for it/store.db");
    let _store = Sqlite::open(&settings(&path)).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    for end in ["db", "db-wal", "db-shm", "db.lock"] {
        assert_eq!(mode(&path.with_extension(end)), 0o600, "{end}");
    }
}

#[tokio::test]
async fn a_reader_beside_the_writer_sees_what_is_applied_and_writes_nothing() {
    let place = OnDisk::new();
    let beside = Sqlite::open_read_only(&place.settings()).unwrap();
    let a = session("a");
    let apply = change(&a, None, "1").put(&Key::head(), numbered(1));
    place.sqlite().apply(apply.clone()).await.unwrap();
    assert_eq!(beside.rows(&a, None, 9).await.unwrap(), vec![(Key::head(), numbered(1))]);
    let refused = beside.apply(apply).await.unwrap_err();
    assert!(matches!(refused, StoreError::Held(_)), "{refused:?}");
    assert_eq!(beside.durable_commits(), 0);
}

#[tokio::test]
async fn a_reader_without_a_writer_reads_and_a_writer_may_come() {
    let mut place = OnDisk::new();
    let a = session("a");
    place.sqlite().apply(change(&a, None, "1").put(&Key::head(), numbered(1))).await.unwrap();
    place.close();
    let beside = Sqlite::open_read_only(&place.settings()).unwrap();
    assert_eq!(beside.aggregates(None, 9).await.unwrap(), vec![a.clone()]);
    place.open();
    place.sqlite().apply(change(&a, Some("1"), "2").put(&Key::head(), numbered(2))).await.unwrap();
    assert_eq!(beside.rows(&a, None, 9).await.unwrap(), vec![(Key::head(), numbered(2))]);
}

#[tokio::test]
async fn a_read_that_does_not_end_blocks_no_writer() {
    let place = OnDisk::new();
    let a = session("a");
    place.sqlite().apply(change(&a, None, "0").put(&Key::head(), numbered(0))).await.unwrap();
    let other = Connection::open(place.path()).unwrap();
    other.execute_batch("BEGIN").unwrap();
    let count = || other.query_row("SELECT count(*) FROM rows", [], |r| r.get::<_, i64>(0));
    assert_eq!(count().unwrap(), 1);
    for no in 1..50_u64 {
        let (before, after) = ((no - 1).to_string(), no.to_string());
        let apply = change(&a, Some(&before), &after).put(&Key::turn(no), numbered(no));
        assert_eq!(place.sqlite().apply(apply).await, Ok(Applied::Applied));
    }
    assert_eq!(count().unwrap(), 1, "it still reads the moment it began in");
}

#[tokio::test]
async fn one_durable_apply_is_one_durable_commit_and_a_hint_is_none() {
    let place = OnDisk::new();
    let store = place.sqlite();
    let a = session("a");
    let mut last: Option<String> = None;
    let classes = [
        (Class::ADMITS, 1),
        (Class::HINT, 1),
        (Class::FINISHES, 2),
        (Class::HINT, 2),
        (Class::ADMITS, 3),
    ];
    for (no, (class, commits)) in classes.into_iter().enumerate() {
        let revision = no.to_string();
        let apply = change(&a, last.as_deref(), &revision).put(&Key::head(), numbered(1));
        assert_eq!(store.apply(apply.class(class)).await, Ok(Applied::Applied));
        assert_eq!(store.durable_commits(), commits, "after {no}");
        last = Some(revision);
    }
    // What writes nothing commits nothing.
    assert_eq!(store.apply(change(&a, None, "x")).await, Ok(Applied::Conflict));
    assert_eq!(store.apply(change(&a, None, "4")).await, Ok(Applied::Already));
    assert_eq!(store.durable_commits(), 3);
}

#[tokio::test]
async fn applies_that_wait_together_share_a_commit_of_bounded_size() {
    let place = OnDisk::new();
    let store = place.sqlite();
    let count = 400;
    let applies = (0..count).map(|no| {
        let a = session(&format!("s{no}"));
        store.apply(change(&a, None, "1").put(&Key::head(), numbered(no)))
    });
    let answers = join_all(applies).await;
    assert!(answers.iter().all(|a| *a == Ok(Applied::Applied)));
    let commits = store.durable_commits();
    assert!(commits >= count.div_ceil(COMMIT_APPLIES_MAX as u64), "{commits}");
    assert!(commits <= count / 2, "{commits}");
}

#[tokio::test]
async fn one_bad_apply_spoils_no_other_of_its_batch() {
    let place = OnDisk::new();
    let store = place.sqlite();
    let a = session("a");
    let applies = [
        change(&a, None, "1").put(&Key::turn(1), numbered(1)),
        change(&a, None, "2").put(&Key::turn(2), numbered(2)),
        change(&a, Some("1"), "3").put(&Key::turn(3), numbered(3)),
        change(&a, Some("1"), "3").put(&Key::turn(3), numbered(3)),
    ];
    let answers = join_all(applies.map(|apply| store.apply(apply))).await;
    let expected = [Applied::Applied, Applied::Conflict, Applied::Applied, Applied::Already];
    assert_eq!(answers, expected.map(Ok));
    assert_eq!(store.rows(&a, None, 9).await.unwrap().len(), 2);
}

/// Runs SQL on the closed file and answers what opening it says then.
fn after(sql: &str) -> (StoreError, StoreError) {
    let mut place = OnDisk::new();
    place.close();
    Connection::open(place.path()).unwrap().execute_batch(sql).unwrap();
    let settings = place.settings();
    (Sqlite::open(&settings).unwrap_err(), Sqlite::open_read_only(&settings).unwrap_err())
}

#[test]
fn tables_of_a_newer_version_are_refused_in_words() {
    let (write, read) = after("PRAGMA user_version = 99");
    for error in [write, read] {
        assert!(matches!(error, StoreError::Data(_)), "{error:?}");
        assert_words(&error, &["store.db", "version 99", "up to version 1", "newer one"]);
    }
}

#[test]
fn a_database_of_another_program_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("other.db");
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE notes (text)").unwrap();
    let before = fs::read(&path).unwrap();
    for error in [
        Sqlite::open(&settings(&path)).unwrap_err(),
        Sqlite::open_read_only(&settings(&path)).unwrap_err(),
    ] {
        assert_words(&error, &["other.db", "another program", "name another file"]);
    }
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn a_file_that_is_no_database_is_refused_and_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store.db");
    fs::write(&path, "what is this? ".repeat(1_000)).unwrap();
    let before = fs::read(&path).unwrap();
    let error = Sqlite::open(&settings(&path)).unwrap_err();
    assert!(matches!(error, StoreError::Data(_)), "{error:?}");
    assert_words(&error, &["store.db", "damaged", "backup"]);
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[tokio::test]
async fn a_damaged_page_is_reported_by_name() {
    let mut place = OnDisk::new();
    let a = session("a");
    let mut apply = change(&a, None, "1");
    for no in 0..200 {
        apply = apply.put(&Key::turn(no), numbered(no));
    }
    place.sqlite().apply(apply).await.unwrap();
    place.close();
    let mut bytes = fs::read(place.path()).unwrap();
    let from = 4_096;
    bytes[from..].fill(0xa5);
    fs::write(place.path(), bytes).unwrap();
    let error = match Sqlite::open(&place.settings()) {
        Ok(store) => store.rows(&a, None, 1_000).await.unwrap_err(),
        Err(error) => error,
    };
    assert!(matches!(error, StoreError::Data(_)), "{error:?}");
    assert_words(&error, &["store.db", "damaged"]);
}

#[tokio::test]
async fn a_row_of_a_newer_version_is_refused_by_name() {
    let mut place = OnDisk::new();
    let a = session("a");
    place.sqlite().apply(change(&a, None, "1").put(&Key::head(), numbered(1))).await.unwrap();
    place.close();
    let sql = "UPDATE rows SET value = CAST('2 {\"head\":{}}' AS BLOB)";
    Connection::open(place.path()).unwrap().execute_batch(sql).unwrap();
    place.open();
    for error in [
        place.sqlite().load(&a, &[Key::head()]).await.unwrap_err(),
        place.sqlite().rows(&a, None, 9).await.unwrap_err(),
    ] {
        assert_words(&error, &["row h of session/a", "version 2", "up to 1"]);
    }
}

#[test]
fn a_place_that_cannot_be_written_is_named_with_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let error = Sqlite::open(&settings(file.join("store.db"))).unwrap_err();
    assert!(matches!(error, StoreError::Away(_)), "{error:?}");
    assert_words(&error, &["file", "make it, or name another one"]);
    let error = Sqlite::open(&settings(directory.path())).unwrap_err();
    assert!(matches!(error, StoreError::Away(_)), "{error:?}");
    let absent = directory.path().join("absent.db");
    let error = Sqlite::open_read_only(&settings(&absent)).unwrap_err();
    assert_words(&error, &["absent.db", "start dogwatch first"]);
    assert!(!absent.exists());
}

#[tokio::test]
async fn a_lock_of_another_program_is_said_so() {
    let place = OnDisk::new();
    let other = Connection::open(place.path()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let a = session("a");
    let apply = change(&a, None, "1").score(Index::Ready, &Key::head(), Some(1));
    let error = place.sqlite().apply(apply.clone()).await.unwrap_err();
    assert!(matches!(error, StoreError::Away(_)), "{error:?}");
    assert_words(&error, &["store.db", "another program", "sqlite3 shell"]);
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(place.sqlite().apply(apply).await, Ok(Applied::Applied));
}
