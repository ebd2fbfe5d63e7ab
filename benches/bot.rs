//! A whole bot in this process: the engine on a real launcher, with whatever store and model a
//! bench wants. Must not know what is measured.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use dogwatch::core::arrival::{Incoming, What};
use dogwatch::core::budget::Limits;
use dogwatch::core::egress::Policy;
use dogwatch::core::execution::Address;
use dogwatch::core::id::{BootId, DedupeKey, Principal, SessionId};
use dogwatch::core::ledger::session::Allowance;
use dogwatch::core::ledger::{Aggregate, Change, Index, Key, Row};
use dogwatch::core::redact::Redactor;
use dogwatch::core::time::Timestamp;
use dogwatch::engine::desk::FrontDesk;
use dogwatch::engine::home::Exits;
use dogwatch::engine::{Agent, Engine, Ports, Settings};
use dogwatch::ports::{
    Applied, Channel, ChannelError, Clock, Desk, ExitSink, Hint, Ids, Loaded, Member, Model, Post,
    Progress, Store, StoreError,
};
use dogwatch::slack;
use dogwatch::store::{SystemClock, UlidIds};
use dogwatch::tools::Wiring;
use dogwatch::watch::{self, NetworkSettings, Sandbox, Timing, Watch};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::{broadcast, mpsc};
use tokio_util::task::TaskTracker;

const SURFACE: &str = "bench";

/// A place on the disk that the target directory is on.
pub(crate) fn place() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

pub(crate) fn clock() -> Arc<dyn Clock> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    Arc::new(SystemClock::from_store(Timestamp::from_ms(now.as_millis().try_into().unwrap())))
}

pub(crate) fn session(name: &str) -> SessionId {
    SessionId::new(format!("{SURFACE}/{name}")).unwrap()
}

/// A message of a person.
pub(crate) fn message(session: &SessionId, now: Timestamp) -> Incoming {
    Incoming {
        keys: vec![DedupeKey::new(UlidIds.fresh()).unwrap()],
        what: What::Message { text: "go on".into() },
        principal: Principal::new("local").unwrap(),
        address: Address { surface: SURFACE.into(), thread: session.to_string() },
        source_at: now,
        continues: false,
        shared: false,
    }
}

/// What a bench hears of a bot.
#[derive(Debug)]
pub(crate) enum Heard {
    Posted,
    Tool,
}

struct Ear(mpsc::UnboundedSender<Heard>, Arc<dyn Fn() + Send + Sync>);

impl Channel for Ear {
    fn post(&self, _: Post) -> BoxFuture<'_, Result<String, ChannelError>> {
        let _over = self.0.send(Heard::Posted);
        async { Ok("posted".into()) }.boxed()
    }

    fn progress(&self, _: &SessionId, _: &Address, progress: Progress) {
        if matches!(progress, Progress::Tool { .. }) {
            (self.1)();
            let _over = self.0.send(Heard::Tool);
        }
    }
}

/// What a bot is made of.
pub(crate) struct Parts {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) model: Arc<dyn Model>,
    pub(crate) spool: PathBuf,
    /// Called when a tool is about to run.
    pub(crate) on_tool: Arc<dyn Fn() + Send + Sync>,
}

pub(crate) struct Bot {
    engine: Arc<Engine>,
    watch: Arc<Watch>,
    tasks: TaskTracker,
    clock: Arc<dyn Clock>,
    pub(crate) desk: FrontDesk,
    heard: mpsc::UnboundedReceiver<Heard>,
}

fn launcher(
    spool: &Path,
    clock: &Arc<dyn Clock>,
    exits: &Arc<Exits>,
    tasks: &TaskTracker,
) -> Watch {
    let settings = watch::Settings {
        spool: spool.to_owned(),
        program: env!("CARGO_BIN_EXE_dogwatch").into(),
        shim: env!("CARGO_BIN_EXE_dogwatch-shim").into(),
        python: "/usr/bin/python3".into(),
        env: vec![("PATH".into(), "/usr/bin:/bin".into())],
        redactor: Arc::new(str::to_owned),
        timing: Timing::default(),
        sandbox: Sandbox::Off,
        network: NetworkSettings::default(),
    };
    let sink: Arc<dyn ExitSink> = Arc::<Exits>::clone(exits);
    Watch::open(settings, &UlidIds, Arc::clone(clock), sink, tasks.clone()).unwrap()
}

impl Bot {
    /// Opens the spool and starts the engine.
    pub(crate) async fn start(made_of: Parts) -> Self {
        let Parts { store, clock, model, spool, on_tool } = made_of;
        let tasks = TaskTracker::new();
        let exits = Arc::new(Exits::default());
        let watch = Arc::new(launcher(&spool, &clock, &exits, &tasks));
        let (tell, heard) = mpsc::unbounded_channel();
        let channel: Arc<dyn Channel> = Arc::new(Ear(tell, on_tool));
        let ports = Ports {
            store,
            clock: Arc::clone(&clock),
            ids: Arc::new(UlidIds),
            model,
            channels: [SURFACE, slack::place::SURFACE]
                .map(|surface| (surface.to_owned(), Arc::clone(&channel)))
                .into(),
            launcher: Arc::<Watch>::clone(&watch),
            redactor: Arc::new(Redactor::new(vec![])),
        };
        let agent = Agent {
            name: "bench".into(),
            instructions: String::new(),
            wiring: Wiring::all(),
            reach: Policy::default(),
            limits: Limits::default(),
            allowance: Allowance { wakes: 1_000_000, tokens: u64::MAX / 2, spawns: 1_000_000 },
        };
        let settings = Settings {
            boot: BootId::new(UlidIds.fresh()).unwrap(),
            sole: true,
            agents: agent.into(),
            grace_ms: 1_000,
            live_per_owner: u32::MAX,
            turns_max: 64,
        };
        let engine = Engine::new(settings, ports);
        exits.bind(&engine);
        engine.start().await.unwrap();
        let desk = FrontDesk(Arc::clone(&engine));
        Self { engine, watch, tasks, clock, desk, heard }
    }

    pub(crate) async fn say(&self, session: &SessionId) {
        let incoming = message(session, self.clock.now());
        self.desk.accept(session, incoming).await.unwrap();
    }

    /// Waits for an answer.
    pub(crate) async fn posted(&mut self) {
        while !matches!(self.heard.recv().await.unwrap(), Heard::Posted) {}
    }

    /// Waits until nothing runs.
    pub(crate) async fn quiet(&self, session: &SessionId) {
        let mut stirs = self.desk.stirs();
        while !self.desk.view(session).await.unwrap().live.is_empty() {
            stirs.recv().await.unwrap();
        }
    }

    pub(crate) async fn end(self) {
        self.engine.shut_down().await;
        self.watch.release();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

type OnApply = Box<dyn Fn(&Change) + Send + Sync>;

/// A store that shows every apply before it is done, and after it was.
pub(crate) struct Spy {
    pub(crate) inner: Arc<dyn Store>,
    pub(crate) on_apply: OnApply,
    pub(crate) on_applied: OnApply,
}

impl Store for Spy {
    fn load<'a>(
        &'a self,
        aggregate: &'a Aggregate,
        keys: &'a [Key],
    ) -> BoxFuture<'a, Result<Loaded, StoreError>> {
        self.inner.load(aggregate, keys)
    }

    fn apply(&self, change: Change) -> BoxFuture<'_, Result<Applied, StoreError>> {
        (self.on_apply)(&change);
        async move {
            let (shown, applied) = (change.clone(), self.inner.apply(change).await);
            if matches!(applied, Ok(Applied::Applied | Applied::Already)) {
                (self.on_applied)(&shown);
            }
            applied
        }
        .boxed()
    }

    fn members<'a>(
        &'a self,
        index: &'a Index,
        until: u64,
        after: Option<&'a Member>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Member>, StoreError>> {
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
