//! Tests of the engine with everything real but the model's service and the place of posts.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod crash;
mod endings;
mod installations;
mod limits;
mod main_job;
mod outage;
mod reach;
mod steering;
mod stopping;
