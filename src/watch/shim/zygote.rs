//! The process that shims are copies of, `dogwatch zygote PLACE`. Waits for the bot to name a
//! directory, copies itself, answers the copy's number. Synchronous, one thread. Must not know what
//! a shim does, nor what becomes of it.

use std::ffi::OsStr;
use std::fs::{File, read_to_string};
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use nix::unistd::{Pid, dup2_stderr, dup2_stdin, dup2_stdout, setsid};
use rustix::net::sockopt::socket_type;
use rustix::net::{SendFlags, SocketType, send};

use super::ShimError;
use crate::core::limits::PATH_BYTES_MAX;
use crate::failpoint;
use crate::watch::passing;
use crate::watch::sandbox::clone;
use crate::watch::zygote::GIVEN;

/// Where the kernel keeps what it shows of this process's arguments; counted behind the process's
/// name (`proc_pid_stat(5)`, fields 48 and 49).
const ARGUMENTS_BEGIN: usize = 45;
const ARGUMENTS_END: usize = 46;

/// Copies itself until the bot is gone. Answers the exit code of the process: 0 then, 1 when
/// something broke, 64 when it was not the bot that started this.
pub fn run() -> u8 {
    let Ok(line) = take_line() else {
        let _unheard = writeln!(io::stderr(), "{}", ShimError::NotForYou);
        return 64;
    };
    // Also what a copy does first, and where it cannot there must be none: old kernels and some
    // containers do not have the call.
    if clone::close_all_but(&[line.as_raw_fd()]).is_err() {
        return 1;
    }
    let _leads_one_already = setsid();
    let title = Title::find().ok();
    let mut name = vec![0; PATH_BYTES_MAX];
    loop {
        let asked = passing::receive(&line, &mut name);
        let answer = match asked {
            Ok((0, _)) => return 0,
            Ok((length, given)) => {
                failpoint!("zygote.asked");
                let dir = Path::new(OsStr::from_bytes(name.get(..length).unwrap_or_default()));
                start(dir, given, title.as_ref())
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => return 1,
        };
        failpoint!("zygote.copied");
        let answer = answer.map_or_else(|error| error.to_string(), |pid| pid.to_string());
        if send(&line, answer.as_bytes(), SendFlags::NOSIGNAL).is_err() {
            return 0;
        }
    }
}

/// The bot's socket comes as stdin. What is copied has neither stdin nor stdout.
fn take_line() -> io::Result<OwnedFd> {
    let line = io::stdin().as_fd().try_clone_to_owned()?;
    if socket_type(&line)? != SocketType::SEQPACKET {
        return Err(ErrorKind::InvalidInput.into());
    }
    let null = File::options().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    Ok(line)
}

/// Copies this process, and lets the copy be the shim of `dir` as if it had been started so.
fn start(dir: &Path, given: Vec<OwnedFd>, title: Option<&Title>) -> io::Result<Pid> {
    let given: [OwnedFd; GIVEN] =
        given.try_into().map_err(|_| io::Error::other("its lock, pipe and log did not come"))?;
    // Those of this process are closed before the bot hears of the copy: a lock that two have is
    // free only when both are gone.
    clone::sibling(move || {
        let [lock, ready, log] = given;
        let taken = dup2_stdin(&lock).and(dup2_stdout(&ready)).and(dup2_stderr(&log));
        drop((lock, ready, log));
        if taken.is_err() || clone::close_all_but(&[]).is_err() {
            return 1;
        }
        if let Some(title) = title {
            // Only for those who look for it, and the shim is none of these.
            let _unnamed = title.set([b"shim", dir.as_os_str().as_bytes()]);
        }
        super::run(dir)
    })
}

/// What lists of processes show of this one, behind its program.
struct Title {
    at: u64,
    room: usize,
}

impl Title {
    fn find() -> io::Result<Self> {
        let stat = read_to_string("/proc/self/stat")?;
        let fields = stat.rsplit(')').next().unwrap_or_default();
        let number = |no| fields.split_whitespace().nth(no).and_then(|field| field.parse().ok());
        let program = std::env::args_os().next().unwrap_or_default().len() as u64 + 1;
        let place = number(ARGUMENTS_BEGIN).zip(number(ARGUMENTS_END));
        let place = place.and_then(|(begin, end): (u64, u64)| {
            let room = end.checked_sub(begin)?.checked_sub(program)?;
            Some(Self { at: begin + program, room: usize::try_from(room).ok()? })
        });
        place.ok_or_else(|| ErrorKind::InvalidData.into())
    }

    /// Writes over what was there. The process's own memory is a file to it as well, so this needs
    /// no pointer; nobody here reads the arguments any more.
    fn set(&self, words: [&[u8]; 2]) -> io::Result<()> {
        let mut text = words.join(&0);
        // With another byte at the very end the kernel would read on (fs/proc/base.c).
        if text.len() >= self.room {
            return Err(ErrorKind::StorageFull.into());
        }
        text.resize(self.room, 0);
        let memory = File::options().write(true).open("/proc/self/mem")?;
        memory.write_all_at(&text, self.at)
    }
}
