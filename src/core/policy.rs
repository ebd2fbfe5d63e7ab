//! What an agent may do. Owns its role and the families of tools it is offered.
//! Must not know the tools themselves or how an agent is configured.

use serde::{Deserialize, Serialize};

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

    /// As written in configuration.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Writable => "writable",
            Self::ReadOnly => "read-only",
        }
    }
}

/// Tools that belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// `trigger_and_auto_notify` and `watch__*`.
    Watch,
    /// `stay_silent`.
    Silence,
}

impl Family {
    /// Every family of this build.
    pub const ALL: [Self; 2] = [Self::Watch, Self::Silence];

    /// As written in configuration.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Watch => "watch",
            Self::Silence => "silence",
        }
    }
}
