//! One output stream of a script: its pipe, drained without ever blocking, and the file that keeps
//! what it carried. Must not know text.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags};

use crate::watch::ring::Writer;

/// What a pipe holds, and so the size of a good buffer.
pub(super) const READ_BYTES: usize = 64 * 1024;
/// Reads before others get their turn.
const READS_MAX: usize = 16;

/// Pipe and file.
pub(super) struct Stream {
    pipe: Option<OwnedFd>,
    file: Writer,
}

impl Stream {
    /// Opens the file; there is no pipe yet.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { pipe: None, file: Writer::open(path)? })
    }

    /// Takes the reading end of a pipe.
    pub(super) fn attach(&mut self, pipe: impl Into<OwnedFd>) -> io::Result<()> {
        let pipe = pipe.into();
        let flags = OFlag::from_bits_truncate(fcntl(&pipe, FcntlArg::F_GETFL)?);
        fcntl(&pipe, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        self.pipe = Some(pipe);
        Ok(())
    }

    /// The file.
    pub(super) fn file(&mut self) -> &mut Writer {
        &mut self.file
    }

    /// May anything still come?
    pub(super) fn is_open(&self) -> bool {
        self.pipe.is_some()
    }

    /// Nobody reads what still comes.
    pub(super) fn abandon(&mut self) {
        self.pipe = None;
    }

    /// What to wait for.
    pub(super) fn poll_fd(&self) -> Option<PollFd<'_>> {
        self.pipe.as_ref().map(|pipe| PollFd::new(pipe.as_fd(), PollFlags::POLLIN))
    }

    /// Moves what is there; `true` when that was anything.
    pub(super) fn drain(&mut self, buffer: &mut [u8]) -> bool {
        let mut any = false;
        for _ in 0..READS_MAX {
            let Some(pipe) = &self.pipe else { break };
            match nix::unistd::read(pipe, buffer) {
                Ok(0) => self.pipe = None,
                Ok(n) => {
                    any = true;
                    self.file.push(buffer.get(..n).unwrap_or_default());
                }
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => break,
                Err(_) => self.pipe = None,
            }
        }
        any
    }
}
