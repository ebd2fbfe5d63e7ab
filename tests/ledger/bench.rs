//! A session's rows on a workbench: operations are run over them one by one, no store, no faults.
//! After each the audit is even and the repeat of it changes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use dogwatch::core::arrival::{Arrival, Incoming, Standing, What};
use dogwatch::core::egress::Access;
use dogwatch::core::execution::{
    Address, Execution, Home, Kind, ModelReceipt, Notify, Outcome, Scope, Status,
};
use dogwatch::core::id::{
    BootId, ClaimId, DedupeKey, ExecutionId, ItemId, LeaseId, Nonce, Principal, SessionId, SpoolId,
    StopId, SupersessionKey,
};
use dogwatch::core::ledger::audit::{Snapshot, audit};
use dogwatch::core::ledger::row::{Head, Inbox, Item, Live, RowType, Turn};
use dogwatch::core::ledger::session::{
    Accept, Accepted, Allowance, Append, Appended, Claim, Claimed, Commit, Complete, Completed,
    New, Register, Registered, Started, Stop, StopAnswer, Token,
};
use dogwatch::core::ledger::{
    Aggregate, Key, Operation, Refusal, Row, Rows, Situation, Step, index_of, step,
};
use dogwatch::core::limits::{KEYS_PER_LOAD_MAX, LOAD_ROUNDS_MAX, SETTLE_MS};
use dogwatch::core::time::Timestamp;
use dogwatch::core::transcript::{Body, Call, Entry, Finish, Usage};
use dogwatch::store::codec;
use serde_json::json;

/// Rows of one session, and of nodes.
pub(super) struct Bench {
    pub(super) rows: BTreeMap<Aggregate, Snapshot>,
    pub(super) now: Timestamp,
    pub(super) sole_boot: Option<BootId>,
    pub(super) allowance: Allowance,
    /// While much is put up: no audit and no repeat of each step.
    pub(super) putting_up: bool,
    ids: u64,
}

pub(super) fn session() -> SessionId {
    SessionId::new("bench/main").unwrap()
}

pub(super) fn boot(name: &str) -> BootId {
    BootId::new(name).unwrap()
}

pub(super) fn spool() -> Home {
    Home::Spool(SpoolId::new("spool").unwrap())
}

pub(super) fn outcome(status: Status, reason: &str) -> Outcome {
    Outcome::bare(status, reason)
}

/// What `Register` is asked with, besides the token.
#[derive(Debug, Clone, Default)]
pub(super) struct Wish {
    pub(super) call: u32,
    pub(super) request: &'static str,
    pub(super) notify: Notify,
    pub(super) key: Option<&'static str>,
    pub(super) shown: bool,
}

impl Bench {
    pub(super) fn new() -> Self {
        Self {
            rows: BTreeMap::new(),
            now: Timestamp::from_ms(1_800_000_000_000),
            sole_boot: None,
            allowance: Allowance::default(),
            putting_up: false,
            ids: 0,
        }
    }

    pub(super) fn pass(&mut self, ms: u64) {
        self.now = self.now.plus_ms(ms);
    }

    fn fresh(&mut self, what: &str) -> String {
        self.ids += 1;
        format!("{what}-{}", self.ids)
    }

    // ------------------------------------------------------------ running

    /// Runs it, and finds that doing so once more changes nothing.
    pub(super) fn run<O: Operation>(&mut self, op: &O) -> Result<O::Output, Refusal> {
        if self.putting_up {
            return self.once(op);
        }
        self.rows.entry(op.aggregate()).or_default();
        let before = self.rows.clone();
        let answer = self.once(op);
        if answer.is_err() {
            assert!(self.rows == before, "a refusal changed something");
            return answer;
        }
        let name = std::any::type_name::<O>().rsplit("::").next().unwrap();
        // A beat counts on, and a claim that got no turn goes on to the next.
        if !["Beat", "Claim"].contains(&name) {
            let after = self.rows.clone();
            let _again = self.once(op);
            assert!(self.rows == after, "a repeat of {name} changed something");
        }
        answer
    }

    /// Runs it once.
    pub(super) fn once<O: Operation>(&mut self, op: &O) -> Result<O::Output, Refusal> {
        let at = Situation { now: self.now, sole_boot: self.sole_boot.clone() };
        let aggregate = op.aggregate();
        let lot = self.rows.entry(aggregate.clone()).or_default();
        let mut rows = Rows::new();
        let mut rounds = 0;
        let (output, finished) = loop {
            match step(op, &at, &mut rows) {
                Step::Decided(decided) => break decided?,
                Step::Load(keys) => {
                    rounds += 1;
                    assert!(rounds <= LOAD_ROUNDS_MAX, "a round too many: {keys:?}");
                    assert!(keys.len() <= KEYS_PER_LOAD_MAX, "{} keys at once", keys.len());
                    let row = |key: Key| (key.clone(), lot.get(&key).cloned().map(Arc::new));
                    rows.extend(keys.into_iter().map(row));
                }
            }
        };
        for write in finished.writes {
            if let Some(row) = write.row.as_ref().filter(|_| !self.putting_up) {
                codec::encode(row).unwrap_or_else(|e| panic!("{}: {e}", write.key));
            }
            match write.row {
                Some(row) => lot.insert(write.key, Arc::unwrap_or_clone(row)),
                None => lot.remove(&write.key),
            };
        }
        if aggregate.session().is_some() && !self.putting_up {
            let balance = audit(lot);
            assert!(balance.is_even(), "{balance:#?}");
        }
        Ok(output)
    }

    // ------------------------------------------------------------ looking

    pub(super) fn get<T: RowType>(&self, key: &Key) -> Option<T> {
        self.rows.get(&Aggregate::Session(session()))?.get(key).and_then(T::of).cloned()
    }

    pub(super) fn head(&self) -> Head {
        self.get(&Key::head()).unwrap_or_default()
    }

    pub(super) fn inbox(&self) -> Inbox {
        self.get(&Key::inbox()).unwrap_or_default()
    }

    pub(super) fn live(&self) -> Vec<ExecutionId> {
        self.get::<Live>(&Key::live()).unwrap_or_default().0
    }

    pub(super) fn execution(&self, id: &ExecutionId) -> Execution {
        self.get(&Key::execution(id)).unwrap()
    }

    pub(super) fn turn(&self, no: u64) -> Turn {
        self.get(&Key::turn(no)).unwrap()
    }

    pub(super) fn standing(&self, seq: u64) -> Standing {
        self.get::<Arrival>(&Key::arrival(seq)).unwrap().standing
    }

    /// Where the completion of an execution stands.
    pub(super) fn fate(&self, id: &ExecutionId) -> Standing {
        match self.execution(id).model {
            ModelReceipt::Arrival(seq) => self.standing(seq),
            ModelReceipt::Fate(fate) => Standing::Settled { fate, turn: 0 },
            ModelReceipt::None => panic!("{id} has no receipt yet"),
        }
    }

    pub(super) fn item(&self, id: &str) -> Option<Item> {
        self.get(&Key::item(&ItemId::new(id).unwrap()))
    }

    /// Ids of all outbox items.
    pub(super) fn items(&self) -> Vec<String> {
        let rows = self.rows.get(&Aggregate::Session(session())).into_iter().flatten();
        rows.filter_map(|(_, row)| Item::of(row)).map(|item| item.id.to_string()).collect()
    }

    /// The log, committed and open.
    pub(super) fn log(&self) -> Vec<Entry> {
        let rows = self.rows.get(&Aggregate::Session(session())).into_iter().flatten();
        rows.filter_map(|(_, row)| Entry::of(row)).cloned().collect()
    }

    /// In which indexes a row stands.
    pub(super) fn indexes(&self, key: &Key) -> Vec<String> {
        let row: Option<&Row> =
            self.rows.get(&Aggregate::Session(session())).and_then(|rows| rows.get(key));
        let entries = row.map_or_else(Vec::new, |row| index_of(key, row));
        entries.into_iter().map(|(index, _)| index.to_string()).collect()
    }

    // ------------------------------------------------------------ doing

    pub(super) fn incoming(&self, key: &str, what: What) -> Incoming {
        Incoming {
            keys: vec![DedupeKey::new(key).unwrap()],
            what,
            principal: Principal::new("ann").unwrap(),
            address: Address { surface: "bench".into(), thread: "main".into() },
            source_at: self.now,
            continues: false,
            shared: false,
        }
    }

    pub(super) fn accept(&mut self, incoming: Incoming) -> Result<Accepted, Refusal> {
        let chain = self.allowance;
        self.run(&Accept { session: session(), incoming, chain })
    }

    /// A message that is ready to be read; answers its number.
    pub(super) fn say(&mut self, text: &str) -> u64 {
        let key = self.fresh("key");
        let incoming = self.incoming(&key, What::Message { text: text.into() });
        match self.accept(incoming) {
            Ok(Accepted::New(seq)) => {
                self.pass(SETTLE_MS);
                seq
            }
            other => panic!("not accepted: {other:?}"),
        }
    }

    pub(super) fn try_claim(&mut self, by: &str) -> Result<Claimed, Refusal> {
        self.try_claim_of(by, false)
    }

    pub(super) fn try_claim_of(&mut self, by: &str, alone: bool) -> Result<Claimed, Refusal> {
        let claim = ClaimId::new(self.fresh("claim")).unwrap();
        let nonce = Nonce::new(self.fresh("k")).unwrap();
        self.run(&Claim { session: session(), boot: boot(by), alone, claim, nonce })
    }

    pub(super) fn claim(&mut self, by: &str) -> Token {
        match self.try_claim(by) {
            Ok(Claimed::Turn(token, _)) => token,
            other => panic!("not claimed: {other:?}"),
        }
    }

    pub(super) fn append(
        &mut self,
        token: &Token,
        new: Vec<New>,
        take: bool,
    ) -> Result<Appended, Refusal> {
        let turn = self.turn(token.turn);
        let (at, chain) = (turn.base + turn.len, turn.chain);
        let nonce = Nonce::new(self.fresh("k")).unwrap();
        self.run(&Append { token: token.clone(), at, chain, new, take, nonce })
    }

    /// The model says its last word.
    pub(super) fn answer(&mut self, token: &Token, text: &str) {
        self.append(token, vec![model(text, &[])], false).unwrap();
    }

    /// The model asks for tools; answers the entry that did.
    pub(super) fn ask(&mut self, token: &Token, tools: &[&str]) -> u64 {
        self.append(token, vec![model("", tools)], false).unwrap().entries[0].0
    }

    pub(super) fn commit(&mut self, token: &Token) -> Result<(), Refusal> {
        self.run(&Commit { token: token.clone(), posts: vec!["the answer".into()] })
    }

    /// A whole turn about what waits.
    pub(super) fn turn_of_now(&mut self, by: &str) -> Token {
        let token = self.claim(by);
        self.answer(&token, "done");
        self.commit(&token).unwrap();
        token
    }

    pub(super) fn try_register(
        &mut self,
        token: &Token,
        wish: &Wish,
    ) -> Result<Registered, Refusal> {
        self.run(&register(token, wish))
    }

    /// Registered and let run by the claim's boot `a`.
    pub(super) fn start(&mut self, token: &Token, wish: &Wish) -> ExecutionId {
        let id = self.try_register(token, wish).unwrap().id;
        let (session, execution) = (session(), id.clone());
        self.run(&Started { session, execution, boot: boot("a") }).unwrap();
        id
    }

    pub(super) fn complete(
        &mut self,
        id: &ExecutionId,
        outcome: &Outcome,
    ) -> Result<Completed, Refusal> {
        let outcome = outcome.clone();
        self.run(&Complete { session: session(), execution: id.clone(), outcome, boot: boot("a") })
    }

    pub(super) fn stop(&mut self, scope: Scope) -> StopAnswer {
        let stop = StopId::new(self.fresh("stop")).unwrap();
        let by = Principal::new("ann").unwrap();
        let source_at = self.now;
        self.run(&Stop { session: session(), scope, stop, source_at, by, only: None }).unwrap()
    }

    pub(super) fn lease(&mut self) -> LeaseId {
        LeaseId::new(self.fresh("lease")).unwrap()
    }
}

pub(super) fn register(token: &Token, wish: &Wish) -> Register {
    Register {
        token: token.clone(),
        call: (0, wish.call),
        request: wish.request.into(),
        prefix: "auto-notify-test".into(),
        kind: Kind::Script,
        name: "Test".into(),
        notify: wish.notify,
        key: wish.key.map(|key| SupersessionKey::new(key).unwrap()),
        timeout_ms: 20_000,
        home: spool(),
        boot: boot("a"),
        shown: wish.shown,
        access: Access::default(),
    }
}

/// An answer of the model.
pub(super) fn model(text: &str, tools: &[&str]) -> New {
    let calls: Vec<Call> = tools
        .iter()
        .map(|name| Call { id: "same".into(), name: (*name).into(), arguments: "{}".into() })
        .collect();
    let finish = if calls.is_empty() { Finish::Stop } else { Finish::ToolCalls };
    let usage = Usage { input_tokens: 100, output_tokens: 1, reported: true };
    New { body: Body::Model { text: text.into(), calls, finish, usage }, collect: None }
}

/// The result of a tool.
pub(super) fn result(entry: u64, call: u32, collect: Option<&ExecutionId>) -> New {
    let body = Body::Tool { entry, call, result: json!({ "ok": true }), notice: None };
    New { body, collect: collect.cloned() }
}
