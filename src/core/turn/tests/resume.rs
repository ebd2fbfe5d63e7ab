//! Turns that go on in another process.

use serde_json::json;

use super::bench::{Arrived, Bench, Crash, End, SILENT, calls, rules, says, scripted};
use crate::core::transcript::{Body, Origin};
use crate::core::turn::{Effect, Input, Why};

/// A turn whose answer with these calls is in the log, and nothing after it.
fn with_pending(made: &[(&str, &str)]) -> Bench {
    let mut bench = Bench::new(rules(Origin::Human));
    bench.effects.clear();
    bench.step(Input::Answered(calls(made)));
    while bench.log.len() < 2 {
        let Some(Effect::Append { .. } | Effect::Progress(_)) = bench.effects.front() else {
            panic!("{:?}", bench.effects)
        };
        bench.settle();
    }
    bench
}

#[test]
fn an_unanswered_call_is_run_again_or_said_to_be_unknown() {
    let mut bench =
        with_pending(&[("par_once", "{}"), ("par", "{}"), ("once", "{}"), ("seq", "{}")]);
    bench.begin();
    let end = bench.play(&[says("unused"), says("checked")]);
    assert_eq!(end, End::Committed(vec!["checked".into()]));
    let codes: Vec<_> = bench
        .log
        .iter()
        .filter_map(|(_, entry)| match &entry.body {
            Body::Tool { call, result, .. } => Some((*call, result["error"]["code"].as_str())),
            _ => None,
        })
        .collect();
    assert_eq!(
        codes,
        [(0, Some("interrupted")), (2, Some("not_started")), (1, None), (3, None)],
        "the third waited for the first two and cannot have been started"
    );
    let message = bench.results()[0]["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("outcome unknown: "), "{message}");
    let hint = bench.results()[0]["error"]["hint"].as_str().unwrap();
    assert!(hint.contains("verify before redoing"), "{hint}");
}

#[test]
fn a_result_that_is_in_the_log_is_not_asked_for_again() {
    let mut bench = with_pending(&[("par", "{}"), ("par", "{\"a\":1}")]);
    bench.effects.clear();
    bench.step(Input::ToolDone { call: 1, result: json!(1), collect: None });
    bench.settle();
    bench.begin();
    let Some(Effect::RunTools { calls, .. }) = bench.effects.pop_back() else { panic!() };
    assert_eq!(calls.iter().map(|(no, _)| *no).collect::<Vec<_>>(), [0]);
}

#[test]
fn b05_a_turn_that_broke_off_goes_on_without_a_second_copy() {
    let mut bench = Bench::new(rules(Origin::Synthetic));
    let answers = [calls(&[("seq", "{}")]), says("it is done")];
    for at in 0..8 {
        for after in [false, true] {
            let mut bench = Bench::new(rules(Origin::Synthetic));
            let crash = Some(Crash { at, after });
            let end =
                bench.run(&mut |log| Ok(scripted(&answers, log)), &mut |_| json!("ok"), crash);
            assert_eq!(end, End::Committed(vec!["it is done".into()]));
            assert_eq!(bench.log.iter().filter(|(_, e)| !e.carries.is_empty()).count(), 1);
        }
    }
    assert_eq!(bench.play(&answers), End::Committed(vec!["it is done".into()]));
}

#[test]
fn b69_a_turn_resumed_with_its_results_asks_the_model_once() {
    let mut bench = with_pending(&[("seq", "{}")]);
    bench.effects.clear();
    bench.step(Input::ToolDone { call: 0, result: json!("ok"), collect: None });
    bench.settle();
    bench.asked.clear();
    bench.begin();
    assert_eq!(bench.effects, [Effect::CallModel { tools: true }]);
    let end = bench.play(&[says("unused"), says("done")]);
    assert_eq!(end, End::Committed(vec!["done".into()]));
    assert_eq!(bench.asked, [true]);
}

#[test]
fn an_answer_in_the_log_is_committed_without_asking_again() {
    for (origin, answer, posts) in [
        (Origin::Human, says("done"), vec!["done".to_owned()]),
        (Origin::Synthetic, calls(&[(SILENT, "{}")]), vec![]),
    ] {
        let mut bench = Bench::new(rules(origin));
        bench.play(&[answer]);
        bench.begin();
        assert_eq!(bench.effects, [Effect::Commit { posts }]);
    }
}

#[test]
fn shutdown_drops_a_model_call() {
    let mut bench = Bench::new(rules(Origin::Human));
    bench.effects.clear();
    bench.step(Input::Shutdown);
    assert_eq!(bench.effects, [Effect::Release(Why::Handover)]);
    bench.effects.clear();
    bench.step(Input::Answered(says("too late")));
    bench.step(Input::Shutdown);
    assert!(bench.effects.is_empty());
}

#[test]
fn shutdown_asks_no_model_after_the_last_result() {
    let mut bench = with_pending(&[("seq", "{}")]);
    bench.effects.clear();
    bench.step(Input::Shutdown);
    bench.step(Input::ToolDone { call: 0, result: json!("ok"), collect: None });
    bench.settle();
    assert_eq!(bench.effects, [Effect::Release(Why::Handover)]);
    assert!(bench.open_calls().is_empty());
}

#[test]
fn shutdown_lets_an_answer_that_is_being_written_end_the_turn() {
    let mut bench = Bench::new(rules(Origin::Human));
    bench.effects.clear();
    bench.step(Input::Answered(says("done")));
    bench.step(Input::Shutdown);
    bench.settle();
    assert_eq!(bench.effects, [Effect::Commit { posts: vec!["done".into()] }]);
}

#[test]
fn shutdown_keeps_what_ran_and_says_what_did_not() {
    let mut bench =
        with_pending(&[("par_once", "{}"), ("par", "{}"), ("once", "{}"), ("seq", "{}")]);
    bench.effects.clear();
    bench.step(Input::Shutdown);
    assert!(bench.effects.is_empty(), "two calls still run");
    bench.step(Input::ToolDone { call: 1, result: json!({"n": 1}), collect: None });
    bench.settle();
    bench.step(Input::ToolDone { call: 0, result: json!({"n": 0}), collect: None });
    bench.settle();
    assert_eq!(bench.effects, [Effect::Release(Why::Handover)]);
    let results: Vec<_> = bench.results().into_iter().cloned().collect();
    assert_eq!(results[..2], [json!({"n": 1}), json!({"n": 0})]);
    assert_eq!(results[2]["error"]["code"], "not_started");
    assert_eq!(results[2]["error"]["retryable"], true);

    bench.begin();
    let Some(Effect::RunTools { calls, .. }) = bench.effects.back() else { panic!() };
    assert_eq!(calls[0].0, 3, "what may be run again is left to the next process");
}

#[test]
fn b27_who_wrote_since_the_last_attempt_is_heard_before_the_model_is_asked_again() {
    let mut bench = Bench::new(rules(Origin::Synthetic));
    bench.arrive(Arrived::Person("what does it cost?".into()));
    bench.rules.resumed = true;
    bench.begin();
    let end = bench.play(&[says("Ten euros, and the build is broken.")]);
    assert_eq!(end, End::Committed(vec!["Ten euros, and the build is broken.".into()]));
    assert_eq!(bench.asked.len(), 1);
}

#[test]
fn a_resumed_turn_takes_nothing_between_calls_and_their_results() {
    let mut bench = with_pending(&[("par", "{}"), ("seq", "{}")]);
    bench.arrive(Arrived::Person("and?".into()));
    bench.rules.resumed = true;
    bench.begin();
    assert!(matches!(bench.effects.back(), Some(Effect::RunTools { .. })), "{:?}", bench.effects);
    assert_eq!(bench.effects.iter().filter(|e| matches!(e, Effect::Append { .. })).count(), 0);
}
