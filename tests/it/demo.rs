//! The demo and a piped chat, with the real program: what a newcomer runs first.

// So that clippy knows the whole module as a test.
#![cfg(test)]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const PROGRAM: &str = env!("CARGO_BIN_EXE_dogwatch");

/// A program that is ended with its test.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        // Both fail when it has ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[expect(clippy::disallowed_methods, reason = "the program under test is a process of its own")]
fn start(arguments: &[&str], directory: &Path) -> Program {
    let child = Command::new(PROGRAM)
        .args(arguments)
        .env("TMPDIR", directory)
        .env("NO_COLOR", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    Program(child)
}

fn rest(stream: &mut Option<impl Read>) -> String {
    let mut text = String::new();
    stream.as_mut().unwrap().read_to_string(&mut text).unwrap();
    text
}

/// Nothing in this directory, and no process that was started with it.
fn nothing_is_left(directory: &Path) {
    let files: Vec<_> = fs::read_dir(directory).unwrap().flatten().collect();
    assert!(files.is_empty(), "{files:?}");
    let wanted = directory.to_str().unwrap();
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let arguments = fs::read(process.path().join("cmdline")).unwrap_or_default();
        let arguments = String::from_utf8_lossy(&arguments).replace('\0', " ");
        assert!(!arguments.contains(wanted), "{arguments}");
    }
}

#[test]
fn the_demo_happens_and_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut demo = start(&["demo"], directory.path());
    let told = rest(&mut demo.0.stdout);
    let errors = rest(&mut demo.0.stderr);
    let well = demo.0.wait().unwrap().success();
    assert!(well, "{told}\n{errors}");
    assert_eq!(told.matches('✓').count(), 10, "{told}");
    assert!(!told.contains('✗') && !told.contains('\u{1b}'), "{told}");
    nothing_is_left(directory.path());
}

#[test]
fn an_interrupted_demo_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut demo = start(&["demo"], directory.path());
    let mut lines = BufReader::new(demo.0.stdout.take().unwrap()).lines();
    let running = lines.by_ref().map_while(Result::ok).find(|line| line.contains("watcher runs"));
    assert!(running.is_some(), "{}", rest(&mut demo.0.stderr));
    kill(Pid::from_raw(demo.0.id().cast_signed()), Signal::SIGINT).unwrap();
    let errors = rest(&mut demo.0.stderr);
    assert_eq!(demo.0.wait().unwrap().code(), Some(1), "{errors}");
    assert!(errors.contains("stopped"), "{errors}");
    nothing_is_left(directory.path());
}

#[test]
fn a_piped_chat_waits_for_its_watcher_and_goes_on_where_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("dogwatch.toml");
    fs::write(&config, "data_dir = \"data\"\n[watch]\nsandbox = \"off\"\n").unwrap();
    let config = config.to_str().unwrap();
    let chat = |arguments: &[&str], lines: &str| {
        let arguments = [&["chat", "--config", config], arguments].concat();
        let mut chat = start(&arguments, directory.path());
        chat.0.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
        let told = rest(&mut chat.0.stdout);
        let errors = rest(&mut chat.0.stderr);
        assert!(chat.0.wait().unwrap().success(), "{told}\n{errors}");
        told
    };
    let told = chat(&[], "watch deployment x1\n/watchers now\n");
    assert!(told.contains("! `/watchers` takes nothing after it"), "{told}");
    assert!(told.contains("It runs in the background as auto-notify-watc-0001."), "{told}");
    assert!(told.contains("1 watcher runs on"), "{told}");
    // Another process finds it and waits for its end.
    let told = chat(&["--wait"], "status\n");
    assert!(told.contains("dogwatch (woken): Deployment x1 is healthy."), "{told}");
}
