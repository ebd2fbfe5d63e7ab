//! How a thread stands while a turn runs: Slack's status line under it, "is thinking…", and where
//! the workspace has sessions of agents, that this one works, which is where a person finds Slack's
//! own button to stop it. Owns when either is set, set again and taken away. Must not know texts.
//!
//! Whatever goes wrong here is no more than a missing line: it never fails a turn, and where Slack
//! does not let the bot show a status nothing else is said instead.

mod board;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde_json::json;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use self::board::{Board, Told};
use super::access::Keyring;
use super::pace::{Pace, Rank};
use super::place::Thread;
use super::verdict;
use super::web::{CallError, Web};
use crate::core::limits::{SLACK_STATUS_CALLS_MAX, SLACK_STATUS_END_MS};
use crate::core::time::Timestamp;
use crate::ports::{Clock, Progress};

const LINE: &str = "assistant.threads.setStatus";
const SESSION: &str = "agents.sessions.setStatus";
/// Longest name of a tool that is shown.
const TOOL_CHARS_MAX: usize = 40;

/// What is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The line under a thread, in words. Whatever the bot posts takes it away.
    Line,
    /// Whether the agent works.
    Session,
}

impl Kind {
    const fn method(self) -> &'static str {
        match self {
            Self::Line => LINE,
            Self::Session => SESSION,
        }
    }

    /// As Slack calls it; `None` is no status.
    const fn word(self, status: Option<&str>) -> &str {
        match (self, status) {
            (Self::Line, Some(words)) => words,
            (Self::Line, None) => "",
            (Self::Session, Some(_)) => "processing",
            (Self::Session, None) => "active",
        }
    }
}

/// The statuses of all threads, of one kind.
pub(super) struct Live {
    kind: Kind,
    keyring: Arc<Keyring>,
    web: Arc<Web>,
    clock: Arc<dyn Clock>,
    pace: Arc<Mutex<Pace>>,
    board: Mutex<Board>,
    stirred: Notify,
}

impl Live {
    pub(super) fn new(
        kind: Kind,
        keyring: Arc<Keyring>,
        web: Arc<Web>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let (pace, board, stirred) = (Arc::default(), Mutex::default(), Notify::new());
        Self { kind, keyring, web, clock, pace, board, stirred }
    }

    /// Keeping this pace, which others keep as well.
    pub(super) fn paced(self, pace: Arc<Mutex<Pace>>) -> Self {
        Self { pace, ..self }
    }

    /// A turn in this thread goes on. Returns at once: only the last word of each thread is kept,
    /// so none can be crowded out by others.
    pub(super) fn heard(&self, thread: Thread, progress: &Progress) {
        let status = match progress {
            // It works, whatever it does.
            Progress::Began { .. } | Progress::Tool { .. } if self.kind == Kind::Session => {
                Some(String::new())
            }
            Progress::Began { .. } => Some("is thinking…".to_owned()),
            Progress::Tool { name } => {
                let name: String = name.chars().take(TOOL_CHARS_MAX).collect();
                Some(format!("runs {name}…"))
            }
            Progress::Ended | Progress::Failed { .. } => None,
            Progress::Text(_) | Progress::Discarded | Progress::Whole => return,
        };
        self.board().want(thread, self.clock.now(), status);
        self.stirred.notify_one();
    }

    /// The bot has posted there, which takes the status away.
    pub(super) fn posted(&self, thread: &Thread) {
        self.board().hidden(thread);
        self.stirred.notify_one();
    }

    fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pace(&self) -> MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes Slack show what the board wants, until the end.
    pub(super) async fn run(self: Arc<Self>, ending: CancellationToken) {
        let mut calls = FuturesUnordered::new();
        loop {
            let room = SLACK_STATUS_CALLS_MAX.saturating_sub(calls.len());
            let (due, next) = self.due(room);
            calls.extend(due.into_iter().map(|(thread, status)| self.set(thread, status)));
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
        tokio::select! {
            () = self.take_all_away(calls) => {}
            () = self.clock.sleep_until(until) => {}
        }
    }

    /// What is to be set now, and when to look again at the latest.
    fn due(&self, room: usize) -> (Vec<(Thread, Option<String>)>, Option<Timestamp>) {
        let now = self.clock.now();
        let mut board = self.board();
        let (due, next) = board.due(now, room, |thread, rank| {
            // A session is no message, and none waits for it.
            let rank = if self.kind == Kind::Session { Rank::Quiet } else { rank };
            self.pace().ask(now, (self.kind.method(), thread.channel()), rank)
        });
        (due, next)
    }

    async fn take_all_away(&self, mut under_way: FuturesUnordered<impl Future<Output = ()>>) {
        // What is under way would come after what takes it away.
        while under_way.next().await.is_some() {}
        let shown = self.board().end();
        let mut calls: FuturesUnordered<_> =
            shown.into_iter().map(|thread| self.set(thread, None)).collect();
        while calls.next().await.is_some() {}
    }

    async fn set(&self, thread: Thread, status: Option<String>) {
        let body = json!({
            "channel_id": thread.channel(),
            "thread_ts": thread.root(),
            "status": self.kind.word(status.as_deref()),
        });
        let Ok(token) = self.keyring.token(thread.installation()).await else {
            // Where nobody can speak, nothing is shown.
            self.board().told(&thread, self.clock.now(), (status, Told::NotHere));
            return;
        };
        let method = self.kind.method();
        let answered = self.web.call(&token, method, &body).await;
        let now = self.clock.now();
        let told = match answered {
            Ok(_) => Told::Shown,
            Err(CallError::Limited { after_ms, .. }) => {
                self.pace().limited(now, (method, thread.channel()), after_ms);
                Told::NotYet
            }
            Err(CallError::Unreached { .. } | CallError::Unknown { .. }) => Told::NotYet,
            Err(CallError::Refused { error, .. })
                if verdict::is_of_thread(&error) || verdict::is_of_now(&error) =>
            {
                Told::NotHere
            }
            Err(error @ CallError::Refused { .. }) => {
                match (self.board().give_up(), self.kind) {
                    (true, Kind::Line) => tracing::warn!(error = %error,
                        "nobody sees in Slack what a turn does; its answer comes all the same"),
                    (true, Kind::Session) => tracing::debug!(error = %error,
                        "this workspace has no sessions of agents, or not for this app"),
                    (false, Kind::Line | Kind::Session) => {}
                }
                Told::NotHere
            }
        };
        self.board().told(&thread, now, (status, told));
    }
}

#[cfg(test)]
mod tests;
