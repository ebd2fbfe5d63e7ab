//! The rows of one aggregate that a node keeps after its last apply, so that they are not read
//! again. Owns what is kept, and how much. Must not know operations, nor whether it is still true.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::weight::weight;
use crate::core::ledger::{Key, Operation, Revision, Row, Rows, Working};
use crate::core::limits::KEYS_PER_LOAD_MAX;

/// Rows kept of one aggregate besides its frame.
const SHELF_ROWS_MAX: usize = 512;
/// Bytes of these rows.
const SHELF_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Bytes kept of all aggregates; beyond it those that nobody uses now are let go.
pub(super) const SHELVED_BYTES_MAX: usize = 64 * 1024 * 1024;
/// What a row takes besides its content, about.
const ROW_BYTES: usize = 256;

/// Rows at one revision.
pub(super) struct Kept {
    pub(super) revision: Option<Revision>,
    /// What nearly every operation needs.
    pub(super) rows: Rows,
    /// The others, above all the log: looked at only when they are asked for.
    shelf: Shelf,
}

impl Kept {
    /// Counted together with all others.
    pub(super) fn nothing(all: Arc<AtomicUsize>) -> Self {
        let shelf = Shelf { rows: BTreeMap::new(), bytes: 0, all };
        Self { revision: None, rows: Rows::new(), shelf }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.shelf.rows.is_empty()
    }

    /// Takes what is kept of these keys and answers what is missing.
    pub(super) fn take(&mut self, keys: Vec<Key>) -> Vec<Key> {
        let (rows, others) = (&mut self.rows, &self.shelf.rows);
        keys.into_iter()
            .filter(|key| match others.get(key) {
                Some((row, _)) => {
                    rows.insert(key.clone(), row.clone());
                    false
                }
                None => !rows.contains_key(key),
            })
            .collect()
    }

    /// What the next operation will want and is not kept, as far as there is room in this load.
    pub(super) fn ahead<O: Operation>(&mut self, operation: &O, wanted: usize) -> Vec<Key> {
        let working = Working::new(std::mem::take(&mut self.rows));
        let held = |key: &Key| self.shelf.rows.contains_key(key) || working.has(key);
        let mut keys = operation.ahead(&working, &held);
        keys.retain(|key| !held(key));
        keys.truncate(KEYS_PER_LOAD_MAX.saturating_sub(wanted));
        self.rows = working.into_loaded();
        keys
    }

    /// What an operation saw or wrote goes back to its place.
    pub(super) fn sort(&mut self) {
        let shelved = self.rows.extract_if(.., |key, _| !is_frame(key)).collect();
        self.shelf.put(shelved);
    }
}

/// Rows that wait to be asked for, each with its size.
struct Shelf {
    rows: BTreeMap<Key, (Option<Arc<Row>>, usize)>,
    bytes: usize,
    /// The bytes of all shelves.
    all: Arc<AtomicUsize>,
}

impl Shelf {
    fn put(&mut self, rows: Vec<(Key, Option<Arc<Row>>)>) {
        let before = self.bytes;
        let last: Vec<Key> = rows.iter().map(|(key, _)| key.clone()).collect();
        for (key, row) in rows {
            let there = self.rows.get(&key);
            if there.is_some_and(|(there, _)| is_same(there.as_ref(), row.as_ref())) {
                continue;
            }
            let bytes = ROW_BYTES + row.as_deref().map_or(0, weight);
            self.bytes += bytes;
            let replaced = self.rows.insert(key, (row, bytes));
            self.bytes -= replaced.map_or(0, |(_, bytes)| bytes);
        }
        // What every turn reads comes first, then what the last operation saw.
        self.shrink(|key| is_log(key) || last.contains(key));
        self.shrink(|key| !is_log(key));
        self.shrink(|_| false);
        self.all.fetch_add(self.bytes, Ordering::Relaxed);
        self.all.fetch_sub(before, Ordering::Relaxed);
    }

    /// Lets go of what need not stay, if there is too much.
    fn shrink(&mut self, stays: impl Fn(&Key) -> bool) {
        if self.rows.len() > SHELF_ROWS_MAX || self.bytes > SHELF_BYTES_MAX {
            self.rows.retain(|key, _| stays(key));
            self.bytes = self.rows.values().map(|(_, bytes)| bytes).sum();
        }
    }
}

impl Drop for Shelf {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

fn is_same(one: Option<&Arc<Row>>, other: Option<&Arc<Row>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

fn is_frame(key: &Key) -> bool {
    [Key::head(), Key::inbox(), Key::live(), Key::recent(), Key::tails()].contains(key)
}

fn is_log(key: &Key) -> bool {
    key.as_str().starts_with("t/") || *key == Key::summary()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::ledger::row::Summary;

    fn rows(of: std::ops::Range<u64>, bytes: usize) -> Rows {
        let row = |no| {
            let summary = Summary { upto: no, text: "x".repeat(bytes) };
            (Key::entry(no), Some(Arc::new(Row::Summary(summary))))
        };
        of.map(row).collect()
    }

    #[test]
    fn what_is_kept_is_bounded_in_rows_and_in_bytes_and_counted() {
        let all = Arc::new(AtomicUsize::new(0));
        let mut kept = Kept::nothing(Arc::clone(&all));
        kept.rows = rows(0..SHELF_ROWS_MAX as u64, 10);
        kept.sort();
        assert_eq!(kept.shelf.rows.len(), SHELF_ROWS_MAX);
        let once = all.load(Ordering::Relaxed);
        assert!((SHELF_ROWS_MAX * ROW_BYTES..SHELF_BYTES_MAX).contains(&once), "{once}");
        // Taken and put back it counts once.
        assert!(kept.take((0..9).map(Key::entry).collect()).is_empty());
        kept.sort();
        assert_eq!(all.load(Ordering::Relaxed), once);
        kept.rows = rows(1_000..1_001, 10);
        kept.sort();
        assert!(kept.shelf.rows.len() <= SHELF_ROWS_MAX);
        for no in 0..40 {
            kept.rows = rows(no..no + 1, 200 * 1024);
            kept.sort();
            assert!(kept.shelf.bytes <= SHELF_BYTES_MAX, "{}", kept.shelf.bytes);
            assert_eq!(all.load(Ordering::Relaxed), kept.shelf.bytes);
        }
        drop(kept);
        assert_eq!(all.load(Ordering::Relaxed), 0);
    }
}
