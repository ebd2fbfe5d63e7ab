//! `[watch]`, from raw to checked. Owns what its keys may say. Must not know how scripts are held.

use std::path::{Path, PathBuf};

use super::checked::Checking;
use super::environment::path;
use super::raw::{RawSandbox, RawWatch, RawWatchLimits, RawWatchNetwork};
use super::source::read_bounded;
use super::{Sandbox, WatchConfig, WatchLimits, WatchNetwork};
use crate::core::egress::{AddressRule, HostRule};
use crate::core::limits::{
    EGRESS_ADDRESSES_MAX, EGRESS_BYTES_MAX, EGRESS_BYTES_RANGE, EGRESS_CA_BYTES_MAX,
    EGRESS_HOSTS_MAX, EGRESS_REQUESTS_PER_MINUTE, EGRESS_REQUESTS_PER_MINUTE_RANGE, GRACE_MS_MAX,
    KILL_GRACE_MS, LIVE_PER_OWNER_CONFIGURED_MAX, LIVE_PER_OWNER_MAX, WATCH_CPU_SECONDS,
    WATCH_CPU_SECONDS_RANGE, WATCH_MEMORY_BYTES, WATCH_MEMORY_BYTES_RANGE, WATCH_OPEN_FILES,
    WATCH_OPEN_FILES_RANGE, WATCH_PROCESSES, WATCH_PROCESSES_RANGE, WATCH_TMP_BYTES,
    WATCH_TMP_BYTES_RANGE, WATCH_TMP_FILES, WATCH_TMP_FILES_RANGE,
};

/// How scripts run.
pub(super) fn watch(raw: &RawWatch, data_dir: &Path, checking: &mut Checking<'_>) -> WatchConfig {
    // A name without a slash is found in PATH, so it stays as it is.
    let python = checking.line("watch.python", raw.python.as_deref()).map(|written| {
        if written.contains('/') {
            path(checking.lookup, &checking.base, &written)
        } else {
            PathBuf::from(written)
        }
    });
    let spool_dir = checking.path("watch.spool_dir", raw.spool_dir.as_deref(), data_dir);
    WatchConfig {
        sandbox: match raw.sandbox.unwrap_or(RawSandbox::Required) {
            RawSandbox::Required => Sandbox::Required,
            RawSandbox::Off => Sandbox::Off,
        },
        limits: limits(&raw.limits, checking),
        network: network(&raw.network, checking),
        python: python.unwrap_or_else(|| PathBuf::from("python3")),
        grace_ms: checking.whole("watch.grace_ms", raw.grace_ms, KILL_GRACE_MS, 100..=GRACE_MS_MAX),
        live_per_person: checking.whole32(
            "watch.live_per_person",
            raw.live_per_person,
            LIVE_PER_OWNER_MAX,
            1..=LIVE_PER_OWNER_CONFIGURED_MAX,
        ),
        spool_dir: spool_dir.unwrap_or_else(|| data_dir.join("spool")),
    }
}

fn network(raw: &RawWatchNetwork, checking: &mut Checking<'_>) -> WatchNetwork {
    let key = "watch.network.addresses";
    if raw.addresses.len() > EGRESS_ADDRESSES_MAX {
        let what = format!("there are {} of them", raw.addresses.len());
        checking.wrong(key, what, format!("At most {EGRESS_ADDRESSES_MAX} are allowed."));
    }
    let mut addresses = Vec::new();
    for written in &raw.addresses {
        match AddressRule::parse(written) {
            Ok(rule) => addresses.push(rule),
            Err(error) => checking.wrong(
                key,
                error.to_string(),
                "Write addresses and ranges, for example \"10.1.2.3\" or \"10.1.0.0/16\".",
            ),
        }
    }
    let base = checking.base.clone();
    let ca_file = checking.path("watch.network.ca_file", raw.ca_file.as_deref(), &base);
    if let Some(file) = &ca_file
        && let Err(problem) = read_bounded(file, EGRESS_CA_BYTES_MAX)
    {
        let what = format!("{}: {}", file.display(), problem.what);
        checking.wrong("watch.network.ca_file", what, problem.cure);
    }
    WatchNetwork {
        addresses,
        ca_file,
        bytes_max: checking.whole(
            "watch.network.bytes_max",
            raw.bytes_max,
            EGRESS_BYTES_MAX,
            EGRESS_BYTES_RANGE,
        ),
        requests_per_minute: checking.whole32(
            "watch.network.requests_per_minute",
            raw.requests_per_minute,
            EGRESS_REQUESTS_PER_MINUTE,
            EGRESS_REQUESTS_PER_MINUTE_RANGE,
        ),
    }
}

/// Hosts that an agent's scripts may reach.
pub(super) fn hosts(raw: &[String], checking: &mut Checking<'_>) -> Vec<HostRule> {
    if raw.len() > EGRESS_HOSTS_MAX {
        let what = format!("there are {} of them", raw.len());
        checking.wrong("hosts", what, format!("At most {EGRESS_HOSTS_MAX} are allowed."));
    }
    let mut hosts = Vec::new();
    for written in raw {
        match HostRule::parse(written) {
            Ok(rule) => hosts.push(rule),
            Err(error) => {
                checking.wrong("hosts", error.to_string(), HOST_FORMS);
            }
        }
    }
    hosts
}

/// How a host is written.
const HOST_FORMS: &str = "Write a name, a name with its port, or all below a name: \
                          \"api.github.com\", \"ci.example.com:8443\", \"*.example.com\". \
                          Without a port it is 80 and 443.";

fn limits(raw: &RawWatchLimits, checking: &mut Checking<'_>) -> WatchLimits {
    let mut whole = |key: &str, given, default, bounds| {
        checking.whole(&format!("watch.limits.{key}"), given, default, bounds)
    };
    WatchLimits {
        memory_bytes_max: whole(
            "memory_bytes_max",
            raw.memory_bytes_max,
            WATCH_MEMORY_BYTES,
            WATCH_MEMORY_BYTES_RANGE,
        ),
        processes_max: whole(
            "processes_max",
            raw.processes_max,
            WATCH_PROCESSES,
            WATCH_PROCESSES_RANGE,
        ),
        tmp_bytes_max: whole(
            "tmp_bytes_max",
            raw.tmp_bytes_max,
            WATCH_TMP_BYTES,
            WATCH_TMP_BYTES_RANGE,
        ),
        files_max: whole("files_max", raw.files_max, WATCH_TMP_FILES, WATCH_TMP_FILES_RANGE),
        open_files_max: whole(
            "open_files_max",
            raw.open_files_max,
            WATCH_OPEN_FILES,
            WATCH_OPEN_FILES_RANGE,
        ),
        cpu_seconds_max: whole(
            "cpu_seconds_max",
            raw.cpu_seconds_max,
            WATCH_CPU_SECONDS,
            WATCH_CPU_SECONDS_RANGE,
        ),
    }
}
