//! `Register`: an execution enters the record before anything runs. Owns the caps, the start key
//! and supersession. Must not know how work is launched.

use super::end::{self, Ending};
use super::{Token, open_turn, open_turn_key};
use crate::core::egress::Access;
use crate::core::execution::{
    Execution, Fate, Home, HumanReceipt, Kind, ModelReceipt, Notify, Outcome, State, Status,
};
use crate::core::id::{BootId, EntryNo, ExecutionId, Principal, SupersessionKey};
use crate::core::ledger::row::{Chain, Holder, Inbox, Live, StartKey, Turn, show_line};
use crate::core::ledger::{Aggregate, Class, Key, Operation, Refusal, Situation, Working};
use crate::core::limits::{LIVE_PER_SESSION_MAX, NOTICES_UNREAD_AND_LIVE_MAX, START_MS_MAX};
use crate::core::policy::may_end;

use super::mail::{self, name};

/// Records an execution of the turn that holds the lane.
#[derive(Debug, Clone)]
pub struct Register {
    /// Who asks.
    pub token: Token,
    /// The log entry and the call in it: with the turn they are the start key.
    pub call: (EntryNo, u32),
    /// A hash of the request: the same start key with another one is a conflict.
    pub request: String,
    /// What the id begins with, `auto-notify-watc`; a number of the session follows.
    pub prefix: String,
    /// What sort of work.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// Who is told of its end.
    pub notify: Notify,
    /// Its supersession key.
    pub key: Option<SupersessionKey>,
    /// Its deadline, from its start.
    pub timeout_ms: u64,
    /// Where it will live.
    pub home: Home,
    /// The boot that attends to it.
    pub boot: BootId,
    /// A message shows how it stands.
    pub shown: bool,
    /// What it may have of the network.
    pub access: Access,
}

/// What was recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registered {
    /// Its id.
    pub id: ExecutionId,
    /// It was not there before.
    pub fresh: bool,
}

impl Register {
    fn start_key(&self) -> Key {
        Key::start(self.token.turn, self.call.0, self.call.1)
    }

    fn next_id(&self, rows: &Working) -> Option<ExecutionId> {
        let number = rows.head().executions + 1;
        ExecutionId::new(format!("{}-{number:04}", self.prefix)).ok()
    }

    /// The live execution that this one supersedes.
    fn older(&self, rows: &Working) -> Option<ExecutionId> {
        let key = Key::supersession(self.key.as_ref()?);
        if !rows.has(&key) {
            return None;
        }
        let holder = rows.get::<Holder>(&key)?;
        let live = rows.get::<Live>(&Key::live())?;
        live.0.contains(&holder.execution).then(|| holder.execution.clone())
    }

    fn execution(
        &self,
        id: &ExecutionId,
        at: &Situation,
        turn: &Turn,
        rows: &Working,
    ) -> Execution {
        Execution {
            id: id.clone(),
            kind: self.kind,
            name: self.name.clone(),
            turn: turn.no,
            call: self.call,
            owner: turn.principal.clone(),
            generation: rows.head().generation,
            chain: turn.chain,
            address: turn.address.clone(),
            home: self.home.clone(),
            boot: self.boot.clone(),
            notify: self.notify,
            key: self.key.clone(),
            timeout_ms: self.timeout_ms,
            state: State::Registered,
            cancel: None,
            registered_at: at.now,
            started_at: None,
            ended_at: None,
            due_at: at.now.plus_ms(START_MS_MAX),
            unattended: false,
            model: ModelReceipt::None,
            human: if self.notify.tells_human() { HumanReceipt::Owed } else { HumanReceipt::None },
            late: vec![],
            shown: self.shown,
            shared: turn.shared,
            access: self.access.clone(),
        }
    }
}

impl Operation for Register {
    type Output = Registered;

    fn aggregate(&self) -> Aggregate {
        Aggregate::Session(self.token.session.clone())
    }

    fn class(&self) -> Class {
        Class::ADMITS
    }

    fn needs(&self, have: &Working) -> Vec<Key> {
        let mut keys = vec![Key::head(), Key::inbox(), Key::live(), self.start_key()];
        keys.push(Key::turn(self.token.turn));
        keys.extend(open_turn_key(have));
        keys.extend(self.key.as_ref().map(Key::supersession));
        // At once, or the end of a line would be known one load later.
        keys.extend((self.shown || self.key.is_some()).then(Key::tails));
        let id = if have.has(&Key::head()) { self.next_id(have) } else { None };
        keys.extend(id.as_ref().map(Key::execution));
        if let Some(turn) = open_turn(have) {
            keys.push(Key::chain(turn.chain));
            if let Some(id) = id.filter(|_| self.shown) {
                let line = show_line(&turn.address, &id);
                keys.extend(mail::needs(have, [name::show(&id)], [line]));
            }
        }
        if have.has(&Key::live())
            && let Some(older) = self.older(have)
        {
            keys.push(Key::recent());
            keys.extend(end::needs(have, &older));
        }
        keys
    }

    fn decide(&self, at: &Situation, rows: &mut Working) -> Result<Registered, Refusal> {
        if let Some(start) = rows.get::<StartKey>(&self.start_key()) {
            let Some(id) = &start.execution else { return Err(Refusal::Void) };
            return if start.request == self.request {
                Ok(Registered { id: id.clone(), fresh: false })
            } else {
                Err(Refusal::Conflict)
            };
        }
        let head = rows.head();
        self.token.holds(&head)?;
        if head.stopped {
            return Err(Refusal::Stopped);
        }
        let turn = open_turn(rows).ok_or(Refusal::Fenced)?;
        let id = self.next_id(rows).ok_or(Refusal::Invalid("the id's prefix"))?;
        let older = self.older(rows);
        if let Some(owner) = older.as_ref().and_then(|older| owner(rows, older))
            && !may_end(&owner, turn.people())
        {
            return Err(Refusal::Foreign(owner));
        }
        check_caps(rows, &turn, older.is_some())?;
        if let Some(older) = &older {
            let outcome = Outcome::bare(Status::Superseded, format!("superseded by {id}"));
            let ending = Ending { outcome, silent: Some(Fate::Superseded), kill: true };
            end::end(rows, at.now, older, ending);
        }
        let execution = self.execution(&id, at, &turn, rows);
        if self.shown {
            mail::show(rows, at.now, &execution);
        }
        rows.put(Key::execution(&id), execution);
        let request = self.request.clone();
        rows.put(self.start_key(), StartKey { execution: Some(id.clone()), request, at: at.now });
        if let Some(key) = &self.key {
            let holder = Holder { execution: id.clone(), at: at.now };
            rows.put(Key::supersession(key), holder);
        }
        if let Some(live) = rows.ensure::<Live>(&Key::live()) {
            live.0.push(id.clone());
        }
        if let Some(chain) = rows.edit::<Chain>(&Key::chain(turn.chain)) {
            chain.spawns -= 1;
        }
        if let Some(head) = rows.head_mut() {
            head.executions += 1;
        }
        Ok(Registered { id, fresh: true })
    }
}

/// A new one with its key would end it.
fn owner(rows: &Working, older: &ExecutionId) -> Option<Principal> {
    rows.get::<Execution>(&Key::execution(older)).map(|older| older.owner.clone())
}

fn check_caps(rows: &Working, turn: &Turn, older: bool) -> Result<(), Refusal> {
    let live = rows.get::<Live>(&Key::live()).map_or(0, |live| live.0.len());
    let live = live.saturating_sub(usize::from(older));
    if live >= LIVE_PER_SESSION_MAX {
        let what = "too many executions of this session are live";
        return Err(Refusal::Cap { what, limit: LIVE_PER_SESSION_MAX });
    }
    let inbox = rows.get::<Inbox>(&Key::inbox()).map_or(0, |inbox| inbox.notices.len());
    // What the open turn carries unanswered may come back.
    let unread = inbox + turn.carried.len().saturating_sub(turn.seen);
    if live + unread >= NOTICES_UNREAD_AND_LIVE_MAX {
        let what = "too many completions of this session are unread";
        return Err(Refusal::Cap { what, limit: NOTICES_UNREAD_AND_LIVE_MAX });
    }
    let spawns = rows.get::<Chain>(&Key::chain(turn.chain)).map_or(0, |chain| chain.spawns);
    if spawns == 0 {
        let what = "this chain may start no more executions until a person writes";
        return Err(Refusal::Cap { what, limit: 0 });
    }
    Ok(())
}
