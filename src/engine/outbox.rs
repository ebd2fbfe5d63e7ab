//! Delivers what the outbox holds: posts to channels, errands to the spool. Owns leasing and
//! settling items. The only place that posts.

use std::sync::{Arc, PoisonError};

use super::desk::FrontDesk;
use super::{Engine, LedgerError, installations, nodes, owners, watcher};
use crate::core::arrival::{Incoming, What};
use crate::core::execution::{Address, Execution, Home, PostSort, Start};
use crate::core::id::{
    DedupeKey, ExecutionId, ItemId, LeaseId, Principal, SessionId, SpoolId, TurnNo,
};
use crate::core::ledger::row::{Errand, Item, ItemState, Opening, RowType, Surface, Turn};
use crate::core::ledger::session::{
    DoneItem, FailItem, LeaseItem, Leased, Retry, begun, first_post_of,
};
use crate::core::ledger::{Aggregate, Index, Key, Operation};
use crate::core::limits::{
    BACKOFF_FIRST_MS, BACKOFF_MS_MAX, ELSEWHERE_KEPT_MAX, POST_LEASE_MS, POST_MS_MAX,
};
use crate::core::time::Timestamp;
use crate::failpoint;
use crate::ports::{Card, Channel, ChannelError, Desk, DeskError, Member, Post, Root};

/// Tries to settle an item that the store does not answer; after them the lease runs out.
const SETTLE_TRIES_MAX: u32 = 5;

/// Begins to deliver. Where this boot holds the store alone, leases of earlier boots are void, so
/// what they had under way is delivered at once, marked as maybe repeated.
pub(super) fn start(engine: &Arc<Engine>) {
    for index in [Index::Outbox, Index::Relay] {
        let engine = Arc::clone(engine);
        let tasks = engine.tasks.clone();
        tasks.spawn(async move {
            if engine.settings.sole {
                for member in watcher::within(&engine, &index, POST_LEASE_MS).await {
                    take(&engine, &member);
                }
            }
            watcher::watch(engine, index, |engine, member| async move { take(&engine, &member) })
                .await;
        });
    }
    let engine = Arc::clone(engine);
    let tasks = engine.tasks.clone();
    tasks.spawn(async move {
        let shutdown = engine.shutdown.clone();
        shutdown.run_until_cancelled(take_what_waits_for_readers(&engine)).await;
    });
}

/// Whenever somebody reads who did not before, everything is looked at that had no reader.
async fn take_what_waits_for_readers(engine: &Arc<Engine>) {
    let ahead_ms = if engine.settings.sole { POST_LEASE_MS } else { 0 };
    loop {
        engine.attended.notified().await;
        for member in watcher::within(engine, &Index::Outbox, ahead_ms).await {
            take(engine, &member);
        }
    }
}

/// One task an item, unless it has one.
fn take(engine: &Arc<Engine>, member: &Member) {
    let Some(session) = member.aggregate.session().cloned() else { return };
    let Some(item) = member.key.as_str().strip_prefix("m/").and_then(|id| ItemId::new(id).ok())
    else {
        return;
    };
    let name = format!("{session} {item}");
    {
        let mut elsewhere = engine.elsewhere();
        match elsewhere.get(&name) {
            Some(left) if !left.is_here(engine) => return,
            Some(_) => drop(elsewhere.remove(&name)),
            None => {}
        }
    }
    {
        let mut delivering = engine.delivering.lock().unwrap_or_else(PoisonError::into_inner);
        if !delivering.insert(name.clone()) {
            return;
        }
    }
    let engine = Arc::clone(engine);
    let tasks = engine.tasks.clone();
    tasks.spawn(async move {
        let here = Here { engine: Arc::clone(&engine), name };
        if is_ours(&engine, &session, &item, &here.name).await {
            deliver(&engine, &session, &item).await;
        }
        drop(here);
    });
}

/// Frees the item for its next try, also when the task panics.
struct Here {
    engine: Arc<Engine>,
    name: String,
}

impl Drop for Here {
    fn drop(&mut self) {
        let mut delivering = self.engine.delivering.lock().unwrap_or_else(PoisonError::into_inner);
        delivering.remove(&self.name);
    }
}

/// From where an item can be delivered, and until when it is left to whoever is there.
pub(super) struct Elsewhere {
    place: Place,
    until: Timestamp,
}

enum Place {
    /// Where this is read.
    Address(Address),
    /// Where this spool is held.
    Spool(SpoolId),
}

impl Elsewhere {
    fn of(item: &Item) -> Option<Self> {
        let place = match &item.errand {
            Errand::Post { address, .. }
            | Errand::Show { address, .. }
            | Errand::Root { address, .. } => Place::Address(address.clone()),
            Errand::Kill { spool: Some(spool), .. } => Place::Spool(spool.clone()),
            Errand::Kill { spool: None, .. } | Errand::Free { .. } | Errand::Begin { .. } => {
                return None;
            }
        };
        Some(Self { place, until: item.created_at.plus_ms(POST_MS_MAX) })
    }

    /// What nobody took for too long is leased by anyone, to be given up.
    fn is_here(&self, engine: &Engine) -> bool {
        engine.ports.clock.now() > self.until
            || match &self.place {
                Place::Address(address) => {
                    engine.channel(&address.surface).is_some_and(|channel| channel.reaches(address))
                }
                Place::Spool(spool) => engine.home == Home::Spool(spool.clone()),
            }
    }
}

/// Can this node deliver it? What another node can, or nobody reads yet, it leaves alone: a lease
/// here would only make it late. It is remembered, so that a sweep reads no item for it.
async fn is_ours(engine: &Engine, session: &SessionId, id: &ItemId, name: &str) -> bool {
    let aggregate = Aggregate::Session(session.clone());
    let Ok(rows) = engine.ledger.read(&aggregate, &[Key::item(id)]).await else {
        return false;
    };
    let item = rows.iter().flatten().next().and_then(|row| Item::of(row));
    let Some(item) = item else { return true };
    match Elsewhere::of(item).filter(|elsewhere| !elsewhere.is_here(engine)) {
        Some(elsewhere) => {
            let mut all = engine.elsewhere();
            if all.len() >= ELSEWHERE_KEPT_MAX {
                all.clear();
            }
            all.insert(name.to_owned(), elsewhere);
            false
        }
        None => true,
    }
}

async fn deliver(engine: &Arc<Engine>, session: &SessionId, id: &ItemId) {
    let Ok(lease) = LeaseId::new(engine.ports.ids.fresh()) else { return };
    let operation = LeaseItem {
        session: session.clone(),
        item: id.clone(),
        lease: lease.clone(),
        boot: engine.boot(),
    };
    let item = match engine.ledger.run(&operation).await {
        Ok(Leased::Item(item)) => item,
        Ok(Leased::Dead) => {
            tracing::error!(session.id = %session, item.id = %id,
                "an item was given up: nobody took it for two days");
            return;
        }
        Err(error) => {
            tracing::debug!(session.id = %session, item.id = %id, error = %error, "not leased");
            return;
        }
    };
    let done = match &item.errand {
        Errand::Post { address, text, sort } => {
            post(engine, session, &item, (address, text, *sort)).await
        }
        Errand::Show { address, execution, of } => {
            show(engine, session, &item, (address, execution, of.as_ref())).await
        }
        Errand::Kill { execution, spool } => kill(engine, session, execution, spool.as_ref()).await,
        Errand::Free { owner, start } => free(engine, session, owner, *start).await,
        Errand::Root { address, opening, .. } => {
            root(engine, session, &item, (address, opening)).await
        }
        Errand::Begin { of } => begin(engine, session, of).await,
    };
    let (session, item_id) = (session.clone(), id.clone());
    match done {
        Ok(receipt) => settle(engine, &DoneItem { session, item: item_id, receipt }).await,
        Err(ChannelError::Never { what }) => {
            tracing::error!(session.id = %session, item.id = %id, what = %what, "a dead letter");
            let retry = Retry::Never(what);
            settle(engine, &FailItem { session, item: item_id, lease, retry }).await;
        }
        Err(
            error @ (ChannelError::Retry { after_ms, .. } | ChannelError::Unknown { after_ms, .. }),
        ) => {
            tracing::warn!(session.id = %session, item.id = %id, "{error}; it is tried again");
            let uncertain = matches!(error, ChannelError::Unknown { .. });
            // Who read has left: the next reader need not wait.
            let left = Elsewhere::of(&item).is_some_and(|elsewhere| !elsewhere.is_here(engine));
            let wait_ms = if left { 0 } else { wait_ms(item.tries).max(after_ms) };
            let at = engine.ports.clock.now().plus_ms(wait_ms);
            let retry = Retry::At { at, uncertain };
            settle(engine, &FailItem { session, item: item_id, lease, retry }).await;
        }
    }
}

fn wait_ms(tries: u32) -> u64 {
    BACKOFF_FIRST_MS.saturating_mul(1 << tries.saturating_sub(1).min(10)).min(BACKOFF_MS_MAX)
}

async fn post(
    engine: &Engine,
    session: &SessionId,
    item: &Item,
    what: (&Address, &str, PostSort),
) -> Result<String, ChannelError> {
    let (address, text, sort) = what;
    let channel = serving(engine, address)?;
    let surface = match first_post_of(&item.id).filter(|_| channel.has_surfaces()) {
        Some(turn) => surface(engine, session, turn).await?,
        None => None,
    };
    let post = Post {
        item: item.id.clone(),
        session: session.clone(),
        address: address.clone(),
        text: engine.ports.redactor.redact(text).into_owned(),
        sort,
        may_repeat: item.uncertain,
        surface,
    };
    failpoint!("post.before");
    let posted = channel.post(post).await;
    failpoint!("post.after");
    posted
}

/// The message that shows this turn, which its first post takes over.
async fn surface(
    engine: &Engine,
    session: &SessionId,
    turn: TurnNo,
) -> Result<Option<Surface>, ChannelError> {
    let aggregate = Aggregate::Session(session.clone());
    let rows = engine.ledger.read(&aggregate, &[Key::turn(turn)]).await;
    let rows = rows.map_err(|error| {
        let what = LedgerError::from(error).to_string();
        ChannelError::Retry { what, after_ms: 0 }
    })?;
    let turn = rows.iter().flatten().next().and_then(|row| Turn::of(row));
    Ok(turn.and_then(|turn| turn.surface.clone()))
}

fn serving<'a>(
    engine: &'a Engine,
    address: &Address,
) -> Result<&'a Arc<dyn Channel>, ChannelError> {
    engine.channel(&address.surface).ok_or_else(|| {
        let what = format!("nobody serves {} here; it waits for a bot that does", address.surface);
        ChannelError::Retry { what, after_ms: BACKOFF_MS_MAX }
    })
}

/// The message of an execution: posted as it stands now, and made final where it was posted.
async fn show(
    engine: &Engine,
    session: &SessionId,
    item: &Item,
    (address, id, of): (&Address, &ExecutionId, Option<&ItemId>),
) -> Result<String, ChannelError> {
    let channel = serving(engine, address)?;
    let later = |error: LedgerError| {
        let what = error.to_string();
        ChannelError::Retry { what, after_ms: 0 }
    };
    let aggregate = Aggregate::Session(session.clone());
    let keys: Vec<Key> = [Key::execution(id)].into_iter().chain(of.map(Key::item)).collect();
    let rows = engine.ledger.read(&aggregate, &keys).await.map_err(|error| later(error.into()))?;
    let mut rows = rows.iter().flatten();
    let Some(mut execution) = rows.next().and_then(|row| Execution::of(row)).cloned() else {
        return Err(ChannelError::Never { what: "its execution is forgotten".into() });
    };
    execution.name = engine.ports.redactor.redact(&execution.name).into_owned();
    let posted = match (of, rows.next().and_then(|row| Item::of(row)).map(|item| &item.state)) {
        (None, _) => None,
        (Some(_), Some(ItemState::Done(receipt))) => Some(receipt.clone()),
        // What was never posted needs no end.
        (Some(_), _) => return Ok("not shown".into()),
    };
    failpoint!("post.before");
    let (session, may_repeat) = (session.clone(), item.uncertain);
    let card = Card { item: item.id.clone(), session, execution, posted, may_repeat };
    let shown = channel.show(card).await;
    failpoint!("post.after");
    shown
}

/// A process that the ledger has ended is killed by the spool that holds it.
async fn kill(
    engine: &Engine,
    session: &SessionId,
    execution: &ExecutionId,
    spool: Option<&SpoolId>,
) -> Result<String, ChannelError> {
    match spool {
        Some(spool) if engine.home == Home::Spool(spool.clone()) => {
            match engine.ports.launcher.kill(session, execution).await {
                Ok(()) => Ok("killed or gone".into()),
                Err(error) => Err(ChannelError::Retry { what: error.to_string(), after_ms: 0 }),
            }
        }
        Some(spool) => {
            let what = format!("it lives in the spool {spool}, which another bot holds");
            Err(ChannelError::Retry { what, after_ms: BACKOFF_MS_MAX })
        }
        None => Ok("it died with its process".into()),
    }
}

/// The place of what is over goes back to its owner.
async fn free(
    engine: &Engine,
    session: &SessionId,
    owner: &Principal,
    start: Start,
) -> Result<String, ChannelError> {
    failpoint!("free.before");
    let freed = owners::free(engine, owner, session, start).await;
    failpoint!("free.after");
    match freed {
        Ok(()) => Ok("free".into()),
        Err(error) => Err(ChannelError::Retry { what: error.to_string(), after_ms: 0 }),
    }
}

/// The first message of a conversation.
async fn root(
    engine: &Engine,
    session: &SessionId,
    item: &Item,
    (address, opening): (&Address, &Opening),
) -> Result<String, ChannelError> {
    let channel = serving(engine, address)?;
    let root = Root {
        item: item.id.clone(),
        session: session.clone(),
        address: address.clone(),
        opening: opening.clone(),
        may_repeat: item.uncertain,
    };
    failpoint!("post.before");
    let posted = channel.root(root).await;
    failpoint!("post.after");
    posted
}

/// What was said enters the conversation that the root has begun, by the one way in.
async fn begin(
    engine: &Arc<Engine>,
    session: &SessionId,
    of: &ItemId,
) -> Result<String, ChannelError> {
    let later = |what: String| ChannelError::Retry { what, after_ms: 0 };
    let never = |what: String| ChannelError::Never { what };
    let aggregate = Aggregate::Session(session.clone());
    let rows = engine.ledger.read(&aggregate, &[Key::item(of)]).await;
    let rows = rows.map_err(|error| later(LedgerError::from(error).to_string()))?;
    let root = rows.iter().flatten().next().and_then(|row| Item::of(row));
    let Some(Item { errand: Errand::Root { address, opening, .. }, state, .. }) = root else {
        return Err(never("its root is forgotten".to_owned()));
    };
    let ItemState::Done(place) = state else {
        return Err(never("its root was not posted".to_owned()));
    };
    let (session, address) = begun(address, place).map_err(|error| never(error.to_string()))?;
    // Channels ask that of whoever comes by them; this one waited behind them.
    match installations::is_gone(&engine.ledger, &session).await {
        Ok(false) => {}
        Ok(true) => return Err(never("its installation is gone".to_owned())),
        Err(error) => return Err(later(LedgerError::from(error).to_string())),
    }
    let key = DedupeKey::new(format!("{of}")).map_err(|error| never(error.to_string()))?;
    let Opening { principal, text, said_at, shared } = opening.clone();
    let what = What::Message { text };
    let source_at = said_at;
    let (keys, continues) = (vec![key], false);
    let said = Incoming { keys, what, principal, address, source_at, continues, shared };
    match FrontDesk(Arc::clone(engine)).accept(&session, said).await {
        Ok(()) => Ok(session.to_string()),
        Err(DeskError::Invalid(what)) => Err(never(what)),
        Err(error @ (DeskError::Away(_) | DeskError::Full(_))) => Err(later(error.to_string())),
    }
}

/// A settling that is lost leaves the lease to run out; the item is then delivered again, marked.
async fn settle<O: Operation>(engine: &Engine, operation: &O) {
    for tries in 0..SETTLE_TRIES_MAX {
        match engine.ledger.run(operation).await {
            Ok(_) => return,
            Err(error) if error.refusal().is_some() => {
                tracing::debug!(error = %error, "an item was settled by somebody else");
                return;
            }
            Err(error) => {
                tracing::warn!(error = %error, "an item cannot be settled yet");
                if !nodes::pause(engine, tries, &operation.aggregate()).await {
                    return;
                }
            }
        }
    }
}
