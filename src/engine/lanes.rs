//! Sessions that are ready get a turn. Owns claiming, and one task for each turn that runs here.
//! Must not know how a turn runs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
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
        if let Some(running) = turns.get_mut(&session) {
            running.again = true;
            return;
        }
        turns.insert(session.clone(), Running { stop: stop.clone(), again: false });
    }
    let (engine_of_task, seats) = (Arc::clone(engine), Arc::clone(seats));
    engine.tasks.spawn(async move {
        let (held, alone) = (Mutex::new(None), AtomicBool::new(false));
        let seat = Seat { engine: engine_of_task, session, seats, held, alone };
        run_while_ready(&seat, &stop).await;
    });
}

/// A session whose task runs here.
pub(super) struct Running {
    /// Ends its turn.
    pub(super) stop: CancellationToken,
    /// It was ready once more while it ran.
    again: bool,
}

/// A session's right to run a turn here. Frees the session for its next task, also when the task
/// panics.
pub(super) struct Seat {
    engine: Arc<Engine>,
    session: SessionId,
    seats: Arc<Semaphore>,
    held: Mutex<Option<OwnedSemaphorePermit>>,
    /// Nothing else runs here.
    alone: AtomicBool,
}

impl Seat {
    /// Waits for one seat, or for all of them, so that nothing else runs.
    async fn take(&self, alone: bool) {
        // Two that wait for all and keep one would wait for ever.
        *self.held() = None;
        let all = u32::try_from(self.engine.settings.turns_max).unwrap_or(u32::MAX);
        let wanted = if alone { all } else { 1 };
        // Closed only when the process ends.
        *self.held() = Arc::clone(&self.seats).acquire_many_owned(wanted).await.ok();
        self.alone.store(alone, Ordering::Relaxed);
    }

    pub(super) fn is_alone(&self) -> bool {
        self.alone.load(Ordering::Relaxed)
    }

    pub(super) const fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Nothing has to run alone any more: all seats but one are given back.
    pub(super) fn share(&self) {
        self.alone.store(false, Ordering::Relaxed);
        let mut held = self.held();
        let spare = held.as_ref().map_or(0, |held| held.num_permits().saturating_sub(1));
        drop(held.as_mut().and_then(|held| held.split(spare)));
    }

    fn held(&self) -> MutexGuard<'_, Option<OwnedSemaphorePermit>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut turns = self.engine.turns.lock().unwrap_or_else(PoisonError::into_inner);
        // What became ready while the seat was taken may not have been claimed.
        if turns
            .remove(&self.session)
            .is_some_and(|running| running.again || running.stop.is_cancelled())
        {
            self.engine.ready.notify_one();
        }
    }
}

/// Claims and runs turns of this session until nothing is ready.
async fn run_while_ready(seat: &Seat, stop: &CancellationToken) {
    let Seat { engine, session, .. } = seat;
    let mut alone = false;
    seat.take(alone).await;
    while !engine.shutdown.is_cancelled() {
        let (Ok(claim), Ok(nonce)) =
            (ClaimId::new(engine.ports.ids.fresh()), Nonce::new(nonce(engine)))
        else {
            return;
        };
        let boot = engine.boot();
        let operation = Claim { session: session.clone(), boot, alone, claim, nonce };
        let (token, turn) = match engine.ledger.run(&operation).await {
            Ok(Claimed::Turn(token, turn)) => (token, turn),
            Ok(Claimed::Buried(no)) => {
                tracing::warn!(session.id = %session, turn.no = no, "a turn was given up");
                continue;
            }
            Ok(Claimed::Riders) => continue,
            Err(error) if matches!(error.refusal(), Some(Refusal::Crowd)) => {
                tracing::warn!(session.id = %session,
                    "a turn ended with its process more than once; it is tried while nothing else \
                     runs here, so other chats wait a little");
                alone = true;
                seat.take(alone).await;
                continue;
            }
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
        turn_task::run(seat, token, *turn, stop).await;
        alone = false;
        seat.share();
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
