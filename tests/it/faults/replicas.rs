//! Two replicas as processes of their own, each with a spool and a terminal, on one Redis: killed
//! at random moments, over and over. `DOGWATCH_CHAOS_SEED` and `DOGWATCH_CHAOS_SECONDS` as with one
//! bot.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::chaos::{Dice, number};
use super::load::unmarked;
use crate::support::real_bot::{Bot, Place};
use crate::support::redis_server::RedisServer;
use crate::support::service::{SERVED, Service};

const SECONDS: u64 = 10;

const PLAYBOOK: &str = r#"
name = "replicas"
[[rule]]
when = { notice = '(?s)(.*)' }
text = "NEWS {1}"
[[rule]]
when = { tool = "trigger_and_auto_notify" }
text = "started"
[[rule]]
when = { person = 'go (\d+)' }
[[rule.calls]]
tool = "trigger_and_auto_notify"
arguments = { name = "w{1}w", timeout_seconds = 60, python = """
import random, time
time.sleep(random.random())
print('done')
""" }
"#;

fn replica(redis: &RedisServer) -> Place {
    let place = Place::new("");
    place.write(
        "dogwatch.toml",
        &format!(
            "data_dir = \"data\"\n[store]\nkind = \"redis\"\nurl = {{ file = \"redis-url\" }}\n\
             [model]\nplaybook = \"playbook.toml\"\n[watch]\nsandbox = \"off\"\n\
             [console]\nhistory = false\n{SERVED}"
        ),
    );
    place.write("redis-url", &redis.url());
    place.write("playbook.toml", PLAYBOOK);
    place
}

fn serve(place: &Place) -> Service {
    Service::of(place.serve()).works()
}

/// Waits until every line is accepted, and nothing is open, unread, unposted or running.
fn at_rest(terminal: &mut Bot, typed: usize) {
    let accepted = |event: &&Value| event["event"] == "accepted";
    while terminal.seen.iter().filter(accepted).count() < typed {
        terminal.wait(|event| event["event"] == "accepted");
    }
    loop {
        terminal.say("status");
        let status = terminal.wait(|event| event["command"] == "status");
        let counts = ["messages", "results", "running", "unposted"];
        if status["turn"].is_null() && counts.iter().all(|count| status[count] == 0) {
            return;
        }
        terminal.listen(Duration::from_millis(100));
    }
}

#[test]
fn replicas_that_are_killed_at_random_lose_and_double_nothing() {
    let seed = number("DOGWATCH_CHAOS_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    let seconds = number("DOGWATCH_CHAOS_SECONDS").unwrap_or(SECONDS);
    let mut dice = Dice(seed);
    let redis = RedisServer::start(&[]);
    let places = [replica(&redis), replica(&redis)];
    let mut services = places.each_ref().map(serve);
    let mut terminals: Vec<Bot> =
        places.iter().zip(["a", "b"]).map(|(place, chat)| place.attached(chat).ready()).collect();
    let clock = nix::time::ClockId::CLOCK_MONOTONIC;
    let until = Duration::from(clock.now().unwrap()) + Duration::from_secs(seconds);
    let (mut count, mut kills, mut typed) = (0, 0, [0, 0]);
    while Duration::from(clock.now().unwrap()) < until {
        for _ in 0..dice.below(4) {
            count += 1;
            let at = usize::from(dice.below(2) == 1);
            terminals[at].say(format!("go {count}"));
            typed[at] += 1;
            terminals[at].listen(Duration::from_millis(dice.below(200)));
        }
        let victim = usize::from(dice.below(2) == 1);
        terminals[victim].listen(Duration::from_millis(dice.below(600)));
        kills += 1;
        let [a, b] = services;
        services = if victim == 0 {
            a.kill();
            [serve(&places[0]), b]
        } else {
            b.kill();
            [a, serve(&places[1])]
        };
    }
    // Nobody is killed any more: all that is owed comes.
    for (terminal, typed) in terminals.iter_mut().zip(typed) {
        at_rest(terminal, typed);
    }
    for terminal in terminals {
        let (code, events) = terminal.leave();
        assert_eq!(code, Some(0), "seed {seed}");
        let twice: BTreeMap<_, _> =
            unmarked(&events).into_iter().filter(|(_, count)| *count > 1).collect();
        assert!(twice.is_empty(), "seed {seed}: {twice:#?}");
    }
    for service in services {
        assert_eq!(service.end().0, Some(0), "seed {seed}");
    }
    let (even, audit) = places[0].audit();
    println!("replicas: seed {seed}, {kills} replicas killed, {count} lines typed");
    println!("replicas: audit {}", serde_json::to_string(&audit).unwrap());
    assert!(even, "seed {seed}: {audit:#}");
    let registered = audit["executions"]["registered"].as_u64().unwrap();
    assert_eq!(audit["executions"]["fates"]["acked"], registered, "seed {seed}: {audit:#}");
    for place in places {
        assert!(place.processes().is_empty(), "seed {seed}");
    }
}
