//! Pure decisions. Owns what the words of this system mean and every decision about them.
//! Must not know: async, clocks, randomness, I/O. `now` and ids come in as data.

pub mod id;
pub mod limits;
pub mod time;

pub mod arrival;
pub mod execution;
pub mod installation;
pub mod message;
pub mod output;
pub mod transcript;

pub mod budget;
pub mod earlier;
pub mod egress;
pub mod envelope;
pub mod inert;
pub mod loop_guard;
pub mod nearest;
pub mod policy;
pub mod prompt;
pub mod reach;
pub mod redact;
pub mod render;
pub mod turn;

pub mod ledger;
