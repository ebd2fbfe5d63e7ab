//! A store for a measurement, which goes afterwards. Owns removing all of a prefix and what the
//! server says of its processors. Must not know what was measured.

use std::collections::BTreeSet;

use redis::cmd;

use super::Redis;
use super::keys::{SHARDS, shard};
use crate::core::ledger::{Aggregate, Index, index_of};
use crate::core::limits::ROWS_READ_MAX;
use crate::ports::{Store, StoreError};

impl Redis {
    /// Removes everything under this store's prefix. Only for a prefix of one's own: whoever else
    /// uses it loses all.
    ///
    /// # Errors
    /// `Away` where the server does not answer: what is left then is under the prefix.
    pub async fn wipe(&self) -> Result<(), StoreError> {
        let mut indexes = BTreeSet::new();
        let mut after: Option<Aggregate> = None;
        loop {
            let page = self.aggregates(after.as_ref(), ROWS_READ_MAX).await?;
            for aggregate in &page {
                indexes.extend(self.indexes_of(aggregate).await?);
                let name = aggregate.to_string();
                self.remove(&self.keys.rows(shard(&name), &name)).await?;
            }
            let last = page.len() < ROWS_READ_MAX;
            after = page.into_iter().next_back();
            if last {
                break;
            }
        }
        for shard in 0..SHARDS {
            for index in &indexes {
                self.remove(&self.keys.index(shard, index)).await?;
            }
            self.remove(&self.keys.aggregates(shard)).await?;
        }
        Ok(())
    }

    async fn indexes_of(&self, aggregate: &Aggregate) -> Result<BTreeSet<Index>, StoreError> {
        let rows = self.rows(aggregate, None, usize::MAX).await?;
        let entries = rows.iter().flat_map(|(key, row)| index_of(key, row));
        Ok(entries.map(|(index, _)| index).collect())
    }

    async fn remove(&self, key: &str) -> Result<(), StoreError> {
        self.ask::<i64>(cmd("UNLINK").arg(key)).await.map(|_| ())
    }

    /// What the server has used of processors since it started, in microseconds; of a cluster,
    /// what the node that answers has.
    pub async fn cpu_us(&self) -> Option<u64> {
        let text: String = self.ask(cmd("INFO").arg("cpu")).await.ok()?;
        let seconds = |field: &str| -> Option<f64> {
            text.lines().find_map(|line| line.strip_prefix(field)?.trim().parse().ok())
        };
        let used = seconds("used_cpu_user:")? + seconds("used_cpu_sys:")?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a time since the server's start, in microseconds"
        )]
        Some((used * 1e6) as u64)
    }
}
