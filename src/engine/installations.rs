//! Installations: what is kept of them, and how the work of one that is gone is stopped, session by
//! session. Owns the walk through them. Must not know a surface.
//!
//! Nothing lists the sessions of an installation: their names begin with its own, and names are
//! read in order, a page at a time. So an installation costs nothing until it ends.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::broadcast;

use super::{Engine, Ledger, LedgerError, watcher};
use crate::core::execution::Scope;
use crate::core::id::{InstallationId, LeaseId, Principal, SessionId, StopId};
use crate::core::installation::{Departure, Grant, Installation, Leaving, Redeemed};
use crate::core::ledger::installation::{
    Change, Confirm, Depart, Departed, Install, Introduce, Invite, LeaseRefresh, Redeem, Refreshed,
    Walked,
};
use crate::core::ledger::row::{Head, Inbox, Live, RowType};
use crate::core::ledger::session::Stop;
use crate::core::ledger::{Aggregate, Index, Key, Operation};
use crate::core::limits::LEAVING_PAGE;
use crate::core::time::Timestamp;
use crate::ports::{DeskError, Installations, Store, StoreError};

/// What is kept of installations, by the ledger.
pub struct Register {
    ledger: Arc<Ledger>,
    due: broadcast::Sender<InstallationId>,
}

impl Register {
    /// Of this engine, without holding on to it.
    pub fn of(engine: &Engine) -> Self {
        Self { ledger: Arc::clone(&engine.ledger), due: engine.due_installations.clone() }
    }

    async fn run<O: Operation + Sync>(&self, operation: O) -> Result<O::Output, DeskError> {
        self.ledger.run(&operation).await.map_err(|error| away(&error))
    }

    /// The same; `None` where the ledger refuses it.
    async fn ask<O: Operation + Sync>(&self, operation: O) -> Result<Option<O::Output>, DeskError> {
        match self.ledger.run(&operation).await {
            Ok(output) => Ok(Some(output)),
            Err(error) if error.refusal().is_some() => Ok(None),
            Err(error) => Err(away(&error)),
        }
    }
}

fn away(error: &LedgerError) -> DeskError {
    DeskError::Away(error.to_string())
}

impl Installations for Register {
    fn find<'a>(
        &'a self,
        installation: &'a InstallationId,
    ) -> BoxFuture<'a, Result<Option<Installation>, DeskError>> {
        async move {
            let found = find(&self.ledger, installation).await;
            found.map_err(|error| DeskError::Away(error.to_string()))
        }
        .boxed()
    }

    fn confirm<'a>(
        &'a self,
        installation: &'a InstallationId,
        asked_at: Timestamp,
    ) -> BoxFuture<'a, Result<bool, DeskError>> {
        self.run(Confirm { installation: installation.clone(), asked_at }).boxed()
    }

    fn depart<'a>(
        &'a self,
        installation: &'a InstallationId,
        why: Departure,
        source_at: Option<Timestamp>,
    ) -> BoxFuture<'a, Result<Departed, DeskError>> {
        self.run(Depart { installation: installation.clone(), why, source_at }).boxed()
    }

    fn all(&self) -> BoxFuture<'_, Result<Vec<(InstallationId, Installation)>, DeskError>> {
        async move {
            let all = all(&**self.ledger.store()).await;
            all.map_err(|error| DeskError::Away(error.to_string()))
        }
        .boxed()
    }

    fn install<'a>(
        &'a self,
        installation: &'a InstallationId,
        grant: Grant,
    ) -> BoxFuture<'a, Result<bool, DeskError>> {
        self.run(Install { installation: installation.clone(), grant }).boxed()
    }

    fn introduce<'a>(
        &'a self,
        installation: &'a InstallationId,
        bot: &'a str,
    ) -> BoxFuture<'a, Result<(), DeskError>> {
        self.run(Introduce { installation: installation.clone(), bot: bot.to_owned() }).boxed()
    }

    fn invite<'a>(&'a self, hash: &'a str) -> BoxFuture<'a, Result<(), DeskError>> {
        self.run(Invite { hash: hash.to_owned() }).boxed()
    }

    fn redeem<'a>(&'a self, hash: &'a str) -> BoxFuture<'a, Result<Redeemed, DeskError>> {
        self.run(Redeem { hash: hash.to_owned() }).boxed()
    }

    fn due(&self) -> broadcast::Receiver<InstallationId> {
        self.due.subscribe()
    }

    fn lease_refresh<'a>(
        &'a self,
        installation: &'a InstallationId,
        lease: &'a LeaseId,
    ) -> BoxFuture<'a, Result<Option<String>, DeskError>> {
        let (installation, lease) = (installation.clone(), lease.clone());
        self.ask(LeaseRefresh { installation, lease }).boxed()
    }

    fn refreshed<'a>(
        &'a self,
        installation: &'a InstallationId,
        (lease, of): (&'a LeaseId, &'a str),
        change: &'a Change,
    ) -> BoxFuture<'a, Result<bool, DeskError>> {
        let (installation, lease) = (installation.clone(), lease.clone());
        let (of, change) = (of.to_owned(), change.clone());
        let refreshed = Refreshed { installation, lease, of, change };
        async move { Ok(self.ask(refreshed).await?.is_some()) }.boxed()
    }
}

/// What this node kept of it is the truth only where nobody else writes.
async fn find(
    ledger: &Ledger,
    installation: &InstallationId,
) -> Result<Option<Installation>, StoreError> {
    let aggregate = Aggregate::Installation(installation.clone());
    let keys = [Key::installation()];
    if ledger.is_sole() {
        let rows = ledger.read(&aggregate, &keys).await?;
        return Ok(rows.iter().flatten().next().and_then(|row| Installation::of(row)).cloned());
    }
    let rows = ledger.store().load(&aggregate, &keys).await?.rows;
    Ok(rows.iter().flatten().next().and_then(Installation::of).cloned())
}

/// Is this session below an installation that is gone? Nothing begins there any more: whoever stops
/// its work may have come past already.
pub(super) async fn is_gone(ledger: &Ledger, session: &SessionId) -> Result<bool, StoreError> {
    let name = session.as_str();
    for (end, _) in name.match_indices('/') {
        let Ok(id) = InstallationId::new(name.get(..end).unwrap_or_default()) else { continue };
        if find(ledger, &id).await?.is_some_and(|one| one.departure().is_some()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// All installations of a store, for readiness and `doctor`.
pub async fn all(store: &dyn Store) -> Result<Vec<(InstallationId, Installation)>, StoreError> {
    let (mut found, mut after) = (vec![], None);
    loop {
        let page = store.aggregates(after.as_ref(), LEAVING_PAGE).await?;
        for aggregate in &page {
            // They come first of all.
            let Aggregate::Installation(id) = aggregate else { return Ok(found) };
            let rows = store.load(aggregate, &[Key::installation()]).await?.rows;
            let row = rows.iter().flatten().next().and_then(Installation::of).cloned();
            found.extend(row.map(|one| (id.clone(), one)));
        }
        if page.len() < LEAVING_PAGE {
            return Ok(found);
        }
        after = page.into_iter().next_back();
    }
}

impl Engine {
    /// Looks after installations, where there are any to look after.
    pub fn attend_installations(self: &Arc<Self>) {
        let walks: Arc<Walks> = Arc::default();
        let watched =
            watcher::watch(Arc::clone(self), Index::Installations, move |engine, member| {
                let walks = Arc::clone(&walks);
                async move {
                    if let Aggregate::Installation(installation) = member.aggregate {
                        begin(&engine, installation, &walks);
                    }
                }
            });
        self.tasks.spawn(watched);
    }
}

/// Installations that are walked through here.
type Walks = Mutex<HashSet<InstallationId>>;

/// One task an installation, unless it has one.
fn begin(engine: &Arc<Engine>, installation: InstallationId, walks: &Arc<Walks>) {
    if !walks.lock().unwrap_or_else(PoisonError::into_inner).insert(installation.clone()) {
        return;
    }
    let here = Here { walks: Arc::clone(walks), installation };
    let engine = Arc::clone(engine);
    let tasks = engine.tasks.clone();
    tasks.spawn(async move {
        let shutdown = engine.shutdown.clone();
        let walked = shutdown.run_until_cancelled(walk(&engine, &here.installation)).await;
        // What is left of it is due at the next sweep, and after the next start.
        if let Some(Err(error)) = walked {
            tracing::warn!(installation.id = %here.installation, %error,
                "the work of an installation that is gone is not all stopped yet");
        }
    });
}

/// Frees the installation for its next walk, also when the task panics.
struct Here {
    walks: Arc<Walks>,
    installation: InstallationId,
}

impl Drop for Here {
    fn drop(&mut self) {
        let mut walks = self.walks.lock().unwrap_or_else(PoisonError::into_inner);
        walks.remove(&self.installation);
    }
}

/// Stops what there is, a page at a time; after each it is written down how far that is.
async fn walk(engine: &Engine, id: &InstallationId) -> Result<(), LedgerError> {
    let mut stopped = 0;
    loop {
        let Some(found) = find(&engine.ledger, id).await? else { return Ok(()) };
        let Some(leaving) = &found.leaving else {
            // Nobody listening is no error: it stays due.
            let _listeners = engine.due_installations.send(id.clone());
            return Ok(());
        };
        let (sessions, last) = page(engine, id, leaving.upto.as_ref()).await?;
        for session in &sessions {
            if is_idle(engine, session).await? {
                continue;
            }
            if let Some(stop) = stop_of(id, session, &found, leaving) {
                engine.ledger.run(&stop).await?;
                engine.interrupt(session);
                stopped += 1;
            }
        }
        let upto = if last { None } else { sessions.last().cloned() };
        let walked = Walked { installation: id.clone(), departure: found.departures, upto };
        if !engine.ledger.run(&walked).await? {
            tracing::warn!(installation.id = %id, sessions.stopped = stopped,
                "the work of an installation that is gone is stopped");
            return Ok(());
        }
    }
}

/// The next sessions of it, and whether there are no more.
async fn page(
    engine: &Engine,
    id: &InstallationId,
    after: Option<&SessionId>,
) -> Result<(Vec<SessionId>, bool), StoreError> {
    // A session of that very name is none of it; all of its own come right after.
    let Ok(first) = SessionId::new(id.as_str()) else { return Ok((vec![], true)) };
    let after = Aggregate::Session(after.cloned().unwrap_or(first));
    let page = engine.ports.store.aggregates(Some(&after), LEAVING_PAGE).await?;
    let full = page.len() == LEAVING_PAGE;
    let below = format!("{id}/");
    let sessions: Vec<SessionId> = page
        .into_iter()
        .map_while(|aggregate| {
            aggregate.session().filter(|one| one.as_str().starts_with(&below)).cloned()
        })
        .collect();
    let last = !full || sessions.len() < LEAVING_PAGE;
    Ok((sessions, last))
}

/// Nothing runs, nothing is unread: there is nothing to stop.
async fn is_idle(engine: &Engine, session: &SessionId) -> Result<bool, StoreError> {
    let aggregate = Aggregate::Session(session.clone());
    let keys = [Key::head(), Key::inbox(), Key::live()];
    let rows = engine.ports.store.load(&aggregate, &keys).await?.rows;
    let row = |i: usize| rows.get(i).and_then(Option::as_ref);
    let open = row(0).and_then(Head::of).is_some_and(|head| head.open.is_some());
    let unread = row(1).and_then(Inbox::of);
    let unread = unread.is_some_and(|it| !it.people.is_empty() || !it.notices.is_empty());
    let live = row(2).and_then(Live::of).is_some_and(|live| !live.0.is_empty());
    Ok(!open && !unread && !live)
}

fn stop_of(
    id: &InstallationId,
    session: &SessionId,
    found: &Installation,
    leaving: &Leaving,
) -> Option<Stop> {
    let why = match found.departure()? {
        Departure::Uninstalled => "uninstalled",
        Departure::Revoked => "revoked",
    };
    Some(Stop {
        session: session.clone(),
        scope: Scope::All,
        stop: StopId::new(format!("gone/{id}/{}", found.departures)).ok()?,
        source_at: leaving.source_at,
        by: Principal::new(format!("{id}/{why}")).ok()?,
        only: None,
    })
}
