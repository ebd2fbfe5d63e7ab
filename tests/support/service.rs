//! `dogwatch serve` as a process: started with a configuration, heard by its log, asked over HTTP,
//! ended by its id.

// So that clippy knows the whole module as a test.
#![cfg(test)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::program::Home;

/// Only to fail a test that hangs.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// What a service's configuration needs besides: a port of the system's choice, a log to be read.
pub(crate) const SERVED: &str = "[http]\nbind = \"127.0.0.1:0\"\n[log]\nformat = \"json\"\n";

/// A running service, ended with its test.
pub(crate) struct Service {
    child: Child,
    lines: Receiver<String>,
    /// Its log so far.
    pub(crate) log: Vec<String>,
    pub(crate) address: SocketAddr,
}

/// An answer over HTTP.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let of_it =
            |line: &&str| line.split(':').next().is_some_and(|it| it.eq_ignore_ascii_case(name));
        self.head.lines().find(of_it)?.split_once(": ").map(|(_, value)| value)
    }
}

impl Service {
    /// Starts one that serves; it may not be ready yet.
    pub(crate) fn start(home: &Home) -> Self {
        Self::of(home.command(&["serve", "--config", "dogwatch.toml"]))
    }

    /// Likewise, by this command.
    pub(crate) fn of(mut command: Command) -> Self {
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        let (sender, lines) = channel();
        thread::spawn(move || {
            let mut line = String::new();
            while let Ok(1..) = errors.read_line(&mut line) {
                if sender.send(std::mem::take(&mut line)).is_err() {
                    return;
                }
            }
        });
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut service = Self { child, lines, log: vec![], address: nowhere };
        let serves = service.hear("serves");
        service.address = serves["http.address"].as_str().unwrap().parse().unwrap();
        service
    }

    /// Starts one, and waits until it works.
    pub(crate) fn ready(home: &Home) -> Self {
        Self::start(home).works()
    }

    /// Waits until it works.
    pub(crate) fn works(mut self) -> Self {
        self.hear("ready");
        self
    }

    /// Ends it as a power failure would.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for a line of its log with this message.
    pub(crate) fn hear(&mut self, message: &str) -> Value {
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => {
                    self.log.push(line.clone());
                    let said: Value = serde_json::from_str(&line).unwrap_or(Value::Null);
                    if said["message"].as_str().is_some_and(|text| text.starts_with(message)) {
                        return said;
                    }
                }
                Err(RecvTimeoutError::Timeout) => panic!("no {message:?} in {:#?}", self.log),
                Err(RecvTimeoutError::Disconnected) => panic!("it ended: {:#?}", self.log),
            }
        }
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).unwrap();
    }

    /// Asks it to end, and waits: its exit code.
    pub(crate) fn end(mut self) -> (Option<i32>, Vec<String>) {
        self.signal(Signal::SIGTERM);
        self.ended()
    }

    /// Waits until it has ended.
    pub(crate) fn ended(&mut self) -> (Option<i32>, Vec<String>) {
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => self.log.push(line),
                Err(RecvTimeoutError::Timeout) => panic!("no end: {:#?}", self.log),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let code = self.child.wait().unwrap().code();
        (code, std::mem::take(&mut self.log))
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask(&format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"))
    }

    /// Sends this text over a connection of its own.
    pub(crate) fn ask(&self, request: &str) -> Answer {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        answer(&mut stream)
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// One whole number of its metrics, 0 where there is none yet.
    pub(crate) fn sample(&self, series: &str) -> u64 {
        let text = self.get("/metrics").body;
        let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        value.map_or(0, |value| value.parse().unwrap())
    }
}

/// Reads an answer, and the end of its connection.
pub(crate) fn answer(stream: &mut TcpStream) -> Answer {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Both fail when it has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
