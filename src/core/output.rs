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
