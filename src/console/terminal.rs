//! The state of the terminal before the line editor changed it. Must not know the editor.

use std::io::{self, Write};

use nix::sys::termios::{self, SetArg, Termios};

/// What the editor switched on: bracketed paste.
const PASTE_OFF: &[u8] = b"\x1b[?2004l";

/// Puts the terminal back when dropped, also when the editor still waits for a line.
pub(super) struct Restore {
    before: Option<Termios>,
}

impl Restore {
    /// Remembers the state of stdin's terminal.
    pub(super) fn of_stdin() -> Self {
        Self { before: termios::tcgetattr(io::stdin()).ok() }
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        let Some(before) = &self.before else { return };
        let raw = termios::tcgetattr(io::stdin()).is_ok_and(|now| now != *before);
        if raw {
            let mut out = io::stdout();
            // Nothing can be done about a terminal that is gone.
            let _ = out.write_all(PASTE_OFF).and_then(|()| out.write_all(b"\r\n"));
            let _ = out.flush();
            let _ = termios::tcsetattr(io::stdin(), SetArg::TCSADRAIN, before);
        }
    }
}
