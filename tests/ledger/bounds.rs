//! Everything at its maximum: honest refusals, one apply for a stop, rows that fit. The bench
//! finds for every apply that it loads no more keys than a store takes, and writes no larger row.

use dogwatch::core::arrival::What;
use dogwatch::core::execution::{Outcome, Scope, Status};
use dogwatch::core::id::{ID_BYTES_MAX, Principal};
use dogwatch::core::ledger::Refusal;
use dogwatch::core::ledger::session::{Accepted, Allowance, Release, Token, Why};
use dogwatch::core::limits::{
    CARRIED_PER_TURN_MAX, LIVE_PER_SESSION_MAX, NOTICES_UNREAD_AND_LIVE_MAX, OUTPUT_BYTES_MAX,
    PEOPLE_UNREAD_MAX,
};
use dogwatch::core::output::Captured;

use super::bench::{Bench, Wish, model, outcome, result};

fn roomy() -> Bench {
    let mut bench = Bench::new();
    bench.allowance = Allowance { wakes: 1_000, tokens: 1_000_000_000, spawns: 1_000 };
    bench
}

/// As long a name as there may be, so that rows are as large as they get.
fn long_name() -> Principal {
    Principal::new("a".repeat(ID_BYTES_MAX)).unwrap()
}

fn fill_people(bench: &mut Bench, round: usize) {
    let putting_up = std::mem::replace(&mut bench.putting_up, true);
    for i in 0..=PEOPLE_UNREAD_MAX {
        let key = format!("m{round}.{i}");
        let mut incoming = bench.incoming(&key, What::Message { text: "hello".into() });
        incoming.principal = long_name();
        match bench.accept(incoming) {
            Ok(Accepted::New(_)) => {}
            Err(Refusal::Full(unread)) => {
                assert_eq!(unread, PEOPLE_UNREAD_MAX);
                bench.putting_up = putting_up;
                return;
            }
            other => panic!("{other:?}"),
        }
    }
    panic!("the inbox is never full");
}

/// As many unread completions and live executions as there may be.
fn fill_notices(bench: &mut Bench, token: &Token) {
    bench.putting_up = true;
    let mut call = 1;
    for _ in LIVE_PER_SESSION_MAX..NOTICES_UNREAD_AND_LIVE_MAX {
        let wish = Wish { call, shown: true, ..Wish::default() };
        let id = match bench.try_register(token, &wish) {
            Ok(registered) => registered.id,
            Err(Refusal::Cap { .. }) => break,
            other => panic!("{other:?}"),
        };
        bench.complete(&id, &outcome(Status::Completed, "exit 0")).unwrap();
        call += 1;
    }
    while bench.try_register(token, &Wish { call, ..Wish::default() }).is_ok() {
        call += 1;
    }
    bench.putting_up = false;
}

#[test]
fn a_full_inbox_is_refused_and_nothing_else_is() {
    let mut bench = roomy();
    fill_people(&mut bench, 0);
    bench.pass(1_000);
    let token = bench.claim("a");
    let refused = bench.incoming("more", What::Message { text: "more".into() });
    assert!(matches!(bench.accept(refused.clone()), Ok(Accepted::New(_))), "some were taken");
    assert!(matches!(bench.accept(refused), Ok(Accepted::Duplicate(_))));
    bench.answer(&token, "so many");
    bench.commit(&token).unwrap();
}

#[test]
fn live_work_and_unread_results_have_their_caps() {
    let mut bench = roomy();
    bench.say("start all");
    let token = bench.claim("a");
    bench.answer(&token, "starting");
    for call in 0..LIVE_PER_SESSION_MAX {
        let call = u32::try_from(call).unwrap();
        bench.try_register(&token, &Wish { call, ..Wish::default() }).unwrap();
    }
    let more = Wish { call: 999, ..Wish::default() };
    let capped = bench.try_register(&token, &more);
    assert!(matches!(capped, Err(Refusal::Cap { limit: LIVE_PER_SESSION_MAX, .. })), "{capped:?}");
    for id in bench.live() {
        bench.complete(&id, &outcome(Status::Completed, "exit 0")).unwrap();
    }
    let mut bench = roomy();
    bench.say("start all");
    let token = bench.claim("a");
    bench.answer(&token, "starting");
    fill_notices(&mut bench, &token);
    let (live, unread) = (bench.live().len(), bench.inbox().notices.len());
    assert_eq!((live, live + unread), (LIVE_PER_SESSION_MAX, NOTICES_UNREAD_AND_LIVE_MAX));
}

#[test]
fn unread_results_have_their_cap_without_live_work() {
    let mut bench = roomy();
    bench.say("start all");
    let token = bench.claim("a");
    bench.answer(&token, "starting");
    bench.putting_up = true;
    for call in 0..NOTICES_UNREAD_AND_LIVE_MAX {
        let call = u32::try_from(call).unwrap();
        let id = bench.try_register(&token, &Wish { call, ..Wish::default() }).unwrap().id;
        bench.complete(&id, &outcome(Status::Completed, "exit 0")).unwrap();
    }
    bench.putting_up = false;
    let capped = bench.try_register(&token, &Wish { call: 999, ..Wish::default() });
    let limit = NOTICES_UNREAD_AND_LIVE_MAX;
    assert!(matches!(capped, Err(Refusal::Cap { limit: l, .. }) if l == limit), "{capped:?}");
}

/// A turn that carries all it can, an inbox that is full, work at its caps.
fn everything() -> (Bench, Token) {
    let mut bench = roomy();
    fill_people(&mut bench, 0);
    bench.pass(1_000);
    let token = bench.claim("a");
    bench.answer(&token, "starting");
    fill_notices(&mut bench, &token);
    for round in 1.. {
        let carried = bench.turn(token.turn).carried.len();
        bench.append(&token, vec![model("on", &["look"])], true).unwrap();
        fill_people(&mut bench, round);
        if bench.turn(token.turn).carried.len() == carried {
            assert_eq!(carried, CARRIED_PER_TURN_MAX);
            return (bench, token);
        }
    }
    unreachable!()
}

#[test]
fn a_stop_with_everything_at_its_maximum_is_one_apply() {
    let (mut bench, _) = everything();
    let live = bench.live().len();
    let answer = bench.stop(Scope::All);
    assert_eq!((answer.ended, answer.turn), (live, true));
    assert_eq!(bench.inbox(), dogwatch::core::ledger::row::Inbox::default());
}

#[test]
fn a_burial_with_everything_at_its_maximum_is_one_apply() {
    let (mut bench, token) = everything();
    bench.run(&Release { token, why: Why::Fatal("no".into()) }).unwrap();
    assert_eq!(bench.head().open, None);
}

#[test]
fn what_a_turn_has_not_answered_fits_back_into_the_inbox() {
    let mut bench = roomy();
    fill_people(&mut bench, 0);
    bench.pass(1_000);
    let token = bench.claim("a");
    let entry = bench.ask(&token, &["look"; 32]);
    // Results alone answer nobody, so all that is taken with them may come back.
    for call in 0..32 {
        bench.append(&token, vec![result(entry, call, None)], true).unwrap();
        fill_people(&mut bench, 1 + call as usize);
    }
    bench.run(&Release { token, why: Why::Fatal("no".into()) }).unwrap();
    assert!(bench.inbox().people.len() <= PEOPLE_UNREAD_MAX * 2);
}

#[test]
fn an_execution_with_all_its_late_facts_fits_a_row() {
    let mut bench = Bench::new();
    bench.say("watch it");
    let token = bench.claim("a");
    let id = bench.start(&token, &Wish::default());
    // Each byte of it needs an escape.
    let half = "\"".repeat(OUTPUT_BYTES_MAX / 2);
    let stream =
        Captured { head: half.clone(), tail: half, bytes: 1 << 20, missing_bytes: 1 << 19 };
    for elapsed_ms in 0..10 {
        let (stdout, stderr) = (stream.clone(), stream.clone());
        let bare = outcome(Status::Failed, "exit 1");
        let report = Outcome { stdout, stderr, elapsed_ms, ..bare };
        bench.complete(&id, &report).unwrap();
    }
}

#[test]
fn a_shown_execution_has_a_message_from_its_start_to_its_end() {
    let mut bench = Bench::new();
    bench.say("hello");
    let token = bench.claim("a");
    let wish = Wish { shown: true, key: Some("deploy"), ..Wish::default() };
    let first = bench.start(&token, &wish);
    let second = bench.start(&token, &Wish { call: 1, ..wish });
    let third = bench.start(&token, &Wish { call: 2, key: None, ..wish });
    let silent = bench.start(&token, &Wish { call: 3, ..Wish::default() });
    bench.answer(&token, "started");
    bench.commit(&token).unwrap();
    bench.complete(&third, &outcome(Status::Completed, "exit 0")).unwrap();
    bench.complete(&third, &outcome(Status::Failed, "again")).unwrap();
    bench.complete(&silent, &outcome(Status::Completed, "exit 0")).unwrap();
    bench.stop(Scope::All);
    let line = |first: String| {
        let mut line = vec![first];
        while let Some(next) = bench.item(line.last().unwrap()).unwrap().next {
            line.push(next.to_string());
        }
        line
    };
    // Each has a line of its own: what is put off there holds up no answer.
    for id in [&first, &second, &third] {
        assert_eq!(line(format!("show/{id}")), [format!("show/{id}"), format!("finish/{id}")]);
    }
    assert_eq!(line("post/1/0".to_owned()), ["post/1/0"]);
    assert!(bench.item(&format!("show/{silent}")).is_none());
    assert!(bench.item(&format!("finish/{silent}")).is_none());
}
