//! Turns and chains that run out.

use super::bench::{Arrived, Bench, End, SILENT, calls, rules, says};
use crate::core::budget::{ChainLeft, Limits};
use crate::core::limits::{MODEL_CALLS_PER_TURN_MAX, TOOL_CALLS_PER_TURN_MAX};
use crate::core::message::Answer;
use crate::core::transcript::{Body, Origin, Usage};

fn posted(bench: &mut Bench, answers: &[Answer]) -> Vec<String> {
    match bench.play(answers) {
        End::Committed(posts) => posts,
        End::Released(why) => panic!("{why:?}"),
    }
}

fn busy(n: usize, width: usize) -> Answer {
    let arguments: Vec<_> = (0..width).map(|m| format!("{{\"n\":{n},\"m\":{m}}}")).collect();
    let made: Vec<_> = arguments.iter().map(|a| ("par", a.as_str())).collect();
    calls(&made)
}

#[test]
fn model_calls_end_with_one_last_word() {
    let mut bench = Bench::new(rules(Origin::Human));
    let mut answers: Vec<_> = (0..50).map(|n| busy(n, 1)).collect();
    answers.push(says("so far"));
    let posts = posted(&mut bench, &answers);
    let max = MODEL_CALLS_PER_TURN_MAX as usize;
    assert_eq!(bench.asked.len(), max + 1);
    assert_eq!(bench.asked.iter().filter(|tools| !**tools).count(), 1);
    assert_eq!(
        posts,
        ["so far\n\n(This turn's budget of 50 model calls is spent. Write a message to go on.)"]
    );
    assert!(matches!(bench.log.last().unwrap().1.body, Body::Closing { .. }));
}

#[test]
fn tool_calls_end_with_one_last_word() {
    let mut bench = Bench::new(rules(Origin::Human));
    let mut answers: Vec<_> = (0..7).map(|n| busy(n, 30)).collect();
    answers.push(says("so far"));
    let posts = posted(&mut bench, &answers);
    assert_eq!(bench.ran.len(), TOOL_CALLS_PER_TURN_MAX as usize);
    let refused = bench.results().iter().filter(|r| r["error"]["code"] == "budget_spent").count();
    assert_eq!(refused, 10);
    assert!(posts[0].contains("200 tool calls"), "{posts:?}");
    assert_eq!(bench.asked.last(), Some(&false));
}

#[test]
fn calls_of_a_last_word_are_dropped() {
    for (text, want) in [("so far", "so far\n\n("), ("", "(This turn's budget of 2 model")] {
        let limits = Limits { model_calls: 2, ..Limits::default() };
        let mut bench = Bench::new(crate::core::turn::Rules { limits, ..rules(Origin::Human) });
        let last = Answer { text: text.into(), ..busy(3, 2) };
        let posts = posted(&mut bench, &[busy(1, 1), busy(2, 1), last]);
        assert_eq!(posts.len(), 1);
        assert!(posts[0].starts_with(want), "{posts:?}");
        assert_eq!(bench.ran.len(), 2);
    }
}

#[test]
fn what_comes_when_the_turn_is_out_of_tools_is_the_next_turns() {
    let limits = Limits { model_calls: 2, ..Limits::default() };
    let mut bench = Bench::new(crate::core::turn::Rules { limits, ..rules(Origin::Human) });
    bench.schedule.push((4, Arrived::Person("do something else".into())));
    posted(&mut bench, &[busy(1, 1), busy(2, 1), says("so far")]);
    assert_eq!(bench.inbox.len(), 1);
}

#[test]
fn what_comes_when_no_model_call_is_left_is_the_next_turns() {
    let limits = Limits { model_calls: 2, ..Limits::default() };
    let mut bench = Bench::new(crate::core::turn::Rules { limits, ..rules(Origin::Human) });
    bench.schedule.push((4, Arrived::Person("do something else".into())));
    assert_eq!(posted(&mut bench, &[busy(1, 1), says("done")]), ["done"]);
    assert_eq!((bench.inbox.len(), bench.asked.len()), (1, 2));
}

#[test]
fn silence_that_spends_a_budget_takes_nothing_more() {
    let spent = [
        Limits { tool_calls: 1, ..Limits::default() },
        Limits { model_calls: 1, ..Limits::default() },
        Limits { extra_rounds: 0, ..Limits::default() },
    ];
    for limits in spent {
        let mut bench = Bench::new(crate::core::turn::Rules { limits, ..rules(Origin::Synthetic) });
        bench.schedule.push((3, Arrived::Notice("w1 completed".into())));
        assert_eq!(posted(&mut bench, &[calls(&[(SILENT, "{}")])]), [""; 0], "{limits:?}");
        assert_eq!(bench.inbox.len(), 1, "{limits:?}");
    }
}

#[test]
fn the_last_allowed_tool_call_is_followed_by_the_last_word() {
    let limits = Limits { tool_calls: 2, ..Limits::default() };
    let mut bench = Bench::new(crate::core::turn::Rules { limits, ..rules(Origin::Human) });
    let posts = posted(&mut bench, &[busy(1, 2), says("so far")]);
    assert_eq!(bench.asked, [true, false]);
    assert!(posts[0].contains("2 tool calls"), "{posts:?}");
}

#[test]
fn a_closing_joins_only_the_answer_right_before_it() {
    let mut bench = with_chain(Origin::Human, 25, 1);
    bench.schedule.push((1, Arrived::Person("more".into())));
    let posts = posted(&mut bench, &[says("one"), busy(1, 1), busy(2, 1)]);
    assert_eq!(posts.len(), 2, "{posts:?}");
    assert_eq!(posts[0], "one");
}

fn with_chain(origin: Origin, tokens: u64, wakes: u32) -> Bench {
    let chain = ChainLeft { tokens, wakes, spawns: 1 };
    Bench::new(crate::core::turn::Rules { chain, ..rules(origin) })
}

#[test]
fn a_spent_chain_closes_the_turn_and_says_so() {
    let mut bench = with_chain(Origin::Human, 15, 1);
    bench.schedule.push((5, Arrived::Person("more".into())));
    let End::Committed(posts) = bench.play(&[busy(1, 1), busy(2, 2), says("no")]) else { panic!() };
    assert_eq!(bench.asked.len(), 2);
    assert_eq!(bench.ran.len(), 1, "no call runs whose result nobody could read");
    assert_eq!(bench.results()[1]["error"]["code"], "budget_spent");
    assert_eq!(posts.len(), 1);
    assert!(posts[0].contains("chain is spent") && posts[0].contains("Write a message"));
    let closings = bench.log.iter().filter(|(_, e)| matches!(e.body, Body::Closing { .. }));
    assert_eq!(closings.count(), 1);
    assert_eq!(bench.inbox.len(), 1, "a person's next message opens a new chain");
}

#[test]
fn a_chain_spent_by_the_answer_still_posts_it() {
    let mut bench = with_chain(Origin::Human, 11, 1);
    bench.schedule.push((1, Arrived::Person("more".into())));
    let posts = posted(&mut bench, &[says("the answer")]);
    assert_eq!(posts.len(), 1);
    assert!(posts[0].starts_with("the answer\n\n(The budget"), "{posts:?}");
    assert_eq!(bench.inbox.len(), 1, "a person's next message opens a new chain");
}

#[test]
fn a_turn_of_a_spent_chain_asks_no_model() {
    let mut bench = with_chain(Origin::Synthetic, 0, 1);
    let posts = posted(&mut bench, &[says("never")]);
    assert!(bench.asked.is_empty());
    assert!(posts[0].contains("chain is spent"), "{posts:?}");
}

/// The last of the wakes: what the model started again will not wake it, and people know.
#[test]
fn b44_the_last_wake_of_a_chain_says_so() {
    let mut bench = with_chain(Origin::Synthetic, 1_000, 0);
    let posts = posted(&mut bench, &[busy(1, 1), says("waiting again")]);
    assert!(posts[0].starts_with("waiting again\n\n(The budget"), "{posts:?}");
    let mut bench = with_chain(Origin::Synthetic, 1_000, 0);
    let posts = posted(&mut bench, &[calls(&[(SILENT, "{}")])]);
    assert!(posts[0].contains("woken the agent as often as it may"), "{posts:?}");
    let mut bench = with_chain(Origin::Synthetic, 1_000, 1);
    assert_eq!(posted(&mut bench, &[calls(&[(SILENT, "{}")])]), [""; 0]);
}

/// Every wake starts another timer: turn by turn the chain's tokens end it.
#[test]
fn b44_a_chain_that_feeds_itself_ends() {
    let mut chain = ChainLeft { tokens: 100, wakes: 50, spawns: 100 };
    let mut turns = 0;
    while !chain.is_spent() && chain.wakes > 0 {
        turns += 1;
        let rules = crate::core::turn::Rules { chain, ..rules(Origin::Synthetic) };
        let mut bench = Bench::new(rules);
        posted(&mut bench, &[busy(turns, 1), says("again")]);
        chain = ChainLeft { wakes: chain.wakes - 1, ..bench.rules.chain };
    }
    assert_eq!(turns, 5, "22 tokens a turn");
}

#[test]
fn usage_that_is_not_reported_counts_as_it_was_estimated() {
    let mut bench = with_chain(Origin::Human, 50, 1);
    let usage = Usage { input_tokens: 60, output_tokens: 0, reported: false };
    let posts = posted(&mut bench, &[Answer { usage, ..says("hm") }]);
    assert!(posts[0].contains("chain is spent"));
}
