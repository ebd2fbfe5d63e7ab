//! Several people in one session: whose arrivals a turn takes, and whose work it may end.

use dogwatch::core::arrival::{Standing, What};
use dogwatch::core::execution::{CancelledBy, Fate, Scope, State, Status};
use dogwatch::core::id::{ExecutionId, PressId, Principal};
use dogwatch::core::ledger::Refusal;
use dogwatch::core::ledger::session::{Accepted, Behalf, Cancel, CancelAnswer, Token};
use dogwatch::core::limits::{PEOPLE_PER_TURN_MAX, TAKE_PEOPLE_MAX};

use super::bench::{Bench, Wish, outcome, result, session};

fn person(name: &str) -> Principal {
    Principal::new(name).unwrap()
}

/// A message of this person, ready to be read; answers its number.
fn says(bench: &mut Bench, name: &str, shared: bool) -> u64 {
    let key = format!("{name}-{}", bench.head().arrivals);
    let mut incoming = bench.incoming(&key, What::Message { text: format!("{name} writes") });
    (incoming.principal, incoming.shared) = (person(name), shared);
    let Ok(Accepted::New(seq)) = bench.accept(incoming) else { panic!("not accepted") };
    bench.pass(1_000);
    seq
}

/// A watcher of this person, whose turn is over.
fn watcher_of(bench: &mut Bench, name: &str, shared: bool, wish: &Wish) -> ExecutionId {
    says(bench, name, shared);
    let token = bench.claim("a");
    let id = bench.start(&token, wish);
    bench.answer(&token, "it runs");
    bench.commit(&token).unwrap();
    id
}

fn cancel(bench: &mut Bench, id: &ExecutionId, behalf: Behalf) -> Result<CancelAnswer, Refusal> {
    bench.run(&Cancel { session: session(), execution: id.clone(), behalf })
}

fn pressed_by(name: &str) -> Behalf {
    Behalf::Person { principal: person(name), press: PressId::new("press").unwrap() }
}

fn in_turn(token: &Token) -> Behalf {
    Behalf::Turn(token.clone())
}

fn names(bench: &Bench, token: &Token) -> Vec<String> {
    bench.turn(token.turn).people().map(ToString::to_string).collect()
}

#[test]
fn b40_only_its_owner_ends_work_in_a_shared_thread() {
    let mut bench = Bench::new();
    let wish = Wish { key: Some("deploy"), ..Wish::default() };
    let id = watcher_of(&mut bench, "ann", false, &wish);
    let foreign = Err(Refusal::Foreign(person("ann")));
    assert_eq!(cancel(&mut bench, &id, pressed_by("bob")), foreign);
    says(&mut bench, "bob", false);
    let token = bench.claim("a");
    assert_eq!(cancel(&mut bench, &id, in_turn(&token)), foreign);
    // A new one with its key would end it as well.
    let again = Wish { call: 1, ..wish.clone() };
    assert_eq!(bench.try_register(&token, &again).unwrap_err(), Refusal::Foreign(person("ann")));
    let other = Wish { call: 2, key: Some("deploy of bob"), ..Wish::default() };
    bench.start(&token, &other);
    bench.answer(&token, "it is ann's");
    bench.commit(&token).unwrap();
    assert_eq!(bench.live().len(), 2);
    // A turn of its owner ends it, by its key too.
    says(&mut bench, "ann", false);
    let token = bench.claim("a");
    let newer = bench.start(&token, &wish);
    assert!(!bench.live().contains(&id));
    assert!(matches!(cancel(&mut bench, &newer, in_turn(&token)), Ok(CancelAnswer::Cancelling(_))));
    assert_eq!(bench.execution(&newer).cancel, Some(CancelledBy::Model));
    // A turn that is over ends nothing any more.
    bench.complete(&newer, &outcome(Status::Cancelled, "cancelled")).unwrap();
    let third = bench.start(&token, &Wish { call: 3, ..Wish::default() });
    bench.append(&token, vec![], true).unwrap();
    bench.answer(&token, "ended");
    bench.commit(&token).unwrap();
    assert_eq!(cancel(&mut bench, &third, in_turn(&token)), Err(Refusal::Fenced));
    assert!(matches!(
        cancel(&mut bench, &third, pressed_by("ann")),
        Ok(CancelAnswer::Cancelling(_))
    ));
    // What is over is nobody's to end, and anybody may hear so.
    assert!(matches!(bench.execution(&id).state, State::Ended(_)));
    let over = Ok(CancelAnswer::Over(Status::Superseded));
    assert_eq!(cancel(&mut bench, &id, pressed_by("bob")), over);
    // Everything here is anybody's to stop.
    assert_eq!(bench.stop(Scope::All).ended, 2);
}

#[test]
fn b40_a_shared_turn_takes_several_people_and_may_do_what_all_of_them_may() {
    let mut bench = Bench::new();
    let id = watcher_of(&mut bench, "ann", true, &Wish::default());
    let (ann, bob) = (says(&mut bench, "ann", true), says(&mut bench, "bob", true));
    let token = bench.claim("a");
    assert_eq!(names(&bench, &token), ["ann", "bob"]);
    for seq in [ann, bob] {
        assert_eq!(bench.standing(seq), Standing::Offered(token.turn));
    }
    assert_eq!(cancel(&mut bench, &id, in_turn(&token)), Err(Refusal::Foreign(person("ann"))));
    // Whoever writes meanwhile is taken too, and so is the end of shared work.
    bench.complete(&id, &outcome(Status::Completed, "exit 0")).unwrap();
    let eve = says(&mut bench, "eve", true);
    let entry = bench.ask(&token, &["look"]);
    bench.append(&token, vec![result(entry, 0, None)], true).unwrap();
    assert_eq!(bench.standing(eve), Standing::Offered(token.turn));
    assert_eq!(bench.fate(&id), Standing::Offered(token.turn));
    assert_eq!(names(&bench, &token), ["ann", "bob", "eve"]);
    // What one of them alone started is still theirs: its owner is who began the turn.
    let theirs = bench.start(&token, &Wish { call: 1, ..Wish::default() });
    assert_eq!(bench.execution(&theirs).owner, person("ann"));
    assert!(bench.execution(&theirs).shared);
    assert_eq!(
        cancel(&mut bench, &theirs, pressed_by("bob")),
        Err(Refusal::Foreign(person("ann")))
    );
    bench.answer(&token, "done");
    bench.commit(&token).unwrap();
    // Alone again its owner may.
    says(&mut bench, "ann", true);
    let token = bench.claim("a");
    assert!(cancel(&mut bench, &theirs, in_turn(&token)).is_ok());
}

#[test]
fn b40_what_is_not_shared_is_taken_with_nobody_elses() {
    let mut bench = Bench::new();
    let (shared, own) = (says(&mut bench, "ann", true), says(&mut bench, "ann", false));
    let (bob, late) = (says(&mut bench, "bob", true), says(&mut bench, "bob", false));
    let token = bench.claim("a");
    // Order holds: bob's message stands behind one that this turn cannot take.
    assert_eq!(names(&bench, &token), ["ann"]);
    assert_eq!(bench.standing(shared), Standing::Offered(token.turn));
    for seq in [own, bob, late] {
        assert_eq!(bench.standing(seq), Standing::Pending);
    }
    bench.answer(&token, "done");
    bench.commit(&token).unwrap();
    let token = bench.turn_of_now("a");
    assert_eq!(names(&bench, &token), ["ann"]);
    let token = bench.turn_of_now("a");
    assert_eq!(names(&bench, &token), ["bob"]);
    assert_eq!(bench.standing(late), Standing::Pending, "it was not shared when it came");
    let token = bench.turn_of_now("a");
    assert_eq!(names(&bench, &token), ["bob"]);
    assert!(bench.inbox().people.is_empty());
}

#[test]
fn what_only_rides_comes_to_its_person_also_where_all_is_shared_by_now() {
    let mut bench = Bench::new();
    let id = watcher_of(&mut bench, "ann", false, &Wish::default());
    cancel(&mut bench, &id, pressed_by("ann")).unwrap();
    bench.complete(&id, &outcome(Status::Cancelled, "cancelled")).unwrap();
    says(&mut bench, "bob", true);
    bench.turn_of_now("a");
    assert_eq!(bench.fate(&id), Standing::Pending);
    says(&mut bench, "ann", true);
    let token = bench.turn_of_now("a");
    assert_eq!(bench.fate(&id), Standing::Settled { fate: Fate::Acked, turn: token.turn });
    // And what its person fetches by name.
    let id = watcher_of(&mut bench, "ann", false, &Wish::default());
    says(&mut bench, "ann", true);
    let token = bench.claim("a");
    cancel(&mut bench, &id, in_turn(&token)).unwrap();
    bench.complete(&id, &outcome(Status::Cancelled, "cancelled")).unwrap();
    let entry = bench.ask(&token, &["cancel"]);
    bench.append(&token, vec![result(entry, 0, Some(&id))], true).unwrap();
    assert_eq!(bench.fate(&id), Standing::Offered(token.turn));
}

#[test]
fn a_shared_turn_has_so_many_people_at_most() {
    let mut bench = Bench::new();
    let all: Vec<u64> =
        (0..PEOPLE_PER_TURN_MAX + 2).map(|no| says(&mut bench, &format!("p{no}"), true)).collect();
    let token = bench.claim("a");
    for _ in 0..=all.len() / TAKE_PEOPLE_MAX {
        let entry = bench.ask(&token, &["look"]);
        bench.append(&token, vec![result(entry, 0, None)], true).unwrap();
    }
    assert_eq!(names(&bench, &token).len(), PEOPLE_PER_TURN_MAX);
    assert_eq!(bench.inbox().people.len(), 2);
    bench.answer(&token, "done");
    bench.commit(&token).unwrap();
    let token = bench.claim("a");
    assert_eq!(names(&bench, &token).len(), 2);
}
