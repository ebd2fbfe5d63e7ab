//! The network of watchers, over real sockets and the real process: what goes through it, what does
//! not, and what outlives what.
#![expect(clippy::unwrap_used, reason = "what a test cannot do fails it")]

mod attacks;
mod budgets;
mod changes;
mod lent;
mod life;
mod stand;
mod ways;
