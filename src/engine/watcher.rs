//! Waiting for members of an index: an event wakes, a time wakes, a sweep stands behind both where
//! something may have been missed or is still due. Owns the waiting. Must not know what is done
//! with a member.

use std::future::Future;
use std::sync::Arc;

use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::Engine;
use crate::core::ledger::Index;
use crate::core::limits::{FORGET_AGAIN_MS, SWEEP_MS};
use crate::core::time::Timestamp;
use crate::ports::{Hint, Member, StoreError};

/// Members read at a time.
const PAGE: usize = 256;

/// Hands every due member of `index` to `handle`, for ever. `handle` must be quick: it starts
/// tasks. One that an event brings is handed over alone; one that stays due is handed over again
/// at the sweep, not sooner. While nothing is due and nothing happens the index is not read.
pub(super) async fn watch<F, R>(engine: Arc<Engine>, index: Index, handle: F)
where
    F: Fn(Arc<Engine>, Member) -> R + Send + Sync,
    R: Future<Output = ()> + Send,
{
    let mut hints = engine.ports.store.wakes();
    let give = |member| handle(Arc::clone(&engine), member);
    loop {
        let mut look_at = match look(&engine, &index, &give).await {
            Ok(look_at) => look_at,
            Err(error) => {
                tracing::warn!(index = %index, error = %error, "an index cannot be read");
                Some(swept_at(&engine, &index))
            }
        };
        loop {
            match wait(&engine, &index, &mut hints, look_at).await {
                Woken::Due(member) => {
                    give(member).await;
                    look_at = sooner(look_at, Some(swept_at(&engine, &index)));
                }
                Woken::Later(at) => look_at = sooner(look_at, Some(at)),
                Woken::Look => break,
                Woken::End => return,
            }
        }
    }
}

/// Members due within `ms` from now: what a lease of an earlier boot holds up.
pub(super) async fn within(engine: &Engine, index: &Index, ms: u64) -> Vec<Member> {
    let until = engine.ports.clock.now().plus_ms(ms);
    let mut found: Vec<Member> = vec![];
    loop {
        let store = &engine.ports.store;
        match store.members(index, until.as_ms(), found.last(), PAGE).await {
            Ok(page) => {
                let last = page.len() < PAGE;
                found.extend(page);
                if last {
                    return found;
                }
            }
            Err(error) => {
                tracing::warn!(index = %index, error = %error,
                    "an index cannot be read at the start");
                return found;
            }
        }
    }
}

/// When what is still due is handed over again.
fn swept_at(engine: &Engine, index: &Index) -> Timestamp {
    let again_ms = match index {
        // What is held is held for days.
        Index::Expire => FORGET_AGAIN_MS,
        Index::Ready
        | Index::Due
        | Index::Home(_)
        | Index::Wish(_)
        | Index::Outbox
        | Index::Relay
        | Index::Nodes => SWEEP_MS,
    };
    engine.ports.clock.now().plus_ms(again_ms)
}

fn sooner(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    one.into_iter().chain(other).min()
}

/// Hands over all that is due. Answers when to look again; `None` where an event will tell.
async fn look<G, R>(
    engine: &Engine,
    index: &Index,
    give: &G,
) -> Result<Option<Timestamp>, StoreError>
where
    G: Fn(Member) -> R + Sync,
    R: Future<Output = ()> + Send,
{
    let store = &engine.ports.store;
    let now = engine.ports.clock.now();
    let mut after: Option<Member> = None;
    loop {
        let page = store.members(index, now.as_ms(), after.as_ref(), PAGE).await?;
        let last = page.len() < PAGE;
        after = page.last().cloned().or(after);
        for member in page {
            give(member).await;
        }
        if last {
            break;
        }
    }
    let later = store.members(index, u64::MAX, after.as_ref(), 1).await?;
    let next = later.first().map(|member| Timestamp::from_ms(member.score));
    // Where this boot holds the store alone it hears of every write.
    let swept = after.is_some() || !engine.settings.sole;
    Ok(sooner(next, swept.then(|| swept_at(engine, index))))
}

enum Woken {
    /// This one is due, by an event.
    Due(Member),
    /// Something will be due then.
    Later(Timestamp),
    /// The index is to be read.
    Look,
    End,
}

async fn wait(
    engine: &Engine,
    index: &Index,
    hints: &mut Receiver<Hint>,
    look_at: Option<Timestamp>,
) -> Woken {
    let clock = &engine.ports.clock;
    let time = async {
        match look_at {
            Some(at) => clock.sleep_until(at).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(time);
    loop {
        tokio::select! {
            () = engine.shutdown.cancelled() => return Woken::End,
            () = engine.ready.notified(), if *index == Index::Ready => return Woken::Look,
            () = &mut time => return Woken::Look,
            hint = hints.recv() => match hint {
                Ok(hint) if hint.index != *index => {}
                Ok(hint) => {
                    let at = Timestamp::from_ms(hint.member.score);
                    if at <= clock.now() {
                        return Woken::Due(hint.member);
                    }
                    if look_at.is_none_or(|look_at| at < look_at) {
                        return Woken::Later(at);
                    }
                }
                Err(RecvError::Lagged(_)) => return Woken::Look,
                Err(RecvError::Closed) => return Woken::End,
            },
        }
    }
}
