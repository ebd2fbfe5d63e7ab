//! The network of watchers: one small process beside the bot, `dogwatch egress DIR`, through which
//! every request of a watcher goes. It outlives the bot, so a restart of that breaks no connection.
//! Must not know sessions, the ledger or the configuration.
//!
//! A script connects to a listener in its own namespaces (or, where there are none, on loopback).
//! Its shim hands that listener on ([`hand_over`]) and keeps a copy; the bot says what the
//! execution may do ([`Egress::rule`]). While no egress process is there connections wait in the
//! system's queue, and the shim and the bot do the same again with the next one.

mod answer;
mod client;
mod control;
mod house;
mod listen;
mod log;
mod pace;
mod process;
mod proxy;
mod reach;
mod settings;
mod upstream;
mod wire;
mod words;

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use nix::poll::poll;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use secrecy::SecretString;

pub use self::client::{Egress, EgressError};
pub use self::process::run;
pub use self::settings::{Caps, Settings};
use self::words::{Answer, SOCKET, Serve, Word};
pub use self::words::{Lent, Rules};
use super::{file, passing};
use crate::core::limits::EGRESS_HAND_OVER_MS;

/// Between two looks at a socket whose queue is full.
const QUEUE_WAIT_MS: u16 = 10;
/// Longest answer.
const ANSWER_BYTES_MAX: usize = 4 * 1024;

/// Has the egress process of `dir` take connections from `listener`, which the caller keeps too.
/// Blocking, for a second at most; for a shim, which has one thread. Answers the connection, which
/// does not block: its end means that the process is gone, and closing it that the execution is.
/// Nothing is taken before the execution has rules. The listener does not block any more either.
pub fn hand_over(
    dir: &Path,
    execution: &str,
    pass: &str,
    listener: BorrowedFd<'_>,
    guarded: bool,
) -> io::Result<UnixStream> {
    let stream = reach(dir)?;
    let half = Duration::from_millis(EGRESS_HAND_OVER_MS / 2);
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(half))?;
    stream.set_read_timeout(Some(half))?;
    let pass = SecretString::from(pass);
    let line = words::line(&Word::Serve(Serve { execution: execution.to_owned(), pass, guarded }))?;
    let sent = passing::send(&stream, &line, &[listener])?;
    (&stream).write_all(line.get(sent..).unwrap_or_default())?;
    match words::read(&answer(&stream)?)? {
        Answer::Done {} => {}
        Answer::Refused { what } => return Err(io::Error::new(ErrorKind::PermissionDenied, what)),
        Answer::Hello(_) => return Err(ErrorKind::InvalidData.into()),
    }
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// Connects without waiting for a process that does not take connections.
fn reach(dir: &Path) -> io::Result<UnixStream> {
    let dir = file::directory(dir)?;
    let path = format!("/proc/self/fd/{}/{SOCKET}", dir.as_raw_fd());
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let mut waited_ms = 0;
    loop {
        match connect(&socket, &address) {
            Ok(()) => return Ok(socket.into()),
            Err(rustix::io::Errno::AGAIN) if waited_ms < EGRESS_HAND_OVER_MS => {}
            Err(error) => return Err(error.into()),
        }
        // No descriptor: only the time passes.
        let _passed = poll(&mut [], QUEUE_WAIT_MS);
        waited_ms += u64::from(QUEUE_WAIT_MS);
    }
}

/// One line. The time for each read is bounded, and so is their number.
fn answer(mut stream: &UnixStream) -> io::Result<Vec<u8>> {
    let mut line = vec![0; ANSWER_BYTES_MAX];
    let mut length = 0;
    loop {
        let count = stream.read(line.get_mut(length..).unwrap_or_default())?;
        length += count;
        let so_far = line.get(..length).unwrap_or_default();
        if let Some(whole) = so_far.strip_suffix(b"\n") {
            return Ok(whole.to_vec());
        }
        if count == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
    }
}
