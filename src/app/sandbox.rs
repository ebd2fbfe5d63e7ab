//! How scripts are held and what they may reach: from the configuration to the launcher, and what
//! is said of it at a start.

use secrecy::{ExposeSecret as _, SecretString};

use crate::config::{self, Config, WatchNetwork};
use crate::watch::{self, Watch};

/// What somebody should know before a script runs.
const OFF: &str = "scripts run without a sandbox, with your rights (`dogwatch doctor` says more)";
const NONE: &str =
    "no script is run: this machine has no sandbox for it (`dogwatch doctor` says why)";

/// How the configuration wants scripts held.
pub(crate) fn wanted(config: &Config) -> watch::Sandbox {
    match config.watch.sandbox {
        config::Sandbox::Off => watch::Sandbox::Off,
        config::Sandbox::Required => {
            let limits = &config.watch.limits;
            watch::Sandbox::Required(watch::Limits {
                memory_bytes_max: limits.memory_bytes_max,
                processes_max: limits.processes_max,
                tmp_bytes_max: limits.tmp_bytes_max,
                files_max: limits.files_max,
                open_files_max: limits.open_files_max,
                cpu_seconds_max: limits.cpu_seconds_max,
            })
        }
    }
}

/// What the configuration says of scripts that have a network.
pub(super) fn network(config: &Config, env: &[(String, String)]) -> watch::NetworkSettings {
    let WatchNetwork { addresses, ca_file, bytes_max, requests_per_minute } = &config.watch.network;
    let lent = config.credentials.iter().map(|credential| {
        let secret = credential.secret.expose_secret();
        watch::egress::Lent {
            name: credential.name.clone(),
            host: credential.to.clone(),
            header: credential.header.clone(),
            value: SecretString::from(format!("{}{secret}", credential.prefix)),
            requests_per_minute: credential.requests_per_minute,
        }
    });
    watch::NetworkSettings {
        egress: watch::egress::Settings {
            addresses: addresses.clone(),
            requests_per_minute: *requests_per_minute,
            caps: watch::egress::Caps { bytes: *bytes_max, ..watch::egress::Caps::default() },
            extra_ca: ca_file.clone(),
            env: env.to_vec(),
            ..watch::egress::Settings::default()
        },
        lent: lent.collect(),
    }
}

/// One line for whoever starts the bot.
pub(super) fn held(launcher: &Watch) -> String {
    match launcher.sandbox() {
        None => OFF.to_owned(),
        Some(found) => match found.tier {
            Some(tier) => {
                format!("scripts run in a sandbox: {}; {}", tier.words(), found.bounded())
            }
            None => NONE.to_owned(),
        },
    }
}

/// Says it to the log, louder where it is less.
pub(super) fn log(launcher: &Watch) {
    let held = held(launcher);
    match launcher.sandbox() {
        None => tracing::warn!(watch.sandbox = "off", "{held}"),
        Some(found) => match (found.tier, &found.no_namespaces) {
            (Some(tier), None) => tracing::info!(watch.sandbox = ?tier, "{held}"),
            (Some(tier), Some(why)) => tracing::warn!(watch.sandbox = ?tier, why, "{held}"),
            (None, _) => {
                tracing::error!(watch.sandbox = "none", why = found.refusal(), "{held}");
            }
        },
    }
}
