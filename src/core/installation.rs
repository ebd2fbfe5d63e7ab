//! An installation: where somebody let the bot in, and whether it is still there. Owns what is kept
//! of it. Must not know whose surface it is, nor how anything is sealed.

use serde::{Deserialize, Serialize};

use super::id::SessionId;
use super::time::Timestamp;

/// Why an installation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Departure {
    /// The app was taken out.
    Uninstalled,
    /// The bot's token was made void.
    Revoked,
}

impl Departure {
    /// For people: what was seen.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Uninstalled => "the app was removed from the workspace",
            Self::Revoked => "the bot's token was made void",
        }
    }
}

/// Is it there?
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Presence {
    /// It is.
    Here,
    /// It was.
    Gone {
        /// Why not any more.
        why: Departure,
        /// When that was written down, by the store's time.
        noted_at: Timestamp,
    },
}

/// The work of an installation that is gone is being stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leaving {
    /// When it ended, by the clock that messages come with: what a person says later is answered.
    pub source_at: Timestamp,
    /// Its sessions are stopped up to this one, in the order of their names.
    pub upto: Option<SessionId>,
}

/// What is kept of an installation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Installation {
    /// Is it there?
    pub presence: Presence,
    /// When it was last made, or found to be whole.
    pub since: Timestamp,
    /// How often it ended. Names the stops that follow.
    pub departures: u64,
    /// Its work is yet to be stopped.
    pub leaving: Option<Leaving>,
}

impl Installation {
    /// Why it is gone, if it is.
    pub const fn departure(&self) -> Option<Departure> {
        match self.presence {
            Presence::Here => None,
            Presence::Gone { why, .. } => Some(why),
        }
    }

    /// When something is to be done about it by itself.
    pub const fn due_at(&self) -> Option<Timestamp> {
        match &self.leaving {
            Some(_) => Some(self.since),
            None => None,
        }
    }
}
