//! From verdicts on system calls to one program for the kernel. Owns how a call's verdict is found:
//! by halving, and in few steps in all, since the kernel translates each step and runs the program
//! for every number when it takes it on. Must not know which calls are refused, nor why.

use std::collections::BTreeMap;
use std::io;

use nix::libc;
use seccompiler::{BpfProgram, SeccompAction, sock_filter};

/// For each call the reasons to refuse it, one of which suffices; without any it always is.
pub(super) type Rules = BTreeMap<i64, Vec<Reason>>;
/// What has to hold altogether.
pub(super) type Reason = Vec<Condition>;

/// What holds of an argument, of which only the lower half is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Condition {
    pub(super) argument: u8,
    pub(super) how: How,
    pub(super) value: u32,
}

/// How an argument stands to a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    Is,
    IsNot,
    /// In these bits it is that.
    Masked(u32),
}

/// Calls of the other x86-64 ABI have this bit (syscall(2)): rules for the usual numbers would not
/// see them.
const X32: u32 = 0x4000_0000;
/// How far a jump with a condition goes at most is 255 steps; a few are kept for what is put in
/// between.
const NEAR: usize = 250;
/// Where things stand in `struct seccomp_data` (seccomp(2)).
const NUMBER: u32 = 0;
const MACHINE: u32 = 4;
const ARGUMENTS: u32 = 16;
const ARGUMENT_BYTES: u32 = 8;

const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const MASK: u32 = libc::BPF_ALU | libc::BPF_AND | libc::BPF_K;
const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const AT_LEAST: u32 = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
const ALWAYS: u32 = libc::BPF_JMP | libc::BPF_JA;
const ANSWER: u32 = libc::BPF_RET | libc::BPF_K;

/// What becomes of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    Allowed,
    Killed,
    Refused(i32),
    /// Not permitted for these reasons.
    Judged(Vec<Reason>),
}

/// What the kernel is given. Whoever calls as another machine does is killed; what is `absent`, or
/// newer than `newest`, is not there; what is `refused` is not permitted; all the rest is allowed.
pub(super) fn program(refused: Rules, absent: &[i64], newest: u32) -> io::Result<BpfProgram> {
    let machine = match std::env::consts::ARCH {
        // `AUDIT_ARCH_…` of linux/audit.h.
        "x86_64" => 0xc000_003e,
        "aarch64" => 0xc000_00b7,
        other => return Err(io::Error::other(format!("there is no filter for {other}"))),
    };
    let mut steps = Backwards::default();
    let found = steps.find(&stretches(refused, absent, newest)?)?;
    let number = steps.add(LOAD, NUMBER, found)?;
    let killed = steps.answer(SeccompAction::KillProcess);
    let here = steps.choose(EQUAL, machine, (number, killed))?;
    steps.add(LOAD, MACHINE, here)?;
    Ok(steps.all.into_iter().rev().collect())
}

/// Each with the first number that it is for. It is for all up to the next one.
fn stretches(refused: Rules, absent: &[i64], newest: u32) -> io::Result<Vec<(u32, Verdict)>> {
    let number = |call: i64| u32::try_from(call).map_err(io::Error::other);
    let mut named = BTreeMap::new();
    for call in absent {
        named.insert(number(*call)?, Verdict::Refused(libc::ENOSYS));
    }
    for (call, reasons) in refused {
        let always = reasons.is_empty();
        let verdict = if always { Verdict::Refused(libc::EPERM) } else { Verdict::Judged(reasons) };
        named.insert(number(call)?, verdict);
    }
    let mut from = BTreeMap::from([
        (0, Verdict::Allowed),
        (newest + 1, Verdict::Refused(libc::ENOSYS)),
        (X32, Verdict::Killed),
    ]);
    for (call, verdict) in named {
        let next = call + 1;
        if let Some(usual) = from.range(..=next).next_back().map(|(_, usual)| usual.clone()) {
            from.entry(next).or_insert(usual);
        }
        from.insert(call, verdict);
    }
    let mut stretches: Vec<_> = from.into_iter().collect();
    stretches.dedup_by(|one, before| one.1 == before.1);
    Ok(stretches)
}

/// A program from its last step to its first, since jumps lead on only. A place in it is counted
/// from its end, so it stays the same whatever is put before it.
#[derive(Default)]
struct Backwards {
    all: BpfProgram,
    /// Where each answer was given last.
    answers: BTreeMap<u32, usize>,
}

impl Backwards {
    /// Finds the stretch in which the number lies that is loaded.
    fn find(&mut self, stretches: &[(u32, Verdict)]) -> io::Result<usize> {
        let (low, high) = stretches.split_at(stretches.len() / 2);
        match high.first() {
            Some((middle, _)) if !low.is_empty() => {
                let above = self.find(high)?;
                let below = self.find(low)?;
                self.choose(AT_LEAST, *middle, (above, below))
            }
            Some((_, Verdict::Judged(reasons))) => self.judge(reasons),
            Some((_, Verdict::Allowed)) => Ok(self.answer(SeccompAction::Allow)),
            Some((_, Verdict::Refused(errno))) => {
                Ok(self.answer(SeccompAction::Errno(errno.cast_unsigned())))
            }
            Some((_, Verdict::Killed)) | None => Ok(self.answer(SeccompAction::KillProcess)),
        }
    }

    /// Refuses for the first reason that holds, and else allows.
    fn judge(&mut self, reasons: &[Reason]) -> io::Result<usize> {
        let mut otherwise = self.answer(SeccompAction::Allow);
        for reason in reasons.iter().rev() {
            let refused = SeccompAction::Errno(libc::EPERM.cast_unsigned());
            let mut place = self.answer(refused);
            for Condition { argument, how, value } in reason.iter().rev().copied() {
                place = match how {
                    How::Is => self.choose(EQUAL, value, (place, otherwise))?,
                    How::IsNot => self.choose(EQUAL, value, (otherwise, place))?,
                    How::Masked(mask) => {
                        let equal = self.choose(EQUAL, value & mask, (place, otherwise))?;
                        self.add(MASK, mask, equal)?
                    }
                };
                let at = ARGUMENTS + u32::from(argument) * ARGUMENT_BYTES;
                place = self.add(LOAD, at, place)?;
            }
            otherwise = place;
        }
        Ok(otherwise)
    }

    /// Ends with this.
    fn answer(&mut self, action: SeccompAction) -> usize {
        let action = u32::from(action);
        match self.answers.get(&action) {
            Some(place) if self.all.len() - place <= NEAR => *place,
            Some(_) | None => {
                let place = self.put(ANSWER, action, (0, 0));
                self.answers.insert(action, place);
                place
            }
        }
    }

    /// Goes to the one place where it holds of what is loaded, and else to the other.
    fn choose(&mut self, code: u32, k: u32, (yes, no): (usize, usize)) -> io::Result<usize> {
        let (yes, no) = (self.near(yes)?, self.near(no)?);
        let [yes, no] = [yes, no].map(|place| u8::try_from(self.all.len() - 1 - place));
        let both = (yes.map_err(io::Error::other)?, no.map_err(io::Error::other)?);
        Ok(self.put(code, k, both))
    }

    /// Goes on at a place, which is just behind.
    fn add(&mut self, code: u32, k: u32, next: usize) -> io::Result<usize> {
        if next + 1 == self.all.len() {
            Ok(self.put(code, k, (0, 0)))
        } else {
            Err(io::Error::other("a step of the filter would lead somewhere else"))
        }
    }

    /// A place that can be jumped to and leads to this one.
    fn near(&mut self, place: usize) -> io::Result<usize> {
        let between = self.all.len() - 1 - place;
        if between <= NEAR {
            return Ok(place);
        }
        Ok(self.put(ALWAYS, u32::try_from(between).map_err(io::Error::other)?, (0, 0)))
    }

    fn put(&mut self, code: u32, k: u32, (jt, jf): (u8, u8)) -> usize {
        // Each code has 16 bits; this one would be none that the kernel knows.
        let code = u16::try_from(code).unwrap_or(u16::MAX);
        self.all.push(sock_filter { code, jt, jf, k });
        self.all.len() - 1
    }
}
