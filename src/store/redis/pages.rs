//! Pages of indexes, rows and aggregates. Owns merging what the shards have, and the order that a
//! hash lacks. Must not know what the rows mean.

use std::sync::{Arc, PoisonError};

use redis::cmd;

use super::{Redis, foreign, keys};
use crate::core::ledger::{Aggregate, Index, Key, Row};
use crate::core::limits::{ROWS_READ_MAX, SCORE_MAX};
use crate::ports::{Member, StoreError};
use crate::store::codec;

/// The names of all rows of an aggregate in order, as of one revision. A hash has no order, and a
/// second key that kept one would cost every apply, while rows are paged by audits only; so a walk
/// reads the names once, and again only when somebody wrote meanwhile.
#[derive(Clone)]
pub(super) struct Walk {
    aggregate: String,
    revision: Option<Vec<u8>>,
    names: Arc<Vec<String>>,
}

impl Redis {
    pub(super) async fn page_of_members(
        &self,
        index: &Index,
        until: u64,
        after: Option<&Member>,
        limit: usize,
    ) -> Result<Vec<Member>, StoreError> {
        let from = after.map_or(0, |member| member.score);
        let until = until.min(SCORE_MAX);
        if limit == 0 || from > until {
            return Ok(vec![]);
        }
        // Redis goes on after a score, not after a member: those of its score that were told
        // before come again and are left out. Where they fill what was asked, more is asked, in
        // one read, so that nothing moves in between.
        let mut asked = limit.saturating_add(1).min(ROWS_READ_MAX);
        loop {
            let range = |shard| {
                let mut command = cmd("ZRANGEBYSCORE");
                command.arg(self.keys.index(shard, index)).arg(from).arg(until);
                command.arg("WITHSCORES").arg("LIMIT").arg(0).arg(asked);
                command
            };
            let shards: Vec<Vec<(String, u64)>> = self.ask_shards(range).await?;
            let mut members = vec![];
            let mut short = false;
            for shard in shards {
                let full = shard.len() >= asked;
                let shard = shard.into_iter().map(to_member).collect::<Result<Vec<_>, _>>()?;
                let fresh = shard.into_iter().filter(|m| after.is_none_or(|after| m > after));
                let before = members.len();
                members.extend(fresh);
                short |= full && members.len() - before < limit;
            }
            if !short {
                members.sort();
                members.truncate(limit);
                return Ok(members);
            }
            asked = asked.saturating_mul(2);
        }
    }

    pub(super) async fn page_of_rows(
        &self,
        aggregate: &Aggregate,
        after: Option<&Key>,
        limit: usize,
    ) -> Result<Vec<(Key, Row)>, StoreError> {
        let name = aggregate.to_string();
        let hash = self.keys.rows(keys::shard(&name), &name);
        // The first page begins a walk; the others go on with it.
        let mut known = after.and_then(|_| self.walk_of(&name));
        let after = after.map_or(keys::REVISION, Key::as_str);
        'walk: loop {
            let is_known = known.is_some();
            let walk = match known.take() {
                Some(walk) => walk,
                None => self.begin_walk(&name, &hash).await?,
            };
            let from = walk.names.partition_point(|name| name.as_str() <= after);
            let mut rows = vec![];
            let names = walk.names.get(from..).unwrap_or_default();
            for names in names.chunks(ROWS_READ_MAX.min(limit.max(1))) {
                if rows.len() >= limit {
                    break;
                }
                let mut command = cmd("HMGET");
                command.arg(&hash).arg(keys::REVISION).arg(names);
                let values: Vec<Option<Vec<u8>>> = self.ask(&command).await?;
                let mut values = values.into_iter();
                let revision = values.next().flatten();
                if is_known && revision != walk.revision {
                    continue 'walk;
                }
                for (key, value) in names.iter().zip(values) {
                    // One that was removed in between is not there.
                    let Some(value) = value else { continue };
                    let row = codec::decode(&value).map_err(|e| e.of_row(&name, key))?;
                    rows.push((Key::stored(key.as_str()), row));
                }
            }
            rows.truncate(limit);
            return Ok(rows);
        }
    }

    fn walk_of(&self, aggregate: &str) -> Option<Walk> {
        let walk = self.walk.lock().unwrap_or_else(PoisonError::into_inner);
        walk.as_ref().filter(|walk| walk.aggregate == aggregate).cloned()
    }

    async fn begin_walk(&self, aggregate: &str, hash: &str) -> Result<Walk, StoreError> {
        // In this order: what is written in between makes the revision an old one.
        let revision = self.ask(cmd("HGET").arg(hash).arg(keys::REVISION)).await?;
        let mut names: Vec<String> = self.ask(cmd("HKEYS").arg(hash)).await?;
        names.sort_unstable();
        let walk = Walk { aggregate: aggregate.to_owned(), revision, names: Arc::new(names) };
        *self.walk.lock().unwrap_or_else(PoisonError::into_inner) = Some(walk.clone());
        Ok(walk)
    }

    pub(super) async fn page_of_aggregates(
        &self,
        after: Option<&Aggregate>,
        limit: usize,
    ) -> Result<Vec<Aggregate>, StoreError> {
        let from = after.map_or_else(|| "-".to_owned(), |after| format!("({after}"));
        let range = |shard| {
            let mut command = cmd("ZRANGEBYLEX");
            command.arg(self.keys.aggregates(shard)).arg(&from).arg("+");
            command.arg("LIMIT").arg(0).arg(limit);
            command
        };
        let shards: Vec<Vec<String>> = self.ask_shards(range).await?;
        let mut names: Vec<String> = shards.into_iter().flatten().collect();
        names.sort_unstable();
        names.truncate(limit);
        let parse = |name: String| Aggregate::parse(&name).ok_or_else(|| foreign(&name));
        names.into_iter().map(parse).collect()
    }
}

fn to_member((text, score): (String, u64)) -> Result<Member, StoreError> {
    let (aggregate, key) = keys::parse_member(&text).ok_or_else(|| foreign(&text))?;
    Ok(Member { score, aggregate, key })
}
