//! The terminal as a `Channel`: what the engine posts and what it shows of a turn, on their way to
//! the screen. Must not know what the screen looks like.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Mutex, PoisonError};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};

use crate::core::execution::Address;
use crate::core::id::SessionId;
use crate::core::limits::TERMINAL_POSTS_KEPT_MAX;
use crate::ports::{Channel, ChannelError, Post, Progress};

use super::chat::ChatName;

/// After so long the outbox tries a post again that the screen did not take.
const SCREEN_AWAY_MS: u64 = 1_000;

/// On its way to the screen.
pub(super) enum Signal {
    /// To be posted; the sender hears when it is written.
    Post { chat: ChatName, post: Post, written: oneshot::Sender<()> },
    /// To be shown, if there is room.
    Progress { chat: ChatName, progress: Progress },
    /// The bot of an attached terminal is away, or back.
    Link { up: bool },
    /// Something about it that a person must see.
    Trouble { what: String },
}

/// The terminal's place where people read. It posts while [`super::run`] runs; before that a post
/// waits, after that it is refused for now and stays in the outbox.
pub struct Console {
    signals: mpsc::Sender<Signal>,
    /// Marks of the last posts, so that a repeat after a lost answer is not shown twice.
    posted: Mutex<VecDeque<String>>,
}

impl Console {
    pub(super) fn new(signals: mpsc::Sender<Signal>) -> Self {
        Self { signals, posted: Mutex::new(VecDeque::new()) }
    }

    fn was_posted(&self, mark: &String) -> bool {
        self.posted.lock().unwrap_or_else(PoisonError::into_inner).contains(mark)
    }

    fn remember(&self, mark: String) {
        let mut posted = self.posted.lock().unwrap_or_else(PoisonError::into_inner);
        if posted.len() >= TERMINAL_POSTS_KEPT_MAX {
            posted.pop_front();
        }
        posted.push_back(mark);
    }

    /// The bot that this terminal is attached to is away, or back.
    pub(super) async fn link(&self, up: bool) {
        // A screen that is gone has nobody to tell.
        let _ = self.signals.send(Signal::Link { up }).await;
    }

    /// Something about that bot that a person must see.
    pub(super) async fn trouble(&self, what: String) {
        let _ = self.signals.send(Signal::Trouble { what }).await;
    }

    async fn write(&self, post: Post) -> Result<String, ChannelError> {
        let chat = chat_of(&post.session, &post.address).ok_or_else(|| ChannelError::Never {
            what: format!(
                "{}/{} of session {} is no chat of a terminal",
                post.address.surface, post.address.thread, post.session
            ),
        })?;
        // An item's id is unique in its session only.
        let reference = format!("{}#{}", post.session, post.item);
        let mark = mark(&reference, &post.text);
        if self.was_posted(&mark) {
            return Ok(reference);
        }
        let (written, done) = oneshot::channel();
        let away = || ChannelError::Retry {
            what: "the terminal is closed".to_owned(),
            after_ms: SCREEN_AWAY_MS,
        };
        self.signals.send(Signal::Post { chat, post, written }).await.map_err(|_| away())?;
        done.await.map_err(|_| away())?;
        self.remember(mark);
        Ok(reference)
    }
}

/// By what a repeat is known. A store that was emptied or put back counts its items anew, so the
/// same item with another text is another post.
fn mark(reference: &str, text: &str) -> String {
    let mut hash = DefaultHasher::new();
    text.hash(&mut hash);
    format!("{reference} {:016x}", hash.finish())
}

/// The chat, when session and address agree on it.
pub(super) fn chat_of(session: &SessionId, address: &Address) -> Option<ChatName> {
    let chat = ChatName::of(address)?;
    chat.session().is_ok_and(|own| own == *session).then_some(chat)
}

impl Channel for Console {
    fn post(&self, post: Post) -> BoxFuture<'_, Result<String, ChannelError>> {
        self.write(post).boxed()
    }

    fn progress(&self, session: &SessionId, address: &Address, progress: Progress) {
        if let Some(chat) = chat_of(session, address) {
            // A screen that is behind loses progress, never a post.
            let _ = self.signals.try_send(Signal::Progress { chat, progress });
        }
    }
}
