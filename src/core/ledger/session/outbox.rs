//! The life of an outbox item after it was written: leased, done, failed. Owns the order of a
//! destination's line. Must not know what delivering is.

use super::mail;
use crate::core::execution::{Execution, HumanReceipt};
use crate::core::id::{BootId, ItemId, LeaseId, SessionId};
use crate::core::ledger::row::{Errand, Item, ItemState, Tails};
use crate::core::ledger::{Aggregate, Class, Key, Operation, Refusal, Situation, Working};
use crate::core::limits::{POST_LEASE_MS, POST_MS_MAX};
use crate::core::time::Timestamp;

/// Takes an item to deliver it.
#[derive(Debug, Clone)]
pub struct LeaseItem {
    /// The session.
    pub session: SessionId,
    /// The item.
    pub item: ItemId,
    /// Which try: unique.
    pub lease: LeaseId,
    /// Who tries.
    pub boot: BootId,
}

/// What leasing came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leased {
    /// Deliver this.
    Item(Box<Item>),
    /// It is too old and was given up.
    Dead,
}

fn needs(have: &Working, item: &ItemId) -> Vec<Key> {
    let key = Key::item(item);
    let mut keys = vec![key.clone(), Key::tails()];
    if have.has(&key)
        && let Some(item) = have.get::<Item>(&key)
    {
        keys.extend(item.next.as_ref().map(Key::item));
        keys.extend(item.receipt_of.as_ref().map(Key::execution));
        keys.extend(mail::begins(item).as_ref().map(Key::item));
    }
    keys
}

fn find(rows: &Working, item: &ItemId) -> Result<Item, Refusal> {
    rows.get::<Item>(&Key::item(item)).cloned().ok_or(Refusal::Unknown)
}

impl Operation for LeaseItem {
    type Output = Leased;

    fn aggregate(&self) -> Aggregate {
        Aggregate::Session(self.session.clone())
    }

    fn class(&self) -> Class {
        Class::HINT
    }

    fn needs(&self, have: &Working) -> Vec<Key> {
        needs(have, &self.item)
    }

    fn decide(&self, at: &Situation, rows: &mut Working) -> Result<Leased, Refusal> {
        let item = find(rows, &self.item)?;
        let uncertain = match &item.state {
            ItemState::Leased { lease, .. } if *lease == self.lease => {
                return Ok(Leased::Item(Box::new(item)));
            }
            ItemState::Leased { boot, .. } if at.sole_boot.is_some() && *boot != self.boot => true,
            ItemState::Leased { until, .. } if at.now < *until => {
                return Err(Refusal::Busy(*until));
            }
            ItemState::Leased { .. } => true,
            ItemState::Pending => item.uncertain,
            ItemState::Done(_) | ItemState::Dead(_) => return Err(Refusal::Idle),
        };
        let Some(not_before) = item.at else { return Err(Refusal::Idle) };
        if at.now < not_before && item.state == ItemState::Pending {
            return Err(Refusal::NotYet(not_before));
        }
        if at.now.since_ms(item.created_at) > POST_MS_MAX {
            let why = match item.errand {
                // If its spool comes back, its next boot ends what the ledger has ended.
                Errand::Kill { .. } => "its home is gone: nobody took it for 48 hours",
                // A place is looked at when its time comes.
                Errand::Post { .. }
                | Errand::Show { .. }
                | Errand::Free { .. }
                | Errand::Root { .. }
                | Errand::Begin { .. } => "nobody took it for 48 hours",
            };
            finish(rows, at.now, &item, ItemState::Dead(why.into()));
            return Ok(Leased::Dead);
        }
        let until = at.now.plus_ms(POST_LEASE_MS);
        let Some(row) = rows.edit::<Item>(&Key::item(&self.item)) else {
            return Err(Refusal::Unknown);
        };
        let (lease, boot) = (self.lease.clone(), self.boot.clone());
        row.state = ItemState::Leased { lease, boot, until };
        row.at = Some(until);
        row.tries += 1;
        row.uncertain = uncertain;
        Ok(Leased::Item(Box::new(row.clone())))
    }
}

/// It was delivered: a fact that anyone may say, whoever holds the lease.
#[derive(Debug, Clone)]
pub struct DoneItem {
    /// The session.
    pub session: SessionId,
    /// The item.
    pub item: ItemId,
    /// What the destination answered.
    pub receipt: String,
}

impl Operation for DoneItem {
    type Output = ();

    fn aggregate(&self) -> Aggregate {
        Aggregate::Session(self.session.clone())
    }

    fn class(&self) -> Class {
        Class::FINISHES
    }

    fn needs(&self, have: &Working) -> Vec<Key> {
        needs(have, &self.item)
    }

    fn decide(&self, at: &Situation, rows: &mut Working) -> Result<(), Refusal> {
        let item = find(rows, &self.item)?;
        match item.state {
            ItemState::Done(_) | ItemState::Dead(_) => {}
            ItemState::Pending | ItemState::Leased { .. } => {
                finish(rows, at.now, &item, ItemState::Done(self.receipt.clone()));
            }
        }
        Ok(())
    }
}

/// When a failed item is tried again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Retry {
    /// Not before this; `uncertain` when it may have been delivered all the same.
    At {
        /// When.
        at: Timestamp,
        /// Nobody knows whether it was delivered.
        uncertain: bool,
    },
    /// Never; why.
    Never(String),
}

/// It was not delivered; only the holder of the lease may say so.
#[derive(Debug, Clone)]
pub struct FailItem {
    /// The session.
    pub session: SessionId,
    /// The item.
    pub item: ItemId,
    /// The lease.
    pub lease: LeaseId,
    /// What then.
    pub retry: Retry,
}

impl Operation for FailItem {
    type Output = ();

    fn aggregate(&self) -> Aggregate {
        Aggregate::Session(self.session.clone())
    }

    fn class(&self) -> Class {
        Class::FINISHES
    }

    fn needs(&self, have: &Working) -> Vec<Key> {
        needs(have, &self.item)
    }

    fn decide(&self, at: &Situation, rows: &mut Working) -> Result<(), Refusal> {
        let item = find(rows, &self.item)?;
        match &item.state {
            ItemState::Leased { lease, .. } if *lease == self.lease => {}
            ItemState::Leased { .. }
            | ItemState::Pending
            | ItemState::Done(_)
            | ItemState::Dead(_) => return Err(Refusal::Fenced),
        }
        match &self.retry {
            Retry::Never(why) => finish(rows, at.now, &item, ItemState::Dead(why.clone())),
            Retry::At { at, uncertain } => {
                if let Some(row) = rows.edit::<Item>(&Key::item(&self.item)) {
                    row.state = ItemState::Pending;
                    row.at = Some(*at);
                    row.uncertain |= uncertain;
                }
            }
        }
        Ok(())
    }
}

/// An item ends: the next of its destination comes up, a person's receipt is settled, and what was
/// said goes to the conversation that its root began. A dead item makes no further item.
fn finish(rows: &mut Working, now: Timestamp, item: &Item, state: ItemState) {
    if let Some(execution) = &item.receipt_of
        && let Some(row) = rows.edit::<Execution>(&Key::execution(execution))
    {
        row.human = match &state {
            ItemState::Done(receipt) => HumanReceipt::Done(receipt.clone()),
            ItemState::Dead(why) => HumanReceipt::Dead(why.clone()),
            ItemState::Pending | ItemState::Leased { .. } => HumanReceipt::Owed,
        };
    }
    if matches!(state, ItemState::Done(_)) {
        mail::begin(rows, now, item);
    }
    if let Some(row) = rows.edit::<Item>(&Key::item(&item.id)) {
        row.state = state;
        row.ended_at = Some(now);
        row.at = None;
    }
    if let Some(next) = &item.next
        && let Some(row) = rows.edit::<Item>(&Key::item(next))
    {
        row.at = Some(now);
    }
    if let Some(to) = item.errand.line()
        && let Some(tails) = rows.edit::<Tails>(&Key::tails())
        && tails.0.get(&to) == Some(&item.id)
    {
        tails.0.remove(&to);
    }
}
