//! Keeps the messages of watchers true while they run: their last line, politely. Owns when one is
//! drawn anew. What posts them and what makes them final is the outbox; what is lost here is only
//! late.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use super::card;
use super::place::SURFACE;
use super::posting::Posting;
use crate::core::execution::Execution;
use crate::core::id::{ExecutionId, SessionId};
use crate::core::limits::{SLACK_LOOK_MS, SLACK_PACE_MS};
use crate::ports::{ChannelError, Clock, Desk, SessionView};

/// Tries to draw anew what ended meanwhile.
const MENDS_MAX: u32 = 20;
/// Looks after which a drawing that nobody heard of is not waited for any more.
const OVER_MAX: u32 = 3;

/// Looks at what runs here and is shown in Slack.
pub struct Watching {
    desk: Arc<dyn Desk>,
    posting: Arc<Posting>,
    clock: Arc<dyn Clock>,
    /// What each message shows as the last line.
    drawn: BTreeMap<(SessionId, ExecutionId), String>,
    /// Drawings of which nobody knows whether they will still arrive: how often they are yet to be
    /// drawn over, and where they are.
    unsure: BTreeMap<(SessionId, ExecutionId), (u32, String)>,
    /// Where something runs.
    sessions: BTreeSet<SessionId>,
}

impl Watching {
    /// Looks at nothing yet.
    pub fn new(desk: Arc<dyn Desk>, posting: Arc<Posting>, clock: Arc<dyn Clock>) -> Self {
        let (drawn, unsure, sessions) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Self { desk, posting, clock, drawn, unsure, sessions }
    }

    /// Until `ending`. While nothing of Slack's runs here it only waits to hear that it does.
    pub async fn run(mut self, ending: CancellationToken) {
        // What is not drawn is drawn by the next process, or made final by the outbox.
        let _ended = ending.run_until_cancelled(self.watch()).await;
    }

    async fn watch(&mut self) {
        let mut stirs = self.desk.stirs();
        self.look_for_all().await;
        let mut next = self.clock.now();
        loop {
            let idle = self.sessions.is_empty();
            tokio::select! {
                stirred = stirs.recv() => match stirred {
                    Ok(session) => self.add(session),
                    Err(RecvError::Lagged(_)) => self.look_for_all().await,
                    Err(RecvError::Closed) => return,
                },
                () = self.clock.sleep_until(next), if !idle => {
                    for session in self.sessions.clone() {
                        self.look(&session).await;
                    }
                    next = self.clock.now().plus_ms(SLACK_LOOK_MS);
                }
            }
        }
    }

    fn add(&mut self, session: SessionId) {
        let slack =
            session.as_str().strip_prefix(SURFACE).is_some_and(|rest| rest.starts_with('/'));
        if slack {
            self.sessions.insert(session);
        }
    }

    /// What an earlier process left running, or what was missed.
    async fn look_for_all(&mut self) {
        match self.desk.at_home().await {
            Ok(sessions) => sessions.into_iter().for_each(|session| self.add(session)),
            Err(error) => tracing::debug!(%error, "what runs here is not known yet"),
        }
    }

    async fn look(&mut self, session: &SessionId) {
        let Ok(view) = self.desk.view(session).await else { return };
        let shown = |id: &ExecutionId| view.live.iter().any(|one| one.id == *id);
        self.drawn.retain(|(of, id), _| of != session || shown(id));
        self.draw_over(session, &view).await;
        let unsure = self.unsure.keys().any(|(of, _)| of == session);
        if !unsure && !view.live.iter().any(|execution| execution.shown) {
            self.sessions.remove(session);
            return;
        }
        for execution in &view.live {
            if let Some(at) = view.shown.get(&execution.id) {
                self.draw(session, execution, at).await;
            }
        }
    }

    async fn draw(&mut self, session: &SessionId, execution: &Execution, at: &str) {
        // `None` where it lives elsewhere: whoever has it draws it.
        let Some(glance) = self.desk.glance(session, &execution.id).await else { return };
        let said = glance.stdout.text();
        let Some(last) = said.lines().rev().find(|line| !line.trim().is_empty()) else { return };
        let key = (session.clone(), execution.id.clone());
        if self.drawn.get(&key).is_some_and(|drawn| drawn == last) {
            return;
        }
        let card = card::render(execution, Some(last));
        match self.posting.redraw(&execution.address, at, &card).await {
            Ok(()) => drop(self.drawn.insert(key, last.to_owned())),
            Err(ChannelError::Unknown { .. }) => {
                self.unsure.insert(key, (OVER_MAX, at.to_owned()));
            }
            // The next look tries again, with what is true then.
            Err(error @ (ChannelError::Retry { .. } | ChannelError::Never { .. })) => {
                tracing::debug!(session.id = %session, %error, "a watcher's message is late");
                return;
            }
        }
        self.mend(session, &execution.id, at).await;
    }

    /// What has ended is drawn over a few times more, for what may still arrive.
    async fn draw_over(&mut self, session: &SessionId, view: &SessionView) {
        for ended in &view.ended {
            let key = (session.clone(), ended.id.clone());
            let Some((left, at)) = self.unsure.get_mut(&key) else { continue };
            let drawn = card::render(ended, None);
            if self.posting.redraw(&ended.address, at, &drawn).await.is_ok() {
                *left -= 1;
            }
            if *left == 0 {
                self.unsure.remove(&key);
            }
        }
        let known = |id: &ExecutionId| {
            view.live.iter().chain(&view.ended).any(|execution| execution.id == *id)
        };
        self.unsure.retain(|(of, id), _| of != session || known(id));
    }

    /// It may have ended while it was drawn as running, and been made final before that arrived:
    /// the later of two drawings is what stays.
    async fn mend(&self, session: &SessionId, id: &ExecutionId, at: &str) {
        for _ in 0..MENDS_MAX {
            let Ok(view) = self.desk.view(session).await else {
                self.clock.sleep_until(self.clock.now().plus_ms(SLACK_PACE_MS)).await;
                continue;
            };
            let ended = view.ended.iter().find(|execution| execution.id == *id);
            let Some(ended) = ended else { return };
            let drawn = card::render(ended, None);
            let after_ms = match self.posting.redraw(&ended.address, at, &drawn).await {
                Err(
                    ChannelError::Retry { after_ms, .. } | ChannelError::Unknown { after_ms, .. },
                ) => after_ms.max(SLACK_PACE_MS),
                Ok(()) | Err(ChannelError::Never { .. }) => return,
            };
            self.clock.sleep_until(self.clock.now().plus_ms(after_ms)).await;
        }
    }
}
