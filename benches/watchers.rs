//! Many live watchers: what they cost in memory, and whether anything wakes while nothing happens.
//! The real program, its real shims and scripts; next to a bare process of the same runtime.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::bot;
use crate::fake_llm::{FakeLlm, Reply};
use crate::figures::Line;

/// The argument that makes this program a bare process.
pub(crate) const BARE: &str = "bare";
const LIVE_PER_CHAT: usize = 50;
const CALLS_PER_ANSWER: usize = 25;
/// What the last event leaves behind is over then: one more look after a sweep, and the threads that
/// did blocking work.
const SETTLE: Duration = Duration::from_secs(20);
const PATIENCE: Duration = Duration::from_mins(5);

/// A runtime that waits for the end of its input, as the bot does.
pub(crate) fn bare() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut all = String::new();
        let reading = tokio::task::spawn_blocking(move || {
            std::io::Read::read_to_string(&mut std::io::stdin(), &mut all).unwrap()
        });
        reading.await.unwrap();
    });
}

fn calls(from: usize) -> Reply {
    let arguments: Vec<String> = (from..from + CALLS_PER_ANSWER)
        .map(|no| {
            let python = "import time\ntime.sleep(80000)\n";
            json!({ "name": format!("w {no}"), "python": python, "timeout_seconds": 86_000 })
                .to_string()
        })
        .collect();
    let calls: Vec<(&str, &str, &str)> =
        arguments.iter().map(|it| ("c", "trigger_and_auto_notify", it.as_str())).collect();
    Reply::calls(&calls)
}

/// Starts so many watchers in each chat, in two answers.
fn play(llm: &FakeLlm) {
    let next = Mutex::new(0);
    llm.otherwise(move |body| {
        let messages = body["messages"].as_array().unwrap();
        let results = messages.iter().filter(|message| message["role"] == "tool").count();
        if results >= LIVE_PER_CHAT {
            return Reply::text("they run");
        }
        let mut next = next.lock().unwrap();
        *next += CALLS_PER_ANSWER;
        calls(*next)
    });
}

struct Program {
    child: Child,
    directory: tempfile::TempDir,
}

impl Program {
    fn start(llm: &FakeLlm) -> Self {
        let directory = bot::place();
        let config = directory.path().join("dogwatch.toml");
        let text = format!(
            "data_dir = \"data\"\n[model]\nkind = \"openai\"\nbase_url = \"{}\"\nmodel = \"m\"\n\
             [watch]\nsandbox = \"off\"\nlive_per_person = 10000\n[console]\nhistory = false\n",
            llm.base_url()
        );
        fs::write(&config, text).unwrap();
        fs::create_dir(directory.path().join("data")).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_dogwatch"))
            .args(["chat", "--json", "--config"])
            .arg(&config)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, directory }
    }

    fn pid(&self) -> i32 {
        self.child.id().try_into().unwrap()
    }

    fn say(&mut self, line: &str) {
        let input = self.child.stdin.as_mut().unwrap();
        writeln!(input, "{line}").unwrap();
    }

    /// Shims and scripts of this program's spool.
    fn family(&self) -> (BTreeSet<i32>, BTreeSet<i32>) {
        let mark = self.directory.path().to_str().unwrap().to_owned();
        let (mut shims, mut scripts) = (BTreeSet::new(), BTreeSet::new());
        for pid in pids() {
            let words = read(&format!("/proc/{pid}/cmdline"));
            if words.contains("\0shim\0") && words.contains(&mark) {
                shims.insert(pid);
            } else if words.contains("watcher.py")
                && read(&format!("/proc/{pid}/environ")).contains(&mark)
            {
                scripts.insert(pid);
            }
        }
        (shims, scripts)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        for shim in self.family().0 {
            let _ended = kill(Pid::from_raw(shim), Signal::SIGKILL);
        }
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

fn pids() -> Vec<i32> {
    let all = fs::read_dir("/proc").unwrap();
    all.filter_map(|item| item.ok()?.file_name().to_str()?.parse().ok()).collect()
}

fn read(path: &str) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

fn field(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// How often each thread of a process gave the processor up by itself.
type Switches = BTreeMap<PathBuf, u64>;

fn switches(pid: i32) -> Switches {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let paths = tasks.map(|task| task.path().join("status"));
    paths
        .map(|path| {
            let count = field(&read(path.to_str().unwrap()), "voluntary_ctxt_switches:");
            (path, count)
        })
        .collect()
}

/// All since `then`. A thread that has ended has woken for it once.
fn since(then: &Switches, now: &Switches) -> u64 {
    let before = |thread: &PathBuf| then.get(thread).copied().unwrap_or(0);
    let ended = then.keys().filter(|thread| !now.contains_key(*thread)).count() as u64;
    now.iter().map(|(thread, count)| count - before(thread)).sum::<u64>() + ended
}

/// Its share of memory, shared pages divided by who shares them.
fn pss_kib(pid: i32) -> u64 {
    field(&read(&format!("/proc/{pid}/smaps_rollup")), "Pss:")
}

fn open_files(pid: i32) -> usize {
    fs::read_dir(Path::new("/proc").join(pid.to_string()).join("fd")).map_or(0, Iterator::count)
}

/// Waits until so many scripts run.
async fn until_running(program: &Program, count: usize) {
    let begun = Instant::now();
    while program.family().1.len() < count {
        assert!(begun.elapsed() < PATIENCE, "only {} run", program.family().1.len());
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

pub(crate) async fn run(watchers: usize, idle_seconds: u64) -> Vec<Line> {
    let chats = watchers.div_ceil(LIVE_PER_CHAT);
    let count = chats * LIVE_PER_CHAT;
    let llm = FakeLlm::start().await;
    play(&llm);
    let mut bare = Command::new(std::env::current_exe().unwrap())
        .arg(BARE)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let bare_pid: i32 = bare.id().try_into().unwrap();
    let mut program = Program::start(&llm);
    // A first answer, so that everything that is made once is there.
    program.say("/chat c0");
    program.say("start");
    llm.seen(3).await;
    until_running(&program, LIVE_PER_CHAT).await;
    let before = (pss_kib(program.pid()), open_files(program.pid()));
    for chat in 1..chats {
        program.say(&format!("/chat c{chat}"));
        program.say("start");
    }
    until_running(&program, count).await;
    tokio::time::sleep(SETTLE).await;

    let (shims, _) = program.family();
    let of_shims = || shims.iter().flat_map(|pid| switches(*pid)).collect::<Switches>();
    let begun = Instant::now();
    let (bot, other, them) = (switches(program.pid()), switches(bare_pid), of_shims());
    tokio::time::sleep(Duration::from_secs(idle_seconds)).await;
    let took = begun.elapsed().as_secs_f64();
    let rate = |pid: i32, then: &Switches| since(then, &switches(pid)) as f64 / took;
    let (bot, other) = (rate(program.pid(), &bot), rate(bare_pid, &other));
    let them = since(&them, &of_shims()) as f64;

    let more = (count - LIVE_PER_CHAT).max(1) as f64;
    let bot_kib = pss_kib(program.pid()).saturating_sub(before.0) as f64 / more;
    let files = open_files(program.pid()).saturating_sub(before.1) as f64 / more;
    let shim_kib = shims.iter().map(|pid| pss_kib(*pid)).sum::<u64>() as f64 / shims.len() as f64;
    drop(bare.stdin.take());
    bare.wait().unwrap();
    let name = "watchers";
    let of = format!("{count} live, {took:.0} s");
    vec![
        Line::new(name, "bot's voluntary switches a second above a bare process", bot - other)
            .at_most(1.0)
            .note(format!("{bot:.2} to {other:.2}; {of}")),
        Line::new(name, "voluntary switches of all shims", them).at_most(0.0).note(of),
        Line::new(name, "KiB of a shim (PSS)", shim_kib),
        Line::new(name, "KiB of the bot for each watcher (PSS)", bot_kib),
        Line::new(name, "open files of the bot for each watcher", files),
    ]
}
