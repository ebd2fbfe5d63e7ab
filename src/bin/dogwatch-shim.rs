//! What stands beside each script, as a program of its own: of the whole bot each would keep most
//! of a megabyte of its own, which the loader writes to. Without it the bot runs itself as shim.

use std::process::ExitCode;

fn main() -> ExitCode {
    #[cfg(feature = "failpoints")]
    dogwatch::failpoint::arm(&dogwatch::config::of_process);
    dogwatch::watch::beside(std::env::args_os()).into()
}
