//! The network of a script in namespaces: its own loopback device and nothing behind it. Owns the
//! one message to the kernel, and the way of a listener out of it: the first process listens after
//! [`up`] and before the script, and its shim takes what listens. A socket stays in the network it
//! was made in, whoever holds it. Must not know who answers there.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;

use nix::libc;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};

use super::step;
use crate::watch::passing;

/// The first device of every network.
const LOOPBACK: i32 = 1;
/// A header and one `struct ifinfomsg` (rtnetlink(7)).
const REQUEST_BYTES: u32 = 32;
/// Where the way out of a script's own network listens.
pub(in crate::watch) const PORT: u16 = 3128;
/// What a listener comes with: a descriptor cannot be sent alone.
const LISTENS: &[u8] = b"l";
/// Where an answer says what went wrong (netlink(7)).
const ERROR_AT: usize = 16;

/// Switches the loopback device on.
pub(super) fn up() -> io::Result<()> {
    set_up().map_err(step("switch its loopback device on"))
}

fn set_up() -> io::Result<()> {
    let line = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkRoute,
    )?;
    let up = libc::IFF_UP.cast_unsigned();
    let flags = libc::NLM_F_REQUEST | libc::NLM_F_ACK;
    let words = [
        REQUEST_BYTES,
        u32::from(libc::RTM_NEWLINK) | flags.cast_unsigned() << 16,
        // Sequence and port, then the family and type of the device: none.
        1,
        0,
        0,
        LOOPBACK.cast_unsigned(),
        // What it is to be, and which of it is to change.
        up,
        up,
    ];
    let request: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    send(line.as_raw_fd(), &request, MsgFlags::empty())?;
    let mut answer = [0; 256];
    let length = recv(line.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    let error = answer.get(..length).and_then(|answer| answer.get(ERROR_AT..ERROR_AT + 4));
    let error = error.and_then(|bytes| <[u8; 4]>::try_from(bytes).ok()).map(i32::from_ne_bytes);
    match error {
        Some(0) => Ok(()),
        Some(error) => Err(io::Error::from_raw_os_error(error.saturating_neg())),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Listens on the way out. Only where there is a network of one's own.
pub(super) fn listen() -> io::Result<TcpListener> {
    listen_at(PORT).map_err(step("listen on its way out"))
}

/// Listens on the loopback device at `port`; at any where it is 0.
pub(in crate::watch) fn listen_at(port: u16) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))?;
    // Whoever holds it must never wait in it.
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Hands a listener out by `hatch`, whose other end the shim has.
pub(super) fn hand_out(listener: &TcpListener, hatch: &UnixStream) -> io::Result<()> {
    let sent = passing::send(hatch, LISTENS, &[listener.as_fd()]);
    sent.map(drop).map_err(step("hand its way out to its shim"))
}

/// Takes the listener that came by `hatch`, which does not block. An error says that none will
/// come; one that is `WouldBlock`, that none is there yet.
pub(in crate::watch) fn take(hatch: &UnixStream) -> io::Result<TcpListener> {
    let (_, listeners) = passing::receive(hatch, &mut [0; LISTENS.len()])?;
    let listener = listeners.into_iter().next().map(TcpListener::from);
    listener.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}
