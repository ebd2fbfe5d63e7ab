//! `dogwatch load` with the real program: what an operator runs before trusting a store.

// So that clippy knows the whole module as a test.
#![cfg(test)]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_dogwatch");

#[expect(clippy::disallowed_methods, reason = "the program under test is a process of its own")]
fn load(directory: &Path, arguments: &[&str]) -> Output {
    let config = directory.join("dogwatch.toml");
    fs::write(&config, "data_dir = \"data\"\n[watch]\nsandbox = \"off\"\n").unwrap();
    let mut command = Command::new(PROGRAM);
    command.arg("load").arg("--config").arg(&config).args(arguments).output().unwrap()
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
fn load_says_what_may_be_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let output = load(directory.path(), &["--sessions", "0"]);
    assert_eq!(output.status.code(), Some(64));
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("1..=10000"), "{told}");
}
