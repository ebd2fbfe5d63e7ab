//! Names of things. Owns their shape and bounds; a value of these types is well formed.
//! Must not know where an id comes from: randomness enters through `ports::Ids`.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};
use smol_str::SmolStr;

/// Longest id in bytes. Keys of rows and of files are made of ids, so they stay short.
pub const ID_BYTES_MAX: usize = 160;

/// Why a text is not an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// Nothing there.
    #[error("{what} is empty")]
    Empty {
        /// Which id.
        what: &'static str,
    },
    /// Longer than [`ID_BYTES_MAX`].
    #[error("{what} has {bytes} bytes, at most {ID_BYTES_MAX} are allowed")]
    Long {
        /// Which id.
        what: &'static str,
        /// Its length in bytes.
        bytes: usize,
    },
    /// A control character or a space at either end.
    #[error("{what} has a control character or outer white space")]
    Character {
        /// Which id.
        what: &'static str,
    },
}

fn check(what: &'static str, text: &str) -> Result<(), IdError> {
    if text.is_empty() {
        return Err(IdError::Empty { what });
    }
    if text.len() > ID_BYTES_MAX {
        return Err(IdError::Long { what, bytes: text.len() });
    }
    if text.chars().any(char::is_control) || text.trim() != text {
        return Err(IdError::Character { what });
    }
    Ok(())
}

macro_rules! text_id {
    ($($(#[$doc:meta])* $name:ident = $what:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(transparent)]
        pub struct $name(SmolStr);

        impl $name {
            /// Takes a well-formed text.
            pub fn new(text: impl Into<String>) -> Result<Self, IdError> {
                let text = text.into();
                check($what, &text)?;
                Ok(Self(text.into()))
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let text = SmolStr::deserialize(d)?;
                check($what, &text).map_err(serde::de::Error::custom)?;
                Ok(Self(text))
            }
        }
    )*};
}

text_id! {
    /// One conversation lane, such as `console/main`.
    SessionId = "session id";
    /// Where somebody let the bot in, such as `slack/T1`: its sessions are those below it.
    InstallationId = "installation id";
    /// One run of a process: fresh at every start.
    BootId = "boot id";
    /// A spool directory, kept in it: the home of work that survives the bot.
    SpoolId = "spool id";
    /// An execution, unique in its session.
    ExecutionId = "execution id";
    /// One try to claim a lane.
    ClaimId = "claim id";
    /// One stop, so that a repeat of it is recognised.
    StopId = "stop id";
    /// One press of a person's cancel.
    PressId = "press id";
    /// One try to deliver an outbox item.
    LeaseId = "lease id";
    /// An outbox item; fixed by what it says, so it is its own idempotency key.
    ItemId = "item id";
    /// A file that people share, by the name that its place gives it.
    FileId = "file id";
    /// Who an arrival or an execution belongs to.
    Principal = "principal";
    /// A supersession key: a new execution with it ends the older one.
    SupersessionKey = "key";
    /// One identity of a message by which its repeats are recognised.
    DedupeKey = "dedupe key";
    /// The random part of a notice's fence, fresh at each delivery.
    Nonce = "nonce";
}

impl ExecutionId {
    /// The name outside its session: `<session>/<id>`.
    pub fn within(&self, session: &SessionId) -> String {
        format!("{session}/{self}")
    }
}

/// Number of a turn in its session, from 1.
pub type TurnNo = u64;
/// Number of an arrival in its session, from 1, in order of arrival.
pub type Seq = u64;
/// Number of a log entry in its session, from 0.
pub type EntryNo = u64;
/// Number of a chain in its session, from 1.
pub type ChainNo = u64;
/// Raised by `stop all`.
pub type Generation = u64;
/// Grows at every claim of a lane.
pub type Fence = u64;
