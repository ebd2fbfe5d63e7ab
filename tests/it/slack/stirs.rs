//! When a home tab is published by itself, on the real wire: what is missed, what has not changed,
//! and what is nobody's who looks.

use std::sync::{Arc, Mutex};

use dogwatch::core::arrival::Incoming;
use dogwatch::core::id::{ExecutionId, Principal, SessionId};
use dogwatch::core::limits::SLACK_HOME_MS;
use dogwatch::ports::{Command, Desk, DeskError, Done, Glance, Owned, SessionView};
use dogwatch::slack::access::Keyring;
use dogwatch::slack::hear::Visitor;
use dogwatch::slack::home::Homes;
use dogwatch::slack::web::Web;
use futures_util::future::BoxFuture;
use pretty_assertions::assert_eq;
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{pass, patiently};
use crate::slack_in::desk::execution;
use crate::support::fake_slack::FakeSlack;
use crate::support::manual_clock::ManualClock;

/// Who looks, and whose watcher it is.
const PERSON: &str = "slack/T1/U7";
const PUBLISH: &str = "views.publish";
/// What is kept for who does not listen.
const KEPT: usize = 2;

/// A person has so many places taken, and somebody says where something begins or ends.
struct Stirred {
    stirs: broadcast::Sender<SessionId>,
    taken: watch::Sender<usize>,
    asked: watch::Sender<usize>,
    viewed: Mutex<Vec<SessionId>>,
}

impl Desk for Stirred {
    fn accept<'a>(&'a self, _: &'a SessionId, _: Incoming) -> BoxFuture<'a, Result<(), DeskError>> {
        panic!("nobody says anything")
    }

    fn command<'a>(
        &'a self,
        _: &'a SessionId,
        _: &'a Principal,
        _: Command,
    ) -> BoxFuture<'a, Result<Done, DeskError>> {
        panic!("nobody commands")
    }

    fn view<'a>(&'a self, at: &'a SessionId) -> BoxFuture<'a, Result<SessionView, DeskError>> {
        self.viewed.lock().unwrap().push(at.clone());
        let view = SessionView {
            turn: None,
            people: 0,
            notices: 0,
            stopped: false,
            not_before: None,
            live: Some(execution("w-1", PERSON))
                .filter(|_| at.as_str().starts_with("slack/T1/"))
                .into_iter()
                .collect(),
            ended: vec![],
            unposted: 0,
            shown: std::collections::BTreeMap::new(),
        };
        Box::pin(std::future::ready(Ok(view)))
    }

    fn stirs(&self) -> broadcast::Receiver<SessionId> {
        self.stirs.subscribe()
    }

    fn of_owner<'a>(&'a self, _: &'a Principal) -> BoxFuture<'a, Result<Owned, DeskError>> {
        self.asked.send_modify(|asked| *asked += 1);
        let taken = *self.taken.borrow();
        Box::pin(std::future::ready(Ok(Owned { live: vec![], taken, cap: 20 })))
    }

    fn glance<'a>(&'a self, _: &'a SessionId, _: &'a ExecutionId) -> BoxFuture<'a, Option<Glance>> {
        Box::pin(std::future::ready(None))
    }
}

fn person() -> Principal {
    Principal::new(PERSON).unwrap()
}

/// Somebody looks at their tab, which was published once.
struct Looked {
    slack: FakeSlack,
    clock: ManualClock,
    desk: Arc<Stirred>,
    ending: CancellationToken,
}

impl Drop for Looked {
    fn drop(&mut self) {
        self.ending.cancel();
    }
}

impl Looked {
    async fn new() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (slack, clock) = (FakeSlack::start().await, ManualClock::new());
        let desk = Arc::new(Stirred {
            stirs: broadcast::Sender::new(KEPT),
            taken: watch::Sender::new(1),
            asked: watch::Sender::new(0),
            viewed: Mutex::default(),
        });
        let settings = slack.settings();
        let web = Arc::new(Web::new(&settings.api, Arc::new(clock.clone())).unwrap());
        let keyring = Keyring::of(&settings).unwrap();
        let homes = Arc::new(Homes::new(
            Arc::<Stirred>::clone(&desk),
            keyring,
            web,
            Arc::new(clock.clone()),
        ));
        let visitor =
            Visitor { installation: "T1".to_owned(), user: "U7".to_owned(), by: person() };
        homes.show(visitor, None);
        let ending = CancellationToken::new();
        drop(TaskTracker::new().spawn(homes.run(ending.clone())));
        let looked = Self { slack, clock, desk, ending };
        patiently(looked.slack.called(PUBLISH, 1)).await;
        looked
    }

    /// Something begins or ends there. Nobody hears of it before this test waits for something.
    fn stirs(&self, session: &str) {
        self.desk.stirs.send(SessionId::new(session).unwrap()).unwrap();
    }

    fn now_has(&self, taken: usize) {
        self.desk.taken.send_replace(taken);
    }

    /// Until the tab was drawn so often, whether it was published or not.
    async fn drawn(&self, count: usize) {
        let mut asked = self.desk.asked.subscribe();
        let drawn = asked.wait_for(|asked| *asked >= count);
        pass(&self.clock, SLACK_HOME_MS, drawn).await.unwrap();
    }

    /// What was published last, of so many.
    async fn published(&self, count: usize) -> String {
        let calls = pass(&self.clock, SLACK_HOME_MS, self.slack.called(PUBLISH, count)).await;
        assert_eq!(calls.len(), count);
        calls.last().unwrap().arguments.get("view").unwrap().to_string()
    }
}

#[tokio::test]
async fn a_tab_is_drawn_anew_when_what_began_or_ended_was_missed() {
    let looked = Looked::new().await;
    looked.now_has(7);
    looked.stirs("slack/T1/C1/1.1");
    // More than is kept, and what is left of it is nobody's who looks.
    for _ in 0..KEPT {
        looked.stirs("slack/T9/C9/9.9");
    }
    let view = looked.published(2).await;
    assert!(view.contains("7 of your 20 places"), "{view}");
}

#[tokio::test]
async fn what_has_not_changed_is_not_published_again() {
    let looked = Looked::new().await;
    looked.stirs("slack/T1/C1/1.1");
    looked.drawn(2).await;
    looked.now_has(7);
    looked.stirs("slack/T1/C1/1.1");
    looked.drawn(3).await;
    let view = looked.published(2).await;
    assert!(view.contains("7 of your 20 places"), "{view}");
}

#[tokio::test]
async fn where_nobody_looks_nothing_is_looked_at() {
    let looked = Looked::new().await;
    let elsewhere = ["slack/T9/C1/1.1", "console/T1"];
    for session in elsewhere {
        looked.stirs(session);
    }
    // They are heard before the next is said, and gathered with it.
    tokio::task::yield_now().await;
    while !looked.desk.stirs.is_empty() {
        tokio::task::yield_now().await;
    }
    looked.now_has(7);
    looked.stirs("slack/T1/C1/1.1");
    looked.published(2).await;
    let own = SessionId::new("slack/T1/C1/1.1").unwrap();
    assert_eq!(*looked.desk.viewed.lock().unwrap(), [own]);
}
