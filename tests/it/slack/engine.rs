//! A whole bot whose people are in a thread of Slack's.

use std::sync::Arc;

use dogwatch::core::ledger::row::{Item, ItemState};
use dogwatch::ports::{Clock, Desk};
use pretty_assertions::assert_eq;

use super::{address, session};
use crate::support::bot::{Bot, Setup};
use crate::support::fake_llm::Reply;
use crate::support::fake_slack::{FakeSlack, Fault, Message};
use crate::support::process::said;
use crate::support::wire::trigger;

const METHOD: &str = "chat.postMessage";

async fn bot() -> (Bot, Arc<FakeSlack>, String) {
    let slack = Arc::new(FakeSlack::start().await);
    let root = slack.root("C1");
    let setup = Setup { slack: Some(Arc::clone(&slack)), ..Setup::default() };
    (Bot::with(setup).await, slack, root)
}

async fn say(bot: &Bot, root: &str, text: &str) {
    let place = (&session("C1", root), address("C1", root));
    bot.deliver_at(place, text, text).await.unwrap();
}

fn texts(slack: &FakeSlack, root: &str) -> Vec<String> {
    slack.thread("C1", root).into_iter().map(|message| message.text).collect()
}

/// Waits until the one item of the outbox was tried so often, and waits itself.
async fn tried(bot: &Bot, root: &str, tries: u32) -> Item {
    let waits = |items: &[Item]| matches!(items, [item] if item.tries == tries && item.state == ItemState::Pending);
    bot.outbox_when(&session("C1", root), waits).await.remove(0)
}

/// Waits until everything in the outbox is posted.
async fn posted(bot: &Bot, root: &str, count: usize) {
    let done = |item: &Item| matches!(item.state, ItemState::Done(_));
    let all = |items: &[Item]| items.len() == count && items.iter().all(done);
    bot.outbox_when(&session("C1", root), all).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b36_b39_the_answer_and_what_wakes_later_land_in_the_thread_that_asked() {
    let (bot, slack, root) = bot().await;
    let on = bot.fifo("on");
    bot.llm.will(trigger("deploy", &format!("open({on:?}, 'w').close()\nprint('up')"), 600));
    bot.llm.will(Reply::text("I watch it."));
    bot.llm.will(Reply::text("It is **done**."));
    say(&bot, &root, "watch the deploy").await;
    posted(&bot, &root, 2).await;
    said(&on).await;
    posted(&bot, &root, 4).await;
    let mut texts = texts(&slack, &root);
    // It may stand after the answer that was written at the same time.
    let at = texts.iter().position(|text| text.starts_with('\'')).unwrap();
    let card = texts.remove(at);
    assert!(card.starts_with("'deploy' completed (") && card.ends_with("up"), "{card}");
    assert_eq!(texts, ["I watch it.", "It is *done*."]);
    assert_eq!(slack.posted().len(), 3);
    bot.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b55_one_post_waits_out_a_limit_and_no_word_of_it_goes_through_what_fails() {
    let (bot, slack, root) = bot().await;
    slack.always("*", Fault::Limited(30));
    bot.llm.will(Reply::text("the answer"));
    say(&bot, &root, "hello").await;
    for tries in 1..6 {
        let item = tried(&bot, &root, tries).await;
        assert!(!item.uncertain);
        let wait_ms = item.at.unwrap().since_ms(bot.clock.now());
        assert!(wait_ms > 25_000, "{wait_ms}");
        // No more calls than tries: one every half minute at most.
        assert_eq!(slack.count(METHOD), tries as usize);
        bot.clock.jump(wait_ms);
    }
    tried(&bot, &root, 6).await;
    slack.never_again("*");
    bot.clock.jump(400_000);
    posted(&bot, &root, 1).await;
    assert_eq!(texts(&slack, &root), ["the answer"]);
    assert_eq!(slack.posted().len(), 1);
    bot.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outcome_that_nobody_heard_of_makes_no_second_message() {
    for fault in [Fault::CutAfter, Fault::CutBefore] {
        let (bot, slack, root) = bot().await;
        slack.will(METHOD, fault);
        bot.llm.will(Reply::text("once"));
        say(&bot, &root, "hello").await;
        assert!(tried(&bot, &root, 1).await.uncertain);
        bot.clock.jump(10_000);
        posted(&bot, &root, 1).await;
        assert_eq!(texts(&slack, &root), ["once"]);
        bot.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_that_slack_refuses_or_puts_off_holds_up_no_answer() {
    for fault in
        [Fault::Refuse("edit_window_closed"), Fault::Refuse("who_knows"), Fault::Limited(600)]
    {
        let (bot, slack, root) = bot().await;
        slack.always("chat.update", fault);
        let on = bot.fifo("on");
        bot.llm.will(trigger("deploy", &format!("open({on:?}, 'w').close()\nprint('up')"), 600));
        bot.llm.will(Reply::text("I watch it."));
        bot.llm.will(Reply::text("It is up."));
        say(&bot, &root, "watch the deploy").await;
        said(&on).await;
        let told = |all: &[Message]| all.iter().any(|one| one.text == "It is up.");
        bot.wait("the answer", slack.until("C1", &root, told)).await;
        slack.never_again("chat.update");
        bot.clock.jump(700_000);
        let items = |items: &[Item]| {
            let over = |item: &Item| matches!(item.state, ItemState::Done(_) | ItemState::Dead(_));
            items.len() == 4 && items.iter().all(over)
        };
        bot.outbox_when(&session("C1", &root), items).await;
        bot.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_in_a_watcher_s_name_is_not_shown() {
    let slack = Arc::new(FakeSlack::start().await);
    let root = slack.root("C1");
    let secrets = vec!["hush-hush-hush".to_owned()];
    let setup = Setup { slack: Some(Arc::clone(&slack)), secrets, ..Setup::default() };
    let bot = Bot::with(setup).await;
    let on = bot.fifo("on");
    let script = format!("open({on:?}, 'w').close()");
    bot.llm.will(trigger("deploy with hush-hush-hush", &script, 600));
    bot.llm.will(Reply::text("I watch it."));
    bot.llm.will(Reply::text("It is done."));
    say(&bot, &root, "watch the deploy").await;
    posted(&bot, &root, 2).await;
    let desk = bot.desk();
    let view = desk.view(&session("C1", &root)).await.unwrap();
    assert!(!view.live[0].name.contains("hush"), "{view:?}");
    // Nor in the home tab, which is made of this.
    let owned = desk.of_owner(&view.live[0].owner).await.unwrap();
    assert_eq!(owned.live.len(), 1);
    assert!(!owned.live[0].name.contains("hush"), "{owned:?}");
    drop(desk);
    said(&on).await;
    posted(&bot, &root, 4).await;
    for method in ["chat.postMessage", "chat.update"] {
        let all = format!("{:?}", slack.called(method, 1).await);
        assert!(!all.contains("hush"), "{all}");
    }
    bot.finish().await;
}
