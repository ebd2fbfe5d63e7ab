//! A seeded world of the ledger: sessions, nodes, spools, executions, a virtual clock; crashes
//! before and after every apply, lost answers, other nodes' writes in every gap, stale holders,
//! zombies, duplicates, poisoned messages, stops. Every apply is checked against all that was seen
//! before; at the end the faults stop, everything runs to quiescence, and every completion must
//! have exactly one fate.

mod check;
mod drain;
mod driver;
mod ends;
mod gate;
mod nodes;
mod outbox;
mod people;
mod places;
mod reach;
mod rng;
mod seen;
mod surfaces;
mod work;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

pub(crate) use reach::Reach;
pub(crate) use world::{Place, Runner, World};

/// Actions of one schedule, before the drain.
const ACTIONS: u32 = 120;

/// What a schedule is made of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting {
    /// The dice.
    pub(crate) seed: u64,
    /// One boot holds the whole store.
    pub(crate) sole: bool,
    /// Who runs operations.
    pub(crate) runner: Runner,
}

/// Runs one schedule; answers what it reached. The panic of a failing one names its seed.
pub(crate) fn schedule(setting: Setting, place: Box<dyn Place>) -> Reach {
    let mut world = World::new(setting, place);
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
        panic!("{setting:?}: {what}\nthe last that happened:\n{story}");
    }
    world.reach()
}
