//! An engine with nothing to do does nothing: counts, not times.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use dogwatch::core::arrival::{Incoming, What};
use dogwatch::core::budget::Limits;
use dogwatch::core::egress::Policy;
use dogwatch::core::execution::Address;
use dogwatch::core::id::{BootId, DedupeKey, Principal, SessionId};
use dogwatch::core::ledger::session::Allowance;
use dogwatch::core::ledger::{Aggregate, Change, Index, Key, Row};
use dogwatch::core::limits::{LIVE_PER_OWNER_MAX, SETTLE_MS, SWEEP_MS};
use dogwatch::core::message::{Answer, Delta, ModelError, Request};
use dogwatch::core::redact::Redactor;
use dogwatch::core::time::Timestamp;
use dogwatch::engine::desk::FrontDesk;
use dogwatch::engine::home::Exits;
use dogwatch::engine::{Agent, Engine, Ports, Settings};
use dogwatch::ports::{
    Applied, Clock, Desk, ExitSink, Hint, Loaded, Member, Model, Store, StoreError,
};
use dogwatch::store::{ManualClock, Memory, UlidIds};
use dogwatch::tools::Wiring;
use dogwatch::watch::{self, NetworkSettings, Sandbox, Timing, Watch};
use futures_util::future::BoxFuture;
use tokio::sync::{broadcast, watch as seen};
use tokio_util::task::TaskTracker;

/// Fails a test that hangs; nothing waits for it.
const TOO_LONG: Duration = Duration::from_mins(1);
/// Indexes that the engine waits for: ready, outbox, relay, wish, due, expire.
const INDEXES: u64 = 6;

/// A store that counts how often an index is read.
struct Counting {
    inner: Memory,
    reads: seen::Sender<u64>,
}

impl Store for Counting {
    fn load<'a>(
        &'a self,
        aggregate: &'a Aggregate,
        keys: &'a [Key],
    ) -> BoxFuture<'a, Result<Loaded, StoreError>> {
        self.inner.load(aggregate, keys)
    }

    fn apply(&self, change: Change) -> BoxFuture<'_, Result<Applied, StoreError>> {
        self.inner.apply(change)
    }

    fn members<'a>(
        &'a self,
        index: &'a Index,
        until: u64,
        after: Option<&'a Member>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Member>, StoreError>> {
        self.reads.send_modify(|reads| *reads += 1);
        self.inner.members(index, until, after, limit)
    }

    fn rows<'a>(
        &'a self,
        aggregate: &'a Aggregate,
        after: Option<&'a Key>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<(Key, Row)>, StoreError>> {
        self.inner.rows(aggregate, after, limit)
    }

    fn aggregates<'a>(
        &'a self,
        after: Option<&'a Aggregate>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Aggregate>, StoreError>> {
        self.inner.aggregates(after, limit)
    }

    fn wakes(&self) -> broadcast::Receiver<Hint> {
        self.inner.wakes()
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp, StoreError>> {
        self.inner.now()
    }
}

/// Counts calls and answers none.
#[derive(Default)]
struct Mute(seen::Sender<u64>);

impl Model for Mute {
    fn call<'a>(
        &'a self,
        _: &'a Request,
        _: &'a mut (dyn FnMut(Delta) + Send),
    ) -> BoxFuture<'a, Result<Answer, ModelError>> {
        self.0.send_modify(|calls| *calls += 1);
        Box::pin(std::future::pending())
    }
}

struct Bot {
    clock: ManualClock,
    store: Arc<Counting>,
    model: Arc<Mute>,
    engine: Arc<Engine>,
    watch: Arc<Watch>,
    _place: tempfile::TempDir,
}

impl Bot {
    async fn start() -> Self {
        let place = tempfile::tempdir().unwrap();
        let clock = ManualClock::new(Timestamp::from_ms(1_000_000));
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        let inner = Memory::new(Arc::clone(&shared));
        let store = Arc::new(Counting { inner, reads: seen::Sender::new(0) });
        let model = Arc::new(Mute::default());
        let exits: Arc<dyn ExitSink> = Arc::new(Exits::default());
        let settings = watch::Settings {
            spool: place.path().join("spool"),
            program: env!("CARGO_BIN_EXE_dogwatch").into(),
            shim: env!("CARGO_BIN_EXE_dogwatch-shim").into(),
            python: "/usr/bin/python3".into(),
            env: vec![],
            redactor: Arc::new(str::to_owned),
            timing: Timing::default(),
            sandbox: Sandbox::Off,
            network: NetworkSettings::default(),
        };
        let tasks = TaskTracker::new();
        let opened = Watch::open(settings, &UlidIds, Arc::clone(&shared), exits, tasks);
        let watch = Arc::new(opened.unwrap());
        let ports = Ports {
            store: Arc::<Counting>::clone(&store),
            clock: shared,
            ids: Arc::new(UlidIds),
            model: Arc::<Mute>::clone(&model),
            channels: HashMap::new(),
            launcher: Arc::<Watch>::clone(&watch),
            redactor: Arc::new(Redactor::new(vec![])),
        };
        let agent = Agent {
            name: "idle".into(),
            instructions: String::new(),
            wiring: Wiring::all(),
            reach: Policy::default(),
            limits: Limits::default(),
            allowance: Allowance::default(),
        };
        let boot = BootId::new("boot").unwrap();
        let settings = Settings {
            boot,
            sole: true,
            agents: agent.into(),
            grace_ms: 1_000,
            live_per_owner: LIVE_PER_OWNER_MAX,
            turns_max: 4,
        };
        let engine = Engine::new(settings, ports);
        engine.start().await.unwrap();
        Self { clock, store, model, engine, watch, _place: place }
    }

    async fn reads(&self, at_least: u64) -> u64 {
        let mut reads = self.store.reads.subscribe();
        let read = reads.wait_for(|reads| *reads >= at_least);
        *tokio::time::timeout(TOO_LONG, read).await.unwrap().unwrap()
    }

    /// Hours go by, and everybody who wakes of it may run.
    async fn pass(&self, hours: u64) {
        for _ in 0..hours * 3_600_000 / SWEEP_MS {
            self.clock.advance(SWEEP_MS);
            tokio::task::yield_now().await;
        }
    }
}

/// The runtime is of one thread, so a yield lets every task run that can.
#[tokio::test]
async fn a_day_without_events_reads_no_index_and_an_event_reads_but_its_own() {
    let bot = Bot::start().await;
    // Each looks at what is due and for what is next; the start has looked at some by itself.
    let started = bot.reads(INDEXES * 2).await;
    bot.pass(1).await;
    let before = *bot.store.reads.borrow();
    assert!(before <= started + INDEXES * 2, "{started} reads at the start, {before} after it");
    bot.pass(24).await;
    assert_eq!(*bot.store.reads.borrow(), before);

    let incoming = Incoming {
        keys: vec![DedupeKey::new("m1").unwrap()],
        what: What::Message { text: "hello".into() },
        principal: Principal::new("local").unwrap(),
        address: Address { surface: "none".into(), thread: "t".into() },
        source_at: bot.clock.now(),
        continues: false,
        shared: false,
    };
    let session = SessionId::new("none/t").unwrap();
    let desk = FrontDesk(Arc::clone(&bot.engine));
    desk.accept(&session, incoming).await.unwrap();
    tokio::task::yield_now().await;
    bot.clock.advance(SETTLE_MS);
    let mut calls = bot.model.0.subscribe();
    let called = calls.wait_for(|calls| *calls == 1);
    tokio::time::timeout(TOO_LONG, called).await.expect("the model is not called").unwrap();
    let reads = *bot.store.reads.borrow() - before;
    assert!(reads <= 2, "one message made {reads} reads of indexes");
    bot.engine.shut_down().await;
    bot.watch.release();
}
