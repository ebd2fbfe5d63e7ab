//! The log of a session, entry by entry. Owns the typed entries that a turn is made of; the whole
//! state of a turn is a fold over them. Must not know provider roles or how entries are stored.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::id::{EntryNo, Fence, Nonce, Principal, Seq, TurnNo};
use super::time::Timestamp;

/// One tool call as the model made it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// The provider's id of the call, handed back with the result. Never an identity of ours.
    pub id: String,
    /// The tool's name, as the model wrote it.
    pub name: String,
    /// The arguments, as the model wrote them: possibly not JSON.
    pub arguments: String,
}

/// What one model call used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens read.
    pub input_tokens: u64,
    /// Tokens written.
    pub output_tokens: u64,
    /// The provider said so; otherwise it is an estimate from the text's length.
    pub reported: bool,
}

impl Usage {
    /// Both together.
    pub const fn tokens(self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }
}

/// Why the model stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// It was done.
    Stop,
    /// It wants tools run.
    ToolCalls,
    /// Its output was cut at the limit.
    Length,
    /// The provider withheld it.
    Filtered,
}

/// A notice as the model reads it, fixed when it was carried: a later rendering is byte-identical.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// The random part of its fence.
    pub nonce: Nonce,
    /// The whole text, envelope and fenced data.
    pub text: String,
}

/// What an entry says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Body {
    /// A person's message.
    Heard {
        /// Who wrote it.
        principal: Principal,
        /// The text.
        text: String,
        /// When it was accepted.
        at: Timestamp,
        /// A stop ended the turn before it was answered, or it came after a stop.
        unanswered: bool,
    },
    /// Something dogwatch adds about an earlier message.
    Remark {
        /// The text.
        text: String,
    },
    /// Completions, folded into one text, standing for themselves.
    Notice(Notice),
    /// What was said at this place before the agent was called there. It carries no arrival.
    Earlier(Notice),
    /// An answer of the model.
    Model {
        /// Its text.
        text: String,
        /// The tools it wants run, in order.
        calls: Vec<Call>,
        /// Why it stopped.
        finish: Finish,
        /// What it used.
        usage: Usage,
    },
    /// The result of one call of the last model entry.
    Tool {
        /// Which entry made the call.
        entry: EntryNo,
        /// Which of its calls.
        call: u32,
        /// The result: a JSON value.
        result: Value,
        /// Completions that came while the tools ran; merged into the result when rendered.
        notice: Option<Notice>,
    },
    /// A line of dogwatch's own that closes a turn or records what happened to it.
    Note {
        /// The text.
        text: String,
    },
    /// dogwatch's own line that stands for the model's answer and is posted: a budget is spent.
    Closing {
        /// The text.
        text: String,
    },
}

/// One row of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The turn it belongs to, 0 outside any.
    pub turn: TurnNo,
    /// The fence it was written under.
    pub fence: Fence,
    /// When it was written.
    pub at: Timestamp,
    /// What it says.
    pub body: Body,
    /// The arrivals it brings before the model.
    pub carries: Vec<Seq>,
}

/// How a turn began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// By a person's message.
    Human,
    /// By a completion.
    Synthetic,
}

impl Body {
    /// Does it count as the model's word, so that what stands before it is seen?
    pub const fn is_model(&self) -> bool {
        matches!(self, Self::Model { .. } | Self::Closing { .. })
    }
}
