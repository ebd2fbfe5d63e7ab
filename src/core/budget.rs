//! Budgets of a turn and of a chain. Owns their sizes, why a turn gets no more tools, and what
//! people are told then. Must not know the log or how a turn is run.

use serde::{Deserialize, Serialize};

use super::limits;
use super::transcript::Origin;

/// How much one turn may do. The defaults are those of `limits`; an agent may have less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Answers of the model, before one last word without tools.
    pub model_calls: u32,
    /// Tool calls, probes and refused ones too.
    pub tool_calls: u32,
    /// Tool calls of one answer; more get an error.
    pub calls_per_answer: usize,
    /// Rounds that arrivals at the turn's end may add.
    pub extra_rounds: u32,
    /// From this same call on the result carries an alert.
    pub loop_alert_at: u32,
    /// This same call is not run and ends the turn.
    pub loop_end_at: u32,
    /// So many same results of one probe in a row get a hint.
    pub probes_unchanged: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            model_calls: limits::MODEL_CALLS_PER_TURN_MAX,
            tool_calls: limits::TOOL_CALLS_PER_TURN_MAX,
            calls_per_answer: limits::TOOL_CALLS_PER_ANSWER_MAX,
            extra_rounds: limits::EXTRA_ROUNDS_MAX,
            loop_alert_at: limits::LOOP_ALERT_AT,
            loop_end_at: limits::LOOP_END_AT,
            probes_unchanged: limits::PROBES_UNCHANGED_MAX,
        }
    }
}

/// What is left of the chain that a turn draws from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainLeft {
    /// Tokens.
    pub tokens: u64,
    /// Synthetic turns.
    pub wakes: u32,
    /// Executions.
    pub spawns: u32,
}

impl ChainLeft {
    /// No model call more. Wakes and spawns end other things than the turn that runs.
    pub const fn is_spent(self) -> bool {
        self.tokens == 0
    }

    /// What people are told at the end of a turn: from now on nothing wakes the agent by itself.
    pub fn closing(self, origin: Origin) -> Option<&'static str> {
        match origin {
            Origin::Human | Origin::Synthetic if self.tokens == 0 => Some(CHAIN_SPENT),
            Origin::Synthetic if self.wakes == 0 => Some(WAKES_SPENT),
            Origin::Human | Origin::Synthetic => None,
        }
    }

    /// Could it still pay a call after one that used so many tokens?
    pub const fn outlasts(self, tokens: u64) -> bool {
        self.tokens > tokens
    }
}

/// Why the model gets one last word without tools.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LastWord {
    /// It made the same call again and again.
    Loop {
        /// The tool, fit to be shown.
        tool: String,
    },
    /// The turn's model calls are used up.
    ModelCalls,
    /// The turn's tool calls are used up.
    ToolCalls,
}

impl LastWord {
    /// What people are told after the last word.
    pub fn closing(&self, limits: &Limits) -> String {
        match self {
            Self::Loop { tool } => format!(
                "(This turn was ended: the agent called {tool} {} times with the same arguments. \
                 Write a message to go on.)",
                limits.loop_end_at
            ),
            Self::ModelCalls => format!(
                "(This turn's budget of {} model calls is spent. Write a message to go on.)",
                limits.model_calls
            ),
            Self::ToolCalls => format!(
                "(This turn's budget of {} tool calls is spent. Write a message to go on.)",
                limits.tool_calls
            ),
        }
    }
}

/// What people are told when a chain is spent.
const CHAIN_SPENT: &str = "(The budget of this conversation's chain is spent: no tokens are \
     left. What runs in the background goes on, and its results are read with your next message. \
     Write a message to go on.)";

/// What people are told when a chain has woken the agent as often as it may.
const WAKES_SPENT: &str = "(The budget of this conversation's chain is spent: background work has \
     woken the agent as often as it may. What runs goes on, and its results are read with your \
     next message. Write a message to go on.)";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_closing_names_its_budget_and_the_way_on() {
        let limits = Limits::default();
        let cases = [
            (LastWord::Loop { tool: "`probe`".into() }, "called `probe` 5 times"),
            (LastWord::ModelCalls, "50 model calls"),
            (LastWord::ToolCalls, "200 tool calls"),
        ];
        for (word, named) in cases {
            let text = word.closing(&limits);
            assert!(text.contains(named), "{text}");
            assert!(text.contains("Write a message to go on"), "{text}");
        }
    }

    #[test]
    fn a_spent_chain_is_said_at_the_end_of_a_turn() {
        let told = |tokens, wakes, origin| ChainLeft { tokens, wakes, spawns: 0 }.closing(origin);
        for origin in [Origin::Human, Origin::Synthetic] {
            assert_eq!(told(0, 1, origin), Some(CHAIN_SPENT));
            assert_eq!(told(1, 1, origin), None);
        }
        assert_eq!(told(1, 0, Origin::Synthetic), Some(WAKES_SPENT));
        assert_eq!(told(1, 0, Origin::Human), None);
        for text in [CHAIN_SPENT, WAKES_SPENT] {
            assert!(text.contains("chain is spent") && text.contains("Write a message to go on"));
        }
    }

    #[test]
    fn a_chain_outlasts_what_leaves_a_token() {
        let chain = ChainLeft { tokens: 10, wakes: 0, spawns: 0 };
        assert!(chain.outlasts(9));
        assert!(!chain.outlasts(10));
        assert!(!chain.is_spent());
        assert!(ChainLeft { tokens: 0, ..chain }.is_spent());
    }
}
