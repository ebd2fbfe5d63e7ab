//! The words between the bot and a shim, over the socket `ctl` in the execution's directory: an
//! order a line, each answered by one line that says how far the shim is. The end of the
//! connection is the end of the shim. Must not know what an order does.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::net::UnixStream;

use super::file;

/// The socket's name. The shim binds it relative to its directory, so its length does not matter.
pub(super) const SOCKET: &str = "ctl";
/// Longest line.
pub(super) const LINE_BYTES_MAX: usize = 32;

/// What a shim is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Let the script run.
    Go,
    /// TERM, grace, KILL.
    Cancel,
    /// KILL.
    Kill,
    /// Only answer.
    Probe,
}

impl Order {
    /// As it is sent, without the line feed.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Go => "go",
            Self::Cancel => "cancel",
            Self::Kill => "kill",
            Self::Probe => "probe",
        }
    }

    /// Reads a line.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        [Self::Go, Self::Cancel, Self::Kill, Self::Probe]
            .into_iter()
            .find(|order| order.word().as_bytes() == line)
    }
}

/// The answer to every order.
pub(super) const HEARD: &str = "ok";
/// The exit record is written. Said once, unasked.
pub(super) const DONE: &str = "done";

/// The process at the other end of a connection, whatever becomes of its pid.
#[derive(Debug)]
pub(super) struct Peer {
    fd: OwnedFd,
    pid: Pid,
}

impl Peer {
    /// Who listens at the other end of `stream`.
    pub(super) fn of(stream: &UnixStream) -> io::Result<Self> {
        let pid = stream.peer_cred()?.pid().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("the socket has no peer"))?;
        let peer = Self { fd: pidfd_open(pid, PidfdFlags::empty())?, pid };
        // The pid was still the shim's if the connection stands now: a shim's end closes it.
        if is_closed(stream) {
            return Err(io::ErrorKind::NotConnected.into());
        }
        Ok(peer)
    }

    /// Its pid, which is a stranger's once the connection has ended.
    pub(super) fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Sends CONT.
    pub(super) fn wake(&self) -> io::Result<()> {
        Ok(pidfd_send_signal(&self.fd, Signal::CONT)?)
    }

    /// Sends KILL.
    pub(super) fn kill(&self) -> io::Result<()> {
        Ok(pidfd_send_signal(&self.fd, Signal::KILL)?)
    }
}

/// Has somebody stopped the process with this pid? `false` when there is none.
pub(super) fn is_stopped(pid: i32) -> bool {
    // One read: many are looked at. What is looked for stands at the beginning.
    let mut stat = [0; 64];
    let read = File::open(format!("/proc/{pid}/stat")).and_then(|mut file| file.read(&mut stat));
    let stat = stat.get(..read.unwrap_or(0)).unwrap_or_default();
    // `pid (name) state …`, and the name may have any character.
    let name_ends = stat.iter().rposition(|byte| *byte == b')');
    name_ends.and_then(|at| stat.get(at + 2)) == Some(&b'T')
}

fn is_closed(stream: &UnixStream) -> bool {
    let mut fds = [PollFd::new(stream.as_fd(), PollFlags::POLLHUP)];
    let polled = poll(&mut fds, PollTimeout::ZERO);
    polled.is_err() || fds.iter().any(|fd| fd.any().unwrap_or(true))
}

/// Connects to the shim of a directory.
pub(super) async fn connect(dir: &Path) -> io::Result<UnixStream> {
    // A socket's path may not be longer than 107 bytes; this one is short wherever the spool is.
    let dir = file::directory(dir)?;
    UnixStream::connect(format!("/proc/self/fd/{}/{SOCKET}", dir.as_raw_fd())).await
}
