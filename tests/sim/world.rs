//! The simulated world: a memory store with a virtual clock, sessions, nodes with spools. Its
//! actions are chosen by a seed; faults happen inside every operation.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use dogwatch::core::arrival::{Arrival, Incoming, Standing, What};
use dogwatch::core::execution::{
    Address, CancelledBy, Execution, Fate, Home, ModelReceipt, Outcome, Scope, State, Status,
};
use dogwatch::core::id::{
    BootId, ClaimId, DedupeKey, ExecutionId, ItemId, LeaseId, Nonce, PressId, Principal, SessionId,
    SpoolId, StopId,
};
use dogwatch::core::ledger::audit::{Snapshot, audit};
use dogwatch::core::ledger::node::{Beat, Bury};
use dogwatch::core::ledger::row::{
    Beat as BeatRow, Chain, Errand, Head, Inbox, Item, Live, RowType,
};
use dogwatch::core::ledger::session::{
    Accept, Accepted, Adopt, Allowance, Cancel, Claim, Claimed, Compact, Complete, DoneItem,
    FailItem, Go, LeaseItem, Leased, Overdue, Retry, Started, Stop,
};
use dogwatch::core::ledger::{
    Aggregate, Change, Index, Key, Operation, Refusal, Revision, Row, Rows, Situation, Step, step,
};
use dogwatch::core::limits::{LEASE_MS, LOAD_ROUNDS_MAX};
use dogwatch::core::time::Timestamp;
use dogwatch::core::transcript::Entry;
use dogwatch::ports::{Applied, Clock, Loaded, Member, Store};
use dogwatch::store::{ManualClock, Memory};
use futures_util::FutureExt;

use crate::check::History;
use crate::driver::Driver;
use crate::rng::Rng;

/// Foreign actions inside one operation, at most.
const DEPTH_MAX: u32 = 2;
/// Rounds of the drain; a world that needs more hangs.
const DRAIN_ROUNDS_MAX: u32 = 4_000;

/// Why an operation gave no answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Ran {
    /// The ledger refused it.
    Refused(Refusal),
    /// Nobody knows whether it was applied.
    Lost,
}

#[derive(Debug, Clone, PartialEq)]
enum Process {
    Waiting,
    Running { until: Timestamp },
    Done(Outcome),
}

type Work = (SessionId, ExecutionId);

/// A process of dogwatch. Its spool outlives its boots.
struct Node {
    boot: BootId,
    up: bool,
    spool: SpoolId,
    processes: BTreeMap<Work, Process>,
    launches: VecDeque<Work>,
    reports: VecDeque<Work>,
    /// Counters of other boots as last seen, and when.
    seen: BTreeMap<BootId, (u64, Timestamp)>,
}

pub(crate) struct World {
    pub(crate) rng: Rng,
    clock: ManualClock,
    store: Memory,
    sole: bool,
    sessions: Vec<SessionId>,
    nodes: Vec<Node>,
    drivers: Vec<Driver>,
    history: History,
    keys: BTreeMap<SessionId, Vec<DedupeKey>>,
    /// Item ids whose try is at another place, with the lease.
    deliveries: Vec<(SessionId, ItemId, LeaseId)>,
    ids: u64,
    depth: u32,
    pub(crate) draining: bool,
    story: VecDeque<String>,
}

fn now_or_panic<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("the memory store answers at once")
}

impl World {
    pub(crate) fn new(seed: u64, sole: bool) -> Self {
        let clock = ManualClock::new(Timestamp::from_ms(1_800_000_000_000));
        let store = Memory::new(Arc::new(clock.clone()));
        let mut world = Self {
            rng: Rng::new(seed),
            store,
            clock,
            sole,
            sessions: (0..3).map(|i| SessionId::new(format!("sim/{i}")).unwrap()).collect(),
            nodes: vec![],
            drivers: vec![],
            history: History::default(),
            keys: BTreeMap::new(),
            deliveries: vec![],
            ids: 0,
            depth: 0,
            draining: false,
            story: VecDeque::new(),
        };
        for i in 0..if sole { 1 } else { 3 } {
            let spool = SpoolId::new(format!("spool{i}")).unwrap();
            world.nodes.push(Node {
                boot: BootId::new(format!("boot{i}")).unwrap(),
                up: true,
                spool,
                processes: BTreeMap::new(),
                launches: VecDeque::new(),
                reports: VecDeque::new(),
                seen: BTreeMap::new(),
            });
            world.boot_up(i);
        }
        world
    }

    pub(crate) fn story(&self, last: usize) -> String {
        let skip = self.story.len().saturating_sub(last);
        self.story.iter().skip(skip).cloned().collect::<Vec<_>>().join("\n")
    }

    fn tell(&mut self, what: String) {
        self.story.push_back(format!("{} {what}", self.now().as_ms() % 1_000_000_000));
        if self.story.len() > 200 {
            self.story.pop_front();
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn fresh(&mut self) -> String {
        self.ids += 1;
        format!("{:08}", self.ids)
    }

    pub(crate) fn home(&self, node: usize) -> Home {
        Home::Spool(self.nodes[node].spool.clone())
    }

    pub(crate) fn boot(&self, node: usize) -> BootId {
        self.nodes[node].boot.clone()
    }

    // ------------------------------------------------------------ rows

    fn row<T: RowType>(&self, session: &SessionId, key: &Key) -> Option<T> {
        let aggregate = Aggregate::Session(session.clone());
        let keys = [key.clone()];
        let loaded = now_or_panic(self.store.load(&aggregate, &keys)).unwrap();
        loaded.rows.into_iter().next().flatten().as_ref().and_then(T::of).cloned()
    }

    pub(crate) fn execution(&self, session: &SessionId, id: &ExecutionId) -> Option<Execution> {
        self.row(session, &Key::execution(id))
    }

    pub(crate) fn chain(&self, session: &SessionId, no: u64) -> Option<Chain> {
        self.row(session, &Key::chain(no))
    }

    pub(crate) fn log(&self, session: &SessionId, base: u64, len: u64) -> Vec<(u64, Entry)> {
        let entry = |no| Some((no, self.row::<Entry>(session, &Key::entry(no))?));
        (base..base + len).filter_map(entry).collect()
    }

    fn snapshot(&self, session: &SessionId) -> Snapshot {
        let aggregate = Aggregate::Session(session.clone());
        now_or_panic(self.store.rows(&aggregate, None, usize::MAX)).unwrap().into_iter().collect()
    }

    fn members(&self, index: &Index, until: u64) -> Vec<Member> {
        now_or_panic(self.store.members(index, until, None, usize::MAX)).unwrap()
    }

    pub(crate) fn rng_live(&mut self, session: &SessionId) -> Option<ExecutionId> {
        let live = self.row::<Live>(session, &Key::live()).unwrap_or_default();
        self.rng.pick(&live.0)
    }

    // ------------------------------------------------------------ operations

    /// Runs an operation as a node does, with whatever may go wrong.
    pub(crate) fn run<O: Operation>(&mut self, node: usize, op: &O) -> Result<O::Output, Ran> {
        let aggregate = op.aggregate();
        for _ in 0..64 {
            let (revision, decided) = self.load_and_decide(node, op, &aggregate);
            let (output, finished) = decided.map_err(Ran::Refused)?;
            if !finished.changed {
                return Ok(output);
            }
            self.foreign();
            let revision_new = Revision(self.fresh());
            let change = Change {
                aggregate: aggregate.clone(),
                expected: revision,
                revision: revision_new,
                writes: finished.writes,
                index: finished.index,
                class: op.class(),
            };
            let faulty = !self.draining && self.rng.chance(6);
            if faulty && self.rng.chance(50) {
                return Err(Ran::Lost);
            }
            match now_or_panic(self.store.apply(change)).unwrap() {
                Applied::Conflict => continue,
                Applied::Applied | Applied::Already => {}
            }
            self.check(&aggregate);
            return if faulty { Err(Ran::Lost) } else { Ok(output) };
        }
        panic!("an operation conflicts for ever");
    }

    #[expect(clippy::type_complexity, reason = "the answer of a step with its revision")]
    fn load_and_decide<O: Operation>(
        &mut self,
        node: usize,
        op: &O,
        aggregate: &Aggregate,
    ) -> (Option<Revision>, Result<(O::Output, dogwatch::core::ledger::Finished), Refusal>) {
        let mut rows = Rows::new();
        let mut revision = None;
        let mut rounds = 0;
        loop {
            let sole_boot = self.sole.then(|| self.boot(node));
            let at = Situation { now: self.now(), sole_boot };
            let wanted = match step(op, &at, &rows) {
                Step::Load(wanted) => wanted,
                Step::Decided(decided) => return (revision, decided),
            };
            rounds += 1;
            assert!(
                rounds <= LOAD_ROUNDS_MAX,
                "{} asks a round too many",
                std::any::type_name::<O>()
            );
            let Loaded { revision: at, rows: loaded } =
                now_or_panic(self.store.load(aggregate, &wanted)).unwrap();
            if rounds > 1 && at != revision {
                (rows, revision, rounds) = (Rows::new(), None, 0);
                continue;
            }
            revision = at;
            rows.extend(wanted.into_iter().zip(loaded.into_iter().map(|row| row.map(Arc::new))));
            self.foreign();
        }
    }

    /// Something else happens in the gap.
    fn foreign(&mut self) {
        if self.draining || self.depth >= DEPTH_MAX || !self.rng.chance(4) {
            return;
        }
        self.depth += 1;
        for _ in 0..=self.rng.below(3) {
            self.act();
        }
        self.depth -= 1;
    }

    fn check(&mut self, aggregate: &Aggregate) {
        let Some(session) = aggregate.session() else { return };
        let rows = self.snapshot(session);
        let mut indexes =
            vec![Index::Ready, Index::Due, Index::Outbox, Index::Relay, Index::Expire];
        for node in &self.nodes {
            indexes.push(Index::Home(Home::Spool(node.spool.clone())));
            indexes.push(Index::Wish(Home::Spool(node.spool.clone())));
        }
        let mut have = vec![];
        for index in indexes {
            let members = self.members(&index, u64::MAX);
            have.extend(
                members
                    .into_iter()
                    .filter(|member| member.aggregate == *aggregate)
                    .map(|member| (index.clone(), member.key, member.score)),
            );
        }
        self.history.check(aggregate, &rows, &have);
    }

    // ------------------------------------------------------------ actions

    /// One action, chosen by the dice.
    pub(crate) fn act(&mut self) {
        match self.rng.below(100) {
            0..10 => self.say(),
            10..14 => self.change_message(),
            14..26 => self.claim(),
            26..58 => self.drive(),
            58..64 => self.launch_one(),
            64..70 => self.exit_one(),
            70..76 => self.report_one(),
            76..82 => self.deliver(),
            82..84 => self.sweep(),
            84..90 => self.pass_time(),
            90..92 => self.stop(),
            92..94 => self.cancel(),
            94..96 => self.crash(),
            96..97 => self.compact(),
            _ => self.look_after_nodes(),
        }
    }

    fn up(&mut self) -> Option<usize> {
        let up: Vec<usize> = (0..self.nodes.len()).filter(|i| self.nodes[*i].up).collect();
        self.rng.pick(&up)
    }

    fn session(&mut self) -> SessionId {
        let sessions = self.sessions.clone();
        self.rng.pick(&sessions).unwrap()
    }

    fn incoming(&mut self, session: &SessionId, what: What) -> Incoming {
        let mut keys = vec![DedupeKey::new(format!("ts-{}", self.fresh())).unwrap()];
        if self.rng.chance(50) {
            keys.push(DedupeKey::new(format!("id-{}", self.fresh())).unwrap());
        }
        // A repeat by one of its keys, with another one new.
        let known = self.keys.get(session).cloned().unwrap_or_default();
        if let Some(old) = self.rng.pick(&known)
            && self.rng.chance(20)
        {
            keys.push(old);
        }
        let back_ms = if self.rng.chance(20) { 60_000 } else { 0 };
        let who = if self.rng.chance(80) { "ann" } else { "bob" };
        Incoming {
            keys,
            what,
            principal: Principal::new(who).unwrap(),
            address: Address { surface: "sim".into(), thread: session.to_string() },
            source_at: Timestamp::from_ms(self.now().as_ms() - back_ms),
        }
    }

    fn accept(&mut self, session: &SessionId, incoming: Incoming) {
        let Some(node) = self.up() else { return };
        let accept = Accept {
            session: session.clone(),
            incoming: incoming.clone(),
            chain: Allowance { wakes: 6, tokens: 2_000_000, spawns: 30 },
        };
        let mut answer = self.run(node, &accept);
        // A sender that got no answer sends again.
        while answer == Err(Ran::Lost) {
            let Some(node) = self.up() else { return };
            answer = self.run(node, &accept);
        }
        self.tell(format!("accept {session} {:?} -> {answer:?}", incoming.what));
        if let Ok(Accepted::New(seq) | Accepted::Late(seq) | Accepted::Duplicate(seq)) = answer {
            let aggregate = Aggregate::Session(session.clone());
            self.history.accepted.entry(aggregate).or_default().insert(seq);
            self.keys.entry(session.clone()).or_default().extend(incoming.keys);
        }
    }

    fn say(&mut self) {
        let session = self.session();
        let text = format!("message {}", self.fresh());
        let incoming = self.incoming(&session, What::Message { text });
        self.accept(&session, incoming);
    }

    fn change_message(&mut self) {
        let session = self.session();
        let known = self.keys.get(&session).cloned().unwrap_or_default();
        let Some(of) = self.rng.pick(&known) else { return };
        let what = if self.rng.chance(50) {
            What::Edit { of, text: format!("edited {}", self.fresh()) }
        } else {
            What::Deletion { of }
        };
        let incoming = self.incoming(&session, what);
        self.accept(&session, incoming);
    }

    fn claim(&mut self) {
        let Some(node) = self.up() else { return };
        let now = self.now().as_ms();
        let until = if self.sole { now + LEASE_MS } else { now };
        let ready = self.members(&Index::Ready, until);
        let Some(member) = self.rng.pick(&ready) else { return };
        let session = member.aggregate.session().unwrap().clone();
        // One task of a boot runs a session.
        let boot = self.boot(node);
        if self.drivers.iter().any(|d| d.node == node && d.token.session == session && !d.over) {
            return;
        }
        let claim = Claim {
            session: session.clone(),
            boot,
            claim: ClaimId::new(self.fresh()).unwrap(),
            nonce: Nonce::new(format!("k{}", self.fresh())).unwrap(),
        };
        let mut answer = self.run(node, &claim);
        if answer == Err(Ran::Lost) {
            if self.rng.chance(30) || !self.nodes[node].up || self.boot(node) != claim.boot {
                return;
            }
            answer = self.run(node, &claim);
        }
        self.tell(format!("claim {session} by {node} -> {answer:?}"));
        if let Ok(Claimed::Turn(token, row)) = answer {
            let aggregate = Aggregate::Session(session);
            self.history.claims.insert(aggregate, token.claim.clone());
            if self.boot(node) == claim.boot {
                let driver = Driver::resume(self, node, token, *row);
                self.drivers.push(driver);
            }
        }
    }

    fn drive(&mut self) {
        if self.drivers.is_empty() {
            return self.claim();
        }
        let i = self.rng.below(self.drivers.len());
        let mut driver = self.drivers.swap_remove(i);
        for _ in 0..=self.rng.below(4) {
            if driver.over {
                break;
            }
            driver.act(self);
        }
        // A node that crashed in between has taken its drivers along.
        if !driver.over && (self.nodes[driver.node].up || !self.sole) {
            self.drivers.push(driver);
        }
    }

    fn pass_time(&mut self) {
        let ms = match self.rng.below(10) {
            0..6 => self.rng.below(3_000),
            6..9 => self.rng.below(20_000),
            _ => self.rng.below(400_000),
        };
        self.clock.advance(ms as u64);
        for i in 0..self.nodes.len() {
            if self.nodes[i].up && self.rng.chance(90) {
                self.beat(i);
            }
        }
    }

    fn stop(&mut self) {
        let Some(node) = self.up() else { return };
        let session = self.session();
        let scope = if self.rng.chance(50) { Scope::All } else { Scope::Turn };
        let stop = Stop {
            session: session.clone(),
            scope,
            stop: StopId::new(self.fresh()).unwrap(),
            source_at: self.now(),
            by: Principal::new("ann").unwrap(),
        };
        if scope == Scope::All {
            let aggregate = Aggregate::Session(session.clone());
            *self.history.stops_of_all.entry(aggregate).or_default() += 1;
        }
        let mut answer = self.run(node, &stop);
        while answer == Err(Ran::Lost) {
            let Some(node) = self.up() else { return };
            answer = self.run(node, &stop);
        }
        self.tell(format!("stop {scope:?} {session} -> {answer:?}"));
    }

    fn cancel(&mut self) {
        let Some(node) = self.up() else { return };
        let session = self.session();
        let Some(execution) = self.rng_live(&session) else { return };
        let by = CancelledBy::Person {
            principal: Principal::new("ann").unwrap(),
            press: PressId::new(self.fresh()).unwrap(),
        };
        let _ = self.run(node, &Cancel { session, execution, by });
    }

    fn compact(&mut self) {
        let Some(driver) = self.drivers.last() else { return };
        let (node, token) = (driver.node, driver.token.clone());
        let head: Head = self.row(&token.session, &Key::head()).unwrap_or_default();
        let upto = head.tlen - self.rng.below(3).min(usize::try_from(head.tlen).unwrap()) as u64;
        let _ = self.run(node, &Compact { token, upto, summary: "so far".into() });
    }

    // ------------------------------------------------------------ processes

    pub(crate) fn launch(&mut self, node: usize, session: &SessionId, id: &ExecutionId) {
        self.nodes[node].launches.push_back((session.clone(), id.clone()));
    }

    fn launch_one(&mut self) {
        let Some(node) = self.up() else { return };
        let Some(work) = self.nodes[node].launches.pop_front() else { return };
        self.nodes[node].processes.insert(work.clone(), Process::Waiting);
        self.start(node, &work);
    }

    fn start(&mut self, node: usize, work: &Work) {
        let boot = self.boot(node);
        let started =
            Started { session: work.0.clone(), execution: work.1.clone(), boot: boot.clone() };
        let mut answer = self.run(node, &started);
        while answer == Err(Ran::Lost) && self.nodes[node].up && self.boot(node) == boot {
            answer = self.run(node, &started);
        }
        if !self.nodes[node].up || self.boot(node) != boot {
            return;
        }
        self.follow(node, work, answer);
    }

    fn follow(&mut self, node: usize, work: &Work, answer: Result<Go, Ran>) {
        let until = self.now().plus_ms(self.rng.below(25_000) as u64);
        let waits = self.nodes[node].processes.get(work) == Some(&Process::Waiting);
        match answer {
            Ok(Go::Run) if waits => {
                let running = Process::Running { until };
                self.nodes[node].processes.insert(work.clone(), running);
            }
            Ok(Go::Run) | Err(Ran::Lost) => {}
            Ok(Go::Cancel) => self.end_process(node, &work.0, &work.1),
            Err(Ran::Refused(_)) => {
                self.nodes[node].processes.remove(work);
            }
        }
    }

    /// The home ends a process that was cancelled, and reports it.
    pub(crate) fn end_process(&mut self, _by: usize, session: &SessionId, id: &ExecutionId) {
        let work = (session.clone(), id.clone());
        let home = (0..self.nodes.len()).find(|i| self.nodes[*i].processes.contains_key(&work));
        let Some(node) = home else { return };
        if !matches!(self.nodes[node].processes.get(&work), Some(Process::Done(_))) {
            let outcome = Outcome::bare(Status::Cancelled, "cancelled");
            self.nodes[node].processes.insert(work.clone(), Process::Done(outcome));
        }
        if self.nodes[node].up {
            self.report(node, &work);
        }
    }

    /// A process ends by itself; its spool keeps the record whether or not its bot is there.
    fn exit_one(&mut self) {
        let node = self.rng.below(self.nodes.len());
        let now = self.now();
        let running: Vec<Work> = self.nodes[node]
            .processes
            .iter()
            .filter(|(_, p)| matches!(p, Process::Running { .. }))
            .map(|(work, _)| work.clone())
            .collect();
        let Some(work) = self.rng.pick(&running) else { return };
        let Some(Process::Running { until }) = self.nodes[node].processes.get(&work).cloned()
        else {
            return;
        };
        let status = match self.rng.below(10) {
            _ if now < until => return,
            0..7 => Status::Completed,
            7..9 => Status::Failed,
            _ => Status::TimedOut,
        };
        let outcome = Outcome::bare(status, format!("exit {}", self.fresh()));
        self.nodes[node].processes.insert(work.clone(), Process::Done(outcome));
        if self.nodes[node].up {
            self.nodes[node].reports.push_back(work);
        }
    }

    fn report_one(&mut self) {
        let Some(node) = self.up() else { return };
        let Some(work) = self.nodes[node].reports.pop_front() else { return };
        if !self.report(node, &work) || self.rng.chance(10) {
            // Not answered, or said twice.
            self.nodes[node].reports.push_back(work);
        }
    }

    /// Answers whether the ledger answered.
    fn report(&mut self, node: usize, work: &Work) -> bool {
        let Some(Process::Done(outcome)) = self.nodes[node].processes.get(work).cloned() else {
            return true;
        };
        let complete = Complete {
            session: work.0.clone(),
            execution: work.1.clone(),
            outcome,
            boot: self.boot(node),
        };
        let answer = self.run(node, &complete);
        self.tell(format!("report {} by {node} -> {answer:?}", work.1));
        answer != Err(Ran::Lost)
    }

    // ------------------------------------------------------------ nodes

    fn beat(&mut self, node: usize) {
        let spool = Some(self.nodes[node].spool.clone());
        let boot = self.boot(node);
        match self.run(node, &Beat { boot, spool }) {
            // A buried boot takes a new id.
            Err(Ran::Refused(Refusal::Buried)) => {
                self.kill(node);
                self.boot_up(node);
            }
            Ok(_) | Err(_) => {}
        }
    }

    fn crash(&mut self) {
        let Some(node) = self.up() else { return };
        self.tell(format!("crash {node}"));
        self.kill(node);
    }

    fn kill(&mut self, node: usize) {
        self.nodes[node].up = false;
        self.nodes[node].launches.clear();
        self.nodes[node].reports.clear();
        // Where several nodes share a store, a node that only stood still goes on later, with
        // drivers whose lanes are somebody else's by then.
        if self.sole || self.rng.chance(60) {
            self.drivers.retain(|driver| driver.node != node);
        }
    }

    fn boot_up(&mut self, node: usize) {
        let boot = BootId::new(format!("boot-{}", self.fresh())).unwrap();
        self.tell(format!("start {node} as {boot}"));
        self.nodes[node].boot = boot.clone();
        self.nodes[node].up = true;
        let spool = Some(self.nodes[node].spool.clone());
        while self.run(node, &Beat { boot: boot.clone(), spool: spool.clone() }) == Err(Ran::Lost) {
        }
        if self.sole {
            for member in self.members(&Index::Nodes, u64::MAX) {
                let Aggregate::Node(other) = &member.aggregate else { continue };
                if *other != boot {
                    while self.run(node, &Bury { boot: other.clone(), seen: 0 }) == Err(Ran::Lost) {
                    }
                }
            }
        }
        self.adopt(node);
    }

    fn adopt(&mut self, node: usize) {
        let boot = self.boot(node);
        let works: Vec<Work> = self.nodes[node].processes.keys().cloned().collect();
        for work in works.clone() {
            self.adopt_one(node, &boot, &work, true);
        }
        // What the ledger has here and the spool has not was never launched.
        for member in self.members(&Index::Home(self.home(node)), u64::MAX) {
            let session = member.aggregate.session().unwrap().clone();
            let id = ExecutionId::new(member.key.as_str().strip_prefix("x/").unwrap()).unwrap();
            let work = (session, id);
            let launching = self.nodes[node].launches.contains(&work);
            if works.contains(&work) || launching || self.boot(node) != boot {
                continue;
            }
            self.adopt_one(node, &boot, &work, false);
            let lost = Outcome::bare(Status::Lost, "never-started");
            self.nodes[node].processes.insert(work.clone(), Process::Done(lost));
            self.nodes[node].reports.push_back(work);
        }
    }

    fn adopt_one(&mut self, node: usize, boot: &BootId, work: &Work, known: bool) {
        let done = matches!(self.nodes[node].processes.get(work), Some(Process::Done(_)));
        let adopt = Adopt {
            session: work.0.clone(),
            execution: work.1.clone(),
            home: self.home(node),
            to: boot.clone(),
            held: known && !done,
        };
        let mut answer = self.run(node, &adopt);
        while answer == Err(Ran::Lost) && self.nodes[node].up && self.boot(node) == *boot {
            answer = self.run(node, &adopt);
        }
        if !self.nodes[node].up || self.boot(node) != *boot {
            return;
        }
        if done {
            self.nodes[node].reports.push_back(work.clone());
        } else if known {
            self.follow(node, work, answer);
        }
    }

    fn look_after_nodes(&mut self) {
        let i = self.rng.below(self.nodes.len());
        if !self.nodes[i].up {
            return self.boot_up(i);
        }
        if self.sole {
            return;
        }
        for member in self.members(&Index::Nodes, u64::MAX) {
            let Aggregate::Node(other) = member.aggregate.clone() else { continue };
            let keys = [Key::beat()];
            let loaded = now_or_panic(self.store.load(&member.aggregate, &keys)).unwrap();
            let Some(Row::Beat(BeatRow { counter, .. })) = loaded.rows.into_iter().next().flatten()
            else {
                continue;
            };
            let now = self.now();
            let seen = self.nodes[i].seen.entry(other.clone()).or_insert((counter, now)).clone();
            if seen.0 != counter {
                self.nodes[i].seen.insert(other, (counter, now));
            } else if now.since_ms(seen.1) >= LEASE_MS && other != self.boot(i) {
                let answer = self.run(i, &Bury { boot: other.clone(), seen: counter });
                self.tell(format!("bury {other} by {i} -> {answer:?}"));
            }
        }
    }

    fn buried(&self) -> BTreeSet<BootId> {
        let living: BTreeSet<Aggregate> =
            self.members(&Index::Nodes, u64::MAX).into_iter().map(|m| m.aggregate).collect();
        let all = now_or_panic(self.store.aggregates(None, usize::MAX)).unwrap();
        let dead = all.into_iter().filter(|aggregate| !living.contains(aggregate));
        let boots = dead.filter_map(|aggregate| match aggregate {
            Aggregate::Node(boot) => Some(boot),
            Aggregate::Session(_) => None,
        });
        boots.collect()
    }

    fn sweep(&mut self) {
        let Some(node) = self.up() else { return };
        let buried = self.buried();
        for member in self.members(&Index::Due, self.now().as_ms()) {
            let session = member.aggregate.session().unwrap().clone();
            let id = ExecutionId::new(member.key.as_str().strip_prefix("x/").unwrap()).unwrap();
            let Some(execution) = self.execution(&session, &id) else { continue };
            let gone = Some(execution.boot.clone()).filter(|boot| buried.contains(boot));
            let answer =
                self.run(node, &Overdue { session, execution: id.clone(), buried: gone.clone() });
            self.tell(format!("overdue {id} buried {gone:?} -> {answer:?}"));
        }
        for member in self.members(&Index::Wish(self.home(node)), u64::MAX) {
            let session = member.aggregate.session().unwrap().clone();
            let id = ExecutionId::new(member.key.as_str().strip_prefix("x/").unwrap()).unwrap();
            self.end_process(node, &session, &id);
        }
    }

    // ------------------------------------------------------------ outbox

    fn deliver(&mut self) {
        let Some(node) = self.up() else { return };
        // A delivery that hung goes on, maybe after its lease.
        if !self.deliveries.is_empty() && self.rng.chance(60) {
            let i = self.rng.below(self.deliveries.len());
            let (session, item, lease) = self.deliveries.swap_remove(i);
            return self.settle(node, session, item, lease);
        }
        let now = self.now().as_ms();
        let mut due = self.members(&Index::Outbox, now);
        due.extend(self.members(&Index::Relay, now));
        let Some(member) = self.rng.pick(&due) else { return };
        let session = member.aggregate.session().unwrap().clone();
        let item = ItemId::new(member.key.as_str().strip_prefix("m/").unwrap()).unwrap();
        let lease = LeaseId::new(self.fresh()).unwrap();
        let operation = LeaseItem {
            session: session.clone(),
            item: item.clone(),
            lease: lease.clone(),
            boot: self.boot(node),
        };
        if let Ok(Leased::Item(leased)) = self.run(node, &operation) {
            self.kill_process(&session, &leased);
            self.deliveries.push((session, item, lease));
        }
    }

    fn kill_process(&mut self, session: &SessionId, item: &Item) {
        if let Errand::Kill { execution, .. } = &item.errand {
            let work = (session.clone(), execution.clone());
            for node in &mut self.nodes {
                if let Some(process) = node.processes.get_mut(&work)
                    && !matches!(process, Process::Done(_))
                {
                    *process = Process::Done(Outcome::bare(Status::Cancelled, "killed"));
                }
            }
        }
    }

    fn settle(&mut self, node: usize, session: SessionId, item: ItemId, lease: LeaseId) {
        if self.rng.chance(70) || self.draining {
            let _ = self.run(node, &DoneItem { session, item, receipt: "posted".into() });
        } else {
            let retry = if self.rng.chance(80) {
                Retry::At { at: self.now().plus_ms(5_000), uncertain: self.rng.chance(50) }
            } else {
                Retry::Never("the channel is gone".into())
            };
            let _ = self.run(node, &FailItem { session, item, lease, retry });
        }
    }

    // ------------------------------------------------------------ the end

    /// The faults stop; everything runs to quiescence; one message a session takes the riders.
    pub(crate) fn drain(&mut self) {
        self.draining = true;
        for i in 0..self.nodes.len() {
            if !self.nodes[i].up {
                self.boot_up(i);
            }
        }
        self.run_dry();
        // Sent after every stop.
        self.clock.advance(1);
        for session in self.sessions.clone() {
            for who in ["ann", "bob"] {
                let incoming = Incoming {
                    keys: vec![DedupeKey::new(format!("last-{}", self.fresh())).unwrap()],
                    what: What::Message { text: "and now?".into() },
                    principal: Principal::new(who).unwrap(),
                    address: Address { surface: "sim".into(), thread: session.to_string() },
                    source_at: self.now(),
                };
                self.accept(&session, incoming);
            }
        }
        self.run_dry();
        for session in self.sessions.clone() {
            self.final_checks(&session);
        }
    }

    fn run_dry(&mut self) {
        for _ in 0..DRAIN_ROUNDS_MAX {
            if self.is_dry() {
                return;
            }
            for _ in 0..4 {
                self.claim();
                self.drive();
            }
            self.launch_one();
            self.exit_one();
            self.report_one();
            self.deliver();
            self.sweep();
            self.clock.advance(400);
            for i in 0..self.nodes.len() {
                self.beat(i);
            }
        }
        let rows: Vec<_> = self
            .sessions
            .iter()
            .map(|s| (s, self.row::<Head>(s, &Key::head()), self.row::<Live>(s, &Key::live())))
            .collect();
        panic!("the world does not come to rest: {rows:#?}");
    }

    fn is_dry(&mut self) -> bool {
        self.drivers.retain(|driver| !driver.over);
        let index = |world: &Self, index| !world.members(&index, u64::MAX).is_empty();
        let busy = index(self, Index::Ready)
            || index(self, Index::Due)
            || index(self, Index::Outbox)
            || index(self, Index::Relay);
        !busy && self.drivers.is_empty()
    }

    /// Every completion has exactly one fate, everybody who wrote was read or told.
    fn final_checks(&self, session: &SessionId) {
        let rows = self.snapshot(session);
        let balance = audit(&rows);
        assert!(balance.is_even(), "{balance:#?}");
        assert_eq!((balance.live, balance.pending, balance.offered), (0, 0, 0), "{session}");
        let inbox = self.row::<Inbox>(session, &Key::inbox()).unwrap_or_default();
        assert_eq!(inbox, Inbox::default(), "somebody is not read");
        let mut dead = 0;
        for arrival in rows.values().filter_map(Arrival::of) {
            match &arrival.standing {
                Standing::Settled { fate, .. } => {
                    dead += usize::from(matches!(fate, Fate::Dead(_)))
                }
                Standing::Withdrawn => {}
                Standing::Pending | Standing::Offered(_) => panic!("{arrival:?} has no fate"),
            }
        }
        let told = rows
            .values()
            .filter_map(Item::of)
            .filter(|item| item.id.as_str().starts_with("dead/"))
            .count();
        assert!(dead <= told, "{dead} arrivals died, {told} were told");
        for execution in rows.values().filter_map(Execution::of) {
            assert!(matches!(execution.state, State::Ended(_)), "{} lives", execution.id);
            assert_ne!(execution.model, ModelReceipt::None, "{} has no receipt", execution.id);
        }
    }
}
