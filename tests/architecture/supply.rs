//! What the package is built from: the lock file against `deny.toml`.

use super::source::{Fault, demand_count, demand_none, read};

const LOCK: &str = "Cargo.lock";

fn banned(deny: &str) -> Vec<String> {
    let deny: toml::Table = deny.parse().expect("deny.toml is TOML");
    let list = deny.get("bans").and_then(|bans| bans.get("deny")).and_then(toml::Value::as_array);
    let name = |entry: &toml::Value| Some(entry.get("crate")?.as_str()?.to_owned());
    list.into_iter().flatten().filter_map(name).collect()
}

fn judge(lock: &str, banned: &[String]) -> Vec<Fault> {
    let lock: toml::Table = lock.parse().expect("Cargo.lock is TOML");
    let packages = lock.get("package").and_then(toml::Value::as_array).into_iter().flatten();
    let mut faults = vec![];
    for package in packages {
        let text = |key: &str| package.get(key).and_then(toml::Value::as_str);
        let name = text("name").unwrap_or_default();
        if banned.iter().any(|other| other == name) {
            let now = "find what brings it (`cargo tree -i`) and switch that feature off";
            faults.push(Fault::new(LOCK, 1, format!("`{name}` is banned by deny.toml"), now));
        }
        let source = text("source");
        if source.is_some_and(|source| !source.starts_with("registry+")) {
            let now = "use a released version";
            faults.push(Fault::new(LOCK, 1, format!("`{name}` comes from {source:?}"), now));
        }
    }
    faults
}

#[test]
fn nothing_banned_is_built_in() {
    let banned = banned(&read("deny.toml"));
    assert!(banned.iter().any(|name| name == "openssl"), "deny.toml bans {banned:?}");
    demand_none("deny.toml is kept.", &judge(&read(LOCK), &banned));
}

#[test]
fn a_banned_crate_is_caught() {
    let banned = banned("[bans]\ndeny = [{ crate = \"openssl\", reason = \"rustls\" }]");
    let package = |name: &str, source: &str| {
        format!("[[package]]\nname = \"{name}\"\nversion = \"1.0.0\"\nsource = \"{source}\"\n")
    };
    let cases = [
        (package("serde", "registry+x"), 0),
        (package("openssl", "registry+x"), 1),
        (package("openssl-probe", "registry+x"), 0),
        (package("serde", "git+ssh://x"), 1),
    ];
    for (lock, count) in cases {
        demand_count(&judge(&lock, &banned), count, &lock);
    }
}
