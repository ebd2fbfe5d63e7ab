//! What arrives while a turn runs, and what arrives together.

use serde_json::Value;

use super::main_job::waits;
use crate::support::bot::{Bot, Setup};
use crate::support::fake_llm::{Gate, Reply};
use crate::support::process::{ends, processes_of, said};
use crate::support::wire::{MARKER, arguments, envelopes, last, results, trigger, user};
use dogwatch::core::budget::Limits;

fn notifications(result: &Value) -> Vec<String> {
    let all = result["system_notifications"].as_array().cloned().unwrap_or_default();
    all.iter().map(|one| one.as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_completion_steers_a_busy_turn_in_its_last_tool_result() {
    let bot = Bot::start().await;
    let on = bot.fifo("on");
    let gate = Gate::default();
    bot.llm.will(trigger("Watch it", &waits(&on, "print('green')"), 60));
    let probes = [
        ("c2", "watch__list", "{}"),
        ("c3", "watch__output", "{\"id\":\"auto-notify-watc-0001\"}"),
    ];
    bot.llm.will(Reply::calls(&probes).hold_head(&gate));
    bot.llm.will(Reply::text("It is green."));
    bot.say("watch it, then look around").await;
    bot.asked(2).await;
    said(&on).await;
    bot.until("the end", |view| view.notices == 1).await;
    gate.open();
    assert_eq!(bot.posts(1).await[0].text, "It is green.");
    let seen = bot.asked(3).await;
    let results = results(&seen[2]);
    assert_eq!(results.len(), 3);
    assert_eq!(notifications(&results[0]).len() + notifications(&results[1]).len(), 0);
    let told = notifications(&results[2]);
    assert_eq!(told.len(), 1);
    assert!(told[0].starts_with(MARKER) && told[0].contains("green"), "{told:?}");
    assert!(results[2]["notification_instruction"].is_string());
    assert_eq!((envelopes(&seen[2]), user(&seen[2]).len()), (1, 1));
    bot.quiet().await;
    assert_eq!(bot.llm.seen_now().len(), 3);
    assert_eq!(bot.finish().await.fates["acked"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn b18_what_comes_at_a_turns_end_adds_a_round_and_stands_once() {
    let bot = Bot::start().await;
    let on = bot.fifo("on");
    let gate = Gate::default();
    bot.llm.will(trigger("Watch it", &waits(&on, "print('green')"), 60));
    bot.llm.will(Reply::text("I started it.").hold_head(&gate));
    bot.llm.will(Reply::text("And it is green."));
    bot.say("watch it").await;
    bot.asked(2).await;
    said(&on).await;
    bot.until("the end", |view| view.notices == 1).await;
    gate.open();
    let posts = bot.posts(2).await;
    assert_eq!([&posts[0].text, &posts[1].text], ["I started it.", "And it is green."]);
    bot.quiet().await;
    bot.llm.will(Reply::text("Bye."));
    bot.say("thanks").await;
    let seen = bot.asked(4).await;
    assert_eq!(envelopes(&seen[3]), 1);
    assert_eq!(bot.notices("main").await.len(), 1);
    bot.posts(3).await;
    bot.quiet().await;
    bot.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn completions_that_stand_together_are_one_turn() {
    let limits = Limits { extra_rounds: 0, ..Limits::default() };
    let bot = Bot::with(Setup { limits, ..Setup::default() }).await;
    let (a, b) = (bot.fifo("a"), bot.fifo("b"));
    let gate = Gate::default();
    let name = "trigger_and_auto_notify";
    let first = arguments("First", &waits(&a, "print('one')"), 60);
    let second = arguments("Second", &waits(&b, "raise SystemExit(2)"), 60);
    bot.llm.will(Reply::calls(&[("c1", name, &first), ("c2", name, &second)]));
    bot.llm.will(Reply::text("Both run.").hold_head(&gate));
    bot.llm.will(Reply::text("One is well, one failed."));
    bot.say("start two").await;
    bot.asked(2).await;
    said(&a).await;
    said(&b).await;
    bot.until("both ends", |view| view.notices == 2).await;
    gate.open();
    assert_eq!(bot.posts(2).await[1].text, "One is well, one failed.");
    let seen = bot.asked(3).await;
    let text = last(&seen[2])["content"].as_str().unwrap().to_owned();
    assert!(text.starts_with("[AUTO-NOTIFICATION] 2 background completions:\n"), "{text}");
    assert!(
        text.contains("- **First** completed") && text.contains("- **Second** failed"),
        "{text}"
    );
    assert_eq!(envelopes(&seen[2]), 1);
    bot.quiet().await;
    assert_eq!(bot.llm.seen_now().len(), 3);
    assert_eq!(bot.finish().await.fates["acked"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn b19_twenty_completions_in_a_busy_chat_are_one_copy_each() {
    let bot = Bot::start().await;
    let gate = Gate::default();
    let made: Vec<(String, String)> = (0..20)
        .map(|i| (format!("c{i}"), arguments(&format!("Work {i:02}"), &format!("print({i})"), 60)))
        .collect();
    let calls: Vec<(&str, &str, &str)> =
        made.iter().map(|(id, given)| (&**id, "trigger_and_auto_notify", &**given)).collect();
    bot.llm.will(Reply::calls(&calls));
    bot.llm.will(Reply::call("look", "watch__list", "{}").hold_head(&gate));
    bot.llm.otherwise(|_| Reply::text("Noted."));
    bot.say("start twenty").await;
    bot.asked(2).await;
    bot.until("all ends", |view| view.live.is_empty()).await;
    gate.open();
    bot.posts(1).await;
    bot.quiet().await;
    let notices = bot.notices("main").await.concat();
    for i in 0..20 {
        assert_eq!(notices.matches(&format!("Work {i:02}")).count(), 1, "{notices}");
    }
    // Those that ended while the twenty were started came with their results; the rest in one.
    let seen = bot.llm.seen_now();
    assert!(seen.len() <= 4, "{} requests", seen.len());
    assert_eq!(bot.finish().await.fates["acked"], 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn b33_a_notice_goes_to_the_chat_that_started_the_work() {
    let bot = Bot::start().await;
    let on = bot.fifo("on");
    let gate = Gate::default();
    bot.llm.will(trigger("Watch one", &waits(&on, "print('done')"), 60));
    bot.llm.will(Reply::text("Started in one."));
    bot.say_in("one", "watch it").await;
    bot.posts(1).await;
    // The other chat is busy, and the last one that was used.
    bot.llm.will(Reply::text("Here in two.").hold_head(&gate));
    bot.say_in("two", "are you here?").await;
    bot.asked(3).await;
    bot.llm.will(Reply::text("One is done."));
    said(&on).await;
    let posts = bot.posts(2).await;
    assert_eq!((posts[1].session.as_str(), &*posts[1].text), ("console/one", "One is done."));
    assert_eq!(posts[1].address.thread, "one");
    gate.open();
    let posts = bot.posts(3).await;
    assert_eq!((posts[2].session.as_str(), &*posts[2].text), ("console/two", "Here in two."));
    let trace = serde_json::to_string(&bot.log("two").await).unwrap();
    assert!(!trace.contains("Watch one") && !trace.contains("auto-notify"), "{trace}");
    let seen = bot.asked(4).await;
    assert_eq!((envelopes(&seen[2]), envelopes(&seen[3])), (0, 1));
    bot.until("one is quiet", |_| true).await;
    bot.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_steers_a_busy_turn_and_quick_messages_are_one_turn() {
    let bot = Bot::start().await;
    let gate = Gate::default();
    bot.llm.will(Reply::call("c1", "watch__list", "{}").hold_head(&gate));
    bot.llm.will(Reply::text("Both answered."));
    bot.say("first").await;
    bot.say("second").await;
    let seen = bot.asked(1).await;
    assert_eq!(user(&seen[0]), ["first\n\nsecond"]);
    bot.say("third").await;
    bot.until("the third", |view| view.people == 1).await;
    gate.open();
    let seen = bot.asked(2).await;
    assert_eq!(last(&seen[1])["content"], "third");
    bot.posts(1).await;
    bot.quiet().await;
    assert_eq!(bot.llm.seen_now().len(), 2);
    assert!(processes_of(bot.path()).is_empty());
    bot.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b27_a_person_is_answered_before_an_older_notice() {
    let mut bot = Bot::start().await;
    let (up, on) = (bot.fifo("up"), bot.fifo("on"));
    let script = format!("open({up:?}, 'w').close()\n{}", waits(&on, "print('broken')"));
    bot.llm.will(trigger("Nightly build", &script, 600));
    bot.llm.will(Reply::text("Started."));
    bot.say("watch the build").await;
    bot.posts(1).await;
    said(&up).await;
    bot.quiet().await;
    bot.crash().await;
    said(&on).await;
    for pid in processes_of(bot.path()) {
        assert!(ends(pid));
    }
    // The bot comes back, and the model is away.
    let gate = Gate::default();
    bot.llm.will(Reply::status(503).hold_head(&gate));
    bot.boot().await;
    bot.asked(3).await;
    gate.open();
    bot.until("a failed attempt", |view| view.not_before.is_some()).await;
    bot.llm.will(Reply::text("Ten euros. And the build is broken."));
    bot.say("what does the ticket cost?").await;
    let seen = bot.asked(4).await;
    let said = user(&seen[3]);
    // The notice of the open turn came first and stays first; the question is the last word.
    assert!(said.last().unwrap().ends_with("what does the ticket cost?"), "{said:?}");
    assert_eq!(envelopes(&seen[3]), 1);
    bot.posts(2).await;
    bot.quiet().await;
    bot.finish().await;
}
