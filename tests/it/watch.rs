//! Tests of watch: real shims, real scripts, a real spool.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "what a test cannot do fails it"
)]

pub(crate) mod bench;
mod faults;
mod lost;
mod opening;
mod run;
mod syntax;
mod zygote;
