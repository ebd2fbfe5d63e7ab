//! A bot that is gone at any point of a turn, and what the next one makes of it.

use std::sync::atomic::{AtomicUsize, Ordering};

use dogwatch::core::execution::{Execution, State};
use dogwatch::core::ledger::row::{RowType, Turn, TurnState};
use dogwatch::core::limits::{ALONE_MS_MAX, CROWD_ATTEMPTS_MAX};
use dogwatch::core::transcript::{Body, Entry};
use dogwatch::store::{Settings, Sqlite};

use super::main_job::waits;
use crate::support::bot::{Bot, session};
use crate::support::fake_llm::{Gate, Reply};
use crate::support::process::{processes_of, said};
use crate::support::stage::Reaction;
use crate::support::tap::At;
use crate::support::wire::{arguments, envelopes, results, trigger, user};

fn is_answer(entry: &Entry) -> bool {
    matches!(entry.body, Body::Model { .. })
}

fn is_result(entry: &Entry, no: u32) -> bool {
    matches!(entry.body, Body::Tool { call, .. } if call == no)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_goes_on_whose_model_had_not_answered() {
    let mut bot = Bot::start().await;
    bot.llm.will(Reply::stream().stall());
    bot.say("hello").await;
    bot.asked(1).await;
    bot.crash().await;
    bot.llm.will(Reply::text("Hello!"));
    bot.boot().await;
    assert_eq!(bot.posts(1).await[0].text, "Hello!");
    let seen = bot.asked(2).await;
    assert_eq!(seen[0].body["messages"], seen[1].body["messages"]);
    bot.quiet().await;
    assert_eq!((bot.llm.seen_now().len(), bot.stage.posted().len()), (2, 1));
    bot.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_was_not_written_is_asked_for_again_once() {
    let mut bot = Bot::start().await;
    let trap = bot.hand.trap_row(At::Before, is_answer);
    bot.llm.otherwise(|_| Reply::text("Hello!"));
    bot.say("hello").await;
    bot.wait("the answer", trap.caught()).await;
    bot.crash().await;
    bot.boot().await;
    bot.posts(1).await;
    bot.quiet().await;
    assert_eq!((bot.llm.seen_now().len(), bot.stage.posted().len()), (2, 1));
    bot.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_was_written_is_not_asked_for_again() {
    let mut bot = Bot::start().await;
    let trap = bot.hand.trap_row(At::After, is_answer);
    bot.llm.otherwise(|_| Reply::text("Hello!"));
    bot.say("hello").await;
    bot.wait("the answer", trap.caught()).await;
    bot.crash().await;
    bot.boot().await;
    bot.posts(1).await;
    bot.quiet().await;
    assert_eq!((bot.llm.seen_now().len(), bot.stage.posted().len()), (1, 1));
    bot.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_between_results_keeps_the_first_and_runs_the_second() {
    for at in [At::Before, At::After] {
        let mut bot = Bot::start().await;
        let on = bot.fifo("on");
        let trap = bot.hand.trap_row(at, |entry| is_result(entry, 0));
        let start = arguments("Watch it", &waits(&on, "print('green')"), 60);
        let calls = [("c1", "trigger_and_auto_notify", &*start), ("c2", "watch__list", "{}")];
        bot.llm.will(Reply::calls(&calls));
        bot.llm.will(Reply::text("Started."));
        bot.llm.will(Reply::text("It is green."));
        bot.say("watch it").await;
        bot.wait("the first result", trap.caught()).await;
        // Its shim is there and waits for "go"; without it, it would be lost as never started.
        while processes_of(bot.path()).is_empty() {
            crate::support::process::pause().await;
        }
        bot.crash().await;
        bot.boot().await;
        bot.posts(1).await;
        let seen = bot.asked(2).await;
        let results = results(&seen[1]);
        assert_eq!(results[0]["execution_id"], "auto-notify-watc-0001", "{at:?}");
        assert_eq!(results.len(), 2, "{at:?}");
        said(&on).await;
        assert_eq!(bot.posts(2).await[1].text, "It is green.");
        bot.quiet().await;
        assert_eq!(bot.llm.seen_now().len(), 3);
        assert_eq!(bot.finish().await.registered, 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b109_what_was_said_to_be_started_is_in_the_record() {
    // The id is given only after the record: whoever holds it finds the execution.
    let mut bot = Bot::start().await;
    let ran = bot.path().join("ran");
    let script = format!("open({:?}, 'a').write('x')", ran.display());
    let trap =
        bot.hand.trap_row(At::After, |execution: &Execution| execution.state == State::Registered);
    bot.llm.will(trigger("Watch it", &script, 60));
    bot.llm.otherwise(|_| Reply::text("So be it."));
    bot.say("watch it").await;
    bot.wait("the record", trap.caught()).await;
    bot.crash().await;
    assert!(!ran.exists());
    bot.boot().await;
    bot.posts(1).await;
    // It was never launched: the record says so, and whether it ran is no question.
    bot.until("its end", |view| view.live.is_empty()).await;
    bot.quiet().await;
    let execution = bot.execution("auto-notify-watc-0001").await;
    let State::Ended(outcome) = execution.state else { panic!("it lives") };
    assert_eq!(outcome.reason.as_deref(), Some("never-started"));
    assert!(!ran.exists());
    assert_eq!(bot.notices("main").await.len(), 1);
    let sum = bot.finish().await;
    assert_eq!((sum.registered, sum.fates["acked"]), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn b109_a_message_that_was_taken_is_answered_after_a_crash() {
    let mut bot = Bot::start().await;
    let claims = bot.hand.trap_row(At::Before, |turn: &Turn| turn.len == 1);
    bot.llm.otherwise(|_| Reply::text("Hello!"));
    bot.say("hello").await;
    bot.wait("a claim", claims.caught()).await;
    bot.crash().await;
    bot.boot().await;
    // The sender saw no answer and sends it again.
    bot.deliver("main", "said-0", "hello").await.unwrap();
    bot.posts(1).await;
    bot.quiet().await;
    assert_eq!((bot.llm.seen_now().len(), bot.stage.posted().len()), (1, 1));
    bot.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_post_that_was_under_way_is_delivered_at_once_and_marked() {
    for reaction in [Reaction::Stall, Reaction::PostedUnheard] {
        let mut bot = Bot::start().await;
        bot.stage.will(reaction);
        bot.llm.otherwise(|_| Reply::text("Hello!"));
        bot.say("hello").await;
        bot.wait("a post", bot.stage.tried(1)).await;
        bot.crash().await;
        bot.boot().await;
        // No time is skipped: the lease of a dead boot is void.
        let tried = bot.wait("the next try", bot.stage.tried(2)).await;
        assert!(!tried[0].may_repeat && tried[1].may_repeat, "{reaction:?}");
        assert_eq!(tried[0].item, tried[1].item);
        bot.quiet().await;
        assert_eq!(bot.llm.seen_now().len(), 1);
        bot.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_was_not_heard_of_is_a_commit() {
    let mut bot = Bot::start().await;
    let trap = bot.hand.trap_row(At::After, |turn: &Turn| turn.state == TurnState::Committed);
    bot.llm.otherwise(|_| Reply::text("Hello!"));
    bot.say("hello").await;
    bot.wait("the commit", trap.caught()).await;
    bot.crash().await;
    bot.boot().await;
    bot.posts(1).await;
    bot.quiet().await;
    assert_eq!(bot.llm.seen_now().len(), 1);
    bot.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b05_a_notice_that_was_before_the_model_is_offered_once_after_a_crash() {
    for at in [At::Before, At::After] {
        let mut bot = Bot::start().await;
        let on = bot.fifo("on");
        bot.llm.will(trigger("Watch it", &waits(&on, "print('green')"), 60));
        bot.llm.will(Reply::text("Started."));
        bot.say("watch it").await;
        bot.posts(1).await;
        bot.quiet().await;
        // The synthetic turn is open, the model has the notice, the bot is gone.
        bot.llm.will(Reply::stream().stall());
        said(&on).await;
        bot.asked(3).await;
        bot.crash().await;
        let offered = |turn: &Turn| turn.state == TurnState::Committed;
        let trap = bot.hand.trap_row(at, offered);
        bot.llm.otherwise(|_| Reply::text("It is green."));
        bot.boot().await;
        bot.wait("the commit", trap.caught()).await;
        bot.crash().await;
        bot.boot().await;
        bot.posts(2).await;
        bot.quiet().await;
        let seen = bot.llm.seen_now();
        assert!(seen.iter().skip(2).all(|seen| envelopes(seen) == 1), "{at:?}");
        // The answer stood in the log: the commit alone was done again.
        assert_eq!((seen.len(), bot.stage.posted().len()), (4, 2), "{at:?}");
        assert_eq!(bot.notices("main").await.len(), 1);
        assert_eq!(bot.finish().await.fates["acked"], 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_graceful_end_hands_over_and_the_next_boot_goes_on() {
    let mut bot = Bot::start().await;
    let on = bot.fifo("on");
    bot.llm.will(trigger("Watch it", &waits(&on, "print('green')"), 600));
    bot.llm.will(Reply::stream().stall());
    bot.say("watch it").await;
    bot.asked(2).await;
    bot.shut_down().await;
    bot.llm.will(Reply::text("Started."));
    let restored = bot.boot().await;
    assert_eq!((restored.adopted, restored.ended), (1, 0));
    assert_eq!(bot.posts(1).await[0].text, "Started.");
    let turn = bot
        .rows("main")
        .await
        .values()
        .find_map(|row| <Turn as dogwatch::core::ledger::row::RowType>::of(row).cloned());
    // A handover is no failure.
    assert_eq!(turn.unwrap().attempt, 1);
    bot.llm.will(Reply::text("It is green."));
    said(&on).await;
    bot.posts(2).await;
    bot.quiet().await;
    bot.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_process_on_the_store_is_refused() {
    let bot = Bot::start().await;
    let settings = Settings { path: bot.path().join("data/dogwatch.db") };
    let refused = Sqlite::open(&settings).unwrap_err().to_string();
    assert!(refused.contains("in use") && refused.contains("process"), "{refused}");
    bot.llm.otherwise(|_| Reply::text("Still here."));
    bot.say("are you there?").await;
    bot.posts(1).await;
    bot.quiet().await;
    bot.finish().await;
}

/// Kills the bot at one write of the session and lets the next one go on to the end.
async fn killed_at(write: usize, at: At) {
    let mut bot = Bot::start().await;
    bot.llm.otherwise(|body| match body["messages"].as_array().unwrap().len() {
        2 => trigger("Watch it", "print('green')", 60),
        _ => Reply::text("Noted."),
    });
    let count = AtomicUsize::new(0);
    let trap = bot.hand.trap(at, move |change| {
        change.aggregate.session().is_some() && count.fetch_add(1, Ordering::Relaxed) == write
    });
    let everything = async {
        bot.deliver("main", "hello", "watch it").await.unwrap();
        bot.stage.posted_when(|all| all.len() >= 2).await;
    };
    tokio::select! {
        () = bot.wait("a write", trap.caught()) => {}
        () = everything => {}
    }
    bot.crash().await;
    bot.hand.disarm();
    bot.boot().await;
    bot.deliver("main", "hello", "watch it").await.unwrap();
    bot.posts(1).await;
    bot.until("the end", |view| view.live.is_empty() && view.turn.is_none()).await;
    bot.quiet().await;
    let notices = bot.notices("main").await;
    assert_eq!(notices.len(), 1, "{write} {at:?}");
    // One call more than without the crash, at most.
    assert!(bot.llm.seen_now().len() <= 4, "{write} {at:?}: {}", bot.llm.seen_now().len());
    let sum = bot.finish().await;
    assert_eq!((sum.registered, sum.arrivals), (1, 1), "{write} {at:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bot_that_is_killed_at_any_write_loses_and_doubles_nothing() {
    for write in 0..12 {
        killed_at(write, if write % 2 == 0 { At::Before } else { At::After }).await;
    }
}

/// How often this chat's only turn was tried since the model last answered in it.
async fn attempts(bot: &Bot, chat: &str) -> u32 {
    let rows = bot.rows(chat).await;
    rows.values().find_map(Turn::of).map_or(0, |turn| turn.attempt)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_takes_the_process_along_takes_no_other_along() {
    let mut bot = Bot::start().await;
    let asked = AtomicUsize::new(0);
    bot.llm.otherwise(move |body| {
        let deadly = body["messages"].to_string().contains("deadly");
        let early = !deadly && asked.fetch_add(1, Ordering::Relaxed) < 2;
        if deadly || early { Reply::stream().stall() } else { Reply::text("Here I am.") }
    });
    bot.say_in("deadly", "a deadly one").await;
    bot.asked(1).await;
    bot.say_in("other", "are you there?").await;
    // Twice both run, and both are gone with the process.
    for seen in [2, 4] {
        bot.asked(seen).await;
        bot.crash().await;
        bot.boot().await;
    }
    // From then on each runs alone, so whatever is asked while the process dies is to blame.
    for no in 5..=8 {
        let seen = bot.asked(no).await;
        let people = seen.get(no - 1).map(user).unwrap_or_default();
        if people.iter().any(|text| text.contains("deadly")) {
            assert!(attempts(&bot, "other").await <= CROWD_ATTEMPTS_MAX, "tried beside it");
            bot.crash().await;
            bot.boot().await;
        }
    }
    let posts = bot.posts(2).await;
    let of = |chat: &str| posts.iter().find(|post| post.session == session(chat)).unwrap();
    assert_eq!(of("other").text, "Here I am.");
    assert!(of("deadly").text.contains("I could not answer"), "{}", of("deadly").text);
    bot.quiet().await;
    assert_eq!(bot.llm.seen_now().len(), 5 + 3, "five of the one, three of the other");
    bot.finish().await;
}

/// A bot that was killed twice while it waited for the answer to a message of chat `slow`, and
/// runs that turn alone now.
async fn with_a_lone_turn(then: impl Fn(usize) -> Reply + Send + Sync + 'static) -> Bot {
    let mut bot = Bot::start().await;
    let asked = AtomicUsize::new(0);
    bot.llm.otherwise(move |body| {
        if !body["messages"].to_string().contains("slowly") {
            return Reply::text("Here I am.");
        }
        match asked.fetch_add(1, Ordering::Relaxed) {
            0 | 1 => Reply::stream().stall(),
            later => then(later - 2),
        }
    });
    bot.say_in("slow", "slowly").await;
    for seen in [1, 2] {
        bot.asked(seen).await;
        bot.crash().await;
        bot.boot().await;
    }
    bot.asked(3).await;
    bot
}

#[tokio::test(flavor = "multi_thread")]
async fn others_run_beside_a_lone_turn_once_the_model_has_answered() {
    let bot = with_a_lone_turn(|later| match later {
        0 => Reply::call("c1", "watch__list", "{}"),
        _ => Reply::stream().stall(),
    })
    .await;
    bot.asked(4).await;
    bot.say_in("other", "are you there?").await;
    let posts = bot.posts(1).await;
    assert_eq!((&posts[0].session, posts[0].text.as_str()), (&session("other"), "Here I am."));
    bot.llm.otherwise(|_| Reply::text("Done."));
}

#[tokio::test(flavor = "multi_thread")]
async fn others_run_beside_a_lone_turn_that_takes_too_long() {
    let mut bot = with_a_lone_turn(|_| Reply::stream().stall()).await;
    bot.say_in("other", "are you there?").await;
    assert_eq!(bot.view_of("other").await.people, 1, "it waits");
    bot.clock.jump(ALONE_MS_MAX);
    let posts = bot.posts(1).await;
    assert_eq!((&posts[0].session, posts[0].text.as_str()), (&session("other"), "Here I am."));
    // So the end of the process says nothing of it, and the next time it may take longer.
    bot.crash().await;
    bot.boot().await;
    bot.asked(5).await;
    let rows = bot.rows("slow").await;
    let turn = rows.values().find_map(Turn::of).unwrap();
    assert_eq!((turn.attempt, turn.failures), (CROWD_ATTEMPTS_MAX + 1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_answer_is_dropped_by_the_end_of_its_bot() {
    let mut bot = Bot::start().await;
    let gate = Gate::default();
    bot.llm.will(Reply::text("Too late.").hold_head(&gate));
    bot.say("hello").await;
    bot.asked(1).await;
    bot.shut_down().await;
    bot.wait("the client to go", bot.llm.left(1)).await;
    gate.open();
    bot.llm.will(Reply::text("Hello!"));
    bot.boot().await;
    assert_eq!(bot.posts(1).await[0].text, "Hello!");
    bot.quiet().await;
    bot.finish().await;
}
