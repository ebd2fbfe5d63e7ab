//! What a sandboxed script, its shim, its bot and its host go through, and which end is told of it:
//! one cell after the other, each in both tiers, as root and as an ordinary user.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use dogwatch::core::execution::{Exit, Status};
use dogwatch::core::id::ExecutionId;
use dogwatch::core::limits::OUTPUT_BYTES_MAX;
use dogwatch::ports::{Found, Launcher};
use dogwatch::watch::Tier;
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use rustix::process::Signal;

use super::kin::{
    Family, LONG_MS, PATIENT, SHIM_KILLED, TERMINATED, Told, WELL, bench, ended, held, patient,
    printed, replaceable, shim_of, start, stranger, told,
};
use super::stand::{Again, USER, Where, ask_landlord, disk, sandboxed, within};
use crate::watch::bench::{Bench, is_alive, launch, session, signal};

/// Which cell a test that was started again is about.
const CELL: &str = "SURVIVAL_CELL";
/// In which tier.
const CONTAINED: &str = "SURVIVAL_CONTAINED";
/// Where a bot that is to be killed has its spool.
const BOT: &str = "SURVIVAL_BOT";
/// Room of a small disk, and what one watcher needs of it is a tenth.
const DISK_KIB: u64 = 4 * 1024;
const MANY: usize = 200;

type Cell = fn(Tier) -> LocalBoxFuture<'static, ()>;

/// Each cell, and whether it needs a small disk of its own.
const CELLS: [(&str, bool, Cell); 14] = [
    ("bot_killed", false, |tier| a_killed_bot(tier).boxed_local()),
    ("bot_upgraded", false, |tier| an_upgraded_bot(tier).boxed_local()),
    ("shim_killed", false, |tier| a_killed_shim(tier).boxed_local()),
    ("script_killed", false, |tier| a_killed_script(tier).boxed_local()),
    ("shut_down", false, |tier| a_host_that_shuts_down(tier).boxed_local()),
    ("rebooted", false, |tier| a_host_that_was_booted_again(tier).boxed_local()),
    ("disk_full", true, |tier| a_full_disk(tier).boxed_local()),
    ("read_only", true, |tier| a_read_only_spool(tier).boxed_local()),
    ("many", false, |tier| many_at_once(tier).boxed_local()),
    ("b57", false, |tier| grandchildren_that_hold_the_pipe(tier).boxed_local()),
    ("b60", false, |tier| a_flood_for_ever(tier).boxed_local()),
    ("b62", false, |tier| a_pid_of_somebody_else(tier).boxed_local()),
    ("b63", false, |tier| two_crashes(tier).boxed_local()),
    ("b79", false, |tier| what_it_sees_of_its_bot(tier).boxed_local()),
];

fn cell(name: &str) -> (bool, Cell) {
    let found = CELLS.iter().find(|(one, ..)| *one == name).expect("a cell");
    (found.1, found.2)
}

/// A cell in both tiers, as whoever this is and, where that is root, as an ordinary user: at once,
/// since most of it is waiting.
fn everywhere(name: &str) {
    std::thread::scope(|scope| {
        for (contained, as_user) in [(false, false), (false, true), (true, false), (true, true)] {
            scope.spawn(move || somewhere(name, contained, as_user));
        }
    });
}

fn somewhere(name: &str, contained: bool, as_user: bool) {
    let again = Again {
        test: "sandbox::survival::one_cell_of_the_matrix",
        env: vec![(CELL, name.to_owned()), (CONTAINED, contained.to_string())],
        // The system counts processes by users, so each has one of its own.
        user: as_user.then(|| USER + 1 + std::process::id() % 999 + 1_000 * u32::from(contained)),
        disk_kib: cell(name).0.then_some(DISK_KIB),
    };
    if as_user && !nix::unistd::geteuid().is_root() {
        return;
    }
    again.run();
}

#[test]
#[ignore = "run by the others, which say which cell and where"]
#[expect(clippy::disallowed_methods, reason = "what its parent told it")]
fn one_cell_of_the_matrix() {
    let told = |name| std::env::var(name).unwrap();
    let at = if told(CONTAINED) == "true" { Where::Contained } else { Where::Here };
    let (_, run) = cell(&told(CELL));
    within(at, async |tier| run(tier).await);
}

/// A bot of its own that starts three scripts.
#[expect(clippy::disallowed_methods, reason = "a bot that can be killed is a process of its own")]
fn bot(dir: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["sandbox::survival::the_bot_that_is_killed", "--exact", "--ignored"])
        .env(BOT, dir)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "the bot of another test"]
async fn the_bot_that_is_killed() {
    let dir = PathBuf::from(std::env::var_os(BOT).unwrap());
    let bench = Bench::made(&dir, sandboxed);
    for name in ["a", "b", "c"] {
        patient(&bench, name).await;
    }
    fs::write(dir.join("up.new"), "").unwrap();
    fs::rename(dir.join("up.new"), dir.join("up")).unwrap();
    std::future::pending::<()>().await;
}

async fn a_killed_bot(tier: Tier) {
    let mut bench = bench(tier);
    bench.crash().await;
    let mut bot = bot(bench.path());
    while !bench.path().join("up").exists() {
        assert!(bot.try_wait().unwrap().is_none(), "the bot ended by itself");
        crate::support::process::pause().await;
    }
    bot.kill().unwrap();
    bot.wait().unwrap();
    let [a, b, c] = ["a", "b", "c"].map(|name| ExecutionId::new(name).unwrap());
    let families = [&a, &b, &c].map(|id| Family::of(shim_of(&bench, id)));
    assert!(families.iter().all(|family| is_alive(family.script())));
    // One loses its shim while there is no bot, one ends by itself.
    signal(families[1].shim, Signal::KILL);
    families[0].go_on();
    assert!(families[0].is_gone() && families[1].is_gone());
    bench.open().unwrap();
    let mut found = bench.adopt().await;
    found.sort_by_key(|entry| entry.execution.clone());
    assert_eq!(told(ended(&found[0].found)), WELL);
    assert_eq!(told(ended(&found[1].found)), SHIM_KILLED);
    assert_eq!((&found[2].execution, &found[2].found, found.len()), (&c, &Found::Held, 3));
    bench.watch().cancel(&session(), &c).await.unwrap();
    let (of, outcome) = bench.end().await;
    assert_eq!((of, told(&outcome)), (c, TERMINATED));
    assert!(families[2].is_gone());
    bench.nothing_is_left().await;
}

async fn an_upgraded_bot(tier: Tier) {
    let mut bench = held(Bench::with(replaceable), tier);
    let (id, family) = patient(&bench, "old").await;
    bench.crash().await;
    // As packages do it: another file comes under the same name.
    let (new, shim) = (bench.path().join("new"), bench.path().join("dogwatch-shim"));
    fs::copy(&shim, &new).unwrap();
    fs::rename(&new, &shim).unwrap();
    bench.open().unwrap();
    assert_eq!(bench.adopt().await[0].found, Found::Held);
    let (next, of_next) = patient(&bench, "new").await;
    family.go_on();
    let (of, outcome) = bench.end().await;
    assert_eq!((of, told(&outcome)), (id, WELL));
    of_next.go_on();
    let (of, outcome) = bench.end().await;
    assert_eq!((of, told(&outcome)), (next, WELL));
    assert!(family.is_gone() && of_next.is_gone());
    bench.nothing_is_left().await;
}

async fn a_killed_shim(tier: Tier) {
    signalled(tier, |family| signal(family.shim, Signal::KILL), SHIM_KILLED).await;
}

/// With namespaces it is killed whose end takes all along.
async fn a_killed_script(tier: Tier) {
    let killed = (Status::Failed, Some(Exit::Signal(9)), None, "up\n");
    signalled(tier, |family| signal(family.below[0], Signal::KILL), killed).await;
}

async fn a_host_that_shuts_down(tier: Tier) {
    let why = Some("the host ended its supervisor");
    let ended = (Status::Cancelled, Some(Exit::Signal(15)), why, "up\n");
    signalled(tier, |family| signal(family.shim, Signal::TERM), ended).await;
}

async fn signalled(tier: Tier, signal: fn(&Family), expected: Told<'_>) {
    let mut bench = bench(tier);
    let (id, family) = patient(&bench, "w").await;
    signal(&family);
    let (of, outcome) = bench.end().await;
    assert_eq!((of, told(&outcome)), (id, expected));
    assert!(family.is_gone());
    assert_eq!(ended(&bench.adopt().await[0].found), &outcome);
    bench.nothing_is_left().await;
}

async fn a_host_that_was_booted_again(tier: Tier) {
    let mut bench = bench(tier);
    let (_, family) = patient(&bench, "w").await;
    bench.crash().await;
    signal(family.shim, Signal::KILL);
    assert!(family.is_gone());
    let spec = bench.entry().join("spec.json");
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let text = fs::read_to_string(&spec).unwrap();
    fs::write(&spec, text.replace(boot.trim(), "another")).unwrap();
    bench.open().unwrap();
    let found = bench.adopt().await;
    let rebooted = (Status::Lost, None, Some("host-rebooted"), "up\n");
    assert_eq!(told(ended(&found[0].found)), rebooted);
    bench.nothing_is_left().await;
}

async fn a_full_disk(tier: Tier) {
    let mut bench = held(Bench::made(&disk(), sandboxed), tier);
    let (id, family) = patient(&bench, "w").await;
    let mut fill = fs::File::create(disk().join("fill")).unwrap();
    for size in [1 << 16, 4_096, 1] {
        while std::io::Write::write_all(&mut fill, &vec![b'x'; size]).is_ok() {}
    }
    let refused = bench.watch().launch(launch("late", "print(1)", LONG_MS)).await.unwrap_err();
    assert!(refused.to_string().contains("No space left"), "{refused}");
    family.go_on();
    let (of, outcome) = bench.end().await;
    assert_eq!((of, told(&outcome)), (id, WELL));
    assert!(family.is_gone());
    // Who starts now finds it told, and the sandbox, and can start scripts as soon as there is room.
    bench.crash().await;
    bench.open().unwrap();
    let mut bench = held(bench, tier);
    assert_eq!(ended(&bench.adopt().await[0].found), &outcome);
    let refused = bench.watch().launch(launch("late", "print(1)", LONG_MS)).await.unwrap_err();
    assert!(refused.to_string().contains("No space left"), "{refused}");
    drop(fill);
    fs::remove_file(disk().join("fill")).unwrap();
    let after = bench.start("after", "print('up')\nprint('on')", LONG_MS).await;
    let (of, outcome) = bench.end().await;
    assert_eq!((of, told(&outcome)), (after, WELL));
    bench.nothing_is_left().await;
}

async fn a_read_only_spool(tier: Tier) {
    let mut bench = held(Bench::made(&disk(), sandboxed), tier);
    let (id, family) = patient(&bench, "w").await;
    // As a file system does that has seen an error: names below it can no longer be written.
    ask_landlord("ro");
    let refused = bench.watch().launch(launch("late", "print(1)", LONG_MS)).await.unwrap_err();
    assert!(refused.to_string().contains("Read-only file system"), "{refused}");
    family.go_on();
    let (of, outcome) = bench.end().await;
    assert_eq!((of, told(&outcome)), (id, WELL));
    assert!(family.is_gone());
    bench.crash().await;
    let refused = bench.open().unwrap_err().to_string();
    assert!(refused.contains("Read-only file system"), "{refused}");
    ask_landlord("rw");
    bench.open().unwrap();
    assert_eq!(ended(&bench.adopt().await[0].found), &outcome);
    bench.nothing_is_left().await;
}

/// All live at the same time, then each ends in its own way and is told once.
async fn many_at_once(tier: Tier) {
    let mut bench = bench(tier);
    let mut families = vec![];
    let mut ids = vec![];
    for no in 0..MANY {
        let id = start(&bench, &format!("w{no:03}"), PATIENT, LONG_MS).await;
        ids.push(id);
    }
    for id in &ids {
        printed(&bench, id, "up\n").await;
        families.push(Family::of(shim_of(&bench, id)));
    }
    assert!(families.iter().all(|family| is_alive(family.script())));
    let mut expected = vec![];
    for (no, (id, family)) in ids.iter().zip(&families).enumerate() {
        expected.push(match no % 4 {
            0 => WELL,
            1 => TERMINATED,
            2 => (Status::Cancelled, Some(Exit::Signal(9)), Some("killed"), "up\n"),
            _ => SHIM_KILLED,
        });
        match no % 4 {
            0 => family.go_on(),
            1 => bench.watch().cancel(&session(), id).await.unwrap(),
            2 => bench.watch().kill(&session(), id).await.unwrap(),
            _ => signal(family.shim, Signal::KILL),
        }
    }
    let mut outcomes = vec![];
    for _ in 0..MANY {
        outcomes.push(bench.end().await);
    }
    outcomes.sort_by(|(one, _), (other, _)| one.cmp(other));
    let of: Vec<&ExecutionId> = outcomes.iter().map(|(id, _)| id).collect();
    assert_eq!(of, ids.iter().collect::<Vec<_>>());
    for ((id, outcome), expected) in outcomes.iter().zip(expected) {
        assert_eq!(told(outcome), expected, "{id}");
    }
    let left = families.iter().filter(|family| !family.is_gone()).count();
    assert_eq!(left, 0);
    bench.nothing_is_left().await;
}

async fn grandchildren_that_hold_the_pipe(tier: Tier) {
    let group = "subprocess.Popen(['sleep', '600'])";
    let session = "subprocess.Popen(['sleep', '600'], start_new_session=True)";
    let twice = "subprocess.run(['sh', '-c', 'setsid sleep 600 & :'])";
    let mut bench = bench(tier);
    let mut families = vec![];
    let mut ids = vec![];
    for (name, how) in [("group", group), ("session", session), ("twice", twice)] {
        let script = format!(
            "import os, subprocess, time\nprint('before')\n{how}\nprint('up')\ntime.sleep(600)"
        );
        ids.push(start(&bench, name, &script, 10_000).await);
    }
    for id in ids {
        printed(&bench, &id, "up\n").await;
        families.push(Family::of(shim_of(&bench, &id)));
    }
    for _ in &families {
        let (of, outcome) = bench.end().await;
        let timed_out = (Status::TimedOut, Some(Exit::Signal(15)), None, "before\nup\n");
        assert_eq!(told(&outcome), timed_out, "{of}");
    }
    assert!(families.iter().all(Family::is_gone));
    bench.nothing_is_left().await;
}

async fn a_flood_for_ever(tier: Tier) {
    let mut bench = bench(tier);
    let id = start(&bench, "w", "import os\nos.execvp('yes', ['yes'])", LONG_MS).await;
    printed(&bench, &id, "y\ny\n").await;
    let entry = bench.entry();
    let kept = |name: &str| fs::metadata(entry.join(name)).unwrap().len();
    let before = kept("out") + kept("err");
    let flood = 10 * OUTPUT_BYTES_MAX as u64;
    while bench.watch().glance(&session(), &id).await.unwrap().stdout.bytes <= flood {
        crate::support::process::pause().await;
    }
    bench.watch().cancel(&session(), &id).await.unwrap();
    let (_, outcome) = bench.end().await;
    assert_eq!((outcome.status, outcome.exit), (Status::Cancelled, Some(Exit::Signal(15))));
    assert!(outcome.stdout.bytes > flood, "{}", outcome.stdout.bytes);
    assert!(outcome.stdout.head.len() + outcome.stdout.tail.len() <= OUTPUT_BYTES_MAX);
    assert_eq!(kept("out") + kept("err"), before);
    // Where it is kept nobody in a sandbox reads it, by any name.
    let names = ["", "out", "spec.json"].map(|name| entry.join(name).display().to_string());
    let script = format!(
        "import os
for name in {names:?}:
    try:
        os.listdir(name) if os.path.isdir(name) else open(name).read()
        print('read', name)
    except OSError as error:
        print(type(error).__name__)"
    );
    bench.start("thief", &script, LONG_MS).await;
    let (_, outcome) = bench.end().await;
    assert_eq!(outcome.exit, Some(Exit::Code(0)));
    assert!(!outcome.stdout.head.contains("read"), "{}", outcome.stdout.head);
    assert_eq!(outcome.stdout.head.lines().count(), names.len());
    bench.nothing_is_left().await;
}

async fn a_pid_of_somebody_else(tier: Tier) {
    let mut bench = bench(tier);
    let (id, family) = patient(&bench, "w").await;
    bench.crash().await;
    signal(family.shim, Signal::KILL);
    assert!(family.is_gone());
    let mut stranger = stranger();
    let pid = stranger.id().cast_signed();
    fs::write(bench.entry().join("lock"), pid.to_string()).unwrap();
    bench.open().unwrap();
    assert_eq!(told(ended(&bench.adopt().await[0].found)), SHIM_KILLED);
    bench.watch().cancel(&session(), &id).await.unwrap();
    bench.watch().kill(&session(), &id).await.unwrap();
    bench.nothing_is_left().await;
    assert!(is_alive(pid));
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

async fn two_crashes(tier: Tier) {
    let mut bench = bench(tier);
    let (id, family) = patient(&bench, "w").await;
    for _ in 0..2 {
        bench.crash().await;
        bench.open().unwrap();
        let found = bench.adopt().await;
        assert_eq!((&found[0].execution, &found[0].found, found.len()), (&id, &Found::Held, 1));
        assert_eq!(bench.adopt().await, found);
    }
    assert!(is_alive(family.script()));
    // A kill that is told is one that was done.
    bench.watch().kill(&session(), &id).await.unwrap();
    let (of, outcome) = bench.end().await;
    let killed = (Status::Cancelled, Some(Exit::Signal(9)), Some("killed"), "up\n");
    assert_eq!((of, told(&outcome)), (id, killed));
    assert!(!is_alive(family.script()) && family.is_gone());
    bench.nothing_is_left().await;
}

async fn what_it_sees_of_its_bot(tier: Tier) {
    let mut bench = bench(tier);
    let script = "import os
print(sorted(os.environ))
print(dict(os.environ))
for pid in (os.getppid(), 1, 'self', 'thread-self'):
    try:
        print(open(f'/proc/{pid}/environ').read())
    except OSError as error:
        print('refused')";
    let outcome = bench.run(script, LONG_MS).await;
    let printed = &outcome.stdout.head;
    // `LC_CTYPE` is Python's own.
    let names = printed.lines().next().unwrap().replace(", 'LC_CTYPE'", "");
    assert_eq!(names, "['HOME', 'LANG', 'PATH', 'TMPDIR']");
    assert!(!printed.contains("xoxb"), "{printed}");
    assert!(printed.ends_with(&"refused\n".repeat(4)), "{printed}");
    bench.nothing_is_left().await;
}

#[test]
fn a_killed_bot_finds_what_ended_what_runs_and_what_was_lost() {
    everywhere("bot_killed");
}

#[test]
fn a_bot_that_is_replaced_by_a_newer_one_attends_to_the_scripts_of_the_older() {
    everywhere("bot_upgraded");
}

#[test]
fn a_killed_shim_is_lost_with_its_output_and_takes_all_along() {
    everywhere("shim_killed");
}

#[test]
fn what_was_killed_by_somebody_else_is_told_by_its_signal() {
    everywhere("script_killed");
}

#[test]
fn a_host_that_shuts_down_is_obeyed() {
    everywhere("shut_down");
}

#[test]
fn another_boot_of_the_host_is_named() {
    everywhere("rebooted");
}

#[test]
fn a_full_disk_refuses_what_is_new_and_loses_nothing_of_what_runs() {
    everywhere("disk_full");
}

#[test]
fn a_read_only_spool_refuses_what_is_new_and_loses_nothing_of_what_runs() {
    everywhere("read_only");
}

#[test]
fn two_hundred_at_once_end_once_each_and_leave_nothing() {
    somewhere("many", false, false);
}

#[test]
fn two_hundred_at_once_end_once_each_and_leave_nothing_without_namespaces() {
    somewhere("many", true, false);
}

#[test]
fn two_hundred_of_an_ordinary_user_end_once_each_and_leave_nothing() {
    somewhere("many", false, true);
}

#[test]
fn two_hundred_of_an_ordinary_user_end_once_each_and_leave_nothing_without_namespaces() {
    somewhere("many", true, true);
}

#[test]
fn b57_a_deadline_is_told_though_a_grandchild_holds_the_pipe_in_the_sandbox() {
    everywhere("b57");
}

#[test]
fn b60_a_flood_for_ever_is_bounded_and_nobody_reads_what_is_kept_in_the_sandbox() {
    everywhere("b60");
}

#[test]
fn b62_a_pid_in_the_lock_is_no_evidence_in_the_sandbox() {
    everywhere("b62");
}

#[test]
fn b63_a_recovery_that_is_cut_twice_ends_like_one_in_the_sandbox() {
    everywhere("b63");
}

#[test]
fn b79_a_script_sees_no_secret_of_its_bot_in_the_sandbox() {
    everywhere("b79");
}
