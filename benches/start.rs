//! A start looks at what lives, not at what is over: with few and with many records in the store,
//! and with few and with many settled entries in the spool.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dogwatch::core::execution::{
    Execution, Fate, Home, HumanReceipt, Kind, ModelReceipt, Notify, Outcome, State, Status,
};
use dogwatch::core::id::{BootId, ExecutionId, Principal, SpoolId};
use dogwatch::core::ledger::{
    Aggregate, Change, Class, IndexWrite, Key, Revision, Row, Write, index_of,
};
use dogwatch::core::message::{Answer, Delta, ModelError, Request};
use dogwatch::ports::{Desk, Ids, Launch, Launcher, Model, Store};
use dogwatch::store::{Settings, Sqlite, UlidIds};
use dogwatch::watch::{self, NetworkSettings, Sandbox, Timing, Watch};
use futures_util::future::BoxFuture;
use tokio_util::task::TaskTracker;

use crate::bot::{self, Bot, Parts};
use crate::figures::{Line, Pairs};

const ROUNDS: usize = 25;
const FEW: usize = 10;
const MANY_RECORDS: usize = 10_000;
const MANY_ENTRIES: usize = 1_000;

struct Mute;

impl Model for Mute {
    fn call<'a>(
        &'a self,
        _: &'a Request,
        _: &'a mut (dyn FnMut(Delta) + Send),
    ) -> BoxFuture<'a, Result<Answer, ModelError>> {
        Box::pin(std::future::pending())
    }
}

/// From opening the store to the first answer about a session.
async fn start(directory: &Path) -> Duration {
    let clock = bot::clock();
    let begun = Instant::now();
    let path = directory.join("store.db");
    let store = Arc::new(Sqlite::open(&Settings { path }).unwrap());
    let bot = Bot::start(Parts {
        store,
        clock,
        model: Arc::new(Mute),
        spool: directory.join("spool"),
        on_tool: Arc::new(|| {}),
    })
    .await;
    bot.desk.view(&bot::session("s0")).await.unwrap();
    let took = begun.elapsed();
    bot.end().await;
    took
}

fn over(no: usize) -> Execution {
    let clock = bot::clock();
    let mut outcome = Outcome::bare(Status::Completed, "bench");
    outcome.stdout.head = "deployed\n".repeat(20);
    Execution {
        id: ExecutionId::new(format!("auto-notify-benc-{no:04}")).unwrap(),
        kind: Kind::Script,
        name: "bench".into(),
        turn: 1,
        call: (1, 0),
        owner: Principal::new("local").unwrap(),
        generation: 0,
        chain: 1,
        address: dogwatch::core::execution::Address { surface: "bench".into(), thread: "t".into() },
        home: Home::Spool(SpoolId::new("spool").unwrap()),
        boot: BootId::new("boot").unwrap(),
        notify: Notify::Silent,
        key: None,
        timeout_ms: 60_000,
        state: State::Ended(outcome),
        cancel: None,
        registered_at: clock.now(),
        started_at: Some(clock.now()),
        ended_at: Some(clock.now()),
        due_at: clock.now(),
        unattended: false,
        model: ModelReceipt::Fate(Fate::Waived),
        human: HumanReceipt::None,
        late: vec![],
        shown: false,
        shared: false,
        access: dogwatch::core::egress::Access::default(),
    }
}

/// A store with so many executions that are over, at most 100 a session.
async fn fill_store(directory: &Path, count: usize) {
    let store = Sqlite::open(&Settings { path: directory.join("store.db") }).unwrap();
    for (no, first) in (0..count).step_by(100).enumerate() {
        let rows = (first..count.min(first + 100)).map(over);
        let rows: Vec<_> = rows.map(|it| (Key::execution(&it.id), Row::Execution(it))).collect();
        let index = rows.iter().flat_map(|(key, row)| {
            let entries = index_of(key, row).into_iter();
            entries.map(|(index, score)| IndexWrite { index, key: key.clone(), score: Some(score) })
        });
        let change = Change {
            aggregate: Aggregate::Session(bot::session(&format!("s{no}"))),
            expected: None,
            revision: Revision(UlidIds.fresh()),
            index: index.collect(),
            writes: rows
                .into_iter()
                .map(|(key, row)| Write { key, row: Some(Arc::new(row)) })
                .collect(),
            class: Class::HINT,
        };
        store.apply(change).await.unwrap();
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for item in fs::read_dir(from).unwrap() {
        let path = item.unwrap().path();
        // The socket of a shim that is gone is nothing to be copied.
        if path.is_file() {
            fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
        }
    }
}

struct Deaf(tokio::sync::Notify);

impl dogwatch::ports::ExitSink for Deaf {
    fn exited(&self, _: dogwatch::core::id::SessionId, _: ExecutionId, _: Outcome) {
        self.0.notify_one();
    }
}

/// A spool with so many settled entries: a real one, and copies of it.
async fn fill_spool(directory: &Path, count: usize) {
    let spool = directory.join("spool");
    let tasks = TaskTracker::new();
    let settings = watch::Settings {
        spool: spool.clone(),
        program: env!("CARGO_BIN_EXE_dogwatch").into(),
        shim: env!("CARGO_BIN_EXE_dogwatch-shim").into(),
        python: "/usr/bin/python3".into(),
        env: vec![],
        redactor: Arc::new(str::to_owned),
        timing: Timing::default(),
        sandbox: Sandbox::Off,
        network: NetworkSettings::default(),
    };
    let sink = Arc::new(Deaf(tokio::sync::Notify::new()));
    let ears: Arc<Deaf> = Arc::clone(&sink);
    let watch = Watch::open(settings, &UlidIds, bot::clock(), sink, tasks.clone()).unwrap();
    let (session, execution) = (bot::session("s0"), ExecutionId::new("w").unwrap());
    let launch = Launch {
        session: session.clone(),
        execution: execution.clone(),
        python: "print(1)".into(),
        timeout_ms: 60_000,
        grace_ms: 1_000,
        access: dogwatch::core::egress::Access::default(),
    };
    watch.launch(launch).await.unwrap();
    watch.go(&session, &execution).await.unwrap();
    ears.0.notified().await;
    watch.settled(&session, &execution).await;
    watch.release();
    tasks.close();
    tasks.wait().await;
    drop(watch);
    let hour = fs::read_dir(spool.join("s")).unwrap().next().unwrap().unwrap().path();
    let entry = fs::read_dir(&hour).unwrap().next().unwrap().unwrap().path();
    for no in 1..count {
        copy(&entry, &hour.join(format!("{no:024x}")));
    }
}

async fn compare(few: &Path, many: &Path) -> Pairs {
    let mut pairs = Pairs::default();
    for directory in [few, many] {
        start(directory).await;
    }
    for _ in 0..ROUNDS {
        let reference = start(few).await;
        pairs.push(start(many).await, reference);
    }
    pairs
}

pub(crate) async fn run() -> Vec<Line> {
    let (few, many) = (bot::place(), bot::place());
    fill_store(few.path(), FEW).await;
    fill_store(many.path(), MANY_RECORDS).await;
    let records = compare(few.path(), many.path()).await;
    let (few, many) = (bot::place(), bot::place());
    fill_spool(few.path(), FEW).await;
    fill_spool(many.path(), MANY_ENTRIES).await;
    let entries = compare(few.path(), many.path()).await;
    let line = |what: String, pairs: Pairs| {
        Line::new("start", what, pairs.ratio()).at_most(1.3).note(pairs.note())
    };
    vec![
        line(format!("with {MANY_RECORDS} records, to {FEW}"), records),
        line(format!("with {MANY_ENTRIES} settled spool entries, to {FEW}"), entries),
    ]
}
