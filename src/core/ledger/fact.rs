//! What an apply made true, for those who count: derived from the rows before and after, as index
//! entries are, so no operation can forget one. Must not know who counts or how.

use std::sync::Arc;

use super::row::{Errand, Item, ItemState, Row, Turn, TurnState};
use crate::core::arrival::{Arrival, Body, Standing};
use crate::core::execution::{Execution, Fate, Kind, PostSort, State, Status};
use crate::core::time::Timestamp;
use crate::core::transcript::Origin;

/// What sort of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// A person's message.
    Message,
    /// What is to be added to an earlier one.
    Remark,
    /// The end of an execution.
    Completion,
}

/// How an arrival came before the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// It opened a turn, after so long.
    Opened {
        /// From its acceptance to the turn.
        waited_ms: u64,
    },
    /// A turn that ran took it.
    Steered,
    /// It went back into the inbox: a turn broke off.
    Retried,
    /// It was given up.
    Dead,
}

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnEnd {
    /// With its answer.
    Committed,
    /// It was buried.
    Dead,
    /// A person stopped it.
    Stopped,
}

/// How a try at a post ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PostEnd {
    /// It is posted, so long after it was written.
    Done {
        /// From the outbox to the surface.
        after_ms: u64,
    },
    /// It is tried again.
    Retried,
    /// It is given up.
    Dead,
}

/// Something that is true since an apply, and was not before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fact {
    /// Something entered an inbox.
    Arrived(Sort),
    /// An arrival was brought before the model, or was not.
    Woke(Sort, Delivery),
    /// A lane was claimed.
    Claimed {
        /// For a turn that was open already.
        resumed: bool,
    },
    /// An attempt at a turn failed.
    AttemptFailed,
    /// A turn is over.
    TurnEnded {
        /// How it began.
        origin: Origin,
        /// How it ended.
        end: TurnEnd,
        /// From its opening.
        ms: u64,
    },
    /// An execution is in the record.
    Registered(Kind),
    /// An execution is over.
    Ended {
        /// What sort.
        kind: Kind,
        /// How.
        status: Status,
        /// How long it ran.
        ms: u64,
    },
    /// A try at a post is over.
    Posted(PostSort, PostEnd),
}

/// One row that was written: before, and after.
pub(super) type Pair = (Option<Arc<Row>>, Option<Arc<Row>>);

/// What these rows made true.
pub(super) fn facts_of(pairs: &[Pair]) -> Vec<Fact> {
    let opened = pairs.iter().find_map(|pair| match (pair.0.as_deref(), pair.1.as_deref()) {
        (None, Some(Row::Turn(turn))) => Some(turn.opened_at),
        _other => None,
    });
    let mut facts = Vec::new();
    for (before, after) in pairs {
        let Some(after) = after else { continue };
        of_row(before.as_deref(), after, opened, &mut facts);
    }
    facts
}

fn of_row(before: Option<&Row>, after: &Row, opened: Option<Timestamp>, facts: &mut Vec<Fact>) {
    match (before, after) {
        (before, Row::Head(head)) => {
            let lane = |row: &Row| if let Row::Head(head) = row { head.lane.clone() } else { None };
            let claim = before.and_then(lane).map(|lane| lane.claim);
            if head.lane.as_ref().is_some_and(|lane| Some(&lane.claim) != claim.as_ref()) {
                facts.push(Fact::Claimed { resumed: opened.is_none() });
            }
        }
        (None, Row::Arrival(arrival)) => facts.push(Fact::Arrived(sort(arrival))),
        (Some(Row::Arrival(before)), Row::Arrival(after)) => {
            let delivery = delivery(before, after, opened);
            facts.extend(delivery.map(|delivery| Fact::Woke(sort(after), delivery)));
        }
        (Some(Row::Turn(before)), Row::Turn(after)) => of_turn(before, after, facts),
        (None, Row::Execution(execution)) => facts.push(Fact::Registered(execution.kind)),
        (Some(Row::Execution(before)), Row::Execution(after)) => {
            facts.extend(ended(before, after));
        }
        (Some(Row::Item(before)), Row::Item(after)) => facts.extend(posted(before, after)),
        // The others say nothing that one of these does not.
        (
            _,
            Row::Inbox(_)
            | Row::Live(_)
            | Row::Recent(_)
            | Row::Tails(_)
            | Row::Summary(_)
            | Row::Entry(_)
            | Row::StartKey(_)
            | Row::Holder(_)
            | Row::Dedupe(_)
            | Row::Chain(_)
            | Row::Beat(_)
            | Row::Installation(_)
            | Row::Invitations(_)
            | Row::Places(_)
            | Row::Place(_)
            | Row::Arrival(_)
            | Row::Turn(_)
            | Row::Execution(_)
            | Row::Item(_),
        ) => {}
    }
}

fn sort(arrival: &Arrival) -> Sort {
    match arrival.body {
        Body::Message { .. } => Sort::Message,
        Body::Remark { .. } => Sort::Remark,
        Body::Completion { .. } => Sort::Completion,
    }
}

fn delivery(before: &Arrival, after: &Arrival, opened: Option<Timestamp>) -> Option<Delivery> {
    match (&before.standing, &after.standing) {
        (Standing::Pending, Standing::Offered(_)) => Some(match opened {
            Some(at) => Delivery::Opened { waited_ms: at.since_ms(after.accepted_at) },
            None => Delivery::Steered,
        }),
        (Standing::Offered(_), Standing::Pending) => Some(Delivery::Retried),
        (
            Standing::Pending | Standing::Offered(_),
            Standing::Settled { fate: Fate::Dead(_), .. },
        ) => Some(Delivery::Dead),
        (
            Standing::Pending
            | Standing::Offered(_)
            | Standing::Settled { .. }
            | Standing::Withdrawn,
            _,
        ) => None,
    }
}

fn of_turn(before: &Turn, after: &Turn, facts: &mut Vec<Fact>) {
    if after.failures > before.failures {
        facts.push(Fact::AttemptFailed);
    }
    let end = match (&before.state, &after.state) {
        (TurnState::Open, TurnState::Committed) => TurnEnd::Committed,
        (TurnState::Open, TurnState::Dead(_)) => TurnEnd::Dead,
        (TurnState::Open, TurnState::Stopped) => TurnEnd::Stopped,
        (TurnState::Open, TurnState::Open)
        | (TurnState::Committed | TurnState::Dead(_) | TurnState::Stopped, _) => return,
    };
    let ms = after.ended_at.unwrap_or(after.opened_at).since_ms(after.opened_at);
    facts.push(Fact::TurnEnded { origin: after.origin, end, ms });
}

fn ended(before: &Execution, after: &Execution) -> Option<Fact> {
    match (&before.state, &after.state) {
        (State::Registered | State::Running | State::Cancelling, State::Ended(outcome)) => {
            Some(Fact::Ended { kind: after.kind, status: outcome.status, ms: outcome.elapsed_ms })
        }
        (_, State::Registered | State::Running | State::Cancelling)
        | (State::Ended(_), State::Ended(_)) => None,
    }
}

fn posted(before: &Item, after: &Item) -> Option<Fact> {
    let Errand::Post { sort, .. } = &after.errand else { return None };
    let end = match (&before.state, &after.state) {
        (ItemState::Pending | ItemState::Leased { .. }, ItemState::Done(_)) => {
            let ended_at = after.ended_at.unwrap_or(after.created_at);
            PostEnd::Done { after_ms: ended_at.since_ms(after.created_at) }
        }
        (ItemState::Pending | ItemState::Leased { .. }, ItemState::Dead(_)) => PostEnd::Dead,
        (ItemState::Leased { .. }, ItemState::Pending) => PostEnd::Retried,
        (_, ItemState::Leased { .. })
        | (ItemState::Pending, ItemState::Pending)
        | (ItemState::Done(_) | ItemState::Dead(_), _) => return None,
    };
    Some(Fact::Posted(*sort, end))
}
