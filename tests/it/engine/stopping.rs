//! Stop of a turn, stop of everything, and cancels, by people and by the model.

use dogwatch::core::execution::{Fate, ModelReceipt, Scope, State, Status};
use dogwatch::core::limits::{BACKOFF_MS_MAX, OUTAGE_MS_MAX};
use dogwatch::ports::Done;

use super::main_job::waits;
use crate::support::bot::Bot;
use crate::support::fake_llm::Reply;
use crate::support::process::{ends, pids, said};
use crate::support::wire::{envelopes, results, trigger, user};

const FIRST: &str = "auto-notify-watc-0001";

/// Says its pid, then waits for ever.
fn for_ever(up: &str) -> String {
    format!(
        "import os, time\nprint('up', flush=True)\nprint(os.getpid(), file=open({up:?}, 'w'))\n\
         time.sleep(600)"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_turn_ends_the_turn_and_lets_work_live() {
    let bot = Bot::start().await;
    let on = bot.fifo("on");
    bot.llm.will(trigger("Watch it", &waits(&on, "print('green')"), 600));
    bot.llm.will(Reply::stream().stall());
    bot.say("watch it").await;
    bot.asked(2).await;
    assert_eq!(bot.stop(Scope::Turn).await, Done::Stopped { ended: 0, turn: true });
    bot.wait("the client to go", bot.llm.left(1)).await;
    let view = bot.quiet().await;
    assert_eq!((view.live.len(), view.stopped), (1, false));
    bot.llm.will(Reply::text("It is green."));
    said(&on).await;
    assert_eq!(bot.posts(1).await[0].text, "It is green.");
    let seen = bot.asked(3).await;
    assert!(user(&seen[2]).concat().contains("the turn was stopped by local"));
    bot.quiet().await;
    assert_eq!(bot.finish().await.fates["acked"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn b46_stop_all_works_while_the_model_is_down_and_nothing_wakes_after_it() {
    let mut bot = Bot::start().await;
    let up = bot.fifo("up");
    bot.llm.will(trigger("Watch it", &for_ever(&up), 600));
    bot.llm.otherwise(|_| Reply::status(503));
    bot.say("watch it").await;
    let pid = pids(&up).await[0];
    bot.asked(2).await;
    bot.until("a failed attempt", |view| view.not_before.is_some()).await;
    assert_eq!(bot.stop(Scope::All).await, Done::Stopped { ended: 1, turn: true });
    let view = bot.quiet().await;
    assert!(view.stopped && view.live.is_empty());
    assert_eq!(view.ended[0].model, ModelReceipt::Fate(Fate::Stopped));
    assert!(tokio::task::spawn_blocking(move || ends(pid)).await.unwrap());
    // The killed process reports its end; nobody is woken, however long and often one looks.
    let asked = bot.llm.seen_now().len();
    bot.pass(OUTAGE_MS_MAX).await;
    bot.crash().await;
    bot.boot().await;
    bot.pass(OUTAGE_MS_MAX).await;
    assert_eq!(bot.llm.seen_now().len(), asked);
    assert!(bot.stage.posted().is_empty());
    bot.llm.otherwise(|_| Reply::text("Hello again."));
    bot.say("hello").await;
    bot.posts(1).await;
    let seen = bot.asked(asked + 1).await;
    assert_eq!(envelopes(seen.last().unwrap()), 0);
    bot.quiet().await;
    assert_eq!(bot.finish().await.fates["stopped"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_cancels_and_the_notice_rides_with_the_next_turn() {
    let bot = Bot::start().await;
    let up = bot.fifo("up");
    bot.llm.will(trigger("Watch it", &for_ever(&up), 600));
    bot.llm.will(Reply::text("Started."));
    bot.say("watch it").await;
    let pid = pids(&up).await[0];
    bot.posts(1).await;
    bot.quiet().await;
    assert_eq!(bot.cancel(FIRST).await, Done::Cancelling);
    let view = bot.until("its end", |view| view.live.is_empty()).await;
    assert!(tokio::task::spawn_blocking(move || ends(pid)).await.unwrap());
    assert_eq!((view.turn, view.notices), (None, 1));
    assert_eq!(bot.cancel(FIRST).await, Done::Over(Status::Cancelled));
    assert_eq!(bot.cancel("auto-notify-none-0009").await, Done::Unknown);
    bot.pass(BACKOFF_MS_MAX).await;
    assert_eq!(bot.llm.seen_now().len(), 2);
    bot.llm.will(Reply::text("You cancelled it."));
    bot.say("what about it?").await;
    bot.posts(2).await;
    let seen = bot.asked(3).await;
    assert_eq!(envelopes(&seen[2]), 1);
    assert!(user(&seen[2]).concat().contains("status=cancelled"));
    bot.quiet().await;
    assert_eq!(bot.finish().await.fates["acked"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn b20_what_the_model_cancels_is_delivered_in_the_result_and_never_again() {
    let bot = Bot::start().await;
    let up = bot.fifo("up");
    bot.llm.will(trigger("Watch it", &for_ever(&up), 600));
    bot.llm.will(Reply::text("Started."));
    bot.say("watch it").await;
    pids(&up).await;
    bot.posts(1).await;
    bot.quiet().await;
    bot.llm.will(Reply::call("c2", "watch__cancel", &format!("{{\"id\":\"{FIRST}\"}}")));
    bot.llm.will(Reply::text("Cancelled."));
    bot.say("cancel it").await;
    bot.posts(2).await;
    let seen = bot.asked(4).await;
    let given = results(&seen[3]).pop().unwrap();
    assert!(given.to_string().contains("cancelled") && given.to_string().contains("up"), "{given}");
    bot.quiet().await;
    for _ in 0..24 {
        bot.pass(3_600_000).await;
    }
    assert_eq!(bot.llm.seen_now().len(), 4);
    assert!(bot.notices("main").await.is_empty());
    assert_eq!(bot.finish().await.fates["collected"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn b30_a_newer_one_with_the_same_key_ends_the_older_silently() {
    let bot = Bot::start().await;
    let (up, on) = (bot.fifo("up"), bot.fifo("on"));
    let with_key = |script: String| {
        let given = serde_json::json!({
            "name": "Watch it", "python": script, "timeout_seconds": 600, "key": "deploy",
        });
        Reply::call("c1", "trigger_and_auto_notify", &given.to_string())
    };
    bot.llm.will(with_key(for_ever(&up)));
    bot.llm.will(Reply::text("Started."));
    bot.say("watch it").await;
    let pid = pids(&up).await[0];
    bot.posts(1).await;
    bot.quiet().await;
    bot.llm.will(with_key(waits(&on, "print('newer')")));
    bot.llm.will(Reply::text("Replaced."));
    bot.say("watch it anew").await;
    bot.posts(2).await;
    assert!(tokio::task::spawn_blocking(move || ends(pid)).await.unwrap());
    let view = bot.quiet().await;
    assert_eq!(view.live.len(), 1);
    let older = bot.execution(FIRST).await;
    assert_eq!(older.model, ModelReceipt::Fate(Fate::Superseded));
    bot.llm.will(Reply::text("The newer one is done."));
    said(&on).await;
    bot.posts(3).await;
    let seen = bot.asked(5).await;
    let told = user(&seen[4]).concat();
    assert_eq!(envelopes(&seen[4]), 1);
    assert!(told.contains("newer") && !told.contains("superseded"), "{told}");
    bot.quiet().await;
    bot.pass(700_000).await;
    assert_eq!(bot.llm.seen_now().len(), 5);
    let sum = bot.finish().await;
    assert_eq!((sum.fates["superseded"], sum.fates["acked"]), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn b29_a_late_end_of_what_was_stopped_is_a_fact_and_touches_nothing_else() {
    // The older one is ended by the ledger before its process says how it ended.
    let bot = Bot::start().await;
    let (up, on) = (bot.fifo("up"), bot.fifo("on"));
    bot.llm.will(trigger("Watch it", &for_ever(&up), 600));
    bot.llm.will(Reply::text("Started."));
    bot.say("watch it").await;
    pids(&up).await;
    bot.posts(1).await;
    bot.quiet().await;
    bot.stop(Scope::All).await;
    bot.llm.will(trigger("Watch it", &waits(&on, "print('second')"), 600));
    bot.llm.will(Reply::text("Started anew."));
    bot.say("watch it again").await;
    bot.posts(2).await;
    let first = async {
        loop {
            let first = bot.execution(FIRST).await;
            if !first.late.is_empty() {
                return first;
            }
            bot.hand.applies().changed().await.unwrap();
        }
    };
    let first = bot.wait("its own report", first).await;
    let State::Ended(outcome) = &first.state else { panic!("it lives") };
    assert_eq!(outcome.status, Status::Cancelled);
    assert_eq!(first.model, ModelReceipt::Fate(Fate::Stopped));
    bot.llm.will(Reply::text("The second is done."));
    said(&on).await;
    let posts = bot.posts(3).await;
    assert_eq!(posts[2].address.thread, "main");
    bot.quiet().await;
    let seen = bot.llm.seen_now();
    assert_eq!((seen.len(), envelopes(&seen[4])), (5, 1));
    let sum = bot.finish().await;
    assert_eq!((sum.fates["stopped"], sum.fates["acked"]), (1, 1));
}
