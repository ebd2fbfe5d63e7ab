//! What people see of an answer while it comes, and that it becomes the answer: whole, once, in one
//! message, whatever Slack does and wherever the bot dies.

use std::sync::Arc;

use dogwatch::core::arrival::{Incoming, What};
use dogwatch::core::execution::Scope;
use dogwatch::core::id::{DedupeKey, Principal, StopId, TurnNo};
use dogwatch::core::ledger::row::{Item, ItemState, Turn};
use dogwatch::core::limits::{LEASE_MS, SLACK_STREAM_LEFT_MS};
use dogwatch::ports::{Clock, Command, Desk, Store};
use dogwatch::slack::Streaming;
use dogwatch::store::Memory;
use pretty_assertions::assert_eq;

use super::{address, session};
use crate::support::bot::{Bot, Setup};
use crate::support::fake_llm::{Gate, Reply, chunk};
use crate::support::fake_slack::streams::reads;
use crate::support::fake_slack::{FakeSlack, Fault, Message, Stream};
use crate::support::jump_clock::JumpClock;
use crate::support::process::said;
use crate::support::wire::trigger;

pub(super) const START: &str = "chat.startStream";
pub(super) const APPEND: &str = "chat.appendStream";
pub(super) const STOP: &str = "chat.stopStream";
pub(super) const POST: &str = "chat.postMessage";
pub(super) const UPDATE: &str = "chat.update";
pub(super) const DELETE: &str = "chat.delete";

/// Times as fast as clocks go: a second between calls is long.
const SPEED: u64 = 4;

/// Long enough to be shown at once.
pub(super) fn lines(word: &str) -> String {
    format!("The **{word}** of it & more <than> that.\n").repeat(10)
}

/// A bot in a thread, which is shown so.
pub(super) struct Talk {
    pub(super) bot: Bot,
    pub(super) slack: Arc<FakeSlack>,
    pub(super) root: String,
}

impl Talk {
    pub(super) async fn new(streaming: Streaming) -> Self {
        let slack = Arc::new(FakeSlack::start().await);
        slack.streaming_is(streaming);
        let root = slack.root("C1");
        let setup = Setup { slack: Some(Arc::clone(&slack)), speed: SPEED, ..Setup::default() };
        Self { bot: Bot::with(setup).await, slack, root }
    }

    pub(super) async fn say(&self, text: &str) {
        let incoming = Incoming {
            keys: vec![DedupeKey::new(text.replace(' ', "-")).unwrap()],
            what: What::Message { text: text.to_owned() },
            principal: Principal::new("slack/T1/U7").unwrap(),
            address: address("C1", &self.root),
            source_at: self.bot.clock.now(),
            continues: false,
            shared: false,
        };
        let desk = self.bot.desk();
        desk.accept(&session("C1", &self.root), incoming).await.unwrap();
    }

    pub(super) fn thread(&self) -> Vec<Message> {
        let thread = self.slack.thread("C1", &self.root);
        thread.into_iter().filter(|message| !message.bot_id.is_empty()).collect()
    }

    pub(super) fn texts(&self) -> Vec<String> {
        self.thread().iter().map(reads).collect()
    }

    /// Waits until a message says this.
    pub(super) async fn shows(&self, text: &str) {
        let says = |all: &[Message]| all.iter().any(|message| reads(message).contains(text));
        self.bot.wait(text, self.slack.until("C1", &self.root, says)).await;
    }

    /// Waits until the turn's row says where its surface is.
    pub(super) async fn is_known(&self, turn: TurnNo) {
        let known = |row: &Turn| row.surface.as_ref().is_some_and(|surface| surface.at.is_some());
        self.bot.turn_when(&session("C1", &self.root), turn, known).await;
    }

    /// Waits until everything in the outbox is posted.
    pub(super) async fn posted(&self, count: usize) {
        let done = |item: &Item| matches!(item.state, ItemState::Done(_));
        let all = |items: &[Item]| items.len() == count && items.iter().all(done);
        let session = session("C1", &self.root);
        self.bot.outbox_when(&session, all).await;
    }

    fn counts(&self) -> [usize; 6] {
        [START, APPEND, STOP, POST, UPDATE, DELETE].map(|method| self.slack.count(method))
    }
}

/// An answer that waits in the middle.
pub(super) fn held(first: &str, gate: &Gate, rest: &str) -> Reply {
    let reply = Reply::stream().data(&chunk::text(first)).hold(gate).data(&chunk::text(rest));
    reply.data(&chunk::finish("stop")).data(&chunk::usage(10, 5)).done()
}

#[tokio::test(flavor = "multi_thread")]
async fn slack_09_an_answer_streams_into_the_one_message_that_it_becomes() {
    let talk = Talk::new(Streaming::Auto).await;
    let (first, second) = (Gate::default(), Gate::default());
    let reply = Reply::stream().data(&chunk::text(&lines("one"))).hold(&first);
    let reply = reply.data(&chunk::text(&lines("two"))).hold(&second);
    let reply = reply.data(&chunk::text("three")).data(&chunk::finish("stop"));
    talk.bot.llm.will(reply.data(&chunk::usage(10, 5)).done());
    talk.say("tell me").await;
    talk.shows("**one**").await;
    assert_eq!(talk.thread()[0].stream, Stream::Open);
    first.open();
    talk.shows("**two**").await;
    second.open();
    talk.posted(1).await;
    let whole = format!("{}{}three", lines("one"), lines("two"));
    assert_eq!(talk.texts(), [whole]);
    let message = talk.thread().remove(0);
    assert_eq!((message.stream, super::part(&message).as_str()), (Stream::Closed, "0"));
    let [start, append, stop, post, update, delete] = talk.counts();
    assert_eq!((start, stop, post, update, delete), (1, 1, 0, 0, 0));
    assert!((1..=3).contains(&append), "{append}");
    talk.bot.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_slack_streams_nothing_one_message_is_edited_and_becomes_the_answer() {
    for word in ["unknown_method", "not_allowed_token_type"] {
        let talk = Talk::new(Streaming::Auto).await;
        talk.slack.always(START, Fault::Refuse(word));
        for turn in 1..=2 {
            let gate = Gate::default();
            talk.bot.llm.will(held(&lines("one"), &gate, &format!("two {turn}")));
            talk.say(&format!("tell me {turn}")).await;
            let drafts = |all: &[Message]| all.len() == 2 * turn - 1;
            let begun = talk.slack.until("C1", &talk.root, |all| {
                drafts(all) && reads(all.last().unwrap()).contains("**one**")
            });
            talk.bot.wait("a draft", begun).await;
            let draft = talk.thread().pop().unwrap();
            assert_eq!(super::part(&draft), "draft");
            gate.open();
            talk.posted(turn).await;
            let message = talk.thread().pop().unwrap();
            assert_eq!((&message.ts, super::part(&message).as_str()), (&draft.ts, "0"));
            assert_eq!(reads(&message), format!("{}two {turn}", lines("one")));
            talk.slack.says("C1", Some(&talk.root), "next");
        }
        // That is asked once.
        assert_eq!(talk.slack.count(START), 1);
        assert_eq!((talk.slack.count(DELETE), talk.thread().len()), (0, 2));
        talk.bot.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn where_it_is_off_nothing_is_shown_before_the_answer_is_whole() {
    let talk = Talk::new(Streaming::Off).await;
    let gate = Gate::default();
    talk.bot.llm.will(held(&lines("one"), &gate, "two"));
    talk.say("tell me").await;
    talk.bot.asked(1).await;
    talk.bot.clock.jump(5_000);
    gate.open();
    talk.posted(1).await;
    assert_eq!(talk.counts(), [0, 0, 0, 1, 0, 0]);
    talk.bot.finish().await;
}

/// The bot dies while this method is called for the nth time, and tells another answer then.
async fn dies_at(streaming: Streaming, method: &str, nth: usize, fault: Fault) {
    let what = format!("{method} {nth} {fault:?}");
    let mut talk = Talk::new(streaming).await;
    let open = tokio_util::sync::CancellationToken::new();
    open.cancel();
    for _ in 1..nth {
        talk.slack.will(method, Fault::Held(open.clone()));
    }
    talk.slack.will(method, fault);
    let (first, second) = (Gate::default(), Gate::default());
    let reply = Reply::stream().data(&chunk::text(&lines("one"))).hold(&first);
    let reply = reply.data(&chunk::text(&lines("two"))).hold(&second);
    let reply = reply.data(&chunk::text("end")).data(&chunk::finish("stop"));
    talk.bot.llm.will(reply.data(&chunk::usage(10, 5)).done());
    talk.bot.llm.otherwise(|_| Reply::text(&format!("{}anew", lines("one"))));
    talk.say("tell me").await;
    let begun = [START, POST].contains(&method) && nth == 1;
    if !begun {
        talk.shows("**one**").await;
        first.open();
    }
    if method == STOP || (method == UPDATE && nth > 1) {
        talk.shows("**two**").await;
        second.open();
    }
    talk.bot.wait(&what, talk.slack.called(method, nth)).await;
    talk.bot.crash().await;
    talk.bot.boot().await;
    talk.posted(1).await;
    let texts = talk.texts();
    let ends = |text: &String| text.ends_with("anew") || text.ends_with("end");
    assert!(texts.len() == 1 && texts.iter().all(ends), "{what}: {texts:#?}");
    let message = talk.thread().remove(0);
    assert_eq!(super::part(&message), "0", "{what}");
    assert_ne!(message.stream, Stream::Open, "{what}");
    assert!(texts.iter().all(|text| !text.contains("repeated")), "{what}: {texts:#?}");
    talk.bot.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b91_a_death_at_any_call_of_a_stream_leaves_one_message_with_the_whole_answer() {
    for method in [START, APPEND, STOP] {
        for fault in [Fault::Stall, Fault::Mute] {
            dies_at(Streaming::Auto, method, 1, fault).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b91_a_death_at_any_call_of_a_draft_leaves_one_message_with_the_whole_answer() {
    for (method, nth) in [(POST, 1), (UPDATE, 1), (UPDATE, 2)] {
        for fault in [Fault::Stall, Fault::Mute] {
            dies_at(Streaming::Edit, method, nth, fault).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outcome_that_nobody_heard_of_leaves_one_message_as_well() {
    let calls = [(Streaming::Auto, START), (Streaming::Auto, APPEND), (Streaming::Auto, STOP)];
    let edits = [(Streaming::Edit, POST), (Streaming::Edit, UPDATE)];
    for (streaming, method) in calls.into_iter().chain(edits) {
        for fault in [Fault::CutBefore, Fault::CutAfter, Fault::Bare, Fault::Status(503)] {
            let what = format!("{method} {fault:?}");
            let talk = Talk::new(streaming).await;
            talk.slack.will(method, fault);
            let (first, second) = (Gate::default(), Gate::default());
            let reply = Reply::stream().data(&chunk::text(&lines("one"))).hold(&first);
            let reply = reply.data(&chunk::text(&lines("two"))).hold(&second);
            let reply = reply.data(&chunk::text("end")).data(&chunk::finish("stop"));
            talk.bot.llm.will(reply.data(&chunk::usage(10, 5)).done());
            talk.say("tell me").await;
            if [START, POST].contains(&method) {
                talk.bot.wait(&what, talk.slack.called(method, 1)).await;
            } else {
                talk.shows("**one**").await;
            }
            first.open();
            if [APPEND, UPDATE].contains(&method) {
                talk.bot.wait(&what, talk.slack.called(method, 1)).await;
            }
            second.open();
            talk.posted(1).await;
            let whole = format!("{}{}end", lines("one"), lines("two"));
            assert_eq!(talk.texts(), [whole], "{what}");
            assert_ne!(talk.thread()[0].stream, Stream::Open, "{what}");
            talk.bot.finish().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slack_07_a_stream_that_dies_loses_and_repeats_nothing() {
    // The message is made whole, or where it cannot be changed, the rest follows in another.
    for edits in [true, false] {
        let talk = Talk::new(Streaming::Auto).await;
        if !edits {
            talk.slack.always(UPDATE, Fault::Refuse("edit_window_closed"));
        }
        let (first, second) = (Gate::default(), Gate::default());
        let reply = Reply::stream().data(&chunk::text(&lines("one"))).hold(&first);
        let reply = reply.data(&chunk::text(&lines("two"))).hold(&second);
        let reply = reply.data(&chunk::text("end")).data(&chunk::finish("stop"));
        talk.bot.llm.will(reply.data(&chunk::usage(10, 5)).done());
        talk.say("tell me").await;
        talk.shows("**one**").await;
        talk.slack.expire_streams();
        first.open();
        talk.bot.wait("an append", talk.slack.called(APPEND, 1)).await;
        second.open();
        talk.posted(1).await;
        let (one, rest) = (lines("one"), format!("{}end", lines("two")));
        if edits {
            assert_eq!(talk.texts(), [format!("{one}{rest}")]);
        } else {
            assert_eq!(talk.texts(), [one.trim_end().to_owned(), rest]);
        }
        // It is not asked again after it has said so.
        assert_eq!(talk.slack.count(APPEND), 1);
        talk.bot.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_a_person_stopped_is_left_alone_until_the_turn_is_over() {
    let talk = Talk::new(Streaming::Auto).await;
    let gate = Gate::default();
    talk.bot.llm.will(held(&lines("one"), &gate, &lines("two")));
    talk.say("tell me").await;
    talk.shows("**one**").await;
    talk.is_known(1).await;
    talk.slack.press_stop();
    let stop =
        Command::Stop { scope: Scope::Turn, stop: StopId::new("pressed").unwrap(), said_at: None };
    let desk = talk.bot.desk();
    let by = Principal::new("slack/T1/U7").unwrap();
    desk.command(&session("C1", &talk.root), &by, stop).await.unwrap();
    drop(desk);
    gate.open();
    talk.bot.llm.will(Reply::text("here"));
    talk.say("and now?").await;
    talk.posted(1).await;
    assert_eq!(talk.texts(), [lines("one").trim_end().to_owned(), "here".to_owned()]);
    talk.bot.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_turn_leaves_a_closed_stream_with_what_it_holds() {
    let talk = Talk::new(Streaming::Auto).await;
    let gate = Gate::default();
    talk.bot.llm.will(held(&lines("one"), &gate, &lines("two")));
    talk.say("tell me").await;
    talk.shows("**one**").await;
    talk.is_known(1).await;
    let stop = Command::Stop { scope: Scope::Turn, stop: StopId::new("s").unwrap(), said_at: None };
    let desk = talk.bot.desk();
    let by = Principal::new("slack/T1/U7").unwrap();
    desk.command(&session("C1", &talk.root), &by, stop).await.unwrap();
    drop(desk);
    talk.bot.clock.jump(SLACK_STREAM_LEFT_MS);
    talk.bot.wait("the end of the stream", talk.slack.called(STOP, 1)).await;
    let closed = |all: &[Message]| all.iter().all(|one| one.stream != Stream::Open);
    talk.bot.wait("a closed stream", talk.slack.until("C1", &talk.root, closed)).await;
    assert_eq!(talk.texts(), [lines("one").trim_end()]);
    talk.bot.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn text_beside_tool_calls_is_no_part_of_the_answer() {
    let talk = Talk::new(Streaming::Auto).await;
    let gate = Gate::default();
    let reply = Reply::stream().data(&chunk::text(&lines("thought"))).hold(&gate);
    let reply = reply.data(&chunk::call(0, "c1", "watch__list", "{}"));
    talk.bot.llm.will(reply.data(&chunk::finish("tool_calls")).data(&chunk::usage(1, 1)).done());
    talk.bot.llm.will(Reply::text("Nothing runs."));
    talk.say("what runs?").await;
    talk.shows("**thought**").await;
    gate.open();
    talk.posted(1).await;
    assert_eq!(talk.texts(), ["Nothing runs."]);
    talk.bot.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b93_what_a_completion_wakes_is_not_shown_before_it_is_an_answer() {
    let talk = Talk::new(Streaming::Auto).await;
    let (on, gate) = (talk.bot.fifo("on"), Gate::default());
    let script = format!("open({on:?}, 'w').close()\nprint('up')");
    talk.bot.llm.will(trigger("deploy", &script, 600));
    talk.bot.llm.will(Reply::text("I watch it."));
    let reply = Reply::stream().data(&chunk::text(&lines("nothing to say"))).hold(&gate);
    let reply = reply.data(&chunk::call(0, "c1", "stay_silent", r#"{"reason":"fine"}"#));
    talk.bot.llm.will(reply.data(&chunk::finish("tool_calls")).data(&chunk::usage(1, 1)).done());
    talk.say("watch the deploy").await;
    talk.posted(2).await;
    said(&on).await;
    talk.bot.wait("the third request", talk.bot.llm.seen(3)).await;
    for _ in 0..20 {
        talk.bot.clock.jump(500);
        tokio::task::yield_now().await;
    }
    gate.open();
    talk.posted(3).await;
    assert!(talk.texts().iter().all(|text| !text.contains("nothing to say")), "{:?}", talk.texts());
    assert_eq!(talk.slack.count(START), 0);
    talk.bot.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slack_21_slack_22_a_storm_of_limits_costs_no_answer_and_few_calls() {
    let talk = Talk::new(Streaming::Auto).await;
    talk.slack.always(APPEND, Fault::Limited(30));
    let gate = Gate::default();
    let first = Gate::default();
    let mut reply = Reply::stream().data(&chunk::text(&lines("one"))).hold(&first);
    for number in 0..200 {
        reply = reply.data(&chunk::text(&format!("word {number}\n")));
    }
    let reply = reply.hold(&gate).data(&chunk::text("end")).data(&chunk::finish("stop"));
    talk.bot.llm.will(reply.data(&chunk::usage(10, 5)).done());
    talk.say("tell me").await;
    talk.shows("**one**").await;
    first.open();
    talk.bot.wait("a limit", talk.slack.called(APPEND, 1)).await;
    gate.open();
    talk.posted(1).await;
    assert_eq!(talk.texts().len(), 1);
    assert!(talk.texts()[0].ends_with("word 199\nend"), "{:?}", talk.texts());
    let [start, append, stop, post, update, delete] = talk.counts();
    assert_eq!((start, stop, post, update, delete), (1, 1, 0, 0, 0));
    assert!(append <= 2, "{append}");
    talk.bot.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b91_a_long_answer_takes_its_surface_over_with_its_first_part() {
    let talk = Talk::new(Streaming::Auto).await;
    let gate = Gate::default();
    let rest = format!("{}\n", "More of it.".repeat(30)).repeat(60);
    talk.bot.llm.will(held(&lines("one"), &gate, &rest));
    talk.say("tell me").await;
    talk.shows("**one**").await;
    gate.open();
    talk.posted(1).await;
    let texts = talk.texts();
    assert_eq!(texts.len(), 2, "{texts:#?}");
    let letters = |text: &str| text.split_whitespace().collect::<String>();
    assert_eq!(letters(&texts.concat()), letters(&format!("{}{rest}", lines("one"))));
    assert_eq!(talk.thread().iter().map(super::part).collect::<Vec<_>>(), ["0", "1"]);
    talk.bot.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_node_takes_over_what_a_dead_one_showed() {
    for streaming in [Streaming::Auto, Streaming::Edit] {
        let slack = Arc::new(FakeSlack::start().await);
        slack.streaming_is(streaming);
        let root = slack.root("C1");
        let shared: Arc<dyn Store> = Arc::new(Memory::new(Arc::new(JumpClock::start())));
        let setup = || Setup {
            slack: Some(Arc::clone(&slack)),
            shared: Some(Arc::clone(&shared)),
            ..Setup::default()
        };
        let mut talk = Talk { bot: Bot::with(setup()).await, slack: Arc::clone(&slack), root };
        let gate = Gate::default();
        talk.bot.llm.will(held(&lines("one"), &gate, "never said"));
        talk.bot.llm.otherwise(|_| Reply::text(&format!("{}anew", lines("one"))));
        talk.say("tell me").await;
        talk.shows("**one**").await;
        talk.is_known(1).await;
        let other = talk.bot.node(setup()).await;
        talk.bot.crash().await;
        other.clock.jump(2 * LEASE_MS);
        let said = |all: &[Message]| {
            let ours: Vec<_> = all.iter().filter(|one| !one.bot_id.is_empty()).collect();
            ours.len() == 1 && ours.iter().all(|one| reads(one).ends_with("anew"))
        };
        other.wait("the answer", slack.until("C1", &talk.root, said)).await;
        let message = talk.thread().remove(0);
        assert_eq!(super::part(&message), "0");
        assert_ne!(message.stream, Stream::Open);
        assert_eq!(
            slack.count(START) + slack.count(POST),
            if streaming == Streaming::Auto { 1 } else { 2 }
        );
        other.finish().await;
    }
}
