//! Waiting for members of an index: an event wakes, a time wakes, a sweep stands behind both.
//! Owns the waiting. Must not know what is done with a member.

use std::future::Future;
use std::sync::Arc;

use tokio::sync::broadcast::error::RecvError;

use super::Engine;
use crate::core::ledger::Index;
use crate::core::limits::SWEEP_MS;
use crate::core::time::Timestamp;
use crate::ports::{Hint, Member};

/// Members looked at in one round; more follow in the next.
const MEMBERS_MAX: usize = 256;

/// Hands every due member of `index` to `handle`, for ever. `handle` must be quick: it starts
/// tasks. A member that stays due is handed over again at the sweep, not sooner.
pub(super) async fn watch<F, R>(engine: Arc<Engine>, index: Index, handle: F)
where
    F: Fn(Arc<Engine>, Member) -> R + Send,
    R: Future<Output = ()> + Send,
{
    let mut hints = engine.ports.store.wakes();
    loop {
        let now = engine.ports.clock.now();
        let swept_at = now.plus_ms(SWEEP_MS);
        let next = match due(&engine, &index, now).await {
            Ok((members, next)) => {
                for member in members {
                    handle(Arc::clone(&engine), member).await;
                }
                next.map_or(swept_at, |next| next.min(swept_at))
            }
            Err(error) => {
                tracing::warn!(index = %index, error = %error, "an index cannot be read");
                swept_at
            }
        };
        if !wait(&engine, &index, &mut hints, next).await {
            return;
        }
    }
}

/// Members due within `ms` from now: what a lease of an earlier boot holds up.
pub(super) async fn within(engine: &Engine, index: &Index, ms: u64) -> Vec<Member> {
    let until = engine.ports.clock.now().plus_ms(ms);
    match due(engine, index, until).await {
        Ok((members, _)) => members,
        Err(error) => {
            tracing::warn!(index = %index, error = %error, "an index cannot be read at the start");
            vec![]
        }
    }
}

type Due = (Vec<Member>, Option<Timestamp>);

/// All due members, and when the next one is.
async fn due(
    engine: &Engine,
    index: &Index,
    now: Timestamp,
) -> Result<Due, crate::ports::StoreError> {
    let store = &engine.ports.store;
    let mut due: Vec<Member> = vec![];
    loop {
        let page = store.members(index, now.as_ms(), due.last(), MEMBERS_MAX).await?;
        let last = page.len() < MEMBERS_MAX;
        due.extend(page);
        if last {
            break;
        }
    }
    let after = due.last();
    let later = store.members(index, u64::MAX, after, 1).await?;
    Ok((due, later.first().map(|member| Timestamp::from_ms(member.score))))
}

/// Until a hint, the time, or the end; answers whether to go on.
async fn wait(
    engine: &Engine,
    index: &Index,
    hints: &mut tokio::sync::broadcast::Receiver<Hint>,
    mut until: Timestamp,
) -> bool {
    loop {
        tokio::select! {
            () = engine.shutdown.cancelled() => return false,
            () = engine.ready.notified(), if *index == Index::Ready => return true,
            () = engine.ports.clock.sleep_until(until) => return true,
            hint = hints.recv() => match hint {
                Ok(hint) if hint.index != *index => {}
                Ok(hint) => {
                    let at = Timestamp::from_ms(hint.member.score);
                    if at <= engine.ports.clock.now() {
                        return true;
                    }
                    until = until.min(at);
                }
                Err(RecvError::Lagged(_)) => return true,
                Err(RecvError::Closed) => return false,
            },
        }
    }
}
