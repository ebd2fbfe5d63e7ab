//! `Commit`, `Renew`, `Compact`: what the holder of a lane does besides appending. Owns that a
//! turn's answer, its receipts, its posts and its lane change in one apply.

use super::end::settle;
use super::mail::{self, Letter, name};
use super::{Token, carried_keys};
use crate::core::arrival::{Arrival, Body as What};
use crate::core::execution::{Fate, PostSort};
use crate::core::id::{EntryNo, TurnNo};
use crate::core::ledger::row::{Summary, Turn, TurnState, post_line};
use crate::core::ledger::{Aggregate, Class, Key, Operation, Refusal, Situation, Working};
use crate::core::limits::LEASE_MS;
use crate::core::transcript::{Body, Entry, Origin};

/// The name of the tool whose result may end a turn.
pub(super) const STAY_SILENT: &str = "stay_silent";

/// Ends a turn with its answer.
#[derive(Debug, Clone)]
pub struct Commit {
    /// Who commits.
    pub token: Token,
    /// What is posted, in order.
    pub posts: Vec<String>,
}

impl Commit {
    fn turn<'a>(&self, rows: &'a Working) -> Option<&'a Turn> {
        let key = Key::turn(self.token.turn);
        if rows.has(&key) { rows.get::<Turn>(&key) } else { None }
    }
}

/// The last entry is the model's last word, or the result of keeping silent.
fn is_answered(rows: &Working, turn: &Turn) -> bool {
    if turn.seen != turn.carried.len() || turn.len == 0 {
        return false;
    }
    let last = rows.get::<Entry>(&Key::entry(turn.base + turn.len - 1));
    match last.map(|entry| &entry.body) {
        Some(Body::Model { calls, .. }) => calls.is_empty(),
        Some(Body::Closing { .. }) => true,
        Some(Body::Tool { entry, call, .. }) => {
            turn.origin == Origin::Synthetic
                && is_silence(rows, *entry, *call)
                && !carries_message(rows, turn)
        }
        Some(
            Body::Heard { .. }
            | Body::Remark { .. }
            | Body::Notice(_)
            | Body::Earlier(_)
            | Body::Note { .. },
        )
        | None => false,
    }
}

/// A person who wrote is answered, whatever began the turn.
fn carries_message(rows: &Working, turn: &Turn) -> bool {
    turn.carried.iter().any(|carried| {
        let arrival = rows.get::<Arrival>(&Key::arrival(carried.seq));
        arrival.is_some_and(|arrival| matches!(arrival.body, What::Message { .. }))
    })
}

fn is_silence(rows: &Working, entry: EntryNo, call: u32) -> bool {
    let key = Key::entry(entry);
    if !rows.has(&key) {
        return false;
    }
    let Some(Body::Model { calls, .. }) = rows.get::<Entry>(&key).map(|entry| &entry.body) else {
        return false;
    };
    calls.get(call as usize).is_some_and(|call| call.name == STAY_SILENT)
}

impl Operation for Commit {
    type Output = ();

    fn aggregate(&self) -> Aggregate {
        Aggregate::Session(self.token.session.clone())
    }

    fn class(&self) -> Class {
        Class::FINISHES
    }

    fn needs(&self, have: &Working) -> Vec<Key> {
        let mut keys = vec![Key::head(), Key::inbox(), Key::turn(self.token.turn)];
        let Some(turn) = self.turn(have) else { return keys };
        keys.extend(carried_keys(turn));
        if let Some(last) = (turn.base + turn.len).checked_sub(1) {
            let key = Key::entry(last);
            if have.has(&key)
                && let Some(Body::Tool { entry, .. }) =
                    have.get::<Entry>(&key).map(|entry| &entry.body)
            {
                keys.push(Key::entry(*entry));
            }
            keys.push(key);
        }
        let ids = (0..self.posts.len()).map(|i| name::post(turn.no, i));
        keys.extend(mail::needs(have, ids, [post_line(&turn.address)]));
        keys
    }

    fn decide(&self, at: &Situation, rows: &mut Working) -> Result<(), Refusal> {
        let turn = self.turn(rows).cloned().ok_or(Refusal::Unknown)?;
        if turn.state == TurnState::Committed && turn.fence == self.token.fence {
            return Ok(());
        }
        self.token.holds(&rows.head())?;
        if turn.state != TurnState::Open {
            return Err(Refusal::Fenced);
        }
        if !is_answered(rows, &turn) {
            return Err(Refusal::Unseen);
        }
        for carried in &turn.carried {
            let fate = if carried.collect { Fate::Collected } else { Fate::Acked };
            settle(rows, at.now, carried.seq, fate, turn.no);
        }
        let sort = match turn.origin {
            Origin::Human => PostSort::Answer,
            Origin::Synthetic => PostSort::Woken,
        };
        for (i, text) in self.posts.iter().enumerate() {
            let letter = Letter {
                id: name::post(turn.no, i),
                address: turn.address.clone(),
                text: text.clone(),
                sort,
                receipt_of: None,
            };
            mail::post(rows, at.now, letter);
        }
        close(rows, at, turn.no, TurnState::Committed, turn.base + turn.len);
        Ok(())
    }
}

/// Ends the open turn: its row, the log's length, the lane.
pub(super) fn close(
    rows: &mut Working,
    at: &Situation,
    no: TurnNo,
    state: TurnState,
    tlen: EntryNo,
) {
    if let Some(turn) = rows.edit::<Turn>(&Key::turn(no)) {
        turn.state = state;
        turn.ended_at = Some(at.now);
        turn.len = tlen.saturating_sub(turn.base);
    }
    if let Some(head) = rows.head_mut() {
        head.tlen = tlen;
        head.open = None;
        head.lane = None;
        head.not_before = crate::core::time::Timestamp::ZERO;
    }
}

/// Moves the lane's lease while nothing is appended.
#[derive(Debug, Clone)]
pub struct Renew {
    /// Who renews.
    pub token: Token,
    /// Still nothing else runs in its boot; once something did, that is final.
    pub alone: bool,
}

impl Operation for Renew {
    type Output = ();

    fn aggregate(&self) -> Aggregate {
        Aggregate::Session(self.token.session.clone())
    }

    fn class(&self) -> Class {
        Class::HINT
    }

    fn needs(&self, _: &Working) -> Vec<Key> {
        vec![Key::head()]
    }

    fn decide(&self, at: &Situation, rows: &mut Working) -> Result<(), Refusal> {
        self.token.holds(&rows.head())?;
        let leases = at.sole_boot.is_none();
        if let Some(lane) = rows.head_mut().and_then(|head| head.lane.as_mut()) {
            lane.alone &= self.alone;
            if leases {
                lane.until = at.now.plus_ms(LEASE_MS);
            }
        }
        Ok(())
    }
}

/// Lets the model read a summary instead of the log before `upto`.
#[derive(Debug, Clone)]
pub struct Compact {
    /// Who compacts.
    pub token: Token,
    /// The first entry that stays; at most the committed length.
    pub upto: EntryNo,
    /// What the older entries said.
    pub summary: String,
}

impl Operation for Compact {
    type Output = ();

    fn aggregate(&self) -> Aggregate {
        Aggregate::Session(self.token.session.clone())
    }

    fn class(&self) -> Class {
        Class::FINISHES
    }

    fn needs(&self, _: &Working) -> Vec<Key> {
        vec![Key::head(), Key::summary()]
    }

    fn decide(&self, _: &Situation, rows: &mut Working) -> Result<(), Refusal> {
        let head = rows.head();
        self.token.holds(&head)?;
        if self.upto > head.tlen || self.upto < head.log_from {
            return Err(Refusal::Invalid("a compaction ends in the committed log"));
        }
        rows.put(Key::summary(), Summary { upto: self.upto, text: self.summary.clone() });
        if let Some(head) = rows.head_mut() {
            head.log_from = self.upto;
        }
        Ok(())
    }
}
