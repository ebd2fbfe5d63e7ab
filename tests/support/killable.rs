//! The program itself as a process, for what only SIGKILL shows: `dogwatch chat --json` before the
//! fake service.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::fake_llm::FakeLlm;

/// Fails a test that hangs; nothing waits for it.
const PATIENCE: Duration = Duration::from_mins(1);

/// A bot that can be killed.
pub(crate) struct Program {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    /// All events so far.
    pub(crate) events: Vec<Value>,
}

#[expect(clippy::disallowed_methods, reason = "the program under test is a process of its own")]
fn command(dir: &Path, subcommand: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dogwatch"));
    command.arg(subcommand).arg("--config").arg(dir.join("dogwatch.toml")).arg("--json");
    command.stderr(Stdio::inherit()).kill_on_drop(true);
    command
}

/// Writes its configuration.
pub(crate) fn configure(dir: &Path, llm: &FakeLlm) {
    let text = format!(
        "data_dir = \"data\"\n[model]\nkind = \"openai\"\nbase_url = \"{}\"\nmodel = \"m\"\n\
         [watch]\nsandbox = \"off\"\n[console]\nhistory = false\n",
        llm.base_url()
    );
    std::fs::write(dir.join("dogwatch.toml"), text).unwrap();
}

impl Program {
    /// Starts it in this directory, with this time zone, and waits until it reads lines.
    pub(crate) async fn start(dir: &Path, zone: &str) -> Self {
        let mut child = command(dir, "chat")
            .env("TZ", zone)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut program = Self { child, input, output, events: Vec::new() };
        program.until(|event| event["event"] == "ready").await;
        program
    }

    /// Types a line.
    pub(crate) async fn say(&mut self, line: &str) {
        self.input.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    /// Reads events until one is as wanted.
    pub(crate) async fn until(&mut self, is: impl Fn(&Value) -> bool) -> Value {
        loop {
            let line = tokio::time::timeout(PATIENCE, self.output.next_line()).await;
            let Ok(Ok(Some(line))) = line else {
                panic!("it does not happen; so far: {:#?}", self.events)
            };
            let event: Value = serde_json::from_str(&line).unwrap();
            self.events.push(event.clone());
            if is(&event) {
                return event;
            }
        }
    }

    /// The next post.
    pub(crate) async fn post(&mut self) -> Value {
        self.until(|event| event["event"] == "post").await
    }

    /// SIGKILL.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// Ends it as a person would; what it said to the end.
    pub(crate) async fn leave(mut self) {
        drop(self.input);
        while let Ok(Ok(Some(_))) = tokio::time::timeout(PATIENCE, self.output.next_line()).await {}
        assert!(self.child.wait().await.unwrap().success());
    }
}

/// What the audit of this store says.
pub(crate) async fn audit(dir: &Path) -> Value {
    let output = command(dir, "audit").output().await.unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{told}");
    serde_json::from_str(&told).unwrap()
}
