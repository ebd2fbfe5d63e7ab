//! Lives and ends of sandboxed scripts: what is told of them is true, and nothing outlives them.

use std::fs;

use dogwatch::core::execution::{Exit, Status};
use dogwatch::core::id::ExecutionId;
use dogwatch::ports::{Found, Launcher};
use dogwatch::watch::{Settings, Tier};
use rustix::process::Signal;

use super::stand::{Where, as_user, sandboxed, within};
use crate::watch::bench::{Bench, ends, session, signal};

const LONG_MS: u64 = 60_000;

/// Something that no other process has in its arguments.
fn mark(name: &str) -> String {
    format!("300.{}{}", std::process::id(), name.len())
}

/// Processes with this in their arguments, whatever namespace they are in.
fn marked(mark: &str) -> Vec<i32> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|item| item.file_name().to_str()?.parse().ok());
    let has = |pid: &i32| {
        let read = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        read.split(|byte| *byte == 0).any(|word| word == mark.as_bytes())
    };
    pids.filter(has).collect()
}

async fn printed(bench: &Bench, id: &ExecutionId, what: &str) {
    loop {
        let glance = bench.watch().glance(&session(), id).await.unwrap();
        if glance.stdout.head.contains(what) {
            return;
        }
        crate::support::process::pause().await;
    }
}

fn bench(tier: Tier) -> Bench {
    let bench = Bench::with(sandboxed);
    assert_eq!(bench.watch().sandbox().unwrap().tier, Some(tier));
    bench
}

async fn ends_are_told_as_they_are(tier: Tier) {
    let exit = async |script: &str| bench(tier).run(script, LONG_MS).await;
    let outcome = exit("import sys\nprint('hello')\nprint('oops', file=sys.stderr)").await;
    assert_eq!((outcome.status, outcome.exit), (Status::Completed, Some(Exit::Code(0))));
    assert_eq!((outcome.stdout.head.as_str(), outcome.reason), ("hello\n", None));
    assert_eq!((outcome.stderr.head.as_str(), outcome.leftovers_killed), ("oops\n", 0));
    if tier == Tier::Namespaces {
        // Python and its modules ask for these.
        let script = "import getpass, os, socket
print(os.path.expanduser('~watcher'), getpass.getuser(), socket.gethostname())
print(socket.getaddrinfo('localhost', 80, type=socket.SOCK_STREAM)[0][4])";
        let outcome = exit(script).await;
        let all = "/work watcher watcher\n('127.0.0.1', 80)\n";
        assert_eq!(outcome.stdout.head.as_str(), all, "{:?}", outcome.stderr.head);
    }
    let outcome = exit("raise SystemExit(3)").await;
    assert_eq!((outcome.status, outcome.exit), (Status::Failed, Some(Exit::Code(3))));
    for number in [6, 9, 15, 40] {
        let script = format!("import os, time\nos.kill(os.getpid(), {number})\ntime.sleep(9)");
        let outcome = exit(&script).await;
        assert_eq!((outcome.status, outcome.exit), (Status::Failed, Some(Exit::Signal(number))));
    }
    let outcome = exit("x = 1\nx / 0").await;
    assert!(outcome.stderr.head.contains("watcher.py\", line 2"), "{}", outcome.stderr.head);
    let work = "import json, os, subprocess, threading, tempfile
done = []
threads = [threading.Thread(target=done.append, args=[n]) for n in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(sorted(done), os.getcwd() == os.path.realpath(os.environ['HOME']))
print(subprocess.run(['sh', '-c', 'echo sub'], capture_output=True).stdout)";
    let outcome = exit(work).await;
    assert_eq!(outcome.stdout.head, "[0, 1, 2, 3] True\nb'sub\\n'\n", "{outcome:?}");
    if tier == Tier::Namespaces {
        let script = "import os, tempfile
with tempfile.NamedTemporaryFile('w+') as file:
    file.write('kept')
    file.seek(0)
    print(file.read(), os.getpid(), os.getuid(), os.uname().nodename, os.path.exists('/proc'))";
        let outcome = exit(script).await;
        assert_eq!(outcome.stdout.head, "kept 2 1000 watcher False\n", "{outcome:?}");
        let script = "import multiprocessing, os
def double(n): return 2 * n
with multiprocessing.Pool(2) as pool:
    print(pool.map(double, range(4)))
open('/dev/shm/x', 'w').close()
print(os.listdir('/work'))";
        let outcome = exit(script).await;
        assert_eq!(outcome.stdout.head.lines().next(), Some("[0, 2, 4, 6]"), "{outcome:?}");
        // What is written there counts as its own.
        assert!(outcome.stdout.head.contains("'x'"), "{outcome:?}");
    }
}

async fn nothing_outlives_its_script(tier: Tier) {
    let mut bench = bench(tier);
    let mark = mark("daemon");
    // One of its group, one in another session, one that was forked twice; all hold stdout, and
    // ignore what asks them to end.
    let script = format!(
        "import os, signal, subprocess
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen(['sleep', '{mark}'])
subprocess.Popen(['sleep', '{mark}'], start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp('sleep', ['sleep', '{mark}'])
    os._exit(0)
print('done')"
    );
    let outcome = bench.run(&script, LONG_MS).await;
    assert_eq!((outcome.status, outcome.exit), (Status::Completed, Some(Exit::Code(0))));
    assert_eq!(outcome.stdout.head, "done\n");
    assert!(outcome.leftovers_killed >= 2, "{outcome:?}");
    assert_eq!(marked(&mark), Vec::<i32>::new());
    bench.nothing_is_left().await;
    // One whose name is no text.
    let script = "import ctypes, os, time
r, w = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(15, b'\\xff', 0, 0, 0)
        os.write(w, b'x')
        time.sleep(40)
    os._exit(0)
os.wait()
os.read(r, 1)";
    let mut bench = self::bench(tier);
    let outcome = bench.run(script, LONG_MS).await;
    assert_eq!((outcome.status, outcome.leftovers_killed), (Status::Completed, 1));
    bench.nothing_is_left().await;
}

async fn deadlines_hold(tier: Tier) {
    let deaf = "import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('deaf')
time.sleep(40)";
    let outcome = bench(tier).run(deaf, 3_000).await;
    assert_eq!((outcome.status, outcome.exit), (Status::TimedOut, Some(Exit::Signal(9))));
    assert_eq!(outcome.stdout.head, "deaf\n");
    let stopped = "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\nprint('on')";
    let outcome = bench(tier).run(stopped, 600).await;
    assert_eq!((outcome.status, outcome.exit), (Status::TimedOut, Some(Exit::Signal(15))));
    let cleans = "import signal, sys, time
def bye(*_):
    print('bye')
    sys.exit(7)
signal.signal(signal.SIGTERM, bye)
print('up')
time.sleep(40)";
    let mut bench = bench(tier);
    let id = bench.start_gently("w", cleans, LONG_MS).await;
    printed(&bench, &id, "up\n").await;
    bench.watch().cancel(&session(), &id).await.unwrap();
    let (_, outcome) = bench.end().await;
    assert_eq!((outcome.status, outcome.exit), (Status::Cancelled, Some(Exit::Code(7))));
    assert_eq!(outcome.stdout.head, "up\nbye\n");
}

async fn who_supervises_takes_all_along(tier: Tier) {
    let mut bench = bench(tier);
    let mark = mark("orphan!");
    let script = format!(
        "import os, subprocess, time
subprocess.Popen(['sleep', '{mark}'], start_new_session=True)
print('up')
time.sleep(300)"
    );
    let id = bench.start("w", &script, LONG_MS).await;
    printed(&bench, &id, "up\n").await;
    // Its arguments come a moment after who started it goes on.
    let orphan = loop {
        if let [orphan] = marked(&mark)[..] {
            break orphan;
        }
        crate::support::process::pause().await;
    };
    let shim = bench.processes().into_iter().find(|pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).nth(1) == Some(b"shim".as_slice())
    });
    signal(shim.expect("a shim"), Signal::KILL);
    let (_, outcome) = bench.end().await;
    assert_eq!(outcome.status, Status::Lost);
    assert_eq!(outcome.reason.as_deref(), Some("shim-killed"));
    assert_eq!(outcome.stdout.head, "up\n");
    // Without namespaces the bot's own look ends it, which came before the end was told.
    assert!(ends(orphan));
    bench.nothing_is_left().await;
}

async fn a_restart_finds_it(tier: Tier) {
    let mut bench = bench(tier);
    let script = "import time\nprint('up')\ntime.sleep(300)";
    let id = bench.start("w", script, LONG_MS).await;
    printed(&bench, &id, "up\n").await;
    bench.crash().await;
    bench.open().unwrap();
    assert!(bench.adopt().await.iter().all(|entry| entry.found == Found::Held));
    bench.watch().cancel(&session(), &id).await.unwrap();
    let (_, outcome) = bench.end().await;
    assert_eq!((outcome.status, outcome.exit), (Status::Cancelled, Some(Exit::Signal(15))));
    bench.nothing_is_left().await;
}

async fn a_flood_is_bounded(tier: Tier) {
    let mut bench = bench(tier);
    let script = "import subprocess
print('first')
subprocess.run('yes | head -c 30000000', shell=True)
print('last')";
    let outcome = bench.run(script, LONG_MS).await;
    assert_eq!(outcome.status, Status::Completed, "{outcome:?}");
    assert_eq!(outcome.stdout.bytes, 30_000_000 + 11);
    assert!(outcome.stdout.head.starts_with("first\ny\n"));
    assert!(outcome.stdout.tail.ends_with("y\nlast\n"));
}

async fn a_whole_life(tier: Tier) {
    ends_are_told_as_they_are(tier).await;
    nothing_outlives_its_script(tier).await;
    deadlines_hold(tier).await;
    who_supervises_takes_all_along(tier).await;
    a_restart_finds_it(tier).await;
    a_flood_is_bounded(tier).await;
}

#[test]
fn b57_b60_b63_a_sandboxed_life_is_told_as_it_is_here() {
    within(Where::Here, a_whole_life);
}

#[test]
fn b57_b60_b63_a_sandboxed_life_is_told_as_it_is_without_namespaces() {
    within(Where::Contained, a_whole_life);
}

#[test]
#[ignore = "run as another user by the next one"]
fn user_here() {
    within(Where::Here, a_whole_life);
}

#[test]
fn b57_b60_b63_an_ordinary_users_sandboxed_life_is_told_as_it_is() {
    as_user("sandbox::life::user_here");
}

#[test]
#[ignore = "run as another user by the next one"]
fn user_contained() {
    within(Where::Contained, a_whole_life);
}

#[test]
fn b57_b60_b63_an_ordinary_users_sandboxed_life_is_told_as_it_is_without_namespaces() {
    as_user("sandbox::life::user_contained");
}

/// A Python that no sandbox can show: there is no tier then, on any machine.
fn unholdable(dir: &std::path::Path) -> Settings {
    Settings { python: "/no/such/python3".into(), ..sandboxed(dir) }
}

/// A Python in a directory that only its owner may enter.
fn behind_a_door(dir: &std::path::Path) -> Settings {
    let bin = dir.join("home/bin");
    if !bin.exists() {
        fs::create_dir_all(&bin).unwrap();
        std::os::unix::fs::symlink("/usr/bin/python3", bin.join("python3")).unwrap();
        let closed = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        fs::set_permissions(dir.join("home"), closed).unwrap();
    }
    Settings { python: bin.join("python3"), ..sandboxed(dir) }
}

#[test]
fn a_python_where_nobody_may_go_is_told_so_without_namespaces() {
    within(Where::Contained, async |tier| {
        let bench = Bench::with(behind_a_door);
        let found = bench.watch().sandbox().unwrap();
        // Who is not root stays who it is, and may go there.
        if nix::unistd::geteuid().is_root() {
            let why = found.no_landlock.as_deref().unwrap();
            assert!(why.contains("nobody, who may not go through"), "{why}");
            assert!(why.contains("python` of [watch]"), "{why}");
        } else {
            assert_eq!(found.tier, Some(tier));
        }
    });
}

#[test]
fn a_python_where_a_script_has_its_own_directory_is_told_so() {
    within(Where::Here, async |tier| {
        // It lies below /tmp.
        let bench = Bench::with(behind_a_door);
        let found = bench.watch().sandbox().unwrap();
        let why = found.no_namespaces.as_deref().unwrap();
        if tier == Tier::Namespaces && bench.path().starts_with("/tmp") {
            assert!(why.contains("below /tmp") && why.contains("python` of [watch]"), "{why}");
        }
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_tier_nothing_is_run_and_it_is_said_what_to_do() {
    let bench = Bench::with(unholdable);
    let found = bench.watch().sandbox().unwrap();
    assert_eq!(found.tier, None);
    let refused = bench.watch().check_syntax("print(1)").await.unwrap_err().to_string();
    assert!(refused.contains("cannot be sandboxed"), "{refused}");
    assert!(refused.contains("dogwatch doctor"), "{refused}");
    let launched = bench.watch().launch(crate::watch::bench::launch("w", "print(1)", 1_000)).await;
    assert_eq!(launched.unwrap_err().to_string(), refused);
    assert_eq!(fs::read_dir(bench.path().join("spool/e")).unwrap().count(), 0);
}
