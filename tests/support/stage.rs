//! A channel that keeps what is posted and shown, and fails as a test says.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use dogwatch::core::execution::Address;
use dogwatch::core::id::SessionId;
use dogwatch::ports::{Channel, ChannelError, Post, Progress};
use futures_util::future::BoxFuture;
use tokio::sync::watch;

/// What becomes of a post.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reaction {
    /// It is there, and nobody hears of it.
    PostedUnheard,
    /// It is not there, and nobody ever says so.
    Stall,
    /// Not now.
    Retry,
    /// Not ever.
    Never,
}

/// Where people would read. A clone is the same place; it outlives the bot.
#[derive(Clone, Default)]
pub(crate) struct Stage(Arc<Shared>);

#[derive(Default)]
struct Shared {
    reactions: Mutex<VecDeque<Reaction>>,
    posted: watch::Sender<Vec<Post>>,
    tried: watch::Sender<Vec<Post>>,
    shown: watch::Sender<Vec<(SessionId, Progress)>>,
}

impl Stage {
    /// The next post fares so; those without a word are posted.
    pub(crate) fn will(&self, reaction: Reaction) {
        self.0.reactions.lock().unwrap().push_back(reaction);
    }

    /// All that people can read, in order.
    pub(crate) fn posted(&self) -> Vec<Post> {
        self.0.posted.borrow().clone()
    }

    /// Waits until `is` holds for what people can read.
    pub(crate) async fn posted_when(&self, is: impl Fn(&[Post]) -> bool) -> Vec<Post> {
        self.0.posted.subscribe().wait_for(|all| is(all)).await.unwrap().clone()
    }

    /// Waits until so many posts were tried; all that were.
    pub(crate) async fn tried(&self, count: usize) -> Vec<Post> {
        self.0.tried.subscribe().wait_for(|all| all.len() >= count).await.unwrap().clone()
    }

    /// All that was shown of turns, in order.
    pub(crate) fn shown(&self) -> Vec<(SessionId, Progress)> {
        self.0.shown.borrow().clone()
    }

    /// Waits until so many things were shown for which `is` holds; these.
    pub(crate) async fn shown_when(
        &self,
        count: usize,
        is: impl Fn(&Progress) -> bool,
    ) -> Vec<Progress> {
        let mut shown = self.0.shown.subscribe();
        let of = |all: &[(SessionId, Progress)]| -> Vec<Progress> {
            all.iter().map(|(_, progress)| progress).filter(|one| is(one)).cloned().collect()
        };
        let all = shown.wait_for(|all| of(all).len() >= count).await.unwrap();
        of(&all)
    }
}

impl Channel for Stage {
    fn post(&self, post: Post) -> BoxFuture<'_, Result<String, ChannelError>> {
        Box::pin(async move {
            let reaction = self.0.reactions.lock().unwrap().pop_front();
            let there = matches!(reaction, None | Some(Reaction::PostedUnheard));
            let receipt = format!("{}#{}", post.session, post.item);
            if there {
                self.0.posted.send_modify(|all| all.push(post.clone()));
            }
            self.0.tried.send_modify(|all| all.push(post));
            let what = "as the test says".to_owned();
            match reaction {
                None => Ok(receipt),
                Some(Reaction::Retry) => Err(ChannelError::Retry { what, after_ms: 0 }),
                Some(Reaction::Never) => Err(ChannelError::Never { what }),
                Some(Reaction::PostedUnheard | Reaction::Stall) => std::future::pending().await,
            }
        })
    }

    fn progress(&self, session: &SessionId, _address: &Address, progress: Progress) {
        self.0.shown.send_modify(|all| all.push((session.clone(), progress)));
    }
}
