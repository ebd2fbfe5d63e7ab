//! What this process knows of posts that it tried: when first, and what is posted of them. Must not
//! know why a try failed. Another node may know more, so this never replaces a look.

use std::collections::VecDeque;

use super::Sent;
use crate::core::id::{ItemId, SessionId};
use crate::core::limits::SLACK_POSTS_KEPT_MAX;
use crate::core::time::Timestamp;
use crate::ports::Post;

struct Tried {
    session: SessionId,
    item: ItemId,
    first_at: Timestamp,
    sent: Sent,
}

/// Bounded; what is forgotten is looked for.
#[derive(Default)]
pub(super) struct Kept(VecDeque<Tried>);

impl Kept {
    /// When it was first tried, if that is known, and what is posted of it.
    pub(super) fn known(&self, post: &Post) -> (Option<Timestamp>, Sent) {
        let known = self.0.iter().find(|one| is(one, post));
        known.map_or((None, Sent::new()), |one| (Some(one.first_at), one.sent.clone()))
    }

    /// All of it is posted.
    pub(super) fn done(&mut self, post: &Post) {
        self.0.retain(|one| !is(one, post));
    }

    /// It is to be tried again, or not.
    pub(super) fn failed(&mut self, post: &Post, first_at: Timestamp, sent: Sent) {
        self.done(post);
        if self.0.len() >= SLACK_POSTS_KEPT_MAX {
            self.0.pop_front();
        }
        let (session, item) = (post.session.clone(), post.item.clone());
        self.0.push_back(Tried { session, item, first_at, sent });
    }
}

fn is(one: &Tried, post: &Post) -> bool {
    one.session == post.session && one.item == post.item
}
