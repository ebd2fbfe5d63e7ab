//! A control group for each script: the kernel holds all its processes together to their memory and
//! their number, and gives others the processor first. Owns where groups are, their files and their
//! removal. Must not know tiers, deadlines or records.
//!
//! A group lies below that of the bot, so whatever holds the bot holds its scripts as well. Where
//! it is stands in what its shim is told: what a killed shim left there is found by that.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};

use nix::poll::poll;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use super::{Limits, step};
use crate::core::limits::{
    LEFTOVERS_MS_MAX, WATCH_CPU_SHARES, WATCH_CPU_WEIGHT, WATCH_PROCESSES_ABOVE,
};

/// What a group's name begins with.
const OURS: &str = "dogwatch-";
/// What stands in the name of a group between that and the process that tries one.
const OF_PROBE: &str = "probe-";
/// The group of a bot whose parent was given to it, as the unit in `contrib` says. In the second
/// version only a group without processes can bound those below it.
const OF_BOT: &str = "bot";
/// Who is in a group.
const MEMBERS: &str = "cgroup.procs";
/// Between two looks whether a group is empty.
const EMPTY_POLL_MS: u16 = 10;

/// Which control groups a system has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Version {
    /// One tree a controller.
    V1,
    /// One tree.
    V2,
}

impl Version {
    /// As people read it.
    pub const fn words(self) -> &'static str {
        match self {
            Self::V1 => "control groups (v1)",
            Self::V2 => "control groups (v2)",
        }
    }
}

/// The group of a script: one directory in each tree, that of memory first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::watch) struct Group {
    version: Version,
    dirs: Vec<PathBuf>,
}

/// The ways into a group.
#[derive(Debug, Default)]
pub(super) struct Doors(Vec<File>);

impl Doors {
    /// Goes in, with all that it will start. Only a process of one thread may call this.
    pub(super) fn go_in(self) -> io::Result<()> {
        // 0 is whoever writes it.
        let entered = self.0.into_iter().try_for_each(|mut door| door.write_all(b"0"));
        entered.map_err(step("enter its control group"))
    }

    /// Their descriptors.
    pub(super) fn fds(&self) -> impl Iterator<Item = RawFd> {
        self.0.iter().map(AsRawFd::as_raw_fd)
    }
}

/// Finds out whether groups can be made here, by making one. Answers where that is.
pub(super) fn tried(limits: &Limits) -> io::Result<Group> {
    let (of_bot, own) = (of_bot()?, std::process::id());
    // One that was killed may have had the same number.
    of_bot.tidy(|pid| pid != own && is_probe(pid));
    let group = of_bot.of_probe();
    group.make(limits)?;
    group.end();
    Ok(of_bot)
}

/// Is this a process that tries a sandbox? One that is not seen is gone.
fn is_probe(pid: u32) -> bool {
    match fs::read(format!("/proc/{pid}/cmdline")) {
        Ok(line) => line.split(|byte| *byte == 0).nth(1) == Some(b"probe"),
        Err(error) => error.kind() != ErrorKind::NotFound,
    }
}

impl Group {
    /// One that is not there.
    #[cfg(test)]
    pub(super) fn nowhere() -> Self {
        Self { version: Version::V2, dirs: vec![] }
    }

    /// Of which version it is.
    pub(in crate::watch) fn version(&self) -> Version {
        self.version
    }

    /// One below it, with this name.
    pub(in crate::watch) fn named(&self, name: &str) -> Self {
        let dirs = self.dirs.iter().map(|dir| dir.join(format!("{OURS}{name}"))).collect();
        Self { version: self.version, dirs }
    }

    /// One below it for this process, which tries it.
    pub(super) fn of_probe(&self) -> Self {
        self.named(&format!("{OF_PROBE}{}", std::process::id()))
    }

    /// Removes what killed probes left below it. Whoever is in a group keeps it.
    fn tidy(&self, lives: impl Fn(u32) -> bool) {
        let prefix = format!("{OURS}{OF_PROBE}");
        let all = self.dirs.iter().filter_map(|dir| fs::read_dir(dir).ok());
        for found in all.flatten().flatten() {
            let name = found.file_name();
            let pid = name.to_str().and_then(|name| name.strip_prefix(&prefix)?.parse().ok());
            if pid.is_some_and(|pid| !lives(pid)) {
                let _somebody_is_in_it = fs::remove_dir(found.path());
            }
        }
    }

    /// Makes it, with these limits.
    pub(in crate::watch) fn make(&self, limits: &Limits) -> io::Result<()> {
        let made = self.dirs.iter().try_for_each(|dir| {
            let what = format!("make the control group {}", dir.display());
            fs::create_dir(dir).map_err(step(&what))
        });
        let made = made.and_then(|()| self.bound(limits));
        if made.is_err() {
            self.remove();
        }
        made
    }

    fn bound(&self, limits: &Limits) -> io::Result<()> {
        // Files in its directory lie in memory as well, and have a limit of their own.
        let bytes = (limits.memory_bytes_max + limits.tmp_bytes_max).to_string();
        // The first process of its namespaces is one of them.
        let processes = (limits.processes_max + WATCH_PROCESSES_ABOVE + 1).to_string();
        let (shares, weight) = (WATCH_CPU_SHARES.to_string(), WATCH_CPU_WEIGHT.to_string());
        let settings: &[(&str, &str, bool)] = match self.version {
            Version::V1 => &[
                ("memory.limit_in_bytes", &bytes, true),
                // Kernels may be built or started without it.
                ("memory.memsw.limit_in_bytes", &bytes, false),
                ("pids.max", &processes, true),
                ("cpu.shares", &shares, false),
            ],
            Version::V2 => &[
                ("memory.max", &bytes, true),
                ("memory.swap.max", "0", false),
                // Half of a script is of no use.
                ("memory.oom.group", "1", false),
                ("pids.max", &processes, true),
                ("cpu.weight", &weight, false),
            ],
        };
        for (name, value, is_needed) in settings {
            let written = match self.open(name, OpenOptions::new().write(true)) {
                Some(file) => file.and_then(|mut file| file.write_all(value.as_bytes())),
                None if *is_needed => {
                    return Err(io::Error::other(format!("the control group has no {name}")));
                }
                None => Ok(()),
            };
            written.map_err(step(&format!("write {name} of its control group")))?;
        }
        Ok(())
    }

    /// The file of this name, in the tree that has it.
    fn open(&self, name: &str, how: &OpenOptions) -> Option<io::Result<File>> {
        let mut opened = self.dirs.iter().map(|dir| how.open(dir.join(name)));
        let is_elsewhere = |error: &io::Error| error.kind() == ErrorKind::NotFound;
        opened.find(|opened| !opened.as_ref().is_err_and(is_elsewhere))
    }

    /// The ways in. What is opened here may be used by who could not open it.
    pub(super) fn doors(&self) -> io::Result<Doors> {
        let name = match self.version {
            // Of one thread, which is all that comes in: a whole process could come in only while
            // no other process of the system begins or ends, and that is waited for, for
            // milliseconds (`cgroup_procs_write_start` in kernel/cgroup/cgroup.c).
            Version::V1 => "tasks",
            Version::V2 => MEMBERS,
        };
        let open = |dir: &PathBuf| {
            let what = format!("enter the control group {}", dir.display());
            OpenOptions::new().write(true).open(dir.join(name)).map_err(step(&what))
        };
        self.dirs.iter().map(open).collect::<io::Result<_>>().map(Doors)
    }

    /// Has the kernel killed anybody in it for memory?
    pub(in crate::watch) fn was_short(&self) -> bool {
        let name = match self.version {
            Version::V1 => "memory.oom_control",
            Version::V2 => "memory.events",
        };
        let file = self.open(name, OpenOptions::new().read(true)).and_then(Result::ok);
        let text = file.and_then(|file| io::read_to_string(file).ok());
        text.is_some_and(|text| {
            let killed = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
            killed.is_some_and(|count| count.trim() != "0")
        })
    }

    /// Is it one that a shim makes? Whatever stands in a file, nothing else is ended. A shim that
    /// was killed while it made one has made only some of its directories.
    pub(in crate::watch) fn is_ours(&self) -> bool {
        let is_named = |dir: &PathBuf| {
            dir.file_name().is_some_and(|name| name.to_string_lossy().starts_with(OURS))
        };
        let is_missing = |dir: &PathBuf| {
            dir.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound)
        };
        let is_group = |dir: &PathBuf| dir.join(MEMBERS).exists();
        self.dirs.iter().all(|dir| is_named(dir) && (is_group(dir) || is_missing(dir)))
            && self.dirs.iter().any(is_group)
    }

    /// Kills whoever is left in it and removes it. Answers how many that were.
    pub(in crate::watch) fn end(&self) -> u32 {
        let mut killed = 0;
        for _ in 0..LEFTOVERS_MS_MAX / u64::from(EMPTY_POLL_MS) {
            if self.remove() {
                break;
            }
            killed += self.kill();
            // Who was killed is a member until it is reaped.
            let _passed = poll(&mut [], EMPTY_POLL_MS);
        }
        killed
    }

    /// Signals all members. Answers how many of them were running.
    fn kill(&self) -> u32 {
        let is_dying = |pid: i32| {
            let stat = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
            let stat = String::from_utf8_lossy(&stat).into_owned();
            stat.rsplit(')').next().is_none_or(|rest| rest.trim_start().starts_with(['Z', 'X']))
        };
        let signalled = self.members().into_iter().filter(|pid| {
            let Some(named) = Pid::from_raw(*pid) else { return false };
            // First the descriptor, then the look: a stranger with this number is no member.
            let Ok(process) = pidfd_open(named, PidfdFlags::empty()) else { return false };
            let is_ours = self.members().contains(pid) && !is_dying(*pid);
            is_ours && pidfd_send_signal(process, Signal::KILL).is_ok()
        });
        u32::try_from(signalled.count()).unwrap_or(u32::MAX)
    }

    fn members(&self) -> Vec<i32> {
        let lists = self.dirs.iter().filter_map(|dir| fs::read_to_string(dir.join(MEMBERS)).ok());
        let mut all: Vec<i32> = lists
            .flat_map(|list| list.lines().map(str::parse).collect::<Vec<_>>())
            .flatten()
            .collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Answers whether it is gone.
    fn remove(&self) -> bool {
        let mut gone = true;
        for dir in &self.dirs {
            gone &= match fs::remove_dir(dir) {
                Ok(()) => true,
                Err(error) => error.kind() == ErrorKind::NotFound,
            };
        }
        gone
    }
}

/// The group that this process is in, with the controllers that are needed.
fn of_bot() -> io::Result<Group> {
    let read = |path: &str| fs::read_to_string(path).map_err(step(&format!("read {path}")));
    found(&read("/proc/self/mountinfo")?, &read("/proc/self/cgroup")?)
}

/// A tree of groups as it is mounted.
struct Tree<'a> {
    version: Version,
    /// What of the tree is seen.
    root: &'a str,
    place: &'a str,
    options: &'a str,
}

/// From `mountinfo` (`proc_pid_mountinfo(5)`) and `cgroup` (cgroups(7)) of a process.
fn found(mounts: &str, own: &str) -> io::Result<Group> {
    let trees: Vec<Tree<'_>> = mounts.lines().filter_map(tree).collect();
    let first = |controller: &str| {
        let tree = trees.iter().find(|tree| {
            tree.version == Version::V1 && tree.options.split(',').any(|one| one == controller)
        })?;
        let line = own.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            controllers.split(',').any(|one| one == controller).then_some(path)
        })?;
        below(tree, line)
    };
    if let (Some(memory), Some(pids)) = (first("memory"), first("pids")) {
        let mut all = vec![memory];
        for dir in [Some(pids), first("cpu")].into_iter().flatten() {
            // Several controllers may share a tree.
            if !all.contains(&dir) {
                all.push(dir);
            }
        }
        return Ok(Group { version: Version::V1, dirs: all });
    }
    let none = || io::Error::other("no control groups with `memory` and `pids` are mounted");
    let tree = trees.iter().find(|tree| tree.version == Version::V2).ok_or_else(none)?;
    let path = own.lines().find_map(|line| line.strip_prefix("0::")).ok_or_else(none)?;
    let mut dir = below(tree, path).ok_or_else(none)?;
    if dir.ends_with(OF_BOT) {
        dir.pop();
    }
    delegate(&dir)?;
    Ok(Group { version: Version::V2, dirs: vec![dir] })
}

fn tree(line: &str) -> Option<Tree<'_>> {
    let (mount, system) = line.split_once(" - ")?;
    let mut system = system.split(' ');
    let version = match system.next()? {
        "cgroup" => Version::V1,
        "cgroup2" => Version::V2,
        _other => return None,
    };
    let options = system.nth(1)?;
    let mut mount = mount.split(' ').skip(3);
    Some(Tree { version, root: mount.next()?, place: mount.next()?, options })
}

/// Where a group is seen, if it is.
fn below(tree: &Tree<'_>, group: &str) -> Option<PathBuf> {
    let rest = Path::new(group).strip_prefix(tree.root).ok()?;
    let dir = Path::new(tree.place).join(rest);
    dir.is_dir().then_some(dir)
}

/// Lets groups below this one have limits, if somebody else did not.
fn delegate(dir: &Path) -> io::Result<()> {
    let list = |name: &str| fs::read_to_string(dir.join(name)).unwrap_or_default();
    let has = |list: &str, one: &str| list.split_whitespace().any(|word| word == one);
    let (offered, given) = (list("cgroup.controllers"), list("cgroup.subtree_control"));
    for (controller, is_needed) in [("memory", true), ("pids", true), ("cpu", false)] {
        if has(&given, controller) {
            continue;
        }
        let asked = if has(&offered, controller) {
            fs::write(dir.join("cgroup.subtree_control"), format!("+{controller}"))
        } else {
            Err(io::Error::other("it is not offered there"))
        };
        if is_needed {
            let what = format!("have the controller `{controller}` in {}", dir.display());
            asked.map_err(step(&what))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree as the kernel would show it.
    fn trees(dir: &Path, all: &[&str]) {
        for path in all {
            fs::create_dir_all(dir.join(path)).unwrap();
        }
    }

    #[test]
    fn in_the_first_version_each_controller_has_a_group_below_the_bots() {
        let dir = tempfile::tempdir().unwrap();
        trees(dir.path(), &["memory/box/7", "pids", "cpu/box"]);
        let at = dir.path().display();
        let mounts = format!(
            "31 23 0:28 / {at} rw - tmpfs tmpfs rw,mode=755\n\
             35 31 0:32 / {at}/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n\
             39 31 0:36 /docker/1 {at}/pids rw - cgroup cgroup rw,pids\n\
             32 31 0:29 / {at}/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
        );
        let own = "8:pids:/docker/1\n4:memory:/box/7\n1:cpu,cpuacct:/box\n0::/\n";
        let found = found(&mounts, own).unwrap();
        assert_eq!(found.version, Version::V1);
        let dirs = ["memory/box/7", "pids", "cpu/box"].map(|path| dir.path().join(path));
        assert_eq!(found.dirs, dirs);
        let named = found.named("x-1");
        assert_eq!(named.dirs[0], dirs[0].join("dogwatch-x-1"));
    }

    #[test]
    fn in_the_second_version_the_parent_of_the_bots_group_bounds_scripts() {
        let dir = tempfile::tempdir().unwrap();
        trees(dir.path(), &["service/bot"]);
        let service = dir.path().join("service");
        fs::write(service.join("cgroup.controllers"), "cpu memory pids\n").unwrap();
        fs::write(service.join("cgroup.subtree_control"), "memory cpu\n").unwrap();
        let mounts =
            format!("41 31 0:38 / {} rw - cgroup2 cgroup2 rw,nsdelegate\n", dir.path().display());
        let found = found(&mounts, "0::/service/bot\n").unwrap();
        assert_eq!((found.version, &found.dirs[..]), (Version::V2, &[service.clone()][..]));
        let asked = fs::read_to_string(service.join("cgroup.subtree_control")).unwrap();
        assert_eq!(asked, "+pids");
    }

    #[test]
    fn what_killed_probes_left_goes_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let stay = ["other", "dogwatch-w", "dogwatch-probe-8", "dogwatch-probe-x"];
        trees(dir.path(), &stay);
        trees(dir.path(), &["dogwatch-probe-7", "dogwatch-probe-9/in-it"]);
        Group { version: Version::V1, dirs: vec![dir.path().to_owned()] }.tidy(|pid| pid == 8);
        assert!(!dir.path().join("dogwatch-probe-7").exists());
        assert!(dir.path().join("dogwatch-probe-9/in-it").exists());
        assert!(stay.iter().all(|name| dir.path().join(name).exists()));
        // Who runs is a probe only if it says so.
        assert!(!is_probe(std::process::id()) && !is_probe(u32::MAX));
    }

    #[test]
    fn where_there_is_none_it_says_what_is_missing() {
        let none = found("31 23 0:28 / /sys rw - tmpfs tmpfs rw\n", "0::/\n").unwrap_err();
        assert!(none.to_string().contains("no control groups with `memory`"), "{none}");
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("cgroup.controllers"), "hugetlb\n").unwrap();
        let mounts = format!("41 31 0:38 / {} rw - cgroup2 cgroup2 rw\n", dir.path().display());
        let none = found(&mounts, "0::/\n").unwrap_err().to_string();
        assert!(none.contains("`memory`") && none.contains("not offered"), "{none}");
    }

    #[test]
    fn nothing_but_a_group_of_ours_is_ended() {
        let dir = tempfile::tempdir().unwrap();
        trees(dir.path(), &["other", "dogwatch-w", "dogwatch-x"]);
        for name in ["other", "dogwatch-w"] {
            fs::write(dir.path().join(name).join(MEMBERS), "").unwrap();
        }
        let is_ours = |names: &[&str]| {
            let dirs = names.iter().map(|name| dir.path().join(name)).collect();
            Group { version: Version::V1, dirs }.is_ours()
        };
        assert!(is_ours(&["dogwatch-w"]) && !is_ours(&["other"]));
        // One of several, and one that is no group.
        assert!(!is_ours(&["dogwatch-w", "other"]) && !is_ours(&["dogwatch-w", "dogwatch-x"]));
        assert!(!is_ours(&["dogwatch-x"]));
    }

    #[test]
    fn what_was_made_of_a_group_is_ended_where_not_all_was() {
        let dir = tempfile::tempdir().unwrap();
        trees(dir.path(), &["memory/dogwatch-w", "pids"]);
        fs::write(dir.path().join("memory/dogwatch-w").join(MEMBERS), "").unwrap();
        let is_ours = |names: &[&str]| {
            let dirs = names.iter().map(|name| dir.path().join(name)).collect();
            Group { version: Version::V1, dirs }.is_ours()
        };
        assert!(is_ours(&["memory/dogwatch-w", "pids/dogwatch-w"]));
        // Something else that is not there, and nothing at all.
        assert!(!is_ours(&["memory/dogwatch-w", "pids/other"]));
        assert!(!is_ours(&["pids/dogwatch-w", "cpu/dogwatch-w"]));
    }
}
