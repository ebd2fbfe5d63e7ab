//! Who may import whom.

use super::source::{Fault, Source, demand_count, demand_none, read, sources};
use super::tokens::{Mention, reading};

/// Each room and the rooms that it may import. `*` is everything.
const ROOMS: &[(&str, &[&str])] = &[
    ("core", &[]),
    ("failpoint", &[]),
    ("ports", &["core"]),
    ("tools", &["core", "ports"]),
    ("engine", &["core", "failpoint", "ports", "tools"]),
    ("console", &["core", "ports"]),
    ("model", &["core", "ports"]),
    ("slack", &["core", "ports"]),
    ("store", &["core", "ports"]),
    ("watch", &["core", "failpoint", "ports"]),
    ("config", &["core"]),
    ("telemetry", &["core", "ports"]),
    ("http", &["core", "ports", "telemetry"]),
    ("shutdown", &["core"]),
    ("app", &["*"]),
    ("audit", &["*"]),
    ("doctor", &["*"]),
    ("demo", &["*"]),
    ("serve", &["*"]),
    ("load", &["core", "engine", "ports", "store"]),
    ("cli", &["*"]),
    ("lib", &["*"]),
    ("main", &["*"]),
    ("bin", &["config", "failpoint", "watch"]),
];

/// The crates that decisions may be made with: they are pure.
const CORE_CRATES: &[&str] = &["regex", "serde", "serde_json", "sha2", "smol_str", "thiserror"];

/// What the standard library has that decisions must not touch.
const STD_OUTSIDE_CORE: &[&str] = &["env", "fs", "io", "net", "os", "process", "thread"];

/// Crates that belong to one room, so that what they do can be replaced in one place.
const OWNED_CRATES: &[(&str, &[&str])] = &[
    ("anyhow", &["app", "audit", "cli", "main", "serve"]),
    ("axum", &["app", "http", "slack"]),
    ("base64", &["watch"]),
    ("clap", &["cli", "main"]),
    ("form_urlencoded", &["slack"]),
    ("hmac", &["slack"]),
    ("hyper", &["http", "watch"]),
    ("hyper_util", &["http", "watch"]),
    ("landlock", &["watch"]),
    ("memmap2", &["watch"]),
    ("prometheus_client", &["telemetry"]),
    // The configuration only parses addresses with it.
    ("redis", &["store"]),
    ("reqwest", &["model", "slack", "config"]),
    ("ring_crypto", &["slack"]),
    ("rusqlite", &["store"]),
    ("rustls_native_certs", &["watch"]),
    ("rustyline", &["console"]),
    ("seccompiler", &["watch"]),
    ("tokio_rustls", &["watch"]),
    ("tokio_tungstenite", &["slack"]),
    ("tower_http", &["http"]),
];

fn allowed(room: &str) -> Option<&'static [&'static str]> {
    ROOMS.iter().find(|(name, _)| *name == room).map(|(_, rooms)| *rooms)
}

/// The crates of Cargo.toml, as they are written in code.
fn crates() -> Vec<String> {
    let manifest: toml::Table = read("Cargo.toml").parse().expect("Cargo.toml is TOML");
    ["dependencies", "dev-dependencies"]
        .iter()
        .filter_map(|section| manifest.get(*section)?.as_table())
        .flat_map(|table| table.keys().map(|name| name.replace('-', "_")))
        .collect()
}

fn judge(source: &Source, crates: &[String]) -> Vec<Fault> {
    let room = source.room();
    let Some(rooms) = allowed(&room) else {
        return vec![Fault::new(
            &source.path,
            1,
            format!("the room `{room}` is not in the import table"),
            "put the file into a room, or add the room to ROOMS here and to ARCHITECTURE.md",
        )];
    };
    let mentions = reading(source).mentions;
    let judge_one = |mention: &Mention| {
        inside_fault(source, &room, rooms, mention)
            .or_else(|| outside_fault(source, &room, crates, mention))
    };
    mentions.iter().filter_map(judge_one).collect()
}

fn inside_fault(source: &Source, room: &str, rooms: &[&str], mention: &Mention) -> Option<Fault> {
    if mention.path.len() < 2 && !mention.import {
        // `pub(crate)` and `self.x` name no path.
        return None;
    }
    let target = mention.inside()?;
    let target = target.first().map_or("*", String::as_str);
    if target == room || rooms.contains(&target) || rooms.contains(&"*") {
        return None;
    }
    let may = if rooms.is_empty() { "nothing else".into() } else { rooms.join(", ") };
    Some(Fault::new(
        &source.path,
        mention.line,
        format!("`{room}` imports `{}`; it may import {may}", mention.path.join("::")),
        "move the decision to core, put a trait into ports, or hand the value in from app",
    ))
}

fn outside_fault(
    source: &Source,
    room: &str,
    crates: &[String],
    mention: &Mention,
) -> Option<Fault> {
    if mention.test || (mention.path.len() < 2 && !mention.import) {
        return None;
    }
    let first = mention.path.first()?.as_str();
    let written = mention.path.join("::");
    let fault = |what: String, now: &str| Some(Fault::new(&source.path, mention.line, what, now));
    if room == "core" && first == "std" {
        let second = mention.path.get(1)?.as_str();
        if STD_OUTSIDE_CORE.contains(&second) {
            let now = "decide in core, act in an adapter: take the fact as data";
            return fault(format!("`core` touches the world: `{written}`"), now);
        }
    }
    if room == "core" && crates.iter().any(|name| name == first) && !CORE_CRATES.contains(&first) {
        let now = "core uses pure crates only (CORE_CRATES here); do this in an adapter";
        return fault(format!("`core` uses the crate `{first}`: `{written}`"), now);
    }
    let owners = OWNED_CRATES.iter().find(|(name, _)| *name == first).map(|(_, rooms)| *rooms)?;
    if owners.contains(&room) {
        return None;
    }
    let now = "go through a port, or change OWNED_CRATES here with a reason";
    fault(format!("`{written}` outside of {}", owners.join(", ")), now)
}

#[test]
fn every_import_follows_the_table() {
    let crates = crates();
    let faults: Vec<Fault> = sources().iter().flat_map(|source| judge(source, &crates)).collect();
    demand_none("Rooms import only what the table allows.", &faults);
}

#[test]
fn an_import_against_the_table_is_caught() {
    let crates = crates();
    let cases: &[(&str, &str, usize)] = &[
        ("src/core/a.rs", "use super::id::TurnNo; use crate::core::time::span;", 0),
        ("src/core/a.rs", "use crate::ports::Store;", 1),
        ("src/core/ledger/a.rs", "use super::super::super::store::Memory;", 1),
        ("src/core/a.rs", "use super::super::{engine, store::Memory};", 2),
        ("src/core/a.rs", "fn f() -> crate::engine::X { todo() }", 1),
        ("src/core/a.rs", "macro_rules! m { () => { $crate::watch::go() } }", 1),
        ("src/core/a.rs", "pub(crate) fn f(&self) { self.x; } pub(super) struct S;", 0),
        ("src/core/a.rs", "pub(in crate::core) fn f() {}", 0),
        ("src/core/a.rs", "use crate::*;", 1),
        ("src/core/a.rs", "use crate::{self as all};", 1),
        ("src/core/a.rs", "use serde_json::Value; use std::sync::Arc;", 0),
        ("src/core/a.rs", "use tokio::sync::Mutex;", 1),
        ("src/core/a.rs", "use std::{fs, collections::BTreeMap};", 1),
        ("src/core/a.rs", "fn f() { std::env::var(\"A\"); ::std::process::abort() }", 2),
        ("src/core/a.rs", "#[cfg(test)] mod tests { use proptest::prelude::*; }", 0),
        ("src/core/a.rs", "#[cfg(test)] mod tests { use crate::store::Memory; }", 1),
        ("src/tools/a.rs", "use crate::{core::id::TurnNo, ports::Store};", 0),
        ("src/tools/a.rs", "use crate::engine::Lanes;", 1),
        ("src/engine/a.rs", "use crate::tools::Catalog; use crate::store::Memory;", 1),
        ("src/model/a.rs", "use crate::config::Model; use crate::watch::Shim;", 2),
        ("src/model/mod.rs", "pub mod wire; use self::wire::A; use reqwest::Client;", 0),
        ("src/store/a.rs", "fn f(e: reqwest::Error) {}", 1),
        ("src/engine/a.rs", "use anyhow::Result;", 1),
        ("src/config/mod.rs", "use crate::ports::Clock;", 1),
        ("src/app.rs", "use crate::{config, engine, store}; use anyhow::Result;", 0),
        ("src/cellar/mod.rs", "", 1),
    ];
    for (path, text, count) in cases {
        demand_count(&judge(&Source::new(path, text), &crates), *count, text);
    }
}

#[test]
fn the_table_names_each_room_once_and_only_known_ones() {
    for (index, (room, rooms)) in ROOMS.iter().enumerate() {
        let earlier = ROOMS.iter().take(index).any(|(name, _)| name == room);
        assert!(!earlier, "the room `{room}` stands twice in ROOMS");
        for other in *rooms {
            assert!(*other == "*" || allowed(other).is_some(), "`{room}` → unknown `{other}`");
        }
    }
}
