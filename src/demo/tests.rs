//! The story, played with a bot that does what the real one should, and with bots that do not.

use serde_json::{Value, json};

use crate::console::event::Event;

use super::story::{Effect, Input, Story};

/// What a bot says when it is started, hears a line, or is left.
fn script(cue: &str) -> Vec<Value> {
    let started = post("main", "answer", "It runs in the background as x-1.");
    match cue {
        "start" => vec![json!({"event": "ready", "chat": "main", "at": 1})],
        "start again" => vec![
            json!({"event": "ready", "chat": "main", "at": 1}),
            began(true),
            post("main", "woken", "Watch the migration: completed."),
        ],
        "Please watch deployment abc123." => vec![began(false), started, watcher("running")],
        "Meanwhile: what is 6 x 7?" => vec![
            post("main", "answer", "6 x 7 is 42."),
            watcher("completed"),
            began(true),
            post("main", "woken", "Deployment abc123 is healthy."),
        ],
        "Check the backup." => {
            vec![started, post("main", "woken", "Backup check failed with exit code 3: …")]
        }
        "Wait for the queue to be empty, one second at most." => {
            vec![started, began(true), post("main", "woken", "Queue drain ran out of time")]
        }
        "Probe the load and write a long report." => vec![
            began(false),
            post("main", "answer", "The report is done. I read it in the same turn: load 0.42."),
            ended(),
        ],
        "Check both shards." => {
            vec![started, began(true), post("main", "woken", "Shard A and shard B …"), ended()]
        }
        "/chat ops" => vec![in_front("ops")],
        "/chat main" => {
            vec![in_front("main"), post("ops", "woken", "Watch the release build: completed.")]
        }
        "Watch the release build." => vec![post("ops", "answer", "It runs in the background.")],
        "Watch the migration." => vec![post("main", "answer", "It runs in the background.")],
        "/watchers" => vec![table(&[
            "completed",
            "completed",
            "completed",
            "completed",
            "timed_out",
            "failed",
            "completed",
        ])],
        other => panic!("nobody types {other:?}"),
    }
}

fn post(chat: &str, sort: &str, text: &str) -> Value {
    json!({"event": "post", "chat": chat, "text": text, "sort": sort, "item": "?",
           "may_repeat": false, "at": 1})
}

fn began(synthetic: bool) -> Value {
    json!({"event": "progress", "chat": "main", "kind": "began", "turn": 2,
           "synthetic": synthetic, "at": 1})
}

fn ended() -> Value {
    json!({"event": "progress", "chat": "main", "kind": "ended", "at": 1})
}

fn in_front(chat: &str) -> Value {
    json!({"event": "command", "chat": chat, "command": "chat", "name": chat, "at": 1})
}

fn work(state: &str) -> Value {
    json!({"id": "x-1", "name": "Watch deployment abc123", "state": state, "elapsed_ms": 3100,
           "timeout_ms": 60000})
}

fn watcher(state: &str) -> Value {
    let mut event = work(state);
    event["event"] = "watcher".into();
    event["chat"] = "main".into();
    event["at"] = 1.into();
    event
}

fn table(states: &[&str]) -> Value {
    let ended: Vec<Value> = states.iter().map(|state| work(state)).collect();
    json!({"event": "command", "chat": "main", "command": "watchers", "live": [], "ended": ended,
           "at": 1})
}

/// Plays the story with what `bot` makes of the script; returns what was told and how it ended.
fn play(bot: impl Fn(&str, Vec<Value>) -> Vec<Value>, even: bool) -> (String, bool) {
    let mut story = Story::new(false);
    let mut now = 0;
    let mut items = 0;
    let mut starts = 0;
    let mut told = Vec::new();
    let mut effects = story.begin(now);
    loop {
        let mut inputs = Vec::new();
        for effect in effects {
            let cue = match effect {
                Effect::Over { well } => return (told.join("\n"), well),
                Effect::Tell(text) => {
                    told.push(text);
                    continue;
                }
                Effect::Audit => {
                    let summary = vec!["audit: registered 8".to_owned()];
                    inputs.push(Input::Audited { even, summary });
                    continue;
                }
                Effect::Kill => {
                    inputs.push(Input::Exited { well: false });
                    continue;
                }
                Effect::Leave => {
                    inputs.push(Input::Exited { well: true });
                    continue;
                }
                Effect::Start => {
                    starts += 1;
                    if starts == 1 { "start".to_owned() } else { "start again".to_owned() }
                }
                Effect::Type(line) => line,
            };
            for mut event in bot(&cue, script(&cue)) {
                if event["item"] == "?" {
                    items += 1;
                    event["item"] = format!("post/{items}").into();
                }
                let event: Event = serde_json::from_value(event).unwrap();
                inputs.push(Input::Event(Box::new(event)));
            }
        }
        if inputs.is_empty() {
            now = story.wake_at();
            inputs.push(Input::Tick);
        }
        effects = Vec::new();
        for input in inputs {
            now += 100;
            effects.extend(story.step(now, input));
        }
    }
}

/// The real script, but for one cue.
fn but(cue: &str, change: impl Fn(&mut Vec<Value>)) -> (String, bool) {
    let bot = |given: &str, mut events: Vec<Value>| {
        if given == cue {
            change(&mut events);
        }
        events
    };
    play(bot, true)
}

fn fails_with(played: (String, bool), why: &str) {
    let (told, well) = played;
    assert!(!well, "{told}");
    let last = told.lines().last().unwrap();
    assert!(last.contains('✗') && last.contains(why), "{last}");
}

#[test]
fn a_good_bot_makes_the_whole_story() {
    let (told, well) = play(|_, events| events, true);
    assert!(well, "{told}");
    insta::assert_snapshot!(told);
}

#[test]
fn a_result_that_does_not_come_is_named() {
    fails_with(but("Check the backup.", |events| drop(events.pop())), "exit code 3");
    fails_with(but("start again", |events| drop(events.pop())), "migration: completed");
    fails_with(but("start", Vec::clear), "the bot to be ready");
}

#[test]
fn a_result_that_comes_before_the_talk_went_on_is_seen() {
    let played = but("Meanwhile: what is 6 x 7?", |events| events.rotate_left(1));
    fails_with(played, "the order of the story");
}

#[test]
fn a_result_told_twice_is_seen() {
    let twice = |events: &mut Vec<Value>| events.push(events[1].clone());
    fails_with(but("Check the backup.", twice), "2 results");
}

#[test]
fn a_synthetic_turn_for_a_steered_result_is_seen() {
    let cue = "Probe the load and write a long report.";
    fails_with(but(cue, |events| events.insert(1, began(true))), "synthetic turn");
}

#[test]
fn two_turns_for_two_results_are_seen() {
    let played = but("Check both shards.", |events| events.insert(1, began(true)));
    fails_with(played, "2 synthetic turns");
}

#[test]
fn a_result_in_the_wrong_chat_is_seen() {
    let wrong = |events: &mut Vec<Value>| events.insert(1, post("main", "woken", "oops"));
    fails_with(but("/chat main", wrong), "another chat");
}

#[test]
fn a_post_that_comes_again_is_seen_unless_it_says_so() {
    let again = |may_repeat: bool| {
        but("start again", move |events| {
            let mut repeat = post("main", "answer", "6 x 7 is 42.");
            repeat["item"] = "post/2".into();
            repeat["may_repeat"] = may_repeat.into();
            events.insert(1, repeat);
        })
    };
    fails_with(again(false), "came twice");
    assert!(again(true).1);
}

#[test]
fn an_uneven_audit_fails_the_demo() {
    fails_with(play(|_, events| events, false), "balance");
}

#[test]
fn the_playbook_is_toml_and_its_patterns_are_patterns() {
    let playbook: toml::Table = toml::from_str(super::PLAYBOOK).unwrap();
    let rules = playbook["rule"].as_array().unwrap();
    let patterns: Vec<&str> = rules
        .iter()
        .filter_map(|rule| rule.get("when")?.as_table())
        .flat_map(|when| when.iter().filter(|(key, _)| *key != "tool"))
        .map(|(_, pattern)| pattern.as_str().unwrap())
        .collect();
    assert!(patterns.len() > 10, "{patterns:?}");
    for pattern in patterns {
        regex::Regex::new(pattern).unwrap();
    }
    assert!(rules.last().unwrap().get("when").is_none(), "the last rule answers anything else");
}
