//! The ledger: the one state machine of delivery, written once, without I/O. Owns rows, operations
//! and index entries. Must not know which store keeps the rows or who runs the operations.

pub mod fact;
pub mod index;
pub mod key;
pub mod operation;
pub mod row;
pub mod working;

pub mod session;

pub mod audit;
pub mod installation;
pub mod node;
pub mod owner;

pub use fact::Fact;
pub use index::{Index, index_of};
pub use key::{Aggregate, Key, Revision};
pub use operation::{Change, Class, IndexWrite, Operation, Refusal, Situation, Step, Write, step};
pub use row::Row;
pub use working::{Finished, Rows, Working};
