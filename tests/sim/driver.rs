//! One turn as a node of the world runs it: the real turn machine, a model and tools that do what
//! the dice say. A driver outlives its lane: then it is the stale holder of the cases.

use std::collections::VecDeque;

use dogwatch::core::budget::{ChainLeft, Limits};
use dogwatch::core::egress::Access;
use dogwatch::core::execution::{Kind, Notify, Start, State};
use dogwatch::core::id::{BootId, ExecutionId, Nonce, SupersessionKey};
use dogwatch::core::ledger::Operation;
use dogwatch::core::ledger::row::{Chain, Turn as TurnRow};
use dogwatch::core::ledger::session::{
    Append, Behalf, Cancel, CancelAnswer, Commit, New, Register, Release, Renew, Token,
    Why as Reason,
};
use dogwatch::core::message::{Answer, ModelError};
use dogwatch::core::transcript::{Call, Finish, Notice, Usage};
use dogwatch::core::turn::{AfterCrash, Effect, Input, Rules, ToolRule, Turn, Why};
use serde_json::{Value, json};

use super::world::{Ran, World};

/// A turn under way on a node.
pub(crate) struct Driver {
    pub(crate) node: usize,
    /// The boot that claimed; its node may have another by now.
    pub(crate) boot: BootId,
    pub(crate) token: Token,
    row: TurnRow,
    chain: u64,
    machine: Turn,
    effects: VecDeque<Effect>,
    asked: Option<bool>,
    running: Vec<(u64, u32, Call)>,
    /// It has ended, or noticed that the lane is somebody else's.
    pub(crate) over: bool,
    /// Nothing else may run in its boot.
    pub(crate) alone: bool,
}

fn rules(row: &TurnRow, chain: ChainLeft, resumed: bool) -> Rules {
    let tool = |name: &str, probe, ends_turn| ToolRule {
        name: name.into(),
        probe,
        parallel: true,
        ends_turn,
        after_crash: AfterCrash::Rerun,
    };
    let tools = vec![
        tool("start", false, false),
        tool("cancel", false, false),
        tool("look", true, false),
        tool("stay_silent", false, true),
    ];
    Rules {
        tools,
        origin: row.origin,
        limits: Limits::default(),
        chain,
        resumed,
        looks_back: row.no == 1,
    }
}

fn left(chain: &Chain) -> ChainLeft {
    ChainLeft { tokens: chain.tokens, wakes: chain.wakes, spawns: chain.spawns }
}

impl Driver {
    /// Goes on from the log, as any node can.
    pub(crate) fn resume(
        world: &World,
        node: usize,
        alone: bool,
        (token, row): (Token, TurnRow),
    ) -> Self {
        let chain = world.chain(&token.session, row.chain);
        let left = chain.as_ref().map_or(ChainLeft { tokens: 0, wakes: 0, spawns: 0 }, left);
        let log = world.log(&token.session, row.base, row.len);
        let resumed = log.first().is_some_and(|(_, first)| first.fence < token.fence);
        let (machine, effects) = Turn::begin(rules(&row, left, resumed), world.now(), log);
        Self {
            node,
            boot: world.boot(node),
            token,
            chain: row.chain,
            row,
            machine,
            effects: effects.into(),
            asked: None,
            running: vec![],
            over: false,
            alone,
        }
    }

    /// The model has answered since it was claimed.
    pub(crate) fn progressed(&self, world: &World) -> bool {
        let turn = world.turn(&self.token.session, self.row.no);
        turn.is_none_or(|turn| turn.attempt < self.row.attempt)
    }

    /// One thing happens.
    pub(crate) fn act(&mut self, world: &mut World) {
        let input = if let Some(effect) = self.effects.front().cloned() {
            match self.effect(world, effect) {
                // Sent again with the same ids, as the engine does.
                Ok(done) => {
                    self.effects.pop_front();
                    done
                }
                Err(Ran::Lost) => return,
                Err(Ran::Refused(_)) => {
                    self.over = true;
                    return;
                }
            }
        } else if world.rng.chance(2) && !world.draining() {
            // A driver that commits before its time is refused.
            let rash = Commit { token: self.token.clone(), posts: vec!["rash".into()] };
            self.over = self.run(world, &rash).is_ok();
            None
        } else if world.rng.chance(3) && !world.draining() {
            Some(Input::Shutdown)
        } else if let Some(tools) = self.asked {
            // The model takes long: others may run beside it from now on.
            if self.alone && world.rng.chance(20) {
                let shared = Renew { token: self.token.clone(), alone: false };
                if self.run(world, &shared).is_ok() {
                    world.count("a lone turn that took too long");
                    self.alone = false;
                    world.share(self.node, &self.boot);
                }
                return;
            }
            self.asked = None;
            if world.poison_of(&self.token).is_some_and(|text| text.contains("deadly")) {
                self.over = true;
                return world.crash_of(self.node);
            }
            Some(self.answer(world, tools))
        } else if !self.running.is_empty() {
            let i = world.rng.below(self.running.len());
            let (entry, no, call) = self.running.remove(i);
            let done = self.tool(world, entry, no, &call);
            if done.is_none() {
                self.running.push((entry, no, call));
                return;
            }
            done
        } else {
            let _ = self.run(world, &Renew { token: self.token.clone(), alone: self.alone });
            None
        };
        if let Some(input) = input {
            self.effects.extend(self.machine.step(world.now(), input));
        }
    }

    fn effect(&mut self, world: &mut World, effect: Effect) -> Result<Option<Input>, Ran> {
        match effect {
            Effect::CallModel { tools } => self.asked = Some(tools),
            Effect::LookBack => {
                let nonce = Nonce::new(format!("e{}", world.fresh())).unwrap();
                let said = world.rng.chance(50);
                let earlier = said.then(|| Notice { nonce, text: "what was said before".into() });
                return Ok(Some(Input::Earlier(earlier)));
            }
            Effect::RunTools { entry, calls } => {
                self.running.extend(calls.into_iter().map(|(no, call)| (entry, no, call)));
            }
            Effect::Append { new, take } => {
                let at = self.machine.entries().last().map_or(self.row.base, |(no, _)| no + 1);
                let new = new.into_iter().map(|n| New { body: n.body, collect: n.collect });
                let append = Append {
                    token: self.token.clone(),
                    at,
                    chain: self.chain,
                    new: new.collect(),
                    take,
                    nonce: Nonce::new(format!("k{}", world.fresh())).unwrap(),
                };
                // Taking alone is repeated with what it answers: what came since is taken too.
                // Another append in a gap of this one has its own say, and then this one again.
                let outer = std::mem::replace(&mut world.only_takes, append.new.is_empty());
                let appended = self.run(world, &append);
                world.only_takes = outer;
                let appended = appended?;
                self.chain = appended.chain.no;
                let chain = left(&appended.chain);
                return Ok(Some(Input::Appended { entries: appended.entries, chain }));
            }
            Effect::Commit { posts } => {
                self.run(world, &Commit { token: self.token.clone(), posts })?;
                self.over = true;
            }
            Effect::Release(why) => {
                let why = match why {
                    Why::Failed { what, outage, retry_after_ms } => {
                        Reason::Failed { what, outage, retry_after_ms }
                    }
                    Why::Fatal { what } => Reason::Fatal(what),
                    Why::Handover => Reason::Handover,
                };
                self.run(world, &Release { token: self.token.clone(), why })?;
                self.over = true;
            }
            Effect::Progress(_) => {}
        }
        Ok(None)
    }

    fn run<O: Operation>(&self, world: &mut World, op: &O) -> Result<O::Output, Ran> {
        world.run_as(self.node, Some(&self.token), op)
    }

    /// `None`: its answer was lost, it is sent again.
    fn tool(&mut self, world: &mut World, entry: u64, no: u32, call: &Call) -> Option<Input> {
        let done = |result: Value, collect| Some(Input::ToolDone { call: no, result, collect });
        let session = self.token.session.clone();
        match call.name.as_str() {
            "start" => match self.start(world, entry, no, call) {
                Ok(id) => done(json!({ "execution_id": id.to_string() }), None),
                Err(Ran::Lost) => None,
                Err(Ran::Refused(refusal)) => done(json!({ "error": refusal.to_string() }), None),
            },
            "cancel" => {
                let Some(id) = world.rng_live(&session) else {
                    return done(json!({ "error": "nothing is live" }), None);
                };
                let cancel = Cancel {
                    session: session.clone(),
                    execution: id.clone(),
                    behalf: Behalf::Turn(self.token.clone()),
                };
                match world.run_as(self.node, Some(&self.token), &cancel) {
                    Ok(CancelAnswer::Cancelling(_)) => world.end_process(&session, &id),
                    Ok(CancelAnswer::Over(_)) | Err(Ran::Refused(_)) => {}
                    Err(Ran::Lost) => return None,
                }
                let ended = world
                    .execution(&session, &id)
                    .is_some_and(|x| matches!(x.state, State::Ended(_)));
                done(json!({ "cancelled": ended }), ended.then_some(id))
            }
            _ => done(json!({ "ok": true }), None),
        }
    }

    fn start(
        &self,
        world: &mut World,
        entry: u64,
        no: u32,
        call: &Call,
    ) -> Result<ExecutionId, Ran> {
        // What is asked for follows from the arguments, as with a real repeat.
        let n: usize = call.arguments.bytes().map(usize::from).sum();
        let notify = [Notify::Agent, Notify::Agent, Notify::Both, Notify::Human, Notify::Silent];
        let register = Register {
            token: self.token.clone(),
            call: (entry, no),
            request: call.arguments.clone(),
            prefix: "auto-notify-test".into(),
            kind: Kind::Script,
            name: format!("test {n}"),
            notify: *notify.get(n % notify.len()).unwrap(),
            key: n.is_multiple_of(4).then(|| SupersessionKey::new("the one").unwrap()),
            timeout_ms: 20_000,
            home: world.home(self.node),
            boot: self.boot.clone(),
            shown: n.is_multiple_of(3),
            access: Access::default(),
        };
        let place = (
            self.row.principal.clone(),
            self.token.session.clone(),
            Start { turn: self.token.turn, entry, call: no },
        );
        world.reserve(self.node, &place)?;
        let registered = self.run(world, &register);
        let unneeded = match &registered {
            Ok(registered) => !registered.fresh,
            Err(Ran::Refused(_)) => true,
            Err(Ran::Lost) => false,
        };
        if unneeded {
            world.settle_place(self.node, &place);
        }
        let registered = registered?;
        if registered.fresh && world.boot(self.node) == self.boot {
            world.launch(self.node, &self.token.session, &registered.id);
        }
        Ok(registered.id)
    }

    fn answer(&self, world: &mut World, tools: bool) -> Input {
        if world.poison_of(&self.token).is_some() {
            let what = "as the poison does".to_owned();
            return Input::ModelFailed(if world.rng.chance(50) {
                ModelError::Refused { what }
            } else {
                ModelError::Garbled { what }
            });
        }
        if !world.draining() && world.rng.chance(12) {
            let what = "as the dice say".to_owned();
            return Input::ModelFailed(match world.rng.below(4) {
                0 => ModelError::Outage { what, retry_after_ms: None },
                1 => ModelError::Refused { what },
                _ => ModelError::Garbled { what },
            });
        }
        let number = world.fresh();
        let mut calls = vec![];
        let wanted = if world.draining() { 10 } else { 55 };
        if tools && world.rng.chance(wanted) {
            for _ in 0..=world.rng.below(3) {
                let names = ["start", "start", "start", "cancel", "look", "stay_silent", "no_such"];
                let name = world.rng.pick(&names).unwrap();
                let name = if world.draining() { "look" } else { name };
                let arguments = format!("{{\"n\":{}}}", world.rng.below(1_000));
                calls.push(Call { id: "same".into(), name: name.into(), arguments });
            }
        }
        let finish = if calls.is_empty() { Finish::Stop } else { Finish::ToolCalls };
        let tokens = if world.rng.chance(2) { 1_500_000 } else { 100 };
        let usage = Usage { input_tokens: tokens, output_tokens: 1, reported: true };
        Input::Answered(Answer { text: format!("word {number}"), calls, finish, usage })
    }
}
