//! The bot's side of the way out of scripts: from what an execution may have to what the egress
//! process is told of it. Owns the passes. Must not know who may have what: it is told names, and a
//! name without a credential behind it opens nothing.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use secrecy::SecretString;

use super::egress::{self, Egress, Lent, Rules};
use super::spec;
use crate::core::egress::{Access, CredentialName};
use crate::core::id::{ExecutionId, SessionId};
use crate::ports::LaunchError;

/// Why there is no network to be had where there is no sandbox.
pub(super) const UNHELD: &str = "scripts run without a sandbox here, so no list of hosts would \
                                 hold them; take `sandbox = \"off\"` out of [watch]";
/// Where fresh passes come from.
const RANDOM: &str = "/dev/urandom";
/// Bytes of a pass.
const PASS_BYTES: usize = 16;

/// What scripts that have a network may do there.
#[derive(Debug, Clone, Default)]
pub struct NetworkSettings {
    /// What holds for all of them.
    pub egress: egress::Settings,
    /// Every credential.
    pub lent: Vec<Lent>,
}

/// The way out of the scripts of a spool.
pub(super) struct Network {
    dir: PathBuf,
    egress: Egress,
    lent: BTreeMap<CredentialName, Lent>,
}

impl Network {
    /// By the egress process of `dir`, which is `program` run again when it is first needed.
    pub(super) fn new(settings: NetworkSettings, dir: PathBuf, program: &Path) -> Self {
        let egress = Egress::new(dir.clone(), program.to_owned(), settings.egress);
        let lent = settings.lent.into_iter().map(|lent| (lent.name.clone(), lent)).collect();
        Self { dir, egress, lent }
    }

    /// What the shim of an execution is told of its way out.
    pub(super) fn way_out(
        &self,
        session: &SessionId,
        execution: &ExecutionId,
    ) -> Result<spec::Network, LaunchError> {
        let fresh = pass().map_err(|error| LaunchError { what: format!("{RANDOM}: {error}") });
        Ok(spec::Network {
            egress: self.dir.clone(),
            name: execution.within(session),
            pass: fresh?,
        })
    }

    /// Says what an execution may have, also where that is nothing: what it then tries is refused
    /// by name instead of waiting for ever.
    pub(super) async fn allow(
        &self,
        network: &spec::Network,
        access: &Access,
    ) -> Result<(), LaunchError> {
        let lent = access.credentials.iter().filter_map(|name| self.lent.get(name));
        let rules = Rules {
            execution: network.name.clone(),
            pass: SecretString::from(network.pass.clone()),
            hosts: access.hosts.clone(),
            lent: lent.cloned().collect(),
        };
        let told = self.egress.rule(rules).await;
        told.map_err(|error| LaunchError { what: error.to_string() })
    }

    /// An execution is over.
    pub(super) fn forget(&self, session: &SessionId, execution: &ExecutionId) {
        self.egress.forget(&execution.within(session));
    }
}

/// Random, and safe wherever it is written.
fn pass() -> io::Result<String> {
    let mut bytes = [0; PASS_BYTES];
    File::open(RANDOM)?.read_exact(&mut bytes)?;
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}
