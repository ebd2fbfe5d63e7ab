//! Every refusal, once. The bench finds that none of them changes anything.

use dogwatch::core::arrival::{Incoming, What};
use dogwatch::core::execution::{Notify, Outcome, Scope, Status};
use dogwatch::core::id::{DedupeKey, ExecutionId, ItemId, LeaseId, PressId, Principal};
use dogwatch::core::ledger::Refusal;
use dogwatch::core::ledger::node::{Beat, Bury, ForgetNode};
use dogwatch::core::ledger::session::{
    Accept, Accepted, Adopt, Allowance, Append, Behalf, Cancel, Claimed, Commit, Compact, Complete,
    DoneItem, FailItem, HomeLost, LeaseItem, Overdue, Release, Released, Renew, Retry, Started,
    Token, Why,
};
use dogwatch::core::limits::{
    ATTEMPTS_MAX, BACKOFF_FIRST_MS, CROWD_ATTEMPTS_MAX, DEDUPE_KEYS_MAX, LEASE_MS,
    MESSAGE_BYTES_MAX, SETTLE_MS,
};
use dogwatch::core::transcript::{Body, Notice};

use super::bench::{Bench, Wish, boot, model, outcome, register, result, session, spool};

fn nobody() -> ExecutionId {
    ExecutionId::new("auto-notify-nobo-0001").unwrap()
}

fn done() -> Outcome {
    outcome(Status::Completed, "exit 0")
}

#[test]
fn what_vanished_more_than_once_is_tried_only_alone() {
    let mut bench = Bench::new();
    bench.say("hello");
    for _ in 0..CROWD_ATTEMPTS_MAX {
        bench.claim("a");
        bench.pass(LEASE_MS);
    }
    assert_eq!(bench.try_claim("a"), Err(Refusal::Crowd));
    assert_eq!(bench.turn(1).attempt, CROWD_ATTEMPTS_MAX, "a refusal counts nothing");
    assert!(matches!(bench.try_claim_of("a", true), Ok(Claimed::Turn(..))));
    // Once it answers, whatever it may, others may run beside it again.
    let Ok(Claimed::Turn(token, _)) = bench.try_claim_of("a", true) else { panic!("not claimed") };
    bench.ask(&token, &["look"]);
    bench.pass(LEASE_MS);
    bench.claim("a");
    let Ok(Claimed::Turn(token, _)) = bench.try_claim_of("a", true) else { panic!("not claimed") };
    // What it failed by itself keeps nobody away.
    let what = "no answer".to_owned();
    let why = Why::Failed { what, outage: false, retry_after_ms: None };
    let Ok(Released::Again(at)) = bench.run(&Release { token, why }) else { panic!("given up") };
    bench.pass(at.since_ms(bench.now));
    bench.claim("a");
}

#[test]
fn what_ran_beside_others_by_then_is_not_blamed_for_the_end_of_its_process() {
    let mut bench = Bench::new();
    bench.say("hello");
    for _ in 0..CROWD_ATTEMPTS_MAX {
        bench.claim("a");
        bench.pass(LEASE_MS);
    }
    // Alone for too long to keep others waiting, again and again: none of it counts.
    for round in 1..=ATTEMPTS_MAX {
        let Ok(Claimed::Turn(token, turn)) = bench.try_claim_of("a", true) else { panic!() };
        assert_eq!((turn.attempt, turn.failures), (CROWD_ATTEMPTS_MAX + 1, round - 1));
        bench.run(&Renew { token: token.clone(), alone: true }).unwrap();
        bench.run(&Renew { token: token.clone(), alone: false }).unwrap();
        // What was not alone for a moment was not alone.
        bench.run(&Renew { token, alone: true }).unwrap();
        bench.pass(LEASE_MS);
        assert_eq!(bench.try_claim("a"), Err(Refusal::Crowd));
    }
    for attempt in CROWD_ATTEMPTS_MAX + 1..=ATTEMPTS_MAX {
        let Ok(Claimed::Turn(_, turn)) = bench.try_claim_of("a", true) else { panic!() };
        assert_eq!(turn.attempt, attempt);
        bench.pass(LEASE_MS);
    }
    assert_eq!(bench.try_claim("a"), Ok(Claimed::Buried(1)), "alone each time, so it is to blame");
}

#[test]
fn an_arrival_needs_keys_and_fits_a_row() {
    let mut bench = Bench::new();
    let message = |text: &str| What::Message { text: text.into() };
    let mut bare = bench.incoming("a", message("hello"));
    bare.keys.clear();
    assert!(matches!(bench.accept(bare), Err(Refusal::Invalid(_))));
    let mut many = bench.incoming("a", message("hello"));
    many.keys = (0..=DEDUPE_KEYS_MAX).map(|i| DedupeKey::new(format!("k{i}")).unwrap()).collect();
    assert!(matches!(bench.accept(many), Err(Refusal::Invalid(_))));
    let long = bench.incoming("a", message(&"x".repeat(MESSAGE_BYTES_MAX + 1)));
    assert!(matches!(bench.accept(long), Err(Refusal::Invalid(_))));
}

#[test]
fn a_claim_waits_for_its_time_and_for_the_lane() {
    let mut bench = Bench::new();
    assert_eq!(bench.try_claim("a"), Err(Refusal::Idle));
    let incoming = bench.incoming("now", What::Message { text: "now".into() });
    bench.accept(incoming).unwrap();
    assert_eq!(bench.try_claim("a"), Err(Refusal::NotYet(bench.now.plus_ms(SETTLE_MS))));
    bench.pass(SETTLE_MS);
    let token = bench.claim("a");
    assert_eq!(bench.try_claim("b"), Err(Refusal::Busy(bench.now.plus_ms(LEASE_MS))));
    let what = "no answer".to_owned();
    let why = Why::Failed { what, outage: false, retry_after_ms: None };
    bench.run(&Release { token, why }).unwrap();
    assert_eq!(bench.try_claim("b"), Err(Refusal::NotYet(bench.now.plus_ms(BACKOFF_FIRST_MS))));
    bench.stop(Scope::All);
    assert_eq!(bench.try_claim("b"), Err(Refusal::Idle));
}

/// A token of a lane that somebody else has by now.
fn stale(bench: &mut Bench) -> Token {
    bench.say("hello");
    let token = bench.claim("a");
    bench.pass(LEASE_MS);
    bench.claim("b");
    token
}

#[test]
fn a_stale_holder_writes_nothing() {
    let mut bench = Bench::new();
    let token = stale(&mut bench);
    let fenced = Refusal::Fenced;
    let wish = Wish { request: "r", ..Wish::default() };
    assert_eq!(bench.append(&token, vec![model("late", &[])], true), Err(fenced.clone()));
    assert_eq!(bench.commit(&token), Err(fenced.clone()));
    assert_eq!(bench.run(&Renew { token: token.clone(), alone: false }), Err(fenced.clone()));
    assert_eq!(bench.try_register(&token, &wish), Err(fenced.clone()));
    let compact = Compact { token: token.clone(), upto: 0, summary: "so far".into() };
    assert_eq!(bench.run(&compact), Err(fenced.clone()));
    for why in [Why::Handover, Why::Fatal("no".into())] {
        assert_eq!(bench.run(&Release { token: token.clone(), why }), Err(fenced.clone()));
    }
}

#[test]
fn a_turn_is_committed_when_all_is_answered_and_not_before() {
    let mut bench = Bench::new();
    bench.say("hello");
    let token = bench.claim("a");
    assert_eq!(bench.commit(&token), Err(Refusal::Unseen), "nobody answered");
    let entry = bench.ask(&token, &["look"]);
    assert_eq!(bench.commit(&token), Err(Refusal::Unseen), "a tool is asked for");
    bench.append(&token, vec![result(entry, 0, None)], false).unwrap();
    assert_eq!(bench.commit(&token), Err(Refusal::Unseen), "a result is the last word");
    bench.answer(&token, "first");
    bench.say("one more");
    bench.append(&token, vec![], true).unwrap();
    assert_eq!(bench.commit(&token), Err(Refusal::Unseen), "a message came");
    bench.answer(&token, "second");
    bench.commit(&token).unwrap();
    let other = Token { turn: 7, ..token };
    assert_eq!(bench.commit(&other), Err(Refusal::Unknown));
}

#[test]
fn silence_ends_no_turn_of_a_person() {
    let mut bench = Bench::new();
    bench.say("hello");
    let token = bench.claim("a");
    let entry = bench.ask(&token, &["stay_silent"]);
    bench.append(&token, vec![result(entry, 0, None)], false).unwrap();
    assert_eq!(bench.commit(&token), Err(Refusal::Unseen));
}

#[test]
fn silence_does_not_swallow_what_came_with_it() {
    let mut bench = Bench::new();
    bench.say("watch them");
    let token = bench.claim("a");
    let first = bench.start(&token, &Wish::default());
    let second = bench.start(&token, &Wish { call: 1, ..Wish::default() });
    bench.answer(&token, "they run");
    bench.commit(&token).unwrap();
    bench.complete(&first, &done()).unwrap();
    let token = bench.claim("a");
    let entry = bench.ask(&token, &["stay_silent"]);
    bench.complete(&second, &done()).unwrap();
    bench.append(&token, vec![result(entry, 0, None)], true).unwrap();
    assert_eq!(bench.commit(&token), Err(Refusal::Unseen), "the second is not seen");
    let entry = bench.ask(&token, &["stay_silent"]);
    bench.append(&token, vec![result(entry, 0, None)], true).unwrap();
    bench.run(&Commit { token, posts: vec![] }).unwrap();
}

#[test]
fn only_taking_brings_arrivals_into_the_log() {
    let mut bench = Bench::new();
    bench.say("hello");
    let token = bench.claim("a");
    let forged = |body| dogwatch::core::ledger::session::New { body, collect: None };
    let nonce = dogwatch::core::id::Nonce::new("k").unwrap();
    let notice = Notice { nonce, text: "[AUTO-NOTIFICATION] forged".into() };
    let bodies = [
        Body::Remark { text: "forged".into() },
        Body::Notice(notice.clone()),
        Body::Tool { entry: 0, call: 0, result: serde_json::json!({}), notice: Some(notice) },
    ];
    for body in bodies {
        let refused = bench.append(&token, vec![forged(body)], false);
        assert!(matches!(refused, Err(Refusal::Invalid(_))), "{refused:?}");
    }
}

#[test]
fn an_append_at_another_length_is_refused() {
    let mut bench = Bench::new();
    bench.say("hello");
    let token = bench.claim("a");
    let nonce = dogwatch::core::id::Nonce::new("k").unwrap();
    let new = vec![model("far", &[])];
    let append = Append { token, at: 9, chain: 1, new, take: false, nonce };
    assert!(matches!(bench.run(&append), Err(Refusal::Length(_))));
}

#[test]
fn a_compaction_ends_in_the_committed_log() {
    let mut bench = Bench::new();
    bench.say("hello");
    let token = bench.claim("a");
    let compact = Compact { token, upto: 1, summary: "so far".into() };
    assert!(matches!(bench.run(&compact), Err(Refusal::Invalid(_))));
}

#[test]
fn one_start_key_is_one_request() {
    let mut bench = Bench::new();
    bench.say("hello");
    let token = bench.claim("a");
    let wish = Wish { request: "r", ..Wish::default() };
    let first = bench.try_register(&token, &wish).unwrap();
    let again = bench.try_register(&token, &wish).unwrap();
    assert_eq!((first.fresh, again.fresh, first.id == again.id), (true, false, true));
    let other = Wish { request: "another", ..wish };
    assert_eq!(bench.try_register(&token, &other), Err(Refusal::Conflict));
    let long = dogwatch::core::ledger::session::Register {
        prefix: "x".repeat(200),
        ..register(&token, &Wish { call: 1, request: "r", ..Wish::default() })
    };
    assert!(matches!(bench.run(&long), Err(Refusal::Invalid(_))));
}

#[test]
fn a_chain_starts_no_more_than_its_share() {
    let mut bench = Bench::new();
    bench.allowance = Allowance { spawns: 1, ..Allowance::default() };
    bench.say("hello");
    let token = bench.claim("a");
    bench.try_register(&token, &Wish::default()).unwrap();
    let refused = bench.try_register(&token, &Wish { call: 1, ..Wish::default() });
    assert!(matches!(refused, Err(Refusal::Cap { limit: 0, .. })), "{refused:?}");
}

#[test]
fn what_nobody_knows_is_unknown() {
    let mut bench = Bench::new();
    let (session, execution) = (session(), nobody());
    let unknown = Some(Refusal::Unknown);
    let started =
        Started { session: session.clone(), execution: execution.clone(), boot: boot("a") };
    assert_eq!(bench.run(&started).err(), unknown);
    let adopt = Adopt {
        session: session.clone(),
        execution: execution.clone(),
        home: spool(),
        to: boot("a"),
        held: true,
    };
    assert_eq!(bench.run(&adopt).err(), unknown);
    let behalf = Behalf::Person {
        principal: Principal::new("ann").unwrap(),
        press: PressId::new("p").unwrap(),
    };
    let cancel = Cancel { session: session.clone(), execution: execution.clone(), behalf };
    assert_eq!(bench.run(&cancel).err(), unknown);
    assert_eq!(bench.complete(&execution, &done()).err(), unknown);
    let overdue = Overdue { session: session.clone(), execution: execution.clone(), buried: None };
    assert_eq!(bench.run(&overdue).err(), unknown);
    let lost = HomeLost { session: session.clone(), execution, boot: boot("a") };
    assert_eq!(bench.run(&lost).err(), unknown);
    let item = ItemId::new("post/1/0").unwrap();
    let lease = LeaseId::new("l").unwrap();
    let (s, i) = (session.clone(), item.clone());
    let take = LeaseItem { session: s, item: i, lease: lease.clone(), boot: boot("a") };
    assert_eq!(bench.run(&take).err(), unknown);
    let (s, i) = (session.clone(), item.clone());
    assert_eq!(bench.run(&DoneItem { session: s, item: i, receipt: "r".into() }).err(), unknown);
    let retry = Retry::Never("gone".into());
    assert_eq!(bench.run(&FailItem { session, item, lease, retry }).err(), unknown);
    assert_eq!(bench.run(&Bury { boot: boot("b"), seen: 0 }).err(), unknown);
}

#[test]
fn only_its_home_speaks_for_an_execution() {
    let mut bench = Bench::new();
    bench.say("hello");
    let token = bench.claim("a");
    let id = bench.try_register(&token, &Wish::default()).unwrap().id;
    let (s, x) = (session(), id.clone());
    let stranger = Started { session: s, execution: x, boot: boot("b") };
    assert_eq!(bench.run(&stranger).err(), Some(Refusal::Fenced));
    let (s, x) = (session(), id.clone());
    let complete = Complete { session: s, execution: x, outcome: done(), boot: boot("b") };
    assert_eq!(bench.run(&complete).err(), Some(Refusal::Fenced));
    let home = dogwatch::core::execution::Home::Process(boot("b"));
    let (s, x) = (session(), id.clone());
    let adopt = Adopt { session: s, execution: x, home, to: boot("b"), held: true };
    assert_eq!(bench.run(&adopt).err(), Some(Refusal::Fenced));
    let (s, x) = (session(), id.clone());
    let lost = HomeLost { session: s, execution: x, boot: boot("b") };
    assert_eq!(bench.run(&lost).err(), Some(Refusal::Fenced), "another boot attends to it");
    let (s, x) = (session(), id.clone());
    let overdue = Overdue { session: s, execution: x, buried: None };
    assert!(matches!(bench.run(&overdue), Err(Refusal::NotYet(_))));
    bench.complete(&id, &done()).unwrap();
    let (s, x) = (session(), id.clone());
    let late = Started { session: s, execution: x, boot: boot("a") };
    assert_eq!(bench.run(&late).err(), Some(Refusal::Ended(id.clone())));
    let (s, x) = (session(), id.clone());
    let adopt = Adopt { session: s, execution: x, home: spool(), to: boot("b"), held: true };
    assert_eq!(bench.run(&adopt).err(), Some(Refusal::Ended(id)));
}

#[test]
fn an_item_is_one_holders_at_a_time_and_stands_in_line() {
    let mut bench = Bench::new();
    bench.say("one");
    bench.turn_of_now("a");
    bench.say("two");
    bench.turn_of_now("a");
    let lease = bench.lease();
    let take = |item: &str, lease: &LeaseId| LeaseItem {
        session: session(),
        item: ItemId::new(item).unwrap(),
        lease: lease.clone(),
        boot: boot("a"),
    };
    let second = bench.run(&take("post/2/0", &lease));
    assert_eq!(second.err(), Some(Refusal::Idle), "an older one stands before it");
    bench.run(&take("post/1/0", &lease)).unwrap();
    let other = bench.lease();
    assert!(matches!(bench.run(&take("post/1/0", &other)), Err(Refusal::Busy(_))));
    let fail = |lease: &LeaseId, retry| FailItem {
        session: session(),
        item: ItemId::new("post/1/0").unwrap(),
        lease: lease.clone(),
        retry,
    };
    let never = Retry::Never("gone".into());
    assert_eq!(bench.run(&fail(&other, never)).err(), Some(Refusal::Fenced));
    let retry = Retry::At { at: bench.now.plus_ms(5_000), uncertain: true };
    bench.once(&fail(&lease, retry)).unwrap();
    assert!(matches!(bench.run(&take("post/1/0", &other)), Err(Refusal::NotYet(_))));
    let item = ItemId::new("post/1/0").unwrap();
    bench.run(&DoneItem { session: session(), item, receipt: "ref".into() }).unwrap();
    assert_eq!(bench.run(&take("post/1/0", &other)).err(), Some(Refusal::Idle));
    bench.run(&take("post/2/0", &other)).unwrap();
}

#[test]
fn a_living_node_is_not_buried_and_a_buried_one_stays_so() {
    let mut bench = Bench::new();
    let beat = Beat { boot: boot("a"), spool: None };
    bench.run(&beat).unwrap();
    let counter = bench.run(&beat).unwrap();
    let bury = |seen| Bury { boot: boot("a"), seen };
    assert_eq!(bench.run(&bury(counter)).err(), Some(Refusal::Alive), "its lease runs");
    bench.pass(LEASE_MS);
    assert_eq!(bench.run(&bury(counter - 1)).err(), Some(Refusal::Alive), "it beat since");
    bench.run(&bury(counter)).unwrap();
    assert_eq!(bench.run(&beat).err(), Some(Refusal::Buried));
    assert!(!bench.run(&ForgetNode { boot: boot("a") }).unwrap(), "it is kept for a while");
}

#[test]
fn a_boot_that_holds_the_store_buries_the_others_at_once() {
    let mut bench = Bench::new();
    bench.run(&Beat { boot: boot("a"), spool: None }).unwrap();
    bench.sole_boot = Some(boot("b"));
    bench.run(&Bury { boot: boot("a"), seen: 0 }).unwrap();
    bench.sole_boot = Some(boot("a"));
    assert_eq!(bench.run(&Beat { boot: boot("a"), spool: None }).err(), Some(Refusal::Buried));
}

#[test]
fn an_edit_of_an_unknown_message_is_ignored() {
    let mut bench = Bench::new();
    let of = DedupeKey::new("never").unwrap();
    let incoming = bench.incoming("e", What::Edit { of, text: "new".into() });
    let accept = Accept { session: session(), incoming, chain: bench.allowance };
    let ignored = bench.run(&accept).unwrap();
    assert_eq!(ignored, Accepted::Ignored);
}

#[test]
fn what_only_goes_on_with_a_conversation_begins_none() {
    let mut bench = Bench::new();
    let reply = |bench: &Bench, key: &str| {
        let mut incoming = bench.incoming(key, What::Message { text: "and now?".into() });
        incoming.continues = true;
        incoming
    };
    let ignored = reply(&bench, "m1");
    assert_eq!(bench.accept(ignored.clone()), Ok(Accepted::Ignored));
    assert_eq!(bench.try_claim("a"), Err::<Claimed, _>(Refusal::Idle));
    bench.say("hello");
    // What was ignored is not known: its other copy, which names the bot, is taken.
    assert_eq!(bench.accept(Incoming { continues: false, ..ignored }), Ok(Accepted::New(2)));
    let taken = reply(&bench, "m2");
    assert_eq!(bench.accept(taken.clone()), Ok(Accepted::New(3)));
    assert_eq!(bench.accept(taken), Ok(Accepted::Duplicate(3)));
}

#[test]
fn a_silent_watcher_wakes_nobody() {
    let mut bench = Bench::new();
    bench.say("hello");
    let token = bench.claim("a");
    let id = bench.start(&token, &Wish { notify: Notify::Silent, ..Wish::default() });
    bench.answer(&token, "started");
    bench.commit(&token).unwrap();
    bench.complete(&id, &done()).unwrap();
    assert_eq!(bench.try_claim("a"), Err::<Claimed, _>(Refusal::Idle));
    let commit = Commit { token, posts: vec![] };
    assert_eq!(bench.run(&commit), Ok(()), "the repeat of a commit whose answer was lost");
}
