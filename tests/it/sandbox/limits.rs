//! Scripts that want too much. Each ends as a completion that says which limit it met.

use std::path::Path;

use dogwatch::core::execution::{Exit, Outcome, Status};
use dogwatch::watch::{Limits, Sandbox, Settings, Tier};

use super::stand::{Where, as_user, narrow, within};
use crate::watch::bench::Bench;

const LONG_MS: u64 = 60_000;

async fn greedy(tier: Tier, script: &str) -> Outcome {
    ended(tier, Bench::with(narrow), script).await
}

/// One that may not compute for long.
async fn busy(tier: Tier, script: &str) -> Outcome {
    let brief = |dir: &Path| {
        let narrow = narrow(dir);
        let Sandbox::Required(limits) = narrow.sandbox else { unreachable!("it is narrow") };
        let limits = Limits { cpu_seconds_max: 1, ..limits };
        Settings { sandbox: Sandbox::Required(limits), ..narrow }
    };
    ended(tier, Bench::with(brief), script).await
}

async fn ended(tier: Tier, mut bench: Bench, script: &str) -> Outcome {
    assert_eq!(bench.watch().sandbox().unwrap().tier, Some(tier));
    let outcome = bench.run(script, LONG_MS).await;
    bench.nothing_is_left().await;
    // A limit ended it, not its deadline.
    assert_eq!(outcome.status, Status::Failed, "{outcome:?}");
    outcome
}

async fn memory_of_one(tier: Tier) {
    let script = "
import time
held = []
for _ in range(200):
    held.append(b'x' * (1 << 20))
time.sleep(40)";
    let outcome = greedy(tier, script).await;
    assert_eq!(outcome.reason.as_deref(), Some("it met its limit of 128 MiB of memory"));
    // What the system refuses at once never gets as far.
    let outcome = greedy(tier, "x = bytearray(1 << 40)").await;
    assert!(outcome.stderr.head.contains("MemoryError"), "{outcome:?}");
}

async fn memory_of_many(tier: Tier) {
    let script = "
import os, time
for _ in range(6):
    if os.fork() == 0:
        held = [b'x' * (1 << 20) for _ in range(40)]
        time.sleep(40)
time.sleep(40)";
    let outcome = greedy(tier, script).await;
    assert_eq!(outcome.reason.as_deref(), Some("it met its limit of 128 MiB of memory"));
}

async fn shared_memory_counts_once(tier: Tier) {
    let script = "
import os
held = b'x' * (60 << 20)
pids = []
for _ in range(4):
    pid = os.fork()
    if pid == 0:
        import time
        time.sleep(1.5)
        os._exit(0)
    pids.append(pid)
for pid in pids:
    os.waitpid(pid, 0)
print(len(held))";
    let mut bench = Bench::with(narrow);
    assert_eq!(bench.watch().sandbox().unwrap().tier, Some(tier));
    let outcome = bench.run(script, LONG_MS).await;
    assert_eq!((outcome.status, outcome.reason), (Status::Completed, None));
}

async fn a_fork_bomb(tier: Tier) {
    let script = "
import os, time
n = 0
while n < 3000:
    try:
        if os.fork() == 0:
            time.sleep(40)
        n += 1
    except OSError:
        print('refused after', n)
        break
time.sleep(40)";
    let outcome = greedy(tier, script).await;
    assert_eq!(outcome.reason.as_deref(), Some("it met its limit of 12 processes and threads"));
    let started = outcome.stdout.head.trim().strip_prefix("refused after ").map(str::parse::<u64>);
    // Without namespaces the system counts all of the user's, and others may have ended since.
    let most = if tier == Tier::Namespaces { 30 } else { 300 };
    assert!(started.is_none_or(|n| n.unwrap() < most), "{outcome:?}");
}

async fn a_busy_loop(tier: Tier) {
    let outcome = busy(tier, "while True: pass").await;
    assert_eq!(outcome.reason.as_deref(), Some("it met its limit of 1 s of processor time"));
    assert!(matches!(outcome.exit, Some(Exit::Signal(9 | 24))), "{outcome:?}");
    // Several that share the work, none of which would meet it alone.
    let script = "
import os, time
for _ in range(4):
    if os.fork() == 0:
        while time.process_time() < 0.6: pass
        os._exit(0)
time.sleep(40)";
    let outcome = busy(tier, script).await;
    assert_eq!(outcome.reason.as_deref(), Some("it met its limit of 1 s of processor time"));
}

/// What a process is called, and who of it has ended, hides nothing that it uses.
async fn memory_that_hides(tier: Tier) {
    let misnamed = "
import ctypes, time
ctypes.CDLL(None).prctl(15, b'\\xff', 0, 0, 0)
held = b'x' * (135 << 20)
time.sleep(40)";
    let headless = "
import ctypes, platform, threading, time
def work():
    held = b'x' * (135 << 20)
    time.sleep(40)
threading.Thread(target=work).start()
ctypes.CDLL(None).syscall(60 if platform.machine() == 'x86_64' else 93, 0)";
    for script in [misnamed, headless] {
        let outcome = greedy(tier, script).await;
        assert_eq!(outcome.reason.as_deref(), Some("it met its limit of 128 MiB of memory"));
    }
}

/// Work is counted also when nobody waits for the ends of those who did it.
async fn work_that_hides(tier: Tier) {
    let of_orphans = "
import os, time
for _ in range(4):
    r, w = os.pipe()
    if os.fork() == 0:
        if os.fork() == 0:
            while time.process_time() < 0.6: pass
        os._exit(0)
    os.wait()
    os.close(w)
    os.read(r, 1)
    os.close(r)
time.sleep(40)";
    let unheard = "
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for _ in range(4):
    r, w = os.pipe()
    if os.fork() == 0:
        while time.process_time() < 0.6: pass
        os._exit(0)
    os.close(w)
    os.read(r, 1)
    os.close(r)
time.sleep(40)";
    for script in [of_orphans, unheard] {
        let outcome = busy(tier, script).await;
        assert_eq!(outcome.reason.as_deref(), Some("it met its limit of 1 s of processor time"));
    }
}

async fn a_disk_filler(tier: Tier) {
    let script = "
with open('big', 'wb') as file:
    while True: file.write(b'x' * 65536)";
    let outcome = greedy(tier, script).await;
    assert_eq!(outcome.exit, Some(Exit::Code(1)));
    match tier {
        Tier::Namespaces => {
            let full = "it met the limit of its directory: 4 MiB, 64 files";
            let large = outcome.stderr.head.contains("File too large");
            assert!(large || outcome.reason.as_deref() == Some(full), "{outcome:?}");
            let script = "
n = 0
while True:
    open(f'f{n}', 'w').close()
    n += 1";
            let outcome = greedy(tier, script).await;
            assert_eq!(outcome.reason.as_deref(), Some(full), "{outcome:?}");
            let script = "
for n in range(9):
    with open(f'f{n}', 'wb') as file: file.write(b'x' * (1 << 20))";
            let outcome = greedy(tier, script).await;
            assert_eq!(outcome.reason.as_deref(), Some(full), "{outcome:?}");
            // Who fails for a reason of its own beside a full directory is not told that one.
            let script = "
import sys
try:
    for n in range(9):
        with open(f'f{n}', 'wb') as file: file.write(b'x' * (1 << 20))
except OSError: pass
sys.exit('the deploy is red')";
            let outcome = greedy(tier, script).await;
            let remark = "its directory was full at its end: 4 MiB, 64 files";
            assert_eq!(outcome.reason.as_deref(), Some(remark), "{outcome:?}");
            assert_eq!(outcome.stderr.head, "the deploy is red\n");
        }
        Tier::Landlock => assert!(outcome.stderr.head.contains("PermissionError"), "{outcome:?}"),
    }
}

async fn each_limit_ends_it_by_name(tier: Tier) {
    memory_of_one(tier).await;
    memory_of_many(tier).await;
    shared_memory_counts_once(tier).await;
    a_fork_bomb(tier).await;
    a_busy_loop(tier).await;
    memory_that_hides(tier).await;
    work_that_hides(tier).await;
    a_disk_filler(tier).await;
}

#[test]
fn each_limit_ends_it_by_name_here() {
    within(Where::Here, each_limit_ends_it_by_name);
}

#[test]
fn each_limit_ends_it_by_name_without_namespaces() {
    within(Where::Contained, each_limit_ends_it_by_name);
}

#[test]
#[ignore = "run as another user by the next one"]
fn user_here() {
    within(Where::Here, each_limit_ends_it_by_name);
}

#[test]
fn each_limit_ends_an_ordinary_users_script_by_name() {
    as_user("sandbox::limits::user_here");
}

#[test]
#[ignore = "run as another user by the next one"]
fn user_contained() {
    within(Where::Contained, each_limit_ends_it_by_name);
}

#[test]
fn each_limit_ends_an_ordinary_users_script_by_name_without_namespaces() {
    as_user("sandbox::limits::user_contained");
}
