//! Which system calls a script may make. Owns the list and why each stands on it. Must not know
//! files: those are Landlock's and the root's.
//!
//! What is not named is allowed, since Python and its modules use most of what there is; what is
//! newer than this list is not there. A refusal is `EPERM`, which Python shows as a
//! `PermissionError`; what a program is known to do without is `ENOSYS`.

mod program;
#[cfg(test)]
mod tests;

use std::io;

use nix::libc;
use seccompiler::BpfProgram;

use self::program::{Condition, How, Reason, Rules, program};
use super::Tier;

/// Refused whatever the arguments.
const NEVER: &[libc::c_long] = &[
    // Other processes: their memory, their descriptors, their registers (ptrace(2),
    // process_vm_readv(2), pidfd_getfd(2), kcmp(2)).
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
    libc::SYS_get_robust_list,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
    // Namespaces and mounts: a user namespace gives back every capability and with them most of
    // the kernel's weak places (user_namespaces(7)).
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_mount_setattr,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    // Files by number instead of by path pass Landlock by (open_by_handle_at(2)).
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    // Its requests pass this filter by (io_uring(7)).
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Large parts of the kernel that no script needs and that had many holes: Docker refuses these
    // as well (docs.docker.com, seccomp profile).
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_acct,
    libc::SYS_personality,
    libc::SYS_syslog,
    libc::SYS_memfd_secret,
    libc::SYS_fanotify_init,
    // Who has 128 of them leaves the user who made the namespaces none, and Landlock lets them tell
    // of any directory (inotify(7), landlock(7)).
    #[cfg(target_arch = "x86_64")]
    libc::SYS_inotify_init,
    libc::SYS_inotify_init1,
    // Rules are memory of the kernel's that nobody bounds.
    libc::SYS_landlock_create_ruleset,
    libc::SYS_landlock_add_rule,
    libc::SYS_landlock_restrict_self,
    libc::SYS_lookup_dcookie,
    libc::SYS_vhangup,
    libc::SYS_clock_settime,
    libc::SYS_settimeofday,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
];

/// Memory that belongs to no process, so that no look would see it; and where the script shares the
/// host's IPC it outlives the script, and others read it (`memfd_create(2)`, `sysvipc(7)`,
/// `mq_overview(7)`).
const UNSEEN: &[libc::c_long] = &[
    libc::SYS_memfd_create,
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
];

/// Refused besides where the host's files are named: Landlock keeps them from being opened, but not
/// from having their rights, owners, times and attributes changed, by path or once they are open
/// to read; before Linux 6.2 they could also be emptied (landlock(7)).
const OF_FILES: &[libc::c_long] = &[
    libc::SYS_fchmod,
    libc::SYS_fchown,
    libc::SYS_fsetxattr,
    libc::SYS_fremovexattr,
    libc::SYS_truncate,
    // Its flags are behind a pointer; see `emptied`.
    libc::SYS_openat2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    libc::SYS_fchmodat,
    FCHMODAT2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    libc::SYS_fchownat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utime,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utimes,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_futimesat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
];

/// Only for the calling process, that is with this argument 0: else the limits and priorities of
/// the shim or the bot could be set by a script of the same user (prlimit(2)).
const OF_ONESELF: &[(libc::c_long, u8)] = &[
    (libc::SYS_prlimit64, 0),
    (libc::SYS_sched_setaffinity, 0),
    (libc::SYS_sched_setattr, 0),
    (libc::SYS_sched_setparam, 0),
    (libc::SYS_sched_setscheduler, 0),
    // Of a process, and of this one; not of a whole user's (setpriority(2), ioprio_set(2)).
    (libc::SYS_setpriority, 0),
    (libc::SYS_setpriority, 1),
    (libc::SYS_ioprio_set, 1),
];

/// Refused with these values of an argument. Values are compared in 32 bits, as the kernel does.
const WITH: &[(libc::c_long, u8, u32)] = &[
    // It dies with whoever supervises it (prctl(2)).
    (libc::SYS_prctl, 0, libc::PR_SET_PDEATHSIG.cast_unsigned()),
    // Input for somebody's terminal (ioctl_tty(2)); TIOCLINUX is the same for a console.
    (libc::SYS_ioctl, 1, TIOCSTI),
    (libc::SYS_ioctl, 1, TIOCLINUX),
    // Signals for others by way of a descriptor (fcntl(2), F_SETOWN; ioctl FIOSETOWN, SIOCSPGRP).
    (libc::SYS_fcntl, 1, libc::F_SETOWN.cast_unsigned()),
    (libc::SYS_fcntl, 1, F_SETOWN_EX),
    // As inotify above.
    (libc::SYS_fcntl, 1, F_NOTIFY),
    (libc::SYS_ioctl, 1, FIOSETOWN),
    (libc::SYS_ioctl, 1, SIOCSPGRP),
];
/// Numbered alike on every machine; not every version of the library has it.
const FCHMODAT2: libc::c_long = 452;
const F_SETOWN_EX: u32 = 15;
const F_NOTIFY: u32 = 1_026;
/// What an owner may change of a file that is open to read: `FS_IOC_SETFLAGS`, `FS_IOC_FSSETXATTR`,
/// `FS_IOC_SETVERSION`, `FS_IOC_ENABLE_VERITY` (`ioctl_iflags(2)`, linux/fs.h, linux/fsverity.h).
const ATTRIBUTES: [u32; 4] = [0x4008_6602, 0x401c_5820, 0x4008_7602, 0x4080_6685];
const TIOCSTI: u32 = 0x5412;
const TIOCLINUX: u32 = 0x541c;
const FIOSETOWN: u32 = 0x8901;
const SIOCSPGRP: u32 = 0x8902;

/// Bits of `clone` that make namespaces. Its other bits are threads' and forks' (clone(2)).
const CLONE_NEW: [i32; 7] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];
/// Options of TCP that connect early or put another protocol on top, which is a module of the
/// kernel's: `TCP_FASTOPEN`, `TCP_FASTOPEN_CONNECT`, `TCP_ULP` (tcp(7), linux/tcp.h).
const TCP_OPTIONS_REFUSED: [u32; 3] = [23, 30, 31];
/// The bits of a socket's type beside its flags (socket(2)).
const SOCKET_TYPE: [u32; 4] = [1, 2, 4, 8];
/// `futex_requeue`, the last call that this list was made with. Numbers have been the same on every
/// machine since 424.
const NEWEST_KNOWN: u32 = 456;
/// What is said not to be there. Its flags are behind a pointer, so it could not be judged; without
/// it programs use `clone` (clone(2)).
const ABSENT: &[libc::c_long] = &[libc::SYS_clone3];

/// The program that judges calls.
#[derive(Debug, Clone)]
pub(super) struct Filter(BpfProgram);

impl Filter {
    /// For a script in this tier, `networked` where it may connect to a port of the host's. With
    /// `alone` it can signal nobody but itself: where Landlock cannot keep signals inside, and
    /// `alone` is its process.
    pub(super) fn new(tier: Tier, networked: bool, alone: Option<i32>) -> io::Result<Self> {
        Ok(Self(program(rules(tier, networked, alone), ABSENT, NEWEST_KNOWN)?))
    }

    /// From here on, for this process and all that it starts. Nothing takes it back.
    pub(super) fn apply(&self) -> io::Result<()> {
        seccompiler::apply_filter(&self.0).map_err(io::Error::other)
    }
}

fn rules(tier: Tier, networked: bool, alone: Option<i32>) -> Rules {
    let mut refused = refused(tier, networked);
    if let Some(pid) = alone {
        only_to_oneself(&mut refused, pid);
    }
    refused
}

fn refused(tier: Tier, networked: bool) -> Rules {
    let mut rules: Rules = NEVER.iter().chain(UNSEEN).map(|call| (*call, vec![])).collect();
    for (call, argument, value) in WITH {
        add(&mut rules, *call, vec![when(*argument, How::Is, *value)]);
    }
    for (call, argument) in OF_ONESELF {
        add(&mut rules, *call, vec![when(*argument, How::IsNot, 0)]);
    }
    for flag in CLONE_NEW.map(i32::cast_unsigned) {
        add(&mut rules, libc::SYS_clone, vec![when(0, How::Masked(flag), flag)]);
    }
    match tier {
        // Streams in a network of its own. A pair of sockets of this host's family has no address,
        // and Python's event loop wants one.
        Tier::Namespaces => streams_only(&mut rules),
        Tier::Landlock => {
            if networked {
                streams_only(&mut rules);
                one_port_only(&mut rules);
            } else {
                // There is the host's network, so there is no socket at all.
                rules.insert(libc::SYS_socket, vec![]);
            }
            rules.extend(OF_FILES.iter().map(|call| (*call, vec![])));
            for request in ATTRIBUTES {
                add(&mut rules, libc::SYS_ioctl, vec![when(1, How::Is, request)]);
            }
            emptied(&mut rules);
        }
    }
    pairs(&mut rules);
    // Whoever unmaps all but a page of it keeps the rest, where no look sees it. A file in the
    // script's own directory does as well, and is bounded.
    let shared = (libc::MAP_SHARED | libc::MAP_ANONYMOUS).cast_unsigned();
    add(&mut rules, libc::SYS_mmap, vec![when(3, How::Masked(shared), shared)]);
    rules
}

/// Sockets for TCP and no others.
fn streams_only(rules: &mut Rules) {
    // Another name for a stream loads a module of the kernel's.
    let families = [libc::AF_INET, libc::AF_INET6];
    let names = [0, libc::IPPROTO_TCP];
    for (argument, allowed) in [(0, families), (2, names)] {
        let none_of = allowed.map(|value| when(argument, How::IsNot, value.cast_unsigned()));
        add(rules, libc::SYS_socket, none_of.to_vec());
    }
    only_of_kind(rules, libc::SYS_socket, libc::SOCK_STREAM, 0);
}

/// Sockets of this kind, and of the one that differs from it in the bits `either`.
fn only_of_kind(rules: &mut Rules, call: libc::c_long, kind: i32, either: i32) {
    let [wrong, either] = [!kind, either].map(i32::cast_unsigned);
    // One bit that is another makes another kind.
    for bit in SOCKET_TYPE.into_iter().filter(|bit| bit & either == 0) {
        add(rules, call, vec![when(1, How::Masked(bit), wrong & bit)]);
    }
}

/// In the host's network Landlock says which port may be connected to. What goes past it is refused
/// here: to listen without a port that was bound, which takes any (landlock(7)), and data that is
/// sent before there is a connection, which makes one unasked (tcp(7), `TCP_FASTOPEN`).
fn one_port_only(rules: &mut Rules) {
    for call in [libc::SYS_bind, libc::SYS_listen, libc::SYS_accept, libc::SYS_accept4] {
        rules.insert(call, vec![]);
    }
    let early = libc::MSG_FASTOPEN.cast_unsigned();
    for (call, flags) in [(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2), (libc::SYS_sendmmsg, 3)] {
        add(rules, call, vec![when(flags, How::Masked(early), early)]);
    }
    let level = when(1, How::Is, libc::IPPROTO_TCP.cast_unsigned());
    for option in TCP_OPTIONS_REFUSED {
        add(rules, libc::SYS_setsockopt, vec![level, when(2, How::Is, option)]);
    }
}

/// Streams and packets only: a datagram of a pair can be sent to any socket of the host that has a
/// path (unix(7)).
fn pairs(rules: &mut Rules) {
    let local = when(0, How::IsNot, libc::AF_UNIX.cast_unsigned());
    add(rules, libc::SYS_socketpair, vec![local]);
    let either = libc::SOCK_STREAM ^ libc::SOCK_SEQPACKET;
    only_of_kind(rules, libc::SYS_socketpair, libc::SOCK_STREAM, either);
}

/// A file that is opened to read only, and emptied by that.
fn emptied(rules: &mut Rules) {
    let how = How::Masked((libc::O_ACCMODE | libc::O_TRUNC).cast_unsigned());
    let emptied = libc::O_TRUNC.cast_unsigned();
    #[cfg(target_arch = "x86_64")]
    add(rules, libc::SYS_open, vec![when(1, how, emptied)]);
    add(rules, libc::SYS_openat, vec![when(2, how, emptied)]);
}

fn only_to_oneself(rules: &mut Rules, pid: i32) {
    for call in [libc::SYS_kill, libc::SYS_tgkill, libc::SYS_rt_sigqueueinfo] {
        add(rules, call, vec![when(0, How::IsNot, pid.cast_unsigned())]);
    }
    for call in [libc::SYS_tkill, libc::SYS_rt_tgsigqueueinfo, libc::SYS_pidfd_send_signal] {
        rules.insert(call, vec![]);
    }
}

fn when(argument: u8, how: How, value: u32) -> Condition {
    Condition { argument, how, value }
}

/// One more reason to refuse a call.
fn add(rules: &mut Rules, call: libc::c_long, reason: Reason) {
    rules.entry(call).or_default().push(reason);
}
