//! The talk on a pseudo-terminal: this test binary started again with the terminal as its stdin
//! and stdout, and a socket beside it to tell it what to post and to hear what it took.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use dogwatch::console::{self, Mode, Reach};
use dogwatch::core::arrival::What;
use dogwatch::core::execution::{PostSort, State, Status};
use dogwatch::ports::{Channel, Progress, SessionView};
use nix::pty::{Winsize, openpty};
use nix::sys::termios::{Termios, tcgetattr};
use tokio_util::sync::CancellationToken;

use super::bench::{self, CountingIds, FakeDesk, PATIENCE, RuntimeClock, Told};

const SOCKET: &str = "DOGWATCH_TEST_PTY_SOCKET";

/// The person's side.
pub(crate) struct Terminal {
    child: Child,
    master: File,
    slave: OwnedFd,
    before: Termios,
    pieces: Receiver<Vec<u8>>,
    screen: String,
    socket: BufReader<UnixStream>,
    _directory: tempfile::TempDir,
}

impl Terminal {
    #[expect(clippy::disallowed_methods, reason = "a terminal belongs to a process of its own")]
    pub(crate) fn open(child_test: &str) -> Self {
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(Some(&size), None).unwrap();
        let before = tcgetattr(&pty.slave).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let stdio = || Stdio::from(pty.slave.try_clone().unwrap());
        let child = Command::new(std::env::current_exe().unwrap())
            .args([child_test, "--exact", "--ignored", "--nocapture"])
            .env(SOCKET, &path)
            .env("TERM", "xterm")
            .stdin(stdio())
            .stdout(stdio())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (socket, _) = listener.accept().unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
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
        Self {
            child,
            master,
            slave: pty.slave,
            before,
            pieces,
            screen: String::new(),
            socket: BufReader::new(socket),
            _directory: directory,
        }
    }

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

    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.socket.get_mut(), "{line}").unwrap();
    }

    pub(crate) fn hear(&mut self) -> String {
        let mut line = String::new();
        self.socket.read_line(&mut line).expect("the child took something");
        line.trim_end().to_owned()
    }

    /// Is the terminal as it was before the child was started?
    pub(crate) fn is_as_before(&self) -> bool {
        tcgetattr(&self.slave).unwrap() == self.before
    }

    /// The child closes its socket and exits with 0.
    pub(crate) fn ends_well(&mut self) {
        let mut rest = String::new();
        self.socket.read_to_string(&mut rest).expect("the child ends");
        assert!(self.child.wait().unwrap().success(), "{rest}");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Both fail when it has ended well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The talk's side. Without a socket there is nothing to do.
#[expect(clippy::disallowed_methods, reason = "the socket's path comes from the parent test")]
pub(crate) fn child() {
    let Ok(path) = std::env::var(SOCKET) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(talk(UnixStream::connect(path).unwrap()));
    // The editor's thread may still wait for a key.
    runtime.shutdown_background();
}

fn view(what: &str) -> SessionView {
    let (id, name) = ("auto-notify-nigh-0001", "Nightly");
    if what == "runs" {
        let live = vec![bench::execution(id, name, State::Running)];
        SessionView { live, ..bench::idle() }
    } else {
        let ended = vec![bench::over(id, name, Status::Completed)];
        SessionView { ended, ..bench::idle() }
    }
}

async fn talk(socket: UnixStream) {
    let (desk, mut told) = FakeDesk::new();
    let (console, seat) = console::open(bench::settings(Mode::Interactive));
    let stopped = CancellationToken::new();
    let reach = Reach {
        desk: desk.clone(),
        clock: Arc::new(RuntimeClock::start()),
        ids: Arc::new(CountingIds::default()),
        stopped: stopped.clone(),
    };
    let mut answers = socket.try_clone().unwrap();
    let handle = tokio::runtime::Handle::current();
    thread::spawn(move || {
        let mut items = 0;
        for line in BufReader::new(socket).lines().map_while(Result::ok) {
            let words: Vec<&str> = line.splitn(3, ' ').collect();
            match words.as_slice() {
                ["post", name, text] => {
                    items += 1;
                    let text = text.replace("\\n", "\n");
                    let item = format!("post/{items}");
                    let post = bench::post(name, &item, &text, PostSort::Answer);
                    handle.block_on(console.post(post)).unwrap();
                }
                [what @ ("runs" | "over")] => {
                    desk.show("main", view(what));
                    let address = bench::chat("main").address();
                    console.progress(&bench::session("main"), &address, Progress::Ended);
                }
                _ => stopped.cancel(),
            }
        }
    });
    let hearing = async {
        while let Some(Told::Accepted(session, incoming)) = told.recv().await {
            let What::Message { text } = incoming.what else { continue };
            let chat = session.as_str().trim_start_matches("console/").to_owned();
            writeln!(answers, "{chat}: {}", text.replace('\n', "\\n")).unwrap();
        }
    };
    tokio::select! {
        end = console::run(seat, reach) => drop(end.unwrap()),
        () = hearing => {}
    }
    answers.shutdown(std::net::Shutdown::Both).unwrap();
}
