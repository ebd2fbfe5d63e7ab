//! The spool: who may open it, and what it forgets.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::Ordering;

use dogwatch::core::execution::Status;
use dogwatch::core::limits::SPOOL_KEEP_MS;
use dogwatch::ports::{Found, Launcher, SpoolEntry};
use dogwatch::watch::{self, Settings, find_python};

use crate::support::process;

use super::bench::{Bench, launch, session, settings};

#[tokio::test(flavor = "multi_thread")]
async fn a_second_opener_is_refused_and_the_id_stays() {
    let mut bench = Bench::new();
    let id = bench.watch().spool();
    let first = bench.watch().spool();
    assert_eq!(first, id);
    let mut second = Bench::new();
    assert_ne!(second.watch().spool(), id);
    second.crash().await;
    let refused = bench.open().unwrap_err().to_string();
    assert!(refused.contains("held by another dogwatch"), "{refused}");
    bench.crash().await;
    bench.open().unwrap();
    assert_eq!(bench.watch().spool(), id);
}

#[tokio::test(flavor = "multi_thread")]
async fn b110_a_lock_file_without_a_holder_stops_nobody() {
    let mut bench = Bench::new();
    bench.crash().await;
    fs::write(bench.path().join("spool/lock"), std::process::id().to_string()).unwrap();
    bench.open().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unusable_spool_is_named() {
    let mut bench = Bench::new();
    bench.crash().await;
    fs::remove_dir_all(bench.path().join("spool")).unwrap();
    fs::write(bench.path().join("spool"), "a file").unwrap();
    let error = bench.open().unwrap_err().to_string();
    assert!(error.contains(bench.path().join("spool").to_str().unwrap()), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_launch_that_cannot_be_kept_leaves_nothing_and_names_the_place() {
    let bench = Bench::new();
    let place = bench.path().join("spool/w");
    fs::remove_dir(&place).unwrap();
    fs::write(&place, "in the way").unwrap();
    let error = bench.watch().launch(launch("w", "print(1)", 9_000)).await.unwrap_err();
    assert!(error.to_string().contains(place.to_str().unwrap()), "{error}");
    assert_eq!(fs::read_dir(bench.path().join("spool/e")).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_launches_under_one_name_one_is_made() {
    let mut bench = Bench::new();
    let scripts = (0..8).map(|n| launch("w", &format!("print({n})"), 9_000));
    let answers = scripts.map(|script| bench.watch().launch(script));
    let answers = futures_util::future::join_all(answers).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1);
    let first = answers.iter().position(Result::is_ok).unwrap();
    let id = bench.adopt().await[0].execution.clone();
    bench.watch().go(&session(), &id).await.unwrap();
    assert_eq!(bench.end().await.1.stdout.head, format!("{first}\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_at_the_spool_harms_nothing_that_is_being_launched() {
    let mut bench = Bench::new();
    let ids: Vec<_> = (0..20).map(|n| format!("w{n}")).collect();
    {
        let starts = ids.iter().map(|id| bench.start(id, "print(1)", 9_000));
        let mut all = std::pin::pin!(futures_util::future::join_all(starts));
        loop {
            tokio::select! {
                _started = &mut all => break,
                found = bench.adopt() => assert_eq!(found.into_iter().find(seems_dead), None),
            }
        }
    }
    let mut ended = std::collections::BTreeSet::new();
    while ended.len() < ids.len() {
        let (id, outcome) = bench.end().await;
        assert_eq!(outcome.status, Status::Completed);
        ended.insert(id);
    }
}

fn seems_dead(entry: &SpoolEntry) -> bool {
    match &entry.found {
        Found::Held => false,
        Found::Ended(outcome) => outcome.status != Status::Completed,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_program_is_named_and_leaves_nothing() {
    let bench = Bench::with(|dir| Settings { shim: "/no/dogwatch".into(), ..settings(dir) });
    let error = bench.watch().launch(launch("w", "print(1)", 9_000)).await.unwrap_err();
    assert!(error.to_string().contains("/no/dogwatch"), "{error}");
    assert_eq!(bench.adopt().await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_no_shim_is_never_started() {
    let mut bench = Bench::with(|dir| Settings { shim: "/bin/true".into(), ..settings(dir) });
    let id = bench.start("w", "print(1)", 9_000).await;
    let (ended, outcome) = bench.end().await;
    assert_eq!((ended, outcome.status), (id, Status::Lost));
    assert_eq!(outcome.reason.as_deref(), Some("never-started"));
}

#[test]
fn a_small_program_that_hangs_or_says_too_much_holds_up_no_start() {
    let dir = tempfile::tempdir().unwrap();
    let (program, beside) = (dir.path().join("dogwatch"), dir.path().join("dogwatch-shim"));
    // What it started is ended with it: else the pipe would stay open.
    let pipe = dir.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let hangs = format!("cat {} &\ncat {}", pipe.display(), pipe.display());
    for (text, said) in
        [(&*hangs, "asked for its version: it does not answer"), ("yes", "of version 'y")]
    {
        fs::write(&beside, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&beside, fs::Permissions::from_mode(0o700)).unwrap();
        let why = watch::shim_of(&program).unwrap_err();
        assert!(why.contains(said), "{why}");
    }
    while !process::processes_of(&pipe).is_empty() {
        crate::support::process::pause_here();
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "what a person runs by hand is another process")]
fn the_small_program_is_used_where_it_is_there_and_of_this_version() {
    let (own, small) = (env!("CARGO_BIN_EXE_dogwatch"), env!("CARGO_BIN_EXE_dogwatch-shim"));
    assert_eq!(watch::shim_of(Path::new(own)), Ok(small.into()));
    let dir = tempfile::tempdir().unwrap();
    let (program, beside) = (dir.path().join("dogwatch"), dir.path().join("dogwatch-shim"));
    let why = watch::shim_of(&program).unwrap_err();
    assert_eq!(why, format!("there is no {}", beside.display()));
    for (text, said) in [("echo 9.9.9", "of version '9.9.9'"), ("exit 1", "of version ''")] {
        fs::write(&beside, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&beside, fs::Permissions::from_mode(0o700)).unwrap();
        let why = watch::shim_of(&program).unwrap_err();
        assert!(why.contains(said) && why.contains(env!("CARGO_PKG_VERSION")), "{why}");
    }
    fs::set_permissions(&beside, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(watch::shim_of(&program).unwrap_err().contains("denied"));
    // What others can change is not even asked.
    let asked = dir.path().join("asked");
    fs::write(&beside, format!("#!/bin/sh\n: > {}\n", asked.display())).unwrap();
    fs::set_permissions(&beside, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(watch::shim_of(&program).unwrap_err().contains("changed by others"));
    fs::set_permissions(&beside, fs::Permissions::from_mode(0o700)).unwrap();
    if nix::unistd::geteuid().is_root() {
        std::os::unix::fs::chown(&beside, Some(65_534), None).unwrap();
        assert!(watch::shim_of(&program).unwrap_err().contains("changed by others"));
    }
    assert!(!asked.exists());
    for words in [&[][..], &["shim"], &["--help"], &["shim", "a", "b"]] {
        let ran = std::process::Command::new(small).args(words).output().unwrap();
        assert_eq!(ran.status.code(), Some(64), "{words:?}");
        assert!(String::from_utf8_lossy(&ran.stderr).contains("by hand"), "{words:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_path_is_no_hindrance() {
    let deep = |dir: &Path| {
        let spool = dir.join("d".repeat(120)).join("e".repeat(120));
        Settings { spool, ..settings(dir) }
    };
    let mut bench = Bench::with(deep);
    assert_eq!(bench.run("print('deep')", 9_000).await.stdout.head, "deep\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_settled_is_set_aside_told_when_asked_and_forgotten_after_its_time() {
    let mut bench = Bench::new();
    let outcome = bench.run("print(1)", 9_000).await;
    let entries = bench.adopt().await;
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].found, Found::Ended(outcome.clone()));
    let id = entries[0].execution.clone();

    bench.clock.ahead_ms.store(SPOOL_KEEP_MS * 2, Ordering::Relaxed);
    assert_eq!(bench.adopt().await.len(), 1);
    assert_eq!(bench.watch().recall(&session(), &id).await, None);
    bench.watch().settled(&session(), &id).await;
    bench.watch().settled(&session(), &id).await;
    let count = |part: &str| fs::read_dir(bench.path().join("spool").join(part)).unwrap().count();
    assert_eq!((bench.adopt().await, count("e"), count("s")), (vec![], 0, 1));
    assert_eq!(bench.watch().recall(&session(), &id).await, Some(outcome));
    assert!(bench.watch().go(&session(), &id).await.is_ok());

    // Whole hours go, so what was settled at an hour's end is kept no shorter than it must.
    bench.clock.ahead_ms.store(SPOOL_KEEP_MS * 3, Ordering::Relaxed);
    assert_eq!((bench.adopt().await, count("s")), (vec![], 1));
    bench.clock.ahead_ms.store(SPOOL_KEEP_MS * 3 + 3_660_000, Ordering::Relaxed);
    assert_eq!((bench.adopt().await, count("s")), (vec![], 0));
    assert_eq!(bench.watch().recall(&session(), &id).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_left_half_made_is_tidied_up() {
    let mut bench = Bench::new();
    bench.crash().await;
    let spool = bench.path().join("spool");
    fs::create_dir(spool.join("e/abc.new")).unwrap();
    fs::create_dir(spool.join("w/abc")).unwrap();
    fs::create_dir(spool.join("e/broken")).unwrap();
    bench.open().unwrap();
    assert!(!spool.join("e/abc.new").exists() && !spool.join("w/abc").exists());
    assert_eq!(bench.adopt().await, []);
    let hour = fs::read_dir(spool.join("s")).unwrap().next().unwrap().unwrap();
    assert!(!spool.join("e/broken").exists() && hour.path().join("broken").exists());
}

#[test]
fn an_interpreter_is_found_behind_its_name() {
    let env = [("PATH".to_owned(), "/usr/bin:/bin".to_owned())];
    let found = find_python(Path::new("/usr/bin/python3"), &env).unwrap();
    assert!(found.is_absolute());
    assert!(find_python(Path::new("/bin/true"), &env).is_err());
}
