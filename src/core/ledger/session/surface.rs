//! `PutSurface`: the message that shows a turn while it runs. Owns that a turn has one at most,
//! that it is written before it is asked for, and that none begins once the answer is on its way.
//! Must not know what is shown, nor where.

use super::mail::name;
use crate::core::id::{BootId, Principal, SessionId, TurnNo};
use crate::core::ledger::row::{Item, ItemState, Surface, SurfaceForm, Turn, TurnState};
use crate::core::ledger::{Aggregate, Class, Key, Operation, Refusal, Situation, Working};

/// Says that a turn has such a surface, or where it is.
#[derive(Debug, Clone)]
pub struct PutSurface {
    /// The session.
    pub session: SessionId,
    /// The turn.
    pub turn: TurnNo,
    /// Who shows it.
    pub boot: BootId,
    /// How.
    pub form: SurfaceForm,
    /// A hash of what it begins with.
    pub mark: String,
    /// Where it is, once that is known.
    pub at: Option<String>,
}

/// What putting a surface came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placed {
    /// It stands in the turn's row, which is this person's turn.
    Here(Principal),
    /// The turn has another one, which whoever posts its answer takes over.
    Taken,
    /// It is too late: the turn has ended, and no answer of it will take anything over.
    Over,
    /// It is too late: the answer is on its way, and may have taken it over all the same. Once it
    /// is posted, with what its channel said of where.
    Late(Option<String>),
}

impl PutSurface {
    fn post(&self) -> Option<Key> {
        name::post(self.turn, 0).map(|id| Key::item(&id))
    }

    /// What becomes of the first post of an ended turn.
    fn posting<'a>(&self, rows: &'a Working) -> Option<&'a ItemState> {
        let item = self.post().and_then(|key| rows.get::<Item>(&key));
        item.map(|item| &item.state)
    }

    /// It may not be shown any more.
    fn too_late(&self, rows: &Working) -> Placed {
        match self.posting(rows) {
            Some(ItemState::Pending | ItemState::Leased { .. }) => Placed::Late(None),
            Some(ItemState::Done(receipt)) => Placed::Late(Some(receipt.clone())),
            Some(ItemState::Dead(_)) | None => Placed::Over,
        }
    }
}

impl Operation for PutSurface {
    type Output = Placed;

    fn aggregate(&self) -> Aggregate {
        Aggregate::Session(self.session.clone())
    }

    fn class(&self) -> Class {
        Class::HINT
    }

    fn needs(&self, _: &Working) -> Vec<Key> {
        [Key::turn(self.turn)].into_iter().chain(self.post()).collect()
    }

    fn decide(&self, at: &Situation, rows: &mut Working) -> Result<Placed, Refusal> {
        let key = Key::turn(self.turn);
        let Some(turn) = rows.get::<Turn>(&key) else { return Ok(Placed::Over) };
        let before = turn.surface.clone();
        let own = |before: &Surface| before.boot == self.boot && before.mark == self.mark;
        if before.as_ref().is_some_and(|before| !own(before)) {
            return Ok(Placed::Taken);
        }
        let may = match turn.state {
            TurnState::Open => true,
            // The post still learns where it is, but not once somebody is at it.
            TurnState::Committed => {
                before.is_some() && self.posting(rows) == Some(&ItemState::Pending)
            }
            TurnState::Dead(_) | TurnState::Stopped => false,
        };
        if !may {
            return Ok(self.too_late(rows));
        }
        let principal = turn.principal.clone();
        let (opened_at, known) =
            before.map_or((at.now, None), |before| (before.opened_at, before.at));
        let surface = Surface {
            boot: self.boot.clone(),
            form: self.form,
            mark: self.mark.clone(),
            opened_at,
            at: self.at.clone().or(known),
        };
        if turn.surface.as_ref() != Some(&surface)
            && let Some(turn) = rows.edit::<Turn>(&key)
        {
            turn.surface = Some(surface);
        }
        Ok(Placed::Here(principal))
    }
}
