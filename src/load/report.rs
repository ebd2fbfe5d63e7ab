//! What was measured, for people and for programs. Owns medians and percentiles. Must not know how
//! it was measured.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::Settings;

/// One round through the ledger.
pub(super) struct Measured {
    pub(super) cycles: usize,
    pub(super) took: Duration,
    /// From each completion to the turn that it woke.
    pub(super) latencies: Vec<Duration>,
    pub(super) loads: u64,
    pub(super) applies: u64,
    pub(super) conflicts: u64,
    /// Of the store's server.
    pub(super) cpu_us: Option<u64>,
    /// Of this process.
    pub(super) own: Duration,
}

/// A round, and its reference.
pub(super) struct Round {
    pub(super) measured: Measured,
    /// The same cycles' rows, with nothing decided.
    pub(super) reference: Duration,
}

/// Milliseconds from a completion to the turn that it wakes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Latency {
    /// Half were quicker.
    pub p50_ms: f64,
    /// Ninety-nine of a hundred were.
    pub p99_ms: f64,
    /// The slowest.
    pub max_ms: f64,
}

/// What was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Sessions at once.
    pub sessions: u32,
    /// Executions of each in a round.
    pub executions: u32,
    /// Cycles in all rounds: each registers, appends, commits, completes and claims.
    pub cycles: usize,
    /// Cycles a second; the median of the rounds.
    pub cycles_per_second: f64,
    /// What the reference is: the same rows with nothing decided.
    pub reference: &'static str,
    /// Of the reference.
    pub reference_per_second: f64,
    /// The one as a part of the other.
    pub percent_of_reference: f64,
    /// From completion to turn.
    pub latency: Latency,
    /// Applies that met somebody else's.
    pub conflicts: u64,
    /// Reads a cycle.
    pub loads_per_cycle: f64,
    /// Writes a cycle.
    pub applies_per_cycle: f64,
    /// What the store's server used a cycle, in microseconds.
    pub server_cpu_us_per_cycle: Option<f64>,
    /// What this process used a cycle, in microseconds.
    pub own_cpu_us_per_cycle: f64,
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
impl Report {
    pub(super) fn of(settings: Settings, against: &'static str, rounds: Vec<Round>) -> Self {
        let cycles: usize = rounds.iter().map(|round| round.measured.cycles).sum();
        let a_cycle = |total: u64| total as f64 / cycles.max(1) as f64;
        let sum = |of: fn(&Measured) -> u64| rounds.iter().map(|round| of(&round.measured)).sum();
        let rate =
            |round: &Round, took: Duration| round.measured.cycles as f64 / took.as_secs_f64();
        let mine = |round: &Round| rate(round, round.measured.took);
        let reference = |round: &Round| rate(round, round.reference);
        let cpu = rounds.iter().map(|round| round.measured.cpu_us).sum::<Option<u64>>();
        let report = Self {
            sessions: settings.sessions,
            executions: settings.executions,
            cycles,
            cycles_per_second: median(rounds.iter().map(mine)),
            reference: against,
            reference_per_second: median(rounds.iter().map(reference)),
            percent_of_reference: 100.0 * median(rounds.iter().map(mine))
                / median(rounds.iter().map(reference)),
            conflicts: sum(|measured| measured.conflicts),
            loads_per_cycle: a_cycle(sum(|measured| measured.loads)),
            applies_per_cycle: a_cycle(sum(|measured| measured.applies)),
            server_cpu_us_per_cycle: cpu.map(a_cycle),
            own_cpu_us_per_cycle: rounds
                .iter()
                .map(|round| round.measured.own)
                .sum::<Duration>()
                .as_secs_f64()
                * 1e6
                / cycles.max(1) as f64,
            latency: Latency { p50_ms: 0.0, p99_ms: 0.0, max_ms: 0.0 },
        };
        let latencies = rounds.into_iter().flat_map(|round| round.measured.latencies).collect();
        Self { latency: Latency::of(latencies), ..report }
    }

    /// For programs.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_else(|error| error.to_string())
    }
}

impl Latency {
    fn of(mut all: Vec<Duration>) -> Self {
        all.sort_unstable();
        let at = |percent: usize| {
            let place = (all.len() * percent).div_ceil(100).saturating_sub(1);
            all.get(place).map_or(0.0, |latency| latency.as_secs_f64() * 1e3)
        };
        Self { p50_ms: at(50), p99_ms: at(99), max_ms: at(100) }
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sessions, executions, cycles, latency, .. } = self;
        writeln!(
            f,
            "load        {sessions} sessions at once, {executions} executions each a round"
        )?;
        writeln!(f, "            {cycles} cycles: register, append, commit, complete, claim")?;
        writeln!(
            f,
            "throughput  {:.0} cycles/s; {}: {:.0} ({:.0} %)",
            self.cycles_per_second,
            self.reference,
            self.reference_per_second,
            self.percent_of_reference
        )?;
        writeln!(
            f,
            "latency     completion to turn: p50 {:.2} ms, p99 {:.2} ms, max {:.2} ms",
            latency.p50_ms, latency.p99_ms, latency.max_ms
        )?;
        writeln!(
            f,
            "store       {:.2} loads and {:.2} applies a cycle, {} conflicts",
            self.loads_per_cycle, self.applies_per_cycle, self.conflicts
        )?;
        let own = self.own_cpu_us_per_cycle;
        write!(f, "processors  a cycle uses {own:.0} µs of them here")?;
        match self.server_cpu_us_per_cycle {
            Some(us) => write!(f, ", {us:.0} µs at the server"),
            None => write!(f, "; the store is in this process"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let ms = |of: std::ops::RangeInclusive<u64>| of.rev().map(Duration::from_millis).collect();
        let latency = Latency::of(ms(1..=200));
        assert_eq!((latency.p50_ms, latency.p99_ms, latency.max_ms), (100.0, 198.0, 200.0));
        let latency = Latency::of(ms(7..=7));
        assert_eq!((latency.p50_ms, latency.p99_ms, latency.max_ms), (7.0, 7.0, 7.0));
    }
}
