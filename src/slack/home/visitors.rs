//! Who has opened the app's own tab, and when it is drawn anew for them. Owns that nobody's is
//! drawn twice at once, nor by itself more often than every few seconds. Decides from `now`. Must
//! not know how it is drawn.

use std::collections::{BTreeMap, BTreeSet};

use super::super::hear::Visitor;
use super::super::pace::{Pass, Rank};
use crate::core::id::{Principal, SessionId};
use crate::core::limits::{SLACK_HOME_MS, SLACK_HOME_TRIES_MAX, SLACK_HOMES_MAX};
use crate::core::time::Timestamp;

/// One drawing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Job {
    pub(super) visitor: Visitor,
    /// What became of what they pressed.
    pub(super) said: Option<String>,
    /// What they see now: where nothing has changed, nothing need be drawn. `None` where they wait
    /// for it.
    pub(super) seen: Option<String>,
    waited: bool,
}

/// What became of one drawing.
#[derive(Debug)]
pub(super) enum Drawn {
    /// This is seen now, with work in these sessions.
    Seen(String, BTreeSet<SessionId>),
    /// Slack said "too many"; its pace is kept elsewhere.
    Limited,
    /// It may work later.
    Again,
    /// It will not.
    Never,
}

/// What is known of one person's tab.
struct Tab {
    visitor: Visitor,
    /// When it is to be drawn, if it is.
    due: Option<Timestamp>,
    /// They wait for it.
    waits: bool,
    /// Not drawn by itself before.
    rests_until: Timestamp,
    drawing: bool,
    tries: u32,
    said: Option<String>,
    seen: Option<String>,
    sessions: BTreeSet<SessionId>,
    /// In which order people came.
    came: u64,
}

/// Everybody who has opened it; the oldest are forgotten where there are too many.
#[derive(Default)]
pub(super) struct Visitors {
    tabs: BTreeMap<Principal, Tab>,
    count: u64,
}

impl Visitors {
    /// Somebody opens it, or has pressed something in it.
    pub(super) fn came(&mut self, now: Timestamp, visitor: Visitor, said: Option<String>) {
        self.count += 1;
        if !self.tabs.contains_key(&visitor.by) && self.tabs.len() >= SLACK_HOMES_MAX {
            let oldest = self.tabs.iter().min_by_key(|(_, tab)| tab.came);
            if let Some(oldest) = oldest.map(|(by, _)| by.clone()) {
                self.tabs.remove(&oldest);
            }
        }
        let tab = self.tabs.entry(visitor.by.clone()).or_insert_with(|| Tab {
            visitor,
            due: None,
            waits: false,
            rests_until: now,
            drawing: false,
            tries: 0,
            said: None,
            seen: None,
            sessions: BTreeSet::new(),
            came: 0,
        });
        (tab.due, tab.waits, tab.tries, tab.came) = (Some(now), true, 0, self.count);
        if said.is_some() {
            tab.said = said;
        }
    }

    /// Has anybody of this installation opened it?
    pub(super) fn any_of(&self, installation: &str) -> bool {
        self.tabs.values().any(|tab| tab.visitor.installation == installation)
    }

    /// Something began or ended in a session where these people have work. Whoever saw something of
    /// theirs there may see it no longer.
    pub(super) fn stirred(
        &mut self,
        now: Timestamp,
        session: &SessionId,
        owners: &BTreeSet<Principal>,
    ) {
        for (by, tab) in &mut self.tabs {
            if owners.contains(by) || tab.sessions.contains(session) {
                tab.wants(now);
            }
        }
    }

    /// Something was missed: everybody's may be old.
    pub(super) fn all_stirred(&mut self, now: Timestamp) {
        self.tabs.values_mut().for_each(|tab| tab.wants(now));
    }

    /// What is to be drawn now, at most so much at a time, and when to look again at the latest.
    pub(super) fn due(
        &mut self,
        now: Timestamp,
        most: usize,
        mut pass: impl FnMut(&str, Rank) -> Pass,
    ) -> (Vec<Job>, Option<Timestamp>) {
        let mut room = most.saturating_sub(self.tabs.values().filter(|tab| tab.drawing).count());
        let (mut jobs, mut next): (Vec<Job>, Option<Timestamp>) = (vec![], None);
        let mut later = |at: Timestamp| next = Some(next.map_or(at, |known| known.min(at)));
        let mut tabs: Vec<&mut Tab> = self.tabs.values_mut().filter(|tab| !tab.drawing).collect();
        // Who waits goes first.
        tabs.sort_by_key(|tab| (!tab.waits, tab.due));
        for tab in tabs {
            let Some(due) = tab.due else { continue };
            if due > now {
                later(due);
                continue;
            }
            if room == 0 {
                // One that ends makes room.
                continue;
            }
            let rank = if tab.waits { Rank::Answer } else { Rank::Status };
            match pass(&tab.visitor.installation, rank) {
                Pass::Wait(at) => later(at),
                Pass::Go => {
                    room -= 1;
                    jobs.push(tab.job());
                }
            }
        }
        (jobs, next)
    }

    /// What became of one.
    pub(super) fn drawn(&mut self, now: Timestamp, job: &Job, drawn: Drawn) {
        let Some(tab) = self.tabs.get_mut(&job.visitor.by) else { return };
        tab.drawing = false;
        let again = |tab: &mut Tab, at: Timestamp| {
            tab.due = Some(tab.due.map_or(at, |known| known.min(at)));
            tab.waits |= job.waited;
        };
        match drawn {
            Drawn::Seen(seen, sessions) => {
                (tab.seen, tab.sessions, tab.tries) = (Some(seen), sessions, 0);
                tab.rests_until = now.plus_ms(SLACK_HOME_MS);
                if !tab.waits {
                    tab.due = tab.due.map(|due| due.max(tab.rests_until));
                }
                if tab.said == job.said {
                    // Once is enough.
                    tab.said = None;
                }
            }
            Drawn::Limited => again(tab, now),
            Drawn::Again if tab.tries + 1 < SLACK_HOME_TRIES_MAX => {
                tab.tries += 1;
                again(tab, now.plus_ms(SLACK_HOME_MS));
            }
            Drawn::Again | Drawn::Never => {
                if tab.due.is_none() {
                    self.tabs.remove(&job.visitor.by);
                }
            }
        }
    }
}

impl Tab {
    fn job(&mut self) -> Job {
        let waited = std::mem::take(&mut self.waits);
        (self.due, self.drawing) = (None, true);
        let (visitor, said) = (self.visitor.clone(), self.said.clone());
        Job { visitor, said, seen: self.seen.clone().filter(|_| !waited), waited }
    }

    fn wants(&mut self, now: Timestamp) {
        if self.due.is_none() {
            self.due = Some(self.rests_until.max(now));
        }
    }
}

#[cfg(test)]
mod tests;
