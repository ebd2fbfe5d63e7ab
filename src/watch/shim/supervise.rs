//! The life of one execution: wait for "go", run, end, clean up, record. Owns the order of these.
//! Must not know formats: neither of the socket, nor of the files.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::set_dumpable;
use nix::sys::signal::Signal;
use nix::sys::signalfd::SignalFd;
use nix::unistd::pipe2;

use super::course::{Course, Step, Why};
use super::ctl::Ctl;
use super::family::{self, End, Leader};
use super::gate::Gate;
use super::stream::Stream;
use super::{ShimError, cannot, monotonic_ms, wall_ms};
use crate::core::execution::{Exit, Status};
use crate::core::limits::{DRAIN_IDLE_MS, DRAIN_MS, LEFTOVERS_MS_MAX};
use crate::failpoint;
use crate::watch::ctl::Order;
use crate::watch::exit_record::{self, ExitRecord};
use crate::watch::ring;
use crate::watch::sandbox::{self, Boxed, Fence, Group, Passed, Restraint, Tier, Watchdog};
use crate::watch::spawn::{self, OOM_SCORE, Script};
use crate::watch::spec::Spec;
use crate::watch::spool::ERR;

/// Between two looks for leftovers that do not die at once.
const LEFTOVERS_POLL_MS: u64 = 20;

/// How programs say that there is no room (strerror(3)).
const NO_ROOM: &[u8] = b"No space left on device";

/// Names and values.
type Environment = Vec<(String, String)>;

/// Everything a shim holds.
pub(super) struct Supervisor {
    pub(super) spec: Spec,
    /// Held for life.
    pub(super) lock: File,
    pub(super) out: Stream,
    pub(super) err: Stream,
    pub(super) ctl: Ctl,
    /// The script's way out, while there is a script that has one.
    pub(super) gate: Option<Gate>,
    pub(super) signals: SignalFd,
    /// What holds all processes of the script together, once it is made.
    pub(super) group: Option<Group>,
    /// Where pipes are read into.
    pub(super) buffer: Vec<u8>,
}

/// What one wait brought.
#[derive(Default)]
struct Happened {
    orders: Vec<Order>,
    child: bool,
    shutdown: bool,
    removed: bool,
    output: bool,
}

impl Happened {
    /// The reasons to end in it.
    fn ends(&self) -> impl Iterator<Item = Why> {
        let orders = self.orders.iter().filter_map(|order| match order {
            Order::Cancel => Some(Why::Cancel),
            Order::Kill => Some(Why::Kill),
            Order::Go | Order::Probe => None,
        });
        let shutdown = self.shutdown.then_some(Why::Shutdown);
        orders.chain(shutdown).chain(self.removed.then_some(Why::Removed))
    }
}

/// Did the last that a script wrote to stderr say that there was no room?
fn complained_of_room() -> bool {
    let Ok(kept) = ring::read(Path::new(ERR)) else { return false };
    let last = if kept.tail.is_empty() { kept.head } else { kept.tail };
    last.windows(NO_ROOM.len()).any(|part| part == NO_ROOM)
}

impl Supervisor {
    /// Runs the execution and leaves its record.
    pub(super) fn run(mut self) -> Result<(), ShimError> {
        let prepared = self.prepare();
        let record = match self.wait_for_go() {
            None => self.run_script(prepared),
            Some(record) => {
                if let Ok(Some(first)) = prepared {
                    first.give_up();
                }
                self.group.take().map(|group| group.end());
                record
            }
        };
        for stream in [&mut self.out, &mut self.err] {
            stream.file().sync().map_err(cannot("keep the output"))?;
        }
        exit_record::write(Path::new("."), &record).map_err(cannot("write the exit record"))?;
        // The script's directory is left to the bot: what stands there may be much.
        self.ctl.farewell();
        failpoint!("shim.farewell");
        Ok(())
    }

    /// `None` at "go", else the record of an execution that never ran.
    fn wait_for_go(&mut self) -> Option<ExitRecord> {
        let until = monotonic_ms().saturating_add(self.spec.start_ms);
        loop {
            let happened = self.wait(Some(until));
            if happened.ends().next().is_some() {
                return Some(ExitRecord::bare(Status::Cancelled, "never-started", wall_ms()));
            }
            if happened.orders.contains(&Order::Go) {
                return None;
            }
            if monotonic_ms() >= until {
                return Some(ExitRecord::bare(Status::Lost, "never-started", wall_ms()));
            }
        }
    }

    fn run_script(&mut self, prepared: io::Result<Option<Boxed>>) -> ExitRecord {
        failpoint!("shim.go");
        let started = monotonic_ms();
        self.out.file().started(wall_ms());
        let mut course = Course::new(started, self.spec.timeout_ms, self.spec.grace_ms);
        failpoint!("script.before");
        let leader = match prepared.and_then(|first| self.start(first)) {
            Ok(leader) => leader,
            Err(e) => {
                self.group.take().map(|group| group.end());
                return self.never_ran(&e.to_string());
            }
        };
        failpoint!("script.after");
        self.attend(&leader, &mut course);
        let elapsed_ms = monotonic_ms().saturating_sub(started);
        // The group goes while its leader is not reaped, then whoever left the group.
        leader.signal(Signal::SIGKILL);
        let end = leader.reap();
        // With it the egress process learns that this is over.
        self.gate = None;
        failpoint!("script.ended");
        let (swept, left) = self.sweep();
        self.drain();
        let short = self.group.as_ref().is_some_and(Group::was_short);
        let swept = swept + self.group.take().map_or(0, |group| group.end());
        if let Some(trouble) = &end.trouble {
            return self.never_ran(trouble);
        }
        let (status, reason) = course.verdict(end.exit);
        let stuck = (left > 0).then(|| format!("{left} of its processes could not be killed"));
        let limit = self.met(&course, &end, short).filter(|_| status != Status::Completed);
        let mut record = ExitRecord::bare(status, "", wall_ms());
        record.exit = end.exit;
        record.reason = stuck.or(limit).or(reason);
        record.elapsed_ms = elapsed_ms;
        record.leftovers_killed = end.leftovers + swept;
        record
    }

    fn never_ran(&self, why: &str) -> ExitRecord {
        let what = format!("cannot start {}: {why}", self.spec.python.display());
        ExitRecord::bare(Status::Failed, &what, wall_ms())
    }

    /// The limit that a script met, in words.
    fn met(&self, course: &Course, end: &End, short: bool) -> Option<String> {
        let limits = self.spec.fence?.limits;
        let by_system = match end.exit {
            Some(Exit::Signal(signal)) if signal == Signal::SIGXCPU as i32 => Some(Passed::Cpu),
            Some(Exit::Signal(_) | Exit::Code(_)) | None => None,
        };
        let by_system = short.then_some(Passed::Memory).or(by_system);
        // Only what it complained of itself was the cause.
        let cause = (end.full && complained_of_room()).then_some(Passed::Disk);
        let met = course.passed().or(by_system).or(cause).map(|passed| limits.words(passed));
        met.or_else(|| end.full.then(|| limits.words_of_full()))
    }

    /// Puts up what can be without the script, so that nobody waits for it at "go": the group, the
    /// namespaces and their first process.
    fn prepare(&mut self) -> io::Result<Option<Boxed>> {
        let Some(Fence { tier: Tier::Namespaces, limits, .. }) = self.spec.fence else {
            return Ok(None);
        };
        let (pipes, env) = self.streams()?;
        self.make_group()?;
        let (script, group) = (Script { env: &env, ..self.spec.script() }, self.group.as_ref());
        let mut first = sandbox::start_boxed(script, limits, self.gate.is_some(), group, pipes)?;
        if let Some(gate) = &mut self.gate {
            gate.expect(first.hatch.take());
        }
        Ok(Some(first))
    }

    fn start(&mut self, prepared: Option<Boxed>) -> io::Result<Leader> {
        let leader = match (prepared, self.spec.fence) {
            (Some(first), _) => {
                first.go();
                Leader::First(first)
            }
            (None, fence) => {
                let (pipes, env) = self.streams()?;
                self.make_group()?;
                let script = Script { env: &env, ..self.spec.script() };
                let port = self.gate.as_ref().and_then(Gate::port);
                let restraint = fence.map(|fence| {
                    Restraint::without_namespaces(script, fence.limits, port, self.group.as_ref())
                });
                start_here(script, restraint.transpose()?, pipes)?
            }
        };
        // Not before: the kernel would let nobody write the users of what it starts. It is hygiene
        // only, so a script may run where it is not allowed.
        let _readable = set_dumpable(false);
        Ok(leader)
    }

    /// Where the script's output goes, and its environment with its way out in it.
    fn streams(&mut self) -> io::Result<([OwnedFd; 2], Environment)> {
        let (out, out_end) = pipe2(OFlag::O_CLOEXEC)?;
        let (err, err_end) = pipe2(OFlag::O_CLOEXEC)?;
        self.out.attach(out)?;
        self.err.attach(err)?;
        self.gate = self.open_gate()?;
        let mut env = self.spec.env.clone();
        env.extend(self.gate.iter().flat_map(Gate::environment));
        Ok(([out_end, err_end], env))
    }

    /// The script's way out, if it is to have one. Without a sandbox nothing would hold it to that.
    fn open_gate(&self) -> io::Result<Option<Gate>> {
        let (Some(network), now) = (self.spec.network.clone(), monotonic_ms()) else {
            return Ok(None);
        };
        match self.spec.fence.map(|fence| fence.tier) {
            Some(Tier::Namespaces) => Ok(Some(Gate::inside(network, now))),
            Some(Tier::Landlock) => Gate::here(network, now).map(Some),
            None => Ok(None),
        }
    }

    /// Where it was found to work it is never left out: then the script does not start.
    fn make_group(&mut self) -> io::Result<()> {
        if let (Some(group), Some(fence)) = (&self.spec.group, self.spec.fence) {
            group.make(&fence.limits)?;
            self.group = Some(group.clone());
        }
        Ok(())
    }

    /// Who looks at what the script uses, where it is held to anything.
    fn watchdog(&self, leader: &Leader) -> Option<Watchdog> {
        let fence = self.spec.fence?;
        let above = match leader {
            Leader::First(first) => first.pid,
            Leader::Script(_) => rustix::process::getpid(),
        };
        let dog = Watchdog::new(fence.limits, above.as_raw_nonzero().get(), monotonic_ms());
        Some(dog.with(self.group.clone()))
    }

    /// Until the leader has ended.
    fn attend(&mut self, leader: &Leader, course: &mut Course) {
        let mut watchdog = self.watchdog(leader);
        // The first process may have failed before "go", when its end was not what was waited for.
        if leader.has_ended() {
            return;
        }
        loop {
            let look = watchdog.as_ref().map(Watchdog::due);
            let happened = self.wait(course.next().into_iter().chain(look).min());
            let now = monotonic_ms();
            if happened.child {
                if leader.has_ended() {
                    return;
                }
                leader.reap_others();
            }
            for why in happened.ends() {
                course.end(now, why);
            }
            if let Some(passed) = watchdog.as_mut().and_then(|watchdog| watchdog.look(now)) {
                course.end(now, Why::Passed(passed));
            }
            while let Some(step) = course.step(now) {
                match step {
                    Step::Terminate => {
                        leader.signal(Signal::SIGTERM);
                        leader.signal(Signal::SIGCONT);
                    }
                    Step::Kill => leader.signal(Signal::SIGKILL),
                }
            }
        }
    }

    /// Kills what the script left behind. Answers how many died of it and how many did not.
    fn sweep(&mut self) -> (u32, usize) {
        let until = monotonic_ms().saturating_add(LEFTOVERS_MS_MAX);
        let mut killed = 0;
        loop {
            let (died, any_left) = family::reap_all();
            killed += died;
            if !any_left {
                return (killed, 0);
            }
            let left = family::kill_children();
            let now = monotonic_ms();
            if now >= until {
                return (killed, left);
            }
            self.wait(Some(until.min(now + LEFTOVERS_POLL_MS)));
        }
    }

    /// Takes what is still in the pipes. Somebody may hold them open for ever, so silence ends it,
    /// and so does time.
    fn drain(&mut self) {
        let end = monotonic_ms().saturating_add(DRAIN_MS);
        let mut idle = monotonic_ms().saturating_add(DRAIN_IDLE_MS);
        while self.out.is_open() || self.err.is_open() {
            let happened = self.wait(Some(end.min(idle)));
            let now = monotonic_ms();
            if happened.output {
                idle = now.saturating_add(DRAIN_IDLE_MS);
            }
            if now >= end.min(idle) {
                break;
            }
        }
        self.out.abandon();
        self.err.abandon();
    }

    /// Sleeps until something happens or `until`, and takes all that did. Whatever the phase,
    /// pipes are drained and orders are answered.
    fn wait(&mut self, until: Option<u64>) -> Happened {
        // Everything it waits for is an event, so nothing wakes it before the time.
        let gate = self.gate.as_ref().and_then(Gate::due);
        let until = until.into_iter().chain(gate).min();
        let timeout = until.map_or(PollTimeout::NONE, |until| {
            let ms = until.saturating_sub(monotonic_ms());
            PollTimeout::try_from(ms).unwrap_or(PollTimeout::MAX)
        });
        let mut fds = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        fds.extend(self.out.poll_fd());
        fds.extend(self.err.poll_fd());
        fds.extend(self.ctl.poll_fds());
        fds.extend(self.gate.iter().flat_map(Gate::poll_fds));
        // An interrupted poll is like one that ended early: all below return at once.
        let _ready = poll(&mut fds, timeout);
        drop(fds);
        if let Some(gate) = &mut self.gate {
            gate.tend(monotonic_ms());
        }
        let mut happened = Happened { orders: self.ctl.take(), ..Happened::default() };
        // Without its lock it is dead to everybody, so its script may not run on unseen.
        happened.removed = self.lock.metadata().is_ok_and(|lock| lock.nlink() == 0);
        happened.output |= self.out.drain(&mut self.buffer);
        happened.output |= self.err.drain(&mut self.buffer);
        while let Ok(Some(signal)) = self.signals.read_signal() {
            happened.child |= signal.ssi_signo == Signal::SIGCHLD as u32;
            happened.shutdown |= signal.ssi_signo == Signal::SIGTERM as u32;
        }
        happened
    }
}

fn start_here(
    script: Script<'_>,
    restraint: Option<Restraint>,
    pipes: [OwnedFd; 2],
) -> io::Result<Leader> {
    let child = spawn::script(script, restraint, pipes).spawn()?;
    let _kept = fs::write(format!("/proc/{}/oom_score_adj", child.id()), OOM_SCORE);
    Ok(Leader::Script(child))
}
