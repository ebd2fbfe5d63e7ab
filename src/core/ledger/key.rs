//! Names of aggregates, rows and revisions. Owns their spelling; text order is the listing order.
//! Must not know what the rows hold.

use std::fmt;

use serde::{Deserialize, Serialize};
use smol_str::{SmolStr, format_smolstr};

use crate::core::execution::Start;
use crate::core::id::{
    BootId, ChainNo, DedupeKey, EntryNo, ExecutionId, InstallationId, ItemId, Principal, Seq,
    SessionId, SupersessionKey, TurnNo,
};

/// A set of rows under one revision; it changes alone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Aggregate {
    /// One place where the bot was let in.
    Installation(InstallationId),
    /// The ways to installations that were begun.
    Installer,
    /// One running process.
    Node(BootId),
    /// What one person may have running, over all sessions.
    Owner(Principal),
    /// One conversation lane.
    Session(SessionId),
}

impl Aggregate {
    /// The session's id, if it is one.
    pub const fn session(&self) -> Option<&SessionId> {
        match self {
            Self::Session(id) => Some(id),
            Self::Installer | Self::Installation(_) | Self::Node(_) | Self::Owner(_) => None,
        }
    }

    /// Reads what `Display` wrote. Lets a store keep it as one text.
    pub fn parse(text: &str) -> Option<Self> {
        match text.split_once('/')? {
            ("installer", "ways") => Some(Self::Installer),
            ("installation", rest) => InstallationId::new(rest).ok().map(Self::Installation),
            ("node", rest) => BootId::new(rest).ok().map(Self::Node),
            ("owner", rest) => Principal::new(rest).ok().map(Self::Owner),
            ("session", rest) => SessionId::new(rest).ok().map(Self::Session),
            _ => None,
        }
    }
}

impl fmt::Display for Aggregate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Installer => f.write_str("installer/ways"),
            Self::Installation(id) => write!(f, "installation/{id}"),
            Self::Node(id) => write!(f, "node/{id}"),
            Self::Owner(id) => write!(f, "owner/{id}"),
            Self::Session(id) => write!(f, "session/{id}"),
        }
    }
}

/// The random id of the last apply; compared for equality, never for order.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Revision(pub String);

/// What the names of places begin with.
const PLACE: &str = "p/";

/// The name of a row in its aggregate. Numbers are padded, so text order is number order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Key(SmolStr);

impl Key {
    /// Head of a session: generation, lane, counters.
    pub fn head() -> Self {
        Self(SmolStr::new_static("h"))
    }
    /// The two lists of unread arrivals.
    pub fn inbox() -> Self {
        Self(SmolStr::new_static("q"))
    }
    /// Ids of executions that are not over.
    pub fn live() -> Self {
        Self(SmolStr::new_static("l"))
    }
    /// Ids of the executions that ended last.
    pub fn recent() -> Self {
        Self(SmolStr::new_static("r"))
    }
    /// The last unfinished outbox item of each destination.
    pub fn tails() -> Self {
        Self(SmolStr::new_static("o"))
    }
    /// What the log before `log_from` said.
    pub fn summary() -> Self {
        Self(SmolStr::new_static("s"))
    }
    /// An arrival.
    pub fn arrival(seq: Seq) -> Self {
        Self(format_smolstr!("a/{seq:012}"))
    }
    /// A turn.
    pub fn turn(no: TurnNo) -> Self {
        Self(format_smolstr!("u/{no:012}"))
    }
    /// A log entry.
    pub fn entry(no: EntryNo) -> Self {
        Self(format_smolstr!("t/{no:012}"))
    }
    /// An execution.
    pub fn execution(id: &ExecutionId) -> Self {
        Self(format_smolstr!("x/{id}"))
    }
    /// A start key: turn, log entry, call. Never the provider's call id.
    pub fn start(turn: TurnNo, entry: EntryNo, call: u32) -> Self {
        Self(format_smolstr!("i/{turn:012}.{entry:012}.{call:04}"))
    }
    /// A supersession key.
    pub fn supersession(key: &SupersessionKey) -> Self {
        Self(format_smolstr!("k/{key}"))
    }
    /// A dedupe key of an arrival.
    pub fn dedupe(key: &DedupeKey) -> Self {
        Self(format_smolstr!("d/{key}"))
    }
    /// A chain.
    pub fn chain(no: ChainNo) -> Self {
        Self(format_smolstr!("c/{no:012}"))
    }
    /// An outbox item.
    pub fn item(id: &ItemId) -> Self {
        Self(format_smolstr!("m/{id}"))
    }
    /// The one row of a node.
    pub fn beat() -> Self {
        Self(SmolStr::new_static("n"))
    }

    /// How many places an owner has taken.
    pub fn places() -> Self {
        Self(SmolStr::new_static("c"))
    }

    /// A place of an owner: for what this call in this session starts.
    pub fn place(session: &SessionId, start: &Start) -> Self {
        let Start { turn, entry, call } = start;
        Self(format_smolstr!("{PLACE}{session}#{turn:012}.{entry:012}.{call:04}"))
    }

    /// Before every place of an owner, and after everything else.
    pub fn before_places() -> Self {
        Self(SmolStr::new_static(PLACE))
    }

    /// The one row of an installation.
    pub fn installation() -> Self {
        Self(SmolStr::new_static("installation"))
    }

    /// The one row of the installer.
    pub fn invitations() -> Self {
        Self(SmolStr::new_static("invitations"))
    }

    /// A key as a store kept it.
    pub fn stored(text: impl Into<String>) -> Self {
        Self(SmolStr::from(text.into()))
    }

    /// Its spelling.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
