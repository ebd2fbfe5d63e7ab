//! `Stop`: a person ends the open turn, or everything. Owns what a stop does to arrivals and to
//! live work. One apply.

use super::closing::close;
use super::end::{self, Ending, settle};
use super::mail::name;
use super::take::heard;
use super::{carried_keys, entry_keys, open_turn, open_turn_key};
use crate::core::arrival::Arrival;
use crate::core::execution::{Execution, Fate, Outcome, Scope, Status};
use crate::core::id::{ExecutionId, Principal, Seq, SessionId, StopId, TurnNo};
use crate::core::ledger::row::{Inbox, Live, Turn, TurnState};
use crate::core::ledger::{Aggregate, Class, Key, Operation, Refusal, Situation, Working};
use crate::core::limits::STOPS_KEPT_MAX;
use crate::core::time::Timestamp;
use crate::core::transcript::{Body, Entry};

/// Stops a session.
#[derive(Debug, Clone)]
pub struct Stop {
    /// Which.
    pub session: SessionId,
    /// How much.
    pub scope: Scope,
    /// Which stop: a repeat changes nothing.
    pub stop: StopId,
    /// When it was said, by its source.
    pub source_at: Timestamp,
    /// Who.
    pub by: Principal,
    /// It is meant for this turn alone: where another one is open, or none, nothing is done.
    pub only: Option<TurnNo>,
}

/// What a stop did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StopAnswer {
    /// Executions it ended.
    pub ended: usize,
    /// A turn was open.
    pub turn: bool,
    /// It was done before.
    pub repeat: bool,
}

impl Operation for Stop {
    type Output = StopAnswer;

    fn aggregate(&self) -> Aggregate {
        Aggregate::Session(self.session.clone())
    }

    fn class(&self) -> Class {
        Class::FINISHES
    }

    fn needs(&self, have: &Working) -> Vec<Key> {
        let mut keys = vec![Key::head(), Key::inbox(), Key::live(), Key::recent()];
        keys.extend(open_turn_key(have));
        let mut entries = 1;
        let mut from = if have.has(&Key::head()) { have.head().tlen } else { 0 };
        if let Some(turn) = open_turn(have) {
            from = turn.base + turn.len;
            keys.extend(carried_keys(&turn));
        }
        if have.has(&Key::inbox())
            && let Some(inbox) = have.get::<Inbox>(&Key::inbox())
        {
            let all = self.scope == Scope::All;
            entries += inbox.people.len() as u64;
            keys.extend(inbox.people.iter().map(|unread| Key::arrival(unread.seq)));
            let notices = inbox.notices.iter().filter(|_| all);
            keys.extend(notices.map(|unread| Key::arrival(unread.seq)));
        }
        keys.extend((self.scope == Scope::All).then(Key::tails));
        if self.scope == Scope::All && have.has(&Key::live()) {
            for id in live(have) {
                let key = Key::execution(&id);
                let ids = [name::kill(&id), name::free(&id)];
                keys.extend(ids.iter().flatten().map(Key::item));
                if have.has(&key)
                    && let Some(shown) = have.get::<Execution>(&key).filter(|one| one.shown)
                {
                    keys.extend(end::shown_needs(have, shown));
                }
                keys.push(key);
            }
        }
        keys.extend(entry_keys(from, entries));
        keys
    }

    fn decide(&self, at: &Situation, rows: &mut Working) -> Result<StopAnswer, Refusal> {
        let now = at.now;
        if rows.head().stops.contains(&self.stop) {
            return Ok(StopAnswer { repeat: true, ..StopAnswer::default() });
        }
        let turn = open_turn(rows);
        if self.only.is_some_and(|only| turn.as_ref().is_none_or(|turn| turn.no != only)) {
            return Ok(StopAnswer::default());
        }
        let mut end = rows.head().tlen;
        if let Some(turn) = &turn {
            end = turn.base + turn.len;
            settle_carried(rows, now, turn);
        }
        let told = Self::write_unanswered(rows, now, &mut end);
        let ended = if self.scope == Scope::All { self.end_all(rows, now) } else { 0 };
        let anything = turn.is_some() || told > 0 || self.scope == Scope::All;
        if anything {
            let what = match self.scope {
                Scope::Turn => "the turn",
                Scope::All => "everything",
            };
            let text = format!("{what} was stopped by {}", self.by);
            write(rows, now, end, (Body::Note { text }, vec![]));
            end += 1;
        }
        match &turn {
            Some(turn) => close(rows, at, turn.no, TurnState::Stopped, end),
            None => {
                if let Some(head) = rows.head_mut() {
                    head.tlen = end;
                    head.not_before = Timestamp::ZERO;
                }
            }
        }
        self.mark(rows);
        Ok(StopAnswer { ended, turn: turn.is_some(), repeat: false })
    }
}

fn live(rows: &Working) -> Vec<ExecutionId> {
    rows.get::<Live>(&Key::live()).map(|live| live.0.clone()).unwrap_or_default()
}

impl Stop {
    fn mark(&self, rows: &mut Working) {
        let Some(head) = rows.head_mut() else { return };
        head.fence += 1;
        if self.scope == Scope::All {
            head.generation += 1;
            head.stopped = true;
            head.stopped_until = head.stopped_until.max(Some(self.source_at));
        }
        head.stops.push(self.stop.clone());
        if head.stops.len() > STOPS_KEPT_MAX {
            head.stops.remove(0);
        }
    }

    /// People's words that nobody read are written down as unanswered.
    fn write_unanswered(rows: &mut Working, now: Timestamp, end: &mut u64) -> usize {
        let Some(inbox) = rows.edit::<Inbox>(&Key::inbox()) else { return 0 };
        let people = std::mem::take(&mut inbox.people);
        let turn = rows.head().open.unwrap_or(0);
        for unread in &people {
            let body = rows.get::<Arrival>(&Key::arrival(unread.seq)).and_then(|a| heard(a, true));
            if let Some(body) = body {
                write(rows, now, *end, (body, vec![unread.seq]));
                *end += 1;
            }
            settle(rows, now, unread.seq, Fate::Acked, turn);
        }
        people.len()
    }

    /// Unread completions and live work end; nothing of this generation wakes any more.
    fn end_all(&self, rows: &mut Working, now: Timestamp) -> usize {
        let notices = rows
            .edit::<Inbox>(&Key::inbox())
            .map(|inbox| std::mem::take(&mut inbox.notices))
            .unwrap_or_default();
        for unread in notices {
            settle(rows, now, unread.seq, Fate::Stopped, 0);
        }
        let live = live(rows);
        for id in &live {
            let mut outcome = Outcome::bare(Status::Cancelled, format!("stopped by {}", self.by));
            outcome.elapsed_ms = rows
                .get::<Execution>(&Key::execution(id))
                .and_then(|execution| execution.started_at)
                .map_or(0, |started_at| now.since_ms(started_at));
            let ending = Ending { outcome, silent: Some(Fate::Stopped), kill: true };
            end::end(rows, now, id, ending);
        }
        live.len()
    }
}

/// Everything an open turn carries is in the log, which stays: it is acked.
fn settle_carried(rows: &mut Working, now: Timestamp, turn: &Turn) {
    for carried in &turn.carried {
        let fate = if carried.collect { Fate::Collected } else { Fate::Acked };
        settle(rows, now, carried.seq, fate, turn.no);
    }
}

fn write(rows: &mut Working, now: Timestamp, no: u64, entry: (Body, Vec<Seq>)) {
    let head = rows.head();
    let (body, carries) = entry;
    let turn = head.open.unwrap_or(0);
    rows.put(Key::entry(no), Entry { turn, fence: head.fence, at: now, body, carries });
}
