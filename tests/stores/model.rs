//! Random changes against a store and against the plainest model of one: conflicts, repeats, races,
//! answers that are lost, crashes between any two steps. After each step both hold the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use dogwatch::core::execution::Home;
use dogwatch::core::id::{BootId, SpoolId};
use dogwatch::core::ledger::row::Summary;
use dogwatch::core::ledger::{Aggregate, Change, Class, Index, Key, Revision, Row};
use dogwatch::core::limits::ROW_BYTES_MAX;
use dogwatch::ports::{Applied, Member, Store, StoreError};
use pretty_assertions::assert_eq;

use super::dice::{Dice, Replay, seeds};
use super::place::{ChangeExt, InMemory, InRedis, OnDisk, Place, change, numbered, session};

/// What a store should hold, without a thought for speed.
#[derive(Default)]
struct Model {
    revisions: BTreeMap<Aggregate, Revision>,
    rows: BTreeMap<(Aggregate, Key), Row>,
    scores: BTreeMap<(Index, Aggregate, Key), u64>,
}

impl Model {
    fn expected(&self, aggregate: &Aggregate) -> Option<&str> {
        self.revisions.get(aggregate).map(|revision| revision.0.as_str())
    }

    fn apply(&mut self, change: &Change) -> Applied {
        let stored = self.revisions.get(&change.aggregate);
        if stored == Some(&change.revision) {
            return Applied::Already;
        }
        if stored != change.expected.as_ref() {
            return Applied::Conflict;
        }
        let of = &change.aggregate;
        self.revisions.insert(of.clone(), change.revision.clone());
        for write in &change.writes {
            let at = (of.clone(), write.key.clone());
            match &write.row {
                Some(row) => drop(self.rows.insert(at, row.as_ref().clone())),
                None => drop(self.rows.remove(&at)),
            }
        }
        for write in &change.index {
            let at = (write.index.clone(), of.clone(), write.key.clone());
            match write.score {
                Some(score) => self.scores.insert(at, score),
                None => self.scores.remove(&at),
            };
        }
        Applied::Applied
    }

    fn members(&self, index: &Index, until: u64) -> Vec<Member> {
        let of_index = self.scores.iter().filter(|((of, _, _), _)| of == index);
        let member = |((_, aggregate, key), score): (&(Index, Aggregate, Key), &u64)| Member {
            score: *score,
            aggregate: aggregate.clone(),
            key: key.clone(),
        };
        let mut members: Vec<Member> = of_index.map(member).filter(|m| m.score <= until).collect();
        members.sort();
        members
    }

    fn rows(&self, aggregate: &Aggregate) -> Vec<(Key, Row)> {
        let of = self.rows.iter().filter(|((of, _), _)| of == aggregate);
        of.map(|((_, key), row)| (key.clone(), row.clone())).collect()
    }
}

/// What a schedule draws from: few names, so that steps meet.
struct Names {
    aggregates: Vec<Aggregate>,
    keys: Vec<Key>,
    indexes: Vec<Index>,
}

impl Names {
    fn new() -> Self {
        let boot = BootId::new("boot").expect("an id");
        let spool = SpoolId::new("spool").expect("an id");
        let mut keys: Vec<Key> = (0..6).map(Key::entry).collect();
        keys.extend([Key::head(), Key::inbox(), Key::turn(1)]);
        Self {
            aggregates: vec![session("a"), session("a/b"), session("b"), Aggregate::Node(boot)],
            keys,
            indexes: vec![Index::Ready, Index::Due, Index::Home(Home::Spool(spool))],
        }
    }
}

struct Schedule<P> {
    dice: Dice,
    names: Names,
    place: P,
    model: Model,
    /// Every change that was sent, so that any can be sent again.
    sent: Vec<Change>,
    revisions: u64,
}

impl<P: Place> Schedule<P> {
    fn new(seed: u64, place: P) -> Self {
        Self {
            dice: Dice::new(seed),
            names: Names::new(),
            place,
            model: Model::default(),
            sent: vec![],
            revisions: 0,
        }
    }

    /// A change of an aggregate as it is now, or as nobody ever knew it.
    fn draw(&mut self, aggregate: &Aggregate, current: bool) -> Change {
        self.revisions += 1;
        let expected = if current { self.model.expected(aggregate) } else { Some("unknown") };
        let mut drawn = change(aggregate, expected, &format!("r{}", self.revisions));
        for _ in 0..self.dice.within(0..5) {
            let key = self.dice.pick(&self.names.keys);
            drawn = if self.dice.chance(75) {
                drawn.put(key, numbered(self.revisions))
            } else {
                drawn.delete(key)
            };
        }
        for _ in 0..self.dice.within(0..4) {
            let (index, key) =
                (self.dice.pick(&self.names.indexes).clone(), self.dice.pick(&self.names.keys));
            let score = self.dice.chance(75).then(|| self.dice.within(0..4));
            drawn = drawn.score(index, key, score);
        }
        drawn.class(if self.dice.chance(30) { Class::FINISHES } else { Class::HINT })
    }

    async fn send(&mut self, change: Change) {
        let expected = self.model.apply(&change);
        let answer = self.place.store().apply(change.clone()).await;
        assert_eq!(answer, Ok(expected), "{change:?}");
        self.sent.push(change);
    }

    /// The answer of a change is lost, the process may die, and the change is sent again.
    async fn send_without_hearing(&mut self, change: Change) {
        {
            let store = self.place.store();
            let mut asked = store.apply(change.clone());
            let _lost = futures_util::poll!(asked.as_mut());
        }
        if self.dice.chance(30) {
            self.place.reopen();
        }
        let answer = self.place.store().apply(change.clone()).await;
        assert!(matches!(answer, Ok(Applied::Applied | Applied::Already)), "{answer:?} {change:?}");
        assert_eq!(self.model.apply(&change), Applied::Applied);
        self.sent.push(change);
    }

    /// Two that know the same revision: one wins, whichever.
    async fn race(&mut self, one: Change, other: Change) {
        let store = self.place.store();
        let answers = futures_util::join!(store.apply(one.clone()), store.apply(other.clone()));
        let (won, lost) = match answers {
            (Ok(Applied::Applied), Ok(Applied::Conflict)) => (one, other),
            (Ok(Applied::Conflict), Ok(Applied::Applied)) => (other, one),
            answers => panic!("{answers:?}"),
        };
        assert_eq!(self.model.apply(&won), Applied::Applied);
        self.sent.extend([won, lost]);
    }

    async fn refuse(&mut self, change: Change) {
        let row = Row::Summary(Summary { upto: 0, text: "x".repeat(ROW_BYTES_MAX) });
        let answer = self.place.store().apply(change.put(&Key::summary(), row)).await;
        assert!(matches!(answer, Err(StoreError::Data(_))), "{answer:?}");
    }

    async fn step(&mut self) {
        let aggregate = self.dice.pick(&self.names.aggregates).clone();
        let current = self.draw(&aggregate, true);
        match self.dice.within(0..100) {
            0..35 => self.send(current).await,
            35..45 => {
                let foreign = self.draw(&aggregate, false);
                self.send(foreign).await;
            }
            45..60 if !self.sent.is_empty() => {
                let again = self.dice.pick(&self.sent).clone();
                self.send(again).await;
            }
            60..70 => {
                self.send(current.clone()).await;
                self.send(current).await;
            }
            70..85 => self.send_without_hearing(current).await,
            85..92 => {
                let other = self.draw(&aggregate, true);
                self.race(current, other).await;
            }
            92..95 => self.refuse(current).await,
            _ => self.place.reopen(),
        }
    }

    /// Reads everything, in pages of any size, and finds what the model holds.
    async fn compare(&mut self) {
        let store = self.place.store();
        let limit = usize::try_from(self.dice.within(1..6)).expect("small");
        let aggregates: Vec<Aggregate> = self.model.revisions.keys().cloned().collect();
        assert_eq!(all_aggregates(&store, limit).await, aggregates);
        for aggregate in &self.names.aggregates {
            assert_eq!(all_rows(&store, aggregate, limit).await, self.model.rows(aggregate));
            let loaded = store.load(aggregate, &self.names.keys).await.unwrap();
            assert_eq!(loaded.revision.as_ref(), self.model.revisions.get(aggregate));
            for (key, row) in self.names.keys.iter().zip(&loaded.rows) {
                assert_eq!(row.as_ref(), self.model.rows.get(&(aggregate.clone(), key.clone())));
            }
        }
        let until = self.dice.within(0..4);
        for index in &self.names.indexes {
            let members = all_members(&store, index, until, limit).await;
            assert_eq!(members, self.model.members(index, until), "{index} until {until}");
        }
    }
}

async fn all_aggregates(store: &Arc<dyn Store>, limit: usize) -> Vec<Aggregate> {
    let mut all: Vec<Aggregate> = vec![];
    loop {
        let page = store.aggregates(all.last(), limit).await.unwrap();
        if page.is_empty() {
            return all;
        }
        all.extend(page);
    }
}

async fn all_rows(store: &Arc<dyn Store>, of: &Aggregate, limit: usize) -> Vec<(Key, Row)> {
    let mut all: Vec<(Key, Row)> = vec![];
    loop {
        let page = store.rows(of, all.last().map(|(key, _)| key), limit).await.unwrap();
        if page.is_empty() {
            return all;
        }
        all.extend(page);
    }
}

async fn all_members(
    store: &Arc<dyn Store>,
    index: &Index,
    until: u64,
    limit: usize,
) -> Vec<Member> {
    let mut all: Vec<Member> = vec![];
    loop {
        let page = store.members(index, until, all.last(), limit).await.unwrap();
        if page.is_empty() {
            return all;
        }
        all.extend(page);
    }
}

async fn run<P: Place>(usual: std::ops::Range<u64>, steps: u64) {
    run_at(usual, steps, P::new).await;
}

/// Runs each schedule at a place of its own.
pub(super) async fn run_at<P: Place>(
    usual: std::ops::Range<u64>,
    steps: u64,
    mut place: impl FnMut() -> P,
) {
    for seed in seeds(usual) {
        let _replay = Replay(seed);
        let mut schedule = Schedule::new(seed, place());
        for _ in 0..steps {
            schedule.step().await;
            schedule.compare().await;
        }
    }
}

#[tokio::test]
async fn the_memory_store_holds_what_the_model_holds() {
    run::<InMemory>(0..150, 60).await;
}

#[tokio::test]
async fn the_sqlite_store_holds_what_the_model_holds() {
    run::<OnDisk>(0..15, 60).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_redis_store_holds_what_the_model_holds() {
    run::<InRedis>(0..8, 60).await;
}
