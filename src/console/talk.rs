//! From typed lines to the desk, and from the desk's answers to events. Owns the chats of this
//! terminal and what was said about their watchers. Must not know how anything looks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, mpsc};
use tokio_util::sync::CancellationToken;

use crate::core::arrival::{Incoming, What};
use crate::core::execution::{Execution, Scope};
use crate::core::id::{DedupeKey, ExecutionId, IdError, PressId, Principal, SessionId, StopId};
use crate::core::limits::{
    CHATS_MAX, DRAIN_LOOK_FIRST_MS, HAND_IN_RETRY_MS, HAND_IN_TRIES_MAX, SWEEP_MS,
};
use crate::core::time::Timestamp;
use crate::ports::{Clock, Command, Desk, DeskError, Done, Ids, SessionView};

use super::chat::ChatName;
use super::event::{CancelResult, Event, Reply, Stand, Summary, Work};
use super::input::Heard;
use super::prompt::{Prompt, Running};
use super::typed::{self, HELP, Typed};
use super::{AtEnd, End, Settings, words};

/// What the terminal needs of the rest.
#[derive(Clone)]
pub struct Reach {
    /// The one way in.
    pub desk: Arc<dyn Desk>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Fresh ids for lines, presses and stops.
    pub ids: Arc<dyn Ids>,
    /// Cancelled when the process is asked to end.
    pub stopped: CancellationToken,
}

/// What comes to a talk.
pub(super) struct Ears {
    /// Typed lines.
    pub(super) heard: mpsc::Receiver<Heard>,
    /// Chats in which something happened.
    pub(super) looks: mpsc::Receiver<ChatName>,
    /// Sessions whose watchers changed.
    pub(super) stirs: broadcast::Receiver<SessionId>,
}

/// What goes out of it.
pub(super) struct Mouth {
    /// To the screen.
    pub(super) events: mpsc::Sender<Event>,
    /// To the editor: a line may be typed.
    pub(super) prompts: std::sync::mpsc::Sender<Prompt>,
}

/// What was said about the watchers of a chat.
#[derive(Debug, Default)]
struct Said {
    live: BTreeMap<ExecutionId, Stand>,
    ended: BTreeSet<ExecutionId>,
    looked: bool,
}

pub(super) struct Talk {
    reach: Reach,
    principal: Principal,
    at_end: AtEnd,
    attached: bool,
    mouth: Mouth,
    front: ChatName,
    chats: BTreeMap<ChatName, Said>,
    running: Arc<Running>,
}

/// Why a line did not get through.
enum Trouble {
    Id(IdError),
    Desk(DeskError),
}

impl From<IdError> for Trouble {
    fn from(error: IdError) -> Self {
        Self::Id(error)
    }
}

impl From<DeskError> for Trouble {
    fn from(error: DeskError) -> Self {
        Self::Desk(error)
    }
}

impl Talk {
    pub(super) fn new(settings: &Settings, reach: Reach, mouth: Mouth) -> Self {
        let front = settings.chat.clone();
        Self {
            reach,
            principal: settings.principal.clone(),
            at_end: settings.at_end,
            attached: settings.attached,
            mouth,
            chats: BTreeMap::from([(front.clone(), Said::default())]),
            front,
            running: Arc::default(),
        }
    }

    fn now(&self) -> Timestamp {
        self.reach.clock.now()
    }

    async fn say(&self, event: Event) {
        // A screen that is gone ends the run elsewhere.
        let _ = self.mouth.events.send(event).await;
    }

    async fn error(&self, what: impl Into<String>) {
        self.say(Event::Error { chat: self.front.clone(), what: what.into(), at: self.now() })
            .await;
    }

    async fn reply(&self, reply: Reply) {
        self.say(Event::Command { chat: self.front.clone(), reply, at: self.now() }).await;
    }

    fn prompt(&self) {
        self.count();
        let running = Arc::clone(&self.running);
        // A reader that is gone has said so.
        let _ = self.mouth.prompts.send(Prompt { chat: self.front.clone(), running });
    }

    fn count(&self) {
        let here = self.chats.get(&self.front).map_or(0, |said| said.live.len());
        self.running.set(here, self.running_in_all() - here);
    }

    fn running_in_all(&self) -> usize {
        self.chats.values().map(|said| said.live.len()).sum()
    }

    /// Talks until somebody leaves.
    pub(super) async fn run(mut self, mut ears: Ears) -> End {
        self.say(Event::Ready { chat: self.front.clone(), at: self.now() }).await;
        self.look(&self.front.clone()).await;
        self.prompt();
        let end = self.hear(&mut ears).await;
        let end = match end {
            End::EndOfInput => self.drain(&mut ears).await,
            End::Quit | End::Stopped | End::Unfinished => end,
        };
        let note = self.farewell(end, self.owes().await);
        self.say(Event::Bye { note, at: self.now() }).await;
        end
    }

    /// What goes on without this terminal. `owes`: something typed has no answer yet.
    fn farewell(&self, end: End, owes: bool) -> Option<String> {
        let running = self.running_in_all();
        let watchers = words::count(running, "watcher");
        if end == End::Unfinished {
            let goes_on =
                if self.attached { "goes on" } else { "goes on when dogwatch starts again" };
            return Some(format!(
                "not everything was answered in time ({watchers} running); nothing is lost: it \
                 {goes_on}"
            ));
        }
        let work = match running {
            0 => None,
            1 => Some("1 watcher runs on, its result comes".to_owned()),
            _ => Some(format!("{watchers} run on, their results come")),
        };
        let answer = owes.then(|| "what is not answered yet will be".to_owned());
        let parts: Vec<String> = work.into_iter().chain(answer).collect();
        let when = if self.attached { "you attach again" } else { "dogwatch starts again" };
        (!parts.is_empty()).then(|| format!("{} when {when}", parts.join("; ")))
    }

    async fn hear(&mut self, ears: &mut Ears) -> End {
        let mut interrupted = false;
        loop {
            tokio::select! {
                biased;
                () = self.reach.stopped.cancelled() => return End::Stopped,
                heard = ears.heard.recv() => {
                    let again = std::mem::take(&mut interrupted);
                    match heard {
                        None | Some(Heard::End) => return End::EndOfInput,
                        Some(Heard::Left) => return End::Quit,
                        Some(Heard::Interrupted) if again => return End::Quit,
                        Some(Heard::Interrupted) => {
                            interrupted = true;
                            self.error("once more ^C leaves; watchers run on").await;
                            self.prompt();
                        }
                        Some(Heard::TooLong) => {
                            self.prompt();
                            self.error(words::too_long()).await;
                        }
                        Some(Heard::Line(line)) => {
                            if let Some(end) = self.line(&line).await {
                                return end;
                            }
                        }
                    }
                }
                Some(chat) = ears.looks.recv() => self.look(&chat).await,
                stirred = ears.stirs.recv() => match stirred {
                    Ok(session) => self.look_at_session(&session).await,
                    Err(RecvError::Lagged(_)) => self.look_at_running().await,
                    // Only with the desk, which this holds.
                    Err(RecvError::Closed) => return End::Stopped,
                },
            }
        }
    }

    /// A chat that was never in front has nobody to be told.
    async fn look_at_session(&mut self, session: &SessionId) {
        let is_it = |chat: &&ChatName| chat.session().is_ok_and(|of_chat| of_chat == *session);
        if let Some(chat) = self.chats.keys().find(is_it).cloned() {
            self.look(&chat).await;
        }
    }

    async fn look_at_running(&mut self) {
        let running: Vec<ChatName> = self
            .chats
            .iter()
            .filter(|(_, said)| !said.live.is_empty())
            .map(|(chat, _)| chat.clone())
            .collect();
        for chat in running {
            self.look(&chat).await;
        }
    }

    async fn line(&mut self, line: &str) -> Option<End> {
        let typed = typed::read(line);
        if typed == Typed::Quit {
            return Some(End::Quit);
        }
        if let Typed::Chat(name) = &typed {
            self.go_to(name.clone()).await;
        }
        // The next line may be typed while the desk works on this one.
        self.prompt();
        if let Err(trouble) = self.act(typed).await {
            match trouble {
                Trouble::Id(error) => self.error(error.to_string()).await,
                Trouble::Desk(error) => self.error(words::refused(&error)).await,
            }
        }
        None
    }

    async fn go_to(&mut self, name: ChatName) {
        if !self.chats.contains_key(&name) && self.chats.len() >= CHATS_MAX {
            return self
                .error(format!("this terminal has {CHATS_MAX} chats; leave and come back"))
                .await;
        }
        self.chats.entry(name.clone()).or_default();
        self.front = name.clone();
        self.reply(Reply::Chat { name: name.clone() }).await;
        self.look(&name).await;
    }

    async fn act(&mut self, typed: Typed) -> Result<(), Trouble> {
        let session = self.front.session()?;
        match typed {
            Typed::Nothing | Typed::Chat(_) | Typed::Quit => {}
            Typed::Wrong(what) => self.error(what).await,
            Typed::Help => self.reply(Reply::Help { text: HELP.to_owned() }).await,
            Typed::Say(text) => self.hand_in(&session, text).await?,
            Typed::Watchers => self.watchers(&session).await?,
            Typed::Status => {
                let view = self.reach.desk.view(&session).await?;
                self.reply(Reply::Status(Summary::of(&self.front, &view))).await;
            }
            Typed::Chats => self.chats().await?,
            Typed::Cancel(id) => self.cancel(&session, id).await?,
            Typed::Stop(scope) => self.stop(&session, scope).await?,
        }
        Ok(())
    }

    async fn hand_in(&mut self, session: &SessionId, text: String) -> Result<(), Trouble> {
        let key = DedupeKey::new(format!("console/{}", self.reach.ids.fresh()))?;
        let incoming = Incoming {
            keys: vec![key.clone()],
            what: What::Message { text },
            principal: self.principal.clone(),
            address: self.front.address(),
            source_at: self.now(),
            continues: false,
            shared: false,
        };
        let mut tries = 1;
        // The key makes a repeat safe, whatever became of the try before.
        while let Err(error) = self.reach.desk.accept(session, incoming.clone()).await {
            let away = matches!(error, DeskError::Away(_));
            if !away || tries >= HAND_IN_TRIES_MAX || self.reach.stopped.is_cancelled() {
                return Err(error.into());
            }
            tries += 1;
            self.reach.clock.sleep_until(self.now().plus_ms(HAND_IN_RETRY_MS)).await;
        }
        let chat = self.front.clone();
        self.say(Event::Accepted { chat, key: key.to_string(), at: self.now() }).await;
        Ok(())
    }

    async fn watchers(&mut self, session: &SessionId) -> Result<(), Trouble> {
        let view = self.reach.desk.view(session).await?;
        let now = self.now();
        let mut live = Vec::with_capacity(view.live.len());
        for execution in &view.live {
            let mut work = Work::of(execution, now);
            if let Some(glance) = self.reach.desk.glance(session, &execution.id).await {
                work.stalled |= glance.stalled;
                work.last_line = last_line(&glance.stdout).or_else(|| last_line(&glance.stderr));
            }
            live.push(work);
        }
        let ended = view.ended.iter().map(|execution| Work::of(execution, now)).collect();
        self.reply(Reply::Watchers { live, ended }).await;
        Ok(())
    }

    async fn chats(&mut self) -> Result<(), Trouble> {
        let mut chats = Vec::with_capacity(self.chats.len());
        for chat in self.chats.keys() {
            let view = self.reach.desk.view(&chat.session()?).await?;
            chats.push(Summary::of(chat, &view));
        }
        self.reply(Reply::Chats { chats }).await;
        Ok(())
    }

    async fn cancel(&mut self, session: &SessionId, id: ExecutionId) -> Result<(), Trouble> {
        let press = PressId::new(self.reach.ids.fresh())?;
        let command = Command::Cancel { execution: id.clone(), press };
        let result = match self.reach.desk.command(session, &self.principal, command).await? {
            Done::Cancelling => CancelResult::Cancelling,
            Done::Over(status) => CancelResult::Over(Stand::ended(status)),
            Done::Foreign(owner) => CancelResult::Foreign(owner),
            Done::Unknown | Done::Stopped { .. } => CancelResult::Unknown,
        };
        self.reply(Reply::Cancel { id, result }).await;
        self.look(&self.front.clone()).await;
        Ok(())
    }

    async fn stop(&mut self, session: &SessionId, scope: Scope) -> Result<(), Trouble> {
        let stop = StopId::new(self.reach.ids.fresh())?;
        let command = Command::Stop { scope, stop, said_at: None };
        let (turn, ended) = match self.reach.desk.command(session, &self.principal, command).await?
        {
            Done::Stopped { ended, turn } => (turn, ended),
            Done::Cancelling | Done::Over(_) | Done::Unknown | Done::Foreign(_) => (false, 0),
        };
        self.reply(Reply::Stop { all: scope == Scope::All, turn, ended }).await;
        self.look(&self.front.clone()).await;
        Ok(())
    }
}

/// Looking: what changed about the watchers of a chat.
impl Talk {
    async fn look(&mut self, chat: &ChatName) {
        let Ok(session) = chat.session() else { return };
        // What cannot be seen now is seen at the next look.
        let Ok(view) = self.reach.desk.view(&session).await else { return };
        let now = self.now();
        if !self.chats.contains_key(chat) && self.chats.len() >= CHATS_MAX {
            return;
        }
        let said = self.chats.entry(chat.clone()).or_default();
        let changed = changes(said, &view);
        // Before the lines are shown, since the prompt is drawn again after each.
        self.count();
        for execution in changed {
            let work = Work::of(execution, now);
            let event = Event::Watcher { chat: chat.clone(), work, at: now };
            let _ = self.mouth.events.send(event).await;
        }
    }

    /// After the end of the input: waits until what was typed is answered.
    async fn drain(&mut self, ears: &mut Ears) -> End {
        let until = self.now().plus_ms(self.at_end.ms_max());
        let mut wait_ms = DRAIN_LOOK_FIRST_MS;
        let mut only_riders_since = None;
        loop {
            match self.rest().await {
                Rest::Quiet => return End::EndOfInput,
                // A result that wakes nobody rides with a turn that will not come.
                Rest::OnlyResults => {
                    let since = *only_riders_since.get_or_insert(self.now());
                    if self.now().since_ms(since) >= 2 * SWEEP_MS {
                        return End::EndOfInput;
                    }
                }
                Rest::Busy => only_riders_since = None,
            }
            if self.now() >= until {
                return End::Unfinished;
            }
            let sleep = self.reach.clock.sleep_until(self.now().plus_ms(wait_ms).min(until));
            tokio::select! {
                () = self.reach.stopped.cancelled() => return End::Stopped,
                Some(chat) = ears.looks.recv() => {
                    wait_ms = DRAIN_LOOK_FIRST_MS;
                    self.look(&chat).await;
                }
                () = sleep => wait_ms = (wait_ms * 2).min(SWEEP_MS),
            }
        }
    }

    /// Has something that was typed no answer yet?
    async fn owes(&self) -> bool {
        for chat in self.chats.keys() {
            let Ok(session) = chat.session() else { continue };
            if self.reach.desk.view(&session).await.is_ok_and(|view| owes(&view)) {
                return true;
            }
        }
        false
    }

    async fn rest(&mut self) -> Rest {
        let mut rest = Rest::Quiet;
        for chat in self.chats.keys() {
            let Ok(session) = chat.session() else { continue };
            let Ok(view) = self.reach.desk.view(&session).await else { return Rest::Busy };
            let working = match self.at_end {
                AtEnd::Answered { .. } => false,
                AtEnd::Quiet { .. } => !view.live.is_empty(),
            };
            if owes(&view) || working {
                return Rest::Busy;
            }
            if view.notices > 0 {
                rest = Rest::OnlyResults;
            }
        }
        rest
    }
}

fn owes(view: &SessionView) -> bool {
    view.turn.is_some() || view.people > 0 || view.unposted > 0
}

/// What is still to be waited for.
enum Rest {
    Quiet,
    OnlyResults,
    Busy,
}

/// The executions worth a word since the last look. The first look tells what runs, not what ended
/// before anyone looked.
fn changes<'v>(said: &mut Said, view: &'v SessionView) -> Vec<&'v Execution> {
    let first = !std::mem::replace(&mut said.looked, true);
    let mut changed = Vec::new();
    for execution in view.ended.iter().rev() {
        let known = said.live.remove(&execution.id).is_some();
        let new = said.ended.insert(execution.id.clone());
        if new && (known || !first) {
            changed.push(execution);
        }
    }
    for execution in &view.live {
        // That it starts and that it runs is one word to a person.
        let stand = Stand::of(&execution.state);
        let stand = if stand == Stand::Starting { Stand::Running } else { stand };
        if said.live.insert(execution.id.clone(), stand) != Some(stand) {
            changed.push(execution);
        }
    }
    said.live.retain(|id, _| view.live.iter().any(|execution| execution.id == *id));
    said.ended.retain(|id| view.ended.iter().any(|execution| execution.id == *id));
    changed
}

fn last_line(output: &crate::core::output::Captured) -> Option<String> {
    let end = if output.tail.is_empty() { &output.head } else { &output.tail };
    let line = end.lines().rev().map(super::clean::line).find(|line| !line.trim().is_empty())?;
    Some(super::clean::cut(line.trim(), 200))
}
