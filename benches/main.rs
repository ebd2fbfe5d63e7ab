//! What things cost. Each bench measures against a reference of the same run and prints ratios and
//! counts, so that a slow or busy machine changes neither.
//!
//! `cargo bench --bench cost [-- NAME… --watchers N --idle SECONDS]`. Ends with 1 where a target
//! is missed.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    clippy::indexing_slicing,
    reason = "a bench fails by panicking, prints, and measures with clocks and processes of its own"
)]

mod ack;
mod bot;
mod cycles;
mod figures;
mod sandbox;
mod start;
mod tool_return;
mod wake;
mod watchers;

#[expect(dead_code, reason = "the tests use more of it")]
#[path = "../tests/support/fake_llm.rs"]
mod fake_llm;

#[expect(dead_code, reason = "the tests use more of it")]
#[path = "../tests/support/slack_push.rs"]
mod slack_push;

use std::process::ExitCode;

use figures::Line;

/// What the command line asks for.
struct Wanted {
    names: Vec<String>,
    watchers: usize,
    idle_seconds: u64,
}

fn wanted() -> Wanted {
    let mut wanted = Wanted { names: vec![], watchers: 200, idle_seconds: 10 };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().and_then(|text| text.parse().ok());
        match argument.as_str() {
            "--watchers" => wanted.watchers = number().expect("--watchers N"),
            "--idle" => wanted.idle_seconds = number().expect("--idle SECONDS") as u64,
            // Cargo says so to every bench.
            "--bench" => {}
            name => wanted.names.push(name.to_owned()),
        }
    }
    wanted
}

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some(watchers::BARE) {
        watchers::bare();
        return ExitCode::SUCCESS;
    }
    let _first = rustls::crypto::ring::default_provider().install_default();
    let wanted = wanted();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let is_wanted = |name: &str| wanted.names.is_empty() || wanted.names.iter().any(|n| n == name);
    let mut met = true;
    let mut show = |lines: Vec<Line>| {
        for line in lines {
            println!("{line}");
            met &= line.is_met();
        }
    };
    if is_wanted("tool_return") {
        show(runtime.block_on(tool_return::run()));
    }
    if is_wanted("wake") {
        show(runtime.block_on(wake::run()));
    }
    if is_wanted("cycles") {
        show(runtime.block_on(cycles::run()));
    }
    if is_wanted("ack") {
        show(runtime.block_on(ack::run()));
    }
    if is_wanted("start") {
        show(runtime.block_on(start::run()));
    }
    if is_wanted("sandbox") {
        show(runtime.block_on(sandbox::run(wanted.watchers, wanted.idle_seconds)));
    }
    if is_wanted("watchers") {
        show(runtime.block_on(watchers::run(wanted.watchers, wanted.idle_seconds)));
    }
    runtime.shutdown_background();
    if met { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
