//! The operations of an installation: it is found whole, it ends, its work is stopped. Owns which
//! news of it counts. Must not know a surface.
//!
//! | operation | a repeat is recognised by |
//! |---|---|
//! | `Confirm` | state |
//! | `Depart` | state, and when it was last whole |
//! | `Walked` | the number of the departure |

use super::{Aggregate, Class, Key, Operation, Refusal, Situation, Working};
use crate::core::id::{InstallationId, SessionId};
use crate::core::installation::{Departure, Installation, Leaving, Presence};
use crate::core::time::Timestamp;

fn find(rows: &Working) -> Option<Installation> {
    rows.get::<Installation>(&Key::installation()).cloned()
}

/// The surface has just said that the installation is whole.
#[derive(Debug, Clone)]
pub struct Confirm {
    /// Which.
    pub installation: InstallationId,
    /// When it was asked, by the store's time.
    pub asked_at: Timestamp,
}

impl Operation for Confirm {
    type Output = bool;

    fn aggregate(&self) -> Aggregate {
        Aggregate::Installation(self.installation.clone())
    }

    fn class(&self) -> Class {
        Class::FINISHES
    }

    fn needs(&self, _: &Working) -> Vec<Key> {
        vec![Key::installation()]
    }

    /// Answers whether it is there. What was noted after the question is newer than its answer.
    fn decide(&self, _: &Situation, rows: &mut Working) -> Result<bool, Refusal> {
        let before = find(rows);
        let departures = before.as_ref().map_or(0, |one| one.departures);
        if let Some(Installation { presence: Presence::Gone { noted_at, .. }, .. }) = &before
            && *noted_at >= self.asked_at
        {
            return Ok(false);
        }
        let since = before.map_or(self.asked_at, |one| one.since.max(self.asked_at));
        let whole = Installation { presence: Presence::Here, since, departures, leaving: None };
        rows.put(Key::installation(), whole);
        Ok(true)
    }
}

/// The surface says that the installation has ended.
#[derive(Debug, Clone)]
pub struct Depart {
    /// Which.
    pub installation: InstallationId,
    /// Why.
    pub why: Departure,
    /// When, by the surface's clock, at the latest; now, where it does not say.
    pub source_at: Option<Timestamp>,
}

/// What became of such news.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Departed {
    /// It is gone from now on; its work is stopped.
    Now,
    /// That was known.
    Known,
    /// It was made whole after that.
    Stale,
}

impl Operation for Depart {
    type Output = Departed;

    fn aggregate(&self) -> Aggregate {
        Aggregate::Installation(self.installation.clone())
    }

    fn class(&self) -> Class {
        Class::FINISHES
    }

    fn needs(&self, _: &Working) -> Vec<Key> {
        vec![Key::installation()]
    }

    fn decide(&self, at: &Situation, rows: &mut Working) -> Result<Departed, Refusal> {
        let before = find(rows);
        let source_at = self.source_at.unwrap_or(at.now);
        match &before {
            Some(Installation { presence: Presence::Gone { .. }, .. }) => {
                return Ok(Departed::Known);
            }
            Some(Installation { presence: Presence::Here, since, .. }) if source_at < *since => {
                return Ok(Departed::Stale);
            }
            Some(_) | None => {}
        }
        let departures = before.as_ref().map_or(0, |one| one.departures) + 1;
        let gone = Installation {
            presence: Presence::Gone { why: self.why, noted_at: at.now },
            since: before.map_or(at.now, |one| one.since),
            departures,
            leaving: Some(Leaving { source_at, upto: None }),
        };
        rows.put(Key::installation(), gone);
        Ok(Departed::Now)
    }
}

/// Sessions of an installation that is gone are stopped.
#[derive(Debug, Clone)]
pub struct Walked {
    /// Which.
    pub installation: InstallationId,
    /// After which departure.
    pub departure: u64,
    /// All up to this one; `None` when there are no more.
    pub upto: Option<SessionId>,
}

impl Operation for Walked {
    type Output = bool;

    fn aggregate(&self) -> Aggregate {
        Aggregate::Installation(self.installation.clone())
    }

    fn class(&self) -> Class {
        // What is stopped twice is stopped once.
        Class::HINT
    }

    fn needs(&self, _: &Working) -> Vec<Key> {
        vec![Key::installation()]
    }

    /// Answers whether more is to be stopped. Another node may be further, and a new installation
    /// ends it: what has begun since is not stopped.
    fn decide(&self, _: &Situation, rows: &mut Working) -> Result<bool, Refusal> {
        let Some(mut one) = find(rows).filter(|one| one.departures == self.departure) else {
            return Ok(false);
        };
        let Some(leaving) = &mut one.leaving else { return Ok(false) };
        match &self.upto {
            Some(upto) if leaving.upto.as_ref().is_none_or(|before| before < upto) => {
                leaving.upto = Some(upto.clone());
            }
            Some(_) => return Ok(true),
            None => one.leaving = None,
        }
        let more = one.leaving.is_some();
        rows.put(Key::installation(), one);
        Ok(more)
    }
}
