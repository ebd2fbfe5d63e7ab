//! `Release`, and `bury`: how an attempt ends without an answer, and how a turn dies. Owns counting
//! attempts, waiting, and what becomes of arrivals that were not answered.

use super::closing::close;
use super::end::{put_back, put_back_needs, settle};
use super::mail::{self, Letter, name};
use super::{Token, entry_keys, open_turn, open_turn_key};
use crate::core::execution::{Fate, PostSort};
use crate::core::id::EntryNo;
use crate::core::ledger::row::{Turn, TurnState, post_line};
use crate::core::ledger::{Aggregate, Class, Key, Operation, Refusal, Situation, Working};
use crate::core::limits::{ATTEMPTS_MAX, BACKOFF_FIRST_MS, BACKOFF_MS_MAX, OUTAGE_MS_MAX};
use crate::core::time::Timestamp;
use crate::core::transcript::{Body, Entry};

/// Why an attempt ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// It did not get through; another attempt may.
    Failed {
        /// One line, for people.
        what: String,
        /// The provider or the store is away: it does not count, for a while.
        outage: bool,
        /// The provider asks us to wait at least so long.
        retry_after_ms: Option<u64>,
    },
    /// The request itself is refused: no attempt will get through.
    Fatal(String),
    /// The node leaves; another one goes on.
    Handover,
}

/// Gives the lane back without an answer.
#[derive(Debug, Clone)]
pub struct Release {
    /// Who.
    pub token: Token,
    /// Why.
    pub why: Why,
}

/// What releasing came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// Another attempt, not before this.
    Again(Timestamp),
    /// The turn is over.
    Buried,
    /// It was released before.
    Before,
}

impl Operation for Release {
    type Output = Released;

    fn aggregate(&self) -> Aggregate {
        Aggregate::Session(self.token.session.clone())
    }

    fn class(&self) -> Class {
        Class::FINISHES
    }

    fn needs(&self, have: &Working) -> Vec<Key> {
        let mut keys = vec![Key::head(), Key::tails(), Key::turn(self.token.turn)];
        keys.extend(open_turn_key(have));
        if let Some(turn) = open_turn(have) {
            let may_bury = match &self.why {
                Why::Failed { .. } => turn.attempt >= ATTEMPTS_MAX,
                Why::Fatal(_) => true,
                Why::Handover => false,
            };
            if may_bury {
                keys.extend(bury_needs(have, &turn));
            }
        }
        keys
    }

    fn decide(&self, at: &Situation, rows: &mut Working) -> Result<Released, Refusal> {
        if rows.head().released == self.token.fence {
            return Ok(Released::Before);
        }
        self.token.holds(&rows.head())?;
        let turn = open_turn(rows).ok_or(Refusal::Fenced)?;
        if let Some(head) = rows.head_mut() {
            head.released = self.token.fence;
        }
        match &self.why {
            Why::Fatal(reason) => {
                bury(rows, at.now, reason);
                Ok(Released::Buried)
            }
            Why::Handover => {
                if let Some(turn) = rows.edit::<Turn>(&Key::turn(turn.no)) {
                    turn.attempt = turn.attempt.saturating_sub(1);
                }
                Ok(free(rows, Timestamp::ZERO))
            }
            Why::Failed { what, outage, retry_after_ms } => {
                let counted = fail(rows, at.now, turn.no, *outage);
                if counted >= ATTEMPTS_MAX {
                    bury(rows, at.now, what);
                    return Ok(Released::Buried);
                }
                // A provider's own word may be longer than ours; a person's message ends it.
                let wait_ms = wait_ms(turn.failures).max(retry_after_ms.unwrap_or(0));
                Ok(free(rows, at.now.plus_ms(wait_ms)))
            }
        }
    }
}

/// Counts a failure; answers the attempts that count. An outage does not, for a while.
fn fail(rows: &mut Working, now: Timestamp, turn: u64, outage: bool) -> u32 {
    let Some(turn) = rows.edit::<Turn>(&Key::turn(turn)) else { return ATTEMPTS_MAX };
    turn.failures = turn.failures.saturating_add(1);
    if !outage {
        turn.outage_since = None;
        return turn.attempt;
    }
    let since = *turn.outage_since.get_or_insert(now);
    if now.since_ms(since) < OUTAGE_MS_MAX {
        turn.attempt = turn.attempt.saturating_sub(1);
    }
    turn.attempt
}

/// 5 s, doubled with each failure, at most 5 min.
fn wait_ms(failures_before: u32) -> u64 {
    BACKOFF_FIRST_MS.saturating_mul(1 << failures_before.min(10)).min(BACKOFF_MS_MAX)
}

fn free(rows: &mut Working, not_before: Timestamp) -> Released {
    if let Some(head) = rows.head_mut() {
        head.lane = None;
        head.not_before = not_before;
    }
    Released::Again(not_before)
}

/// What burying this turn must see, besides its row and the head.
pub(super) fn bury_needs(have: &Working, turn: &Turn) -> Vec<Key> {
    let mut keys = vec![Key::inbox()];
    // Carried rows, the tail with the model's last word before it, and one note more.
    keys.extend(put_back_needs(turn));
    let from = turn.base + turn.seen_len;
    keys.extend(entry_keys(turn.base, turn.len + 1));
    keys.extend(from.checked_sub(1).map(Key::entry));
    keys.extend(mail::needs(have, [name::dead(turn.no)], [post_line(&turn.address)]));
    keys
}

/// The open turn dies. What the model has seen stays and is acked; of the tail the tool results
/// stay; what it has not seen goes back to be claimed alone, or dies if it was alone already and
/// nothing progressed. A human is told exactly once, in the same apply.
pub(super) fn bury(rows: &mut Working, now: Timestamp, reason: &str) {
    let Some(turn) = open_turn(rows) else { return };
    let tools = tools_run(rows, &turn);
    let end = strip_tail(rows, &turn);
    let alone = turn.solo || (turn.carried.len() == 1 && turn.seen == 0);
    let mut died = false;
    for (i, carried) in turn.carried.iter().enumerate() {
        if i < turn.seen {
            let fate = if carried.collect { Fate::Collected } else { Fate::Acked };
            settle(rows, now, carried.seq, fate, turn.no);
        } else if alone && turn.seen == 0 && !carried.collect {
            settle(rows, now, carried.seq, Fate::Dead(reason.into()), turn.no);
            died = true;
        } else {
            put_back(rows, now, carried.seq, true);
        }
    }
    let ran = if tools.is_empty() {
        String::new()
    } else {
        format!("; tools already run: {}", tools.join(", "))
    };
    let text = format!("turn broke off: {reason}{ran}");
    let note = Entry {
        turn: turn.no,
        fence: turn.fence,
        at: now,
        body: Body::Note { text },
        carries: vec![],
    };
    rows.put(Key::entry(end), note);
    // No answer of a buried turn was posted, so what it has seen is acked without one.
    if died || turn.seen > 0 {
        let letter = Letter {
            id: name::dead(turn.no),
            address: turn.address.clone(),
            text: format!(
                "I could not answer: {reason}{ran}. Nothing is tried again by itself; write again \
                 to try again."
            ),
            sort: PostSort::Failure,
            receipt_of: None,
        };
        mail::post(rows, now, letter);
    }
    let at = Situation { now, sole_boot: None };
    close(rows, &at, turn.no, TurnState::Dead(reason.into()), end + 1);
}

/// Removes the tail but for tool results, which happened. Answers the log's end.
fn strip_tail(rows: &mut Working, turn: &Turn) -> EntryNo {
    let mut end = turn.base + turn.seen_len;
    for no in turn.base + turn.seen_len..turn.base + turn.len {
        let Some(mut entry) = rows.get::<Entry>(&Key::entry(no)).cloned() else { continue };
        rows.delete(&Key::entry(no));
        if let Body::Tool { notice, .. } = &mut entry.body {
            *notice = None;
            entry.carries.clear();
            rows.put(Key::entry(end), entry);
            end += 1;
        }
    }
    end
}

/// Names of the tools of this turn that have a result, in order.
fn tools_run(rows: &Working, turn: &Turn) -> Vec<String> {
    let entry = |no: EntryNo| rows.get::<Entry>(&Key::entry(no)).map(|entry| &entry.body);
    (0..turn.len)
        .filter_map(|i| match entry(turn.base + i)? {
            Body::Tool { entry: no, call, .. } if *no >= turn.base => match entry(*no)? {
                Body::Model { calls, .. } => {
                    calls.get(*call as usize).map(|call| call.name.clone())
                }
                Body::Heard { .. }
                | Body::Remark { .. }
                | Body::Notice(_)
                | Body::Earlier(_)
                | Body::Tool { .. }
                | Body::Note { .. }
                | Body::Closing { .. } => None,
            },
            Body::Heard { .. }
            | Body::Remark { .. }
            | Body::Notice(_)
            | Body::Earlier(_)
            | Body::Model { .. }
            | Body::Tool { .. }
            | Body::Note { .. }
            | Body::Closing { .. } => None,
        })
        .collect()
}
