//! Cases in which others lost, doubled or misplaced what was to be delivered.

use dogwatch::core::arrival::{Standing, What};
use dogwatch::core::execution::{Fate, HumanReceipt, Notify, Outcome, Scope, State, Status};
use dogwatch::core::id::{DedupeKey, ExecutionId, PressId, Principal};
use dogwatch::core::ledger::Refusal;
use dogwatch::core::ledger::session::{
    Accept, Accepted, Allowance, Behalf, Cancel, Claimed, Complete, Completed, Forget, Overdue,
    Release, Released, Why,
};
use dogwatch::core::ledger::{Class, Key, Operation};
use dogwatch::core::limits::{
    ATTEMPTS_MAX, HOME_GONE_MS, LATE_FACTS_MAX, LEASE_MS, RETENTION_MS, START_MS_MAX,
};
use dogwatch::core::transcript::{Body, Origin};

use super::bench::{Bench, Wish, boot, model, outcome, result, session};

fn done() -> Outcome {
    outcome(Status::Completed, "exit 0")
}

/// A watcher that runs, started by a turn that is over.
fn watcher(bench: &mut Bench, wish: &Wish) -> ExecutionId {
    bench.say("watch it");
    let token = bench.claim("a");
    let id = bench.start(&token, wish);
    bench.answer(&token, "it runs");
    bench.commit(&token).unwrap();
    id
}

fn failed(bench: &mut Bench, by: &str) -> Released {
    let token = bench.claim(by);
    let what = "no answer".to_owned();
    let why = Why::Failed { what, outage: false, retry_after_ms: None };
    bench.run(&Release { token, why }).unwrap()
}

fn settled(fate: Fate, turn: u64) -> Standing {
    Standing::Settled { fate, turn }
}

#[test]
fn b05_taken_is_not_delivered_until_a_turn_committed() {
    let mut bench = Bench::new();
    let id = watcher(&mut bench, &Wish::default());
    bench.complete(&id, &done()).unwrap();
    bench.claim("a");
    assert_eq!(bench.fate(&id), Standing::Offered(2));
    // Its node dies; whoever resumes the turn still has it.
    bench.pass(LEASE_MS);
    let token = bench.claim("b");
    assert_eq!(bench.turn(2).carried.len(), 1);
    bench.answer(&token, "it is done");
    bench.commit(&token).unwrap();
    assert_eq!(bench.fate(&id), settled(Fate::Acked, 2));
}

#[test]
fn b06_a_notice_outlives_every_failed_attempt_and_every_retention() {
    let mut bench = Bench::new();
    let id = watcher(&mut bench, &Wish::default());
    let other = watcher(&mut bench, &Wish { call: 1, ..Wish::default() });
    bench.complete(&id, &done()).unwrap();
    bench.complete(&other, &done()).unwrap();
    for _ in 1..ATTEMPTS_MAX {
        let Released::Again(at) = failed(&mut bench, "a") else { panic!("given up early") };
        bench.pass(at.since_ms(bench.now));
    }
    assert_eq!(failed(&mut bench, "a"), Released::Buried);
    // Neither failed alone, so both are tried again alone.
    assert!(bench.inbox().notices.iter().all(|unread| unread.solo && unread.wakes));
    bench.pass(RETENTION_MS * 2);
    let keys = vec![Key::execution(&id), Key::arrival(3)];
    bench.run(&Forget { session: session(), keys }).unwrap();
    assert_eq!(bench.fate(&id), Standing::Pending);
    let token = bench.claim("a");
    bench.append(&token, vec![model("", &["look"])], true).unwrap();
    assert_eq!(bench.turn(token.turn).carried.len(), 1, "alone, also later");
}

#[test]
fn b07_a_person_does_not_wait_behind_a_notice_that_fails() {
    let mut bench = Bench::new();
    let id = watcher(&mut bench, &Wish::default());
    bench.complete(&id, &done()).unwrap();
    assert!(matches!(failed(&mut bench, "a"), Released::Again(_)));
    assert!(matches!(bench.try_claim("a"), Err(Refusal::NotYet(_))));
    bench.say("are you there?");
    let token = bench.claim("a");
    let appended = bench.append(&token, vec![model("", &["look"])], true).unwrap();
    assert!(appended.entries.iter().any(|(_, entry)| matches!(entry.body, Body::Heard { .. })));
}

#[test]
fn b07_whoever_cannot_be_answered_is_told_once() {
    let mut bench = Bench::new();
    bench.say("impossible");
    let token = bench.claim("a");
    bench.run(&Release { token, why: Why::Fatal("the request is refused".into()) }).unwrap();
    assert!(matches!(bench.standing(1), Standing::Settled { fate: Fate::Dead(_), turn: 1 }));
    assert_eq!(bench.items(), ["dead/1"]);
    bench.say("and this?");
    bench.turn_of_now("a");
    assert_eq!(bench.items(), ["dead/1", "post/2/0"]);
}

#[test]
fn b08_a_busy_turn_takes_what_ends_meanwhile() {
    let mut bench = Bench::new();
    bench.say("watch it, and dig");
    let token = bench.claim("a");
    let id = bench.start(&token, &Wish::default());
    let entry = bench.ask(&token, &["look", "look"]);
    bench.complete(&id, &done()).unwrap();
    let results = vec![result(entry, 0, None), result(entry, 1, None)];
    let appended = bench.append(&token, results, true).unwrap();
    let (_, last) = appended.entries.last().unwrap();
    assert!(matches!(last.body, Body::Tool { notice: Some(_), call: 1, .. }), "{last:?}");
    assert_eq!((appended.entries.len(), last.carries.len()), (2, 1), "merged, not an entry more");
}

#[test]
fn b18_a_notice_taken_while_busy_wakes_nobody_later() {
    let mut bench = Bench::new();
    bench.say("watch it");
    let token = bench.claim("a");
    let id = bench.start(&token, &Wish::default());
    bench.complete(&id, &done()).unwrap();
    bench.append(&token, vec![model("it runs", &[])], true).unwrap();
    assert_eq!(bench.commit(&token), Err(Refusal::Unseen), "it is not answered yet");
    bench.answer(&token, "and it is done");
    bench.commit(&token).unwrap();
    assert_eq!(bench.head().wake_at, None);
    assert_eq!(bench.try_claim("a"), Err(Refusal::Idle));
}

#[test]
fn b19_every_arrival_stands_in_the_log_once() {
    let mut bench = Bench::new();
    bench.say("one");
    let token = bench.claim("a");
    bench.say("two");
    let entry = bench.ask(&token, &["look"]);
    bench.append(&token, vec![result(entry, 0, None)], true).unwrap();
    // The node dies and another one goes on.
    bench.pass(LEASE_MS);
    let token = bench.claim("b");
    bench.append(&token, vec![model("both", &[])], true).unwrap();
    bench.commit(&token).unwrap();
    let carried: Vec<u64> = bench.log().iter().flat_map(|entry| entry.carries.clone()).collect();
    assert_eq!(carried, [1, 2]);
    let heard = bench.log().iter().filter(|e| matches!(e.body, Body::Heard { .. })).count();
    assert_eq!(heard, 2);
}

#[test]
fn b20_a_result_that_was_fetched_is_not_announced_again() {
    let mut bench = Bench::new();
    bench.say("watch it");
    let token = bench.claim("a");
    let id = bench.start(&token, &Wish::default());
    let entry = bench.ask(&token, &["collect"]);
    bench.complete(&id, &done()).unwrap();
    bench.append(&token, vec![result(entry, 0, Some(&id))], true).unwrap();
    assert!(bench.inbox().notices.is_empty());
    bench.answer(&token, "it is done");
    bench.commit(&token).unwrap();
    assert_eq!(bench.fate(&id), settled(Fate::Collected, 1));
    assert_eq!(bench.try_claim("a"), Err(Refusal::Idle));
}

#[test]
fn b20_what_was_fetched_by_a_turn_that_broke_off_comes_again() {
    let mut bench = Bench::new();
    bench.say("watch it");
    let token = bench.claim("a");
    let id = bench.start(&token, &Wish::default());
    let entry = bench.ask(&token, &["collect"]);
    bench.complete(&id, &done()).unwrap();
    bench.append(&token, vec![result(entry, 0, Some(&id))], false).unwrap();
    bench.run(&Release { token, why: Why::Fatal("no".into()) }).unwrap();
    assert_eq!(bench.fate(&id), Standing::Pending);
    let log = bench.log();
    assert!(log.iter().any(|entry| matches!(entry.body, Body::Tool { .. })), "it happened");
}

#[test]
fn b20_nobody_fetches_the_result_of_another_person() {
    let mut bench = Bench::new();
    let id = watcher(&mut bench, &Wish::default());
    let mut bob = bench.incoming("bob", What::Message { text: "what runs?".into() });
    bob.principal = Principal::new("bob").unwrap();
    bench.accept(bob).unwrap();
    bench.pass(1_000);
    let token = bench.claim("a");
    let entry = bench.ask(&token, &["collect"]);
    bench.complete(&id, &done()).unwrap();
    bench.append(&token, vec![result(entry, 0, Some(&id))], true).unwrap();
    assert_eq!(bench.fate(&id), Standing::Pending, "it still wakes its owner's turn");
}

#[test]
fn b25_work_ends_once_however_often_it_is_reported() {
    let mut bench = Bench::new();
    let id = watcher(&mut bench, &Wish::default());
    assert_eq!(bench.complete(&id, &done()), Ok(Completed::First));
    for elapsed_ms in 1..20 {
        let again = Outcome { elapsed_ms, ..done() };
        assert_eq!(bench.complete(&id, &again), Ok(Completed::Late));
    }
    assert_eq!(bench.inbox().notices.len(), 1);
    assert_eq!(bench.execution(&id).late.len(), LATE_FACTS_MAX);
    bench.turn_of_now("a");
    assert_eq!(bench.complete(&id, &done()), Ok(Completed::Repeat));
    assert_eq!(bench.try_claim("a"), Err(Refusal::Idle));
}

#[test]
fn b26_running_work_says_nothing_at_the_end_of_turns() {
    let mut bench = Bench::new();
    let id = watcher(&mut bench, &Wish::default());
    for _ in 0..5 {
        bench.say("how is it?");
        bench.turn_of_now("a");
        assert_eq!(bench.try_claim("a"), Err(Refusal::Idle));
    }
    assert!(!bench.log().iter().any(|entry| matches!(entry.body, Body::Notice(_))));
    bench.complete(&id, &done()).unwrap();
    let token = bench.turn_of_now("a");
    assert_eq!(bench.turn(token.turn).origin, Origin::Synthetic);
}

#[test]
fn b29_the_end_of_what_was_replaced_is_silent() {
    let mut bench = Bench::new();
    let old = watcher(&mut bench, &Wish { key: Some("the one"), ..Wish::default() });
    let new = watcher(&mut bench, &Wish { call: 1, key: Some("the one"), ..Wish::default() });
    assert_eq!(bench.fate(&old), settled(Fate::Superseded, 0));
    assert!(bench.items().contains(&format!("kill/{old}")));
    let killed = outcome(Status::Cancelled, "killed");
    assert_eq!(bench.complete(&old, &killed), Ok(Completed::Late));
    assert_eq!(bench.try_claim("a"), Err(Refusal::Idle));
    assert_eq!(bench.live(), [new]);
}

#[test]
fn b30_what_was_replaced_has_no_deadline_left() {
    let mut bench = Bench::new();
    let old = watcher(&mut bench, &Wish { key: Some("the one"), ..Wish::default() });
    watcher(&mut bench, &Wish { call: 1, key: Some("the one"), ..Wish::default() });
    assert_eq!(bench.indexes(&Key::execution(&old)), ["expire"]);
    bench.pass(86_400_000);
    let overdue = Overdue { session: session(), execution: old, buried: None };
    assert_eq!(bench.run(&overdue), Ok(false));
    assert!(bench.inbox().notices.is_empty());
}

#[test]
fn b33_a_result_comes_to_its_own_session_and_person() {
    let mut bench = Bench::new();
    let id = watcher(&mut bench, &Wish::default());
    let elsewhere = Complete {
        session: dogwatch::core::id::SessionId::new("bench/other").unwrap(),
        execution: id.clone(),
        outcome: done(),
        boot: boot("a"),
    };
    assert_eq!(bench.run(&elsewhere), Err(Refusal::Unknown));
    bench.complete(&id, &done()).unwrap();
    let mut bob = bench.incoming("bob", What::Message { text: "hello".into() });
    bob.principal = Principal::new("bob").unwrap();
    bench.accept(bob).unwrap();
    bench.pass(1_000);
    let token = bench.turn_of_now("a");
    assert_eq!(bench.turn(token.turn).principal.as_str(), "bob");
    assert_eq!(bench.fate(&id), Standing::Pending, "not in another person's turn");
    let token = bench.turn_of_now("a");
    assert_eq!(bench.turn(token.turn).principal.as_str(), "ann");
    assert_eq!(bench.fate(&id), settled(Fate::Acked, token.turn));
}

#[test]
fn b44_a_chain_that_wakes_itself_comes_to_an_end() {
    let mut bench = Bench::new();
    bench.allowance = Allowance { wakes: 3, ..Allowance::default() };
    let mut id = watcher(&mut bench, &Wish::default());
    for turn in 2..5 {
        bench.complete(&id, &done()).unwrap();
        let token = bench.claim("a");
        id = bench.start(&token, &Wish { call: turn, ..Wish::default() });
        bench.answer(&token, "waiting on");
        bench.commit(&token).unwrap();
    }
    // The fourth only rides, and a person is told once.
    bench.complete(&id, &done()).unwrap();
    assert_eq!(bench.try_claim("a"), Err(Refusal::Idle));
    assert_eq!(bench.items().iter().filter(|id| *id == "spent/1").count(), 1);
    bench.say("go on");
    bench.turn_of_now("a");
    assert!(matches!(bench.fate(&id), Standing::Settled { fate: Fate::Acked, .. }));
}

#[test]
fn b44_a_rider_that_was_to_be_claimed_alone_blocks_nobody() {
    let mut bench = Bench::new();
    bench.allowance = Allowance { wakes: 1, ..Allowance::default() };
    let first = watcher(&mut bench, &Wish::default());
    bench.allowance = Allowance::default();
    let second = watcher(&mut bench, &Wish { call: 1, ..Wish::default() });
    bench.complete(&first, &done()).unwrap();
    bench.complete(&second, &done()).unwrap();
    // A turn with both breaks off; the wake was the first one's last.
    let token = bench.claim("a");
    bench.run(&Release { token, why: Why::Fatal("no".into()) }).unwrap();
    for _ in 0..3 {
        match bench.try_claim("a") {
            Ok(Claimed::Turn(token, _)) => {
                bench.answer(&token, "done");
                bench.commit(&token).unwrap();
            }
            Ok(Claimed::Riders | Claimed::Buried(_)) => {}
            Err(refusal) => assert_eq!(refusal, Refusal::Idle),
        }
    }
    assert!(matches!(bench.fate(&second), Standing::Settled { fate: Fate::Acked, .. }));
    bench.say("and the other?");
    bench.turn_of_now("a");
    assert!(matches!(bench.fate(&first), Standing::Settled { fate: Fate::Acked, .. }));
}

#[test]
fn b107_of_two_who_run_one_turn_one_commits() {
    let mut bench = Bench::new();
    bench.say("hello");
    let first = bench.claim("a");
    bench.answer(&first, "mine");
    bench.pass(LEASE_MS);
    let second = bench.claim("b");
    assert!(second.fence > first.fence);
    assert_eq!(bench.commit(&first), Err(Refusal::Fenced));
    bench.commit(&second).unwrap();
    assert_eq!(bench.commit(&first), Err(Refusal::Fenced));
    assert_eq!(bench.items(), ["post/1/0"]);
}

#[test]
fn b108_a_dead_holder_does_not_keep_the_session_busy() {
    let mut bench = Bench::new();
    bench.say("hello");
    bench.claim("a");
    assert!(matches!(bench.try_claim("b"), Err(Refusal::Busy(_))));
    bench.pass(LEASE_MS);
    let token = bench.claim("b");
    bench.ask(&token, &["look"]);
    // Where one boot holds the store, the lane of any other is void at once.
    bench.sole_boot = Some(boot("c"));
    let token = bench.claim("c");
    bench.answer(&token, "done");
    bench.commit(&token).unwrap();
}

#[test]
fn b108_work_that_nobody_reports_ends_all_the_same() {
    let mut bench = Bench::new();
    let running = watcher(&mut bench, &Wish::default());
    bench.say("and these");
    let token = bench.claim("a");
    let away = bench.start(&token, &Wish { call: 1, ..Wish::default() });
    let waiting = bench.try_register(&token, &Wish { call: 2, ..Wish::default() }).unwrap().id;
    bench.answer(&token, "they run");
    bench.commit(&token).unwrap();
    let look = |id: &ExecutionId, buried: Option<&str>| Overdue {
        session: session(),
        execution: id.clone(),
        buried: buried.map(boot),
    };
    let ended = |bench: &Bench, id: &ExecutionId| match bench.execution(id).state {
        State::Ended(outcome) => Some((outcome.status, outcome.reason.unwrap_or_default())),
        State::Registered | State::Running | State::Cancelling => None,
    };
    // A live home has its deadline, the grace, and some time to report; it is never called lost.
    let due_at = bench.execution(&running).due_at;
    assert!(matches!(bench.run(&look(&running, None)), Err(Refusal::NotYet(at)) if at == due_at));
    bench.pass(START_MS_MAX);
    assert_eq!(bench.run(&look(&running, None)), Ok(true));
    assert_eq!(ended(&bench, &running).map(|end| end.0), Some(Status::TimedOut));
    assert!(bench.items().contains(&format!("kill/{running}")), "it may run on");
    assert_eq!(bench.run(&look(&waiting, None)), Ok(true));
    assert_eq!(ended(&bench, &waiting), Some((Status::Lost, "never-started".into())));
    // The home of a buried boot may come back, for a while.
    assert_eq!(bench.once(&look(&away, Some("a"))), Ok(false));
    assert!(bench.execution(&away).unattended);
    assert!(matches!(bench.run(&look(&away, Some("a"))), Err(Refusal::NotYet(_))));
    bench.pass(HOME_GONE_MS);
    assert_eq!(bench.run(&look(&away, Some("a"))), Ok(true));
    assert_eq!(ended(&bench, &away), Some((Status::Lost, "home gone".into())));
    // Its result comes after all: shown with the unread notice, else told to people.
    assert_eq!(bench.complete(&away, &done()), Ok(Completed::Late));
    assert!(bench.item(&format!("late/{away}")).is_none());
    bench.turn_of_now("a");
    let later = Outcome { elapsed_ms: 7, ..done() };
    assert_eq!(bench.complete(&away, &later), Ok(Completed::Late));
    assert!(bench.item(&format!("late/{away}")).is_some());
}

#[test]
fn b109_accepted_is_on_disk_and_is_answered() {
    let mut bench = Bench::new();
    let incoming = bench.incoming("a", What::Message { text: "hello".into() });
    let accept = Accept { session: session(), incoming, chain: bench.allowance };
    assert_eq!(accept.class(), Class::ADMITS);
    assert_eq!(bench.run(&accept), Ok(Accepted::New(1)));
    assert_eq!(bench.indexes(&Key::head()), ["ready"]);
    bench.pass(1_000);
    bench.turn_of_now("b");
    assert_eq!(bench.standing(1), settled(Fate::Acked, 1));
}

#[test]
fn a_stop_of_everything_ends_it_and_an_older_message_clears_nothing() {
    let mut bench = Bench::new();
    let id = watcher(&mut bench, &Wish::default());
    let ended = watcher(&mut bench, &Wish { call: 1, ..Wish::default() });
    bench.complete(&ended, &done()).unwrap();
    let late = bench.incoming("late", What::Message { text: "before".into() });
    bench.pass(10);
    let answer = bench.stop(Scope::All);
    assert_eq!((answer.ended, answer.turn), (1, false));
    assert_eq!(bench.fate(&id), settled(Fate::Stopped, 0));
    assert_eq!(bench.fate(&ended), settled(Fate::Stopped, 0));
    assert!(matches!(bench.accept(late), Ok(Accepted::Late(_))));
    assert!(bench.head().stopped);
    assert_eq!(bench.complete(&id, &done()), Ok(Completed::Late));
    assert_eq!(bench.head().wake_at, None);
    bench.pass(1);
    bench.say("go on");
    assert!(!bench.head().stopped);
    bench.turn_of_now("a");
}

#[test]
fn an_edit_changes_what_is_unread_and_remarks_on_what_was_read() {
    let mut bench = Bench::new();
    let first = bench.incoming("m1", What::Message { text: "one".into() });
    bench.accept(first).unwrap();
    let of = DedupeKey::new("m1").unwrap();
    let edit = bench.incoming("e1", What::Edit { of: of.clone(), text: "uno".into() });
    assert_eq!(bench.accept(edit), Ok(Accepted::Changed(1)));
    bench.pass(1_000);
    bench.turn_of_now("a");
    assert!(
        bench.log().iter().any(|e| matches!(&e.body, Body::Heard { text, .. } if text == "uno"))
    );
    let delete = bench.incoming("e2", What::Deletion { of });
    assert_eq!(bench.accept(delete), Ok(Accepted::New(2)));
    assert_eq!(bench.try_claim("a"), Err(Refusal::Idle), "a remark rides");
    let second = bench.incoming("m2", What::Message { text: "two".into() });
    bench.accept(second).unwrap();
    let of = DedupeKey::new("m2").unwrap();
    let delete = bench.incoming("e3", What::Deletion { of });
    assert_eq!(bench.accept(delete), Ok(Accepted::Changed(3)));
    assert_eq!(bench.standing(3), Standing::Withdrawn);
}

#[test]
fn what_a_person_cancelled_rides_and_tells_people_as_asked() {
    let mut bench = Bench::new();
    let id = watcher(&mut bench, &Wish { notify: Notify::Both, ..Wish::default() });
    let principal = Principal::new("ann").unwrap();
    let behalf = Behalf::Person { principal, press: PressId::new("p").unwrap() };
    bench.run(&Cancel { session: session(), execution: id.clone(), behalf }).unwrap();
    assert!(bench.indexes(&Key::execution(&id)).contains(&"wish/spool/spool".to_owned()));
    bench.complete(&id, &outcome(Status::Cancelled, "cancelled")).unwrap();
    assert_eq!(bench.try_claim("a"), Err(Refusal::Idle));
    assert_eq!(bench.execution(&id).human, HumanReceipt::Owed);
    assert!(bench.item(&format!("human/{id}")).is_some());
    bench.say("well?");
    bench.turn_of_now("a");
    assert!(matches!(bench.fate(&id), Standing::Settled { fate: Fate::Acked, .. }));
}
