//! Who may what in Slack, on the real program: agents and roles by channel, several people in one
//! thread, direct messages. The model is another service, which sees what each turn is offered.

use std::fs::File;

use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::patiently;
use super::whole::{BY_REQUESTS, Town, bots, deliver, has, home, ts};
use crate::support::fake_llm::{FakeLlm, Gate, Reply, Seen};
use crate::support::fake_slack::{FakeSlack, Message};
use crate::support::process;
use crate::support::redis_server::RedisServer;
use crate::support::service::Service;
use crate::support::wire::{MARKER, arguments, prompt, results, texts, tools, user};

const TRIGGER: &str = "trigger_and_auto_notify";

/// A town whose bot asks a model that is a service.
struct Street {
    town: Town,
    llm: FakeLlm,
}

impl Street {
    /// With this in `[slack]`.
    async fn new(slack: &str) -> Self {
        let (fake, llm) = (FakeSlack::start().await, FakeLlm::start().await);
        fake.room("D1", |room| room.is_member = true);
        let place = home(&fake, &[], BY_REQUESTS, slack);
        let street = Self { town: Town { slack: fake, place, events: 0 }, llm };
        street.model();
        street
    }

    fn model(&self) {
        let config = std::fs::read_to_string(self.town.place.path("dogwatch.toml")).unwrap();
        let url = self.llm.base_url();
        let model = format!("kind = \"openai\"\nbase_url = \"{url}\"\nmodel = \"usual\"");
        let config = config.replace("kind = \"scripted\"\nplaybook = \"playbook.toml\"", &model);
        self.town.place.write("dogwatch.toml", &config);
    }

    /// The same configuration with something else.
    fn now(&self, from: &str, to: &str) {
        let config = std::fs::read_to_string(self.town.place.path("dogwatch.toml")).unwrap();
        assert!(config.contains(from));
        self.town.place.write("dogwatch.toml", &config.replace(from, to));
    }

    fn bot(&self) -> Service {
        self.town.bot()
    }

    /// This person writes there; answers the message's time stamp.
    async fn says(
        &mut self,
        bot: &Service,
        who: &str,
        at: (&str, Option<&str>),
        text: &str,
    ) -> String {
        let event = self.event(who, at, text);
        deliver(bot, &event).await;
        ts(&event)
    }

    fn event(&mut self, who: &str, (channel, thread): (&str, Option<&str>), text: &str) -> Value {
        let ts = self.town.slack.says(channel, thread, text);
        let kind = if text.contains("<@U0BOT>") { "app_mention" } else { "message" };
        let mut event = json!({
            "type": kind, "user": who, "text": text, "ts": ts, "channel": channel,
            "event_ts": ts, "thread_ts": thread,
        });
        if channel.starts_with('D') {
            event.as_object_mut().unwrap().insert("channel_type".to_owned(), "im".into());
        }
        self.town.event(&event)
    }

    /// The requests so far, once there are so many.
    async fn asked(&self, count: usize) -> Vec<Seen> {
        patiently(self.llm.seen(count)).await
    }

    /// Waits for a text of the bot's in this thread.
    async fn told(&self, channel: &str, root: &str, text: &str) -> Vec<String> {
        // What people wrote themselves may say the same.
        let told = |all: &[Message]| has(&bots(all), text);
        let thread = patiently(self.town.slack.until(channel, root, told)).await;
        bots(&thread).into_iter().map(|message| message.text).collect()
    }

    /// The answer to the command of this number, which only one person sees.
    async fn answered(&self, number: usize) -> String {
        let calls = patiently(self.town.slack.called("chat.postEphemeral", number)).await;
        let text = calls.get(number - 1).and_then(|call| call.arguments.get("text"));
        text.and_then(Value::as_str).unwrap().to_owned()
    }

    /// The model starts a watcher that waits for this pipe.
    fn will_watch(&self, pipe: &str) {
        process::fifo(&self.town.place.path(""), pipe);
        let python = format!(
            "print('{pipe} began', flush=True)\nopen({:?}).read()\nprint('{pipe} is done')",
            self.town.place.known_as(pipe)
        );
        self.llm.will(Reply::call("c1", TRIGGER, &arguments(pipe, &python, 100)));
        self.llm.will(Reply::text(&format!("{pipe} started")));
    }

    /// Lets it end, once it waits.
    fn release(&self, pipe: &str) {
        let gate = self.town.place.path(pipe);
        tokio::task::block_in_place(|| drop(File::options().write(true).open(gate).unwrap()));
    }

    fn over(&self, bot: Service) {
        assert_eq!(bot.end().0, Some(0));
        let (even, audit) = self.town.place.audit();
        assert!(even, "{audit:#}");
    }
}

fn call(name: &str, arguments: &Value) -> Reply {
    Reply::call("c1", name, &arguments.to_string())
}

fn code(result: &Value) -> &str {
    result.pointer("/error/code").and_then(Value::as_str).unwrap_or_default()
}

const MENTION: &str = "<@U0BOT>";

#[tokio::test(flavor = "multi_thread")]
async fn b40_each_channel_has_its_agent_and_a_read_only_one_has_no_way_to_write() {
    let table = "channels = { C2 = { agent = \"deploys\", role = \"read-only\" } }\n";
    let mut street = Street::new(table).await;
    std::fs::create_dir(street.town.place.path("agents")).unwrap();
    let agent = "name = \"deploys\"\nmodel = \"large\"\ninstructions = \"You deploy.\"\n\
                 [limits]\nmodel_calls_per_turn = 7\n";
    street.town.place.write("agents/deploys.toml", agent);
    let bot = street.bot();
    street.llm.will(Reply::text("here"));
    let root = street.says(&bot, "U7", ("C1", None), &format!("{MENTION} hello")).await;
    street.told("C1", &root, "here").await;
    // Whatever it was not offered it does not get by naming it.
    let script = json!({ "name": "x", "python": "print()", "timeout_seconds": 5 });
    street.llm.will(call(TRIGGER, &script));
    street.llm.will(call("watch__cancel", &json!({ "id": "auto-notify-x-0001" })));
    street.llm.will(Reply::text("there"));
    let root = street.says(&bot, "U7", ("C2", None), &format!("{MENTION} hello")).await;
    street.told("C2", &root, "there").await;
    let asked = street.asked(4).await;
    assert_eq!(asked[0].body["model"], "usual");
    assert!(tools(&asked[0]).contains(&TRIGGER.to_owned()));
    assert!(!prompt(&asked[0]).contains("You deploy."));
    for seen in &asked[1..] {
        assert_eq!(seen.body["model"], "large");
        assert_eq!(tools(seen), ["watch__list", "watch__output", "stay_silent", "read_file"]);
        assert!(prompt(seen).contains("You deploy."));
    }
    let refused: Vec<Value> = results(&asked[3]);
    assert_eq!(refused.iter().map(code).collect::<Vec<_>>(), ["unknown_tool", "unknown_tool"]);
    assert!(street.town.place.shims().is_empty());
    street.over(bot);
}

#[tokio::test(flavor = "multi_thread")]
async fn b40_a_role_that_was_narrowed_counts_at_the_next_claim_and_loses_no_result() {
    let mut street = Street::new("role = \"writable\"\n").await;
    let bot = street.bot();
    street.will_watch("one");
    let root = street.says(&bot, "U7", ("C1", None), &format!("{MENTION} watch one")).await;
    street.told("C1", &root, "one started").await;
    // Another turn is open, and offered everything, when the bot is killed.
    street.llm.will(Reply::stream().stall());
    let open = street.says(&bot, "U7", ("C1", None), &format!("{MENTION} start more")).await;
    let asked = street.asked(3).await;
    assert!(tools(&asked[2]).contains(&TRIGGER.to_owned()));
    tokio::task::block_in_place(|| bot.kill());
    street.now("role = \"writable\"", "role = \"read-only\"");
    let script = json!({ "name": "x", "python": "print()", "timeout_seconds": 5 });
    street.llm.will(call(TRIGGER, &script));
    street.llm.will(Reply::text("I may not"));
    let bot = tokio::task::block_in_place(|| street.bot());
    street.told("C1", &open, "I may not").await;
    let asked = street.asked(5).await;
    assert!(!tools(&asked[3]).contains(&TRIGGER.to_owned()), "the same turn, resumed");
    assert_eq!(code(&results(&asked[4])[0]), "unknown_tool");
    // What was started before is told all the same.
    street.llm.will(Reply::text("it is over"));
    street.release("one");
    street.told("C1", &root, "it is over").await;
    let asked = street.asked(6).await;
    assert!(user(&asked[5]).last().unwrap().contains("one is done"));
    assert_eq!(tools(&asked[5]), ["watch__list", "watch__output", "stay_silent", "read_file"]);
    street.over(bot);
}

#[tokio::test(flavor = "multi_thread")]
async fn b40_others_in_a_thread_see_work_and_only_its_owner_ends_it() {
    let mut street = Street::new("").await;
    let bot = street.bot();
    street.will_watch("one");
    let root = street.says(&bot, "U7", ("C1", None), &format!("{MENTION} watch one")).await;
    street.told("C1", &root, "one started").await;
    let id = "auto-notify-one-0001";
    // By the model, in a turn of somebody else.
    for (tool, arguments) in [
        ("watch__list", json!({})),
        ("watch__output", json!({ "id": id })),
        ("watch__cancel", json!({ "id": id })),
    ] {
        street.llm.will(call(tool, &arguments));
    }
    street.llm.will(Reply::text("that is U7's"));
    street.says(&bot, "U8", ("C1", Some(&root)), "end it").await;
    street.told("C1", &root, "that is U7's").await;
    let asked = street.asked(6).await;
    let seen = results(&asked[5]);
    let last = seen.len();
    assert!(seen[last - 3].to_string().contains(id), "{seen:#?}");
    assert!(seen[last - 2].to_string().contains(id), "{seen:#?}");
    assert_eq!(code(&seen[last - 1]), "not_owner");
    assert_eq!(seen[last - 1]["error"]["owner"], "slack/T1/U7");
    // By a word.
    let cancel = format!("{MENTION} cancel {id}");
    street.says(&bot, "U8", ("C1", Some(&root)), &cancel).await;
    let said = street.answered(1).await;
    assert!(said.contains("<@U7>'s; ask them"), "{said}");
    // Its owner asks the model.
    street.llm.will(call("watch__cancel", &json!({ "id": id })));
    street.llm.will(Reply::text("it is ended"));
    street.says(&bot, "U7", ("C1", Some(&root)), "then end it").await;
    street.told("C1", &root, "it is ended").await;
    let asked = street.asked(8).await;
    let ended = results(asked.last().unwrap()).pop().unwrap();
    assert_eq!(ended["status"], "cancelled", "{ended:#}");
    street.over(bot);
}

/// Two people write while a turn runs; what each request of the model then says.
async fn of_two(slack: &str) -> (Street, Service, Vec<Vec<String>>) {
    let mut street = Street::new(slack).await;
    let bot = street.bot();
    let gate = Gate::default();
    street.llm.will(Reply::text("first").hold_head(&gate));
    street.llm.otherwise(|_| Reply::text("next"));
    let root = street.says(&bot, "U7", ("C1", None), &format!("{MENTION} hello")).await;
    street.asked(1).await;
    street.says(&bot, "U8", ("C1", Some(&root)), "I am U8").await;
    street.says(&bot, "U7", ("C1", Some(&root)), "I am U7").await;
    gate.open();
    let all = |all: &[Message]| has(all, "next");
    patiently(street.town.slack.until("C1", &root, all)).await;
    let requests = street.llm.seen_now().iter().map(user).collect();
    (street, bot, requests)
}

#[tokio::test(flavor = "multi_thread")]
async fn b40_one_turn_takes_several_people_only_where_that_is_written() {
    let (street, bot, requests) = of_two("shared_authority = true\n").await;
    let both = requests[1].last().unwrap();
    assert!(both.contains("I am U8") && both.contains("I am U7"), "{both}");
    street.over(bot);
    let (street, bot, requests) = of_two("").await;
    // U8's message stands between: U7's waits for its turn, after that of U8.
    assert!(requests[1].last().unwrap().contains("I am U8"), "{requests:?}");
    let asked = street.asked(3).await;
    assert!(user(&asked[2]).last().unwrap().contains("I am U7"));
    street.over(bot);
}

#[tokio::test(flavor = "multi_thread")]
async fn b41_b99_each_top_level_direct_message_is_a_conversation_and_none_waits_for_another() {
    let mut street = Street::new("").await;
    let bot = street.bot();
    street.will_watch("one");
    let first = street.says(&bot, "U7", ("D1", None), "watch one").await;
    street.told("D1", &first, "one started").await;
    // A second one knows nothing of the first, and is answered while the first thinks.
    let gate = Gate::default();
    street.llm.will(Reply::text("long thought").hold_head(&gate));
    street.says(&bot, "U7", ("D1", Some(&first)), "think about it").await;
    street.asked(3).await;
    street.llm.will(Reply::text("second"));
    let second = street.says(&bot, "U7", ("D1", None), "and this?").await;
    assert_eq!(street.told("D1", &second, "second").await, ["second"]);
    let asked = street.asked(4).await;
    assert_eq!(user(&asked[3]), ["and this?"]);
    // What a thread goes on with is what its root began.
    let thought = user(&asked[2]);
    assert_eq!((thought[0].as_str(), thought[1].as_str()), ("watch one", "think about it"));
    patiently(street.town.slack.status_is("D1", &first, Some("is thinking…"))).await;
    gate.open();
    street.told("D1", &first, "long thought").await;
    // The end of the work comes to where it was started.
    street.llm.will(Reply::text("it is over"));
    street.release("one");
    street.told("D1", &first, "it is over").await;
    let asked = street.asked(5).await;
    assert!(user(&asked[4]).last().unwrap().contains(MARKER));
    assert_eq!(bots(&street.town.slack.thread("D1", &second)).len(), 1);
    assert!(street.town.slack.posted().iter().all(|message| message.thread_ts.is_some()));
    street.over(bot);
}

#[tokio::test(flavor = "multi_thread")]
async fn b93_silence_is_a_tool_and_posts_nothing() {
    let mut street = Street::new("").await;
    let bot = street.bot();
    street.will_watch("one");
    let root = street.says(&bot, "U7", ("C1", None), &format!("{MENTION} watch one")).await;
    street.told("C1", &root, "one started").await;
    let quiet = json!({ "reason": "nothing new" });
    street.llm.will(call("stay_silent", &quiet));
    street.release("one");
    street.told("C1", &root, "completed (").await;
    let asked = street.asked(3).await;
    assert!(user(&asked[2]).last().unwrap().contains(MARKER));
    // To a person it is said that there is nothing, not kept silent; its name is never posted.
    street.llm.will(call("stay_silent", &quiet));
    street.llm.will(Reply::text("nothing new"));
    street.says(&bot, "U7", ("C1", Some(&root)), "and?").await;
    let texts = street.told("C1", &root, "nothing new").await;
    assert_eq!(texts.len(), 3, "{texts:#?}");
    assert!(texts.iter().all(|text| !text.contains("stay_silent")), "{texts:#?}");
    street.over(bot);
}

#[tokio::test(flavor = "multi_thread")]
async fn b95_a_second_message_while_the_answer_streams_sees_it_and_is_answered_once() {
    let mut street = Street::new("").await;
    let bot = street.bot();
    let gate = Gate::default();
    street.llm.will(Reply::text("answer one").hold_head(&gate));
    street.llm.will(Reply::text("answer two"));
    let root = street.says(&bot, "U7", ("C1", None), &format!("{MENTION} one")).await;
    street.asked(1).await;
    street.says(&bot, "U7", ("C1", Some(&root)), "two").await;
    assert_eq!(street.llm.seen_now().len(), 1, "never two turns at once");
    gate.open();
    assert_eq!(street.told("C1", &root, "answer two").await, ["answer one", "answer two"]);
    let asked = street.asked(2).await;
    let said: Vec<_> = asked[1].body["messages"].as_array().unwrap()[1..].to_vec();
    let said: Vec<_> = said.iter().map(|message| message["content"].as_str().unwrap()).collect();
    assert_eq!(said, ["one", "answer one", "two"]);
    assert_eq!(street.llm.seen_now().len(), 2);
    street.over(bot);
}

#[tokio::test(flavor = "multi_thread")]
async fn b96_messages_of_one_thread_at_two_replicas_have_each_their_own_answer() {
    let redis = RedisServer::start(&[]);
    let store = "[store]\nkind = \"redis\"\nurl = { file = \"redis-url\" }\n";
    let mut street = Street::new(store).await;
    let there = home(&street.town.slack, &[], BY_REQUESTS, store);
    let config = std::fs::read_to_string(street.town.place.path("dogwatch.toml")).unwrap();
    there.write("dogwatch.toml", &config);
    for place in [&street.town.place, &there] {
        place.write("redis-url", &redis.url());
    }
    street.llm.otherwise(|body| {
        let heard = texts(body, &["user"]).pop().unwrap_or_default();
        Reply::text(&format!("to {heard}"))
    });
    let (one, other) = (street.bot(), Service::of(there.serve()).works());
    let root = street.says(&one, "U7", ("C1", None), &format!("{MENTION} line 0.")).await;
    for number in 0..4 {
        let mut said = |n: usize| {
            street.event("U7", ("C1", Some(&root)), &format!("line {}.", number * 2 + n))
        };
        let (first, second) = (said(1), said(2));
        tokio::join!(deliver(&one, &first), deliver(&other, &second));
    }
    for number in 0..9 {
        let line = format!("line {number}.");
        let answers = street.told("C1", &root, &line).await;
        let to_it: Vec<_> = answers.iter().filter(|text| text.contains(&line)).collect();
        assert_eq!(to_it.len(), 1, "{line} {answers:#?}");
    }
    assert_eq!(other.end().0, Some(0));
    street.over(one);
}

#[tokio::test(flavor = "multi_thread")]
async fn b98_stop_has_two_words_and_says_what_each_has_ended() {
    let mut street = Street::new("").await;
    let bot = street.bot();
    street.will_watch("one");
    let root = street.says(&bot, "U7", ("C1", None), &format!("{MENTION} watch one")).await;
    street.told("C1", &root, "one started").await;
    street.llm.will(Reply::stream().stall());
    street.says(&bot, "U7", ("C1", Some(&root)), "think").await;
    street.asked(3).await;
    // Anybody in the thread may.
    street.says(&bot, "U8", ("C1", Some(&root)), &format!("{MENTION} stop")).await;
    let said = street.answered(1).await;
    assert!(said.starts_with("The turn is stopped; watchers run on"), "{said}");
    assert_eq!(street.town.place.shims().len(), 1);
    patiently(street.llm.left(1)).await;
    street.says(&bot, "U8", ("C1", Some(&root)), &format!("{MENTION} stop all")).await;
    let said = street.answered(2).await;
    assert!(said.starts_with("No turn was running; 1 watcher ended"), "{said}");
    // With nothing left it says so, and the thread is idle.
    street.says(&bot, "U8", ("C1", Some(&root)), &format!("{MENTION} stop all")).await;
    let said = street.answered(3).await;
    assert!(said.starts_with("No turn was running; no watcher was running"), "{said}");
    let over = |all: &[Message]| has(all, "was cancelled");
    patiently(street.town.slack.until("C1", &root, over)).await;
    assert_eq!(street.llm.seen_now().len(), 3, "nothing wakes");
    street.over(bot);
}
