//! A sandboxed script and its kin: who is started, who stands over it, who is left.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use dogwatch::core::execution::{Exit, Outcome, Status};
use dogwatch::core::id::ExecutionId;
use dogwatch::ports::{Found, Launch, Launcher};
use dogwatch::watch::{Settings, Tier};
use rustix::process::Signal;

use super::stand::sandboxed;
use crate::support::process::parent;
use crate::watch::bench::{Bench, ends, launch, session, signal};

pub(super) const LONG_MS: u64 = 600_000;
/// Fails a test that hangs; nothing waits for it.
const TOO_LONG: Duration = Duration::from_mins(1);

/// Says that it is up, and goes on when it is signalled.
pub(super) const PATIENT: &str = "import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
print('up')
signal.sigwait([signal.SIGUSR1])
print('on')";

pub(super) fn bench(tier: Tier) -> Bench {
    held(Bench::with(sandboxed), tier)
}

pub(super) fn held(bench: Bench, tier: Tier) -> Bench {
    assert_eq!(bench.watch().sandbox().unwrap().tier, Some(tier));
    bench
}

/// Waits until it has printed this.
pub(super) async fn printed(bench: &Bench, id: &ExecutionId, what: &str) {
    let looks = async {
        while !bench.watch().glance(&session(), id).await.unwrap().stdout.head.contains(what) {
            crate::support::process::pause().await;
        }
    };
    tokio::time::timeout(TOO_LONG, looks).await.expect("it prints nothing");
}

/// Starts one that has all the time it needs to end when it is asked to.
pub(super) async fn start(bench: &Bench, name: &str, python: &str, timeout_ms: u64) -> ExecutionId {
    let launch = Launch { grace_ms: LONG_MS, ..launch(name, python, timeout_ms) };
    let id = launch.execution.clone();
    bench.watch().launch(launch).await.unwrap();
    bench.watch().go(&session(), &id).await.unwrap();
    id
}

/// Starts a patient one, and waits until it is.
pub(super) async fn patient(bench: &Bench, name: &str) -> (ExecutionId, Family) {
    let id = start(bench, name, PATIENT, LONG_MS).await;
    printed(bench, &id, "up\n").await;
    (id.clone(), Family::of(shim_of(bench, &id)))
}

/// The shim of an execution. The spool names its directory after a digest, its spec names it.
pub(super) fn shim_of(bench: &Bench, id: &ExecutionId) -> i32 {
    let named = format!("\"execution\": \"{id}\"");
    let is_its = |entry: &PathBuf| {
        fs::read_to_string(entry.join("spec.json")).is_ok_and(|spec| spec.contains(&named))
    };
    let all = fs::read_dir(bench.path().join("spool/e")).unwrap();
    let entry = all.map(|entry| entry.unwrap().path()).find(is_its).expect("its entry");
    let place = entry.file_name().unwrap().to_str().unwrap().to_owned();
    let is_shim = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
        words.get(1).is_some_and(|word| word == "shim")
            && words.get(2).is_some_and(|dir| dir.ends_with(&place))
    };
    let found: Vec<i32> = bench.processes().into_iter().filter(is_shim).collect();
    // What a shim has just forked looks like it.
    let is_first = |pid: &&i32| !found.contains(&parent(**pid));
    *found.iter().find(is_first).expect("its shim")
}

/// A shim and all below it.
#[derive(Debug)]
pub(super) struct Family {
    pub(super) shim: i32,
    pub(super) below: Vec<i32>,
}

impl Family {
    pub(super) fn of(shim: i32) -> Self {
        let all = fs::read_dir("/proc").unwrap().flatten();
        let pids = all.filter_map(|item| item.file_name().to_str()?.parse().ok());
        let known: Vec<(i32, i32)> = pids.map(|pid| (pid, parent(pid))).collect();
        let mut below = vec![];
        let mut above = vec![shim];
        while let Some(one) = above.pop() {
            let children = known.iter().filter(|(_, parent)| *parent == one).map(|(pid, _)| *pid);
            let children: Vec<i32> = children.collect();
            below.extend(&children);
            above.extend(children);
        }
        assert!(!below.is_empty(), "nothing below the shim {shim}");
        Self { shim, below }
    }

    /// The script itself: of a patient one the last.
    pub(super) fn script(&self) -> i32 {
        *self.below.last().unwrap()
    }

    pub(super) fn go_on(&self) {
        signal(self.script(), Signal::USR1);
    }

    pub(super) fn is_gone(&self) -> bool {
        std::iter::once(&self.shim).chain(&self.below).all(|pid| {
            let is = |file| fs::read_to_string(format!("/proc/{pid}/{file}"));
            assert!(ends(*pid), "{pid} of {self:?} stays: {:?} {:?}", is("stat"), is("wchan"));
            true
        })
    }
}

pub(super) fn ended(found: &Found) -> &Outcome {
    match found {
        Found::Ended(outcome) => outcome,
        Found::Held => panic!("it is held"),
    }
}

/// Its status, its exit, its reason, the beginning of its output.
pub(super) type Told<'a> = (Status, Option<Exit>, Option<&'a str>, &'a str);

/// What is told of an end.
pub(super) fn told(outcome: &Outcome) -> Told<'_> {
    let Outcome { status, exit, reason, stdout, .. } = outcome;
    (*status, *exit, reason.as_deref(), &stdout.head)
}

pub(super) const WELL: Told<'static> = (Status::Completed, Some(Exit::Code(0)), None, "up\non\n");
pub(super) const TERMINATED: Told<'static> =
    (Status::Cancelled, Some(Exit::Signal(15)), None, "up\n");
pub(super) const SHIM_KILLED: Told<'static> = (Status::Lost, None, Some("shim-killed"), "up\n");

/// A bot whose shim can be replaced.
pub(super) fn replaceable(dir: &Path) -> Settings {
    let settings = sandboxed(dir);
    let shim = dir.join("dogwatch-shim");
    if !shim.exists() && fs::hard_link(&settings.shim, &shim).is_err() {
        fs::copy(&settings.shim, &shim).unwrap();
    }
    Settings { shim, ..settings }
}

#[expect(clippy::disallowed_methods, reason = "a process that has nothing to do with the spool")]
pub(super) fn stranger() -> Child {
    Command::new("sleep").arg("300").spawn().unwrap()
}
