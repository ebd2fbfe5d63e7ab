//! The spool as a home of executions: launching, letting run, ending, and hearing of the end.
//! Owns the way of every exit into the ledger. Must not know processes.

use std::sync::Arc;

use super::{Engine, LedgerError, nodes, recovery, watcher};
use crate::core::execution::{Execution, Outcome, State, Status};
use crate::core::id::{ExecutionId, SessionId};
use crate::core::ledger::row::RowType;
use crate::core::ledger::session::{Complete, Go, Started};
use crate::core::ledger::{Aggregate, Index, Key, Refusal};
use crate::core::reach;
use crate::ports::{ExitSink, Launch, Member, StoreError};

/// Begins to look after wishes to end what lives here.
pub(super) fn start(engine: &Arc<Engine>) {
    let index = Index::Wish(engine.home.clone());
    let watched = watcher::watch(Arc::clone(engine), index, |engine, member| async move {
        if let (Some(session), Some(id)) = (member.aggregate.session(), id_of(&member)) {
            cancel(&engine, session, &id).await;
        }
    });
    engine.tasks.spawn(watched);
}

pub(super) fn id_of(member: &Member) -> Option<ExecutionId> {
    ExecutionId::new(member.key.as_str().strip_prefix("x/")?).ok()
}

/// Launches beside the turn: the id is given before.
pub(super) fn launch(engine: &Arc<Engine>, launch: Launch) {
    let engine = Arc::clone(engine);
    let tasks = engine.tasks.clone();
    tasks.spawn(async move {
        let (session, id) = (launch.session.clone(), launch.execution.clone());
        let launched = engine.ports.launcher.launch(launch).await;
        let told = match launched {
            Ok(()) => let_run(&engine, &session, &id).await,
            Err(error) => Err(error.to_string()),
        };
        if let Err(what) = told {
            tracing::warn!(session.id = %session, execution.id = %id, what = %what,
                "an execution cannot be started");
            let outcome = Outcome::bare(Status::Failed, what);
            report(&engine, &session, &id, outcome).await;
        }
    });
}

/// The process runs on only after the ledger says so.
async fn let_run(engine: &Engine, session: &SessionId, id: &ExecutionId) -> Result<(), String> {
    let mut tries = 0;
    let go = loop {
        let started =
            Started { session: session.clone(), execution: id.clone(), boot: engine.boot() };
        let mut answer = engine.ledger.run(&started).await;
        if answer == Err(LedgerError::Refused(Refusal::Fenced)) {
            // It was registered under the name that this process had before.
            answer = recovery::take_over(engine, session, id, true).await;
        }
        match answer {
            Ok(go) => break go,
            Err(LedgerError::Refused(Refusal::Ended(_) | Refusal::Fenced | Refusal::Unknown)) => {
                return tell(engine.ports.launcher.kill(session, id).await);
            }
            Err(error) => {
                tracing::warn!(execution.id = %id, error = %error, "a start is not recorded");
                // The next start adopts it and says "go" then.
                if !nodes::pause(engine, tries, id).await {
                    return Ok(());
                }
                tries += 1;
            }
        }
    };
    let _nobody_listens = engine.stirs.send(session.clone());
    follow(engine, session, id, go).await
}

/// Does with a waiting process what the ledger answered.
pub(super) async fn follow(
    engine: &Engine,
    session: &SessionId,
    id: &ExecutionId,
    go: Go,
) -> Result<(), String> {
    tell(match go {
        Go::Run => engine.ports.launcher.go(session, id).await,
        Go::Cancel => engine.ports.launcher.cancel(session, id).await,
    })
}

fn tell(done: Result<(), crate::ports::LaunchError>) -> Result<(), String> {
    done.map_err(|error| error.to_string())
}

/// Says again what an adopted script may reach: what it was allowed once, as far as the agent that
/// answers there today still may. Beside the start, since connections wait until it is said.
pub(super) fn allow(engine: &Arc<Engine>, session: SessionId, id: ExecutionId) {
    let engine = Arc::clone(engine);
    let tasks = engine.tasks.clone();
    tasks.spawn(async move {
        let mut tries = 0;
        while let Err(what) = allow_once(&engine, &session, &id).await {
            tracing::warn!(session.id = %session, execution.id = %id, what = %what,
                "what a script may reach is not said again yet");
            if !nodes::pause(&engine, tries, &id).await {
                return;
            }
            tries += 1;
        }
    });
}

async fn allow_once(engine: &Engine, session: &SessionId, id: &ExecutionId) -> Result<(), String> {
    let found = find(engine, session, id).await.map_err(|error| error.to_string())?;
    let Some(execution) = found.filter(is_live) else { return Ok(()) };
    let agent = engine.settings.agents.at(&execution.address);
    let role = agent.wiring.role;
    let (access, taken) = reach::left(&agent.reach, &agent.name, role, &execution.access);
    if !taken.is_empty() {
        tracing::warn!(session.id = %session, execution.id = %id, taken = taken.join(", "),
            "a script may reach less than when it was started");
    }
    tell(engine.ports.launcher.allow(session, id, &access).await)
}

/// Asks the process to end; its end is reported like any other. A failure is tried again at the
/// next sweep: the wish stands in the index.
pub(super) async fn cancel(engine: &Engine, session: &SessionId, id: &ExecutionId) {
    if let Err(error) = engine.ports.launcher.cancel(session, id).await {
        tracing::warn!(session.id = %session, execution.id = %id, error = %error,
            "an execution cannot be cancelled now");
    }
}

/// Takes an end into the ledger, until it is there.
pub(super) async fn report(
    engine: &Engine,
    session: &SessionId,
    id: &ExecutionId,
    outcome: Outcome,
) {
    let mut complete =
        Complete { session: session.clone(), execution: id.clone(), outcome, boot: engine.boot() };
    let mut tries = 0;
    loop {
        match engine.ledger.run(&complete).await {
            Ok(completed) => {
                tracing::info!(session.id = %session, execution.id = %id,
                    status = complete.outcome.status.word(), completed = ?completed,
                    "an execution ended");
                // Who waits for it need not wait until its traces are set aside as well. A late one
                // stands in the ledger as well, beside the end that came first.
                let _ = engine.stirs.send(session.clone());
                engine.ports.launcher.settled(session, id).await;
                return;
            }
            Err(LedgerError::Refused(Refusal::Fenced)) if is_ours(engine, session, id).await => {
                complete.boot = engine.boot();
            }
            Err(LedgerError::Refused(refusal)) => {
                tracing::warn!(session.id = %session, execution.id = %id, refusal = %refusal,
                    "an end is not taken");
                if refusal == Refusal::Unknown {
                    // Nobody will ask for it: it is kept for a day, then it goes.
                    engine.ports.launcher.settled(session, id).await;
                }
                return;
            }
            Err(error) => {
                tracing::warn!(session.id = %session, execution.id = %id, error = %error,
                    "an end is not recorded yet; its record waits in the spool");
                if !nodes::pause(engine, tries, id).await {
                    return;
                }
                tries += 1;
            }
        }
    }
}

/// It stands in the record under a name that this process had before, and is taken over.
async fn is_ours(engine: &Engine, session: &SessionId, id: &ExecutionId) -> bool {
    let taken = recovery::take_over(engine, session, id, false).await;
    matches!(taken, Ok(_) | Err(LedgerError::Refused(Refusal::Ended(_))))
}

/// Hears of ends for the engine. The launcher is made before the engine, so it is bound later.
#[derive(Default)]
pub struct Exits {
    engine: std::sync::OnceLock<std::sync::Weak<Engine>>,
}

impl Exits {
    /// From now on ends go to this engine; what was said before is found again at its start.
    pub fn bind(&self, engine: &Arc<Engine>) {
        let _ = self.engine.set(Arc::downgrade(engine));
    }
}

impl ExitSink for Exits {
    fn exited(&self, session: SessionId, execution: ExecutionId, outcome: Outcome) {
        let Some(engine) = self.engine.get().and_then(std::sync::Weak::upgrade) else { return };
        let tasks = engine.tasks.clone();
        tasks.spawn(async move { report(&engine, &session, &execution, outcome).await });
    }
}

/// An execution as the store has it.
pub(super) async fn find(
    engine: &Engine,
    session: &SessionId,
    id: &ExecutionId,
) -> Result<Option<Execution>, StoreError> {
    let aggregate = Aggregate::Session(session.clone());
    let rows = engine.ports.store.load(&aggregate, &[Key::execution(id)]).await?.rows;
    Ok(rows.into_iter().flatten().next().as_ref().and_then(Execution::of).cloned())
}

/// Is it there and not over?
pub(super) fn is_live(execution: &Execution) -> bool {
    !matches!(execution.state, State::Ended(_))
}
