//! Output of scripts and tools as bounded text. Owns head-and-tail capture and its wording.
//! Must not know pipes, files or processes.

use serde::{Deserialize, Serialize};

/// What was kept of one stream: its head, its tail and how much is missing between them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Captured {
    /// From the beginning. Sanitised text.
    pub head: String,
    /// To the end. Empty when everything is in `head`.
    pub tail: String,
    /// Bytes that the stream had in all.
    pub bytes: u64,
    /// Bytes between head and tail that were not kept.
    pub missing_bytes: u64,
}

/// Turns raw bytes of a stream that had `bytes` in all into text: its first bytes and its last.
pub fn capture(head: &[u8], tail: &[u8], bytes: u64, redact: &dyn Fn(&str) -> String) -> Captured {
    let kept = (head.len() + tail.len()) as u64;
    let missing_bytes = bytes.saturating_sub(kept);
    let text = |raw: &[u8]| {
        let clean: String = String::from_utf8_lossy(raw)
            .chars()
            .filter(|c| matches!(c, '\n' | '\t') || !(c.is_control() || *c == '\u{2028}'))
            .collect();
        redact(&clean)
    };
    if missing_bytes == 0 {
        let whole = [head, tail].concat();
        Captured { head: text(&whole), tail: String::new(), bytes, missing_bytes }
    } else {
        Captured { head: text(head), tail: text(tail), bytes, missing_bytes }
    }
}
