//! How executions and outbox items may change, and how they end.

use dogwatch::core::execution::{
    CancelledBy, Execution, Fate, HumanReceipt, ModelReceipt, State, Status,
};
use dogwatch::core::ledger::row::{Chain, Dedupe, Item, ItemState, Turn};
use dogwatch::core::ledger::{Key, Row};
use dogwatch::core::limits::POST_LEASE_MS;
use dogwatch::core::time::Timestamp;

use super::check::{Move, not_early};
use super::seen::{Step, get, over};

impl Step<'_> {
    pub(super) fn execution(&mut self, before: &Execution, after: &Execution) {
        let frozen = |x: &Execution| {
            let of = (x.id.clone(), x.turn, x.call, x.owner.clone(), x.generation, x.chain);
            (of, x.address.clone(), x.home.clone(), x.notify, x.key.clone(), x.timeout_ms)
        };
        assert_eq!(frozen(before), frozen(after), "what {} is bound to changed", after.id);
        let of_owner = self.is_of_its_owner_alone(after);
        let reach = &mut self.facts.reach;
        if after.late.len() > before.late.len() {
            reach.count("a late fact");
        }
        if after.unattended && !before.unattended {
            reach.count("an execution unattended");
        }
        if before.boot != after.boot {
            assert_eq!(self.by.operation, "Adopt", "{} changed hands", after.id);
        }
        if self.by.operation == "Adopt" {
            match (&before.state, &after.state) {
                (State::Registered, State::Running) => reach.count("adopted waiting"),
                (State::Running, State::Running) => reach.count("adopted running"),
                _ => {}
            }
        }
        match (&before.cancel, &after.cancel) {
            (None, Some(CancelledBy::Person { principal, .. })) => {
                assert_eq!(*principal, after.owner, "{} was ended by a stranger", after.id);
                reach.count("an execution cancelled by a person");
            }
            (None, Some(CancelledBy::Model)) => {
                assert!(of_owner, "{} was ended by others", after.id);
                reach.count("an execution cancelled by the model");
            }
            _ => {}
        }
        if let HumanReceipt::Done(_) = after.human
            && before.human == HumanReceipt::Owed
        {
            reach.count("a human receipt");
        }
        if let State::Ended(_) = before.state {
            assert_eq!(before.state, after.state, "the end of {} changed", after.id);
            assert_eq!(before.model, after.model, "the receipt of {} changed", after.id);
            return;
        }
        assert_eq!(
            after.generation, self.before.generation,
            "{} was stopped, and goes on",
            after.id
        );
        if after.state.is_ended() {
            self.ended(before, after);
        }
    }

    /// The open turn has no people but the owner of this execution.
    fn is_of_its_owner_alone(&self, execution: &Execution) -> bool {
        let open = self.head.open.and_then(|no| get::<Turn>(self.rows, &Key::turn(no)));
        open.is_some_and(|turn| turn.people().all(|one| *one == execution.owner))
    }

    fn ended(&mut self, before: &Execution, after: &Execution) {
        let State::Ended(outcome) = &after.state else { return };
        let away = self.facts.buried.contains(&before.boot);
        let of_owner = self.is_of_its_owner_alone(after);
        let reach = &mut self.facts.reach;
        match self.by.operation {
            "Complete" => {
                assert_eq!(before.boot, self.by.boot, "{} was reported by a stranger", after.id);
                reach.count("an execution ended by its home");
            }
            "Overdue" => {
                let at = after.ended_at.unwrap();
                not_early("an end", Some(before.due_at), at);
                match outcome.status {
                    Status::Lost if before.state == State::Registered && !away => {
                        reach.count("an execution never started");
                    }
                    Status::Lost => {
                        assert!(away, "{} is lost under a live home", after.id);
                        reach.count("a home gone");
                    }
                    Status::TimedOut => reach.count("an execution timed out by the ledger"),
                    Status::Cancelled => {}
                    Status::Completed | Status::Failed | Status::Superseded => {
                        panic!("the ledger made up {outcome:?}")
                    }
                }
            }
            "Register" => {
                assert_eq!(outcome.status, Status::Superseded);
                assert!(of_owner, "{} was ended by others", after.id);
                reach.count("a supersession");
            }
            "Stop" => assert_eq!(outcome.status, Status::Cancelled),
            other => panic!("{other} ended {}", after.id),
        }
        let silent = match self.by.operation {
            "Register" => Some(Fate::Superseded),
            "Stop" => Some(Fate::Stopped),
            _ if !after.notify.wakes_agent() => Some(Fate::Waived),
            _ => None,
        };
        let receipt = silent.clone().map(ModelReceipt::Fate);
        let arrives = matches!(after.model, ModelReceipt::Arrival(_));
        assert!(receipt.map_or(arrives, |r| r == after.model), "{} ended so: {after:?}", after.id);
        let told = self.moves.iter().any(|m| m.key.as_str() == format!("m/human/{}", after.id));
        let tells =
            after.notify.tells_human() && !matches!(silent, Some(Fate::Superseded | Fate::Stopped));
        assert_eq!(told, tells, "{} and its person", after.id);
        if after.model == ModelReceipt::Fate(Fate::Waived) {
            reach.count("a waived completion");
        }
        let killed = self.moves.iter().any(|m| m.key.as_str() == format!("m/kill/{}", after.id));
        let reported = self.by.operation == "Complete";
        let freed = self.moves.iter().any(|m| m.key.as_str() == format!("m/free/{}", after.id));
        assert!(freed, "the place of {} is never given back", after.id);
        assert!(killed || reported, "{} may run on", after.id);
    }

    pub(super) fn item(&mut self, before: Option<&Item>, after: Option<&Item>) {
        let Some(after) = after else {
            assert!(before.is_some_and(over), "an open item was forgotten: {before:?}");
            return;
        };
        let reach = &mut self.facts.reach;
        if after.id.as_str().starts_with("late/") && before.is_none() {
            reach.count("a late result told to people");
        }
        if after.id.as_str().starts_with("spent/") && before.is_none() {
            reach.count("a chain spent");
        }
        let Some(before) = before else { return };
        assert_eq!(before.errand, after.errand, "{} says something else", after.id);
        if over(before) {
            assert_eq!(before.state, after.state, "{} ended twice", after.id);
        }
        match &after.state {
            ItemState::Leased { boot, until, .. } if before.state != after.state => {
                let at = until.as_ms() - POST_LEASE_MS;
                // The lease of a boot before this one is void, where one holds the store.
                let void = self.facts.sole
                    && matches!(&before.state, ItemState::Leased { boot: b, .. } if b != boot);
                if !void {
                    not_early("a post", before.at, Timestamp::from_ms(at));
                }
            }
            ItemState::Dead(_) if before.state != after.state => reach.count("an item dead"),
            ItemState::Leased { .. }
            | ItemState::Dead(_)
            | ItemState::Pending
            | ItemState::Done(_) => {}
        }
        if after.uncertain && !before.uncertain {
            reach.count("an item of unknown outcome");
        }
    }

    /// Rows that only ever say one thing.
    pub(super) fn small_rows(&self) {
        for Move { key, before, after } in self.moves {
            let (Some(before), Some(after)) = (before, after) else { continue };
            match (before, after) {
                // Its message has not come: a later change may.
                (Row::Dedupe(Dedupe { early: Some(was), .. }), Row::Dedupe(now)) => {
                    let back = now.early.as_ref().is_some_and(|early| early.text.is_some());
                    assert!(was.text.is_some() || !back, "{key}: what is gone came back");
                }
                (Row::StartKey(_), Row::StartKey(_)) | (Row::Dedupe(_), Row::Dedupe(_)) => {
                    assert_eq!(before, after, "{key} answers something else now");
                }
                (Row::Chain(before), Row::Chain(after)) => {
                    let Chain { wakes, tokens, spawns, .. } = after;
                    let grew =
                        *wakes > before.wakes || *tokens > before.tokens || *spawns > before.spawns;
                    assert!(!grew, "a chain grew: {before:?} {after:?}");
                }
                _ => {}
            }
        }
    }
}
