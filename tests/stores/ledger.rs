//! The ledger over every store: random sequences of operations by several nodes and by one boot at
//! a time, duplicated, tried again after a lost answer, conflicting, interleaved, the store closed
//! and opened again between any two steps. After every apply every invariant holds, and at the end
//! the store has just the rows and the index entries that were written.

use std::sync::Arc;

use dogwatch::ports::Store;

use super::place::{InMemory, InRedis, OnDisk, Place};
use super::sim::{self, Reach, Runner, Setting, schedule};

impl sim::Place for InMemory {
    fn store(&self) -> Arc<dyn Store> {
        Place::store(self)
    }

    fn reopen(&mut self) {
        Place::reopen(self);
    }

    fn lose_power(&mut self) -> bool {
        self.store.lose_power();
        true
    }
}

impl sim::Place for OnDisk {
    fn store(&self) -> Arc<dyn Store> {
        Place::store(self)
    }

    fn reopen(&mut self) {
        Place::reopen(self);
    }

    /// What a cut log loses is shown by the store's own tests.
    fn lose_power(&mut self) -> bool {
        false
    }
}

impl sim::Place for InRedis {
    fn store(&self) -> Arc<dyn Store> {
        Place::store(self)
    }

    fn reopen(&mut self) {
        Place::reopen(self);
    }

    /// What a cut log loses is shown by the store's own tests.
    fn lose_power(&mut self) -> bool {
        false
    }
}

fn schedules<P: Place + sim::Place + 'static>(seeds: std::ops::Range<u64>, sole: bool) {
    schedules_at(seeds, sole, |_| P::new());
}

/// Likewise, each at the place that `at` makes for its seed.
pub(super) fn schedules_at<P: sim::Place + 'static>(
    seeds: std::ops::Range<u64>,
    sole: bool,
    mut at: impl FnMut(u64) -> P,
) {
    let mut reach = Reach::default();
    for seed in seeds {
        for runner in [Runner::Engine, Runner::Plain] {
            reach.add(&schedule(Setting { seed, sole, runner }, Box::new(at(seed))));
        }
    }
    reach.expect(&[
        "a node crashed",
        "a stale holder refused",
        "a turn buried",
        "a turn committed",
        "a turn resumed",
        "a turn stopped",
        "an answer lost",
        "an execution ended by its home",
    ]);
    if !sole {
        reach.expect(&["a conflict", "a lane taken over", "a node buried"]);
    }
}

#[test]
fn worlds_of_several_nodes_in_memory() {
    schedules::<InMemory>(10_000..10_040, false);
}

#[test]
fn worlds_of_one_boot_in_memory() {
    schedules::<InMemory>(10_000..10_040, true);
}

#[test]
fn worlds_of_several_nodes_on_disk() {
    schedules::<OnDisk>(20_000..20_020, false);
}

#[test]
fn worlds_of_one_boot_on_disk() {
    schedules::<OnDisk>(20_000..20_020, true);
}

/// The world waits for the store on this thread; the connection lives on the runtime's.
pub(super) fn beside_a_runtime(test: impl FnOnce()) {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build().expect("a runtime");
    let _entered = runtime.enter();
    test();
}

#[test]
fn worlds_of_several_nodes_over_redis() {
    beside_a_runtime(|| schedules::<InRedis>(30_000..30_010, false));
}

#[test]
fn worlds_of_one_boot_over_redis() {
    beside_a_runtime(|| schedules::<InRedis>(30_000..30_020, true));
}
