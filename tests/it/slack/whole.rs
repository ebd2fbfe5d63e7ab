//! The whole way on the real program: somebody mentions the bot, a watcher starts, the thread is
//! quiet, the script ends, the same thread is told. Whatever Slack does, and wherever the bot is
//! killed: one answer each, in the right thread.

use std::fs::File;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::attach::place;
use crate::support::fake_slack::{FakeSlack, Fault, Message};
use crate::support::real_bot::Place;
use crate::support::service::Service;
use crate::support::slack_push::Pusher;

use super::patiently;

const SECRET: &str = "8f742231b10e8888abcd99yyyzzz85a5";

/// Slack, and where a bot is set up for it.
struct Town {
    slack: FakeSlack,
    place: Place,
    events: u64,
}

impl Town {
    async fn new(pipes: &[&str]) -> Self {
        let (slack, place) = (FakeSlack::start().await, place(pipes));
        let config = std::fs::read_to_string(place.path("dogwatch.toml")).unwrap();
        let table = format!(
            "[slack]\nbot_token = {{ file = \"bot-token\" }}\ningress = \"http\"\n\
             signing_secret = {{ file = \"signing-secret\" }}\napi = \"{}\"\n",
            slack.api()
        );
        place.write("dogwatch.toml", &format!("{config}{table}"));
        place.write("bot-token", "xoxb-of-the-tests");
        place.write("signing-secret", SECRET);
        Self { slack, place, events: 0 }
    }

    /// A bot that works.
    fn bot(&self) -> Service {
        Service::of(self.place.serve()).works()
    }

    /// A person writes; the event of it, not yet sent.
    fn says(&mut self, thread: Option<&str>, text: &str) -> Value {
        let ts = self.slack.says("C1", thread, text);
        let kind = if text.contains("<@U0BOT>") { "app_mention" } else { "message" };
        self.event(&json!({
            "type": kind, "user": "U7", "text": text, "ts": ts, "channel": "C1",
            "event_ts": ts, "thread_ts": thread,
        }))
    }

    fn event(&mut self, event: &Value) -> Value {
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
    fn twin(&mut self, of: &Value) -> Value {
        let mut event = of["event"].clone();
        event.as_object_mut().unwrap().insert("type".to_owned(), "message".into());
        self.event(&event)
    }
}

/// As Slack does it: until it is acknowledged.
async fn deliver(bot: &Service, event: &Value) {
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

fn ts(event: &Value) -> String {
    event.pointer("/event/ts").and_then(Value::as_str).unwrap().to_owned()
}

fn has(messages: &[Message], text: &str) -> bool {
    messages.iter().any(|message| message.text.contains(text))
}

fn count(messages: &[Message], text: &str) -> usize {
    messages.iter().filter(|message| message.text.contains(text)).count()
}

/// Has a button.
fn is_live(message: &Message) -> bool {
    message.blocks.to_string().contains("\"button\"")
}

fn bots(messages: &[Message]) -> Vec<Message> {
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
    let started = patiently(town.slack.until("C1", &root, |all| has(all, "started"))).await;
    assert_eq!(bots(&started).len(), 2, "{started:#?}");
    assert!(is_live(&started[0]) && started[0].text.contains("one runs"), "{started:#?}");
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
    assert!(ours[0].text.contains("'one' completed"), "{ours:#?}");
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
    let end = async {
        town.slack.until("C1", &root, |all| has(all, "started")).await;
        let gate = town.place.path("one");
        let open = move || drop(File::options().write(true).open(gate).unwrap());
        tokio::task::spawn_blocking(open).await.unwrap();
    };
    let kill = async {
        town.slack.called(method, nth).await;
        // What has no shim yet is lost, rightly: that is told elsewhere.
        while nth == 1 && method == "chat.postMessage" && town.place.shims().is_empty() {
            tokio::task::yield_now().await;
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
