//! The socket of the egress process: who may speak there, and what each word does. Must not know
//! what becomes of requests.

use std::io;
use std::net::TcpListener as StdListener;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::net::AddressFamily;
use rustix::net::sockopt::{socket_acceptconn, socket_domain};
use secrecy::ExposeSecret;
use tokio::net::{TcpListener, UnixListener, UnixStream};

use super::house::House;
use super::listen;
use super::words::{self, Answer, Hello, Line, Serve, Word};
use crate::core::limits::EGRESS_PEERS_MAX;

/// Takes connections of bots and shims, until it is retired.
pub(super) async fn listen(house: Arc<House>, socket: UnixListener) {
    loop {
        let taken = tokio::select! {
            taken = socket.accept() => taken,
            () = house.retired.cancelled() => return,
        };
        match taken {
            Ok((stream, _)) => {
                let peers = *house.peers.borrow();
                if peers < EGRESS_PEERS_MAX {
                    let peer = Peer::new(&house);
                    house.tasks.spawn(attend(peer, stream));
                }
            }
            // Out of descriptors, most likely: they come back as connections end.
            Err(_) => tokio::time::sleep(listen::ACCEPT_AGAIN).await,
        }
    }
}

/// Somebody who is connected, as long as this lives.
struct Peer {
    house: Arc<House>,
}

impl Peer {
    fn new(house: &Arc<House>) -> Self {
        house.peers.send_modify(|count| *count += 1);
        Self { house: Arc::clone(house) }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.house.peers.send_modify(|count| *count = count.saturating_sub(1));
    }
}

/// One connection, to its end.
async fn attend(peer: Peer, stream: UnixStream) {
    let house = &peer.house;
    let mut line = Line::new(stream);
    if !line.peer_uid().is_ok_and(|uid| uid == 0 || uid == house.owner) {
        return;
    }
    let mut bot = None;
    loop {
        let next = tokio::select! {
            next = line.next() => next,
            // Whoever is still here is to go to the next process.
            () = house.unlocked.cancelled() => return,
        };
        let Ok(Some(text)) = next else { return };
        let passed = line.take_passed();
        let word = match words::read::<Word>(&text) {
            Ok(Word::Serve(serve)) => {
                serve_one(&peer, &mut line, serve, passed).await;
                return;
            }
            Ok(word) => word,
            Err(error) => {
                let _gone = line.say(&Answer::Refused { what: error.to_string() }).await;
                return;
            }
        };
        if let Word::Hello(_) = &word {
            bot.get_or_insert_with(|| house.greet());
        }
        let answer = obey(house, word).await;
        if line.say(&answer).await.is_err() {
            return;
        }
    }
}

async fn obey(house: &Arc<House>, word: Word) -> Answer {
    let done = match word {
        Word::Hello(_) => return Answer::Hello(Hello::own()),
        Word::Settings(told) => house.settle(told).map_err(|error| error.to_string()),
        Word::Rules(rules) => house.rule(rules),
        Word::Forget { execution } => {
            house.forget(&execution);
            Ok(())
        }
        Word::Retire {} => {
            house.retired.cancel();
            // Said first, the bot would find the lock still held.
            house.unlocked.cancelled().await;
            Ok(())
        }
        Word::Serve(_) => Err("only the first word can be `serve`".to_owned()),
    };
    match done {
        Ok(()) => Answer::Done {},
        Err(what) => Answer::Refused { what },
    }
}

/// Serves a listener for as long as its shim holds the connection.
async fn serve_one(peer: &Peer, line: &mut Line, serve: Serve, passed: Option<OwnedFd>) {
    let house = &peer.house;
    let begun = passed
        .ok_or_else(|| "no listener came with it".to_owned())
        .and_then(|passed| listener(passed).map_err(|error| error.to_string()))
        .and_then(|listener| Ok((house.serve(&serve.execution)?, listener)));
    let (served, listener) = match begun {
        Ok(begun) => begun,
        Err(what) => {
            let _gone = line.say(&Answer::Refused { what }).await;
            return;
        }
    };
    if line.say(&Answer::Done {}).await.is_err() {
        return;
    }
    let pass = serve.pass.expose_secret();
    let entry = listen::Entry { listener, guarded: serve.guarded, pass };
    tokio::select! {
        () = listen::run(house, &served, entry) => {}
        _ended = line.next() => {}
        () = house.retired.cancelled() => {}
    }
}

/// Whatever came must be a socket that takes connections of the internet's kind.
fn listener(passed: OwnedFd) -> io::Result<TcpListener> {
    let family = socket_domain(&passed)?;
    if !matches!(family, AddressFamily::INET | AddressFamily::INET6) || !socket_acceptconn(&passed)?
    {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "what came is no listener"));
    }
    let listener = StdListener::from(passed);
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}
