//! Which system calls a script may make. Owns the list and why each stands on it. Must not know
//! files: those are Landlock's and the root's.
//!
//! What is not named is allowed, since Python and its modules use most of what there is; what is
//! newer than this list is not there. A refusal is `EPERM`, which Python shows as a
//! `PermissionError`; what a program is known to do without is `ENOSYS`.

use std::collections::BTreeMap;
use std::io;

use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};

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
const WITH: &[(libc::c_long, u8, u64)] = &[
    // It dies with whoever supervises it (prctl(2)).
    (libc::SYS_prctl, 0, libc::PR_SET_PDEATHSIG as u64),
    // Input for somebody's terminal (ioctl_tty(2)); TIOCLINUX is the same for a console.
    (libc::SYS_ioctl, 1, libc::TIOCSTI),
    (libc::SYS_ioctl, 1, libc::TIOCLINUX),
    // Signals for others by way of a descriptor (fcntl(2), F_SETOWN; ioctl FIOSETOWN, SIOCSPGRP).
    (libc::SYS_fcntl, 1, libc::F_SETOWN as u64),
    (libc::SYS_fcntl, 1, F_SETOWN_EX),
    (libc::SYS_ioctl, 1, FIOSETOWN),
    (libc::SYS_ioctl, 1, SIOCSPGRP),
];
/// Numbered alike on every machine; not every version of the library has it.
const FCHMODAT2: libc::c_long = 452;
const F_SETOWN_EX: u64 = 15;
const FIOSETOWN: u64 = 0x8901;
const SIOCSPGRP: u64 = 0x8902;

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
const TCP_OPTIONS_REFUSED: [u64; 3] = [23, 30, 31];
/// The bits of a socket's type beside its flags (socket(2)).
const SOCKET_TYPE: u64 = 0xf;
/// `futex_requeue`, the last call that this list was made with. Numbers have been the same on every
/// machine since 424.
const NEWEST_KNOWN: u32 = 456;
/// Calls of the other x86-64 ABI have this bit (syscall(2)): rules for the usual numbers would not
/// see them.
const X32: u32 = 0x4000_0000;

/// Filters, in the order in which they are applied.
#[derive(Debug, Clone)]
pub(super) struct Filter(Vec<BpfProgram>);

impl Filter {
    /// For a script in this tier, `networked` where it may connect to a port of the host's. With
    /// `alone` it can signal nobody but itself: where Landlock cannot keep signals inside, and
    /// `alone` is its process.
    pub(super) fn new(tier: Tier, networked: bool, alone: Option<i32>) -> io::Result<Self> {
        let absent = BTreeMap::from([
            // Its flags are behind a pointer, so it could not be judged; without it programs use
            // `clone` (clone(2)).
            (libc::SYS_clone3, vec![]),
        ]);
        let mut refused = refused(tier, networked)?;
        if let Some(pid) = alone {
            only_to_oneself(&mut refused, pid)?;
        }
        let mut newest = prelude();
        newest.extend(compile(absent, libc::ENOSYS)?);
        Ok(Self(vec![newest, compile(refused, libc::EPERM)?]))
    }

    /// From here on, for this process and all that it starts. Nothing takes it back.
    pub(super) fn apply(&self) -> io::Result<()> {
        for program in &self.0 {
            seccompiler::apply_filter(program).map_err(io::Error::other)?;
        }
        Ok(())
    }
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn refused(tier: Tier, networked: bool) -> io::Result<Rules> {
    let mut rules: Rules = NEVER.iter().chain(UNSEEN).map(|call| (*call, vec![])).collect();
    for (call, argument, value) in WITH {
        add(&mut rules, *call, *argument, SeccompCmpOp::Eq, *value)?;
    }
    for (call, argument) in OF_ONESELF {
        add(&mut rules, *call, *argument, SeccompCmpOp::Ne, 0)?;
    }
    for flag in CLONE_NEW {
        let flag = u64::from(flag.cast_unsigned());
        add(&mut rules, libc::SYS_clone, 0, SeccompCmpOp::MaskedEq(flag), flag)?;
    }
    match tier {
        // Streams in a network of its own. A pair of sockets of this host's family has no address,
        // and Python's event loop wants one.
        Tier::Namespaces => streams_only(&mut rules)?,
        Tier::Landlock => {
            if networked {
                streams_only(&mut rules)?;
                one_port_only(&mut rules)?;
            } else {
                // There is the host's network, so there is no socket at all.
                rules.insert(libc::SYS_socket, vec![]);
            }
            rules.extend(OF_FILES.iter().map(|call| (*call, vec![])));
            emptied(&mut rules)?;
        }
    }
    pairs(&mut rules)?;
    // Whoever unmaps all but a page of it keeps the rest, where no look sees it. A file in the
    // script's own directory does as well, and is bounded.
    let shared = u64::from((libc::MAP_SHARED | libc::MAP_ANONYMOUS).cast_unsigned());
    add(&mut rules, libc::SYS_mmap, 3, SeccompCmpOp::MaskedEq(shared), shared)?;
    Ok(rules)
}

/// Sockets for TCP and no others.
fn streams_only(rules: &mut Rules) -> io::Result<()> {
    // Another name for a stream loads a module of the kernel's.
    let families = [libc::AF_INET, libc::AF_INET6].map(i32::cast_unsigned);
    let names = [0, libc::IPPROTO_TCP].map(i32::cast_unsigned);
    for (argument, allowed) in [(0, families), (2, names)] {
        let none_of = allowed.map(|value| when(argument, SeccompCmpOp::Ne, value.into()));
        let none_of = none_of.into_iter().collect::<io::Result<Vec<_>>>()?;
        let others = SeccompRule::new(none_of).map_err(io::Error::other)?;
        rules.entry(libc::SYS_socket).or_default().push(others);
    }
    let stream = u64::from(libc::SOCK_STREAM.cast_unsigned());
    for kind in (0..=SOCKET_TYPE).filter(|kind| *kind != stream) {
        add(rules, libc::SYS_socket, 1, SeccompCmpOp::MaskedEq(SOCKET_TYPE), kind)?;
    }
    Ok(())
}

/// In the host's network Landlock says which port may be connected to. What goes past it is refused
/// here: to listen without a port that was bound, which takes any (landlock(7)), and data that is
/// sent before there is a connection, which makes one unasked (tcp(7), `TCP_FASTOPEN`).
fn one_port_only(rules: &mut Rules) -> io::Result<()> {
    for call in [libc::SYS_bind, libc::SYS_listen, libc::SYS_accept, libc::SYS_accept4] {
        rules.insert(call, vec![]);
    }
    let early = u64::from(libc::MSG_FASTOPEN.cast_unsigned());
    for (call, flags) in [(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2), (libc::SYS_sendmmsg, 3)] {
        add(rules, call, flags, SeccompCmpOp::MaskedEq(early), early)?;
    }
    for option in TCP_OPTIONS_REFUSED {
        let level = when(1, SeccompCmpOp::Eq, u64::from(libc::IPPROTO_TCP.cast_unsigned()))?;
        let conditions = vec![level, when(2, SeccompCmpOp::Eq, option)?];
        let rule = SeccompRule::new(conditions).map_err(io::Error::other)?;
        rules.entry(libc::SYS_setsockopt).or_default().push(rule);
    }
    Ok(())
}

/// Streams and packets only: a datagram of a pair can be sent to any socket of the host that has a
/// path (unix(7)).
fn pairs(rules: &mut Rules) -> io::Result<()> {
    let local = u64::from(libc::AF_UNIX.cast_unsigned());
    add(rules, libc::SYS_socketpair, 0, SeccompCmpOp::Ne, local)?;
    let allowed =
        [libc::SOCK_STREAM, libc::SOCK_SEQPACKET].map(|kind| u64::from(kind.cast_unsigned()));
    for kind in (0..=SOCKET_TYPE).filter(|kind| !allowed.contains(kind)) {
        add(rules, libc::SYS_socketpair, 1, SeccompCmpOp::MaskedEq(SOCKET_TYPE), kind)?;
    }
    Ok(())
}

/// A file that is opened to read only, and emptied by that.
fn emptied(rules: &mut Rules) -> io::Result<()> {
    let emptied = u64::from(libc::O_TRUNC.cast_unsigned());
    let how = SeccompCmpOp::MaskedEq(u64::from((libc::O_ACCMODE | libc::O_TRUNC).cast_unsigned()));
    #[cfg(target_arch = "x86_64")]
    add(rules, libc::SYS_open, 1, how.clone(), emptied)?;
    add(rules, libc::SYS_openat, 2, how, emptied)
}

fn only_to_oneself(rules: &mut Rules, pid: i32) -> io::Result<()> {
    let pid = u64::from(pid.cast_unsigned());
    for call in [libc::SYS_kill, libc::SYS_tgkill, libc::SYS_rt_sigqueueinfo] {
        add(rules, call, 0, SeccompCmpOp::Ne, pid)?;
    }
    for call in [libc::SYS_tkill, libc::SYS_rt_tgsigqueueinfo, libc::SYS_pidfd_send_signal] {
        rules.insert(call, vec![]);
    }
    Ok(())
}

fn when(argument: u8, how: SeccompCmpOp, value: u64) -> io::Result<SeccompCondition> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, how, value).map_err(io::Error::other)
}

/// One more reason to refuse a call.
fn add(
    rules: &mut Rules,
    call: libc::c_long,
    argument: u8,
    how: SeccompCmpOp,
    value: u64,
) -> io::Result<()> {
    let rule = SeccompRule::new(vec![when(argument, how, value)?]).map_err(io::Error::other)?;
    rules.entry(call).or_default().push(rule);
    Ok(())
}

fn compile(rules: Rules, errno: i32) -> io::Result<BpfProgram> {
    let machine = TargetArch::try_from(std::env::consts::ARCH).map_err(io::Error::other)?;
    let refuse = SeccompAction::Errno(errno.cast_unsigned());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, machine);
    filter.map_err(io::Error::other)?.try_into().map_err(io::Error::other)
}

/// What a call's number alone decides. Jumps are relative, so it can stand before a program.
fn prelude() -> BpfProgram {
    let is = |code: u32, k: u32, no: u8| sock_filter {
        code: u16::try_from(code).unwrap_or_default(),
        jt: 0,
        jf: no,
        k,
    };
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let answer = libc::BPF_RET | libc::BPF_K;
    let jump = libc::BPF_JMP | libc::BPF_K;
    vec![
        // The number stands first in `struct seccomp_data` (seccomp(2)).
        is(load, 0, 0),
        is(jump | libc::BPF_JGE, X32, 1),
        is(answer, libc::SECCOMP_RET_KILL_PROCESS, 0),
        is(jump | libc::BPF_JGT, NEWEST_KNOWN, 1),
        is(answer, libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned(), 0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_filter_fits_into_the_kernel() {
        for tier in [Tier::Namespaces, Tier::Landlock] {
            for (networked, alone) in [(false, None), (true, None), (true, Some(7))] {
                let filter = Filter::new(tier, networked, alone).unwrap();
                // BPF_MAXINSNS of linux/bpf_common.h.
                assert!(filter.0.iter().all(|program| program.len() < 4_096), "{tier:?}");
            }
        }
    }

    #[test]
    fn no_call_is_named_twice() {
        let mut all: Vec<_> = NEVER.iter().chain(UNSEEN).chain(OF_FILES).collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        // A rule without conditions would be lost behind one with some.
        assert!(WITH.iter().all(|(call, ..)| !all.contains(&call)));
        assert!(OF_ONESELF.iter().all(|(call, _)| !all.contains(&call)));
    }
}
