//! What a row contributes to the indexes: one function, so no operation can forget an entry.
//! Must not know when or by whom indexes are read.

use std::fmt;

use super::key::Key;
use super::row::{Errand, Item, ItemState, Row};
use crate::core::arrival::Standing;
use crate::core::execution::{Execution, Home, State};
use crate::core::id::{BootId, SpoolId};
use crate::core::limits::{DEDUPE_MS, RETENTION_MS};
use crate::core::time::Timestamp;

/// An index of the store.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Index {
    /// Sessions to be claimed, by when.
    Ready,
    /// Executions to be looked after, by when.
    Due,
    /// Executions of a home that are not over.
    Home(Home),
    /// Of these, those whose end is wished for.
    Wish(Home),
    /// Posts to be delivered, by when.
    Outbox,
    /// Internal errands, by when. They never stand behind posts.
    Relay,
    /// Rows to be forgotten, by when.
    Expire,
    /// Nodes that are not buried, by their last beat.
    Nodes,
    /// Installations with which something is to be done, by when.
    Installations,
    /// Places of owners to be looked at, by when.
    Places,
}

impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready => f.write_str("ready"),
            Self::Due => f.write_str("due"),
            Self::Home(Home::Spool(id)) => write!(f, "home/spool/{id}"),
            Self::Home(Home::Process(id)) => write!(f, "home/process/{id}"),
            Self::Wish(Home::Spool(id)) => write!(f, "wish/spool/{id}"),
            Self::Wish(Home::Process(id)) => write!(f, "wish/process/{id}"),
            Self::Outbox => f.write_str("outbox"),
            Self::Relay => f.write_str("relay"),
            Self::Expire => f.write_str("expire"),
            Self::Nodes => f.write_str("nodes"),
            Self::Installations => f.write_str("installations"),
            Self::Places => f.write_str("places"),
        }
    }
}

impl Index {
    /// Reads what `Display` wrote.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "ready" => Self::Ready,
            "due" => Self::Due,
            "outbox" => Self::Outbox,
            "relay" => Self::Relay,
            "expire" => Self::Expire,
            "nodes" => Self::Nodes,
            "installations" => Self::Installations,
            "places" => Self::Places,
            _ => {
                let (list, home) = text.split_once('/')?;
                let home = match home.split_once('/')? {
                    ("spool", id) => Home::Spool(SpoolId::new(id).ok()?),
                    ("process", id) => Home::Process(BootId::new(id).ok()?),
                    _ => return None,
                };
                match list {
                    "home" => Self::Home(home),
                    "wish" => Self::Wish(home),
                    _ => return None,
                }
            }
        })
    }
}

/// The index entries of a row, with their scores.
pub fn index_of(_key: &Key, row: &Row) -> Vec<(Index, u64)> {
    match row {
        Row::Head(head) => head.wake_at.map(|at| (Index::Ready, at.as_ms())).into_iter().collect(),
        Row::Execution(execution) => of_execution(execution),
        Row::Item(item) => of_item(item),
        Row::Arrival(arrival) => match (&arrival.standing, arrival.settled_at) {
            (Standing::Settled { .. } | Standing::Withdrawn, Some(at)) => expire(at, RETENTION_MS),
            (Standing::Settled { .. } | Standing::Withdrawn, None)
            | (Standing::Pending | Standing::Offered(_), _) => vec![],
        },
        Row::Turn(turn) => turn.ended_at.map_or_else(Vec::new, |at| expire(at, RETENTION_MS)),
        Row::Chain(chain) => expire(chain.opened_at, RETENTION_MS),
        Row::StartKey(start) => expire(start.at, RETENTION_MS),
        Row::Holder(holder) => expire(holder.at, RETENTION_MS),
        Row::Dedupe(dedupe) => expire(dedupe.at, DEDUPE_MS),
        Row::Beat(beat) => match beat.buried_at {
            Some(at) => expire(at, RETENTION_MS),
            None => vec![(Index::Nodes, beat.at.as_ms())],
        },
        Row::Installation(installation) => {
            let due = installation.due_at();
            due.map(|at| (Index::Installations, at.as_ms())).into_iter().collect()
        }
        Row::Place(place) => vec![(Index::Places, place.check_at.as_ms())],
        Row::Inbox(_)
        | Row::Live(_)
        | Row::Recent(_)
        | Row::Tails(_)
        | Row::Summary(_)
        | Row::Entry(_)
        | Row::Invitations(_)
        | Row::Places(_) => vec![],
    }
}

fn expire(at: Timestamp, after_ms: u64) -> Vec<(Index, u64)> {
    vec![(Index::Expire, at.plus_ms(after_ms).as_ms())]
}

fn of_execution(execution: &Execution) -> Vec<(Index, u64)> {
    match &execution.state {
        State::Registered | State::Running => {
            vec![(Index::Home(execution.home.clone()), 0), (Index::Due, execution.due_at.as_ms())]
        }
        State::Cancelling => {
            vec![
                (Index::Home(execution.home.clone()), 0),
                (Index::Wish(execution.home.clone()), 0),
                (Index::Due, execution.due_at.as_ms()),
            ]
        }
        State::Ended(_) => {
            expire(execution.ended_at.unwrap_or(execution.registered_at), RETENTION_MS)
        }
    }
}

fn of_item(item: &Item) -> Vec<(Index, u64)> {
    let index = match item.errand {
        Errand::Post { .. } | Errand::Show { .. } | Errand::Root { .. } => Index::Outbox,
        Errand::Kill { .. } | Errand::Free { .. } | Errand::Begin { .. } => Index::Relay,
    };
    match (&item.state, item.at) {
        (ItemState::Pending | ItemState::Leased { .. }, Some(at)) => vec![(index, at.as_ms())],
        (ItemState::Pending | ItemState::Leased { .. }, None) => vec![],
        (ItemState::Done(_) | ItemState::Dead(_), _) => {
            expire(item.ended_at.unwrap_or(item.created_at), RETENTION_MS)
        }
    }
}
