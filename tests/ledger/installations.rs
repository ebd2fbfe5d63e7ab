//! Installations: which news of them counts, in whatever order it comes.

use dogwatch::core::id::{InstallationId, SessionId};
use dogwatch::core::installation::{Departure, Installation, Presence};
use dogwatch::core::ledger::installation::{Confirm, Depart, Departed, Walked};
use dogwatch::core::ledger::row::RowType;
use dogwatch::core::ledger::{Aggregate, Key};
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
