//! Installations: which news of them counts, in whatever order it comes.

use dogwatch::core::id::{InstallationId, LeaseId, SessionId};
use dogwatch::core::installation::{Departure, Grant, Installation, Presence, Redeemed, Refresh};
use dogwatch::core::ledger::installation::{
    Change, Confirm, Depart, Departed, Install, Invite, LeaseRefresh, Redeem, Refreshed, Walked,
};
use dogwatch::core::ledger::row::RowType;
use dogwatch::core::ledger::{Aggregate, Key, Refusal};
use dogwatch::core::limits::{
    INVITATION_MS, INVITATIONS_MAX, REFRESH_AHEAD_MS_MAX, REFRESH_LEASE_MS,
};
use dogwatch::core::time::Timestamp;

use super::bench::Bench;

fn id() -> InstallationId {
    InstallationId::new("slack/T1").unwrap()
}

fn confirm(asked_at: Timestamp) -> Confirm {
    Confirm { installation: id(), asked_at }
}

fn depart(why: Departure, source_at: Option<Timestamp>) -> Depart {
    Depart { installation: id(), why, source_at }
}

fn kept(bench: &Bench) -> Installation {
    let rows = bench.rows.get(&Aggregate::Installation(id())).unwrap();
    Installation::of(rows.get(&Key::installation()).unwrap()).unwrap().clone()
}

#[test]
fn both_words_for_an_end_are_one_end_in_either_order() {
    let both = [Departure::Uninstalled, Departure::Revoked];
    for order in [both, [both[1], both[0]]] {
        let mut bench = Bench::new();
        bench.run(&confirm(bench.now)).unwrap();
        bench.pass(5);
        for (why, wanted) in order.into_iter().zip([Departed::Now, Departed::Known]) {
            assert_eq!(bench.once(&depart(why, None)), Ok(wanted));
        }
        let kept = kept(&bench);
        assert_eq!((kept.departure(), kept.departures), (Some(order[0]), 1));
        assert!(kept.due_at().is_some_and(|at| at <= bench.now), "its work is stopped at once");
    }
}

#[test]
fn an_end_that_nobody_knew_the_beginning_of_is_one() {
    let mut bench = Bench::new();
    assert_eq!(bench.once(&depart(Departure::Uninstalled, None)), Ok(Departed::Now));
}

#[test]
fn late_news_of_an_end_before_the_installation_was_made_again_ends_nothing() {
    let mut bench = Bench::new();
    let before = bench.now;
    bench.pass(10);
    bench.run(&confirm(bench.now)).unwrap();
    let late = depart(Departure::Uninstalled, Some(before));
    assert_eq!(bench.run(&late), Ok(Departed::Stale));
    assert_eq!(kept(&bench).presence, Presence::Here);
    bench.pass(10);
    let news = depart(Departure::Uninstalled, Some(bench.now));
    assert_eq!(bench.once(&news), Ok(Departed::Now));
}

#[test]
fn an_answer_to_what_was_asked_before_the_end_mends_nothing_and_a_later_one_does() {
    let mut bench = Bench::new();
    let asked_at = bench.now;
    bench.pass(10);
    bench.run(&depart(Departure::Revoked, None)).unwrap();
    assert_eq!(bench.run(&confirm(asked_at)), Ok(false));
    assert_eq!(bench.run(&confirm(bench.now)), Ok(false), "not known to be after it");
    bench.pass(1);
    assert_eq!(bench.run(&confirm(bench.now)), Ok(true));
    let kept = kept(&bench);
    assert_eq!((kept.presence, kept.leaving), (Presence::Here, None));
}

#[test]
fn the_stops_go_on_where_they_were_and_never_into_what_came_after() {
    let mut bench = Bench::new();
    let upto = |name: &str| Some(SessionId::new(format!("slack/T1/C1/{name}")).unwrap());
    let walked = |departure, upto| Walked { installation: id(), departure, upto };
    bench.run(&depart(Departure::Uninstalled, None)).unwrap();
    assert_eq!(bench.run(&walked(1, upto("2"))), Ok(true));
    // Another node is behind.
    assert_eq!(bench.run(&walked(1, upto("1"))), Ok(true));
    assert_eq!(kept(&bench).leaving.unwrap().upto, upto("2"));
    bench.pass(1);
    bench.run(&confirm(bench.now)).unwrap();
    assert_eq!(bench.run(&walked(1, upto("3"))), Ok(false), "it was made again");
    bench.pass(1);
    bench.run(&depart(Departure::Uninstalled, None)).unwrap();
    assert_eq!(kept(&bench).leaving.unwrap().upto, None, "from the beginning");
    assert_eq!(bench.run(&walked(1, None)), Ok(false), "that was an earlier end");
    assert!(kept(&bench).leaving.is_some());
    assert_eq!(bench.run(&walked(2, None)), Ok(false));
    assert_eq!((kept(&bench).leaving, kept(&bench).due_at()), (None, None));
}

fn grant(sealed: &str, life_ms: Option<u64>, now: Timestamp) -> Grant {
    Grant {
        name: "Acme".into(),
        user: "UBOT".into(),
        bot: None,
        app: None,
        scopes: String::new(),
        sealed: sealed.into(),
        refresh: life_ms.map(|ms| Refresh::new(now, ms)),
    }
}

fn install(bench: &Bench, sealed: &str, life_ms: Option<u64>) -> Install {
    Install { installation: id(), grant: grant(sealed, life_ms, bench.now) }
}

fn lease(name: &str) -> LeaseRefresh {
    LeaseRefresh { installation: id(), lease: LeaseId::new(name).unwrap() }
}

fn refreshed(name: &str, of: &str, change: Change) -> Refreshed {
    let lease = LeaseId::new(name).unwrap();
    Refreshed { installation: id(), lease, of: of.into(), change }
}

fn new(sealed: &str) -> Change {
    Change::New { sealed: sealed.into(), life_ms: Some(HALF_DAY_MS) }
}

const HALF_DAY_MS: u64 = 43_200_000;

#[test]
fn tokens_are_due_before_they_end_and_changed_by_one() {
    let mut bench = Bench::new();
    bench.run(&install(&bench, "one", Some(HALF_DAY_MS))).unwrap();
    let due_at = kept(&bench).due_at().unwrap();
    assert_eq!(due_at, bench.now.plus_ms(HALF_DAY_MS - REFRESH_AHEAD_MS_MAX));
    assert_eq!(bench.run(&lease("a")), Err(Refusal::NotYet(due_at)));
    bench.pass(HALF_DAY_MS - REFRESH_AHEAD_MS_MAX);
    assert_eq!(bench.run(&lease("a")), Ok("one".to_owned()));
    let until = bench.now.plus_ms(REFRESH_LEASE_MS);
    assert_eq!(bench.run(&lease("b")), Err(Refusal::Busy(until)));
    assert_eq!(kept(&bench).due_at(), Some(until), "who holds it may die");
    bench.run(&refreshed("a", "one", new("two"))).unwrap();
    assert_eq!(kept(&bench).grant.unwrap().sealed, "two");
    assert!(kept(&bench).due_at() > Some(until));
    // Tokens that do not end are never due.
    bench.run(&install(&bench, "three", None)).unwrap();
    assert_eq!(kept(&bench).due_at(), None);
    assert_eq!(bench.run(&lease("c")), Err(Refusal::Idle));
}

#[test]
fn new_tokens_count_while_those_stand_that_they_are_of() {
    let mut bench = Bench::new();
    bench.run(&install(&bench, "one", Some(2))).unwrap();
    bench.pass(1);
    bench.run(&lease("a")).unwrap();
    bench.pass(REFRESH_LEASE_MS);
    bench.run(&lease("b")).unwrap();
    // The first was slow; what it got is there once, and what the second did not get is no news.
    let void = |name| refreshed(name, "one", Change::Void("no".into()));
    assert_eq!(bench.run(&void("a")), Err(Refusal::Fenced), "another one is at it");
    bench.run(&refreshed("a", "one", new("two"))).unwrap();
    assert_eq!(bench.run(&void("b")), Err(Refusal::Fenced));
    assert_eq!(bench.run(&refreshed("b", "one", new("three"))), Err(Refusal::Fenced));
    assert_eq!(kept(&bench).grant.unwrap().sealed, "two");
    // Nor over a new installation.
    bench.run(&install(&bench, "four", Some(2))).unwrap();
    assert_eq!(bench.run(&refreshed("b", "two", new("five"))), Err(Refusal::Fenced));
    assert_eq!(kept(&bench).grant.unwrap().sealed, "four");
}

#[test]
fn what_cannot_be_changed_is_tried_less_and_less_and_what_never_can_is_not() {
    let mut bench = Bench::new();
    bench.run(&install(&bench, "one", Some(2))).unwrap();
    bench.pass(1);
    let mut waits = vec![];
    for _ in 0..9 {
        bench.run(&lease("a")).unwrap();
        bench.run(&refreshed("a", "one", Change::Later { after_ms: 0 })).unwrap();
        let due_at = kept(&bench).due_at().unwrap();
        waits.push(due_at.since_ms(bench.now));
        bench.pass(due_at.since_ms(bench.now));
    }
    assert_eq!(waits[..3], [5_000, 10_000, 20_000]);
    assert_eq!(waits.last(), Some(&300_000));
    bench.run(&lease("a")).unwrap();
    bench.run(&refreshed("a", "one", Change::Void("no".into()))).unwrap();
    assert_eq!(kept(&bench).due_at(), None);
    assert_eq!(bench.run(&lease("b")), Err(Refusal::Idle));
    // What is gone is not due, and a new installation is whole.
    bench.run(&install(&bench, "two", Some(2))).unwrap();
    assert!(kept(&bench).due_at().is_some());
    bench.pass(1);
    bench.run(&depart(Departure::Uninstalled, None)).unwrap();
    bench.run(&Walked { installation: id(), departure: 1, upto: None }).unwrap();
    assert_eq!(kept(&bench).due_at(), None);
    assert_eq!(bench.run(&lease("b")), Err(Refusal::Unknown));
}

#[test]
fn a_way_to_an_installation_ends_once_and_in_time_and_their_number_is_bounded() {
    let mut bench = Bench::new();
    let invite = |hash: &str| Invite { hash: hash.to_owned() };
    let redeem = |hash: &str| Redeem { hash: hash.to_owned() };
    assert_eq!(bench.once(&redeem("a")), Ok(Redeemed::Unknown));
    bench.run(&invite("a")).unwrap();
    assert_eq!(bench.once(&redeem("b")), Ok(Redeemed::Unknown));
    assert_eq!(bench.once(&redeem("a")), Ok(Redeemed::Fresh));
    assert_eq!(bench.once(&redeem("a")), Ok(Redeemed::Used));
    bench.run(&invite("b")).unwrap();
    bench.pass(INVITATION_MS);
    assert_eq!(bench.once(&redeem("b")), Ok(Redeemed::Unknown), "too late");
    for number in 0..=INVITATIONS_MAX {
        bench.run(&invite(&format!("n{number}"))).unwrap();
    }
    assert_eq!(bench.once(&redeem("n0")), Ok(Redeemed::Unknown), "others pushed it out");
    assert_eq!(bench.once(&redeem("n1")), Ok(Redeemed::Fresh));
}
