//! The network of a script in namespaces: its own loopback device and nothing behind it. Owns the
//! one message to the kernel. Whoever hands a listener out of it does so from the first process,
//! after [`up`] and before the script. Must not know who listens.

use std::io;
use std::os::fd::AsRawFd;

use nix::libc;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};

use super::step;

/// The first device of every network.
const LOOPBACK: i32 = 1;
/// A header and one `struct ifinfomsg` (rtnetlink(7)).
const REQUEST_BYTES: u32 = 32;
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
