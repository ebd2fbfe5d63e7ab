//! The egress process itself: its lock, its socket, what it gives up, and its end.

use std::path::Path;

/// Serves the directory until nobody needs it. Answers the exit code of the process.
pub fn run(_dir: &Path) -> u8 {
    1
}
