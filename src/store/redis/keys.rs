//! The keys in Redis: every one, its type, who writes it, how long it stays. Owns their spelling
//! and the shard of an aggregate. Must not know what is stored under them.
//!
//! `PREFIX{sNN}rows:AGGREGATE`, a hash: the field without a name is the revision, any other a row.
//! Written by `apply.lua`. Stays until it is removed by hand: an emptied aggregate keeps its
//! revision, so that a repeat is still recognised. Its rows go by the ledger's own forgetting.
//!
//! `PREFIX{sNN}aggregates`, a zset with all scores 0: the names of the shard's aggregates, in text
//! order. Written by `apply.lua`, once an aggregate. Stays as the rows do.
//!
//! `PREFIX{sNN}index:INDEX`, a zset by due time: members `AGGREGATE⏎KEY`. Written by `apply.lua`
//! with the rows that they follow from. A member stays while its row has that entry; Redis removes
//! an empty index.
//!
//! `PREFIX{s00}probe:hash` and `…set`, a hash and a zset: what a start writes and removes at
//! once, to see whether it may, under a name of its own. Written by `health.rs`.
//!
//! `PREFIXwakes`, a channel: the hints of each apply in one message. Said by `apply.lua`, not kept.
//!
//! `PREFIXwakes:ORIGIN`, a channel on which nothing is said: each process listens there as well, so
//! that `apply.lua` sees whether anybody but the writer would hear its hints.
//!
//! Nothing has a time to live: no key's end carries a meaning. `NN` is the shard, 00 to 63, in
//! braces, so that Redis Cluster keeps all that one apply touches in one slot. A line break parts
//! what ids never contain, and sorts before all that they do: members of one score stand in the
//! order of aggregate and key.

use std::fmt;

use crate::core::ledger::{Aggregate, Index, Key};

/// Parts of the key space. Fixed for ever: a change would hide what is stored.
pub(super) const SHARDS: u16 = 64;
/// The slots of a Redis Cluster.
pub(super) const SLOTS: u16 = 16_384;

/// The field of the revision. No row's key is empty.
pub(super) const REVISION: &str = "";

/// The keys of one store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Keys {
    prefix: String,
}

impl Keys {
    /// `prefix` stands before every key; it must have no braces.
    pub(super) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    /// The rows of the aggregate with this name, in its shard.
    pub(super) fn rows(&self, shard: u16, aggregate: &str) -> String {
        format!("{}rows:{aggregate}", self.tagged(shard))
    }

    /// The names of the aggregates of a shard.
    pub(super) fn aggregates(&self, shard: u16) -> String {
        format!("{}aggregates", self.tagged(shard))
    }

    /// The members of an index that are of a shard's aggregates.
    pub(super) fn index(&self, shard: u16, index: &Index) -> String {
        format!("{}index:{index}", self.tagged(shard))
    }

    /// Where a start tries whether it may write.
    pub(super) fn probe(&self, of: &str) -> String {
        format!("{}probe:{of}", self.tagged(0))
    }

    /// The channel of hints.
    pub(super) fn wakes(&self) -> String {
        format!("{}wakes", self.prefix)
    }

    /// On which the process with this name hears nothing: who listens there listens to hints as
    /// well, and is that process.
    pub(super) fn own_wakes(&self, origin: &str) -> String {
        format!("{}wakes:{origin}", self.prefix)
    }

    fn tagged(&self, shard: u16) -> impl fmt::Display + use<'_> {
        fmt::from_fn(move |f| write!(f, "{}{{s{shard:02}}}", self.prefix))
    }
}

/// The shard of the aggregate with this name.
pub(super) fn shard(aggregate: &str) -> u16 {
    crc16(aggregate.as_bytes()) % SHARDS
}

/// The slot of a shard in a Redis Cluster.
pub(super) fn slot(shard: u16) -> u16 {
    crc16(format!("s{shard:02}").as_bytes()) % SLOTS
}

/// An index member as it is stored.
pub(super) fn member(aggregate: &str, key: &Key) -> String {
    format!("{aggregate}\n{key}")
}

/// What [`member`] made, taken apart; `None` for anything else.
pub(super) fn parse_member(text: &str) -> Option<(Aggregate, Key)> {
    let (aggregate, key) = text.split_once('\n')?;
    Some((Aggregate::parse(aggregate)?, Key::stored(key)))
}

/// The checksum by which Redis Cluster spreads keys (CRC-16/XMODEM), a byte at a time.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        let top = (crc >> 8) ^ u16::from(*byte);
        let top = top ^ (top >> 4);
        (crc << 8) ^ (top << 12) ^ (top << 5) ^ top
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::core::id::SessionId;

    #[test]
    fn the_checksum_is_that_of_redis_cluster() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(crc16(b""), 0);
    }

    #[test]
    fn a_name_keeps_its_shard_and_names_spread_over_all() {
        // These never change: what is stored would not be found again.
        assert_eq!([shard("session/console/main"), shard("node/a")], [46, 57]);
        let shards: BTreeSet<u16> = (0..2_000).map(|n| shard(&format!("session/{n}"))).collect();
        assert_eq!(shards.len(), usize::from(SHARDS));
        let slots: BTreeSet<u16> = (0..SHARDS).map(slot).collect();
        assert_eq!(slots.len(), usize::from(SHARDS), "each shard has a slot of its own");
    }

    #[test]
    fn braces_in_a_name_do_not_move_it_to_another_slot() {
        let keys = Keys::new("dogwatch:");
        let key = keys.rows(shard("session/{x}"), "session/{x}");
        assert_eq!(key, format!("dogwatch:{{s{:02}}}rows:session/{{x}}", shard("session/{x}")));
    }

    #[test]
    fn a_member_comes_back_and_sorts_by_aggregate_then_key() {
        let of = |name: &str, key| {
            let aggregate = Aggregate::Session(SessionId::new(name).unwrap());
            (member(&aggregate.to_string(), &key), (aggregate, key))
        };
        let mut all = vec![
            of("a b", Key::head()),
            of("a", Key::stored("x/z")),
            of("a", Key::turn(2)),
            of("é", Key::turn(1)),
        ];
        all.sort_by(|one, other| one.1.cmp(&other.1));
        assert!(all.is_sorted_by(|one, other| one.0 < other.0));
        for (text, parts) in all {
            assert_eq!(parse_member(&text), Some(parts));
        }
        assert_eq!(parse_member("session/a"), None);
    }
}
