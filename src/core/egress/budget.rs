//! How many requests there may be. Owns the budgets of hosts and credentials, which all executions
//! share, whose turn it is, and how long an upstream that asked for a pause is left alone.
//! Must not know any clock: times come in as data, and so does the seed of chance.

use std::collections::{BTreeMap, BTreeSet};

use super::access::CredentialName;
use super::host::Host;
use crate::core::limits::{
    EGRESS_BURST_DIVISOR, EGRESS_HOLD_MS_MAX, EGRESS_LINES_MAX, EGRESS_MINUTE_MS, EGRESS_SPREAD_MS,
    EGRESS_WAITING_MAX,
};
use crate::core::time::Timestamp;

/// Whose budget it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Account {
    /// A host's, whatever its ports.
    Host(Host),
    /// A credential's.
    Credential(CredentialName),
}

impl Account {
    /// As it is called in a refusal.
    pub fn words(&self) -> String {
        match self {
            Self::Host(host) => host.to_string(),
            Self::Credential(name) => format!("the credential {name}"),
        }
    }
}

/// A request that waits for its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// There is no room in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// From then on there is, as far as can be told.
    pub until: Timestamp,
    /// The upstream asked for a pause.
    pub by_upstream: bool,
}

/// What a request is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Now.
    Go,
    /// [`Budgets::turn`] will name it.
    Wait(Ticket),
    /// Not in time.
    Refused(Refusal),
}

/// Who asks.
#[derive(Debug, Clone, Copy)]
pub struct Asker<'a> {
    /// The execution: among those who wait, each gets as many turns as every other.
    pub execution: &'a str,
    /// The budget, in requests a minute.
    pub per_minute: u32,
    /// It waits so long.
    pub wait_ms: u64,
}

#[derive(Debug)]
struct Waiting {
    ticket: Ticket,
    execution: String,
    until: Timestamp,
}

#[derive(Debug, Default)]
struct Line {
    per_minute: u32,
    /// When a budget that is never spent faster than it comes would be full again, in µs.
    full_us: u64,
    held_until: Timestamp,
    waiting: Vec<Waiting>,
    /// Which turn each of those who wait had last.
    served: BTreeMap<String, u64>,
}

/// All budgets of a process.
#[derive(Debug, Default)]
pub struct Budgets {
    lines: BTreeMap<Account, Line>,
    /// Those for which somebody waits.
    busy: BTreeSet<Account>,
    seed: u64,
    count: u64,
}

impl Line {
    /// What may go at once.
    fn burst(&self) -> u64 {
        u64::from((self.per_minute / EGRESS_BURST_DIVISOR).max(1))
    }

    /// Between two requests in the long run, in µs: so that in no minute, wherever it begins, there
    /// are more than the budget, those that go at once included.
    fn interval_us(&self) -> u64 {
        let rest = u64::from(self.per_minute.max(1)).saturating_sub(self.burst()) + 1;
        (EGRESS_MINUTE_MS * 1_000).div_ceil(rest)
    }

    /// When the next one may go, rounded up.
    fn next(&self) -> Timestamp {
        let ahead = self.interval_us() * (self.burst() - 1);
        let by_budget = Timestamp::from_ms(self.full_us.saturating_sub(ahead).div_ceil(1_000));
        by_budget.max(self.held_until)
    }

    fn spend(&mut self, now: Timestamp) {
        let now_us = now.as_ms().saturating_mul(1_000);
        self.full_us = self.full_us.max(now_us).saturating_add(self.interval_us());
    }

    fn is_idle(&self, now: Timestamp) -> bool {
        self.waiting.is_empty()
            && self.held_until <= now
            && self.full_us <= now.as_ms().saturating_mul(1_000)
    }

    /// About when another request of this execution would have its turn.
    fn expected(&self, execution: &str) -> Timestamp {
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for waiting in &self.waiting {
            *counts.entry(waiting.execution.as_str()).or_default() += 1;
        }
        let own = counts.remove(execution).unwrap_or(0);
        let ahead: u64 = own + counts.values().map(|count| (*count).min(own + 1)).sum::<u64>();
        self.next().plus_ms((self.interval_us().saturating_mul(ahead)).div_ceil(1_000))
    }

    /// Of those who wait, who had a turn longest ago; of these, who came first.
    fn first(&self) -> Option<usize> {
        let last = |waiting: &Waiting| self.served.get(&waiting.execution).copied().unwrap_or(0);
        let order = |(_, waiting): &(usize, &Waiting)| (last(waiting), waiting.ticket);
        self.waiting.iter().enumerate().min_by_key(order).map(|(at, _)| at)
    }
}

impl Budgets {
    /// No budget is touched. The seed is where chance comes from.
    pub fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// Asks for a turn.
    pub fn ask(&mut self, account: &Account, asker: Asker<'_>, now: Timestamp) -> Turn {
        if !self.lines.contains_key(account) && self.lines.len() >= EGRESS_LINES_MAX {
            self.lines.retain(|_, line| !line.is_idle(now));
            if self.lines.len() >= EGRESS_LINES_MAX {
                let until = now.plus_ms(EGRESS_MINUTE_MS);
                return Turn::Refused(Refusal { until, by_upstream: false });
            }
        }
        let ticket = Ticket(self.draw_number());
        let spread_ms = self.chance(EGRESS_SPREAD_MS);
        let line = self.lines.entry(account.clone()).or_default();
        line.per_minute = asker.per_minute;
        if line.waiting.is_empty() && line.next() <= now {
            line.spend(now);
            return Turn::Go;
        }
        let until = now.plus_ms(asker.wait_ms);
        let own = line.waiting.iter().filter(|waiting| waiting.execution == asker.execution);
        let expected = line.expected(asker.execution);
        if expected > until || own.count() >= EGRESS_WAITING_MAX {
            let by_upstream = line.held_until > now;
            let until = expected.plus_ms(spread_ms);
            return Turn::Refused(Refusal { until, by_upstream });
        }
        let execution = asker.execution.to_owned();
        line.waiting.push(Waiting { ticket, execution, until });
        self.busy.insert(account.clone());
        Turn::Wait(ticket)
    }

    /// Whose turn it is, and who waited in vain.
    pub fn turn(&mut self, now: Timestamp) -> Vec<(Ticket, Result<(), Refusal>)> {
        let mut told = Vec::new();
        for account in self.busy.clone() {
            let Some(line) = self.lines.get_mut(&account) else { continue };
            while line.next() <= now
                && let Some(at) = line.first()
            {
                let waiting = line.waiting.remove(at);
                line.spend(now);
                self.count += 1;
                line.served.insert(waiting.execution, self.count);
                told.push((waiting.ticket, Ok(())));
            }
            let (next, held_until) = (line.next(), line.held_until);
            let in_vain =
                |waiting: &mut Waiting| waiting.until <= now || waiting.until < held_until;
            let gone: Vec<Waiting> = line.waiting.extract_if(.., in_vain).collect();
            if line.waiting.is_empty() {
                line.served.clear();
                self.busy.remove(&account);
            }
            for waiting in gone {
                let until = next.plus_ms(self.chance(EGRESS_SPREAD_MS));
                let refusal = Refusal { until, by_upstream: held_until > now };
                told.push((waiting.ticket, Err(refusal)));
            }
        }
        told
    }

    /// When [`Budgets::turn`] is to be asked next.
    pub fn next(&self) -> Option<Timestamp> {
        let lines = self.busy.iter().filter_map(|account| self.lines.get(account));
        lines.flat_map(|line| line.waiting.iter().map(|w| w.until).chain([line.next()])).min()
    }

    /// Who waited does not any more.
    pub fn leave(&mut self, account: &Account, ticket: Ticket) {
        let Some(line) = self.lines.get_mut(account) else { return };
        line.waiting.retain(|waiting| waiting.ticket != ticket);
        if line.waiting.is_empty() {
            line.served.clear();
            self.busy.remove(account);
        }
    }

    /// The upstream asked to be left alone for so long.
    pub fn hold(&mut self, account: &Account, now: Timestamp, for_ms: u64) {
        let until = now.plus_ms(for_ms.min(EGRESS_HOLD_MS_MAX));
        if let Some(line) = self.lines.get_mut(account) {
            line.held_until = line.held_until.max(until);
        }
    }

    fn draw_number(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    /// Something below `end` that two processes do not share.
    fn chance(&mut self, end: u64) -> u64 {
        // SplitMix64: enough to keep those apart who were refused together.
        let mut z = self.seed.wrapping_add(self.draw_number().wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end.max(1)
    }
}

#[cfg(test)]
mod tests;
