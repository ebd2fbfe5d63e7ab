//! A seeded simulator of the ledger: sessions, nodes, spools, executions, a virtual clock; crashes
//! before and after every apply, lost answers, other nodes' writes between load and decide, stale
//! holders, duplicates, stops. After every apply every invariant is checked; at the end the faults
//! stop, everything runs to quiescence, and every completion must have exactly one fate.
//!
//! A failing seed is replayed alone: `DOGWATCH_SIM_SEED=1234 cargo test --test sim`. More seeds:
//! `DOGWATCH_SIM_SEEDS=20000`.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a simulated world that does not add up ends its test"
)]

#[path = "sim/check.rs"]
mod check;
#[path = "sim/driver.rs"]
mod driver;
#[path = "sim/rng.rs"]
mod rng;
#[path = "sim/world.rs"]
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use world::World;

/// Actions of one schedule, before the drain.
const ACTIONS: u32 = 120;
/// Schedules run where nothing else is asked for.
const SEEDS: u64 = 2_000;

fn number(name: &str) -> Option<u64> {
    #[expect(clippy::disallowed_methods, reason = "how many seeds a test runs is its own matter")]
    std::env::var(name).ok()?.parse().ok()
}

/// Runs one schedule; the panic of a failing one names its seed.
fn schedule(seed: u64, sole: bool) {
    let mut world = World::new(seed, sole);
    let run = catch_unwind(AssertUnwindSafe(|| {
        for _ in 0..ACTIONS {
            world.act();
        }
        world.drain();
    }));
    if let Err(panic) = run {
        let what = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string))
            .unwrap_or_default();
        let story = world.story(40);
        panic!("seed {seed} (sole boot: {sole}): {what}\nthe last that happened:\n{story}");
    }
}

fn schedules(sole: bool) {
    if let Some(seed) = number("DOGWATCH_SIM_SEED") {
        schedule(seed, sole);
        return;
    }
    let seeds = number("DOGWATCH_SIM_SEEDS").unwrap_or(SEEDS);
    let workers = std::thread::available_parallelism().map_or(2, usize::from) as u64;
    std::thread::scope(|scope| {
        let run = |worker: u64| {
            move || (worker..seeds).step_by(workers as usize).for_each(|s| schedule(s, sole))
        };
        let threads: Vec<_> = (0..workers).map(|worker| scope.spawn(run(worker))).collect();
        for thread in threads {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
}

#[test]
fn several_nodes_lose_and_double_nothing() {
    schedules(false);
}

#[test]
fn one_boot_at_a_time_loses_and_doubles_nothing() {
    schedules(true);
}
