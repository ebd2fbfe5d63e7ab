//! The demo's bot: a process of its own, so that it can be killed. Owns starting it, speaking to it
//! and ending it, and what it leaves. Must not know the story.

use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use rustix::process::{PidfdFlags, pidfd_open};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::DemoError;
use crate::console::event::Event;
use crate::{app, watch};

/// The files of one demo, in a directory of its own that goes with it.
pub(super) struct Stage {
    directory: PathBuf,
    exe: PathBuf,
}

/// How often what is left is looked for and killed.
const SWEEPS_MAX: u32 = 20;
/// A process that was killed has ended within so many milliseconds, and one that starts has its
/// arguments; else it is looked for again.
const END_MS: u16 = 100;

const CONFIG: &str = r#"# Written by `dogwatch demo`.
data_dir = "data"

[model]
kind = "scripted"
playbook = "playbook.toml"

[console]
history = false
"#;

impl Stage {
    /// Makes the directory, its name made unique by `tag`.
    pub(super) fn set(exe: PathBuf, parent: &Path, tag: &str) -> Result<Self, DemoError> {
        let directory = parent.join(format!("dogwatch-demo-{tag}"));
        let failed = |source| DemoError::Stage { directory: directory.clone(), source };
        fs::create_dir(&directory).map_err(failed)?;
        let stage = Self { directory: directory.clone(), exe };
        fs::create_dir(directory.join("data")).map_err(failed)?;
        fs::write(stage.config(), stage.settings()).map_err(failed)?;
        fs::write(directory.join("playbook.toml"), super::PLAYBOOK).map_err(failed)?;
        Ok(stage)
    }

    /// What the demo runs is its own, so it runs also where nothing can hold it.
    fn settings(&self) -> String {
        let python = watch::find_python(Path::new("python3"), &app::environment());
        let found = python.map(|python| {
            let limits = watch::Limits::default();
            watch::probe::ask(&self.exe, &python, limits, &self.directory).tier.is_some()
        });
        let watch = match found {
            Ok(false) => "\n[watch]\nsandbox = \"off\"\n",
            // Without Python the bot itself says what is missing.
            Ok(true) | Err(_) => "",
        };
        format!("{CONFIG}{watch}")
    }

    fn config(&self) -> PathBuf {
        self.directory.join("dogwatch.toml")
    }

    fn errors(&self) -> PathBuf {
        self.directory.join("bot.err")
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the demo's bot is a process of its own, so that it can be killed"
    )]
    fn command(&self, subcommand: &str) -> Command {
        let mut command = Command::new(&self.exe);
        command.arg(subcommand).arg("--config").arg(self.config()).arg("--json");
        command.kill_on_drop(true);
        command
    }

    /// Starts the bot. Its group is its own, so that `^C` reaches the demo alone.
    pub(super) fn start(&self) -> Result<Bot, DemoError> {
        let errors = fs::File::options().create(true).append(true).open(self.errors());
        let mut child = errors
            .and_then(|errors| {
                self.command("chat")
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .stderr(errors)
                    .process_group(0)
                    .spawn()
            })
            .map_err(DemoError::Bot)?;
        let input = child.stdin.take();
        let output = child.stdout.take().map(|output| BufReader::new(output).lines());
        Ok(Bot { child, input, output, killed: false })
    }

    /// Runs the audit: is everything accounted for, and what does it say.
    pub(super) async fn audit(&self) -> Result<(bool, Vec<String>), DemoError> {
        let output = self.command("audit").output().await.map_err(DemoError::Bot)?;
        let told = String::from_utf8_lossy(&output.stdout);
        let mut summary = summary(&told);
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            summary.extend(errors.lines().map(str::to_owned));
        }
        Ok((output.status.success(), summary))
    }

    /// The last words of the bot, for when it failed.
    pub(super) fn last_words(&self) -> Vec<String> {
        let logs = [self.errors(), self.directory.join("data").join("dogwatch.log")];
        let tail = |path: PathBuf| {
            let text = fs::read_to_string(path).unwrap_or_default();
            let lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.into_iter().rev().take(12).rev().collect::<Vec<_>>()
        };
        logs.into_iter().flat_map(tail).collect()
    }

    /// The processes that still work for this demo: its directory is in their arguments.
    pub(super) fn leftovers(&self) -> Vec<Pid> {
        let wanted = self.directory.to_string_lossy().into_owned();
        others().filter(|pid| arguments(*pid).contains(&wanted)).collect()
    }

    /// Processes of this program that have no arguments yet, so that nobody knows whose they are.
    fn starting(&self) -> Vec<Pid> {
        let ours =
            |pid: &Pid| fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == self.exe);
        others().filter(|pid| arguments(*pid).is_empty() && ours(pid)).collect()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        for _ in 0..SWEEPS_MAX {
            let (left, starting) = (self.leftovers(), self.starting());
            if left.is_empty() && starting.is_empty() {
                break;
            }
            for pid in &left {
                // A watcher dies with its supervisor.
                let _ = kill(*pid, Signal::SIGKILL);
            }
            left.into_iter().chain(starting).for_each(await_end);
        }
        // A process that is just dying may still write: a second try finds it gone.
        if fs::remove_dir_all(&self.directory).is_err() {
            let _ = fs::remove_dir_all(&self.directory);
        }
    }
}

/// All processes but this one.
fn others() -> impl Iterator<Item = Pid> {
    let own = Pid::this();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.map(Pid::from_raw).filter(move |pid| *pid != own)
}

/// Waits a moment for the end of a process.
fn await_end(pid: Pid) {
    let pid = rustix::process::Pid::from_raw(pid.as_raw());
    let opened = pid.map(|pid| pidfd_open(pid, PidfdFlags::empty()));
    let Some(Ok(process)) = opened else { return };
    let mut ended = [PollFd::new(process.as_fd(), PollFlags::POLLIN)];
    // One that does not end is looked for again.
    let _ = poll(&mut ended, PollTimeout::from(END_MS));
}

fn arguments(pid: Pid) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The numbers of the audit, one line each. The audit owns its shape; what is not a number or a
/// table of numbers is left out.
fn summary(told: &str) -> Vec<String> {
    let Ok(value) = serde_json::from_str::<serde_json::Value>(told) else {
        return told.lines().map(str::to_owned).collect();
    };
    let mut numbers = Vec::new();
    gather("", &value, &mut numbers);
    if numbers.is_empty() { Vec::new() } else { vec![format!("audit: {}", numbers.join(", "))] }
}

fn gather(name: &str, value: &serde_json::Value, numbers: &mut Vec<String>) {
    match value {
        serde_json::Value::Number(number) if number.as_u64() != Some(0) => {
            numbers.push(format!("{name} {number}"));
        }
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                gather(name, value, numbers);
            }
        }
        serde_json::Value::Number(_)
        | serde_json::Value::Null
        | serde_json::Value::Bool(_)
        | serde_json::Value::String(_)
        | serde_json::Value::Array(_) => {}
    }
}

/// A running bot.
pub(super) struct Bot {
    child: Child,
    input: Option<ChildStdin>,
    output: Option<Lines<BufReader<ChildStdout>>>,
    killed: bool,
}

impl Bot {
    /// The next event; `None` when it will say nothing more.
    pub(super) async fn next(&mut self) -> Result<Option<Event>, DemoError> {
        let Some(output) = &mut self.output else { return Ok(None) };
        match output.next_line().await.map_err(DemoError::Bot)? {
            Some(line) => match serde_json::from_str(&line) {
                Ok(event) => Ok(Some(event)),
                // It died in the middle of a line.
                Err(_) if self.killed => Ok(None),
                Err(error) => Err(DemoError::Words { line, what: error.to_string() }),
            },
            None => Ok(None),
        }
    }

    /// Types a line.
    pub(super) async fn type_line(&mut self, line: &str) -> Result<(), DemoError> {
        let Some(input) = &mut self.input else { return Ok(()) };
        let line = format!("{line}\n");
        input.write_all(line.as_bytes()).await.map_err(DemoError::Bot)?;
        input.flush().await.map_err(DemoError::Bot)
    }

    /// Ends its input.
    pub(super) fn leave(&mut self) {
        self.input = None;
    }

    /// Kills it at once.
    pub(super) fn kill(&mut self) -> Result<(), DemoError> {
        self.killed = true;
        self.child.start_kill().map_err(DemoError::Bot)
    }

    /// Waits until it is gone; did it exit with 0?
    pub(super) async fn wait(&mut self) -> Result<bool, DemoError> {
        Ok(self.child.wait().await.map_err(DemoError::Bot)?.success())
    }
}

impl Drop for Bot {
    fn drop(&mut self) {
        // Its id is `None` once it was waited for; then its group is no longer ours to touch.
        if let Some(id) = self.child.id().and_then(|id| i32::try_from(id).ok()) {
            let _ = killpg(Pid::from_raw(id), Signal::SIGKILL);
        }
    }
}
