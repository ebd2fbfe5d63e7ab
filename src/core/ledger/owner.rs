//! The operations of an owner: places under the cap on what one person may have running, over all
//! sessions. Owns that there are never more than the cap, and their count. Must not know sessions;
//! whether a place is still needed is decided there.
//!
//! | operation | a repeat is recognised by |
//! |---|---|
//! | `Reserve`, `Free` | the place itself |
//! | `Keep` | when it was to be looked at |

use super::audit::Snapshot;
use super::row::{Place, Places, RowType};
use super::{Aggregate, Class, Key, Operation, Refusal, Situation, Working};
use crate::core::execution::Start;
use crate::core::id::{Principal, SessionId};
use crate::core::limits::{PLACE_CHECKED_AGAIN_MS, PLACE_CHECKED_MS};
use crate::core::time::Timestamp;

/// Takes a place for what a call is about to start, before it is registered.
#[derive(Debug, Clone)]
pub struct Reserve {
    /// Whose.
    pub owner: Principal,
    /// Where it will run.
    pub session: SessionId,
    /// The call that starts it.
    pub start: Start,
    /// The most places that this owner may have.
    pub cap: u32,
}

impl Operation for Reserve {
    type Output = ();

    fn aggregate(&self) -> Aggregate {
        Aggregate::Owner(self.owner.clone())
    }

    fn class(&self) -> Class {
        Class::RESERVES
    }

    fn needs(&self, _: &Working) -> Vec<Key> {
        vec![Key::places(), Key::place(&self.session, &self.start)]
    }

    fn decide(&self, at: &Situation, rows: &mut Working) -> Result<(), Refusal> {
        let key = Key::place(&self.session, &self.start);
        if rows.get::<Place>(&key).is_some() {
            return Ok(());
        }
        let taken = rows.get::<Places>(&Key::places()).map_or(0, |places| places.taken);
        if taken >= self.cap {
            let what = "too many executions of this person are live";
            return Err(Refusal::Cap { what, limit: self.cap as usize });
        }
        rows.put(Key::places(), Places { taken: taken + 1 });
        let (session, start) = (self.session.clone(), self.start);
        let check_at = at.now.plus_ms(PLACE_CHECKED_MS);
        rows.put(key, Place { session, start, at: at.now, check_at });
        Ok(())
    }
}

/// Gives a place back: what it was taken for is over, or can never be.
#[derive(Debug, Clone)]
pub struct Free {
    /// Whose.
    pub owner: Principal,
    /// Where it ran.
    pub session: SessionId,
    /// The call that started it.
    pub start: Start,
}

impl Operation for Free {
    type Output = ();

    fn aggregate(&self) -> Aggregate {
        Aggregate::Owner(self.owner.clone())
    }

    fn class(&self) -> Class {
        // A place that was not given back is looked at when its time comes.
        Class::HINT
    }

    fn needs(&self, _: &Working) -> Vec<Key> {
        vec![Key::places(), Key::place(&self.session, &self.start)]
    }

    fn decide(&self, _: &Situation, rows: &mut Working) -> Result<(), Refusal> {
        let key = Key::place(&self.session, &self.start);
        if rows.get::<Place>(&key).is_none() {
            return Ok(());
        }
        rows.delete(&key);
        let taken = rows.get::<Places>(&Key::places()).map_or(0, |places| places.taken);
        if taken > 1 {
            rows.put(Key::places(), Places { taken: taken - 1 });
        } else {
            rows.delete(&Key::places());
        }
        Ok(())
    }
}

/// A place was looked at and is still needed: it is looked at again later.
#[derive(Debug, Clone)]
pub struct Keep {
    /// Whose.
    pub owner: Principal,
    /// Where it runs.
    pub session: SessionId,
    /// The call that started it.
    pub start: Start,
    /// When it was to be looked at.
    pub seen: Timestamp,
}

impl Operation for Keep {
    type Output = ();

    fn aggregate(&self) -> Aggregate {
        Aggregate::Owner(self.owner.clone())
    }

    fn class(&self) -> Class {
        Class::HINT
    }

    fn needs(&self, _: &Working) -> Vec<Key> {
        vec![Key::place(&self.session, &self.start)]
    }

    fn decide(&self, at: &Situation, rows: &mut Working) -> Result<(), Refusal> {
        let key = Key::place(&self.session, &self.start);
        if let Some(place) = rows.edit::<Place>(&key).filter(|place| place.check_at == self.seen) {
            place.check_at = at.now.plus_ms(PLACE_CHECKED_AGAIN_MS);
        }
        Ok(())
    }
}

/// What does not agree in the rows of one owner, in words.
pub fn audit(rows: &Snapshot) -> Vec<String> {
    let mut faults = vec![];
    let mut count = 0;
    for (key, place) in rows.iter().filter_map(|(key, row)| Some((key, Place::of(row)?))) {
        count += 1;
        if *key != Key::place(&place.session, &place.start) {
            faults.push(format!("the place {key} says that it is another"));
        }
    }
    let taken = rows.get(&Key::places()).and_then(Places::of).map_or(0, |places| places.taken);
    if count != taken {
        faults.push(format!("{taken} places are counted, {count} are taken"));
    }
    faults
}
