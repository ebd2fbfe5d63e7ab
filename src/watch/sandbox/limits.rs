//! What a script may use, and who holds it to that: the system for each process, the shim's looks
//! for all of them together. Owns what is counted and how. Must not know how a script is ended.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{SysconfVar, sysconf};
use serde::{Deserialize, Serialize};

use super::Group;
use crate::core::limits::{
    WATCH_ADDRESS_FACTOR, WATCH_CPU_SECONDS, WATCH_LOOK_AGAIN_MS, WATCH_LOOK_BUSY_MS,
    WATCH_LOOK_IDLE_MS, WATCH_LOOK_MS, WATCH_LOOKS_OVER, WATCH_MEMORY_BYTES, WATCH_OPEN_FILES,
    WATCH_PROCESSES, WATCH_PROCESSES_ABOVE, WATCH_SIGNALS_PENDING, WATCH_TMP_BYTES,
    WATCH_TMP_FILES,
};

/// What a script may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Memory of all its processes together.
    pub memory_bytes_max: u64,
    /// Its processes and threads together.
    pub processes_max: u64,
    /// What it may keep in its directory.
    pub tmp_bytes_max: u64,
    /// Files and directories that it may keep there.
    pub files_max: u64,
    /// Files that each of its processes may have open.
    pub open_files_max: u64,
    /// Processor time of all its processes together.
    pub cpu_seconds_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory_bytes_max: WATCH_MEMORY_BYTES,
            processes_max: WATCH_PROCESSES,
            tmp_bytes_max: WATCH_TMP_BYTES,
            files_max: WATCH_TMP_FILES,
            open_files_max: WATCH_OPEN_FILES,
            cpu_seconds_max: WATCH_CPU_SECONDS,
        }
    }
}

/// A limit that was passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::watch) enum Passed {
    /// `memory_bytes_max`.
    Memory,
    /// `processes_max`.
    Processes,
    /// `tmp_bytes_max` or `files_max`.
    Disk,
    /// `cpu_seconds_max`.
    Cpu,
}

impl Limits {
    /// Which limit was met, in words for whoever reads how a script ended.
    pub(in crate::watch) fn words(&self, passed: Passed) -> String {
        let mib = |bytes: u64| bytes / (1024 * 1024);
        match passed {
            Passed::Memory => {
                format!("it met its limit of {} MiB of memory", mib(self.memory_bytes_max))
            }
            Passed::Processes => {
                format!("it met its limit of {} processes and threads", self.processes_max)
            }
            Passed::Disk => format!(
                "it met the limit of its directory: {} MiB, {} files",
                mib(self.tmp_bytes_max),
                self.files_max
            ),
            Passed::Cpu => {
                format!("it met its limit of {} s of processor time", self.cpu_seconds_max)
            }
        }
    }

    /// All of them, for whoever sets them.
    pub fn described(&self) -> String {
        let mib = |bytes: u64| bytes / (1024 * 1024);
        format!(
            "{} MiB of memory, {} processes and threads, {} s of processor time, {} open files in \
             each process, {} MiB and {} files in its directory",
            mib(self.memory_bytes_max),
            self.processes_max,
            self.cpu_seconds_max,
            self.open_files_max,
            mib(self.tmp_bytes_max),
            self.files_max
        )
    }

    /// That its directory was full when a script ended, which need not be why it did.
    pub(in crate::watch) fn words_of_full(&self) -> String {
        let mib = self.tmp_bytes_max / (1024 * 1024);
        format!("its directory was full at its end: {mib} MiB, {} files", self.files_max)
    }

    /// In the script's own process, and so in all that it starts. `others` are processes of the
    /// same user that the system counts as well.
    pub(super) fn apply(&self, others: u64) -> io::Result<()> {
        let processes = self.processes_max + WATCH_PROCESSES_ABOVE + others;
        for (resource, most) in [
            // With 0 the kernel still runs a host's handler of cores, as root, on what the script
            // made; with 1 it neither does nor writes a file (core(5)).
            (Resource::RLIMIT_CORE, 1),
            (Resource::RLIMIT_AS, self.memory_bytes_max * WATCH_ADDRESS_FACTOR),
            (Resource::RLIMIT_FSIZE, self.tmp_bytes_max),
            (Resource::RLIMIT_NOFILE, self.open_files_max),
            (Resource::RLIMIT_NPROC, processes),
            (Resource::RLIMIT_MEMLOCK, 0),
            (Resource::RLIMIT_MSGQUEUE, 0),
            // Timers and queued signals count for the user who made the namespaces as well.
            (Resource::RLIMIT_SIGPENDING, WATCH_SIGNALS_PENDING),
        ] {
            // Whoever started the bot may have set less, and nobody can go back above that.
            let (_, hard) = getrlimit(resource)?;
            let most = most.min(hard);
            setrlimit(resource, most, most)?;
        }
        // The signal of the soft limit can be caught, that of the hard one cannot.
        let (_, hard) = getrlimit(Resource::RLIMIT_CPU)?;
        let most = self.cpu_seconds_max;
        setrlimit(Resource::RLIMIT_CPU, most.min(hard), (most + 1).min(hard))?;
        Ok(())
    }
}

/// What is used at one look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::watch) struct Use {
    memory_bytes: u64,
    processes: u64,
    cpu_ms: u64,
}

/// Looks again and again at all processes of a script.
#[derive(Debug)]
pub(in crate::watch) struct Watchdog {
    limits: Limits,
    /// All processes below this one count.
    above: i32,
    due: u64,
    /// What lay between the last two looks.
    pause_ms: u64,
    /// Holds it to its memory and its processes between them.
    group: Option<Group>,
    last: Use,
    ran: Ran,
    /// Looks in a row at which there was too much memory.
    over: u32,
}

impl Watchdog {
    /// Over the processes below `above`, from `now` on, in milliseconds of the monotonic clock.
    pub(in crate::watch) fn new(limits: Limits, above: i32, now: u64) -> Self {
        Self {
            limits,
            above,
            due: now.saturating_add(WATCH_LOOK_BUSY_MS),
            pause_ms: WATCH_LOOK_BUSY_MS,
            group: None,
            last: Use::default(),
            ran: Ran::default(),
            over: 0,
        }
    }

    /// With the help of a group.
    pub(in crate::watch) fn with(self, group: Option<Group>) -> Self {
        Self { group, ..self }
    }

    /// When it wants to look.
    pub(in crate::watch) fn due(&self) -> u64 {
        self.due
    }

    /// Looks if it is time to. Answers a limit that was passed.
    pub(in crate::watch) fn look(&mut self, now: u64) -> Option<Passed> {
        if now < self.due {
            return None;
        }
        let seen = seen(self.above, self.limits.memory_bytes_max, &mut self.ran);
        // The kernel may have killed one of several, and the others would go on.
        let short = self.group.as_ref().is_some_and(Group::was_short).then_some(Passed::Memory);
        short.or_else(|| self.weigh(now, seen))
    }

    fn weigh(&mut self, now: u64, seen: Use) -> Option<Passed> {
        // Who only waits is left alone; who grows is not.
        let quiet = seen == self.last;
        self.pause_ms = if quiet { self.pause(seen.cpu_ms) } else { WATCH_LOOK_BUSY_MS };
        self.due = now + self.pause_ms;
        self.last = seen;
        let passed = self.judge(seen);
        self.over = if passed == Some(Passed::Memory) { self.over + 1 } else { 0 };
        if (1..WATCH_LOOKS_OVER).contains(&self.over) {
            // Until a new process has become another program it may share all memory with the one
            // that started it, and both are counted (vfork(2)). That takes a moment only.
            self.due = now + WATCH_LOOK_AGAIN_MS;
            return None;
        }
        passed
    }

    /// How long who is quiet is left alone.
    fn pause(&self, cpu_ms: u64) -> u64 {
        if self.group.is_none() {
            return WATCH_LOOK_MS;
        }
        // Of what the group does not bound only processor time is left, and that takes time: with
        // all processors at least so long.
        let left_ms = (self.limits.cpu_seconds_max * 1_000).saturating_sub(cpu_ms) / processors();
        let longer = (self.pause_ms * 2).clamp(WATCH_LOOK_MS, WATCH_LOOK_IDLE_MS);
        longer.min(left_ms).max(WATCH_LOOK_BUSY_MS)
    }

    fn judge(&self, seen: Use) -> Option<Passed> {
        if seen.memory_bytes > self.limits.memory_bytes_max {
            Some(Passed::Memory)
        } else if seen.processes > self.limits.processes_max {
            Some(Passed::Processes)
        } else if seen.cpu_ms > self.limits.cpu_seconds_max * 1_000 {
            Some(Passed::Cpu)
        } else {
            None
        }
    }
}

/// Processors that a script may keep busy at the same time.
fn processors() -> u64 {
    let online = sysconf(SysconfVar::_NPROCESSORS_ONLN).ok().flatten();
    online.and_then(|count| u64::try_from(count).ok()).unwrap_or(1).max(1)
}

/// Processor time of each process by itself, as far as looks saw it: a parent that ignores the end
/// of its children is not told of theirs (wait(2)).
#[derive(Debug, Default)]
struct Ran {
    gone_ms: u64,
    /// By its number and its start, since numbers come back.
    living: BTreeMap<(i32, u64), u64>,
}

impl Ran {
    /// Takes a look. Answers the time of all, also of those that have ended since.
    fn look(&mut self, living: BTreeMap<(i32, u64), u64>) -> u64 {
        let gone = self.living.iter().filter(|(process, _)| !living.contains_key(process));
        self.gone_ms += gone.map(|(_, ms)| ms).sum::<u64>();
        self.living = living;
        self.gone_ms + self.living.values().sum::<u64>()
    }
}

/// Adds up what all below `above` use.
fn seen(above: i32, memory_bytes_max: u64, ran: &mut Ran) -> Use {
    let all = below(above);
    // Whom nobody else reaped was reaped by that one.
    let reaped_ms = stat(above).unwrap_or_default().reaped_ms;
    let mut total = Use { cpu_ms: reaped_ms, ..Use::default() };
    let mut living = BTreeMap::new();
    for pid in &all {
        total.memory_bytes += memory(*pid).unwrap_or(0);
        let stat = stat(*pid).unwrap_or_default();
        total.processes += stat.threads;
        total.cpu_ms += stat.own_ms + stat.reaped_ms;
        living.insert((*pid, stat.started), stat.own_ms);
    }
    total.cpu_ms = total.cpu_ms.max(ran.look(living));
    if total.memory_bytes > memory_bytes_max {
        // What several share was counted for each. The exact number costs more, so it is asked for
        // only now; who hides it is taken at the first.
        let exact = |pid: &i32| shared_once(*pid).or_else(|| memory(*pid)).unwrap_or(0);
        total.memory_bytes = all.iter().map(exact).sum();
    }
    total
}

/// All processes below this one.
fn below(above: i32) -> Vec<i32> {
    // Not every kernel has a list of a process's children; without it all processes are looked at.
    let has_lists = Path::new(&format!("/proc/{above}/task/{above}/children")).exists();
    let parents = if has_lists { Vec::new() } else { parents() };
    let mut all = Vec::new();
    let mut open = VecDeque::from([above]);
    while let Some(pid) = open.pop_front() {
        let children: Vec<i32> = if has_lists {
            listed(pid)
        } else {
            parents.iter().filter(|(_, parent)| *parent == pid).map(|(child, _)| *child).collect()
        };
        all.extend(&children);
        open.extend(children);
    }
    all
}

/// Each thread has children of its own (`proc_pid_task(5)`).
fn listed(pid: i32) -> Vec<i32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let lists = threads.flatten().map(|thread| fs::read_to_string(thread.path().join("children")));
    let text: String = lists.flatten().collect();
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// Every process and its parent.
fn parents() -> Vec<(i32, i32)> {
    let Ok(all) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = all.flatten().filter_map(|item| item.file_name().to_str()?.parse().ok());
    let parent = |pid: i32| i32::try_from(*fields(pid, 1..2)?.first()?).ok();
    pids.filter_map(|pid| Some((pid, parent(pid)?))).collect()
}

/// Numbers of a process's `stat`, from the first behind its name on: state, parent, ….
fn fields(pid: i32, which: Range<usize>) -> Option<Vec<u64>> {
    let text = read(Path::new(&format!("/proc/{pid}/stat")))?;
    // `pid (name) state …`, and the name may have any bytes (proc_pid_stat(5)).
    let fields: Vec<&str> = text.get(text.rfind(')')? + 1..)?.split_whitespace().collect();
    Some(fields.get(which)?.iter().filter_map(|field| field.parse().ok()).collect())
}

/// A file of `/proc`. A process may have given itself a name that is no text.
fn read(file: &Path) -> Option<String> {
    Some(String::from_utf8_lossy(&fs::read(file).ok()?).into_owned())
}

/// What only memory can hold, wherever the system keeps it: neither programs nor libraries.
fn memory(pid: i32) -> Option<u64> {
    let names = ["RssAnon:", "RssShmem:", "VmSwap:"];
    let process = PathBuf::from(format!("/proc/{pid}"));
    sum_of(&process.join("status"), &names).or_else(|| {
        // Where its first thread has ended only the others tell.
        let mut threads = fs::read_dir(process.join("task")).ok()?.flatten();
        threads.find_map(|thread| sum_of(&thread.path().join("status"), &names))
    })
}

/// The same, with what is shared split among those who share it.
fn shared_once(pid: i32) -> Option<u64> {
    let file = PathBuf::from(format!("/proc/{pid}/smaps_rollup"));
    sum_of(&file, &["Pss_Anon:", "Pss_Shmem:", "SwapPss:"])
}

/// Adds up lines such as `RssAnon:  1234 kB`, `None` when there is none.
fn sum_of(file: &Path, names: &[&str]) -> Option<u64> {
    let text = read(file)?;
    let line = |line: &str| -> Option<u64> {
        let name = names.iter().find(|name| line.starts_with(*name))?;
        line.strip_prefix(name)?.split_whitespace().next()?.parse().ok()
    };
    let kib: Vec<u64> = text.lines().filter_map(line).collect();
    (!kib.is_empty()).then(|| kib.iter().sum::<u64>() * 1_024)
}

/// What `stat` says of a process.
#[derive(Debug, Default)]
struct Stat {
    threads: u64,
    /// Processor time.
    own_ms: u64,
    /// That of the children that it has reaped, and of theirs.
    reaped_ms: u64,
    /// In ticks since the host started.
    started: u64,
}

fn stat(pid: i32) -> Option<Stat> {
    let second = sysconf(SysconfVar::CLK_TCK).ok().flatten()?;
    let second = u64::try_from(second).ok()?.max(1);
    // From the 14th field of `proc_pid_stat(5)` to the 22nd.
    let fields = fields(pid, 11..20)?;
    let [user, system, reaped_user, reaped_system, .., threads, _timer, started] = *fields else {
        return None;
    };
    let ms = |ticks: u64| ticks * 1_000 / second;
    Some(Stat {
        threads,
        own_ms: ms(user + system),
        reaped_ms: ms(reaped_user + reaped_system),
        started,
    })
}

/// Processes and threads of a user.
pub(super) fn processes_of(user: u32) -> u64 {
    let Ok(all) = fs::read_dir("/proc") else { return 0 };
    let own = all.flatten().filter(|item| item.metadata().is_ok_and(|meta| meta.uid() == user));
    own.filter_map(|item| stat(item.file_name().to_str()?.parse().ok()?))
        .map(|stat| stat.threads)
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_limit_that_is_passed_is_named() {
        let limits = Limits { memory_bytes_max: 10, processes_max: 2, ..Limits::default() };
        let dog = Watchdog::new(limits, 1, 0);
        let used = Use { memory_bytes: 10, processes: 2, cpu_ms: limits.cpu_seconds_max * 1_000 };
        assert_eq!(dog.judge(used), None);
        assert_eq!(dog.judge(Use { memory_bytes: 11, ..used }), Some(Passed::Memory));
        assert_eq!(dog.judge(Use { processes: 3, ..used }), Some(Passed::Processes));
        assert_eq!(dog.judge(Use { cpu_ms: used.cpu_ms + 1, ..used }), Some(Passed::Cpu));
        assert!(limits.words(Passed::Processes).contains("2 processes"));
    }

    #[test]
    fn memory_of_a_moment_is_no_excess() {
        let mut dog = Watchdog::new(Limits::default(), 1, 0);
        let much = Use { memory_bytes: WATCH_MEMORY_BYTES + 1, processes: 2, cpu_ms: 0 };
        assert_eq!(dog.weigh(100, much), None);
        assert_eq!(dog.due(), 100 + WATCH_LOOK_AGAIN_MS);
        let usual = Use { memory_bytes: WATCH_MEMORY_BYTES, ..much };
        assert_eq!(dog.weigh(110, usual), None);
        let looks = [(); WATCH_LOOKS_OVER as usize].map(|()| dog.weigh(210, much));
        assert_eq!(looks, [None, None, Some(Passed::Memory)]);
    }

    #[test]
    fn who_is_held_by_a_group_and_quiet_is_left_alone_for_longer() {
        let usual = Use { memory_bytes: 1, processes: 2, cpu_ms: 0 };
        let pauses = |group: Option<Group>, limits: Limits| {
            let mut dog = Watchdog::new(limits, 1, 0).with(group);
            [(); 6].map(|()| {
                let now = dog.due();
                assert_eq!(dog.weigh(now, usual), None);
                dog.due() - now
            })
        };
        let limits = Limits::default();
        assert_eq!(pauses(None, limits), [100, 1_000, 1_000, 1_000, 1_000, 1_000]);
        let held = pauses(Some(Group::nowhere()), limits);
        assert_eq!(held, [100, 1_000, 2_000, 4_000, 8_000, 10_000]);
        // Never for longer than it takes to pass what only a look can hold it to.
        let soon = Limits { cpu_seconds_max: 1, ..limits };
        let most = (1_000 / processors()).max(WATCH_LOOK_BUSY_MS);
        assert!(pauses(Some(Group::nowhere()), soon).into_iter().all(|pause| pause <= most));
        // Who moves is looked at again at once.
        let mut dog = Watchdog::new(limits, 1, 0).with(Some(Group::nowhere()));
        dog.weigh(0, usual);
        dog.weigh(100, usual);
        assert_eq!(dog.weigh(1_100, Use { memory_bytes: 2, ..usual }), None);
        assert_eq!(dog.due(), 1_100 + WATCH_LOOK_BUSY_MS);
    }

    #[test]
    fn who_ends_unheard_is_still_counted() {
        let mut ran = Ran::default();
        assert_eq!(ran.look([((2, 1), 300)].into()), 300);
        assert_eq!(ran.look([((2, 1), 500), ((3, 1), 40)].into()), 540);
        // The number came back.
        assert_eq!(ran.look([((2, 9), 10)].into()), 550);
        assert_eq!(ran.look(BTreeMap::new()), 550);
    }

    #[test]
    fn a_process_is_counted_with_what_it_holds() {
        let me = std::process::id().cast_signed();
        assert!(memory(me).unwrap() > 0);
        assert!(stat(me).unwrap().threads >= 1);
        assert!(stat(me).unwrap().started > 0);
        assert!(parents().contains(&(me, std::os::unix::process::parent_id().cast_signed())));
        assert!(shared_once(me).unwrap() <= memory(me).unwrap() * 2);
    }
}
