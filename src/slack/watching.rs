//! Keeps the messages of watchers true while they run: their last line, politely. Owns when one is
//! drawn anew, and how many at once. What posts them and what makes them final is the outbox; what
//! is lost here is only late.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::Semaphore;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use super::card::{self, Rendered};
use super::place::SURFACE;
use super::posting::Posting;
use crate::core::execution::{Address, Execution};
use crate::core::id::{ExecutionId, SessionId};
use crate::core::limits::{SLACK_DRAWN_AT_ONCE_MAX, SLACK_LOOK_MS, SLACK_PACE_MS};
use crate::ports::{ChannelError, Clock, Desk};

/// Tries to draw anew what ended meanwhile.
const MENDS_MAX: u32 = 20;
/// Looks after which a drawing that nobody heard of is not waited for any more.
const OVER_MAX: u32 = 3;

/// Which message.
type Key = (SessionId, ExecutionId);
/// Messages that are being drawn: each comes back with what is known of it.
type Drawing = FuturesUnordered<BoxFuture<'static, (Key, Shown)>>;

/// What is known of one message.
#[derive(Default)]
struct Shown {
    /// What it shows as the last line.
    line: Option<String>,
    /// Of a drawing nobody knows whether it will still arrive: how often it is yet to be drawn
    /// over, and where it is.
    unsure: Option<(u32, String)>,
}

/// Looks at what runs here and is shown in Slack.
pub struct Watching {
    hand: Arc<Hand>,
    /// What is known of the messages that nobody draws at the moment.
    shown: BTreeMap<Key, Shown>,
    /// Those that somebody draws: a slow one holds up no other.
    busy: BTreeSet<Key>,
    /// Where something runs.
    sessions: BTreeSet<SessionId>,
}

impl Watching {
    /// Looks at nothing yet.
    pub fn new(desk: Arc<dyn Desk>, posting: Arc<Posting>, clock: Arc<dyn Clock>) -> Self {
        let calls = Semaphore::new(SLACK_DRAWN_AT_ONCE_MAX);
        let hand = Arc::new(Hand { desk, posting, clock, calls });
        let (shown, busy, sessions) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        Self { hand, shown, busy, sessions }
    }

    /// Until `ending`. While nothing of Slack's runs here it only waits to hear that it does.
    pub async fn run(mut self, ending: CancellationToken) {
        // What is not drawn is drawn by the next process, or made final by the outbox.
        let _ended = ending.run_until_cancelled(self.watch()).await;
    }

    async fn watch(&mut self) {
        let mut stirs = self.hand.desk.stirs();
        self.look_for_all().await;
        let mut next = self.hand.clock.now();
        let mut drawing = Drawing::new();
        loop {
            let idle = self.sessions.is_empty();
            tokio::select! {
                stirred = stirs.recv() => match stirred {
                    Ok(session) => self.add(session),
                    Err(RecvError::Lagged(_)) => self.look_for_all().await,
                    Err(RecvError::Closed) => return,
                },
                Some((key, shown)) = drawing.next() => {
                    self.busy.remove(&key);
                    self.shown.insert(key, shown);
                }
                () = self.hand.clock.sleep_until(next), if !idle => {
                    for session in self.sessions.clone() {
                        self.look(&session, &mut drawing).await;
                    }
                    next = self.hand.clock.now().plus_ms(SLACK_LOOK_MS);
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
        match self.hand.desk.at_home().await {
            Ok(sessions) => sessions.into_iter().for_each(|session| self.add(session)),
            Err(error) => tracing::debug!(%error, "what runs here is not known yet"),
        }
    }

    /// Begins to draw what is to be drawn here and is not being drawn.
    async fn look(&mut self, session: &SessionId, drawing: &mut Drawing) {
        let Ok(view) = self.hand.desk.view(session).await else { return };
        let key = |id: &ExecutionId| (session.clone(), id.clone());
        for ended in &view.ended {
            let key = key(&ended.id);
            let Some(shown) = self.shown.remove(&key).filter(|shown| shown.unsure.is_some()) else {
                continue;
            };
            self.busy.insert(key.clone());
            drawing.push(Box::pin(Arc::clone(&self.hand).draw_over(key, ended.clone(), shown)));
        }
        let live = |id: &ExecutionId| view.live.iter().any(|one| one.id == *id);
        self.shown.retain(|(of, id), _| of != session || live(id));
        let busy = self.busy.iter().any(|(of, _)| of == session);
        if !busy && !view.live.iter().any(|execution| execution.shown) {
            self.sessions.remove(session);
            return;
        }
        for execution in &view.live {
            let Some(at) = view.shown.get(&execution.id) else { continue };
            let key = key(&execution.id);
            if self.busy.insert(key.clone()) {
                let shown = self.shown.remove(&key).unwrap_or_default();
                let hand = Arc::clone(&self.hand);
                drawing.push(Box::pin(hand.draw(key, execution.clone(), at.clone(), shown)));
            }
        }
    }
}

/// Draws.
struct Hand {
    desk: Arc<dyn Desk>,
    posting: Arc<Posting>,
    clock: Arc<dyn Clock>,
    /// Calls that may be on their way at once.
    calls: Semaphore,
}

impl Hand {
    async fn redraw(
        &self,
        whose: &Address,
        at: &str,
        drawn: &Rendered,
    ) -> Result<(), ChannelError> {
        // Nobody closes it.
        let _call = self.calls.acquire().await;
        self.posting.redraw(whose, at, drawn).await
    }

    async fn draw(
        self: Arc<Self>,
        key: Key,
        execution: Execution,
        at: String,
        mut shown: Shown,
    ) -> (Key, Shown) {
        // `None` where it lives elsewhere: whoever has it draws it.
        let glance = self.desk.glance(&key.0, &key.1).await;
        let said = glance.map(|glance| glance.stdout.text()).unwrap_or_default();
        let last = said.lines().rev().find(|line| !line.trim().is_empty());
        let Some(last) = last.filter(|last| shown.line.as_deref() != Some(*last)) else {
            return (key, shown);
        };
        let card = card::render(&execution, Some(last));
        match self.redraw(&execution.address, &at, &card).await {
            Ok(()) => shown.line = Some(last.to_owned()),
            Err(ChannelError::Unknown { .. }) => shown.unsure = Some((OVER_MAX, at.clone())),
            // The next look tries again, with what is true then.
            Err(error @ (ChannelError::Retry { .. } | ChannelError::Never { .. })) => {
                tracing::debug!(session.id = %key.0, %error, "a watcher's message is late");
                return (key, shown);
            }
        }
        self.mend(&key, &at).await;
        (key, shown)
    }

    /// What has ended is drawn over a few times more, for what may still arrive.
    async fn draw_over(
        self: Arc<Self>,
        key: Key,
        ended: Execution,
        mut shown: Shown,
    ) -> (Key, Shown) {
        if let Some((left, at)) = shown.unsure.take() {
            let drawn = card::render(&ended, None);
            let left = match self.redraw(&ended.address, &at, &drawn).await {
                Ok(()) => left - 1,
                Err(_) => left,
            };
            shown.unsure = Some((left, at)).filter(|(left, _)| *left > 0);
        }
        (key, shown)
    }

    /// It may have ended while it was drawn as running, and been made final before that arrived:
    /// the later of two drawings is what stays.
    async fn mend(&self, (session, id): &Key, at: &str) {
        for _ in 0..MENDS_MAX {
            let Ok(view) = self.desk.view(session).await else {
                self.clock.sleep_until(self.clock.now().plus_ms(SLACK_PACE_MS)).await;
                continue;
            };
            let ended = view.ended.iter().find(|execution| execution.id == *id);
            let Some(ended) = ended else { return };
            let drawn = card::render(ended, None);
            let after_ms = match self.redraw(&ended.address, at, &drawn).await {
                Err(
                    ChannelError::Retry { after_ms, .. } | ChannelError::Unknown { after_ms, .. },
                ) => after_ms.max(SLACK_PACE_MS),
                Ok(()) | Err(ChannelError::Never { .. }) => return,
            };
            self.clock.sleep_until(self.clock.now().plus_ms(after_ms)).await;
        }
    }
}
