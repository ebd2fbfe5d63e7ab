//! Which files a script may open, which port it may reach and whom it may signal, held by Landlock.
//! Owns the rights.
//! Must not know where the paths come from.

use std::fs::File;
use std::io;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus, NetPort,
    PathBeneath, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError,
    RulesetStatus, Scope,
};

use super::programs::Place;

/// The newest version that these rules were made with. An older kernel keeps what it knows of it.
const NEWEST: ABI = ABI::V6;
/// The first version that keeps signals and abstract sockets inside (landlock(7)).
const SCOPES: ABI = ABI::V6;
/// The first version that keeps connections to ports (landlock(7)).
const PORTS: ABI = ABI::V4;

/// What may be opened, and nothing else.
#[derive(Debug, Default)]
pub(super) struct Places<'a> {
    /// To read and to run.
    pub(super) read: Vec<&'a Place>,
    /// To do anything in.
    pub(super) work: Option<&'a Place>,
    /// Devices to read and write, with nothing else of a device.
    pub(super) devices: Vec<&'a Place>,
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
    /// In the host's network no port can be bound.
    pub(super) fn new(places: &Places<'_>, reach: Reach) -> io::Result<Self> {
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
            .and_then(|rules| rules.add_rules(beneath(&places.read, read)))
            .and_then(|rules| rules.add_rules(beneath(&places.work, AccessFs::from_all(NEWEST))))
            .and_then(|rules| rules.add_rules(beneath(&places.devices, device)))
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

/// These rights to each of them and to all that is below.
fn beneath<'a>(
    places: impl IntoIterator<Item = &'a &'a Place>,
    rights: BitFlags<AccessFs>,
) -> impl Iterator<Item = Result<PathBeneath<&'a File>, RulesetError>> {
    places.into_iter().map(move |place| {
        let file = AccessFs::from_file(NEWEST);
        let rights = if place.is_dir { rights } else { rights & file };
        Ok(PathBeneath::new(&place.file, rights))
    })
}
