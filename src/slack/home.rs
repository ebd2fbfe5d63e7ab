//! The app's own tab in Slack, where a person sees what of theirs runs anywhere. Owns that it is
//! published when they open it, when they press something in it, and for those who did, when
//! something of theirs begins or ends. Must not know how it looks, nor what a button does.
//!
//! Nothing depends on it: what cannot be published is said in the log, and the tab is old until it
//! is opened again. Nothing is kept of who has opened it, so after a start nobody has.

mod view;
mod visitors;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use serde_json::json;
use tokio::sync::Notify;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use self::visitors::{Drawn, Job, Visitors};
use super::access::Keyring;
use super::hear::Visitor;
use super::pace::Pace;
use super::place::{SURFACE, Thread};
use super::web::{CallError, Web};
use crate::core::id::{Principal, SessionId};
use crate::core::limits::{SLACK_HOME_CALLS_MAX, SLACK_HOME_LOOK_MS};
use crate::core::time::Timestamp;
use crate::ports::{Clock, Desk};

const PUBLISH: &str = "views.publish";

/// Everybody's.
pub struct Homes {
    desk: Arc<dyn Desk>,
    keyring: Arc<Keyring>,
    web: Arc<Web>,
    clock: Arc<dyn Clock>,
    /// Of its own, by installation: it takes nothing from what is posted.
    pace: Mutex<Pace>,
    visitors: Mutex<Visitors>,
    came: Notify,
}

impl Homes {
    /// Publishes nothing yet.
    pub fn new(
        desk: Arc<dyn Desk>,
        keyring: Arc<Keyring>,
        web: Arc<Web>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let (pace, visitors, came) = (Mutex::default(), Mutex::default(), Notify::new());
        Self { desk, keyring, web, clock, pace, visitors, came }
    }

    /// Somebody opens it, or has pressed something, of which this became. Returns at once.
    pub fn show(&self, visitor: Visitor, said: Option<String>) {
        self.visitors().came(self.clock.now(), visitor, said);
        self.came.notify_one();
    }

    fn visitors(&self) -> MutexGuard<'_, Visitors> {
        self.visitors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pace(&self) -> MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes what is to be published, until `ending`. While nobody has opened it, it only hears
    /// that something runs.
    pub async fn run(self: Arc<Self>, ending: CancellationToken) {
        // What is not published is only old.
        let _ended = ending.run_until_cancelled(self.serve()).await;
    }

    async fn serve(self: &Arc<Self>) {
        let mut stirs = self.desk.stirs();
        let mut works: FuturesUnordered<BoxFuture<'static, ()>> = FuturesUnordered::new();
        // Where something began or ended, and when to look whose it was.
        let (mut stirred, mut look_at) = (BTreeSet::new(), None);
        loop {
            let (jobs, next) = self.due();
            for job in jobs {
                works.push(Box::pin(Arc::clone(self).draw(job)));
            }
            tokio::select! {
                heard = stirs.recv() => match heard {
                    Ok(session) if self.is_watched(&session) => {
                        stirred.insert(session);
                        // What ends together is looked at together.
                        look_at.get_or_insert(self.clock.now().plus_ms(SLACK_HOME_LOOK_MS));
                    }
                    Ok(_) => {}
                    Err(RecvError::Lagged(_)) => self.visitors().all_stirred(self.clock.now()),
                    Err(RecvError::Closed) => return,
                },
                Some(()) = works.next(), if !works.is_empty() => {}
                () = self.came.notified() => {}
                () = self.until(next) => {}
                () = self.until(look_at) => {
                    look_at = None;
                    let sessions = std::mem::take(&mut stirred);
                    works.push(Box::pin(Arc::clone(self).look(sessions)));
                }
            }
        }
    }

    async fn until(&self, at: Option<Timestamp>) {
        match at {
            Some(at) => self.clock.sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    fn due(&self) -> (Vec<Job>, Option<Timestamp>) {
        let now = self.clock.now();
        self.visitors().due(now, SLACK_HOME_CALLS_MAX, |installation, rank| {
            self.pace().ask(now, (PUBLISH, installation), rank)
        })
    }

    /// Is it a thread of an installation in which somebody has opened it?
    fn is_watched(&self, session: &SessionId) -> bool {
        let mut parts = session.as_str().split('/');
        let is_ours = parts.next() == Some(SURFACE);
        is_ours && parts.next().is_some_and(|installation| self.visitors().any_of(installation))
    }

    /// Finds out whose work these sessions have.
    async fn look(self: Arc<Self>, sessions: BTreeSet<SessionId>) {
        for session in sessions {
            let owners: BTreeSet<Principal> = match self.desk.view(&session).await {
                Ok(view) => view.live.into_iter().chain(view.ended).map(|one| one.owner).collect(),
                // Whoever saw something there is shown it anew all the same.
                Err(_) => BTreeSet::new(),
            };
            self.visitors().stirred(self.clock.now(), &session, &owners);
        }
    }

    async fn draw(self: Arc<Self>, job: Job) {
        let drawn = self.publish(&job).await;
        self.visitors().drawn(self.clock.now(), &job, drawn);
    }

    async fn publish(&self, job: &Job) -> Drawn {
        let Visitor { installation, user, by } = &job.visitor;
        let owned = match self.desk.of_owner(by).await {
            Ok(owned) => owned,
            Err(error) => {
                tracing::info!(%error, "a home tab is late");
                return Drawn::Again;
            }
        };
        let threads = owned.live.iter().filter_map(|one| Thread::of(&one.address).ok());
        let sessions = threads.filter_map(|thread| thread.session().ok()).collect();
        let view = view::home(&owned, job.said.as_deref());
        let text = view.to_string();
        if job.seen.as_ref() == Some(&text) {
            return Drawn::Seen(text, sessions);
        }
        let token = match self.keyring.token(installation).await {
            Ok(token) => token,
            Err(error) => {
                tracing::info!(slack.installation = %installation, %error, "no home tab is shown");
                return Drawn::Never;
            }
        };
        // Without the hash of what is there: one person's is published by one at a time, and the
        // latest is what is true.
        let body = json!({ "user_id": user, "view": view });
        match self.web.call(&token, PUBLISH, &body).await {
            Ok(_) => Drawn::Seen(text, sessions),
            Err(error) => self.refused(installation, &error),
        }
    }

    fn refused(&self, installation: &str, error: &CallError) -> Drawn {
        match error {
            CallError::Limited { after_ms, .. } => {
                let now = self.clock.now();
                self.pace().limited(now, (PUBLISH, installation), *after_ms);
                Drawn::Limited
            }
            CallError::Unreached { .. } | CallError::Unknown { .. } => {
                tracing::info!(%error, "a home tab is late");
                Drawn::Again
            }
            // Somebody published at the same time.
            CallError::Refused { error: word, .. } if word == "hash_conflict" => Drawn::Again,
            CallError::Refused { error: word, .. } if word == "not_enabled" => {
                tracing::warn!(slack.installation = installation, %error,
                    "no home tab is shown: switch it on under \"App Home\" in the app's settings");
                Drawn::Never
            }
            CallError::Refused { .. } => {
                tracing::warn!(slack.installation = installation, %error, "no home tab is shown");
                Drawn::Never
            }
        }
    }
}
