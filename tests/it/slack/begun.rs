//! Threads that the real program begins, asked for by a slash command: one root each, and the whole
//! way from there on in the thread of that root.

use std::fs::File;

use crate::support::fake_slack::{FakeSlack, Fault, Message};
use crate::support::real_bot::Place;
use crate::support::redis_server::RedisServer;
use crate::support::service::Service;
use crate::support::slack_push::Pusher;

use super::patiently;
use super::whole::{
    BY_REQUESTS, SECRET, Town, bots, count, deliver, has, home, is_live, under_way,
};

/// As Slack does it, but that it does so once. Answers whether it was acknowledged.
async fn commands(bot: &Service, text: &str, trigger: &str) -> bool {
    let pusher = Pusher::at(bot.address, SECRET);
    let seconds = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let text = text.replace(' ', "+");
    let body = format!(
        "command=%2Fdogwatch&text={text}&team_id=T1&channel_id=C1&user_id=U7&trigger_id={trigger}"
    );
    let push = pusher.push("/slack/commands", body, seconds);
    patiently(pusher.try_send(push)).await == Some(200)
}

fn roots(slack: &FakeSlack) -> Vec<Message> {
    slack.posted().into_iter().filter(|message| message.thread_ts.is_none()).collect()
}

async fn root(slack: &FakeSlack) -> String {
    patiently(slack.until_any(|| !roots(slack).is_empty())).await;
    roots(slack).remove(0).ts
}

fn opens(place: &Place, gate: &str) {
    drop(File::options().write(true).open(place.path(gate)).unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn b38_a_watcher_of_a_thread_that_the_bot_began_reports_there() {
    let mut town = Town::new(&["one"]).await;
    let bot = town.bot();
    assert!(commands(&bot, "watch one", "1.2.a").await);
    let root = root(&town.slack).await;
    patiently(town.slack.until("C1", &root, under_way)).await;
    // A person goes on there without a mention, after a restart too.
    tokio::task::block_in_place(|| bot.kill());
    let bot = tokio::task::block_in_place(|| town.bot());
    let more = town.says(Some(&root), "anybody there?");
    deliver(&bot, &more).await;
    patiently(town.slack.until("C1", &root, |all| has(all, "heard anybody"))).await;
    opens(&town.place, "one");
    let over = |all: &[Message]| has(all, "NEWS") && !all.iter().any(is_live);
    let thread = patiently(town.slack.until("C1", &root, over)).await;
    assert_eq!(count(&bots(&thread), "NEWS"), 1, "{thread:#?}");
    assert_eq!(roots(&town.slack).len(), 1);
    assert_eq!(bot.end().0, Some(0));
    let (even, audit) = town.place.audit();
    assert!(even, "{audit:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn b38_a_kill_while_the_root_is_posted_neither_loses_nor_doubles_it() {
    for fault in [Fault::Stall, Fault::Mute] {
        let town = Town::new(&[]).await;
        let bot = town.bot();
        town.slack.will("chat.postMessage", fault);
        assert!(commands(&bot, "good morning", "1.2.a").await);
        patiently(town.slack.called("chat.postMessage", 1)).await;
        tokio::task::block_in_place(|| bot.kill());
        let bot = tokio::task::block_in_place(|| town.bot());
        let root = root(&town.slack).await;
        patiently(town.slack.until("C1", &root, |all| has(all, "heard good morning"))).await;
        assert_eq!(bot.end().0, Some(0));
        assert_eq!(roots(&town.slack).len(), 1, "{:#?}", roots(&town.slack));
        assert_eq!(bots(&town.slack.thread("C1", &root)).len(), 1);
        let (even, audit) = town.place.audit();
        assert!(even, "{audit:#}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_replicas_that_are_told_the_same_begin_one_thread() {
    let redis = RedisServer::start(&[]);
    let store = "[store]\nkind = \"redis\"\nurl = { file = \"redis-url\" }\n";
    let slack = FakeSlack::start().await;
    let places = [(); 2].map(|()| home(&slack, &[], BY_REQUESTS, store));
    for place in &places {
        place.write("redis-url", &redis.url());
    }
    let [one, other] = places.each_ref().map(|place| Service::of(place.serve()).works());
    let told = tokio::join!(
        commands(&one, "good morning", "1.2.a"),
        commands(&other, "good morning", "1.2.a")
    );
    assert_eq!(told, (true, true));
    let root = root(&slack).await;
    patiently(slack.until("C1", &root, |all| has(all, "heard good morning"))).await;
    assert_eq!((one.end().0, other.end().0), (Some(0), Some(0)));
    assert_eq!((roots(&slack).len(), bots(&slack.thread("C1", &root)).len()), (1, 1));
    let (even, audit) = places[0].audit();
    assert!(even, "{audit:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_that_overtakes_what_the_thread_was_begun_for_is_heard() {
    let mut town = Town::new(&[]).await;
    let bot = town.bot();
    town.slack.will("chat.postMessage", Fault::Mute);
    assert!(commands(&bot, "good morning", "1.2.a").await);
    let root = root(&town.slack).await;
    // The bot has not heard where its root is.
    let mut more = town.says(Some(&root), "and staging");
    more["event"]["parent_user_id"] = "U0BOT".into();
    deliver(&bot, &more).await;
    let both = |all: &[Message]| has(all, "heard and staging") && has(all, "good morning");
    patiently(town.slack.until("C1", &root, both)).await;
    assert_eq!(bot.end().0, Some(0));
    assert_eq!(roots(&town.slack).len(), 1);
    let (even, audit) = town.place.audit();
    assert!(even, "{audit:#}");
}
