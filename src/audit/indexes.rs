//! Whether the indexes of a store are those of its rows. Owns the comparison beside a bot that goes
//! on writing: what looks wrong is looked at again, at one moment. Must not know what an index is
//! for; `index_of` says what belongs into it.

use std::collections::{BTreeMap, HashSet};

use anyhow::Result;

use super::PAGE;
use crate::core::ledger::audit::Snapshot;
use crate::core::ledger::{Aggregate, Index, Key, Revision, index_of};
use crate::ports::{Member, Store};

/// What the rows read so far put into the indexes.
#[derive(Debug, Default)]
pub(super) struct Indexes(BTreeMap<Index, HashSet<Member>>);

impl Indexes {
    /// Adds the rows of one aggregate.
    pub(super) fn add(&mut self, aggregate: &Aggregate, rows: &Snapshot) {
        for (key, row) in rows {
            for (index, score) in index_of(key, row) {
                let member = Member { score, aggregate: aggregate.clone(), key: key.clone() };
                self.0.entry(index).or_default().insert(member);
            }
        }
    }

    /// Each difference that is still there when it is looked at alone, in words.
    pub(super) async fn compare(mut self, store: &dyn Store) -> Result<Vec<String>> {
        let shared = [Index::Ready, Index::Due, Index::Outbox, Index::Relay, Index::Nodes];
        let shared = shared.into_iter().chain([Index::Installations, Index::Places]);
        for index in shared.chain([Index::Expire]) {
            self.0.entry(index).or_default();
        }
        let mut faults = vec![];
        for (index, mut expected) in self.0 {
            let mut suspects = vec![];
            let mut after: Option<Member> = None;
            loop {
                let page = store.members(&index, u64::MAX, after.as_ref(), PAGE).await?;
                let last = page.len() < PAGE;
                after = page.last().cloned().or(after);
                suspects.extend(page.into_iter().filter(|member| !expected.remove(member)));
                if last {
                    break;
                }
            }
            suspects.extend(expected);
            for member in suspects {
                faults.extend(look(store, &index, &member).await?);
            }
        }
        Ok(faults)
    }
}

/// Row and member as of one revision; `None` when they agree, or change all the time.
async fn look(store: &dyn Store, index: &Index, member: &Member) -> Result<Option<String>> {
    let Member { score, aggregate, key } = member;
    let (before, wanted) = wanted(store, index, aggregate, key).await?;
    // The first member of that score and aggregate, whatever its key.
    let first = Member { key: Key::stored(""), ..member.clone() };
    let page = store.members(index, *score, Some(&first), PAGE).await?;
    let there = page.contains(member);
    if there == (wanted == Some(*score))
        || self::wanted(store, index, aggregate, key).await?.0 != before
    {
        return Ok(None);
    }
    let whose = aggregate.session().map_or_else(|| aggregate.to_string(), ToString::to_string);
    Ok(Some(if there {
        format!("{whose}: the index {index} has {key} where no row asks for it")
    } else {
        format!("{whose}: the index {index} does not have {key} where its row asks for it")
    }))
}

/// The revision, and the score that the row asks for.
async fn wanted(
    store: &dyn Store,
    index: &Index,
    aggregate: &Aggregate,
    key: &Key,
) -> Result<(Option<Revision>, Option<u64>)> {
    let loaded = store.load(aggregate, std::slice::from_ref(key)).await?;
    let row = loaded.rows.into_iter().next().flatten();
    let entries = row.map_or_else(Vec::new, |row| index_of(key, &row));
    let wanted = entries.into_iter().find(|(of, _)| of == index).map(|(_, score)| score);
    Ok((loaded.revision, wanted))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::core::id::BootId;
    use crate::core::ledger::row::{Beat, Row};
    use crate::core::ledger::{Change, Class, IndexWrite, Write};
    use crate::core::time::Timestamp;
    use crate::store::{ManualClock, Memory};

    /// Writes a beat, and these entries of its row.
    async fn beat(
        store: &Memory,
        at: Timestamp,
        entries: &[(Index, u64)],
    ) -> (Aggregate, Snapshot) {
        let aggregate = Aggregate::Node(BootId::new("b").unwrap());
        let row = Row::Beat(Beat { counter: 1, spool: None, at, buried_at: None });
        let index = |(index, score): &(Index, u64)| IndexWrite {
            index: index.clone(),
            key: Key::beat(),
            score: Some(*score),
        };
        let change = Change {
            aggregate: aggregate.clone(),
            expected: None,
            revision: Revision("r".into()),
            writes: vec![Write { key: Key::beat(), row: Some(Arc::new(row.clone())) }],
            index: entries.iter().map(index).collect(),
            class: Class::HINT,
        };
        store.apply(change).await.unwrap();
        (aggregate, Snapshot::from([(Key::beat(), row)]))
    }

    #[tokio::test]
    async fn a_member_too_many_one_too_few_and_one_at_a_wrong_score_are_each_told() {
        let at = Timestamp::from_ms(5);
        let cases: [(&[(Index, u64)], usize); 4] = [
            (&[(Index::Nodes, 5)], 0),
            (&[], 1),
            (&[(Index::Nodes, 6)], 2),
            (&[(Index::Nodes, 5), (Index::Due, 9)], 1),
        ];
        for (entries, count) in cases {
            let store = Memory::new(Arc::new(ManualClock::new(at)));
            let (aggregate, rows) = beat(&store, at, entries).await;
            let mut indexes = Indexes::default();
            indexes.add(&aggregate, &rows);
            let faults = indexes.compare(&store).await.unwrap();
            assert_eq!(faults.len(), count, "{entries:?}: {faults:?}");
        }
    }

    #[tokio::test]
    async fn what_was_written_since_is_no_fault() {
        let at = Timestamp::from_ms(5);
        let store = Memory::new(Arc::new(ManualClock::new(at)));
        beat(&store, at, &[(Index::Nodes, 5)]).await;
        assert_eq!(Indexes::default().compare(&store).await.unwrap(), Vec::<String>::new());
    }
}
