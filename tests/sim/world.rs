//! The world itself: clock, store, nodes, and running one operation with whatever may go wrong.

use std::collections::{BTreeMap, VecDeque};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use dogwatch::core::arrival::{Arrival, Body};
use dogwatch::core::execution::{Execution, Home};
use dogwatch::core::id::{BootId, DedupeKey, ExecutionId, ItemId, LeaseId, SessionId, SpoolId};
use dogwatch::core::ledger::row::{Chain, Live, RowType, Turn};
use dogwatch::core::ledger::session::Token;
use dogwatch::core::ledger::{
    Aggregate, Change, Index, Key, Operation, Refusal, Revision, Rows, Situation, Step, step,
};
use dogwatch::core::limits::LOAD_ROUNDS_MAX;
use dogwatch::core::time::Timestamp;
use dogwatch::core::transcript::Entry;
use dogwatch::engine::{Ledger, LedgerError};
use dogwatch::ports::{Applied, Clock, Ids, Member, Store};
use dogwatch::store::ManualClock;

use super::check::{By, History};
use super::driver::Driver;
use super::gate::{Gate, Waiting};
use super::nodes::Node;
use super::reach::Reach;
use super::rng::Rng;
use super::{Setting, seen};

/// Foreign actions inside one operation, so deep.
const DEPTH_MAX: usize = 2;

/// A store that can be closed and opened again.
pub(crate) trait Place {
    fn store(&self) -> Arc<dyn Store>;
    /// Closes it and opens it again.
    fn reopen(&mut self);
    /// Forgets what was not on disk for sure; `false` where that cannot be shown.
    fn lose_power(&mut self) -> bool;
}

/// Who runs operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Runner {
    /// Load, decide, apply, and nothing else.
    Plain,
    /// The engine's, with its mailboxes and the rows it keeps.
    Engine,
}

/// Why an operation gave no answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Ran {
    /// The ledger refused it.
    Refused(Refusal),
    /// Nobody knows whether it was applied.
    Lost,
}

pub(crate) struct World {
    pub(crate) rng: Rng,
    pub(super) clock: ManualClock,
    pub(super) setting: Setting,
    pub(super) place: Box<dyn Place>,
    pub(super) gate: Arc<Gate>,
    pub(super) sessions: Vec<SessionId>,
    pub(super) nodes: Vec<Node>,
    pub(super) drivers: Vec<Driver>,
    /// Boots of the claims and drivers that are just acting.
    pub(super) seats: Vec<BootId>,
    pub(super) history: History,
    pub(super) keys: BTreeMap<SessionId, Vec<DedupeKey>>,
    /// The operation that runs takes what came and writes nothing else.
    pub(super) only_takes: bool,
    /// Items whose try is under way at another place, with the lease.
    pub(super) deliveries: Vec<(SessionId, ItemId, LeaseId)>,
    ids: u64,
    depth: usize,
    applies: u64,
    pub(super) story: VecDeque<String>,
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a store on this thread.
pub(super) fn wait<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(done) => return done,
            Poll::Pending => std::thread::park(),
        }
    }
}

impl World {
    pub(crate) fn new(setting: Setting, place: Box<dyn Place>) -> Self {
        let gate = Arc::new(Gate::new(setting.seed, place.store()));
        let mut world = Self {
            rng: Rng::new(setting.seed),
            clock: ManualClock::new(Timestamp::from_ms(1_800_000_000_000)),
            setting,
            place,
            gate,
            sessions: (0..3).map(|i| SessionId::new(format!("sim/{i}")).unwrap()).collect(),
            nodes: vec![],
            drivers: vec![],
            seats: vec![],
            history: History::default(),
            keys: BTreeMap::new(),
            only_takes: false,
            deliveries: vec![],
            ids: 0,
            depth: 0,
            applies: 0,
            story: VecDeque::new(),
        };
        world.history.facts.sole = setting.sole;
        for i in 0..if setting.sole { 1 } else { 3 } {
            world.nodes.push(Node::new(SpoolId::new(format!("spool{i}")).unwrap()));
            world.boot_up(i);
        }
        world
    }

    pub(crate) fn reach(&self) -> Reach {
        self.history.facts.reach.clone()
    }

    pub(super) fn count(&mut self, what: &'static str) {
        self.history.facts.reach.count(what);
    }

    pub(crate) fn story(&self, last: usize) -> String {
        let skip = self.story.len().saturating_sub(last);
        self.story.iter().skip(skip).cloned().collect::<Vec<_>>().join("\n")
    }

    pub(super) fn tell(&mut self, what: &str) {
        self.story.push_back(format!("{} {what}", self.now().as_ms() % 100_000_000_000));
        if self.story.len() > 200 {
            self.story.pop_front();
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn draining(&self) -> bool {
        self.history.facts.drained_from.is_some()
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

    pub(super) fn row<T: RowType>(&self, session: &SessionId, key: &Key) -> Option<T> {
        self.history.row(&Aggregate::Session(session.clone()), key)
    }

    pub(crate) fn execution(&self, session: &SessionId, id: &ExecutionId) -> Option<Execution> {
        self.row(session, &Key::execution(id))
    }

    pub(crate) fn chain(&self, session: &SessionId, no: u64) -> Option<Chain> {
        self.row(session, &Key::chain(no))
    }

    pub(crate) fn turn(&self, session: &SessionId, no: u64) -> Option<Turn> {
        self.row(session, &Key::turn(no))
    }

    pub(crate) fn log(&self, session: &SessionId, base: u64, len: u64) -> Vec<(u64, Entry)> {
        let entry = |no| Some((no, self.row::<Entry>(session, &Key::entry(no))?));
        (base..base + len).filter_map(entry).collect()
    }

    pub(super) fn members(&self, index: &Index, until: u64) -> Vec<Member> {
        self.history.members(index, until)
    }

    pub(crate) fn rng_live(&mut self, session: &SessionId) -> Option<ExecutionId> {
        let live = self.row::<Live>(session, &Key::live()).unwrap_or_default();
        self.rng.pick(&live.0)
    }

    /// The store holds what was applied, no more and no less.
    pub(super) fn compare(&mut self) {
        let (rows, members) = self.history.all();
        let store = self.place.store();
        for (aggregate, want) in rows {
            let have = wait(store.rows(aggregate, None, usize::MAX)).unwrap();
            let have: BTreeMap<_, _> = have.into_iter().collect();
            assert_eq!(have, *want, "{aggregate} in the store");
        }
        for (index, want) in members {
            let have = wait(store.members(index, u64::MAX, None, usize::MAX)).unwrap();
            let want: Vec<_> = want.iter().cloned().collect();
            assert_eq!(have, want, "{index} in the store");
        }
    }

    // ------------------------------------------------------------ operations

    /// Runs an operation as a node does, with whatever may go wrong.
    pub(crate) fn run<O: Operation>(&mut self, node: usize, op: &O) -> Result<O::Output, Ran> {
        self.run_as(node, None, op)
    }

    /// Likewise, as the holder of a lane.
    pub(crate) fn run_as<O: Operation>(
        &mut self,
        node: usize,
        token: Option<&Token>,
        op: &O,
    ) -> Result<O::Output, Ran> {
        let operation = std::any::type_name::<O>().rsplit("::").next().unwrap();
        let by = By { operation, boot: self.boot(node), token: token.cloned() };
        // Writes that are under way twice in one process are an affair of its mailbox; a gap
        // shows another process, so it has a runner of its own.
        let gaps = !self.draining() && self.depth < DEPTH_MAX && !self.keeps_rows_alone();
        self.gate.set(!self.draining(), gaps);
        let sole_boot = self.setting.sole.then(|| by.boot.clone());
        let (gate, clock) = (Arc::clone(&self.gate), self.clock.clone());
        let result = match self.setting.runner {
            Runner::Plain => self.poll(&by, pin!(plain(&gate, &clock, sole_boot.as_ref(), op))),
            Runner::Engine => {
                let ledger = self.ledger(node, sole_boot.as_ref());
                self.poll(&by, pin!(through(&ledger, op)))
            }
        };
        let (lost, conflicts) = self.gate.faults();
        if lost > 0 {
            self.count("an answer lost");
        }
        if conflicts > 0 {
            self.count("a conflict");
        }
        if token.is_some() && matches!(result, Err(Ran::Refused(Refusal::Fenced))) {
            self.count("a stale holder refused");
        }
        if result.is_ok() && self.depth == 0 && self.rng.chance(4) {
            self.repeat(op, &by);
        }
        result
    }

    /// No operation is under way.
    pub(super) fn is_at_rest(&self) -> bool {
        self.depth == 0
    }

    fn keeps_rows_alone(&self) -> bool {
        self.setting.sole && self.setting.runner == Runner::Engine
    }

    fn ledger(&mut self, node: usize, sole_boot: Option<&BootId>) -> Arc<Ledger> {
        let (gate, clock) = (Arc::clone(&self.gate), self.clock.clone());
        let ledgers = &mut self.nodes[node].ledgers;
        while ledgers.len() <= self.depth {
            let store: Arc<dyn Store> = gate.clone();
            let ids: Arc<dyn Ids> = gate.clone();
            let ledger = Ledger::new(store, Arc::new(clock.clone()), ids, sole_boot.cloned());
            ledgers.push(Arc::new(ledger));
        }
        Arc::clone(&ledgers[self.depth])
    }

    /// Polls until there is an answer; in each gap other things happen, and after every apply
    /// everything is checked.
    fn poll<T>(&mut self, by: &By, mut running: std::pin::Pin<&mut impl Future<Output = T>>) -> T {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        loop {
            let polled = running.as_mut().poll(&mut Context::from_waker(&waker));
            for change in self.gate.applied() {
                self.applies += 1;
                self.history.check(change, by);
            }
            if let Poll::Ready(done) = polled {
                return done;
            }
            match self.gate.waiting() {
                Waiting::Gap => self.foreign(),
                Waiting::Store => std::thread::park(),
                // A conflict is tried again a moment later.
                Waiting::Clock => self.clock.advance(2),
            }
            let gaps = !self.draining() && self.depth < DEPTH_MAX && !self.keeps_rows_alone();
            self.gate.set(!self.draining(), gaps);
        }
    }

    /// Something else happens in the gap.
    fn foreign(&mut self) {
        self.depth += 1;
        for _ in 0..=self.rng.below(5) {
            self.act();
        }
        self.depth -= 1;
    }

    /// A repeat of what was just answered changes nothing.
    fn repeat<O: Operation>(&mut self, op: &O, by: &By) {
        // A beat counts on; a claim that buried, or found riders, goes on to the next turn; another
        // lease may be asked for with the same words.
        if self.only_takes || ["Beat", "Claim", "LeaseItem"].contains(&by.operation) {
            return;
        }
        let sole_boot = self.setting.sole.then(|| by.boot.clone());
        let at = Situation { now: self.now(), sole_boot };
        let aggregate = op.aggregate();
        let all = self.history.snapshot(&aggregate);
        let mut rows = Rows::new();
        let again = loop {
            match step(op, &at, &mut rows) {
                Step::Load(keys) => rows.extend(keys.into_iter().map(|key| {
                    let row = all.get(&key).cloned().map(Arc::new);
                    (key, row)
                })),
                Step::Decided(again) => break again,
            }
        };
        self.count("a repeat that changed nothing");
        if let Ok((_, finished)) = again {
            assert!(
                !finished.changed,
                "a repeat of {} changed {:#?}",
                by.operation, finished.writes
            );
        }
    }

    // ------------------------------------------------------------ actions

    /// One action, chosen by the dice.
    pub(crate) fn act(&mut self) {
        match self.rng.below(1_000) {
            0..100 => self.say(),
            100..140 => self.change_message(),
            140..260 => self.claim(),
            260..564 => self.drive(),
            564..570 => self.show_turn(),
            570..630 => self.launch_one(),
            630..690 => self.exit_one(),
            690..750 => self.report_one(),
            750..810 => self.deliver(),
            810..826 => self.sweep(),
            826..830 => self.look_at_places(),
            830..890 => self.pass_time(),
            890..910 => self.stop(),
            910..930 => self.cancel(),
            930..950 => self.crash(),
            950..960 => self.compact(),
            960..964 => self.lose_power(),
            _ => self.look_after_nodes(),
        }
        if self.depth == 0 && self.applies >= 200 {
            self.applies = 0;
            self.compare();
        }
    }

    pub(super) fn up(&mut self) -> Option<usize> {
        let up: Vec<usize> = (0..self.nodes.len()).filter(|i| self.nodes[*i].up).collect();
        self.rng.pick(&up)
    }

    pub(super) fn session(&mut self) -> SessionId {
        let sessions = self.sessions.clone();
        self.rng.pick(&sessions).unwrap()
    }

    /// The machine loses power, and all that was not on disk for sure.
    fn lose_power(&mut self) {
        // Between two steps of somebody else there is nobody left to go on.
        if self.depth > 0 || !self.setting.sole || !self.place.lose_power() {
            return;
        }
        self.tell("power is lost");
        self.count("a machine without power");
        self.kill(0);
        self.deliveries.clear();
        let store = self.place.store();
        let known: Vec<Aggregate> = self.history.all().0.keys().cloned().collect();
        for aggregate in known {
            let rows = wait(store.rows(&aggregate, None, usize::MAX)).unwrap();
            self.history.rebase(&aggregate, rows.into_iter().collect());
        }
    }

    /// What a turn has to answer that no model can.
    pub(super) fn poison_of(&self, token: &Token) -> Option<String> {
        let turn: Turn = self.row(&token.session, &Key::turn(token.turn))?;
        turn.carried.iter().skip(turn.seen).find_map(|carried| {
            let arrival: Arrival = self.row(&token.session, &Key::arrival(carried.seq))?;
            match arrival.body {
                Body::Message { ref text } if seen::is_poison(&arrival) => Some(text.clone()),
                Body::Message { .. } | Body::Remark { .. } | Body::Completion { .. } => None,
            }
        })
    }
}

async fn through<O: Operation>(ledger: &Ledger, op: &O) -> Result<O::Output, Ran> {
    ledger.run(op).await.map_err(|error| match error {
        LedgerError::Refused(refusal) => Ran::Refused(refusal),
        LedgerError::Store(_) => Ran::Lost,
        LedgerError::Contended { .. } => panic!("{error}"),
    })
}

/// Load, decide, apply; again after a conflict.
async fn plain<O: Operation>(
    gate: &Gate,
    clock: &ManualClock,
    sole_boot: Option<&BootId>,
    op: &O,
) -> Result<O::Output, Ran> {
    let aggregate = op.aggregate();
    for _ in 0..64 {
        let (revision, decided) = decide(gate, clock, sole_boot, op).await;
        let (output, finished) = decided.map_err(Ran::Refused)?;
        if !finished.changed {
            return Ok(output);
        }
        let change = Change {
            aggregate: aggregate.clone(),
            expected: revision,
            revision: Revision(gate.fresh()),
            writes: finished.writes,
            index: finished.index,
            class: op.class(),
        };
        match gate.apply(change).await {
            Err(_) => return Err(Ran::Lost),
            Ok(Applied::Conflict) => {}
            Ok(Applied::Applied | Applied::Already) => return Ok(output),
        }
    }
    panic!("an operation conflicts for ever");
}

type Decided<O> = Result<(<O as Operation>::Output, dogwatch::core::ledger::Finished), Refusal>;

async fn decide<O: Operation>(
    gate: &Gate,
    clock: &ManualClock,
    sole_boot: Option<&BootId>,
    op: &O,
) -> (Option<Revision>, Decided<O>) {
    let aggregate = op.aggregate();
    let mut rows = Rows::new();
    let mut revision = None;
    let mut rounds = 0;
    loop {
        let at = Situation { now: clock.now(), sole_boot: sole_boot.cloned() };
        let wanted = match step(op, &at, &mut rows) {
            Step::Load(wanted) => wanted,
            Step::Decided(decided) => return (revision, decided),
        };
        rounds += 1;
        assert!(rounds <= LOAD_ROUNDS_MAX, "{} asks a round too many", std::any::type_name::<O>());
        let loaded = gate.load(&aggregate, &wanted).await.unwrap();
        if rounds > 1 && loaded.revision != revision {
            (rows, revision, rounds) = (Rows::new(), None, 0);
            continue;
        }
        revision = loaded.revision;
        rows.extend(wanted.into_iter().zip(loaded.rows.into_iter().map(|row| row.map(Arc::new))));
    }
}
