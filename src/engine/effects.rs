//! What the tools do: actions of the model on the ledger and the launcher. Owns the waiting inside
//! a tool call. Must not know how a result is worded; `tools` does.

use std::sync::Arc;

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{Engine, LedgerError, home, log, owners};
use crate::core::egress::Access;
use crate::core::execution::{Address, CancelledBy, Execution, Kind, Start, State};
use crate::core::id::{EntryNo, ExecutionId, FileId, Principal, SessionId};
use crate::core::ledger::row::{Recent, RowType, StartKey};
use crate::core::ledger::session::{Behalf, Cancel, CancelAnswer, Register, Token};
use crate::core::ledger::{Aggregate, Key, Refusal};
use crate::core::limits::{FILE_MS_MAX, OVERDUE_MS};
use crate::core::output::{clean, one_line};
use crate::core::reach;
use crate::core::transcript::Call;
use crate::core::turn::Input;
use crate::ports::{FileError, FileText, Launch, StoreError};
use crate::tools::{self, Action, StartScript, Tool, ToolError, file, silence, trigger, watch};

/// Which call.
#[derive(Debug, Clone, Copy)]
pub(super) struct At<'a> {
    pub(super) token: &'a Token,
    /// Whose is what it starts.
    pub(super) owner: &'a Principal,
    pub(super) entry: EntryNo,
    pub(super) call: u32,
    /// Where the turn's posts go.
    pub(super) address: &'a Address,
    /// What it starts is shown where its posts go.
    pub(super) shown: bool,
}

/// A result, and the execution whose completion it brings.
type Answered = Result<(Value, Option<ExecutionId>), ToolError>;

/// Runs one call to its result.
pub(super) async fn run(engine: &Arc<Engine>, at: At<'_>, declared: &[Tool], call: Call) -> Input {
    let began = engine.ports.clock.now();
    let answered = match tools::parse(declared, &call.name, &call.arguments) {
        Ok(Action::StartScript(start)) => start_script(engine, at, start).await,
        Ok(Action::ListWatchers) => list(engine, at).await,
        Ok(Action::CancelWatcher { id }) => cancel(engine, at, &id).await,
        Ok(Action::WatcherOutput { id, tail_lines }) => output(engine, at, &id, tail_lines).await,
        Ok(Action::StaySilent { .. }) => Ok((silence::accepted(), None)),
        Ok(Action::ReadFile { file, from_line }) => read(engine, at, &file, from_line).await,
        Err(error) => started_before(engine, at, error).await,
    };
    engine.meter.called(&call.name, answered.is_ok(), engine.ports.clock.now().since_ms(began));
    let (result, collect) = answered.unwrap_or_else(|error| (error.to_result(), None));
    Input::ToolDone { call: at.call, result, collect }
}

/// The result of a call whose task broke: what it did is not known.
pub(super) fn broke_off(call: u32) -> Input {
    let error = watch::unavailable("the tool broke off; its outcome is unknown");
    Input::ToolDone { call, result: error.to_result(), collect: None }
}

fn away(error: &LedgerError) -> ToolError {
    watch::unavailable(&error.to_string())
}

fn unread(error: &StoreError) -> ToolError {
    watch::unavailable(&error.to_string())
}

/// The record comes first and durably; the id is given at once; the process is launched beside.
async fn start_script(engine: &Arc<Engine>, at: At<'_>, mut start: StartScript) -> Answered {
    let access = match granted(engine, at, &mut start) {
        Ok(access) => access,
        Err(error) => return started_before(engine, at, error).await,
    };
    match engine.ports.launcher.check_syntax(&start.python).await {
        Ok(None) => {}
        Ok(Some(fault)) => return Err(trigger::syntax_error(&fault, &start.python)),
        Err(error) => return Err(trigger::not_launched(&error)),
    }
    let start_of = Start { turn: at.token.turn, entry: at.entry, call: at.call };
    match owners::reserve(engine, at.owner, &at.token.session, start_of).await {
        Ok(()) => {}
        Err(LedgerError::Refused(Refusal::Cap { limit, .. })) => {
            return Err(crowded(engine, at, limit).await);
        }
        Err(LedgerError::Refused(refusal)) => return Err(trigger::refused(&refusal)),
        Err(error) => return Err(away(&error)),
    }
    let register = Register {
        token: at.token.clone(),
        call: (at.entry, at.call),
        request: fingerprint(&start, &access),
        prefix: trigger::id_prefix(&start.name),
        kind: Kind::Script,
        name: start.name.clone(),
        notify: start.notify,
        key: start.key.clone(),
        timeout_ms: start.timeout_seconds * 1_000,
        home: engine.home.clone(),
        boot: engine.boot(),
        shown: at.shown,
        access: access.clone(),
    };
    let registered = match engine.ledger.run(&register).await {
        Ok(registered) => registered,
        Err(LedgerError::Refused(refusal)) => {
            owners::release(engine, at.owner, &at.token.session, start_of).await;
            return Err(trigger::refused(&refusal));
        }
        // It may be registered all the same, so its place is looked at when its time comes.
        Err(error) => return Err(away(&error)),
    };
    // A repeat is answered from its start key; whether it was launched, its home knows.
    if registered.fresh {
        let launch = Launch {
            session: at.token.session.clone(),
            execution: registered.id.clone(),
            python: start.python,
            timeout_ms: register.timeout_ms,
            grace_ms: engine.settings.grace_ms,
            access,
        };
        home::launch(engine, launch);
    } else {
        owners::release(engine, at.owner, &at.token.session, start_of).await;
    }
    Ok((trigger::started(&registered.id, &start.name), None))
}

/// What the script gets of the network, if this agent may have it and this machine can give it.
fn granted(engine: &Engine, at: At<'_>, start: &mut StartScript) -> Result<Access, ToolError> {
    let agent = engine.settings.agents.at(at.address);
    let (hosts, credentials) =
        (std::mem::take(&mut start.hosts), std::mem::take(&mut start.credentials));
    let access = reach::wish(&agent.reach, hosts, credentials);
    let judged = agent.reach.judge(&agent.name, agent.wiring.role, &access);
    judged.map_err(|error| trigger::not_allowed(&error))?;
    if !access.is_none() {
        let possible = engine.ports.launcher.has_network();
        possible.map_err(|error| trigger::not_launched(&error))?;
    }
    Ok(access)
}

/// A call that cannot be. Where it is run again after a crash and has started something, what was
/// configured since does not undo that: told of an error, the model would start it once more.
async fn started_before(engine: &Engine, at: At<'_>, error: ToolError) -> Answered {
    let started = registered_before(engine, at).await.ok_or(error)?;
    Ok((trigger::started(&started.id, &started.name), None))
}

/// What this very call has started already.
async fn registered_before(engine: &Engine, at: At<'_>) -> Option<Execution> {
    let aggregate = Aggregate::Session(at.token.session.clone());
    let key = Key::start(at.token.turn, at.entry, at.call);
    let rows = engine.ports.store.load(&aggregate, &[key]).await.ok()?.rows;
    let row = rows.into_iter().flatten().next()?;
    let id = StartKey::of(&row)?.execution.clone()?;
    home::find(engine, &at.token.session, &id).await.ok()?
}

/// Everything that this person may have running is taken. What runs in other conversations is only
/// counted: who reads along here need not read there.
async fn crowded(engine: &Engine, at: At<'_>, limit: usize) -> ToolError {
    match owners::live_here(engine, at.owner, &at.token.session).await {
        Ok(here) => trigger::crowded(limit, &here),
        Err(error) => unread(&error),
    }
}

/// Another request with the same start key is a conflict.
fn fingerprint(start: &StartScript, access: &Access) -> String {
    let mut hash = Sha256::new();
    for part in [start.name.as_bytes(), start.python.as_bytes()] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.update(start.timeout_seconds.to_le_bytes());
    hash.update(format!("{:?}{:?}", start.key, start.notify));
    if !access.is_none() {
        hash.update(format!("{access:?}"));
    }
    format!("{:x?}", hash.finalize())
}

async fn list(engine: &Arc<Engine>, at: At<'_>) -> Answered {
    let live = log::live_now(engine, &at.token.session).await.map_err(|error| unread(&error))?;
    let ended = ended(engine, &at.token.session).await.map_err(|error| unread(&error))?;
    Ok((watch::listed(&live, &ended, engine.ports.clock.now()), None))
}

/// The last executions that have ended, newest first.
pub(super) async fn ended(
    engine: &Engine,
    session: &SessionId,
) -> Result<Vec<Execution>, StoreError> {
    let aggregate = Aggregate::Session(session.clone());
    let rows = engine.ports.store.load(&aggregate, &[Key::recent()]).await?.rows;
    let recent = rows.into_iter().flatten().next().as_ref().and_then(Recent::of).cloned();
    let keys: Vec<Key> = recent.unwrap_or_default().0.iter().rev().map(Key::execution).collect();
    if keys.is_empty() {
        return Ok(vec![]);
    }
    let rows = engine.ports.store.load(&aggregate, &keys).await?.rows;
    // One that is past its retention is gone.
    Ok(rows.iter().flatten().filter_map(Execution::of).cloned().collect())
}

async fn find(engine: &Engine, at: At<'_>, id: &ExecutionId) -> Result<Execution, ToolError> {
    let aggregate = Aggregate::Session(at.token.session.clone());
    let loaded = engine.ports.store.load(&aggregate, &[Key::execution(id)]).await;
    let rows = loaded.map_err(|error| unread(&error))?.rows;
    if let Some(execution) = rows.into_iter().flatten().next().as_ref().and_then(Execution::of) {
        return Ok(execution.clone());
    }
    let mut known =
        log::live_now(engine, &at.token.session).await.map_err(|error| unread(&error))?;
    known.extend(ended(engine, &at.token.session).await.map_err(|error| unread(&error))?);
    Err(watch::unknown(id, &known))
}

async fn output(engine: &Arc<Engine>, at: At<'_>, id: &str, tail_lines: u64) -> Answered {
    let id = watch::resolve(&at.token.session, id)?;
    let execution = find(engine, at, &id).await?;
    let glance = match execution.state {
        State::Ended(_) => None,
        State::Registered | State::Running | State::Cancelling => {
            engine.ports.launcher.glance(&at.token.session, &id).await
        }
    };
    let now = engine.ports.clock.now();
    Ok((watch::output(&execution, glance.as_ref(), tail_lines, now), None))
}

/// Asks for the end and waits for it, at most the grace; the result is delivered right here.
async fn cancel(engine: &Arc<Engine>, at: At<'_>, id: &str) -> Answered {
    let id = watch::resolve(&at.token.session, id)?;
    let mut stirs = engine.stirs.subscribe();
    let behalf = Behalf::Turn(at.token.clone());
    let operation = Cancel { session: at.token.session.clone(), execution: id.clone(), behalf };
    match engine.ledger.run(&operation).await {
        Ok(CancelAnswer::Cancelling(_)) => home::cancel(engine, &at.token.session, &id).await,
        Ok(CancelAnswer::Over(_)) => {
            let execution = find(engine, at, &id).await?;
            return match &execution.state {
                // The same call, run again after a crash: what it ended is its result.
                State::Ended(outcome) if execution.cancel == Some(CancelledBy::Model) => {
                    Ok((watch::cancelled(&execution, outcome), Some(id)))
                }
                State::Ended(_) | State::Registered | State::Running | State::Cancelling => {
                    Err(watch::already_over(&execution))
                }
            };
        }
        Err(LedgerError::Refused(Refusal::Unknown)) => {
            find(engine, at, &id).await?;
        }
        Err(LedgerError::Refused(Refusal::Foreign(owner))) => return Err(watch::foreign(&owner)),
        Err(error) => return Err(away(&error)),
    }
    let until = engine.ports.clock.now().plus_ms(engine.settings.grace_ms + OVERDUE_MS / 2);
    loop {
        let execution = find(engine, at, &id).await?;
        if let State::Ended(outcome) = &execution.state {
            return Ok((watch::cancelled(&execution, outcome), Some(id)));
        }
        tokio::select! {
            // Lagging is a reason to look again as well.
            _ = stirs.recv() => {}
            () = engine.ports.clock.sleep_until(until) => {
                return Ok((watch::cancelling(&execution), None));
            }
        }
    }
}

/// The whole of it is cleaned and loses its secrets before a part of it is taken.
async fn read(engine: &Engine, at: At<'_>, id: &FileId, from_line: u64) -> Answered {
    let clock = &engine.ports.clock;
    let found = match engine.channel(&at.address.surface) {
        None => Err(FileError::Unknown),
        Some(channel) => tokio::select! {
            found = channel.read_file(at.address, id) => found,
            () = clock.sleep_until(clock.now().plus_ms(FILE_MS_MAX)) => {
                Err(FileError::Away { what: "it takes too long".to_owned() })
            }
        },
    };
    let found = found.map_err(|error| file::unread(id, &error))?;
    let redactor = &engine.ports.redactor;
    let safe = |text: &str| redactor.redact(text).into_owned();
    let FileText { name, kind, bytes, text } = found;
    let (name, kind) = (safe(&one_line(&name)), one_line(&kind));
    let found = FileText { name, kind, bytes, text: safe(&clean(&text)) };
    Ok((file::shown(id, &found, from_line)?, None))
}
