//! The shim's side of its socket: takes orders, answers each. Every call returns at once, and a
//! peer that misbehaves is dropped. Must not know what an order does.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};

use nix::poll::{PollFd, PollFlags};

use crate::core::limits::SHIM_CONNECTIONS_MAX;
use crate::watch::ctl::{DONE, HEARD, LINE_BYTES_MAX, Order, SOCKET};

/// The socket and who is connected.
pub(super) struct Ctl {
    listener: UnixListener,
    peers: Vec<Peer>,
}

struct Peer {
    stream: UnixStream,
    /// The beginning of a line.
    line: Vec<u8>,
}

impl Ctl {
    /// Binds the socket in the current directory.
    pub(super) fn bind() -> io::Result<Self> {
        let listener = UnixListener::bind(SOCKET)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, peers: Vec::new() })
    }

    /// What to wait for.
    pub(super) fn poll_fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        let peers = self.peers.iter().map(|peer| peer.stream.as_fd());
        let all = std::iter::once(self.listener.as_fd()).chain(peers);
        all.map(|fd| PollFd::new(fd, PollFlags::POLLIN))
    }

    /// The orders that have come.
    pub(super) fn take(&mut self) -> Vec<Order> {
        while let Ok((stream, _)) = self.listener.accept() {
            if self.peers.len() < SHIM_CONNECTIONS_MAX && stream.set_nonblocking(true).is_ok() {
                self.peers.push(Peer { stream, line: Vec::new() });
            }
        }
        let mut orders = Vec::new();
        self.peers.retain_mut(|peer| peer.take(&mut orders));
        orders
    }

    /// Says that the exit record is written.
    pub(super) fn farewell(&mut self) {
        self.peers.retain_mut(|peer| peer.say(DONE));
    }
}

impl Peer {
    /// Reads what is there; `false` when this peer is to be dropped.
    fn take(&mut self, orders: &mut Vec<Order>) -> bool {
        let mut bytes = [0; LINE_BYTES_MAX];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return false,
                Ok(n) => {
                    if !self.lines(bytes.get(..n).unwrap_or_default(), orders) {
                        return false;
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return e.kind() == io::ErrorKind::WouldBlock,
            }
        }
    }

    fn lines(&mut self, bytes: &[u8], orders: &mut Vec<Order>) -> bool {
        for byte in bytes {
            if *byte != b'\n' {
                self.line.push(*byte);
                continue;
            }
            let Some(order) = Order::parse(&self.line) else { return false };
            self.line.clear();
            orders.push(order);
            if !self.say(HEARD) {
                return false;
            }
        }
        self.line.len() <= LINE_BYTES_MAX
    }

    fn say(&mut self, word: &str) -> bool {
        self.stream.write_all(format!("{word}\n").as_bytes()).is_ok()
    }
}
