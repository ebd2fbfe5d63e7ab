//! What shows turns, where several of them, or several workspaces, get in each other's way.

use std::sync::Arc;

use dogwatch::core::arrival::{Incoming, What};
use dogwatch::core::execution::Scope;
use dogwatch::core::id::{BootId, DedupeKey, ExecutionId, Principal, SessionId, StopId, TurnNo};
use dogwatch::core::ledger::row::Surface;
use dogwatch::core::ledger::session::Placed;
use dogwatch::core::limits::{SLACK_STREAM_LEFT_MS, SLACK_STREAM_MS, SLACK_STREAM_RETRY_MS};
use dogwatch::ports::{
    Channel, Clock, Command, Desk, DeskError, Done, Glance, Post, Progress, SessionView, Shown,
};
use dogwatch::slack::Streaming;
use dogwatch::slack::place::Thread;
use futures_util::future::BoxFuture;
use pretty_assertions::assert_eq;
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;

use super::streaming::{DELETE, POST, START, STOP, Talk, UPDATE, held, lines};
use super::{Stand, address, patiently, session};
use crate::support::fake_llm::{Gate, Reply};
use crate::support::fake_slack::streams::reads;
use crate::support::fake_slack::{Fault, Message, Stream};
use crate::support::manual_clock::ManualClock;

async fn stop(talk: &Talk) {
    let stop = Command::Stop { scope: Scope::Turn, stop: StopId::new("s").unwrap(), said_at: None };
    let desk = talk.bot.desk();
    let by = Principal::new("slack/T1/U7").unwrap();
    desk.command(&session("C1", &talk.root), &by, stop).await.unwrap();
}

/// Says something in a thread of another workspace, whose channel has the same id.
async fn say_in(talk: &Talk, team: &str, root: &str, text: &str) {
    let thread = Thread::new(team, "C1", root).unwrap();
    let incoming = Incoming {
        keys: vec![DedupeKey::new(text.replace(' ', "-")).unwrap()],
        what: What::Message { text: text.to_owned() },
        principal: Principal::new(format!("slack/{team}/U7")).unwrap(),
        address: thread.address(),
        source_at: talk.bot.clock.now(),
        continues: false,
        shared: false,
    };
    let desk = talk.bot.desk();
    desk.accept(&thread.session().unwrap(), incoming).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stream_of_a_stopped_turn_is_closed_once() {
    for answer in [None, Some(Fault::Refuse("message_not_in_streaming_state"))] {
        let talk = Talk::new(Streaming::Auto).await;
        if let Some(fault) = &answer {
            talk.slack.always(STOP, fault.clone());
        }
        let gate = Gate::default();
        talk.bot.llm.will(held(&lines("one"), &gate, &lines("two")));
        talk.say("tell me").await;
        talk.shows("**one**").await;
        talk.is_known(1).await;
        let stopped = talk.thread().remove(0).ts;
        stop(&talk).await;
        talk.bot.clock.jump(SLACK_STREAM_LEFT_MS);
        talk.bot.wait("the end of the stream", talk.slack.called(STOP, 1)).await;
        // Each of these gives it time to be closed again.
        for turn in 1..=4 {
            talk.bot.clock.jump(2 * SLACK_STREAM_MS);
            talk.bot.llm.will(Reply::text("here"));
            talk.say(&format!("and now {turn}?")).await;
            talk.posted(turn).await;
        }
        let calls = talk.slack.called(STOP, 1).await;
        let again = calls.iter().filter(|call| call.arguments["ts"] == stopped.as_str());
        assert_eq!(again.count(), 1, "{answer:?}");
        talk.bot.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_not_valid_says_nothing_of_streams() {
    let words = ["token_expired", "account_inactive", "internal_error"];
    for word in words {
        let talk = Talk::new(Streaming::Auto).await;
        talk.slack.will(START, Fault::Refuse(word));
        let gate = Gate::default();
        talk.bot.llm.will(held(&lines("one"), &gate, "end"));
        talk.say("tell me").await;
        talk.bot.wait("a refusal", talk.slack.called(START, 1)).await;
        gate.open();
        talk.posted(1).await;
        let gate = Gate::default();
        talk.bot.llm.will(held(&lines("two"), &gate, "end"));
        talk.say("and now?").await;
        talk.shows("**two**").await;
        assert_eq!(talk.thread().pop().unwrap().stream, Stream::Open, "{word}");
        gate.open();
        talk.posted(2).await;
        talk.bot.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_workspace_refuses_or_limits_another_is_shown_all_the_same() {
    for fault in [Fault::Refuse("not_allowed_token_type"), Fault::Limited(3_600)] {
        let talk = Talk::new(Streaming::Auto).await;
        talk.slack.will(START, fault.clone());
        let gate = Gate::default();
        talk.bot.llm.will(held(&lines("one"), &gate, "end"));
        talk.say("tell me").await;
        talk.bot.wait("a first call", talk.slack.called(START, 1)).await;
        gate.open();
        talk.posted(1).await;
        let (root, gate) = (talk.slack.root("C1"), Gate::default());
        talk.bot.llm.will(held(&lines("two"), &gate, "end"));
        say_in(&talk, "T2", &root, "and there?").await;
        let shown = |all: &[Message]| all.iter().any(|one| reads(one).contains("**two**"));
        talk.bot.wait("a surface", talk.slack.until("C1", &root, shown)).await;
        assert_eq!((talk.slack.count(START), talk.slack.count(POST) <= 1), (2, true), "{fault:?}");
        gate.open();
        let whole = |all: &[Message]| all.iter().any(|one| reads(one).ends_with("end"));
        talk.bot.wait("the answer", talk.slack.until("C1", &root, whole)).await;
        talk.bot.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_takes_away_in_the_middle_is_said_whole_and_once() {
    for streaming in [Streaming::Auto, Streaming::Edit] {
        for thread_goes_on in [true, false] {
            let talk = Talk::new(streaming).await;
            let gate = Gate::default();
            talk.bot.llm.will(held(&lines("one"), &gate, &lines("two")));
            talk.say("tell me").await;
            talk.shows("**one**").await;
            talk.is_known(1).await;
            talk.slack.takes_away(&talk.thread()[0].ts);
            if thread_goes_on {
                talk.slack.says("C1", Some(&talk.root), "who did that?");
            }
            gate.open();
            talk.posted(1).await;
            let whole = format!("{}{}", lines("one"), lines("two"));
            assert_eq!(talk.texts(), [whole.trim_end()], "{streaming:?}");
            talk.bot.finish().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_between_the_call_and_its_answer_leaves_nothing_half_beside_the_next_answer() {
    for (streaming, method) in [(Streaming::Auto, START), (Streaming::Edit, POST)] {
        let talk = Talk::new(streaming).await;
        let (on_its_way, gate) = (CancellationToken::new(), Gate::default());
        talk.slack.will(method, Fault::Held(on_its_way.clone()));
        talk.bot.llm.will(held(&lines("one"), &gate, &lines("two")));
        talk.say("tell me").await;
        talk.bot.wait("a call", talk.slack.called(method, 1)).await;
        stop(&talk).await;
        talk.bot.llm.will(Reply::text("here"));
        talk.say("and now?").await;
        on_its_way.cancel();
        talk.posted(1).await;
        let only = |all: &[Message]| {
            let own: Vec<_> = all.iter().filter(|one| !one.bot_id.is_empty()).collect();
            own.len() == 1 && reads(own[0]) == "here"
        };
        talk.bot.wait("the answer alone", talk.slack.until("C1", &talk.root, only)).await;
        talk.bot.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_waits_for_its_last_call_and_the_next_one_stay_apart() {
    for (streaming, last) in [(Streaming::Auto, STOP), (Streaming::Edit, UPDATE)] {
        let talk = Talk::new(streaming).await;
        let gate = Gate::default();
        talk.bot.llm.will(held(&lines("one"), &gate, &lines("two")));
        talk.say("tell me").await;
        talk.shows("**one**").await;
        talk.is_known(1).await;
        talk.slack.will(last, Fault::Limited(4));
        gate.open();
        talk.bot.wait("a limit", talk.slack.called(last, 1)).await;
        talk.bot.llm.will(Reply::text(&lines("three")));
        talk.say("and now?").await;
        talk.posted(2).await;
        let whole = format!("{}{}", lines("one"), lines("two"));
        let mut texts = talk.texts();
        texts.sort();
        assert_eq!(texts, [whole.trim_end(), lines("three").trim_end()], "{streaming:?}");
        talk.bot.finish().await;
    }
}

/// A desk of a node whose word of where its surface is comes late.
struct Late {
    begun: watch::Sender<Option<Shown>>,
    /// How often it was told where.
    told: watch::Sender<usize>,
    /// What it says then, once it says anything.
    says: watch::Sender<Option<Placed>>,
}

impl Late {
    fn new(says: Option<Placed>) -> Arc<Self> {
        let (begun, told) = (watch::Sender::new(None), watch::Sender::new(0));
        Arc::new(Self { begun, told, says: watch::Sender::new(says) })
    }

    /// What was written before Slack was asked, once Slack has answered.
    async fn surface(&self, clock: &ManualClock) -> Surface {
        patiently(self.told.subscribe().wait_for(|times| *times > 0)).await.unwrap();
        let shown = self.begun.borrow().clone().unwrap();
        Surface {
            boot: BootId::new("boot-1").unwrap(),
            form: shown.form,
            mark: shown.mark,
            opened_at: clock.now(),
            at: None,
        }
    }

    /// It was told that it is late, and waits for the time to ask again, in one of the sleeps that
    /// were begun after so many. Answers how many there are now.
    async fn waits(clock: &ManualClock, after: usize) -> usize {
        let mut begun = after;
        loop {
            let sleeps = patiently(clock.sleeps(begun)).await;
            if sleeps.iter().skip(after).any(|ms| *ms == SLACK_STREAM_RETRY_MS) {
                return sleeps.len();
            }
            begun = sleeps.len() + 1;
        }
    }
}

impl Desk for Late {
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

    fn view<'a>(&'a self, _: &'a SessionId) -> BoxFuture<'a, Result<SessionView, DeskError>> {
        panic!("nobody looks")
    }

    fn stirs(&self) -> broadcast::Receiver<SessionId> {
        broadcast::channel(1).1
    }

    fn surface<'a>(
        &'a self,
        _: &'a SessionId,
        _: TurnNo,
        shown: Shown,
    ) -> BoxFuture<'a, Result<Placed, DeskError>> {
        Box::pin(async move {
            if shown.at.is_none() {
                self.begun.send_replace(Some(shown));
                return Ok(Placed::Here(Principal::new("slack/T1/U7").unwrap()));
            }
            self.told.send_modify(|times| *times += 1);
            let mut says = self.says.subscribe();
            Ok(says.wait_for(Option::is_some).await.unwrap().clone().unwrap())
        })
    }

    fn glance<'a>(&'a self, _: &'a SessionId, _: &'a ExecutionId) -> BoxFuture<'a, Option<Glance>> {
        Box::pin(std::future::ready(None))
    }
}

/// When another node posts the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Posts {
    /// It has looked before there was anything.
    Blind,
    /// Before the first node is told that it is late.
    Before,
    /// While the first node waits for what becomes of the answer.
    Meanwhile,
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_another_node_made_of_a_stream_is_not_taken_away_by_who_began_it() {
    for posts in [Posts::Blind, Posts::Before, Posts::Meanwhile] {
        let stand = Stand::new().await;
        stand.slack.streaming_is(Streaming::Auto);
        let node = || stand.slack.posting(Arc::new(stand.clock.clone()));
        let (one, other, ending) = (node(), node(), CancellationToken::new());
        let late = Late::new(None);
        let running = one.stream(Arc::clone(&late) as Arc<dyn Desk>, ending.clone());
        let tracker = tokio_util::task::TaskTracker::new();
        let running = tracker.spawn(running);
        let (at, session) = (address("C1", &stand.root), session("C1", &stand.root));
        one.progress(&session, &at, Progress::Began { turn: 1, synthetic: false });
        one.progress(&session, &at, Progress::Text(lines("one")));
        let surface = late.surface(&stand.clock).await;
        let whole = format!("{}two", lines("one"));
        if posts == Posts::Meanwhile {
            late.says.send_replace(Some(Placed::Late(None)));
            let mut sleeps = 0;
            for asked in 1..=2 {
                sleeps = Late::waits(&stand.clock, sleeps).await;
                assert_eq!(*late.told.borrow(), asked);
                stand.clock.advance(SLACK_STREAM_RETRY_MS);
            }
            Late::waits(&stand.clock, sleeps).await;
        }
        // Nothing is closed or taken away while that is so.
        assert_eq!((stand.slack.count(STOP), stand.slack.count(DELETE)), (0, 0), "{posts:?}");
        let surface = (posts != Posts::Blind).then_some(surface);
        let post = Post { surface, ..super::post(&stand.root, &whole) };
        let receipt = patiently(other.post(post)).await.unwrap();
        let made = stand.slack.thread("C1", &stand.root);
        late.says.send_replace(Some(Placed::Late(Some(receipt))));
        if posts == Posts::Meanwhile {
            stand.clock.advance(SLACK_STREAM_RETRY_MS);
        }
        patiently(stand.slack.until("C1", &stand.root, |all| all.len() == 1)).await;
        ending.cancel();
        patiently(running).await.unwrap();
        let thread = stand.slack.thread("C1", &stand.root);
        assert_eq!(thread.iter().map(reads).collect::<Vec<_>>(), [whole], "{posts:?}");
        let taken = usize::from(posts == Posts::Blind);
        assert_eq!((made.len(), stand.slack.count(DELETE)), (1 + taken, taken), "{posts:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b91_what_is_heard_of_between_the_lease_of_a_post_and_its_try_becomes_the_answer() {
    for streaming in [Streaming::Auto, Streaming::Edit] {
        let stand = Stand::new().await;
        stand.slack.streaming_is(streaming);
        let node = stand.slack.posting(Arc::new(stand.clock.clone()));
        let (late, ending) = (Late::new(Some(Placed::Late(None))), CancellationToken::new());
        let running = node.stream(Arc::clone(&late) as Arc<dyn Desk>, ending.clone());
        let tracker = tokio_util::task::TaskTracker::new();
        let running = tracker.spawn(running);
        let (at, session) = (address("C1", &stand.root), session("C1", &stand.root));
        node.progress(&session, &at, Progress::Began { turn: 1, synthetic: false });
        node.progress(&session, &at, Progress::Text(lines("one")));
        let surface = Some(late.surface(&stand.clock).await);
        let begun = stand.slack.thread("C1", &stand.root).remove(0);
        node.progress(&session, &at, Progress::Whole);
        // No time passes: the post itself ends the wait for what becomes of it.
        let whole = format!("{}two", lines("one"));
        let post = Post { surface, ..super::post(&stand.root, &whole) };
        patiently(node.post(post)).await.unwrap();
        ending.cancel();
        patiently(running).await.unwrap();
        let thread = stand.slack.thread("C1", &stand.root);
        assert_eq!(thread.iter().map(reads).collect::<Vec<_>>(), [whole]);
        assert_eq!((&thread[0].ts, stand.slack.count(DELETE)), (&begun.ts, 0));
    }
}
