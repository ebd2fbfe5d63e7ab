//! The processes below a shim: the script, which leads a process group, and every orphan, since
//! the shim is their subreaper. Owns the rules by which a signal can hit no stranger: a group is
//! signalled only while its leader is not reaped, a process only while it is a child that is not
//! reaped; until then the kernel gives neither number away. Must not know why anything ends.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::Child;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use rustix::process::{
    Pid, WaitId, WaitIdOptions, WaitOptions, WaitStatus, getpid, wait, waitid, waitpid,
};

use crate::core::execution::Exit;
use crate::watch::sandbox::{Boxed, Report};

/// The child that a script runs in, not reaped yet.
#[derive(Debug)]
pub(super) enum Leader {
    /// The script itself, which leads a group.
    Script(Child),
    /// The first process of its namespaces, which passes signals on and takes all along.
    First(Boxed),
}

impl Leader {
    /// Its number.
    pub(super) fn pid(&self) -> Pid {
        match self {
            Self::Script(child) => Pid::from_child(child),
            Self::First(first) => first.pid,
        }
    }

    /// Has it ended? It stays unreaped.
    pub(super) fn has_ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        matches!(waitid(WaitId::Pid(self.pid()), options), Ok(Some(_)))
    }

    /// Signals its group, and it itself should it have left the group; or the first process.
    pub(super) fn signal(&self, signal: Signal) {
        if let Self::First(first) = self {
            first.signal(signal);
            return;
        }
        let pid = nix::unistd::Pid::from_raw(self.pid().as_raw_nonzero().get());
        if killpg(pid, signal) == Err(Errno::ESRCH) || signal == Signal::SIGKILL {
            let _ended_meanwhile = kill(pid, signal);
        }
    }

    /// Reaps orphans that ended while it runs.
    pub(super) fn reap_others(&self) {
        let own = self.pid();
        for child in children().into_iter().filter(|child| *child != own) {
            let _still_runs = waitpid(Some(child), WaitOptions::NOHANG);
        }
    }
}

/// How a leader ended.
#[derive(Debug, Default)]
pub(super) struct End {
    /// The script's own exit.
    pub(super) exit: Option<Exit>,
    /// What it left running and its first process killed.
    pub(super) leftovers: u32,
    /// There was no room left in its directory.
    pub(super) full: bool,
    /// Why there was no script at all.
    pub(super) trouble: Option<String>,
}

impl Leader {
    /// Reaps it, once it has ended.
    pub(super) fn reap(self) -> End {
        let mut first = match self {
            Self::Script(mut child) => {
                let status = child.wait().ok();
                let exit = status.and_then(|status| {
                    status.code().map(Exit::Code).or_else(|| status.signal().map(Exit::Signal))
                });
                return End { exit, ..End::default() };
            }
            Self::First(first) => first,
        };
        let _status = waitpid(Some(first.pid), WaitOptions::empty());
        match first.report() {
            Some(Report::Ended { exit, leftovers, full }) => {
                End { exit, leftovers, full, trouble: None }
            }
            Some(Report::Failed { what }) => End { trouble: Some(what), ..End::default() },
            // It was killed, and with it the script.
            None => End { exit: Some(Exit::Signal(Signal::SIGKILL as i32)), ..End::default() },
        }
    }
}

/// Reaps what has ended, after the leader was reaped. Answers how many of those were killed, and
/// whether any child is left.
pub(super) fn reap_all() -> (u32, bool) {
    let mut killed = 0;
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((_, status))) => killed += u32::from(was_killed(status)),
            Ok(None) => return (killed, true),
            Err(_no_child) => return (killed, false),
        }
    }
}

fn was_killed(status: WaitStatus) -> bool {
    status.terminating_signal() == Some(Signal::SIGKILL as i32)
}

/// Kills every child; its own children become ours and are there at the next call. Answers how
/// many there were.
pub(super) fn kill_children() -> usize {
    let children = children();
    for child in &children {
        let pid = nix::unistd::Pid::from_raw(child.as_raw_nonzero().get());
        let _ended_meanwhile = kill(pid, Signal::SIGKILL);
    }
    children.len()
}

/// Not every kernel has a list of a process's children, so all processes are looked at.
fn children() -> Vec<Pid> {
    let me = getpid().as_raw_nonzero().get();
    let Ok(all) = fs::read_dir("/proc") else { return Vec::new() };
    let numbers = all.filter_map(|item| item.ok()?.file_name().to_str()?.parse().ok());
    numbers.filter(|pid| parent(*pid) == Some(me)).filter_map(Pid::from_raw).collect()
}

fn parent(pid: i32) -> Option<i32> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    // `pid (name) state parent …`, and the name may have any bytes.
    let stat = String::from_utf8_lossy(&stat);
    stat.get(stat.rfind(')')? + 1..)?.split_whitespace().nth(1)?.parse().ok()
}
