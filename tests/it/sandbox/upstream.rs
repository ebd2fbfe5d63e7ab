//! A host that scripts may ask: plain HTTP on the loopback device, which counts and remembers what it
//! was asked.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Fails a test that hangs; nothing waits for it.
const TOO_LONG: Duration = Duration::from_mins(1);

/// What it answers when it was asked to end a loop.
pub(crate) const END: &str = "end";

pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    heads: Mutex<Receiver<String>>,
    ends: Arc<AtomicBool>,
}

impl Upstream {
    /// At this address, on any port.
    pub(crate) fn start(ip: &str) -> Self {
        let listener = TcpListener::bind((ip, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (told, heads) = channel();
        let ends = Arc::new(AtomicBool::new(false));
        let answers = Arc::clone(&ends);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (told, ends) = (told.clone(), Arc::clone(&answers));
                thread::spawn(move || serve(stream, &told, &ends));
            }
        });
        Self { address, heads: Mutex::new(heads), ends }
    }

    /// The head of the next request.
    pub(crate) fn next(&self) -> String {
        self.heads.lock().unwrap().recv_timeout(TOO_LONG).expect("nobody asks")
    }

    /// Waits for so many requests more than there were by now.
    pub(crate) fn asked_again(&self, times: usize) {
        while self.heads.lock().unwrap().try_recv().is_ok() {}
        for _ in 0..times {
            self.next();
        }
    }

    /// From now on whoever asks is told to end.
    pub(crate) fn ends(&self) {
        self.ends.store(true, Ordering::Relaxed);
    }

    /// Has anybody asked since the last look?
    pub(crate) fn is_quiet(&self) -> bool {
        self.heads.lock().unwrap().try_recv().is_err()
    }
}

/// One request a connection. The answer repeats who was asked for.
fn serve(mut stream: TcpStream, told: &Sender<String>, ends: &AtomicBool) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.extend(byte),
            Ok(_) | Err(_) => return,
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let host =
        head.lines().find_map(|line| line.to_lowercase().strip_prefix("host: ").map(str::to_owned));
    let body = if ends.load(Ordering::Relaxed) { END.to_owned() } else { host.unwrap_or_default() };
    let _test_is_over = told.send(head);
    let length = body.len();
    let answer =
        format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
    let _gone = stream.write_all(answer.as_bytes());
}
