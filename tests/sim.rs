//! A seeded simulator of the ledger over the memory store: thousands of worlds, each replayed
//! alone from its number: `DOGWATCH_SIM_SEED=1234 cargo test --test sim`. More seeds:
//! `DOGWATCH_SIM_SEEDS=20000`.
// The attribute tells the lints that all of it is test code.
#![cfg(test)]

#[path = "sim/mod.rs"]
mod sim;

use std::sync::Arc;

use dogwatch::core::time::Timestamp;
use dogwatch::ports::Store;
use dogwatch::store::{ManualClock, Memory};

use sim::{Place, Reach, Runner, Setting, schedule};

/// Schedules run where nothing else is asked for.
const SEEDS: u64 = 2_000;
/// Schedules after which everything must have been reached.
const SEEDS_FOR_REACH: u64 = 1_000;

struct InMemory(Arc<Memory>);

impl InMemory {
    fn new() -> Self {
        let clock = ManualClock::new(Timestamp::from_ms(1_800_000_000_000));
        Self(Arc::new(Memory::new(Arc::new(clock))))
    }
}

impl Place for InMemory {
    fn store(&self) -> Arc<dyn Store> {
        self.0.clone()
    }

    /// It is never closed.
    fn reopen(&mut self) {}

    fn lose_power(&mut self) -> bool {
        self.0.lose_power();
        true
    }
}

fn number(name: &str) -> Option<u64> {
    #[expect(clippy::disallowed_methods, reason = "how many seeds a test runs is its own matter")]
    std::env::var(name).ok()?.parse().ok()
}

fn run(seed: u64, sole: bool) -> Reach {
    let setting = Setting { seed, sole, runner: Runner::Plain };
    schedule(setting, Box::new(InMemory::new()))
}

fn schedules(sole: bool) {
    if let Some(seed) = number("DOGWATCH_SIM_SEED") {
        run(seed, sole);
        return;
    }
    let seeds = number("DOGWATCH_SIM_SEEDS").unwrap_or(SEEDS);
    let workers = std::thread::available_parallelism().map_or(2, usize::from);
    let mut reach = Reach::default();
    std::thread::scope(|scope| {
        let work = |worker: usize| {
            move || {
                let mut reach = Reach::default();
                (0..seeds)
                    .skip(worker)
                    .step_by(workers)
                    .for_each(|seed| reach.add(&run(seed, sole)));
                reach
            }
        };
        let threads: Vec<_> = (0..workers).map(|worker| scope.spawn(work(worker))).collect();
        for thread in threads {
            match thread.join() {
                Ok(reached) => reach.add(&reached),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
    if seeds >= SEEDS_FOR_REACH {
        reach.expect_all(sole);
    }
}

#[test]
fn several_nodes_lose_and_double_nothing() {
    schedules(false);
}

#[test]
fn one_boot_at_a_time_loses_and_doubles_nothing() {
    schedules(true);
}
