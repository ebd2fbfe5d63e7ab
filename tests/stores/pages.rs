//! What every store must do with indexes and lists, written once and run on each.

use dogwatch::core::execution::Home;
use dogwatch::core::id::{BootId, SpoolId};
use dogwatch::core::ledger::{Aggregate, Index, Key};
use dogwatch::core::limits::SCORE_MAX;
use dogwatch::ports::{Member, Store, StoreError};
use pretty_assertions::assert_eq;

use super::place::{ChangeExt, Place, change, member, members, numbered, on_every_store, session};

on_every_store! {
    index_members_come_by_score_then_name_up_to_the_limit_asked,
    index_pages_go_on_after_a_member_among_equal_scores,
    an_index_entry_is_moved_and_removed,
    indexes_of_two_homes_are_apart,
    the_ends_of_the_range_of_scores_are_kept,
    rows_are_paged_in_key_order,
    aggregates_are_paged_in_order,
}

pub(super) async fn with_members(store: &dyn Store) -> Vec<(u64, String, String)> {
    let mut all = vec![];
    for name in ["b", "a"] {
        let mut apply = change(&session(name), None, "1");
        for (no, score) in [(3, 10), (2, 20), (1, 20), (4, 10)] {
            apply = apply.score(Index::Due, &Key::turn(no), Some(score));
            all.push(member(score, &format!("session/{name}"), &Key::turn(no)));
        }
        store.apply(apply).await.unwrap();
    }
    all.sort();
    all
}

async fn index_members_come_by_score_then_name_up_to_the_limit_asked(place: impl Place) {
    let store = place.store();
    let all = with_members(&*store).await;
    assert_eq!(members(&*store, &Index::Due, u64::MAX).await, all);
    assert_eq!(members(&*store, &Index::Due, 20).await, all);
    assert_eq!(members(&*store, &Index::Due, 19).await, all[..4]);
    assert_eq!(members(&*store, &Index::Due, 9).await, all[..0]);
    assert_eq!(store.members(&Index::Due, 20, None, 3).await.unwrap().len(), 3);
    assert_eq!(store.members(&Index::Due, 20, None, 0).await.unwrap(), vec![]);
    assert_eq!(members(&*store, &Index::Ready, u64::MAX).await, vec![]);
}

async fn index_pages_go_on_after_a_member_among_equal_scores(place: impl Place) {
    let store = place.store();
    let all = with_members(&*store).await;
    for limit in 1..=all.len() {
        let (mut seen, mut after) = (vec![], None);
        loop {
            let page = store.members(&Index::Due, 20, after.as_ref(), limit).await.unwrap();
            assert!(page.len() <= limit);
            seen.extend(page.iter().map(|m| (m.score, m.aggregate.to_string(), m.key.to_string())));
            match page.last() {
                Some(last) => after = Some(last.clone()),
                None => break,
            }
        }
        assert_eq!(seen, all, "in pages of {limit}");
    }
    // The member itself may be gone by the time the next page is asked for.
    let gone = Member { score: 10, aggregate: session("aa"), key: Key::turn(9) };
    let page = store.members(&Index::Due, 10, Some(&gone), 10).await.unwrap();
    assert!(page.iter().all(|m| m.aggregate == session("b")) && page.len() == 2, "{page:?}");
}

async fn an_index_entry_is_moved_and_removed(place: impl Place) {
    let (store, a) = (place.store(), session("a"));
    let steps = [Some(10), Some(30), Some(20), None, None, Some(40)];
    for (no, step) in steps.into_iter().enumerate() {
        let (before, after) = (no.to_string(), (no + 1).to_string());
        let expected = (no > 0).then_some(before.as_str());
        let apply = change(&a, expected, &after).score(Index::Due, &Key::turn(1), step);
        store.apply(apply).await.unwrap();
        let expected: Vec<_> =
            step.into_iter().map(|s| member(s, "session/a", &Key::turn(1))).collect();
        assert_eq!(members(&*store, &Index::Due, u64::MAX).await, expected, "step {no}");
    }
}

async fn indexes_of_two_homes_are_apart(place: impl Place) {
    let (store, a) = (place.store(), session("a"));
    let spool = Index::Home(Home::Spool(SpoolId::new("x/1").unwrap()));
    let process = Index::Home(Home::Process(BootId::new("x/1").unwrap()));
    let first = change(&a, None, "1").score(spool.clone(), &Key::turn(1), Some(0)).score(
        process.clone(),
        &Key::turn(2),
        Some(1),
    );
    store.apply(first).await.unwrap();
    assert_eq!(members(&*store, &spool, 1).await, [member(0, "session/a", &Key::turn(1))]);
    assert_eq!(members(&*store, &process, 1).await, [member(1, "session/a", &Key::turn(2))]);
}

async fn the_ends_of_the_range_of_scores_are_kept(place: impl Place) {
    let (store, a) = (place.store(), session("a"));
    let scores = [0, 1, SCORE_MAX / 2, SCORE_MAX / 2 + 1, SCORE_MAX - 1, SCORE_MAX];
    let mut apply = change(&a, None, "1");
    for (no, score) in scores.into_iter().rev().enumerate() {
        apply = apply.score(Index::Due, &Key::turn(no as u64), Some(score));
    }
    store.apply(apply).await.unwrap();
    let found = members(&*store, &Index::Due, u64::MAX).await;
    assert_eq!(found.iter().map(|m| m.0).collect::<Vec<_>>(), scores);
    assert_eq!(members(&*store, &Index::Due, 0).await.len(), 1);
    let beyond = change(&a, Some("1"), "2").score(Index::Due, &Key::head(), Some(SCORE_MAX + 1));
    let answer = store.apply(beyond).await;
    assert!(matches!(answer, Err(StoreError::Data(_))), "{answer:?}");
    assert_eq!(members(&*store, &Index::Due, u64::MAX).await, found);
}

async fn rows_are_paged_in_key_order(place: impl Place) {
    let (store, a) = (place.store(), session("a"));
    let mut apply = change(&a, None, "1");
    let mut keys: Vec<Key> = (0..12).rev().map(Key::entry).collect();
    keys.extend([Key::head(), Key::inbox(), Key::stored("x/ß"), Key::stored("x/z")]);
    for (no, key) in keys.iter().enumerate() {
        apply = apply.put(key, numbered(no as u64));
    }
    store.apply(apply).await.unwrap();
    store.apply(change(&session("b"), None, "1").put(&Key::head(), numbered(99))).await.unwrap();
    let mut sorted = keys.clone();
    sorted.sort();
    for limit in [1, 5, 100] {
        let (mut seen, mut after) = (vec![], None);
        loop {
            let page = store.rows(&a, after.as_ref(), limit).await.unwrap();
            assert!(page.len() <= limit);
            for (key, row) in &page {
                let no = keys.iter().position(|k| k == key).unwrap();
                assert_eq!(*row, numbered(no as u64));
                seen.push(key.clone());
            }
            match page.last() {
                Some((key, _)) => after = Some(key.clone()),
                None => break,
            }
        }
        assert_eq!(seen, sorted, "in pages of {limit}");
    }
}

async fn aggregates_are_paged_in_order(place: impl Place) {
    let store = place.store();
    let mut all: Vec<Aggregate> = ["b", "a", "console/main", "a b", "é"].map(session).into();
    all.push(Aggregate::Node(BootId::new("z").unwrap()));
    for aggregate in &all {
        store.apply(change(aggregate, None, "1")).await.unwrap();
    }
    all.sort();
    for limit in [1, 2, 100] {
        let mut seen: Vec<Aggregate> = vec![];
        loop {
            let page = store.aggregates(seen.last(), limit).await.unwrap();
            assert!(page.len() <= limit);
            if page.is_empty() {
                break;
            }
            seen.extend(page);
        }
        assert_eq!(seen, all, "in pages of {limit}");
    }
}
