//! Processes that nobody can reach as usual. What a killed shim leaves running: its script dies
//! with it; what the script had started does not, and there is no parent left that could find it.
//! It is recognised by its environment, which names the execution's own directory. A script that
//! wants to can hide from that; only namespaces hold it. And a shim that serves no socket: it
//! is recognised by its arguments. Blocking; must not know why a shim ended.

use std::fs;
use std::path::Path;

use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};

use super::spawn::WORK_VARIABLE;

/// Looks, each of which may find what was started since the one before.
const ROUNDS_MAX: usize = 8;

/// Kills what runs for the execution in `work`. Answers how many processes that were.
pub(super) fn kill(work: &Path) -> u32 {
    let mut killed = 0;
    for _ in 0..ROUNDS_MAX {
        let found = kill_once(work);
        killed += found;
        if found == 0 {
            break;
        }
    }
    killed
}

/// Signals the shim of an execution's directory. Answers whether there is one. Where a zygote was
/// stopped before it came to make it, the lock lies with that one, whose bot may be gone: so it is
/// woken.
pub(super) fn signal_shim(dir: &Path, what: Signal) -> bool {
    if let Some(place) = dir.parent() {
        signal("cmdline", is_called("zygote", place), Signal::CONT);
    }
    signal("cmdline", is_called("shim", dir), what) > 0
}

/// Are these the arguments of such a process for this path?
fn is_called<'a>(word: &'a str, path: &'a Path) -> impl Fn(&[u8]) -> bool + 'a {
    let called = [word.as_bytes(), path.as_os_str().as_encoded_bytes()];
    move |read| {
        let arguments: Vec<&[u8]> = read.split(|byte| *byte == 0).collect();
        arguments.windows(2).any(|pair| *pair == called)
    }
}

fn kill_once(work: &Path) -> u32 {
    let mark = [WORK_VARIABLE.as_bytes(), b"=", work.as_os_str().as_encoded_bytes()].concat();
    let is_marked = |read: &[u8]| read.split(|byte| *byte == 0).any(|one| one == mark);
    signal("environ", is_marked, Signal::KILL)
}

/// Signals every process of which this file in `/proc` is like that. Answers how many.
fn signal(file: &str, is_like_that: impl Fn(&[u8]) -> bool, what: Signal) -> u32 {
    let Ok(all) = fs::read_dir("/proc") else { return 0 };
    let pids = all.filter_map(|item| item.ok()?.file_name().to_str()?.parse().ok());
    let others = pids.filter_map(Pid::from_raw).filter(|pid| *pid != getpid());
    let signalled = others.filter(|pid| {
        // First the descriptor, then the look: should the pid be another's by then, the process
        // of the descriptor is gone and the signal hits nobody.
        let Ok(process) = pidfd_open(*pid, PidfdFlags::empty()) else { return false };
        let read = fs::read(format!("/proc/{}/{file}", pid.as_raw_nonzero()));
        read.is_ok_and(|all| is_like_that(&all)) && pidfd_send_signal(process, what).is_ok()
    });
    u32::try_from(signalled.count()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use rustix::process::{WaitOptions, waitpid};

    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "any process with such arguments will do")]
    fn what_stopped_before_it_made_a_shim_is_woken() {
        let place = tempfile::tempdir().unwrap();
        let mut stopped = Command::new("sh");
        stopped.args(["-c", "kill -STOP $$; exit 7", "zygote"]).arg(place.path());
        let mut stopped = stopped.spawn().unwrap();
        let (pid, until) = (Pid::from_child(&stopped), WaitOptions::UNTRACED);
        assert!(waitpid(Some(pid), until).unwrap().unwrap().1.stopped());
        // Of another place.
        assert!(!signal_shim(Path::new("/nowhere/x"), Signal::CONT));
        assert!(waitpid(Some(pid), WaitOptions::NOHANG).unwrap().is_none());
        assert!(!signal_shim(&place.path().join("x"), Signal::CONT));
        assert_eq!(stopped.wait().unwrap().code(), Some(7));
    }
}
