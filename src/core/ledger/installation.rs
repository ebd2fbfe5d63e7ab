//! The operations of an installation: it is found whole, it ends, its work is stopped, its tokens
//! are changed. Owns which news of it counts. Must not know a surface.
//!
//! | operation | a repeat is recognised by |
//! |---|---|
//! | `Confirm` | state |
//! | `Depart` | state, and when it was last whole |
//! | `Walked` | the number of the departure |
//! | `Install`, `Introduce` | the same grant |
//! | `LeaseRefresh` | lease id |
//! | `Refreshed` | the tokens that it is of |
//! | `Invite`, `Redeem` | its hash; a second end is told so |

use super::{Aggregate, Class, Key, Operation, Refusal, Situation, Working};
use crate::core::id::{InstallationId, LeaseId, SessionId};
use crate::core::installation::{
    Departure, Grant, Installation, Invitation, Invitations, Leaving, Presence, Redeemed, Refresh,
};
use crate::core::limits::{
    INVITATION_MS, INVITATIONS_MAX, REFRESH_AGAIN_FIRST_MS, REFRESH_AGAIN_MS_MAX, REFRESH_LEASE_MS,
};
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
        let since = before.as_ref().map_or(self.asked_at, |one| one.since.max(self.asked_at));
        let grant = before.and_then(|one| one.grant);
        let whole =
            Installation { presence: Presence::Here, since, departures, leaving: None, grant };
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
            since: before.as_ref().map_or(at.now, |one| one.since),
            departures,
            leaving: Some(Leaving { source_at, upto: None }),
            grant: before.and_then(|one| one.grant),
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

/// A surface has granted it.
#[derive(Debug, Clone)]
pub struct Install {
    /// Which.
    pub installation: InstallationId,
    /// What.
    pub grant: Grant,
}

impl Operation for Install {
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

    /// Answers whether it was there before. What was stopped stays stopped, what is not yet is not
    /// any more: people may have begun anew.
    fn decide(&self, at: &Situation, rows: &mut Working) -> Result<bool, Refusal> {
        let before = find(rows);
        let kept = before.as_ref().and_then(|one| one.grant.as_ref());
        if kept.is_some_and(|grant| grant.sealed == self.grant.sealed) {
            return Ok(true);
        }
        let departures = before.as_ref().map_or(0, |one| one.departures);
        let grant = Some(self.grant.clone());
        let made = Installation {
            presence: Presence::Here,
            since: at.now,
            departures,
            leaving: None,
            grant,
        };
        rows.put(Key::installation(), made);
        Ok(before.is_some())
    }
}

/// The bot's own id there is known.
#[derive(Debug, Clone)]
pub struct Introduce {
    /// Which.
    pub installation: InstallationId,
    /// The bot.
    pub bot: String,
}

impl Operation for Introduce {
    type Output = ();

    fn aggregate(&self) -> Aggregate {
        Aggregate::Installation(self.installation.clone())
    }

    fn class(&self) -> Class {
        Class::HINT
    }

    fn needs(&self, _: &Working) -> Vec<Key> {
        vec![Key::installation()]
    }

    fn decide(&self, _: &Situation, rows: &mut Working) -> Result<(), Refusal> {
        if let Some(one) = rows.edit::<Installation>(&Key::installation())
            && let Some(grant) = &mut one.grant
        {
            grant.bot = Some(self.bot.clone());
        }
        Ok(())
    }
}

/// Somebody wants to change its tokens for new ones.
#[derive(Debug, Clone)]
pub struct LeaseRefresh {
    /// Which.
    pub installation: InstallationId,
    /// Which try: unique.
    pub lease: LeaseId,
}

impl Operation for LeaseRefresh {
    type Output = String;

    fn aggregate(&self) -> Aggregate {
        Aggregate::Installation(self.installation.clone())
    }

    fn class(&self) -> Class {
        Class::HINT
    }

    fn needs(&self, _: &Working) -> Vec<Key> {
        vec![Key::installation()]
    }

    /// Answers the sealed tokens, to whoever may change them now.
    fn decide(&self, at: &Situation, rows: &mut Working) -> Result<String, Refusal> {
        let Some(mut one) = find(rows).filter(|one| one.departure().is_none()) else {
            return Err(Refusal::Unknown);
        };
        let Some(grant) = &mut one.grant else { return Err(Refusal::Unknown) };
        let Some(refresh) = &mut grant.refresh else { return Err(Refusal::Idle) };
        if refresh.void.is_some() {
            return Err(Refusal::Idle);
        }
        match &refresh.lease {
            Some((lease, _)) if *lease == self.lease => return Ok(grant.sealed.clone()),
            Some((_, until)) if at.now < *until => return Err(Refusal::Busy(*until)),
            None if at.now < refresh.at => return Err(Refusal::NotYet(refresh.at)),
            Some(_) | None => {}
        }
        refresh.lease = Some((self.lease.clone(), at.now.plus_ms(REFRESH_LEASE_MS)));
        let sealed = grant.sealed.clone();
        rows.put(Key::installation(), one);
        Ok(sealed)
    }
}

/// What came of changing the tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// New ones.
    New {
        /// Sealed.
        sealed: String,
        /// How long they live; `None` where they do not end.
        life_ms: Option<u64>,
    },
    /// None yet; not tried again before so many milliseconds.
    Later {
        /// At least so long.
        after_ms: u64,
    },
    /// Never again; why.
    Void(String),
}

/// The tokens were changed, or were not.
#[derive(Debug, Clone)]
pub struct Refreshed {
    /// Which.
    pub installation: InstallationId,
    /// The try.
    pub lease: LeaseId,
    /// The sealed tokens that were to be changed.
    pub of: String,
    /// What came of it.
    pub change: Change,
}

impl Operation for Refreshed {
    type Output = ();

    fn aggregate(&self) -> Aggregate {
        Aggregate::Installation(self.installation.clone())
    }

    fn class(&self) -> Class {
        Class::FINISHES
    }

    fn needs(&self, _: &Working) -> Vec<Key> {
        vec![Key::installation()]
    }

    /// New tokens count as long as those stand that they are of, whoever is at it now: nobody else
    /// can get them again. A failure counts only from whoever holds the lease.
    fn decide(&self, at: &Situation, rows: &mut Working) -> Result<(), Refusal> {
        let Some(mut one) = find(rows) else { return Err(Refusal::Unknown) };
        let Some(grant) = &mut one.grant else { return Err(Refusal::Unknown) };
        if let Change::New { sealed, .. } = &self.change
            && *sealed == grant.sealed
        {
            return Ok(());
        }
        if grant.sealed != self.of {
            return Err(Refusal::Fenced);
        }
        let Some(refresh) = &mut grant.refresh else { return Err(Refusal::Fenced) };
        let held = refresh.lease.as_ref().is_some_and(|(lease, _)| *lease == self.lease);
        match &self.change {
            Change::New { sealed, life_ms } => {
                grant.refresh = life_ms.map(|ms| Refresh::new(at.now, ms));
                grant.sealed.clone_from(sealed);
            }
            Change::Later { .. } | Change::Void(_) if !held => return Err(Refusal::Fenced),
            Change::Later { after_ms } => {
                let failures = refresh.failures.min(10);
                let wait_ms = REFRESH_AGAIN_FIRST_MS.saturating_mul(1 << failures);
                let wait_ms = wait_ms.min(REFRESH_AGAIN_MS_MAX).max(*after_ms);
                refresh.failures += 1;
                refresh.lease = None;
                refresh.at = at.now.plus_ms(wait_ms);
            }
            Change::Void(why) => {
                refresh.lease = None;
                refresh.void = Some(why.clone());
            }
        }
        rows.put(Key::installation(), one);
        Ok(())
    }
}

/// Somebody begins an installation.
#[derive(Debug, Clone)]
pub struct Invite {
    /// By what it is known when it ends.
    pub hash: String,
}

impl Operation for Invite {
    type Output = ();

    fn aggregate(&self) -> Aggregate {
        Aggregate::Installer
    }

    fn class(&self) -> Class {
        Class::HINT
    }

    fn needs(&self, _: &Working) -> Vec<Key> {
        vec![Key::invitations()]
    }

    /// Many who only begin push each other out, not those who come later.
    fn decide(&self, at: &Situation, rows: &mut Working) -> Result<(), Refusal> {
        let Some(all) = rows.ensure::<Invitations>(&Key::invitations()) else {
            return Err(Refusal::Unnamed(Key::invitations()));
        };
        if all.0.iter().any(|one| one.hash == self.hash) {
            return Ok(());
        }
        all.0.retain(|one| at.now.since_ms(one.at) < INVITATION_MS);
        if all.0.len() >= INVITATIONS_MAX {
            all.0.remove(0);
        }
        all.0.push(Invitation { hash: self.hash.clone(), at: at.now, used: false });
        Ok(())
    }
}

/// Somebody comes back from the surface's page.
#[derive(Debug, Clone)]
pub struct Redeem {
    /// By what it is known.
    pub hash: String,
}

impl Operation for Redeem {
    type Output = Redeemed;

    fn aggregate(&self) -> Aggregate {
        Aggregate::Installer
    }

    fn class(&self) -> Class {
        Class::FINISHES
    }

    fn needs(&self, _: &Working) -> Vec<Key> {
        vec![Key::invitations()]
    }

    fn decide(&self, at: &Situation, rows: &mut Working) -> Result<Redeemed, Refusal> {
        let Some(all) = rows.edit::<Invitations>(&Key::invitations()) else {
            return Ok(Redeemed::Unknown);
        };
        let young = |one: &&mut Invitation| at.now.since_ms(one.at) < INVITATION_MS;
        let found = all.0.iter_mut().filter(young).find(|one| one.hash == self.hash);
        Ok(match found {
            None => Redeemed::Unknown,
            Some(one) if one.used => Redeemed::Used,
            Some(one) => {
                one.used = true;
                Redeemed::Fresh
            }
        })
    }
}
