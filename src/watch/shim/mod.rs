//! The shim: a small process of its own for each execution, `dogwatch shim DIR`. It outlives the
//! bot, waits for "go", runs the script, holds it to its deadline, keeps what it prints and writes
//! the exit record. Synchronous, one thread. Must not know the bot, the ledger or who may go where.

mod course;
mod ctl;
mod family;
mod gate;
mod stream;
mod supervise;
pub mod zygote;

use std::fs::{File, metadata};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::stat::{Mode, umask};
use nix::time::ClockId;
use nix::unistd::{Pid, dup2_stdin, dup2_stdout, getpgid, getppid, setpgid, setsid};

use self::ctl::Ctl;
use self::stream::{READ_BYTES, Stream};
use self::supervise::Supervisor;
use super::exit_record;
use super::spec;
use super::spool::{ERR, LOCK, OUT};
use crate::failpoint;

/// Why a shim could not do its work.
#[derive(Debug, thiserror::Error)]
enum ShimError {
    /// Somebody ran it by hand.
    #[error(
        "dogwatch: `shim` is internal: the bot starts it, one for each script; there is nothing to \
         be done by hand, `dogwatch --help` lists what is"
    )]
    NotForYou,
    /// The system refused something.
    #[error("the shim cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// Turns a system's refusal into an error that says what was tried.
fn cannot<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> ShimError {
    move |source| ShimError::System { what, source: source.into() }
}

/// Runs the execution in `dir` to its end. Answers the exit code of the process: 0 when the
/// record is written, 1 when it is not, 64 when it was not the bot that started this.
pub fn run(dir: &Path) -> u8 {
    let Err(error) = attend(dir) else { return 0 };
    // Stderr is the log in the execution's directory, or a person's terminal.
    let _unheard = writeln!(io::stderr(), "{error}");
    match error {
        ShimError::NotForYou => 64,
        ShimError::System { .. } => 1,
    }
}

fn attend(dir: &Path) -> Result<(), ShimError> {
    let lock = take_lock(dir)?;
    let signals = detach()?;
    failpoint!("shim.begun");
    std::env::set_current_dir(dir).map_err(cannot("enter its directory"))?;
    let here = Path::new(".");
    let spec = spec::read(here).map_err(io::Error::other).map_err(cannot("read what to run"))?;
    let written = exit_record::read(here).map_err(cannot("look for an exit record"))?;
    if written.is_some() {
        return Ok(());
    }
    let out = Stream::open(&here.join(OUT)).map_err(cannot("open its output files"))?;
    let err = Stream::open(&here.join(ERR)).map_err(cannot("open its output files"))?;
    let ctl = Ctl::bind().map_err(cannot("listen on its socket"))?;
    say_ready().map_err(cannot("leave the bot's pipe"))?;
    failpoint!("shim.ready");
    let buffer = vec![0; READ_BYTES];
    // The lock is free when this process is gone.
    Supervisor { spec, lock, out, err, ctl, gate: None, signals, group: None, buffer }.run()
}

/// The lock comes as stdin, already taken. It is free again when this process is gone.
fn take_lock(dir: &Path) -> Result<File, ShimError> {
    let stdin = io::stdin().as_fd().try_clone_to_owned().map_err(cannot("take its lock"))?;
    let given = File::from(stdin);
    let named = metadata(dir.join(LOCK)).map_err(|_none| ShimError::NotForYou)?;
    let is = given.metadata().map_err(cannot("look at its lock"))?;
    if (is.dev(), is.ino()) != (named.dev(), named.ino()) || given.try_lock().is_err() {
        return Err(ShimError::NotForYou);
    }
    Ok(given)
}

/// Leaves the bot's terminal, group and session, and becomes the parent of every orphan below.
fn detach() -> Result<SignalFd, ShimError> {
    let mut mask = SigSet::empty();
    for signal in
        [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT]
    {
        mask.add(signal);
    }
    mask.thread_block().map_err(cannot("block signals"))?;
    let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
        .map_err(cannot("hear signals"))?;
    // Started as a program it leads a group, so that a Ctrl-C for the bot never reached it. A
    // group's leader cannot begin a session; a member of the parent's group can, and signals are
    // blocked.
    if let Ok(group) = getpgid(Some(getppid())) {
        let _refused_where_the_bot_is_gone = setpgid(Pid::from_raw(0), group);
    }
    let _stays_in_its_group = setsid();
    set_child_subreaper(true).map_err(cannot("adopt orphans"))?;
    umask(Mode::from_bits_truncate(0o077));
    Ok(signals)
}

/// Tells the bot that the socket is served, and gives up the descriptors that came from it.
fn say_ready() -> io::Result<()> {
    let _nobody_listens = io::stdout().write_all(b"\n").and_then(|()| io::stdout().flush());
    let null = File::options().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    Ok(())
}

/// Milliseconds of a clock of the system.
fn clock_ms(clock: ClockId) -> u64 {
    let now = clock.now().map(std::time::Duration::from).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// Time that stands still while the host sleeps, and never jumps.
fn monotonic_ms() -> u64 {
    clock_ms(ClockId::CLOCK_MONOTONIC)
}

/// Time as people read it.
fn wall_ms() -> u64 {
    clock_ms(ClockId::CLOCK_REALTIME)
}
