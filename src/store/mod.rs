//! Keeps rows. Owns the row stores behind `ports::Store`, the envelope of a stored row and the
//! clocks that count the store's time. Must not know turns, executions or any operation.

pub mod codec;
pub mod manual;
pub mod memory;
pub mod sqlite;
pub mod time;

pub use manual::{CountedIds, ManualClock};
pub use memory::Memory;
pub use sqlite::{Settings, Sqlite};
pub use time::{SystemClock, UlidIds};
