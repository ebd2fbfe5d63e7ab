#![doc = include_str!("ARCHITECTURE.md")]

pub mod core;
pub mod failpoint;
pub mod ports;

pub mod engine;
pub mod tools;

pub mod console;
pub mod model;
pub mod slack;
pub mod store;
pub mod watch;

pub mod config;
pub mod telemetry;

pub mod http;

pub mod app;
pub mod audit;
pub mod cli;
pub mod demo;
pub mod doctor;
pub mod load;
pub mod serve;
mod shutdown;
