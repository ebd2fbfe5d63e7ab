//! From a change to one call of the script, and back from its answer. Owns `apply.lua`. Must not
//! know connections.

use std::sync::LazyLock;

use redis::{Arg, Cmd, Script, cmd};

use super::keys::{self, Keys};
use super::wakes::{self, Voice};
use crate::core::ledger::{Change, Class, Index, IndexWrite, Key, Revision, Row, Write};
use crate::ports::{Applied, StoreError};
use crate::store::{check_scores, codec};

/// Arguments of a call besides those of rows and entries, about.
const ARGUMENTS: usize = 16;
/// Bytes of most calls: they are put together without the allocator's help.
const BYTES: usize = 4_096;

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
pub(super) struct Call {
    command: Cmd,
    class: Class,
}

/// What a change is written as.
pub(super) struct Names<'a> {
    pub(super) aggregate: String,
    pub(super) expected: Option<&'a Revision>,
    pub(super) revision: &'a Revision,
}

impl Call {
    /// Refuses what cannot be stored, before anything is written.
    pub(super) fn of(keys: &Keys, voice: &Voice, change: &Change) -> Result<Self, StoreError> {
        check_scores(change)?;
        let names = Names {
            aggregate: change.aggregate.to_string(),
            expected: change.expected.as_ref(),
            revision: &change.revision,
        };
        if names.revision.0.is_empty() {
            return Err(StoreError::Data(format!(
                "the revision of a change of {} is empty",
                names.aggregate
            )));
        }
        Self::put_together(keys, voice, &names, change, |value, key, row| {
            codec::encode_into(value, row).map_err(|e| e.of_row(&names.aggregate, key))
        })
    }

    /// The call that writes the rows and entries of a change under these names; `value_of` writes
    /// down each row, in their order.
    pub(super) fn put_together(
        keys: &Keys,
        voice: &Voice,
        names: &Names<'_>,
        change: &Change,
        value_of: impl FnMut(&mut Vec<u8>, &str, &Row) -> Result<(), StoreError>,
    ) -> Result<Self, StoreError> {
        let Names { aggregate, expected, revision } = names;
        let shard = keys::shard(aggregate);
        let indexes = by_index(change);
        let arguments = ARGUMENTS + 2 * change.writes.len() + 5 * change.index.len();
        let mut command = Cmd::with_capacity(arguments, BYTES);
        command.arg("EVALSHA").arg(&text(change.class).sha).arg(2 + indexes.len());
        command.arg(keys.rows(shard, aggregate)).arg(keys.aggregates(shard));
        for (index, _) in &indexes {
            command.arg(keys.index(shard, index));
        }
        command.arg(&revision.0).arg(expected.map_or("", |expected| expected.0.as_str()));
        command.arg(aggregate).arg(keys.wakes()).arg(&voice.own);
        command.arg(wakes::message(&voice.origin, aggregate, change));
        for (_, members) in indexes {
            add_members(&mut command, aggregate, &members);
        }
        add_rows(&mut command, revision, change, value_of)?;
        Ok(Self { command, class: change.class })
    }

    /// The call for a server that knows the script.
    pub(super) fn by_name(&self) -> Cmd {
        self.command.clone()
    }

    /// The call that also teaches it the script: each server forgets it when it starts, and in a
    /// cluster each has to learn it.
    pub(super) fn by_source(&self) -> Cmd {
        let mut command = cmd("EVAL");
        command.arg(&text(self.class).source);
        for argument in self.command.args_iter().skip(2) {
            if let Arg::Simple(argument) = argument {
                command.arg(argument);
            }
        }
        command
    }
}

fn text(class: Class) -> &'static Text {
    if class.admits { &ADMITS } else { &FINISHES }
}

/// What is to become of rows, or of entries of an index.
type Writes<'a, T> = Vec<(&'a Key, Option<T>)>;

/// Of two of one key the last counts. What comes in order, as the ledger writes it, is not moved.
fn last_of_each<T>(writes: &mut Writes<'_, T>) {
    writes.reverse();
    writes.sort_by(|one, other| one.0.cmp(other.0));
    writes.dedup_by(|later, first| later.0 == first.0);
}

fn by_index(change: &Change) -> Vec<(&Index, Writes<'_, u64>)> {
    let mut indexes: Vec<(&Index, Writes<'_, u64>)> = vec![];
    for IndexWrite { index, key, score } in &change.index {
        match indexes.iter_mut().find(|(there, _)| *there == index) {
            Some((_, entries)) => entries.push((key, *score)),
            None => indexes.push((index, vec![(key, *score)])),
        }
    }
    for (_, entries) in &mut indexes {
        last_of_each(entries);
    }
    indexes
}

/// Members to set with their scores before them, then members to remove.
fn add_members(command: &mut Cmd, aggregate: &str, entries: &Writes<'_, u64>) {
    let set = entries.iter().filter(|(_, score)| score.is_some());
    command.arg(set.clone().count() * 2);
    for (key, score) in set {
        command.arg(score).arg(keys::member(aggregate, key));
    }
    let removed = entries.iter().filter(|(_, score)| score.is_none());
    command.arg(removed.clone().count());
    for (key, _) in removed {
        command.arg(keys::member(aggregate, key));
    }
}

/// Fields to set with their values, the revision first, then fields to remove.
fn add_rows(
    command: &mut Cmd,
    revision: &Revision,
    change: &Change,
    mut value_of: impl FnMut(&mut Vec<u8>, &str, &Row) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let mut rows: Writes<'_, &Row> =
        change.writes.iter().map(|Write { key, row }| (key, row.as_deref())).collect();
    last_of_each(&mut rows);
    let set = rows.iter().filter_map(|(key, row)| Some((key.as_str(), (*row)?)));
    command.arg(2 + set.clone().count() * 2).arg(keys::REVISION).arg(&revision.0);
    let mut value = Vec::with_capacity(BYTES);
    for (key, row) in set {
        value_of(&mut value, key, row)?;
        command.arg(key).arg(&value);
    }
    let removed = rows.iter().filter(|(_, row)| row.is_none());
    command.arg(removed.clone().count());
    for (key, _) in removed {
        command.arg(key.as_str());
    }
    Ok(())
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
