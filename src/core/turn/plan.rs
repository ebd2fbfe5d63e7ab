//! What is to be done with the calls of one answer. Owns the verdict on each call, made once when
//! the answer enters the log, and the order in which they run. Must not know what is under way.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{AfterCrash, Rules, ToolRule, fold::Fold, teach};
use crate::core::id::EntryNo;
use crate::core::limits::CALLS_KEPT_PER_ANSWER_MAX;
use crate::core::loop_guard::{ALERT_FIELD, annotate};
use crate::core::transcript::{Call, Finish, Origin};

/// The calls of the last answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Batch {
    /// The entry that made them.
    pub(super) entry: EntryNo,
    /// In order.
    pub(super) calls: Vec<Planned>,
}

/// One call and what is done with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Planned {
    /// Its place.
    pub(super) no: u32,
    /// As it is run: blank arguments are an empty object.
    pub(super) call: Call,
    /// Run it, or answer it like this.
    pub(super) verdict: Verdict,
    /// A line for its result, since it was made before.
    pub(super) alert: Option<String>,
    /// Its result is in the log.
    pub(super) answered: bool,
}

/// What is done with a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    /// It is run.
    Run {
        /// Beside its neighbours.
        parallel: bool,
        /// It only looks.
        probe: bool,
        /// Its success ends the turn.
        ends_turn: bool,
        /// After a crash.
        after_crash: AfterCrash,
    },
    /// It is not run; this is its result.
    Refuse(Value),
}

impl Planned {
    /// Is it to be run?
    pub(super) const fn runs(&self) -> bool {
        matches!(self.verdict, Verdict::Run { .. })
    }

    /// Does it only look?
    pub(super) const fn is_probe(&self) -> bool {
        matches!(self.verdict, Verdict::Run { probe: true, .. })
    }

    /// Does its success end the turn?
    pub(super) const fn ends_turn(&self) -> bool {
        matches!(self.verdict, Verdict::Run { ends_turn: true, .. })
    }

    /// Is it run again after a crash?
    pub(super) const fn reruns(&self) -> bool {
        matches!(self.verdict, Verdict::Run { after_crash: AfterCrash::Rerun, .. })
    }

    const fn is_parallel(&self) -> bool {
        matches!(self.verdict, Verdict::Run { parallel: true, .. })
    }

    /// The result as it enters the log.
    pub(super) fn marked(&self, result: Value) -> Value {
        match &self.alert {
            Some(alert) => annotate(result, ALERT_FIELD, alert.clone()),
            None => result,
        }
    }
}

impl Batch {
    /// All calls have their results in the log.
    pub(super) fn is_answered(&self) -> bool {
        self.calls.iter().all(|call| call.answered)
    }

    /// Would all calls have results, were these in the log too?
    pub(super) fn would_be_answered(&self, with: &BTreeSet<u32>) -> bool {
        self.calls.iter().all(|call| call.answered || with.contains(&call.no))
    }

    /// A call by its place.
    pub(super) fn get(&self, no: u32) -> Option<&Planned> {
        self.calls.iter().find(|call| call.no == no)
    }

    /// Calls without a result that are not run.
    pub(super) fn refused(&self) -> impl Iterator<Item = (&Planned, &Value)> {
        self.calls.iter().filter(|call| !call.answered).filter_map(|call| match &call.verdict {
            Verdict::Refuse(result) => Some((call, result)),
            Verdict::Run { .. } => None,
        })
    }

    /// Calls without a result that are to be run.
    pub(super) fn unrun(&self) -> impl Iterator<Item = &Planned> {
        self.calls.iter().filter(|call| !call.answered && call.runs())
    }

    /// The calls that run next, all at once: the first without a result, and with a parallel one
    /// the parallel ones right behind it. No other call without a result can have been started.
    pub(super) fn wave(&self) -> Vec<&Planned> {
        let mut unrun = self.unrun().peekable();
        match unrun.peek() {
            Some(first) if first.is_parallel() => {
                unrun.take_while(|call| call.is_parallel()).collect()
            }
            Some(_) => unrun.take(1).collect(),
            None => Vec::new(),
        }
    }
}

impl Fold {
    /// Decides on each call of an answer, and counts them.
    pub(super) fn plan(
        &mut self,
        rules: &Rules,
        entry: EntryNo,
        calls: &[Call],
        finish: Finish,
    ) -> Batch {
        let alone = calls.len() == 1;
        let calls = (0u32..).zip(calls).map(|(no, call)| {
            let mut call = call.clone();
            if call.arguments.trim().is_empty() {
                "{}".clone_into(&mut call.arguments);
            }
            let (verdict, alert) = if no as usize >= rules.limits.calls_per_answer {
                (Verdict::Refuse(teach::surplus(&rules.limits, CALLS_KEPT_PER_ANSWER_MAX)), None)
            } else {
                self.judge(rules, &call, alone, finish)
            };
            Planned { no, call, verdict, alert, answered: false }
        });
        Batch { entry, calls: calls.collect() }
    }

    fn judge(
        &mut self,
        rules: &Rules,
        call: &Call,
        alone: bool,
        finish: Finish,
    ) -> (Verdict, Option<String>) {
        let limits = &rules.limits;
        self.tool_calls = self.tool_calls.saturating_add(1);
        if self.tool_calls > limits.tool_calls {
            return (Verdict::Refuse(teach::tool_budget(limits)), None);
        }
        let rule = rules.tools.iter().find(|rule| rule.name == call.name);
        let mut alert = None;
        if !rule.is_some_and(|rule| rule.probe) {
            let times = self.guard.record(&call.name, &call.arguments);
            if times >= limits.loop_end_at {
                self.looping.get_or_insert_with(|| teach::shown(&call.name));
                return (Verdict::Refuse(teach::repeated(&call.name, limits)), None);
            }
            if times >= limits.loop_alert_at {
                alert = Some(teach::loop_alert(&call.name, times, limits));
            }
        }
        let person_waits = rules.origin == Origin::Human || self.person_waits;
        let verdict = match permit(rule, rules, call, finish) {
            Ok(rule) if rule.ends_turn && person_waits => {
                Verdict::Refuse(teach::person_waits(&call.name))
            }
            Ok(rule) if rule.ends_turn && !alone => Verdict::Refuse(teach::not_alone(&call.name)),
            Ok(rule) => Verdict::Run {
                parallel: rule.parallel,
                probe: rule.probe,
                ends_turn: rule.ends_turn,
                after_crash: rule.after_crash,
            },
            Err(fault) => Verdict::Refuse(fault),
        };
        (verdict, alert)
    }
}

/// The rule of a declared tool that is called with a JSON object; else what is wrong.
fn permit<'a>(
    rule: Option<&'a ToolRule>,
    rules: &Rules,
    call: &Call,
    finish: Finish,
) -> Result<&'a ToolRule, Value> {
    let Some(rule) = rule else {
        let declared: Vec<&str> = rules.tools.iter().map(|rule| rule.name.as_str()).collect();
        return Err(teach::unknown_tool(&call.name, &declared));
    };
    match serde_json::from_str::<Value>(&call.arguments) {
        Ok(Value::Object(_)) => Ok(rule),
        Ok(_) => Err(teach::not_an_object(&call.name)),
        Err(fault) => {
            let cut = finish == Finish::Length;
            Err(teach::invalid_json(&call.name, &fault.to_string(), cut))
        }
    }
}
