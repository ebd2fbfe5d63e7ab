//! Where a store lives, so that a test written once runs on every store and can open it again.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dogwatch::core::id::SessionId;
use dogwatch::core::ledger::row::Summary;
use dogwatch::core::ledger::{
    Aggregate, Change, Class, Index, IndexWrite, Key, Revision, Row, Write,
};
use dogwatch::core::time::Timestamp;
use dogwatch::ports::{Member, Store};
use dogwatch::store::{ManualClock, Memory, Redis, Settings, Sqlite, redis};
use tempfile::TempDir;

use super::redis_proxy::RedisProxy;
use super::redis_server::RedisServer;

/// A store and what is left of it when it is closed.
pub(super) trait Place: Send {
    /// An empty one.
    fn new() -> Self;
    /// The open store. Whoever keeps it must let it go before `reopen`.
    fn store(&self) -> Arc<dyn Store>;
    /// Closes it and opens it again.
    fn reopen(&mut self);
}

/// A store in memory; what is left of it is a snapshot.
pub(super) struct InMemory {
    pub(super) store: Arc<Memory>,
}

fn memory() -> Arc<Memory> {
    Arc::new(Memory::new(Arc::new(ManualClock::new(Timestamp::from_ms(1_000)))))
}

impl Place for InMemory {
    fn new() -> Self {
        Self { store: memory() }
    }

    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    fn reopen(&mut self) {
        let left = self.store.snapshot();
        self.store = memory();
        self.store.restore(left);
    }
}

/// A store in a file of a directory of its own.
pub(super) struct OnDisk {
    store: Option<Arc<Sqlite>>,
    directory: TempDir,
}

impl OnDisk {
    pub(super) fn path(&self) -> PathBuf {
        self.directory.path().join("store.db")
    }

    pub(super) fn settings(&self) -> Settings {
        Settings { path: self.path() }
    }

    pub(super) fn sqlite(&self) -> &Sqlite {
        self.store.as_ref().expect("open")
    }

    pub(super) fn close(&mut self) {
        let store = self.store.take().expect("open");
        assert!(Arc::try_unwrap(store).is_ok(), "a test still holds the store");
    }

    pub(super) fn open(&mut self) {
        self.store = Some(Arc::new(Sqlite::open(&self.settings()).expect("opens")));
    }
}

impl Place for OnDisk {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let mut place = Self { store: None, directory };
        place.open();
        place
    }

    fn store(&self) -> Arc<dyn Store> {
        self.store.clone().expect("open")
    }

    fn reopen(&mut self) {
        self.close();
        self.open();
    }
}

/// A store in a real Redis, under a prefix of its own.
pub(super) struct InRedis {
    pub(super) server: Arc<RedisServer>,
    /// What stands before it.
    pub(super) proxy: Option<RedisProxy>,
    url: String,
    prefix: String,
    store: Option<Arc<Redis>>,
}

impl InRedis {
    /// An empty store on this server.
    pub(super) fn on(server: Arc<RedisServer>) -> Self {
        let url = server.url();
        Self::at(server, None, url)
    }

    /// Likewise, with a proxy before it.
    pub(super) fn through(server: Arc<RedisServer>, proxy: RedisProxy) -> Self {
        let url = proxy.url();
        Self::at(server, Some(proxy), url)
    }

    /// Likewise, reached by this URL.
    pub(super) fn at(server: Arc<RedisServer>, proxy: Option<RedisProxy>, url: String) -> Self {
        static PREFIXES: AtomicU64 = AtomicU64::new(0);
        let prefix = format!("place{}:", PREFIXES.fetch_add(1, Ordering::Relaxed));
        let mut place = Self { server, proxy, url, prefix, store: None };
        place.reopen();
        place
    }

    pub(super) fn settings(&self) -> redis::Settings {
        settings_of(&self.url, &self.prefix)
    }

    pub(super) fn redis(&self) -> &Redis {
        self.store.as_ref().expect("open")
    }
}

pub(super) fn settings_of(url: &str, prefix: &str) -> redis::Settings {
    redis::Settings { url: url.into(), prefix: prefix.into(), ca: None }
}

impl Place for InRedis {
    fn new() -> Self {
        Self::on(RedisServer::shared())
    }

    fn store(&self) -> Arc<dyn Store> {
        self.store.clone().expect("open")
    }

    fn reopen(&mut self) {
        if let Some(store) = self.store.take() {
            assert!(Arc::try_unwrap(store).is_ok(), "a test still holds the store");
        }
        self.store = Some(Arc::new(Redis::open(&self.settings()).expect("opens")));
    }
}

pub(super) fn session(name: &str) -> Aggregate {
    Aggregate::Session(SessionId::new(name).expect("an id"))
}

/// Some row that is told apart by its number.
pub(super) fn numbered(number: u64) -> Row {
    Row::Summary(Summary { upto: number, text: format!("row {number}") })
}

/// A change without rows, to be added to.
pub(super) fn change(aggregate: &Aggregate, expected: Option<&str>, revision: &str) -> Change {
    Change {
        aggregate: aggregate.clone(),
        expected: expected.map(|revision| Revision(revision.into())),
        revision: Revision(revision.into()),
        writes: vec![],
        index: vec![],
        class: Class::FINISHES,
    }
}

/// Steps by which a test writes a change down.
pub(super) trait ChangeExt {
    fn put(self, key: &Key, row: Row) -> Self;
    fn delete(self, key: &Key) -> Self;
    fn score(self, index: Index, key: &Key, score: Option<u64>) -> Self;
    fn class(self, class: Class) -> Self;
}

impl ChangeExt for Change {
    fn put(mut self, key: &Key, row: Row) -> Self {
        self.writes.push(Write { key: key.clone(), row: Some(Arc::new(row)) });
        self
    }

    fn delete(mut self, key: &Key) -> Self {
        self.writes.push(Write { key: key.clone(), row: None });
        self
    }

    fn score(mut self, index: Index, key: &Key, score: Option<u64>) -> Self {
        self.index.push(IndexWrite { index, key: key.clone(), score });
        self
    }

    fn class(mut self, class: Class) -> Self {
        self.class = class;
        self
    }
}

/// Fails a test that hangs.
pub(super) async fn within_a_minute(test: impl Future<Output = ()>) {
    tokio::time::timeout(Duration::from_mins(1), test).await.expect("it hangs");
}

/// Members of an index as plain values.
pub(super) async fn members(
    store: &dyn Store,
    index: &Index,
    until: u64,
) -> Vec<(u64, String, String)> {
    let members = store.members(index, until, None, 1_000).await.unwrap();
    let flat = |m: Member| (m.score, m.aggregate.to_string(), m.key.to_string());
    members.into_iter().map(flat).collect()
}

/// A member as plain values.
pub(super) fn member(score: u64, aggregate: &str, key: &Key) -> (u64, String, String) {
    (score, aggregate.into(), key.to_string())
}

/// Makes a test of each function, for each store: each takes a [`Place`].
macro_rules! on_every_store {
    ($($test:ident,)*) => {
        mod memory {
            use super::super::place::{InMemory, Place};
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::super::place::within_a_minute(super::$test(InMemory::new())).await;
            })*
        }
        mod sqlite {
            use super::super::place::{OnDisk, Place};
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::super::place::within_a_minute(super::$test(OnDisk::new())).await;
            })*
        }
        mod redis {
            use super::super::place::{InRedis, Place};
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::super::place::within_a_minute(super::$test(InRedis::new())).await;
            })*
        }
    };
}

pub(super) use on_every_store;
