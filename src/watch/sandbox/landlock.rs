//! Which files a script may open, and whom it may signal, held by Landlock. Owns the rights.
//! Must not know where the paths come from.

use std::io;
use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, LandlockStatus, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope, path_beneath_rules,
};

/// The newest version that these rules were made with. An older kernel keeps what it knows of it.
const NEWEST: ABI = ABI::V6;
/// The first version that keeps signals and abstract sockets inside (landlock(7)).
const SCOPES: ABI = ABI::V6;

/// What may be opened.
#[derive(Debug, Clone, Default)]
pub(super) struct Paths {
    /// To read and to run.
    pub(super) read: Vec<PathBuf>,
    /// To do anything in.
    pub(super) work: Vec<PathBuf>,
    /// Devices to read and write, with nothing else of a device.
    pub(super) devices: Vec<PathBuf>,
}

/// Made before there is a script, so that the script's process only has to take it on.
#[derive(Debug)]
pub(super) struct Fence(RulesetCreated);

/// What the running kernel has of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Held {
    /// Files at least.
    pub(super) files: bool,
    /// Signals do not leave, either.
    pub(super) signals: bool,
}

impl Fence {
    /// Opens the paths; those that are not there are left out. In the host's network no port can be
    /// bound or reached either.
    pub(super) fn new(paths: &Paths, in_hosts_network: bool) -> io::Result<Self> {
        let read = AccessFs::from_read(NEWEST);
        let device = AccessFs::ReadFile | AccessFs::WriteFile;
        let rules = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(NEWEST))
            .and_then(|rules| {
                if in_hosts_network {
                    rules.handle_access(AccessNet::from_all(NEWEST))
                } else {
                    Ok(rules)
                }
            })
            .and_then(|rules| rules.scope(Scope::from_all(NEWEST)))
            .and_then(Ruleset::create)
            .and_then(|rules| rules.add_rules(path_beneath_rules(&paths.read, read)))
            .and_then(|rules| {
                rules.add_rules(path_beneath_rules(&paths.work, AccessFs::from_all(NEWEST)))
            })
            .and_then(|rules| rules.add_rules(path_beneath_rules(&paths.devices, device)))
            .map_err(io::Error::other)?;
        Ok(Self(rules))
    }

    /// From here on, for this process and all that it starts.
    pub(super) fn apply(&self) -> io::Result<Held> {
        let status = self.0.try_clone()?.restrict_self().map_err(io::Error::other)?;
        let files = status.ruleset != RulesetStatus::NotEnforced;
        let signals = match status.landlock {
            LandlockStatus::Available { effective_abi, .. } => files && effective_abi >= SCOPES,
            LandlockStatus::NotEnabled | LandlockStatus::NotImplemented => false,
        };
        Ok(Held { files, signals })
    }
}
