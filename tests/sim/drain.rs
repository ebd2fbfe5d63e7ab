//! The end of a world: the faults stop, everything runs to quiescence, time passes, all is
//! forgotten.

use dogwatch::core::arrival::{Arrival, Incoming, Standing, What};
use dogwatch::core::execution::{Address, Execution, ModelReceipt, State};
use dogwatch::core::id::{DedupeKey, Principal, SessionId};
use dogwatch::core::ledger::audit::audit;
use dogwatch::core::ledger::node::ForgetNode;
use dogwatch::core::ledger::row::{Head, Inbox, Live, RowType};
use dogwatch::core::ledger::session::{Forget, Retire};
use dogwatch::core::ledger::{Aggregate, Index, Key};
use dogwatch::core::limits::RETENTION_MS;

use super::world::World;

/// Rounds of the drain; a world that needs more hangs.
const DRAIN_ROUNDS_MAX: u32 = 4_000;
/// Poisoned messages that may break one another's turns off before everything that rides is read.
const LAST_WORDS_MAX: u32 = 3;

impl World {
    /// The faults stop; everything runs to quiescence; one message a person takes the riders.
    pub(crate) fn drain(&mut self) {
        // In some worlds what is over is forgotten while other things still wait.
        if self.rng.chance(15) {
            self.clock.advance(RETENTION_MS + 86_400_000);
            self.forget();
        }
        self.clock.advance(1);
        self.history.facts.drained_from = Some(self.now());
        for i in 0..self.nodes.len() {
            if !self.nodes[i].up {
                self.boot_up(i);
            }
        }
        self.run_dry();
        for _ in 0..LAST_WORDS_MAX {
            self.last_words();
            self.run_dry();
            let read = |session| self.row::<Inbox>(session, &Key::inbox()).unwrap_or_default();
            if self.sessions.iter().all(|session| read(session) == Inbox::default()) {
                break;
            }
        }
        self.settle_places();
        for session in self.sessions.clone() {
            self.final_checks(&session);
        }
        self.compare();
        if self.rng.chance(30) {
            self.outlive();
        }
    }

    /// Everybody writes once more, which takes what rides. Where a poisoned message breaks that
    /// turn off, what rode with it goes back, and rides again.
    fn last_words(&mut self) {
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
                    continues: false,
                    shared: false,
                };
                self.accept(&session, &incoming);
            }
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
            self.look_after_nodes();
        }
        let rows: Vec<_> = self
            .sessions
            .iter()
            .map(|s| {
                let inbox = self.row::<Inbox>(s, &Key::inbox());
                (s, self.row::<Head>(s, &Key::head()), inbox, self.row::<Live>(s, &Key::live()))
            })
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
        let rows = self.history.snapshot(&Aggregate::Session(session.clone()));
        let balance = audit(&rows);
        assert!(balance.is_even(), "{balance:#?}");
        assert_eq!((balance.live, balance.pending, balance.offered), (0, 0, 0), "{session}");
        let inbox = self.row::<Inbox>(session, &Key::inbox()).unwrap_or_default();
        assert_eq!(inbox, Inbox::default(), "somebody is not read");
        for arrival in rows.values().filter_map(Arrival::of) {
            match &arrival.standing {
                Standing::Settled { .. } | Standing::Withdrawn => {}
                Standing::Pending | Standing::Offered(_) => panic!("{arrival:?} has no fate"),
            }
        }
        for execution in rows.values().filter_map(Execution::of) {
            assert!(matches!(execution.state, State::Ended(_)), "{} lives", execution.id);
            assert_ne!(execution.model, ModelReceipt::None, "{} has no receipt", execution.id);
        }
    }

    /// Past every retention nothing is left, and what comes then finds an empty house.
    fn outlive(&mut self) {
        self.clock.advance(RETENTION_MS + 86_400_000);
        self.forget();
        for session in self.sessions.clone() {
            // A session that never had anything to forget but a stop's note keeps that.
            let rows = self.history.snapshot(&Aggregate::Session(session.clone()));
            let head = rows.get(&Key::head()).and_then(Head::of);
            let unused = head.is_some_and(|head| head.turns == 0 && head.arrivals == 0);
            assert!(rows.is_empty() || unused, "{session} outlived everything: {rows:#?}");
        }
        let left = self.members(&Index::Expire, u64::MAX);
        assert!(left.is_empty(), "not forgotten: {left:?}");
        for _ in 0..6 {
            self.say();
        }
        self.run_dry();
    }

    /// Answers whether it took its session with it.
    fn retire(&mut self, node: usize, session: &SessionId, last: &Key) -> bool {
        let rows = self.history.snapshot(&Aggregate::Session(session.clone()));
        let rows: Vec<_> = rows.into_iter().collect();
        match Retire::of(session, &rows, last) {
            Some(retire) => self.run(node, &retire).unwrap(),
            None => false,
        }
    }

    /// As the sweep does: row by row, until nothing is left to do.
    fn forget(&mut self) {
        let now = self.now();
        let before = self.history.facts.drained_from.replace(now);
        for _ in 0..5_000 {
            let node = self.up().unwrap_or(0);
            let mut done = 0;
            for member in self.members(&Index::Expire, self.now().as_ms()) {
                match &member.aggregate {
                    Aggregate::Session(session) => {
                        let session = session.clone();
                        if self.retire(node, &session, &member.key) {
                            done += 1;
                            continue;
                        }
                        let forget = Forget { session, keys: vec![member.key] };
                        done += self.run(node, &forget).unwrap();
                    }
                    // None is told of in the simulator; places have no retention.
                    Aggregate::Installer | Aggregate::Installation(_) | Aggregate::Owner(_) => {}
                    Aggregate::Node(boot) => {
                        let boot = boot.clone();
                        done += usize::from(self.run(node, &ForgetNode { boot }).unwrap());
                    }
                }
            }
            if done == 0 {
                break;
            }
        }
        self.history.facts.drained_from = before;
    }
}
