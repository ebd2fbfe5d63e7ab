//! What a start finds: earlier boots, the spool, open turns. Owns the order: beat, bury, adopt the
//! whole spool, only then anything else. Every step may be cut and run again.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Engine, LedgerError, home, nodes};
use crate::core::execution::{Home, Outcome, State, Status};
use crate::core::id::{ExecutionId, SessionId};
use crate::core::ledger::node::{Beat, Bury};
use crate::core::ledger::session::{Adopt, Go};
use crate::core::ledger::{Aggregate, Index, Refusal};
use crate::ports::{Found, LaunchError, Member, SpoolEntry, StoreError};

/// Members read at a time.
const PAGE: usize = 256;

/// Why a start cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    /// The ledger refuses, or its store does not answer.
    #[error("the start cannot be recorded: {0}")]
    Ledger(#[from] LedgerError),
    /// The store does not answer.
    #[error("the store cannot be read: {0}")]
    Store(#[from] StoreError),
    /// The spool cannot be read.
    #[error("the spool cannot be read: {0}")]
    Spool(#[from] LaunchError),
}

/// What a start found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Restored {
    /// Earlier boots that are buried now.
    pub buried: usize,
    /// Executions that run on.
    pub adopted: usize,
    /// Executions whose end was waiting in the spool, or is lost.
    pub ended: usize,
    /// Spool entries that the store does not know: killed, kept a day.
    pub unknown: Vec<String>,
}

impl Restored {
    /// Into the log.
    pub(super) fn say(&self, when: &'static str) {
        tracing::info!(
            boots.buried = self.buried,
            executions.adopted = self.adopted,
            executions.ended = self.ended,
            spool.unknown = self.unknown.len(),
            "{when}"
        );
    }
}

/// Takes over from earlier boots.
pub(super) async fn restore(engine: &Arc<Engine>) -> Result<Restored, RecoveryError> {
    let mut restored = Restored::default();
    let spool = Some(engine.ports.launcher.spool());
    let boot = engine.boot();
    if engine.settings.sole {
        engine.ledger.run(&Beat { boot, spool }).await?;
        restored.buried = bury_others(engine).await?;
    } else {
        nodes::agree(engine).await?;
        engine.ledger.run(&Beat { boot, spool }).await?;
    }
    let found = engine.ports.launcher.adopt().await?;
    let mut known = BTreeSet::new();
    for entry in found {
        known.insert((entry.session.clone(), entry.execution.clone()));
        adopt(engine, entry, &mut restored).await?;
    }
    never_started(engine, &known, &mut restored).await?;
    Ok(restored)
}

/// Compares the spool with the store while the engine runs: this boot has a new name, or the store
/// was away and may have lost what it was told. What is being started is left to its own task.
pub(super) async fn reconcile(engine: &Arc<Engine>) -> Result<Restored, RecoveryError> {
    let mut restored = Restored::default();
    // Before the spool is read: what is registered meanwhile is not missed in it.
    let here = pages(engine, &Index::Home(engine.home.clone())).await?;
    let mut known = BTreeSet::new();
    for entry in engine.ports.launcher.adopt().await? {
        known.insert((entry.session.clone(), entry.execution.clone()));
        adopt(engine, entry, &mut restored).await?;
    }
    for member in here {
        let (Some(session), Some(id)) = (member.aggregate.session(), home::id_of(&member)) else {
            continue;
        };
        if known.contains(&(session.clone(), id.clone())) {
            continue;
        }
        let Some(execution) = home::find(engine, session, &id).await? else { continue };
        let waits = matches!(execution.state, State::Registered | State::Ended(_));
        if waits || engine.ports.launcher.glance(session, &id).await.is_some() {
            // Under the name of this boot from now on.
            let _over = take_over(engine, session, &id, false).await;
            continue;
        }
        end_unfound(engine, session, &id, &mut restored).await?;
    }
    Ok(restored)
}

pub(super) async fn pages(engine: &Engine, index: &Index) -> Result<Vec<Member>, StoreError> {
    let mut all: Vec<Member> = vec![];
    loop {
        let page = engine.ports.store.members(index, u64::MAX, all.last(), PAGE).await?;
        let last = page.len() < PAGE;
        all.extend(page);
        if last {
            return Ok(all);
        }
    }
}

/// This boot holds the store alone, so every other one is dead.
async fn bury_others(engine: &Engine) -> Result<usize, RecoveryError> {
    let mut buried = 0;
    let own = engine.boot();
    for member in pages(engine, &Index::Nodes).await? {
        let Aggregate::Node(boot) = &member.aggregate else { continue };
        if *boot == own {
            continue;
        }
        engine.ledger.run(&Bury { boot: boot.clone(), seen: 0 }).await?;
        for member in pages(engine, &Index::Home(Home::Process(boot.clone()))).await? {
            nodes::home_lost(engine, &member, boot).await?;
        }
        buried += 1;
    }
    Ok(buried)
}

async fn adopt(
    engine: &Arc<Engine>,
    entry: SpoolEntry,
    restored: &mut Restored,
) -> Result<(), RecoveryError> {
    let SpoolEntry { session, execution, networked, found } = entry;
    let held = found == Found::Held;
    let adopted = take_over(engine, &session, &execution, held).await;
    match (adopted, found) {
        (Ok(go), Found::Held) => {
            restored.adopted += 1;
            if networked {
                home::allow(engine, session.clone(), execution.clone());
            }
            if let Err(what) = home::follow(engine, &session, &execution, go).await {
                tracing::warn!(execution.id = %execution, what = %what, "it cannot be told to go");
            }
        }
        (Ok(_) | Err(LedgerError::Refused(Refusal::Ended(_))), Found::Ended(outcome)) => {
            restored.ended += 1;
            home::report(engine, &session, &execution, outcome).await;
        }
        (Err(LedgerError::Refused(Refusal::Ended(_))), Found::Held) => {
            // The ledger has ended it; its process has not heard.
            engine.ports.launcher.kill(&session, &execution).await?;
        }
        (Err(LedgerError::Refused(refusal @ (Refusal::Unknown | Refusal::Fenced))), found) => {
            let name = execution.within(&session);
            tracing::warn!(execution.id = %name, "the store does not know a spool entry");
            if found == Found::Held {
                engine.ports.launcher.kill(&session, &execution).await?;
            } else if refusal == Refusal::Unknown {
                // Kept for a day, then it goes.
                engine.ports.launcher.settled(&session, &execution).await;
            }
            restored.unknown.push(name);
        }
        (Err(error), _) => return Err(error.into()),
    }
    Ok(())
}

/// Whoever holds the spool may take over what lives in it. `held`: its shim waits for "go".
pub(super) async fn take_over(
    engine: &Engine,
    session: &SessionId,
    execution: &ExecutionId,
    held: bool,
) -> Result<Go, LedgerError> {
    let adopt = Adopt {
        session: session.clone(),
        execution: execution.clone(),
        home: engine.home.clone(),
        to: engine.boot(),
        held,
    };
    engine.ledger.run(&adopt).await
}

/// What becomes of an execution that the spool does not have: it was never launched, unless the
/// ledger knows that it ran. Then somebody took its record away, and what is left of it is ended.
async fn unfound(
    engine: &Engine,
    session: &SessionId,
    execution: &ExecutionId,
) -> Result<Outcome, RecoveryError> {
    let known = home::find(engine, session, execution).await?;
    let ran = known.is_some_and(|known| known.started_at.is_some());
    engine.ports.launcher.kill(session, execution).await?;
    let reason = if ran { "its record was removed from the spool" } else { "never-started" };
    Ok(Outcome::bare(Status::Lost, reason))
}

/// What the ledger has in this spool and the spool has not.
async fn never_started(
    engine: &Arc<Engine>,
    known: &BTreeSet<(SessionId, ExecutionId)>,
    restored: &mut Restored,
) -> Result<(), RecoveryError> {
    for member in pages(engine, &Index::Home(engine.home.clone())).await? {
        let (Some(session), Some(execution)) = (member.aggregate.session(), home::id_of(&member))
        else {
            continue;
        };
        if known.contains(&(session.clone(), execution.clone())) {
            continue;
        }
        end_unfound(engine, session, &execution, restored).await?;
    }
    Ok(())
}

async fn end_unfound(
    engine: &Arc<Engine>,
    session: &SessionId,
    execution: &ExecutionId,
    restored: &mut Restored,
) -> Result<(), RecoveryError> {
    take_over(engine, session, execution, false).await?;
    // Unless its end was told before, to a store that has forgotten it since.
    let outcome = match engine.ports.launcher.recall(session, execution).await {
        Some(outcome) => outcome,
        None => unfound(engine, session, execution).await?,
    };
    home::report(engine, session, execution, outcome).await;
    restored.ended += 1;
    Ok(())
}
