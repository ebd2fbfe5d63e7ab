//! What an outbox item asks for, and the line in which it stands. Must not know who does it.

use std::ops::Not;

use serde::{Deserialize, Serialize};

use crate::core::execution::{Address, PostSort, Start};
use crate::core::id::{ExecutionId, ItemId, Principal, SpoolId};
use crate::core::time::Timestamp;

/// What an outbox item asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Errand {
    /// A post to people.
    Post {
        /// Where.
        address: Address,
        /// What.
        text: String,
        /// What sort.
        sort: PostSort,
    },
    /// The message that shows how an execution stands: post it, or make it final.
    Show {
        /// Where.
        address: Address,
        /// Which.
        execution: ExecutionId,
        /// The item that posted it, where this one makes it final.
        of: Option<ItemId>,
    },
    /// End the process of an execution that the ledger has ended.
    Kill {
        /// Which.
        execution: ExecutionId,
        /// In which spool; `None` where it lived in a process.
        spool: Option<SpoolId>,
    },
    /// Give the place of an execution that is over back to its owner.
    Free {
        /// Whose.
        owner: Principal,
        /// The call that started it, in this session.
        start: Start,
    },
    /// The first message of a conversation that a person asks for where there is none yet.
    Root {
        /// A place where people read, without a conversation.
        address: Address,
        /// What they say in it, and whose it is.
        opening: Opening,
        /// About so many stood before it.
        behind: u32,
    },
    /// What a person said enters the conversation that this root has begun.
    Begin {
        /// The item that posted the root.
        of: ItemId,
    },
}

/// What a person says in a conversation that is still to be begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    /// Whose it is.
    pub principal: Principal,
    /// What they say.
    pub text: String,
    /// When, by its source.
    pub said_at: Timestamp,
    /// A turn may take it together with what other people say.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub shared: bool,
}

impl Errand {
    /// The line it stands in, where it stands in one: posts of one place follow each other. The
    /// message of an execution has a line of its own, so that an edit which Slack puts off, or
    /// refuses, holds up no answer.
    pub fn line(&self) -> Option<String> {
        match self {
            Self::Post { address, .. } | Self::Root { address, .. } => Some(post_line(address)),
            Self::Show { address, execution, .. } => Some(show_line(address, execution)),
            Self::Kill { .. } | Self::Free { .. } | Self::Begin { .. } => None,
        }
    }
}

/// The line of what is posted there.
pub fn post_line(address: &Address) -> String {
    format!("{}/{}", address.surface, address.thread)
}

/// The line of the message that shows this execution there.
pub fn show_line(address: &Address, execution: &ExecutionId) -> String {
    format!("{}#{execution}", post_line(address))
}
