//! A caller whose answer was lost asks again with the same ids, and gets the same answer. (That it
//! changes nothing the bench finds in every other test.)

use dogwatch::core::arrival::What;
use dogwatch::core::execution::{Outcome, Scope, Status};
use dogwatch::core::id::{ClaimId, ItemId, Nonce, Principal, StopId};
use dogwatch::core::ledger::session::{
    Accepted, Append, Behalf, Cancel, Claim, Claimed, Complete, Completed, Go, LeaseItem, Release,
    Released, Started, Stop, StopAnswer, Why,
};
use dogwatch::core::limits::STOPS_KEPT_MAX;

use super::bench::{Bench, Wish, boot, model, outcome, session};

fn done() -> Outcome {
    outcome(Status::Completed, "exit 0")
}

#[test]
fn a_message_is_known_by_each_of_its_keys() {
    let mut bench = Bench::new();
    let first = bench.incoming("a", What::Message { text: "hello".into() });
    let mut both = first.clone();
    both.keys.extend(bench.incoming("b", What::Message { text: "hello".into() }).keys);
    let other = bench.incoming("b", What::Message { text: "hello".into() });
    assert_eq!(bench.accept(first), Ok(Accepted::New(1)));
    assert_eq!(bench.accept(both), Ok(Accepted::Duplicate(1)));
    assert_eq!(bench.accept(other), Ok(Accepted::Duplicate(1)), "a duplicate taught its key");
    assert_eq!(bench.inbox().people.len(), 1);
}

#[test]
fn a_claim_is_answered_with_the_same_lane() {
    let mut bench = Bench::new();
    bench.say("hello");
    let claim = Claim {
        alone: false,
        session: session(),
        boot: boot("a"),
        claim: ClaimId::new("c").unwrap(),
        nonce: Nonce::new("k").unwrap(),
    };
    let first = bench.once(&claim).unwrap();
    assert_eq!(bench.once(&claim).unwrap(), first);
    let Claimed::Turn(token, turn) = first else { panic!("{first:?}") };
    assert_eq!((token.fence, turn.attempt), (1, 1));
}

#[test]
fn an_append_is_answered_with_all_it_wrote() {
    let mut bench = Bench::new();
    bench.say("hello");
    let token = bench.claim("a");
    bench.say("and more");
    let append = Append {
        token,
        at: 1,
        chain: 1,
        new: vec![model("", &["look"])],
        take: true,
        nonce: Nonce::new("k").unwrap(),
    };
    let first = bench.once(&append).unwrap();
    assert_eq!(first.entries.len(), 2, "its own entry and the message");
    // What came in between is for the next take.
    bench.say("later");
    assert_eq!(bench.once(&append).unwrap(), first);
    assert_eq!(bench.inbox().people.len(), 1);
}

#[test]
fn a_commit_and_a_release_are_known_again_by_their_fence() {
    let mut bench = Bench::new();
    bench.say("hello");
    let token = bench.claim("a");
    let release = Release { token, why: Why::Handover };
    assert!(matches!(bench.once(&release), Ok(Released::Again(_))));
    assert_eq!(bench.once(&release), Ok(Released::Before));
    let token = bench.turn_of_now("b");
    assert_eq!(bench.turn(token.turn).attempt, 1, "a handover does not count");
    assert_eq!(bench.commit(&token), Ok(()));
    assert_eq!(bench.items(), ["post/1/0"]);
}

#[test]
fn one_stop_counts_once_also_after_others() {
    let mut bench = Bench::new();
    let stop = |id: usize, now| Stop {
        session: session(),
        scope: Scope::All,
        stop: StopId::new(format!("s{id}")).unwrap(),
        source_at: now,
        by: Principal::new("ann").unwrap(),
        only: None,
    };
    let now = bench.now;
    for id in 0..STOPS_KEPT_MAX {
        bench.once(&stop(id, now)).unwrap();
    }
    let repeat = StopAnswer { repeat: true, ..StopAnswer::default() };
    assert_eq!(bench.once(&stop(0, now)), Ok(repeat));
    assert_eq!(bench.head().generation, STOPS_KEPT_MAX as u64);
}

#[test]
fn a_start_a_cancel_and_a_report_are_known_again_by_the_state() {
    let mut bench = Bench::new();
    bench.say("hello");
    let token = bench.claim("a");
    let id = bench.try_register(&token, &Wish::default()).unwrap().id;
    let (s, x) = (session(), id.clone());
    let started = Started { session: s, execution: x, boot: boot("a") };
    assert_eq!(bench.once(&started), Ok(Go::Run));
    assert_eq!(bench.once(&started), Ok(Go::Run));
    let (s, x) = (session(), id.clone());
    let behalf = Behalf::Turn(token);
    let cancel = Cancel { session: s, execution: x, behalf };
    let first = bench.once(&cancel).unwrap();
    assert_eq!(bench.once(&cancel).unwrap(), first);
    assert_eq!(bench.once(&started), Ok(Go::Cancel), "its end was asked for in between");
    let (s, x) = (session(), id.clone());
    let complete = Complete { session: s, execution: x, outcome: done(), boot: boot("a") };
    assert_eq!(bench.once(&complete), Ok(Completed::First));
    assert_eq!(bench.once(&complete), Ok(Completed::Repeat));
}

#[test]
fn a_lease_is_known_again_by_its_id() {
    let mut bench = Bench::new();
    bench.say("hello");
    bench.turn_of_now("a");
    let lease = bench.lease();
    let item = ItemId::new("post/1/0").unwrap();
    let take = LeaseItem { session: session(), item, lease, boot: boot("a") };
    let first = bench.once(&take).unwrap();
    assert_eq!(bench.once(&take).unwrap(), first, "not one try more");
}

#[test]
fn slack_15_a_stop_of_one_turn_ends_no_other_and_changes_nothing_then() {
    let mut bench = Bench::new();
    bench.say("hello");
    let first = bench.claim("a");
    let stop = |id: &str, turn, now| Stop {
        session: session(),
        scope: Scope::Turn,
        stop: StopId::new(id).unwrap(),
        source_at: now,
        by: Principal::new("ann").unwrap(),
        only: Some(turn),
    };
    let now = bench.now;
    let stopped = StopAnswer { turn: true, ..StopAnswer::default() };
    assert_eq!(bench.once(&stop("s1", first.turn, now)), Ok(stopped));
    let nothing = StopAnswer::default();
    assert_eq!(bench.once(&stop("s2", first.turn, now)), Ok(nothing), "none is open");
    bench.say("and now?");
    let second = bench.claim("a");
    bench.say("more");
    assert_eq!(bench.once(&stop("s3", first.turn, now)), Ok(nothing), "another one is open");
    assert_eq!(bench.inbox().people.len(), 1, "what nobody read stays unread");
    bench.answer(&second, "yes");
    assert_eq!(bench.commit(&second), Ok(()));
}
