//! What happens to an execution between its registration and its end. Owns its states and who may
//! report what. Must not know processes.

use super::end::{self, Ending};
use super::mail::{self, Letter, name};
use super::{Token, ahead, open_turn};
use crate::core::arrival::{Arrival, Standing};
use crate::core::envelope;
use crate::core::execution::{
    CancelledBy, Execution, Home, LateFact, ModelReceipt, Outcome, PostSort, State, Status,
};
use crate::core::id::{BootId, ExecutionId, PressId, Principal, SessionId};
use crate::core::ledger::{Aggregate, Class, Key, Operation, Refusal, Situation, Working};
use crate::core::limits::{HOME_GONE_MS, KILL_GRACE_MS, LATE_FACTS_MAX, OVERDUE_MS};
use crate::core::output::Captured;
use crate::core::policy::may_end;
use crate::core::time::Timestamp;

/// Said of work whose process died with it.
const PROCESS_GONE: &str = "its process is gone";

/// What its home does with a process that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Go {
    /// Let it run.
    Run,
    /// Its end was asked for in between.
    Cancel,
}

fn find(rows: &Working, id: &ExecutionId) -> Result<Execution, Refusal> {
    rows.get::<Execution>(&Key::execution(id)).cloned().ok_or(Refusal::Unknown)
}

/// When the ledger looks after running work, whatever its home does.
fn due(execution: &Execution, started_at: Timestamp) -> Timestamp {
    started_at.plus_ms(execution.timeout_ms + KILL_GRACE_MS + OVERDUE_MS)
}

/// The process is there and waits for "go".
#[derive(Debug, Clone)]
pub struct Started {
    /// The session.
    pub session: SessionId,
    /// The execution.
    pub execution: ExecutionId,
    /// Who says so.
    pub boot: BootId,
}

impl Operation for Started {
    type Output = Go;

    fn aggregate(&self) -> Aggregate {
        Aggregate::Session(self.session.clone())
    }

    fn class(&self) -> Class {
        Class::HINT
    }

    fn needs(&self, _: &Working) -> Vec<Key> {
        vec![Key::execution(&self.execution)]
    }

    fn decide(&self, at: &Situation, rows: &mut Working) -> Result<Go, Refusal> {
        let execution = find(rows, &self.execution)?;
        if execution.boot != self.boot {
            return Err(Refusal::Fenced);
        }
        start(rows, at.now, &execution)
    }
}

fn start(rows: &mut Working, now: Timestamp, execution: &Execution) -> Result<Go, Refusal> {
    match execution.state {
        State::Registered => {
            if let Some(row) = rows.edit::<Execution>(&Key::execution(&execution.id)) {
                row.state = State::Running;
                row.started_at = Some(now);
                row.due_at = due(row, now);
            }
            Ok(Go::Run)
        }
        State::Running => Ok(Go::Run),
        State::Cancelling => Ok(Go::Cancel),
        State::Ended(_) => Err(Refusal::Ended(execution.id.clone())),
    }
}

/// The next boot of a spool takes over what an earlier one started.
#[derive(Debug, Clone)]
pub struct Adopt {
    /// The session.
    pub session: SessionId,
    /// The execution.
    pub execution: ExecutionId,
    /// The spool, which the new boot holds.
    pub home: Home,
    /// The new boot.
    pub to: BootId,
    /// Its shim is there and may be told to go.
    pub held: bool,
}

impl Operation for Adopt {
    type Output = Go;

    fn aggregate(&self) -> Aggregate {
        Aggregate::Session(self.session.clone())
    }

    fn class(&self) -> Class {
        Class::FINISHES
    }

    fn needs(&self, _: &Working) -> Vec<Key> {
        vec![Key::execution(&self.execution)]
    }

    fn decide(&self, at: &Situation, rows: &mut Working) -> Result<Go, Refusal> {
        let execution = find(rows, &self.execution)?;
        if execution.home != self.home {
            return Err(Refusal::Fenced);
        }
        if execution.state.is_ended() {
            return Err(Refusal::Ended(execution.id));
        }
        if execution.boot != self.to || execution.unattended {
            let least = at.now.plus_ms(KILL_GRACE_MS + OVERDUE_MS);
            if let Some(row) = rows.edit::<Execution>(&Key::execution(&self.execution)) {
                row.boot = self.to.clone();
                row.unattended = false;
                row.due_at = match (&row.state, row.started_at) {
                    (State::Cancelling, _) => least,
                    (State::Registered | State::Running | State::Ended(_), Some(started_at)) => {
                        due(row, started_at).max(least)
                    }
                    (State::Registered | State::Running | State::Ended(_), None) => {
                        row.due_at.max(least)
                    }
                };
            }
        }
        if self.held { start(rows, at.now, &execution) } else { Ok(Go::Run) }
    }
}

/// Somebody asks for the end of an execution.
#[derive(Debug, Clone)]
pub struct Cancel {
    /// The session.
    pub session: SessionId,
    /// The execution.
    pub execution: ExecutionId,
    /// Who asks.
    pub behalf: Behalf,
}

/// On whose behalf an end is asked for. It must be that of the owner alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Behalf {
    /// The model's, in the turn that holds this lane: of everybody whose arrivals the turn took.
    Turn(Token),
    /// A person's.
    Person {
        /// Who.
        principal: Principal,
        /// Which press.
        press: PressId,
    },
}

impl Cancel {
    /// Work belongs to who started it, also in a thread that many share.
    fn may(&self, rows: &Working, owner: &Principal) -> Result<(), Refusal> {
        let may = match &self.behalf {
            Behalf::Turn(token) => {
                token.holds(&rows.head())?;
                let turn = open_turn(rows).ok_or(Refusal::Fenced)?;
                may_end(owner, turn.people())
            }
            Behalf::Person { principal, .. } => may_end(owner, [principal]),
        };
        if may { Ok(()) } else { Err(Refusal::Foreign(owner.clone())) }
    }

    fn by(&self) -> CancelledBy {
        match &self.behalf {
            Behalf::Turn(_) => CancelledBy::Model,
            Behalf::Person { principal, press } => {
                CancelledBy::Person { principal: principal.clone(), press: press.clone() }
            }
        }
    }
}

/// What asking came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CancelAnswer {
    /// Its home ends it and reports.
    Cancelling(Home),
    /// It is over, with this status.
    Over(Status),
}

impl Operation for Cancel {
    type Output = CancelAnswer;

    fn aggregate(&self) -> Aggregate {
        Aggregate::Session(self.session.clone())
    }

    fn class(&self) -> Class {
        Class::FINISHES
    }

    fn needs(&self, _: &Working) -> Vec<Key> {
        let mut keys = vec![Key::execution(&self.execution)];
        if let Behalf::Turn(token) = &self.behalf {
            keys.extend([Key::head(), Key::turn(token.turn)]);
        }
        keys
    }

    fn decide(&self, at: &Situation, rows: &mut Working) -> Result<CancelAnswer, Refusal> {
        let execution = find(rows, &self.execution)?;
        if let State::Ended(outcome) = &execution.state {
            return Ok(CancelAnswer::Over(outcome.status));
        }
        self.may(rows, &execution.owner)?;
        match &execution.state {
            State::Ended(_) | State::Cancelling => {}
            State::Registered | State::Running => {
                let due = at.now.plus_ms(KILL_GRACE_MS + OVERDUE_MS);
                if let Some(row) = rows.edit::<Execution>(&Key::execution(&self.execution)) {
                    row.state = State::Cancelling;
                    row.cancel = Some(self.by());
                    row.due_at = row.due_at.min(due);
                }
            }
        }
        Ok(CancelAnswer::Cancelling(execution.home))
    }
}

/// Its home reports its end.
#[derive(Debug, Clone)]
pub struct Complete {
    /// The session.
    pub session: SessionId,
    /// The execution.
    pub execution: ExecutionId,
    /// How it ended.
    pub outcome: Outcome,
    /// Who reports.
    pub boot: BootId,
}

/// What a report came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completed {
    /// It ended the execution.
    First,
    /// The same was reported before.
    Repeat,
    /// The execution had ended otherwise; kept as a late fact.
    Late,
}

impl Operation for Complete {
    type Output = Completed;

    fn aggregate(&self) -> Aggregate {
        Aggregate::Session(self.session.clone())
    }

    fn class(&self) -> Class {
        Class::FINISHES
    }

    fn needs(&self, have: &Working) -> Vec<Key> {
        end::needs(have, &self.execution)
    }

    fn ahead(&self, have: &Working, kept: &dyn Fn(&Key) -> bool) -> Vec<Key> {
        ahead::of(have, kept)
    }

    fn decide(&self, at: &Situation, rows: &mut Working) -> Result<Completed, Refusal> {
        let execution = find(rows, &self.execution)?;
        if let State::Ended(first) = &execution.state {
            return Ok(late(rows, at.now, &execution, first, &self.outcome));
        }
        if execution.boot != self.boot {
            return Err(Refusal::Fenced);
        }
        let outcome = self.outcome.clone();
        end::end(rows, at.now, &execution.id, Ending { outcome, silent: None, kill: false });
        Ok(Completed::First)
    }
}

/// Terminal is final: what comes later is a fact beside it. After `lost` people are told, unless
/// the notice is still unread and will show it.
fn late(
    rows: &mut Working,
    now: Timestamp,
    execution: &Execution,
    first: &Outcome,
    outcome: &Outcome,
) -> Completed {
    let kept = if execution.late.is_empty() { outcome.clone() } else { without_output(outcome) };
    let is_known = |fact: &LateFact| fact.outcome == *outcome || fact.outcome == kept;
    if first == outcome || execution.late.iter().any(is_known) {
        return Completed::Repeat;
    }
    if execution.late.len() >= LATE_FACTS_MAX {
        return Completed::Late;
    }
    if let Some(row) = rows.edit::<Execution>(&Key::execution(&execution.id)) {
        row.late.push(LateFact { at: now, outcome: kept });
    }
    let unread = match execution.model {
        ModelReceipt::Arrival(seq) => rows
            .get::<Arrival>(&Key::arrival(seq))
            .is_some_and(|arrival| arrival.standing == Standing::Pending),
        ModelReceipt::None | ModelReceipt::Fate(_) => false,
    };
    if first.status == Status::Lost && !unread {
        let fact = LateFact { at: now, outcome: outcome.clone() };
        let letter = Letter {
            id: name::late(&execution.id),
            address: execution.address.clone(),
            text: envelope::late_line(execution, &fact),
            sort: PostSort::Human,
            receipt_of: None,
        };
        mail::post(rows, now, letter);
    }
    Completed::Late
}

/// A row has room for the output of the end and of one report after it.
fn without_output(outcome: &Outcome) -> Outcome {
    Outcome { stdout: Captured::default(), stderr: Captured::default(), ..outcome.clone() }
}

/// The ledger's own look after an execution whose time has come.
#[derive(Debug, Clone)]
pub struct Overdue {
    /// The session.
    pub session: SessionId,
    /// The execution.
    pub execution: ExecutionId,
    /// The boot that was found buried; an execution of it is unattended.
    pub buried: Option<BootId>,
}

impl Overdue {
    /// How it ends now; `None` when its home may still come back.
    fn outcome(&self, execution: &Execution, now: Timestamp) -> Option<(Outcome, bool)> {
        let away = execution.unattended || self.buried.as_ref() == Some(&execution.boot);
        let patience = execution.due_at.plus_ms(HOME_GONE_MS - OVERDUE_MS);
        match &execution.state {
            State::Registered if !away => {
                Some((Outcome::bare(Status::Lost, "never-started"), true))
            }
            State::Running if !away => {
                let mut outcome =
                    Outcome::bare(Status::TimedOut, "its home did not report the deadline");
                outcome.elapsed_ms = elapsed(execution, now);
                Some((outcome, true))
            }
            State::Cancelling if !away => {
                let mut outcome = Outcome::bare(Status::Cancelled, "its home did not answer");
                outcome.elapsed_ms = elapsed(execution, now);
                Some((outcome, true))
            }
            State::Registered | State::Running | State::Cancelling => match execution.home {
                Home::Process(_) => Some((Outcome::bare(Status::Lost, PROCESS_GONE), false)),
                Home::Spool(_) => {
                    let gone = execution.unattended || now >= patience;
                    gone.then(|| (Outcome::bare(Status::Lost, "home gone"), true))
                }
            },
            State::Ended(_) => None,
        }
    }
}

/// Nobody attends to it for now; its home may come back for so much longer.
fn leave(rows: &mut Working, id: &ExecutionId) {
    if let Some(row) = rows.edit::<Execution>(&Key::execution(id)) {
        row.unattended = true;
        row.due_at = row.due_at.plus_ms(HOME_GONE_MS - OVERDUE_MS);
    }
}

fn elapsed(execution: &Execution, now: Timestamp) -> u64 {
    execution.started_at.map_or(0, |started_at| now.since_ms(started_at))
}

impl Operation for Overdue {
    type Output = bool;

    fn aggregate(&self) -> Aggregate {
        Aggregate::Session(self.session.clone())
    }

    fn class(&self) -> Class {
        Class::FINISHES
    }

    fn needs(&self, have: &Working) -> Vec<Key> {
        end::needs(have, &self.execution)
    }

    /// Answers whether it ended the execution.
    fn decide(&self, at: &Situation, rows: &mut Working) -> Result<bool, Refusal> {
        let execution = find(rows, &self.execution)?;
        if execution.state.is_ended() {
            return Ok(false);
        }
        if at.now < execution.due_at {
            return Err(Refusal::NotYet(execution.due_at));
        }
        let Some((outcome, kill)) = self.outcome(&execution, at.now) else {
            leave(rows, &self.execution);
            return Ok(false);
        };
        end::end(rows, at.now, &execution.id, Ending { outcome, silent: None, kill });
        Ok(true)
    }
}

/// A boot is buried: what lived in its process is lost, what lives in its spool is unattended until
/// the next boot of that spool adopts it.
#[derive(Debug, Clone)]
pub struct HomeLost {
    /// The session.
    pub session: SessionId,
    /// The execution.
    pub execution: ExecutionId,
    /// The buried boot; it must still be that boot's.
    pub boot: BootId,
}

impl Operation for HomeLost {
    type Output = bool;

    fn aggregate(&self) -> Aggregate {
        Aggregate::Session(self.session.clone())
    }

    fn class(&self) -> Class {
        Class::FINISHES
    }

    fn needs(&self, have: &Working) -> Vec<Key> {
        end::needs(have, &self.execution)
    }

    /// Answers whether it ended the execution.
    fn decide(&self, at: &Situation, rows: &mut Working) -> Result<bool, Refusal> {
        let execution = find(rows, &self.execution)?;
        if execution.state.is_ended() {
            return Ok(false);
        }
        match &execution.home {
            Home::Process(boot) if *boot == self.boot => {
                let outcome = Outcome::bare(Status::Lost, PROCESS_GONE);
                let ending = Ending { outcome, silent: None, kill: false };
                end::end(rows, at.now, &execution.id, ending);
                Ok(true)
            }
            Home::Spool(_) if execution.boot == self.boot => {
                if !execution.unattended {
                    leave(rows, &self.execution);
                }
                Ok(false)
            }
            Home::Process(_) | Home::Spool(_) => Err(Refusal::Fenced),
        }
    }
}
