//! A launcher on a spool of its own, and what its tests ask of the system.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dogwatch::core::egress::Access;
use dogwatch::core::execution::Outcome;
use dogwatch::core::id::{ExecutionId, SessionId};
use dogwatch::core::time::Timestamp;
use dogwatch::ports::{Clock, ExitSink, Ids, Launch, Launcher, SpoolEntry};
use dogwatch::watch::{NetworkSettings, Sandbox, Settings, SpoolError, Timing, Watch};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use nix::time::ClockId;
use rustix::process::Signal;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

use crate::support::process::{self, name};
pub(crate) use crate::support::process::{ends, is_alive, pids, said, signal};

/// Fails a test that hangs; nothing waits for it.
const TOO_LONG: Duration = Duration::from_mins(1);

pub(crate) struct TestClock {
    pub(crate) ahead_ms: AtomicU64,
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        let now = Duration::from(ClockId::CLOCK_REALTIME.now().unwrap());
        let ms = u64::try_from(now.as_millis()).unwrap();
        Timestamp::from_ms(ms.wrapping_add(self.ahead_ms.load(Ordering::Relaxed)))
    }

    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        tokio::time::sleep(Duration::from_millis(at.since_ms(self.now()) + 1)).boxed()
    }
}

struct TestIds;

impl Ids for TestIds {
    fn fresh(&self) -> String {
        ulid::Ulid::generate().to_string()
    }
}

type End = (SessionId, ExecutionId, Outcome);

struct TestSink(mpsc::UnboundedSender<End>);

impl ExitSink for TestSink {
    fn exited(&self, session: SessionId, execution: ExecutionId, outcome: Outcome) {
        let _test_is_over = self.0.send((session, execution, outcome));
    }
}

pub(crate) struct Bench {
    dir: PathBuf,
    /// Removes the directory with the bench.
    own: Option<tempfile::TempDir>,
    pub(crate) clock: Arc<TestClock>,
    ends: mpsc::UnboundedReceiver<End>,
    sink: Arc<TestSink>,
    tasks: TaskTracker,
    watch: Option<Watch>,
    settings: fn(&Path) -> Settings,
}

pub(crate) fn settings(dir: &Path) -> Settings {
    Settings {
        spool: dir.join("spool"),
        program: PathBuf::from(env!("CARGO_BIN_EXE_dogwatch")),
        shim: env!("CARGO_BIN_EXE_dogwatch-shim").into(),
        python: PathBuf::from("/usr/bin/python3"),
        env: [("PATH", "/usr/bin:/bin"), ("LANG", "C.UTF-8"), ("SLACK_BOT_TOKEN", "xoxb-1")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec(),
        redactor: Arc::new(|text| text.replace("hunter2", "[redacted]")),
        timing: Timing::default(),
        sandbox: Sandbox::Off,
        network: NetworkSettings::default(),
    }
}

/// Checks so often that a test need not wait for it.
pub(crate) fn impatient(dir: &Path) -> Settings {
    let timing = Timing { check_ms: 50, answer_ms: 150, ..Timing::default() };
    Settings { timing, ..settings(dir) }
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with(settings)
    }

    pub(crate) fn with(settings: fn(&Path) -> Settings) -> Self {
        let own = tempfile::tempdir().unwrap();
        let mut bench = Self::made(own.path(), settings);
        bench.own = Some(own);
        bench
    }

    /// In a directory of somebody else.
    pub(crate) fn in_directory(dir: &Path) -> Self {
        Self::made(dir, settings)
    }

    /// In a directory of somebody else.
    pub(crate) fn made(dir: &Path, settings: fn(&Path) -> Settings) -> Self {
        let (send, ends) = mpsc::unbounded_channel();
        let mut bench = Self {
            dir: dir.to_owned(),
            own: None,
            clock: Arc::new(TestClock { ahead_ms: AtomicU64::new(0) }),
            ends,
            sink: Arc::new(TestSink(send)),
            tasks: TaskTracker::new(),
            watch: None,
            settings,
        };
        bench.open().unwrap();
        bench
    }

    /// A bot starts on the spool.
    pub(crate) fn open(&mut self) -> Result<(), SpoolError> {
        self.tasks = TaskTracker::new();
        let clock = Arc::clone(&self.clock);
        let sink = Arc::clone(&self.sink);
        let settings = (self.settings)(&self.dir);
        self.watch = Some(Watch::open(settings, &TestIds, clock, sink, self.tasks.clone())?);
        Ok(())
    }

    /// The bot is gone; its shims are not.
    pub(crate) async fn crash(&mut self) {
        self.watch = None;
        self.tasks.close();
        self.tasks.wait().await;
    }

    pub(crate) fn watch(&self) -> &Watch {
        self.watch.as_ref().unwrap()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.dir
    }

    /// The one directory of an execution in the spool.
    pub(crate) fn entry(&self) -> PathBuf {
        let mut all = fs::read_dir(self.dir.join("spool/e")).unwrap();
        let first = all.next().unwrap().unwrap().path();
        assert!(all.next().is_none());
        first
    }

    pub(crate) async fn adopt(&self) -> Vec<SpoolEntry> {
        self.watch().adopt().await.unwrap()
    }

    pub(crate) async fn launch(&self, id: &str, python: &str, timeout_ms: u64) -> ExecutionId {
        let launch = launch(id, python, timeout_ms);
        let id = launch.execution.clone();
        self.watch().launch(launch).await.unwrap();
        id
    }

    pub(crate) async fn start(&self, id: &str, python: &str, timeout_ms: u64) -> ExecutionId {
        self.start_as(launch(id, python, timeout_ms)).await
    }

    /// One that has, after TERM, as long as a busy machine may need.
    pub(crate) async fn start_gently(
        &self,
        id: &str,
        python: &str,
        timeout_ms: u64,
    ) -> ExecutionId {
        self.start_as(Launch { grace_ms: 60_000, ..launch(id, python, timeout_ms) }).await
    }

    pub(super) async fn start_as(&self, launch: Launch) -> ExecutionId {
        let id = launch.execution.clone();
        self.watch().launch(launch).await.unwrap();
        self.watch().go(&session(), &id).await.unwrap();
        id
    }

    /// The next end that is reported.
    pub(crate) async fn end(&mut self) -> (ExecutionId, Outcome) {
        let end = tokio::time::timeout(TOO_LONG, self.ends.recv()).await;
        let (_, execution, outcome) = end.expect("no end is reported").unwrap();
        (execution, outcome)
    }

    /// Runs a script to its end.
    pub(crate) async fn run(&mut self, python: &str, timeout_ms: u64) -> Outcome {
        let id = self.start("w", python, timeout_ms).await;
        let (ended, outcome) = self.end().await;
        assert_eq!(ended, id);
        outcome
    }

    /// A path on which a script can say something, once: `open(PATH, "w").write(…)`.
    pub(crate) fn fifo(&self, name: &str) -> String {
        process::fifo(&self.dir, name)
    }

    /// Processes that belong to this spool.
    pub(crate) fn processes(&self) -> Vec<i32> {
        process::processes_of(&self.dir)
    }

    /// Lets the bot go, waits for what is just ending and fails if anything stays.
    pub(crate) async fn nothing_is_left(&mut self) {
        self.crash().await;
        for pid in self.processes().into_iter().chain(process::zygotes_of(&self.dir)) {
            assert!(ends(pid), "process {pid} stays: {}", name(pid));
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        for pid in self.processes().into_iter().chain(process::zygotes_of(&self.dir)) {
            signal(pid, Signal::KILL);
        }
        // Control groups outlive a test that failed.
        let entries = fs::read_dir(self.dir.join("spool/e")).into_iter().flatten().flatten();
        let named = entries.filter_map(|entry| fs::read(entry.path().join("spec.json")).ok());
        for group in named.filter_map(|text| serde_json::from_slice::<Value>(&text).ok()) {
            for dir in group.pointer("/group/dirs").and_then(Value::as_array).into_iter().flatten()
            {
                let _gone = dir.as_str().map(fs::remove_dir);
            }
        }
    }
}

pub(crate) fn session() -> SessionId {
    SessionId::new("console/main").unwrap()
}

pub(crate) fn launch(id: &str, python: &str, timeout_ms: u64) -> Launch {
    Launch {
        session: session(),
        execution: ExecutionId::new(id).unwrap(),
        python: python.to_owned(),
        timeout_ms,
        grace_ms: 300,
        access: Access::default(),
    }
}
