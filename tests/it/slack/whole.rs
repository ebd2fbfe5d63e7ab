//! The whole way on the real program: somebody mentions the bot, a watcher starts, the thread is
//! quiet, the script ends, the same thread is told. Whatever Slack does, and wherever the bot is
//! killed: one answer each, in the right thread.

use std::fs::File;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::attach::place;
use crate::support::fake_slack::{FakeSlack, Fault, Message};
use crate::support::real_bot::Place;
use crate::support::redis_server::RedisServer;
use crate::support::service::Service;
use crate::support::slack_push::Pusher;
use crate::support::slack_socket::{Saw, SlackSocket};

use super::patiently;

pub(super) const SECRET: &str = "8f742231b10e8888abcd99yyyzzz85a5";

/// Slack, and where a bot is set up for it.
pub(super) struct Town {
    pub(super) slack: FakeSlack,
    pub(super) place: Place,
    pub(super) events: u64,
}

pub(super) const BY_REQUESTS: &str =
    "ingress = \"http\"\nsigning_secret = { file = \"signing-secret\" }\n";
pub(super) const BY_CONNECTIONS: &str =
    "ingress = \"socket\"\napp_token = { file = \"app-token\" }\n";

/// A bot for this Slack; with tables of its own besides.
pub(super) fn home(slack: &FakeSlack, pipes: &[&str], ingress: &str, more: &str) -> Place {
    let place = place(pipes);
    let config = std::fs::read_to_string(place.path("dogwatch.toml")).unwrap();
    let api = slack.api();
    let table =
        format!("[slack]\nbot_token = {{ file = \"bot-token\" }}\n{ingress}api = \"{api}\"\n");
    place.write("dogwatch.toml", &format!("{config}{table}{more}"));
    place.write("bot-token", "xoxb-of-the-tests");
    place.write("app-token", "xapp-of-the-tests");
    place.write("signing-secret", SECRET);
    place
}

impl Town {
    pub(super) async fn new(pipes: &[&str]) -> Self {
        Self::by(pipes, BY_REQUESTS).await
    }

    pub(super) async fn by(pipes: &[&str], ingress: &str) -> Self {
        let slack = FakeSlack::start().await;
        let place = home(&slack, pipes, ingress, "");
        Self { slack, place, events: 0 }
    }

    /// A bot that works.
    pub(super) fn bot(&self) -> Service {
        Service::of(self.place.serve()).works()
    }

    /// A person writes; the event of it, not yet sent.
    pub(super) fn says(&mut self, thread: Option<&str>, text: &str) -> Value {
        let ts = self.slack.says("C1", thread, text);
        let kind = if text.contains("<@U0BOT>") { "app_mention" } else { "message" };
        self.event(&json!({
            "type": kind, "user": "U7", "text": text, "ts": ts, "channel": "C1",
            "event_ts": ts, "thread_ts": thread,
        }))
    }

    pub(super) fn event(&mut self, event: &Value) -> Value {
        self.events += 1;
        json!({
            "type": "event_callback", "team_id": "T1", "api_app_id": "A1",
            "authorizations": [{
                "enterprise_id": null, "team_id": "T1", "user_id": "U0BOT",
                "is_bot": true, "is_enterprise_install": false,
            }],
            "event_id": format!("Ev{}", self.events), "event_time": 1_800_000_000, "event": event,
        })
    }

    /// The same message as Slack tells of it a second time.
    pub(super) fn twin(&mut self, of: &Value) -> Value {
        let mut event = of["event"].clone();
        event.as_object_mut().unwrap().insert("type".to_owned(), "message".into());
        self.event(&event)
    }
}

/// As Slack does it: until it is acknowledged.
pub(super) async fn deliver(bot: &Service, event: &Value) {
    let pusher = Pusher::at(bot.address, SECRET);
    patiently(async {
        let seconds = || {
            let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
            now.as_secs()
        };
        loop {
            let push = pusher.push("/slack/events", event.to_string(), seconds());
            if pusher.try_send(push).await == Some(200) {
                return;
            }
        }
    })
    .await;
}

pub(super) fn ts(event: &Value) -> String {
    event.pointer("/event/ts").and_then(Value::as_str).unwrap().to_owned()
}

pub(super) fn has(messages: &[Message], text: &str) -> bool {
    messages.iter().any(|message| message.text.contains(text))
}

pub(super) fn count(messages: &[Message], text: &str) -> usize {
    messages.iter().filter(|message| message.text.contains(text)).count()
}

/// Has a button.
pub(super) fn is_live(message: &Message) -> bool {
    message.blocks.to_string().contains("\"button\"")
}

/// The watcher's message stands and its start was told; which is first, nobody says.
pub(super) fn under_way(messages: &[Message]) -> bool {
    has(messages, "started") && messages.iter().any(is_live)
}

pub(super) fn bots(messages: &[Message]) -> Vec<Message> {
    messages.iter().filter(|message| !message.bot_id.is_empty()).cloned().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mention_starts_a_watcher_and_its_end_comes_back_to_the_thread() {
    let mut town = Town::new(&["one"]).await;
    let bot = town.bot();
    let asked = town.says(None, "<@U0BOT> watch one");
    let root = ts(&asked);
    deliver(&bot, &asked).await;
    let twin = town.twin(&asked);
    deliver(&bot, &twin).await;
    let started = patiently(town.slack.until("C1", &root, under_way)).await;
    assert_eq!(bots(&started).len(), 2, "{started:#?}");
    let card = started.iter().find(|message| is_live(message)).unwrap();
    let shown = card.ts.clone();
    assert!(card.text.contains("one runs"), "{started:#?}");
    // The thread goes on without a mention, while the watcher runs.
    let more = town.says(Some(&root), "anybody there?");
    deliver(&bot, &more).await;
    patiently(town.slack.until("C1", &root, |all| has(all, "heard anybody"))).await;
    // In another thread nobody is meant.
    let stranger = town.says(None, "watch one");
    deliver(&bot, &stranger).await;
    drop(File::options().write(true).open(town.place.path("one")).unwrap());
    let over = |all: &[Message]| has(all, "NEWS") && !all.iter().any(is_live);
    let thread = patiently(town.slack.until("C1", &root, over)).await;
    let ours = bots(&thread);
    assert_eq!(ours.len(), 4, "{ours:#?}");
    let card = ours.iter().find(|message| message.ts == shown).unwrap();
    assert!(card.text.contains("'one' completed"), "{ours:#?}");
    assert_eq!(count(&ours, "one is done"), 2, "the watcher's message and the answer: {ours:#?}");
    assert!(town.slack.thread("C1", &ts(&stranger)).is_empty());
    assert_eq!(bot.end().0, Some(0));
    let (even, audit) = town.place.audit();
    assert!(even, "{audit:#}");
    // Nothing was ever posted beside a thread.
    assert!(town.slack.posted().iter().all(|message| message.thread_ts.is_some()));
}

/// The bot is killed while a call is under way: before Slack did it, or after.
async fn killed_at(method: &str, nth: usize, fault: Fault) {
    let mut town = Town::new(&["one"]).await;
    let bot = town.bot();
    let open = CancellationToken::new();
    open.cancel();
    for _ in 1..nth {
        town.slack.will(method, Fault::Held(open.clone()));
    }
    town.slack.will(method, fault);
    let asked = town.says(None, "<@U0BOT> watch one");
    let root = ts(&asked);
    deliver(&bot, &asked).await;
    // The script ends once its start was told, or the resumed turn would tell both at once.
    let told = CancellationToken::new();
    let end = async {
        town.slack.until("C1", &root, |all| has(all, "started")).await;
        told.cancel();
        let gate = town.place.path("one");
        let open = move || drop(File::options().write(true).open(gate).unwrap());
        tokio::task::spawn_blocking(open).await.unwrap();
    };
    let kill = async {
        town.slack.called(method, nth).await;
        // What does not run yet may be lost, rightly: that is told elsewhere.
        while !told.is_cancelled() && !town.place.runs() {
            crate::support::process::pause().await;
        }
        tokio::task::block_in_place(|| bot.kill());
        let bot = tokio::task::block_in_place(|| town.bot());
        // Slack did not hear that it was taken, perhaps.
        deliver(&bot, &asked).await;
        bot
    };
    let (bot, ()) = patiently(async { tokio::join!(kill, end) }).await;
    let over = |all: &[Message]| {
        has(all, "started")
            && has(all, "NEWS")
            && has(all, "completed (")
            && !all.iter().any(is_live)
    };
    let thread = bots(&patiently(town.slack.until("C1", &root, over)).await);
    let what = format!("{method} {nth}: {thread:#?}");
    assert_eq!(thread.len(), 3, "{what}");
    for once in ["started", "NEWS", "completed ("] {
        assert_eq!(count(&thread, once), 1, "{once}: {what}");
    }
    assert_eq!(bot.end().0, Some(0));
    let (even, audit) = town.place.audit();
    assert!(even, "{audit:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_while_slack_is_called_neither_loses_nor_doubles_a_message() {
    for nth in 1..=3 {
        for fault in [Fault::Stall, Fault::Mute] {
            killed_at("chat.postMessage", nth, fault).await;
        }
    }
    for fault in [Fault::Stall, Fault::Mute] {
        killed_at("chat.update", 1, fault).await;
    }
}

/// A press of the button that a message shows.
fn press(message: &Message, user: &str) -> Value {
    let blocks = message.blocks.as_array().unwrap();
    let button = blocks.iter().find_map(|block| block.pointer("/elements/0/action_id")).unwrap();
    let value = blocks.iter().find_map(|block| block.pointer("/elements/0/value")).unwrap();
    json!({
        "type": "block_actions", "team": { "id": "T1" }, "user": { "id": user, "team_id": "T1" },
        "channel": { "id": message.channel },
        "container": {
            "type": "message", "message_ts": message.ts, "channel_id": message.channel,
            "thread_ts": message.thread_ts,
        },
        "message": { "ts": message.ts, "thread_ts": message.thread_ts },
        "actions": [{
            "type": "button", "action_id": button, "value": value,
            "action_ts": format!("1800000001.00000{}", user.len()),
        }],
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn b112_a_button_of_before_a_restart_cancels_for_its_owner_alone_and_is_gone_then() {
    let mut town = Town::by(&["one"], BY_CONNECTIONS).await;
    let lines = SlackSocket::start().await;
    town.slack.socket_url(&lines.url());
    let bot = town.bot();
    let line = lines.greeted(1).await;
    let asked = town.says(None, "<@U0BOT> watch one");
    let root = ts(&asked);
    line.envelope("e1", "events_api", &asked);
    lines.acked("e1").await;
    let thread = patiently(town.slack.until("C1", &root, under_way)).await;
    let card = thread.into_iter().find(is_live).unwrap();
    while !town.place.runs() {
        crate::support::process::pause().await;
    }
    tokio::task::block_in_place(|| bot.kill());
    let before = lines.saw_now().iter().filter(|saw| matches!(saw, Saw::Joined(_))).count();
    let bot = tokio::task::block_in_place(|| town.bot());
    let line = lines.greeted(before + 1).await;
    // A stranger is told whose it is, and nothing happens.
    line.envelope("e2", "interactive", &press(&card, "U9999"));
    lines.acked("e2").await;
    let told = patiently(town.slack.called("chat.postEphemeral", 1)).await;
    assert!(told[0].arguments["text"].as_str().unwrap().contains("<@U7>'s; ask them"), "{told:?}");
    assert!(town.slack.thread("C1", &root).iter().any(is_live));
    // Its owner's first press counts, and Slack may send it twice.
    for id in ["e3", "e4"] {
        line.envelope(id, "interactive", &press(&card, "U7"));
        lines.acked(id).await;
    }
    let over = |all: &[Message]| !all.iter().any(is_live) && has(all, "was cancelled");
    let thread = patiently(town.slack.until("C1", &root, over)).await;
    assert_eq!(bots(&thread).len(), 2, "a cancel of a person wakes nobody: {thread:#?}");
    let told = patiently(town.slack.called("chat.postEphemeral", 2)).await;
    assert!(told[1].arguments["text"].as_str().unwrap().contains("is being ended"), "{told:?}");
    // A button that somebody still sees says what became of it.
    let mut late = press(&card, "U7");
    *late.pointer_mut("/actions/0/action_ts").unwrap() = "1800000009.000001".into();
    line.envelope("e5", "interactive", &late);
    let told = patiently(town.slack.called("chat.postEphemeral", 3)).await;
    assert!(told[2].arguments["text"].as_str().unwrap().contains("over already"), "{told:?}");
    assert_eq!(bot.end().0, Some(0));
    let (even, audit) = town.place.audit();
    assert!(even, "{audit:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_socket_mode_loses_comes_again_and_is_answered_once() {
    let mut town = Town::by(&[], BY_CONNECTIONS).await;
    let lines = SlackSocket::start().await;
    town.slack.socket_url(&lines.url());
    let bot = town.bot();
    let (first, second) = (lines.greeted(1).await, lines.greeted(2).await);
    let asked = town.says(None, "<@U0BOT> hello");
    let root = ts(&asked);
    // The connection is gone before anything is acknowledged; Slack sends it on another one, and
    // its twin on both.
    first.envelope("e1", "events_api", &asked);
    first.cut();
    second.again("e1", &asked, 1);
    lines.acked("e1").await;
    let twin = town.twin(&asked);
    second.envelope("e2", "events_api", &twin);
    lines.acked("e2").await;
    let third = lines.greeted(3).await;
    third.again("e2", &twin, 1);
    let more = town.says(Some(&root), "and then?");
    third.envelope("e3", "events_api", &more);
    lines.acked("e3").await;
    let thread = patiently(town.slack.until("C1", &root, |all| has(all, "heard and then?"))).await;
    let ours = bots(&thread);
    assert_eq!((count(&ours, "heard hello"), count(&ours, "heard and then?")), (1, 1), "{ours:#?}");
    let ready = bot.get("/readyz");
    assert_eq!(ready.status, 200, "{ready:?}");
    second.disconnect("link_disabled");
    assert_eq!(bot.end().0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn b42_b88_two_replicas_on_one_redis_answer_once_under_a_storm_and_a_kill() {
    let redis = RedisServer::start(&[]);
    let store = "[store]\nkind = \"redis\"\nurl = { file = \"redis-url\" }\n";
    let slack = FakeSlack::start().await;
    let there = home(&slack, &[], BY_REQUESTS, store);
    let here = home(&slack, &["one"], BY_REQUESTS, store);
    let playbook = std::fs::read_to_string(here.path("playbook.toml")).unwrap();
    there.write("playbook.toml", &playbook);
    for place in [&here, &there] {
        place.write("redis-url", &redis.url());
    }
    let mut town = Town { slack, place: here, events: 0 };
    let one = town.bot();
    let other = Service::of(there.serve()).works();
    // Everything is limited now and then.
    for method in ["chat.postMessage", "chat.update", "conversations.replies"] {
        for _ in 0..2 {
            town.slack.will(method, Fault::Limited(1));
        }
    }
    let mut roots = vec![];
    for number in 0..5 {
        let asked = town.says(None, &format!("<@U0BOT> line {number}"));
        let twin = town.twin(&asked);
        // The pair comes in any order, at both, and more than once.
        let (first, second) = if number % 2 == 0 { (&asked, &twin) } else { (&twin, &asked) };
        tokio::join!(deliver(&one, first), deliver(&other, second));
        deliver(&other, first).await;
        roots.push((ts(&asked), format!("heard line {number}")));
    }
    other.kill();
    let other = Service::of(there.serve()).works();
    for (root, text) in &roots {
        let thread = patiently(town.slack.until("C1", root, |all| has(all, text))).await;
        assert_eq!(bots(&thread).len(), 1, "{thread:#?}");
    }
    assert_eq!((one.end().0, other.end().0), (Some(0), Some(0)));
    for (root, _) in &roots {
        assert_eq!(bots(&town.slack.thread("C1", root)).len(), 1);
    }
    let (even, audit) = town.place.audit();
    assert!(even, "{audit:#}");
}
