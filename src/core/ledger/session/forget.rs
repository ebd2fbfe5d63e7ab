//! `Forget` and `Retire`: rows past their retention go. Owns what may go; what is not over never
//! does. Must not know when anybody looks.

use super::entry_keys;
use crate::core::arrival::Body;
use crate::core::execution::{Execution, ModelReceipt};
use crate::core::id::SessionId;
use crate::core::ledger::row::{Head, Holder, Live, RowType, StartKey, Tails, Turn};
use crate::core::ledger::{
    Aggregate, Class, Index, Key, Operation, Refusal, Row, Situation, Working, index_of,
};
use crate::core::limits::FORGET_ROWS_MAX;

/// Rows that every session may have.
const FRAME_ROWS: usize = 6;

/// Forgets rows that the index `expire` names; what is not due is left alone.
#[derive(Debug, Clone)]
pub struct Forget {
    /// The session.
    pub session: SessionId,
    /// At most `FORGET_ROWS_MAX` rows.
    pub keys: Vec<Key>,
}

impl Forget {
    fn due(&self) -> impl Iterator<Item = &Key> {
        self.keys.iter().take(FORGET_ROWS_MAX)
    }
}

/// Entries that go with a turn, at most `FORGET_ROWS_MAX` an apply.
fn entries_of(head: &Head, turn: &Turn) -> (u64, u64) {
    let end = turn.base + turn.len;
    (head.log_first, end.saturating_sub(head.log_first).min(FORGET_ROWS_MAX as u64))
}

impl Operation for Forget {
    type Output = usize;

    fn aggregate(&self) -> Aggregate {
        Aggregate::Session(self.session.clone())
    }

    fn class(&self) -> Class {
        Class { durable: false, admits: false }
    }

    fn needs(&self, have: &Working) -> Vec<Key> {
        let mut keys = vec![Key::head(), Key::live()];
        keys.extend(self.due().cloned());
        keys.extend(self.due().filter_map(|key| notice_of(have, key)));
        if have.has(&Key::head()) {
            let head = have.head();
            let turn = self.due().find_map(|key| turn_at(have, key));
            keys.extend(turn.into_iter().flat_map(|turn| {
                let (from, count) = entries_of(&head, &turn);
                entry_keys(from, count)
            }));
        }
        keys
    }

    /// Answers how many rows it removed.
    fn decide(&self, at: &Situation, rows: &mut Working) -> Result<usize, Refusal> {
        let mut removed = 0;
        let mut turn_done = false;
        for key in self.due() {
            if !is_expired(at, rows, key) || is_held(at, rows, key) {
                continue;
            }
            if let Some(turn) = turn_at(rows, key) {
                // One turn an apply: its entries are many.
                if !turn_done {
                    removed += forget_turn(rows, key, &turn);
                    turn_done = true;
                }
                continue;
            }
            if let Some(notice) = notice_of(rows, key) {
                rows.delete(&notice);
                removed += 1;
            }
            rows.delete(key);
            removed += 1;
        }
        Ok(removed)
    }
}

fn turn_at(rows: &Working, key: &Key) -> Option<Turn> {
    if !key.as_str().starts_with("u/") || !rows.has(key) {
        return None;
    }
    rows.get::<Turn>(key).cloned()
}

/// The arrival of an execution's completion: it goes with its execution, never alone.
fn notice_of(rows: &Working, key: &Key) -> Option<Key> {
    if !key.as_str().starts_with("x/") || !rows.has(key) {
        return None;
    }
    notice(rows.row(key)?)
}

fn notice(row: &Row) -> Option<Key> {
    match Execution::of(row)?.model {
        ModelReceipt::Arrival(seq) => Some(Key::arrival(seq)),
        ModelReceipt::None | ModelReceipt::Fate(_) => None,
    }
}

fn is_expired(at: &Situation, rows: &Working, key: &Key) -> bool {
    let Some(row) = rows.row(key) else { return false };
    let mut indexed = index_of(key, row).into_iter();
    indexed.any(|(index, score)| index == Index::Expire && score <= at.now.as_ms())
}

/// A supersession key stays while its holder is live, and so does a start key, by which it is asked
/// whether a place is needed; a completion's two rows go together, so an
/// unread one never ages out.
fn is_held(at: &Situation, rows: &Working, key: &Key) -> bool {
    match rows.row(key) {
        Some(Row::Holder(Holder { execution, .. })) => {
            rows.get::<Live>(&Key::live()).is_some_and(|live| live.0.contains(execution))
        }
        Some(Row::StartKey(StartKey { execution: Some(execution), .. })) => {
            rows.get::<Live>(&Key::live()).is_some_and(|live| live.0.contains(execution))
        }
        Some(Row::Arrival(arrival)) => matches!(arrival.body, Body::Completion { .. }),
        Some(Row::Execution(_)) => notice_of(rows, key)
            .is_some_and(|notice| rows.row(&notice).is_some() && !is_expired(at, rows, &notice)),
        Some(
            Row::Head(_)
            | Row::Inbox(_)
            | Row::Live(_)
            | Row::Recent(_)
            | Row::Tails(_)
            | Row::Summary(_)
            | Row::Turn(_)
            | Row::Entry(_)
            | Row::StartKey(StartKey { execution: None, .. })
            | Row::Dedupe(_)
            | Row::Chain(_)
            | Row::Item(_)
            | Row::Beat(_)
            | Row::Installation(_)
            | Row::Invitations(_)
            | Row::Places(_)
            | Row::Place(_),
        )
        | None => false,
    }
}

fn forget_turn(rows: &mut Working, key: &Key, turn: &Turn) -> usize {
    let (from, count) = entries_of(&rows.head(), turn);
    for key in entry_keys(from, count) {
        rows.delete(&key);
    }
    let first = from + count;
    if let Some(head) = rows.head_mut() {
        head.log_first = first;
        head.log_from = head.log_from.max(first);
    }
    let whole = first >= turn.base + turn.len;
    if whole {
        rows.delete(key);
    }
    usize::try_from(count).unwrap_or(usize::MAX) + usize::from(whole)
}

/// Removes a session together with its last row past its retention, when nothing else is left but
/// its frame and lines of no turn. Both in one apply: that row's index entry is what leads here, so
/// a frame alone would stay for ever.
#[derive(Debug, Clone)]
pub struct Retire {
    session: SessionId,
    /// What would be forgotten.
    last: Key,
    /// As it was when nothing else was left: whatever adds a row changes it. None belongs to a
    /// place where no turn ever runs: what is added there stands in a line until it is done.
    head: Option<Head>,
}

impl Retire {
    /// From a listing of all its rows; `None` where something is left besides `last`, which is to
    /// be forgotten. A session is never removed from under rows that are kept: their numbers would
    /// be given again.
    pub fn of(session: &SessionId, rows: &[(Key, Row)], last: &Key) -> Option<Self> {
        if rows.len() >= Self::ROWS_MAX {
            return None;
        }
        let notice = rows.iter().find(|(key, _)| key == last).and_then(|(_, row)| notice(row));
        let mut head = None;
        for (key, row) in rows {
            if key == last || notice.as_ref() == Some(key) {
                continue;
            }
            match row {
                Row::Head(row) => head = Some(row.clone()),
                Row::Inbox(_)
                | Row::Live(_)
                | Row::Recent(_)
                | Row::Tails(_)
                | Row::Summary(_)
                | Row::Entry(_) => {}
                Row::Turn(_)
                | Row::Arrival(_)
                | Row::Execution(_)
                | Row::StartKey(_)
                | Row::Holder(_)
                | Row::Dedupe(_)
                | Row::Chain(_)
                | Row::Item(_)
                | Row::Beat(_)
                | Row::Installation(_)
                | Row::Invitations(_)
                | Row::Places(_)
                | Row::Place(_) => return None,
            }
        }
        Some(Self { session: session.clone(), last: last.clone(), head })
    }

    /// How many rows a listing must be able to show.
    pub const ROWS_MAX: usize = FRAME_ROWS + FORGET_ROWS_MAX + 3;

    fn log(&self) -> impl Iterator<Item = Key> {
        let head = self.head.iter();
        head.flat_map(|it| entry_keys(it.log_first, it.tlen.saturating_sub(it.log_first)))
    }
}

impl Operation for Retire {
    type Output = bool;

    fn aggregate(&self) -> Aggregate {
        Aggregate::Session(self.session.clone())
    }

    fn class(&self) -> Class {
        Class { durable: false, admits: false }
    }

    fn needs(&self, have: &Working) -> Vec<Key> {
        let mut keys = frame();
        keys.push(self.last.clone());
        keys.extend(notice_of(have, &self.last));
        keys.extend(self.log());
        keys
    }

    /// Answers whether the session is gone.
    fn decide(&self, at: &Situation, rows: &mut Working) -> Result<bool, Refusal> {
        let same = rows.get::<Head>(&Key::head()) == self.head.as_ref();
        let waits = rows.get::<Tails>(&Key::tails()).is_some_and(|tails| !tails.0.is_empty());
        let added = self.head.is_none() && waits;
        if !same || added || !is_expired(at, rows, &self.last) || is_held(at, rows, &self.last) {
            return Ok(false);
        }
        let last = notice_of(rows, &self.last).into_iter().chain([self.last.clone()]);
        for key in last.chain(self.log()).chain(frame()) {
            rows.delete(&key);
        }
        Ok(true)
    }
}

/// The rows that a session has once.
fn frame() -> Vec<Key> {
    let lists = [Key::inbox(), Key::live(), Key::recent(), Key::tails()];
    lists.into_iter().chain([Key::summary(), Key::head()]).collect()
}
