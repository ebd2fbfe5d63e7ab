//! What a turn's log means. Owns the counts, the pending calls, the posts and the next step; all
//! of it follows from the rules and the entries alone. Must not know what is under way.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::plan::Batch;
use super::{Rules, teach};
use crate::core::budget::{LastWord, Limits};
use crate::core::id::EntryNo;
use crate::core::loop_guard::LoopGuard;
use crate::core::transcript::{Body, Call, Entry, Finish};

/// Posted where a turn ends without a word, and silence was not asked for.
const NOTHING_TO_SAY: &str = "(The agent had nothing to say.)";
const CUT: &str = "(The answer was cut: the model reached its output limit.)";
const WITHHELD: &str = "(The model's provider withheld the answer or the rest of it.)";

/// The state of a turn, as its log has it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Fold {
    /// Answers so far.
    pub(super) model_calls: u32,
    /// Calls so far, without those beyond what one answer may make.
    pub(super) tool_calls: u32,
    /// How often the model was done; each but the last was followed by an extra round.
    pub(super) ends: u32,
    /// Calls and probes so far.
    pub(super) guard: LoopGuard,
    /// The tool that was called too often, fit to be shown.
    pub(super) looping: Option<String>,
    /// The calls of the last answer, while some have no result.
    pub(super) batch: Option<Batch>,
    /// What was said before the agent was called stands in the log.
    pub(super) looked_back: bool,
    /// A person of this turn has no text yet for an answer.
    pub(super) person_waits: bool,
    /// The last word may end the turn: nothing came after it.
    ended: bool,
    /// Silence was asked for, and nothing came after it.
    silent: bool,
    /// The last entry is an answer without calls; a closing is part of its post.
    joins: bool,
    /// The last word is dogwatch's own.
    closed: bool,
    posts: Vec<String>,
}

/// The next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Calls have no result yet.
    Work,
    /// The model has something to answer.
    Ask,
    /// The turn is over.
    Commit,
}

impl Fold {
    /// Reads one more entry.
    pub(super) fn read(&mut self, rules: &Rules, no: EntryNo, entry: &Entry) {
        let joins = std::mem::take(&mut self.joins);
        match &entry.body {
            Body::Heard { unanswered, .. } => {
                self.person_waits |= !unanswered;
            }
            Body::Model { text, calls, finish, .. } => {
                self.silent = false;
                self.closed = false;
                self.model_calls = self.model_calls.saturating_add(1);
                if calls.is_empty() {
                    self.spoke(text, *finish);
                } else {
                    self.called(rules, no, calls, *finish);
                }
            }
            Body::Tool { entry: by, call, result, .. } => self.returned(*by, *call, result),
            Body::Earlier(_) => self.looked_back = true,
            Body::Remark { .. } | Body::Notice(_) | Body::Note { .. } => {}
            Body::Closing { text } => self.closed(text, joins),
        }
        if !entry.carries.is_empty() {
            self.came();
        }
    }

    /// Something is carried that the model has not answered.
    fn came(&mut self) {
        self.ended = false;
        self.silent = false;
        self.closed = false;
    }

    fn spoke(&mut self, text: &str, finish: Finish) {
        self.batch = None;
        self.ended = true;
        self.ends = self.ends.saturating_add(1);
        let text = text.trim();
        let remark = match finish {
            Finish::Stop | Finish::ToolCalls => "",
            Finish::Length => CUT,
            Finish::Filtered => WITHHELD,
        };
        let post = match (text.is_empty(), remark.is_empty()) {
            (true, true) => return,
            (false, true) => text.to_owned(),
            (true, false) => remark.to_owned(),
            (false, false) => format!("{text}\n\n{remark}"),
        };
        self.person_waits = false;
        self.joins = true;
        self.posts.push(post);
    }

    fn called(&mut self, rules: &Rules, no: EntryNo, calls: &[Call], finish: Finish) {
        self.ended = false;
        self.batch = Some(self.plan(rules, no, calls, finish));
    }

    fn returned(&mut self, entry: EntryNo, no: u32, result: &Value) {
        let Some(batch) = self.batch.as_mut().filter(|batch| batch.entry == entry) else { return };
        let Some(planned) = batch.calls.iter_mut().find(|call| call.no == no) else { return };
        planned.answered = true;
        if planned.is_probe() {
            self.guard.record_probe(&planned.call.name, &planned.call.arguments, result);
        }
        let ends = planned.ends_turn() && !teach::is_error(result);
        if batch.is_answered() {
            self.batch = None;
        }
        if ends {
            self.ended = true;
            self.silent = true;
            self.ends = self.ends.saturating_add(1);
        }
    }

    fn closed(&mut self, text: &str, joins: bool) {
        self.batch = None;
        self.ended = true;
        self.silent = false;
        self.closed = true;
        self.person_waits = false;
        match self.posts.last_mut().filter(|_| joins) {
            Some(post) => {
                post.push_str("\n\n");
                post.push_str(text);
            }
            None => self.posts.push(text.to_owned()),
        }
    }

    /// What is next.
    pub(super) fn next(&self) -> Next {
        match &self.batch {
            Some(_) => Next::Work,
            None if self.ended => Next::Commit,
            None => Next::Ask,
        }
    }

    /// Is the last word dogwatch's own?
    pub(super) const fn is_closed(&self) -> bool {
        self.closed
    }

    /// Why the next answer is the last one, if it is.
    pub(super) fn last_word(&self, limits: &Limits) -> Option<LastWord> {
        if let Some(tool) = &self.looping {
            Some(LastWord::Loop { tool: tool.clone() })
        } else if self.model_calls >= limits.model_calls {
            Some(LastWord::ModelCalls)
        } else if self.tool_calls >= limits.tool_calls {
            Some(LastWord::ToolCalls)
        } else {
            None
        }
    }

    /// May arrivals at the turn's end add a round, after so many answers more?
    pub(super) fn has_round_left(&self, limits: &Limits, answers: u32) -> bool {
        self.ends < limits.extra_rounds
            && self.model_calls.saturating_add(answers) < limits.model_calls
            && self.last_word(limits).is_none()
    }

    /// What people read at Commit.
    pub(super) fn posts(&self) -> Vec<String> {
        if self.posts.is_empty() && !self.silent {
            return vec![NOTHING_TO_SAY.to_owned()];
        }
        self.posts.clone()
    }
}
