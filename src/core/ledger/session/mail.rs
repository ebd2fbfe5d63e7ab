//! Putting items into the outbox: fixed ids, one line a destination. Used by every operation that
//! posts. Must not know who delivers.

use std::collections::BTreeMap;

use crate::core::execution::{Address, Execution, PostSort};
use crate::core::id::{ExecutionId, ItemId, SpoolId, TurnNo};
use crate::core::ledger::row::{Errand, Item, ItemState, Tails};
use crate::core::ledger::{Key, Working};
use crate::core::time::Timestamp;

/// Ids of outbox items: each fixed by what the item says, so each is its own idempotency key.
pub(super) mod name {
    use crate::core::id::{ChainNo, ExecutionId, ItemId, TurnNo};

    // An execution id is at most 200 bytes with its prefix only if it is short; ids made by
    // `Register` are below 40 bytes, so these never fail.
    fn id(text: String) -> Option<ItemId> {
        ItemId::new(text).ok()
    }
    pub(crate) fn post(turn: TurnNo, i: usize) -> Option<ItemId> {
        id(format!("post/{turn}/{i}"))
    }
    pub(crate) fn dead(turn: TurnNo) -> Option<ItemId> {
        id(format!("dead/{turn}"))
    }
    pub(crate) fn show(execution: &ExecutionId) -> Option<ItemId> {
        id(format!("show/{execution}"))
    }
    pub(crate) fn finish(execution: &ExecutionId) -> Option<ItemId> {
        id(format!("finish/{execution}"))
    }
    pub(crate) fn kill(execution: &ExecutionId) -> Option<ItemId> {
        id(format!("kill/{execution}"))
    }
    pub(crate) fn free(execution: &ExecutionId) -> Option<ItemId> {
        id(format!("free/{execution}"))
    }
    pub(crate) fn human(execution: &ExecutionId) -> Option<ItemId> {
        id(format!("human/{execution}"))
    }
    pub(crate) fn late(execution: &ExecutionId) -> Option<ItemId> {
        id(format!("late/{execution}"))
    }
    pub(crate) fn begin(root: &ItemId) -> Option<ItemId> {
        id(format!("begin/{root}"))
    }
    pub(crate) fn spent(chain: ChainNo) -> Option<ItemId> {
        id(format!("spent/{chain}"))
    }
}

/// The item that posts the message of a shown execution.
pub fn shown_by(execution: &ExecutionId) -> Option<ItemId> {
    name::show(execution)
}

/// The turn whose first post this is.
pub fn first_post_of(item: &ItemId) -> Option<TurnNo> {
    item.as_str().strip_prefix("post/")?.strip_suffix("/0")?.parse().ok()
}

/// What enqueuing these items into these lines must see.
pub(super) fn needs(
    have: &Working,
    ids: impl IntoIterator<Item = Option<ItemId>>,
    to: impl IntoIterator<Item = String>,
) -> Vec<Key> {
    let mut keys: Vec<Key> = ids.into_iter().flatten().map(|id| Key::item(&id)).collect();
    keys.push(Key::tails());
    if have.has(&Key::tails())
        && let Some(tails) = have.get::<Tails>(&Key::tails())
    {
        let ends = to.into_iter().filter_map(|line| tails.0.get(&line));
        keys.extend(ends.map(Key::item));
    }
    keys
}

/// A post, as an operation puts it.
pub(super) struct Letter {
    pub(super) id: Option<ItemId>,
    pub(super) address: Address,
    pub(super) text: String,
    pub(super) sort: PostSort,
    pub(super) receipt_of: Option<ExecutionId>,
}

/// Puts a post at the end of its destination's line.
pub(super) fn post(rows: &mut Working, now: Timestamp, letter: Letter) {
    let Letter { id, address, text, sort, receipt_of } = letter;
    enqueue(rows, now, id, Errand::Post { address, text, sort }, receipt_of);
}

/// Posts the message that shows how an execution stands.
pub(super) fn show(rows: &mut Working, now: Timestamp, execution: &Execution) {
    let (address, id) = (execution.address.clone(), execution.id.clone());
    let errand = Errand::Show { address, execution: id, of: None };
    enqueue(rows, now, name::show(&execution.id), errand, None);
}

/// Makes that message final.
pub(super) fn finish(rows: &mut Working, now: Timestamp, execution: &Execution) {
    let (address, id) = (execution.address.clone(), execution.id.clone());
    let errand = Errand::Show { address, execution: id, of: name::show(&execution.id) };
    enqueue(rows, now, name::finish(&execution.id), errand, None);
}

/// An item that is there already stays as it is.
pub(super) fn enqueue(
    rows: &mut Working,
    now: Timestamp,
    id: Option<ItemId>,
    errand: Errand,
    receipt_of: Option<ExecutionId>,
) {
    let (Some(id), Some(to)) = (id, errand.line()) else { return };
    let key = Key::item(&id);
    if rows.get::<Item>(&key).is_some() {
        return;
    }
    let tails: BTreeMap<String, ItemId> =
        rows.get::<Tails>(&Key::tails()).map(|t| t.0.clone()).unwrap_or_default();
    let before = tails.get(&to);
    if let Some(before) = before
        && let Some(item) = rows.edit::<Item>(&Key::item(before))
    {
        item.next = Some(id.clone());
    }
    let at = if before.is_some() { None } else { Some(now) };
    rows.put(key, item(&id, errand, now, at, receipt_of));
    if let Some(tails) = rows.ensure::<Tails>(&Key::tails()) {
        tails.0.insert(to, id);
    }
}

/// Asks the home of an execution to end its process.
pub(super) fn kill(
    rows: &mut Working,
    now: Timestamp,
    execution: &ExecutionId,
    spool: Option<SpoolId>,
) {
    let Some(id) = name::kill(execution) else { return };
    let key = Key::item(&id);
    if rows.get::<Item>(&key).is_none() {
        let errand = Errand::Kill { execution: execution.clone(), spool };
        rows.put(key, item(&id, errand, now, Some(now), None));
    }
}

/// The item that this one leaves behind once it is done.
pub(super) fn begins(item: &Item) -> Option<ItemId> {
    match item.errand {
        Errand::Root { .. } => name::begin(&item.id),
        Errand::Post { .. }
        | Errand::Show { .. }
        | Errand::Kill { .. }
        | Errand::Free { .. }
        | Errand::Begin { .. } => None,
    }
}

/// What a person said goes to the conversation that this root has begun.
pub(super) fn begin(rows: &mut Working, now: Timestamp, root: &Item) {
    let Some(id) = begins(root) else { return };
    let key = Key::item(&id);
    if rows.get::<Item>(&key).is_none() {
        let errand = Errand::Begin { of: root.id.clone() };
        rows.put(key, item(&id, errand, now, Some(now), None));
    }
}

/// Gives its place back to its owner; after the kill, where its process may still run.
pub(super) fn free(rows: &mut Working, now: Timestamp, execution: &Execution, kill: bool) {
    let Some(id) = name::free(&execution.id) else { return };
    let key = Key::item(&id);
    if rows.get::<Item>(&key).is_some() {
        return;
    }
    let kill = name::kill(&execution.id).filter(|_| kill);
    let before = kill.and_then(|kill| rows.edit::<Item>(&Key::item(&kill)));
    let at = before.is_none().then_some(now);
    if let Some(before) = before {
        before.next = Some(id.clone());
    }
    let errand = Errand::Free { owner: execution.owner.clone(), start: execution.start() };
    rows.put(key, item(&id, errand, now, at, None));
}

fn item(
    id: &ItemId,
    errand: Errand,
    now: Timestamp,
    at: Option<Timestamp>,
    receipt_of: Option<ExecutionId>,
) -> Item {
    Item {
        id: id.clone(),
        errand,
        receipt_of,
        created_at: now,
        at,
        next: None,
        tries: 0,
        uncertain: false,
        ended_at: None,
        state: ItemState::Pending,
    }
}
