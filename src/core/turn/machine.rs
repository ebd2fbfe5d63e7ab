//! The driver of a turn: what is under way, and what follows from it. Owns the order of effects.
//! Must not know the meaning of entries: that is the fold's.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::fold::{Fold, Next};
use super::plan::{Batch, Planned};
use super::{Effect, Input, New, Progress, Rules, Why, answer, teach};
use crate::core::budget::ChainLeft;
use crate::core::id::{EntryNo, ExecutionId};
use crate::core::loop_guard::{HINT_FIELD, annotate};
use crate::core::message::{Answer, ModelError};
use crate::core::time::Timestamp;
use crate::core::transcript::{Body, Call, Entry, Notice};

/// One turn of one session.
///
/// The engine does each effect and hands back what happened. Inputs that nothing waits for (a
/// result that comes after the lane was given back) change nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    rules: Rules,
    chain: ChainLeft,
    log: Vec<(EntryNo, Entry)>,
    fold: Fold,
    phase: Phase,
    /// An append is under way.
    appending: bool,
    /// This process ends.
    leaving: bool,
}

/// What is under way besides an append.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Phase {
    /// Nothing.
    Writing,
    /// What was said before is read.
    LookingBack,
    /// A model call.
    Asking { tools: bool },
    /// Calls of the last answer.
    Working {
        /// Those that run.
        running: BTreeSet<u32>,
        /// Those that ended; not yet handed to an append.
        ended: Vec<Ended>,
    },
    /// The turn is committed or the lane given back.
    Over,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Ended {
    call: u32,
    result: Value,
    collect: Option<ExecutionId>,
}

impl Turn {
    /// Begins a turn, or goes on with one whose process is gone: both follow from its log.
    pub fn begin(rules: Rules, _now: Timestamp, log: Vec<(EntryNo, Entry)>) -> (Self, Vec<Effect>) {
        let mut turn = Self {
            chain: rules.chain,
            rules,
            log: Vec::new(),
            fold: Fold::default(),
            phase: Phase::Writing,
            appending: false,
            leaving: false,
        };
        if log.is_empty() {
            let what = "the turn has no arrivals".to_owned();
            let effects = turn.release(Why::Fatal { what });
            return (turn, effects);
        }
        turn.learn(log);
        let lost = turn.lost();
        let effects = if lost.is_empty() {
            turn.resume()
        } else {
            turn.phase = Phase::Working { running: BTreeSet::new(), ended: lost };
            turn.hand_over().into_iter().collect()
        };
        (turn, effects)
    }

    /// Takes what happened and says what is to be done.
    pub fn step(&mut self, _now: Timestamp, input: Input) -> Vec<Effect> {
        match input {
            Input::Answered(answer) => match self.phase {
                Phase::Asking { tools } => self.answered(answer, tools),
                Phase::Writing | Phase::LookingBack | Phase::Working { .. } | Phase::Over => {
                    Vec::new()
                }
            },
            Input::ModelFailed(error) => match self.phase {
                Phase::Asking { .. } => self.failed(&error),
                Phase::Writing | Phase::LookingBack | Phase::Working { .. } | Phase::Over => {
                    Vec::new()
                }
            },
            Input::Earlier(earlier) => match self.phase {
                Phase::LookingBack => self.go_on(earlier),
                Phase::Writing | Phase::Asking { .. } | Phase::Working { .. } | Phase::Over => {
                    Vec::new()
                }
            },
            Input::ToolDone { call, result, collect } => self.tool_done(call, result, collect),
            Input::Appended { entries, chain } => {
                if !std::mem::take(&mut self.appending) {
                    return Vec::new();
                }
                self.chain = chain;
                self.learn(entries);
                self.advance()
            }
            Input::Shutdown => self.shutdown(),
        }
    }

    #[cfg(test)]
    pub(super) fn fold(&self) -> &Fold {
        &self.fold
    }

    /// The turn's log so far.
    pub fn entries(&self) -> &[(EntryNo, Entry)] {
        &self.log
    }

    fn learn(&mut self, entries: Vec<(EntryNo, Entry)>) {
        for (no, entry) in entries {
            self.fold.read(&self.rules, no, &entry);
            self.log.push((no, entry));
        }
    }

    /// What was said before the agent was called is read once, before the model is first asked.
    fn resume(&mut self) -> Vec<Effect> {
        let fold = &self.fold;
        let is_new = fold.model_calls == 0 && !fold.looked_back && fold.next() == Next::Ask;
        if self.rules.looks_back && is_new && !self.chain.is_spent() {
            self.phase = Phase::LookingBack;
            return vec![Effect::LookBack];
        }
        self.go_on(None)
    }

    /// A person who wrote since the last attempt is heard before the model is asked again.
    fn go_on(&mut self, earlier: Option<Notice>) -> Vec<Effect> {
        let asks = self.rules.resumed && self.fold.next() == Next::Ask;
        let can = self.fold.last_word(&self.rules.limits).is_none() && !self.chain.is_spent();
        let take = asks && can;
        let bodies: Vec<Body> = earlier.into_iter().map(Body::Earlier).collect();
        if take || !bodies.is_empty() {
            return vec![self.write(bodies, take)];
        }
        self.advance()
    }

    fn advance(&mut self) -> Vec<Effect> {
        match self.fold.next() {
            Next::Work => self.work(),
            Next::Commit => self.commit(),
            Next::Ask if self.leaving => self.release(Why::Handover),
            Next::Ask if self.chain.is_spent() => self.commit(),
            Next::Ask => {
                let tools = self.fold.last_word(&self.rules.limits).is_none();
                self.phase = Phase::Asking { tools };
                vec![Effect::CallModel { tools }]
            }
        }
    }

    /// Ends the turn. A spent chain is said first, in the log like everything that is posted; the
    /// closing then stands for an answer that the chain cannot pay.
    fn commit(&mut self) -> Vec<Effect> {
        match self.chain.closing(self.rules.origin) {
            Some(text) if !self.fold.is_closed() => {
                vec![self.write(vec![Body::Closing { text: text.to_owned() }], false)]
            }
            Some(_) | None => {
                self.phase = Phase::Over;
                vec![Effect::Commit { posts: self.fold.posts() }]
            }
        }
    }

    fn answered(&mut self, answer: Answer, tools: bool) -> Vec<Effect> {
        let tokens = answer.usage.tokens();
        let entry = answer::entry(answer, tools);
        let calls = matches!(&entry, Body::Model { calls, .. } if !calls.is_empty());
        if calls {
            // Nothing is taken between calls and their results.
            return vec![Effect::Progress(Progress::Discarded), self.write(vec![entry], false)];
        }
        let whole = Effect::Progress(Progress::Whole);
        if let Some(reason) = self.fold.last_word(&self.rules.limits) {
            let text = reason.closing(&self.rules.limits);
            return vec![whole, self.write(vec![entry, Body::Closing { text }], false)];
        }
        // What comes when no round is left to answer it with tools is the next turn's.
        let take = self.fold.has_round_left(&self.rules.limits, 1) && self.chain.outlasts(tokens);
        vec![whole, self.write(vec![entry], take)]
    }

    fn failed(&mut self, error: &ModelError) -> Vec<Effect> {
        let what = error.to_string();
        let why = match error {
            ModelError::Outage { retry_after_ms, .. } => {
                Why::Failed { what, outage: true, retry_after_ms: *retry_after_ms }
            }
            ModelError::Garbled { .. } => Why::Failed { what, outage: false, retry_after_ms: None },
            ModelError::Refused { .. } => Why::Fatal { what },
        };
        self.release(why)
    }

    fn shutdown(&mut self) -> Vec<Effect> {
        self.leaving = true;
        match self.phase {
            Phase::LookingBack | Phase::Asking { .. } => self.release(Why::Handover),
            // What ran is kept: its results are appended first.
            Phase::Writing | Phase::Working { .. } | Phase::Over => Vec::new(),
        }
    }

    fn release(&mut self, why: Why) -> Vec<Effect> {
        self.phase = Phase::Over;
        vec![Effect::Release(why)]
    }

    fn write(&mut self, bodies: Vec<Body>, take: bool) -> Effect {
        self.phase = Phase::Writing;
        self.appending = true;
        let new = bodies.into_iter().map(|body| New { body, collect: None }).collect();
        Effect::Append { new, take }
    }

    /// Results for the calls that a process took with it. Only the first wave can have been
    /// started; what may not be run again has an unknown outcome there and none further on.
    fn lost(&self) -> Vec<Ended> {
        let Some(batch) = &self.fold.batch else { return Vec::new() };
        let wave: BTreeSet<u32> = batch.wave().into_iter().map(|call| call.no).collect();
        let lost = batch.unrun().filter(|call| !call.reruns()).map(|call| {
            let name = &call.call.name;
            let result = if wave.contains(&call.no) {
                teach::interrupted(name)
            } else {
                teach::not_started(name)
            };
            Ended::of(call, result)
        });
        lost.collect()
    }

    /// Goes on with the calls of the last answer: hands over what ended, and once a wave is in the
    /// log starts the next.
    fn work(&mut self) -> Vec<Effect> {
        if let Phase::Working { running, ended } = &self.phase
            && !(running.is_empty() && ended.is_empty())
        {
            return self.hand_over().into_iter().collect();
        }
        let (ended, calls) = self.next_wave();
        if ended.is_empty() && calls.is_empty() {
            // Only a process that ends leaves calls unrun; the next one runs them.
            return self.release(Why::Handover);
        }
        let running = calls.iter().map(|(no, _)| *no).collect();
        self.phase = Phase::Working { running, ended };
        let mut effects: Vec<Effect> = self.hand_over().into_iter().collect();
        if let Some(batch) = self.fold.batch.as_ref().filter(|_| !calls.is_empty()) {
            effects.extend(calls.iter().map(|(_, call)| {
                let name = call.name.clone();
                Effect::Progress(Progress::Tool { name })
            }));
            effects.push(Effect::RunTools { entry: batch.entry, calls });
        }
        effects
    }

    /// The results that need no run, and the calls to be run now.
    fn next_wave(&self) -> (Vec<Ended>, Vec<(u32, Call)>) {
        let Some(batch) = &self.fold.batch else { return (Vec::new(), Vec::new()) };
        let mut ended: Vec<Ended> =
            batch.refused().map(|(call, result)| Ended::of(call, result.clone())).collect();
        if self.chain.is_spent() {
            let spent = |call: &Planned| Ended::of(call, teach::chain_budget(&call.call.name));
            ended.extend(batch.unrun().map(spent));
            return (ended, Vec::new());
        }
        if self.leaving {
            let unrun = batch.unrun().filter(|call| !call.reruns());
            ended.extend(unrun.map(|call| Ended::of(call, teach::not_started(&call.call.name))));
            return (ended, Vec::new());
        }
        let calls = batch.wave().into_iter().map(|call| (call.no, call.call.clone())).collect();
        (ended, calls)
    }

    fn tool_done(&mut self, call: u32, result: Value, collect: Option<ExecutionId>) -> Vec<Effect> {
        match &mut self.phase {
            Phase::Working { running, ended } => {
                if running.remove(&call) {
                    ended.push(Ended { call, result, collect });
                }
            }
            Phase::Writing | Phase::LookingBack | Phase::Asking { .. } | Phase::Over => {
                return Vec::new();
            }
        }
        self.hand_over().into_iter().collect()
    }

    /// Appends the results that are there. With the last one of an answer comes what has arrived,
    /// unless the model could not act on it any more: then it is the next turn's.
    fn hand_over(&mut self) -> Option<Effect> {
        let Phase::Working { ended, .. } = &mut self.phase else { return None };
        if self.appending || ended.is_empty() {
            return None;
        }
        let ended = std::mem::take(ended);
        let batch = self.fold.batch.as_ref()?;
        let limits = &self.rules.limits;
        let silence = ended.iter().any(|end| {
            batch.get(end.call).is_some_and(Planned::ends_turn) && !teach::is_error(&end.result)
        });
        let goes_on = if silence {
            self.fold.has_round_left(limits, 0)
        } else {
            self.fold.last_word(limits).is_none()
        };
        let answered: BTreeSet<u32> = ended.iter().map(|end| end.call).collect();
        let take = goes_on && !self.chain.is_spent() && batch.would_be_answered(&answered);
        let new = ended.into_iter().map(|end| self.result_of(batch, end)).collect();
        self.appending = true;
        Some(Effect::Append { new, take })
    }

    fn result_of(&self, batch: &Batch, end: Ended) -> New {
        let mut result = answer::bounded(end.result);
        if let Some(call) = batch.get(end.call) {
            result = call.marked(result);
            if call.is_probe() {
                let times = self.fold.guard.probed(&call.call.name, &call.call.arguments, &result);
                if times >= self.rules.limits.probes_unchanged {
                    result = annotate(result, HINT_FIELD, teach::polling_hint(times));
                }
            }
        }
        let body = Body::Tool { entry: batch.entry, call: end.call, result, notice: None };
        New { body, collect: end.collect }
    }
}

impl Ended {
    fn of(call: &Planned, result: Value) -> Self {
        Self { call: call.no, result, collect: None }
    }
}
