//! Faults of the machine and of bad luck, with the real program: nothing is lost, nothing is told
//! twice unmarked, nothing hangs, nothing stays.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "what a test cannot do fails it")]

mod chaos;
mod disk;
mod load;
mod replicas;
