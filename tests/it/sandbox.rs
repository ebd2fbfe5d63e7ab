//! Tests of the sandbox: attacks by real scripts under real shims, in each tier, as root and as an
//! ordinary user. `tests/attacks.sh` prints what each attack met.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "what a test cannot do fails it"
)]

mod attacks;
mod groups;
mod kin;
mod life;
mod limits;
mod network;
mod stand;
mod survival;
pub(crate) mod upstream;
