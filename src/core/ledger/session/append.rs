//! `Append`: the one way a turn writes. Owns what may be appended, and carrying and collecting in
//! the same apply. Must not know why the turn writes.

use super::take::{self, Made, Whose};
use super::{Token, claim, entry_keys, open_turn};
use crate::core::arrival::{Arrival, Standing};
use crate::core::execution::{Execution, ModelReceipt};
use crate::core::id::{ChainNo, EntryNo, ExecutionId, Nonce};
use crate::core::ledger::row::{Carried, Chain, Inbox, Turn};
use crate::core::ledger::{Aggregate, Class, Key, Operation, Refusal, Situation, Working};
use crate::core::limits::{CARRIED_PER_TURN_MAX, LEASE_MS, PEOPLE_UNREAD_MAX};
use crate::core::time::Timestamp;
use crate::core::transcript::{Body, Entry};

/// One entry to be appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct New {
    /// What it says.
    pub body: Body,
    /// The execution whose result it brings: its completion is carried by this entry.
    pub collect: Option<ExecutionId>,
}

/// Appends to the open turn, taking what came.
#[derive(Debug, Clone)]
pub struct Append {
    /// Who writes.
    pub token: Token,
    /// The number that the first new entry gets: what is not so was written by somebody else.
    pub at: EntryNo,
    /// The chain the turn draws from, as far as the writer knows; saves a round.
    pub chain: ChainNo,
    /// The entries.
    pub new: Vec<New>,
    /// Take what arrived for this turn.
    pub take: bool,
    /// For the notice of what is taken.
    pub nonce: Nonce,
}

/// What was appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appended {
    /// All new entries as they stand in the log, those that taking made included.
    pub entries: Vec<(EntryNo, Entry)>,
    /// The chain the turn draws from now.
    pub chain: Chain,
}

impl Operation for Append {
    type Output = Appended;

    fn aggregate(&self) -> Aggregate {
        Aggregate::Session(self.token.session.clone())
    }

    fn class(&self) -> Class {
        Class::FINISHES
    }

    fn needs(&self, have: &Working) -> Vec<Key> {
        let mut keys = vec![Key::head(), Key::turn(self.token.turn), Key::chain(self.chain)];
        let mut entries = self.new.len() as u64;
        let turn_key = Key::turn(self.token.turn);
        let turn = if have.has(&turn_key) { have.get::<Turn>(&turn_key) } else { None };
        if let Some(turn) = turn {
            keys.push(Key::chain(turn.chain));
            // A repeat answers with everything that the lost answer had.
            entries = entries.max((turn.base + turn.len).saturating_sub(self.at));
        }
        if self.take || self.collects().next().is_some() {
            keys.push(Key::inbox());
        }
        if self.take
            && have.has(&Key::inbox())
            && let (Some(inbox), Some(turn)) = (have.get::<Inbox>(&Key::inbox()), turn)
        {
            let selection = take::more(inbox, Whose::of(turn), room(turn));
            entries += selection.entries();
            keys.extend(selection.keys());
            keys.extend(selection.chain().map(Key::chain));
        }
        for execution in self.collects() {
            let key = Key::execution(execution);
            if have.has(&key)
                && let Some(ModelReceipt::Arrival(seq)) =
                    have.get::<Execution>(&key).map(|execution| execution.model.clone())
            {
                keys.push(Key::arrival(seq));
            }
            keys.push(key);
        }
        keys.extend(entry_keys(self.at, entries));
        keys
    }

    fn decide(&self, at: &Situation, rows: &mut Working) -> Result<Appended, Refusal> {
        self.token.holds(&rows.head())?;
        let mut turn = open_turn(rows).ok_or(Refusal::Fenced)?;
        let end = turn.base + turn.len;
        if end >= self.at + self.new.len() as u64 && end > self.at {
            // A single writer holds the lane, so the entries beyond `at` are this very append.
            return Ok(self.answer(rows, &turn));
        }
        if end != self.at {
            return Err(Refusal::Length(turn.len));
        }
        let answered = self.new.iter().any(|new| new.body.is_model());
        for new in &self.new {
            self.write(rows, at.now, &mut turn, new)?;
        }
        self.draw(rows, &turn);
        if self.take && !turn.solo {
            self.take(rows, at.now, &mut turn);
        }
        if answered {
            turn.attempt = 1;
            turn.failures = 0;
            turn.outage_since = None;
        }
        rows.put(Key::turn(turn.no), turn.clone());
        if let Some(lane) = rows.head_mut().and_then(|head| head.lane.as_mut()) {
            lane.until = at.now.plus_ms(LEASE_MS);
        }
        Ok(self.answer(rows, &turn))
    }
}

impl Append {
    fn collects(&self) -> impl Iterator<Item = &ExecutionId> {
        self.new.iter().filter_map(|new| new.collect.as_ref())
    }

    fn answer(&self, rows: &Working, turn: &Turn) -> Appended {
        let entries = (self.at..turn.base + turn.len)
            .filter_map(|no| Some((no, rows.get::<Entry>(&Key::entry(no))?.clone())));
        let entries = entries.collect();
        let chain = rows.get::<Chain>(&Key::chain(turn.chain)).cloned();
        // A forgotten chain is a spent one.
        let chain = chain.unwrap_or(Chain {
            no: turn.chain,
            opened_at: turn.opened_at,
            wakes: 0,
            tokens: 0,
            spawns: 0,
        });
        Appended { entries, chain }
    }

    fn write(
        &self,
        rows: &mut Working,
        now: Timestamp,
        turn: &mut Turn,
        new: &New,
    ) -> Result<(), Refusal> {
        match &new.body {
            Body::Heard { .. } | Body::Remark { .. } | Body::Notice(_) => {
                return Err(Refusal::Invalid("arrivals enter the log by being taken"));
            }
            Body::Tool { notice: Some(_), .. } => {
                return Err(Refusal::Invalid("notices enter the log by being taken"));
            }
            Body::Earlier(_)
            | Body::Model { .. }
            | Body::Tool { .. }
            | Body::Note { .. }
            | Body::Closing { .. } => {}
        }
        let mut carries = vec![];
        if let Some(execution) = &new.collect
            && let Some(seq) = collect(rows, turn, execution)
        {
            let execution = Some(execution.clone());
            turn.carried.push(Carried { seq, execution, collect: true });
            carries.push(seq);
        }
        let body = new.body.clone();
        if body.is_model() {
            turn.seen = turn.carried.len();
            turn.seen_len = turn.len + 1;
        }
        let entry = Entry { turn: turn.no, fence: self.token.fence, at: now, body, carries };
        rows.put(Key::entry(turn.base + turn.len), entry);
        turn.len += 1;
        Ok(())
    }

    /// Every model call draws its tokens from the chain.
    fn draw(&self, rows: &mut Working, turn: &Turn) {
        let tokens: u64 = self
            .new
            .iter()
            .map(|new| match &new.body {
                Body::Model { usage, .. } => usage.tokens(),
                Body::Heard { .. }
                | Body::Remark { .. }
                | Body::Notice(_)
                | Body::Earlier(_)
                | Body::Tool { .. }
                | Body::Note { .. }
                | Body::Closing { .. } => 0,
            })
            .sum();
        if tokens > 0
            && let Some(chain) = rows.edit::<Chain>(&Key::chain(turn.chain))
        {
            chain.tokens = chain.tokens.saturating_sub(tokens);
        }
    }

    fn take(&self, rows: &mut Working, now: Timestamp, turn: &mut Turn) {
        let Some(inbox) = rows.get::<Inbox>(&Key::inbox()) else { return };
        let selection = take::more(inbox, Whose::of(turn), room(turn));
        if selection.is_empty() {
            return;
        }
        let taken = take::take(rows, now, turn.no, &self.nonce, &selection);
        selection.all().for_each(|unread| take::join(turn, &unread.principal));
        // A message of the person opened a new chain: what follows draws from that.
        if let Some(chain) = selection.chain() {
            turn.chain = chain;
        }
        let mut made = taken.people;
        if let Some((notice, carries)) = taken.notice {
            let last = self.at + self.new.len() as u64;
            let tool = last.checked_sub(1).filter(|_| !self.new.is_empty()).map(Key::entry);
            let merged = tool.and_then(|key| {
                let entry = rows.edit::<Entry>(&key)?;
                let Body::Tool { notice: slot, .. } = &mut entry.body else { return None };
                *slot = Some(notice.clone());
                entry.carries.extend(&carries);
                Some(())
            });
            if merged.is_some() {
                claim::carry(rows, turn, &carries);
            } else {
                made.push(Made { body: Body::Notice(notice), carries });
            }
        }
        for Made { body, carries } in made {
            claim::carry(rows, turn, &carries);
            let entry = Entry { turn: turn.no, fence: self.token.fence, at: now, body, carries };
            rows.put(Key::entry(turn.base + turn.len), entry);
            turn.len += 1;
        }
    }
}

/// Binds a completion to the turn, out of its place in the inbox; `None` when it was delivered
/// before or there is none; when it is not for this turn but another, which it still wakes; and
/// when the turn is full: then it comes with a later one.
fn collect(rows: &mut Working, turn: &mut Turn, execution: &ExecutionId) -> Option<u64> {
    let receipt = rows.get::<Execution>(&Key::execution(execution))?.model.clone();
    let ModelReceipt::Arrival(seq) = receipt else { return None };
    if room(turn) == 0 {
        return None;
    }
    let arrival = rows.edit::<Arrival>(&Key::arrival(seq))?;
    let whose = Whose::of(turn);
    let is_own = whose.takes(&arrival.principal, arrival.shared, false);
    if arrival.standing != Standing::Pending || !is_own || !whose.has_room_for(&arrival.principal) {
        return None;
    }
    arrival.standing = Standing::Offered(turn.no);
    let principal = arrival.principal.clone();
    let inbox = rows.edit::<Inbox>(&Key::inbox())?;
    inbox.notices.retain(|unread| unread.seq != seq);
    take::join(turn, &principal);
    Some(seq)
}

/// Arrivals that this turn may still take: what ends it touches every one of them, and those that
/// the model has not answered may all go back into the inbox.
fn room(turn: &Turn) -> usize {
    let unseen = turn.carried.len().saturating_sub(turn.seen);
    let carried = CARRIED_PER_TURN_MAX.saturating_sub(turn.carried.len());
    carried.min(PEOPLE_UNREAD_MAX.saturating_sub(unseen))
}
