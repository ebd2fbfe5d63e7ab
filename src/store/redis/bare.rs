//! A bare loop on one connection, beside which a load is measured: for each change one read of the
//! rows that it looked at or writes, and one call of the script, with nothing decided and no row
//! written down anew. Owns that reference. Must not know what is measured.

use redis::aio::MultiplexedConnection;
use redis::{RedisResult, cmd};

use super::Redis;
use super::address::Servers;
use super::apply::{Call, Names, applied};
use super::keys::{self, Keys};
use super::wakes::Voice;
use crate::core::ledger::{Aggregate, Change, Key, Revision};
use crate::ports::{Applied, StoreError};
use crate::store::codec;

/// One connection, asked by whoever has a clone.
#[derive(Clone)]
pub struct Bare {
    one: MultiplexedConnection,
    keys: Keys,
    voice: Voice,
}

/// A change, ready to be written into any aggregate.
pub struct BareStep {
    reads: Vec<Key>,
    change: Change,
    /// Of the rows that it sets, in their order.
    values: Vec<Vec<u8>>,
}

impl BareStep {
    /// What is read before is what was looked at, and what is written.
    ///
    /// # Errors
    /// `Data` where a row cannot be stored.
    pub fn new(mut reads: Vec<Key>, change: Change) -> Result<Self, StoreError> {
        reads.extend(change.writes.iter().map(|write| write.key.clone()));
        reads.sort();
        reads.dedup();
        let set =
            change.writes.iter().filter_map(|write| Some((&write.key, write.row.as_deref()?)));
        let value = |(key, row): (&Key, _)| {
            codec::encode(row).map_err(|e| e.of_row(&change.aggregate.to_string(), key.as_str()))
        };
        let values = set.map(value).collect::<Result<_, _>>()?;
        Ok(Self { reads, change, values })
    }
}

impl Redis {
    /// A connection of its own for a reference; `None` where there is more than one server.
    pub async fn bare(&self) -> Option<Bare> {
        if matches!(self.line.address.servers, Servers::Cluster(_)) {
            return None;
        }
        let one = self.line.one().await.ok()?;
        Some(Bare { one, keys: self.keys.clone(), voice: self.voice.clone() })
    }
}

impl Bare {
    /// One step on an aggregate.
    ///
    /// # Errors
    /// `Away` or `Data`, as the store says.
    pub async fn step(
        &self,
        aggregate: &Aggregate,
        expected: Option<&Revision>,
        revision: &Revision,
        step: &BareStep,
    ) -> Result<Applied, StoreError> {
        let names = Names { aggregate: aggregate.to_string(), expected, revision };
        let mut values = step.values.iter();
        let call =
            Call::put_together(&self.keys, &self.voice, &names, &step.change, |into, _, _| {
                into.clear();
                into.extend(values.next().into_iter().flatten());
                Ok(())
            })?;
        let answer = self.ask(&names.aggregate, step, &call).await;
        let answer = answer.map_err(|error| StoreError::Away(error.to_string()))?;
        applied(answer).ok_or_else(|| StoreError::Data(format!("the script said {answer}")))
    }

    async fn ask(&self, aggregate: &str, step: &BareStep, call: &Call) -> RedisResult<i64> {
        let mut one = self.one.clone();
        let mut read = cmd("HMGET");
        read.arg(self.keys.rows(keys::shard(aggregate), aggregate)).arg(keys::REVISION);
        for key in &step.reads {
            read.arg(key.as_str());
        }
        let _rows: Vec<Option<Vec<u8>>> = read.query_async(&mut one).await?;
        call.by_name().query_async(&mut one).await
    }
}
