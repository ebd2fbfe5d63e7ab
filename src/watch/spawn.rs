//! Every process that dogwatch starts. Owns the command lines, environments and descriptors.
//! Must not know what the processes are for.
//!
//! The shim is started by `posix_spawn`, which does not copy the page tables of a large bot: so
//! its command must not get a `pre_exec`, a uid or a gid. Only the small shim itself forks.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::unistd::{Pid, getppid};

use super::beside::VERSION;
use super::sandbox::{Limits, Restraint};
use super::spool::SCRIPT;
use crate::core::limits::{
    BESIDE_BYTES_MAX, BESIDE_MS_MAX, SCRIPT_FILE_BYTES_MAX, SCRIPT_FILES_MAX,
};

/// What a script may see of the host's environment.
pub const ENV_ALLOWED: [&str; 6] =
    ["PATH", "LANG", "LC_ALL", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR"];
/// Where certificates are, in the words of the host's environment.
const CERTIFICATES: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];
/// Where programs are looked for when the host says nothing.
const PATH_DEFAULT: &str = "/usr/local/bin:/usr/bin:/bin";
/// Isolated from the user's Python settings and site, and writes no bytecode.
const PYTHON_FLAGS: [&str; 2] = ["-I", "-B"];
/// Whatever the locale says it prints UTF-8, and at once: what a killed script printed is there.
const SCRIPT_FLAGS: [&str; 3] = ["-X", "utf8", "-u"];
/// Names the script's directory to it, and it to [`stray`](super::stray).
pub(super) const WORK_VARIABLE: &str = "TMPDIR";
/// Bytes by which a copy's arguments may be longer than those of what it is a copy of.
const TITLE_ROOM: usize = 64;
/// Makes the kernel, when memory ends, take the script and not its shim or the bot.
pub(super) const OOM_SCORE: &str = "500";

#[expect(clippy::disallowed_methods, reason = "this file owns the start of processes")]
fn command(program: &Path) -> std::process::Command {
    let mut command = std::process::Command::new(program);
    command.env_clear();
    command
}

/// What scripts get of `env`; everything else stays here.
pub(super) fn allowed(env: &[(String, String)]) -> Vec<(String, String)> {
    let mut seen: Vec<_> =
        env.iter().filter(|(name, _)| ENV_ALLOWED.contains(&name.as_str())).cloned().collect();
    if !seen.iter().any(|(name, _)| name == "PATH") {
        seen.push(("PATH".to_owned(), PATH_DEFAULT.to_owned()));
    }
    seen
}

/// A shim that this process is the parent of.
#[derive(Debug)]
pub(super) struct Shim {
    /// Its number, which is nobody else's until it is reaped; `None` where it is not known.
    pub(super) pid: Option<rustix::process::Pid>,
    /// Brings one byte when it serves its socket, the end when it ended before that.
    pub(super) ready: OwnedFd,
}

/// Starts the shim of `dir`. Its stdin is the locked lock file, so there is no moment in which it
/// lives and the lock is free. Its stdout is a pipe on which it says that it serves its socket.
/// Needs no runtime: one that ends meanwhile would call a shim that is there a failed start.
pub(super) fn shim(program: &Path, dir: &Path, lock: File, log: File) -> io::Result<Shim> {
    let mut command = command(program);
    command.arg("shim").arg(dir).process_group(0).stdin(lock).stdout(Stdio::piped()).stderr(log);
    #[cfg(feature = "failpoints")]
    command.envs(crate::failpoint::variables());
    let mut child = command.spawn()?;
    let ready = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    Ok(Shim { pid: Some(rustix::process::Pid::from_child(&child)), ready: ready.into() })
}

/// Starts the process that shims are copies of, for those of this `place`. Its stdin is `line`.
/// There is room in its arguments for those of its copies, which write over them.
pub(super) fn zygote(program: &Path, place: &Path, line: OwnedFd) -> io::Result<Child> {
    let mut command = command(program);
    command.arg("zygote").arg(place).arg(" ".repeat(TITLE_ROOM));
    command.stdin(line).stdout(Stdio::null());
    #[cfg(feature = "failpoints")]
    command.envs(crate::failpoint::variables());
    command.spawn()
}

/// Starts the egress process of `dir`, which leaves the bot's session by itself. Its stdout is a
/// pipe on which it says that it serves. Of `env` it gets what says where certificates are.
pub(super) fn egress(
    program: &Path,
    dir: &Path,
    env: &[(String, String)],
    complaints: File,
) -> io::Result<tokio::process::Child> {
    let mut command = command(program);
    let certificates = env.iter().filter(|(name, _)| CERTIFICATES.contains(&name.as_str()));
    command.arg("egress").arg(dir).envs(certificates.cloned());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(complaints);
    tokio::process::Command::from(command).spawn()
}

/// A script, as its own process needs it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Script<'a> {
    /// The interpreter.
    pub(super) python: &'a Path,
    /// Its environment, but for what names `work`.
    pub(super) env: &'a [(String, String)],
    /// Where it works, and where [`SCRIPT`] stands.
    pub(super) work: &'a Path,
}

/// The command of a script, its two output streams given. Whoever starts it is its parent and takes
/// it along when it dies.
pub(super) fn script(
    script: Script<'_>,
    restraint: Option<Restraint>,
    [out, err]: [OwnedFd; 2],
) -> std::process::Command {
    let mut command = command(script.python);
    command
        .args(PYTHON_FLAGS)
        .args(SCRIPT_FLAGS)
        .arg(restraint.as_ref().map_or_else(|| SCRIPT.into(), Restraint::script))
        .envs(script.env.iter().map(|(name, value)| (name, value)))
        .env("HOME", script.work)
        .env(WORK_VARIABLE, script.work)
        .current_dir(script.work)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err);
    let parent = Pid::this();
    #[expect(
        unsafe_code,
        reason = "a child can ask to die with its parent, and restrain itself, only between fork \
                  and exec; what allocates here may, since the parent has one thread"
    )]
    unsafe {
        command.pre_exec(move || {
            // Whatever started the bot may have left it descriptors that an exec would keep.
            // Where the kernel is too old for this they are kept.
            let (first, flags) = (3_u32, nix::libc::CLOSE_RANGE_CLOEXEC);
            nix::libc::syscall(nix::libc::SYS_close_range, first, u32::MAX, flags);
            match &restraint {
                None => bind_to(parent).and_then(|()| usual_limits()),
                Some(restraint) => {
                    restraint.change_user()?;
                    bind_to(parent).and_then(|()| restraint.apply())
                }
            }
        });
    }
    command
}

/// Asks what is beside the bot for its version: the beginning of what it prints. Blocking, for
/// [`BESIDE_MS_MAX`] at most: whatever stands there, the start of the bot may not hang on it.
pub(super) fn version(program: &Path) -> io::Result<Vec<u8>> {
    let mut command = command(program);
    command.arg(VERSION).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    let said = child.stdout.take().map_or_else(|| Ok(vec![]), first_words);
    // It has said what it had to say.
    let group = i32::try_from(child.id()).map(Pid::from_raw).map_err(io::Error::other)?;
    let _gone_already = killpg(group, Signal::SIGKILL);
    child.wait()?;
    said
}

/// The end of so many milliseconds, for [`hear`].
#[expect(clippy::disallowed_methods, reason = "there is no clock yet where a process begins")]
pub(super) fn within(ms: u64) -> Instant {
    Instant::now() + Duration::from_millis(ms)
}

/// Waits until a process that was just started says something, or ends. Blocking. A signal that
/// comes meanwhile says nothing of it.
#[expect(clippy::disallowed_methods, reason = "there is no clock yet where a process begins")]
pub(super) fn hear(from: impl AsFd, until: Instant) -> io::Result<()> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let time = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
        match poll(&mut [PollFd::new(from.as_fd(), PollFlags::POLLIN)], time) {
            Ok(0) => return Err(io::Error::new(io::ErrorKind::TimedOut, "it does not answer")),
            Ok(_) => return Ok(()),
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Up to the end of a line, of a few bytes, or of the time.
fn first_words(mut out: impl Read + AsFd) -> io::Result<Vec<u8>> {
    let until = within(BESIDE_MS_MAX);
    let mut said = vec![0; BESIDE_BYTES_MAX];
    let mut length = 0;
    loop {
        hear(&out, until).map_err(|error| {
            io::Error::new(error.kind(), format!("asked for its version: {error}"))
        })?;
        let count = match out.read(said.get_mut(length..).unwrap_or_default()) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        length += count;
        let so_far = said.get(..length).unwrap_or_default();
        if count == 0 || so_far.contains(&b'\n') {
            return Ok(so_far.to_vec());
        }
    }
}

/// Tries the sandbox in a process of its own, to its end.
pub(super) fn probe(
    program: &Path,
    python: &Path,
    limits: Limits,
    place: &Path,
) -> io::Result<Output> {
    let limits = serde_json::to_string(&limits)?;
    let mut command = command(program);
    command.arg("probe").arg(python).arg(limits).arg(place);
    command.process_group(0).stdin(Stdio::null()).output()
}

/// Lets this process open as many files as it may: each watcher takes three of the bot, so with the
/// usual soft limit of 1,024 there could be some 300.
pub(super) fn allow_many_files() -> io::Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    Ok(setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?)
}

/// In the forked child: dies with its parent and hears every signal.
fn bind_to(parent: Pid) -> io::Result<()> {
    SigSet::empty().thread_set_mask()?;
    set_pdeathsig(Signal::SIGKILL)?;
    if getppid() != parent {
        return Err(io::ErrorKind::BrokenPipe.into());
    }
    Ok(())
}

/// Of a script without a sandbox: it leaves neither cores nor huge files.
fn usual_limits() -> io::Result<()> {
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    let (_, hard) = getrlimit(Resource::RLIMIT_FSIZE)?;
    let most = hard.min(SCRIPT_FILE_BYTES_MAX);
    setrlimit(Resource::RLIMIT_FSIZE, most, most)?;
    // What the bot may open it needs for its watchers; programs expect the usual soft limit.
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard.min(SCRIPT_FILES_MAX), hard)?;
    Ok(())
}

/// Starts Python on a program of our own, its stdin and stdout piped.
pub(super) fn python(python: &Path, program: &str) -> io::Result<tokio::process::Child> {
    let mut command = command(python);
    command
        .args(PYTHON_FLAGS)
        .args(["-c", program])
        .env("PATH", PATH_DEFAULT)
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    tokio::process::Command::from(command).kill_on_drop(true).spawn()
}

/// The interpreter itself behind `python`, which may be a wrapper that picks one by the
/// environment: a script has none of that.
pub fn find_python(python: &Path, env: &[(String, String)]) -> io::Result<PathBuf> {
    let mut command = command(python);
    command.args(PYTHON_FLAGS).args(["-c", "import sys; print(sys.executable)"]);
    let output = command.envs(env.iter().cloned()).stdin(Stdio::null()).output()?;
    let path = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if output.status.success() && Path::new(&path).is_absolute() {
        return Ok(PathBuf::from(path));
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().last().unwrap_or("it says nothing");
    Err(io::Error::other(format!("{} is not a Python 3: {last}", python.display())))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::BorrowedFd;
    use std::os::unix::thread::JoinHandleExt as _;

    use nix::unistd::gettid;
    use tokio::signal::unix::{SignalKind, signal};

    use super::*;

    /// A pipe of which a read is interrupted once.
    struct Interrupted<R>(R, bool);

    impl<R: Read> Read for Interrupted<R> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            if std::mem::take(&mut self.1) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            self.0.read(into)
        }
    }

    impl<R: AsFd> AsFd for Interrupted<R> {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }

    #[test]
    fn a_signal_while_the_version_is_waited_for_is_no_answer() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let heard = runtime.block_on(async { signal(SignalKind::user_defined2()) });
        let (mut heard, (said, mut says)) = (heard.unwrap(), io::pipe().unwrap());
        let (tell, told) = std::sync::mpsc::channel();
        let asks = std::thread::spawn(move || {
            tell.send(gettid()).unwrap();
            first_words(Interrupted(said, true))
        });
        let stat = format!("/proc/self/task/{}/stat", told.recv().unwrap());
        let waits = || {
            let stat = std::fs::read_to_string(&stat).unwrap();
            stat.rsplit(')').next().unwrap().trim_start().starts_with('S')
        };
        while !waits() {
            std::thread::park_timeout(Duration::from_millis(2));
        }
        #[expect(unsafe_code, reason = "the thread is there, since it was not joined")]
        let sent = unsafe { nix::libc::pthread_kill(asks.as_pthread_t(), nix::libc::SIGUSR2) };
        assert_eq!(sent, 0);
        runtime.block_on(heard.recv()).unwrap();
        says.write_all(b"1.2.3\n").unwrap();
        assert_eq!(asks.join().unwrap().unwrap(), b"1.2.3\n");
    }
}
