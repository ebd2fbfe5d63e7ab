//! Stands between a client and Redis and does to applies what networks do: cuts the connection
//! before or after, in the middle of an answer, delays, and delivers what its sender has given up
//! long ago. Reads no more of the protocol than where a request or an answer ends.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

/// What happens to one apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// The connection is cut before it reaches Redis.
    Unsent,
    /// It is done, and the connection is cut before its answer.
    Unanswered,
    /// It is done, and the connection is cut in the middle of its answer.
    HalfAnswered,
    /// It reaches Redis a little later.
    Delayed,
    /// The connection is cut; it reaches Redis before the next apply does.
    LateBefore,
    /// The connection is cut; it reaches Redis after the next apply was answered.
    LateAfter,
}

impl Fault {
    pub(crate) const ALL: [Self; 6] = [
        Self::Unsent,
        Self::Unanswered,
        Self::HalfAnswered,
        Self::Delayed,
        Self::LateBefore,
        Self::LateAfter,
    ];
}

/// Longest wait of a delayed request.
const DELAY: Duration = Duration::from_millis(5);

/// Says what happens to the next apply.
type Dice = Box<dyn FnMut() -> Option<Fault> + Send>;

struct Plan {
    dice: Dice,
    happened: Vec<Fault>,
    /// Requests that their senders gave up.
    before: Vec<Vec<u8>>,
    after: Vec<Vec<u8>>,
}

#[derive(Clone)]
struct Shared {
    upstream: PathBuf,
    plan: Arc<Mutex<Plan>>,
}

impl Shared {
    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A proxy that runs until it is dropped, on the runtime in which it was started.
pub(crate) struct RedisProxy {
    port: u16,
    shared: Shared,
    _task: AbortOnDropHandle<()>,
}

impl RedisProxy {
    /// In front of the server with this socket; `dice` decides for each apply.
    pub(crate) fn start(
        upstream: &Path,
        dice: impl FnMut() -> Option<Fault> + Send + 'static,
    ) -> Self {
        let plan = Plan { dice: Box::new(dice), happened: vec![], before: vec![], after: vec![] };
        let shared = Shared { upstream: upstream.into(), plan: Arc::new(Mutex::new(plan)) };
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        listener.set_nonblocking(true).expect("a socket");
        let port = listener.local_addr().expect("bound").port();
        let listener = TcpListener::from_std(listener).expect("a listener");
        let of_task = shared.clone();
        let task = TaskTracker::new().spawn(async move {
            // Connections end with the task that accepts them.
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(relay(client, of_task.clone()));
            }
        });
        Self { port, shared, _task: AbortOnDropHandle::new(task) }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// What happened so far.
    pub(crate) fn happened(&self) -> Vec<Fault> {
        self.shared.plan().happened.clone()
    }
}

/// The length of the first whole value, if there is one.
fn whole(bytes: &[u8]) -> Option<usize> {
    let line = bytes.windows(2).position(|end| end == b"\r\n")? + 2;
    let number = || std::str::from_utf8(&bytes[1..line - 2]).ok()?.parse::<i64>().ok();
    match bytes[0] {
        b'$' => {
            let length = usize::try_from(number()?).map_or(line, |length| line + length + 2);
            (bytes.len() >= length).then_some(length)
        }
        b'*' => {
            let items = usize::try_from(number()?).unwrap_or(0);
            (0..items).try_fold(line, |at, _| Some(at + whole(&bytes[at..])?))
        }
        _ => Some(line),
    }
}

fn is_apply(request: &[u8]) -> bool {
    request.windows(4).take(24).any(|part| part == b"EVAL")
}

/// Reads until there is a whole value; `None` at the end.
async fn next<R: AsyncReadExt + Unpin>(
    from: &mut R,
    buffer: &mut Vec<u8>,
) -> io::Result<Option<Vec<u8>>> {
    loop {
        if let Some(length) = whole(buffer) {
            return Ok(Some(buffer.drain(..length).collect()));
        }
        if from.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
}

/// Sends what was given up, on a connection of its own, and waits for its answer.
async fn deliver(shared: &Shared, requests: Vec<Vec<u8>>) -> io::Result<()> {
    for request in requests {
        let mut server = UnixStream::connect(&shared.upstream).await?;
        server.write_all(&request).await?;
        next(&mut server, &mut vec![]).await?;
    }
    Ok(())
}

struct Ends {
    client: OwnedWriteHalf,
    to_server: tokio::net::unix::OwnedWriteHalf,
    /// The answers that are awaited: is it of an apply, and what happens to it?
    awaited: VecDeque<(bool, Option<Fault>)>,
}

/// Until one end is closed or the plan cuts it.
async fn relay(client: TcpStream, shared: Shared) -> io::Result<()> {
    client.set_nodelay(true)?;
    let (from_client, client) = client.into_split();
    let (mut from_server, to_server) = UnixStream::connect(&shared.upstream).await?.into_split();
    let mut ends = Ends { client, to_server, awaited: VecDeque::new() };
    // A reader of its own, since a read that is given up half way would lose its place.
    let (requests, mut requested) = tokio::sync::mpsc::unbounded_channel();
    let _reader = AbortOnDropHandle::new(TaskTracker::new().spawn(read(from_client, requests)));
    let mut answers = Vec::new();
    loop {
        tokio::select! {
            request = requested.recv() => match request {
                Some(request) => if !ends.pass_request(&shared, request).await? { return Ok(()) },
                None => return Ok(()),
            },
            read = from_server.read_buf(&mut answers) => if read? == 0 { return Ok(()) },
        }
        while let Some(length) = whole(&answers) {
            let answer: Vec<u8> = answers.drain(..length).collect();
            if !ends.pass_answer(&shared, &answer).await? {
                return Ok(());
            }
        }
    }
}

async fn read(mut from: OwnedReadHalf, requests: tokio::sync::mpsc::UnboundedSender<Vec<u8>>) {
    let mut buffer = vec![];
    while let Ok(Some(request)) = next(&mut from, &mut buffer).await {
        if requests.send(request).is_err() {
            return;
        }
    }
}

impl Ends {
    /// `false` where the connection is cut.
    async fn pass_request(&mut self, shared: &Shared, request: Vec<u8>) -> io::Result<bool> {
        if !is_apply(&request) {
            self.awaited.push_back((false, None));
            self.to_server.write_all(&request).await?;
            return Ok(true);
        }
        let (fault, late) = {
            let mut plan = shared.plan();
            let fault = (plan.dice)();
            plan.happened.extend(fault);
            (fault, std::mem::take(&mut plan.before))
        };
        deliver(shared, late).await?;
        match fault {
            Some(Fault::Unsent) => return Ok(false),
            Some(Fault::LateBefore) => {
                shared.plan().before.push(request);
                return Ok(false);
            }
            Some(Fault::LateAfter) => {
                shared.plan().after.push(request);
                return Ok(false);
            }
            Some(Fault::Delayed) => tokio::time::sleep(DELAY).await,
            Some(Fault::Unanswered | Fault::HalfAnswered) | None => {}
        }
        self.awaited.push_back((true, fault));
        self.to_server.write_all(&request).await?;
        Ok(true)
    }

    /// `false` where the connection is cut.
    async fn pass_answer(&mut self, shared: &Shared, answer: &[u8]) -> io::Result<bool> {
        let (apply, fault) = self.awaited.pop_front().unwrap_or_default();
        if apply {
            let late = std::mem::take(&mut shared.plan().after);
            deliver(shared, late).await?;
        }
        match fault {
            Some(Fault::Unanswered) => return Ok(false),
            Some(Fault::HalfAnswered) => {
                self.client.write_all(&answer[..answer.len() / 2]).await?;
                return Ok(false);
            }
            Some(Fault::Unsent | Fault::Delayed | Fault::LateBefore | Fault::LateAfter) | None => {
                self.client.write_all(answer).await?;
            }
        }
        Ok(true)
    }
}
