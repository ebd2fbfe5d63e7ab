//! What a sandboxed watcher may use: the defaults, and how far a configuration may go.

use std::ops::RangeInclusive;

/// Memory of all processes of a watcher together.
pub const WATCH_MEMORY_BYTES: u64 = 512 * 1024 * 1024;
/// Python itself must fit.
pub const WATCH_MEMORY_BYTES_RANGE: RangeInclusive<u64> = 64 * 1024 * 1024..=64 << 30;
/// Processes and threads of a watcher together.
pub const WATCH_PROCESSES: u64 = 32;
/// The system counts them in 32 bits, and more are of no use.
pub const WATCH_PROCESSES_RANGE: RangeInclusive<u64> = 2..=4_096;
/// What a watcher may keep in its directory, in bytes.
pub const WATCH_TMP_BYTES: u64 = 64 * 1024 * 1024;
/// The script itself must fit.
pub const WATCH_TMP_BYTES_RANGE: RangeInclusive<u64> = 1024 * 1024..=16 << 30;
/// Files and directories that a watcher may keep there.
pub const WATCH_TMP_FILES: u64 = 4_096;
/// As above.
pub const WATCH_TMP_FILES_RANGE: RangeInclusive<u64> = 16..=1_000_000;
/// Files that a process of a watcher may have open.
pub const WATCH_OPEN_FILES: u64 = 256;
/// Python needs a few itself.
pub const WATCH_OPEN_FILES_RANGE: RangeInclusive<u64> = 16..=65_536;
/// Seconds of processor time of all processes of a watcher together: it is there to wait.
pub const WATCH_CPU_SECONDS: u64 = 600;
/// As long as the longest deadline with a processor for itself.
pub const WATCH_CPU_SECONDS_RANGE: RangeInclusive<u64> = 1..=2_592_000;

/// Address space of one process, as a multiple of the memory of all: it stops what grows between
/// two looks. Python maps far more than it uses.
pub const WATCH_ADDRESS_FACTOR: u64 = 2;
/// Processes that the system lets a watcher start above its limit, so that a look can tell that it
/// was passed.
pub const WATCH_PROCESSES_ABOVE: u64 = 8;
/// Processes of the same user that may come after a watcher's start and take nothing from it, where
/// a control group counts its own.
pub const WATCH_PROCESSES_LATER: u64 = 4_096;
/// Timers and queued signals of a watcher.
pub const WATCH_SIGNALS_PENDING: u64 = 1_024;
/// Between two looks at what a quiet watcher uses.
pub const WATCH_LOOK_MS: u64 = 1_000;
/// The same at most, where the kernel holds it to its memory and its processes.
pub const WATCH_LOOK_IDLE_MS: u64 = 10_000;
/// Between two looks while it grows or computes.
pub const WATCH_LOOK_BUSY_MS: u64 = 100;
/// Between two looks when there was too much memory at the first.
pub const WATCH_LOOK_AGAIN_MS: u64 = 10;
/// Looks in a row at which there must be too much memory.
pub const WATCH_LOOKS_OVER: u32 = 3;
/// Share of the processor of all of a watcher, next to 1,024 of a program that nobody bounds.
pub const WATCH_CPU_SHARES: u64 = 256;
/// The same next to 100.
pub const WATCH_CPU_WEIGHT: u64 = 25;
/// A probe of the sandbox that takes longer has failed.
pub const WATCH_PROBE_MS_MAX: u64 = 30_000;
/// What stands beside the bot says its version within so long, or is not used.
pub const BESIDE_MS_MAX: u64 = 10_000;
/// What is read of that.
pub const BESIDE_BYTES_MAX: usize = 256;
/// Longest path of an execution's directory: the kernel takes none that is longer (`PATH_MAX`).
pub const PATH_BYTES_MAX: usize = 4_096;
/// The largest report of a sandbox's first process.
pub const WATCH_REPORT_BYTES_MAX: usize = 4 * 1024;

/// Credentials that a configuration may have.
pub const CREDENTIALS_MAX: usize = 256;
/// First wait of a shim before it hands the way out of its script on again; it doubles.
pub const GATE_AGAIN_MS: u64 = 100;
/// The longest such wait.
pub const GATE_AGAIN_MS_MAX: u64 = 1_000;
/// When nobody answers there for so long, what waits is turned away.
pub const GATE_AWAY_MS: u64 = 30_000;
/// How long a connection that was turned away stays, so that it hears why.
pub const GATE_LINGER_MS: u64 = 1_000;
/// Connections that are being turned away at a time.
pub const GATE_TURNED_AWAY_MAX: usize = 64;

const _: () = assert!(WATCH_LOOK_BUSY_MS < WATCH_LOOK_MS && WATCH_LOOK_MS < WATCH_LOOK_IDLE_MS);
const _: () = assert!(GATE_AGAIN_MS < GATE_AGAIN_MS_MAX && GATE_AGAIN_MS_MAX < GATE_AWAY_MS);
