//! Anything that enters a session. Owns what an arrival is and where it stands.
//! Must not know which channel it came by.

use std::ops::Not;

use serde::{Deserialize, Serialize};

use super::execution::{Address, Fate};
use super::id::{ChainNo, DedupeKey, ExecutionId, Generation, Principal, Seq, TurnNo};
use super::time::Timestamp;

/// What arrived.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Body {
    /// A person's message.
    Message {
        /// Its text, sanitised.
        text: String,
    },
    /// What dogwatch has to add to an earlier message: it was edited or deleted after it was read.
    Remark {
        /// The text for the model.
        text: String,
    },
    /// The end of an execution; its outcome is in the execution's row.
    Completion {
        /// Which execution.
        execution: ExecutionId,
    },
}

/// Where an arrival stands. The only truth about its delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// In the inbox.
    Pending,
    /// Carried by an entry of this open turn.
    Offered(TurnNo),
    /// Over, in this turn where one had it.
    Settled {
        /// How.
        fate: Fate,
        /// The turn, 0 where none had it.
        turn: TurnNo,
    },
    /// Its sender deleted it before it was read.
    Withdrawn,
}

/// The record of one arrival.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrival {
    /// Its place in the order of arrival.
    pub seq: Seq,
    /// What arrived.
    pub body: Body,
    /// Whose it is.
    pub principal: Principal,
    /// Where an answer goes.
    pub address: Address,
    /// When it happened, by its source.
    pub source_at: Timestamp,
    /// When it was accepted.
    pub accepted_at: Timestamp,
    /// When it was settled or withdrawn.
    pub settled_at: Option<Timestamp>,
    /// The generation it was accepted in.
    pub generation: Generation,
    /// The chain it draws from; a person's message opens one.
    pub chain: ChainNo,
    /// To be claimed alone, since a turn with it broke off.
    pub solo: bool,
    /// Where it stands.
    pub standing: Standing,
    /// A turn may take it together with those of other people.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub shared: bool,
}

/// What an adapter hands in: a message of a person, or a change of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incoming {
    /// Every identity by which a repeat may be recognised, at least one.
    pub keys: Vec<DedupeKey>,
    /// What arrived.
    pub what: What,
    /// Whose it is.
    pub principal: Principal,
    /// Where an answer goes.
    pub address: Address,
    /// When it happened, by its source.
    pub source_at: Timestamp,
    /// It is for a conversation that is there already: it begins none.
    #[serde(default)]
    pub continues: bool,
    /// Its place lets a turn take it together with those of other people, and do what all of them
    /// may. Frozen here: what is configured later changes nothing of it.
    #[serde(default)]
    pub shared: bool,
}

/// What an adapter may hand in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// A new message.
    Message {
        /// Its text.
        text: String,
    },
    /// The message with this key now reads so.
    Edit {
        /// A key of the message.
        of: DedupeKey,
        /// Its new text.
        text: String,
    },
    /// The message with this key is gone.
    Deletion {
        /// A key of the message.
        of: DedupeKey,
    },
}
