//! The real program as a person starts it: in a home of its own, with a configuration, over pipes
//! or at a terminal. Owns its processes: each ends with its test.

// So that clippy knows the whole module as a test.
#![cfg(test)]

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use nix::pty::{Winsize, openpty};

/// The program under test.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_dogwatch");
/// The model's key. Nobody may ever see it.
pub(crate) const KEY: &str = "sk-hush-1f2e3d4c5b6a";
/// Only to fail a test that hangs.
const PATIENCE: Duration = Duration::from_secs(90);

/// A directory with a configuration and the data of one bot.
pub(crate) struct Home {
    directory: tempfile::TempDir,
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Home {
    /// With this text as its `dogwatch.toml`, and its data in `data`.
    pub(crate) fn new(config: &str) -> Self {
        let home = Self { directory: tempfile::tempdir().unwrap() };
        home.write("dogwatch.toml", &format!("data_dir = \"data\"\n{config}"));
        home
    }

    /// With a model behind this URL, that is silent for so long at most.
    pub(crate) fn with_model(base_url: &str, idle_ms: u64) -> Self {
        Self::new(&format!(
            "[model]\nkind = \"openai\"\nbase_url = \"{base_url}\"\nmodel = \"m\"\n\
             api_key = {{ env = \"DOGWATCH_TEST_KEY\" }}\nidle_ms = {idle_ms}\n\
             [watch]\nsandbox = \"off\"\n"
        ))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// The text with this home's path as `HOME`.
    pub(crate) fn anonymous(&self, text: &str) -> String {
        text.replace(self.directory.path().to_str().unwrap(), "HOME")
    }

    #[expect(clippy::disallowed_methods, reason = "the program under test is a process of its own")]
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command
            .args(arguments)
            .current_dir(self.directory.path())
            .env("HOME", self.directory.path())
            .env_remove("XDG_STATE_HOME")
            .env_remove("XDG_CONFIG_HOME")
            .env("DOGWATCH_TEST_KEY", KEY)
            .env("TERM", "xterm")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs it to its end, with this environment besides.
    pub(crate) fn run_with(&self, arguments: &[&str], env: &[(&str, &str)]) -> Ran {
        let output = self.command(arguments).envs(env.iter().copied()).output().unwrap();
        Ran {
            code: output.status.code().unwrap(),
            out: self.anonymous(&String::from_utf8(output.stdout).unwrap()),
            err: self.anonymous(&String::from_utf8(output.stderr).unwrap()),
        }
    }

    /// Runs it to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        self.run_with(arguments, &[])
    }

    /// Runs it to its end with this home's configuration.
    pub(crate) fn run_here(&self, arguments: &[&str]) -> Ran {
        self.run(&[arguments, &["--config", "dogwatch.toml"]].concat())
    }

    /// `dogwatch chat` over pipes.
    pub(crate) fn chat(&self, arguments: &[&str]) -> Chat {
        let arguments = [&["chat", "--config", "dogwatch.toml"], arguments].concat();
        let mut child = self.command(&arguments).stdin(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        thread::spawn(move || {
            let mut line = String::new();
            while let Ok(1..) = out.read_line(&mut line) {
                if sender.send(std::mem::take(&mut line)).is_err() {
                    return;
                }
            }
        });
        Chat { child, lines, shown: String::new() }
    }

    /// `dogwatch chat` at a terminal of so many columns.
    pub(crate) fn terminal(&self, columns: u16) -> Terminal {
        let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(Some(&size), None).unwrap();
        let stdio = || Stdio::from(pty.slave.try_clone().unwrap());
        let child = self
            .command(&["chat", "--config", "dogwatch.toml"])
            .stdin(stdio())
            .stdout(stdio())
            .spawn()
            .unwrap();
        let master = File::from(pty.master);
        let mut output = master.try_clone().unwrap();
        let (sender, pieces) = channel();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = output.read(&mut buffer) {
                if sender.send(buffer[..n].to_vec()).is_err() {
                    return;
                }
            }
        });
        Terminal { child, master, _slave: pty.slave, pieces, screen: String::new() }
    }

    /// No file of this home has the model's key in it.
    pub(crate) fn keeps_the_secret(&self) {
        let mut rest = vec![self.directory.path().to_owned()];
        while let Some(path) = rest.pop() {
            if path.is_dir() {
                rest.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            } else if is_regular(&path) {
                let bytes = fs::read(&path).unwrap();
                let text = String::from_utf8_lossy(&bytes);
                assert!(!text.contains(KEY), "the key is in {}", path.display());
            }
        }
        let log = fs::read_to_string(self.path("data/dogwatch.log")).unwrap();
        assert!(!log.is_empty(), "there is a log that could hold it");
    }
}

fn is_regular(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|it| it.is_file())
}

/// A chat over pipes.
pub(crate) struct Chat {
    child: Child,
    lines: Receiver<String>,
    /// What it has shown so far.
    pub(crate) shown: String,
}

impl Chat {
    pub(crate) fn say(&mut self, line: &str) {
        let stdin = self.child.stdin.as_mut().expect("the input is open");
        writeln!(stdin, "{line}").unwrap();
    }

    /// Waits for a line with this in it.
    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|_| panic!("no {text:?} in:\n{}", self.shown));
            self.shown.push_str(&line);
            if line.contains(text) {
                return line;
            }
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it as a power failure would.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Closes the input and waits for the end; answers all that was shown.
    pub(crate) fn ends_well(mut self) -> String {
        drop(self.child.stdin.take());
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            self.shown.push_str(&line);
        }
        let mut errors = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        let code = self.child.wait().unwrap().code();
        assert_eq!((code, errors.as_str()), (Some(0), ""), "{}", self.shown);
        assert!(!self.shown.contains(KEY), "{}", self.shown);
        std::mem::take(&mut self.shown)
    }
}

impl Drop for Chat {
    fn drop(&mut self) {
        // Both fail when it has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A chat at a terminal.
pub(crate) struct Terminal {
    child: Child,
    master: File,
    _slave: OwnedFd,
    pieces: Receiver<Vec<u8>>,
    screen: String,
}

impl Terminal {
    pub(crate) fn type_text(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).unwrap();
    }

    /// Waits until this is written, after what was waited for before.
    pub(crate) fn wait_for(&mut self, text: &str) {
        loop {
            if let Some(at) = self.screen.find(text) {
                self.screen.drain(..at + text.len());
                return;
            }
            let piece = self.pieces.recv_timeout(PATIENCE);
            let piece = piece.unwrap_or_else(|_| panic!("no {text:?} in {:?}", self.screen));
            self.screen.push_str(&String::from_utf8_lossy(&piece));
        }
    }

    /// `^D`; it ends with 0.
    pub(crate) fn leave(mut self) {
        self.type_text("\u{4}");
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Both fail when it has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
