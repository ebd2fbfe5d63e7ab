//! A whole bot in this process: real store, real scripts, the real model client against the fake
//! service, and a channel that keeps what is posted. Each boot has a runtime of its own, so that a
//! crash is its end at whatever await it stood.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use dogwatch::console::chat::ChatName;
use dogwatch::core::arrival::{Incoming, What};
use dogwatch::core::budget::Limits;
use dogwatch::core::egress::Policy;
use dogwatch::core::execution::{Address, Home, Scope};
use dogwatch::core::id::{BootId, DedupeKey, ExecutionId, PressId, Principal, SessionId, StopId};
use dogwatch::core::ledger::Index;
use dogwatch::core::ledger::audit::Balance;
use dogwatch::core::ledger::session::Allowance;
use dogwatch::core::policy::{Family, Role};
use dogwatch::core::redact::Redactor;
use dogwatch::engine::desk::FrontDesk;
use dogwatch::engine::home::Exits;
use dogwatch::engine::{Agent, Engine, Ports, RecoveryError, Restored, Settings};
use dogwatch::model::{OpenAi, openai};
use dogwatch::ports::{
    Channel, Clock, Command, Desk, DeskError, Done, ExitSink, Ids, Launcher, Model, Post,
    SessionView, Store,
};
use dogwatch::slack::posting::Posting;
use dogwatch::store::{self, Sqlite, UlidIds};
use dogwatch::tools::Wiring;
use dogwatch::watch::{self, NetworkSettings, Sandbox, Timing, Watch};
use rustix::process::Signal;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::fake_llm::FakeLlm;
use super::fake_slack::FakeSlack;
use super::jump_clock::JumpClock;
use super::process;
use super::stage::Stage;
use super::tap::{Hand, Tap, Trap};

/// Fails a test that hangs; nothing waits for it.
const PATIENCE: Duration = Duration::from_mins(1);

/// How a bot is set up.
pub(crate) struct Setup {
    pub(crate) role: Role,
    pub(crate) limits: Limits,
    pub(crate) allowance: Allowance,
    pub(crate) grace_ms: u64,
    /// Of one person.
    pub(crate) live_per_owner: u32,
    pub(crate) timing: Timing,
    pub(crate) python: PathBuf,
    /// How scripts are held.
    pub(crate) sandbox: Sandbox,
    /// What scripts may do in the network.
    pub(crate) network: NetworkSettings,
    /// What of it the agent may ask for.
    pub(crate) reach: Policy,
    /// What is run as a shim.
    pub(crate) shim: PathBuf,
    /// Of the model's client.
    pub(crate) idle_ms: u64,
    pub(crate) header_ms: u64,
    /// Known secrets.
    pub(crate) secrets: Vec<String>,
    /// Instead of the fake service.
    pub(crate) base_url: Option<String>,
    /// A store that other nodes share; its own file without.
    pub(crate) shared: Option<Arc<dyn Store>>,
    /// So many times as fast as others its clock goes.
    pub(crate) speed: u64,
    /// Where people are in Slack, if they are.
    pub(crate) slack: Option<Arc<FakeSlack>>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            role: Role::Writable,
            limits: Limits::default(),
            allowance: Allowance::default(),
            grace_ms: 300,
            live_per_owner: dogwatch::core::limits::LIVE_PER_OWNER_MAX,
            timing: Timing::default(),
            python: "/usr/bin/python3".into(),
            sandbox: Sandbox::Off,
            network: NetworkSettings::default(),
            reach: Policy::default(),
            shim: env!("CARGO_BIN_EXE_dogwatch-shim").into(),
            idle_ms: 60_000,
            header_ms: 60_000,
            secrets: Vec::new(),
            base_url: None,
            shared: None,
            speed: 1,
            slack: None,
        }
    }
}

/// One bot, over all its boots.
pub(crate) struct Bot {
    pub(crate) llm: Arc<FakeLlm>,
    pub(crate) stage: Stage,
    pub(crate) hand: Hand,
    pub(crate) clock: JumpClock,
    pub(crate) setup: Setup,
    dir: tempfile::TempDir,
    said: AtomicU64,
    boot: Option<Boot>,
}

/// What ends with a boot.
struct Boot {
    name: BootId,
    runtime: Runtime,
    engine: Arc<Engine>,
    launcher: Arc<Watch>,
    store: Arc<dyn Store>,
    /// The same without the hand of the test on it.
    raw: Arc<dyn Store>,
    tasks: TaskTracker,
    /// Until then it shows in Slack what its turns say.
    showing: CancellationToken,
}

/// Fails with a picture of the bot when it takes too long.
async fn patiently<T>(bot: &Bot, what: &str, work: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(PATIENCE, work).await;
    done.unwrap_or_else(|_elapsed| panic!("{what} does not happen\n{}", bot.picture()))
}

impl Bot {
    /// A bot that runs.
    pub(crate) async fn start() -> Self {
        Self::with(Setup::default()).await
    }

    /// A bot that runs, set up so.
    pub(crate) async fn with(setup: Setup) -> Self {
        let clock = JumpClock::fast(setup.speed);
        Self::beside(setup, Arc::new(FakeLlm::start().await), Stage::default(), clock).await
    }

    /// Another node on the same store, before the same people and model.
    pub(crate) async fn node(&self, setup: Setup) -> Self {
        let (llm, stage) = (Arc::clone(&self.llm), self.stage.clone());
        Self::beside(setup, llm, stage, self.clock.clone()).await
    }

    async fn beside(setup: Setup, llm: Arc<FakeLlm>, stage: Stage, clock: JumpClock) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (hand, said) = (Hand::default(), AtomicU64::new(0));
        let mut bot = Self { llm, stage, hand, clock, setup, dir, said, boot: None };
        bot.boot().await;
        bot
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn fifo(&self, name: &str) -> String {
        process::fifo(self.path(), name)
    }

    // ------------------------------------------------------------ boots

    /// Starts again where it was left.
    pub(crate) async fn boot(&mut self) -> Restored {
        let started = self.begin();
        patiently(self, "the start", started).await.unwrap().unwrap()
    }

    /// Starts, and gets no further than this.
    pub(crate) async fn boot_into(&mut self, trap: Trap) {
        let started = self.begin();
        tokio::select! {
            () = patiently(self, "a write of the start", trap.caught()) => {}
            _ = started => panic!("the start was not held"),
        }
    }

    fn begin(&mut self) -> JoinHandle<Result<Restored, RecoveryError>> {
        assert!(self.boot.is_none(), "it runs");
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let store: Arc<dyn Store> = match &self.setup.shared {
            Some(shared) => Arc::clone(shared),
            None => Arc::new(Sqlite::open(&self.store_settings()).unwrap()),
        };
        let raw = Arc::clone(&store);
        let store: Arc<dyn Store> = Arc::new(Tap::new(store, self.hand.clone()));
        let (tasks, exits) = (TaskTracker::new(), Arc::new(Exits::default()));
        let launcher = {
            let _inside = runtime.enter();
            Arc::new(self.launcher(&exits, &tasks))
        };
        let name = BootId::new(UlidIds.fresh()).unwrap();
        let posting = self.posting();
        let (at, channel) = ((name.clone(), Arc::clone(&store)), posting.clone());
        let engine = self.engine(at, Arc::clone(&launcher), channel);
        exits.bind(&engine);
        let showing = CancellationToken::new();
        if let Some(posting) = posting {
            let desk = Arc::new(FrontDesk(Arc::clone(&engine)));
            let shows = posting.stream(desk, showing.clone());
            let _inside = runtime.enter();
            tasks.spawn(shows);
        }
        let starting = Arc::clone(&engine);
        let started = runtime.spawn(async move { starting.start().await });
        self.boot = Some(Boot { name, runtime, engine, launcher, store, raw, tasks, showing });
        started
    }

    fn store_settings(&self) -> store::Settings {
        store::Settings { path: self.path().join("data/dogwatch.db") }
    }

    fn launcher(&self, exits: &Arc<Exits>, tasks: &TaskTracker) -> Watch {
        let redactor = self.redactor();
        let settings = watch::Settings {
            spool: self.path().join("spool"),
            program: env!("CARGO_BIN_EXE_dogwatch").into(),
            shim: self.setup.shim.clone(),
            python: self.setup.python.clone(),
            env: vec![("PATH".into(), "/usr/bin:/bin".into()), ("LANG".into(), "C.UTF-8".into())],
            redactor: Arc::new(move |text: &str| redactor.redact(text).into_owned()),
            timing: self.setup.timing,
            sandbox: self.setup.sandbox,
            network: self.setup.network.clone(),
        };
        // Time that was skipped is the ledger's: shims and sockets know only what passes.
        let clock: Arc<dyn Clock> = Arc::new(JumpClock::start());
        let sink: Arc<dyn ExitSink> = Arc::<Exits>::clone(exits);
        Watch::open(settings, &UlidIds, clock, sink, tasks.clone()).unwrap()
    }

    fn redactor(&self) -> Redactor {
        Redactor::new(self.setup.secrets.clone())
    }

    fn model(&self) -> OpenAi {
        // Another test of this process may have installed it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let base_url = self.setup.base_url.clone().unwrap_or_else(|| self.llm.base_url());
        let settings = openai::Settings {
            idle_ms: self.setup.idle_ms,
            header_ms: self.setup.header_ms,
            ..openai::Settings::new(base_url, "test-model")
        };
        OpenAi::new(settings, Arc::new(JumpClock::start())).unwrap()
    }

    fn posting(&self) -> Option<Arc<Posting>> {
        let slack = self.setup.slack.as_ref()?;
        Some(Arc::new(slack.posting(Arc::new(self.clock.clone()))))
    }

    fn engine(
        &self,
        (boot, store): (BootId, Arc<dyn Store>),
        launcher: Arc<Watch>,
        posting: Option<Arc<Posting>>,
    ) -> Arc<Engine> {
        let channel: Arc<dyn Channel> = Arc::new(self.stage.clone());
        let mut channels = HashMap::from([("console".to_owned(), channel)]);
        if let Some(posting) = posting {
            channels.insert("slack".to_owned(), posting);
        }
        let model: Arc<dyn Model> = Arc::new(self.model());
        let ports = Ports {
            store,
            clock: Arc::new(self.clock.clone()),
            ids: Arc::new(UlidIds),
            model,
            channels,
            launcher,
            redactor: Arc::new(self.redactor()),
        };
        let agent = Agent {
            name: "main".into(),
            instructions: "You are a test.".into(),
            wiring: Wiring {
                families: Family::ALL.to_vec(),
                role: self.setup.role,
                grace_ms: self.setup.grace_ms,
                sandboxed: self.setup.sandbox != Sandbox::Off,
                networked: !self.setup.reach.hosts.is_empty(),
            },
            reach: self.setup.reach.clone(),
            limits: self.setup.limits,
            allowance: self.setup.allowance,
        };
        let settings = Settings {
            boot,
            sole: self.setup.shared.is_none(),
            agents: agent.into(),
            grace_ms: self.setup.grace_ms,
            live_per_owner: self.setup.live_per_owner,
            turns_max: 64,
        };
        Engine::new(settings, ports)
    }

    /// Everything of this boot is gone, wherever it stood. Scripts live on.
    pub(crate) async fn crash(&mut self) {
        let Boot { runtime, engine, launcher, store, raw, tasks, .. } = self.boot.take().unwrap();
        let left: Weak<dyn Store> = Arc::downgrade(&store);
        let ended = tokio::task::spawn_blocking(move || {
            runtime.shutdown_timeout(PATIENCE);
            drop((engine, launcher, store, raw, tasks));
        });
        ended.await.unwrap();
        assert_eq!(left.strong_count(), 0, "something of the old boot lives");
    }

    /// Ends as it does on a signal.
    pub(crate) async fn shut_down(&mut self) {
        let boot = self.boot.as_ref().unwrap();
        let (engine, launcher) = (Arc::clone(&boot.engine), Arc::clone(&boot.launcher));
        let tasks = boot.tasks.clone();
        let showing = boot.showing.clone();
        let ending = boot.runtime.spawn(async move {
            showing.cancel();
            engine.shut_down().await;
            launcher.release();
            tasks.close();
            tasks.wait().await;
        });
        patiently(self, "the end", ending).await.unwrap();
        self.crash().await;
    }

    /// Looks after installations, as a bot with Slack does.
    pub(crate) fn attend_installations(&self) {
        // What it spawns ends with the boot.
        let _inside = self.running().runtime.enter();
        self.running().engine.attend_installations();
    }

    fn running(&self) -> &Boot {
        self.boot.as_ref().unwrap()
    }

    /// Is this the name of the boot that runs?
    pub(crate) fn is_boot(&self, boot: &BootId) -> bool {
        self.running().name == *boot
    }

    pub(crate) fn engine_now(&self) -> &Arc<Engine> {
        &self.running().engine
    }

    pub(crate) fn launcher_now(&self) -> &Arc<Watch> {
        &self.running().launcher
    }

    // ------------------------------------------------------------ people

    pub(crate) fn desk(&self) -> FrontDesk {
        FrontDesk(Arc::clone(&self.running().engine))
    }

    /// A person says something in the main chat.
    pub(crate) async fn say(&self, text: &str) {
        self.say_in("main", text).await;
    }

    /// A person says something in a chat.
    pub(crate) async fn say_in(&self, chat: &str, text: &str) {
        let no = self.said.fetch_add(1, Ordering::Relaxed);
        self.deliver(chat, &format!("said-{no}"), text).await.unwrap();
    }

    /// A message arrives, known by a key.
    pub(crate) async fn deliver(&self, chat: &str, key: &str, text: &str) -> Result<(), DeskError> {
        let address = ChatName::new(chat).unwrap().address();
        self.deliver_at((&session(chat), address), key, text).await
    }

    /// The same, anywhere.
    pub(crate) async fn deliver_at(
        &self,
        (session, address): (&SessionId, Address),
        key: &str,
        text: &str,
    ) -> Result<(), DeskError> {
        let incoming = Incoming {
            keys: vec![DedupeKey::new(key).unwrap()],
            what: What::Message { text: text.to_owned() },
            principal: principal(),
            address,
            source_at: self.clock.now(),
            continues: false,
            shared: false,
        };
        let desk = self.desk();
        patiently(self, "an accept", desk.accept(session, incoming)).await
    }

    /// A person cancels one execution.
    pub(crate) async fn cancel(&self, id: &str) -> Done {
        let press = PressId::new(UlidIds.fresh()).unwrap();
        let execution = ExecutionId::new(id).unwrap();
        self.command(Command::Cancel { execution, press }).await
    }

    /// A person stops the turn, or everything.
    pub(crate) async fn stop(&self, scope: Scope) -> Done {
        let stop = StopId::new(UlidIds.fresh()).unwrap();
        self.command(Command::Stop { scope, stop, said_at: None }).await
    }

    async fn command(&self, command: Command) -> Done {
        let (desk, session, by) = (self.desk(), session("main"), principal());
        let done = desk.command(&session, &by, command);
        patiently(self, "a command", done).await.unwrap()
    }

    /// What the main chat is doing.
    pub(crate) async fn view(&self) -> SessionView {
        self.view_of("main").await
    }

    /// What a chat is doing.
    pub(crate) async fn view_of(&self, chat: &str) -> SessionView {
        let (desk, session) = (self.desk(), session(chat));
        patiently(self, "a view", desk.view(&session)).await.unwrap()
    }

    // ------------------------------------------------------------ waiting

    /// Waits until something holds of what the main chat is doing.
    pub(crate) async fn until(&self, what: &str, is: impl Fn(&SessionView) -> bool) -> SessionView {
        let mut applies = self.hand.applies();
        let seen = async {
            loop {
                applies.mark_unchanged();
                let view = self.view().await;
                if is(&view) {
                    return view;
                }
                applies.changed().await.unwrap();
            }
        };
        patiently(self, what, seen).await
    }

    /// Waits until nothing is open, unread or unposted; what runs may run.
    pub(crate) async fn quiet(&self) -> SessionView {
        let quiet = |view: &SessionView| {
            view.turn.is_none() && view.people + view.notices + view.unposted == 0
        };
        self.until("quiet", quiet).await
    }

    /// Waits until everything that was started runs.
    pub(crate) async fn started(&self) {
        let runs = |view: &SessionView| view.live.iter().all(|one| one.started_at.is_some());
        self.until("a start", runs).await;
    }

    /// Waits until people can read so many posts.
    pub(crate) async fn posts(&self, count: usize) -> Vec<Post> {
        let posted = self.stage.posted_when(|all| all.len() >= count);
        patiently(self, &format!("post {count}"), posted).await
    }

    /// Waits for so many requests to the model.
    pub(crate) async fn asked(&self, count: usize) -> Vec<super::fake_llm::Seen> {
        patiently(self, &format!("request {count}"), self.llm.seen(count)).await
    }

    /// Waits for something else.
    pub(crate) async fn wait<T>(&self, what: &str, work: impl Future<Output = T>) -> T {
        patiently(self, what, work).await
    }

    /// Lets time pass, and everything that is due by then be found, but for what is forgotten.
    pub(crate) async fn pass(&self, ms: u64) {
        self.clock.jump(ms);
        let now = self.clock.now();
        let boot = self.running();
        let home = Home::Spool(boot.launcher.spool());
        let all = [Index::Ready, Index::Outbox, Index::Relay, Index::Due];
        for index in all.into_iter().chain([Index::Wish(home)]) {
            // An index where nothing is due is not read, and need not be.
            let due = boot.raw.members(&index, now.as_ms(), None, 1).await.unwrap();
            if !due.is_empty() {
                patiently(self, "a sweep", self.hand.read_up_to(now, &index)).await;
            }
        }
    }

    // ------------------------------------------------------------ the end

    /// The store of this boot.
    pub(super) fn store_now(&self) -> &dyn Store {
        &*self.running().store
    }

    /// Ends the bot: everything adds up, nothing was posted twice unmarked, no process stays.
    pub(crate) async fn finish(mut self) -> Balance {
        if self.boot.is_none() {
            self.boot().await;
        }
        let sum = self.balance().await;
        assert!(sum.is_even(), "{sum:?}\n{}", self.picture());
        let mut seen = BTreeSet::new();
        for post in self.stage.posted() {
            let first = seen.insert((post.session.clone(), post.item.clone()));
            assert!(first || post.may_repeat, "posted twice, unmarked: {post:?}");
        }
        self.shut_down().await;
        let zygotes = process::zygotes_of(self.path());
        for pid in process::processes_of(self.path()).into_iter().chain(zygotes) {
            assert!(process::ends(pid), "process {pid} stays: {}", process::name(pid));
        }
        sum
    }

    /// What a failed test shows.
    pub(crate) fn picture(&self) -> String {
        let posts: Vec<_> = self.stage.posted().into_iter().map(|post| post.text).collect();
        let requests = self.llm.seen_now();
        let last = requests.last().and_then(|seen| seen.body.get("messages"));
        format!(
            "posts: {posts:#?}\nshown: {:#?}\nrequests: {}, the last: {last:#?}",
            self.stage.shown(),
            requests.len()
        )
    }
}

impl Drop for Bot {
    fn drop(&mut self) {
        // Only after a failure: a runtime cannot wait for its end inside another one.
        if let Some(boot) = self.boot.take() {
            boot.runtime.shutdown_background();
        }
        for pid in process::processes_of(self.dir.path()) {
            process::signal(pid, Signal::KILL);
        }
    }
}

/// Whose messages the tests' are.
pub(crate) fn principal() -> Principal {
    Principal::new("local").unwrap()
}

/// The session of a chat.
pub(crate) fn session(chat: &str) -> SessionId {
    ChatName::new(chat).unwrap().session().unwrap()
}
