//! Several nodes in one process on one store: real engines, each in a runtime of its own so that a
//! crash is its end at whatever await it stood, over launchers and a model that a test leads.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dogwatch::console::chat::ChatName;
use dogwatch::core::arrival::{Incoming, What};
use dogwatch::core::budget::Limits;
use dogwatch::core::egress::Policy;
use dogwatch::core::execution::{Address, Execution};
use dogwatch::core::id::{BootId, DedupeKey, ExecutionId, SessionId};
use dogwatch::core::ledger::audit::{Balance, Snapshot};
use dogwatch::core::ledger::row::RowType;
use dogwatch::core::ledger::session::Allowance;
use dogwatch::core::ledger::{Aggregate, Change, Index, Key, Row, Write};
use dogwatch::core::limits::RENEW_MS;
use dogwatch::core::message::{Answer, Delta, Message, ModelError, Request};
use dogwatch::core::redact::Redactor;
use dogwatch::core::time::Timestamp;
use dogwatch::core::transcript::{Call, Finish, Usage};
use dogwatch::engine::desk::FrontDesk;
use dogwatch::engine::home::Exits;
use dogwatch::engine::{Agent, Engine, Ports, Restored, Settings};
use dogwatch::ports::{
    Applied, Channel, ChannelError, Clock, Desk, DeskError, ExitSink, Hint, Launcher, Loaded,
    Member, Model, Post, Progress, SessionView, Store, StoreError,
};
use dogwatch::store::UlidIds;
use dogwatch::tools::Wiring;
use futures_util::future::BoxFuture;
use tokio::runtime::Runtime;
use tokio::sync::{broadcast, watch};

use super::bot::{principal, session};
use super::jump_clock::JumpClock;
use super::rack::{Job, Rack};
use super::records;
use super::stage::Stage;

/// Fails a test that hangs; nothing waits for it.
const PATIENCE: Duration = Duration::from_mins(1);

/// How a node and its store get on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Open,
    /// Every call fails.
    Away,
    /// Every call waits: a process that stands still.
    Held,
}

/// What a node asked of the store.
#[derive(Debug, Clone, Default)]
pub(crate) struct Asked {
    pub(crate) loads: BTreeMap<String, u64>,
    pub(crate) applies: BTreeMap<String, u64>,
    /// Of the applies, those that write nothing but how far an item of the outbox is.
    pub(crate) relays: BTreeMap<String, u64>,
    pub(crate) reads: BTreeMap<Index, u64>,
    pub(crate) conflicts: u64,
}

/// Between one node and the store. A clone is the same; it outlives the boots.
#[derive(Clone)]
pub(crate) struct Wire {
    inner: Arc<Mutex<Arc<dyn Store>>>,
    way: watch::Sender<Way>,
    asked: watch::Sender<Asked>,
}

impl Wire {
    fn new(inner: Arc<dyn Store>) -> Self {
        let inner = Arc::new(Mutex::new(inner));
        Self { inner, way: watch::Sender::new(Way::Open), asked: watch::Sender::default() }
    }

    fn inner(&self) -> Arc<dyn Store> {
        Arc::clone(&self.inner.lock().unwrap())
    }

    pub(crate) fn set(&self, way: Way) {
        self.way.send_replace(way);
    }

    pub(crate) fn asked(&self) -> Asked {
        self.asked.borrow().clone()
    }

    /// Loads and applies of one chat so far, without what goes on beside it in the outbox.
    pub(crate) fn trips(&self, chat: &str) -> (u64, u64) {
        let of = Aggregate::Session(session(chat)).to_string();
        let asked = self.asked();
        let count = |all: &BTreeMap<String, u64>| all.get(&of).copied().unwrap_or_default();
        (count(&asked.loads), count(&asked.applies) - count(&asked.relays))
    }

    /// All applies so far.
    pub(crate) fn applies(&self) -> u64 {
        self.asked().applies.values().sum()
    }

    async fn pass(&self) -> Result<(), StoreError> {
        let mut way = self.way.subscribe();
        let way = *way.wait_for(|way| *way != Way::Held).await.unwrap();
        if way == Way::Away {
            return Err(StoreError::Away("taken away by the test".into()));
        }
        Ok(())
    }
}

impl Store for Wire {
    fn load<'a>(
        &'a self,
        aggregate: &'a Aggregate,
        keys: &'a [Key],
    ) -> BoxFuture<'a, Result<Loaded, StoreError>> {
        Box::pin(async move {
            self.pass().await?;
            self.asked.send_modify(|asked| {
                *asked.loads.entry(aggregate.to_string()).or_default() += 1;
            });
            self.inner().load(aggregate, keys).await
        })
    }

    fn apply(&self, change: Change) -> BoxFuture<'_, Result<Applied, StoreError>> {
        Box::pin(async move {
            let of = change.aggregate.to_string();
            let is_item = |write: &Write| matches!(write.row.as_deref(), Some(Row::Item(_)));
            let relay = change.writes.iter().all(is_item);
            self.asked.send_modify(|asked| {
                *asked.relays.entry(of.clone()).or_default() += u64::from(relay);
                *asked.applies.entry(of).or_default() += 1;
            });
            self.pass().await?;
            let applied = self.inner().apply(change).await;
            let conflict = applied == Ok(Applied::Conflict);
            self.asked.send_modify(|asked| asked.conflicts += u64::from(conflict));
            applied
        })
    }

    fn members<'a>(
        &'a self,
        index: &'a Index,
        until: u64,
        after: Option<&'a Member>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Member>, StoreError>> {
        Box::pin(async move {
            self.pass().await?;
            let members = self.inner().members(index, until, after, limit).await;
            self.asked.send_modify(|asked| *asked.reads.entry(index.clone()).or_default() += 1);
            members
        })
    }

    fn rows<'a>(
        &'a self,
        aggregate: &'a Aggregate,
        after: Option<&'a Key>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<(Key, Row)>, StoreError>> {
        Box::pin(async move { self.inner().rows(aggregate, after, limit).await })
    }

    fn aggregates<'a>(
        &'a self,
        after: Option<&'a Aggregate>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Aggregate>, StoreError>> {
        Box::pin(async move { self.inner().aggregates(after, limit).await })
    }

    fn wakes(&self) -> broadcast::Receiver<Hint> {
        self.inner().wakes()
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp, StoreError>> {
        Box::pin(async move {
            self.pass().await?;
            self.inner().now().await
        })
    }
}

/// What the model says.
pub(crate) enum Says {
    Text(String),
    /// It starts so many scripts.
    Starts(usize),
    /// Nothing, ever.
    Nothing,
    Fails(ModelError),
}

type Thoughts = Box<dyn Fn(&Request) -> Says + Send + Sync>;

/// A model that answers at once as the test thinks.
pub(crate) struct Mind {
    thinks: Mutex<Thoughts>,
    /// Answers come when this is open.
    gate: Mutex<watch::Receiver<bool>>,
    asked: watch::Sender<Vec<Request>>,
}

/// Starts as many scripts as a person says, else says a word.
pub(crate) fn plain(request: &Request) -> Says {
    let last = request.messages.iter().rev().find(|one| !matches!(one, Message::Instructions(_)));
    match last {
        Some(Message::Person(text)) => match text.strip_prefix("start ") {
            Some(count) => Says::Starts(count.parse().unwrap()),
            None => Says::Text(format!("heard {text}")),
        },
        _ => Says::Text("noted".into()),
    }
}

/// The notices in a request.
pub(crate) fn notices(request: &Request) -> usize {
    let texts = request.messages.iter().map(|message| match message {
        Message::Instructions(_) | Message::Model { .. } => "",
        Message::Person(text) | Message::Report(text) => text.as_str(),
        Message::Tool { content, .. } => content.as_str(),
    });
    texts.filter(|text| text.contains("[AUTO-NOTIFICATION]")).count()
}

impl Mind {
    pub(crate) fn thinks(&self, thoughts: impl Fn(&Request) -> Says + Send + Sync + 'static) {
        *self.thinks.lock().unwrap() = Box::new(thoughts);
    }

    /// Answers nobody until this is open.
    pub(crate) fn waits(&self, gate: watch::Receiver<bool>) {
        *self.gate.lock().unwrap() = gate;
    }

    pub(crate) fn requests(&self) -> usize {
        self.asked.borrow().len()
    }

    /// Waits for so many requests.
    pub(crate) async fn asked(&self, count: usize) -> Vec<Request> {
        let mut asked = self.asked.subscribe();
        asked.wait_for(|all| all.len() >= count).await.unwrap().clone()
    }
}

impl Model for Mind {
    fn call<'a>(
        &'a self,
        request: &'a Request,
        _: &'a mut (dyn FnMut(Delta) + Send),
    ) -> BoxFuture<'a, Result<Answer, ModelError>> {
        Box::pin(async move {
            let says = (self.thinks.lock().unwrap())(request);
            self.asked.send_modify(|all| all.push(request.clone()));
            let mut gate = self.gate.lock().unwrap().clone();
            // A gate whose keeper is gone stays as it was.
            if gate.wait_for(|open| *open).await.is_err() {
                std::future::pending::<()>().await;
            }
            let call = |no: usize| Call {
                id: format!("c{no}"),
                name: "trigger_and_auto_notify".into(),
                arguments: format!(
                    "{{\"name\":\"Job {no}\",\"python\":\"pass\",\"timeout_seconds\":3000}}"
                ),
            };
            let (text, calls) = match says {
                Says::Text(text) => (text, vec![]),
                Says::Starts(count) => (String::new(), (0..count).map(call).collect()),
                Says::Nothing => std::future::pending().await,
                Says::Fails(error) => return Err(error),
            };
            let finish = if calls.is_empty() { Finish::Stop } else { Finish::ToolCalls };
            Ok(Answer { text, calls, finish, usage: Usage::default() })
        })
    }
}

/// A stage that some nodes can reach, and some not.
struct Hall {
    stage: Stage,
    reaches: watch::Sender<bool>,
}

impl Channel for Hall {
    fn post(&self, post: Post) -> BoxFuture<'_, Result<String, ChannelError>> {
        assert!(*self.reaches.borrow(), "posted where nobody reads: {post:?}");
        self.stage.post(post)
    }

    fn reaches(&self, _: &Address) -> bool {
        *self.reaches.borrow()
    }

    fn progress(&self, session: &SessionId, address: &Address, progress: Progress) {
        self.stage.progress(session, address, progress);
    }
}

struct Boot {
    runtime: Runtime,
    engine: Arc<Engine>,
}

/// One host, over all its boots.
pub(crate) struct Node {
    pub(crate) rack: Rack,
    pub(crate) wire: Wire,
    /// Whether people read here.
    pub(crate) reaches: watch::Sender<bool>,
    /// Its own clock.
    pub(crate) clock: Arc<dyn Clock>,
    boot: Option<Boot>,
}

impl Node {
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.boot.as_ref().unwrap().engine
    }

    pub(crate) fn is_up(&self) -> bool {
        self.boot.is_some()
    }

    fn works(&self) -> bool {
        self.is_up() && *self.wire.way.borrow() == Way::Open
    }
}

/// Connects to the store.
pub(crate) type Connect = Box<dyn Fn() -> Arc<dyn Store> + Send + Sync>;

pub(crate) struct Cluster {
    pub(crate) clock: JumpClock,
    connect: Connect,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) mind: Arc<Mind>,
    pub(crate) stage: Stage,
    pub(crate) nodes: Vec<Node>,
}

async fn patiently<T>(what: &str, work: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(PATIENCE, work).await;
    done.unwrap_or_else(|_elapsed| panic!("{what} does not happen"))
}

impl Cluster {
    /// So many nodes on the store that this connects to.
    pub(crate) async fn over(connect: Connect, clock: JumpClock, count: usize) -> Self {
        let store = connect();
        let mind = Arc::new(Mind {
            thinks: Mutex::new(Box::new(plain)),
            gate: Mutex::new(watch::channel(true).1),
            asked: watch::Sender::default(),
        });
        let stage = Stage::default();
        let mut cluster = Self { clock, connect, store, mind, stage, nodes: vec![] };
        for _ in 0..count {
            let clock = Arc::new(cluster.clock.clone());
            cluster.add(clock).await;
        }
        cluster
    }

    /// One more node, with this clock.
    pub(crate) async fn add(&mut self, clock: Arc<dyn Clock>) {
        let no = self.nodes.len();
        let node = Node {
            rack: Rack::new(&format!("spool-{no}")),
            wire: Wire::new(Arc::clone(&self.store)),
            reaches: watch::Sender::new(true),
            clock,
            boot: None,
        };
        self.nodes.push(node);
        self.boot(no).await;
    }

    // ------------------------------------------------------------ boots

    pub(crate) async fn boot(&mut self, no: usize) -> Restored {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let node = &mut self.nodes[no];
        assert!(node.boot.is_none(), "it runs");
        {
            // Its connections end with it.
            let _inside = runtime.enter();
            *node.wire.inner.lock().unwrap() = (self.connect)();
        }
        let exits = Arc::new(Exits::default());
        let hall = Hall { stage: self.stage.clone(), reaches: node.reaches.clone() };
        let channel: Arc<dyn Channel> = Arc::new(hall);
        let launcher: Arc<dyn Launcher> = Arc::new(node.rack.clone());
        let ports = Ports {
            store: Arc::new(node.wire.clone()),
            clock: Arc::clone(&node.clock),
            ids: Arc::new(UlidIds),
            model: Arc::<Mind>::clone(&self.mind),
            channels: HashMap::from([("console".to_owned(), channel)]),
            launcher,
            redactor: Arc::new(Redactor::new(vec![])),
        };
        let agent = Agent {
            name: "main".into(),
            instructions: "You are a test.".into(),
            wiring: Wiring::all(),
            reach: Policy::default(),
            limits: Limits::default(),
            allowance: Allowance::default(),
        };
        let boot = BootId::new(dogwatch::ports::Ids::fresh(&UlidIds)).unwrap();
        let settings = Settings {
            boot,
            sole: false,
            agents: agent.into(),
            grace_ms: 1_000,
            // One person starts all of them.
            live_per_owner: u32::MAX,
            turns_max: 64,
        };
        let engine = Engine::new(settings, ports);
        exits.bind(&engine);
        let sink: Arc<dyn ExitSink> = exits;
        node.rack.tell(sink, runtime.handle().clone());
        let starting = Arc::clone(&engine);
        let started = runtime.spawn(async move { starting.start().await });
        let restored = patiently("a start", started).await.unwrap().unwrap();
        self.nodes[no].boot = Some(Boot { runtime, engine });
        restored
    }

    /// The process is gone, wherever it stood. What it had started runs on.
    pub(crate) async fn crash(&mut self, no: usize) {
        let boot = self.nodes[no].boot.take().unwrap();
        self.nodes[no].rack.deserted();
        let ended = tokio::task::spawn_blocking(move || {
            boot.runtime.shutdown_timeout(PATIENCE);
            drop(boot.engine);
        });
        patiently("an end", ended).await.unwrap();
    }

    /// Ends as on a signal.
    pub(crate) async fn shut_down(&mut self, no: usize) {
        let boot = self.nodes[no].boot.as_ref().unwrap();
        let engine = Arc::clone(&boot.engine);
        let ending = boot.runtime.spawn(async move { engine.shut_down().await });
        patiently("a graceful end", ending).await.unwrap();
        self.crash(no).await;
    }

    // ------------------------------------------------------------ people

    /// A message arrives at a node, known by a key.
    pub(crate) async fn deliver(
        &self,
        no: usize,
        chat: &str,
        key: &str,
        text: &str,
    ) -> Result<(), DeskError> {
        let incoming = Incoming {
            keys: vec![DedupeKey::new(key).unwrap()],
            what: What::Message { text: text.to_owned() },
            principal: principal(),
            address: ChatName::new(chat).unwrap().address(),
            source_at: self.clock.now(),
            continues: false,
            shared: false,
        };
        let desk = FrontDesk(Arc::clone(self.nodes[no].engine()));
        let chat = session(chat);
        // In the runtime of the node: what it starts ends with it.
        let handle = self.nodes[no].boot.as_ref().unwrap().runtime.handle().clone();
        let taking = handle.spawn(async move { desk.accept(&chat, incoming).await });
        patiently("an accept", taking).await.unwrap()
    }

    pub(crate) async fn say(&self, no: usize, chat: &str, text: &str) {
        let key = dogwatch::ports::Ids::fresh(&UlidIds);
        self.deliver(no, chat, &key, text).await.unwrap();
    }

    /// What a chat is doing, as a node sees it.
    pub(crate) async fn view(&self, no: usize, chat: &str) -> SessionView {
        let desk = FrontDesk(Arc::clone(self.nodes[no].engine()));
        patiently("a view", desk.view(&session(chat))).await.unwrap()
    }

    // ------------------------------------------------------------ waiting

    pub(crate) async fn wait<T>(&self, what: &str, work: impl Future<Output = T>) -> T {
        patiently(what, work).await
    }

    /// Waits until something holds of the rows of a chat.
    pub(crate) async fn until(&self, what: &str, chat: &str, is: impl Fn(&Snapshot) -> bool) {
        let mut hints = self.store.wakes();
        let seen = async {
            loop {
                let rows = self.rows(chat).await;
                if is(&rows) {
                    return;
                }
                // A hint, or a little: not every write makes one.
                let _either = tokio::time::timeout(Duration::from_millis(20), hints.recv()).await;
            }
        };
        patiently(what, seen).await;
    }

    pub(crate) async fn rows(&self, chat: &str) -> Snapshot {
        records::snapshot(&*self.store, &Aggregate::Session(session(chat))).await
    }

    /// All executions of a chat.
    pub(crate) async fn executions(&self, chat: &str) -> Vec<Execution> {
        self.rows(chat).await.values().filter_map(Execution::of).cloned().collect()
    }

    pub(crate) async fn execution(&self, chat: &str, id: &ExecutionId) -> Execution {
        let rows = self.rows(chat).await;
        rows.get(&Key::execution(id)).and_then(Execution::of).unwrap().clone()
    }

    /// Waits until something holds of the first execution of a chat.
    pub(crate) async fn until_first(
        &self,
        what: &str,
        chat: &str,
        is: impl Fn(&Execution) -> bool,
    ) {
        self.until(what, chat, |rows| rows.values().find_map(Execution::of).is_some_and(&is)).await;
    }

    /// Time passes, beat by beat; each node that works has beaten and looked at the others.
    pub(crate) async fn pass(&self, ms: u64) {
        let reads = |node: &Node| node.wire.asked().reads.get(&Index::Nodes).copied().unwrap_or(0);
        for _ in 0..ms.div_ceil(RENEW_MS) {
            let before: Vec<u64> = self.nodes.iter().map(reads).collect();
            self.clock.jump(RENEW_MS + 1);
            for (node, before) in self.nodes.iter().zip(before).filter(|(node, _)| node.works()) {
                let mut asked = node.wire.asked.subscribe();
                let looked = asked.wait_for(|asked| {
                    asked.reads.get(&Index::Nodes).is_some_and(|now| *now > before)
                });
                patiently("a look at the nodes", looked).await.unwrap();
            }
        }
    }

    /// Waits until no script waits for "go": the ledger calls one running a moment before it does.
    pub(crate) async fn all_run(&self) {
        for node in &self.nodes {
            node.rack.until(|jobs| !jobs.values().any(|job| *job == Job::Waits)).await;
        }
    }

    /// Waits until nothing is open, unread or unposted in these chats.
    pub(crate) async fn quiet(&self, chats: &[String]) {
        use dogwatch::core::ledger::row::{Head, Inbox, Tails};
        for chat in chats {
            self.until("quiet", chat, |rows| {
                let head = rows.get(&Key::head()).and_then(Head::of);
                let inbox = rows.get(&Key::inbox()).and_then(Inbox::of);
                let tails = rows.get(&Key::tails()).and_then(Tails::of);
                head.is_some_and(|head| head.open.is_none())
                    && inbox.is_none_or(|one| one.people.is_empty() && one.notices.is_empty())
                    && tails.is_none_or(|tails| tails.0.is_empty())
            })
            .await;
        }
    }

    // ------------------------------------------------------------ the end

    pub(crate) async fn balance(&self) -> Balance {
        records::balance(&*self.store).await
    }

    /// Everything adds up, and nothing was posted twice unmarked.
    pub(crate) async fn finish(mut self) -> Balance {
        let sum = self.balance().await;
        assert!(sum.is_even(), "{sum:?}");
        let mut seen = std::collections::BTreeSet::new();
        for post in self.stage.posted() {
            let first = seen.insert((post.session.clone(), post.item.clone()));
            assert!(first || post.may_repeat, "posted twice, unmarked: {post:?}");
        }
        for no in 0..self.nodes.len() {
            if self.nodes[no].is_up() {
                self.nodes[no].wire.set(Way::Open);
                self.shut_down(no).await;
            }
        }
        sum
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Only after a failure: a runtime cannot wait for its end inside another one.
        for node in &mut self.nodes {
            if let Some(boot) = node.boot.take() {
                boot.runtime.shutdown_background();
            }
        }
    }
}
