//! The terminal's side: a desk that asks the bot at the other end of the socket, and a task that
//! keeps the connection and brings posts. Owns finding the bot again. Must not know what anything
//! looks like.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::io::BufReader;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{broadcast, mpsc, oneshot};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::wire::{self, Answer, Ask, Call, Seen, Tell};
use super::{AttachError, Place, stranger};
use crate::console::{ChatName, Console};
use crate::core::arrival::Incoming;
use crate::core::id::{ExecutionId, Principal, SessionId};
use crate::core::limits::{
    ATTACH_AGAIN_FIRST_MS, ATTACH_AGAIN_MS_MAX, ATTACH_CALL_MS_MAX, ATTACH_GREETING_MS_MAX,
    STIRS_KEPT_MAX, TERMINAL_CALLS_MAX, TERMINAL_QUEUE_MAX,
};
use crate::core::time::Timestamp;
use crate::ports::{
    Channel, Clock, Command, Desk, DeskError, Done, Glance, Post, Progress, SessionView,
};

/// The words of a call that was not answered.
const AWAY: &str = "the bot is away";

/// A connection.
struct Line {
    input: BufReader<OwnedReadHalf>,
    output: OwnedWriteHalf,
    boot: String,
    upto: u64,
}

/// A bot that took this terminal.
pub struct Arrived {
    /// The bot's time.
    pub now: Timestamp,
    /// Lines under the greeting.
    pub banner: Vec<String>,
    directory: PathBuf,
    chats: BTreeSet<ChatName>,
    line: Line,
}

/// What the terminal's side works with.
pub struct Means {
    /// Where posts are shown.
    pub console: Arc<Console>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Cancelled when this process is asked to end.
    pub stopped: CancellationToken,
}

/// Goes to the bot that serves terminals in this directory, as a terminal that follows this chat.
pub async fn reach(directory: &Path, chat: &ChatName) -> Result<Arrived, AttachError> {
    let chats = BTreeSet::from([chat.clone()]);
    let (line, now, banner) = connect(directory, &chats, None).await?;
    Ok(Arrived { now, banner, directory: directory.to_owned(), chats, line })
}

async fn connect(
    directory: &Path,
    chats: &BTreeSet<ChatName>,
    seen: Option<Seen>,
) -> Result<(Line, Timestamp, Vec<String>), AttachError> {
    let nobody = || AttachError::Nobody { directory: directory.to_owned() };
    let no = |source| AttachError::Socket { directory: directory.to_owned(), source };
    let place = Place::open(directory).map_err(|_| nobody())?;
    let stream = match UnixStream::connect(place.socket()).await {
        Ok(stream) => stream,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(nobody()),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Err(nobody()),
        Err(error) => return Err(no(error)),
    };
    if let Some(uid) = stranger(&stream).map_err(no)? {
        return Err(AttachError::Stranger { directory: directory.to_owned(), uid });
    }
    let (input, mut output) = stream.into_split();
    let mut input = BufReader::new(input);
    let chats = chats.iter().cloned().collect();
    let hello = Ask::Hello { version: wire::VERSION, chats, seen };
    wire::write(&mut output, &hello).await.map_err(no)?;
    let mut begun = Vec::new();
    let greeting = wire::read::<Tell>(&mut input, &mut begun);
    let Ok(greeting) = timeout(Duration::from_millis(ATTACH_GREETING_MS_MAX), greeting).await
    else {
        return Err(AttachError::Silent { directory: directory.to_owned() });
    };
    match greeting.map_err(no)? {
        Some(Tell::Welcome { boot, now, banner, upto }) => {
            Ok((Line { input, output, boot, upto }, now, banner))
        }
        Some(Tell::Refused { what }) => Err(AttachError::Refused(what)),
        Some(
            Tell::Answer { .. }
            | Tell::Post { .. }
            | Tell::Progress { .. }
            | Tell::Stir { .. }
            | Tell::Bye,
        )
        | None => Err(nobody()),
    }
}

/// A call on its way, and who waits for its answer.
type Asked = (Call, oneshot::Sender<Answer>);

/// Something to be shown, and where to say that it is.
enum Shown {
    Post { no: u64, post: Post, ack: mpsc::Sender<u64> },
    Progress { session: SessionId, progress: Progress },
    Link { up: bool },
}

impl Arrived {
    /// Keeps the connection from now on, in tasks of `tasks`. Answers the desk.
    pub fn begin(self, means: Means, tasks: &TaskTracker) -> Arc<dyn Desk> {
        let Arrived { directory, chats, line, .. } = self;
        let (calls, asked) = mpsc::channel(TERMINAL_CALLS_MAX);
        let (show, shown) = mpsc::channel(TERMINAL_QUEUE_MAX);
        let chats = Arc::new(Mutex::new(chats));
        let stirs = broadcast::Sender::new(STIRS_KEPT_MAX);
        let desk = RemoteDesk {
            calls,
            chats: Arc::clone(&chats),
            stirs: stirs.clone(),
            clock: Arc::clone(&means.clock),
            stopped: means.stopped.clone(),
        };
        let showing = show_all(Arc::clone(&means.console), shown);
        let stopped = means.stopped.clone();
        tasks.spawn(async move { stopped.run_until_cancelled(showing).await });
        let stopped = means.stopped.clone();
        let keeper = Keeper { directory, means, chats, stirs, asked, show };
        tasks.spawn(async move { stopped.run_until_cancelled(keeper.keep(line)).await });
        Arc::new(desk)
    }
}

/// Shows one after the other, so that what comes twice is seen to.
async fn show_all(console: Arc<Console>, mut shown: mpsc::Receiver<Shown>) {
    while let Some(next) = shown.recv().await {
        match next {
            Shown::Post { no, post, ack } => {
                if console.post(post).await.is_ok() {
                    // A connection that broke meanwhile: the bot asks again, and hears it then.
                    let _broke = ack.send(no).await;
                }
            }
            Shown::Progress { session, progress } => {
                if let Some(chat) = ChatName::of_session(&session) {
                    console.progress(&session, &chat.address(), progress);
                }
            }
            Shown::Link { up } => console.link(up).await,
        }
    }
}

/// Keeps a connection, and finds the bot again when it broke.
struct Keeper {
    directory: PathBuf,
    means: Means,
    chats: Arc<Mutex<BTreeSet<ChatName>>>,
    stirs: broadcast::Sender<SessionId>,
    asked: mpsc::Receiver<Asked>,
    show: mpsc::Sender<Shown>,
}

impl Keeper {
    async fn keep(mut self, mut line: Line) {
        loop {
            let seen = self.talk(line).await;
            self.link(false).await;
            line = self.find_again(seen).await;
            self.link(true).await;
            // What changed meanwhile is looked for.
            for chat in self.chats() {
                let _nobody = chat.session().map(|session| self.stirs.send(session));
            }
        }
    }

    /// Said in its place among what is shown.
    async fn link(&self, up: bool) {
        let _ends = self.show.send(Shown::Link { up }).await;
    }

    fn chats(&self) -> BTreeSet<ChatName> {
        self.chats.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn find_again(&self, seen: Seen) -> Line {
        let clock = &self.means.clock;
        let mut wait_ms = ATTACH_AGAIN_FIRST_MS;
        let mut told = None;
        loop {
            clock.sleep_until(clock.now().plus_ms(wait_ms)).await;
            wait_ms = (wait_ms * 2).min(ATTACH_AGAIN_MS_MAX);
            match connect(&self.directory, &self.chats(), Some(seen.clone())).await {
                Ok((line, _, _)) => return line,
                Err(AttachError::Nobody { .. }) => {}
                // Said once, however often it is tried.
                Err(error) => {
                    let what = error.to_string();
                    if told.as_ref() != Some(&what) {
                        self.means.console.trouble(what.clone()).await;
                        told = Some(what);
                    }
                }
            }
        }
    }

    /// Until the connection breaks. Answers how far posts were seen.
    async fn talk(&mut self, line: Line) -> Seen {
        let Line { mut input, mut output, boot, upto } = line;
        let (ack, mut acks) = mpsc::channel(TERMINAL_QUEUE_MAX);
        let mut course = Course { seen: Seen { boot, upto }, open: HashMap::new(), ack };
        let mut calls: u64 = 0;
        let mut begun = Vec::new();
        loop {
            let said = tokio::select! {
                told = wire::read::<Tell>(&mut input, &mut begun) => {
                    let Ok(Some(told)) = told else { return course.seen };
                    if !self.hear(told, &mut course).await {
                        return course.seen;
                    }
                    continue;
                }
                Some(no) = acks.recv() => Ask::Shown { no },
                Some((call, answer)) = self.asked.recv() => {
                    calls += 1;
                    course.open.insert(calls, answer);
                    Ask::Call { no: calls, call }
                }
            };
            if wire::write(&mut output, &said).await.is_err() {
                return course.seen;
            }
        }
    }

    /// Answers whether more comes.
    async fn hear(&self, told: Tell, course: &mut Course) -> bool {
        match told {
            Tell::Answer { no, answer } => {
                let waits = course.open.remove(&no);
                let _gave_up = waits.is_some_and(|waits| waits.send(answer).is_err());
            }
            Tell::Post { no, post } => {
                course.seen.upto = course.seen.upto.max(no);
                let ack = course.ack.clone();
                let _ends = self.show.send(Shown::Post { no, post, ack }).await;
            }
            Tell::Progress { session, progress } => {
                // A screen that is behind loses progress, never a post.
                let _full = self.show.try_send(Shown::Progress { session, progress });
            }
            Tell::Stir { session } => {
                let _nobody = self.stirs.send(session);
            }
            Tell::Bye => return false,
            Tell::Welcome { .. } | Tell::Refused { .. } => {}
        }
        true
    }
}

/// What is under way on one connection.
struct Course {
    seen: Seen,
    /// Who waits for the answer to which call.
    open: HashMap<u64, oneshot::Sender<Answer>>,
    /// Where to say that a post is shown.
    ack: mpsc::Sender<u64>,
}

/// A desk at the other end of the socket.
struct RemoteDesk {
    calls: mpsc::Sender<Asked>,
    chats: Arc<Mutex<BTreeSet<ChatName>>>,
    stirs: broadcast::Sender<SessionId>,
    clock: Arc<dyn Clock>,
    stopped: CancellationToken,
}

impl RemoteDesk {
    /// While the bot is away a call waits for it, but not for ever.
    async fn call(&self, call: Call) -> Result<Answer, DeskError> {
        let away = || DeskError::Away(AWAY.to_owned());
        if let Some(chat) = ChatName::of_session(call.session()) {
            self.chats.lock().unwrap_or_else(PoisonError::into_inner).insert(chat);
        }
        let (tell, hear) = oneshot::channel();
        let asked = async {
            self.calls.send((call, tell)).await.ok()?;
            hear.await.ok()
        };
        let until = self.clock.sleep_until(self.clock.now().plus_ms(ATTACH_CALL_MS_MAX));
        let answer = tokio::select! {
            answer = asked => answer,
            () = until => None,
            () = self.stopped.cancelled() => None,
        };
        match answer {
            Some(Answer::Refused(error)) => Err(error),
            Some(answer) => Ok(answer),
            None => Err(away()),
        }
    }
}

/// The bot answered something else than it was asked.
fn confused() -> DeskError {
    DeskError::Invalid("the bot's answer cannot be read: use the same dogwatch for both".to_owned())
}

impl Desk for RemoteDesk {
    fn accept<'a>(
        &'a self,
        session: &'a SessionId,
        incoming: Incoming,
    ) -> BoxFuture<'a, Result<(), DeskError>> {
        async move {
            let call = Call::Accept { session: session.clone(), incoming };
            let answer = self.call(call).await?;
            if matches!(answer, Answer::Accepted) { Ok(()) } else { Err(confused()) }
        }
        .boxed()
    }

    fn command<'a>(
        &'a self,
        session: &'a SessionId,
        _by: &'a Principal,
        command: Command,
    ) -> BoxFuture<'a, Result<Done, DeskError>> {
        async move {
            let call = Call::Command { session: session.clone(), command };
            let answer = self.call(call).await?;
            if let Answer::Done(done) = answer { Ok(done) } else { Err(confused()) }
        }
        .boxed()
    }

    fn view<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Result<SessionView, DeskError>> {
        async move {
            let answer = self.call(Call::View { session: session.clone() }).await?;
            if let Answer::View(view) = answer { Ok(*view) } else { Err(confused()) }
        }
        .boxed()
    }

    fn stirs(&self) -> broadcast::Receiver<SessionId> {
        self.stirs.subscribe()
    }

    fn glance<'a>(
        &'a self,
        session: &'a SessionId,
        execution: &'a ExecutionId,
    ) -> BoxFuture<'a, Option<Glance>> {
        async move {
            let (session, execution) = (session.clone(), execution.clone());
            let answer = self.call(Call::Glance { session, execution }).await.ok()?;
            if let Answer::Glance(glance) = answer { glance } else { None }
        }
        .boxed()
    }
}
