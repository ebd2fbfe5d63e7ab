//! Dispatches the internal subcommand.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args_os().collect();
    match args.as_slice() {
        [_, word, dir] if word == "shim" => dogwatch::watch::shim::run(Path::new(dir)).into(),
        _ => ExitCode::from(64),
    }
}
