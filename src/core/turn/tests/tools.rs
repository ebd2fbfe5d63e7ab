//! Which calls run, in which order, and what the others are told.

use serde_json::{Value, json};

use super::bench::{Bench, End, calls, rules, says};
use crate::core::limits::{LOOP_END_AT, TOOL_CALLS_PER_ANSWER_MAX};
use crate::core::message::Answer;
use crate::core::transcript::{Body, Call, Finish, Origin};
use crate::core::turn::{Effect, Input};

fn code(result: &Value) -> &str {
    result["error"]["code"].as_str().unwrap_or("none")
}

fn waves(bench: &mut Bench, answer: Answer) -> Vec<Vec<u32>> {
    let mut waves = vec![];
    bench.effects.clear();
    bench.step(Input::Answered(answer));
    loop {
        bench.settle();
        match bench.effects.pop_front() {
            Some(Effect::RunTools { calls, .. }) => {
                waves.push(calls.iter().map(|(no, _)| *no).collect());
                for (call, _) in calls.into_iter().rev() {
                    bench.step(Input::ToolDone { call, result: json!("ok"), collect: None });
                }
            }
            Some(Effect::CallModel { .. }) => return waves,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn parallel_neighbours_run_together_and_others_in_order() {
    let mut bench = Bench::new(rules(Origin::Human));
    let answer = calls(&[
        ("par", "{\"a\":1}"),
        ("look", "{}"),
        ("seq", "{\"a\":1}"),
        ("seq", "{\"a\":2}"),
        ("par", "{\"a\":2}"),
        ("unheard of", "{}"),
        ("par", "{\"a\":3}"),
    ]);
    assert_eq!(waves(&mut bench, answer), [vec![0, 1], vec![2], vec![3], vec![4, 6]]);
    assert!(bench.open_calls().is_empty());
}

#[test]
fn results_enter_the_log_as_they_end_and_once_each() {
    let mut bench = Bench::new(rules(Origin::Human));
    bench.effects.clear();
    bench.step(Input::Answered(calls(&[("par", "{}"), ("par", "{\"a\":1}"), ("par", "3")])));
    bench.settle();
    bench.effects.clear();
    let done = |call| Input::ToolDone { call, result: json!({"n": call}), collect: None };
    bench.step(done(1));
    bench.step(done(1));
    bench.step(done(2));
    bench.step(done(7));
    bench.settle();
    bench.step(done(0));
    bench.settle();
    let order: Vec<_> = bench
        .log
        .iter()
        .filter_map(|(_, entry)| match entry.body {
            Body::Tool { call, .. } => Some(call),
            _ => None,
        })
        .collect();
    assert_eq!(order, [2, 1, 0], "the one that could not run, then as they ended");
    assert_eq!(bench.effects, [Effect::CallModel { tools: true }]);
}

#[test]
fn a_call_that_cannot_run_is_taught() {
    let cases = [
        (("see", "{}"), "unknown_tool", "name"),
        (("SEQ", "{}"), "unknown_tool", "name"),
        (("seq ", "{}"), "unknown_tool", "name"),
        (("", "{}"), "unknown_tool", "name"),
        (("seq", "{\"a\":"), "invalid_json", "arguments"),
        (("seq", "{} {}"), "invalid_json", "arguments"),
        (("seq", "[1]"), "not_an_object", "arguments"),
        (("seq", "\"a\""), "not_an_object", "arguments"),
    ];
    for (call, want, field) in cases {
        let mut bench = Bench::new(rules(Origin::Human));
        let end = bench.play(&[calls(&[call]), says("sorry")]);
        assert_eq!(end, End::Committed(vec!["sorry".into()]));
        let result = bench.results()[0];
        assert_eq!((code(result), &result["error"]["field"]), (want, &json!(field)), "{result}");
        for part in ["message", "hint", "example", "retryable"] {
            assert!(result["error"].get(part).is_some(), "{part}");
        }
        assert!(bench.ran.is_empty());
    }
}

#[test]
fn an_unknown_tool_is_shown_the_declared_names() {
    let mut bench = Bench::new(rules(Origin::Human));
    let name = format!("see`\n{}", "x".repeat(10_000));
    bench.play(&[calls(&[(&name, "{}")]), says("sorry")]);
    let error = &bench.results()[0]["error"];
    assert!(error["hint"].as_str().unwrap().contains("seq, once, par"), "{error}");
    assert!(error["message"].as_str().unwrap().len() < 100, "{error}");
}

#[test]
fn arguments_that_the_output_limit_cut_are_said_to_be_cut() {
    let mut bench = Bench::new(rules(Origin::Human));
    let cut = Answer { finish: Finish::Length, ..calls(&[("seq", "{\"python\":\"import o")]) };
    bench.play(&[cut, says("sorry")]);
    assert!(bench.results()[0]["error"]["hint"].as_str().unwrap().contains("output limit"));
}

#[test]
fn blank_arguments_are_an_empty_object() {
    for blank in ["", "  \n"] {
        let mut bench = Bench::new(rules(Origin::Human));
        bench.play(&[calls(&[("seq", blank)]), says("done")]);
        assert_eq!(bench.ran[0].2.arguments, "{}");
    }
}

#[test]
fn calls_beyond_what_one_answer_may_make_are_not_run() {
    let mut bench = Bench::new(rules(Origin::Human));
    let many: Vec<String> = (0..100).map(|n| format!("{{\"n\":{n}}}")).collect();
    let many: Vec<_> = many.iter().map(|arguments| ("par", arguments.as_str())).collect();
    bench.play(&[calls(&many), says("done")]);
    assert_eq!(bench.ran.len(), TOOL_CALLS_PER_ANSWER_MAX);
    let surplus = bench.results().iter().filter(|r| code(r) == "too_many_calls").count();
    assert_eq!(surplus, 64 - TOOL_CALLS_PER_ANSWER_MAX);
    assert!(bench.open_calls().is_empty());
}

#[test]
fn the_same_call_is_alerted_then_ends_the_turn() {
    let mut bench = Bench::new(rules(Origin::Human));
    let spellings = [r#"{"a":1,"b":2}"#, r#"{ "b": 2, "a": 1 }"#];
    let mut answers: Vec<_> = (0..10)
        .map(|n| calls(&[("seq", spellings[n % 2]), ("par", &format!("{{\"n\":{n}}}"))]))
        .collect();
    answers[5] = says("I was stuck.");
    let End::Committed(posts) = bench.play(&answers) else { panic!("not committed") };
    let repeated: Vec<_> = bench.results().into_iter().step_by(2).collect();
    assert_eq!(bench.asked, [true, true, true, true, true, false]);
    for (n, result) in [(0, false), (1, false), (2, true), (3, true)] {
        let seq = bench.results()[n * 2];
        assert_eq!(seq.get("loop_alert").is_some(), result, "{n}: {seq}");
        assert_eq!(seq["status"], "ok", "an alert does not hide the result");
    }
    assert_eq!(code(repeated[4]), "repeated_call");
    let ran = bench.ran.iter().filter(|(_, _, call)| call.name == "seq").count();
    assert_eq!(ran, LOOP_END_AT as usize - 1);
    assert_eq!(posts.len(), 1);
    assert!(posts[0].starts_with("I was stuck."), "{posts:?}");
    assert!(posts[0].contains("called `seq` 5 times"), "{posts:?}");
}

#[test]
fn a_call_that_is_refused_again_and_again_ends_the_turn_too() {
    for call in [("unheard of", "{}"), ("seq", "{"), ("stay_silent", "{}")] {
        let mut bench = Bench::new(rules(Origin::Human));
        let End::Committed(posts) = bench.play(&[calls(&[call])]) else { panic!() };
        assert_eq!(bench.asked.len(), LOOP_END_AT as usize + 1, "{call:?}");
        assert!(posts[0].contains(call.0), "{posts:?}");
    }
}

#[test]
fn peer_c37_probes_neither_count_nor_hide_a_loop() {
    let mut bench = Bench::new(rules(Origin::Human));
    let answers: Vec<_> = (0..40)
        .map(|n| if n % 2 == 0 { calls(&[("look", "{}")]) } else { calls(&[("seq", "{}")]) })
        .collect();
    let End::Committed(posts) = bench.play(&answers) else { panic!() };
    assert!(posts[0].contains("called `seq` 5 times"), "{posts:?}");
    let looked = bench.ran.iter().filter(|(_, _, call)| call.name == "look").count();
    assert_eq!(looked, LOOP_END_AT as usize, "one before each call of the loop");
    let looks = bench.results().into_iter().step_by(2);
    assert!(looks.into_iter().all(|look| look.get("loop_alert").is_none()));
}

#[test]
fn unchanged_probes_are_told_to_wait() {
    let mut bench = Bench::new(rules(Origin::Human));
    let mut looks = 0;
    let mut watch = |_: &Call| {
        looks += 1;
        json!({"status": "running", "elapsed_ms": looks * 100, "lines": looks / 5})
    };
    let mut answers = vec![calls(&[("look", r#"{"id":"w1"}"#)]); 8];
    answers.push(says("it takes long"));
    bench.play_with(&answers, &mut watch);
    let hints: Vec<bool> =
        bench.results().iter().map(|look| look.get("polling_hint").is_some()).collect();
    // The fifth look shows another line.
    assert_eq!(hints, [false, false, true, true, false, false, true, true]);
}

#[test]
fn a_huge_result_is_cut_and_still_carries_its_alert() {
    let mut bench = Bench::new(rules(Origin::Human));
    let mut answers = vec![calls(&[("seq", "{}")]); 3];
    answers.push(says("done"));
    bench.play_with(&answers, &mut |_| json!("x".repeat(1_000_000)));
    let last = bench.results()[2];
    assert!(last.to_string().len() < 100_000);
    assert!(last["loop_alert"].is_string());
}
