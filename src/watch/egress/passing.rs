//! Descriptors that go from one process to another over a unix socket. Owns that none survives an
//! exec and none is taken unasked. Must not know what they are.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Sends the beginning of `bytes`, at least one, and one descriptor with its first byte. Answers
/// how many bytes went.
pub(in crate::watch) fn send(
    socket: impl AsFd,
    bytes: &[u8],
    passed: BorrowedFd<'_>,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let passed = [passed];
    if !control.push(SendAncillaryMessage::ScmRights(&passed)) {
        return Err(io::Error::other("there is no room for a descriptor"));
    }
    Ok(sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?)
}

/// Receives bytes, none at the end, and the descriptor that came with them. Of several the first is
/// kept and the others are closed.
pub(in crate::watch) fn receive(
    socket: impl AsFd,
    bytes: &mut [u8],
) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(bytes)];
    let got = recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut passed = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(all) = message {
            for one in all {
                passed.get_or_insert(one);
            }
        }
    }
    if got.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "too many descriptors at once"));
    }
    Ok((got.bytes, passed))
}
