//! A seeded simulator of the ledger over the memory store: thousands of worlds, each replayed
//! alone from its number: `DOGWATCH_SIM_SEED=1234 cargo test --test sim`. More seeds:
//! `DOGWATCH_SIM_SEEDS=20000`.
// The attribute tells the lints that all of it is test code.
#![cfg(test)]

#[path = "sim/mod.rs"]
mod sim;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dogwatch::core::time::Timestamp;
use dogwatch::ports::Store;
use dogwatch::store::{ManualClock, Memory};

use sim::{Place, Reach, Runner, Setting, schedule};

/// Schedules run where nothing else is asked for.
const SEEDS: u64 = 2_000;
/// Likewise, through the engine's runner.
const SEEDS_OF_ENGINE: u64 = 300;
/// Schedules after which everything must have been reached.
const SEEDS_FOR_REACH: u64 = 1_000;

/// What happens in every world.
const EVERYWHERE: [&str; 60] = [
    "a chain spent",
    "a claim that must be alone",
    "a claim too early",
    "a compaction",
    "a completion collected",
    "a deletion before its message",
    "a duplicate by a second key",
    "a human receipt",
    "a late fact",
    "a late message in the log",
    "a late message that rides",
    "a lone turn that took too long",
    "a message edited",
    "a message withdrawn",
    "a node crashed",
    "a notice in a tool result",
    "a remark",
    "a repeat that changed nothing",
    "a place given back",
    "a place kept",
    "a place void",
    "a rider taken",
    "a session retired",
    "a stale holder refused",
    "a start refused",
    "a stop of everything",
    "a stranger's cancel refused",
    "a supersession",
    "a turn buried",
    "a turn buried by a claim",
    "a turn committed",
    "a turn handed over",
    "a turn of another person",
    "a turn resumed",
    "a turn run alone",
    "a turn shown",
    "a turn shown elsewhere",
    "a turn shown too late",
    "a turn stopped",
    "a waived completion",
    "an edit before its message",
    "a wish heard by its home",
    "adopted running",
    "adopted waiting",
    "an answer lost",
    "an arrival died",
    "an arrival put back alone",
    "an execution cancelled by a person",
    "an execution cancelled by the model",
    "an execution ended by its home",
    "an execution never started",
    "an execution timed out by the ledger",
    "an innocent spared beside a poisoned one",
    "an item dead",
    "an item of unknown outcome",
    "an outage",
    "an owner's cap",
    "arrivals of several people in one turn",
    "notices folded",
    "rows forgotten",
];

/// What needs somebody else's write in between: not where one boot's runner keeps its rows.
const IN_GAPS: [&str; 2] = ["a claim refused", "a conflict"];

/// What only several nodes come to, or one boot too seldom.
const SEVERAL: [&str; 7] = [
    "a home gone",
    "a lane taken over",
    "a late result told to people",
    "a node buried",
    "a place over",
    "a zombie refused",
    "an execution unattended",
];

/// What only a boot that is alone comes to.
const ALONE: [&str; 1] = ["a machine without power"];

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

fn run(seed: u64, (sole, runner): (bool, Runner)) -> Reach {
    let setting = Setting { seed, sole, runner };
    schedule(setting, Box::new(InMemory::new()))
}

/// Raised while unwinding: where one world failed, no other is begun.
struct Alarm<'a>(&'a AtomicBool);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

fn schedules(seeds: u64, kind: (bool, Runner)) {
    if let Some(seed) = number("DOGWATCH_SIM_SEED") {
        run(seed, kind);
        return;
    }
    let seeds = number("DOGWATCH_SIM_SEEDS").unwrap_or(seeds);
    let fresh = number("DOGWATCH_SIM_FIRST");
    let first = fresh.unwrap_or(0);
    let workers = std::thread::available_parallelism().map_or(2, usize::from);
    let mut reach = Reach::default();
    let failed = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let work = |worker: usize| {
            move || {
                let alarm = Alarm(failed);
                let mut reach = Reach::default();
                (first..first.saturating_add(seeds))
                    .skip(worker)
                    .step_by(workers)
                    .take_while(|_| !alarm.0.load(Ordering::Relaxed))
                    .for_each(|seed| reach.add(&run(seed, kind)));
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
    // Of fresh seeds any may miss what is rare.
    if fresh.is_none() && seeds >= SEEDS_FOR_REACH {
        reach.expect(&EVERYWHERE);
        reach.expect(if kind.0 { &ALONE } else { &SEVERAL });
        if kind != (true, Runner::Engine) {
            reach.expect(&IN_GAPS);
        }
    }
}

#[test]
fn worlds_of_several_nodes_lose_and_double_nothing() {
    schedules(SEEDS, (false, Runner::Plain));
}

#[test]
fn worlds_of_one_boot_lose_and_double_nothing() {
    schedules(SEEDS, (true, Runner::Plain));
}

/// With the mailboxes and the kept rows of the engine.
#[test]
fn worlds_of_the_engines_runner_lose_and_double_nothing() {
    schedules(SEEDS_OF_ENGINE, (false, Runner::Engine));
    schedules(SEEDS_OF_ENGINE, (true, Runner::Engine));
}
