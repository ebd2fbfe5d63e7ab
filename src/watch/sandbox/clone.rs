//! The raw calls that copy a process. Owns all `unsafe` of the sandbox. Must not know what runs in
//! the copy.
//!
//! Only a process of one thread may use this: the shim, and the zygote that shims are copies of.
//! The copy can then allocate like any other.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

use nix::errno::Errno;
use nix::libc;
use nix::unistd::Pid;

/// User, mount, process, network, IPC and host name namespaces of its own.
pub(super) const NAMESPACES: u64 = (libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS) as u64;

/// Exit code of a copy that panicked.
const PANICKED: u8 = 125;

/// The first version of the kernel's `struct clone_args`; later ones are longer (clone(2)).
#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
}

/// Copies this process into namespaces of its own and runs `child` in the copy, which ends with
/// the code that it answers and never comes back here. The descriptor of the copy names it for
/// life, whatever becomes of its number.
pub(super) fn into_namespaces(child: impl FnOnce() -> u8) -> io::Result<(Pid, OwnedFd)> {
    copy(NAMESPACES, libc::SIGCHLD, child)
}

/// The same with a copy beside this process, a child of its parent, which is told of its end and
/// reaps it.
pub(in crate::watch) fn sibling(child: impl FnOnce() -> u8) -> io::Result<Pid> {
    // The signal is the one that the parent gets of this process (clone(2)).
    copy(libc::CLONE_PARENT as u64, 0, child).map(|(pid, _)| pid)
}

fn copy(flags: u64, signal: i32, child: impl FnOnce() -> u8) -> io::Result<(Pid, OwnedFd)> {
    let mut pidfd: RawFd = -1;
    let flags = flags | libc::CLONE_PIDFD as u64;
    let mut args = CloneArgs {
        flags,
        pidfd: (&raw mut pidfd) as u64,
        exit_signal: u64::from(signal.cast_unsigned()),
        ..CloneArgs::default()
    };
    #[expect(
        unsafe_code,
        reason = "no library has a clone with these flags that returns in the child; without \
                  CLONE_VM the child has memory of its own, and there is no other thread"
    )]
    let result = unsafe {
        let size = size_of::<CloneArgs>();
        match Errno::result(libc::syscall(libc::SYS_clone3, &raw mut args, size)) {
            // Containers answer so, since their filters cannot look behind its pointer.
            Err(Errno::ENOSYS) => clone_of_old(flags, &mut pidfd),
            result => result,
        }
    };
    let pid = result?;
    if pid == 0 {
        let code = catch_unwind(AssertUnwindSafe(child)).unwrap_or(PANICKED);
        leave(code);
    }
    let pid = Pid::from_raw(i32::try_from(pid).map_err(io::Error::other)?);
    #[expect(unsafe_code, reason = "the kernel just made this descriptor for us alone")]
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    Ok((pid, pidfd))
}

/// The older call, whose flags end with the signal; the order of the others differs by machine,
/// but all that are used here are null.
#[expect(unsafe_code, reason = "see its only caller")]
unsafe fn clone_of_old(flags: u64, pidfd: &mut RawFd) -> nix::Result<libc::c_long> {
    let flags = flags | libc::SIGCHLD as u64;
    let null = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: as above.
    Errno::result(unsafe {
        libc::syscall(libc::SYS_clone, flags, null, &raw mut *pidfd, null, null)
    })
}

/// Ends this process without anything that was registered for its end: that belongs to the
/// original.
fn leave(code: u8) -> ! {
    #[expect(unsafe_code, reason = "std's exit runs what the original registered")]
    unsafe {
        libc::_exit(code.into())
    }
}

/// Closes every descriptor but 0, 1, 2 and these. Whoever owns them in this process must never
/// drop them: only a copy that ends by [`leave`] may call this.
pub(in crate::watch) fn close_all_but(kept: &[RawFd]) -> io::Result<()> {
    let mut kept: Vec<u32> = kept.iter().filter_map(|fd| u32::try_from(*fd).ok()).collect();
    kept.sort_unstable();
    let mut first = 3;
    for last in kept.into_iter().chain([u32::MAX]) {
        if first < last {
            close_range(first, if last == u32::MAX { last } else { last - 1 })?;
        }
        first = last.saturating_add(1);
    }
    Ok(())
}

fn close_range(first: u32, last: u32) -> io::Result<()> {
    #[expect(unsafe_code, reason = "no library has it; see `close_all_but` for its owners")]
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    Errno::result(result)?;
    Ok(())
}
