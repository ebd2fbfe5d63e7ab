//! Scripts are compiled before they are started, and never run by that.

use std::fs;

use dogwatch::ports::{Launcher, SyntaxFault};
use dogwatch::watch::Settings;
use rustix::process::Signal;

use super::bench::{Bench, ends, settings, signal};

async fn check(bench: &Bench, python: &str) -> Option<SyntaxFault> {
    bench.watch().check_syntax(python).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fault_is_told_with_its_line() {
    let bench = Bench::new();
    let fault = check(&bench, "x = 1\ny = (\n").await.unwrap();
    assert_eq!(fault.line, 2);
    assert!(fault.message.contains("never closed"), "{}", fault.message);
    assert_eq!(check(&bench, "print('\u{1f415}')\r\n").await, None);
    assert_eq!(check(&bench, "").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_runs_nothing() {
    let bench = Bench::new();
    let file = bench.path().join("ran");
    assert_eq!(check(&bench, &format!("open({file:?}, 'w')")).await, None);
    assert!(!fs::exists(file).unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_python_cannot_read_is_a_fault_and_the_next_check_works() {
    let bench = Bench::new();
    let nested = format!("{}1{}", "(".repeat(30_000), ")".repeat(30_000));
    let not = format!("x = {}1", "not ".repeat(15_000));
    let sum = format!("x = {}1", "1+".repeat(30_000));
    let cases = ["x = '\0'", "\u{feff}\u{feff}x", "# coding: no-such\nx = 1", &nested, &not];
    for case in cases {
        let fault = check(&bench, case).await;
        assert!(fault.is_some_and(|fault| !fault.message.is_empty()), "{case:.40}");
        assert_eq!(check(&bench, "x = 1").await, None);
    }
    // Whether this one is too deep is Python's to say; it must be said.
    check(&bench, &sum).await;
    let whole = format!("x = '{}'", "a".repeat(64 * 1024 - 6));
    assert_eq!(whole.len(), 64 * 1024);
    assert_eq!(check(&bench, &whole).await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_helper_serves_all_and_is_replaced_when_it_dies() {
    let mut bench = Bench::with(|dir| {
        // Under a name of its own, so that its processes are found.
        let python = dir.join("python3");
        std::os::unix::fs::symlink("/usr/bin/python3", &python).unwrap();
        Settings { python, ..settings(dir) }
    });
    check(&bench, "x = 1").await;
    let first = bench.processes();
    check(&bench, "x = 2").await;
    assert_eq!((bench.processes(), first.len()), (first.clone(), 1));
    for pid in first {
        signal(pid, Signal::KILL);
        assert!(ends(pid));
    }
    assert_eq!(check(&bench, "x = ").await.unwrap().line, 1);
    let second = bench.processes();
    assert_eq!(second.len(), 1);
    bench.crash().await;
    assert!(second.into_iter().all(ends));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_python_a_check_says_so() {
    let bench = Bench::with(|dir| Settings { python: "/no/python3".into(), ..settings(dir) });
    let error = bench.watch().check_syntax("x = 1").await.unwrap_err();
    assert!(error.to_string().contains("/no/python3"), "{error}");
}
