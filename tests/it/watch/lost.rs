//! Shims, bots and hosts that end before their time.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};

use dogwatch::core::execution::{Exit, Outcome, Status};
use dogwatch::core::id::ExecutionId;
use dogwatch::ports::{Found, Launcher};
use dogwatch::watch::{Settings, Timing};
use rustix::process::Signal;

use super::bench::{Bench, ends, impatient, is_alive, pids, said, session, settings, signal};

const LONG_MS: u64 = 50_000;

/// Says its own pid and its shim's, then goes on until somebody reads the second fifo.
fn patient(up: &str, on: &str) -> String {
    format!(
        "import os
print('begun')
print(os.getpid(), os.getppid(), file=open({up:?}, 'w'))
open({on:?}, 'w').close()
print('ended')"
    )
}

fn ended(found: &Found) -> &Outcome {
    match found {
        Found::Ended(outcome) => outcome,
        Found::Held => panic!("it is held"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_shim_is_lost_with_its_output_and_takes_its_script_along() {
    let mut bench = Bench::new();
    let (up, on) = (bench.fifo("up"), bench.fifo("on"));
    bench.start("w", &patient(&up, &on), LONG_MS).await;
    let [script, shim] = pids(&up).await[..] else { panic!("two pids") };
    wait_for_output(&bench, "w").await;
    signal(shim, Signal::KILL);
    let (_, outcome) = bench.end().await;
    assert_eq!(outcome.status, Status::Lost);
    assert_eq!(outcome.reason.as_deref(), Some("shim-killed"));
    assert_eq!((outcome.exit, outcome.stdout.head.as_str()), (None, "begun\n"));
    assert!(ends(script));
    let found = bench.adopt().await;
    assert_eq!(ended(&found[0].found), &outcome);
    bench.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_script_of_a_killed_shim_had_started_is_found() {
    let mut bench = Bench::new();
    let fifo = bench.fifo("up");
    let script = format!(
        "import os, subprocess, time
sleeps = [subprocess.Popen(['sleep', '40'], start_new_session=new) for new in (True, False)]
print(os.getppid(), *[sleep.pid for sleep in sleeps], file=open({fifo:?}, 'w'))
time.sleep(40)"
    );
    bench.start("w", &script, LONG_MS).await;
    let all = pids(&fifo).await;
    signal(all[0], Signal::KILL);
    let (_, outcome) = bench.end().await;
    assert_eq!((outcome.status, all.len()), (Status::Lost, 3));
    assert!(outcome.leftovers_killed >= 2, "{}", outcome.leftovers_killed);
    assert!(all.into_iter().all(ends));
    bench.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_shuts_down_is_obeyed_and_a_terminal_is_not() {
    let mut bench = Bench::new();
    let (up, on) = (bench.fifo("up"), bench.fifo("on"));
    bench.start("w", &patient(&up, &on), LONG_MS).await;
    let [script, shim] = pids(&up).await[..] else { panic!("two pids") };
    for ignored in [Signal::INT, Signal::HUP, Signal::QUIT] {
        signal(shim, ignored);
    }
    signal(shim, Signal::TERM);
    let (_, outcome) = bench.end().await;
    assert_eq!((outcome.status, outcome.exit), (Status::Cancelled, Some(Exit::Signal(15))));
    assert_eq!(outcome.stdout.head, "begun\n");
    assert!(ends(script));
}

async fn wait_for_output(bench: &Bench, id: &str) {
    let id = ExecutionId::new(id).unwrap();
    while bench.watch().glance(&session(), &id).await.unwrap().stdout.head != "begun\n" {
        crate::support::process::pause().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b63_a_script_outlives_two_bots() {
    let mut bench = Bench::new();
    let (up, on) = (bench.fifo("up"), bench.fifo("on"));
    let id = bench.start("w", &patient(&up, &on), LONG_MS).await;
    said(&up).await;
    for _ in 0..2 {
        bench.crash().await;
        bench.open().unwrap();
        let found = bench.adopt().await;
        assert_eq!((found.len(), &found[0].found), (1, &Found::Held));
        assert_eq!((&found[0].session, &found[0].execution), (&session(), &id));
        assert_eq!(bench.adopt().await, found);
    }
    bench.watch().go(&session(), &id).await.unwrap();
    said(&on).await;
    let (ended, outcome) = bench.end().await;
    assert_eq!((ended, outcome.status), (id, Status::Completed));
    assert_eq!(outcome.stdout.head, "begun\nended\n");
    bench.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b63_a_cancel_reaches_what_was_adopted() {
    let mut bench = Bench::new();
    let (up, on) = (bench.fifo("up"), bench.fifo("on"));
    let id = bench.start("w", &patient(&up, &on), LONG_MS).await;
    let script = pids(&up).await[0];
    bench.crash().await;
    bench.open().unwrap();
    bench.adopt().await;
    bench.watch().cancel(&session(), &id).await.unwrap();
    let (_, outcome) = bench.end().await;
    assert_eq!((outcome.status, outcome.exit), (Status::Cancelled, Some(Exit::Signal(15))));
    assert!(ends(script));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_ends_while_no_bot_lives_is_found_at_the_next_start() {
    let mut bench = Bench::new();
    let (up, on) = (bench.fifo("up"), bench.fifo("on"));
    bench.start("w", &patient(&up, &on), LONG_MS).await;
    let [script, shim] = pids(&up).await[..] else { panic!("two pids") };
    bench.crash().await;
    said(&on).await;
    assert!(ends(script) && ends(shim));
    bench.open().unwrap();
    let found = bench.adopt().await;
    let outcome = ended(&found[0].found);
    assert_eq!((outcome.status, outcome.exit), (Status::Completed, Some(Exit::Code(0))));
    assert_eq!(outcome.stdout.head, "begun\nended\n");
    assert_eq!(bench.adopt().await, found);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waited_for_go_when_the_bot_died_still_gets_it() {
    let mut bench = Bench::new();
    let id = bench.launch("w", "print('late')", LONG_MS).await;
    bench.crash().await;
    bench.open().unwrap();
    assert_eq!(bench.adopt().await[0].found, Found::Held);
    bench.watch().go(&session(), &id).await.unwrap();
    assert_eq!(bench.end().await.1.stdout.head, "late\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_gets_no_go_says_that_it_never_started() {
    let mut bench = Bench::with(|dir| {
        let timing = Timing { start_ms: 100, ..Timing::default() };
        Settings { timing, ..settings(dir) }
    });
    bench.launch("w", "print('ran')", LONG_MS).await;
    let (_, outcome) = bench.end().await;
    assert_eq!((outcome.status, outcome.stdout.bytes), (Status::Lost, 0));
    assert_eq!(outcome.reason.as_deref(), Some("never-started"));
    bench.nothing_is_left().await;
}

/// Ends a running script, its shim and its bot, and leaves the entry as a crash of the host does.
async fn dead_entry(bench: &mut Bench) {
    let (up, on) = (bench.fifo("up"), bench.fifo("on"));
    bench.start("w", &patient(&up, &on), LONG_MS).await;
    let [script, shim] = pids(&up).await[..] else { panic!("two pids") };
    wait_for_output(bench, "w").await;
    bench.crash().await;
    signal(shim, Signal::KILL);
    assert!(ends(shim) && ends(script));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_boot_of_the_host_is_named() {
    let mut bench = Bench::new();
    dead_entry(&mut bench).await;
    let spec = bench.entry().join("spec.json");
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let text = fs::read_to_string(&spec).unwrap();
    assert!(text.contains(boot.trim()));
    fs::write(&spec, text.replace(boot.trim(), "another")).unwrap();
    bench.open().unwrap();
    let found = bench.adopt().await;
    let outcome = ended(&found[0].found);
    assert_eq!(outcome.status, Status::Lost);
    assert_eq!(outcome.reason.as_deref(), Some("host-rebooted"));
    assert_eq!(outcome.stdout.head, "begun\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn b62_a_pid_in_the_lock_is_no_evidence() {
    let mut bench = Bench::new();
    dead_entry(&mut bench).await;
    let mut stranger = sleeper();
    let pid = stranger.id().cast_signed();
    fs::write(bench.entry().join("lock"), pid.to_string()).unwrap();
    bench.open().unwrap();
    let found = bench.adopt().await;
    assert_eq!(ended(&found[0].found).reason.as_deref(), Some("shim-killed"));
    let id = found[0].execution.clone();
    bench.watch().cancel(&session(), &id).await.unwrap();
    bench.watch().kill(&session(), &id).await.unwrap();
    bench.crash().await;
    assert!(is_alive(pid));
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

#[expect(clippy::disallowed_methods, reason = "a process that has nothing to do with the spool")]
fn sleeper() -> std::process::Child {
    std::process::Command::new("sleep").arg("60").spawn().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_record_is_lost_and_says_why() {
    let mut bench = Bench::new();
    dead_entry(&mut bench).await;
    fs::write(bench.entry().join("exit.json"), "{").unwrap();
    bench.open().unwrap();
    let found = bench.adopt().await;
    let outcome = ended(&found[0].found);
    assert_eq!((outcome.status, outcome.stdout.head.as_str()), (Status::Lost, "begun\n"));
    assert!(outcome.reason.as_ref().unwrap().contains("cannot be read"));
}

/// Stops a process again and again until `done`.
fn freeze(pid: i32, done: &AtomicBool) {
    while !done.load(Ordering::Relaxed) {
        signal(pid, Signal::STOP);
        std::thread::yield_now();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b16_a_stopped_shim_is_shown_woken_and_loses_nothing() {
    let mut bench = Bench::with(impatient);
    let (up, on) = (bench.fifo("up"), bench.fifo("on"));
    let script = format!("{}\nprint('x' * 8000)", patient(&up, &on));
    let id = bench.start("w", &script, LONG_MS).await;
    let shim = pids(&up).await[1];
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| freeze(shim, &done));
        tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(async {
                while !bench.watch().glance(&session(), &id).await.unwrap().stalled {
                    crate::support::process::pause().await;
                }
            });
        });
        done.store(true, Ordering::Relaxed);
    });
    said(&on).await;
    let (_, outcome) = bench.end().await;
    assert_eq!(outcome.status, Status::Completed);
    assert_eq!(outcome.stdout.head, format!("begun\nended\n{}\n", "x".repeat(8000)));
    assert_eq!(outcome.stdout.missing_bytes, 0);
    bench.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_wakes_a_stopped_shim() {
    let mut bench = Bench::new();
    let (up, on) = (bench.fifo("up"), bench.fifo("on"));
    let id = bench.start("w", &patient(&up, &on), LONG_MS).await;
    let [script, shim] = pids(&up).await[..] else { panic!("two pids") };
    signal(shim, Signal::STOP);
    bench.watch().kill(&session(), &id).await.unwrap();
    let (_, outcome) = bench.end().await;
    assert_eq!((outcome.status, outcome.exit), (Status::Cancelled, Some(Exit::Signal(9))));
    assert!(ends(script) && ends(shim));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shim_that_never_obeys_is_killed_by_a_kill() {
    let mut bench = Bench::with(impatient);
    let (up, on) = (bench.fifo("up"), bench.fifo("on"));
    let id = bench.start("w", &patient(&up, &on), LONG_MS).await;
    let [script, shim] = pids(&up).await[..] else { panic!("two pids") };
    wait_for_output(&bench, "w").await;
    let done = AtomicBool::new(false);
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| freeze(shim, &done));
        let outcome = tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(async {
                bench.watch().kill(&session(), &id).await.unwrap();
                bench.end().await.1
            })
        });
        done.store(true, Ordering::Relaxed);
        outcome
    });
    assert_eq!((outcome.status, outcome.exit), (Status::Cancelled, outcome.exit));
    assert!(outcome.reason.unwrap().starts_with("killed"));
    assert_eq!(outcome.stdout.head, "begun\n");
    assert!(ends(script) && ends(shim));
}

#[tokio::test(flavor = "multi_thread")]
async fn b59_three_scripts_outlive_a_killed_bot() {
    let mut bench = Bench::new();
    let fifos = ["a", "b", "c"]
        .map(|name| (bench.fifo(&format!("{name}-up")), bench.fifo(&format!("{name}-on"))));
    bench.crash().await;
    let mut bot = bot(bench.path());
    let mut shims = Vec::new();
    for (up, _) in &fifos {
        shims.push(pids(up).await[1]);
    }
    bot.kill().unwrap();
    bot.wait().unwrap();
    signal(shims[2], Signal::KILL);
    assert!(ends(shims[2]));
    bench.open().unwrap();
    let mut found = bench.adopt().await;
    found.sort_by_key(|entry| entry.execution.clone());
    assert_eq!((&found[0].found, &found[1].found), (&Found::Held, &Found::Held));
    assert_eq!(ended(&found[2].found).reason.as_deref(), Some("shim-killed"));
    for (_, on) in &fifos[..2] {
        said(on).await;
        assert_eq!(bench.end().await.1.status, Status::Completed);
    }
    bench.nothing_is_left().await;
}

#[expect(clippy::disallowed_methods, reason = "a bot that can be killed is a process of its own")]
fn bot(dir: &Path) -> std::process::Child {
    std::process::Command::new(std::env::current_exe().unwrap())
        .args(["watch::lost::b59_the_bot_that_is_killed", "--exact", "--ignored"])
        .env("WATCH_BOT_DIR", dir)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "the bot of another test"]
async fn b59_the_bot_that_is_killed() {
    let dir = std::env::var_os("WATCH_BOT_DIR").unwrap();
    let dir = Path::new(&dir);
    let bench = Bench::in_directory(dir);
    for name in ["a", "b", "c"] {
        let [up, on] = ["up", "on"].map(|what| format!("{}/{name}-{what}", dir.display()));
        bench.start(name, &patient(&up, &on), LONG_MS).await;
    }
    std::future::pending::<()>().await;
}
