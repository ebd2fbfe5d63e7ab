//! A process that shims are copies of: most of what starting a program costs, its loading, is paid
//! once. Owns that process, and what becomes of a start during which it fails: either nobody was
//! started, or somebody was and is attended to. Must not know what a shim does.
//!
//! A copy is the bot's own child, as if the bot had started it, and the zygote knows nothing of it
//! afterwards. It is started with the first execution and ends with the bot. Where it cannot be had
//! each shim is a program of its own, which differs in nothing but its cost.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Mutex, PoisonError};

use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socketpair};
use rustix::process::Pid;

use super::passing;
use super::spawn::{self, Shim};
use super::spool::{Entry, EntryError};

/// What comes with the name of a directory: its lock, a pipe, its log.
pub(super) const GIVEN: usize = 3;
/// Longest answer: a number, or what the system said.
const ANSWER_BYTES_MAX: usize = 256;

/// The zygote of a spool.
pub(super) struct Zygote {
    program: PathBuf,
    /// Where executions stand, for whoever reads a list of processes.
    place: PathBuf,
    answer_ms: u64,
    state: Mutex<State>,
}

enum State {
    /// Not started.
    Asleep,
    /// There.
    Awake(Awake),
    /// It never worked here.
    Off,
}

struct Awake {
    process: Child,
    line: OwnedFd,
    /// It has answered once.
    proven: bool,
}

/// What came of asking for a shim.
pub(super) enum Asked {
    /// It is there.
    Started(Shim),
    /// It is not: the lock is free for another.
    Not(File),
}

impl Zygote {
    /// One that is started when it is needed. An answer may take `answer_ms` milliseconds.
    pub(super) fn new(program: PathBuf, place: PathBuf, answer_ms: u64) -> Self {
        Self { program, place, answer_ms, state: Mutex::new(State::Asleep) }
    }

    /// Asks for a shim of this entry, whose lock is taken. Blocking.
    pub(super) fn start(&self, entry: &Entry, lock: File, log: &File) -> Result<Asked, EntryError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(awake) = self.wake(&mut state) else { return Ok(Asked::Not(lock)) };
        let Ok((ready, writer)) = io::pipe() else { return Ok(Asked::Not(lock)) };
        let given = [lock.as_fd(), writer.as_fd(), log.as_fd()];
        let error = match awake.ask(&entry.dir, given, self.answer_ms) {
            Ok(Ok(pid)) => {
                awake.proven = true;
                return Ok(Asked::Started(Shim { pid: Some(pid), ready: ready.into() }));
            }
            // Started another way it will say why.
            Ok(Err(_refused)) => return Ok(Asked::Not(lock)),
            Err(error) => error,
        };
        let next = if awake.proven { State::Asleep } else { State::Off };
        tracing::warn!(%error, "the process that shims are copies of failed");
        // Once it is gone nobody can be started by it any more, and who was has the lock.
        drop(std::mem::replace(&mut *state, next));
        drop((state, lock, writer));
        Ok(match entry.lock_soon()? {
            Some(lock) => Asked::Not(lock),
            None => Asked::Started(Shim { pid: None, ready: ready.into() }),
        })
    }

    fn wake<'a>(&self, state: &'a mut State) -> Option<&'a mut Awake> {
        if matches!(state, State::Asleep) {
            *state = match self.begin() {
                Ok(awake) => State::Awake(awake),
                // Also what the shim would say, and better.
                Err(_no_program) => return None,
            };
        }
        match state {
            State::Awake(awake) => Some(awake),
            State::Asleep | State::Off => None,
        }
    }

    fn begin(&self) -> io::Result<Awake> {
        let flags = SocketFlags::CLOEXEC;
        let (line, its) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let process = spawn::zygote(&self.program, &self.place, its)?;
        Ok(Awake { process, line, proven: false })
    }
}

impl Awake {
    /// Its answer: the process that it started, or why it did not. An error says that nothing is
    /// known.
    fn ask(
        &self,
        dir: &Path,
        given: [BorrowedFd<'_>; GIVEN],
        answer_ms: u64,
    ) -> io::Result<Result<Pid, io::Error>> {
        // Nothing waits there, so this does not.
        passing::send(&self.line, dir.as_os_str().as_bytes(), &given)?;
        spawn::hear(&self.line, spawn::within(answer_ms))?;
        let mut bytes = [0; ANSWER_BYTES_MAX];
        let (_, length) = recv(&self.line, &mut bytes, RecvFlags::empty())?;
        let answer = String::from_utf8_lossy(bytes.get(..length).unwrap_or_default());
        if answer.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let pid = answer.parse().ok().and_then(Pid::from_raw);
        Ok(pid.ok_or_else(|| io::Error::other(answer.into_owned())))
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        // Not its group, which its latest copy may not have left yet.
        let _gone_already = self.process.kill();
        let _reaped = self.process.wait();
    }
}
