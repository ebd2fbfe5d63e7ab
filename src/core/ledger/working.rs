//! The working copy that a decision edits. Owns reading, editing, and deriving the change: the
//! diff, the index entries and the head's `wake_at`. Must not know any operation's meaning.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::fact::{Fact, facts_of};
use super::index::index_of;
use super::key::Key;
use super::operation::{IndexWrite, Refusal, Write};
use super::row::{Head, Inbox, Row, RowType};
use crate::core::time::Timestamp;

/// Rows as they were loaded; `None` where there is no such row.
pub type Rows = BTreeMap<Key, Option<Arc<Row>>>;

/// Rows being edited.
#[derive(Debug, Clone, Default)]
pub struct Working {
    loaded: Rows,
    edited: Rows,
    unnamed: RefCell<Option<Key>>,
}

impl Working {
    /// Over what was loaded.
    pub fn new(loaded: Rows) -> Self {
        Self { loaded, edited: Rows::new(), unnamed: RefCell::new(None) }
    }

    /// What was loaded, given back: what was edited is let go.
    pub fn into_loaded(self) -> Rows {
        self.loaded
    }

    /// Was this row loaded?
    pub fn has(&self, key: &Key) -> bool {
        self.loaded.contains_key(key)
    }

    /// A row as its type; `None` where there is none. Touching a row that was not named is
    /// remembered and refuses the whole operation; it stops a test at once.
    pub fn get<T: RowType>(&self, key: &Key) -> Option<&T> {
        let slot = self.edited.get(key).or_else(|| self.loaded.get(key));
        let Some(slot) = slot else {
            self.blame(key);
            return None;
        };
        let row = T::of(slot.as_deref()?);
        debug_assert!(row.is_some(), "{key} holds another type of row");
        row
    }

    /// A row of whatever type.
    pub fn row(&self, key: &Key) -> Option<&Row> {
        let slot = self.edited.get(key).or_else(|| self.loaded.get(key));
        if slot.is_none() {
            self.blame(key);
        }
        slot?.as_deref()
    }

    /// A row to be edited; `None` where there is none.
    pub fn edit<T: RowType>(&mut self, key: &Key) -> Option<&mut T> {
        if !self.edited.contains_key(key) {
            let Some(slot) = self.loaded.get(key) else {
                self.blame(key);
                return None;
            };
            let slot = slot.clone();
            slot.as_ref()?;
            self.edited.insert(key.clone(), slot);
        }
        T::of_mut(Arc::make_mut(self.edited.get_mut(key)?.as_mut()?))
    }

    /// Writes a row. Its key must have been named, so that its old index entries are known.
    pub fn put<T: RowType>(&mut self, key: Key, row: T) {
        if !self.has(&key) {
            self.blame(&key);
            return;
        }
        self.edited.insert(key, Some(Arc::new(row.wrap())));
    }

    /// Deletes a row.
    pub fn delete(&mut self, key: &Key) {
        if !self.has(key) {
            self.blame(key);
            return;
        }
        self.edited.insert(key.clone(), None);
    }

    fn blame(&self, key: &Key) {
        debug_assert!(false, "the row {key} was touched but not named by needs()");
        self.unnamed.borrow_mut().get_or_insert_with(|| key.clone());
    }

    /// The head; a session that is not there has an empty one.
    pub fn head(&self) -> Head {
        self.get::<Head>(&Key::head()).cloned().unwrap_or_default()
    }

    /// The head, to be edited; written if it was not there.
    pub fn head_mut(&mut self) -> Option<&mut Head> {
        self.ensure::<Head>(&Key::head())
    }

    /// A row to be edited, made with its default where there is none.
    pub fn ensure<T: RowType + Default>(&mut self, key: &Key) -> Option<&mut T> {
        if self.get::<T>(key).is_none() {
            self.put(key.clone(), T::default());
        }
        self.edit(key)
    }

    /// Derives `wake_at` and answers what changed: rows, index entries, and the rows as they are
    /// after the change.
    pub fn finish(mut self) -> Result<Finished, Refusal> {
        self.derive_wake_at();
        if let Some(key) = self.unnamed.into_inner() {
            return Err(Refusal::Unnamed(key));
        }
        let mut finished = Finished {
            writes: vec![],
            index: vec![],
            rows: self.loaded,
            changed: false,
            facts: vec![],
        };
        let mut pairs = Vec::with_capacity(self.edited.len());
        for (key, row) in self.edited {
            let before = finished.rows.get(&key).cloned().flatten();
            if before == row {
                continue;
            }
            let old = before.as_ref().map_or_else(Vec::new, |row| index_of(&key, row));
            let new = row.as_ref().map_or_else(Vec::new, |row| index_of(&key, row));
            for (index, _) in old.iter().filter(|(i, _)| !new.iter().any(|(n, _)| n == i)) {
                finished.index.push(IndexWrite {
                    index: index.clone(),
                    key: key.clone(),
                    score: None,
                });
            }
            for (index, score) in new.into_iter().filter(|entry| !old.contains(entry)) {
                finished.index.push(IndexWrite { index, key: key.clone(), score: Some(score) });
            }
            finished.writes.push(Write { key: key.clone(), row: row.clone() });
            pairs.push((before, row.clone()));
            finished.rows.insert(key, row);
            finished.changed = true;
        }
        finished.facts = facts_of(&pairs);
        Ok(finished)
    }

    fn derive_wake_at(&mut self) {
        if !self.edited.contains_key(&Key::head()) && !self.edited.contains_key(&Key::inbox()) {
            return;
        }
        if matches!(self.edited.get(&Key::head()), Some(None)) {
            return;
        }
        let inbox_at = self.has(&Key::inbox()).then(|| {
            let inbox = self.get::<Inbox>(&Key::inbox()).cloned().unwrap_or_default();
            inbox.people.iter().chain(&inbox.notices).filter(|u| u.wakes).map(|u| u.ready_at).min()
        });
        let Some(head) = self.head_mut() else { return };
        if let Some(at) = inbox_at {
            head.inbox_at = at;
        }
        head.wake_at = wake_at(head);
    }
}

/// When a session is to be claimed: a pure function of its head.
pub fn wake_at(head: &Head) -> Option<Timestamp> {
    match (&head.lane, head.open) {
        (Some(lane), _) => Some(lane.until),
        (None, Some(_)) => Some(head.not_before),
        (None, None) if head.stopped => None,
        (None, None) => head.inbox_at.map(|at| at.max(head.not_before)),
    }
}

/// What a decision came to.
#[derive(Debug, Clone)]
pub struct Finished {
    /// Rows to be written.
    pub writes: Vec<Write>,
    /// Index entries to be written.
    pub index: Vec<IndexWrite>,
    /// The rows as they are after the change.
    pub rows: Rows,
    /// Something is to be written.
    pub changed: bool,
    /// What it makes true.
    pub facts: Vec<Fact>,
}
