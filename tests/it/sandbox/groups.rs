//! Control groups, where this machine gives them: what the kernel does while no look can, and that
//! none is left.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use dogwatch::core::execution::{Exit, Status};
use dogwatch::watch::{Sandbox, Settings, Tier, Version};
use rustix::process::Signal;

use super::kin::{
    Family, LONG_MS, SHIM_KILLED, WELL, ended, patient, printed, shim_of, start, told,
};
use super::stand::{Where, as_user, narrow, within};
use crate::watch::bench::{Bench, ends, signal};

/// A probe whose kin is not reaped yet is found by a later start.
const STARTS_MAX: usize = 20;
const MEMORY: &str = "it met its limit of 128 MiB of memory";

/// Where the groups that a process is in lie: one in each tree of the first version, the memory's
/// first, or the one of the second.
fn groups(of: &str) -> Vec<PathBuf> {
    let own = fs::read_to_string(format!("/proc/{of}/cgroup")).unwrap();
    let line = |controller: &str| {
        own.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            controllers.split(',').any(|one| one == controller).then(|| path.to_owned())
        })
    };
    let dir = |tree: &str, path: String| {
        let dir = PathBuf::from(format!("/sys/fs/cgroup{tree}{path}"));
        dir.join("cgroup.procs").exists().then_some(dir)
    };
    let first = ["memory", "pids", "cpu"].into_iter();
    let first: Vec<_> = first.filter_map(|name| dir(&format!("/{name}"), line(name)?)).collect();
    if first.is_empty() {
        line("").and_then(|path| dir("", path)).into_iter().collect()
    } else {
        first
    }
}

/// Which version must be found, by a witness that is not our own code; `None` where it cannot be
/// told.
fn version() -> Option<Version> {
    let own = groups("self");
    let own = own.first()?;
    if own.join("memory.limit_in_bytes").exists() {
        let made = own.join(format!("w-{}", std::process::id()));
        return (fs::create_dir(&made).and_then(|()| fs::remove_dir(&made)).is_ok())
            .then_some(Version::V1);
    }
    // As `contrib/dogwatch.service` has it made.
    let parent = own.parent().filter(|_| own.ends_with("bot"))?;
    let given = fs::read_to_string(parent.join("cgroup.subtree_control")).unwrap_or_default();
    let writable = fs::OpenOptions::new().write(true).open(parent.join("cgroup.procs")).is_ok();
    (writable && given.contains("memory") && given.contains("pids")).then_some(Version::V2)
}

/// A bench whose scripts are in groups; `None` where this machine has none.
fn grouped(tier: Tier) -> Option<Bench> {
    let bench = Bench::with(narrow);
    let found = bench.watch().sandbox().unwrap();
    assert_eq!(found.tier, Some(tier));
    match version() {
        Some(version) => assert_eq!((found.group(), &found.no_group), (Some(version), &None)),
        None => assert_eq!(found.group().is_some(), found.no_group.is_none(), "{found:?}"),
    }
    found.group().is_some().then_some(bench)
}

/// The groups that a process is in and that are its script's alone.
fn groups_of(pid: i32) -> Vec<PathBuf> {
    let all = groups(&pid.to_string()).into_iter();
    all.filter(|dir| dir.file_name().unwrap().to_string_lossy().starts_with("dogwatch-")).collect()
}

fn is_stopped(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit(')').next().unwrap().trim_start().starts_with('T')
}

fn is_gone(groups: &[PathBuf]) -> bool {
    !groups.is_empty() && groups.iter().all(|dir| !dir.exists())
}

async fn it_holds_a_script_and_goes_with_it(tier: Tier) {
    let Some(mut bench) = grouped(tier) else { return };
    let (_, family) = patient(&bench, "w").await;
    let groups = groups_of(family.script());
    let number = |name: &str| {
        let file = groups.iter().map(|dir| dir.join(name)).find(|file| file.exists()).unwrap();
        fs::read_to_string(file).unwrap().trim().parse::<u64>().unwrap()
    };
    let (memory, cpu) = match bench.watch().sandbox().unwrap().group().unwrap() {
        Version::V1 => ("memory.limit_in_bytes", ("cpu.shares", 256)),
        Version::V2 => ("memory.max", ("cpu.weight", 25)),
    };
    assert_eq!(number(memory), (128 + 4) << 20);
    assert_eq!(number("pids.max"), 12 + 8 + 1);
    assert_eq!(number(cpu.0), cpu.1);
    // All of it but its shim.
    assert!(groups_of(family.shim).is_empty());
    assert!(family.below.iter().all(|pid| groups_of(*pid) == groups));
    family.go_on();
    let (_, outcome) = bench.end().await;
    assert_eq!(told(&outcome), WELL);
    assert!(is_gone(&groups), "{groups:?}");
    bench.nothing_is_left().await;
}

/// The shim is stopped, so whatever holds the script meanwhile is the kernel.
async fn it_holds_a_script_while_nobody_looks(tier: Tier) {
    let Some(mut bench) = grouped(tier) else { return };
    let greedy = "import signal, time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
print('up')
signal.sigwait([signal.SIGUSR1])
held = [b'x' * (1 << 20) for _ in range(200)]
print('took it')";
    let id = start(&bench, "greedy", greedy, LONG_MS).await;
    printed(&bench, &id, "up\n").await;
    let family = Family::of(shim_of(&bench, &id));
    signal(family.shim, Signal::STOP);
    family.go_on();
    assert!(ends(family.script()));
    signal(family.shim, Signal::CONT);
    let (_, outcome) = bench.end().await;
    let met = (Status::Failed, Some(Exit::Signal(9)), Some(MEMORY), "up\n");
    assert_eq!(told(&outcome), met);
    bench.nothing_is_left().await;
}

/// One of several is killed by the kernel: the rest does not go on.
async fn it_ends_a_script_of_which_a_part_was_killed(tier: Tier) {
    let Some(mut bench) = grouped(tier) else { return };
    let script = "import os, time
if os.fork() == 0:
    held = bytearray(200 << 20)
    time.sleep(600)
os.wait()
time.sleep(600)";
    start(&bench, "w", script, LONG_MS).await;
    let (_, outcome) = bench.end().await;
    assert_eq!((outcome.status, outcome.reason.as_deref()), (Status::Failed, Some(MEMORY)));
    bench.nothing_is_left().await;
}

async fn it_holds_the_number_of_processes_while_nobody_looks(tier: Tier) {
    let Some(mut bench) = grouped(tier) else { return };
    let bomb = "import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
print('up')
signal.sigwait([signal.SIGUSR1])
pids = []
r, w = os.pipe()
try:
    while True:
        pid = os.fork()
        if pid == 0:
            os.close(w)
            os.read(r, 1)
            os._exit(0)
        pids.append(pid)
except OSError:
    # It may not signal them where Landlock is old.
    os.close(w)
    for pid in pids: os.waitpid(pid, 0)
print('made', len(pids))";
    let id = start(&bench, "bomb", bomb, LONG_MS).await;
    printed(&bench, &id, "up\n").await;
    let family = Family::of(shim_of(&bench, &id));
    signal(family.shim, Signal::STOP);
    family.go_on();
    assert!(ends(family.script()));
    signal(family.shim, Signal::CONT);
    let (_, outcome) = bench.end().await;
    // With what stands over it and itself, 21.
    let most = if tier == Tier::Namespaces { 19 } else { 20 };
    assert_eq!(outcome.stdout.head, format!("up\nmade {most}\n"), "{outcome:?}");
    bench.nothing_is_left().await;
}

/// What hides from every look at its environment and its parents.
async fn what_a_killed_shim_leaves_is_found_by_it(tier: Tier) {
    let Some(mut bench) = grouped(tier) else { return };
    let script = "import os, subprocess, time
subprocess.Popen(['setsid', 'sleep', '600'], env={'PATH': os.environ['PATH']})
print('up')
time.sleep(600)";
    let id = start(&bench, "w", script, LONG_MS).await;
    printed(&bench, &id, "up\n").await;
    let family = Family::of(shim_of(&bench, &id));
    let groups = groups_of(family.below[0]);
    signal(family.shim, Signal::KILL);
    let (_, outcome) = bench.end().await;
    assert_eq!(told(&outcome), SHIM_KILLED);
    assert!(family.is_gone() && is_gone(&groups));
    bench.nothing_is_left().await;
}

/// Of the first version a group is several directories, which are made one after the other: the shim
/// is killed when it has `made` so many.
async fn what_a_killed_bot_and_shim_leave_goes_at_the_next_start(tier: Tier, made: usize) {
    let Some(mut bench) = grouped(tier) else { return };
    let (_, family) = patient(&bench, "w").await;
    let groups = groups_of(family.script());
    bench.crash().await;
    signal(family.shim, Signal::KILL);
    assert!(family.is_gone());
    assert!(groups.iter().all(|dir| dir.exists()));
    for later in groups.iter().skip(made) {
        // Who was killed is a member until it is reaped.
        while fs::remove_dir(later).is_err() {
            crate::support::process::pause().await;
        }
    }
    bench.open().unwrap();
    assert_eq!(told(ended(&bench.adopt().await[0].found)), SHIM_KILLED);
    assert!(is_gone(&groups));
    bench.nothing_is_left().await;
}

#[expect(clippy::disallowed_methods, reason = "a probe that is killed is a process of its own")]
fn probe(dir: &Path) -> Child {
    let Settings { shim, python, sandbox, .. } = narrow(dir);
    let Sandbox::Required(limits) = sandbox else { panic!("no sandbox is wanted") };
    let mut probe = Command::new(shim);
    probe.arg("probe").arg(python).arg(serde_json::to_string(&limits).unwrap()).arg(dir);
    probe.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap()
}

/// One that has made its groups and goes no further, and those groups.
fn held_probe(dir: &Path) -> (Child, Vec<PathBuf>) {
    let mut known = groups("self");
    if version() == Some(Version::V2) {
        known = vec![known[0].parent().unwrap().to_owned()];
    }
    loop {
        let mut probe = probe(dir);
        let name = format!("dogwatch-probe-{}", probe.id());
        let all: Vec<_> = known.iter().map(|dir| dir.join(&name)).collect();
        let pid = i32::try_from(probe.id()).unwrap();
        while probe.try_wait().unwrap().is_none() {
            if all[0].exists() {
                signal(pid, Signal::STOP);
                while !is_stopped(pid) {
                    std::thread::yield_now();
                }
                if all[0].exists() {
                    return (probe, all);
                }
                signal(pid, Signal::CONT);
            }
            std::thread::yield_now();
        }
    }
}

async fn what_a_killed_probe_leaves_goes_at_the_next_start(tier: Tier) {
    let Some(mut bench) = grouped(tier) else { return };
    let (mut probe, groups) = held_probe(bench.path());
    // Two bots may start at once.
    bench.crash().await;
    bench.open().unwrap();
    let kept = groups[0].exists();
    probe.kill().unwrap();
    probe.wait().unwrap();
    assert!(kept);
    // Whom it takes along is a member until it is reaped.
    for _ in 0..STARTS_MAX {
        bench.crash().await;
        bench.open().unwrap();
        if is_gone(&groups) {
            break;
        }
    }
    let gone = is_gone(&groups);
    let _not_left_here = groups.iter().map(fs::remove_dir).count();
    assert!(gone);
    bench.nothing_is_left().await;
}

/// Lets a shim be told of a group that it cannot make.
fn misled(dir: &Path) -> Settings {
    let (path, narrow) = (dir.join("misled"), narrow(dir));
    let text = format!(
        "#!/bin/sh\n[ \"$1\" = zygote ] && exit 64\n\
         [ \"$1\" = probe ] || sed -i s:/dogwatch-:/nowhere/dogwatch-:g \"$2/spec.json\"\n\
         exec {} \"$@\"\n",
        narrow.shim.display()
    );
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    Settings { shim: path, ..narrow }
}

/// Where one was promised a script does not run without.
async fn without_it_nothing_starts(tier: Tier) {
    if grouped(tier).is_none() {
        return;
    }
    let mut bench = Bench::with(misled);
    let outcome = bench.run("print('ran')", LONG_MS).await;
    assert_eq!((outcome.status, outcome.stdout.head.as_str()), (Status::Failed, ""));
    let reason = outcome.reason.unwrap();
    assert!(reason.contains("cannot start") && reason.contains("control group"), "{reason}");
    bench.nothing_is_left().await;
}

async fn all(tier: Tier) {
    it_holds_a_script_and_goes_with_it(tier).await;
    it_holds_a_script_while_nobody_looks(tier).await;
    it_ends_a_script_of_which_a_part_was_killed(tier).await;
    it_holds_the_number_of_processes_while_nobody_looks(tier).await;
    what_a_killed_shim_leaves_is_found_by_it(tier).await;
    for made in [usize::MAX, 1] {
        what_a_killed_bot_and_shim_leave_goes_at_the_next_start(tier, made).await;
    }
    what_a_killed_probe_leaves_goes_at_the_next_start(tier).await;
    without_it_nothing_starts(tier).await;
}

#[test]
fn a_control_group_holds_each_script_and_goes_with_it_here() {
    within(Where::Here, all);
}

#[test]
fn a_control_group_holds_each_script_and_goes_with_it_without_namespaces() {
    within(Where::Contained, all);
}

#[test]
#[ignore = "run as another user by the next one"]
fn user_here() {
    within(Where::Here, async |tier| {
        let bench = Bench::with(narrow);
        let found = bench.watch().sandbox().unwrap().clone();
        assert_eq!(found.tier, Some(tier));
        if version().is_none() && found.group().is_none() {
            assert!(found.bounded().contains("only looked at"), "{found:?}");
            assert!(found.no_group.is_some_and(|why| !why.is_empty()));
        }
    });
}

#[test]
fn who_may_not_make_control_groups_is_told_why() {
    as_user("sandbox::groups::user_here");
}
