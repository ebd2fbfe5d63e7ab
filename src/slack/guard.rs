//! What the reception remembers for a while: commands that were carried out, and how much other
//! programs said in a thread. Bounded. Must not know the desk or the clock.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tokio::sync::OnceCell;

use super::place::Thread;
use crate::core::limits::{
    SLACK_BOT_MESSAGES_MAX, SLACK_BOT_THREADS_MAX, SLACK_BOTS_WINDOW_MS, SLACK_COMMANDS_KEPT_MAX,
};
use crate::core::time::Timestamp;

/// Commands by their names. Slack delivers one message twice, and each of them again: whoever comes
/// second waits for the first one, and does it only if the first one could not.
#[derive(Debug, Default)]
pub(super) struct Commands {
    cells: BTreeMap<String, Arc<OnceCell<()>>>,
    order: VecDeque<String>,
}

impl Commands {
    /// The one of this name. The oldest is forgotten where there are too many; the ledger knows
    /// those by their ids that change anything.
    pub(super) fn cell(&mut self, name: &str) -> Arc<OnceCell<()>> {
        if let Some(cell) = self.cells.get(name) {
            return Arc::clone(cell);
        }
        while self.order.len() >= SLACK_COMMANDS_KEPT_MAX {
            if let Some(oldest) = self.order.pop_front() {
                self.cells.remove(&oldest);
            }
        }
        let cell = Arc::<OnceCell<()>>::default();
        self.order.push_back(name.to_owned());
        self.cells.insert(name.to_owned(), Arc::clone(&cell));
        cell
    }
}

/// Two programs that answer each other never end by themselves.
#[derive(Debug, Default)]
pub(super) struct Bots {
    threads: BTreeMap<Thread, VecDeque<(Timestamp, String)>>,
}

impl Bots {
    /// May the message of this name be heard? A repeat of one that was is.
    pub(super) fn may_speak(&mut self, now: Timestamp, thread: &Thread, name: &str) -> bool {
        for said in self.threads.values_mut() {
            said.retain(|(at, _)| now.since_ms(*at) < SLACK_BOTS_WINDOW_MS);
        }
        self.threads.retain(|_, said| !said.is_empty());
        if !self.threads.contains_key(thread) && self.threads.len() >= SLACK_BOT_THREADS_MAX {
            // So many programs at once are a loop over threads.
            return false;
        }
        let said = self.threads.entry(thread.clone()).or_default();
        if said.iter().any(|(_, known)| known == name) {
            return true;
        }
        let room = said.len() < SLACK_BOT_MESSAGES_MAX;
        if room {
            said.push_back((now, name.to_owned()));
        }
        room
    }
}

#[cfg(test)]
mod tests;
