//! What a script must not get at, tried one after the other by one script.

use std::fs;
use std::io::Write;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use dogwatch::core::execution::{Exit, Status};
use dogwatch::watch::Tier;
use nix::unistd::geteuid;

use super::stand::{Loot, NOBODY, SECRET, USER, Where, as_user, sandboxed, within};
use crate::watch::bench::{Bench, is_alive};

const ATTACKS: &str = include_str!("attacks.py");

/// Attacks that the script has; one that did not run at all would be no success.
const COUNT: usize = 86;

/// The attacks, told where things are.
fn script(loot: &Loot, spool: &Path, tier: &str) -> String {
    ATTACKS
        .replace("{secret!r}", &format!("{:?}", loot.secret.display().to_string()))
        .replace("{spool!r}", &format!("{:?}", spool.display().to_string()))
        .replace("{victim}", &loot.victim.id().to_string())
        .replace("{port}", &loot.service.local_addr().unwrap().port().to_string())
        .replace("{local!r}", &format!("{:?}", loot.local))
        .replace("{tier!r}", &format!("{tier:?}"))
        .replace("{{", "{")
        .replace("}}", "}")
}

async fn every_attack_is_stopped(tier: Tier) {
    let mut bench = Bench::with(sandboxed);
    assert_eq!(bench.watch().sandbox().unwrap().tier, Some(tier));
    let loot = Loot::lay(bench.path(), NOBODY);
    let script = script(&loot, &bench.path().join("spool"), &format!("{tier:?}"));
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

/// Attacks that come through on any machine where nothing stops them.
const REAL: [&str; 26] = [
    "the bot's file",
    "the spool's list",
    "its own exit record, forged",
    "its own lock, removed",
    "its own output, replaced",
    "write SPOOL/x",
    "a symbolic link to the bot's file",
    "a hard link to the bot's file",
    "a way up",
    "rights of the bot's file",
    "times of the bot's file",
    "directories, watched",
    "memory that stays unmapped",
    "the same by a device",
    "memory without a process",
    "memory between processes",
    "environ of a process",
    "all processes",
    "a signal for another",
    "a life after its supervisor",
    "a service on the host's loopback",
    "an abstract socket",
    "a datagram for a socket with a path",
    "UDP",
    "netlink",
    "personality",
];

/// An attack that no machine lets through proves nothing.
#[test]
#[expect(clippy::disallowed_methods, reason = "Python without anything that holds it")]
fn the_attacks_are_real() {
    let dir = tempfile::tempdir().unwrap();
    let (path, user) = (dir.path(), if geteuid().is_root() { USER } else { geteuid().as_raw() });
    // What the digest of this execution is called in a spool.
    let entry = path.join("spool/e/454a123e8e6cef63d28bcca8");
    fs::create_dir_all(&entry).unwrap();
    for name in ["exit.tmp", "lock", "out"] {
        fs::write(entry.join(name), "x").unwrap();
    }
    let loot = Loot::lay(path, user);
    let attacks = script(&loot, &path.join("spool"), "none");
    // It would stay so for all that this user runs.
    let attacks = attacks.replace("os.setpriority(os.PRIO_USER", "os.setpriority(99");
    fs::write(path.join("attacks.py"), attacks).unwrap();
    // Something stands between, since the limits of who starts it are attacked too.
    let mut command = Command::new("sh");
    command.args(["-c", "/usr/bin/python3 -I -B attacks.py; :"]).current_dir(path).env_clear();
    if geteuid().is_root() {
        for place in [path, &path.join("spool"), &path.join("spool/e"), &entry] {
            chown(place, Some(user), Some(user)).unwrap();
        }
        for name in ["exit.tmp", "lock", "out"] {
            chown(entry.join(name), Some(user), Some(user)).unwrap();
        }
        command.uid(user).gid(user);
    }
    let ran = command.stdin(Stdio::null()).output().unwrap();
    let printed = String::from_utf8_lossy(&ran.stdout);
    for name in REAL {
        assert!(printed.contains(&format!("{name} | THROUGH |")), "{name}: {printed}");
    }
}

fn user() -> &'static str {
    if geteuid().is_root() { "root" } else { "user" }
}

#[test]
fn b79_every_attack_is_stopped_here() {
    within(Where::Here, every_attack_is_stopped);
}

#[test]
fn b79_every_attack_is_stopped_without_namespaces() {
    within(Where::Contained, every_attack_is_stopped);
}

#[test]
#[ignore = "run as another user by the next one"]
fn user_here() {
    within(Where::Here, every_attack_is_stopped);
}

#[test]
fn b79_every_attack_of_an_ordinary_users_script_is_stopped() {
    as_user("sandbox::attacks::user_here");
}

#[test]
#[ignore = "run as another user by the next one"]
fn user_contained() {
    within(Where::Contained, every_attack_is_stopped);
}

#[test]
fn b79_every_attack_of_an_ordinary_users_script_is_stopped_without_namespaces() {
    as_user("sandbox::attacks::user_contained");
}
