//! What the launcher is told by its owner. Must not know where that was written down.

use std::path::PathBuf;
use std::sync::Arc;

use super::adopt::Redactor;
use super::sandbox::{Fence, probe};
use super::{Limits, NetworkSettings};
use crate::core::limits::{SHIM_ANSWER_MS, START_MS_MAX, SWEEP_MS};

/// What the launcher is told by its owner.
pub struct Settings {
    /// The spool's directory; made where it is missing.
    pub spool: PathBuf,
    /// The dogwatch binary, run again for the network of scripts.
    pub program: PathBuf,
    /// What is run as the shim, and tries the sandbox: [`shim_of`](super::shim_of) this program.
    pub shim: PathBuf,
    /// The Python interpreter itself, not a wrapper; see [`find_python`].
    pub python: PathBuf,
    /// The host's environment. Scripts get only what is harmless of it.
    pub env: Vec<(String, String)>,
    /// Takes secrets out of what scripts print.
    pub redactor: Arc<Redactor>,
    /// How long is waited for what.
    pub timing: Timing,
    /// How scripts are held.
    pub sandbox: Sandbox,
    /// What scripts that have a network may do there.
    pub network: NetworkSettings,
}

impl Settings {
    /// Chooses how scripts are held: by trying it.
    pub(super) fn hold(&self) -> (Option<Fence>, Option<probe::Finding>) {
        match self.sandbox {
            Sandbox::Off => (None, None),
            Sandbox::Required(limits) => {
                let found = probe::ask(&self.shim, &self.python, limits, &self.spool);
                (found.tier.map(|tier| Fence { tier, limits }), Some(found))
            }
        }
    }
}

/// How scripts are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sandbox {
    /// By the strongest tier that this machine has; where it has none no script is run.
    Required(Limits),
    /// Not at all.
    Off,
}

/// How long is waited for what.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// Between two looks whether a shim was stopped or still does not answer, in milliseconds.
    pub check_ms: u64,
    /// A shim that does not answer for so many milliseconds is stalled.
    pub answer_ms: u64,
    /// A shim that is not told to go for so many milliseconds ends.
    pub start_ms: u64,
}

impl Default for Timing {
    fn default() -> Self {
        Self { check_ms: SWEEP_MS, answer_ms: SHIM_ANSWER_MS, start_ms: START_MS_MAX }
    }
}
