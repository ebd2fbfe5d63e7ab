//! The program: reads the command line, does what it says, answers with an exit code.

use std::process::ExitCode;

use dogwatch::cli::Cli;

fn main() -> ExitCode {
    Cli::run(std::env::args_os())
}
