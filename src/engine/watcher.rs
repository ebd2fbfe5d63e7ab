//! Waiting for members of an index: an event wakes, a time wakes, a sweep stands behind both where
//! something may have been missed or is still due. Owns the waiting. Must not know what is done
//! with a member.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::sync::Arc;

use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::{Engine, nodes};
use crate::core::ledger::{Aggregate, Index, Key};
use crate::core::limits::{
    FORGET_AGAIN_MS, HINT_HEAD_START_MS, HINT_SPREAD_MS, HINTS_WAITING_MAX, SWEEP_MS,
};
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
    let mut ears = Ears::of(&engine);
    let give = |member| handle(Arc::clone(&engine), member);
    loop {
        let mut look_at = match look(&engine, &index, &mut ears, &give).await {
            Ok(look_at) => look_at,
            Err(error) => {
                tracing::warn!(index = %index, error = %error, "an index cannot be read");
                Some(swept_at(&engine, &index))
            }
        };
        loop {
            match wait(&engine, &index, &mut ears, look_at).await {
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

/// Where hints come from. What this node wrote it goes on with at once. What another node wrote is
/// that one's first: here it waits a little, and is dropped when a hint says that it is taken.
struct Ears {
    own: Receiver<Hint>,
    /// `None` where nobody else writes.
    others: Option<Receiver<Hint>>,
    waiting: HashMap<(Aggregate, Key), (Timestamp, Member)>,
    /// Own members that will be heard of once more, as everybody hears of them.
    echoes: HashSet<Member>,
}

impl Ears {
    fn of(engine: &Engine) -> Self {
        let all = engine.ports.store.wakes();
        let (own, others) =
            if engine.settings.sole { (all, None) } else { (engine.ledger.written(), Some(all)) };
        Self { own, others, waiting: HashMap::new(), echoes: HashSet::new() }
    }

    /// The next hint, and whether this node wrote what it is about.
    async fn hear(&mut self) -> Result<(Hint, bool), RecvError> {
        let others = async {
            match &mut self.others {
                Some(others) => others.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            hint = self.own.recv() => hint.map(|hint| (hint, true)),
            hint = others => hint.map(|hint| (hint, false)),
        }
    }

    /// What to do about a hint of this index; nothing, if that can wait.
    fn weigh(&mut self, engine: &Engine, member: Member, own: bool) -> Option<Woken> {
        let now = engine.ports.clock.now();
        let at = Timestamp::from_ms(member.score);
        let name = (member.aggregate.clone(), member.key.clone());
        if !own && self.echoes.remove(&member) {
            return None;
        }
        self.waiting.remove(&name);
        if own && self.others.is_some() {
            if self.echoes.len() >= HINTS_WAITING_MAX {
                self.echoes.clear();
            }
            self.echoes.insert(member.clone());
        }
        if own && at <= now {
            return Some(Woken::Due(member));
        }
        if own && self.others.is_none() {
            return Some(Woken::Later(at));
        }
        // A sweep comes first, and most of it is gone by then.
        if at.since_ms(now) > SWEEP_MS {
            return None;
        }
        let wait_ms = if own { 0 } else { head_start_ms(engine, &name) };
        self.later(member, at.max(now).plus_ms(wait_ms))
    }

    /// Keeps it until then, without a look into the index where there is room.
    fn later(&mut self, member: Member, at: Timestamp) -> Option<Woken> {
        if self.waiting.len() >= HINTS_WAITING_MAX {
            return Some(Woken::Later(at));
        }
        self.waiting.insert((member.aggregate.clone(), member.key.clone()), (at, member));
        None
    }

    fn waits_until(&self) -> Option<Timestamp> {
        self.waiting.values().map(|(at, _)| *at).min()
    }

    fn due(&mut self, now: Timestamp) -> Option<Member> {
        let name = self.waiting.iter().find(|(_, (at, _))| *at <= now)?.0.clone();
        self.waiting.remove(&name).map(|(_, member)| member)
    }
}

/// How long what another node wrote is left to it.
fn head_start_ms(engine: &Engine, name: &(Aggregate, Key)) -> u64 {
    HINT_HEAD_START_MS + nodes::spread(engine, name, HINT_SPREAD_MS)
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
        | Index::Nodes
        | Index::Installations
        | Index::Places => SWEEP_MS,
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
    ears: &mut Ears,
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
            let name = (member.aggregate.clone(), member.key.clone());
            let left_until = match ears.waiting.get(&name) {
                Some((at, _)) => *at,
                // What has just come due belongs to who wrote it first.
                None if engine.settings.sole => now,
                None => Timestamp::from_ms(member.score).plus_ms(head_start_ms(engine, &name)),
            };
            if left_until <= now || ears.later(member.clone(), left_until).is_some() {
                ears.waiting.remove(&name);
                give(member).await;
            }
        }
        if last {
            break;
        }
    }
    let later = store.members(index, u64::MAX, after.as_ref(), 1).await?;
    let next = later.first().map(|member| Timestamp::from_ms(member.score));
    if engine.settings.sole {
        // It hears of every write.
        return Ok(sooner(next, after.is_some().then(|| swept_at(engine, index))));
    }
    // All nodes know of it; one of them comes first.
    let next = next.map(|at| at.plus_ms(nodes::spread(engine, index, HINT_SPREAD_MS)));
    Ok(sooner(next, Some(swept_at(engine, index))))
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
    ears: &mut Ears,
    look_at: Option<Timestamp>,
) -> Woken {
    let clock = &engine.ports.clock;
    loop {
        let waits_until = ears.waits_until();
        let wake_at = sooner(look_at, waits_until);
        let time = async {
            match wake_at {
                Some(at) => clock.sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(time);
        loop {
            tokio::select! {
                () = engine.shutdown.cancelled() => return Woken::End,
                () = engine.ready.notified(), if *index == Index::Ready => return Woken::Look,
                () = &mut time => {
                    return ears.due(clock.now()).map_or(Woken::Look, Woken::Due);
                }
                heard = ears.hear() => match heard {
                    Ok((hint, _)) if hint.index != *index => {}
                    Ok((hint, own)) => match ears.weigh(engine, hint.member, own) {
                        Some(Woken::Later(at)) if look_at.is_some_and(|look_at| look_at <= at) => {}
                        Some(woken) => return woken,
                        None => {}
                    },
                    Err(RecvError::Lagged(_)) => return Woken::Look,
                    Err(RecvError::Closed) => return Woken::End,
                },
            }
            if ears.waits_until() != waits_until {
                break;
            }
        }
    }
}
