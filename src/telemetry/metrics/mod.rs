//! What is counted. Owns the metrics: what each event adds to which, and their text. Labels come
//! from enums or from a fixed list of names, so nobody's input can make a new series. Must not
//! know who scrapes.
//!
//! Their names stand in [`names`], their meaning for people in `config/prometheus/metrics.md`.

mod names;

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use crate::core::execution::{Kind, PostSort};
use crate::core::ledger::Fact;
use crate::core::ledger::fact::{Delivery, PostEnd, Sort, TurnEnd};
use crate::core::message::{Answer, ModelError};
use crate::core::transcript::Origin;
use crate::ports::{ApplyEnd, Meter};

use names::{
    ByKind, ByKindAndOutcome, ByOrigin, ByOriginAndOutcome, ByOutcome, BySort, BySortAndOutcome,
    ByState, ByTokenType, ByTool, ByToolAndOutcome, Counted, Letter,
};

/// A tool that is none of ours.
const OTHER: &str = "other";

/// What is read when somebody scrapes, not counted as it happens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Everything that readiness depends on is well.
    pub ready: bool,
    /// Turns that run here.
    pub turns: usize,
    /// Terminals that are attached.
    pub terminals: usize,
    /// What only the store knows; `None` when it does not answer.
    pub stored: Option<Stored>,
    /// Size of the embedded store.
    pub store_bytes: Option<u64>,
}

/// What only the store knows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stored {
    /// Executions of this home that run.
    pub running: usize,
    /// Executions of this home that are asked to end.
    pub cancelling: usize,
    /// Sessions to be claimed, now or later.
    pub queue: usize,
    /// How long the first of them is due, in milliseconds.
    pub queue_ms: u64,
    /// Posts to be delivered, now or later.
    pub outbox: usize,
    /// How long the first of them is due, in milliseconds.
    pub outbox_ms: u64,
}

/// All metrics of this process.
pub struct Metrics {
    registry: Registry,
    counted: Counted,
    /// The names of tools that are told apart.
    tools: Vec<String>,
}

impl Metrics {
    /// With the names of all tools there are.
    pub fn new(tools: Vec<String>) -> Self {
        let mut registry = Registry::default();
        let counted = Counted::register(&mut registry);
        Self { registry, counted, tools }
    }

    /// The text that is scraped.
    pub fn text(&self, gauges: &Gauges) -> String {
        self.set(gauges);
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _whole = encode(&mut text, &self.registry);
        text
    }

    fn set(&self, gauges: &Gauges) {
        let counted = &self.counted;
        counted.ready.set(i64::from(gauges.ready));
        counted.turns_in_progress.set(whole(gauges.turns));
        counted.terminals.set(whole(gauges.terminals));
        counted.store_up.set(i64::from(gauges.stored.is_some()));
        if let Some(bytes) = gauges.store_bytes {
            counted.db_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
        }
        let Some(stored) = gauges.stored else { return };
        for (state, count) in [("running", stored.running), ("cancelling", stored.cancelling)] {
            counted.watchers.get_or_create(&ByState { state }).set(whole(count));
        }
        counted.queue_depth.set(whole(stored.queue));
        counted.queue_age.set(seconds(stored.queue_ms));
        counted.outbox_depth.set(whole(stored.outbox));
        counted.outbox_age.set(seconds(stored.outbox_ms));
    }

    fn fact(&self, fact: Fact) {
        let counted = &self.counted;
        match fact {
            Fact::Arrived(sort) => {
                counted.arrivals.get_or_create(&BySort { sort: sort_word(sort) }).inc();
            }
            Fact::Woke(sort, delivery) => self.woke(sort, delivery),
            Fact::Claimed { resumed } => {
                let outcome = if resumed { "resumed" } else { "opened" };
                counted.lane_claims.get_or_create(&ByOutcome { outcome }).inc();
            }
            Fact::AttemptFailed => {
                counted.attempts_failed.inc();
            }
            Fact::TurnEnded { origin, end, ms } => self.turn_ended(origin, end, ms),
            Fact::Registered(kind) => {
                counted.watchers_started.get_or_create(&ByKind { kind: kind_word(kind) }).inc();
            }
            Fact::Ended { kind, status, ms } => {
                let outcome = status.word();
                let labels = ByKindAndOutcome { kind: kind_word(kind), outcome };
                counted.watchers_finished.get_or_create(&labels).inc();
                counted.watcher_seconds.get_or_create(&ByOutcome { outcome }).observe(seconds(ms));
            }
            Fact::Posted(sort, end) => self.posted(sort, end),
        }
    }

    fn woke(&self, sort: Sort, delivery: Delivery) {
        let origin = match sort {
            Sort::Message | Sort::Remark => "human",
            Sort::Completion => "watcher",
        };
        let outcome = match delivery {
            Delivery::Opened { waited_ms } => {
                let labels = ByOrigin { origin };
                self.counted.wakeup_seconds.get_or_create(&labels).observe(seconds(waited_ms));
                "delivered"
            }
            Delivery::Steered => "steered",
            Delivery::Retried => "retried",
            Delivery::Dead => {
                self.died("arrival");
                "dead"
            }
        };
        self.counted.wakeups.get_or_create(&ByOriginAndOutcome { origin, outcome }).inc();
    }

    fn turn_ended(&self, origin: Origin, end: TurnEnd, ms: u64) {
        let origin = match origin {
            Origin::Human => "human",
            Origin::Synthetic => "synthetic",
        };
        let outcome = match end {
            TurnEnd::Committed => "committed",
            TurnEnd::Dead => {
                self.died("turn");
                "dead"
            }
            TurnEnd::Stopped => "stopped",
        };
        let labels = ByOriginAndOutcome { origin, outcome };
        self.counted.turns.get_or_create(&labels).inc();
        self.counted.turn_seconds.get_or_create(&labels).observe(seconds(ms));
    }

    fn posted(&self, sort: PostSort, end: PostEnd) {
        let sort = match sort {
            PostSort::Answer => "answer",
            PostSort::Woken => "woken",
            PostSort::Human => "human",
            PostSort::Failure => "failure",
        };
        let outcome = match end {
            PostEnd::Done { after_ms } => {
                self.counted.post_seconds.observe(seconds(after_ms));
                "done"
            }
            PostEnd::Retried => "retried",
            PostEnd::Dead => {
                self.died("post");
                "dead"
            }
        };
        self.counted.posts.get_or_create(&BySortAndOutcome { sort, outcome }).inc();
    }

    fn died(&self, kind: &'static str) {
        self.counted.dead_letters.get_or_create(&Letter { kind }).inc();
    }
}

fn sort_word(sort: Sort) -> &'static str {
    match sort {
        Sort::Message => "message",
        Sort::Remark => "remark",
        Sort::Completion => "completion",
    }
}

fn kind_word(kind: Kind) -> &'static str {
    match kind {
        Kind::Script => "script",
    }
}

fn whole(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[expect(clippy::cast_precision_loss, reason = "no span here has more than 2^53 milliseconds")]
fn seconds(ms: u64) -> f64 {
    ms as f64 / 1_000.0
}

#[expect(clippy::cast_precision_loss, reason = "no call has more than 2^53 tokens")]
fn tokens(count: u64) -> f64 {
    count as f64
}

impl Meter for Metrics {
    fn applied(&self, end: ApplyEnd, ms: u64) {
        let outcome = match end {
            ApplyEnd::Applied => "applied",
            ApplyEnd::Conflict => "conflict",
            ApplyEnd::Already => "already",
            ApplyEnd::Failed => "failed",
        };
        self.counted.applies.get_or_create(&ByOutcome { outcome }).inc();
        self.counted.db_write_seconds.observe(seconds(ms));
    }

    fn wrote(&self, facts: &[Fact]) {
        for fact in facts {
            self.fact(*fact);
        }
    }

    fn asked(&self, answer: &Result<Answer, ModelError>, ms: u64) {
        let outcome = match answer {
            Ok(_) => "answered",
            Err(ModelError::Outage { .. }) => "outage",
            Err(ModelError::Garbled { .. }) => "garbled",
            Err(ModelError::Refused { .. }) => "refused",
        };
        self.counted.model_seconds.get_or_create(&ByOutcome { outcome }).observe(seconds(ms));
        if let Ok(answer) = answer {
            let usage = answer.usage;
            for (kind, count) in [("input", usage.input_tokens), ("output", usage.output_tokens)] {
                let labels = ByTokenType { gen_ai_token_type: kind };
                self.counted.model_tokens.get_or_create(&labels).observe(tokens(count));
            }
        }
    }

    fn called(&self, tool: &str, ok: bool, ms: u64) {
        let known = self.tools.iter().find(|name| *name == tool);
        let tool = known.cloned().unwrap_or_else(|| OTHER.to_owned());
        let outcome = if ok { "ok" } else { "error" };
        let labels = ByToolAndOutcome { tool: tool.clone(), outcome };
        self.counted.tool_calls.get_or_create(&labels).inc();
        self.counted.tool_seconds.get_or_create(&ByTool { tool }).observe(seconds(ms));
    }
}

#[cfg(test)]
mod tests;
