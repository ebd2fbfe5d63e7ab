//! What people see of a turn while it runs: Slack's status line under the thread, "is thinking…".
//! Owns when it is set, set again and taken away. Must not know posts: an answer lands once, whole,
//! by the outbox, and no text of it is shown before.
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
use super::pace::Pace;
use super::place::Thread;
use super::web::{CallError, Web};
use crate::core::limits::{SLACK_STATUS_CALLS_MAX, SLACK_STATUS_END_MS};
use crate::core::time::Timestamp;
use crate::ports::{Clock, Progress};

const SET: &str = "assistant.threads.setStatus";
/// Longest name of a tool that is shown.
const TOOL_CHARS_MAX: usize = 40;

/// The statuses of all threads.
pub(super) struct Live {
    keyring: Arc<Keyring>,
    web: Arc<Web>,
    clock: Arc<dyn Clock>,
    pace: Arc<Mutex<Pace>>,
    board: Mutex<Board>,
    stirred: Notify,
}

impl Live {
    pub(super) fn new(keyring: Arc<Keyring>, web: Arc<Web>, clock: Arc<dyn Clock>) -> Self {
        let (pace, board, stirred) = (Arc::default(), Mutex::default(), Notify::new());
        Self { keyring, web, clock, pace, board, stirred }
    }

    /// Keeping this pace, which others keep as well.
    pub(super) fn paced(self, pace: Arc<Mutex<Pace>>) -> Self {
        Self { pace, ..self }
    }

    /// A turn in this thread goes on. Returns at once: only the last word of each thread is kept,
    /// so none can be crowded out by others.
    pub(super) fn heard(&self, thread: Thread, progress: &Progress) {
        let status = match progress {
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
        let (due, next) = board
            .due(now, room, |thread, rank| self.pace().ask(now, (SET, thread.channel()), rank));
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
            "status": status.as_deref().unwrap_or_default(),
        });
        let Ok(token) = self.keyring.token(thread.installation()).await else {
            // Where nobody can speak, nothing is shown.
            self.board().told(&thread, self.clock.now(), (status, Told::NotHere));
            return;
        };
        let answered = self.web.call(&token, SET, &body).await;
        let now = self.clock.now();
        let told = match answered {
            Ok(_) => Told::Shown,
            Err(CallError::Limited { after_ms, .. }) => {
                self.pace().limited(now, (SET, thread.channel()), after_ms);
                Told::NotYet
            }
            Err(CallError::Unreached { .. } | CallError::Unknown { .. }) => Told::NotYet,
            Err(CallError::Refused { error, .. }) if is_of_thread(&error) => Told::NotHere,
            Err(error @ CallError::Refused { .. }) => {
                if self.board().give_up() {
                    tracing::warn!(error = %error,
                        "nobody sees in Slack what a turn does; its answer comes all the same");
                }
                Told::NotHere
            }
        };
        self.board().told(&thread, now, (status, told));
    }
}

/// Is it this thread that cannot have a status, and not the bot that may not show any?
fn is_of_thread(error: &str) -> bool {
    error.contains("channel") || error.contains("thread") || error == "is_archived"
}

#[cfg(test)]
mod tests;
