//! From a change to one call of the script, and back from its answer. Owns `apply.lua`. Must not
//! know connections.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use redis::{Cmd, Script, cmd};

use super::keys::{self, Keys};
use super::wakes;
use crate::core::ledger::{Change, Class};
use crate::ports::{Applied, Hint, StoreError};
use crate::store::{check_scores, codec, hints_of};

/// The script, once for each answer to "may it write when memory is short?". A script without
/// flags is refused whole then, before it did anything.
static ADMITS: LazyLock<Text> = LazyLock::new(|| Text::new("#!lua"));
static FINISHES: LazyLock<Text> = LazyLock::new(|| Text::new("#!lua flags=allow-oom"));

struct Text {
    source: String,
    sha: String,
}

impl Text {
    fn new(flags: &str) -> Self {
        let source = format!("{flags}\n{}", include_str!("apply.lua"));
        let sha = Script::new(&source).get_hash().to_owned();
        Self { source, sha }
    }
}

/// A change as the script takes it.
#[derive(Debug)]
pub(super) struct Call {
    keys: Vec<String>,
    arguments: Vec<Vec<u8>>,
    class: Class,
    pub(super) hints: Vec<Hint>,
}

impl Call {
    /// Refuses what cannot be stored, before anything is written.
    pub(super) fn of(keys: &Keys, origin: &str, change: &Change) -> Result<Self, StoreError> {
        check_scores(change)?;
        let aggregate = change.aggregate.to_string();
        let expected = change.expected.as_ref().map_or("", |revision| revision.0.as_str());
        let revision = change.revision.0.as_str();
        if revision.is_empty() {
            return Err(StoreError::Data(format!(
                "the revision of a change of {aggregate} is empty"
            )));
        }
        let shard = keys::shard(&aggregate);
        let hints: Vec<Hint> = hints_of(change).collect();
        let mut call = Self {
            keys: vec![keys.rows(&aggregate), keys.aggregates(shard)],
            arguments: vec![revision.into(), expected.into(), aggregate.clone().into()],
            class: change.class,
            hints,
        };
        call.arguments.push(keys.wakes().into());
        call.arguments.push(wakes::message(origin, &call.hints).into());
        call.add_rows(&aggregate, change)?;
        call.add_members(keys, shard, &aggregate, change);
        Ok(call)
    }

    fn add_rows(&mut self, aggregate: &str, change: &Change) -> Result<(), StoreError> {
        // Of two writes of one row the last counts.
        let rows: BTreeMap<&str, _> =
            change.writes.iter().map(|write| (write.key.as_str(), &write.row)).collect();
        let mut set = vec![keys::REVISION.into(), change.revision.0.clone().into()];
        let mut removed: Vec<Vec<u8>> = vec![];
        for (key, row) in rows {
            match row {
                Some(row) => {
                    let value = codec::encode(row).map_err(|e| e.of_row(aggregate, key))?;
                    set.extend([key.into(), value]);
                }
                None => removed.push(key.into()),
            }
        }
        self.add_list(set);
        self.add_list(removed);
        Ok(())
    }

    fn add_members(&mut self, keys: &Keys, shard: u16, aggregate: &str, change: &Change) {
        let mut indexes: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
        for write in &change.index {
            let member = keys::member(aggregate, &write.key);
            indexes.entry(&write.index).or_default().insert(member, write.score);
        }
        for (index, members) in indexes {
            let (mut set, mut removed) = (vec![], vec![]);
            for (member, score) in members {
                match score {
                    Some(score) => set.extend([score.to_string().into(), member.into()]),
                    None => removed.push(member.into()),
                }
            }
            self.keys.push(keys.index(shard, index));
            self.add_list(set);
            self.add_list(removed);
        }
    }

    fn add_list(&mut self, list: Vec<Vec<u8>>) {
        self.arguments.push(list.len().to_string().into());
        self.arguments.extend(list);
    }

    /// The call for a server that knows the script.
    pub(super) fn by_name(&self) -> Cmd {
        self.command("EVALSHA", &self.text().sha)
    }

    /// The call that also teaches it the script: each server forgets it when it starts, and in a
    /// cluster each has to learn it.
    pub(super) fn by_source(&self) -> Cmd {
        self.command("EVAL", &self.text().source)
    }

    fn text(&self) -> &'static Text {
        if self.class.admits { &ADMITS } else { &FINISHES }
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let mut command = cmd(name);
        command.arg(script).arg(self.keys.len()).arg(&self.keys).arg(&self.arguments);
        command
    }
}

/// What the script's answer means; `None` for one that it never gives.
pub(super) const fn applied(answer: i64) -> Option<Applied> {
    match answer {
        0 => Some(Applied::Conflict),
        1 => Some(Applied::Applied),
        2 => Some(Applied::Already),
        _ => None,
    }
}
