//! What a model is asked and what it answers, in no provider's words. Owns the request that
//! `render` makes and the answer that the turn reads. Must not know roles or wire formats.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::transcript::{Call, Finish, Usage};

/// One part of what the model reads, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// The rules: the system prompt, or a later addition of dogwatch's own.
    Instructions(String),
    /// A person's words.
    Person(String),
    /// What dogwatch reports: a notice, a remark, a note. Never an instruction.
    Report(String),
    /// What the model said earlier.
    Model {
        /// Its text.
        text: String,
        /// Its calls.
        calls: Vec<Call>,
    },
    /// The result of one call.
    Tool {
        /// The call's id, as the model gave it.
        call_id: String,
        /// The tool's name.
        name: String,
        /// The result as JSON text.
        content: String,
    },
}

/// A tool as it is declared to the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Its exact name.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// JSON Schema of its arguments.
    pub parameters: Value,
}

/// One model call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Which agent asks; the adapter maps it to a provider's model.
    pub agent: String,
    /// What the model reads.
    pub messages: Vec<Message>,
    /// The tools it may call; empty for a last word without tools.
    pub tools: Vec<ToolSpec>,
}

/// What the model answered, once it is whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Its text.
    pub text: String,
    /// Its calls.
    pub calls: Vec<Call>,
    /// Why it stopped.
    pub finish: Finish,
    /// What it used.
    pub usage: Usage,
}

/// A piece of an answer while it comes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delta {
    /// More text.
    Text(String),
    /// A call has begun.
    Call {
        /// The tool's name.
        name: String,
    },
}

/// Why a model call gave no answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum ModelError {
    /// The provider cannot be reached or is not well: connect, 5xx, 429, a stream that stalls or
    /// breaks. It does not blame the request.
    #[error("the model is away: {what}")]
    Outage {
        /// What was seen, without secrets.
        what: String,
        /// How long the provider asks us to wait.
        retry_after_ms: Option<u64>,
    },
    /// The answer cannot be used; asking again may help.
    #[error("the model's answer cannot be used: {what}")]
    Garbled {
        /// What was wrong.
        what: String,
    },
    /// The request itself is refused: it will be refused again.
    #[error("the model refuses the request: {what}")]
    Refused {
        /// What the provider said, without secrets.
        what: String,
    },
}

impl ModelError {
    /// The same with other words, for who must take something out of them.
    #[must_use]
    pub fn map(self, words: impl FnOnce(String) -> String) -> Self {
        match self {
            Self::Outage { what, retry_after_ms } => {
                Self::Outage { what: words(what), retry_after_ms }
            }
            Self::Garbled { what } => Self::Garbled { what: words(what) },
            Self::Refused { what } => Self::Refused { what: words(what) },
        }
    }
}
