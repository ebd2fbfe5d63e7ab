//! What a bot's store holds, read page by page beside a bot that runs.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use dogwatch::core::execution::Execution;
use dogwatch::core::id::{ExecutionId, SessionId, TurnNo};
use dogwatch::core::ledger::audit::{Balance, Snapshot, audit};
use dogwatch::core::ledger::row::{Item, RowType, Turn};
use dogwatch::core::ledger::{Aggregate, Key};
use dogwatch::core::transcript::{Body, Entry};
use dogwatch::ports::Store;

use super::bot::{Bot, principal, session};

impl Bot {
    /// Waits until the person of these tests has no place taken.
    pub(crate) async fn until_no_place_is_taken(&self) {
        let mut applies = self.hand.applies();
        let aggregate = Aggregate::Owner(principal());
        let seen = async {
            loop {
                applies.mark_unchanged();
                if snapshot(self.store_now(), &aggregate).await.is_empty() {
                    return;
                }
                applies.changed().await.unwrap();
            }
        };
        self.wait("no place is taken", seen).await;
    }

    /// All rows of a chat.
    pub(crate) async fn rows(&self, chat: &str) -> Snapshot {
        snapshot(self.store_now(), &Aggregate::Session(session(chat))).await
    }

    /// The log of a chat.
    pub(crate) async fn log(&self, chat: &str) -> Vec<Entry> {
        self.rows(chat).await.values().filter_map(Entry::of).cloned().collect()
    }

    /// What notices stand in the log of a chat, alone or with a result.
    pub(crate) async fn notices(&self, chat: &str) -> Vec<String> {
        let log = self.log(chat).await;
        let notices = log.into_iter().filter_map(|entry| match entry.body {
            Body::Notice(notice) => Some(notice),
            Body::Tool { notice, .. } => notice,
            Body::Heard { .. }
            | Body::Remark { .. }
            | Body::Earlier(_)
            | Body::Model { .. }
            | Body::Note { .. }
            | Body::Closing { .. } => None,
        });
        notices.map(|notice| notice.text).collect()
    }

    /// Waits until something holds of the posts in the outbox of a session.
    pub(crate) async fn outbox_when(
        &self,
        session: &SessionId,
        is: impl Fn(&[Item]) -> bool,
    ) -> Vec<Item> {
        let posts = |items: &[Item]| -> Vec<Item> {
            items.iter().filter(|item| item.errand.line().is_some()).cloned().collect()
        };
        let items = self.items_when(session, |items| is(&posts(items))).await;
        posts(&items)
    }

    /// Waits until something holds of everything in the outbox of a session.
    pub(crate) async fn items_when(
        &self,
        session: &SessionId,
        is: impl Fn(&[Item]) -> bool,
    ) -> Vec<Item> {
        let mut applies = self.hand.applies();
        let aggregate = Aggregate::Session(session.clone());
        let seen = async {
            loop {
                applies.mark_unchanged();
                let rows = snapshot(self.store_now(), &aggregate).await;
                let items: Vec<Item> = rows.values().filter_map(Item::of).cloned().collect();
                if is(&items) {
                    return items;
                }
                applies.changed().await.unwrap();
            }
        };
        self.wait("what is expected of the outbox", seen).await
    }

    /// Waits until a turn's row is like that.
    pub(crate) async fn turn_when(
        &self,
        session: &SessionId,
        turn: TurnNo,
        is: impl Fn(&Turn) -> bool,
    ) {
        let mut applies = self.hand.applies();
        let aggregate = Aggregate::Session(session.clone());
        let seen = async {
            loop {
                applies.mark_unchanged();
                let rows = snapshot(self.store_now(), &aggregate).await;
                if rows.get(&Key::turn(turn)).and_then(Turn::of).is_some_and(&is) {
                    return;
                }
                applies.changed().await.unwrap();
            }
        };
        self.wait("what is expected of a turn", seen).await;
    }

    /// An execution of the main chat.
    pub(crate) async fn execution(&self, id: &str) -> Execution {
        let rows = self.rows("main").await;
        let key = Key::execution(&ExecutionId::new(id).unwrap());
        rows.get(&key).and_then(Execution::of).unwrap().clone()
    }

    /// The balance of the whole store.
    pub(crate) async fn balance(&self) -> Balance {
        balance(self.store_now()).await
    }
}

/// All rows of one aggregate. Taken again when somebody wrote meanwhile.
pub(crate) async fn snapshot(store: &dyn Store, aggregate: &Aggregate) -> Snapshot {
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
pub(crate) async fn balance(store: &dyn Store) -> Balance {
    let mut sum = Balance::default();
    for aggregate in store.aggregates(None, 10_000).await.unwrap() {
        if aggregate.session().is_some() {
            sum.add(&audit(&snapshot(store, &aggregate).await));
        }
    }
    sum
}
