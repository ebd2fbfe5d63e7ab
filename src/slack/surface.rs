//! The message that shows a turn while it runs: an answer as it comes, streamed where the workspace
//! has that, else in a message that is edited. Owns the calls that show it. Must not make an answer
//! final: a post takes the message over, and is all that counts.
//!
//! The turn's row says that there is such a message before Slack is asked for it, and where it is
//! before anything is added to it. So whoever posts the answer finds it, also after a crash:
//!
//! | the process dies | the post finds |
//! |---|---|
//! | before Slack did it | a row with a mark, and no message that begins so: it is posted |
//! | after, unheard | the message by its mark |
//! | while text is added | the message by the row |
//!
//! What is shown of a turn that a completion began is its status only: it may end in silence.

mod able;
mod open;
mod talk;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use self::able::{Able, Way};
pub(super) use self::talk::Held;
use self::talk::{Next, Talk, Told};
use super::access::{Keyring, NoAccess};
use super::live::Live;
use super::pace::{Pace, Pass, Rank};
use super::place::Thread;
use super::posting::{self, POST};
use super::text;
use super::web::{CallError, Web};
use super::{Streaming, plain, verdict};
use crate::core::id::{SessionId, TurnNo};
use crate::core::limits::{
    SLACK_STATUS_END_MS, SLACK_STREAM_CALLS_MAX, SLACK_STREAM_KEPT_MS, SLACK_STREAMS_MAX,
};
use crate::core::time::Timestamp;
use crate::ports::{Clock, Desk, Progress};

pub(super) const START: &str = "chat.startStream";
pub(super) const APPEND: &str = "chat.appendStream";
pub(super) const STOP: &str = "chat.stopStream";
pub(super) const UPDATE: &str = "chat.update";
pub(super) const DELETE: &str = "chat.delete";
/// Bytes of a digest that tell one text from others in a thread.
const MARK_BYTES: usize = 12;

type Turn = (Thread, TurnNo);

/// The surfaces of all turns.
pub(super) struct Surfaces {
    keyring: Arc<Keyring>,
    web: Arc<Web>,
    clock: Arc<dyn Clock>,
    pace: Arc<Mutex<Pace>>,
    live: Arc<Live>,
    off: bool,
    able: Able,
    talks: Mutex<BTreeMap<Turn, Talk>>,
    stirred: Notify,
    /// A call is over.
    quiet: Notify,
    /// Somebody takes a surface over.
    sealing: Notify,
}

impl Surfaces {
    pub(super) fn new(
        (streaming, keyring): (Streaming, Arc<Keyring>),
        (web, clock): (Arc<Web>, Arc<dyn Clock>),
        pace: Arc<Mutex<Pace>>,
        live: Arc<Live>,
    ) -> Self {
        Self {
            keyring,
            web,
            clock,
            pace,
            live,
            off: streaming == Streaming::Off,
            able: Able::new(streaming == Streaming::Auto),
            talks: Mutex::default(),
            stirred: Notify::new(),
            quiet: Notify::new(),
            sealing: Notify::new(),
        }
    }

    fn talks(&self) -> MutexGuard<'_, BTreeMap<Turn, Talk>> {
        self.talks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pace(&self) -> MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A turn in this thread goes on. Returns at once.
    pub(super) fn heard(&self, thread: &Thread, session: &SessionId, progress: &Progress) {
        if self.off {
            return;
        }
        let now = self.clock.now();
        let turns = (thread.clone(), TurnNo::MIN)..=(thread.clone(), TurnNo::MAX);
        let mut talks = self.talks();
        if let Progress::Began { turn, synthetic } = progress {
            talks.retain(|_, talk| !talk.is_left(now, SLACK_STREAM_KEPT_MS));
            // What is said from now on is not theirs.
            let others = talks.range_mut(turns).filter(|(key, _)| key.1 != *turn);
            others.for_each(|(_, talk)| talk.whole());
            let key = (thread.clone(), *turn);
            if !synthetic && (talks.len() < SLACK_STREAMS_MAX || talks.contains_key(&key)) {
                let talk = talks.entry(key).or_insert_with(|| Talk::new(session.clone(), now));
                talk.discarded();
                talk.runs(now, true);
            }
            return;
        }
        let Some((_, talk)) = talks.range_mut(turns).next_back() else { return };
        match progress {
            Progress::Text(text) => {
                if talk.said(now, text) {
                    self.stirred.notify_one();
                }
            }
            Progress::Discarded | Progress::Failed { .. } => talk.discarded(),
            Progress::Whole => talk.whole(),
            Progress::Ended => {
                talk.runs(now, false);
                self.stirred.notify_one();
            }
            Progress::Began { .. } | Progress::Tool { .. } => {}
        }
    }

    /// A post takes the surface of this turn over: nothing more is begun there, and what was begun
    /// is over when this returns. `None`: nothing is known of it here.
    pub(super) async fn settle(&self, thread: &Thread, turn: TurnNo) -> Option<Held> {
        let key = (thread.clone(), turn);
        loop {
            let quiet = self.quiet.notified();
            tokio::pin!(quiet);
            quiet.as_mut().enable();
            {
                let mut talks = self.talks();
                let talk = talks.get_mut(&key)?;
                talk.sealed = true;
                if !talk.calling {
                    return talk.held();
                }
            }
            self.sealing.notify_waiters();
            quiet.await;
        }
    }

    /// The post is done.
    pub(super) fn done(&self, thread: &Thread, turn: TurnNo) {
        self.talks().remove(&(thread.clone(), turn));
    }

    /// Shows what is to be shown, until the end.
    pub(super) async fn run(self: Arc<Self>, desk: Arc<dyn Desk>, ending: CancellationToken) {
        if self.off {
            return;
        }
        let mut calls = FuturesUnordered::new();
        loop {
            let (due, next) = self.due(SLACK_STREAM_CALLS_MAX.saturating_sub(calls.len()));
            calls.extend(due.into_iter().map(|(turn, next)| self.act(&desk, turn, next)));
            let later = async {
                match next {
                    Some(at) => self.clock.sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = ending.cancelled() => break,
                Some(()) = calls.next(), if !calls.is_empty() => {}
                () = self.stirred.notified() => {}
                () = later => {}
            }
        }
        let until = self.clock.now().plus_ms(SLACK_STATUS_END_MS);
        let under_way = async { while calls.next().await.is_some() {} };
        tokio::select! {
            () = under_way => {}
            () = self.clock.sleep_until(until) => {}
        }
        drop(calls);
        self.leave();
    }

    /// Nobody hears any more what comes of the calls under way.
    fn leave(&self) {
        let now = self.clock.now();
        for talk in self.talks().values_mut() {
            if talk.calling {
                talk.told(now, &Next::Close(String::new()), Told::Unsure);
            }
            talk.whole();
        }
        self.quiet.notify_waiters();
    }

    /// What is to be done now, and when to look again at the latest.
    fn due(&self, room: usize) -> (Vec<(Turn, Next)>, Option<Timestamp>) {
        let now = self.clock.now();
        let (mut due, mut later) = (Vec::new(), None::<Timestamp>);
        for (turn, talk) in self.talks().iter_mut() {
            let Some(at) = talk.due_at() else { continue };
            let mut sooner = |at: Timestamp| later = Some(later.map_or(at, |old| old.min(at)));
            if at > now {
                sooner(at);
                continue;
            }
            if due.len() >= room {
                // The end of a call makes room, and asks again.
                break;
            }
            let Some(next) = talk.next(now) else {
                talk.due_at().into_iter().for_each(sooner);
                continue;
            };
            match self.may(now, &next, &turn.0) {
                Pass::Go => {
                    talk.calling = true;
                    due.push((turn.clone(), next));
                }
                Pass::Wait(at) => {
                    talk.put_off(at);
                    sooner(at);
                }
            }
        }
        (due, later)
    }

    fn may(&self, now: Timestamp, next: &Next, thread: &Thread) -> Pass {
        let (method, rank) = match next {
            Next::Open(..) if self.able.may(Way::Stream, thread.installation()) => {
                (START, Rank::Status)
            }
            Next::Open(..) => (POST, Rank::Status),
            Next::Add(..) => (APPEND, Rank::Status),
            Next::Edit(..) => (UPDATE, Rank::Status),
            // It is short, and what stays open looks as if it were written on.
            Next::Close(_) => (STOP, Rank::Quiet),
        };
        let mut pace = self.pace();
        // A limit on streams is one of the workspace.
        match pace.ask(now, (method, thread.installation()), Rank::Quiet) {
            Pass::Go => pace.ask(now, (method, thread.channel()), rank),
            wait @ Pass::Wait(_) => wait,
        }
    }

    fn act<'a>(&'a self, desk: &'a Arc<dyn Desk>, turn: Turn, next: Next) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let told = match &next {
                Next::Open(first, _) => self.open(desk, &turn, first).await,
                Next::Add(at, text, _) => {
                    let body = json!({
                        "channel": turn.0.channel(), "ts": at, "markdown_text": text,
                    });
                    self.said(&turn, APPEND, &body).await
                }
                Next::Edit(at, text, _) => {
                    let part = text::draft(text);
                    let body = json!({
                        "channel": turn.0.channel(), "ts": at, "text": part.text,
                        "blocks": [{ "type": "markdown", "text": part.markdown }],
                    });
                    self.said(&turn, UPDATE, &body).await
                }
                Next::Close(at) => {
                    let body = json!({ "channel": turn.0.channel(), "ts": at });
                    self.said(&turn, STOP, &body).await
                }
            };
            let now = self.clock.now();
            if let Some(talk) = self.talks().get_mut(&turn) {
                talk.told(now, &next, told);
            }
            self.quiet.notify_waiters();
        })
    }

    /// As the installation of the thread.
    async fn call(
        &self,
        thread: &Thread,
        method: &'static str,
        body: &Value,
    ) -> Result<Value, CallError> {
        let token = self.keyring.token(thread.installation()).await;
        let unreached = |error: NoAccess| CallError::Unreached { method, what: error.to_string() };
        self.web.call(&token.map_err(unreached)?, method, body).await
    }

    async fn said(&self, (thread, turn): &Turn, method: &'static str, body: &Value) -> Told {
        match self.call(thread, method, body).await {
            Ok(_) => Told::Said,
            Err(error) => {
                let edit = method == UPDATE
                    && matches!(&error, CallError::Refused { error, .. }
                    if posting::cannot_be_changed(error));
                if edit && self.able.refuse(Way::Edit, thread.installation()) {
                    tracing::warn!(%error, "answers are not shown here before they are whole");
                }
                tracing::debug!(slack.thread = thread.root(), turn.no = turn, %error,
                    "a piece of an answer is not shown");
                self.failed(thread, &error)
            }
        }
    }

    /// What a call came to that brought nothing.
    fn failed(&self, thread: &Thread, error: &CallError) -> Told {
        match error {
            CallError::Limited { method, after_ms } => {
                let streams = [START, APPEND, STOP].contains(method);
                let whereto = if streams { thread.installation() } else { thread.channel() };
                self.pace().limited(self.clock.now(), (*method, whereto), *after_ms);
                Told::NotYet
            }
            CallError::Unreached { .. } => Told::NotYet,
            CallError::Unknown { .. } => Told::Unsure,
            CallError::Refused { error: word, .. } => {
                if verdict::is_of_thread(word) {
                    tracing::warn!(slack.thread = thread.root(), %error,
                        "nothing more can be shown there: its answer is tried as a post");
                }
                Told::Never
            }
        }
    }
}

/// By this a message is known again whose text Slack has written its own way: its letters and
/// digits, in no order.
pub(super) fn mark(text: &str) -> String {
    let text = plain::unescaped(text);
    let mut letters: Vec<char> = text.chars().filter(|c| c.is_alphanumeric()).collect();
    letters.sort_unstable();
    let letters: String = letters.into_iter().collect();
    let digest = Sha256::digest(letters.as_bytes());
    let bytes = digest.iter().take(MARK_BYTES);
    bytes.fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}
