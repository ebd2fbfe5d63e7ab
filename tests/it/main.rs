//! Integration tests: one binary, one module a subject.

mod attach;
mod cases;
mod chat_llm;
mod cli;
mod console;
mod contract_llm;
mod contract_slack;
mod demo;
mod deploy;
mod egress;
mod engine;
mod faults;
mod idle;
mod load;
mod model;
mod network;
mod nodes;
mod on_redis;
mod sandbox;
mod serve;
mod service;
mod slack;
mod slack_in;
mod watch;

#[path = "../support/mod.rs"]
mod support;
