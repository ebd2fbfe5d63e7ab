//! The loop, its end, arrivals in it, and what is posted.

use serde_json::json;

use super::bench::{Arrived, Bench, End, SILENT, calls, rules, says};
use crate::core::message::{Answer, ModelError};
use crate::core::time::Timestamp;
use crate::core::transcript::{Body, Finish, Origin, Usage};
use crate::core::turn::{Effect, Input, Progress, Rules, Why};

fn posted(bench: &mut Bench, answers: &[Answer]) -> Vec<String> {
    match bench.play(answers) {
        End::Committed(posts) => posts,
        End::Released(why) => panic!("{why:?}"),
    }
}

fn kinds(bench: &Bench) -> Vec<&'static str> {
    let kind = |body: &Body| match body {
        Body::Heard { .. } => "heard",
        Body::Remark { .. } => "remark",
        Body::Notice(_) => "notice",
        Body::Earlier(_) => "earlier",
        Body::Model { .. } => "model",
        Body::Tool { notice: None, .. } => "tool",
        Body::Tool { notice: Some(_), .. } => "tool+notice",
        Body::Note { .. } => "note",
        Body::Closing { .. } => "closing",
    };
    bench.log.iter().map(|(_, entry)| kind(&entry.body)).collect()
}

#[test]
fn an_answer_is_posted() {
    let mut bench = Bench::new(rules(Origin::Human));
    assert_eq!(posted(&mut bench, &[says(" hi \n")]), ["hi"]);
    assert_eq!(bench.asked, [true]);
    assert_eq!(kinds(&bench), ["heard", "model"]);
}

#[test]
fn text_beside_calls_is_progress_only() {
    let mut bench = Bench::new(rules(Origin::Human));
    let posts = posted(&mut bench, &[calls(&[("seq", "{}")]), says("done")]);
    assert_eq!(posts, ["done"]);
    let shown = [Progress::Discarded, Progress::Tool { name: "seq".into() }, Progress::Whole];
    assert_eq!(bench.progress, shown);
}

#[test]
fn b08_a_busy_turn_hears_at_each_end_of_a_batch() {
    let mut bench = Bench::new(rules(Origin::Human));
    let busy = |n: usize| {
        let n = format!("{{\"n\":{n}}}");
        calls(&[("seq", &n), ("par", &n), ("par", &format!("{n} "))])
    };
    let mut answers: Vec<_> = (0..20).map(busy).collect();
    answers.push(says("done"));
    // One in the middle of each batch.
    for n in 0..20 {
        bench.schedule.push((3 + n * 4, Arrived::Notice(format!("w{n} completed"))));
    }
    posted(&mut bench, &answers);
    let deferred = bench.log.iter().filter(|(_, entry)| entry.carries.len() > 1).count();
    assert_eq!(deferred, 0, "each was read at the end of the batch in which it came");
    assert_eq!(kinds(&bench).iter().filter(|kind| **kind == "tool+notice").count(), 20);
    assert!(bench.inbox.is_empty());
}

#[test]
fn b18_a_notice_enters_the_log_once() {
    let mut bench = Bench::new(rules(Origin::Human));
    bench.schedule.push((2, Arrived::Notice("w1 completed".into())));
    let posts = posted(&mut bench, &[calls(&[("seq", "{}")]), says("both done")]);
    assert_eq!(posts, ["both done"]);
    assert_eq!(kinds(&bench), ["heard", "model", "tool+notice", "model"]);
    bench.begin();
    assert_eq!(bench.effects, [Effect::Commit { posts }], "nothing is left to be woken for");
}

#[test]
fn b19_twenty_completions_are_one_text_in_the_last_result() {
    let mut bench = Bench::new(rules(Origin::Human));
    for n in 0..20 {
        bench.schedule.push((2, Arrived::Notice(format!("<w{n}>"))));
    }
    posted(&mut bench, &[calls(&[("seq", "{}"), ("par", "{}")]), says("done")]);
    assert_eq!(kinds(&bench), ["heard", "model", "tool", "tool+notice", "model"]);
    let (_, entry) = &bench.log[3];
    let Body::Tool { notice: Some(notice), .. } = &entry.body else { panic!() };
    for n in 0..20 {
        assert_eq!(notice.text.matches(&format!("<w{n}>")).count(), 1);
    }
    assert_eq!(entry.carries.len(), 20);
}

#[test]
fn b27_a_persons_words_stand_before_a_notice_of_the_same_take() {
    let mut bench = Bench::new(rules(Origin::Human));
    bench.schedule.push((1, Arrived::Notice("w1 completed".into())));
    bench.schedule.push((1, Arrived::Person("something else".into())));
    let posts = posted(&mut bench, &[says("one"), says("two")]);
    assert_eq!(kinds(&bench), ["heard", "model", "heard", "notice", "model"]);
    assert_eq!(posts, ["one", "two"]);
}

#[test]
fn steering_waits_for_the_end_of_the_batch() {
    let mut bench = Bench::new(rules(Origin::Human));
    bench.schedule.push((2, Arrived::Person("wait".into())));
    let batch = calls(&[("par", "{}"), ("par", "{\"a\":1}"), ("seq", "{}")]);
    let posts = posted(&mut bench, &[batch, says("as you wish")]);
    assert_eq!(kinds(&bench), ["heard", "model", "tool", "tool", "tool", "heard", "model"]);
    assert_eq!(posts, ["as you wish"]);
    let takes: Vec<bool> = bench.appends.iter().map(|(_, take)| *take).collect();
    assert_eq!(takes, [false, false, false, true, true]);
}

#[test]
fn arrivals_at_the_end_add_three_rounds_and_no_more() {
    let mut bench = Bench::new(rules(Origin::Human));
    for n in 0..9 {
        bench.schedule.push((1 + 2 * n, Arrived::Person(format!("and {n}"))));
    }
    let answers: Vec<_> = (0..9).map(|n| says(&format!("answer {n}"))).collect();
    let posts = posted(&mut bench, &answers);
    assert_eq!(posts, ["answer 0", "answer 1", "answer 2", "answer 3"]);
    assert_eq!(bench.inbox.len() + bench.schedule.len(), 6, "the rest is the next turn's");
}

#[test]
fn silence_ends_a_synthetic_turn_without_a_post() {
    let mut bench = Bench::new(rules(Origin::Synthetic));
    assert_eq!(posted(&mut bench, &[calls(&[(SILENT, r#"{"reason":"no news"}"#)])]), [""; 0]);
    assert_eq!(kinds(&bench), ["notice", "model", "tool"]);
}

#[test]
fn silence_is_no_answer_to_a_person() {
    for (origin, arrives) in [(Origin::Human, None), (Origin::Synthetic, Some("well?"))] {
        let mut bench = Bench::new(rules(origin));
        let mut answers = vec![calls(&[(SILENT, "{}")]), says("yes")];
        if let Some(text) = arrives {
            bench.schedule.push((1, Arrived::Person(text.into())));
            answers.insert(0, calls(&[("seq", "{}")]));
        }
        assert_eq!(posted(&mut bench, &answers), ["yes"]);
        assert_eq!(bench.results().last().unwrap()["error"]["code"], "not_now");
    }
}

#[test]
fn silence_is_possible_once_the_person_has_an_answer() {
    let mut bench = Bench::new(rules(Origin::Synthetic));
    bench.schedule.push((1, Arrived::Person("well?".into())));
    bench.schedule.push((5, Arrived::Notice("w1 completed".into())));
    let answers = [calls(&[("seq", "{}")]), says("not yet"), calls(&[(SILENT, "{}")])];
    assert_eq!(posted(&mut bench, &answers), ["not yet"]);
    assert_eq!(kinds(&bench)[3..], ["heard", "model", "notice", "model", "tool"]);
}

#[test]
fn silence_stands_alone() {
    let mut bench = Bench::new(rules(Origin::Synthetic));
    let both = calls(&[("seq", "{}"), (SILENT, "{}")]);
    assert_eq!(posted(&mut bench, &[both, calls(&[(SILENT, "{}")])]), [""; 0]);
    assert_eq!(bench.results()[0]["error"]["code"], "not_now");
    assert_eq!(bench.asked.len(), 2);
}

#[test]
fn silence_that_the_tool_refuses_is_none() {
    let mut bench = Bench::new(rules(Origin::Synthetic));
    let mut refusal = |_: &_| json!({"error": {"code": "missing_field"}});
    let end = bench.play_with(&[calls(&[(SILENT, "{}")]), says("then so")], &mut refusal);
    assert_eq!(end, End::Committed(vec!["then so".into()]));
}

#[test]
fn what_comes_with_silence_is_answered() {
    let mut bench = Bench::new(rules(Origin::Synthetic));
    bench.schedule.push((2, Arrived::Notice("w1 failed".into())));
    let posts = posted(&mut bench, &[calls(&[(SILENT, "{}")]), says("w1 failed")]);
    assert_eq!(kinds(&bench), ["notice", "model", "tool+notice", "model"]);
    assert_eq!(posts, ["w1 failed"]);
}

#[test]
fn never_silence_without_being_asked_for() {
    let nothing = "(The agent had nothing to say.)";
    let cut = "(The answer was cut: the model reached its output limit.)";
    let withheld = "(The model's provider withheld the answer or the rest of it.)";
    let cases = [
        ("", Finish::Stop, nothing.to_owned()),
        (" \n", Finish::ToolCalls, nothing.to_owned()),
        ("", Finish::Length, cut.to_owned()),
        ("half", Finish::Length, format!("half\n\n{cut}")),
        ("", Finish::Filtered, withheld.to_owned()),
        ("half", Finish::Filtered, format!("half\n\n{withheld}")),
    ];
    for origin in [Origin::Human, Origin::Synthetic] {
        for (text, finish, want) in &cases {
            let mut bench = Bench::new(rules(origin));
            let answer = Answer { finish: *finish, ..says(text) };
            assert_eq!(posted(&mut bench, &[answer]), [want.as_str()], "{text:?} {finish:?}");
        }
    }
}

#[test]
fn an_empty_answer_beside_one_with_text_posts_nothing() {
    let mut bench = Bench::new(rules(Origin::Human));
    bench.schedule.push((1, Arrived::Notice("w1 completed".into())));
    assert_eq!(posted(&mut bench, &[says("hi"), says("")]), ["hi"]);
}

#[test]
fn a_failed_call_gives_the_lane_back() {
    let what = || "503".to_owned();
    let cases = [
        (ModelError::Outage { what: what(), retry_after_ms: Some(9) }, Some((true, Some(9)))),
        (ModelError::Outage { what: what(), retry_after_ms: None }, Some((true, None))),
        (ModelError::Garbled { what: what() }, Some((false, None))),
        (ModelError::Refused { what: what() }, None),
    ];
    for (error, failed) in cases {
        let mut bench = Bench::new(rules(Origin::Human));
        let what = error.to_string();
        let end = bench.run(&mut |_| Err(error.clone()), &mut |_| json!(1), None);
        let why = match failed {
            Some((outage, retry_after_ms)) => Why::Failed { what, outage, retry_after_ms },
            None => Why::Fatal { what },
        };
        assert_eq!(end, End::Released(why));
        assert_eq!(kinds(&bench), ["heard"], "no partial text is kept");
        assert_eq!(bench.progress, []);
        bench.step(Input::Answered(says("too late")));
        assert!(bench.effects.is_empty());
    }
}

#[test]
fn b50_a_turn_without_arrivals_asks_no_model() {
    let (_, effects) =
        crate::core::turn::Turn::begin(rules(Origin::Human), Timestamp::ZERO, vec![]);
    assert!(matches!(effects[..], [Effect::Release(Why::Fatal { .. })]), "{effects:?}");
}

#[test]
fn inputs_and_effects_are_plain_data() {
    let mut bench = Bench::new(rules(Origin::Human));
    bench.step(Input::Answered(Answer { usage: Usage::default(), ..calls(&[("par", "{}")]) }));
    bench.settle();
    let text = serde_json::to_string(&bench.turn).unwrap();
    assert_eq!(serde_json::from_str::<crate::core::turn::Turn>(&text).unwrap(), bench.turn);
    let text = serde_json::to_string(&bench.effects).unwrap();
    assert_eq!(
        serde_json::from_str::<std::collections::VecDeque<Effect>>(&text).unwrap(),
        bench.effects
    );
}

#[test]
fn what_was_said_before_is_read_once_and_stands_before_the_first_answer() {
    let mut bench = Bench::new(Rules { looks_back: true, ..rules(Origin::Human) });
    bench.earlier = Some("bob: it hangs".into());
    assert_eq!(posted(&mut bench, &[calls(&[("look", "{}")]), says("hi")]), ["hi"]);
    assert_eq!(kinds(&bench), ["heard", "earlier", "model", "tool", "model"]);
    assert_eq!(bench.looked_back, 1);
    // Nothing was said: nothing is written.
    let mut bench = Bench::new(Rules { looks_back: true, ..rules(Origin::Human) });
    assert_eq!(posted(&mut bench, &[says("hi")]), ["hi"]);
    assert_eq!((kinds(&bench), bench.looked_back), (vec!["heard", "model"], 1));
}

#[test]
fn a_turn_that_ends_while_it_looks_back_is_handed_over_and_looks_again() {
    let mut bench = Bench::new(Rules { looks_back: true, ..rules(Origin::Human) });
    assert_eq!(bench.effects.pop_front(), Some(Effect::LookBack));
    bench.step(Input::Shutdown);
    assert_eq!(bench.effects.pop_front(), Some(Effect::Release(Why::Handover)));
    // It comes too late.
    bench.step(Input::Earlier(None));
    assert!(bench.effects.is_empty());
    bench.rules.resumed = true;
    bench.begin();
    assert_eq!(bench.effects.pop_front(), Some(Effect::LookBack));
}
