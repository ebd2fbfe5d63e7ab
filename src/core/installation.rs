//! An installation: where somebody let the bot in, and whether it is still there. Owns what is kept
//! of it. Must not know whose surface it is, nor how anything is sealed.

use serde::{Deserialize, Serialize};

use super::id::{LeaseId, SessionId};
use super::limits::REFRESH_AHEAD_MS_MAX;
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
    /// What was granted; nothing where its token is configured.
    pub grant: Option<Grant>,
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
    pub fn due_at(&self) -> Option<Timestamp> {
        match (&self.leaving, &self.presence) {
            (Some(_), _) => Some(self.since),
            (None, Presence::Gone { .. }) => None,
            (None, Presence::Here) => self.grant.as_ref()?.refresh.as_ref()?.due_at(),
        }
    }
}

/// What a surface granted: who the bot is there, and its tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// How people call the place.
    pub name: String,
    /// The bot's user there.
    pub user: String,
    /// The bot there.
    pub bot: Option<String>,
    /// The app.
    pub app: Option<String>,
    /// What it may do, with commas between.
    pub scopes: String,
    /// Its tokens, sealed by the surface.
    pub sealed: String,
    /// Where they end.
    pub refresh: Option<Refresh>,
}

/// Tokens that end are changed for new ones before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refresh {
    /// When they end.
    pub expires_at: Timestamp,
    /// When they are changed.
    pub at: Timestamp,
    /// Who is at it, and until when nobody else is.
    pub lease: Option<(LeaseId, Timestamp)>,
    /// Failures in a row.
    pub failures: u32,
    /// They cannot be changed any more; why.
    pub void: Option<String>,
}

impl Refresh {
    /// Of tokens that were got now and end after so long. The earlier half of their life is theirs,
    /// and of a long one all but the last [`REFRESH_AHEAD_MS_MAX`].
    pub fn new(now: Timestamp, life_ms: u64) -> Self {
        let ahead_ms = (life_ms / 2).min(REFRESH_AHEAD_MS_MAX);
        let at = now.plus_ms(life_ms.saturating_sub(ahead_ms));
        Self { expires_at: now.plus_ms(life_ms), at, lease: None, failures: 0, void: None }
    }

    /// When somebody is to look at it.
    pub fn due_at(&self) -> Option<Timestamp> {
        match (&self.void, &self.lease) {
            (Some(_), _) => None,
            (None, Some((_, until))) => Some(*until),
            (None, None) => Some(self.at),
        }
    }
}

/// What becomes of a way to an installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redeemed {
    /// It was begun, and ends now.
    Fresh,
    /// It has ended before.
    Used,
    /// It was not begun, or too long ago.
    Unknown,
}

/// A way to an installation that somebody has begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invitation {
    /// By what it is known.
    pub hash: String,
    /// When it was begun.
    pub at: Timestamp,
    /// It has ended.
    pub used: bool,
}

/// All of them, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invitations(pub Vec<Invitation>);
