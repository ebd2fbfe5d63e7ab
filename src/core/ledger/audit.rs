//! The balance of a session: every execution and arrival is accounted for, and every row agrees
//! with the others. Owns the invariants that can be seen in rows alone. Must not know stores.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::key::Key;
use super::row::{Head, Inbox, Item, ItemState, Live, Recent, Row, RowType, Tails, Turn};
use super::working::wake_at;
use crate::core::arrival::{Arrival, Body, Standing};
use crate::core::execution::{Execution, Fate, ModelReceipt, State};
use crate::core::id::{ExecutionId, Seq};
use crate::core::limits::{LIVE_PER_SESSION_MAX, NOTICES_UNREAD_AND_LIVE_MAX, PEOPLE_UNREAD_MAX};
use crate::core::transcript::Entry;

/// All rows of one session.
pub type Snapshot = BTreeMap<Key, Row>;

/// How a session's records add up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Balance {
    /// Executions in the record.
    pub registered: u64,
    /// Of these, not over.
    pub live: u64,
    /// Of the live, those whose home is away.
    #[serde(default)]
    pub unattended: u64,
    /// Of the registered, over and unread.
    pub pending: u64,
    /// Of the registered, before the model in an open turn.
    pub offered: u64,
    /// Of the registered, settled: how many of each fate.
    pub fates: BTreeMap<String, u64>,
    /// Messages and remarks in the record.
    pub arrivals: u64,
    /// Of these, unread.
    pub unread: u64,
    /// Posts not delivered yet.
    pub unposted: u64,
    /// Posts given up.
    pub dead_letters: u64,
    /// What does not agree, in words.
    pub faults: Vec<String>,
}

impl Balance {
    /// Registered = live + unread + before the model + settled, and nothing disagrees.
    pub fn is_even(&self) -> bool {
        let settled: u64 = self.fates.values().sum();
        self.faults.is_empty()
            && self.registered == self.live + self.pending + self.offered + settled
    }

    /// Adds another session's balance.
    pub fn add(&mut self, other: &Self) {
        self.registered += other.registered;
        self.live += other.live;
        self.unattended += other.unattended;
        self.pending += other.pending;
        self.offered += other.offered;
        for (fate, count) in &other.fates {
            *self.fates.entry(fate.clone()).or_default() += count;
        }
        self.arrivals += other.arrivals;
        self.unread += other.unread;
        self.unposted += other.unposted;
        self.dead_letters += other.dead_letters;
        self.faults.extend(other.faults.iter().cloned());
    }
}

/// Audits one session.
pub fn audit(rows: &Snapshot) -> Balance {
    let mut view = View::new(rows);
    view.head();
    view.inbox();
    view.log();
    view.arrivals();
    view.executions();
    view.outbox();
    view.balance
}

fn fate_word(fate: &Fate) -> &'static str {
    match fate {
        Fate::Acked => "acked",
        Fate::Collected => "collected",
        Fate::Superseded => "superseded",
        Fate::Stopped => "stopped",
        Fate::Dead(_) => "dead",
        Fate::Waived => "waived",
    }
}

struct View<'a> {
    rows: &'a Snapshot,
    head: Head,
    inbox: Inbox,
    open: Option<Turn>,
    /// Arrival → the log entries that carry it, committed or the open turn's.
    carried: BTreeMap<Seq, Vec<u64>>,
    balance: Balance,
}

impl<'a> View<'a> {
    fn new(rows: &'a Snapshot) -> Self {
        let head = get::<Head>(rows, &Key::head()).cloned().unwrap_or_default();
        let inbox = get::<Inbox>(rows, &Key::inbox()).cloned().unwrap_or_default();
        let open = head.open.and_then(|no| get::<Turn>(rows, &Key::turn(no)).cloned());
        let balance = Balance::default();
        Self { rows, head, inbox, open, carried: BTreeMap::new(), balance }
    }

    fn expect(&mut self, holds: bool, fault: impl FnOnce() -> String) {
        if !holds {
            self.balance.faults.push(fault());
        }
    }

    fn head(&mut self) {
        let head = self.head.clone();
        if let Some(lane) = &head.lane {
            self.expect(lane.fence <= head.fence, || "the lane's fence was never given".into());
            self.expect(head.open == Some(lane.turn), || {
                format!("the lane is for turn {}, open is {:?}", lane.turn, head.open)
            });
        }
        self.expect(head.open.is_some() == self.open.is_some(), || {
            format!("the open turn {:?} has no row", head.open)
        });
        let stopped = head.stopped;
        self.expect(!stopped || head.open.is_none(), || "a stopped session has a turn".into());
        self.expect(!stopped || self.inbox.notices.is_empty(), || {
            "a stopped session has unread completions".into()
        });
        self.expect(head.wake_at == wake_at(&head), || "wake_at is not derived".into());
    }

    fn inbox(&mut self) {
        let inbox = self.inbox.clone();
        let all = || inbox.people.iter().chain(&inbox.notices);
        for list in [&inbox.people, &inbox.notices] {
            self.expect(list.is_sorted_by(|a, b| a.seq < b.seq), || "inbox out of order".into());
        }
        let wakes_at = all().filter(|unread| unread.wakes).map(|unread| unread.ready_at).min();
        self.expect(self.head.inbox_at == wakes_at, || "inbox_at is not derived".into());
        self.expect(inbox.people.len() <= PEOPLE_UNREAD_MAX + PEOPLE_UNREAD_MAX, || {
            "the inbox has too many messages".into()
        });
        for unread in all() {
            let arrival = get::<Arrival>(self.rows, &Key::arrival(unread.seq));
            let pending = arrival.is_some_and(|arrival| arrival.standing == Standing::Pending);
            self.expect(pending, || format!("unread {} is not pending", unread.seq));
        }
    }

    fn log(&mut self) {
        let head = self.head.clone();
        let (mut end, mut turn) = (head.tlen, None);
        if let Some(open) = &self.open {
            end = open.base + open.len;
            turn = Some(open.clone());
        }
        for no in head.log_first..end {
            let Some(entry) = get::<Entry>(self.rows, &Key::entry(no)) else {
                self.expect(false, || format!("the log has a hole at {no}"));
                continue;
            };
            for seq in &entry.carries {
                self.carried.entry(*seq).or_default().push(no);
            }
        }
        let beyond = get::<Entry>(self.rows, &Key::entry(end)).is_some();
        self.expect(!beyond, || format!("the log goes on after its end {end}"));
        let twice: Vec<Seq> =
            self.carried.iter().filter(|(_, at)| at.len() > 1).map(|(seq, _)| *seq).collect();
        self.expect(twice.is_empty(), || format!("{twice:?} stand twice in the log"));
        let Some(turn) = turn else { return };
        self.expect(turn.base == head.tlen, || "the open turn does not follow the log".into());
        self.expect(turn.seen <= turn.carried.len() && turn.seen_len <= turn.len, || {
            "the open turn has seen more than it has".into()
        });
        for carried in &turn.carried {
            let at = self.carried.get(&carried.seq).and_then(|at| at.first()).copied();
            self.expect(at.is_some_and(|no| no >= turn.base), || {
                format!("{} is offered by no entry", carried.seq)
            });
        }
    }

    fn arrivals(&mut self) {
        let unread: BTreeSet<Seq> =
            self.inbox.people.iter().chain(&self.inbox.notices).map(|unread| unread.seq).collect();
        let rows = self.rows;
        for arrival in rows.values().filter_map(Arrival::of) {
            let seq = arrival.seq;
            let in_inbox = unread.contains(&seq);
            let at = self.carried.get(&seq).and_then(|at| at.first()).copied();
            let offered = at.is_some_and(|no| no >= self.head.tlen);
            let in_log = at.is_some_and(|no| no < self.head.tlen);
            let agrees = match &arrival.standing {
                Standing::Pending => in_inbox && at.is_none(),
                Standing::Offered(turn) => !in_inbox && offered && self.head.open == Some(*turn),
                Standing::Settled { fate: Fate::Acked | Fate::Collected, .. } => {
                    // Entries before `log_first` are forgotten, and their arrivals soon too.
                    !in_inbox && (in_log || (at.is_none() && self.head.log_first > 0))
                }
                Standing::Settled {
                    fate: Fate::Superseded | Fate::Stopped | Fate::Dead(_) | Fate::Waived,
                    ..
                }
                | Standing::Withdrawn => !in_inbox && at.is_none(),
            };
            self.expect(agrees, || {
                format!(
                    "arrival {seq} is {:?}, in the inbox: {in_inbox}, in the log: {at:?}",
                    arrival.standing
                )
            });
            self.count(arrival);
        }
    }

    fn count(&mut self, arrival: &Arrival) {
        let balance = &mut self.balance;
        match (&arrival.body, &arrival.standing) {
            (Body::Message { .. } | Body::Remark { .. }, standing) => {
                balance.arrivals += 1;
                balance.unread += u64::from(*standing == Standing::Pending);
            }
            (Body::Completion { .. }, Standing::Pending) => balance.pending += 1,
            (Body::Completion { .. }, Standing::Offered(_)) => balance.offered += 1,
            (Body::Completion { .. }, Standing::Settled { fate, .. }) => {
                *balance.fates.entry(fate_word(fate).into()).or_default() += 1;
            }
            (Body::Completion { .. }, Standing::Withdrawn) => {
                balance.faults.push(format!("the completion {} was withdrawn", arrival.seq));
            }
        }
    }

    fn executions(&mut self) {
        let live = get::<Live>(self.rows, &Key::live()).cloned().unwrap_or_default().0;
        let rows = self.rows;
        let mut entered: BTreeMap<&ExecutionId, u32> = BTreeMap::new();
        for arrival in rows.values().filter_map(Arrival::of) {
            if let Body::Completion { execution } = &arrival.body {
                *entered.entry(execution).or_default() += 1;
                let known = get::<Execution>(rows, &Key::execution(execution)).is_some();
                // A completion's record goes with its execution's; the fate is counted with it.
                self.expect(known, || format!("a completion of the unknown {execution}"));
            }
        }
        for (id, count) in &entered {
            self.expect(*count == 1, || format!("{id} entered the inbox {count} times"));
        }
        for execution in rows.values().filter_map(Execution::of) {
            self.balance.registered += 1;
            let unattended = execution.unattended && !execution.state.is_ended();
            self.balance.unattended += u64::from(unattended);
            let is_live = live.contains(&execution.id);
            self.expect(is_live != execution.state.is_ended(), || {
                format!("{} is {:?}, in the live list: {is_live}", execution.id, execution.state)
            });
            self.execution(execution, is_live);
        }
        let recent = get::<Recent>(rows, &Key::recent()).cloned().unwrap_or_default().0;
        for id in recent.iter().filter(|id| live.contains(id)) {
            self.balance.faults.push(format!("{id} is listed as over and as live"));
        }
        let (count, unread) = (live.len(), self.inbox.notices.len());
        self.expect(count <= LIVE_PER_SESSION_MAX, || format!("{count} executions are live"));
        self.expect(count + unread <= NOTICES_UNREAD_AND_LIVE_MAX, || {
            format!("{count} live and {unread} unread")
        });
    }

    fn execution(&mut self, execution: &Execution, is_live: bool) {
        let id = &execution.id;
        if is_live {
            self.balance.live += 1;
            let current = execution.generation == self.head.generation;
            self.expect(current, || format!("{id} of an older generation is live"));
            self.expect(!self.head.stopped, || format!("{id} lives, stopped"));
        }
        let agrees = match (&execution.model, &execution.state) {
            (ModelReceipt::None, State::Ended(_)) => false,
            (ModelReceipt::None, State::Registered | State::Running | State::Cancelling) => true,
            (ModelReceipt::Arrival(seq), _) => get::<Arrival>(self.rows, &Key::arrival(*seq))
                .is_some_and(|arrival| arrival.body == Body::Completion { execution: id.clone() }),
            (ModelReceipt::Fate(fate), state) => {
                *self.balance.fates.entry(fate_word(fate).into()).or_default() += 1;
                state.is_ended()
            }
        };
        self.expect(agrees, || format!("{id} has the receipt {:?}", execution.model));
    }

    fn outbox(&mut self) {
        let tails = get::<Tails>(self.rows, &Key::tails()).cloned().unwrap_or_default().0;
        let mut heads: BTreeMap<String, u32> = BTreeMap::new();
        let mut lines: BTreeSet<String> = BTreeSet::new();
        for item in self.rows.values().filter_map(Item::of) {
            let Some(to) = item.errand.line() else { continue };
            match item.state {
                ItemState::Pending | ItemState::Leased { .. } => {
                    self.balance.unposted += 1;
                    *heads.entry(to.clone()).or_default() += u32::from(item.at.is_some());
                    lines.insert(to);
                }
                ItemState::Dead(_) => self.balance.dead_letters += 1,
                ItemState::Done(_) => {}
            }
        }
        for to in lines {
            let first = heads.get(&to).copied().unwrap_or(0);
            self.expect(first == 1, || format!("{first} items of {to} come first"));
            self.expect(tails.contains_key(&to), || format!("the line {to} has no end"));
        }
    }
}

fn get<'a, T: RowType>(rows: &'a Snapshot, key: &Key) -> Option<&'a T> {
    rows.get(key).and_then(T::of)
}
