//! The one funnel through which every execution ends, and the one through which an arrival is
//! settled or goes back. Must not know which operation asked.

use super::mail::{self, Letter, name};
use crate::core::arrival::{Arrival, Body, Standing};
use crate::core::envelope;
use crate::core::execution::{
    CancelledBy, Execution, Fate, Home, HumanReceipt, ModelReceipt, Outcome, PostSort, State,
};
use crate::core::id::{ExecutionId, Seq, TurnNo};
use crate::core::ledger::row::{Chain, Inbox, Live, Recent, Turn, Unread, post_line, show_line};
use crate::core::ledger::{Key, Working};
use crate::core::limits::ENDED_LISTED_MAX;
use crate::core::time::Timestamp;

/// How an execution is to end.
pub(super) struct Ending {
    pub(super) outcome: Outcome,
    /// The fate, where no arrival is to be made whatever the execution asked for.
    pub(super) silent: Option<Fate>,
    /// Its process may still run.
    pub(super) kill: bool,
}

/// What ending this execution must see, besides its own row, the head, the inbox and the lists.
pub(super) fn needs(have: &Working, id: &ExecutionId) -> Vec<Key> {
    let key = Key::execution(id);
    let mut keys = vec![key.clone(), Key::head(), Key::inbox(), Key::live(), Key::recent()];
    if !have.has(&key) || !have.has(&Key::head()) {
        return keys;
    }
    let Some(execution) = have.get::<Execution>(&key) else { return keys };
    keys.push(Key::arrival(have.head().arrivals + 1));
    keys.push(Key::chain(execution.chain));
    let ids = [name::kill(id), name::free(id), name::human(id), name::late(id)];
    let ids = ids.into_iter().chain([name::spent(execution.chain)]);
    keys.extend(mail::needs(have, ids, [post_line(&execution.address)]));
    keys.extend(shown_needs(have, execution));
    if let ModelReceipt::Arrival(seq) = execution.model {
        keys.push(Key::arrival(seq));
    }
    keys
}

/// What making its message final must see.
pub(super) fn shown_needs(have: &Working, execution: &Execution) -> Vec<Key> {
    if !execution.shown {
        return vec![];
    }
    let line = show_line(&execution.address, &execution.id);
    mail::needs(have, [name::finish(&execution.id)], [line])
}

/// Ends an execution that is not over. First terminal state wins: callers have looked.
pub(super) fn end(rows: &mut Working, now: Timestamp, id: &ExecutionId, ending: Ending) {
    let key = Key::execution(id);
    let Some(before) = rows.get::<Execution>(&key).cloned() else { return };
    let tell = ending.silent.is_none() && before.notify.tells_human();
    if let Some(execution) = rows.edit::<Execution>(&key) {
        execution.state = State::Ended(ending.outcome);
        execution.ended_at = Some(now);
        execution.human = if tell { HumanReceipt::Owed } else { HumanReceipt::None };
    }
    if let Some(live) = rows.ensure::<Live>(&Key::live()) {
        live.0.retain(|other| other != id);
    }
    if let Some(recent) = rows.ensure::<Recent>(&Key::recent()) {
        recent.0.push(id.clone());
        let surplus = recent.0.len().saturating_sub(ENDED_LISTED_MAX);
        recent.0.drain(..surplus);
    }
    let current = rows.head().generation == before.generation;
    let receipt = match ending.silent {
        Some(fate) => ModelReceipt::Fate(fate),
        None if !current => ModelReceipt::Fate(Fate::Stopped),
        None if !before.notify.wakes_agent() => ModelReceipt::Fate(Fate::Waived),
        None => ModelReceipt::Arrival(push_notice(rows, now, &before)),
    };
    if let Some(execution) = rows.edit::<Execution>(&key) {
        execution.model = receipt;
    }
    if ending.kill {
        let spool = match &before.home {
            Home::Spool(spool) => Some(spool.clone()),
            Home::Process(_) => None,
        };
        mail::kill(rows, now, id, spool);
    }
    mail::free(rows, now, &before, ending.kill);
    if before.shown {
        mail::finish(rows, now, &before);
    }
    if tell && let Some(ended) = rows.get::<Execution>(&key).cloned() {
        let letter = Letter {
            id: name::human(id),
            address: ended.address.clone(),
            text: envelope::human_line(&ended),
            sort: PostSort::Human,
            receipt_of: Some(id.clone()),
        };
        mail::post(rows, now, letter);
    }
}

/// The completion enters the inbox. It is never refused: `Register` has paid for its place.
fn push_notice(rows: &mut Working, now: Timestamp, execution: &Execution) -> Seq {
    let by_person = matches!(execution.cancel, Some(CancelledBy::Person { .. }));
    let spent = is_spent(rows, execution);
    if spent {
        tell_spent(rows, now, execution);
    }
    let generation = rows.head().generation;
    let seq = next_seq(rows);
    rows.put(
        Key::arrival(seq),
        Arrival {
            seq,
            body: Body::Completion { execution: execution.id.clone() },
            principal: execution.owner.clone(),
            address: execution.address.clone(),
            source_at: now,
            accepted_at: now,
            settled_at: None,
            generation,
            chain: execution.chain,
            solo: false,
            standing: Standing::Pending,
            shared: execution.shared,
        },
    );
    let bytes = rows.get::<Execution>(&Key::execution(&execution.id)).map_or(0, size);
    if let Some(inbox) = rows.ensure::<Inbox>(&Key::inbox()) {
        inbox.notices.push(Unread {
            seq,
            wakes: !by_person && !spent,
            solo: false,
            principal: execution.owner.clone(),
            ready_at: now,
            bytes,
            execution: Some(execution.id.clone()),
            chain: execution.chain,
            shared: execution.shared,
        });
    }
    seq
}

fn size(execution: &Execution) -> u64 {
    match &execution.state {
        State::Ended(outcome) => {
            let kept = [&outcome.stdout, &outcome.stderr].map(|c| c.head.len() + c.tail.len());
            (kept.iter().sum::<usize>() + execution.name.len()) as u64
        }
        State::Registered | State::Running | State::Cancelling => 0,
    }
}

/// A chain that is forgotten is spent: nothing starts by itself from it.
fn is_spent(rows: &Working, execution: &Execution) -> bool {
    rows.get::<Chain>(&Key::chain(execution.chain)).is_none_or(Chain::is_spent)
}

/// A person is told once a chain that a result waits for them.
pub(super) fn tell_spent(rows: &mut Working, now: Timestamp, execution: &Execution) {
    let letter = Letter {
        id: name::spent(execution.chain),
        address: execution.address.clone(),
        text: format!(
            "The budget of what followed from your last message is spent, so I was not woken for \
             the end of {} ({}). Its result waits: write a message and I read it with that.",
            execution.name, execution.id
        ),
        sort: PostSort::Failure,
        receipt_of: None,
    };
    mail::post(rows, now, letter);
}

/// The number of the next arrival; its row must have been named.
pub(super) fn next_seq(rows: &mut Working) -> Seq {
    rows.head_mut().map_or(0, |head| {
        head.arrivals += 1;
        head.arrivals
    })
}

/// An arrival is over.
pub(super) fn settle(rows: &mut Working, now: Timestamp, seq: Seq, fate: Fate, turn: TurnNo) {
    if let Some(arrival) = rows.edit::<Arrival>(&Key::arrival(seq)) {
        arrival.standing = Standing::Settled { fate, turn };
        arrival.settled_at = Some(now);
    }
}

/// An arrival goes back to its place in the inbox.
pub(super) fn put_back(rows: &mut Working, now: Timestamp, seq: Seq, solo: bool) {
    let Some(arrival) = rows.edit::<Arrival>(&Key::arrival(seq)) else { return };
    arrival.standing = Standing::Pending;
    arrival.solo |= solo;
    let arrival = arrival.clone();
    let wakes = wakes_again(rows, &arrival.body);
    let unread = Unread {
        seq,
        wakes,
        // What only rides is never claimed, so it is not claimed alone either.
        solo: arrival.solo && wakes,
        principal: arrival.principal.clone(),
        ready_at: now,
        bytes: match &arrival.body {
            Body::Message { text } | Body::Remark { text } => text.len() as u64,
            Body::Completion { execution } => {
                rows.get::<Execution>(&Key::execution(execution)).map_or(0, size)
            }
        },
        execution: match &arrival.body {
            Body::Completion { execution } => Some(execution.clone()),
            Body::Message { .. } | Body::Remark { .. } => None,
        },
        chain: arrival.chain,
        shared: arrival.shared,
    };
    if let Some(inbox) = rows.ensure::<Inbox>(&Key::inbox()) {
        let list = match arrival.body {
            Body::Message { .. } | Body::Remark { .. } => &mut inbox.people,
            Body::Completion { .. } => &mut inbox.notices,
        };
        let place = list.partition_point(|other| other.seq < seq);
        list.insert(place, unread);
    }
}

/// Remarks ride, and so does the end of what a person cancelled. A spent chain is looked at again
/// when the session is claimed.
fn wakes_again(rows: &Working, body: &Body) -> bool {
    match body {
        Body::Message { .. } => true,
        Body::Remark { .. } => false,
        Body::Completion { execution } => rows
            .get::<Execution>(&Key::execution(execution))
            .is_some_and(|x| !matches!(x.cancel, Some(CancelledBy::Person { .. }))),
    }
}

/// What putting the arrivals of a turn back must see.
pub(super) fn put_back_needs(turn: &Turn) -> impl Iterator<Item = Key> {
    turn.carried.iter().flat_map(|carried| {
        let execution = carried.execution.as_ref().map(Key::execution);
        std::iter::once(Key::arrival(carried.seq)).chain(execution)
    })
}
