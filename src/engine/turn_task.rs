//! Runs one turn: feeds the turn machine with what happened and does what it asks for. Owns the
//! model call and the tool calls under way. Must not decide anything that the machine decides.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::lanes::{self, Seat};
use super::log::{self, Log};
use super::{Agent, Engine, LedgerError, effects, look_back, nodes};
use crate::core::id::{EntryNo, Nonce};
use crate::core::ledger::Refusal;
use crate::core::ledger::row::Turn as TurnRow;
use crate::core::ledger::session::{
    Append, Commit, New, Release, Released, Renew, Token, Why as Reason,
};
use crate::core::limits::{ALONE_MS_MAX, RENEW_MS};
use crate::core::message::{Answer, Delta, ModelError, Request};
use crate::core::policy::{Family, Role};
use crate::core::prompt::{self, PromptParts};
use crate::core::reach;
use crate::core::redact::RedactStream;
use crate::core::render::{self, Prompted};
use crate::core::time::Timestamp;
use crate::core::transcript::{Body, Call, Origin};
use crate::core::turn::{AfterCrash, Effect, Input, Progress as Shown, Rules, ToolRule, Turn, Why};
use crate::failpoint;
use crate::ports::{Progress, StoreError};
use crate::tools::{self, Tool, Wiring};

type Calls = FuturesUnordered<BoxFuture<'static, Input>>;
type Asked<'a> = Option<BoxFuture<'a, Input>>;

/// Runs the turn to its commit, its release, or until somebody else has its lane.
pub(super) async fn run(seat: &Seat, token: Token, turn: TurnRow, stop: &CancellationToken) {
    let engine = seat.engine();
    let mut tries = 0;
    let log = loop {
        match Log::load(engine, &token, &turn).await {
            Ok(log) => break log,
            Err(error) => {
                tracing::warn!(session.id = %token.session, error = %error, "a log cannot be read");
                tokio::select! {
                    () = stop.cancelled() => return,
                    goes_on = nodes::pause(engine, tries, &token.session) => {
                        if !goes_on {
                            return;
                        }
                    }
                }
                tries += 1;
            }
        }
    };
    // As it is configured here and now: somebody's role may be narrower than when the turn began.
    let agent = engine.settings.agents.at(&turn.address);
    let mut wiring = agent.wiring.clone();
    if engine.channel(&turn.address.surface).is_none_or(|channel| !channel.has_files()) {
        wiring.families.retain(|family| *family != Family::Files);
    }
    let declared = tools::toolbox(&wiring).into();
    let alone_ms = ALONE_MS_MAX.saturating_mul(1 << turn.failures.min(10));
    let alone_until = engine.ports.clock.now().plus_ms(alone_ms);
    let task = Task { seat, engine, agent, wiring, token, turn, declared, log, alone_until };
    task.show(Progress::Began {
        turn: task.turn.no,
        synthetic: task.turn.origin == Origin::Synthetic,
    });
    let ended = task.drive(stop).await;
    tracing::debug!(session.id = %task.token.session, turn.no = task.turn.no, ended = ?ended,
        "a turn ended here");
    task.show(Progress::Ended);
}

/// How a turn ended here.
#[derive(Debug)]
enum Ended {
    Committed,
    Released,
    /// A stop or another node has it.
    Lost,
}

struct Task<'a> {
    seat: &'a Seat,
    engine: &'a Arc<Engine>,
    agent: Arc<Agent>,
    /// What the agent is offered here.
    wiring: Wiring,
    token: Token,
    turn: TurnRow,
    declared: Arc<[Tool]>,
    log: Log,
    /// Until then it may keep others waiting.
    alone_until: Timestamp,
}

impl Task<'_> {
    fn show(&self, progress: Progress) {
        if let Some(channel) = self.engine.channel(&self.turn.address.surface) {
            channel.progress(&self.token.session, &self.turn.address, progress);
        }
    }

    fn rules(&self) -> Rules {
        Rules {
            tools: self.declared.iter().map(rule).collect(),
            origin: self.turn.origin,
            limits: self.agent.limits,
            chain: self.log.chain,
            // What this claim opened, it wrote.
            resumed: self.log.own.first().is_some_and(|(_, first)| first.fence < self.token.fence),
            looks_back: self.turn.no == 1 && self.turn.origin == Origin::Human,
        }
    }

    async fn drive(&self, stop: &CancellationToken) -> Ended {
        let clock = &self.engine.ports.clock;
        let (mut machine, effects) = Turn::begin(self.rules(), clock.now(), self.log.own.clone());
        let mut effects = VecDeque::from(effects);
        let mut calls: Calls = FuturesUnordered::new();
        let mut asked: Asked<'_> = None;
        let mut chain = self.turn.chain;
        let mut handed_over = false;
        loop {
            let input = if let Some(effect) = effects.pop_front() {
                match self.act(effect, &machine, &mut chain, &mut calls).await {
                    Act::Nothing => continue,
                    Act::Ask(request) => {
                        asked = Some(Box::pin(self.ask(request)));
                        continue;
                    }
                    Act::LookBack => {
                        let of = (&self.token.session, &self.turn.address);
                        asked = Some(look_back::read(self.engine, of, &self.log.own).boxed());
                        continue;
                    }
                    Act::Input(input) => input,
                    Act::Ended(ended) => return ended,
                }
            } else {
                let next = self.next(&mut asked, &mut calls, stop, handed_over).await;
                let Some(input) = next else { return self.let_go().await };
                handed_over |= input == Input::Shutdown;
                input
            };
            effects.extend(machine.step(clock.now(), input));
        }
    }

    /// The next thing that happens; `None` when a stop has ended the turn.
    async fn next(
        &self,
        asked: &mut Asked<'_>,
        calls: &mut Calls,
        stop: &CancellationToken,
        handed_over: bool,
    ) -> Option<Input> {
        loop {
            let renew_at = self.engine.ports.clock.now().plus_ms(RENEW_MS);
            let look_at =
                if self.seat.is_alone() { renew_at.min(self.alone_until) } else { renew_at };
            let waiting = asked.is_some();
            let answer = async {
                match asked.as_mut() {
                    Some(future) => future.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => return None,
                () = self.engine.shutdown.cancelled(), if !handed_over => {
                    return Some(Input::Shutdown);
                }
                input = answer, if waiting => {
                    *asked = None;
                    return Some(input);
                }
                Some(input) = calls.next() => return Some(input),
                () = self.engine.ports.clock.sleep_until(look_at) => {
                    if !self.renew().await {
                        return None;
                    }
                }
            }
        }
    }

    /// A stop has ended this turn, so its lane is gone. If the stop was for the turn before, the
    /// lane is given back and the turn goes on in a task that is not cancelled.
    async fn let_go(&self) -> Ended {
        match self.release(Why::Handover).await {
            Act::Ended(ended) => ended,
            Act::Nothing | Act::Ask(_) | Act::LookBack | Act::Input(_) => Ended::Lost,
        }
    }

    /// Nothing is written where one boot owns the store, but that others run beside it from now on.
    /// `false` when the lane is somebody else's.
    async fn renew(&self) -> bool {
        let was_alone = self.seat.is_alone();
        let alone = was_alone && self.engine.ports.clock.now() < self.alone_until;
        if self.engine.settings.sole && alone == was_alone {
            return true;
        }
        match self.engine.ledger.run(&Renew { token: self.token.clone(), alone }).await {
            Ok(()) => {
                if !alone {
                    self.seat.share();
                }
                true
            }
            Err(error) => !matches!(error, LedgerError::Refused(_)),
        }
    }

    async fn act(&self, effect: Effect, machine: &Turn, chain: &mut u64, calls: &mut Calls) -> Act {
        match effect {
            Effect::CallModel { tools } => match self.request(machine, tools).await {
                Ok(request) => Act::Ask(request),
                Err(error) => Act::Input(Input::ModelFailed(ModelError::Outage {
                    what: error.to_string(),
                    retry_after_ms: None,
                })),
            },
            Effect::LookBack => Act::LookBack,
            Effect::RunTools { entry, calls: wanted } => {
                calls.extend(wanted.into_iter().map(|(no, call)| self.run_tool(entry, no, call)));
                Act::Nothing
            }
            Effect::Append { new, take } => self.append(machine, chain, new, take).await,
            Effect::Commit { posts } => {
                let posts = posts.iter().map(|text| self.redact(text)).collect();
                let commit = Commit { token: self.token.clone(), posts };
                match self.insist(&commit).await {
                    Ok(()) => Act::Ended(Ended::Committed),
                    Err(error) => self.lost(&error).await,
                }
            }
            Effect::Release(why) => self.release(why).await,
            Effect::Progress(shown) => {
                self.show(match shown {
                    Shown::Discarded => Progress::Discarded,
                    Shown::Whole => Progress::Whole,
                    Shown::Tool { name } => Progress::Tool { name },
                });
                Act::Nothing
            }
        }
    }

    /// A call runs in a task of its own. While this one writes, a call that is about to write must
    /// get on, or both wait for each other; and what it breaks does not break the turn.
    fn run_tool(&self, entry: EntryNo, no: u32, call: Call) -> BoxFuture<'static, Input> {
        let (engine, token) = (Arc::clone(self.engine), self.token.clone());
        let owner = self.turn.principal.clone();
        let declared = Arc::clone(&self.declared);
        let channel = self.engine.channel(&self.turn.address.surface);
        let shown = channel.is_some_and(|channel| channel.shows());
        let address = self.turn.address.clone();
        let run = async move {
            let (token, owner, address) = (&token, &owner, &address);
            let at = effects::At { token, owner, entry, call: no, address, shown };
            effects::run(&engine, at, &declared, call).await
        };
        let task = AbortOnDropHandle::new(self.engine.tasks.spawn(run));
        async move { task.await.unwrap_or_else(|_| effects::broke_off(no)) }.boxed()
    }

    fn redact(&self, text: &str) -> String {
        self.engine.ports.redactor.redact(text).into_owned()
    }

    async fn append(
        &self,
        machine: &Turn,
        chain: &mut u64,
        new: Vec<crate::core::turn::New>,
        take: bool,
    ) -> Act {
        let at = machine.entries().last().map_or(self.turn.base, |(no, _)| no + 1);
        let Ok(nonce) = Nonce::new(lanes::nonce(self.engine)) else {
            return Act::Ended(Ended::Lost);
        };
        let progressed = new.iter().any(|new| matches!(new.body, Body::Model { .. }));
        let new = new.into_iter().map(|new| New { body: new.body, collect: new.collect });
        let append = Append {
            token: self.token.clone(),
            at,
            chain: *chain,
            new: new.collect(),
            take,
            nonce,
        };
        match self.insist(&append).await {
            Ok(appended) => {
                if progressed {
                    self.seat.share();
                }
                *chain = appended.chain.no;
                let chain = log::left(&appended.chain);
                Act::Input(Input::Appended { entries: appended.entries, chain })
            }
            Err(error) => self.lost(&error).await,
        }
    }

    async fn release(&self, why: Why) -> Act {
        let (why, what) = match why {
            Why::Failed { what, outage, retry_after_ms } => {
                let reason = Reason::Failed { what: what.clone(), outage, retry_after_ms };
                (reason, Some(what))
            }
            Why::Fatal { what } => (Reason::Fatal(what.clone()), Some(what)),
            Why::Handover => (Reason::Handover, None),
        };
        let release = Release { token: self.token.clone(), why };
        match self.insist(&release).await {
            Ok(released) => {
                if let Some(what) = what {
                    let again_at = match released {
                        Released::Again(at) => Some(at),
                        Released::Buried | Released::Before => None,
                    };
                    tracing::warn!(session.id = %self.token.session, turn.no = self.turn.no,
                        what = %what, again_at = ?again_at, "an attempt at a turn failed");
                    self.show(Progress::Failed { what, again_at });
                }
                Act::Ended(Ended::Released)
            }
            Err(error) => self.lost(&error).await,
        }
    }

    /// What the ledger refuses for another reason than the lane is refused again at every attempt,
    /// so the turn is given up and a person is told.
    async fn lost(&self, error: &LedgerError) -> Act {
        let away = matches!(
            error,
            LedgerError::Store(StoreError::Away(_)) | LedgerError::Contended { .. }
        );
        if away || matches!(error.refusal(), Some(Refusal::Fenced)) {
            return Act::Ended(Ended::Lost);
        }
        tracing::error!(session.id = %self.token.session, turn.no = self.turn.no,
            error = %error, "a turn cannot be written");
        let why = Reason::Fatal(format!("the turn cannot be written: {error}"));
        let release = Release { token: self.token.clone(), why };
        match self.insist(&release).await {
            Ok(_) => Act::Ended(Ended::Released),
            Err(_) => Act::Ended(Ended::Lost),
        }
    }

    /// Sends an operation until the store answers: each recognises its own repeat.
    async fn insist<O: crate::core::ledger::Operation>(
        &self,
        operation: &O,
    ) -> Result<O::Output, LedgerError> {
        let mut tries = 0;
        loop {
            match self.engine.ledger.run(operation).await {
                Err(
                    error @ (LedgerError::Store(StoreError::Away(_))
                    | LedgerError::Contended { .. }),
                ) => {
                    tracing::warn!(session.id = %self.token.session, error = %error,
                        "a turn cannot be written yet");
                    if !nodes::pause(self.engine, tries, &self.token.session).await {
                        return Err(error);
                    }
                    tries += 1;
                }
                answer => return answer,
            }
        }
    }

    /// The request as it is now: the live table comes from the rows at each call, as of this node's
    /// last write, so nothing that the log lost can make the model forget running work. What has
    /// ended since comes as a notice.
    async fn request(&self, machine: &Turn, tools: bool) -> Result<Request, StoreError> {
        let agent = &self.agent;
        let live = log::live(self.engine, &self.token.session).await?;
        let families = families(&self.wiring);
        let system = prompt::system(&PromptParts {
            instructions: &agent.instructions,
            families: &families,
            reach: &reach::told(&agent.reach, &agent.name, agent.wiring.role),
            now: self.engine.ports.clock.now(),
            live: &live,
            read_only: agent.wiring.role == Role::ReadOnly,
        });
        let specs: Vec<_> = if tools {
            self.declared.iter().map(|tool| tool.spec().clone()).collect()
        } else {
            vec![]
        };
        let entries: Vec<_> = self.log.before.iter().chain(machine.entries()).cloned().collect();
        Ok(render::request(&Prompted {
            agent: &agent.name,
            system: &system,
            summary: self.log.summary.as_deref(),
            entries: &entries,
            tools: &specs,
        }))
    }

    async fn ask(&self, request: Request) -> Input {
        let mut clean = RedactStream::new(&self.engine.ports.redactor);
        let mut progress = |delta: Delta| match delta {
            Delta::Text(text) => {
                let text = clean.push(&text);
                if !text.is_empty() {
                    self.show(Progress::Text(text));
                }
            }
            // Shown when it runs.
            Delta::Call { .. } => {}
        };
        failpoint!("model.before");
        let began = self.engine.ports.clock.now();
        let answered = self.engine.ports.model.call(&request, &mut progress).await;
        self.engine.meter.asked(&answered, self.engine.ports.clock.now().since_ms(began));
        failpoint!("model.after");
        let rest = clean.finish();
        if answered.is_ok() && !rest.is_empty() {
            self.show(Progress::Text(rest));
        }
        match answered {
            Ok(answer) => Input::Answered(Answer { text: self.redact(&answer.text), ..answer }),
            Err(error) => Input::ModelFailed(error.map(|what| self.redact(&what))),
        }
    }
}

/// The parts of the prompt that explain the declared tools.
fn families(wiring: &Wiring) -> Vec<prompt::Family> {
    let parts = wiring.families.iter().flat_map(|family| match family {
        Family::Watch if wiring.role == Role::Writable => {
            let mut all = vec![prompt::Family::Watch, prompt::Family::Probes];
            if wiring.sandboxed {
                let online = wiring.networked;
                let reach = if online { prompt::Family::Network } else { prompt::Family::Offline };
                all.extend([prompt::Family::Sandbox, reach]);
            }
            all
        }
        Family::Watch => vec![prompt::Family::Probes],
        Family::Silence => vec![prompt::Family::Silence],
        Family::Files => vec![prompt::Family::Files],
    });
    parts.collect()
}

fn rule(tool: &Tool) -> ToolRule {
    let rule = tool.rule();
    ToolRule {
        name: tool.spec().name.clone(),
        probe: rule.probe,
        parallel: rule.parallel,
        ends_turn: rule.ends_turn,
        after_crash: match rule.after_crash {
            tools::AfterCrash::Rerun => AfterCrash::Rerun,
            tools::AfterCrash::Unknown => AfterCrash::Unknown,
        },
    }
}

enum Act {
    Nothing,
    Ask(Request),
    LookBack,
    Input(Input),
    Ended(Ended),
}
