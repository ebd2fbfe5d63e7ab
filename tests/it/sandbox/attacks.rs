//! What a script must not get at, tried one after the other by one script.

use std::io::Write;

use dogwatch::core::execution::{Exit, Status};
use dogwatch::watch::Tier;
use nix::unistd::geteuid;

use super::stand::{Loot, SECRET, Where, as_user, sandboxed, within};
use crate::watch::bench::{Bench, is_alive};

const ATTACKS: &str = include_str!("attacks.py");

/// Attacks that the script has; one that did not run at all would be no success.
const COUNT: usize = 72;

async fn every_attack_is_stopped(tier: Tier) {
    let mut bench = Bench::with(sandboxed);
    assert_eq!(bench.watch().sandbox().unwrap().tier, Some(tier));
    let loot = Loot::lay(&bench);
    let script = ATTACKS
        .replace("{secret!r}", &format!("{:?}", loot.secret.display().to_string()))
        .replace("{spool!r}", &format!("{:?}", bench.path().join("spool").display().to_string()))
        .replace("{victim}", &loot.victim.id().to_string())
        .replace("{port}", &loot.service.local_addr().unwrap().port().to_string())
        .replace("{local!r}", &format!("{:?}", loot.local))
        .replace("{tier!r}", &format!("{:?}", format!("{tier:?}")))
        .replace("{{", "{")
        .replace("}}", "}");
    let outcome = bench.run(&script, 60_000).await;
    let printed = format!("{}{}", outcome.stdout.head, outcome.stdout.tail);
    let lines: Vec<&str> = printed.lines().filter(|line| line.contains(" | ")).collect();
    let mut table = std::io::stdout().lock();
    for line in &lines {
        writeln!(table, "{} | {tier:?} | {line}", user()).unwrap();
    }
    drop(table);
    assert_eq!(outcome.exit, Some(Exit::Code(0)), "{outcome:?}");
    assert_eq!(outcome.status, Status::Completed);
    assert!(printed.ends_with("end\n"), "{printed}");
    let through: Vec<_> = lines.iter().filter(|line| !line.contains("| stopped |")).collect();
    assert!(through.is_empty(), "{through:#?}");
    assert_eq!(lines.len(), COUNT, "{printed}");
    assert!(!printed.contains(SECRET));
    assert!(is_alive(loot.victim.id().cast_signed()));
    loot.service.set_nonblocking(true).unwrap();
    assert!(loot.service.accept().is_err(), "somebody came through");
    bench.nothing_is_left().await;
}

fn user() -> &'static str {
    if geteuid().is_root() { "root" } else { "user" }
}

#[test]
fn every_attack_is_stopped_here() {
    within(Where::Here, async || every_attack_is_stopped(Where::Here.tier()).await);
}

#[test]
fn every_attack_is_stopped_without_namespaces() {
    within(Where::Contained, async || every_attack_is_stopped(Where::Contained.tier()).await);
}

#[test]
#[ignore = "run as another user by the next one"]
fn user_here() {
    within(Where::Here, async || every_attack_is_stopped(Where::Here.tier()).await);
}

#[test]
fn every_attack_of_an_ordinary_users_script_is_stopped() {
    as_user("sandbox::attacks::user_here");
}

#[test]
#[ignore = "run as another user by the next one"]
fn user_contained() {
    within(Where::Contained, async || every_attack_is_stopped(Where::Contained.tier()).await);
}

#[test]
fn every_attack_of_an_ordinary_users_script_is_stopped_without_namespaces() {
    as_user("sandbox::attacks::user_contained");
}
