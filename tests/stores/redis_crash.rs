//! A Redis that is killed, and one whose log lost its end: what is left is a beginning of what was
//! sent, and what was acknowledged is in it as far as its settings promise.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dogwatch::ports::{Applied, Store, StoreError};
use pretty_assertions::assert_eq;
use tokio::task::JoinSet;

use super::crash::{nth, prefix};
use super::place::{session, within_a_minute};
use super::redis::open;
use super::redis_server::RedisServer;

/// Applies the stream from `from` until the store is away, and counts what was acknowledged.
async fn send(store: &dyn Store, from: u64, acknowledged: &AtomicU64) -> StoreError {
    for no in from.. {
        match store.apply(nth(no)).await {
            Ok(applied) => {
                assert_eq!(applied, Applied::Applied);
                acknowledged.store(no, Ordering::SeqCst);
            }
            Err(error) => return error,
        }
    }
    unreachable!("the stream has no end")
}

/// Kills it again and again under one store, which finds its way back by itself. With `always` what
/// was acknowledged is there; otherwise a beginning of it.
async fn a_server_is_killed(fsync: &str) {
    let mut server = RedisServer::start(&["--appendfsync", fsync]);
    let store = Arc::new(open(&server.url()));
    let mut last = 0;
    for going in [5, 25, 60, 120] {
        let acknowledged = Arc::new(AtomicU64::new(last));
        let (sender, count) = (store.clone(), acknowledged.clone());
        let mut sending = JoinSet::new();
        sending.spawn(async move { send(&*sender, last + 1, &count).await });
        while acknowledged.load(Ordering::SeqCst) < last + going {
            tokio::task::yield_now().await;
        }
        server.kill();
        let error = sending.join_next().await.unwrap().unwrap();
        assert!(matches!(error, StoreError::Away(_)), "{error:?}");
        server.start_again();
        while store.load(&session("lane"), &[]).await.is_err() {
            tokio::task::yield_now().await;
        }
        let (told, kept) = (acknowledged.load(Ordering::SeqCst), prefix(&*store).await);
        assert!(kept >= told || fsync != "always", "{told} were acknowledged, {kept} are there");
        assert!(kept <= told + 1, "one at most was under way");
        if kept > 0 {
            assert_eq!(store.apply(nth(kept)).await, Ok(Applied::Already));
        }
        last = kept;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_that_syncs_always_lost_nothing_that_it_acknowledged() {
    within_a_minute(a_server_is_killed("always")).await;
}

/// While a sync of the second before is under way it answers what it has not yet written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_that_syncs_every_second_has_a_beginning_of_what_it_acknowledged() {
    within_a_minute(a_server_is_killed("everysec")).await;
}

/// The log that grows.
fn log(of: &Path) -> PathBuf {
    let files = fs::read_dir(of.join("appendonlydir")).expect("the log's directory");
    let mut files = files.map(|file| file.expect("a file").path());
    let grows = |path: &PathBuf| path.to_str().is_some_and(|name| name.ends_with(".incr.aof"));
    files.find(grows).expect("a log")
}

#[tokio::test]
async fn a_log_that_lost_its_end_holds_a_beginning_and_everything_goes_on_from_there() {
    let mut server = RedisServer::start(&["--appendfsync", "always"]);
    let count = 30;
    let store = open(&server.url());
    for no in 1..=count {
        store.apply(nth(no)).await.unwrap();
    }
    server.kill();
    let path = log(server.directory());
    let whole = fs::read(&path).unwrap();
    let (mut last, mut lengths) = (0, vec![]);
    for part in 8..=40 {
        let cut = whole.len() * part / 40;
        fs::write(&path, &whole).unwrap();
        OpenOptions::new().write(true).open(&path).unwrap().set_len(cut as u64).unwrap();
        server.start_again();
        let store = open(&server.url());
        let kept = prefix(&store).await;
        assert!(kept >= last, "more of the log held less of the stream");
        (last, lengths) = (kept, [lengths, vec![kept]].concat());
        // What is sent again is done again, and what is acknowledged now is kept.
        for no in kept + 1..=kept + 3 {
            assert_eq!(store.apply(nth(no)).await, Ok(Applied::Applied));
        }
        server.kill();
        server.start_again();
        assert_eq!(prefix(&open(&server.url())).await, kept + 3);
        server.kill();
    }
    assert_eq!(last, count);
    lengths.dedup();
    assert!(lengths.len() > 10, "the cuts were not between the applies: {lengths:?}");
}
