//! The app's own tab, and buttons that only one person sees, on the real program: what somebody
//! sees is theirs alone, what they press counts once, and whatever is killed or limited meanwhile.

#![expect(clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::fs::File;

use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::install::{install, installing, says_there};
use super::patiently;
use super::whole::{SECRET, Town, bots, count, deliver, has, is_live, ts, under_way};
use crate::support::fake_llm::{FakeLlm, Reply};
use crate::support::fake_slack::{Fault, Message, RESPONSE, team};
use crate::support::process;
use crate::support::service::Service;
use crate::support::slack_push::Pusher;
use crate::support::wire::arguments;

const PUBLISH: &str = "views.publish";

/// Slack sends a press, until it is acknowledged.
async fn pressed(bot: &Service, payload: &Value) {
    let payload: String = form_urlencoded::byte_serialize(payload.to_string().as_bytes()).collect();
    let pusher = Pusher::at(bot.address, SECRET);
    patiently(async {
        loop {
            let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
            let push = pusher.push("/slack/interactive", format!("payload={payload}"), now);
            if pusher.try_send(push).await == Some(200) {
                return;
            }
        }
    })
    .await;
}

/// All buttons in blocks, by their action: the value of each.
fn values(blocks: &Value, action: &str) -> Vec<String> {
    match blocks {
        Value::Object(fields) if fields.get("action_id") == Some(&json!(action)) => {
            vec![fields["value"].as_str().unwrap().to_owned()]
        }
        Value::Object(fields) => fields.values().flat_map(|one| values(one, action)).collect(),
        Value::Array(all) => all.iter().flat_map(|one| values(one, action)).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => vec![],
    }
}

/// A press of a button in the tab.
fn at_home(at: &str, user: &str, value: &str, when: u32) -> Value {
    json!({
        "type": "block_actions", "user": { "id": user, "team_id": at }, "team": { "id": at },
        "container": { "type": "view", "view_id": "V1" }, "view": { "id": "V1", "type": "home" },
        "actions": [{ "action_id": "cancel_at_home", "value": value,
                      "action_ts": format!("18000000{when:02}.000001") }],
    })
}

async fn opens(town: &mut Town, bot: &Service, at: &str, user: &str) {
    let mut event = town.event(&json!({
        "type": "app_home_opened", "user": user, "channel": "D1", "tab": "home",
        "event_ts": "1800000001.000001",
    }));
    event["authorizations"][0]["team_id"] = at.into();
    deliver(bot, &event).await;
}

/// Somebody has a watcher started; the root of its thread.
async fn watches(town: &mut Town, bot: &Service, user: &str, pipe: &str) -> String {
    let mut asked = town.says(None, &format!("<@U0BOT> watch {pipe}"));
    asked["event"]["user"] = user.into();
    deliver(bot, &asked).await;
    let root = ts(&asked);
    patiently(town.slack.until("C1", &root, under_way)).await;
    root
}

/// Lets a script end.
fn release(town: &Town, pipe: &str) {
    let gate = town.place.path(pipe);
    tokio::task::block_in_place(|| drop(File::options().write(true).open(gate).unwrap()));
}

fn over(town: &Town, bot: Service) {
    assert_eq!(bot.end().0, Some(0));
    let (even, audit) = town.place.audit();
    assert!(even, "{audit:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn b40_b41_a_home_tab_shows_ones_own_work_and_cancels_it_once() {
    let mut town = Town::new(&["one", "two"]).await;
    let bot = town.bot();
    let first = watches(&mut town, &bot, "U7", "one").await;
    let second = watches(&mut town, &bot, "U8", "two").await;
    for user in ["U7", "U8"] {
        opens(&mut town, &bot, "T1", user).await;
    }
    let view = patiently(town.slack.home_is(("T1", "U7"), |text| text.contains("*one*"))).await;
    let theirs = patiently(town.slack.home_is(("T1", "U8"), |text| text.contains("*two*"))).await;
    assert!(!view.to_string().contains("two") && !theirs.to_string().contains("*one*"));
    assert!(view.to_string().contains("1 of your 20 places"), "{view:#}");
    assert!(view.to_string().contains(&format!("/C1/p{}", first.replace('.', ""))), "{view:#}");
    let button = values(&view, "cancel_at_home").remove(0);
    assert!(button.starts_with(&format!("C1/{first}/")), "{button}");
    // Somebody else's press is told, and nothing happens.
    pressed(&bot, &at_home("T1", "U8", &button, 2)).await;
    let foreign = |text: &str| text.contains("<@U7>'s; ask them");
    patiently(town.slack.home_is(("T1", "U8"), foreign)).await;
    assert!(town.slack.thread("C1", &first).iter().any(is_live));
    // A button of before a restart works, also where Slack sends its press twice.
    while !town.place.runs() {
        crate::support::process::pause().await;
    }
    tokio::task::block_in_place(|| bot.kill());
    let bot = tokio::task::block_in_place(|| town.bot());
    for _ in 0..2 {
        pressed(&bot, &at_home("T1", "U7", &button, 3)).await;
    }
    patiently(town.slack.home_is(("T1", "U7"), |text| text.contains("is being ended"))).await;
    // When it has ended, the tab says so by itself.
    let none = |text: &str| text.contains("Nothing of yours") && !text.contains("is being ended");
    let view = patiently(town.slack.home_is(("T1", "U7"), none)).await;
    assert!(view.to_string().contains("0 of your 20 places"), "{view:#}");
    let ended = |all: &[Message]| has(all, "was cancelled") && !all.iter().any(is_live);
    let thread = patiently(town.slack.until("C1", &first, ended)).await;
    assert_eq!(count(&bots(&thread), "was cancelled"), 1, "{thread:#?}");
    // Pressed once more it says that it is over.
    pressed(&bot, &at_home("T1", "U7", &button, 4)).await;
    patiently(town.slack.home_is(("T1", "U7"), |text| text.contains("over already"))).await;
    let theirs = town.slack.home("T1", "U8").unwrap().to_string();
    assert!(theirs.contains("*two*"), "of that U8 sees nothing: {theirs}");
    release(&town, "two");
    patiently(town.slack.until("C1", &second, |all| has(all, "NEWS"))).await;
    over(&town, bot);
}

#[tokio::test(flavor = "multi_thread")]
async fn slack_32_two_installations_with_the_same_user_see_nothing_of_each_other() {
    let mut town = installing(&["one", "two"], "").await;
    let bot = town.bot();
    let mut roots = vec![];
    for (place, pipe) in [("T1", "one"), ("T2", "two")] {
        install(&town, &bot, &team(place));
        let asked = says_there(&mut town, &team(place), &format!("<@U0BOT> watch {pipe}"));
        deliver(&bot, &asked).await;
        patiently(town.slack.until("C1", &ts(&asked), under_way)).await;
        roots.push(ts(&asked));
        opens(&mut town, &bot, place, "U7").await;
    }
    let one = patiently(town.slack.home_is(("T1", "U7"), |text| text.contains("*one*"))).await;
    let two = patiently(town.slack.home_is(("T2", "U7"), |text| text.contains("*two*"))).await;
    assert!(!one.to_string().contains("*two*") && !two.to_string().contains("*one*"));
    // The other team's button means nothing here.
    let button = values(&one, "cancel_at_home").remove(0);
    pressed(&bot, &at_home("T2", "U7", &button, 2)).await;
    patiently(town.slack.home_is(("T2", "U7"), |text| text.contains("is long over"))).await;
    assert!(town.slack.thread("C1", &roots[0]).iter().any(is_live));
    for (pipe, root) in ["one", "two"].into_iter().zip(&roots) {
        release(&town, pipe);
        patiently(town.slack.until("C1", root, |all| has(all, "NEWS"))).await;
    }
    over(&town, bot);
}

/// The bot asks a model that is a service.
async fn with_model() -> (Town, FakeLlm) {
    let (town, llm) = (Town::new(&[]).await, FakeLlm::start().await);
    let config = std::fs::read_to_string(town.place.path("dogwatch.toml")).unwrap();
    let model = format!("kind = \"openai\"\nmodel = \"test\"\nbase_url = \"{}\"", llm.base_url());
    let config = config.replace("kind = \"scripted\"\nplaybook = \"playbook.toml\"", &model);
    town.place.write("dogwatch.toml", &config);
    (town, llm)
}

#[tokio::test(flavor = "multi_thread")]
async fn home_tab_and_buttons_work_while_the_model_is_away_and_slack_limits_them() {
    let (mut town, llm) = with_model().await;
    process::fifo(&town.place.path(""), "one");
    let python = format!("open({:?}).read()", town.place.known_as("one"));
    llm.will(Reply::call("c1", "trigger_and_auto_notify", &arguments("one", &python, 100)));
    llm.otherwise(|_| Reply::stream().stall());
    let bot = town.bot();
    let asked = town.says(None, "<@U0BOT> watch one");
    let root = ts(&asked);
    deliver(&bot, &asked).await;
    patiently(llm.seen(2)).await;
    // Slack limits it first, breaks the connection then.
    town.slack.will(PUBLISH, Fault::Limited(1));
    town.slack.will(PUBLISH, Fault::CutBefore);
    opens(&mut town, &bot, "T1", "U7").await;
    patiently(town.slack.home_is(("T1", "U7"), |text| text.contains("*one*"))).await;
    assert_eq!(town.slack.count(PUBLISH), 3);
    // Where there is no such tab that is only said in the log.
    town.slack.always(PUBLISH, Fault::Refuse("not_enabled"));
    opens(&mut town, &bot, "T1", "U9").await;
    patiently(town.slack.called(PUBLISH, 4)).await;
    let status = town.says(Some(&root), "<@U0BOT> status");
    deliver(&bot, &status).await;
    let told = patiently(town.slack.called("chat.postEphemeral", 1)).await;
    let blocks: Value =
        serde_json::from_str(told[0].arguments["blocks"].as_str().unwrap()).unwrap();
    assert_eq!(values(&blocks, "cancel_listed").len(), 1);
    let press = |action: &str, when: u32| {
        let value = values(&blocks, action).remove(0);
        shown_press(&town, &root, (action, &value), when)
    };
    // Anybody there may stop the turn, which ends the call of the model.
    pressed(&bot, &press("stop_turn", 2)).await;
    patiently(llm.left(1)).await;
    pressed(&bot, &press("stop_turn", 3)).await;
    pressed(&bot, &press("stop_all", 4)).await;
    let told = patiently(town.slack.called(RESPONSE, 3)).await;
    let texts: Vec<_> =
        told.iter().map(|call| call.arguments["text"].as_str().unwrap().to_owned()).collect();
    assert!(has_text(&texts, "The turn is stopped; watchers run on"), "{texts:?}");
    assert!(has_text(&texts, "is not running any more; nothing was stopped"), "{texts:?}");
    assert!(has_text(&texts, "No turn was running; 1 watcher ended"), "{texts:?}");
    assert!(told.iter().all(|call| call.arguments["replace_original"] == json!(true)));
    patiently(town.slack.until("C1", &root, |all| !all.iter().any(is_live))).await;
    let (code, log) = bot.end();
    assert_eq!(code, Some(0));
    assert!(log.iter().any(|line| line.contains("App Home")), "{log:#?}");
    let (even, audit) = town.place.audit();
    assert!(even, "{audit:#}");
}

fn has_text(texts: &[String], words: &str) -> bool {
    texts.iter().any(|text| text.contains(words))
}

/// A press in an answer that only one person sees.
fn shown_press(town: &Town, root: &str, (action, value): (&str, &str), when: u32) -> Value {
    json!({
        "type": "block_actions", "user": { "id": "U8", "team_id": "T1" }, "team": { "id": "T1" },
        "channel": { "id": "C1" },
        "container": { "type": "message", "message_ts": "1800000001.000009", "channel_id": "C1",
                       "is_ephemeral": true, "thread_ts": root },
        "response_url": town.slack.response_url(),
        "actions": [{ "action_id": action, "value": value,
                      "action_ts": format!("18000000{when:02}.000001") }],
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn slack_15_a_stop_counts_though_the_bot_is_killed_before_it_is_answered() {
    let mut town = Town::new(&["one"]).await;
    let bot = town.bot();
    let root = watches(&mut town, &bot, "U7", "one").await;
    while !town.place.runs() {
        crate::support::process::pause().await;
    }
    let never = CancellationToken::new();
    town.slack.will(RESPONSE, Fault::Held(never));
    let press = shown_press(&town, &root, ("stop_all", &format!("C1/{root}/")), 2);
    pressed(&bot, &press).await;
    patiently(town.slack.called(RESPONSE, 1)).await;
    tokio::task::block_in_place(|| bot.kill());
    let bot = tokio::task::block_in_place(|| town.bot());
    let ended = |all: &[Message]| has(all, "was cancelled") && !all.iter().any(is_live);
    patiently(town.slack.until("C1", &root, ended)).await;
    // The same press again ends nothing more, and is answered now.
    pressed(&bot, &press).await;
    let told = patiently(town.slack.called(RESPONSE, 2)).await;
    let text = told[1].arguments["text"].as_str().unwrap();
    assert!(text.contains("no watcher was running"), "{text}");
    let thread = bots(&town.slack.thread("C1", &root));
    assert_eq!(count(&thread, "was cancelled"), 1, "{thread:#?}");
    assert_eq!(count(&thread, "NEWS"), 0, "nothing wakes: {thread:#?}");
    assert!(town.place.shims().is_empty());
    over(&town, bot);
}
