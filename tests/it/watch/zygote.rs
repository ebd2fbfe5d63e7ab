//! What shims are copies of: it comes with the first, costs nobody anything when it fails, and goes
//! with the bot.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use dogwatch::core::execution::{Outcome, Status};
use dogwatch::core::id::ExecutionId;
use dogwatch::ports::Launcher;
use dogwatch::watch::Settings;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::process::Signal;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

use super::bench::{Bench, ends, impatient, is_alive, pids, session, settings, signal};
use crate::support::process::{parent, pause, zygotes_of};

const LONG_MS: u64 = 50_000;

fn words(pid: i32) -> Vec<String> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

fn zygotes(bench: &Bench) -> Vec<i32> {
    zygotes_of(bench.path())
}

/// Says who it is, and waits to be ended.
async fn waiting(bench: &Bench, id: &str) -> Vec<i32> {
    let up = bench.fifo(id);
    let script = format!(
        "import os, time
print(os.getpid(), os.getppid(), file=open({up:?}, 'w'))
time.sleep(40)"
    );
    bench.start(id, &script, LONG_MS).await;
    pids(&up).await
}

fn printed(outcome: &Outcome) -> (Status, &str) {
    (outcome.status, outcome.stdout.head.as_str())
}

#[tokio::test(flavor = "multi_thread")]
async fn shims_are_copies_of_one_process_and_children_of_the_bot() {
    let mut bench = Bench::new();
    assert!(zygotes(&bench).is_empty());
    let first = waiting(&bench, "a").await[1];
    let second = waiting(&bench, "b").await[1];
    let [zygote] = zygotes(&bench)[..] else { panic!("one zygote") };
    let own = std::process::id().cast_signed();
    let memory = |pid: i32| {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
        maps.lines().find(|line| line.contains("dogwatch-shim")).unwrap().to_owned()
    };
    for shim in [first, second] {
        assert_eq!(parent(shim), own);
        // A program that was started by itself would stand at another place.
        assert_eq!(memory(shim), memory(zygote));
        // Lists of processes name it as if it had been.
        let words = words(shim);
        assert_eq!(words[1], "shim");
        assert_eq!(Path::new(&words[2]).parent(), Some(&*bench.path().join("spool/e")));
        assert_eq!(fs::read(format!("/proc/{shim}/environ")).unwrap(), b"");
        // Neither the line to the bot, nor a lock or a log of another.
        let open = fs::read_dir(format!("/proc/{shim}/fd")).unwrap();
        let open: Vec<_> = open.map(|fd| fs::read_link(fd.unwrap().path()).unwrap()).collect();
        let of_spool = open.iter().filter(|path| path.starts_with(bench.path().join("spool/e")));
        assert!(of_spool.clone().all(|path| path.starts_with(&words[2])), "{open:?}");
        assert_eq!(of_spool.count(), 2, "{open:?}");
    }
    assert_ne!(words(first)[2], words(second)[2]);
    bench.crash().await;
    assert!(ends(zygote));
    assert!(is_alive(first) && is_alive(second));
    for shim in [first, second] {
        signal(shim, Signal::KILL);
    }
    bench.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_was_killed_takes_no_script_along_and_is_followed_by_another() {
    let mut bench = Bench::new();
    let [script, shim] = waiting(&bench, "a").await[..] else { panic!("two pids") };
    let [first] = zygotes(&bench)[..] else { panic!("one zygote") };
    signal(first, Signal::KILL);
    assert!(ends(first));
    // This one finds out.
    let outcome = bench.run("print('up')", LONG_MS).await;
    assert_eq!(printed(&outcome), (Status::Completed, "up\n"));
    waiting(&bench, "b").await;
    let [second] = zygotes(&bench)[..] else { panic!("one zygote") };
    assert_ne!(first, second);
    assert!(is_alive(script) && is_alive(shim));
    for id in ["a", "b"] {
        let id = ExecutionId::new(id).unwrap();
        bench.watch().kill(&session(), &id).await.unwrap();
        assert_eq!(bench.end().await.1.status, Status::Cancelled);
    }
    bench.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_stopped_holds_up_a_start_for_a_moment_only() {
    let mut bench = Bench::with(impatient);
    bench.start("a", "pass", LONG_MS).await;
    assert_eq!(bench.end().await.1.status, Status::Completed);
    let [first] = zygotes(&bench)[..] else { panic!("one zygote") };
    signal(first, Signal::STOP);
    // Whoever was asked must never come to do it as well.
    let count = bench.path().join("count");
    let script = format!("print('once', file=open({count:?}, 'a'))\nprint('up')");
    let outcome = bench.run(&script, LONG_MS).await;
    assert_eq!(printed(&outcome), (Status::Completed, "up\n"));
    assert!(ends(first));
    assert_eq!(fs::read_to_string(count).unwrap(), "once\n");
    bench.nothing_is_left().await;
}

/// Knows every word but that of a zygote, and counts how often it heard that.
fn without(dir: &Path) -> Settings {
    let (path, settings) = (dir.join("without"), settings(dir));
    let text = format!(
        "#!/bin/sh\n[ \"$1\" = zygote ] && {{ echo asked >> {}; exit 64; }}\nexec {} \"$@\"\n",
        dir.join("asked").display(),
        settings.shim.display()
    );
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    Settings { shim: path, ..settings }
}

#[tokio::test(flavor = "multi_thread")]
async fn where_there_is_none_each_shim_is_a_program_and_nobody_asks_again() {
    let mut bench = Bench::with(without);
    for _ in 0..3 {
        let outcome = bench.run("print('up')", LONG_MS).await;
        assert_eq!(printed(&outcome), (Status::Completed, "up\n"));
        bench.watch().settled(&session(), &ExecutionId::new("w").unwrap()).await;
    }
    assert_eq!(fs::read_to_string(bench.path().join("asked")).unwrap(), "asked\n");
    bench.nothing_is_left().await;
}

/// The thread that waits for the zygote's answer.
async fn who_asks() -> String {
    // Which of the two is the library's matter.
    #[cfg(target_arch = "x86_64")]
    let waits = [nix::libc::SYS_poll, nix::libc::SYS_ppoll];
    #[cfg(not(target_arch = "x86_64"))]
    let waits = [nix::libc::SYS_ppoll];
    let waits = waits.map(|call| format!("{call} "));
    loop {
        let threads = fs::read_dir("/proc/self/task").unwrap();
        for thread in threads.map(|thread| thread.unwrap().path()) {
            let call = fs::read_to_string(thread.join("syscall")).unwrap_or_default();
            if waits.iter().any(|wait| call.starts_with(wait)) {
                return thread.file_name().unwrap().to_str().unwrap().to_owned();
            }
        }
        pause().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_while_it_is_asked_ends_nothing() {
    let mut bench = Bench::new();
    bench.run("pass", LONG_MS).await;
    let [zygote] = zygotes(&bench)[..] else { panic!("one zygote") };
    signal(zygote, Signal::STOP);
    let asked = async {
        let thread = who_asks().await.parse::<i32>().unwrap();
        let own = std::process::id().cast_signed();
        #[expect(unsafe_code, reason = "nothing else sends a signal to one thread of this process")]
        let sent =
            unsafe { nix::libc::syscall(nix::libc::SYS_tgkill, own, thread, nix::libc::SIGCHLD) };
        assert_eq!(sent, 0);
        signal(zygote, Signal::CONT);
    };
    let (id, ()) = tokio::join!(bench.start("a", "print('up')", LONG_MS), asked);
    let (ended, outcome) = bench.end().await;
    assert_eq!((ended, printed(&outcome)), (id, (Status::Completed, "up\n")));
    assert_eq!(zygotes(&bench), [zygote]);
    bench.nothing_is_left().await;
}

#[test]
fn where_a_copy_could_close_nothing_each_shim_is_a_program() {
    // As on Linux before 5.9, and in containers that do not know the call.
    let refused = [(nix::libc::SYS_close_range, vec![])].into_iter().collect();
    let errno = SeccompAction::Errno(nix::libc::ENOSYS.cast_unsigned());
    let machine = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(refused, SeccompAction::Allow, errno, machine).unwrap();
    let program: BpfProgram = filter.try_into().unwrap();
    seccompiler::apply_filter(&program).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut bench = Bench::new();
        let outcome = bench.run("print('up')", LONG_MS).await;
        assert_eq!(printed(&outcome), (Status::Completed, "up\n"));
        bench.nothing_is_left().await;
    });
}

fn line() -> (OwnedFd, OwnedFd) {
    let flags = SocketFlags::CLOEXEC;
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap()
}

#[test]
#[expect(clippy::disallowed_methods, reason = "what a person runs by hand is another process")]
fn it_answers_nonsense_with_what_is_wrong_and_ends_with_its_line() {
    for program in [env!("CARGO_BIN_EXE_dogwatch"), env!("CARGO_BIN_EXE_dogwatch-shim")] {
        let command = |line: Stdio| {
            let mut command = Command::new(program);
            command.args(["zygote", "/nowhere", " "]).stdin(line);
            command
        };
        let by_hand = command(Stdio::null()).output().unwrap();
        assert_eq!(by_hand.status.code(), Some(64));
        assert!(String::from_utf8_lossy(&by_hand.stderr).contains("by hand"));
        let (own, its) = line();
        let mut zygote = command(its.into()).spawn().unwrap();
        rustix::net::send(own.as_fd(), b"/nowhere", SendFlags::empty()).unwrap();
        let mut answer = [0; 256];
        let (_, length) = rustix::net::recv(own.as_fd(), &mut answer, RecvFlags::empty()).unwrap();
        assert!(String::from_utf8_lossy(&answer[..length]).contains("did not come"));
        drop(own);
        assert_eq!(zygote.wait().unwrap().code(), Some(0));
    }
}
