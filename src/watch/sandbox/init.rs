//! The first process of a script's namespaces, and how its shim makes it. It puts the sandbox up,
//! starts the script, passes TERM and CONT on to all, reaps, and tells its shim how the script
//! ended; with it the kernel ends everything. Must not know deadlines.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::prctl::{set_dumpable, set_pdeathsig};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::socket::{MsgFlags, recv};
use nix::unistd::{Gid, Pid, Uid, dup2_stdin, dup2_stdout, getegid, geteuid, sethostname};
use nix::unistd::{setresgid, setresuid};
use rustix::process::{WaitOptions, WaitStatus, wait, waitpid};
use rustix::thread::{CapabilitySets, capabilities, set_capabilities, set_keep_capabilities};
use serde::{Deserialize, Serialize};

use super::cgroup::Doors;
use super::clone::{close_all_but, into_namespaces};
use super::programs::Programs;
use super::root::{self, WORK};
use super::{Group, INSIDE, Limits, NOBODY, Restraint, network, step};
use crate::core::execution::Exit;
use crate::core::limits::WATCH_REPORT_BYTES_MAX;
use crate::watch::spawn::{self, OOM_SCORE, Script};
use crate::watch::spool::SCRIPT;

/// Said to the first process once it has its users, and again when the script is to run.
const GO: &[u8] = b"g";

/// A first process, not reaped yet.
#[derive(Debug)]
pub(in crate::watch) struct Boxed {
    /// Its number outside.
    pub(in crate::watch) pid: rustix::process::Pid,
    process: OwnedFd,
    line: UnixStream,
    /// Where its way out comes from, if it is to have one.
    pub(in crate::watch) hatch: Option<UnixStream>,
}

/// What it tells at its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::watch) enum Report {
    /// The script never ran.
    Failed {
        /// What could not be done.
        what: String,
    },
    /// The script ended.
    Ended {
        /// Its own exit.
        exit: Option<Exit>,
        /// What it left running, all of it killed.
        leftovers: u32,
        /// There was no room left in its directory.
        full: bool,
    },
}

impl Boxed {
    /// Signals it. Its descriptor names it whatever became of its number.
    pub(in crate::watch) fn signal(&self, signal: Signal) {
        if let Some(signal) = rustix::process::Signal::from_named_raw(signal as i32) {
            let _ended_meanwhile = rustix::process::pidfd_send_signal(&self.process, signal);
        }
    }

    /// Lets it start the script. Where it has ended before, its report says why.
    pub(in crate::watch) fn go(&self) {
        let _ended_before = (&self.line).write_all(GO);
    }

    /// Ends it, which has not started the script.
    pub(in crate::watch) fn give_up(self) {
        self.signal(Signal::SIGKILL);
        let _reaped = waitpid(Some(self.pid), WaitOptions::empty());
    }

    /// What it told, `None` when it was killed. Only once it has ended.
    pub(in crate::watch) fn report(&mut self) -> Option<Report> {
        let mut text = Vec::new();
        let most = WATCH_REPORT_BYTES_MAX as u64;
        // Who ends without having read [`GO`] breaks the line, behind what it told.
        let _broken = (&mut self.line).take(most).read_to_end(&mut text);
        serde_json::from_slice(&text).ok()
    }
}

/// Everything that the first process needs, made before it is there.
struct Setup<'a> {
    script: Script<'a>,
    text: Vec<u8>,
    programs: Programs,
    limits: Limits,
    line: UnixStream,
    hatch: Option<UnixStream>,
    doors: Doors,
    pipes: [OwnedFd; 2],
}

/// Makes the namespaces and their first process, which puts the sandbox up and then waits for
/// [`Boxed::go`]; `networked` with a way out.
pub(super) fn start(
    script: Script<'_>,
    limits: Limits,
    networked: bool,
    group: Option<&Group>,
    pipes: [OwnedFd; 2],
) -> io::Result<Boxed> {
    let programs = Programs::find(script.python, script.work)?;
    let text = fs::read(script.work.join(SCRIPT)).map_err(step("read the script"))?;
    let (ours, line) = UnixStream::pair()?;
    let (out, hatch) = if networked { UnixStream::pair().map(both)? } else { (None, None) };
    if let Some(out) = &out {
        out.set_nonblocking(true)?;
    }
    let doors = group.map(Group::doors).transpose()?.unwrap_or_default();
    let setup = Setup { script, text, programs, limits, line, hatch, doors, pipes };
    let (pid, process) =
        into_namespaces(move || first(setup)).map_err(step("make namespaces for it"))?;
    let number = rustix::process::Pid::from_raw(pid.as_raw()).ok_or(ErrorKind::InvalidData)?;
    let boxed = Boxed { pid: number, process, line: ours, hatch: out };
    match give_users(pid).and_then(|()| (&boxed.line).write_all(GO)) {
        Ok(()) => Ok(boxed),
        Err(error) => {
            boxed.give_up();
            Err(error)
        }
    }
}

fn both<T>((one, other): (T, T)) -> (Option<T>, Option<T>) {
    (Some(one), Some(other))
}

/// Says who its user is for the host. The kernel lets only the maker of the namespace do this, and
/// an ordinary user name nobody but itself (`user_namespaces(7)`).
fn give_users(pid: Pid) -> io::Result<()> {
    let is_root = geteuid().is_root();
    let file = |name: &str| format!("/proc/{pid}/{name}");
    let _kept = fs::write(file("oom_score_adj"), OOM_SCORE);
    let (uid, gid) =
        if is_root { (NOBODY, NOBODY) } else { (geteuid().as_raw(), getegid().as_raw()) };
    if !is_root {
        fs::write(file("setgroups"), "deny").map_err(step("give up groups"))?;
    }
    fs::write(file("uid_map"), format!("{INSIDE} {uid} 1")).map_err(step("map its user"))?;
    fs::write(file("gid_map"), format!("{INSIDE} {gid} 1")).map_err(step("map its group"))
}

/// The whole life of the first process.
fn first(setup: Setup<'_>) -> u8 {
    let report = |line: &mut UnixStream, report: &Report| {
        let text = serde_json::to_vec(report).unwrap_or_default();
        // Where nobody listens there is nobody to tell.
        let _told = line.write_all(&text);
    };
    let Ok(mut line) = setup.line.try_clone() else { return 1 };
    match begin(setup, &line) {
        Ok(script) => report(&mut line, &watch_over(script)),
        Err(error) => report(&mut line, &Report::Failed { what: error.to_string() }),
    }
    0
}

/// Puts the sandbox up and, when it is told to, starts the script in it. Answers its number inside.
fn begin(setup: Setup<'_>, line: &UnixStream) -> io::Result<i32> {
    let Setup { script, text, programs, limits, line: own, hatch, doors, pipes } = setup;
    set_pdeathsig(Signal::SIGKILL)?;
    let null = fs::File::options().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    // Above all the shim's lock: who holds it seems to be alive.
    let [out, err] = pipes.each_ref().map(AsRawFd::as_raw_fd);
    let mut kept = vec![line.as_raw_fd(), own.as_raw_fd(), null.as_raw_fd(), out, err];
    kept.extend(hatch.as_ref().map(AsRawFd::as_raw_fd));
    kept.extend(doors.fds());
    close_all_but(&kept)?;
    drop(null);
    doors.go_in()?;
    hear_go(line)?;
    let sources = root::open(&programs).map_err(step("find its programs"))?;
    become_user(line)?;
    sethostname("watcher").map_err(step("name its host"))?;
    root::enter(&sources, limits.tmp_bytes_max, limits.files_max)?;
    fs::write(Path::new(WORK).join(SCRIPT), text).map_err(step("keep the script"))?;
    network::up()?;
    if let Some(hatch) = hatch {
        // Nothing of it stays here: what the script starts could else hold it.
        network::hand_out(&network::listen()?, &hatch)?;
    }
    let none = CapabilitySets {
        effective: rustix::thread::CapabilitySet::empty(),
        permitted: rustix::thread::CapabilitySet::empty(),
        inheritable: rustix::thread::CapabilitySet::empty(),
    };
    set_capabilities(None, none)?;
    set_dumpable(false)?;
    let mut mask = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGCONT, Signal::SIGCHLD] {
        mask.add(signal);
    }
    // Blocked ones wait for us; of the others the kernel lets none through to a first process.
    mask.thread_block()?;
    let restraint = Restraint::with_namespaces(limits, &sources, Path::new(WORK))?;
    drop(sources);
    let inside = Script { work: Path::new(WORK), ..script };
    hear_go(line)?;
    let child = spawn::script(inside, Some(restraint), pipes).spawn();
    let child = child.map_err(step("run Python"))?;
    i32::try_from(child.id()).map_err(io::Error::other)
}

fn hear_go(mut line: &UnixStream) -> io::Result<()> {
    line.read_exact(&mut [0; GO.len()]).map_err(step("hear of its shim"))
}

/// Becomes the one user that there is here, and keeps the powers over these namespaces for now.
fn become_user(line: &UnixStream) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(INSIDE), Gid::from_raw(INSIDE));
    set_keep_capabilities(true)?;
    if geteuid() != uid {
        // Where root made the namespaces it has groups of the host.
        let _refused_where_they_were_given_up = nix::unistd::setgroups(&[]);
    }
    setresgid(gid, gid, gid).map_err(step("change its group"))?;
    setresuid(uid, uid, uid).map_err(step("change its user"))?;
    let mut all = capabilities(None)?;
    all.effective = all.permitted;
    set_capabilities(None, all)?;
    // The kernel forgot it with the change (prctl(2)); and the shim may have died before this.
    set_pdeathsig(Signal::SIGKILL)?;
    // The next word is left where it is.
    let look = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
    match recv(line.as_raw_fd(), &mut [0], look) {
        Err(Errno::EAGAIN) | Ok(1..) => Ok(()),
        Ok(0) | Err(_) => Err(io::Error::from(ErrorKind::BrokenPipe)),
    }
}

/// Until the script has ended, then ends what it left.
fn watch_over(script: i32) -> Report {
    let mut heard = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGCONT, Signal::SIGCHLD] {
        heard.add(signal);
    }
    let exit = loop {
        match heard.wait() {
            Ok(Signal::SIGCHLD) => {
                if let Some(status) = reap(script) {
                    break exit_of(status);
                }
            }
            Ok(signal) => {
                let _nobody_left = kill(Pid::from_raw(-1), signal);
            }
            Err(_interrupted) => {}
        }
    };
    let full = root::is_full();
    Report::Ended { exit, leftovers: clear(), full }
}

/// Reaps all that have ended. Answers how the script did, if it did.
fn reap(script: i32) -> Option<WaitStatus> {
    let mut ended = None;
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        if pid.as_raw_nonzero().get() == script {
            ended = Some(status);
        }
    }
    ended
}

/// Kills all and reaps them. One signal for all leaves no moment in which one could start another:
/// a fork in that moment is given up (kernel/fork.c).
fn clear() -> u32 {
    let mut killed = 0;
    if kill(Pid::from_raw(-1), Signal::SIGKILL) == Err(Errno::ESRCH) {
        return killed;
    }
    while let Ok(Some((_, status))) = wait(WaitOptions::empty()) {
        let by_us = status.terminating_signal() == Some(Signal::SIGKILL as i32);
        killed += u32::from(by_us);
    }
    killed
}

fn exit_of(status: WaitStatus) -> Option<Exit> {
    let code = status.exit_status().map(Exit::Code);
    code.or_else(|| status.terminating_signal().map(Exit::Signal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_it_failed_is_heard_though_it_never_read_that_it_may_go() {
        let (ours, mut its) = UnixStream::pair().unwrap();
        let pid = rustix::process::getpid();
        let process = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty());
        let mut boxed = Boxed { pid, process: process.unwrap(), line: ours, hatch: None };
        let failed = Report::Failed { what: "name its host".to_owned() };
        boxed.go();
        its.write_all(&serde_json::to_vec(&failed).unwrap()).unwrap();
        drop(its);
        assert_eq!(boxed.report(), Some(failed));
    }
}
