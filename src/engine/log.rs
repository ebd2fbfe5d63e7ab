//! What a turn reads: the log of its session and the table of what runs. Owns reading it by way of
//! the rows that the ledger keeps. Must not know the turn machine.

use std::sync::Arc;

use super::Engine;
use crate::core::arrival::Arrival;
use crate::core::budget::ChainLeft;
use crate::core::execution::Execution;
use crate::core::id::{EntryNo, SessionId};
use crate::core::ledger::row::{Chain, Head, Live, Row, RowType, Summary, Turn};
use crate::core::ledger::session::Token;
use crate::core::ledger::{Aggregate, Key};
use crate::core::limits::KEYS_PER_LOAD_MAX;
use crate::core::time::Timestamp;
use crate::core::transcript::Entry;
use crate::ports::StoreError;

/// A forgotten chain is a spent one.
const SPENT: ChainLeft = ChainLeft { wakes: 0, tokens: 0, spawns: 0 };

/// The log as the model reads it.
pub(super) struct Log {
    pub(super) summary: Option<String>,
    /// Of the turns before.
    pub(super) before: Vec<(EntryNo, Entry)>,
    /// Of the open turn.
    pub(super) own: Vec<(EntryNo, Entry)>,
    pub(super) chain: ChainLeft,
}

impl Log {
    /// The log of an open turn whose lane is held here: nobody else writes it.
    pub(super) async fn load(
        engine: &Engine,
        token: &Token,
        turn: &Turn,
    ) -> Result<Self, StoreError> {
        let aggregate = Aggregate::Session(token.session.clone());
        // The claim has just seen the head, so this is no read of the store.
        let rows = engine.ledger.read(&aggregate, &[Key::head()]).await?;
        let from = row::<Head>(&rows, 0).map_or(0, |head| head.log_from);
        let numbers: Vec<EntryNo> = (from..turn.base + turn.len).collect();
        let (mut summary, mut chain, mut entries) = (None, SPENT, vec![]);
        // The keys of the frame ride with the first page.
        let frame = [Key::summary(), Key::chain(turn.chain), Key::live()];
        let pages = numbers.chunks(KEYS_PER_LOAD_MAX - frame.len());
        let pages = pages.chain(numbers.is_empty().then_some(&[][..]));
        for (no, page) in pages.enumerate() {
            let first = if no == 0 { frame.as_slice() } else { &[] };
            let keys = first.iter().cloned().chain(page.iter().map(|no| Key::entry(*no)));
            let keys: Vec<Key> = keys.collect();
            let rows = engine.ledger.read(&aggregate, &keys).await?;
            if no == 0 {
                summary = row::<Summary>(&rows, 0).map(|summary| summary.text.clone());
                chain = row::<Chain>(&rows, 1).map_or(SPENT, left);
            }
            let (_, rows) = rows.split_at(first.len());
            entries.extend(page.iter().zip(rows).filter_map(|(no, row)| {
                let entry = row.as_deref().and_then(Entry::of)?;
                Some((*no, entry.clone()))
            }));
        }
        let own = entries.split_off(entries.partition_point(|(no, _)| *no < turn.base));
        Ok(Self { summary, before: entries, own, chain })
    }
}

/// When the first message of these entries was said, by its place's clock.
pub(super) async fn began(
    engine: &Engine,
    session: &SessionId,
    entries: &[(EntryNo, Entry)],
) -> Result<Option<Timestamp>, StoreError> {
    let Some(first) = entries.iter().find_map(|(_, entry)| entry.carries.first()) else {
        return Ok(None);
    };
    let aggregate = Aggregate::Session(session.clone());
    let rows = engine.ledger.read(&aggregate, &[Key::arrival(*first)]).await?;
    Ok(row::<Arrival>(&rows, 0).map(|arrival| arrival.source_at))
}

fn row<T: RowType>(rows: &[Option<Arc<Row>>], place: usize) -> Option<&T> {
    rows.get(place)?.as_deref().and_then(T::of)
}

/// What is left of a chain.
pub(super) fn left(chain: &Chain) -> ChainLeft {
    ChainLeft { wakes: chain.wakes, tokens: chain.tokens, spawns: chain.spawns }
}

/// The executions of a session that are not over, oldest first, as of the last write here: for a
/// turn that has just written.
pub(super) async fn live(
    engine: &Engine,
    session: &SessionId,
) -> Result<Vec<Execution>, StoreError> {
    let aggregate = Aggregate::Session(session.clone());
    let rows = engine.ledger.read(&aggregate, &[Key::live()]).await?;
    let keys = keys_of(row::<Live>(&rows, 0));
    if keys.is_empty() {
        return Ok(vec![]);
    }
    let rows = engine.ledger.read(&aggregate, &keys).await?;
    Ok(unended(rows.iter().filter_map(Option::as_deref)))
}

/// The same as it is now: for whoever asks what runs.
pub(super) async fn live_now(
    engine: &Engine,
    session: &SessionId,
) -> Result<Vec<Execution>, StoreError> {
    let aggregate = Aggregate::Session(session.clone());
    let rows = engine.ports.store.load(&aggregate, &[Key::live()]).await?.rows;
    let keys = keys_of(rows.iter().flatten().next().and_then(Live::of));
    if keys.is_empty() {
        return Ok(vec![]);
    }
    let rows = engine.ports.store.load(&aggregate, &keys).await?.rows;
    Ok(unended(rows.iter().flatten()))
}

fn keys_of(live: Option<&Live>) -> Vec<Key> {
    live.map_or_else(Vec::new, |live| live.0.iter().map(Key::execution).collect())
}

fn unended<'a>(rows: impl Iterator<Item = &'a Row>) -> Vec<Execution> {
    let executions = rows.filter_map(Execution::of);
    executions.filter(|execution| !execution.state.is_ended()).cloned().collect()
}
