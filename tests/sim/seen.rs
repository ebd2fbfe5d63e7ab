//! What was seen of one session, and what its next change must respect.

use std::collections::BTreeMap;

use dogwatch::core::arrival::{Arrival, Body as What, Standing};
use dogwatch::core::execution::{Execution, Fate};
use dogwatch::core::id::{ClaimId, EntryNo, ExecutionId, SessionId, TurnNo};
use dogwatch::core::ledger::Key;
use dogwatch::core::ledger::audit::Snapshot;
use dogwatch::core::ledger::row::{
    Chain, Head, Inbox, Item, ItemState, RowType, Turn, TurnState, Unread,
};
use dogwatch::core::limits::{LEASE_MS, START_MS_MAX};
use dogwatch::core::transcript::{Body, Entry, Origin};

use super::check::{By, Facts, Move, not_early};

/// One apply to one session.
pub(crate) struct Apply<'a> {
    pub(crate) session: &'a SessionId,
    /// All rows after it.
    pub(crate) rows: &'a Snapshot,
    pub(crate) moves: &'a [Move],
    pub(crate) by: &'a By,
}

/// What was true once and stays true.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The claim that was granted last.
    granted: Option<(ClaimId, u64)>,
    /// Turns before the last stop of everything.
    stopped_turns: TurnNo,
    /// What the model said, and where.
    words: BTreeMap<String, Key>,
    /// Which execution a start key made.
    starts: BTreeMap<(TurnNo, EntryNo, u32), ExecutionId>,
    /// Posts of each destination in the order in which they were written.
    lines: BTreeMap<String, Vec<Key>>,
}

pub(super) fn get<'a, T: RowType>(rows: &'a Snapshot, key: &Key) -> Option<&'a T> {
    rows.get(key).and_then(T::of)
}

impl Seen {
    /// After the machine lost power: a grant that nothing durable followed was never made.
    pub(crate) fn rebase(&mut self, rows: &Snapshot) {
        let head = get::<Head>(rows, &Key::head()).cloned().unwrap_or_default();
        self.granted = head.lane.map(|lane| (lane.claim, lane.fence));
        self.words.retain(|_, key| rows.contains_key(key));
        self.starts.retain(|_, id| rows.contains_key(&Key::execution(id)));
        self.lines.values_mut().for_each(|line| line.retain(|key| rows.contains_key(key)));
    }

    pub(crate) fn check(&mut self, facts: &mut Facts, apply: &Apply<'_>) {
        let Apply { session, rows, moves, by } = *apply;
        let head = get::<Head>(rows, &Key::head()).cloned().unwrap_or_default();
        let of_head = moves.iter().find(|m| m.key == Key::head());
        let before = match of_head.and_then(Move::of::<Head>) {
            Some((before, _)) => before.cloned().unwrap_or_default(),
            None => head.clone(),
        };
        let mut step = Step { facts, rows, moves, by, before, head };
        if by.operation == "Retire" {
            step.facts.reach.count("a session retired");
            assert!(rows.is_empty(), "{session} was retired with {} rows left", rows.len());
            *self = Self::default();
            return;
        }
        let stops = step.facts.stops_of_all.get(session).copied().unwrap_or(0);
        assert!(step.head.generation <= stops, "one stop counted twice");
        self.lane(&mut step);
        self.log(&mut step);
        step.turns();
        step.arrivals();
        step.order();
        self.executions(&mut step);
        self.items(&mut step);
        step.small_rows();
    }

    /// Only the latest claim writes, and each claim's fence is higher than all before.
    fn lane(&mut self, step: &mut Step<'_>) {
        let (before, head, by) = (&step.before, &step.head, step.by);
        assert!(head.fence >= before.fence, "the fence went back");
        assert!(head.generation >= before.generation, "the generation went back");
        assert!(!head.stopped || head.wake_at.is_none(), "a stopped session wakes");
        if let Some(token) = &by.token {
            let latest = self.granted.as_ref().map(|(claim, _)| claim);
            assert_eq!(latest, Some(&token.claim), "{} by a stale holder", by.operation);
            let holder = before.lane.as_ref().map(|lane| &lane.claim);
            assert_eq!(holder, Some(&token.claim), "{} without a lane", by.operation);
        }
        if !before.stopped && head.stopped {
            assert_eq!(by.operation, "Stop");
            assert!(head.generation > before.generation, "a stop of the same generation");
        }
        if before.stopped && !head.stopped {
            assert_eq!(by.operation, "Accept", "stopped no more");
        }
        if by.operation == "Stop" && head.generation > before.generation {
            assert!(head.stopped, "a stop that stops nothing");
            self.stopped_turns = head.turns;
            step.facts.reach.count("a stop of everything");
        }
        let claimed = head
            .lane
            .as_ref()
            .filter(|lane| before.lane.as_ref().is_none_or(|before| before.claim != lane.claim));
        let Some(lane) = claimed.cloned() else { return };
        assert_eq!(step.by.operation, "Claim", "a lane without a claim");
        let highest = self.granted.as_ref().map_or(0, |(_, fence)| *fence);
        assert!(lane.fence > highest, "a claim got the fence {}, given before", lane.fence);
        self.granted = Some((lane.claim.clone(), lane.fence));
        let at = lane.until.as_ms() - LEASE_MS;
        let own = step.facts.sole || step.before.lane.as_ref().is_some_and(|l| l.boot == lane.boot);
        if step.before.lane.is_none() || !own {
            let at = dogwatch::core::time::Timestamp::from_ms(at);
            not_early("a claim", step.before.wake_at, at);
        }
        if step.before.lane.as_ref().is_some_and(|before| before.boot != lane.boot) {
            step.facts.reach.count("a lane taken over");
        }
        if step.before.open == Some(lane.turn) {
            step.facts.reach.count("a turn resumed");
        }
    }

    /// What is committed never changes; what is new is the latest claim's; nothing is said twice.
    fn log(&mut self, step: &mut Step<'_>) {
        for Move { key, before, after } in step.moves {
            let before = before.as_ref().and_then(Entry::of);
            let Some(entry) = after.as_ref().and_then(Entry::of) else { continue };
            let committed = *key < Key::entry(step.before.tlen);
            assert!(before.is_none() || !committed, "the committed entry {key} changed");
            assert!(before.is_some() || !committed, "the entry {key} is new in the committed log");
            if !["Stop", "Accept"].contains(&step.by.operation) {
                let fence = self.granted.as_ref().map(|(_, fence)| *fence);
                let new = before.is_none();
                assert!(!new || Some(entry.fence) == fence, "an entry of a stale fence: {entry:?}");
                assert!(
                    entry.turn > self.stopped_turns,
                    "turn {} writes after everything was stopped",
                    entry.turn
                );
            }
            match &entry.body {
                Body::Model { text, .. } => {
                    let first = self.words.entry(text.clone()).or_insert_with(|| key.clone());
                    assert_eq!(first, key, "the model's word is twice in the log: {entry:?}");
                }
                Body::Notice(_) if entry.carries.len() > 1 => {
                    step.facts.reach.count("notices folded");
                }
                Body::Tool { notice: Some(_), .. } => {
                    step.facts.reach.count("a notice in a tool result");
                }
                Body::Tool { notice: None, .. }
                | Body::Heard { .. }
                | Body::Remark { .. }
                | Body::Notice(_)
                | Body::Earlier(_)
                | Body::Note { .. }
                | Body::Closing { .. } => {}
            }
        }
        if step.head.log_from > step.before.log_from && step.by.operation == "Compact" {
            step.facts.reach.count("a compaction");
        }
    }

    fn executions(&mut self, step: &mut Step<'_>) {
        for (before, after) in step.moves.iter().filter_map(Move::of::<Execution>) {
            let Some(after) = after else {
                assert!(before.unwrap().state.is_ended(), "live work was forgotten");
                continue;
            };
            let Some(before) = before else {
                let start = (after.turn, after.call.0, after.call.1);
                let first = self.starts.insert(start, after.id.clone());
                assert_eq!(first, None, "one start key made two executions");
                assert!(!step.head.stopped, "{} was registered, stopped", after.id);
                let due = after.registered_at.plus_ms(START_MS_MAX);
                assert_eq!(after.due_at, due, "{} may wait for ever", after.id);
                continue;
            };
            step.execution(before, after);
        }
    }

    /// In each line the order of writing is the order of posting.
    fn items(&mut self, step: &mut Step<'_>) {
        self.write_down(step);
        for Move { key, before, after } in step.moves {
            let before = before.as_ref().and_then(Item::of);
            let after = after.as_ref().and_then(Item::of);
            if before.is_none() && after.is_none() {
                continue;
            }
            step.item(before, after);
            let Some(item) = after else { continue };
            let Some(line) = line_of(item).and_then(|to| self.lines.get(&to)) else { continue };
            if matches!(item.state, ItemState::Leased { .. }) {
                for older in line.iter().take_while(|older| *older != key) {
                    let open = get::<Item>(step.rows, older).is_some_and(|older| !over(older));
                    assert!(!open, "{key} is posted before {older}");
                }
            }
        }
    }

    /// New posts go to the end of their lines; those of one apply in the order of their links.
    fn write_down(&mut self, step: &Step<'_>) {
        let new = step.moves.iter().filter(|m| m.before.is_none());
        let mut new: Vec<(&Key, &Item)> =
            new.filter_map(|m| Some((&m.key, m.after.as_ref().and_then(Item::of)?))).collect();
        while !new.is_empty() {
            let is_next = |id| new.iter().any(|(_, other)| other.next.as_ref() == Some(id));
            let first = new.iter().position(|(_, item)| !is_next(&item.id)).unwrap();
            let (key, item) = new.remove(first);
            if let Some(to) = line_of(item) {
                self.lines.entry(to).or_default().push(key.clone());
            }
        }
    }
}

fn line_of(item: &Item) -> Option<String> {
    item.errand.line()
}

pub(super) fn over(item: &Item) -> bool {
    matches!(item.state, ItemState::Done(_) | ItemState::Dead(_))
}

/// One change of one session.
pub(super) struct Step<'a> {
    pub(super) facts: &'a mut Facts,
    pub(super) rows: &'a Snapshot,
    pub(super) moves: &'a [Move],
    pub(super) by: &'a By,
    /// The head before it.
    pub(super) before: Head,
    /// The head after it.
    pub(super) head: Head,
}

impl Step<'_> {
    fn turns(&mut self) {
        for (before, after) in self.moves.iter().filter_map(Move::of::<Turn>) {
            let Some(after) = after else {
                assert_ne!(before.unwrap().state, TurnState::Open, "an open turn was forgotten");
                continue;
            };
            let Some(before) = before else {
                not_early("a turn", self.before.wake_at, after.opened_at);
                if after.origin == Origin::Synthetic {
                    let chain = Key::chain(after.chain);
                    let drawn = self.moves.iter().find(|m| m.key == chain).and_then(Move::of);
                    let (before, left): (Option<&Chain>, Option<&Chain>) =
                        drawn.expect("a wake that draws from no chain");
                    assert_eq!(before.unwrap().wakes, left.unwrap().wakes + 1, "a wake is drawn");
                }
                if after.principal.as_str() != "ann" {
                    self.facts.reach.count("a turn of another person");
                }
                continue;
            };
            if self.by.operation == "Release" && after.state == TurnState::Open {
                let counted = after.attempt == before.attempt;
                let failed = after.failures > before.failures;
                match (failed, counted) {
                    (true, false) => self.facts.reach.count("an outage"),
                    (false, _) => self.facts.reach.count("a turn handed over"),
                    (true, true) => {}
                }
            }
            self.surface(before, after);
            if before.state == after.state {
                continue;
            }
            assert_eq!(before.state, TurnState::Open, "turn {} ended twice", after.no);
            match &after.state {
                TurnState::Committed => self.committed(after),
                TurnState::Dead(_) => self.buried(after),
                TurnState::Stopped => {
                    assert_eq!(self.by.operation, "Stop");
                    self.facts.reach.count("a turn stopped");
                }
                TurnState::Open => panic!("turn {} is open again", after.no),
            }
        }
    }

    fn item_now(&self, id: &str) -> Option<&Item> {
        get(self.rows, &Key::stored(format!("m/{id}")))
    }

    fn committed(&mut self, turn: &Turn) {
        self.facts.reach.count("a turn committed");
        assert_eq!(turn.seen, turn.carried.len(), "turn {} left something unseen", turn.no);
        if turn.origin == Origin::Human {
            let post = self.item_now(&format!("post/{}/0", turn.no));
            assert!(post.is_some(), "turn {} of a person has no post", turn.no);
        }
    }

    /// Whoever is not answered is told, once, in the same apply; a split tells nobody.
    fn buried(&mut self, turn: &Turn) {
        self.facts.reach.count("a turn buried");
        if self.by.operation == "Claim" {
            self.facts.reach.count("a turn buried by a claim");
        }
        let died = turn.carried.iter().any(|carried| {
            let arrival = get::<Arrival>(self.rows, &Key::arrival(carried.seq));
            arrival.is_some_and(|a| {
                matches!(a.standing, Standing::Settled { fate: Fate::Dead(_), .. })
            })
        });
        let id = format!("dead/{}", turn.no);
        let told =
            self.moves.iter().any(|m| m.key.as_str() == format!("m/{id}") && m.before.is_none());
        assert_eq!(told, died || turn.seen > 0, "the burial of turn {}", turn.no);
    }

    fn arrivals(&mut self) {
        for (before, after) in self.moves.iter().filter_map(Move::of::<Arrival>) {
            let Some(after) = after else {
                let over = matches!(
                    before.unwrap().standing,
                    Standing::Settled { .. } | Standing::Withdrawn
                );
                assert!(over && self.by.operation == "Forget", "an arrival is lost: {before:?}");
                self.facts.reach.count("rows forgotten");
                continue;
            };
            self.arrival(before, after);
        }
    }

    fn arrival(&mut self, before: Option<&Arrival>, after: &Arrival) {
        let was = before.map(|before| &before.standing);
        if before.is_none() && matches!(after.body, What::Remark { .. }) {
            self.facts.reach.count("a remark");
        }
        if was == Some(&after.standing) {
            let same = before.is_some_and(|before| before.body == after.body);
            let pending = after.standing == Standing::Pending;
            assert!(same || pending, "a read message changed: {after:?}");
            self.facts.reach.count(if same { "an arrival touched" } else { "a message edited" });
            return;
        }
        let ended = matches!(was, Some(Standing::Settled { .. } | Standing::Withdrawn));
        assert!(!ended, "the fate of {} changed: {before:?} {after:?}", after.seq);
        match &after.standing {
            Standing::Withdrawn => self.facts.reach.count("a message withdrawn"),
            Standing::Offered(turn) => self.offered(after, *turn),
            Standing::Pending if before.is_some() && after.solo => {
                self.facts.reach.count("an arrival put back alone");
                if self.is_beside_poison(after) {
                    self.facts.reach.count("an innocent spared beside a poisoned one");
                }
            }
            Standing::Pending => {}
            Standing::Settled { fate, turn } => {
                if matches!(after.body, What::Message { .. } | What::Remark { .. }) {
                    self.answered(after, fate, *turn);
                }
                if let Fate::Dead(_) = fate {
                    self.died(after, *turn);
                }
                if *fate == Fate::Collected {
                    self.facts.reach.count("a completion collected");
                }
                let all =
                    self.by.operation == "Stop" && self.head.generation > self.before.generation;
                assert!(*fate != Fate::Stopped || all, "stopped by {}", self.by.operation);
            }
        }
    }

    fn offered(&mut self, arrival: &Arrival, turn: TurnNo) {
        assert_eq!(self.head.open, Some(turn));
        let row = get::<Turn>(self.rows, &Key::turn(turn)).unwrap();
        let strange = arrival.principal != row.principal;
        assert!(!strange || (arrival.shared && row.shared), "a turn took a stranger's arrival");
        let known = row.people().any(|one| *one == arrival.principal);
        assert!(known, "{} is not one of the turn's people", arrival.principal);
        if strange {
            self.facts.reach.count("arrivals of several people in one turn");
        }
        let inbox = self.moves.iter().find(|m| m.key == Key::inbox());
        let before = inbox.and_then(|m| m.before.as_ref()).and_then(Inbox::of);
        let mut rides =
            before.into_iter().flat_map(|inbox| inbox.people.iter().chain(&inbox.notices));
        let rode = rides.any(|unread| unread.seq == arrival.seq && !unread.wakes);
        let fetched = row.carried.iter().any(|one| one.seq == arrival.seq && one.collect);
        let fits = arrival.shared || !row.shared || (!strange && (rode || fetched));
        assert!(fits, "a shared turn took what nobody shares");
        if rode {
            self.facts.reach.count("a rider taken");
        }
    }

    fn is_beside_poison(&self, arrival: &Arrival) -> bool {
        let Some(turn) = self.before.open.and_then(|no| get::<Turn>(self.rows, &Key::turn(no)))
        else {
            return false;
        };
        turn.carried.iter().any(|other| {
            let row = get::<Arrival>(self.rows, &Key::arrival(other.seq));
            other.seq != arrival.seq && row.is_some_and(is_poison)
        })
    }

    /// Every message of a person is answered, or said to be unanswered.
    fn answered(&self, arrival: &Arrival, fate: &Fate, turn: TurnNo) {
        let row = get::<Turn>(self.rows, &Key::turn(turn)).map(|turn| &turn.state);
        let told = match (row, fate) {
            (Some(TurnState::Committed), Fate::Acked) => {
                let rode = matches!(arrival.body, What::Remark { .. });
                rode || self.item_now(&format!("post/{turn}/0")).is_some()
            }
            (Some(TurnState::Dead(_)), Fate::Acked | Fate::Dead(_)) => {
                self.item_now(&format!("dead/{turn}")).is_some()
            }
            (Some(TurnState::Stopped), Fate::Acked) => true,
            (None, Fate::Acked) => turn == 0 && ["Stop", "Accept"].contains(&self.by.operation),
            (
                Some(TurnState::Open | TurnState::Committed | TurnState::Stopped) | None,
                Fate::Dead(_),
            )
            | (Some(TurnState::Open), Fate::Acked)
            | (_, Fate::Collected | Fate::Superseded | Fate::Stopped | Fate::Waived) => false,
        };
        assert!(told, "{} is {fate:?} in turn {turn} ({row:?}), told nobody", arrival.seq);
    }

    /// Nothing dies that did not fail alone; without faults nothing dies but what is poisoned.
    fn died(&mut self, arrival: &Arrival, turn: TurnNo) {
        self.facts.reach.count("an arrival died");
        let row = get::<Turn>(self.rows, &Key::turn(turn)).unwrap();
        let others = row.carried.iter().filter(|c| !c.collect && c.seq != arrival.seq).count();
        assert_eq!(others, 0, "{} died beside others", arrival.seq);
        let faultless = self.facts.drained_from.is_some_and(|from| row.opened_at >= from);
        let innocent = faultless && !is_poison(arrival);
        assert!(!innocent, "{} died without a fault: {row:?}", arrival.seq);
    }

    /// What is taken out of a list is what came first of its person.
    fn order(&self) {
        let Some((before, after)) =
            self.moves.iter().find(|m| m.key == Key::inbox()).and_then(Move::of::<Inbox>)
        else {
            return;
        };
        let none = Inbox::default();
        let (before, after) = (before.unwrap_or(&none), after.unwrap_or(&none));
        for (before, after) in [(&before.people, &after.people), (&before.notices, &after.notices)]
        {
            let left = |unread: &&Unread| !after.iter().any(|other| other.seq == unread.seq);
            for taken in before.iter().filter(|unread| unread.wakes).filter(left) {
                if self.is_chosen(taken) {
                    continue;
                }
                let passed = after.iter().find(|other| {
                    other.wakes && other.principal == taken.principal && other.seq < taken.seq
                });
                assert_eq!(passed, None, "{} was taken before it", taken.seq);
            }
        }
        for unread in after.people.iter().chain(&after.notices) {
            let arrival = get::<Arrival>(self.rows, &Key::arrival(unread.seq)).unwrap();
            let generation = arrival.generation;
            assert_eq!(generation, self.head.generation, "{} of a stopped generation", unread.seq);
        }
    }

    /// Withdrawn by its sender, or fetched by name.
    fn is_chosen(&self, unread: &Unread) -> bool {
        let row = get::<Arrival>(self.rows, &Key::arrival(unread.seq)).unwrap();
        match row.standing {
            Standing::Withdrawn => true,
            Standing::Offered(turn) => get::<Turn>(self.rows, &Key::turn(turn))
                .is_some_and(|t| t.carried.iter().any(|c| c.seq == unread.seq && c.collect)),
            Standing::Pending | Standing::Settled { .. } => false,
        }
    }
}

pub(crate) fn is_poison(arrival: &Arrival) -> bool {
    matches!(&arrival.body, What::Message { text } if text.contains("poison"))
}
