//! What the sandbox costs: the start of a script in it next to the same without and next to a bare
//! Python, and what waits beside each script while nothing happens.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dogwatch::core::execution::Outcome;
use dogwatch::core::id::{ExecutionId, SessionId};
use dogwatch::ports::{ExitSink, Launch, Launcher};
use dogwatch::store::UlidIds;
use dogwatch::watch::probe::Finding;
use dogwatch::watch::{Limits, NetworkSettings, Sandbox, Settings, Timing, Watch};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

use crate::bot;
use crate::figures::{Line, Pairs, median};

const ROUNDS: usize = 40;
/// What a script that does nothing comes to rest in, and its shim after it.
const SETTLE: Duration = Duration::from_secs(30);
/// What a script may take beyond Python, in KiB.
const BEYOND_KIB_MAX: f64 = 512.0;
/// What its start may take of processors beyond that of a bare Python, in milliseconds.
const BEYOND_CPU_MS_MAX: f64 = 4.0;

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
    spool: PathBuf,
    /// Stands for the ledger, which records a start before it says "go".
    record: File,
}

impl Launched {
    fn open(spool: &Path, sandbox: Sandbox) -> Self {
        let settings = Settings {
            spool: spool.to_owned(),
            program: env!("CARGO_BIN_EXE_dogwatch").into(),
            shim: env!("CARGO_BIN_EXE_dogwatch-shim").into(),
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
        let record = tempfile::tempfile_in(spool).unwrap();
        Self { watch, tasks, ends, count: 0, spool: spool.to_owned(), record }
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
        self.run_all().await.1
    }

    /// From its launch, and from "go", to its end in the bot. Between the two one line is brought to
    /// the disk, as the ledger does.
    async fn run_all(&mut self) -> (Duration, Duration) {
        let launched = Instant::now();
        let id = self.launch("pass").await;
        self.record.write_all(b"started").unwrap();
        self.record.sync_data().unwrap();
        let begun = Instant::now();
        self.watch.go(&bot::session("s0"), &id).await.unwrap();
        let outcome = self.ends.recv().await.unwrap();
        let took = begun.elapsed();
        assert_eq!(outcome.status.word(), "completed", "{outcome:?}");
        (launched.elapsed(), took)
    }

    /// What its shims are copies of, once there was one.
    fn zygote(&self) -> String {
        let place = self.spool.as_os_str().as_encoded_bytes();
        let is_its = |word: &[u8]| word.starts_with(place);
        let found = processes(|_, line| {
            let words: Vec<_> = line.split(|byte| *byte == 0).collect();
            words.get(1) == Some(&b"zygote".as_slice()) && words.iter().any(|word| is_its(word))
        });
        found.into_iter().next().expect("a zygote")
    }

    async fn close(self) {
        self.watch.release();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// A Python as a script has it, with nothing around it.
fn bare() -> Duration {
    let begun = Instant::now();
    let mut python = Command::new("/usr/bin/python3");
    python.args(["-I", "-B", "-X", "utf8", "-u", "-c", "pass"]).env_clear();
    assert!(python.status().unwrap().success());
    begun.elapsed()
}

/// What this process's children, and theirs, have used of processors, in milliseconds; those that
/// it has reaped, and the `zygote`, which it has not.
fn cpu_ms(zygote: &str) -> f64 {
    let used = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap();
    let reaped = (used.user_time() + used.system_time()).num_microseconds() as f64 / 1e3;
    reaped + ran_ns(zygote) as f64 / 1e6
}

/// Nanoseconds on a processor (`proc_pid_schedstat`).
fn ran_ns(pid: &str) -> u64 {
    number(&format!("/proc/{pid}/schedstat"), "")
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

async fn idle(spool: &Path, sandbox: Sandbox, live: usize, window: Duration) -> Vec<Line> {
    let mut some = Launched::open(spool, sandbox);
    let script = "import time\nprint('up')\ntime.sleep(500)";
    let mut ids = vec![];
    for _ in 0..live {
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
    // What stands over a script is a copy of its shim, and called like it.
    let both = processes(|_, line| line.windows(place.len()).any(|part| part == place));
    let parent = |pid: &String| number(&format!("/proc/{pid}/status"), "PPid:").to_string();
    let (firsts, shims): (Vec<_>, Vec<_>) =
        both.iter().cloned().partition(|pid| both.contains(&parent(pid)));
    let pss = |pids: &[String]| {
        let sum: u64 =
            pids.iter().map(|pid| number(&format!("/proc/{pid}/smaps_rollup"), "Pss:")).sum();
        sum as f64 / live as f64
    };
    let switches = || -> u64 {
        let one = |pid: &String| number(&format!("/proc/{pid}/status"), "voluntary_ctxt_switches:");
        shims.iter().chain(&firsts).map(one).sum()
    };
    let all_ran_ns = || -> u64 { shims.iter().chain(&firsts).map(|pid| ran_ns(pid)).sum() };
    tokio::time::sleep(SETTLE).await;
    let (before, ran_before, begun) = (switches(), all_ran_ns(), Instant::now());
    tokio::time::sleep(window).await;
    let all = begun.elapsed().as_secs_f64() * live as f64;
    let (woken, ran) =
        ((switches() - before) as f64 / all, (all_ran_ns() - ran_before) as f64 / all);
    let (of_shim, of_first) = (pss(&shims), pss(&firsts));
    let how = some.watch.sandbox().map(Finding::bounded).unwrap_or_default();
    let of = format!("{live} live, {:.0} s; {how}", window.as_secs_f64());
    let name = "sandbox";
    let lines = vec![
        Line::new(name, "memory (PSS) of a shim, KiB", of_shim),
        Line::new(name, "memory (PSS) of what stands over a script, KiB", of_first),
        Line::new(name, "both: what a script takes beyond Python, KiB", of_shim + of_first)
            .at_most(BEYOND_KIB_MAX),
        Line::new(name, "voluntary switches a second beside an idle script", woken)
            .at_most(2.0)
            .note(of),
        Line::new(name, "µs of a processor a second beside an idle script", ran / 1e3),
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

/// Launched, run and told next to a bare Python, in turns.
async fn started(within: &mut Launched) -> Vec<Line> {
    let (mut from_go, mut from_launch) = (Pairs::default(), Pairs::default());
    let (mut of_bare, mut of_held) = (vec![], vec![]);
    let zygote = within.zygote();
    for _ in 0..ROUNDS {
        let at = cpu_ms(&zygote);
        let reference = bare();
        let between = cpu_ms(&zygote);
        let (launched, run) = within.run_all().await;
        of_bare.push(between - at);
        of_held.push(cpu_ms(&zygote) - between);
        from_go.push(run, reference);
        from_launch.push(launched, reference);
    }
    let (of_bare, of_held) = (median(of_bare), median(of_held));
    let name = "sandbox";
    vec![
        Line::new(name, "go to end of a script, to a bare python3 -I", from_go.ratio())
            .at_most(1.5)
            .note(from_go.note()),
        Line::new(name, "launch to end of a script, to the same", from_launch.ratio())
            .note(from_launch.note()),
        Line::new(name, "processor time of that beyond bare Python, ms", of_held - of_bare)
            .at_most(BEYOND_CPU_MS_MAX)
            .note(format!("{of_held:.1} ms to {of_bare:.1} ms")),
    ]
}

pub(crate) async fn run(live: usize, idle_seconds: u64) -> Vec<Line> {
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
    let beside_python = started(&mut within).await;
    without.close().await;
    within.close().await;
    let what = format!("go to end of a script in {tier:?}, to the same without");
    let mut lines = vec![Line::new("sandbox", what, pairs.ratio()).at_most(1.5).note(pairs.note())];
    lines.extend(beside_python);
    let window = Duration::from_secs(idle_seconds);
    lines.extend(idle(&many.path().join("spool"), sandbox, live, window).await);
    lines
}
