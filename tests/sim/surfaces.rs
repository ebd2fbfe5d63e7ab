//! The messages that show turns: put by whoever runs one, or believes so, again once it is known
//! where they are, and too late.

use dogwatch::core::id::TurnNo;
use dogwatch::core::ledger::Key;
use dogwatch::core::ledger::row::{Head, SurfaceForm, Turn, TurnState};
use dogwatch::core::ledger::session::{Placed, PutSurface};

use super::seen::Step;
use super::world::World;

impl World {
    pub(super) fn show_turn(&mut self) {
        let Some(node) = self.up() else { return };
        // Mostly whoever runs one says so.
        let drivers: Vec<_> = self.drivers.iter().map(|d| (d.node, d.token.clone())).collect();
        let runs = self.rng.pick(&drivers).filter(|_| self.rng.chance(80));
        let node = runs.as_ref().map_or(node, |(node, _)| *node);
        let session = runs.map_or_else(|| self.session(), |(_, token)| token.session);
        let head: Head = self.row(&session, &Key::head()).unwrap_or_default();
        let earlier = if self.rng.chance(20) { self.rng.below(3) as TurnNo } else { 0 };
        let turn = head.turns.saturating_sub(earlier);
        let draft = self.rng.chance(20);
        let put = PutSurface {
            session: session.clone(),
            turn,
            boot: self.boot(node),
            form: if draft { SurfaceForm::Draft } else { SurfaceForm::Stream },
            mark: if self.rng.chance(95) { "begins so".into() } else { "or so".into() },
            at: self.rng.chance(50).then(|| "here".to_owned()),
        };
        let placed = self.run(node, &put);
        self.tell(&format!("turn {turn} of {session} is shown by {node} -> {placed:?}"));
        match placed {
            Ok(Placed::Taken) => self.count("a turn shown elsewhere"),
            Ok(Placed::Over | Placed::Late(_)) => self.count("a turn shown too late"),
            Ok(Placed::Here(_)) | Err(_) => {}
        }
    }
}

impl Step<'_> {
    /// One message a turn, put while the turn runs; where it is stays.
    pub(super) fn surface(&mut self, before: &Turn, after: &Turn) {
        if before.surface == after.surface {
            return;
        }
        assert_eq!(self.by.operation, "PutSurface");
        let surface = after.surface.as_ref().expect("a surface was forgotten");
        let Some(before) = &before.surface else {
            assert_eq!(before.state, TurnState::Open, "shown after its end");
            return self.facts.reach.count("a turn shown");
        };
        assert_eq!((&before.boot, &before.mark), (&surface.boot, &surface.mark), "two surfaces");
        assert_eq!(before.opened_at, surface.opened_at);
        assert!(before.at.is_none() || before.at == surface.at, "a surface moved");
        if after.state != TurnState::Open {
            self.facts.reach.count("a late place learned");
        }
    }
}
