//! What the sandbox costs: the start of a script in it next to the same without, and what waits
//! beside each script while nothing happens.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dogwatch::core::execution::Outcome;
use dogwatch::core::id::{ExecutionId, SessionId};
use dogwatch::ports::{ExitSink, Launch, Launcher};
use dogwatch::store::UlidIds;
use dogwatch::watch::{Limits, NetworkSettings, Sandbox, Settings, Timing, Watch};
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

use crate::bot;
use crate::figures::{Line, Pairs};

const ROUNDS: usize = 40;
const LIVE: usize = 40;
/// How long what idles is looked at.
const IDLE: Duration = Duration::from_secs(10);

struct Ear(mpsc::UnboundedSender<Outcome>);

impl ExitSink for Ear {
    fn exited(&self, _: SessionId, _: ExecutionId, outcome: Outcome) {
        let _bench_is_over = self.0.send(outcome);
    }
}

struct Launched {
    watch: Watch,
    tasks: TaskTracker,
    ends: mpsc::UnboundedReceiver<Outcome>,
    count: usize,
}

impl Launched {
    fn open(spool: &Path, sandbox: Sandbox) -> Self {
        let settings = Settings {
            spool: spool.to_owned(),
            program: env!("CARGO_BIN_EXE_dogwatch").into(),
            python: "/usr/bin/python3".into(),
            env: vec![],
            redactor: Arc::new(str::to_owned),
            timing: Timing::default(),
            sandbox,
            network: NetworkSettings::default(),
        };
        let (tell, ends) = mpsc::unbounded_channel();
        let tasks = TaskTracker::new();
        let sink = Arc::new(Ear(tell));
        let watch = Watch::open(settings, &UlidIds, bot::clock(), sink, tasks.clone()).unwrap();
        Self { watch, tasks, ends, count: 0 }
    }

    async fn launch(&mut self, python: &str) -> ExecutionId {
        self.count += 1;
        let execution = ExecutionId::new(format!("w{}", self.count)).unwrap();
        let launch = Launch {
            session: bot::session("s0"),
            execution: execution.clone(),
            python: python.to_owned(),
            timeout_ms: 600_000,
            grace_ms: 1_000,
            access: dogwatch::core::egress::Access::default(),
        };
        self.watch.launch(launch).await.unwrap();
        execution
    }

    /// From "go" to its end in the bot.
    async fn run(&mut self) -> Duration {
        let id = self.launch("pass").await;
        let begun = Instant::now();
        self.watch.go(&bot::session("s0"), &id).await.unwrap();
        let outcome = self.ends.recv().await.unwrap();
        let took = begun.elapsed();
        assert_eq!(outcome.status.word(), "completed", "{outcome:?}");
        took
    }

    async fn close(self) {
        self.watch.release();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// The number in the line of a file that begins so.
fn number(file: &str, begins: &str) -> u64 {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(begins));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Shims of a spool, or processes that these started.
fn processes(is: impl Fn(&str, &[u8]) -> bool) -> Vec<String> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let names = all.filter_map(|item| item.file_name().into_string().ok());
    let reads = |pid: &String| fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    names.filter(|pid| pid.parse::<u32>().is_ok() && is(pid, &reads(pid))).collect()
}

async fn idle(spool: &Path, sandbox: Sandbox) -> Vec<Line> {
    let mut some = Launched::open(spool, sandbox);
    let script = "import time\nprint('up')\ntime.sleep(500)";
    let mut ids = vec![];
    for _ in 0..LIVE {
        let id = some.launch(script).await;
        some.watch.go(&bot::session("s0"), &id).await.unwrap();
        ids.push(id);
    }
    for id in &ids {
        while some.watch.glance(&bot::session("s0"), id).await.unwrap().stdout.head != "up\n" {
            tokio::task::yield_now().await;
        }
    }
    let place = spool.as_os_str().as_encoded_bytes();
    let shims = processes(|_, line| line.windows(place.len()).any(|part| part == place));
    let firsts = processes(|pid, _| {
        let parent = number(&format!("/proc/{pid}/status"), "PPid:").to_string();
        shims.contains(&parent)
    });
    let pss = |pids: &[String]| {
        let sum: u64 =
            pids.iter().map(|pid| number(&format!("/proc/{pid}/smaps_rollup"), "Pss:")).sum();
        sum as f64 / LIVE as f64
    };
    let switches = || -> u64 {
        let one = |pid: &String| number(&format!("/proc/{pid}/status"), "voluntary_ctxt_switches:");
        shims.iter().chain(&firsts).map(one).sum()
    };
    let before = switches();
    tokio::time::sleep(IDLE).await;
    let each_second = (switches() - before) as f64 / IDLE.as_secs_f64() / LIVE as f64;
    let lines = vec![
        Line::new("sandbox", "memory (PSS) of a shim, KiB", pss(&shims)),
        Line::new("sandbox", "memory (PSS) of what stands over a script, KiB", pss(&firsts)),
        Line::new("sandbox", "voluntary switches a second beside an idle script", each_second)
            .at_most(2.0),
    ];
    for id in &ids {
        some.watch.kill(&bot::session("s0"), id).await.unwrap();
    }
    for _ in &ids {
        some.ends.recv().await.unwrap();
    }
    some.close().await;
    lines
}

pub(crate) async fn run() -> Vec<Line> {
    let (bare, held, many) = (bot::place(), bot::place(), bot::place());
    let sandbox = Sandbox::Required(Limits::default());
    let mut without = Launched::open(&bare.path().join("spool"), Sandbox::Off);
    let mut within = Launched::open(&held.path().join("spool"), sandbox);
    let tier = within.watch.sandbox().and_then(|found| found.tier).expect("a tier");
    let mut pairs = Pairs::default();
    for _ in 0..ROUNDS {
        let reference = without.run().await;
        pairs.push(within.run().await, reference);
    }
    without.close().await;
    within.close().await;
    let what = format!("go to end of a script in {tier:?}, to the same without");
    let mut lines = vec![Line::new("sandbox", what, pairs.ratio()).at_most(1.5).note(pairs.note())];
    lines.extend(idle(&many.path().join("spool"), sandbox).await);
    lines
}
