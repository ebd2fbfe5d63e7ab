//! Slack as a `Channel`: posts land in their thread, whole, in order, and each part once. Owns one
//! try of a post and what its error says of it. Must not know turns: what is posted, and whether it
//! is tried again, is the outbox's.
//!
//! What could not be posted is never reported by a post: the outbox keeps it and the log says so.

mod calls;
mod earlier;
mod file;
mod kept;
mod look;
mod root;
mod shared;
mod shown;
mod taken;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use self::calls::{Calls, Stop, stop};
use self::kept::Kept;
use self::look::Me;
use self::taken::{Begun, Taken};
use super::Streaming;
use super::access::Keyring;
use super::card::Rendered;
use super::live::{Kind, Live};
use super::pace::{Pace, Rank};
use super::place::Thread;
use super::surface::Surfaces;
use super::text::{self, Part, Plan};
use super::verdict::Verdict;
use super::web::{CallError, Web};
use crate::core::earlier::Earlier;
use crate::core::execution::{Address, PostSort};
use crate::core::id::{FileId, SessionId};
use crate::core::ledger::session::first_post_of;
use crate::core::limits::SLACK_POST_MS_MAX;
use crate::core::time::Timestamp;
use crate::ports::{
    Card, Channel, ChannelError, Clock, Desk, FileError, FileText, Post, Progress, Root,
};

pub(super) const POST: &str = "chat.postMessage";
/// By this the bot knows its own posts again.
const EVENT_TYPE: &str = "dogwatch_post";
/// Where an earlier try may have posted it, and nobody can say.
const MARK: &str = "(may be repeated)";
/// The label of a post's file, and of the message that comes before it.
const FILE: &str = "file";
const INTRO: &str = "intro";
/// The label of what is shown of it before it is whole.
pub(super) const DRAFT: &str = "draft";

/// What is posted of a post: the time stamp of each part, by its label: its number, and a second
/// one where a part had to be sent in smaller pieces.
type Sent = BTreeMap<String, String>;

/// Posts into threads, and shows there what a turn does.
pub struct Posting {
    keyring: Arc<Keyring>,
    web: Arc<Web>,
    clock: Arc<dyn Clock>,
    pace: Arc<Mutex<Pace>>,
    live: Arc<Live>,
    sessions: Arc<Live>,
    surfaces: Arc<Surfaces>,
    kept: Mutex<Kept>,
    me: OnceCell<Me>,
}

impl Posting {
    /// Calls nobody yet.
    pub fn new(
        streaming: Streaming,
        keyring: Arc<Keyring>,
        web: Arc<Web>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let pace = Arc::new(Mutex::new(Pace::default()));
        let live = |kind| {
            let live = Live::new(kind, Arc::clone(&keyring), Arc::clone(&web), Arc::clone(&clock));
            Arc::new(live.paced(Arc::clone(&pace)))
        };
        let (live, sessions) = (live(Kind::Line), live(Kind::Session));
        let wire = (Arc::clone(&web), Arc::clone(&clock));
        let surfaces = Surfaces::new(
            (streaming, Arc::clone(&keyring)),
            wire,
            Arc::clone(&pace),
            Arc::clone(&live),
        );
        let surfaces = Arc::new(surfaces);
        let (kept, me) = (Mutex::default(), OnceCell::new());
        Self { keyring, web, clock, pace, live, sessions, surfaces, kept, me }
    }

    /// Shows answers while they come, until `ending`. Posts need it not. To be run once.
    pub fn stream(&self, desk: Arc<dyn Desk>, ending: CancellationToken) -> BoxFuture<'static, ()> {
        Arc::clone(&self.surfaces).run(desk, ending).boxed()
    }

    /// Shows what turns do, until `ending`; then takes away what it shows, and is over soon after.
    /// Posts need it not. To be run once.
    pub fn tell(&self, ending: CancellationToken) -> BoxFuture<'static, ()> {
        let lines = Arc::clone(&self.live).run(ending.clone());
        let sessions = Arc::clone(&self.sessions).run(ending);
        async move {
            tokio::join!(lines, sessions);
        }
        .boxed()
    }

    fn pace(&self) -> std::sync::MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As text, or as it is `drawn`.
    async fn deliver(&self, post: Post, drawn: Option<Rendered>) -> Result<String, ChannelError> {
        // Nothing is ever posted beside a thread: there it would speak to everybody.
        let thread = Thread::of(&post.address).map_err(|error| ChannelError::Never {
            what: format!("{error}; what names no thread is dead-lettered"),
        })?;
        let began = self.clock.now();
        let (first_at, sent) = self.kept().known(&post);
        let until = began.plus_ms(SLACK_POST_MS_MAX);
        let (mark, surface) = (false, None);
        let mut one = Try { posting: self, thread, post, until, first_at, sent, mark, surface };
        let done = one.run(drawn.as_ref()).await;
        match done {
            Ok(()) => {
                self.kept().done(&one.post);
                if let Some(turn) = first_post_of(&one.post.item) {
                    self.surfaces.done(&one.thread, turn);
                }
                self.live.posted(&one.thread);
                let first = one.sent.get(INTRO).or_else(|| one.sent.values().next());
                Ok(receipt(&one.thread, first.map_or("?", String::as_str)))
            }
            Err(error) => {
                let error = one.since_partly(error);
                let first_at = one.first_at.unwrap_or(began);
                self.kept().failed(&one.post, first_at, one.sent);
                Err(error)
            }
        }
    }
}

impl Channel for Posting {
    fn post(&self, post: Post) -> BoxFuture<'_, Result<String, ChannelError>> {
        self.deliver(post, None).boxed()
    }

    fn has_surfaces(&self) -> bool {
        true
    }

    fn shows(&self) -> bool {
        true
    }

    fn show(&self, card: Card) -> BoxFuture<'_, Result<String, ChannelError>> {
        self.draw(card).boxed()
    }

    fn earlier<'a>(&'a self, address: &'a Address, before: Timestamp) -> BoxFuture<'a, Earlier> {
        async move {
            match Thread::of(address) {
                Ok(thread) => self.read_earlier(&thread, before).await,
                Err(_) => Earlier::default(),
            }
        }
        .boxed()
    }

    fn has_files(&self) -> bool {
        true
    }

    fn read_file<'a>(
        &'a self,
        address: &'a Address,
        file: &'a FileId,
    ) -> BoxFuture<'a, Result<FileText, FileError>> {
        self.read_shared(address, file).boxed()
    }

    fn root(&self, root: Root) -> BoxFuture<'_, Result<String, ChannelError>> {
        self.begin(root).boxed()
    }

    fn progress(&self, session: &SessionId, address: &Address, progress: Progress) {
        if let Ok(thread) = Thread::of(address) {
            self.surfaces.heard(&thread, session, &progress);
            self.sessions.heard(thread.clone(), &progress);
            self.live.heard(thread, &progress);
        }
    }
}

/// One try of one post.
struct Try<'a> {
    posting: &'a Posting,
    thread: Thread,
    post: Post,
    until: Timestamp,
    /// When it was first tried by this process, if not now.
    first_at: Option<Timestamp>,
    sent: Sent,
    /// The next message says that it may be a repeat.
    mark: bool,
    /// What shows its turn, until a part has taken it over.
    surface: Option<Begun>,
}

impl Try<'_> {
    async fn run(&mut self, drawn: Option<&Rendered>) -> Result<(), ChannelError> {
        self.surface = self.settle().await?;
        let lost = self.surface.as_ref().is_some_and(|begun| begun.at.is_none());
        if self.post.may_repeat || lost {
            self.mark = !self.find_earlier().await && self.post.may_repeat;
        }
        // A part that is there has taken it over, or came in its place.
        self.surface = self.surface.take().filter(|_| self.sent.is_empty());
        if let Some(drawn) = drawn {
            return self.put_up(drawn).await;
        }
        let text = match self.post.sort {
            PostSort::Failure if !self.post.text.trim_start().starts_with('⚠') => {
                format!("⚠ {}", self.post.text)
            }
            PostSort::Failure | PostSort::Answer | PostSort::Woken | PostSort::Human => {
                self.post.text.clone()
            }
        };
        let Plan { parts, intro } = text::plan(&text);
        if let Some(intro) = intro
            && self.send_as_file(&intro, text).await?
        {
            return Ok(());
        }
        for (number, part) in parts.iter().enumerate() {
            self.send(&number.to_string(), part).await?;
        }
        Ok(())
    }

    /// What was posted is not posted again because the rest could not be.
    fn since_partly(&self, error: ChannelError) -> ChannelError {
        if self.sent.is_empty() {
            return error;
        }
        let partly = |what: String| format!("{what}; {} messages of it are there", self.sent.len());
        match error {
            ChannelError::Retry { what, after_ms } | ChannelError::Unknown { what, after_ms } => {
                ChannelError::Unknown { what: partly(what), after_ms }
            }
            ChannelError::Never { what } => ChannelError::Never { what: partly(what) },
        }
    }

    /// One part, unless it is there: as Markdown, or where Slack does not take that, as text.
    async fn send(&mut self, label: &str, part: &Part) -> Result<(), ChannelError> {
        if self.sent.contains_key(label) {
            return Ok(());
        }
        let pieces = format!("{label}/");
        if !self.sent.keys().any(|sent| sent.starts_with(&pieces)) {
            match self.say(label, &part.text, Some(&part.markdown)).await {
                Err(Stop::Refused(Verdict::Smaller(what))) => {
                    let item = &self.post.item;
                    tracing::warn!(item.id = %item, what = %what, "posted as plain text instead");
                }
                said => return said.map_err(Stop::over),
            }
        }
        for (number, text) in text::plain(&part.markdown).into_iter().enumerate() {
            let label = format!("{label}/{number}");
            if !self.sent.contains_key(&label) {
                self.say(&label, &text, None).await.map_err(Stop::over)?;
            }
        }
        Ok(())
    }

    /// One message.
    async fn say(&mut self, label: &str, text: &str, markdown: Option<&str>) -> Result<(), Stop> {
        match self.take_over(label, text, markdown).await? {
            Taken::Whole => return Ok(()),
            Taken::Beginning(rest) => {
                let blocks = json!([{ "type": "markdown", "text": rest.markdown }]);
                return self.send_blocks(label, &rest.text, Some(blocks)).await;
            }
            Taken::Nothing => {}
        }
        let blocks =
            markdown.map(|text| json!([{ "type": "markdown", "text": self.marked(text) }]));
        self.send_blocks(label, text, blocks).await
    }

    fn marked(&self, text: &str) -> String {
        if self.mark { format!("_{MARK}_\n\n{text}") } else { text.to_owned() }
    }

    async fn send_blocks(
        &mut self,
        label: &str,
        text: &str,
        blocks: Option<Value>,
    ) -> Result<(), Stop> {
        let body = json!({
            "channel": self.thread.channel(),
            "thread_ts": self.thread.root(),
            "text": self.marked(text),
            "blocks": blocks,
            "unfurl_links": false,
            "unfurl_media": false,
            "metadata": metadata(&self.post.session, self.post.item.as_str(), label),
        });
        let answer = self.call(POST, Rank::Answer, &body).await?;
        // It is done also when Slack does not say which message it is.
        let ts = answer.get("ts").and_then(Value::as_str).unwrap_or("?");
        self.sent.insert(label.to_owned(), ts.to_owned());
        self.mark = false;
        Ok(())
    }

    fn payload(&self, label: &str) -> Value {
        payload(&self.post.session, self.post.item.as_str(), label)
    }

    fn calls(&self) -> Calls<'_> {
        let Self { posting, thread, until, .. } = self;
        Calls { posting, at: (thread.installation(), thread.channel()), until: *until }
    }

    async fn call(&self, method: &'static str, rank: Rank, body: &Value) -> Result<Value, Stop> {
        self.calls().call(method, rank, body).await
    }

    async fn ask(
        &self,
        method: &'static str,
        rank: Rank,
        body: &Value,
    ) -> Result<Result<Value, CallError>, Stop> {
        self.calls().ask(method, rank, body).await
    }

    async fn in_time<T>(
        &self,
        method: &'static str,
        call: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        self.calls().in_time(method, call).await
    }
}

/// What is kept of a post: where it is.
pub(super) fn receipt(thread: &Thread, ts: &str) -> String {
    format!("slack:{}/{ts}", thread.channel())
}

/// Ids only: every app of the workspace may read them.
fn payload(session: &SessionId, item: &str, label: &str) -> Value {
    json!({ "session": session.as_str(), "item": item, "part": label })
}

/// What stands beside a message, so that it is known again.
pub(super) fn metadata(session: &SessionId, item: &str, label: &str) -> Value {
    json!({ "event_type": EVENT_TYPE, "event_payload": payload(session, item, label) })
}

/// Does this word of Slack's say that a message cannot be edited any more?
pub(super) fn cannot_be_changed(error: &str) -> bool {
    ["edit_window_closed", "cant_update_message", "block_mismatch"].contains(&error)
}
