//! A real `redis-server` of a test's own: in a directory of its own, on a socket in it, ended by
//! its id.

// So that clippy knows the whole module as a test.
#![cfg(test)]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, Weak};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// A server that lives as long as this.
pub(crate) struct RedisServer {
    child: Child,
    directory: TempDir,
    options: Vec<String>,
}

impl RedisServer {
    /// Starts one with an append-only file, on a socket alone; `options` are added, and win.
    pub(crate) fn start(options: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let options: Vec<String> = options.iter().map(ToString::to_string).collect();
        let child = launch(directory.path(), &options);
        Self { child, directory, options }
    }

    /// One that all tests of this process share, while any of them has it.
    pub(crate) fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<RedisServer>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let server = Arc::new(Self::start(&[]));
            *shared = Arc::downgrade(&server);
            server
        })
    }

    /// Where its files are.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Its socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    /// How it is reached.
    pub(crate) fn url(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// A connection that waits for each answer, for what only a test asks.
    pub(crate) fn admin(&self) -> redis::Connection {
        redis::Client::open(self.url()).unwrap().get_connection().expect("it answers")
    }

    /// Asks one thing.
    pub(crate) fn ask<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let (name, arguments) = words.split_first().expect("a command");
        redis::cmd(name).arg(arguments).query(&mut self.admin()).expect("it answers")
    }

    /// Stops it where it stands (SIGSTOP), or lets it go on.
    pub(crate) fn stand_still(&self, still: bool) {
        let pid = Pid::from_child(&self.child);
        let signal = if still { Signal::STOP } else { Signal::CONT };
        kill_process(pid, signal).expect("it is ours");
    }

    /// Kills it (SIGKILL); its files stay.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it is ours");
        self.child.wait().expect("it is ours");
    }

    /// Starts it again on the same files, after [`RedisServer::kill`].
    pub(crate) fn start_again(&mut self) {
        self.child = launch(self.directory.path(), &self.options);
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // It may be dead already.
        let _dead = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// A sentinel that watches one master, ended by its id.
pub(crate) struct Sentinel {
    child: Child,
    port: u16,
    _directory: TempDir,
}

impl Sentinel {
    /// Watches the master at this port under the name `main`, alone, and soon says that it is down.
    pub(crate) fn start(master: u16) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let port = free_port();
        let text = format!(
            "port {port}\nbind 127.0.0.1\nsentinel monitor main 127.0.0.1 {master} 1\n\
             sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 2000\n"
        );
        std::fs::write(directory.path().join("sentinel.conf"), text).expect("a file");
        let options = ["sentinel.conf", "--sentinel"].map(ToOwned::to_owned);
        let child = run(directory.path(), &options, "+monitor master main");
        Self { child, port, _directory: directory }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis-sentinel://127.0.0.1:{}/main", self.port)
    }

    /// Asks one thing.
    pub(crate) fn ask<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let client = redis::Client::open(format!("redis://127.0.0.1:{}", self.port));
        let mut connection = client.expect("a URL").get_connection().expect("it answers");
        let (name, arguments) = words.split_first().expect("a command");
        redis::cmd(name).arg(arguments).query(&mut connection).expect("it answers")
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _dead = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// A port of loopback that nobody has at the moment.
pub(crate) fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    listener.local_addr().expect("bound").port()
}

/// Returns once it accepts connections.
fn launch(directory: &Path, options: &[String]) -> Child {
    let usual = ["--port", "0", "--unixsocket", "socket", "--save", "", "--appendonly", "yes"];
    let usual = usual.into_iter().chain(["--bind", "127.0.0.1", "--daemonize", "no"]);
    let all: Vec<String> = usual.map(ToOwned::to_owned).chain(options.iter().cloned()).collect();
    run(directory, &all, "eady to accept connections")
}

/// Returns once it has said that it is ready.
#[expect(clippy::disallowed_methods, reason = "the server under test is a process of its own")]
fn run(directory: &Path, options: &[String], ready: &str) -> Child {
    let mut child = std::process::Command::new("redis-server")
        .args(options)
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("redis-server starts: tests/run.sh installs it");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut said = vec![];
    loop {
        let Some(Ok(line)) = lines.next() else {
            let _reaped = child.wait();
            panic!("redis-server ended before it was ready:\n{}", said.join("\n"));
        };
        if line.contains(ready) {
            break;
        }
        said.push(line);
    }
    // Nobody reads on, but a full pipe would stop it.
    std::thread::spawn(move || lines.for_each(drop));
    child
}
