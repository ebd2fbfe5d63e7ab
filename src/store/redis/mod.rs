//! The shared store: rows in Redis, for several processes. Owns how the store's verbs become
//! commands. Must not know what the rows mean.
//!
//! An aggregate is one hash, in one slot with the indexes and the list of its shard; an apply is
//! one call of one script (`apply.lua`), a load one HMGET. Redis 7.0 or newer, or Valkey; one
//! server, the master that sentinels name, or a cluster.
//!
//! `Class.durable` asks for nothing here: whether an answered apply is on disk is the server's
//! setting for all writes alike. With `appendfsync always` it is, before it is answered. With
//! `everysec` the last second may be lost (two, on a slow disk) when the machine fails, and when
//! only the server is killed: while it syncs, it answers what it has not yet written. A replica
//! that is promoted has lost what had not reached it. What is lost is always the end, never the
//! middle, and never a part of an apply. `WAITAOF` would ask one by one, but needs Redis 7.2 and
//! holds up whatever shares the connection.
//!
//! `Class.admits` chooses the script: at `maxmemory` what lets new work in is refused whole, what
//! finishes accepted work is written.

mod address;
mod apply;
mod bare;
mod fault;
pub mod health;
mod keys;
mod line;
mod pages;
mod scratch;
mod together;
mod wakes;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::future::{BoxFuture, try_join_all};
use redis::{Cmd, ErrorKind, FromRedisValue, RedisError, ServerErrorKind, cmd};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::broadcast;
use tokio_util::task::AbortOnDropHandle;

pub use self::bare::{Bare, BareStep};

use self::address::{Address, Servers};
use self::apply::{Call, applied};
use self::fault::explain;
use self::keys::{Keys, SHARDS, shard};
use self::line::Line;
use self::pages::Walk;
use self::wakes::Voice;
use super::time::UlidIds;
use super::{check_keys, codec, hints_of};
use crate::core::ledger::{Aggregate, Change, Index, Key, Revision, Row};
use crate::core::limits::HINTS_KEPT_MAX;
use crate::core::time::Timestamp;
use crate::ports::{Applied, Hint, Ids, Loaded, Member, Store, StoreError};

/// Where the store is.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Which servers, with user and password; its forms are in `address.rs`.
    pub url: SecretString,
    /// Stands before each key and the channel; without braces. One bot, one prefix.
    pub prefix: String,
    /// The certificate authority of the servers as PEM, where the system does not know it.
    pub ca: Option<Vec<u8>>,
}

impl Settings {
    /// Can these be used at all? Asks nobody.
    ///
    /// # Errors
    /// `Data`, with what is wrong and nothing of the URL.
    pub fn is_usable(&self) -> Result<(), StoreError> {
        self.check().map(drop)
    }

    fn check(&self) -> Result<Address, StoreError> {
        if self.prefix.contains(['{', '}', '\n']) {
            return Err(StoreError::Data(format!(
                "the prefix {:?} of the store's keys has a brace or a line break: choose one \
                 without",
                self.prefix
            )));
        }
        Address::parse(self.url.expose_secret())
    }
}

/// A store in Redis.
pub struct Redis {
    line: Arc<Line>,
    keys: Keys,
    voice: Voice,
    wakes: broadcast::Sender<Hint>,
    /// The latest time it told, in milliseconds.
    latest: AtomicU64,
    /// Where the last listing of rows stands.
    walk: Mutex<Option<Walk>>,
    _ears: AbortOnDropHandle<()>,
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("address", &self.line.address).finish_non_exhaustive()
    }
}

impl Redis {
    /// Makes ready to ask, within a runtime. Connects when something is asked, and again whenever
    /// that is broken, so a server that is away is no error here:
    /// [`Redis::health`] tells.
    ///
    /// # Errors
    /// `Data` where the settings cannot be used.
    pub fn open(settings: &Settings) -> Result<Self, StoreError> {
        let address = settings.check()?;
        let line = Arc::new(Line::new(address, settings.ca.clone()));
        let keys = Keys::new(&settings.prefix);
        let origin = UlidIds.fresh();
        // In a cluster each server knows only who listens to itself, and so it may be for a moment
        // after a failover.
        let is_one = matches!(line.address.servers, Servers::One(_));
        let own = if is_one { keys.own_wakes(&origin) } else { String::new() };
        let voice = Voice { origin, own };
        let wakes = broadcast::Sender::new(HINTS_KEPT_MAX);
        let ears = wakes::listen(line.clone(), keys.wakes(), voice.clone(), wakes.clone());
        Ok(Self {
            line,
            keys,
            voice,
            wakes,
            latest: AtomicU64::new(0),
            walk: Mutex::default(),
            _ears: ears,
        })
    }

    fn explain(&self, doing: &str, error: &RedisError) -> StoreError {
        explain(&self.line.address, doing, error)
    }

    async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, StoreError> {
        self.line.ask(command.clone()).await.map_err(|e| self.explain("reading", &e))
    }

    /// Asks all shards at once, each with the command that `of` makes.
    async fn ask_shards<T: FromRedisValue>(
        &self,
        of: impl Fn(u16) -> Cmd,
    ) -> Result<Vec<T>, StoreError> {
        let asked = async {
            let (wire, number) = self.line.wire().await?;
            let ask = |shard| {
                let (mut wire, command) = (wire.clone(), of(shard));
                async move { wire.ask(command).await }
            };
            let answers = try_join_all((0..SHARDS).map(ask)).await;
            self.line.judge(answers, number).await
        };
        asked.await.map_err(|e| self.explain("reading", &e))
    }

    async fn call(&self, call: &Call) -> Result<i64, RedisError> {
        match self.line.ask(call.by_name()).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                self.line.ask(call.by_source()).await
            }
            answer => answer,
        }
    }

    async fn apply_change(&self, change: Change) -> Result<Applied, StoreError> {
        let call = Call::of(&self.keys, &self.voice, &change)?;
        let answer = self.call(&call).await.map_err(|e| self.explain("writing", &e));
        let answer = answer.and_then(|answer| {
            applied(answer).ok_or_else(|| StoreError::Data(format!("the script said {answer}")))
        });
        // What was sent may have happened, and a repeat of it hints at nothing.
        if matches!(answer, Ok(Applied::Applied) | Err(StoreError::Away(_)))
            && self.wakes.receiver_count() > 0
        {
            for hint in hints_of(&change) {
                // Nobody listening is no error.
                let _listeners = self.wakes.send(hint);
            }
        }
        answer
    }
}

fn foreign(name: &str) -> StoreError {
    StoreError::Data(format!(
        "{name:?} is no name that this program knows: use the dogwatch that wrote it, or a newer \
         one"
    ))
}

impl Store for Redis {
    fn load<'a>(
        &'a self,
        aggregate: &'a Aggregate,
        keys: &'a [Key],
    ) -> BoxFuture<'a, Result<Loaded, StoreError>> {
        Box::pin(async move {
            check_keys(keys)?;
            let name = aggregate.to_string();
            let mut command = cmd("HMGET");
            command.arg(self.keys.rows(shard(&name), &name)).arg(keys::REVISION);
            for key in keys {
                command.arg(key.as_str());
            }
            let values = self.line.ask::<Vec<Option<Vec<u8>>>>(command).await;
            let mut values = values.map_err(|e| self.explain("reading", &e))?.into_iter();
            let revision = values.next().flatten().map(String::from_utf8).transpose();
            let revision = revision.map_err(|_| foreign(&format!("the revision of {name}")))?;
            let row = |(key, value): (&Key, Option<Vec<u8>>)| {
                let value = value.map(|value| codec::decode(&value));
                value.transpose().map_err(|e| e.of_row(&name, key.as_str()))
            };
            let rows = keys.iter().zip(values).map(row).collect::<Result<_, _>>()?;
            Ok(Loaded { revision: revision.map(Revision), rows })
        })
    }

    fn apply(&self, change: Change) -> BoxFuture<'_, Result<Applied, StoreError>> {
        Box::pin(self.apply_change(change))
    }

    fn members<'a>(
        &'a self,
        index: &'a Index,
        until: u64,
        after: Option<&'a Member>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Member>, StoreError>> {
        Box::pin(self.page_of_members(index, until, after, limit))
    }

    fn rows<'a>(
        &'a self,
        aggregate: &'a Aggregate,
        after: Option<&'a Key>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<(Key, Row)>, StoreError>> {
        Box::pin(self.page_of_rows(aggregate, after, limit))
    }

    fn aggregates<'a>(
        &'a self,
        after: Option<&'a Aggregate>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Aggregate>, StoreError>> {
        Box::pin(self.page_of_aggregates(after, limit))
    }

    fn wakes(&self) -> broadcast::Receiver<Hint> {
        self.wakes.subscribe()
    }

    fn now(&self) -> BoxFuture<'_, Result<Timestamp, StoreError>> {
        Box::pin(async move {
            let asked = self.line.ask_first(cmd("TIME")).await;
            let (s, us): (u64, u64) = asked.map_err(|e| self.explain("reading", &e))?;
            let ms = s.saturating_mul(1_000) + us / 1_000;
            // Another server, or a clock that was set: never earlier than it was told before.
            let before = self.latest.fetch_max(ms, Ordering::Relaxed);
            Ok(Timestamp::from_ms(ms.max(before)))
        })
    }
}
