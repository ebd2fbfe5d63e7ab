//! Looks after what no event woke: executions whose time has come, and rows past their retention.
//! Owns nothing else. Must not decide; the operations look again.

use std::sync::Arc;

use super::ledger::LedgerError;
use super::{Engine, home, nodes, watcher};
use crate::core::id::{BootId, ExecutionId, SessionId};
use crate::core::ledger::node::ForgetNode;
use crate::core::ledger::session::{Forget, Overdue, Retire};
use crate::core::ledger::{Aggregate, Index, Key};
use crate::ports::{Member, StoreError};

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
}

async fn overdue(engine: &Arc<Engine>, member: &Member) {
    let (Some(session), Some(execution)) = (member.aggregate.session(), home::id_of(member)) else {
        return;
    };
    let buried = match gone(engine, session, &execution).await {
        Ok(buried) => buried,
        Err(error) => {
            tracing::debug!(session.id = %session, error = %error, "not looked after yet");
            return;
        }
    };
    let operation = Overdue { session: session.clone(), execution, buried };
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

/// The boot that attends to it, if that is another one and buried.
async fn gone(
    engine: &Engine,
    session: &SessionId,
    id: &ExecutionId,
) -> Result<Option<BootId>, StoreError> {
    if engine.settings.sole {
        return Ok(None);
    }
    match home::find(engine, session, id).await? {
        Some(execution) => nodes::buried(engine, execution.boot).await,
        None => Ok(None),
    }
}

async fn forget(engine: &Arc<Engine>, member: &Member) {
    let forgotten = match &member.aggregate {
        Aggregate::Session(session) => forget_row(engine, session, &member.key).await,
        // An installation is remembered; a place goes when it is given back.
        Aggregate::Installer | Aggregate::Installation(_) | Aggregate::Owner(_) => Ok(()),
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
