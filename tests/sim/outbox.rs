//! Delivering what the outbox holds: tries that hang, fail, or were done and nobody knows.

use dogwatch::core::execution::Outcome;
use dogwatch::core::execution::Status;
use dogwatch::core::id::{ItemId, LeaseId, SessionId};
use dogwatch::core::ledger::Index;
use dogwatch::core::ledger::row::{Errand, Item};
use dogwatch::core::ledger::session::{DoneItem, FailItem, LeaseItem, Leased, Retry};

use super::nodes::Process;
use super::world::World;

impl World {
    pub(super) fn deliver(&mut self) {
        let Some(node) = self.up() else { return };
        // A delivery that hung goes on, maybe after its lease.
        if !self.deliveries.is_empty() && self.rng.chance(60) {
            let i = self.rng.below(self.deliveries.len());
            let (session, item, lease) = self.deliveries.swap_remove(i);
            return self.settle(node, session, item, lease);
        }
        let early_ms = if self.rng.chance(10) { 60_000 } else { 0 };
        let now = self.now().as_ms() + early_ms;
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
            if !self.free_place(node, &session, &leased) {
                return;
            }
            self.deliveries.push((session, item, lease));
        }
    }

    fn kill_process(&mut self, session: &SessionId, item: &Item) {
        if let Errand::Kill { execution, .. } = &item.errand {
            let work = (session.clone(), execution.clone());
            for node in self.nodes.iter_mut().filter(|node| node.up) {
                if let Some(process) = node.processes.get_mut(&work)
                    && !matches!(process, Process::Done(_))
                {
                    *process = Process::Done(Outcome::bare(Status::Cancelled, "killed"));
                }
            }
        }
    }

    fn settle(&mut self, node: usize, session: SessionId, item: ItemId, lease: LeaseId) {
        if self.rng.chance(70) || self.draining() {
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
}
