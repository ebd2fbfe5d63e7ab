//! What the files to deploy with promise: nothing here starts them, so their keys are read.

// So that clippy knows the whole module as a test.
#![cfg(test)]

use std::collections::BTreeMap;
use std::path::Path;

use dogwatch::config;

fn read(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The plain YAML of a compose file: `services.bot.init` → `true`, items of a list by number. What
/// is not that plain fails.
fn yaml(text: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut path: Vec<(usize, String)> = vec![];
    let mut items: BTreeMap<String, usize> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let bare = line.trim_start();
        let depth = line.len() - bare.len();
        if bare.starts_with('#') {
            continue;
        }
        path.retain(|(at, _)| *at < depth);
        let here: Vec<&str> = path.iter().map(|(_, key)| key.as_str()).collect();
        let here = here.join(".");
        if let Some(item) = bare.strip_prefix("- ") {
            let number = items.entry(here.clone()).or_default();
            found.insert(format!("{here}.{number}"), item.trim_matches('"').to_owned());
            *number += 1;
            continue;
        }
        let (key, value) = bare.split_once(':').unwrap_or_else(|| panic!("no key: {line}"));
        path.push((depth, key.to_owned()));
        let name = if here.is_empty() { key.to_owned() } else { format!("{here}.{key}") };
        if !value.trim().is_empty() {
            found.insert(name, value.trim().trim_matches('"').to_owned());
        }
    }
    found
}

/// Each key of a unit, with the last value that it has; comments and sections left out.
fn unit(text: &str) -> BTreeMap<String, String> {
    let keys = text.lines().filter(|line| !line.starts_with(['#', '[']) && !line.is_empty());
    keys.map(|line| line.split_once('=').unwrap_or_else(|| panic!("no key: {line}")))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

#[test]
fn the_compose_file_keeps_what_it_must() {
    let compose = yaml(&read("docker-compose.yml"));
    let is = |key: &str, value: &str| {
        assert_eq!(compose.get(key).map(String::as_str), Some(value), "{key} of {compose:#?}");
    };
    let list = |key: &str| -> Vec<&str> {
        let of_it = |(name, _): &(&String, &String)| {
            name.rsplit_once('.').is_some_and(|(list, _)| list == key)
        };
        compose.iter().filter(of_it).map(|(_, value)| value.as_str()).collect()
    };
    let redis = list("services.redis.command");
    for pair in [
        ["--appendonly", "yes"],
        ["--appendfsync", "everysec"],
        ["--maxmemory-policy", "noeviction"],
    ] {
        assert!(redis.windows(2).any(|two| two == pair), "{pair:?} of {redis:?}");
    }
    assert_eq!(list("services.redis.volumes"), ["redis:/data"], "the log is on a volume");
    assert!(list("services.redis.ports").is_empty(), "nobody else reaches it");
    for (bot, port) in [("bot", 7878), ("bot2", 7879)] {
        is(&format!("services.{bot}.init"), "true");
        is(&format!("services.{bot}.stop_grace_period"), "45s");
        is(&format!("services.{bot}.depends_on.redis.condition"), "service_healthy");
        let published = format!("127.0.0.1:{port}:7878");
        assert_eq!(list(&format!("services.{bot}.ports")), [published], "loopback only");
        let volumes = list(&format!("services.{bot}.volumes"));
        assert!(volumes.contains(&format!("{bot}:/var/lib/dogwatch").as_str()), "{volumes:?}");
    }
    assert_eq!(list("services.bot2.profiles"), ["two"]);
    assert!(list("services.bot.profiles").is_empty());
}

#[test]
fn the_configuration_of_the_compose_file_is_one() {
    let environment = |name: &str| match name {
        "DOGWATCH_REDIS_URL" => Some("redis://redis:6379/0".to_owned()),
        "DOGWATCH_HTTP_TOKEN" => Some("a-token".to_owned()),
        _ => None,
    };
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/compose.toml");
    let config = config::load_with(Some(&file), &environment).unwrap();
    assert_eq!(config.watch.sandbox, config::Sandbox::Required);
    assert_eq!(config.data_dir, Path::new("/var/lib/dogwatch"));
    assert!(config.http.token.is_some());
    let none = |name: &str| environment(name).filter(|_| name != "DOGWATCH_HTTP_TOKEN");
    let error = config::load_with(Some(&file), &none).unwrap_err().to_string();
    assert!(error.contains("http.token"), "{error}");
}

#[test]
fn the_image_runs_the_bot_as_nobody_in_particular() {
    let text = read("Dockerfile");
    let stages = text.lines().filter(|line| line.starts_with("FROM ")).count();
    assert_eq!(stages, 2);
    let toolchain = read("rust-toolchain.toml");
    let channel = toolchain.lines().find_map(|line| line.strip_prefix("channel = \"")).unwrap();
    let minor = channel.trim_end_matches('"').rsplit_once('.').unwrap().0;
    assert!(text.contains(&format!("FROM rust:{minor}-")), "built by the compiler of the tests");
    let last = text.rsplit("FROM ").next().unwrap();
    for line in [
        "USER dogwatch",
        "VOLUME /var/lib/dogwatch",
        "STOPSIGNAL SIGTERM",
        "ENTRYPOINT [\"dogwatch\"]",
    ] {
        assert!(last.lines().any(|it| it == line), "{line}");
    }
    // What the build needs is copied; what it does not need stays outside.
    for part in ["Cargo.lock", "COPY src src", "COPY config config", "--locked"] {
        assert!(text.contains(part), "{part}");
    }
    assert!(read(".dockerignore").lines().any(|line| line == "target"));
}

#[test]
fn the_unit_lets_watchers_outlive_the_bot() {
    let unit = unit(&read("contrib/dogwatch.service"));
    for (key, value) in [
        ("KillMode", "process"),
        ("Delegate", "yes"),
        // The name by which dogwatch knows that the group above is its own.
        ("DelegateSubgroup", "bot"),
        ("OOMPolicy", "continue"),
        ("Restart", "on-failure"),
        ("RestartPreventExitStatus", "64 78"),
        ("NoNewPrivileges", "yes"),
        ("ProtectSystem", "strict"),
        ("StateDirectory", "dogwatch"),
        ("User", "dogwatch"),
    ] {
        assert_eq!(unit.get(key).map(String::as_str), Some(value), "{key}");
    }
    let command = &unit["ExecStart"];
    assert!(command.contains(" serve --config "), "{command}");
    // Each would break a watcher that runs on, or one that does what scripts do.
    for key in [
        "PrivateTmp",
        "PrivateNetwork",
        "MemoryDenyWriteExecute",
        "SystemCallFilter",
        "RestrictNamespaces",
        "ProtectHostname",
        "ProtectControlGroups",
        "RuntimeMaxSec",
    ] {
        assert!(!unit.contains_key(key), "{key}");
    }
    let stop: u64 = unit["TimeoutStopSec"].parse().unwrap();
    let takes_ms = dogwatch::core::limits::HAND_OVER_MS_MAX + dogwatch::core::limits::HTTP_DRAIN_MS;
    assert!(stop * 1_000 > takes_ms, "it is killed while it hands over");
}

#[test]
fn the_apparmor_profile_allows_namespaces_to_the_program_of_the_unit_and_is_named() {
    let profile = read("contrib/apparmor/dogwatch");
    let rules: Vec<&str> = profile.lines().filter(|line| !line.starts_with('#')).collect();
    let unit = unit(&read("contrib/dogwatch.service"));
    let program = unit["ExecStart"].split_whitespace().next().unwrap();
    let head = format!("profile dogwatch {program}{{,-shim}} flags=(unconfined) {{");
    assert!(rules.contains(&head.as_str()) && rules.contains(&"  userns,"), "{rules:?}");
    for names_it in ["docs/security.md", "src/watch/sandbox/probe.rs"] {
        assert!(read(names_it).contains("contrib/apparmor/dogwatch"), "{names_it}");
    }
}
