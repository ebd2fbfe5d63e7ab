//! Tables of turns: what follows from what.

mod bench;
mod budgets;
mod resume;
mod rounds;
mod tools;

mod property;
