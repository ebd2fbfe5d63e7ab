//! Slack at its wire: what people see of the bot there. Time is moved by the tests alone.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod begun;
mod checkup;
mod earlier;
mod engine;
mod files;
mod gone;
mod home;
mod install;
mod killed;
mod live;
mod long;
mod people;
mod posting;
mod repeats;
mod roots;
mod stirs;
mod streaming;
mod surfaces;
mod watching;
mod whole;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use dogwatch::core::execution::{Address, PostSort};
use dogwatch::core::id::{ItemId, SessionId};
use dogwatch::core::limits::SLACK_CALL_MS;
use dogwatch::ports::{Channel, ChannelError, Post};
use dogwatch::slack::posting::Posting;

use crate::support::fake_slack::{FakeSlack, Message};
use crate::support::manual_clock::ManualClock;

/// Only to fail a test that hangs.
const PATIENCE: Duration = Duration::from_mins(2);

async fn patiently<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.unwrap_or_else(|_elapsed| panic!("it hangs"))
}

/// Lets time pass, for whoever sleeps for no longer than `ms`, until something has happened. Calls
/// that are under way have all the time they need.
async fn pass<T>(clock: &ManualClock, ms: u64, until: impl Future<Output = T>) -> T {
    let moves = async {
        loop {
            let sleeps = clock.sleeps(0).await;
            let last = sleeps.last().copied().unwrap_or_default();
            if last <= ms && last != SLACK_CALL_MS {
                clock.advance(last);
            }
            clock.sleeps(sleeps.len() + 1).await;
        }
    };
    tokio::select! {
        done = patiently(until) => done,
        () = moves => panic!("time does not end"),
    }
}

/// A bot that posts into one thread of C1.
struct Stand {
    slack: FakeSlack,
    clock: ManualClock,
    posting: Posting,
    root: String,
}

impl Stand {
    async fn new() -> Self {
        let (slack, clock) = (FakeSlack::start().await, ManualClock::new());
        let posting = slack.posting(Arc::new(clock.clone()));
        let root = slack.root("C1");
        Self { slack, clock, posting, root }
    }

    /// The bot after a start: it remembers nothing.
    fn restart(&mut self) {
        self.posting = self.slack.posting(Arc::new(self.clock.clone()));
    }

    async fn post(&self, text: &str) -> Result<String, ChannelError> {
        self.send(post(&self.root, text)).await
    }

    /// The same post again, after an unknown outcome.
    async fn again(&self, text: &str) -> Result<String, ChannelError> {
        self.send(Post { may_repeat: true, ..post(&self.root, text) }).await
    }

    async fn send(&self, post: Post) -> Result<String, ChannelError> {
        patiently(self.posting.post(post)).await
    }

    /// What stands in the thread.
    fn thread(&self) -> Vec<Message> {
        self.slack.thread("C1", &self.root)
    }

    fn texts(&self) -> Vec<String> {
        self.thread().into_iter().map(|message| message.text).collect()
    }
}

fn address(channel: &str, root: &str) -> Address {
    Address { surface: "slack".to_owned(), thread: format!("T1/{channel}/{root}") }
}

fn session(channel: &str, root: &str) -> SessionId {
    SessionId::new(format!("slack/T1/{channel}/{root}")).unwrap()
}

fn post(root: &str, text: &str) -> Post {
    Post {
        item: ItemId::new("post/1/0").unwrap(),
        session: session("C1", root),
        address: address("C1", root),
        text: text.to_owned(),
        sort: PostSort::Answer,
        may_repeat: false,
        surface: None,
    }
}

/// The Markdown of a message's block.
fn markdown(message: &Message) -> String {
    message.blocks.pointer("/0/text").and_then(|text| text.as_str()).unwrap_or_default().to_owned()
}

/// Which part of its post a message says that it is.
fn part(message: &Message) -> String {
    let part = message.metadata.pointer("/event_payload/part");
    part.and_then(|part| part.as_str()).unwrap_or_default().to_owned()
}

fn retry_ms(result: Result<String, ChannelError>) -> u64 {
    match result {
        Err(ChannelError::Retry { after_ms, .. }) => after_ms,
        other => panic!("not to be tried again: {other:?}"),
    }
}

fn unknown(result: Result<String, ChannelError>) -> String {
    match result {
        Err(ChannelError::Unknown { what, .. }) => what,
        other => panic!("not unknown: {other:?}"),
    }
}

fn never(result: Result<String, ChannelError>) -> String {
    match result {
        Err(ChannelError::Never { what }) => what,
        other => panic!("not given up: {other:?}"),
    }
}
