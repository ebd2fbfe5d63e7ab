//! What a script may use, and who holds it to that: the system for each process, the shim's looks
//! for all of them together. Owns what is counted and how. Must not know how a script is ended.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::sys::resource::{Resource, setrlimit};
use nix::unistd::{SysconfVar, sysconf};
use serde::{Deserialize, Serialize};

use crate::core::limits::{
    WATCH_ADDRESS_FACTOR, WATCH_CPU_SECONDS, WATCH_LOOK_BUSY_MS, WATCH_LOOK_MS, WATCH_MEMORY_BYTES,
    WATCH_OPEN_FILES, WATCH_PROCESSES, WATCH_PROCESSES_ABOVE, WATCH_TMP_BYTES, WATCH_TMP_FILES,
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

    /// In the script's own process, and so in all that it starts. `others` are processes of the
    /// same user that the system counts as well.
    pub(super) fn apply(&self, others: u64) -> io::Result<()> {
        let processes = self.processes_max + WATCH_PROCESSES_ABOVE + others;
        for (resource, most) in [
            (Resource::RLIMIT_CORE, 0),
            (Resource::RLIMIT_AS, self.memory_bytes_max * WATCH_ADDRESS_FACTOR),
            (Resource::RLIMIT_FSIZE, self.tmp_bytes_max),
            (Resource::RLIMIT_NOFILE, self.open_files_max),
            (Resource::RLIMIT_NPROC, processes),
            (Resource::RLIMIT_MEMLOCK, 0),
            (Resource::RLIMIT_MSGQUEUE, 0),
        ] {
            setrlimit(resource, most, most)?;
        }
        // The signal of the soft limit can be caught, that of the hard one cannot.
        setrlimit(Resource::RLIMIT_CPU, self.cpu_seconds_max, self.cpu_seconds_max + 1)?;
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
    last: Use,
}

impl Watchdog {
    /// Over the processes below `above`, from `now` on, in milliseconds of the monotonic clock.
    pub(in crate::watch) fn new(limits: Limits, above: i32, now: u64) -> Self {
        Self { limits, above, due: now.saturating_add(WATCH_LOOK_BUSY_MS), last: Use::default() }
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
        let seen = seen(self.above, self.limits.memory_bytes_max);
        // Who only waits is left alone; who grows is not.
        let quiet = seen == self.last;
        self.due = now + if quiet { WATCH_LOOK_MS } else { WATCH_LOOK_BUSY_MS };
        self.last = seen;
        self.judge(seen)
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

/// Adds up what all below `above` use.
fn seen(above: i32, memory_bytes_max: u64) -> Use {
    let all = below(above);
    let mut total = Use::default();
    for pid in &all {
        total.memory_bytes += memory(*pid).unwrap_or(0);
        let (threads, cpu_ms) = stat(*pid).unwrap_or_default();
        total.processes += threads;
        total.cpu_ms += cpu_ms;
    }
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
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // `pid (name) state …`, and the name may have any character (proc_pid_stat(5)).
    let fields: Vec<&str> = text.get(text.rfind(')')? + 1..)?.split_whitespace().collect();
    Some(fields.get(which)?.iter().filter_map(|field| field.parse().ok()).collect())
}

/// What only memory can hold: neither programs nor libraries.
fn memory(pid: i32) -> Option<u64> {
    sum_of(&format!("/proc/{pid}/status"), &["RssAnon:", "RssShmem:"])
}

/// The same, with what is shared split among those who share it.
fn shared_once(pid: i32) -> Option<u64> {
    sum_of(&format!("/proc/{pid}/smaps_rollup"), &["Pss_Anon:", "Pss_Shmem:"])
}

/// Adds up lines such as `RssAnon:  1234 kB`, `None` when there is none.
fn sum_of(file: &str, names: &[&str]) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let line = |line: &str| -> Option<u64> {
        let name = names.iter().find(|name| line.starts_with(*name))?;
        line.strip_prefix(name)?.split_whitespace().next()?.parse().ok()
    };
    let kib: Vec<u64> = text.lines().filter_map(line).collect();
    (!kib.is_empty()).then(|| kib.iter().sum::<u64>() * 1_024)
}

/// Threads, and milliseconds of processor time with those of reaped children.
fn stat(pid: i32) -> Option<(u64, u64)> {
    let ticks: u64 = fields(pid, 11..15)?.iter().sum();
    let second = sysconf(SysconfVar::CLK_TCK).ok().flatten()?;
    let threads = fields(pid, 17..18)?.first().copied()?;
    Some((threads, ticks * 1_000 / u64::try_from(second).ok()?.max(1)))
}

/// Processes and threads of a user.
pub(super) fn processes_of(user: u32) -> u64 {
    let Ok(all) = fs::read_dir("/proc") else { return 0 };
    let own = all.flatten().filter(|item| item.metadata().is_ok_and(|meta| meta.uid() == user));
    own.filter_map(|item| stat(item.file_name().to_str()?.parse().ok()?)).map(|(n, _)| n).sum()
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
    fn a_process_is_counted_with_what_it_holds() {
        let me = std::process::id().cast_signed();
        assert!(memory(me).unwrap() > 0);
        assert!(stat(me).unwrap().0 >= 1);
        assert!(parents().contains(&(me, std::os::unix::process::parent_id().cast_signed())));
        assert!(shared_once(me).unwrap() <= memory(me).unwrap() * 2);
    }
}
