//! What each thread's status should be, and what it is. Owns when the two are made equal. Decides
//! from `now`; must not know calls.

use std::collections::BTreeMap;

use crate::core::limits::{
    SLACK_STATUS_AGAIN_MS, SLACK_STATUS_LEFT_MS, SLACK_STATUS_MS, SLACK_STATUS_QUIET_MS_MAX,
    SLACK_STATUS_RETRY_MS, SLACK_STATUSES_MAX,
};
use crate::core::time::Timestamp;
use crate::slack::pace::{Pass, Rank};
use crate::slack::place::Thread;

/// What came of setting a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// It is there.
    Shown,
    /// It may be later.
    NotYet,
    /// It never will.
    NotHere,
}

/// One thread.
struct Status {
    /// `None`: nothing.
    wanted: Option<String>,
    /// What Slack shows, as far as is known.
    shown: Option<String>,
    /// Something may be shown that nobody knows of.
    unsure: bool,
    /// A call for it is under way.
    calling: bool,
    not_before: Timestamp,
    /// When it was last set.
    set_at: Timestamp,
    /// When a turn was last heard of.
    heard_at: Timestamp,
}

/// All of them. Bounded: what finds no room is not shown.
#[derive(Default)]
pub(super) struct Board {
    statuses: BTreeMap<Thread, Status>,
    /// Slack lets the bot show none.
    silent: bool,
}

impl Status {
    /// When it is to be set, if at all.
    fn due_at(&self) -> Option<Timestamp> {
        let differs = self.unsure || self.wanted != self.shown;
        let at = match (differs, &self.wanted) {
            (true, _) => self.not_before,
            // It would vanish.
            (false, Some(_)) => self.set_at.plus_ms(SLACK_STATUS_AGAIN_MS).max(self.not_before),
            (false, None) => return None,
        };
        (!self.calling).then_some(at)
    }
}

impl Board {
    /// A thread should have this status from now on.
    pub(super) fn want(&mut self, thread: Thread, now: Timestamp, wanted: Option<String>) {
        // What is shown is taken away all the same.
        let wanted = wanted.filter(|_| !self.silent);
        if let Some(status) = self.statuses.get_mut(&thread) {
            (status.wanted, status.heard_at) = (wanted, now);
        } else if wanted.is_some() && self.statuses.len() < SLACK_STATUSES_MAX {
            let status = Status {
                wanted,
                shown: None,
                unsure: false,
                calling: false,
                not_before: now,
                set_at: now,
                heard_at: now,
            };
            self.statuses.insert(thread, status);
        }
    }

    /// Slack has taken the status of a thread away by itself.
    pub(super) fn hidden(&mut self, thread: &Thread) {
        if let Some(status) = self.statuses.get_mut(thread) {
            status.shown = None;
        }
    }

    /// Takes out at most `room` statuses that are to be set now and that may be; and when to ask
    /// again if nothing is heard before.
    pub(super) fn due(
        &mut self,
        now: Timestamp,
        room: usize,
        mut may: impl FnMut(&Thread, Rank) -> Pass,
    ) -> (Vec<(Thread, Option<String>)>, Option<Timestamp>) {
        for status in self.statuses.values_mut() {
            // Its turn is gone, and nobody said so.
            if now.since_ms(status.heard_at) >= SLACK_STATUS_QUIET_MS_MAX {
                status.wanted = None;
            }
        }
        self.statuses.retain(|_, status| {
            status.calling || status.unsure || status.wanted.is_some() || status.shown.is_some()
        });
        let (mut due, mut next) = (Vec::new(), None::<Timestamp>);
        let mut sooner = |at: Timestamp| next = Some(next.map_or(at, |next| next.min(at)));
        for (thread, status) in &mut self.statuses {
            let Some(at) = status.due_at() else { continue };
            if at > now {
                sooner(at);
                continue;
            }
            if due.len() >= room {
                // The end of a call makes room, and asks again.
                break;
            }
            // What takes a status away is short and must not come late.
            let rank = if status.wanted.is_some() { Rank::Status } else { Rank::Quiet };
            match may(thread, rank) {
                Pass::Go => {
                    status.calling = true;
                    due.push((thread.clone(), status.wanted.clone()));
                }
                Pass::Wait(at) => {
                    status.not_before = at;
                    sooner(at);
                }
            }
        }
        (due, next)
    }

    /// A call is over that was to set this.
    pub(super) fn told(
        &mut self,
        thread: &Thread,
        now: Timestamp,
        (set, told): (Option<String>, Told),
    ) {
        let Some(status) = self.statuses.get_mut(thread) else { return };
        status.calling = false;
        status.not_before = now.plus_ms(SLACK_STATUS_MS);
        match told {
            Told::Shown => (status.shown, status.unsure, status.set_at) = (set, false, now),
            // What takes it away is not tried for ever: Slack does that itself in the end.
            Told::NotYet
                if set.is_none() && now.since_ms(status.heard_at) > SLACK_STATUS_LEFT_MS =>
            {
                self.statuses.remove(thread);
            }
            Told::NotYet => {
                status.unsure = true;
                status.not_before = now.plus_ms(SLACK_STATUS_RETRY_MS);
            }
            Told::NotHere => drop(self.statuses.remove(thread)),
        }
    }

    /// Slack lets the bot show none. Answers whether that is news.
    pub(super) fn give_up(&mut self) -> bool {
        for status in self.statuses.values_mut() {
            status.wanted = None;
        }
        !std::mem::replace(&mut self.silent, true)
    }

    /// No status from now on; these threads may have one.
    pub(super) fn end(&mut self) -> Vec<Thread> {
        self.silent = true;
        let all = std::mem::take(&mut self.statuses).into_iter();
        all.filter(|(_, status)| status.unsure || status.shown.is_some())
            .map(|(thread, _)| thread)
            .collect()
    }
}
