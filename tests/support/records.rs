//! All rows of a store, read page by page beside a bot that runs.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use dogwatch::core::ledger::Aggregate;
use dogwatch::core::ledger::audit::{Balance, Snapshot, audit};
use dogwatch::ports::Store;

/// All rows of one aggregate. Taken again when somebody wrote meanwhile.
pub(super) async fn snapshot(store: &dyn Store, aggregate: &Aggregate) -> Snapshot {
    loop {
        let before = store.load(aggregate, &[]).await.unwrap().revision;
        let mut rows = Snapshot::new();
        loop {
            let after = rows.last_key_value().map(|(key, _)| key.clone());
            let page = store.rows(aggregate, after.as_ref(), 500).await.unwrap();
            if page.is_empty() {
                break;
            }
            rows.extend(page);
        }
        if store.load(aggregate, &[]).await.unwrap().revision == before {
            return rows;
        }
    }
}

/// The balance of all sessions of a store.
pub(super) async fn balance(store: &dyn Store) -> Balance {
    let mut sum = Balance::default();
    for aggregate in store.aggregates(None, 10_000).await.unwrap() {
        if aggregate.session().is_some() {
            sum.add(&audit(&snapshot(store, &aggregate).await));
        }
    }
    sum
}
