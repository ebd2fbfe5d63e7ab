//! Between the store and Redis something goes wrong: cut connections, late deliveries, a killed
//! server, cut logs, a full memory. What was answered is kept, what was not is whole or absent.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use dogwatch::core::ledger::{Change, Index, Key, Revision};
use dogwatch::ports::{Applied, Hint, Member, Store, StoreError};
use futures_util::future::join_all;
use pretty_assertions::assert_eq;

use super::dice::Dice;
use super::ledger::{beside_a_runtime, schedules_at};
use super::place::{InRedis, numbered, session, within_a_minute};
use super::redis::{assert_words, nth, open};
use super::redis_proxy::{Fault, RedisProxy};
use super::redis_server::RedisServer;

/// A place behind a proxy that does this to the first apply, and then no more.
async fn behind(fault: Fault) -> InRedis {
    let server = RedisServer::shared();
    // The server knows the script already.
    open(&server.url()).apply(nth(&session("other"), 1)).await.unwrap();
    let mut fault = Some(fault);
    let proxy = RedisProxy::start(&server.socket(), move || fault.take());
    InRedis::through(server, proxy)
}

/// The rows of the aggregate are those of its last apply, whatever came late.
async fn holds(place: &InRedis, last: u64) {
    let loaded = place.redis().load(&session("a"), &[Key::head()]).await.unwrap();
    assert_eq!(loaded.revision.map(|revision| revision.0), Some(last.to_string()));
    assert_eq!(loaded.rows, [Some(numbered(last))]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_fault_of_a_connection_is_unknown_to_who_asked_and_known_to_who_asks_again() {
    within_a_minute(async {
        for fault in Fault::ALL {
            let place = behind(fault).await;
            let (store, a) = (place.redis(), session("a"));
            let mut wakes = store.wakes();
            let first = store.apply(nth(&a, 1)).await;
            if fault == Fault::Delayed {
                assert_eq!(first, Ok(Applied::Applied));
            } else {
                let error = first.unwrap_err();
                assert!(matches!(error, StoreError::Away(_)), "{fault:?}: {error:?}");
                assert_words(&error, &["may or may not have happened"]);
            }
            // It may have happened, so it is worth a look.
            let member = Member { score: 1, aggregate: a.clone(), key: Key::head() };
            assert_eq!(wakes.try_recv(), Ok(Hint { index: Index::Ready, member }), "{fault:?}");
            let again = match fault {
                Fault::Unsent | Fault::LateAfter => Applied::Applied,
                Fault::Unanswered | Fault::HalfAnswered | Fault::Delayed | Fault::LateBefore => {
                    Applied::Already
                }
            };
            assert_eq!(store.apply(nth(&a, 1)).await, Ok(again), "{fault:?}");
            holds(&place, 1).await;
            assert_eq!(store.apply(nth(&a, 2)).await, Ok(Applied::Applied), "{fault:?}");
            holds(&place, 2).await;
            assert_eq!(place.proxy.as_ref().unwrap().happened(), [fault]);
        }
    })
    .await;
}

#[tokio::test]
async fn an_apply_that_arrives_after_its_successors_changes_nothing() {
    let place = behind(Fault::LateAfter).await;
    let (store, a) = (place.redis(), session("a"));
    // Nobody asks for the first again: what was decided on top of nothing is decided anew.
    assert!(store.apply(nth(&a, 1)).await.is_err());
    let other = Change { revision: Revision("other".into()), ..nth(&a, 1) };
    assert_eq!(store.apply(other).await, Ok(Applied::Applied));
    let loaded = store.load(&a, &[]).await.unwrap();
    assert_eq!(loaded.revision.map(|revision| revision.0).as_deref(), Some("other"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs_is_away_after_a_while_and_found_again_when_it_goes_on() {
    within_a_minute(async {
        let server = RedisServer::start(&[]);
        let (store, a) = (open(&server.url()), session("a"));
        store.apply(nth(&a, 1)).await.unwrap();
        server.stand_still(true);
        // All that wait on that connection are told, not one after the other.
        let asked = join_all((0..20).map(|_| store.apply(nth(&a, 2)))).await;
        for answer in asked {
            let error = answer.unwrap_err();
            assert!(matches!(error, StoreError::Away(_)), "{error:?}");
            assert_words(&error, &["timed out", "may or may not have happened"]);
        }
        server.stand_still(false);
        let mut answer = store.apply(nth(&a, 2)).await;
        while answer.is_err() {
            answer = store.apply(nth(&a, 2)).await;
        }
        // It had read what it was sent, and did it when it went on.
        assert!(matches!(answer, Ok(Applied::Applied | Applied::Already)));
        assert_eq!(store.apply(nth(&a, 3)).await, Ok(Applied::Applied));
    })
    .await;
}

/// The simulator's worlds, with the faults of a network beside its own.
fn worlds_behind_faults(seeds: std::ops::Range<u64>, sole: bool) {
    beside_a_runtime(|| {
        let happened = Arc::new(Mutex::new(BTreeSet::new()));
        schedules_at(seeds, sole, |seed| {
            let server = RedisServer::shared();
            let (mut dice, happened) = (Dice::new(seed), happened.clone());
            let proxy = RedisProxy::start(&server.socket(), move || {
                let fault = dice.chance(8).then(|| *dice.pick(&Fault::ALL));
                happened.lock().expect("nobody panics with it").extend(fault);
                fault
            });
            InRedis::through(server, proxy)
        });
        let happened = happened.lock().expect("nobody panics with it");
        assert_eq!(happened.iter().copied().collect::<Vec<_>>(), Fault::ALL);
    });
}

#[test]
fn worlds_of_several_nodes_behind_a_network_that_fails() {
    worlds_behind_faults(40_000..40_010, false);
}

#[test]
fn worlds_of_one_boot_behind_a_network_that_fails() {
    worlds_behind_faults(40_000..40_012, true);
}
