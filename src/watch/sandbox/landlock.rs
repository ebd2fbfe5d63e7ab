//! Which files a script may open, which port it may reach and whom it may signal, held by Landlock.
//! Owns the rights.
//! Must not know where the paths come from.

use std::io;
use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, LandlockStatus, NetPort, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope, path_beneath_rules,
};

/// The newest version that these rules were made with. An older kernel keeps what it knows of it.
const NEWEST: ABI = ABI::V6;
/// The first version that keeps signals and abstract sockets inside (landlock(7)).
const SCOPES: ABI = ABI::V6;
/// The first version that keeps connections to ports (landlock(7)).
const PORTS: ABI = ABI::V4;

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

/// Where a script may connect to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// What there is in a network of its own.
    OwnNetwork,
    /// Nothing of the host's.
    Nothing,
    /// This port, whoever listens there, and nothing else.
    Port(u16),
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
    /// Nor does a connection to another port.
    pub(super) ports: bool,
}

impl Fence {
    /// Opens the paths; those that are not there are left out. In the host's network no port can be
    /// bound.
    pub(super) fn new(paths: &Paths, reach: Reach) -> io::Result<Self> {
        let port = match reach {
            Reach::OwnNetwork | Reach::Nothing => None,
            Reach::Port(port) => Some(Ok(NetPort::new(port, AccessNet::ConnectTcp))),
        };
        let read = AccessFs::from_read(NEWEST);
        let device = AccessFs::ReadFile | AccessFs::WriteFile;
        let rules = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(NEWEST))
            .and_then(|rules| {
                if reach == Reach::OwnNetwork {
                    Ok(rules)
                } else {
                    rules.handle_access(AccessNet::from_all(NEWEST))
                }
            })
            .and_then(|rules| rules.scope(Scope::from_all(NEWEST)))
            .and_then(Ruleset::create)
            .and_then(|rules| rules.add_rules(path_beneath_rules(&paths.read, read)))
            .and_then(|rules| {
                rules.add_rules(path_beneath_rules(&paths.work, AccessFs::from_all(NEWEST)))
            })
            .and_then(|rules| rules.add_rules(path_beneath_rules(&paths.devices, device)))
            .and_then(|rules| rules.add_rules(port))
            .map_err(io::Error::other)?;
        Ok(Self(rules))
    }

    /// From here on, for this process and all that it starts.
    pub(super) fn apply(&self) -> io::Result<Held> {
        let status = self.0.try_clone()?.restrict_self().map_err(io::Error::other)?;
        let files = status.ruleset != RulesetStatus::NotEnforced;
        let has = |version| match status.landlock {
            LandlockStatus::Available { effective_abi, .. } => files && effective_abi >= version,
            LandlockStatus::NotEnabled | LandlockStatus::NotImplemented => false,
        };
        Ok(Held { files, signals: has(SCOPES), ports: has(PORTS) })
    }
}
