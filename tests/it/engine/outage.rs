//! A model that is away or refuses, a store that is away, a channel that fails.

use dogwatch::core::execution::PostSort;
use dogwatch::core::limits::{BACKOFF_MS_MAX, OUTAGE_MS_MAX};
use dogwatch::ports::Progress;
use serde_json::json;

use super::main_job::waits;
use crate::support::bot::{Bot, Setup};
use crate::support::fake_llm::{Gate, Reply, chunk};
use crate::support::process::said;
use crate::support::stage::Reaction;
use crate::support::wire::{envelopes, trigger, user};

fn failed(progress: &Progress) -> bool {
    matches!(progress, Progress::Failed { .. })
}

/// The line that a person sees of the next failed attempt, and whether it is tried again.
async fn failure(bot: &Bot, count: usize) -> (String, bool) {
    let all = bot.wait("a failed attempt", bot.stage.shown_when(count, failed)).await;
    let Progress::Failed { what, again_at } = all[count - 1].clone() else { unreachable!() };
    (what, again_at.is_some())
}

async fn is_tried_again(reply: Reply, named: &[&str]) {
    let bot = Bot::with(Setup { idle_ms: 400, header_ms: 2_000, ..Setup::default() }).await;
    bot.llm.will(reply);
    bot.llm.will(Reply::text("Here I am."));
    bot.say("hello").await;
    let (what, again) = failure(&bot, 1).await;
    assert!(again, "{what}");
    assert!(named.iter().any(|word| what.contains(word)), "{what}");
    assert!(bot.stage.posted().is_empty());
    let view = bot.view().await;
    assert!(view.not_before.is_some() && view.turn.is_some());
    bot.pass(BACKOFF_MS_MAX).await;
    assert_eq!(bot.posts(1).await[0].text, "Here I am.");
    bot.quiet().await;
    assert_eq!((bot.llm.seen_now().len(), bot.stage.posted().len()), (2, 1));
    bot.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_503_is_said_and_tried_again() {
    is_tried_again(Reply::status(503).error("overloaded"), &["503"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_429_is_said_and_tried_again() {
    let reply = Reply::status(429).header("retry-after", "7").error("slow down");
    is_tried_again(reply, &["429"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_stalls_is_said_and_tried_again() {
    let reply = Reply::stream().data(&chunk::text("Half an ans")).stall();
    is_tried_again(reply, &["silent", "silence", "nothing", "stall", "ms", " s"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_cut_is_said_and_tried_again() {
    let reply = Reply::stream().data(&chunk::text("Half an ans")).cut();
    is_tried_again(reply, &["broke", "cut", "ended", "closed", "connection"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_without_an_end_is_said_and_tried_again() {
    let reply = Reply::stream().data(&chunk::text("Half an ans"));
    is_tried_again(reply, &["ended", "end", "cut", "broke"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_is_said_and_a_message_does_not_wait() {
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let base_url = Some(format!("http://127.0.0.1:{port}/v1"));
    let bot = Bot::with(Setup { base_url, ..Setup::default() }).await;
    bot.say("hello").await;
    let (what, again) = failure(&bot, 1).await;
    assert!(again && what.contains("away"), "{what}");
    // A person's message clears the wait; no time is skipped.
    bot.say("hello?").await;
    failure(&bot, 2).await;
    let view = bot.view().await;
    assert!(view.turn.is_some());
    // Commands work while the model is down.
    bot.stop(dogwatch::core::execution::Scope::Turn).await;
    let view = bot.view().await;
    assert_eq!((view.turn, view.people), (None, 0));
    bot.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_clears_the_wait_and_both_are_answered() {
    let bot = Bot::start().await;
    bot.llm.will(Reply::status(500));
    bot.llm.will(Reply::text("Both."));
    bot.say("one").await;
    failure(&bot, 1).await;
    bot.say("two").await;
    assert_eq!(bot.posts(1).await[0].text, "Both.");
    let seen = bot.asked(2).await;
    let heard = user(&seen[1]).concat();
    assert!(heard.contains("one") && heard.contains("two"), "{heard}");
    bot.quiet().await;
    bot.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b07_what_the_model_refuses_dies_is_told_once_and_holds_nobody_up() {
    for status in [400, 401] {
        let mut bot = Bot::start().await;
        let on = bot.fifo("on");
        bot.llm.will(trigger("Watch it", &waits(&on, "print('green')"), 60));
        bot.llm.will(Reply::text("Started."));
        bot.say("watch it").await;
        bot.posts(1).await;
        bot.quiet().await;
        bot.llm.will(Reply::status(status).error("no such model"));
        said(&on).await;
        let (what, again) = failure(&bot, 1).await;
        assert!(!again && what.contains(&status.to_string()), "{what}");
        let posts = bot.posts(2).await;
        assert_eq!(posts[1].sort, PostSort::Failure);
        assert!(posts[1].text.contains("I could not answer"), "{}", posts[1].text);
        bot.quiet().await;
        // Nothing of it comes again, also not after a start.
        bot.crash().await;
        bot.boot().await;
        bot.pass(OUTAGE_MS_MAX).await;
        bot.llm.will(Reply::text("Hello!"));
        bot.say("hello").await;
        assert_eq!(bot.posts(3).await[2].text, "Hello!");
        let seen = bot.asked(4).await;
        assert_eq!(envelopes(&seen[3]), 0);
        bot.quiet().await;
        let sum = bot.finish().await;
        assert_eq!(sum.fates["dead"], 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b07_a_notice_that_never_gets_through_dies_at_the_cap() {
    let bot = Bot::start().await;
    let on = bot.fifo("on");
    bot.llm.will(trigger("Watch it", &waits(&on, "print('green')"), 60));
    bot.llm.will(Reply::text("Started."));
    bot.say("watch it").await;
    bot.posts(1).await;
    bot.quiet().await;
    // Answers that are none: each is an attempt.
    bot.llm.otherwise(|_| Reply::stream().raw("data: {\"choices\":\n\n").done());
    said(&on).await;
    for attempt in 1..=5 {
        let (what, again) = failure(&bot, attempt).await;
        assert_eq!(again, attempt < 5, "{attempt}: {what}");
        bot.pass(BACKOFF_MS_MAX).await;
    }
    let posts = bot.posts(2).await;
    assert_eq!(posts[1].sort, PostSort::Failure);
    bot.quiet().await;
    assert_eq!(bot.llm.seen_now().len(), 7);
    bot.llm.otherwise(|_| Reply::text("Hello!"));
    bot.say("hello").await;
    bot.posts(3).await;
    bot.quiet().await;
    assert_eq!(bot.finish().await.fates["dead"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_hours_is_told_once_and_a_later_message_is_answered() {
    let bot = Bot::start().await;
    bot.llm.otherwise(|_| Reply::status(503));
    bot.say("hello").await;
    let mut failures = 0;
    loop {
        failures += 1;
        let (_, again) = failure(&bot, failures).await;
        if !again {
            break;
        }
        assert!(failures < 40);
        bot.pass(BACKOFF_MS_MAX).await;
    }
    let posts = bot.posts(1).await;
    assert_eq!((posts.len(), posts[0].sort), (1, PostSort::Failure));
    bot.quiet().await;
    bot.llm.otherwise(|_| Reply::text("Hello!"));
    bot.say("are you back?").await;
    assert_eq!(bot.posts(2).await[1].text, "Hello!");
    bot.quiet().await;
    bot.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_arguments_are_told_to_the_model_and_the_turn_goes_on() {
    let bot = Bot::start().await;
    bot.llm.will(Reply::call("c1", "trigger_and_auto_notify", "{\"name\": \"Watch"));
    bot.llm.will(Reply::call("c2", "trigger_and_auto_notify", &json!({"nam": 1}).to_string()));
    bot.llm.will(Reply::call("c3", "triger", "{}"));
    bot.llm.will(Reply::text("I cannot do it."));
    bot.say("watch it").await;
    let seen = bot.asked(4).await;
    let codes: Vec<String> = crate::support::wire::results(&seen[3])
        .iter()
        .map(|result| result["error"]["code"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(codes[0], "invalid_json");
    assert_eq!(codes[2], "unknown_tool");
    assert_eq!(bot.posts(1).await[0].text, "I cannot do it.");
    bot.quiet().await;
    assert_eq!(bot.finish().await.registered, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_away_holds_a_turn_and_loses_nothing() {
    let bot = Bot::start().await;
    let gate = Gate::default();
    bot.llm.will(Reply::text("Hello!").hold_head(&gate));
    bot.say("hello").await;
    bot.asked(1).await;
    bot.hand.away(true);
    gate.open();
    let refused = bot.deliver("main", "other", "are you there?").await.unwrap_err().to_string();
    assert!(refused.contains("sending it again"), "{refused}");
    bot.hand.away(false);
    bot.clock.jump(2_000);
    assert_eq!(bot.posts(1).await[0].text, "Hello!");
    bot.quiet().await;
    assert_eq!(bot.llm.seen_now().len(), 1);
    bot.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_cannot_be_recorded_is_reported_until_it_is() {
    let bot = Bot::start().await;
    let on = bot.fifo("on");
    bot.llm.will(trigger("Watch it", &waits(&on, "print('green')"), 60));
    bot.llm.will(Reply::text("Started."));
    bot.say("watch it").await;
    bot.posts(1).await;
    bot.quiet().await;
    bot.hand.away(true);
    said(&on).await;
    for pid in crate::support::process::processes_of(bot.path()) {
        assert!(crate::support::process::ends(pid));
    }
    bot.llm.will(Reply::text("It is green."));
    bot.hand.away(false);
    bot.clock.jump(BACKOFF_MS_MAX);
    assert_eq!(bot.posts(2).await[1].text, "It is green.");
    bot.quiet().await;
    assert_eq!(bot.finish().await.fates["acked"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_channel_that_fails_is_tried_again_in_order_and_a_dead_letter_stops_nobody() {
    let bot = Bot::start().await;
    for reaction in [Reaction::Retry, Reaction::Retry] {
        bot.stage.will(reaction);
    }
    bot.llm.will(Reply::text("one"));
    bot.llm.will(Reply::text("two"));
    bot.say("first").await;
    bot.wait("a try", bot.stage.tried(1)).await;
    bot.say("second").await;
    bot.until("the second turn", |view| view.turn.is_none() && view.people == 0).await;
    bot.asked(2).await;
    for count in 2..4 {
        bot.pass(BACKOFF_MS_MAX).await;
        bot.wait("a try", bot.stage.tried(count)).await;
    }
    let texts: Vec<_> = bot.posts(2).await.into_iter().map(|post| post.text).collect();
    assert_eq!(texts, ["one", "two"]);
    bot.quiet().await;
    bot.stage.will(Reaction::Never);
    bot.llm.will(Reply::text("three"));
    bot.llm.will(Reply::text("four"));
    bot.say("third").await;
    bot.wait("a dead letter", bot.stage.tried(5)).await;
    bot.quiet().await;
    bot.say("fourth").await;
    let texts: Vec<_> = bot.posts(3).await.into_iter().map(|post| post.text).collect();
    assert_eq!(texts, ["one", "two", "four"]);
    bot.quiet().await;
    assert_eq!(bot.finish().await.dead_letters, 1);
}
