//! Who may what. Owns the role of an agent, the families of tools it is offered, and whose work
//! people may end. Must not know the tools themselves or how an agent is configured.

use serde::{Deserialize, Serialize};

use super::id::Principal;

/// Whether an agent may change anything.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// It may start and end work.
    #[default]
    Writable,
    /// It sees no tool that writes.
    ReadOnly,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 2] = [Self::Writable, Self::ReadOnly];

    /// The one that allows less.
    #[must_use]
    pub const fn narrower(self, other: Self) -> Self {
        match (self, other) {
            (Self::Writable, Self::Writable) => Self::Writable,
            (Self::ReadOnly, _) | (_, Self::ReadOnly) => Self::ReadOnly,
        }
    }

    /// As written in configuration.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Writable => "writable",
            Self::ReadOnly => "read-only",
        }
    }
}

/// May these people, together, end work of this owner? Work belongs to who started it, and several
/// people together may do what each of them may alone.
pub fn may_end<'a>(owner: &Principal, people: impl IntoIterator<Item = &'a Principal>) -> bool {
    people.into_iter().all(|one| one == owner)
}

/// Tools that belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// `trigger_and_auto_notify` and `watch__*`.
    Watch,
    /// `stay_silent`.
    Silence,
    /// `read_file`, where people share files.
    Files,
}

impl Family {
    /// Every family of this build.
    pub const ALL: [Self; 3] = [Self::Watch, Self::Silence, Self::Files];

    /// As written in configuration.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Watch => "watch",
            Self::Silence => "silence",
            Self::Files => "files",
        }
    }
}
