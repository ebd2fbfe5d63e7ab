//! Tables of turns: what follows from what. Must not know the fold: what a turn does shows.

#![expect(clippy::wildcard_enum_match_arm, reason = "a test names the kinds it is about")]

mod bench;
mod budgets;
mod resume;
mod rounds;
mod tools;

mod property;
