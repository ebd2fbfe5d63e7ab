//! Scripts that run to an end of their own, or to the one they are given.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use dogwatch::core::execution::{Exit, Outcome, Status};
use dogwatch::core::id::ExecutionId;
use dogwatch::core::limits::SCRIPT_FILES_MAX;
use dogwatch::ports::{Launch, Launcher};
use dogwatch::watch::Settings;
use nix::sys::resource::{Resource, getrlimit};

use super::bench::{Bench, ends, is_alive, launch, pids, said, session, settings};

const LONG_MS: u64 = 50_000;

#[tokio::test(flavor = "multi_thread")]
async fn exit_0_completes_with_its_output() {
    let mut bench = Bench::new();
    let script = "import sys\nprint('hello hunter2')\nprint('oops', file=sys.stderr)";
    let outcome = bench.run(script, LONG_MS).await;
    assert_eq!(outcome.status, Status::Completed);
    assert_eq!(outcome.exit, Some(Exit::Code(0)));
    assert_eq!(outcome.stdout.head, "hello [redacted]\n");
    assert_eq!(outcome.stderr.head, "oops\n");
    assert_eq!((outcome.reason, outcome.leftovers_killed), (None, 0));
    assert!(outcome.elapsed_ms > 0 && outcome.elapsed_ms < LONG_MS);
    bench.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exit_3_fails_with_its_code() {
    let mut bench = Bench::new();
    let outcome = bench.run("raise SystemExit(3)", LONG_MS).await;
    assert_eq!((outcome.status, outcome.exit), (Status::Failed, Some(Exit::Code(3))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_traceback_names_the_script_and_its_line() {
    let mut bench = Bench::new();
    let outcome = bench.run("x = 1\nx / 0", LONG_MS).await;
    assert_eq!(outcome.exit, Some(Exit::Code(1)));
    assert!(outcome.stderr.head.contains("watcher.py\", line 2"), "{}", outcome.stderr.head);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_is_reported_as_it_is() {
    for number in [6, 9, 40] {
        let mut bench = Bench::new();
        let script =
            format!("import os\nos.kill(os.getpid(), {number})\nimport time\ntime.sleep(9)");
        let outcome = bench.run(&script, LONG_MS).await;
        assert_eq!((outcome.status, outcome.exit), (Status::Failed, Some(Exit::Signal(number))));
        bench.nothing_is_left().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_interpreter_fails_with_its_name() {
    let mut bench =
        Bench::with(|dir| Settings { python: "/no/such/python3".into(), ..settings(dir) });
    let outcome = bench.run("print(1)", LONG_MS).await;
    assert_eq!((outcome.status, outcome.exit), (Status::Failed, None));
    assert!(outcome.reason.unwrap().contains("/no/such/python3"));
    bench.nothing_is_left().await;
}

async fn times_out_with_everybody(offspring: &str) {
    let mut bench = Bench::new();
    let fifo = bench.fifo("pids");
    let script = format!(
        "import os, subprocess, sys, time
print('before')
def say(*pids):
    with open({fifo:?}, 'w') as f: print(os.getpid(), *pids, file=f)
{offspring}
time.sleep(40)"
    );
    bench.start("w", &script, 1_500).await;
    let all = pids(&fifo).await;
    assert!(all.len() > 1);
    let (_, outcome) = bench.end().await;
    assert_eq!(outcome.status, Status::TimedOut);
    assert_eq!(outcome.exit, Some(Exit::Signal(15)));
    assert_eq!(outcome.stdout.head, "before\n");
    assert!(outcome.elapsed_ms >= 1_500);
    for pid in all {
        assert!(!is_alive(pid));
    }
    bench.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b57_a_deadline_takes_the_group() {
    times_out_with_everybody("say(subprocess.Popen(['sh', '-c', 'sleep 30 & sleep 20']).pid)")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b57_a_deadline_takes_other_sessions() {
    times_out_with_everybody("say(subprocess.Popen(['sleep', '30'], start_new_session=True).pid)")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b57_a_deadline_takes_daemons() {
    let daemon = "
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        say(os.getppid())
        time.sleep(30)
    os._exit(0)";
    times_out_with_everybody(daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b57_what_an_exit_leaves_running_is_killed_and_counted() {
    let mut bench = Bench::new();
    let script = "import subprocess
for new in (True, False):
    subprocess.Popen(['sh', '-c', 'trap \"\" TERM; echo up; sleep 30; :'],
        start_new_session=new)
print('done')";
    let outcome = bench.run(script, LONG_MS).await;
    assert_eq!((outcome.status, outcome.exit), (Status::Completed, Some(Exit::Code(0))));
    assert!(outcome.stdout.head.contains("done"));
    assert!(outcome.leftovers_killed >= 2, "{}", outcome.leftovers_killed);
    bench.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b60_a_flood_is_bounded_and_keeps_both_ends() {
    let mut bench = Bench::new();
    let script = "import subprocess
print('first')
subprocess.run('yes | head -c 100000000', shell=True)
print('last')";
    let outcome = bench.run(script, LONG_MS).await;
    assert_eq!(outcome.status, Status::Completed);
    assert!(outcome.stdout.head.starts_with("first\ny\n"));
    assert!(outcome.stdout.tail.ends_with("y\nlast\n"));
    assert_eq!(outcome.stdout.bytes, 100_000_000 + 11);
    assert_eq!(outcome.stdout.missing_bytes, outcome.stdout.bytes - 16 * 1024);
    let size: u64 =
        fs::read_dir(bench.entry()).unwrap().map(|f| f.unwrap().metadata().unwrap().len()).sum();
    assert!(size < 64 * 1024, "{size} bytes on disk");
}

/// Runs a script that its deadline ends after it has said on stderr that it is up. Where that comes
/// too soon for it, on a slow machine, it is run again with a later one. Answers the deadline too.
async fn past_its_deadline(script: &str, grace_ms: u64) -> (Bench, Outcome, u64) {
    let mut timeout_ms = 1_000;
    loop {
        let mut bench = Bench::new();
        let launch = Launch { grace_ms, ..launch("w", script, timeout_ms) };
        bench.start_as(launch).await;
        let (_, outcome) = bench.end().await;
        if outcome.stderr.head == "up\n" {
            return (bench, outcome, timeout_ms);
        }
        assert_eq!((outcome.status, outcome.stderr.head.as_str()), (Status::TimedOut, ""));
        timeout_ms *= 2;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b60_an_endless_flood_ends_at_the_deadline() {
    let script = "import sys
for _ in range(8): print('y' * 4000)
print('up', file=sys.stderr)
while True: print('y' * 4000)";
    let (mut bench, outcome, timeout_ms) = past_its_deadline(script, 300).await;
    assert_eq!(outcome.status, Status::TimedOut);
    assert!(outcome.stdout.missing_bytes > 0);
    assert!(outcome.elapsed_ms >= timeout_ms);
    bench.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_ignores_term_is_killed_after_the_grace() {
    let script = "import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('deaf')
print('up', file=sys.stderr)
time.sleep(400)";
    let (_, outcome, timeout_ms) = past_its_deadline(script, 300).await;
    assert_eq!((outcome.status, outcome.exit), (Status::TimedOut, Some(Exit::Signal(9))));
    assert_eq!(outcome.stdout.head, "deaf\n");
    assert!(outcome.elapsed_ms >= timeout_ms + 300);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_hears_term_may_clean_up() {
    let script = "import signal, sys, time
def bye(*_):
    print('bye')
    sys.exit(7)
signal.signal(signal.SIGTERM, bye)
print('up', file=sys.stderr)
time.sleep(400)";
    // After TERM it has as long as a busy machine may need.
    let (_, outcome, _) = past_its_deadline(script, 60_000).await;
    assert_eq!((outcome.status, outcome.exit), (Status::TimedOut, Some(Exit::Code(7))));
    assert_eq!(outcome.stdout.head, "bye\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_stops_itself_hears_the_deadline() {
    let mut bench = Bench::new();
    let script = "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\nprint('on')";
    let outcome = bench.run(script, 500).await;
    assert_eq!((outcome.status, outcome.exit), (Status::TimedOut, Some(Exit::Signal(15))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_ends_it_and_keeps_its_output() {
    let mut bench = Bench::new();
    let fifo = bench.fifo("up");
    let script = format!("import time\nprint('half')\nopen({fifo:?}, 'w').close()\ntime.sleep(40)");
    let id = bench.start("w", &script, LONG_MS).await;
    said(&fifo).await;
    bench.watch().cancel(&session(), &id).await.unwrap();
    let (_, outcome) = bench.end().await;
    assert_eq!((outcome.status, outcome.exit), (Status::Cancelled, Some(Exit::Signal(15))));
    assert_eq!(outcome.stdout.head, "half\n");
    bench.watch().cancel(&session(), &id).await.unwrap();
    bench.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_before_go_runs_nothing() {
    let mut bench = Bench::new();
    let id = bench.launch("w", "print('ran')", LONG_MS).await;
    bench.watch().cancel(&session(), &id).await.unwrap();
    bench.watch().go(&session(), &id).await.unwrap();
    let (_, outcome) = bench.end().await;
    assert_eq!((outcome.status, outcome.stdout.bytes), (Status::Cancelled, 0));
    bench.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_waits_for_nobody() {
    let mut bench = Bench::new();
    let fifo = bench.fifo("up");
    let script = format!(
        "import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(os.getpid(), file=open({fifo:?}, 'w'))
time.sleep(40)"
    );
    let id = bench.start("w", &script, LONG_MS).await;
    let pid = pids(&fifo).await[0];
    bench.watch().kill(&session(), &id).await.unwrap();
    let (_, outcome) = bench.end().await;
    assert_eq!((outcome.status, outcome.exit), (Status::Cancelled, Some(Exit::Signal(9))));
    assert!(ends(pid));
    bench.watch().kill(&session(), &id).await.unwrap();
    bench.watch().kill(&session(), &ExecutionId::new("unknown").unwrap()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_go_changes_nothing_and_an_unknown_one_is_an_error() {
    let mut bench = Bench::new();
    let id = bench.start("w", "print('once')", LONG_MS).await;
    bench.watch().go(&session(), &id).await.unwrap();
    let (_, outcome) = bench.end().await;
    assert_eq!(outcome.stdout.head, "once\n");
    bench.watch().go(&session(), &id).await.unwrap();
    let unknown = ExecutionId::new("unknown").unwrap();
    let error = bench.watch().go(&session(), &unknown).await.unwrap_err();
    assert!(error.to_string().contains("console/main/unknown"));
    let again = bench.watch().launch(launch("w", "print('twice')", LONG_MS)).await;
    assert!(again.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn b79_a_script_sees_no_secret_in_any_environment() {
    let mut bench = Bench::new();
    let script = "import os, sys
print(sorted(os.environ), sys.flags.utf8_mode)
try:
    print(open(f'/proc/{os.getppid()}/environ', 'rb').read())
except PermissionError:
    print(b'')";
    let outcome = bench.run(script, LONG_MS).await;
    assert_eq!(outcome.stdout.head, "['HOME', 'LANG', 'PATH', 'TMPDIR'] 1\nb''\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_begins_in_a_clean_room() {
    let mut bench = Bench::new();
    let script = "import os, resource, signal, sys
print(sys.flags.isolated, sys.flags.dont_write_bytecode, repr(sys.stdin.read()))
print(os.listdir('.'), os.environ['HOME'] == os.environ['TMPDIR'] == os.getcwd())
print(resource.getrlimit(resource.RLIMIT_CORE), signal.pthread_sigmask(signal.SIG_BLOCK, []))
print(os.getpgid(0) == os.getpid(), sorted(os.listdir('/proc/self/fd'))[:3])
print(len(os.listdir('/proc/self/fd')))";
    let outcome = bench.run(script, LONG_MS).await;
    let expected = "1 1 ''
['watcher.py'] True
(0, 0) set()
True ['0', '1', '2']
4
";
    assert_eq!(outcome.stdout.head, expected);
    let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(bench.entry()), 0o700);
    assert_eq!(mode(bench.path().join("spool")), 0o700);
    bench.watch().settled(&session(), &ExecutionId::new("w").unwrap()).await;
    assert_eq!(fs::read_dir(bench.path().join("spool/w")).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn b73_b74_any_bytes_become_text() {
    let mut bench = Bench::new();
    let script = "import sys
o = sys.stdout.buffer
o.write(bytes(range(256)) + '\u{2028}\\x1b[31m'.encode() + b'\\xed\\xa0\\x80')
o.write('\u{20ac}'.encode() * 40000)
o.write('\u{1f415}'.encode() * 4001 + b'\\xf0\\x9f')";
    let outcome = bench.run(script, LONG_MS).await;
    let text = format!("{}{}", outcome.stdout.head, outcome.stdout.tail);
    assert!(!text.chars().any(|c| (c.is_control() && !"\n\t".contains(c)) || c == '\u{2028}'));
    assert!(text.contains("ABC") && text.contains('\u{20ac}') && text.contains('\u{1f415}'));
    let json = serde_json::to_string(&outcome).unwrap();
    assert_eq!(serde_json::from_str::<dogwatch::core::execution::Outcome>(&json).unwrap(), outcome);
}

#[tokio::test(flavor = "multi_thread")]
async fn output_is_seen_while_it_runs() {
    let mut bench = Bench::new();
    let fifo = bench.fifo("up");
    let script =
        format!("import time\nprint('so far')\nopen({fifo:?}, 'w').close()\ntime.sleep(40)");
    let id = bench.start("w", &script, LONG_MS).await;
    said(&fifo).await;
    let glance = loop {
        let glance = bench.watch().glance(&session(), &id).await.unwrap();
        if glance.stdout.head.ends_with('\n') {
            break glance;
        }
        crate::support::process::pause().await;
    };
    assert_eq!((glance.stdout.head.as_str(), glance.stalled), ("so far\n", false));
    let unknown = ExecutionId::new("unknown").unwrap();
    assert_eq!(bench.watch().glance(&session(), &unknown).await, None);
    bench.watch().kill(&session(), &id).await.unwrap();
    bench.end().await;
    let after = bench.watch().glance(&session(), &id).await.unwrap();
    assert_eq!(after.stdout.head, "so far\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_at_once_each_end_once_with_their_own_output() {
    let mut bench = Bench::new();
    let scripts: Vec<_> = (0..50).map(|n| (format!("w{n}"), format!("print({n})"))).collect();
    let starts = scripts.iter().map(|(id, script)| bench.start(id, script, LONG_MS));
    futures_util::future::join_all(starts).await;
    let mut ended = std::collections::BTreeMap::new();
    for _ in 0..50 {
        let (id, outcome) = bench.end().await;
        assert_eq!(outcome.status, Status::Completed);
        ended.insert(id.to_string(), outcome.stdout.head);
    }
    for n in 0..50 {
        assert_eq!(ended[&format!("w{n}")], format!("{n}\n"));
    }
    bench.nothing_is_left().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_has_the_usual_limit_of_open_files_whatever_the_bot_may_open() {
    let mut bench = Bench::new();
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    assert_eq!(soft, hard, "the bot takes what it can get");
    let script = "import resource\nprint(*resource.getrlimit(resource.RLIMIT_NOFILE))";
    let usual = SCRIPT_FILES_MAX.min(hard);
    assert_eq!(bench.run(script, 9_000).await.stdout.head, format!("{usual} {hard}\n"));
}
