//! The balance of a store.
