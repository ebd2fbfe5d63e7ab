//! Sessions that are ready get a turn. Owns claiming, and one task for each turn that runs here.
//! Must not know how a turn runs.

use std::sync::{Arc, PoisonError};

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::{Engine, turn_task, watcher};
use crate::core::id::{ClaimId, Nonce, SessionId};
use crate::core::ledger::session::{Claim, Claimed};
use crate::core::ledger::{Index, Refusal};
use crate::core::limits::LEASE_MS;
use crate::ports::Member;

/// Begins to claim what is ready. Where this boot holds the store alone, lanes of earlier boots
/// are void, so what they left open goes on at once.
pub(super) fn start(engine: &Arc<Engine>) {
    let seats = Arc::new(Semaphore::new(engine.settings.turns_max));
    let engine_of_task = Arc::clone(engine);
    engine.tasks.spawn(async move {
        let engine = engine_of_task;
        if engine.settings.sole {
            for member in watcher::within(&engine, &Index::Ready, LEASE_MS).await {
                take(&engine, &member, &seats);
            }
        }
        watcher::watch(engine, Index::Ready, move |engine, member| {
            let seats = Arc::clone(&seats);
            async move { take(&engine, &member, &seats) }
        })
        .await;
    });
}

/// Starts the task of a session, unless it has one.
fn take(engine: &Arc<Engine>, member: &Member, seats: &Arc<Semaphore>) {
    let Some(session) = member.aggregate.session().cloned() else { return };
    if engine.shutdown.is_cancelled() {
        return;
    }
    let stop = CancellationToken::new();
    {
        let mut turns = engine.turns.lock().unwrap_or_else(PoisonError::into_inner);
        if turns.contains_key(&session) {
            return;
        }
        turns.insert(session.clone(), stop.clone());
    }
    let (engine_of_task, seats) = (Arc::clone(engine), Arc::clone(seats));
    engine.tasks.spawn(async move {
        let engine = engine_of_task;
        let seat = Seat { engine: Arc::clone(&engine), session: session.clone() };
        // Closed only when the process ends.
        let Ok(_permit) = seats.acquire().await else { return };
        run_while_ready(&engine, &session, &stop).await;
        drop(seat);
    });
}

/// Frees the session for its next task, also when the task panics.
struct Seat {
    engine: Arc<Engine>,
    session: SessionId,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut turns = self.engine.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.remove(&self.session);
        // What became ready while the seat was taken was not claimed.
        self.engine.ready.notify_one();
    }
}

/// Claims and runs turns of this session until nothing is ready.
async fn run_while_ready(engine: &Arc<Engine>, session: &SessionId, stop: &CancellationToken) {
    while !engine.shutdown.is_cancelled() {
        let (Ok(claim), Ok(nonce)) =
            (ClaimId::new(engine.ports.ids.fresh()), Nonce::new(nonce(engine)))
        else {
            return;
        };
        let boot = engine.boot();
        let operation = Claim { session: session.clone(), boot, claim, nonce };
        let (token, turn) = match engine.ledger.run(&operation).await {
            Ok(Claimed::Turn(token, turn)) => (token, turn),
            Ok(Claimed::Buried(no)) => {
                tracing::warn!(session.id = %session, turn.no = no, "a turn was given up");
                continue;
            }
            Ok(Claimed::Riders) => continue,
            Err(error) => {
                if !matches!(
                    error.refusal(),
                    Some(Refusal::Idle | Refusal::NotYet(_) | Refusal::Busy(_))
                ) {
                    tracing::warn!(session.id = %session, error = %error, "a claim failed");
                }
                return;
            }
        };
        turn_task::run(engine, token, *turn, stop).await;
        // The stop has ended that turn; the next one gets a token of its own.
        if stop.is_cancelled() {
            return;
        }
    }
}

/// A short random text; long enough that no script can guess it.
pub(super) fn nonce(engine: &Engine) -> String {
    let fresh = engine.ports.ids.fresh().to_lowercase();
    // The time part of the id comes first; the random part is at its end.
    let skip = fresh.chars().count().saturating_sub(12);
    format!("k{}", fresh.chars().skip(skip).collect::<String>())
}
