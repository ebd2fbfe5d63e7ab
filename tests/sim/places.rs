//! Places of owners: taken before a start, given back, looked at where nobody said that they are free.

use dogwatch::core::execution::Start;
use dogwatch::core::id::{Principal, SessionId};
use dogwatch::core::ledger::owner::{Free, Keep, Reserve};
use dogwatch::core::ledger::row::{Errand, Item, Place, RowType, StartKey};
use dogwatch::core::ledger::session::{Void, Voided};
use dogwatch::core::ledger::{Aggregate, Index, Key, Refusal};
use dogwatch::core::limits::{PLACE_CHECKED_AGAIN_MS, START_MS_MAX};

use super::world::{Ran, World};

/// Few enough that worlds come to it.
pub(super) const PLACES_MAX: u32 = 5;

/// Whose, in which session, for which call.
pub(crate) type Named = (Principal, SessionId, Start);

impl World {
    pub(crate) fn reserve(&mut self, node: usize, named: &Named) -> Result<(), Ran> {
        let (owner, session, start) = named.clone();
        let key = Key::start(start.turn, start.entry, start.call);
        let aggregate = Aggregate::Owner(owner.clone());
        let reserve = Reserve { owner: owner.clone(), session, start, cap: PLACES_MAX };
        match self.run(node, &reserve) {
            Err(Ran::Refused(Refusal::Cap { .. })) => self.count("an owner's cap"),
            taken => return taken,
        }
        if self.row::<StartKey>(&named.1, &key).is_some() {
            return Ok(());
        }
        let now = self.now();
        let rows = self.history.snapshot(&aggregate);
        for place in rows.values().filter_map(Place::of) {
            if now.since_ms(place.at) >= START_MS_MAX {
                self.settle_place(node, &(owner.clone(), place.session.clone(), place.start));
            }
        }
        self.run(node, &reserve)
    }

    /// What the ledger does not answer is left for later.
    pub(crate) fn settle_place(&mut self, node: usize, named: &Named) {
        let (owner, session, start) = named.clone();
        let key = Key::place(&session, &start);
        let place: Option<Place> = self.history.row(&Aggregate::Owner(owner.clone()), &key);
        match self.run(node, &Void { session: session.clone(), start }) {
            Ok(Voided::Live | Voided::Leaving) => {
                let due = place.map(|place| place.check_at).filter(|at| *at <= self.now());
                if let Some(seen) = due {
                    self.count("a place kept");
                    let _ = self.run(node, &Keep { owner, session, start, seen });
                }
            }
            Ok(found @ (Voided::Over | Voided::Void)) => {
                self.count(if found == Voided::Void { "a place void" } else { "a place over" });
                let _ = self.run(node, &Free { owner, session, start });
            }
            Err(_) => {}
        }
    }

    /// Answers whether the errand is done, where it is one.
    pub(super) fn free_place(&mut self, node: usize, session: &SessionId, item: &Item) -> bool {
        let Errand::Free { owner, start } = &item.errand else { return true };
        let free = Free { owner: owner.clone(), session: session.clone(), start: *start };
        self.count("a place given back");
        self.run(node, &free).is_ok()
    }

    /// Nothing runs any more. What a crash left taken is found, and then nothing is taken.
    pub(super) fn settle_places(&mut self) {
        for _ in 0..8 {
            if self.members(&Index::Places, u64::MAX).is_empty() {
                return;
            }
            self.clock.advance(PLACE_CHECKED_AGAIN_MS);
            for node in 0..self.nodes.len() {
                self.beat(node);
            }
            self.look_at_places();
        }
        panic!("taken for ever: {:?}", self.members(&Index::Places, u64::MAX));
    }
}
