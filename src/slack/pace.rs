//! When a call may be made. Owns the pace of each channel, and what Slack has limited for how long.
//! Decides from `now`. Must not know what is sent, nor wait.

use std::collections::BTreeMap;

use crate::core::limits::{SLACK_BURST_MAX, SLACK_PACE_MS, SLACK_PACED_MAX};
use crate::core::time::Timestamp;

/// What a call is to the people who read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rank {
    /// A message that somebody waits for: a few may follow each other at once.
    Answer,
    /// What is shown meanwhile. It goes only where no message of the last while is near, so that
    /// the messages that may follow each other at once are left to answers.
    Status,
    /// Nobody sees it; it only waits where Slack said so.
    Quiet,
}

/// What may be done now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pass {
    /// Do it; it is counted.
    Go,
    /// Not before. Ask again then.
    Wait(Timestamp),
}

/// The paces of all channels.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// By channel: when it would be at rest again, with one message each `SLACK_PACE_MS`.
    rest_at: BTreeMap<String, Timestamp>,
    /// By method and channel: not before.
    limited: BTreeMap<(&'static str, String), Timestamp>,
}

impl Pace {
    /// May `method` be called for `channel` now?
    pub(super) fn ask(
        &mut self,
        now: Timestamp,
        (method, channel): (&'static str, &str),
        rank: Rank,
    ) -> Pass {
        let limited = self.limited.get(&(method, channel.to_owned())).copied();
        if let Some(until) = limited.filter(|until| *until > now) {
            return Pass::Wait(until);
        }
        let ahead_ms = match rank {
            Rank::Quiet => return Pass::Go,
            Rank::Status => 0,
            Rank::Answer => (SLACK_BURST_MAX - 1) * SLACK_PACE_MS,
        };
        let rest_at = self.rest_at.get(channel).copied().unwrap_or(now).max(now);
        let wait_ms = rest_at.since_ms(now).saturating_sub(ahead_ms);
        if wait_ms > 0 {
            return Pass::Wait(now.plus_ms(wait_ms));
        }
        make_room(&mut self.rest_at, now);
        self.rest_at.insert(channel.to_owned(), rest_at.plus_ms(SLACK_PACE_MS));
        Pass::Go
    }

    /// Slack said "too many": nothing goes to that method and channel for so long. Others go on.
    pub(super) fn limited(
        &mut self,
        now: Timestamp,
        (method, channel): (&'static str, &str),
        after_ms: u64,
    ) {
        make_room(&mut self.limited, now);
        let until = now.plus_ms(after_ms.max(SLACK_PACE_MS));
        let known = self.limited.entry((method, channel.to_owned())).or_insert(until);
        *known = until.max(*known);
    }
}

/// What is over goes; if that leaves no room, so does what is over first.
fn make_room<K: Ord + Clone>(all: &mut BTreeMap<K, Timestamp>, now: Timestamp) {
    if all.len() < SLACK_PACED_MAX {
        return;
    }
    all.retain(|_, at| *at > now);
    if all.len() >= SLACK_PACED_MAX
        && let Some(first) = all.iter().min_by_key(|(_, at)| **at).map(|(key, _)| key.clone())
    {
        all.remove(&first);
    }
}

#[cfg(test)]
mod tests;
