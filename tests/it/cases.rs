//! The fault cases.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod addressing;
mod budgets;
mod delivery;
mod output;

/// A script that waits until somebody reads its fifo.
fn waits(on: &str, then: &str) -> String {
    format!("open({on:?}, 'w').close()\n{then}")
}
