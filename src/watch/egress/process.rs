//! The egress process itself: its lock, its socket, what it gives up, and its end. Must not know
//! requests.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nix::poll::poll;
use nix::sys::prctl::set_dumpable;
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{Gid, Uid, dup2_stderr, dup2_stdout, geteuid, setgroups, setresgid, setresuid};

use super::control;
use super::house::House;
use super::log::{Log, when};
use super::pace::time_of_day;
use super::words::SOCKET;
use crate::core::limits::{EGRESS_ANSWER_MS, EGRESS_LOCK_MS_MAX, EGRESS_RETIRED_MS_MAX};
use crate::watch::{file, spawn};

/// Whom root becomes: somebody who owns nothing, and who is not whom scripts become.
const NOBODY: u32 = 65_533;
/// The lock's name in the directory.
const LOCK: &str = "lock";
/// Between two looks at a lock that is held.
const LOCK_WAIT_MS: u16 = 25;
/// Threads that wait for the system to look up names.
const LOOKUP_THREADS_MAX: usize = 256;

/// Why it cannot serve.
#[derive(Debug, thiserror::Error)]
enum ProcessError {
    /// One is there already.
    #[error("another egress process serves this directory")]
    Held,
    /// The system refused something.
    #[error("the egress process cannot {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

fn cannot<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> ProcessError {
    move |source| ProcessError::System { what, source: source.into() }
}

/// Serves the directory until nobody needs it. Answers the exit code of the process.
pub fn run(dir: &Path) -> u8 {
    let Err(error) = serve(dir) else { return 0 };
    // Stderr is a file in the directory, or a person's terminal.
    let _unheard = writeln!(io::stderr(), "dogwatch: {error}");
    1
}

fn serve(dir: &Path) -> Result<(), ProcessError> {
    // Fails where it leads a group already, as by hand at a terminal.
    let _stays_in_its_session = nix::unistd::setsid();
    umask(Mode::from_bits_truncate(0o077));
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(cannot("make its directory"))?;
    let lock = take_lock(dir)?;
    let log = Log::open(dir).map_err(cannot("open its log"))?;
    let _fewer_files = spawn::allow_many_files();
    let owner = geteuid();
    let (files, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((1_024, 1_024));
    let house = House::new(log, owner.as_raw(), seed(), files);
    let house = Arc::new(house.map_err(cannot("find certificates"))?);
    // Not before it can answer at once: a shim waits no longer than a moment.
    let socket = bind(dir).map_err(cannot("listen on its socket"))?;
    give_up_root(owner).map_err(cannot("give root up"))?;
    // Of another user's process this is forgotten, so after the change.
    set_dumpable(false).map_err(cannot("keep its memory to itself"))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(LOOKUP_THREADS_MAX)
        .build()
        .map_err(cannot("begin"))?;
    let served = runtime.block_on(async {
        tell_of_panics(&house);
        socket.set_nonblocking(true).map_err(cannot("listen on its socket"))?;
        let socket = tokio::net::UnixListener::from_std(socket);
        let socket = socket.map_err(cannot("listen on its socket"))?;
        say_ready().map_err(cannot("leave the bot's pipe"))?;
        attend(house, socket, lock).await;
        Ok(())
    });
    // Lookups of names may still wait for the system.
    runtime.shutdown_background();
    served
}

/// Until it is retired and nothing is open, or nobody needs it.
async fn attend(house: Arc<House>, socket: tokio::net::UnixListener, lock: File) {
    let pace = Arc::clone(&house);
    house.tasks.spawn(async move { pace.pace.run().await });
    let listening = house.tasks.spawn(control::listen(Arc::clone(&house), socket));
    tokio::select! {
        () = unused(&house) => return,
        _retired = listening => {}
    }
    // The socket went with its task; so the next one can take both.
    drop(lock);
    house.unlocked.cancel();
    // Where nothing is open it would end before whoever retires it is told so.
    let mut peers = house.peers.subscribe();
    let told = peers.wait_for(|count| *count == 0);
    let _heard = tokio::time::timeout(Duration::from_millis(EGRESS_ANSWER_MS), told).await;
    house.connections.close();
    let time = Duration::from_millis(EGRESS_RETIRED_MS_MAX);
    let _cut = tokio::time::timeout(time, house.connections.wait()).await;
}

/// Returns when nobody was connected for long.
async fn unused(house: &House) {
    let mut peers = house.peers.subscribe();
    loop {
        if peers.wait_for(|count| *count == 0).await.is_err() {
            return;
        }
        let time = Duration::from_millis(house.unused_ms());
        let back = peers.wait_for(|count| *count > 0);
        if tokio::time::timeout(time, back).await.is_err() {
            return;
        }
    }
}

fn take_lock(dir: &Path) -> Result<File, ProcessError> {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true).truncate(false);
    let lock = file::open(&dir.join(LOCK), options).map_err(cannot("open its lock"))?;
    let mut waited_ms = 0;
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            Err(TryLockError::WouldBlock) if waited_ms < EGRESS_LOCK_MS_MAX => {}
            Err(TryLockError::WouldBlock) => return Err(ProcessError::Held),
            Err(TryLockError::Error(error)) => return Err(cannot("take its lock")(error)),
        }
        // No descriptor: only the time passes.
        let _passed = poll(&mut [], LOCK_WAIT_MS);
        waited_ms += u64::from(LOCK_WAIT_MS);
    }
}

/// Under the lock, so what stands there is nobody's any more.
fn bind(dir: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(dir.join(SOCKET)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    // A socket's path may not be longer than 107 bytes; this one is short wherever it is.
    let dir = file::directory(dir)?;
    UnixListener::bind(format!("/proc/self/fd/{}/{SOCKET}", dir.as_raw_fd()))
}

/// Of root's powers none is needed any more. Where they cannot be given up nothing is served.
fn give_up_root(owner: Uid) -> io::Result<()> {
    if !owner.is_root() {
        return Ok(());
    }
    let (uid, gid) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    setgroups(&[])?;
    setresgid(gid, gid, gid)?;
    setresuid(uid, uid, uid)?;
    Ok(())
}

/// Differs from process to process; nothing secret comes of it.
fn seed() -> u64 {
    let now = nix::time::ClockId::CLOCK_REALTIME.now().map(Duration::from).unwrap_or_default();
    u64::from(now.subsec_nanos()) << 32 | u64::from(std::process::id())
}

/// A connection that panics ends alone, and the log says where.
fn tell_of_panics(house: &Arc<House>) {
    let house = Arc::clone(house);
    std::panic::set_hook(Box::new(move |panic| {
        let place = panic.location().map(ToString::to_string);
        let at = when(time_of_day());
        house.log.write(&serde_json::json!({ "at": at, "panic": place }));
    }));
}

/// Tells the bot that the socket is served, and gives up the descriptors that came from it.
fn say_ready() -> io::Result<()> {
    let _nobody_listens = io::stdout().write_all(b"\n").and_then(|()| io::stdout().flush());
    let null = File::options().read(true).write(true).open("/dev/null")?;
    dup2_stdout(&null)?;
    dup2_stderr(&null)?;
    Ok(())
}
