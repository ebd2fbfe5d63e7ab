//! What tests ask of the system about processes.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::fs;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

const PAUSE: Duration = Duration::from_millis(2);
/// Fails a test that hangs; nothing waits for it.
const TOO_LONG: Duration = Duration::from_mins(1);

/// Between two looks at what another process changes and nothing tells of: who looks again at once
/// takes the processors from the one it looks at, for tens of seconds on a small machine.
pub(crate) async fn pause() {
    tokio::time::sleep(PAUSE).await;
}

/// The same on a thread.
pub(crate) fn pause_here() {
    std::thread::park_timeout(PAUSE);
}

/// A path on which a script can say something, once: `open(PATH, "w").write(…)`.
pub(crate) fn fifo(dir: &Path, name: &str) -> String {
    let path = dir.join(name);
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    path.display().to_string()
}

/// What a script says on a fifo.
pub(crate) async fn said(fifo: &str) -> String {
    let read = tokio::time::timeout(TOO_LONG, tokio::fs::read_to_string(fifo)).await;
    read.expect("the script says nothing").unwrap().trim().to_owned()
}

/// Numbers that a script says on a fifo.
pub(crate) async fn pids(fifo: &str) -> Vec<i32> {
    said(fifo).await.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

/// Signals a process, if it is there.
pub(crate) fn signal(pid: i32, signal: Signal) {
    if let Ok(fd) = pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty()) {
        let _ended_meanwhile = pidfd_send_signal(fd, signal);
    }
}

/// Waits for the end of a process.
pub(crate) fn ends(pid: i32) -> bool {
    let Ok(fd) = pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty()) else {
        return true;
    };
    let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::from(30_000_u16)).unwrap() > 0
}

/// It is there and no zombie.
pub(crate) fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
}

/// The process that started it; 0 where it is gone.
pub(crate) fn parent(pid: i32) -> i32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    after_name.split_whitespace().nth(1).and_then(|pid| pid.parse().ok()).unwrap_or(0)
}

/// Its short name.
pub(crate) fn name(pid: i32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default()
}

/// What shims are copies of, in this directory. A copy is called so as well, for a moment.
pub(crate) fn zygotes_of(dir: &Path) -> Vec<i32> {
    all_of(dir).into_iter().filter(|pid| is_zygote(*pid)).collect()
}

/// Is it such a one? It lives as long as its bot, and belongs to no execution.
pub(crate) fn is_zygote(pid: i32) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).nth(1) == Some(b"zygote")
}

/// Processes with this directory in their arguments or their environment, but for this one and
/// those that shims are copies of.
pub(crate) fn processes_of(dir: &Path) -> Vec<i32> {
    all_of(dir).into_iter().filter(|pid| !is_zygote(*pid)).collect()
}

fn all_of(dir: &Path) -> Vec<i32> {
    let mark = dir.to_str().unwrap();
    let of_it = |pid: &i32| {
        ["environ", "cmdline"].iter().any(|file| {
            let text = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            String::from_utf8_lossy(&text).contains(mark)
        })
    };
    let all = fs::read_dir("/proc").unwrap();
    let pids = all.filter_map(|item| item.unwrap().file_name().to_str()?.parse().ok());
    pids.filter(|pid| *pid != std::process::id().cast_signed()).filter(of_it).collect()
}
