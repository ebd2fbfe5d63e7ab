//! A service over its life: what it counts, and what becomes of that which runs when it ends.

// So that clippy knows the whole module as a test.
#![cfg(test)]

use std::fs::File;

use nix::sys::signal::Signal;
use serde_json::Value;

use super::attach::{each_once, link, place, runs, serve};
use crate::support::process;
use crate::support::real_bot::{Place, let_go};
use crate::support::redis_server::RedisServer;
use crate::support::service::Service;

/// Waits until a series has this value: what is counted may come a moment after what is seen. One
/// that never has it fails the test by its time, and this line says which.
fn counted(service: &Service, series: &str, wanted: u64) {
    println!("waiting until {series} is {wanted}");
    while service.sample(series) != wanted {
        crate::support::process::pause_here();
    }
}

#[test]
fn a_conversation_moves_the_counters_by_what_happened() {
    let place = place(&["one"]);
    let service = serve(&place);
    let mut terminal = place.attached("main").ready();
    terminal.say("hello");
    terminal.post("heard hello");
    terminal.say("watch one");
    terminal.post("started");
    runs(&mut terminal);
    counted(&service, r#"dogwatch_watchers{state="running"}"#, 1);
    let_go(&place.path("one"));
    terminal.post("one is done");
    for (series, count) in [
        (r#"dogwatch_arrivals_total{sort="message"}"#, 2),
        (r#"dogwatch_arrivals_total{sort="completion"}"#, 1),
        (r#"dogwatch_wakeups_total{origin="human",outcome="delivered"}"#, 2),
        (r#"dogwatch_wakeups_total{origin="watcher",outcome="delivered"}"#, 1),
        (r#"dogwatch_wakeup_latency_seconds_count{origin="watcher"}"#, 1),
        (r#"dogwatch_lane_claims_total{outcome="opened"}"#, 3),
        (r#"dogwatch_turns_total{origin="human",outcome="committed"}"#, 2),
        (r#"dogwatch_turns_total{origin="synthetic",outcome="committed"}"#, 1),
        (r#"dogwatch_watchers_started_total{kind="script"}"#, 1),
        (r#"dogwatch_watchers_finished_total{kind="script",outcome="completed"}"#, 1),
        (r#"dogwatch_watcher_duration_seconds_count{outcome="completed"}"#, 1),
        (r#"dogwatch_tool_calls_total{tool="trigger_and_auto_notify",outcome="ok"}"#, 1),
        // One for the greeting, two around the tool call, one for the news.
        (r#"gen_ai_client_operation_duration_seconds_count{outcome="answered"}"#, 4),
        (r#"gen_ai_client_token_usage_count{gen_ai_token_type="output"}"#, 4),
        (r#"dogwatch_posts_total{sort="answer",outcome="done"}"#, 2),
        (r#"dogwatch_posts_total{sort="woken",outcome="done"}"#, 1),
        (r#"dogwatch_watchers{state="running"}"#, 0),
        ("dogwatch_outbox_depth", 0),
        ("dogwatch_turns_in_progress", 0),
        ("dogwatch_terminals", 1),
    ] {
        counted(&service, series, count);
    }
    let metrics = service.get("/metrics").body;
    for absent in ["resumed", "retried", "dead", "conflict", "failed", "stopped", "steered"] {
        assert!(!metrics.contains(&format!("outcome=\"{absent}\"")), "{absent} in\n{metrics}");
    }
    assert!(metrics.contains("dogwatch_turn_attempts_failed_total 0"), "{metrics}");
    each_once(terminal, &["heard hello", "started", "one is done"]);
    assert_eq!(service.end().0, Some(0));
}

#[test]
fn the_end_hands_a_turn_over_and_lets_watchers_run_and_the_next_start_tells_each_once() {
    let place = place(&["one"]);
    let quick = std::fs::read_to_string(place.path("playbook.toml")).unwrap();
    let slow = "[[rule]]\nwhen = { person = '^slowly$' }\ndelay_ms = 500\n\
                text = 'a b c d e f g h i j k l m n o p q r s t u v w x y z heard it all'\n";
    place.write("playbook.toml", &quick.replacen("[[rule]]", &format!("{slow}[[rule]]"), 1));
    let mut service = serve(&place);
    let mut terminal = place.attached("main").ready();
    terminal.say("watch one");
    terminal.post("started");
    let gate = File::options().write(true).open(place.path("one")).unwrap();
    terminal.say("slowly");
    // The answer is on its way, and will be for many seconds.
    terminal.wait(|event| event["kind"] == "began" && event["turn"] == 2);
    counted(&service, "dogwatch_turns_in_progress", 1);
    let shims = place.shims();
    assert_eq!(shims.len(), 1);
    service.signal(Signal::SIGTERM);
    let (code, log) = service.ended();
    assert_eq!(code, Some(0), "{log:#?}");
    link(&mut terminal, false);
    assert!(process::is_alive(shims[0]), "the watcher runs on");
    drop(gate);
    assert!(process::ends(shims[0]));
    // What it has not heard yet and what came meanwhile may be one request.
    let both = "[[rule]]\nwhen = { person = '(?<said>.*)', notice = '(?s)(?<news>.*)' }\n\
                text = 'heard {said} at once. NEWS {news}'\n";
    let quick = quick.replace("heard {1}", "heard {1} at once");
    place.write("playbook.toml", &quick.replacen("[[rule]]", &format!("{both}[[rule]]"), 1));
    let service = serve(&place);
    link(&mut terminal, true);
    terminal.post("heard slowly at once");
    if !terminal.seen.iter().any(|event| event["text"].to_string().contains("one is done")) {
        terminal.post("one is done");
    }
    assert_eq!(service.sample(r#"dogwatch_lane_claims_total{outcome="resumed"}"#), 1);
    let (code, events) = terminal.leave();
    assert_eq!(code, Some(0));
    let posts: Vec<String> = events
        .iter()
        .filter(|event| event["event"] == "post")
        .map(|event| event["text"].as_str().unwrap().to_owned())
        .collect();
    for once in ["started", "heard slowly at once", "one is done"] {
        let count = posts.iter().filter(|post| post.contains(once)).count();
        assert_eq!(count, 1, "{once}: {posts:#?}");
    }
    assert!(!posts.iter().any(|post| post.contains("heard it all")), "{posts:#?}");
    assert_eq!(service.end().0, Some(0));
    let (even, audit) = place.audit();
    assert!(even, "{audit:#}");
}

/// The same place on this Redis.
fn on(redis: &RedisServer, place: Place) -> Place {
    let config = std::fs::read_to_string(place.path("dogwatch.toml")).unwrap();
    let store = "[store]\nkind = \"redis\"\nurl = { file = \"redis-url\" }\n";
    place.write("dogwatch.toml", &format!("{config}{store}"));
    place.write("redis-url", &redis.url());
    place
}

#[test]
fn two_replicas_answer_a_terminal_at_one_of_them_also_while_the_other_is_replaced() {
    let mut redis = RedisServer::start(&[]);
    let (here, there) = (on(&redis, place(&["one"])), on(&redis, place(&[])));
    let playbook = std::fs::read_to_string(here.path("playbook.toml")).unwrap();
    there.write("playbook.toml", &playbook);
    let (service, other) = (serve(&here), serve(&there));
    let mut terminal = here.attached("main").ready();
    for number in 0..6 {
        terminal.say(format!("line {number}"));
        terminal.post(&format!("heard line {number}"));
    }
    terminal.say("watch one");
    terminal.post("started");
    let gate = File::options().write(true).open(here.path("one")).unwrap();
    let (code, log) = other.end();
    assert_eq!(code, Some(0), "{log:#?}");
    terminal.say("alone");
    terminal.post("heard alone");
    let other = serve(&there);
    drop(gate);
    terminal.post("one is done");
    let (code, events) = terminal.leave();
    assert_eq!(code, Some(0));
    let posts = super::attach::posts(&events);
    assert_eq!(posts.len(), 9, "{posts:#?}");
    assert!(posts.values().all(|count| *count == 1), "{posts:#?}");
    assert_eq!(other.end().0, Some(0));
    let (even, audit) = here.audit();
    assert!(even, "{audit:#}");
    // Without its store a bot is not ready, and says why; it is alive all the same.
    redis.kill();
    let ready = service.get("/readyz");
    assert_eq!(ready.status, 503, "{ready:?}");
    let checks = ready.json();
    let of_store = |check: &&Value| check["name"] == "store";
    let store = checks["checks"].as_array().unwrap().iter().find(of_store).unwrap();
    assert_eq!(store["ok"], false, "{ready:?}");
    assert_eq!(service.sample("dogwatch_store_up"), 0);
    assert_eq!(service.get("/livez").status, 200);
    redis.start_again();
    counted(&service, "dogwatch_ready", 1);
    assert_eq!(service.get("/readyz").status, 200);
}
