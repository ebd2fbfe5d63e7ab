//! The turn machine: runs one turn of one session. Owns the loop of model, tools and arrivals, the
//! checks at its end, its budgets and what is posted. Must not know stores, providers, time or how
//! anything is done: inputs say what happened, effects say what is to be done.
//!
//! The whole state of a turn is a fold over its log (`fold`), besides what is under way right now.
//! So a turn that lost its process goes on from its log as if nothing had happened; what was under
//! way is asked again, run again, or said to be unknown.

mod answer;
mod fold;
mod machine;
mod plan;
mod teach;

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::budget::{ChainLeft, Limits};
use super::id::{EntryNo, ExecutionId};
use super::message::{Answer, ModelError};
use super::transcript::{Body, Call, Entry, Notice, Origin};

pub use machine::Turn;

/// What is done with a call that has no result when its turn is resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterCrash {
    /// It is run again: it changes nothing, or recognises its own repeat.
    Rerun,
    /// The model is told that nobody knows whether it was done.
    Unknown,
}

/// What the turn must know of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolRule {
    /// Its exact name, as declared to the model.
    pub name: String,
    /// It only looks: the loop guard does not see it.
    pub probe: bool,
    /// It may run beside its neighbours in the same answer.
    pub parallel: bool,
    /// It ends the turn without a post: `stay_silent`.
    pub ends_turn: bool,
    /// What is done with it after a crash.
    pub after_crash: AfterCrash,
}

/// What holds for one turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// The tools that are declared to the model.
    pub tools: Vec<ToolRule>,
    /// How the turn began.
    pub origin: Origin,
    /// How much it may do.
    pub limits: Limits,
    /// What is left of its chain when it is claimed.
    pub chain: ChainLeft,
    /// An earlier attempt began it, so there may be arrivals that it has not taken.
    pub resumed: bool,
    /// The agent was just called to a place where something may have been said before.
    pub looks_back: bool,
}

/// An entry to be appended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct New {
    /// What it says.
    pub body: Body,
    /// The execution whose completion this result fetched.
    pub collect: Option<ExecutionId>,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// The model answered.
    Answered(Answer),
    /// The model did not answer.
    ModelFailed(ModelError),
    /// A call ended.
    ToolDone {
        /// Which call of the last answer.
        call: u32,
        /// Its result.
        result: Value,
        /// The execution whose completion it fetched.
        collect: Option<ExecutionId>,
    },
    /// What was said before the agent was called; `None` where nothing was.
    Earlier(Option<Notice>),
    /// The log has these entries now: those asked for and what was taken with them.
    Appended {
        /// As stored, in order.
        entries: Vec<(EntryNo, Entry)>,
        /// What is left of the chain now.
        chain: ChainLeft,
    },
    /// This process ends; the turn is to go on in another.
    Shutdown,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Ask the model with the log as it is now.
    CallModel {
        /// `false`: one last word, no tools are declared.
        tools: bool,
    },
    /// Read what was said before the agent was called. Ends with an `Earlier`.
    LookBack,
    /// Run these calls, all at once. Each ends with a `ToolDone`.
    RunTools {
        /// The entry that made them.
        entry: EntryNo,
        /// Place in that entry, and the call; its arguments are a JSON object.
        calls: Vec<(u32, Call)>,
    },
    /// Append to the log. Never more than one at a time.
    Append {
        /// In order.
        new: Vec<New>,
        /// Take what has arrived for this turn in the same apply.
        take: bool,
    },
    /// End the turn.
    Commit {
        /// What people read, in order.
        posts: Vec<String>,
    },
    /// Give the lane back; the turn stays open. A model call under way is dropped.
    Release(Why),
    /// Show it to people; lossy.
    Progress(Progress),
}

/// Why the lane is given back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// The attempt failed; another may succeed.
    Failed {
        /// One line what was seen, without secrets.
        what: String,
        /// The provider is away; it is no fault of this turn.
        outage: bool,
        /// The provider asks to wait so long.
        retry_after_ms: Option<u64>,
    },
    /// No attempt will succeed.
    Fatal {
        /// One line why, without secrets.
        what: String,
    },
    /// Another process goes on.
    Handover,
}

/// What a person may see while a turn runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Progress {
    /// The text so far is not the answer: tools follow.
    Discarded,
    /// The text so far is a whole answer; it is posted when the turn ends.
    Whole,
    /// A tool runs.
    Tool {
        /// Its name.
        name: String,
    },
}
