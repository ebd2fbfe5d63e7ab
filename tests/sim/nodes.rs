//! Boots that begin, beat, fall silent, die and bury each other, and spools that outlive them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use dogwatch::core::execution::{Home, Outcome, Status};
use dogwatch::core::id::{BootId, ExecutionId, SessionId, SpoolId};
use dogwatch::core::ledger::node::{Beat, Bury};
use dogwatch::core::ledger::row::{Beat as BeatRow, Place};
use dogwatch::core::ledger::session::{Adopt, HomeLost, Overdue};
use dogwatch::core::ledger::{Aggregate, Index, Key, Refusal};
use dogwatch::core::limits::LEASE_MS;
use dogwatch::core::time::Timestamp;
use dogwatch::engine::Ledger;
use dogwatch::ports::Member;

use super::world::{Ran, World};

pub(super) type Work = (SessionId, ExecutionId);

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Process {
    Waiting,
    Running { until: Timestamp },
    Done(Outcome),
}

/// A process of dogwatch. Its spool outlives its boots.
pub(super) struct Node {
    pub(super) boot: BootId,
    pub(super) up: bool,
    /// One turn has this boot for itself.
    pub(super) alone: bool,
    pub(super) spool: SpoolId,
    pub(super) processes: BTreeMap<Work, Process>,
    pub(super) launches: VecDeque<Work>,
    pub(super) reports: VecDeque<Work>,
    /// Counters of other boots as last seen, and when.
    seen: BTreeMap<BootId, (u64, Timestamp)>,
    /// Nobody starts it before this.
    away_until: Timestamp,
    /// The runners of this boot, one for each gap in a gap.
    pub(super) ledgers: Vec<Arc<Ledger>>,
}

impl Node {
    pub(super) fn new(spool: SpoolId) -> Self {
        Self {
            boot: BootId::new("none").unwrap(),
            up: true,
            alone: false,
            spool,
            processes: BTreeMap::new(),
            launches: VecDeque::new(),
            reports: VecDeque::new(),
            seen: BTreeMap::new(),
            away_until: Timestamp::ZERO,
            ledgers: vec![],
        }
    }
}

/// The execution that a member of an index is.
pub(super) fn work_of(member: &Member) -> Work {
    let id = member.key.as_str().strip_prefix("x/").unwrap();
    (member.aggregate.session().unwrap().clone(), ExecutionId::new(id).unwrap())
}

impl World {
    pub(super) fn beat(&mut self, node: usize) {
        let spool = Some(self.nodes[node].spool.clone());
        let boot = self.boot(node);
        let answer = self.run(node, &Beat { boot, spool });
        // A buried boot takes a new id.
        if answer == Err(Ran::Refused(Refusal::Buried)) {
            self.count("a zombie refused");
            self.kill(node);
            self.boot_up(node);
        }
    }

    pub(super) fn crash(&mut self) {
        let Some(node) = self.up() else { return };
        self.crash_of(node);
        if self.rng.chance(30) {
            let away_ms = self.rng.below(1_800_000) as u64;
            self.nodes[node].away_until = self.now().plus_ms(away_ms);
        }
    }

    pub(crate) fn crash_of(&mut self, node: usize) {
        self.tell(&format!("crash {node}"));
        self.count("a node crashed");
        self.kill(node);
    }

    pub(super) fn kill(&mut self, node: usize) {
        self.nodes[node].up = false;
        self.nodes[node].launches.clear();
        self.nodes[node].reports.clear();
        self.nodes[node].ledgers.clear();
        // Where several nodes share a store, a node that only stood still goes on later, with
        // drivers whose lanes are somebody else's by then.
        if self.setting.sole || self.rng.chance(60) {
            self.drivers.retain(|driver| driver.node != node);
        }
    }

    pub(super) fn boot_up(&mut self, node: usize) {
        // The process that held the store is gone, and so is what it had open.
        if self.setting.sole && self.is_at_rest() {
            self.gate.close();
            self.place.reopen();
            self.gate.open(self.place.store());
        }
        let boot = BootId::new(format!("boot-{}", self.fresh())).unwrap();
        self.tell(&format!("start {node} as {boot}"));
        self.nodes[node].boot = boot.clone();
        self.nodes[node].up = true;
        self.nodes[node].alone = false;
        self.nodes[node].ledgers.clear();
        let spool = Some(self.nodes[node].spool.clone());
        let beat = Beat { boot: boot.clone(), spool };
        while self.boot(node) == boot && self.run(node, &beat) == Err(Ran::Lost) {}
        if self.setting.sole {
            for member in self.members(&Index::Nodes, u64::MAX) {
                let Aggregate::Node(other) = &member.aggregate else { continue };
                let bury = Bury { boot: other.clone(), seen: 0 };
                while *other != boot
                    && self.boot(node) == boot
                    && self.run(node, &bury) == Err(Ran::Lost)
                {}
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
            let work = work_of(&member);
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

    pub(super) fn look_after_nodes(&mut self) {
        let i = self.rng.below(self.nodes.len());
        if !self.nodes[i].up {
            if self.draining() || self.nodes[i].away_until <= self.now() {
                self.boot_up(i);
            }
            return;
        }
        if self.setting.sole {
            return;
        }
        for member in self.members(&Index::Nodes, u64::MAX) {
            let Aggregate::Node(other) = member.aggregate.clone() else { continue };
            let Some(BeatRow { counter, spool, .. }) =
                self.history.row::<BeatRow>(&member.aggregate, &Key::beat())
            else {
                continue;
            };
            let now = self.now();
            let seen = *self.nodes[i].seen.entry(other.clone()).or_insert((counter, now));
            if seen.0 != counter {
                self.nodes[i].seen.insert(other, (counter, now));
            } else if now.since_ms(seen.1) >= LEASE_MS && other != self.boot(i) {
                let answer = self.run(i, &Bury { boot: other.clone(), seen: counter });
                self.tell(&format!("bury {other} by {i} -> {answer:?}"));
                if answer.is_ok() {
                    self.bereave(i, &other, spool);
                }
            }
        }
    }

    /// What the buried boot attended to is left alone until its spool is back. Whoever buries may
    /// die before that.
    fn bereave(&mut self, node: usize, boot: &BootId, spool: Option<SpoolId>) {
        let Some(spool) = spool.filter(|_| self.rng.chance(80)) else { return };
        for member in self.members(&Index::Home(Home::Spool(spool)), u64::MAX) {
            let (session, execution) = work_of(&member);
            let lost = HomeLost { session, execution, boot: boot.clone() };
            let answer = self.run(node, &lost);
            self.tell(&format!("left {} of {boot} -> {answer:?}", lost.execution));
        }
    }

    pub(super) fn sweep(&mut self) {
        let Some(node) = self.up() else { return };
        // A sweep that looks too early is refused.
        let early_ms = if self.rng.chance(10) { 100_000 } else { 0 };
        for member in self.members(&Index::Due, self.now().as_ms() + early_ms) {
            let (session, id) = work_of(&member);
            let Some(execution) = self.execution(&session, &id) else { continue };
            let buried = &self.history.facts.buried;
            let gone = Some(execution.boot.clone()).filter(|boot| buried.contains(boot));
            let answer =
                self.run(node, &Overdue { session, execution: id.clone(), buried: gone.clone() });
            self.tell(&format!("overdue {id} buried {gone:?} -> {answer:?}"));
        }
        for member in self.members(&Index::Wish(self.home(node)), u64::MAX) {
            let (session, id) = work_of(&member);
            self.count("a wish heard by its home");
            self.end_process(&session, &id);
        }
    }

    /// Looks at places whose time has come.
    pub(super) fn look_at_places(&mut self) {
        let Some(node) = self.up() else { return };
        for member in self.members(&Index::Places, self.now().as_ms()) {
            let Aggregate::Owner(owner) = member.aggregate.clone() else { panic!("{member:?}") };
            let place: Option<Place> = self.history.row(&member.aggregate, &member.key);
            if let Some(place) = place {
                self.settle_place(node, &(owner, place.session, place.start));
            }
        }
    }

    pub(super) fn pass_time(&mut self) {
        let ms = match self.rng.below(20) {
            0..12 => self.rng.below(3_000),
            12..17 => self.rng.below(20_000),
            17..19 => self.rng.below(400_000),
            _ => self.rng.below(1_500_000),
        };
        self.clock.advance(ms as u64);
        for i in 0..self.nodes.len() {
            if self.nodes[i].up && self.rng.chance(90) {
                self.beat(i);
            }
        }
    }
}
