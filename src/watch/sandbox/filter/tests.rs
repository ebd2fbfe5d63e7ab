//! The program against a plain one of the same rules, which somebody else's compiler makes: all of
//! them in one chain, and before it a second program for what is not there. Both are run here, as
//! the kernel runs them.

use seccompiler::{
    SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    sock_filter,
};

use super::*;

/// `AUDIT_ARCH_…` of linux/audit.h.
const HERE: u32 = if cfg!(target_arch = "x86_64") { 0xc000_003e } else { 0xc000_00b7 };
const ELSEWHERE: [u32; 3] = [0x4000_0003, 0x4000_0028, 0];
/// Every number that there is, some more, and those of the other ABI.
const NUMBERS: [std::ops::RangeInclusive<u32>; 3] =
    [0..=600, 0x3fff_fffe..=0x4000_0258, u32::MAX - 1..=u32::MAX];
const X32: u32 = 0x4000_0000;
/// Whom a script that is alone can signal.
const PID: i32 = 4_711;

/// A call as a program sees it, `struct seccomp_data`.
#[derive(Debug, Clone, Copy)]
struct Call {
    number: u32,
    machine: u32,
    arguments: [u64; 6],
}

impl Call {
    fn word(&self, offset: u32) -> u32 {
        let argument = |at: u32| self.arguments[usize::try_from((at - 16) / 8).unwrap()];
        let half = |value: u64| u32::try_from(value & 0xffff_ffff).unwrap();
        match offset {
            0 => self.number,
            4 => self.machine,
            at if at % 8 == 0 => half(argument(at)),
            at => half(argument(at - 4) >> 32),
        }
    }
}

/// The verdict, and how many steps it took. A program may hold nothing but what the kernel follows
/// when it finds out beforehand which calls are always allowed (kernel/seccomp.c).
fn run(program: &[sock_filter], call: &Call) -> (u32, usize) {
    let (mut at, mut value) = (0, 0);
    for steps in 1..=program.len() {
        let step: &sock_filter = &program[at];
        let by = |yes: bool| usize::from(if yes { step.jt } else { step.jf });
        at += 1;
        match u32::from(step.code) {
            0x20 => value = call.word(step.k),
            0x54 => value &= step.k,
            0x05 => at += usize::try_from(step.k).unwrap(),
            0x15 => at += by(value == step.k),
            0x25 => at += by(value > step.k),
            0x35 => at += by(value >= step.k),
            0x06 => return (step.k, steps),
            code => panic!("{code:#x}"),
        }
    }
    panic!("no end for {call:?}");
}

/// Of the verdicts of two programs the kernel takes the stronger (seccomp(2)).
struct Plain([BpfProgram; 2]);

impl Plain {
    fn new(refused: Rules) -> Self {
        let chain = |rules: Rules, errno: i32| -> BpfProgram {
            let rules = rules.into_iter().map(|(call, reasons)| (call, plain(reasons))).collect();
            let machine = std::env::consts::ARCH.try_into().unwrap();
            let refuse = SeccompAction::Errno(errno.cast_unsigned());
            SeccompFilter::new(rules, SeccompAction::Allow, refuse, machine)
                .unwrap()
                .try_into()
                .unwrap()
        };
        let is = |code, k, jf| sock_filter { code, jt: 0, jf, k };
        let mut newest = vec![
            is(0x20, 0, 0),
            is(0x35, X32, 1),
            is(0x06, libc::SECCOMP_RET_KILL_PROCESS, 0),
            is(0x25, NEWEST_KNOWN, 1),
            is(0x06, errno(libc::ENOSYS), 0),
        ];
        newest.extend(chain(Rules::from([(libc::SYS_clone3, vec![])]), libc::ENOSYS));
        Self([newest, chain(refused, libc::EPERM)])
    }

    fn run(&self, call: &Call) -> (u32, usize) {
        let [(one, some), (other, more)] = self.0.each_ref().map(|program| run(program, call));
        // As a signed number the stronger is the lower.
        let verdict = if one.cast_signed() < other.cast_signed() { one } else { other };
        (verdict, some + more)
    }
}

fn plain(reasons: Vec<Reason>) -> Vec<SeccompRule> {
    let condition = |Condition { argument, how, value }| {
        let how = match how {
            How::Is => SeccompCmpOp::Eq,
            How::IsNot => SeccompCmpOp::Ne,
            How::Masked(mask) => SeccompCmpOp::MaskedEq(mask.into()),
        };
        let of = SeccompCmpArgLen::Dword;
        SeccompCondition::new(argument, of, how, value.into()).unwrap()
    };
    let rule =
        |reason: Reason| SeccompRule::new(reason.into_iter().map(condition).collect()).unwrap();
    reasons.into_iter().map(rule).collect()
}

fn errno(number: i32) -> u32 {
    libc::SECCOMP_RET_ERRNO | number.cast_unsigned()
}

/// Each kind of filter that there is: its rules, plain and as they are used.
fn kinds() -> Vec<(String, Plain, Filter)> {
    let mut kinds = vec![];
    for tier in [Tier::Namespaces, Tier::Landlock] {
        for networked in [false, true] {
            for alone in [None, Some(PID)] {
                let plain = Plain::new(rules(tier, networked, alone));
                let filter = Filter::new(tier, networked, alone).unwrap();
                kinds.push((format!("{tier:?} {networked} {alone:?}"), plain, filter));
            }
        }
    }
    kinds
}

/// Values that some rule knows, those beside them, and some with more than 32 bits.
fn values() -> Vec<u64> {
    let named = WITH.iter().map(|(_, _, value)| *value).chain(ATTRIBUTES).map(u64::from);
    let flags = CLONE_NEW.iter().map(|flag| u64::from(flag.cast_unsigned()));
    let kinds = [0, 1, 2, 3, 4, 5, 6, 10, 15, 16, 17, 22, 23, 24, 30, 31, 32].into_iter();
    let opened = [libc::O_TRUNC, libc::O_TRUNC | libc::O_RDWR, libc::O_TRUNC | libc::O_WRONLY];
    let shared = [libc::MAP_SHARED | libc::MAP_ANONYMOUS, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS];
    let bits = [libc::SOCK_STREAM | libc::SOCK_CLOEXEC, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC];
    let others = [libc::MSG_FASTOPEN, libc::IPPROTO_TCP, 262, PID, PID + 1, -1];
    let others = opened.into_iter().chain(shared).chain(bits).chain(others);
    let mut all: Vec<u64> = named.chain(flags).chain(kinds).collect();
    all.extend(others.map(|value| u64::from(value.cast_unsigned())));
    let large: Vec<u64> = all.iter().map(|value| value | (7 << 32)).collect();
    all.extend(large);
    all
}

/// Calls that some rule judges by more than one argument are made with the others as allowed too.
fn bases() -> [[u64; 6]; 5] {
    let number = |value: i32| u64::from(value.cast_unsigned());
    let [inet, unix] = [libc::AF_INET, libc::AF_UNIX].map(number);
    let [stream, tcp] = [libc::SOCK_STREAM, libc::IPPROTO_TCP].map(number);
    [
        [0; 6],
        [inet, stream, tcp, 0, 0, 0],
        [unix, stream, 0, 0, 0, 0],
        [3, tcp, 23, 0, 0, 0],
        [number(PID), 1, 1, number(libc::MAP_SHARED), 0, 0],
    ]
}

fn is_judged_by_arguments(rules: &Rules, number: u32) -> bool {
    rules.get(&i64::from(number)).is_some_and(|reasons| !reasons.is_empty())
}

#[test]
fn every_number_gets_the_verdict_of_its_rules() {
    for (kind, plain, Filter(program)) in kinds() {
        for number in NUMBERS.into_iter().flatten() {
            for machine in ELSEWHERE.into_iter().chain([HERE]) {
                for arguments in [[0; 6], [u64::MAX; 6], [1, 2, 3, 4, 5, 6]] {
                    let call = Call { number, machine, arguments };
                    assert_eq!(run(&program, &call).0, plain.run(&call).0, "{kind}: {call:x?}");
                }
            }
        }
    }
}

#[test]
fn arguments_are_judged_as_their_rules_say() {
    let (values, mut refused, mut allowed) = (values(), 0, 0);
    for (tier, networked, alone) in [
        (Tier::Namespaces, false, None),
        (Tier::Landlock, false, None),
        (Tier::Landlock, true, Some(PID)),
    ] {
        let rules = rules(tier, networked, alone);
        let Filter(program) = Filter::new(tier, networked, alone).unwrap();
        for number in (0..600).filter(|number| is_judged_by_arguments(&rules, *number)) {
            // Its own rules alone: that others leave it alone is shown above.
            let own = rules.get(&i64::from(number)).unwrap().clone();
            let plain = Plain::new(Rules::from([(i64::from(number), own)]));
            for base in bases() {
                for (argument, value) in
                    (0..6).flat_map(|argument| values.iter().map(move |value| (argument, *value)))
                {
                    let mut arguments = base;
                    arguments[argument] = value;
                    let call = Call { number, machine: HERE, arguments };
                    let verdict = run(&program, &call).0;
                    assert_eq!(verdict, plain.run(&call).0, "{tier:?}: {call:x?}");
                    refused += usize::from(verdict == errno(libc::EPERM));
                    allowed += usize::from(verdict == libc::SECCOMP_RET_ALLOW);
                }
            }
        }
    }
    assert!(refused > 1_000 && allowed > 1_000, "{refused} refused, {allowed} allowed");
}

#[test]
fn what_is_not_this_machines_is_killed_and_what_is_not_known_is_not_there() {
    for (kind, _, Filter(program)) in kinds() {
        let verdict =
            |number, machine| run(&program, &Call { number, machine, arguments: [0; 6] }).0;
        let numbers = [0, u32::try_from(libc::SYS_clone3).unwrap(), NEWEST_KNOWN + 1, X32];
        for (number, machine) in numbers.into_iter().zip(ELSEWHERE.into_iter().cycle()) {
            assert_eq!(verdict(number, machine), libc::SECCOMP_RET_KILL_PROCESS, "{kind} {number}");
        }
        for number in [X32, X32 + 59, u32::MAX] {
            assert_eq!(verdict(number, HERE), libc::SECCOMP_RET_KILL_PROCESS, "{kind} {number}");
        }
        for number in [435, NEWEST_KNOWN + 1, 599, X32 - 1] {
            assert_eq!(verdict(number, HERE), errno(libc::ENOSYS), "{kind} {number}");
        }
        let ptrace = u32::try_from(libc::SYS_ptrace).unwrap();
        assert_eq!(verdict(ptrace, HERE), errno(libc::EPERM), "{kind}");
        let getpid = u32::try_from(libc::SYS_getpid).unwrap();
        assert_eq!(verdict(getpid, HERE), libc::SECCOMP_RET_ALLOW, "{kind}");
    }
}

#[test]
fn a_number_is_found_in_few_steps_and_the_program_is_short() {
    for (kind, plain, Filter(program)) in kinds() {
        // BPF_MAXINSNS of linux/bpf_common.h.
        assert!(program.len() < 4_096, "{kind}");
        let before = plain.0.iter().map(Vec::len).sum::<usize>();
        assert!(program.len() * 2 < before, "{kind}: {} of {before}", program.len());
        let rules = match kind.as_str() {
            kind if kind.starts_with("Namespaces") => rules(Tier::Namespaces, true, Some(PID)),
            _ => rules(Tier::Landlock, true, Some(PID)),
        };
        let (mut now, mut then) = (0, 0);
        for number in (0..=NEWEST_KNOWN).filter(|number| !is_judged_by_arguments(&rules, *number)) {
            let call = Call { number, machine: HERE, arguments: [0; 6] };
            let (steps, of_chain) = (run(&program, &call).1, plain.run(&call).1);
            // Looking at the machine, loading, halving, answering.
            assert!(steps <= 16, "{kind}: {steps} for {number}");
            (now, then) = (now + steps, then + of_chain);
        }
        assert!(now * 10 < then, "{kind}: {now} steps where the chain takes {then}");
    }
}

#[test]
fn sockets_are_of_the_kinds_that_are_named_and_of_no_other() {
    let flags = [0, libc::SOCK_CLOEXEC, libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK];
    for (kind, _, Filter(program)) in kinds() {
        let made = |call, family: i32, of: i32| {
            let arguments = [family, of, 0, 0, 0, 0].map(|value| u64::from(value.cast_unsigned()));
            let number = u32::try_from(call).unwrap();
            run(&program, &Call { number, machine: HERE, arguments }).0 == libc::SECCOMP_RET_ALLOW
        };
        let none = kind.starts_with("Landlock false");
        for (of, flags) in (0..16).flat_map(|of| flags.map(|flags| (of, flags))) {
            let stream = of == libc::SOCK_STREAM;
            let socket = made(libc::SYS_socket, libc::AF_INET, of | flags);
            assert_eq!(socket, stream && !none, "{kind}: {of}");
            let pair = made(libc::SYS_socketpair, libc::AF_UNIX, of | flags);
            assert_eq!(pair, stream || of == libc::SOCK_SEQPACKET, "{kind}: {of}");
        }
    }
}

#[test]
fn no_call_is_named_twice() {
    let mut all: Vec<_> = NEVER.iter().chain(UNSEEN).chain(OF_FILES).chain(ABSENT).collect();
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), count);
    // A rule without conditions would be lost behind one with some.
    assert!(WITH.iter().all(|(call, ..)| !all.contains(&call)));
    assert!(OF_ONESELF.iter().all(|(call, _)| !all.contains(&call)));
}
