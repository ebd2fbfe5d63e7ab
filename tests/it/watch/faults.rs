//! Scripts that turn on their own supervisor, and machines that misbehave: whatever happens there
//! is one clear end, in bounded memory, and nothing stays.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::Ordering;

use dogwatch::core::execution::{Exit, Status};
use dogwatch::core::limits::OUTPUT_BYTES_MAX;
use dogwatch::ports::{Found, Launcher};
use dogwatch::watch::Settings;
use rustix::process::Signal;

use super::bench::{Bench, ends, impatient, pids, said, session, signal};

const LONG_MS: u64 = 50_000;
const HOUR_MS: u64 = 3_600_000;
/// What goes through the pipe where nothing else is asked for.
const FLOOD_BYTES: u64 = 1 << 30;

fn flood_bytes() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "how much a test floods is its own matter")]
    let asked = std::env::var("DOGWATCH_FLOOD_BYTES").ok();
    asked.and_then(|bytes| bytes.parse().ok()).unwrap_or(FLOOD_BYTES)
}

/// The most memory a process has had, in KiB.
fn peak_kib(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Prints `bytes`, then waits to be let go. Answers what its shim had of memory at most, and how
/// many bytes were counted.
async fn flood(bytes: u64) -> (u64, u64) {
    let mut bench = Bench::new();
    let (up, on) = (bench.fifo("up"), bench.fifo("on"));
    let script = format!(
        "import os
chunk, left = b'0123456789abcde\\n' * 65536, {bytes}
while left: left -= os.write(1, chunk[:left])
print(os.getppid(), file=open({up:?}, 'w'))
open({on:?}, 'w').close()"
    );
    bench.start("w", &script, 24 * HOUR_MS).await;
    let shim = tokio::fs::read_to_string(&up).await.unwrap().trim().parse().unwrap();
    let peak = peak_kib(shim);
    said(&on).await;
    let (_, outcome) = bench.end().await;
    assert_eq!(outcome.status, Status::Completed);
    let kept = outcome.stdout.head.len() + outcome.stdout.tail.len();
    assert!(kept <= OUTPUT_BYTES_MAX, "{kept}");
    bench.nothing_is_left().await;
    (peak, outcome.stdout.bytes)
}

#[tokio::test(flavor = "multi_thread")]
async fn b60_a_gigabyte_costs_the_shim_no_more_memory_than_a_line() {
    let (line, _) = flood(16).await;
    let (peak, counted) = flood(flood_bytes()).await;
    assert_eq!(counted, flood_bytes());
    assert!(peak <= line * 2, "{peak} KiB after a flood, {line} KiB after a line");
}

#[tokio::test(flavor = "multi_thread")]
async fn b73_a_character_is_never_cut_in_two_wherever_a_cap_or_a_chunk_ends() {
    let mut bench = Bench::new();
    for (letter, width) in [("é", 2), ("€", 3), ("🐕", 4)] {
        for shift in 0..width {
            // In chunks that end within a character, and far beyond the caps.
            let script = format!(
                "import os
text = b'x' * {shift} + {letter:?}.encode() * {count}
while text:
    n = os.write(1, text[:8191])
    text = text[n:]",
                count = OUTPUT_BYTES_MAX * 2 / width,
            );
            let id = bench.start(&format!("w{width}{shift}"), &script, LONG_MS).await;
            let (ended, outcome) = bench.end().await;
            assert_eq!((ended, outcome.status), (id, Status::Completed));
            let text = outcome.stdout;
            let kept = format!("{}{}", text.head, text.tail);
            assert!(
                kept.trim_start_matches('x').replace(letter, "").is_empty(),
                "{letter} {shift}"
            );
            assert!(kept.len() > OUTPUT_BYTES_MAX - 4 * width && kept.len() <= OUTPUT_BYTES_MAX);
        }
    }
}

/// A script that knows its own directory in the spool, as `entry`.
fn traitor(what: &str) -> String {
    format!(
        "import os, shutil, signal, time
entry = os.getcwd().replace('/w/', '/e/')
print('begun', flush=True)
def pipe(name):
    path = os.path.join(entry, name)
    if os.path.lexists(path): os.unlink(path)
    os.mkfifo(path)
{what}"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_script_does_to_its_own_record_hangs_nobody() {
    let shim_dies = "os.kill(os.getppid(), signal.SIGKILL); time.sleep(40)";
    let cases: [(&str, String, &[Status]); 12] = [
        ("pipe for the record", "pipe('exit.json')".into(), &[Status::Completed]),
        ("pipe for its draft", "pipe('exit.tmp')".into(), &[Status::Lost]),
        ("pipe for the output", "pipe('out'); pipe('err')".into(), &[Status::Completed]),
        ("pipe for the lock", format!("pipe('lock'); {shim_dies}"), &[Status::Lost]),
        (
            "pipes for what is read",
            format!("[pipe(n) for n in ('spec.json', 'log', 'settled')]; {shim_dies}"),
            &[Status::Lost],
        ),
        (
            "links without end",
            "os.unlink(entry + '/exit.tmp')
for name in ('exit.tmp', 'exit.json'): os.symlink('/dev/zero', entry + '/' + name)"
                .into(),
            &[Status::Lost],
        ),
        ("directory for the record", "os.mkdir(entry + '/exit.json')".into(), &[Status::Lost]),
        (
            "output cut off",
            "os.truncate(entry + '/out', 0); print('more', flush=True); time.sleep(40)".into(),
            &[Status::Lost],
        ),
        (
            "lock removed",
            "os.unlink(entry + '/lock'); time.sleep(0.1)".into(),
            &[Status::Completed, Status::Lost],
        ),
        ("entry removed", "shutil.rmtree(entry)".into(), &[Status::Lost]),
        (
            "pipe for the entry",
            "os.rename(entry, entry + '.old'); os.mkfifo(entry)".into(),
            &[Status::Lost],
        ),
        ("work removed", "shutil.rmtree(os.getcwd())".into(), &[Status::Completed]),
    ];
    for (name, what, expected) in cases {
        let mut bench = Bench::with(impatient);
        let id = bench.start("w", &traitor(&what), 2_000).await;
        let (ended, outcome) = bench.end().await;
        assert_eq!(ended, id);
        assert!(expected.contains(&outcome.status), "{name}: {outcome:?}");
        if outcome.status == Status::Lost {
            let reason = outcome.reason.unwrap_or_default();
            assert!(!reason.is_empty() && reason != "never-started", "{name}: {reason}");
        }
        // Neither the end of a bot nor the next start waits for what stands there now.
        bench.crash().await;
        bench.open().unwrap();
        bench.adopt().await;
        bench.nothing_is_left().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_cannot_end_another_ones_work() {
    let mut bench = Bench::new();
    let (up, on) = (bench.fifo("up"), bench.fifo("on"));
    let victim = format!("open({up:?}, 'w').close()\nopen({on:?}, 'w').close()");
    let id = bench.start("victim", &victim, LONG_MS).await;
    said(&up).await;
    let what = "
for name in os.listdir(os.path.dirname(entry)):
    other = os.path.join(os.path.dirname(entry), name)
    if other != entry: shutil.copy(other + '/spec.json', entry + '/spec.json')";
    bench.start("w", &traitor(what), LONG_MS).await;
    assert_eq!(bench.end().await.1.status, Status::Completed);
    let found = bench.adopt().await;
    let of_victim: Vec<_> = found.iter().filter(|entry| entry.execution == id).collect();
    assert_eq!(of_victim.len(), 1);
    assert_eq!(of_victim[0].found, Found::Held);
    said(&on).await;
    assert_eq!(bench.end().await.1.status, Status::Completed);
    bench.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_without_a_record_does_not_run_on_when_its_bot_is_gone() {
    for what in ["e", "e/*/lock"] {
        let mut bench = Bench::with(impatient);
        let up = bench.fifo("up");
        let script = format!(
            "import os, time
print(os.getpid(), os.getppid(), file=open({up:?}, 'w'))
time.sleep(40)"
        );
        let id = bench.start("w", &script, LONG_MS).await;
        let all = pids(&up).await;
        let lock = bench.entry().join("lock");
        bench.crash().await;
        if what == "e" {
            // The shim sees it at once, and what it says of that comes between.
            while lock.parent().unwrap().exists() {
                let _again = fs::remove_dir_all(lock.parent().unwrap());
            }
        } else {
            fs::remove_file(lock).unwrap();
        }
        bench.open().unwrap();
        for entry in bench.adopt().await {
            let Found::Ended(outcome) = entry.found else { panic!("{what}: it is held") };
            assert_eq!(outcome.status, Status::Lost);
            assert!(outcome.reason.unwrap().contains("removed from the spool"));
        }
        // What the engine does with work that the spool does not have.
        bench.watch().kill(&session(), &id).await.unwrap();
        assert!(all.into_iter().all(ends), "{what}");
        bench.nothing_is_left().await;
    }
}

/// Stops itself before it is a shim.
fn stopped_at_birth(dir: &Path) -> Settings {
    let path = dir.join("stopped");
    let program = env!("CARGO_BIN_EXE_dogwatch-shim");
    let text = format!("#!/bin/sh\nkill -STOP $$\nexec {program} \"$@\"\n");
    if !path.exists() {
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    }
    Settings { shim: path, ..impatient(dir) }
}

#[tokio::test(flavor = "multi_thread")]
async fn b16_a_shim_that_is_stopped_before_it_serves_is_woken() {
    let mut bench = Bench::with(stopped_at_birth);
    let outcome = bench.run("print('up')", LONG_MS).await;
    assert_eq!((outcome.status, outcome.stdout.head.as_str()), (Status::Completed, "up\n"));
    bench.nothing_is_left().await;
}

/// Never a shim, whatever it is sent but KILL.
fn deaf(dir: &Path) -> Settings {
    let path = dir.join("deaf");
    if !path.exists() {
        fs::write(&path, "#!/bin/sh\nwhile :; do kill -STOP $$; done\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    }
    Settings { shim: path, ..impatient(dir) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shim_that_never_serves_blocks_no_order_and_dies_of_a_kill() {
    for adopted in [false, true] {
        let mut bench = Bench::with(deaf);
        let id = bench.start("w", "print('never')", LONG_MS).await;
        if adopted {
            bench.crash().await;
            bench.open().unwrap();
            assert_eq!(bench.adopt().await[0].found, Found::Held);
        }
        // More than any queue holds.
        for _ in 0..100 {
            bench.watch().cancel(&session(), &id).await.unwrap();
        }
        bench.watch().kill(&session(), &id).await.unwrap();
        let (ended, outcome) = bench.end().await;
        assert_eq!((ended, outcome.status), (id, Status::Cancelled), "{:?}", outcome.reason);
        assert!(outcome.reason.unwrap().contains("did not answer"));
        bench.nothing_is_left().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_of_the_bots_clock_moves_no_deadline() {
    // Forward by an hour, which a suspended host looks like as well; back by an hour.
    for step in [HOUR_MS, 0_u64.wrapping_sub(HOUR_MS)] {
        let mut bench = Bench::new();
        let (up, on) = (bench.fifo("up"), bench.fifo("on"));
        let patient = format!("open({up:?}, 'w').close()\nopen({on:?}, 'w').close()");
        let id = bench.start("patient", &patient, LONG_MS).await;
        said(&up).await;
        bench.clock.ahead_ms.store(step, Ordering::Relaxed);
        let late = bench.start("late", "import time\ntime.sleep(40)", 1_000).await;
        let (ended, outcome) = bench.end().await;
        assert_eq!((ended, outcome.status), (late, Status::TimedOut));
        assert!(outcome.elapsed_ms >= 1_000 && outcome.elapsed_ms < HOUR_MS);
        said(&on).await;
        let (ended, outcome) = bench.end().await;
        assert_eq!((ended, outcome.status), (id, Status::Completed));
        assert_eq!(outcome.exit, Some(Exit::Code(0)));
        assert!(outcome.elapsed_ms < HOUR_MS, "{}", outcome.elapsed_ms);
        bench.nothing_is_left().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_script_leaves_behind_holds_up_no_report() {
    let mut bench = Bench::new();
    let up = bench.fifo("up");
    let script = format!(
        "import os
for i in range(2000):
    os.mkdir('d')
    os.chdir('d')
print(os.getppid(), file=open({up:?}, 'w'))"
    );
    bench.start("w", &script, LONG_MS).await;
    let shim = pids(&up).await[0];
    let (_, outcome) = bench.end().await;
    assert_eq!(outcome.status, Status::Completed);
    assert!(ends(shim));
    signal(shim, Signal::KILL);
    bench.nothing_is_left().await;
}
