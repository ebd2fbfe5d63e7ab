//! The way out of a script, as its shim keeps it: a listener on which the egress process answers.
//! The shim carries none of its bytes. It hands the listener on, does so again when the egress
//! process is another, and where there is none for too long it turns away what waits. Every call
//! returns at once, but for the handing on, which is bounded. Must not know who may go where.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use nix::poll::{PollFd, PollFlags};

use crate::core::limits::{
    GATE_AGAIN_MS, GATE_AGAIN_MS_MAX, GATE_AWAY_MS, GATE_LINGER_MS, GATE_TURNED_AWAY_MAX,
};
use crate::watch::egress;
use crate::watch::sandbox::network;
use crate::watch::spec::Network;

/// What is said to whoever waited in vain. Python shows the words behind the number.
const AWAY: &[u8] = b"HTTP/1.1 503 The way out of this watcher is down, try again later\r\n\
    Content-Length: 0\r\nConnection: close\r\n\r\n";
/// How programs learn of a proxy.
const VARIABLES: [&str; 6] =
    ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"];
/// Nothing goes past it: names would not be found, and nothing else answers.
const EXCEPTIONS: [&str; 2] = ["no_proxy", "NO_PROXY"];
/// Read of a connection that is turned away.
const READ_BYTES: usize = 16 * 1024;

/// The way out of one script.
pub(super) struct Gate {
    network: Network,
    /// Others of this host could connect as well, so a connection has to bring the pass.
    guarded: bool,
    /// Where the listener comes from, until it is there.
    hatch: Option<UnixStream>,
    listener: Option<TcpListener>,
    /// Stands while the egress process answers there.
    line: Option<Line>,
    /// Since when none does.
    away_since: u64,
    /// When the listener is handed on again, and what lies between two tries.
    again_at: u64,
    pause_ms: u64,
    /// Turned away and not yet closed: a close at once could overtake what was said.
    parting: VecDeque<(u64, TcpStream)>,
}

struct Line {
    stream: UnixStream,
    since: u64,
}

impl Gate {
    /// In the host's network: it listens here, at any port.
    pub(super) fn here(network: Network, now: u64) -> io::Result<Self> {
        let listener = network::listen_at(0)?;
        Ok(Self { listener: Some(listener), ..Self::new(network, true, now) })
    }

    /// In a network of the script's own. The listener comes later, see [`Gate::expect`].
    pub(super) fn inside(network: Network, now: u64) -> Self {
        Self::new(network, false, now)
    }

    fn new(network: Network, guarded: bool, now: u64) -> Self {
        Self {
            network,
            guarded,
            hatch: None,
            listener: None,
            line: None,
            away_since: now,
            again_at: now,
            pause_ms: GATE_AGAIN_MS,
            parting: VecDeque::new(),
        }
    }

    /// The listener will come by `hatch`.
    pub(super) fn expect(&mut self, hatch: Option<UnixStream>) {
        self.hatch = hatch;
    }

    /// The port, where it listens here.
    pub(super) fn port(&self) -> Option<u16> {
        let listener = self.listener.as_ref()?;
        listener.local_addr().ok().map(|address| address.port())
    }

    /// What the script is told of it.
    pub(super) fn environment(&self) -> Vec<(String, String)> {
        let proxy = match self.port() {
            Some(port) => format!("http://w:{}@127.0.0.1:{port}", self.network.pass),
            None => format!("http://127.0.0.1:{}", network::PORT),
        };
        let named = VARIABLES.iter().map(|name| ((*name).to_owned(), proxy.clone()));
        named.chain(EXCEPTIONS.iter().map(|name| ((*name).to_owned(), String::new()))).collect()
    }

    /// What to wait for.
    pub(super) fn poll_fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        let line = self.line.as_ref().map(|line| line.stream.as_fd());
        let all = self.hatch.as_ref().map(UnixStream::as_fd).into_iter().chain(line);
        all.map(|fd| PollFd::new(fd, PollFlags::POLLIN))
    }

    /// When there is something to do though nothing happened.
    pub(super) fn due(&self) -> Option<u64> {
        let parting = self.parting.front().map(|(until, _)| *until);
        let again = (self.listener.is_some() && self.line.is_none()).then_some(self.again_at);
        parting.into_iter().chain(again).min()
    }

    /// Does what there is to do.
    pub(super) fn tend(&mut self, now: u64) {
        self.receive();
        while self.parting.front().is_some_and(|(until, _)| *until <= now) {
            self.parting.pop_front();
        }
        if self.line.as_mut().is_some_and(|line| has_ended(&mut line.stream)) {
            let held = self.line.take().map_or(0, |line| now.saturating_sub(line.since));
            // One that ends again and again is not asked more and more often.
            if held >= GATE_AGAIN_MS_MAX {
                self.pause_ms = GATE_AGAIN_MS;
            }
            self.away_since = now;
            self.again_at = now.saturating_add(self.pause_ms);
        }
        if self.line.is_none() && now >= self.again_at {
            self.hand_on(now);
        }
        let away_ms = now.saturating_sub(self.away_since);
        if self.line.is_none() && away_ms >= GATE_AWAY_MS {
            self.turn_away(now);
        }
    }

    fn receive(&mut self) {
        let Some(hatch) = &self.hatch else { return };
        match network::take(hatch) {
            Ok(listener) => self.listener = Some(listener),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            // The first process could not listen: its report says why.
            Err(_none_will_come) => {}
        }
        self.hatch = None;
    }

    fn hand_on(&mut self, now: u64) {
        let Some(listener) = &self.listener else { return };
        let Network { egress, name, pass } = &self.network;
        let handed = egress::hand_over(egress, name, pass, listener.as_fd(), self.guarded);
        let ready = handed.and_then(|stream| stream.set_nonblocking(true).map(|()| stream));
        match ready {
            Ok(stream) => self.line = Some(Line { stream, since: now }),
            Err(_away) => self.again_at = now.saturating_add(self.pause_ms),
        }
        self.pause_ms = self.pause_ms.saturating_mul(2).min(GATE_AGAIN_MS_MAX);
    }

    /// Nobody will answer soon. Bounded for each look, so that a script that only connects keeps
    /// its shim from nothing.
    fn turn_away(&mut self, now: u64) {
        let Some(listener) = &self.listener else { return };
        for _ in self.parting.len()..GATE_TURNED_AWAY_MAX {
            let Ok((stream, _)) = listener.accept() else { return };
            if let Ok(stream) = told_so(stream) {
                self.parting.push_back((now.saturating_add(GATE_LINGER_MS), stream));
            }
        }
    }
}

/// Says so, and reads what was asked: a close with something unread takes the answer back.
fn told_so(mut stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nonblocking(true)?;
    let _what_is_there = stream.read(&mut [0; READ_BYTES]);
    stream.write_all(AWAY)?;
    stream.shutdown(Shutdown::Write)?;
    Ok(stream)
}

/// What comes on it means nothing; its end does.
fn has_ended(line: &mut UnixStream) -> bool {
    let mut bytes = [0; 64];
    loop {
        match line.read(&mut bytes) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return error.kind() != ErrorKind::WouldBlock,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufRead as _;
    use std::io::BufReader;
    use std::os::unix::net::UnixListener;
    use std::path::Path;
    use std::thread;

    use super::*;

    fn here(egress: &Path) -> Gate {
        let (name, pass) = ("console/main/w".to_owned(), "p".to_owned());
        Gate::here(Network { egress: egress.to_owned(), name, pass }, 0).unwrap()
    }

    #[test]
    fn whoever_waits_for_too_long_is_told_so_and_the_tries_grow_rare() {
        let nobody = tempfile::tempdir().unwrap();
        let mut gate = here(nobody.path());
        let mut client = TcpStream::connect(("127.0.0.1", gate.port().unwrap())).unwrap();
        client.write_all(b"GET http://x/ HTTP/1.1\r\n\r\n").unwrap();
        let mut looks = 0;
        let mut now = 0;
        while now < GATE_AWAY_MS {
            assert!(gate.parting.is_empty(), "turned away at {now}");
            gate.tend(now);
            now = gate.due().unwrap();
            looks += 1;
        }
        assert!(looks < 40, "{looks}");
        gate.tend(now);
        let mut told = String::new();
        client.read_to_string(&mut told).unwrap();
        assert!(told.starts_with("HTTP/1.1 503 The way out"), "{told}");
        // It goes when it has heard, and there is room again.
        assert_eq!(gate.parting.len(), 1);
        gate.tend(now + GATE_LINGER_MS);
        assert!(gate.parting.is_empty());
    }

    #[test]
    fn a_listener_is_handed_on_again_when_whoever_had_it_ends() {
        let dir = tempfile::tempdir().unwrap();
        let socket = UnixListener::bind(dir.path().join("ctl")).unwrap();
        let egress = thread::spawn(move || {
            let mut asked = Vec::new();
            for _ in 0..2 {
                let (stream, _) = socket.accept().unwrap();
                let mut line = String::new();
                BufReader::new(&stream).read_line(&mut line).unwrap();
                (&stream).write_all(b"{\"done\":{}}\n").unwrap();
                asked.push(line);
            }
            asked
        });
        let mut gate = here(dir.path());
        gate.tend(0);
        assert!(gate.line.is_some());
        // Its end is an event on the line, and it is looked for soon after.
        while gate.line.is_some() {
            gate.tend(10);
        }
        assert_eq!(gate.due(), Some(gate.again_at));
        gate.tend(gate.again_at);
        let asked = egress.join().unwrap();
        assert_eq!(asked.len(), 2);
        assert_eq!(asked[0], asked[1]);
        assert!(asked[0].contains("\"guarded\":true"), "{asked:?}");
    }

    #[test]
    fn a_script_is_told_of_its_way_out_and_the_pass_only_where_others_could_come() {
        let nobody = tempfile::tempdir().unwrap();
        let gate = here(nobody.path());
        let port = gate.port().unwrap();
        let told = gate.environment();
        assert!(told.contains(&("https_proxy".into(), format!("http://w:p@127.0.0.1:{port}"))));
        assert!(told.contains(&("no_proxy".into(), String::new())));
        let inside = Gate::inside(gate.network, 0);
        assert!(
            inside.environment().contains(&("http_proxy".into(), "http://127.0.0.1:3128".into()))
        );
        assert_eq!((inside.port(), inside.due()), (None, None));
    }
}
