//! The operations of the ledger, one by one: every refusal, every repeat, every bound.

#![cfg(test)]

#[test]
fn placeholder() {}
