//! The bot's side of one connection: its first word, its calls, and what goes out. Owns the check
//! of who it is and of what it says: authority and address are the bot's own, never the
//! terminal's. Must not know which post goes where.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Semaphore, broadcast, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::host::Host;
use super::stranger;
use super::wire::{self, Answer, Ask, Call, Tell};
use crate::console::ChatName;
use crate::core::execution::{Execution, State};
use crate::core::id::SessionId;
use crate::core::limits::{
    ATTACH_HELLO_MS_MAX, FRAME_BYTES_MAX, HTTP_DRAIN_MS, TERMINAL_CALLS_MAX, TERMINAL_QUEUE_MAX,
    TERMINALS_MAX,
};
use crate::core::output::Captured;
use crate::ports::{Desk, DeskError, SessionView};

/// Wait before the next connection is taken when the system gave none.
const ACCEPT_AGAIN_MS: u64 = 100;

/// Lets terminals in until the host ends, then waits until each has heard of it.
pub(super) async fn welcome(host: Arc<Host>, listener: UnixListener) {
    let tasks = TaskTracker::new();
    let ending = host.ending.clone();
    while let Some(accepted) = ending.run_until_cancelled(listener.accept()).await {
        match accepted {
            Ok((stream, _)) => {
                let host = Arc::clone(&host);
                tasks.spawn(async move {
                    if let Err(error) = attend(&host, stream).await {
                        tracing::debug!(%error, "a terminal's connection broke");
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "no terminal can be taken");
                host.sleep(ACCEPT_AGAIN_MS).await;
            }
        }
    }
    tasks.close();
    let until = host.sleep(HTTP_DRAIN_MS);
    tokio::select! {
        () = tasks.wait() => {}
        () = until => {}
    }
}

/// One connection, from its first word to its end.
async fn attend(host: &Arc<Host>, stream: UnixStream) -> io::Result<()> {
    let uid = stranger(&stream)?;
    let (input, output) = stream.into_split();
    let mut reader = Reader { input: BufReader::new(input), begun: Vec::new() };
    if let Some(uid) = uid {
        tracing::warn!(terminal.uid = uid, "a terminal of another user is refused");
        let what = format!("this bot is of another user than you (uid {uid})");
        return refuse(host, reader, output, what).await;
    }
    let hello = tokio::select! {
        hello = reader.next() => hello?,
        () = host.sleep(ATTACH_HELLO_MS_MAX) => None,
    };
    let Some(Ask::Hello { version, chats, seen }) = hello else { return Ok(()) };
    if version != wire::VERSION {
        let what = format!(
            "this bot speaks to terminals in version {}, this terminal in {version}: use the same \
             dogwatch for both",
            wire::VERSION
        );
        return refuse(host, reader, output, what).await;
    }
    let (out, queue) = mpsc::channel(TERMINAL_QUEUE_MAX);
    let gone = CancellationToken::new();
    let welcome = |upto| Tell::Welcome {
        boot: host.settings.boot.clone(),
        now: host.clock.now(),
        banner: host.settings.banner.clone(),
        upto,
    };
    let follows = (chats.into_iter().collect(), seen);
    let Some(number) = host.let_in(out.clone(), gone.clone(), follows, welcome) else {
        let what = format!("this bot has {TERMINALS_MAX} terminals, or is about to end; try again");
        return refuse(host, reader, output, what).await;
    };
    let _leaves = Leaves { host, number };
    tracing::info!(terminal.no = number, "a terminal is attached");
    let Some(desk) = host.desk.get() else { return Ok(()) };
    desk.attended();
    let guest = Attended { host, desk: Arc::clone(desk), number, out };
    let ended = tokio::select! {
        read = guest.hear(reader) => read,
        written = write_all(queue, output) => written,
        () = guest.bring_stirs(desk.stirs()) => Ok(()),
        () = gone.cancelled() => Err(io::Error::other("it reads too slowly")),
    };
    tracing::info!(terminal.no = number, "a terminal is gone");
    ended
}

/// Says why, and reads what was said meanwhile, since a connection that is closed with something
/// unread loses its last words.
async fn refuse(
    host: &Host,
    reader: Reader,
    mut output: OwnedWriteHalf,
    what: String,
) -> io::Result<()> {
    wire::write(&mut output, &Tell::Refused { what }).await?;
    output.shutdown().await?;
    let mut rest = reader.input.take(FRAME_BYTES_MAX as u64);
    let mut nowhere = tokio::io::sink();
    tokio::select! {
        read = tokio::io::copy(&mut rest, &mut nowhere) => read.map(|_| ()),
        () = host.sleep(ATTACH_HELLO_MS_MAX) => Ok(()),
    }
}

/// Takes a terminal out of the hall, however its connection ends.
struct Leaves<'a> {
    host: &'a Host,
    number: u64,
}

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.host.let_out(self.number);
    }
}

struct Reader {
    input: BufReader<OwnedReadHalf>,
    begun: Vec<u8>,
}

impl Reader {
    async fn next(&mut self) -> io::Result<Option<Ask>> {
        wire::read(&mut self.input, &mut self.begun).await
    }
}

/// Writes what is on its way, up to the good-bye.
async fn write_all(mut queue: mpsc::Receiver<Tell>, mut output: OwnedWriteHalf) -> io::Result<()> {
    while let Some(frame) = queue.recv().await {
        wire::write(&mut output, &frame).await?;
        if matches!(frame, Tell::Bye) {
            break;
        }
    }
    output.shutdown().await
}

struct Attended<'a> {
    host: &'a Arc<Host>,
    desk: Arc<dyn Desk>,
    number: u64,
    out: mpsc::Sender<Tell>,
}

impl Attended<'_> {
    /// Does what the terminal asks, until it is gone.
    async fn hear(&self, mut reader: Reader) -> io::Result<()> {
        let calls = TaskTracker::new();
        let places = Arc::new(Semaphore::new(TERMINAL_CALLS_MAX));
        while let Some(ask) = reader.next().await? {
            match ask {
                Ask::Hello { .. } => {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "a second hello"));
                }
                Ask::Shown { no } => self.host.shown(self.number, no),
                Ask::Call { no, call } => {
                    let Ok(place) = Arc::clone(&places).acquire_owned().await else { break };
                    if self.host.follow(self.number, call.session()) {
                        self.desk.attended();
                    }
                    let (host, desk) = (Arc::clone(self.host), Arc::clone(&self.desk));
                    let out = self.out.clone();
                    calls.spawn(async move {
                        let answer = answer(&host, desk.as_ref(), call).await;
                        let _gone = out.send(Tell::Answer { no, answer }).await;
                        drop(place);
                    });
                }
            }
        }
        Ok(())
    }

    /// Tells of watchers of the chats that it follows.
    async fn bring_stirs(&self, mut stirs: broadcast::Receiver<SessionId>) {
        loop {
            let sessions = match stirs.recv().await {
                Ok(session) if self.host.follows(self.number, &session) => vec![session],
                Ok(_) => continue,
                Err(RecvError::Lagged(_)) => self.host.sessions_of(self.number),
                Err(RecvError::Closed) => return std::future::pending().await,
            };
            for session in sessions {
                let _gone = self.out.send(Tell::Stir { session }).await;
            }
        }
    }
}

/// Asks the desk. Whose message it is, where its answer goes and when it came are the bot's to
/// say.
async fn answer(host: &Host, desk: &dyn Desk, call: Call) -> Answer {
    let Some(chat) = ChatName::of_session(call.session()) else {
        let what = format!("{} is no chat of a terminal", call.session());
        return Answer::Refused(DeskError::Invalid(what));
    };
    let by = &host.settings.principal;
    let answer = match call {
        Call::Accept { session, mut incoming } => {
            incoming.principal = by.clone();
            incoming.address = chat.address();
            incoming.source_at = host.clock.now();
            desk.accept(&session, incoming).await.map(|()| Answer::Accepted)
        }
        Call::Command { session, command } => {
            desk.command(&session, by, command).await.map(Answer::Done)
        }
        Call::View { session } => {
            desk.view(&session).await.map(|view| Answer::View(Box::new(slim(view))))
        }
        Call::Glance { session, execution } => {
            Ok(Answer::Glance(desk.glance(&session, &execution).await))
        }
    };
    answer.unwrap_or_else(Answer::Refused)
}

/// A view without what scripts printed: it is looked at often and shows none of it.
fn slim(mut view: SessionView) -> SessionView {
    for execution in view.live.iter_mut().chain(&mut view.ended) {
        let Execution { state, late, .. } = execution;
        late.clear();
        if let State::Ended(outcome) = state {
            (outcome.stdout, outcome.stderr) = (Captured::default(), Captured::default());
        }
    }
    view
}
