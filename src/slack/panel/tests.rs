use super::*;
use crate::core::execution::{Outcome, Status};
use crate::slack::place::principal;
use crate::slack::tests::execution as sample;

fn by(user: &str) -> Asker {
    let thread = Thread::new("T1", "C2", "1700000000.000100").unwrap();
    let by = principal("T1", user).unwrap();
    Asker { thread, user: user.to_owned(), by, first: false, said_at: Timestamp::ZERO }
}

fn execution(n: usize, owner: &str, state: State) -> Execution {
    let owner = by(owner).by;
    let (at, name) = (Timestamp::from_ms(1_000), format!("deploy {n} <!channel>"));
    let one = sample(&format!("w-{n}"), &name, state);
    Execution { owner, registered_at: at, started_at: Some(at), ..one }
}

fn view(live: Vec<Execution>, ended: Vec<Execution>) -> SessionView {
    SessionView {
        turn: Some((7, 1)),
        people: 0,
        notices: 0,
        stopped: false,
        not_before: None,
        live,
        ended,
        unposted: 0,
        shown: std::collections::BTreeMap::new(),
    }
}

fn now() -> Timestamp {
    Timestamp::from_ms(61_000)
}

/// Each button's action and value, in order.
fn pressable(told: &Told) -> Vec<(String, String)> {
    let mut found = vec![];
    let mut left = vec![told.blocks.clone().unwrap()];
    while let Some(value) = left.pop() {
        if let Some(action) = value.get("action_id").and_then(Value::as_str) {
            let value = value.get("value").and_then(Value::as_str).unwrap();
            found.push((action.to_owned(), value.to_owned()));
        }
        match value {
            Value::Array(all) => left.extend(all.into_iter().rev()),
            Value::Object(all) => left.extend(all.into_iter().map(|(_, value)| value)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    found
}

#[test]
fn what_runs_is_shown_with_its_buttons() {
    let ended = State::Ended(Outcome::bare(Status::Completed, String::new()));
    let live = vec![
        execution(1, "U7", State::Running),
        execution(2, "U8", State::Running),
        execution(3, "U7", State::Cancelling),
    ];
    let view = view(live, vec![execution(4, "U7", ended)]);
    insta::assert_json_snapshot!(status(&view, &by("U7"), now()).blocks);
    let told = watchers(&view, &by("U8"), now());
    assert!(told.text.contains("`w-4` completed"), "{told:?}");
    let mine = pressable(&told);
    let spot = |what: &str| format!("C2/1700000000.000100/{what}");
    let wanted = [(CANCEL_LISTED, "w-2"), (RUNNING, ""), (STOP, "7"), (STOP_ALL, "")];
    let wanted = wanted.map(|(action, what)| (action.to_owned(), spot(what)));
    assert_eq!(mine, wanted, "others' work has no button");
}

#[test]
fn a_full_thread_keeps_slacks_limits() {
    let live = |n| (0..n).map(|n| execution(n, "U7", State::Running)).collect();
    let full = view(live(50), vec![]);
    for told in [status(&full, &by("U7"), now()), watchers(&full, &by("U7"), now())] {
        let blocks = told.blocks.clone().unwrap();
        assert!(blocks.as_array().unwrap().len() <= 50);
        assert_eq!(pressable(&told).len(), SLACK_LISTED_MAX + 3);
        let long = |block: &Value| {
            let text = block.pointer("/text/text").and_then(Value::as_str);
            text.is_some_and(|text| text.chars().count() > 3_000)
        };
        assert!(!blocks.as_array().unwrap().iter().any(long));
    }
    let mut idle = view(vec![], vec![]);
    idle.turn = None;
    assert_eq!(pressable(&status(&idle, &by("U7"), now())).len(), 1, "nothing to be stopped");
}
