//! Any model, any tools, any arrivals, any crash: what holds for every turn.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::bench::{Arrived, Bench, Crash, End, SILENT, rules, says, scripted};
use crate::core::budget::{ChainLeft, Limits};
use crate::core::message::Answer;
use crate::core::transcript::{Body, Call, Finish, Origin};
use crate::core::turn::{AfterCrash, Effect, Input, Rules, Why};

#[derive(Debug, Clone)]
struct World {
    rules: Rules,
    answers: Vec<Answer>,
    arrivals: Vec<(usize, bool)>,
    earlier: Option<String>,
}

impl World {
    fn bench(&self) -> Bench {
        let mut bench = Bench::new(self.rules.clone());
        bench.earlier.clone_from(&self.earlier);
        for (n, (at, person)) in self.arrivals.iter().enumerate() {
            let text = format!("<arrival {n}>");
            let what = if *person { Arrived::Person(text) } else { Arrived::Notice(text) };
            bench.schedule.push((*at, what));
        }
        // What is due earlier arrives earlier, also where one append makes both due.
        bench.schedule.sort_by_key(|(at, _)| *at);
        bench
    }

    /// The answer after so many answers; its text tells which.
    fn answer(&self, log: &[(u64, crate::core::transcript::Entry)]) -> Answer {
        let so_far = log.iter().filter(|(_, e)| matches!(e.body, Body::Model { .. })).count();
        let mut answer = scripted(&self.answers, log);
        if !answer.text.is_empty() {
            answer.text = format!("<answer {so_far}>");
        }
        answer
    }

    /// Every third kind of arguments is a mistake.
    fn tool(call: &Call) -> Value {
        match call.arguments.len() % 3 {
            0 => json!({"error": {"code": "wrong"}}),
            1 => json!("plain"),
            _ => json!({"status": "ok"}),
        }
    }

    fn run(&self, crash: Option<Crash>) -> (Bench, End) {
        let mut bench = self.bench();
        let end = bench.run(&mut |log| Ok(self.answer(log)), &mut Self::tool, crash);
        (bench, end)
    }
}

fn call() -> impl Strategy<Value = Call> {
    let names = ["seq", "once", "par", "par_once", "look", "unheard of", SILENT];
    let arguments = ["{}", "", "{\"a\": 1}", "{\"a\":1}", "{\"id\":\"w1\"}", "[]", "{\"a\":"];
    (0..names.len(), 0..arguments.len(), 0..3usize).prop_map(move |(name, argument, id)| Call {
        id: ["a", "b", ""][id].into(),
        name: names[name].into(),
        arguments: arguments[argument].into(),
    })
}

fn answer() -> impl Strategy<Value = Answer> {
    let silent = Call { id: "s".into(), name: SILENT.into(), arguments: "{}".into() };
    let calls = prop_oneof![
        4 => prop::collection::vec(call(), 1..6),
        1 => Just(vec![silent]),
        3 => Just(vec![]),
    ];
    let finish = prop_oneof![
        6 => Just(Finish::Stop),
        3 => Just(Finish::ToolCalls),
        1 => Just(Finish::Length),
        1 => Just(Finish::Filtered),
    ];
    (any::<bool>(), calls, finish).prop_map(|(text, calls, finish)| Answer {
        calls,
        finish,
        ..says(if text { "text" } else { "" })
    })
}

fn limits() -> impl Strategy<Value = Limits> {
    (1u32..8, 1u32..14, 1usize..5, 0u32..4, 2u32..4).prop_map(
        |(model_calls, tool_calls, calls_per_answer, extra_rounds, alert)| Limits {
            model_calls,
            tool_calls,
            calls_per_answer,
            extra_rounds,
            loop_alert_at: alert,
            loop_end_at: alert + 1,
            probes_unchanged: alert,
        },
    )
}

fn world() -> impl Strategy<Value = World> {
    let tokens = prop_oneof![3 => Just(100_000u64), 1 => 0u64..60];
    let chain =
        (tokens, 0u32..3).prop_map(|(tokens, wakes)| ChainLeft { tokens, wakes, spawns: 1 });
    let parts = (any::<bool>(), limits(), chain, any::<bool>());
    let rules = parts.prop_map(|(human, limits, chain, looks_back)| Rules {
        limits,
        chain,
        looks_back,
        ..rules(if human { Origin::Human } else { Origin::Synthetic })
    });
    let arrivals = prop::collection::vec((1usize..25, any::<bool>()), 0..8);
    let earlier = prop::option::of(Just("<earlier>".to_owned()));
    (rules, prop::collection::vec(answer(), 1..9), arrivals, earlier)
        .prop_map(|(rules, answers, arrivals, earlier)| World { rules, answers, arrivals, earlier })
}

fn crash() -> impl Strategy<Value = Crash> {
    (0usize..40, any::<bool>()).prop_map(|(at, after)| Crash { at, after })
}

fn answers_in(bench: &Bench) -> Vec<(String, bool)> {
    let answer = |body: &Body| match body {
        Body::Model { text, calls, .. } => Some((text.clone(), calls.is_empty())),
        _ => None,
    };
    bench.log.iter().filter_map(|(_, entry)| answer(&entry.body)).collect()
}

/// What holds whatever happened.
fn check(world: &World, bench: &Bench, end: &End) -> Result<(), TestCaseError> {
    let End::Committed(posts) = end else { panic!("{end:?}") };
    let limits = world.rules.limits;

    let answers = answers_in(bench);
    prop_assert!(answers.len() <= limits.model_calls as usize + 1);
    let ran: BTreeSet<_> = bench.ran.iter().map(|(entry, call, _)| (*entry, *call)).collect();
    prop_assert!(ran.len() <= limits.tool_calls as usize);

    // Each arrival stands in the log once, or waits for the next turn.
    let log = serde_json::to_string(&bench.log).unwrap();
    let left = format!("{:?} {:?}", bench.inbox, bench.schedule);
    for n in 0..world.arrivals.len() {
        let text = format!("<arrival {n}>");
        let (in_log, waiting) = (log.matches(&text).count(), left.matches(&text).count());
        prop_assert_eq!(in_log + waiting, 1, "{} {} {}", text, in_log, waiting);
    }

    // What was said before stands in the log at most once, and before every answer.
    let earlier = log.matches("<earlier>").count();
    let expected = world.rules.looks_back && world.earlier.is_some() && !answers.is_empty();
    prop_assert_eq!(earlier, usize::from(expected));

    // Posted is what has no calls beside it, in order.
    let all = posts.join("\n");
    let mut from = 0;
    for (text, posted) in answers {
        if !text.is_empty() {
            let at = all.get(from..).unwrap().find(&text);
            prop_assert_eq!(at.is_some(), posted, "{} in {:?}", text, posts);
            from += at.unwrap_or(0);
        }
    }

    // Silence only where it was asked for, never towards a person.
    let silent = matches!(&bench.log.last().unwrap().1.body, Body::Tool { .. });
    prop_assert!(!posts.is_empty() || silent);
    prop_assert!(!posts.is_empty() || world.rules.origin == Origin::Synthetic);
    prop_assert!(posts.iter().all(|post| !post.trim().is_empty()));

    // A round that arrivals added follows an end.
    let bodies: Vec<_> = bench.log.iter().map(|(_, entry)| &entry.body).collect();
    let rounds = bodies.windows(2).filter(|pair| {
        matches!(pair[0], Body::Model { calls, .. } if calls.is_empty())
            && matches!(pair[1], Body::Heard { .. } | Body::Notice(_))
    });
    prop_assert!(rounds.count() <= limits.extra_rounds as usize);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 512,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_turn_ends_within_its_bounds(world in world()) {
        let (bench, end) = world.run(None);
        check(&world, &bench, &end)?;
        prop_assert!(bench.asked.len() <= world.rules.limits.model_calls as usize + 1);
        if let Some(last) = bench.asked.iter().position(|tools| !tools) {
            prop_assert_eq!(last + 1, bench.asked.len(), "nothing follows a last word");
        }
    }

    #[test]
    fn every_turn_ends_after_a_crash_at_any_point(world in world(), crash in crash()) {
        let (bench, end) = world.run(Some(crash));
        check(&world, &bench, &end)?;
        let once = |call: &Call| call.name.contains("once");
        let mut ran = BTreeSet::new();
        for (entry, no, call) in &bench.ran {
            prop_assert!(ran.insert((entry, no)) || !once(call), "{} ran twice", call.name);
        }
    }

    #[test]
    fn b05_a_crash_changes_nothing_where_all_can_be_run_again(world in world(), crash in crash()) {
        let mut world = world;
        for rule in &mut world.rules.tools {
            rule.after_crash = AfterCrash::Rerun;
        }
        let (undisturbed, end) = world.run(None);
        let (crashed, same) = world.run(Some(crash));
        prop_assert_eq!(end, same);
        prop_assert_eq!(undisturbed.log, crashed.log);
    }

    /// Appends are slow, tools end in any order, and processes end while things are under way.
    #[test]
    fn a_handover_loses_nothing_and_runs_nothing_twice(
        world in world(),
        choices in prop::collection::vec(0u8..16, 200),
    ) {
        let mut bench = world.bench();
        let mut running: Vec<(u64, u32)> = vec![];
        let mut seen = BTreeSet::new();
        let mut choices = choices.into_iter();
        let end = loop {
            let choice = choices.next().unwrap_or(1);
            if choice == 0 {
                bench.step(Input::Shutdown);
            } else if choice % 2 == 0 && !running.is_empty() {
                let (_, call) = running.swap_remove(choice as usize % running.len());
                bench.step(Input::ToolDone { call, result: json!({"call": call}), collect: None });
            } else if let Some(effect) = bench.effects.pop_front() {
                match effect {
                    Effect::CallModel { .. } => {
                        // Answers come later than a shutdown may.
                        if choice == 15 {
                            bench.step(Input::Shutdown);
                        }
                        let answer = world.answer(&bench.log);
                        bench.step(Input::Answered(answer));
                    }
                    Effect::LookBack => bench.look_back(),
                    Effect::RunTools { entry, calls } => {
                        for (call, made) in calls {
                            prop_assert!(seen.insert((entry, call)), "{} twice", made.name);
                            bench.ran.push((entry, call, made));
                            running.push((entry, call));
                        }
                    }
                    Effect::Append { new, take } => {
                        let appended = bench.append(new, take);
                        bench.step(appended);
                        bench.check_fold();
                    }
                    Effect::Release(why) => {
                        prop_assert_eq!(why, Why::Handover);
                        prop_assert!(running.is_empty(), "released while {:?} run", running);
                        prop_assert!(bench.effects.is_empty());
                        bench.rules.resumed = true;
                        bench.begin();
                    }
                    Effect::Commit { posts } => {
                        bench.check_commit();
                        break End::Committed(posts);
                    }
                    Effect::Progress(_) => {}
                }
            } else if let Some((_, call)) = running.pop() {
                bench.step(Input::ToolDone { call, result: json!({"call": call}), collect: None });
            } else {
                panic!("the turn hangs");
            }
        };
        check(&world, &bench, &end)?;
        for (entry, call, _) in &bench.ran {
            let ended = bench.log.iter().any(|(_, e)| matches!(&e.body,
                Body::Tool { entry: by, call: no, result, .. }
                    if by == entry && no == call && result["call"] == *call));
            prop_assert!(ended, "the result of {:?} is lost", (entry, call));
        }
        prop_assert!(bench.results().iter().all(|r| r["error"]["code"] != "interrupted"));
    }
}
