//! Places of owners: taken before anything is registered, given back, and looked at where nobody
//! said that they are free. Owns the order between an owner and a session. Must not decide; the
//! operations look again.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Engine, LedgerError, log, watcher};
use crate::core::execution::{Execution, Start};
use crate::core::id::{Principal, SessionId};
use crate::core::ledger::owner::{Free, Keep, Reserve};
use crate::core::ledger::row::{Place, Places, RowType, StartKey};
use crate::core::ledger::session::{Void, Voided};
use crate::core::ledger::{Aggregate, Index, Key, Refusal};
use crate::core::limits::{OWNED_SHOWN_MAX, PLACES_PER_PAGE, START_MS_MAX};
use crate::ports::{Member, Owned, Store, StoreError};

/// Begins to look after places.
pub(super) fn start(engine: &Arc<Engine>) {
    let places = watcher::watch(Arc::clone(engine), Index::Places, |engine, member| async move {
        if let Err(error) = look_at(&engine, &member).await {
            tracing::debug!(aggregate = %member.aggregate, %error, "a place is not looked at yet");
        }
    });
    engine.tasks.spawn(places);
}

async fn look_at(engine: &Engine, member: &Member) -> Result<(), LedgerError> {
    let Aggregate::Owner(owner) = &member.aggregate else { return Ok(()) };
    let rows = engine.ledger.read(&member.aggregate, std::slice::from_ref(&member.key)).await?;
    let place = rows.iter().flatten().next().and_then(|row| Place::of(row)).cloned();
    if let Some(place) = place.filter(|place| place.check_at <= engine.ports.clock.now()) {
        settle(engine, owner, &place).await?;
    }
    Ok(())
}

/// Finds out whether a place is needed, and gives it back where it is not. Answers whether it did.
async fn settle(engine: &Engine, owner: &Principal, place: &Place) -> Result<bool, LedgerError> {
    let (session, start) = (place.session.clone(), place.start);
    match engine.ledger.run(&Void { session: session.clone(), start }).await? {
        Voided::Live | Voided::Leaving => {
            let seen = place.check_at;
            if seen <= engine.ports.clock.now() {
                let keep = Keep { owner: owner.clone(), session, start, seen };
                engine.ledger.run(&keep).await?;
            }
            Ok(false)
        }
        Voided::Over | Voided::Void => {
            free(engine, owner, &session, start).await?;
            Ok(true)
        }
    }
}

/// Gives a place back.
pub(super) async fn free(
    engine: &Engine,
    owner: &Principal,
    session: &SessionId,
    start: Start,
) -> Result<(), LedgerError> {
    let free = Free { owner: owner.clone(), session: session.clone(), start };
    engine.ledger.run(&free).await
}

/// Takes a place. Where there is none, those that may be stale are looked at once.
pub(super) async fn reserve(
    engine: &Engine,
    owner: &Principal,
    session: &SessionId,
    start: Start,
) -> Result<(), LedgerError> {
    let cap = engine.settings.live_per_owner;
    let reserve = Reserve { owner: owner.clone(), session: session.clone(), start, cap };
    let full = match engine.ledger.run(&reserve).await {
        Err(error) if matches!(error.refusal(), Some(Refusal::Cap { .. })) => error,
        taken => return taken,
    };
    // A call that is run again after a crash may have started what is over by now: it needs none.
    let key = Key::start(start.turn, start.entry, start.call);
    let known = engine.ledger.read(&Aggregate::Session(session.clone()), &[key]).await?;
    if known.iter().any(Option::is_some) {
        return Ok(());
    }
    let now = engine.ports.clock.now();
    let mut freed = false;
    for place in places(&*engine.ports.store, owner).await? {
        // What was taken a moment ago is about to be registered.
        if now.since_ms(place.at) >= START_MS_MAX {
            freed |= settle(engine, owner, &place).await?;
        }
    }
    if freed { engine.ledger.run(&reserve).await } else { Err(full) }
}

/// Nothing was registered for it, or it was registered before: what is so is found out at once.
pub(super) async fn release(engine: &Engine, owner: &Principal, session: &SessionId, start: Start) {
    let now = engine.ports.clock.now();
    let place = Place { session: session.clone(), start, at: now, check_at: now.plus_ms(1) };
    if let Err(error) = settle(engine, owner, &place).await {
        tracing::debug!(session.id = %session, %error, "a place is given back later");
    }
}

/// All places that an owner has taken.
pub(super) async fn places(store: &dyn Store, owner: &Principal) -> Result<Vec<Place>, StoreError> {
    let aggregate = Aggregate::Owner(owner.clone());
    let (mut all, mut after) = (vec![], Key::before_places());
    loop {
        let page = store.rows(&aggregate, Some(&after), PLACES_PER_PAGE).await?;
        all.extend(page.iter().filter_map(|(_, row)| Place::of(row)).cloned());
        match page.last() {
            Some((last, _)) if page.len() == PLACES_PER_PAGE => after = last.clone(),
            Some(_) | None => return Ok(all),
        }
    }
}

/// What runs of an owner in this session, oldest first.
pub(super) async fn live_here(
    engine: &Engine,
    owner: &Principal,
    session: &SessionId,
) -> Result<Vec<Execution>, StoreError> {
    let mut live = log::live_now(engine, session).await?;
    live.retain(|execution| execution.owner == *owner);
    Ok(live)
}

/// What runs of an owner in all sessions, found by its places: a session that has none is not
/// looked at.
pub(super) async fn owned(engine: &Engine, owner: &Principal) -> Result<Owned, StoreError> {
    let store = &*engine.ports.store;
    let aggregate = Aggregate::Owner(owner.clone());
    let rows = store.load(&aggregate, &[Key::places()]).await?.rows;
    let taken = rows.iter().flatten().next().and_then(Places::of).map_or(0, |all| all.taken);
    let page = store.rows(&aggregate, Some(&Key::before_places()), OWNED_SHOWN_MAX).await?;
    let mut sessions: BTreeMap<SessionId, Vec<Key>> = BTreeMap::new();
    for place in page.iter().filter_map(|(_, row)| Place::of(row)) {
        let Start { turn, entry, call } = place.start;
        let starts = sessions.entry(place.session.clone()).or_default();
        starts.push(Key::start(turn, entry, call));
    }
    let (mut live, mut over) = (vec![], 0);
    for (session, starts) in sessions {
        let aggregate = Aggregate::Session(session);
        let rows = store.load(&aggregate, &starts).await?.rows;
        let started = rows.iter().flatten().filter_map(StartKey::of);
        let started = started.filter_map(|start| start.execution.as_ref());
        let keys: Vec<Key> = started.map(Key::execution).collect();
        if keys.is_empty() {
            continue;
        }
        let rows = store.load(&aggregate, &keys).await?.rows;
        let (ended, running): (Vec<_>, Vec<_>) = rows
            .into_iter()
            .flatten()
            .filter_map(|row| Execution::of(&row).cloned())
            .filter(|execution| execution.owner == *owner)
            .partition(|execution| execution.state.is_ended());
        // Its place is given back beside its end, perhaps a moment later.
        over += ended.len();
        live.extend(running);
    }
    live.sort_by_key(|execution| execution.registered_at);
    let cap = engine.settings.live_per_owner as usize;
    Ok(Owned { live, taken: (taken as usize).saturating_sub(over), cap })
}
