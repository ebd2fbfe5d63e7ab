//! Places of owners: taken before anything is registered, given back, and looked at where nobody
//! said that they are free. Owns the order between an owner and a session. Must not decide; the
//! operations look again.

use std::sync::Arc;

use super::{Engine, LedgerError, log, watcher};
use crate::core::execution::{Execution, Start};
use crate::core::id::{Principal, SessionId};
use crate::core::ledger::owner::{Free, Keep, Reserve};
use crate::core::ledger::row::{Place, RowType};
use crate::core::ledger::session::{Void, Voided};
use crate::core::ledger::{Aggregate, Index, Key, Refusal};
use crate::core::limits::{PLACES_PER_PAGE, START_MS_MAX};
use crate::ports::{Member, Store, StoreError};

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
