//! The real program on a real Redis: what an operator meets who leaves the embedded store.

// So that clippy knows the whole module as a test.
#![cfg(test)]

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::thread::JoinHandle;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::Value;

use crate::support::program::{Home, Ran};
use crate::support::redis_server::RedisServer;

const PLAYBOOK: &str = r#"
name = "redis"
[[rule]]
when = { notice = '(?s)Output: (\w+)' }
text = "It said {1}."
[[rule]]
when = { tool = "trigger_and_auto_notify" }
text = "It runs."
[[rule]]
[[rule.calls]]
tool = "trigger_and_auto_notify"
arguments = { name = "Wait", timeout_seconds = 60, python = "print(open('FIFO').read())" }
"#;

/// A home whose store is there.
fn home(redis: &RedisServer) -> Home {
    let home = Home::new(
        "[store]\nkind = \"redis\"\nurl = { file = \"redis-url\" }\n\
         [model]\nplaybook = \"playbook.toml\"\n[watch]\nsandbox = \"off\"\n",
    );
    home.write("redis-url", &redis.url());
    let fifo = home.path("fifo");
    mkfifo(&fifo, Mode::S_IRWXU).unwrap();
    home.write("playbook.toml", &PLAYBOOK.replace("FIFO", fifo.to_str().unwrap()));
    home
}

/// Lets the script end as soon as it runs; it may not yet, where its start is what was cut off.
fn says_green(home: &Home) -> JoinHandle<()> {
    let fifo = home.path("fifo");
    std::thread::spawn(move || std::fs::write(fifo, "green").unwrap())
}

/// Returns once the script runs; it ends when it hears the end of this.
fn listens(home: &Home) -> File {
    let mut fifo = OpenOptions::new();
    fifo.write(true).custom_flags(OFlag::O_NONBLOCK.bits());
    loop {
        match fifo.open(home.path("fifo")) {
            Ok(ear) => return ear,
            Err(error) if error.raw_os_error() == Some(Errno::ENXIO as i32) => {
                std::thread::yield_now();
            }
            Err(error) => panic!("{error}"),
        }
    }
}

fn json(ran: &Ran) -> Value {
    serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {ran:?}"))
}

/// All has its fate, and was told.
fn audited(home: &Home, acked: u64) {
    let ran = home.run_here(&["audit", "--json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let told = json(&ran);
    assert_eq!(told["executions"]["fates"]["acked"], acked, "{told}");
    assert_eq!((&told["posts"]["undelivered"], &told["even"]), (&0.into(), &true.into()), "{told}");
}

#[test]
fn a_redis_that_may_drop_what_it_holds_is_refused_in_words() {
    let redis = RedisServer::start(&["--maxmemory-policy", "allkeys-lru"]);
    let home = home(&redis);
    let ran = home.run_here(&["doctor"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.out.contains("FAILED   redis"), "{}", ran.out);
    assert!(ran.out.contains("CONFIG SET maxmemory-policy noeviction"), "{}", ran.out);
    let ran = home.run_here(&["chat"]);
    assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{ran:?}");
    assert!(ran.err.contains("CONFIG SET maxmemory-policy noeviction"), "{}", ran.err);
    let _ok: () = redis.ask(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    let _ok: () = redis.ask(&["CONFIG", "SET", "appendonly", "no"]);
    let ran = home.run_here(&["doctor"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("warning  redis"), "{}", ran.out);
    home.chat(&[]).ends_well();
}

#[test]
fn a_redis_that_is_not_there_is_named_without_its_password() {
    let redis = RedisServer::start(&[]);
    let home = home(&redis);
    home.write("redis-url", "redis://bot:hush@127.0.0.1:1/0");
    for command in ["chat", "audit", "load"] {
        let ran = home.run_here(&[command]);
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{ran:?}");
        assert!(ran.err.contains("127.0.0.1:1") && !ran.err.contains("hush"), "{}", ran.err);
    }
}

#[test]
fn a_url_that_is_none_is_refused_before_anything_is_asked() {
    let redis = RedisServer::start(&[]);
    let home = home(&redis);
    assert_eq!(home.run_here(&["check-config"]).code, 0);
    home.write("redis-url", "http://bot:hush@127.0.0.1:1/0");
    let ran = home.run_here(&["check-config"]);
    assert_ne!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("store: ") && ran.out.contains("redis://HOST"), "{ran:?}");
    assert!(!format!("{ran:?}").contains("hush"), "{ran:?}");
}

#[test]
fn load_on_redis_counts_its_commands_and_leaves_no_key() {
    let redis = RedisServer::start(&[]);
    let ran = home(&redis).run_here(&["load", "--sessions", "8", "--executions", "5", "--json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let told = json(&ran);
    assert_eq!((&told["cycles"], &told["conflicts"]), (&(8 * 5 * 3).into(), &0.into()), "{told}");
    assert_eq!(told["applies_per_cycle"], 5.0, "{told}");
    assert!(told["server_cpu_us_per_cycle"].as_f64().unwrap() > 0.0, "{told}");
    assert_eq!(redis.ask::<u64>(&["DBSIZE"]), 0);
}

#[test]
fn a_result_waits_for_a_redis_that_was_killed_and_is_told_once() {
    let mut redis = RedisServer::start(&["--appendfsync", "always"]);
    let home = home(&redis);
    let mut chat = home.chat(&["--wait"]);
    chat.say("watch it");
    chat.wait_for("It runs.");
    redis.kill();
    // The watcher ends while there is no store; its record waits in the spool.
    let said = says_green(&home);
    redis.start_again();
    chat.wait_for("It said green.");
    said.join().unwrap();
    let shown = chat.ends_well();
    assert_eq!(shown.matches("It said green.").count(), 1, "{shown}");
    audited(&home, 1);
}

#[test]
fn a_bot_that_was_killed_finds_its_watcher_through_redis() {
    let redis = RedisServer::start(&[]);
    let home = home(&redis);
    let mut chat = home.chat(&[]);
    chat.say("watch it");
    chat.wait_for("It runs.");
    // Before it runs a kill would cut off its start, and another one would be started instead.
    let mut ear = listens(&home);
    chat.kill();
    ear.write_all(b"green").unwrap();
    drop(ear);
    let mut chat = home.chat(&["--wait"]);
    chat.wait_for("It said green.");
    let shown = chat.ends_well();
    assert_eq!(shown.matches("It said green.").count(), 1, "{shown}");
    audited(&home, 1);
}
