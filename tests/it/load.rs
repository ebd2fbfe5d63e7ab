//! `dogwatch load` with the real program: what an operator runs before trusting a store.

// So that clippy knows the whole module as a test.
#![cfg(test)]

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_dogwatch");

#[expect(clippy::disallowed_methods, reason = "the program under test is a process of its own")]
fn command(directory: &Path, arguments: &[&str]) -> Command {
    let config = directory.join("dogwatch.toml");
    fs::write(&config, "data_dir = \"data\"\n[watch]\nsandbox = \"off\"\n").unwrap();
    let mut command = Command::new(PROGRAM);
    command.arg("load").arg("--config").arg(&config).args(arguments);
    command
}

fn load(directory: &Path, arguments: &[&str]) -> Output {
    command(directory, arguments).output().unwrap()
}

#[test]
fn load_counts_what_it_drives_and_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let output = load(directory.path(), &["--sessions", "6", "--executions", "4", "--json"]);
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty(), "no terminal, no progress: {output:?}");
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["cycles"], 6 * 4 * 3, "three rounds: {told}");
    assert_eq!((&told["applies_per_cycle"], &told["conflicts"]), (&5.0.into(), &0.into()));
    let figure = |of: &Value| of.as_f64().filter(|figure| *figure > 0.0).unwrap();
    let latency = &told["latency"];
    assert!(figure(&latency["p50_ms"]) <= figure(&latency["p99_ms"]));
    assert!(figure(&latency["p99_ms"]) <= figure(&latency["max_ms"]));
    assert!(figure(&told["percent_of_reference"]) > 0.0);
    // Neither the scratch store nor one of the operator's is there.
    assert_eq!(fs::read_dir(directory.path().join("data")).unwrap().count(), 0);
}

#[test]
fn an_interrupted_load_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let begun = || data.read_dir().is_ok_and(|mut files| files.next().is_some());
    let child = command(directory.path(), &["--sessions", "10000", "--executions", "10000"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let inside = |name: &str| {
        let mut files = data.read_dir().into_iter().flatten().flatten();
        files.any(|file| file.path().join(name).exists())
    };
    while !begun() || !inside("dogwatch.db-wal") {
        crate::support::process::pause_here();
    }
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("stopped"), "{output:?}");
    assert!(!begun(), "the scratch store is left");
}

#[test]
fn load_says_what_may_be_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let output = load(directory.path(), &["--sessions", "0"]);
    assert_eq!(output.status.code(), Some(64));
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("1..=10000"), "{told}");
}
