//! The real program as a chat over pipes: lines in, events out, killed at will; and the place where
//! it lives, which may be a small disk of its own. No test of this directory can be skipped: where
//! a disk cannot be mounted its test fails.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "what a test cannot do fails it"
)]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::process;

const PROGRAM: &str = env!("CARGO_BIN_EXE_dogwatch");
/// Fails a test that hangs; nothing waits for it.
const TOO_LONG: Duration = Duration::from_mins(1);

#[expect(clippy::disallowed_methods, reason = "the program under test is a process of its own")]
fn command(words: &[&str]) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    command
}

/// Configuration, playbook and data of one bot. What still runs there ends with it.
pub(crate) struct Place {
    directory: tempfile::TempDir,
    /// Keeps a disk of its own mounted, which only its namespace sees.
    disk: Option<Child>,
}

impl Place {
    /// On the disk of the host.
    pub(crate) fn new(playbook: &str) -> Self {
        let place = Self { directory: tempfile::tempdir().unwrap(), disk: None };
        place.write("dogwatch.toml", CONFIG);
        place.write("playbook.toml", playbook);
        place
    }

    /// On a disk of this size.
    pub(crate) fn on_a_disk_of(kib: u64, playbook: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_str().unwrap();
        let mount = format!("mount -t tmpfs -o size={kib}k disk {path} && echo up && read over");
        let user: &[&str] = if nix::unistd::geteuid().is_root() { &[] } else { &["-r"] };
        let words = [&["unshare", "-m"], user, &["sh", "-c", &mount]].concat();
        let mut holder = command(&words);
        let mut holder = holder.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "up\n", "no disk could be mounted in a namespace of its own");
        let place = Self { directory, disk: Some(holder) };
        place.write("dogwatch.toml", CONFIG);
        place.write("playbook.toml", playbook);
        place
    }

    fn inside(&self) -> PathBuf {
        let directory = self.directory.path();
        match &self.disk {
            None => directory.to_owned(),
            Some(disk) => {
                let root = PathBuf::from(format!("/proc/{}/root", disk.id()));
                root.join(directory.strip_prefix("/").unwrap())
            }
        }
    }

    /// A path in it, as this test reaches it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.inside().join(name)
    }

    /// The same as its bot knows it.
    pub(crate) fn known_as(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Runs words where its disk is seen.
    pub(crate) fn run(&self, words: &[&str]) -> Output {
        self.seen(words).output().unwrap()
    }

    fn seen(&self, words: &[&str]) -> Command {
        let Some(disk) = &self.disk else { return command(words) };
        let pid = disk.id().to_string();
        let user: &[&str] = if nix::unistd::geteuid().is_root() { &[] } else { &["-U"] };
        command(&[&["nsenter", "-t", &pid, "-m"], user, words].concat())
    }

    /// Fills its disk to the last byte.
    pub(crate) fn fill(&self) {
        let mut file = fs::File::create(self.path("fill")).unwrap();
        for size in [1 << 20, 4_096, 1] {
            while file.write_all(&vec![b'x'; size]).is_ok() {}
        }
    }

    /// Starts a bot, which may fail to.
    pub(crate) fn bot(&self) -> Bot {
        self.bot_with("dogwatch.toml")
    }

    /// With another of its configurations.
    pub(crate) fn bot_with(&self, config: &str) -> Bot {
        self.started(&["--config", &self.known_as(config)])
    }

    /// One that stays after the end of its input until nothing runs any more.
    pub(crate) fn last_bot(&self) -> Bot {
        self.started(&["--wait", "--config", &self.known_as("dogwatch.toml")])
    }

    /// A terminal that is attached to the bot that serves here, in front of this chat.
    pub(crate) fn attached(&self, chat: &str) -> Bot {
        self.started(&["--config", &self.known_as("dogwatch.toml"), "--attach", "--chat", chat])
    }

    /// What starts the bot that serves here.
    pub(crate) fn serve(&self) -> Command {
        self.seen(&[PROGRAM, "serve", "--config", &self.known_as("dogwatch.toml")])
    }

    fn started(&self, arguments: &[&str]) -> Bot {
        let mut child = self
            .seen(&[&[PROGRAM, "chat", "--json"], arguments].concat())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (send, events) = channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in output.split(b'\n').map_while(Result::ok) {
                // A bot that is killed may leave half a line.
                let Ok(event) = serde_json::from_slice::<Value>(&line) else { return };
                if send.send(event).is_err() {
                    return;
                }
            }
        });
        let input = child.stdin.take();
        Bot { child, input, events, seen: Vec::new() }
    }

    /// Whether everything balances, and what the audit says.
    pub(crate) fn audit(&self) -> (bool, Value) {
        let config = self.known_as("dogwatch.toml");
        let output = self.run(&[PROGRAM, "audit", "--json", "--config", &config]);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let said = serde_json::from_slice(&output.stdout).unwrap_or(Value::String(errors));
        (output.status.success(), said)
    }

    /// Processes that were started with its directory, or for it, but for what shims are copies of.
    pub(crate) fn processes(&self) -> Vec<i32> {
        let mark = self.directory.path().to_str().unwrap();
        let of_it = |pid: &i32| {
            ["environ", "cmdline"].iter().any(|file| {
                let text = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
                String::from_utf8_lossy(&text).contains(mark)
            })
        };
        let others = [Some(std::process::id()), self.disk.as_ref().map(Child::id)];
        let all = fs::read_dir("/proc").unwrap();
        let pids = all.filter_map(|item| item.unwrap().file_name().to_str()?.parse().ok());
        pids.filter(|pid: &i32| !others.contains(&Some(pid.cast_unsigned())))
            .filter(of_it)
            .filter(|pid| !process::is_zygote(*pid))
            .collect()
    }

    /// Shims of it.
    pub(crate) fn shims(&self) -> Vec<i32> {
        let is_shim = |pid: &i32| {
            let text = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            text.split(|byte| *byte == 0).nth(1) == Some(b"shim")
        };
        let all: Vec<i32> = self.processes().into_iter().filter(is_shim).collect();
        // Between its fork and its exec a script still looks like the shim that starts it.
        all.iter().filter(|pid| !all.contains(&process::parent(**pid))).copied().collect()
    }

    /// A shim of it was told "go": its script runs.
    pub(crate) fn runs(&self) -> bool {
        self.shims().iter().any(|pid| {
            let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
            children.is_ok_and(|pids| !pids.is_empty())
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for pid in self.processes() {
            let _ended_meanwhile = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        if let Some(disk) = &mut self.disk {
            let _ = disk.kill();
            let _ = disk.wait();
        }
    }
}

const CONFIG: &str = r#"data_dir = "data"
[model]
kind = "scripted"
playbook = "playbook.toml"
[watch]
sandbox = "off"
grace_ms = 500
live_per_person = 10000
[console]
history = false
"#;

/// A running bot, ended with its test.
pub(crate) struct Bot {
    child: Child,
    input: Option<ChildStdin>,
    events: Receiver<Value>,
    /// What it has said so far.
    pub(crate) seen: Vec<Value>,
}

impl Bot {
    /// Types a line; one that is gone does not hear it.
    pub(crate) fn say(&mut self, line: impl AsRef<[u8]>) {
        let line = [line.as_ref(), b"\n"].concat();
        let _gone = self.input.as_mut().unwrap().write_all(&line);
    }

    /// The next event that is like that.
    pub(crate) fn wait(&mut self, is_like_that: impl Fn(&Value) -> bool) -> Value {
        loop {
            match self.events.recv_timeout(TOO_LONG) {
                Ok(event) => {
                    self.seen.push(event.clone());
                    if is_like_that(&event) {
                        return event;
                    }
                }
                Err(RecvTimeoutError::Timeout) => panic!("it hangs; it said {:#?}", self.last()),
                Err(RecvTimeoutError::Disconnected) => {
                    let errors = self.errors();
                    panic!("it ended; it said {:#?} and {errors}", self.last())
                }
            }
        }
    }

    fn last(&self) -> &[Value] {
        &self.seen[self.seen.len().saturating_sub(6)..]
    }

    /// Waits until lines are read.
    pub(crate) fn ready(mut self) -> Self {
        self.wait(|event| event["event"] == "ready");
        self
    }

    /// The next post with this in its text.
    pub(crate) fn post(&mut self, text: &str) -> String {
        let has = |event: &Value| event["text"].as_str().is_some_and(|said| said.contains(text));
        let post = self.wait(|event| event["event"] == "post" && has(event));
        post["text"].as_str().unwrap().to_owned()
    }

    /// The next error that it shows.
    pub(crate) fn error(&mut self) -> String {
        let error = self.wait(|event| event["event"] == "error");
        error["what"].as_str().unwrap().to_owned()
    }

    /// Hears what it says for so long.
    pub(crate) fn listen(&mut self, time: Duration) {
        let clock = nix::time::ClockId::CLOCK_MONOTONIC;
        let now = || Duration::from(clock.now().unwrap());
        let until = now() + time;
        while let Ok(event) = self.events.recv_timeout(until.saturating_sub(now())) {
            self.seen.push(event);
        }
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().cast_signed());
        let _ended_meanwhile = kill(pid, signal);
    }

    /// Kills it, and takes what it had said.
    pub(crate) fn kill(mut self) -> Vec<Value> {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.seen.extend(self.events.iter());
        std::mem::take(&mut self.seen)
    }

    /// Waits until it has ended by itself; its exit code, and what it had said.
    pub(crate) fn end(mut self) -> (Option<i32>, Vec<Value>) {
        loop {
            match self.events.recv_timeout(TOO_LONG) {
                Ok(event) => self.seen.push(event),
                Err(RecvTimeoutError::Timeout) => panic!("no end; it said {:#?}", self.last()),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let status = self.child.wait().unwrap();
        (status.code(), std::mem::take(&mut self.seen))
    }

    /// Ends its input, then waits for its end.
    pub(crate) fn leave(mut self) -> (Option<i32>, Vec<Value>) {
        self.input = None;
        self.end()
    }

    /// What one that did not start said of it: its exit code and its words.
    pub(crate) fn refusal(mut self) -> (Option<i32>, String) {
        let errors = self.errors();
        (self.child.wait().unwrap().code(), errors)
    }

    fn errors(&mut self) -> String {
        let mut text = String::new();
        let read = self.child.stderr.take().expect("its errors are read once");
        for line in BufReader::new(read).lines().map_while(Result::ok) {
            text.push_str(&line);
            text.push('\n');
        }
        text
    }
}

impl Drop for Bot {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Who waits to read this pipe goes on; if there is nobody yet, the first who comes.
pub(crate) fn let_go(fifo: &Path) {
    drop(fs::OpenOptions::new().write(true).open(fifo).unwrap());
}

/// All who wait to read this pipe go on; it may be nobody.
pub(crate) fn let_all_go(fifo: &Path) {
    let flags = nix::fcntl::OFlag::O_NONBLOCK.bits();
    let _nobody = fs::OpenOptions::new().write(true).custom_flags(flags).open(fifo);
}
