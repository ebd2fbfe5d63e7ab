//! `[watch]`, from raw to checked. Owns what its keys may say. Must not know how scripts are held.

use std::path::{Path, PathBuf};

use super::checked::Checking;
use super::environment::path;
use super::raw::{RawSandbox, RawWatch, RawWatchLimits};
use super::{Sandbox, WatchConfig, WatchLimits};
use crate::core::limits::{
    GRACE_MS_MAX, KILL_GRACE_MS, LIVE_PER_OWNER_CONFIGURED_MAX, LIVE_PER_OWNER_MAX,
    WATCH_CPU_SECONDS, WATCH_CPU_SECONDS_RANGE, WATCH_MEMORY_BYTES, WATCH_MEMORY_BYTES_RANGE,
    WATCH_OPEN_FILES, WATCH_OPEN_FILES_RANGE, WATCH_PROCESSES, WATCH_PROCESSES_RANGE,
    WATCH_TMP_BYTES, WATCH_TMP_BYTES_RANGE, WATCH_TMP_FILES, WATCH_TMP_FILES_RANGE,
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
