//! Integration tests: one binary, one module a subject.

mod cli;
mod console;
mod contract_llm;
mod demo;
mod engine;
mod faults;
mod model;
mod watch;

#[path = "../support/mod.rs"]
mod support;
