//! What whoever runs the next turn of a session will want to see, read along with what an operation
//! needs anyway: from a completion to the model's request there is one read. Nothing is decided by
//! it. Must not know who keeps it.

use super::take;
use crate::core::ledger::row::{Inbox, Live};
use crate::core::ledger::{Key, Working};
use crate::core::limits::LOG_AHEAD_ENTRIES_MAX;

/// Entries that a turn usually adds: an answer, or a call with its result and the answer to that.
const OWN_ENTRIES: u64 = 3;

/// For a session that is about to be claimed, once its frame is there; nothing where somebody runs
/// it already. `kept` knows what need not be read: a log whose last entry is kept is kept whole, so
/// a long one costs nothing.
pub(super) fn of(have: &Working, kept: &dyn Fn(&Key) -> bool) -> Vec<Key> {
    if !have.has(&Key::head()) {
        return vec![];
    }
    let head = have.head();
    if head.open.is_some() || head.stopped {
        return vec![];
    }
    // The frame as well: the next completion then begins with what it needs.
    let mut keys = vec![Key::summary(), Key::tails(), Key::live(), Key::recent()];
    keys.push(Key::turn(head.turns + 1));
    if head.tlen.checked_sub(1).is_some_and(|last| !kept(&Key::entry(last))) {
        let from = head.log_from.max(head.tlen.saturating_sub(LOG_AHEAD_ENTRIES_MAX));
        keys.extend((from..head.tlen).map(Key::entry));
    }
    if have.has(&Key::live()) {
        let live = have.get::<Live>(&Key::live()).cloned().unwrap_or_default();
        keys.extend(live.0.iter().map(Key::execution));
    }
    if have.has(&Key::inbox())
        && let Some(inbox) = have.get::<Inbox>(&Key::inbox())
    {
        let selection = take::first(inbox);
        // What is taken becomes entries, this completion among them, and the turn adds a few.
        let entries = selection.people.len() as u64 + 1 + OWN_ENTRIES;
        keys.extend((head.tlen..head.tlen + entries).map(Key::entry));
        keys.extend(selection.keys());
        keys.extend(inbox.notices.iter().map(|unread| Key::chain(unread.chain)));
    }
    keys.sort();
    keys.dedup();
    keys
}
