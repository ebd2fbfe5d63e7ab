//! Looks after what no event woke: executions whose time has come, rows past their retention,
//! the node's own beat. Owns nothing else. Must not decide; the operations look again.

use std::sync::Arc;

use super::ledger::LedgerError;
use super::{Engine, home, watcher};
use crate::core::id::SessionId;
use crate::core::ledger::node::{Beat, ForgetNode};
use crate::core::ledger::session::{Forget, Overdue, Retire};
use crate::core::ledger::{Aggregate, Index, Key};
use crate::core::limits::RENEW_MS;
use crate::ports::Member;

/// Begins to sweep.
pub(super) fn start(engine: &Arc<Engine>) {
    let due = watcher::watch(Arc::clone(engine), Index::Due, |engine, member| async move {
        overdue(&engine, &member).await;
    });
    engine.tasks.spawn(due);
    let expire = watcher::watch(Arc::clone(engine), Index::Expire, |engine, member| async move {
        forget(&engine, &member).await;
    });
    engine.tasks.spawn(expire);
    if !engine.settings.sole {
        let engine = Arc::clone(engine);
        let tasks = engine.tasks.clone();
        tasks.spawn(async move { beat(&engine).await });
    }
}

async fn overdue(engine: &Arc<Engine>, member: &Member) {
    let (Some(session), Some(execution)) = (member.aggregate.session(), home::id_of(member)) else {
        return;
    };
    let operation = Overdue { session: session.clone(), execution, buried: None };
    match engine.ledger.run(&operation).await {
        Ok(ended) => {
            if ended {
                tracing::warn!(session.id = %session, execution.id = %operation.execution,
                    "the ledger ended an execution that its home did not");
                let _ = engine.stirs.send(session.clone());
            }
        }
        Err(error) => {
            tracing::debug!(session.id = %session, error = %error, "not overdue");
        }
    }
}

async fn forget(engine: &Arc<Engine>, member: &Member) {
    let forgotten = match &member.aggregate {
        Aggregate::Session(session) => forget_row(engine, session, &member.key).await,
        Aggregate::Node(boot) => {
            engine.ledger.run(&ForgetNode { boot: boot.clone() }).await.map(|_| ())
        }
    };
    if let Err(error) = forgotten {
        tracing::debug!(aggregate = %member.aggregate, error = %error, "not forgotten");
    }
}

/// The last row takes its session with it.
async fn forget_row(
    engine: &Arc<Engine>,
    session: &SessionId,
    key: &Key,
) -> Result<(), LedgerError> {
    let aggregate = Aggregate::Session(session.clone());
    let rows = engine.ledger.store().rows(&aggregate, None, Retire::ROWS_MAX).await?;
    if let Some(retire) = Retire::of(session, &rows, key)
        && engine.ledger.run(&retire).await?
    {
        return Ok(());
    }
    let forget = Forget { session: session.clone(), keys: vec![key.clone()] };
    engine.ledger.run(&forget).await.map(|_| ())
}

/// Where one boot holds the store, nobody asks whether it lives.
async fn beat(engine: &Arc<Engine>) {
    let spool = Some(engine.ports.launcher.spool());
    let operation = Beat { boot: engine.settings.boot.clone(), spool };
    loop {
        let at = engine.ports.clock.now().plus_ms(RENEW_MS);
        tokio::select! {
            () = engine.shutdown.cancelled() => return,
            () = engine.ports.clock.sleep_until(at) => {}
        }
        if let Err(error) = engine.ledger.run(&operation).await {
            tracing::error!(error = %error, "this node's beat is not taken");
        }
    }
}
