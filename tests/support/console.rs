//! A desk that remembers what it was told, and a talk over pipes.

use std::collections::BTreeMap;
use std::io::{self, PipeWriter, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dogwatch::console::{self, AtEnd, ChatName, Console, End, Mode, Reach, Settings};
use dogwatch::core::arrival::Incoming;
use dogwatch::core::egress::Access;
use dogwatch::core::execution::{
    Execution, Home, HumanReceipt, Kind, ModelReceipt, Notify, Outcome, PostSort, State, Status,
};
use dogwatch::core::id::{BootId, ExecutionId, ItemId, Principal, SessionId};
use dogwatch::core::time::Timestamp;
use dogwatch::ports::{
    Channel, Clock, Command, Desk, DeskError, Done, Glance, Ids, Post, Progress, SessionView,
};
use futures_util::future::{BoxFuture, FutureExt};
use serde_json::Value;
use tokio::sync::{broadcast, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Longer than anything here takes; a test that waits so long fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn chat(name: &str) -> ChatName {
    ChatName::new(name).unwrap()
}

pub(crate) fn session(name: &str) -> SessionId {
    chat(name).session().unwrap()
}

/// Nothing is going on.
pub(crate) fn idle() -> SessionView {
    SessionView {
        turn: None,
        people: 0,
        notices: 0,
        stopped: false,
        not_before: None,
        live: Vec::new(),
        ended: Vec::new(),
        unposted: 0,
        shown: std::collections::BTreeMap::new(),
    }
}

/// What a desk was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Told {
    Accepted(SessionId, Incoming),
    Commanded(SessionId, Principal, Command),
}

/// A desk without an engine behind it.
pub(crate) struct FakeDesk {
    pub(crate) views: Mutex<BTreeMap<SessionId, SessionView>>,
    pub(crate) glances: Mutex<BTreeMap<ExecutionId, Glance>>,
    /// Answers to come, the first first; then everything is taken.
    pub(crate) refusals: Mutex<Vec<DeskError>>,
    pub(crate) done: Mutex<Done>,
    pub(crate) stirs: broadcast::Sender<SessionId>,
    told: mpsc::UnboundedSender<Told>,
}

impl FakeDesk {
    pub(crate) fn new() -> (Arc<Self>, mpsc::UnboundedReceiver<Told>) {
        let (told, hear) = mpsc::unbounded_channel();
        let desk = Self {
            views: Mutex::default(),
            glances: Mutex::default(),
            refusals: Mutex::default(),
            done: Mutex::new(Done::Cancelling),
            stirs: broadcast::Sender::new(16),
            told,
        };
        (Arc::new(desk), hear)
    }

    pub(crate) fn show(&self, name: &str, view: SessionView) {
        self.views.lock().unwrap().insert(session(name), view);
    }
}

impl Desk for FakeDesk {
    fn accept<'a>(
        &'a self,
        session: &'a SessionId,
        incoming: Incoming,
    ) -> BoxFuture<'a, Result<(), DeskError>> {
        let _ = self.told.send(Told::Accepted(session.clone(), incoming));
        let mut refusals = self.refusals.lock().unwrap();
        let answer = if refusals.is_empty() { Ok(()) } else { Err(refusals.remove(0)) };
        async move { answer }.boxed()
    }

    fn command<'a>(
        &'a self,
        session: &'a SessionId,
        by: &'a Principal,
        command: Command,
    ) -> BoxFuture<'a, Result<Done, DeskError>> {
        let _ = self.told.send(Told::Commanded(session.clone(), by.clone(), command));
        let done = self.done.lock().unwrap().clone();
        async move { Ok(done) }.boxed()
    }

    fn view<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<SessionView, DeskError>> {
        let view = self.views.lock().unwrap().get(session).cloned().unwrap_or_else(idle);
        async move { Ok(view) }.boxed()
    }

    fn stirs(&self) -> broadcast::Receiver<SessionId> {
        self.stirs.subscribe()
    }

    fn glance<'a>(
        &'a self,
        _session: &'a SessionId,
        execution: &'a ExecutionId,
    ) -> BoxFuture<'a, Option<Glance>> {
        let glance = self.glances.lock().unwrap().get(execution).cloned();
        async move { glance }.boxed()
    }
}

/// Time from zero, by the runtime's clock (which a test may hold).
pub(crate) struct RuntimeClock(tokio::time::Instant);

impl RuntimeClock {
    pub(crate) fn start() -> Self {
        Self(tokio::time::Instant::now())
    }
}

impl Clock for RuntimeClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_ms(self.0.elapsed().as_millis().try_into().unwrap())
    }

    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        tokio::time::sleep_until(self.0 + Duration::from_millis(at.as_ms())).boxed()
    }
}

/// `id-1`, `id-2`, …
#[derive(Default)]
pub(crate) struct CountingIds(Mutex<u64>);

impl Ids for CountingIds {
    fn fresh(&self) -> String {
        let mut last = self.0.lock().unwrap();
        *last += 1;
        format!("id-{last}")
    }
}

pub(crate) fn execution(id: &str, name: &str, state: State) -> Execution {
    Execution {
        id: ExecutionId::new(id).unwrap(),
        kind: Kind::Script,
        name: name.to_owned(),
        turn: 1,
        call: (1, 0),
        owner: Principal::new("local").unwrap(),
        generation: 0,
        chain: 1,
        address: chat("main").address(),
        home: Home::Process(BootId::new("b").unwrap()),
        boot: BootId::new("b").unwrap(),
        notify: Notify::Agent,
        key: None,
        timeout_ms: 300_000,
        state,
        cancel: None,
        registered_at: Timestamp::ZERO,
        started_at: Some(Timestamp::ZERO),
        ended_at: None,
        due_at: Timestamp::ZERO,
        unattended: false,
        model: ModelReceipt::None,
        human: HumanReceipt::None,
        late: Vec::new(),
        shown: false,
        shared: false,
        access: Access::default(),
    }
}

pub(crate) fn over(id: &str, name: &str, status: Status) -> Execution {
    let mut outcome = Outcome::bare(status, "because");
    outcome.elapsed_ms = 2_300;
    execution(id, name, State::Ended(outcome))
}

pub(crate) fn post(name: &str, item: &str, text: &str, sort: PostSort) -> Post {
    Post {
        item: ItemId::new(item).unwrap(),
        session: session(name),
        address: chat(name).address(),
        text: text.to_owned(),
        sort,
        may_repeat: false,
        surface: None,
    }
}

/// Hands written lines over.
struct Written {
    lines: mpsc::UnboundedSender<String>,
    part: Vec<u8>,
}

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for byte in bytes {
            if *byte == b'\n' {
                let line = String::from_utf8(std::mem::take(&mut self.part)).unwrap();
                self.lines.send(line).map_err(|_| io::ErrorKind::BrokenPipe)?;
            } else {
                self.part.push(*byte);
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A talk over pipes.
pub(crate) struct Bench {
    pub(crate) console: Arc<Console>,
    pub(crate) desk: Arc<FakeDesk>,
    pub(crate) told: mpsc::UnboundedReceiver<Told>,
    pub(crate) stopped: CancellationToken,
    typed: Option<PipeWriter>,
    shown: mpsc::UnboundedReceiver<String>,
    end: tokio::task::JoinHandle<End>,
}

pub(crate) fn settings(mode: Mode) -> Settings {
    Settings {
        principal: Principal::new("local").unwrap(),
        chat: chat("main"),
        mode,
        colour: false,
        history: None,
        at_end: AtEnd::Answered { ms_max: 60_000 },
        banner: vec!["the model is a script".to_owned()],
        attached: false,
    }
}

impl Bench {
    pub(crate) fn start(settings: Settings) -> Self {
        let (desk, told) = FakeDesk::new();
        Self::with(settings, desk, told)
    }

    pub(crate) fn with(
        settings: Settings,
        desk: Arc<FakeDesk>,
        told: mpsc::UnboundedReceiver<Told>,
    ) -> Self {
        let (console, seat) = console::open(settings);
        let stopped = CancellationToken::new();
        let reach = Reach {
            desk: desk.clone(),
            clock: Arc::new(RuntimeClock::start()),
            ids: Arc::new(CountingIds::default()),
            stopped: stopped.clone(),
        };
        let (input, typed) = io::pipe().unwrap();
        let (lines, shown) = mpsc::unbounded_channel();
        let output = Written { lines, part: Vec::new() };
        let end = TaskTracker::new().spawn(async move {
            console::run_pipe(seat, reach, Box::new(input), Box::new(output)).await.unwrap()
        });
        Self { console, desk, told, stopped, typed: Some(typed), shown, end }
    }

    pub(crate) fn type_line(&mut self, line: &str) {
        let typed = self.typed.as_mut().expect("the input is open");
        writeln!(typed, "{line}").unwrap();
    }

    pub(crate) async fn line(&mut self) -> String {
        tokio::time::timeout(PATIENCE, self.shown.recv()).await.expect("a line").expect("open")
    }

    /// The next event of this kind; others before it are dropped.
    pub(crate) async fn event(&mut self, kind: &str) -> Value {
        loop {
            let line = self.line().await;
            let event: Value = serde_json::from_str(&line).expect("a JSON object a line");
            if event["event"] == kind {
                return event;
            }
        }
    }

    pub(crate) async fn heard(&mut self) -> Told {
        tokio::time::timeout(PATIENCE, self.told.recv()).await.expect("told").expect("open")
    }

    pub(crate) async fn post(&self, post: Post) -> String {
        tokio::time::timeout(PATIENCE, self.console.post(post)).await.expect("posted").unwrap()
    }

    pub(crate) fn progress(&self, name: &str, progress: Progress) {
        self.console.progress(&session(name), &chat(name).address(), progress);
    }

    /// Closes the input.
    pub(crate) fn close(&mut self) {
        self.typed = None;
    }

    /// How it ended, and what was shown that nobody looked at.
    pub(crate) async fn end(mut self) -> (End, Vec<String>) {
        let end = tokio::time::timeout(PATIENCE, &mut self.end).await.expect("an end").unwrap();
        let mut rest = Vec::new();
        while let Some(line) = self.shown.recv().await {
            rest.push(line);
        }
        (end, rest)
    }
}
