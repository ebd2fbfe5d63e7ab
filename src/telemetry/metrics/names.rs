//! The names of all metrics, their labels and buckets, in one table: a rename is one line here and
//! one in `config/prometheus/metrics.md`. Must not know what is counted when.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

macro_rules! labels {
    ($($name:ident { $($label:ident: $type:ty),* })*) => {
        $(
            #[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
            pub(super) struct $name { $(pub(super) $label: $type),* }
        )*
    };
}

labels! {
    ByOutcome { outcome: &'static str }
    ByOrigin { origin: &'static str }
    ByOriginAndOutcome { origin: &'static str, outcome: &'static str }
    BySort { sort: &'static str }
    BySortAndOutcome { sort: &'static str, outcome: &'static str }
    ByKind { kind: &'static str }
    ByKindAndOutcome { kind: &'static str, outcome: &'static str }
    ByState { state: &'static str }
    ByTool { tool: String }
    ByToolAndOutcome { tool: String, outcome: &'static str }
    ByTokenType { gen_ai_token_type: &'static str }
    Letter { kind: &'static str }
}

/// A histogram with these upper bounds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds(&'static [f64]);

impl MetricConstructor<Histogram> for Bounds {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.0.iter().copied())
    }
}

/// Of one store write, in seconds.
const WRITE: Bounds = Bounds(&[0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 3.0]);
/// Of what a person waits for.
const WAIT: Bounds = Bounds(&[0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0]);
/// Of what runs for long.
const RUN: Bounds =
    Bounds(&[1.0, 10.0, 60.0, 300.0, 1800.0, 3600.0, 21_600.0, 86_400.0, 604_800.0]);
/// Of tokens.
const TOKENS: Bounds = Bounds(&[
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1024.0,
    4096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
]);

type Histograms<L> = Family<L, Histogram, Bounds>;

/// Every metric.
pub(super) struct Counted {
    pub(super) arrivals: Family<BySort, Counter>,
    pub(super) wakeups: Family<ByOriginAndOutcome, Counter>,
    pub(super) wakeup_seconds: Histograms<ByOrigin>,
    pub(super) queue_depth: Gauge,
    pub(super) queue_age: Gauge<f64, std::sync::atomic::AtomicU64>,
    pub(super) lane_claims: Family<ByOutcome, Counter>,
    pub(super) attempts_failed: Counter,
    pub(super) turns: Family<ByOriginAndOutcome, Counter>,
    pub(super) turn_seconds: Histograms<ByOriginAndOutcome>,
    pub(super) turns_in_progress: Gauge,
    pub(super) watchers: Family<ByState, Gauge>,
    pub(super) watchers_started: Family<ByKind, Counter>,
    pub(super) watchers_finished: Family<ByKindAndOutcome, Counter>,
    pub(super) watcher_seconds: Histograms<ByOutcome>,
    pub(super) tool_calls: Family<ByToolAndOutcome, Counter>,
    pub(super) tool_seconds: Histograms<ByTool>,
    pub(super) model_seconds: Histograms<ByOutcome>,
    pub(super) model_tokens: Histograms<ByTokenType>,
    pub(super) posts: Family<BySortAndOutcome, Counter>,
    pub(super) post_seconds: Histogram,
    pub(super) outbox_depth: Gauge,
    pub(super) outbox_age: Gauge<f64, std::sync::atomic::AtomicU64>,
    pub(super) dead_letters: Family<Letter, Counter>,
    pub(super) applies: Family<ByOutcome, Counter>,
    pub(super) db_write_seconds: Histogram,
    pub(super) db_bytes: Gauge,
    pub(super) store_up: Gauge,
    pub(super) ready: Gauge,
    pub(super) terminals: Gauge,
}

impl Counted {
    /// Makes them all. The registry adds `_total` to counters and `_info` to what describes.
    pub(super) fn register(registry: &mut Registry) -> Self {
        let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("dogwatch_build", "What runs", version);
        let counted = Self {
            arrivals: Family::default(),
            wakeups: Family::default(),
            wakeup_seconds: Family::new_with_constructor(WAIT),
            queue_depth: Gauge::default(),
            queue_age: Gauge::default(),
            lane_claims: Family::default(),
            attempts_failed: Counter::default(),
            turns: Family::default(),
            turn_seconds: Family::new_with_constructor(WAIT),
            turns_in_progress: Gauge::default(),
            watchers: Family::default(),
            watchers_started: Family::default(),
            watchers_finished: Family::default(),
            watcher_seconds: Family::new_with_constructor(RUN),
            tool_calls: Family::default(),
            tool_seconds: Family::new_with_constructor(WAIT),
            model_seconds: Family::new_with_constructor(WAIT),
            model_tokens: Family::new_with_constructor(TOKENS),
            posts: Family::default(),
            post_seconds: WAIT.new_metric(),
            outbox_depth: Gauge::default(),
            outbox_age: Gauge::default(),
            dead_letters: Family::default(),
            applies: Family::default(),
            db_write_seconds: WRITE.new_metric(),
            db_bytes: Gauge::default(),
            store_up: Gauge::default(),
            ready: Gauge::default(),
            terminals: Gauge::default(),
        };
        counted.name_work(registry);
        counted.name_rest(registry);
        counted
    }

    fn name_work(&self, registry: &mut Registry) {
        macro_rules! name {
            ($($field:ident: $name:literal, $help:literal;)*) => {
                $(registry.register($name, $help, self.$field.clone());)*
            };
        }
        name! {
            arrivals: "dogwatch_arrivals", "What entered an inbox";
            wakeups: "dogwatch_wakeups", "Arrivals that came before the model, or did not";
            wakeup_seconds: "dogwatch_wakeup_latency_seconds", "From an arrival to its turn";
            queue_depth: "dogwatch_wakeup_queue_depth", "Sessions to be claimed";
            queue_age: "dogwatch_wakeup_oldest_age_seconds", "How long the first is due";
            lane_claims: "dogwatch_lane_claims", "Lanes that were claimed here";
            attempts_failed: "dogwatch_turn_attempts_failed", "Attempts at a turn that failed";
            turns: "dogwatch_turns", "Turns that are over";
            turn_seconds: "dogwatch_turn_duration_seconds", "From a turn's opening to its end";
            turns_in_progress: "dogwatch_turns_in_progress", "Turns that run here";
            watchers: "dogwatch_watchers", "Executions of this bot that are not over";
            watchers_started: "dogwatch_watchers_started", "Executions that were registered";
            watchers_finished: "dogwatch_watchers_finished", "Executions that are over";
            watcher_seconds: "dogwatch_watcher_duration_seconds", "How long executions ran";
        }
    }

    fn name_rest(&self, registry: &mut Registry) {
        macro_rules! name {
            ($($field:ident: $name:literal, $help:literal;)*) => {
                $(registry.register($name, $help, self.$field.clone());)*
            };
        }
        name! {
            tool_calls: "dogwatch_tool_calls", "Tool calls of the model";
            tool_seconds: "dogwatch_tool_call_duration_seconds", "How long tool calls took";
            model_seconds: "gen_ai_client_operation_duration_seconds", "How long model calls took";
            model_tokens: "gen_ai_client_token_usage", "Tokens of a model call";
            posts: "dogwatch_posts", "Tries at posts to people";
            post_seconds: "dogwatch_post_delivery_duration_seconds", "From the outbox to people";
            outbox_depth: "dogwatch_outbox_depth", "Posts to be delivered";
            outbox_age: "dogwatch_outbox_oldest_age_seconds", "How long the first is due";
            dead_letters: "dogwatch_dead_letters", "What was given up";
            applies: "dogwatch_store_applies", "Writes to the store";
            db_write_seconds: "dogwatch_db_write_duration_seconds", "How long writes took";
            db_bytes: "dogwatch_db_bytes", "Size of the embedded store";
            store_up: "dogwatch_store_up", "The store answered this scrape";
            ready: "dogwatch_ready", "Everything that readiness depends on is well";
            terminals: "dogwatch_terminals", "Terminals that are attached";
        }
    }
}
