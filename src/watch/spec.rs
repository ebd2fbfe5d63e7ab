//! What a shim is told: the file `spec.json` of its directory, written once, before it is started.
//! Owns the format. A shim may be older than the bot that looks after it, and the other way round:
//! a field that is new has a default, and what is not known is left. Must not know processes.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::file;
use super::sandbox::{Fence, Group};
use super::spawn::Script;
use super::spool::{EntryError, at, host_boot, write_new};
use crate::core::id::{ExecutionId, SessionId};
use crate::core::limits::SPEC_BYTES_MAX;
use crate::ports::Launch;

/// Its name.
pub(super) const FILE: &str = "spec.json";
/// Version of the format.
const FORMAT: u32 = 1;

/// What a shim is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Spec {
    /// Version of the format.
    format: u32,
    /// The session.
    pub(super) session: SessionId,
    /// The execution.
    pub(super) execution: ExecutionId,
    /// The interpreter.
    pub(super) python: PathBuf,
    /// Where the script runs.
    pub(super) work: PathBuf,
    /// The script's environment, but for what names `work`.
    pub(super) env: Vec<(String, String)>,
    /// From "go" to TERM.
    pub(super) timeout_ms: u64,
    /// From TERM to KILL.
    pub(super) grace_ms: u64,
    /// How long "go" is waited for.
    pub(super) start_ms: u64,
    /// The host's boot in which it was written.
    pub(super) host_boot: String,
    /// How the script is held; not at all where somebody wrote that down.
    #[serde(default)]
    pub(super) fence: Option<Fence>,
    /// The kernel holds it to its limits by this control group, which the shim makes; without one
    /// only the shim's looks do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) group: Option<Group>,
    /// The script's way out, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) network: Option<Network>,
}

/// The way out of a script: what it may reach, the egress process is told by the bot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Network {
    /// The directory of the egress process.
    pub(super) egress: PathBuf,
    /// How the execution is called there.
    pub(super) name: String,
    /// By this its connections are known where others could connect as well.
    pub(super) pass: String,
}

/// What every execution of a spool is told alike, and what is made for one.
#[derive(Debug, Clone)]
pub(super) struct Common {
    /// The interpreter.
    pub(super) python: PathBuf,
    /// The environment.
    pub(super) env: Vec<(String, String)>,
    /// How long "go" is waited for.
    pub(super) start_ms: u64,
    /// How scripts are held.
    pub(super) fence: Option<Fence>,
    /// Where the control group of this one is, if it is to have one.
    pub(super) group: Option<Group>,
    /// The way out of this one.
    pub(super) network: Option<Network>,
}

impl Spec {
    /// Of an execution that is to run in `work`.
    pub(super) fn new(launch: &Launch, work: &Path, common: Common) -> Self {
        Self {
            format: FORMAT,
            session: launch.session.clone(),
            execution: launch.execution.clone(),
            python: common.python,
            work: work.to_owned(),
            env: common.env,
            timeout_ms: launch.timeout_ms,
            grace_ms: launch.grace_ms,
            start_ms: common.start_ms,
            host_boot: host_boot(),
            fence: common.fence,
            group: common.group,
            network: common.network,
        }
    }

    /// What is to be run.
    pub(super) fn script(&self) -> Script<'_> {
        Script { python: &self.python, env: &self.env, work: &self.work }
    }

    /// Writes it into `dir`, safely.
    pub(super) fn write(&self, dir: &Path) -> Result<(), EntryError> {
        let path = dir.join(FILE);
        let text = serde_json::to_vec_pretty(self).map_err(io::Error::from);
        text.and_then(|text| write_new(&path, &text)?.sync_all()).map_err(at("write", &path))
    }
}

/// What the shim of a directory is told.
pub(super) fn read(dir: &Path) -> Result<Spec, EntryError> {
    let path = dir.join(FILE);
    let read = || {
        let spec: Spec = serde_json::from_slice(&file::read(&path, SPEC_BYTES_MAX)?)?;
        if spec.format == FORMAT {
            Ok(spec)
        } else {
            let what = format!("its format is {}, this is {FORMAT}", spec.format);
            Err(io::Error::new(io::ErrorKind::InvalidData, what))
        }
    };
    read().map_err(at("read", &path))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As it was written before scripts could have a network.
    const OLDER: &str = r#"{"format":1,"session":"console/main","execution":"x-1",
        "python":"/usr/bin/python3","work":"/w","env":[],"timeout_ms":1,"grace_ms":1,
        "start_ms":1,"host_boot":"b"}"#;

    #[test]
    fn an_older_one_has_no_network_and_what_a_newer_one_has_is_left() {
        let older: Spec = serde_json::from_str(OLDER).unwrap();
        assert_eq!((&older.network, &older.fence), (&None, &None));
        // As it would be written by an older bot: nothing of a network in it.
        assert!(!serde_json::to_string(&older).unwrap().contains("network"));
        let newer = OLDER.replace("\"format\":1", "\"format\":1,\"of_tomorrow\":{\"x\":1}");
        assert_eq!(serde_json::from_str::<Spec>(&newer).unwrap(), older);
    }
}
