//! `Claim`: a node takes the lane, opens a turn or resumes the open one. Owns who may, and what a
//! new turn begins with. Must not know how a turn runs.

use super::take::{self, Made, Selection};
use super::{Token, ahead, end, entry_keys, is_valid, open_turn, open_turn_key, release};
use crate::core::arrival::{Arrival, Body as What};
use crate::core::execution::Execution;
use crate::core::id::{BootId, ChainNo, ClaimId, Nonce, SessionId, TurnNo};
use crate::core::ledger::row::{Carried, Chain, Inbox, Lane, Turn, TurnState, Unread, post_line};
use crate::core::ledger::{Aggregate, Class, Key, Operation, Refusal, Situation, Working};
use crate::core::limits::{ATTEMPTS_MAX, CROWD_ATTEMPTS_MAX, LEASE_MS};
use crate::core::time::Timestamp;
use crate::core::transcript::{Body, Entry, Origin};

use super::mail::{self, name};

/// Takes the lane of a session.
#[derive(Debug, Clone)]
pub struct Claim {
    /// Which session.
    pub session: SessionId,
    /// For whom.
    pub boot: BootId,
    /// No other turn runs in this boot, and none will before the model has answered.
    pub alone: bool,
    /// Which try: the same when it is repeated.
    pub claim: ClaimId,
    /// For the notice of a new turn.
    pub nonce: Nonce,
}

/// What a claim got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claimed {
    /// The lane: run this turn.
    Turn(Token, Box<Turn>),
    /// The open turn had failed too often and was buried.
    Buried(TurnNo),
    /// What waits draws from a spent chain: it rides now, a person was told.
    Riders,
}

impl Operation for Claim {
    type Output = Claimed;

    fn aggregate(&self) -> Aggregate {
        Aggregate::Session(self.session.clone())
    }

    fn class(&self) -> Class {
        Class { durable: false, admits: true }
    }

    fn needs(&self, have: &Working) -> Vec<Key> {
        let mut keys = vec![Key::head(), Key::inbox(), Key::tails()];
        // A runner may keep the one without the other.
        if !have.has(&Key::head()) || !have.has(&Key::inbox()) {
            return keys;
        }
        if let Some(key) = open_turn_key(have) {
            keys.push(key);
            if let Some(turn) = open_turn(have).filter(|turn| turn.attempt >= ATTEMPTS_MAX) {
                keys.extend(release::bury_needs(have, &turn));
            }
            return keys;
        }
        keys.push(Key::turn(have.head().turns + 1));
        if let Some(inbox) = have.get::<Inbox>(&Key::inbox()) {
            let selection = take::first(&without_spent(have, inbox));
            keys.extend(entry_keys(have.head().tlen, selection.entries()));
            keys.extend(selection.keys());
            keys.extend(spent_needs(have, inbox));
            keys.extend(selection.chain().map(Key::chain));
        }
        keys
    }

    fn ahead(&self, have: &Working, kept: &dyn Fn(&Key) -> bool) -> Vec<Key> {
        ahead::of(have, kept)
    }

    fn decide(&self, at: &Situation, rows: &mut Working) -> Result<Claimed, Refusal> {
        let head = rows.head();
        if let Some(lane) = &head.lane {
            if lane.claim == self.claim
                && let Some(turn) = open_turn(rows)
            {
                return Ok(Claimed::Turn(self.token(&turn), Box::new(turn)));
            }
            // One task of a boot runs a session, so a lane of this very boot is one it lost.
            if lane.boot != self.boot && is_valid(lane, at) {
                return Err(Refusal::Busy(lane.until));
            }
        }
        let turn = if let Some(mut turn) = open_turn(rows) {
            if at.now < head.not_before {
                return Err(Refusal::NotYet(head.not_before));
            }
            // A process that dies takes every turn in it along, so what its end says of one turn
            // is known only when that turn ran alone. The first attempts count all the same, or
            // nothing would ever be tried alone.
            let crowded = head.lane.as_ref().is_some_and(|lane| !lane.alone);
            let vanished_with_others = crowded && turn.attempt > CROWD_ATTEMPTS_MAX;
            if turn.attempt >= ATTEMPTS_MAX && !vanished_with_others {
                let reason = format!("{ATTEMPTS_MAX} attempts did not get through");
                release::bury(rows, at.now, &reason);
                return Ok(Claimed::Buried(turn.no));
            }
            if vanished_with_others {
                turn.attempt -= 1;
                turn.failures = turn.failures.saturating_add(1);
            }
            let vanished = head.lane.is_some();
            if vanished && turn.attempt >= CROWD_ATTEMPTS_MAX && !self.alone {
                return Err(Refusal::Crowd);
            }
            turn.attempt += 1;
            turn
        } else {
            match self.open(at.now, rows)? {
                Some(turn) => turn,
                None => return Ok(Claimed::Riders),
            }
        };
        Ok(self.grant(at.now, rows, turn))
    }
}

impl Claim {
    fn token(&self, turn: &Turn) -> Token {
        Token {
            session: self.session.clone(),
            turn: turn.no,
            fence: turn.fence,
            claim: self.claim.clone(),
        }
    }

    fn grant(&self, now: Timestamp, rows: &mut Working, mut turn: Turn) -> Claimed {
        if let Some(head) = rows.head_mut() {
            head.fence += 1;
            turn.fence = head.fence;
            head.lane = Some(Lane {
                boot: self.boot.clone(),
                turn: turn.no,
                fence: turn.fence,
                claim: self.claim.clone(),
                until: now.plus_ms(LEASE_MS),
                alone: self.alone,
            });
        }
        let token = self.token(&turn);
        rows.put(Key::turn(turn.no), turn.clone());
        Claimed::Turn(token, Box::new(turn))
    }

    /// Opens a turn with what waits; `None` when nothing that waits may start one any more.
    fn open(&self, now: Timestamp, rows: &mut Working) -> Result<Option<Turn>, Refusal> {
        let head = rows.head();
        if head.stopped {
            return Err(Refusal::Idle);
        }
        let ready_at = head.inbox_at.ok_or(Refusal::Idle)?.max(head.not_before);
        if now < ready_at {
            return Err(Refusal::NotYet(ready_at));
        }
        let spent = retire_spent(rows, now);
        let inbox = rows.get::<Inbox>(&Key::inbox()).cloned().unwrap_or_default();
        let selection = take::first(&inbox);
        if selection.is_empty() {
            return if spent { Ok(None) } else { Err(Refusal::Idle) };
        }
        let no = head.turns + 1;
        let Some(Arrival { principal, address, shared, .. }) = lead(rows, &selection) else {
            return Err(Refusal::Unknown);
        };
        let chain = chain_of(rows, &selection);
        let fence = head.fence + 1;
        let taken = take::take(rows, now, no, &self.nonce, &selection);
        let notice =
            taken.notice.map(|(notice, carries)| Made { body: Body::Notice(notice), carries });
        let mut turn = Turn {
            no,
            origin: origin(&selection),
            principal,
            address,
            chain,
            solo: selection.all().any(|unread| unread.solo),
            attempt: 1,
            failures: 0,
            outage_since: None,
            base: head.tlen,
            len: 0,
            seen_len: 0,
            carried: vec![],
            seen: 0,
            fence,
            opened_at: now,
            ended_at: None,
            state: TurnState::Open,
            shared,
            others: vec![],
            surface: None,
        };
        selection.all().for_each(|unread| take::join(&mut turn, &unread.principal));
        for made in taken.people.into_iter().chain(notice) {
            carry(rows, &mut turn, &made.carries);
            let entry = Entry { turn: no, fence, at: now, body: made.body, carries: made.carries };
            rows.put(Key::entry(turn.base + turn.len), entry);
            turn.len += 1;
        }
        if let Some(head) = rows.head_mut() {
            head.turns = no;
            head.open = Some(no);
        }
        Ok(Some(turn))
    }
}

/// A person's message runs on its own chain; completions alone draw a wake from the poorest.
fn chain_of(rows: &mut Working, selection: &Selection) -> ChainNo {
    if origin(selection) == Origin::Human {
        return selection.chain().unwrap_or(0);
    }
    let chains = selection.notices.iter().filter(|unread| unread.wakes);
    let poorest = chains
        .filter_map(|unread| rows.get::<Chain>(&Key::chain(unread.chain)))
        .min_by_key(|chain| (chain.wakes, chain.tokens))
        .map_or(0, |chain| chain.no);
    if let Some(chain) = rows.edit::<Chain>(&Key::chain(poorest)) {
        chain.wakes = chain.wakes.saturating_sub(1);
    }
    poorest
}

/// The open turn's entries carry these now.
pub(super) fn carry(rows: &Working, turn: &mut Turn, seqs: &[u64]) {
    turn.carried.extend(seqs.iter().map(|seq| {
        let arrival = rows.get::<Arrival>(&Key::arrival(*seq));
        let execution = arrival.and_then(|arrival| match &arrival.body {
            What::Completion { execution } => Some(execution.clone()),
            What::Message { .. } | What::Remark { .. } => None,
        });
        Carried { seq: *seq, execution, collect: false }
    }));
}

fn origin(selection: &Selection) -> Origin {
    if selection.people.iter().any(|unread| unread.wakes) {
        Origin::Human
    } else {
        Origin::Synthetic
    }
}

/// Whose turn it is, where it answers and whether it is shared: the first arrival that wakes
/// decides.
fn lead(rows: &Working, selection: &Selection) -> Option<Arrival> {
    let first = selection.all().find(|unread| unread.wakes)?;
    rows.get::<Arrival>(&Key::arrival(first.seq)).cloned()
}

fn waking(inbox: &Inbox) -> impl Iterator<Item = &Unread> {
    inbox.notices.iter().filter(|unread| unread.wakes)
}

/// What looking for spent chains must see, when no person's message waits.
fn spent_needs(have: &Working, inbox: &Inbox) -> Vec<Key> {
    if inbox.people.iter().any(|unread| unread.wakes) {
        return vec![];
    }
    let mut keys = vec![];
    for unread in waking(inbox) {
        let chain = Key::chain(unread.chain);
        let execution = unread.execution.as_ref().map(Key::execution);
        let spent = have.has(&chain) && have.get::<Chain>(&chain).is_none_or(Chain::is_spent);
        if let Some(key) = execution.as_ref().filter(|key| spent && have.has(key)) {
            let line = have.get::<Execution>(key).map(|execution| post_line(&execution.address));
            keys.extend(mail::needs(have, [name::spent(unread.chain)], line));
        }
        keys.push(chain);
        keys.extend(execution);
    }
    keys
}

/// The inbox as it is once what draws from a spent chain only rides; a chain that was not loaded
/// yet counts as one that pays.
fn without_spent(have: &Working, inbox: &Inbox) -> Inbox {
    let mut inbox = inbox.clone();
    if inbox.people.iter().any(|unread| unread.wakes) {
        return inbox;
    }
    for unread in &mut inbox.notices {
        let key = Key::chain(unread.chain);
        if unread.wakes && have.has(&key) {
            unread.wakes = have.get::<Chain>(&key).is_some_and(|chain| !chain.is_spent());
            // What rides is never claimed, so not alone either; it must not stand in the way.
            unread.solo &= unread.wakes;
        }
    }
    inbox
}

/// What draws from a spent chain does not wake: it rides, and a person is told once. Answers
/// whether there was any.
fn retire_spent(rows: &mut Working, now: Timestamp) -> bool {
    let Some(before) = rows.get::<Inbox>(&Key::inbox()).cloned() else { return false };
    let after = without_spent(rows, &before);
    if after == before {
        return false;
    }
    let pairs = before.notices.iter().zip(&after.notices);
    for (unread, _) in pairs.filter(|(before, after)| before.wakes != after.wakes) {
        let execution = unread.execution.as_ref().map(Key::execution);
        let execution = execution.and_then(|key| rows.get::<Execution>(&key).cloned());
        if let Some(execution) = execution {
            end::tell_spent(rows, now, &execution);
        }
    }
    rows.put(Key::inbox(), after);
    true
}
