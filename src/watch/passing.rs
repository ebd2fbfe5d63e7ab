//! Descriptors that go from one process to another over a unix socket. Owns that none survives an
//! exec, and that no more are taken at once than anybody sends. Must not know what they are.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Most descriptors that go together.
const TOGETHER_MAX: usize = 3;

/// Sends the beginning of `bytes`, at least one, and up to three descriptors with its first byte.
/// Answers how many bytes went.
pub(super) fn send(
    socket: impl AsFd,
    bytes: &[u8],
    passed: &[BorrowedFd<'_>],
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(TOGETHER_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(passed)) {
        return Err(io::Error::other("there is no room for so many descriptors"));
    }
    Ok(sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?)
}

/// Receives bytes, none at the end, and the descriptors that came with them.
pub(super) fn receive(socket: impl AsFd, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(TOGETHER_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(bytes)];
    let got = recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut passed = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(all) = message {
            passed.extend(all);
        }
    }
    if got.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "too many descriptors at once"));
    }
    Ok((got.bytes, passed))
}
