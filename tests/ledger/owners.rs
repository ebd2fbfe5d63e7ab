//! Places of owners: taken before anything is registered, given back once, lost never.

use dogwatch::core::execution::{Scope, Start, Status};
use dogwatch::core::id::{Principal, SessionId};
use dogwatch::core::ledger::owner::{Free, Keep, Reserve, audit};
use dogwatch::core::ledger::row::{Errand, Item, Place, Places, RowType};
use dogwatch::core::ledger::session::{DoneItem, Forget, Token, Void, Voided};
use dogwatch::core::ledger::{Aggregate, Class, Index, Key, Operation, Refusal};
use dogwatch::core::limits::{
    GRACE_MS_MAX, LIVE_PER_OWNER_MAX, OVERDUE_MS, PLACE_CHECKED_AGAIN_MS, PLACE_CHECKED_MS,
    RETENTION_MS, START_MS_MAX,
};
use pretty_assertions::assert_eq;

use super::bench::{Bench, Wish, outcome, session};

fn ann() -> Principal {
    Principal::new("ann").unwrap()
}

/// What the bench registers as the call with this number.
fn start(token: &Token, call: u32) -> Start {
    Start { turn: token.turn, entry: 0, call }
}

fn reserve(session: SessionId, start: Start) -> Reserve {
    Reserve { owner: ann(), session, start, cap: LIVE_PER_OWNER_MAX }
}

fn free(start: Start) -> Free {
    Free { owner: ann(), session: session(), start }
}

fn void(start: Start) -> Void {
    Void { session: session(), start }
}

fn places(bench: &Bench) -> Vec<Place> {
    let rows = bench.rows.get(&Aggregate::Owner(ann())).cloned().unwrap_or_default();
    assert_eq!(audit(&rows), Vec::<String>::new());
    rows.values().filter_map(Place::of).cloned().collect()
}

fn begin() -> (Bench, Token) {
    let mut bench = Bench::new();
    bench.say("start it");
    let token = bench.claim("a");
    (bench, token)
}

/// The outbox does what it holds, as far as it may.
fn deliver(bench: &mut Bench, id: &str) {
    let Some(Item { errand, at: Some(_), id: item, .. }) = bench.item(id) else {
        panic!("{id} may not be done yet")
    };
    if let Errand::Free { owner, start } = errand {
        bench.run(&Free { owner, session: session(), start }).unwrap();
    }
    bench.run(&DoneItem { session: session(), item, receipt: "done".into() }).unwrap();
}

#[test]
fn a_person_has_so_many_places_in_all_sessions_together() {
    let mut bench = Bench::new();
    let at = |n: u32| Start { turn: 1, entry: u64::from(n), call: 0 };
    let lanes = ["bench/main", "bench/other"].map(|name| SessionId::new(name).unwrap());
    for n in 0..LIVE_PER_OWNER_MAX {
        bench.run(&reserve(lanes[n as usize % 2].clone(), at(n))).unwrap();
    }
    let more = reserve(lanes[0].clone(), at(999));
    let limit = LIVE_PER_OWNER_MAX as usize;
    assert!(matches!(bench.run(&more), Err(Refusal::Cap { limit: l, .. }) if l == limit));
    // Who has a place has it still, and another person has places of their own.
    bench.run(&reserve(lanes[0].clone(), at(0))).unwrap();
    bench.run(&Reserve { owner: Principal::new("bob").unwrap(), ..more.clone() }).unwrap();
    assert_eq!(places(&bench).len(), limit);
    bench.run(&free(at(0))).unwrap();
    bench.run(&more).unwrap();
    assert_eq!(places(&bench).len(), limit);
}

#[test]
fn what_nobody_has_leaves_no_row() {
    let mut bench = Bench::new();
    let only = Start { turn: 1, entry: 0, call: 0 };
    bench.run(&reserve(session(), only)).unwrap();
    bench.run(&free(only)).unwrap();
    bench.run(&free(only)).unwrap();
    let left = bench.rows.get(&Aggregate::Owner(ann())).cloned().unwrap_or_default();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_place_needs_no_disk_and_waits_for_memory() {
    let one = reserve(session(), Start { turn: 1, entry: 0, call: 0 });
    assert_eq!(one.class(), Class { durable: false, admits: true });
}

#[test]
fn the_end_gives_the_place_back_and_the_kill_comes_first() {
    let (mut bench, token) = begin();
    for call in [0, 1] {
        bench.run(&reserve(session(), start(&token, call))).unwrap();
        bench.start(&token, &Wish { call, ..Wish::default() });
    }
    let ids = bench.live();
    bench.complete(&ids[0], &outcome(Status::Completed, "exit 0")).unwrap();
    assert_eq!(bench.run(&void(start(&token, 0))), Ok(Voided::Leaving));
    let freed = format!("free/{}", ids[0]);
    deliver(&mut bench, &freed);
    assert_eq!(bench.run(&void(start(&token, 0))), Ok(Voided::Over));
    assert_eq!(places(&bench).len(), 1);
    // Nobody has said yet that the process of the other is gone.
    bench.stop(Scope::All);
    let (kill, freed) = (format!("kill/{}", ids[1]), format!("free/{}", ids[1]));
    assert_eq!(bench.item(&freed).unwrap().at, None);
    assert_eq!(bench.run(&void(start(&token, 1))), Ok(Voided::Leaving));
    deliver(&mut bench, &kill);
    deliver(&mut bench, &freed);
    assert_eq!(places(&bench), vec![]);
}

#[test]
fn a_place_whose_kill_nobody_takes_is_needed_until_the_script_has_ended_by_itself() {
    let (mut bench, token) = begin();
    let one = start(&token, 0);
    bench.run(&reserve(session(), one)).unwrap();
    bench.start(&token, &Wish::default());
    let timeout_ms = bench.execution(&bench.live()[0]).timeout_ms;
    bench.stop(Scope::All);
    bench.pass(timeout_ms);
    assert_eq!(bench.run(&void(one)), Ok(Voided::Leaving));
    bench.pass(START_MS_MAX + GRACE_MS_MAX + OVERDUE_MS - 1);
    assert_eq!(bench.run(&void(one)), Ok(Voided::Leaving));
    bench.pass(1);
    assert_eq!(bench.run(&void(one)), Ok(Voided::Over));
}

#[test]
fn the_start_of_live_work_is_not_forgotten_since_its_place_is_asked_for_by_it() {
    let (mut bench, token) = begin();
    let one = start(&token, 0);
    bench.run(&reserve(session(), one)).unwrap();
    bench.start(&token, &Wish::default());
    bench.pass(RETENTION_MS * 2);
    let keys = vec![Key::start(one.turn, one.entry, one.call)];
    bench.run(&Forget { session: session(), keys }).unwrap();
    assert_eq!(bench.run(&void(one)), Ok(Voided::Live));
}

#[test]
fn a_place_of_live_work_is_kept_however_old_it_is() {
    let (mut bench, token) = begin();
    let one = start(&token, 0);
    bench.run(&reserve(session(), one)).unwrap();
    bench.start(&token, &Wish::default());
    bench.pass(PLACE_CHECKED_MS);
    let seen = places(&bench)[0].check_at;
    assert_eq!(seen, bench.now);
    assert_eq!(bench.run(&void(one)), Ok(Voided::Live));
    let keep = Keep { owner: ann(), session: session(), start: one, seen };
    bench.run(&keep).unwrap();
    let again = places(&bench)[0].check_at;
    assert_eq!(again, bench.now.plus_ms(PLACE_CHECKED_AGAIN_MS));
    // Late word of the first look moves nothing.
    bench.pass(1);
    bench.run(&keep).unwrap();
    assert_eq!(places(&bench)[0].check_at, again);
    let rows = &bench.rows[&Aggregate::Owner(ann())];
    let key = Key::place(&session(), &one);
    let indexed = dogwatch::core::ledger::index_of(&key, &rows[&key]);
    assert_eq!(indexed, vec![(Index::Places, again.as_ms())]);
}

#[test]
fn what_was_given_up_is_registered_no_more() {
    let (mut bench, token) = begin();
    let one = start(&token, 0);
    bench.run(&reserve(session(), one)).unwrap();
    assert_eq!(bench.run(&void(one)), Ok(Voided::Void));
    bench.run(&free(one)).unwrap();
    assert_eq!(bench.try_register(&token, &Wish::default()), Err(Refusal::Void));
    assert_eq!((bench.live(), places(&bench)), (vec![], vec![]));
    // The next call is another one.
    let next = Wish { call: 1, ..Wish::default() };
    bench.run(&reserve(session(), start(&token, 1))).unwrap();
    assert!(bench.try_register(&token, &next).unwrap().fresh);
}

#[test]
fn a_miscount_is_told() {
    let mut bench = Bench::new();
    bench.run(&reserve(session(), Start { turn: 1, entry: 0, call: 0 })).unwrap();
    let mut rows = bench.rows[&Aggregate::Owner(ann())].clone();
    rows.insert(Key::places(), Places { taken: 2 }.wrap());
    assert_eq!(audit(&rows), ["2 places are counted, 1 are taken"]);
}
