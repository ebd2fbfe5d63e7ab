//! A turn with a log, an inbox, a scripted model and tools around it. Owns the rules of Append and
//! Commit as the ledger has them, so that a turn which breaks one is caught at once.

use std::collections::{BTreeSet, VecDeque};

use serde_json::Value;

use crate::core::budget::{ChainLeft, Limits};
use crate::core::id::{EntryNo, Nonce, Principal, Seq};
use crate::core::message::{Answer, ModelError};
use crate::core::time::Timestamp;
use crate::core::transcript::{Body, Call, Entry, Finish, Notice, Origin, Usage};
use crate::core::turn::{AfterCrash, Effect, Input, New, Progress, Rules, ToolRule, Turn, Why};

pub(super) const SILENT: &str = "stay_silent";

pub(super) fn rule(name: &str) -> ToolRule {
    ToolRule {
        name: name.into(),
        probe: name.starts_with("look"),
        parallel: name.starts_with("par") || name.starts_with("look"),
        ends_turn: name == SILENT,
        after_crash: if name.starts_with("once") { AfterCrash::Unknown } else { AfterCrash::Rerun },
    }
}

pub(super) fn rules(origin: Origin) -> Rules {
    let names = ["seq", "once", "par", "par_once", "look", SILENT];
    Rules {
        tools: names
            .map(|name| match name {
                "par_once" => ToolRule { after_crash: AfterCrash::Unknown, ..rule(name) },
                _ => rule(name),
            })
            .into(),
        origin,
        limits: Limits::default(),
        chain: ChainLeft { tokens: 1_000_000, wakes: 10, spawns: 10 },
        resumed: false,
        looks_back: false,
    }
}

pub(super) fn says(text: &str) -> Answer {
    let usage = Usage { input_tokens: 10, output_tokens: 1, reported: true };
    Answer { text: text.into(), calls: vec![], finish: Finish::Stop, usage }
}

pub(super) fn calls(calls: &[(&str, &str)]) -> Answer {
    let made = calls.iter().enumerate().map(|(n, (name, arguments))| Call {
        id: format!("id{n}"),
        name: (*name).into(),
        arguments: (*arguments).into(),
    });
    Answer { calls: made.collect(), finish: Finish::ToolCalls, ..says("one moment") }
}

/// Where and how a process dies.
#[derive(Debug, Clone, Copy)]
pub(super) struct Crash {
    /// Before this effect is done, counted from the beginning of the turn.
    pub(super) at: usize,
    /// The effect is done, but its answer is lost.
    pub(super) after: bool,
}

#[derive(Debug, Clone)]
pub(super) enum Arrived {
    Person(String),
    Notice(String),
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    Committed(Vec<String>),
    Released(Why),
}

type Model<'a> = dyn FnMut(&[(EntryNo, Entry)]) -> Result<Answer, ModelError> + 'a;

pub(super) struct Bench {
    pub(super) rules: Rules,
    pub(super) turn: Turn,
    pub(super) log: Vec<(EntryNo, Entry)>,
    pub(super) effects: VecDeque<Effect>,
    /// What arrives once the log has so many entries.
    pub(super) schedule: Vec<(usize, Arrived)>,
    pub(super) inbox: Vec<(Seq, Arrived)>,
    pub(super) arrived: Seq,
    pub(super) asked: Vec<bool>,
    /// What was said before the agent was called.
    pub(super) earlier: Option<String>,
    /// How often that was read.
    pub(super) looked_back: usize,
    pub(super) ran: Vec<(EntryNo, u32, Call)>,
    pub(super) progress: Vec<Progress>,
    pub(super) appends: Vec<(Vec<New>, bool)>,
    done: usize,
}

const NOW: Timestamp = Timestamp::from_ms(1);

impl Bench {
    /// Of a turn that begins with one arrival.
    pub(super) fn new(rules: Rules) -> Self {
        let first = match rules.origin {
            Origin::Human => Arrived::Person("hello".into()),
            Origin::Synthetic => Arrived::Notice("w0 completed".into()),
        };
        let (turn, _) = Turn::begin(rules.clone(), NOW, vec![]);
        let mut bench = Self {
            rules,
            turn,
            log: vec![],
            effects: VecDeque::new(),
            schedule: vec![],
            inbox: vec![],
            arrived: 0,
            asked: vec![],
            earlier: None,
            looked_back: 0,
            ran: vec![],
            progress: vec![],
            appends: vec![],
            done: 0,
        };
        bench.arrive(first);
        bench.take(None);
        bench.begin();
        bench
    }

    pub(super) fn begin(&mut self) {
        let (turn, effects) = Turn::begin(self.rules.clone(), NOW, self.log.clone());
        self.turn = turn;
        self.effects = effects.into();
    }

    pub(super) fn arrive(&mut self, what: Arrived) {
        self.arrived += 1;
        self.inbox.push((self.arrived, what));
    }

    pub(super) fn step(&mut self, input: Input) {
        let effects = self.turn.step(NOW, input);
        self.effects.extend(effects);
    }

    fn store(&mut self, body: Body, carries: Vec<Seq>) {
        let no = 7 + self.log.len() as EntryNo;
        self.log.push((no, Entry { turn: 3, fence: 1, at: NOW, body, carries }));
    }

    /// People first, then the notices as one text: in the result, or for itself.
    fn take(&mut self, result: Option<usize>) {
        let mut notices = vec![];
        for (seq, what) in std::mem::take(&mut self.inbox) {
            match what {
                Arrived::Person(text) => {
                    let principal = Principal::new("ann").unwrap();
                    let body = Body::Heard { principal, text, at: NOW, unanswered: false };
                    self.store(body, vec![seq]);
                }
                Arrived::Notice(text) => notices.push((seq, text)),
            }
        }
        if notices.is_empty() {
            return;
        }
        let carries: Vec<Seq> = notices.iter().map(|(seq, _)| *seq).collect();
        let text = notices.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join("\n");
        let taken = Notice { nonce: Nonce::new("k3").unwrap(), text };
        match result.map(|at| &mut self.log[at].1) {
            Some(Entry { body: Body::Tool { notice, .. }, carries: by, .. }) => {
                *notice = Some(taken);
                by.extend(carries);
            }
            _ => self.store(Body::Notice(taken), carries),
        }
    }

    pub(super) fn append(&mut self, new: Vec<New>, take: bool) -> Input {
        let takes_only = self.rules.resumed && take;
        assert!(!new.is_empty() || takes_only, "an append of nothing");
        let written = !new.is_empty();
        self.appends.push((new.clone(), take));
        let from = self.log.len();
        let schedule = std::mem::take(&mut self.schedule);
        for (at, what) in schedule {
            // By the length after the append, so that it is the same however results are grouped.
            if at <= from + new.len() { self.arrive(what) } else { self.schedule.push((at, what)) }
        }
        for New { body, collect } in new {
            if let Body::Model { usage, .. } = &body {
                self.rules.chain.tokens = self.rules.chain.tokens.saturating_sub(usage.tokens());
            }
            self.check_place(&body);
            let carries =
                if collect.is_some() { vec![1_000 + self.log.len() as Seq] } else { vec![] };
            self.store(body, carries);
        }
        if take {
            let last = self.log.len() - 1;
            let in_result = written && matches!(self.log[last].1.body, Body::Tool { .. });
            self.take(in_result.then_some(last));
        }
        Input::Appended { entries: self.log[from..].to_vec(), chain: self.rules.chain }
    }

    /// Results stand behind their answer with nothing but results between, one for each call.
    fn check_place(&self, body: &Body) {
        let open = self.open_calls();
        match body {
            Body::Tool { entry, call, .. } => {
                assert!(open.contains(&(*entry, *call)), "a result nobody waits for");
            }
            other => assert!(open.is_empty(), "{other:?} stands before the results of {open:?}"),
        }
    }

    pub(super) fn look_back(&mut self) {
        let answered = self.log.iter().any(|(_, entry)| entry.body.is_model());
        assert!(!answered, "an answer stands before it");
        self.looked_back += 1;
        let nonce = Nonce::new("e1").unwrap();
        let earlier = self.earlier.clone().map(|text| Notice { nonce, text });
        self.step(Input::Earlier(earlier));
    }

    /// Calls without a result.
    pub(super) fn open_calls(&self) -> BTreeSet<(EntryNo, u32)> {
        let mut open = BTreeSet::new();
        for (no, entry) in &self.log {
            match &entry.body {
                Body::Model { calls, .. } => {
                    open.extend((0u32..).zip(calls).map(|(c, _)| (*no, c)));
                }
                Body::Tool { entry, call, .. } => assert!(open.remove(&(*entry, *call)), "twice"),
                other => assert!(open.is_empty(), "{other:?} in the middle of a batch"),
            }
        }
        open
    }

    /// All that the turn knows is in the log.
    pub(super) fn check_fold(&self) {
        assert_eq!(self.turn.entries(), self.log);
        let (other, _) = Turn::begin(self.rules.clone(), NOW, self.log.clone());
        assert_eq!(other.fold(), self.turn.fold());
    }

    /// What the ledger asks of a Commit.
    pub(super) fn check_commit(&self) {
        let last_word = self.log.iter().rposition(|(_, e)| e.body.is_model()).expect("no answer");
        for (no, entry) in &self.log[last_word..] {
            assert!(entry.carries.is_empty(), "entry {no} carries what no answer has seen");
        }
        match &self.log.last().unwrap().1.body {
            Body::Model { calls, .. } => assert!(calls.is_empty(), "calls are pending"),
            Body::Closing { .. } => {}
            Body::Tool { entry, call, result, .. } => {
                let by = self.log.iter().find(|(no, _)| no == entry).unwrap();
                let Body::Model { calls, .. } = &by.1.body else { panic!("no answer") };
                assert_eq!(calls[*call as usize].name, SILENT);
                assert!(result.get("error").is_none(), "{result}");
                assert_eq!(self.rules.origin, Origin::Synthetic);
            }
            other => panic!("committed after {other:?}"),
        }
    }

    /// Does effects until the turn is over. The model and the tools see what they would see.
    pub(super) fn run(
        &mut self,
        model: &mut Model<'_>,
        tool: &mut dyn FnMut(&Call) -> Value,
        mut crash: Option<Crash>,
    ) -> End {
        for _ in 0..5_000 {
            let effect = self.effects.pop_front().expect("the turn hangs");
            if let Some(at) = crash.take_if(|crash| crash.at == self.done) {
                if at.after && matches!(effect, Effect::Append { .. } | Effect::CallModel { .. }) {
                    self.effect(effect, model, tool);
                }
                self.done += 1;
                self.begin();
                continue;
            }
            self.done += 1;
            if let Some(end) = self.effect(effect, model, tool) {
                assert!(self.effects.is_empty(), "{:?} after the end", self.effects);
                return end;
            }
            self.check_fold();
        }
        panic!("the turn does not end");
    }

    fn effect(
        &mut self,
        effect: Effect,
        model: &mut Model<'_>,
        tool: &mut dyn FnMut(&Call) -> Value,
    ) -> Option<End> {
        match effect {
            Effect::CallModel { tools } => {
                assert!(self.open_calls().is_empty(), "asked while calls are pending");
                self.asked.push(tools);
                self.step(match model(&self.log) {
                    Ok(answer) => Input::Answered(answer),
                    Err(error) => Input::ModelFailed(error),
                });
            }
            Effect::LookBack => self.look_back(),
            Effect::RunTools { entry, calls } => {
                assert!(!calls.is_empty(), "a run of nothing");
                for (call, made) in calls {
                    assert!(self.open_calls().contains(&(entry, call)));
                    let result = tool(&made);
                    self.ran.push((entry, call, made));
                    self.step(Input::ToolDone { call, result, collect: None });
                }
            }
            Effect::Append { new, take } => {
                let appended = self.append(new, take);
                self.step(appended);
            }
            Effect::Commit { posts } => {
                self.check_commit();
                return Some(End::Committed(posts));
            }
            Effect::Release(why) => return Some(End::Released(why)),
            Effect::Progress(progress) => self.progress.push(progress),
        }
        None
    }

    /// Runs with these answers in turn, the last one for ever, and tools that all say `ok`.
    pub(super) fn play(&mut self, answers: &[Answer]) -> End {
        self.play_with(answers, &mut |_| serde_json::json!({"status": "ok"}))
    }

    pub(super) fn play_with(
        &mut self,
        answers: &[Answer],
        tool: &mut dyn FnMut(&Call) -> Value,
    ) -> End {
        self.run(&mut |log| Ok(scripted(answers, log)), tool, None)
    }

    /// Does the next effect, an append or a sign of progress, by hand.
    pub(super) fn settle(&mut self) {
        while let Some(Effect::Append { .. } | Effect::Progress(_)) = self.effects.front() {
            let effect = self.effects.pop_front().unwrap();
            let none = &mut |_: &Call| Value::Null;
            self.effect(effect, &mut |_| panic!("asked"), none);
        }
    }

    pub(super) fn results(&self) -> Vec<&Value> {
        self.log
            .iter()
            .filter_map(|(_, entry)| match &entry.body {
                Body::Tool { result, .. } => Some(result),
                _ => None,
            })
            .collect()
    }
}

/// The answer that follows so many answers.
pub(super) fn scripted(answers: &[Answer], log: &[(EntryNo, Entry)]) -> Answer {
    let so_far = log.iter().filter(|(_, e)| matches!(e.body, Body::Model { .. })).count();
    answers[so_far.min(answers.len() - 1)].clone()
}
