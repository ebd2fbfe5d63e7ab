//! What every store must do with an apply and a load, written once and run on each.

use dogwatch::core::id::BootId;
use dogwatch::core::ledger::row::Summary;
use dogwatch::core::ledger::{Aggregate, Class, Index, Key, Revision, Row};
use dogwatch::core::limits::{KEYS_PER_LOAD_MAX, ROW_BYTES_MAX, ROW_DEPTH_MAX};
use dogwatch::core::transcript::{Body, Entry};
use dogwatch::ports::{Applied, Hint, Loaded, Member, Store, StoreError};
use pretty_assertions::assert_eq;
use tokio::sync::broadcast::error::TryRecvError;
use tokio::task::JoinSet;

use super::pages::with_members;
use super::place::{ChangeExt, Place, change, member, members, numbered, on_every_store, session};

on_every_store! {
    an_aggregate_that_is_not_there_has_no_revision_and_no_rows,
    an_apply_writes_all_of_its_change,
    a_conflict_writes_nothing,
    a_repeat_of_the_last_apply_is_already_done,
    an_older_apply_is_a_conflict_when_repeated,
    an_emptied_aggregate_still_knows_its_last_apply,
    a_row_may_be_written_again_and_deleted,
    aggregates_do_not_touch_each_other,
    a_load_answers_each_key_in_the_order_asked,
    a_load_is_of_one_moment,
    a_load_of_too_many_keys_is_refused,
    an_apply_gives_a_hint_for_each_scored_entry_before_its_answer,
    of_many_appliers_exactly_one_wins_each_revision,
    every_row_kind_comes_back_as_it_was,
    a_row_that_is_too_large_is_refused_and_nothing_is_written,
    a_row_that_is_too_deep_to_be_read_again_is_refused,
    everything_is_there_after_reopening,
    a_change_whose_answer_nobody_awaits_is_whole_or_absent,
    time_does_not_go_back,
}

async fn revision(store: &dyn Store, aggregate: &Aggregate) -> Option<String> {
    store.load(aggregate, &[]).await.unwrap().revision.map(|revision| revision.0)
}

async fn an_aggregate_that_is_not_there_has_no_revision_and_no_rows(place: impl Place) {
    let store = place.store();
    let loaded = store.load(&session("a"), &[Key::head(), Key::inbox()]).await.unwrap();
    assert_eq!(loaded, Loaded { revision: None, rows: vec![None, None] });
    assert_eq!(store.rows(&session("a"), None, 10).await.unwrap(), vec![]);
    assert_eq!(store.aggregates(None, 10).await.unwrap(), vec![]);
    assert_eq!(members(&*store, &Index::Ready, u64::MAX).await, vec![]);
}

async fn an_apply_writes_all_of_its_change(place: impl Place) {
    let (store, a) = (place.store(), session("a"));
    let first = change(&a, None, "r1")
        .put(&Key::head(), numbered(1))
        .put(&Key::inbox(), numbered(2))
        .score(Index::Ready, &Key::head(), Some(5))
        .score(Index::Due, &Key::inbox(), Some(6));
    assert_eq!(store.apply(first).await, Ok(Applied::Applied));
    let loaded = store.load(&a, &[Key::head(), Key::inbox()]).await.unwrap();
    assert_eq!(loaded.revision, Some(Revision("r1".into())));
    assert_eq!(loaded.rows, vec![Some(numbered(1)), Some(numbered(2))]);
    assert_eq!(members(&*store, &Index::Ready, 9).await, [member(5, "session/a", &Key::head())]);
    assert_eq!(members(&*store, &Index::Due, 9).await, [member(6, "session/a", &Key::inbox())]);
}

async fn a_conflict_writes_nothing(place: impl Place) {
    let (store, a) = (place.store(), session("a"));
    let first = change(&a, None, "r1").put(&Key::head(), numbered(1));
    store.apply(first).await.unwrap();
    for expected in [None, Some("other")] {
        let stale = change(&a, expected, "r2")
            .put(&Key::head(), numbered(2))
            .put(&Key::inbox(), numbered(3))
            .score(Index::Ready, &Key::head(), Some(5));
        assert_eq!(store.apply(stale).await, Ok(Applied::Conflict));
    }
    let absent = change(&session("b"), Some("r1"), "r2").put(&Key::head(), numbered(2));
    assert_eq!(store.apply(absent).await, Ok(Applied::Conflict));
    assert_eq!(store.rows(&a, None, 10).await.unwrap(), vec![(Key::head(), numbered(1))]);
    assert_eq!(members(&*store, &Index::Ready, u64::MAX).await, vec![]);
    assert_eq!(store.aggregates(None, 10).await.unwrap(), vec![a.clone()]);
    assert_eq!(revision(&*store, &a).await.as_deref(), Some("r1"));
}

async fn a_repeat_of_the_last_apply_is_already_done(place: impl Place) {
    let (store, a) = (place.store(), session("a"));
    let first = change(&a, None, "r1").put(&Key::head(), numbered(1));
    assert_eq!(store.apply(first.clone()).await, Ok(Applied::Applied));
    assert_eq!(store.apply(first).await, Ok(Applied::Already));
    let second = change(&a, Some("r1"), "r2").put(&Key::head(), numbered(2));
    assert_eq!(store.apply(second.clone()).await, Ok(Applied::Applied));
    assert_eq!(store.apply(second).await, Ok(Applied::Already));
    assert_eq!(store.rows(&a, None, 10).await.unwrap(), vec![(Key::head(), numbered(2))]);
}

async fn an_older_apply_is_a_conflict_when_repeated(place: impl Place) {
    let (store, a) = (place.store(), session("a"));
    let first = change(&a, None, "r1").put(&Key::head(), numbered(1));
    store.apply(first.clone()).await.unwrap();
    store.apply(change(&a, Some("r1"), "r2").put(&Key::head(), numbered(2))).await.unwrap();
    assert_eq!(store.apply(first).await, Ok(Applied::Conflict));
    assert_eq!(store.rows(&a, None, 10).await.unwrap(), vec![(Key::head(), numbered(2))]);
}

async fn an_emptied_aggregate_still_knows_its_last_apply(place: impl Place) {
    let (store, a) = (place.store(), session("a"));
    store.apply(change(&a, None, "r1").put(&Key::head(), numbered(1))).await.unwrap();
    let emptying = change(&a, Some("r1"), "r2").delete(&Key::head());
    assert_eq!(store.apply(emptying.clone()).await, Ok(Applied::Applied));
    assert_eq!(store.apply(emptying).await, Ok(Applied::Already));
    let again = change(&a, None, "r1").put(&Key::head(), numbered(1));
    assert_eq!(store.apply(again).await, Ok(Applied::Conflict));
}

async fn a_row_may_be_written_again_and_deleted(place: impl Place) {
    let (store, a) = (place.store(), session("a"));
    let first = change(&a, None, "1").put(&Key::head(), numbered(1)).put(&Key::live(), numbered(2));
    store.apply(first).await.unwrap();
    let second = change(&a, Some("1"), "2").put(&Key::head(), numbered(3)).delete(&Key::live());
    store.apply(second).await.unwrap();
    let third = change(&a, Some("2"), "3").delete(&Key::inbox());
    assert_eq!(store.apply(third).await, Ok(Applied::Applied), "deleting what is not there");
    assert_eq!(store.rows(&a, None, 10).await.unwrap(), vec![(Key::head(), numbered(3))]);
}

async fn aggregates_do_not_touch_each_other(place: impl Place) {
    let store = place.store();
    let (a, node) = (session("a"), Aggregate::Node(BootId::new("a").unwrap()));
    for (aggregate, number) in [(&a, 1), (&node, 2)] {
        let first = change(aggregate, None, "r1").put(&Key::head(), numbered(number)).score(
            Index::Expire,
            &Key::head(),
            Some(number),
        );
        assert_eq!(store.apply(first).await, Ok(Applied::Applied));
    }
    let second =
        change(&a, Some("r1"), "r2").delete(&Key::head()).score(Index::Expire, &Key::head(), None);
    store.apply(second).await.unwrap();
    assert_eq!(store.rows(&node, None, 10).await.unwrap(), vec![(Key::head(), numbered(2))]);
    assert_eq!(members(&*store, &Index::Expire, 9).await, [member(2, "node/a", &Key::head())]);
}

async fn a_load_answers_each_key_in_the_order_asked(place: impl Place) {
    let (store, a) = (place.store(), session("a"));
    let first =
        change(&a, None, "1").put(&Key::turn(1), numbered(1)).put(&Key::turn(3), numbered(3));
    store.apply(first).await.unwrap();
    let keys = [Key::turn(3), Key::turn(2), Key::turn(1), Key::turn(3)];
    let loaded = store.load(&a, &keys).await.unwrap();
    assert_eq!(loaded.rows, [Some(numbered(3)), None, Some(numbered(1)), Some(numbered(3))]);
}

async fn a_load_is_of_one_moment(place: impl Place) {
    let (store, a) = (place.store(), session("a"));
    let keys: Vec<Key> = (0..40).map(Key::entry).collect();
    let writes = async {
        for no in 1..=150_u64 {
            let (before, after) = ((no - 1).to_string(), no.to_string());
            let mut apply = change(&a, (no > 1).then_some(&before), &after).class(Class::HINT);
            for key in &keys {
                apply = apply.put(key, numbered(no));
            }
            assert_eq!(store.apply(apply).await, Ok(Applied::Applied));
        }
    };
    let (reader, of, asked) = (store.clone(), a.clone(), keys.clone());
    let mut reads = JoinSet::new();
    reads.spawn(async move {
        let mut moments = 0;
        loop {
            let loaded = reader.load(&of, &asked).await.unwrap();
            let no = loaded.revision.map_or(0, |revision| revision.0.parse().unwrap());
            let row = (no > 0).then(|| numbered(no));
            assert!(loaded.rows.iter().all(|found| *found == row), "a row is not of {no}");
            moments += 1;
            if no == 150 {
                return moments;
            }
        }
    });
    writes.await;
    let moments = reads.join_next().await.unwrap().unwrap();
    assert!(moments > 1);
}

async fn a_load_of_too_many_keys_is_refused(place: impl Place) {
    let store = place.store();
    let keys: Vec<Key> = (0..=KEYS_PER_LOAD_MAX as u64).map(Key::entry).collect();
    let answer = store.load(&session("a"), &keys).await;
    assert!(matches!(answer, Err(StoreError::Data(_))), "{answer:?}");
    let answer = store.load(&session("a"), &keys[..KEYS_PER_LOAD_MAX]).await;
    assert_eq!(answer.unwrap().rows.len(), KEYS_PER_LOAD_MAX);
}

async fn an_apply_gives_a_hint_for_each_scored_entry_before_its_answer(place: impl Place) {
    let (store, a) = (place.store(), session("a"));
    let mut wakes = store.wakes();
    let apply = change(&a, None, "1")
        .score(Index::Ready, &Key::head(), Some(7))
        .score(Index::Due, &Key::turn(1), None)
        .score(Index::Outbox, &Key::turn(2), Some(8));
    store.apply(apply.clone()).await.unwrap();
    for (index, score, key) in [(Index::Ready, 7, Key::head()), (Index::Outbox, 8, Key::turn(2))] {
        let member = Member { score, aggregate: a.clone(), key };
        assert_eq!(wakes.try_recv(), Ok(Hint { index, member }));
    }
    // What writes nothing hints at nothing.
    store.apply(apply).await.unwrap();
    let conflict = change(&a, None, "2").score(Index::Ready, &Key::head(), Some(9));
    store.apply(conflict).await.unwrap();
    assert_eq!(wakes.try_recv(), Err(TryRecvError::Empty));
}

async fn of_many_appliers_exactly_one_wins_each_revision(place: impl Place) {
    let (store, a) = (place.store(), session("a"));
    let mut last: Option<String> = None;
    for round in 0..8 {
        let mut appliers = JoinSet::new();
        for applier in 0..24_u64 {
            let (store, a, last) = (store.clone(), a.clone(), last.clone());
            appliers.spawn(async move {
                let revision = format!("{round}.{applier}");
                let apply = change(&a, last.as_deref(), &revision)
                    .put(&Key::head(), numbered(applier))
                    .put(&Key::turn(applier), numbered(round))
                    .score(Index::Ready, &Key::head(), Some(applier));
                (applier, revision, store.apply(apply).await.unwrap())
            });
        }
        let answers = appliers.join_all().await;
        let won: Vec<_> = answers.iter().filter(|(_, _, a)| *a == Applied::Applied).collect();
        assert_eq!(won.len(), 1, "{answers:?}");
        let (winner, revision, _) = won[0];
        assert!(answers.iter().filter(|a| a.2 == Applied::Conflict).count() == 23);
        let loaded = store.load(&a, &[Key::head(), Key::turn(*winner)]).await.unwrap();
        assert_eq!(loaded.revision.as_ref().map(|r| &r.0), Some(revision));
        assert_eq!(loaded.rows, [Some(numbered(*winner)), Some(numbered(round))]);
        let ready = members(&*store, &Index::Ready, u64::MAX).await;
        assert_eq!(ready, [member(*winner, "session/a", &Key::head())]);
        last = Some(revision.clone());
    }
}

async fn every_row_kind_comes_back_as_it_was(place: impl Place) {
    let (store, a) = (place.store(), session("a"));
    let samples = super::samples::all();
    let mut apply = change(&a, None, "1");
    for (name, row) in &samples {
        apply = apply.put(&Key::stored(*name), row.clone());
    }
    store.apply(apply).await.unwrap();
    let keys: Vec<Key> = samples.iter().map(|(name, _)| Key::stored(*name)).collect();
    let loaded = store.load(&a, &keys).await.unwrap();
    for ((name, row), found) in samples.into_iter().zip(loaded.rows) {
        assert_eq!(found, Some(row), "{name}");
    }
}

fn text_of(bytes: usize) -> Row {
    Row::Summary(Summary { upto: 0, text: "x".repeat(bytes) })
}

async fn a_row_that_is_too_large_is_refused_and_nothing_is_written(place: impl Place) {
    let (store, a) = (place.store(), session("a"));
    let large = change(&a, None, "1")
        .put(&Key::head(), numbered(1))
        .put(&Key::summary(), text_of(ROW_BYTES_MAX))
        .score(Index::Ready, &Key::head(), Some(1));
    let Err(StoreError::Data(words)) = store.apply(large).await else {
        panic!("a row of {ROW_BYTES_MAX} bytes and an envelope was taken");
    };
    for part in ["row s", "session/a", "262144", "shorten"] {
        assert!(words.contains(part), "{part} is missing in: {words}");
    }
    assert_eq!(store.rows(&a, None, 10).await.unwrap(), vec![]);
    assert_eq!(members(&*store, &Index::Ready, u64::MAX).await, vec![]);
    assert_eq!(revision(&*store, &a).await, None);
    let fits = change(&a, None, "1").put(&Key::summary(), text_of(ROW_BYTES_MAX - 100));
    assert_eq!(store.apply(fits).await, Ok(Applied::Applied));
    assert_eq!(
        store.load(&a, &[Key::summary()]).await.unwrap().rows,
        [Some(text_of(ROW_BYTES_MAX - 100))]
    );
}

fn nested(depth: usize) -> Row {
    let result = (0..depth).fold(serde_json::json!(1), |inner, _| serde_json::json!([inner]));
    let body = Body::Tool { entry: 0, call: 0, result, notice: None };
    let at = dogwatch::core::time::Timestamp::ZERO;
    Row::Entry(Entry { turn: 1, fence: 1, at, body, carries: vec![] })
}

async fn a_row_that_is_too_deep_to_be_read_again_is_refused(place: impl Place) {
    let (store, a) = (place.store(), session("a"));
    let deep = change(&a, None, "1").put(&Key::entry(0), nested(ROW_DEPTH_MAX));
    assert!(matches!(store.apply(deep).await, Err(StoreError::Data(_))));
    let row = nested(ROW_DEPTH_MAX - 4);
    let fits = change(&a, None, "1").put(&Key::entry(0), row.clone());
    assert_eq!(store.apply(fits).await, Ok(Applied::Applied));
    assert_eq!(store.load(&a, &[Key::entry(0)]).await.unwrap().rows, [Some(row)]);
}

async fn everything_is_there_after_reopening(mut place: impl Place) {
    let (store, a) = (place.store(), session("a"));
    let expected = with_members(&*store).await;
    let second = change(&a, Some("1"), "2").put(&Key::head(), numbered(2)).class(Class::HINT);
    store.apply(second.clone()).await.unwrap();
    drop(store);
    place.reopen();
    let store = place.store();
    assert_eq!(members(&*store, &Index::Due, u64::MAX).await, expected);
    assert_eq!(store.rows(&a, None, 10).await.unwrap(), vec![(Key::head(), numbered(2))]);
    assert_eq!(store.apply(second).await, Ok(Applied::Already));
}

async fn a_change_whose_answer_nobody_awaits_is_whole_or_absent(mut place: impl Place) {
    let (store, a) = (place.store(), session("a"));
    let apply = change(&a, None, "1").put(&Key::head(), numbered(1)).score(
        Index::Ready,
        &Key::head(),
        Some(1),
    );
    let mut asked = store.apply(apply.clone());
    let _answer = futures_util::poll!(asked.as_mut());
    drop(asked);
    drop(store);
    place.reopen();
    let store = place.store();
    let written = revision(&*store, &a).await.is_some();
    assert_eq!(store.rows(&a, None, 10).await.unwrap().len(), usize::from(written));
    assert_eq!(members(&*store, &Index::Ready, 1).await.len(), usize::from(written));
    let again = if written { Applied::Already } else { Applied::Applied };
    assert_eq!(store.apply(apply).await, Ok(again));
}

async fn time_does_not_go_back(place: impl Place) {
    let store = place.store();
    let mut last = store.now().await.unwrap();
    assert!(last.as_ms() > 0);
    for _ in 0..100 {
        let now = store.now().await.unwrap();
        assert!(now >= last);
        last = now;
    }
}
