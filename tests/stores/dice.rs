//! Chance that can be replayed: everything random in a schedule follows from its seed.

use std::ops::Range;

/// A stream of numbers that is the same for the same seed (xorshift64*).
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        // Spread small seeds over all bits; the state must never be zero.
        Self(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32
    }

    /// A number of the range.
    pub(super) fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.next() % (range.end - range.start)
    }

    /// True in so many of a hundred.
    pub(super) fn chance(&mut self, percent: u64) -> bool {
        self.within(0..100) < percent
    }

    /// One of them.
    pub(super) fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        let at = self.within(0..all.len() as u64);
        &all[usize::try_from(at).expect("an index")]
    }
}

const SEED: &str = "DOGWATCH_TEST_SEED";

/// The seeds that a test runs: all of `usual`, or the one that the environment names.
#[expect(clippy::disallowed_methods, reason = "a failing seed is replayed from its number")]
pub(super) fn seeds(usual: Range<u64>) -> Range<u64> {
    match std::env::var(SEED) {
        Ok(text) => {
            let seed = text.parse().expect("DOGWATCH_TEST_SEED is a number");
            seed..seed + 1
        }
        Err(_) => usual,
    }
}

/// Says how to replay the schedule if the test fails while it lives.
pub(super) struct Replay(pub(super) u64);

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("this was seed {0}: replay it alone with {SEED}={0}", self.0);
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_schedule_and_another_another() {
    let rolls = |seed| {
        let mut dice = Dice::new(seed);
        (0..20).map(|_| dice.within(0..1_000)).collect::<Vec<_>>()
    };
    assert_eq!(rolls(1), rolls(1));
    assert_ne!(rolls(1), rolls(2));
    assert!((0..100).all(|seed| rolls(seed).iter().any(|n| *n != rolls(seed)[0])));
}
