//! `Accept`: an arrival from outside enters the inbox once. Owns recognising repeats, and what an
//! edit or a deletion does. Must not know channels.

use super::end::next_seq;
use super::take::heard;
use crate::core::arrival::{Arrival, Body, Incoming, Standing, What};
use crate::core::execution::Fate;
use crate::core::id::{ChainNo, DedupeKey, Seq, SessionId};
use crate::core::ledger::row::{Chain, Dedupe, Early, Inbox, Unread};
use crate::core::ledger::{Aggregate, Class, Key, Operation, Refusal, Situation, Working};
use crate::core::limits::{
    CHAIN_SPAWNS_MAX, CHAIN_TOKENS_MAX, CHAIN_WAKES_MAX, DEDUPE_KEYS_MAX, MESSAGE_BYTES_MAX,
    PEOPLE_UNREAD_MAX, SETTLE_MS,
};
use crate::core::time::Timestamp;
use crate::core::transcript::Entry;

/// Takes an arrival, once.
#[derive(Debug, Clone)]
pub struct Accept {
    /// Into this session.
    pub session: SessionId,
    /// What arrived.
    pub incoming: Incoming,
    /// What a new chain may use.
    pub chain: Allowance,
}

/// What a chain may use, as configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    /// Synthetic turns.
    pub wakes: u32,
    /// Tokens.
    pub tokens: u64,
    /// Executions.
    pub spawns: u32,
}

impl Default for Allowance {
    fn default() -> Self {
        Self { wakes: CHAIN_WAKES_MAX, tokens: CHAIN_TOKENS_MAX, spawns: CHAIN_SPAWNS_MAX }
    }
}

/// What became of an arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepted {
    /// It stands in the inbox.
    New(Seq),
    /// It was taken before.
    Duplicate(Seq),
    /// It was said before a stop and came after it: in the log, unanswered.
    Late(Seq),
    /// It changed or withdrew an unread message.
    Changed(Seq),
    /// It changes or withdraws a message that has not come yet, and is kept for it.
    Early,
    /// It is about a message that nobody knows, or would go on with what never began.
    Ignored,
}

impl Operation for Accept {
    type Output = Accepted;

    fn aggregate(&self) -> Aggregate {
        Aggregate::Session(self.session.clone())
    }

    fn class(&self) -> Class {
        Class::ADMITS
    }

    fn needs(&self, have: &Working) -> Vec<Key> {
        let mut keys = vec![Key::head(), Key::inbox()];
        keys.extend(self.incoming.keys.iter().map(Key::dedupe));
        if let Some(of) = self.target() {
            let key = Key::dedupe(of);
            if have.has(&key)
                && let Some(known) = have.get::<Dedupe>(&key)
            {
                keys.push(Key::arrival(known.seq));
            }
            keys.push(key);
        }
        if have.has(&Key::head()) {
            let head = have.head();
            keys.push(Key::arrival(head.arrivals + 1));
            keys.push(Key::chain(head.chains + 1));
            if head.stopped_until.is_some() {
                keys.push(Key::entry(head.tlen));
            }
        }
        keys
    }

    fn decide(&self, at: &Situation, rows: &mut Working) -> Result<Accepted, Refusal> {
        let now = at.now;
        if self.incoming.keys.is_empty() || self.incoming.keys.len() > DEDUPE_KEYS_MAX {
            return Err(Refusal::Invalid("an arrival is known by 1 to 8 keys"));
        }
        if self.text().is_some_and(|text| text.len() > MESSAGE_BYTES_MAX) {
            return Err(Refusal::Invalid("the text is longer than a row may be"));
        }
        let known = self.incoming.keys.iter().find_map(|key| {
            rows.get::<Dedupe>(&Key::dedupe(key)).filter(|known| known.early.is_none())
        });
        if let Some(seq) = known.map(|dedupe| dedupe.seq) {
            self.remember(rows, now, seq);
            return Ok(if seq == 0 { Accepted::Early } else { Accepted::Duplicate(seq) });
        }
        match &self.incoming.what {
            What::Message { text } => match self.changed_before(rows) {
                None => self.message(rows, now, text),
                Some(Early { text: Some(text), .. }) => self.message(rows, now, &text),
                Some(Early { text: None, .. }) => Ok(self.withdrawn(rows, now, text)),
            },
            What::Edit { of, text } => self.change(rows, now, of, Some(text)),
            What::Deletion { of } => self.change(rows, now, of, None),
        }
    }
}

impl Accept {
    fn target(&self) -> Option<&DedupeKey> {
        match &self.incoming.what {
            What::Message { .. } => None,
            What::Edit { of, .. } | What::Deletion { of } => Some(of),
        }
    }

    fn text(&self) -> Option<&String> {
        match &self.incoming.what {
            What::Message { text } | What::Edit { text, .. } => Some(text),
            What::Deletion { .. } => None,
        }
    }

    /// All keys are written: a repeat may come with any of them.
    fn remember(&self, rows: &mut Working, now: Timestamp, seq: Seq) {
        for key in self.incoming.keys.iter().map(Key::dedupe) {
            if rows.get::<Dedupe>(&key).is_none_or(|known| known.early.is_some()) {
                rows.put(key, Dedupe { seq, at: now, early: None });
            }
        }
    }

    /// What came of the message before itself.
    fn changed_before(&self, rows: &Working) -> Option<Early> {
        let mut known = self.incoming.keys.iter().map(Key::dedupe);
        known.find_map(|key| rows.get::<Dedupe>(&key)?.early.clone())
    }

    /// Nobody reads it.
    fn withdrawn(&self, rows: &mut Working, now: Timestamp, text: &str) -> Accepted {
        let chain = rows.head().chain;
        let seq = self.put(rows, now, Body::Message { text: text.into() }, chain);
        change_unread(rows, now, seq, None);
        self.remember(rows, now, seq);
        Accepted::Changed(seq)
    }

    /// Deliveries overtake each other: a change is kept for the message that it is about. It is
    /// forgotten as a key is, if that never comes.
    fn keep(
        &self,
        rows: &mut Working,
        now: Timestamp,
        of: &DedupeKey,
        text: Option<&String>,
    ) -> Accepted {
        // A change begins no session.
        if rows.head().arrivals == 0 {
            return Accepted::Ignored;
        }
        let key = Key::dedupe(of);
        let source_at = self.incoming.source_at;
        let was = rows.get::<Dedupe>(&key).and_then(|known| known.early.as_ref());
        // Changes overtake each other too. What is gone stays gone.
        let stays = was
            .is_some_and(|was| was.text.is_none() || (text.is_some() && was.source_at > source_at));
        if !stays {
            let early = Some(Early { text: text.cloned(), source_at });
            rows.put(key, Dedupe { seq: 0, at: now, early });
        }
        self.remember(rows, now, 0);
        Accepted::Early
    }

    fn message(&self, rows: &mut Working, now: Timestamp, text: &str) -> Result<Accepted, Refusal> {
        let head = rows.head();
        if self.incoming.continues && head.arrivals == 0 {
            return Ok(Accepted::Ignored);
        }
        let late = head.stopped_until.is_some_and(|until| self.incoming.source_at <= until);
        if late && head.open.is_none() {
            return Ok(self.late(rows, now, text));
        }
        full(rows)?;
        if late {
            // The log is the open turn's now: it rides, and clears nothing.
            let seq = self.put(rows, now, Body::Message { text: text.into() }, head.chain);
            self.stand(rows, seq, None, head.chain);
            self.remember(rows, now, seq);
            return Ok(Accepted::New(seq));
        }
        let chain = self.open_chain(rows, now);
        let Some(head) = rows.head_mut() else { return Err(Refusal::Unknown) };
        head.stopped = false;
        head.not_before = Timestamp::ZERO;
        let settle_ms = if head.open.is_some() { 0 } else { SETTLE_MS };
        let body = Body::Message { text: text.into() };
        let seq = self.put(rows, now, body, chain);
        self.stand(rows, seq, Some(now.plus_ms(settle_ms)), chain);
        self.remember(rows, now, seq);
        Ok(Accepted::New(seq))
    }

    fn open_chain(&self, rows: &mut Working, now: Timestamp) -> ChainNo {
        let Some(head) = rows.head_mut() else { return 0 };
        head.chains += 1;
        head.chain = head.chains;
        let no = head.chain;
        let Allowance { wakes, tokens, spawns } = self.chain;
        rows.put(Key::chain(no), Chain { no, opened_at: now, wakes, tokens, spawns });
        no
    }

    /// A late delivery of a message older than the stop joins the log and clears nothing.
    fn late(&self, rows: &mut Working, now: Timestamp, text: &str) -> Accepted {
        let chain = rows.head().chain;
        let seq = self.put(rows, now, Body::Message { text: text.into() }, chain);
        super::end::settle(rows, now, seq, Fate::Acked, 0);
        let head = rows.head();
        let entry = rows.get::<Arrival>(&Key::arrival(seq)).and_then(|a| heard(a, true));
        if let Some(body) = entry {
            let entry = Entry { turn: 0, fence: head.fence, at: now, body, carries: vec![seq] };
            rows.put(Key::entry(head.tlen), entry);
            if let Some(head) = rows.head_mut() {
                head.tlen += 1;
            }
        }
        self.remember(rows, now, seq);
        Accepted::Late(seq)
    }

    /// An unread message is replaced or withdrawn; one that was read gets a remark that rides.
    fn change(
        &self,
        rows: &mut Working,
        now: Timestamp,
        of: &DedupeKey,
        text: Option<&String>,
    ) -> Result<Accepted, Refusal> {
        let known = rows.get::<Dedupe>(&Key::dedupe(of)).filter(|known| known.early.is_none());
        let Some(seq) = known.map(|dedupe| dedupe.seq) else {
            return Ok(self.keep(rows, now, of, text));
        };
        let key = Key::arrival(seq);
        let Some(arrival) = rows.get::<Arrival>(&key).cloned() else {
            return Ok(Accepted::Ignored);
        };
        let Body::Message { text: old } = &arrival.body else { return Ok(Accepted::Ignored) };
        if arrival.standing == Standing::Withdrawn {
            self.remember(rows, now, seq);
            return Ok(Accepted::Ignored);
        }
        if arrival.standing == Standing::Pending {
            change_unread(rows, now, seq, text);
            self.remember(rows, now, seq);
            return Ok(Accepted::Changed(seq));
        }
        full(rows)?;
        let remark = text.map_or_else(
            || format!("The message «{old}» was deleted by its writer."),
            |text| format!("The message «{old}» was edited by its writer. It now reads: «{text}»"),
        );
        let remark_seq = self.put(rows, now, Body::Remark { text: remark }, arrival.chain);
        self.stand(rows, remark_seq, None, arrival.chain);
        self.remember(rows, now, remark_seq);
        Ok(Accepted::New(remark_seq))
    }

    fn put(&self, rows: &mut Working, now: Timestamp, body: Body, chain: ChainNo) -> Seq {
        let generation = rows.head().generation;
        let seq = next_seq(rows);
        rows.put(
            Key::arrival(seq),
            Arrival {
                seq,
                body,
                principal: self.incoming.principal.clone(),
                address: self.incoming.address.clone(),
                source_at: self.incoming.source_at,
                accepted_at: now,
                settled_at: None,
                generation,
                chain,
                solo: false,
                standing: Standing::Pending,
                shared: self.incoming.shared,
            },
        );
        seq
    }

    /// Stands in the list of people, last; with a time it wakes, without it rides.
    fn stand(&self, rows: &mut Working, seq: Seq, wakes_at: Option<Timestamp>, chain: ChainNo) {
        let bytes = rows.get::<Arrival>(&Key::arrival(seq)).map_or(0, |arrival| {
            let (Body::Message { text } | Body::Remark { text }) = &arrival.body else { return 0 };
            text.len() as u64
        });
        if let Some(inbox) = rows.ensure::<Inbox>(&Key::inbox()) {
            inbox.people.push(Unread {
                seq,
                wakes: wakes_at.is_some(),
                solo: false,
                principal: self.incoming.principal.clone(),
                ready_at: wakes_at.unwrap_or_default(),
                bytes,
                execution: None,
                chain,
                shared: self.incoming.shared,
            });
        }
    }
}

/// A full inbox is an answer, not a wait.
fn full(rows: &Working) -> Result<(), Refusal> {
    let unread = rows.get::<Inbox>(&Key::inbox()).map_or(0, |inbox| inbox.people.len());
    if unread >= PEOPLE_UNREAD_MAX { Err(Refusal::Full(unread)) } else { Ok(()) }
}

/// An unread message reads otherwise, or leaves the inbox.
fn change_unread(rows: &mut Working, now: Timestamp, seq: Seq, text: Option<&String>) {
    if let Some(arrival) = rows.edit::<Arrival>(&Key::arrival(seq)) {
        if let Some(text) = text {
            arrival.body = Body::Message { text: text.clone() };
        } else {
            arrival.standing = Standing::Withdrawn;
            arrival.settled_at = Some(now);
        }
    }
    let Some(inbox) = rows.edit::<Inbox>(&Key::inbox()) else { return };
    match text {
        Some(text) => {
            for unread in inbox.people.iter_mut().filter(|unread| unread.seq == seq) {
                unread.bytes = text.len() as u64;
            }
        }
        None => inbox.people.retain(|unread| unread.seq != seq),
    }
}
