//! Deadlines, leases and two nodes. A deadline is the only timer there is so far.

use std::sync::Arc;

use dogwatch::core::execution::{Execution, State, Status};
use dogwatch::core::ledger::Key;
use dogwatch::core::ledger::row::{Head, RowType};
use dogwatch::core::limits::{LEASE_MS, OVERDUE_MS, RENEW_MS};
use dogwatch::ports::{Clock, Store};
use dogwatch::store::Memory;

use super::waits;
use crate::support::bot::{Bot, Setup};
use crate::support::fake_llm::{Gate, Reply};
use crate::support::jump_clock::JumpClock;
use crate::support::process::{ends, pids, said};
use crate::support::wire::{envelopes, last, trigger};

const FIRST: &str = "auto-notify-watc-0001";
const HOUR_MS: u64 = 3_600_000;

/// Says its pid, then waits for ever.
fn for_ever(up: &str) -> String {
    format!("import os, time\nprint(os.getpid(), file=open({up:?}, 'w'))\ntime.sleep(6000)")
}

async fn two_nodes() -> (Bot, Bot) {
    let shared: Arc<dyn Store> = Arc::new(Memory::new(Arc::new(JumpClock::start())));
    let setup = || Setup { shared: Some(Arc::clone(&shared)), ..Setup::default() };
    let one = Bot::with(setup()).await;
    let two = one.node(setup()).await;
    (one, two)
}

async fn lane(bot: &Bot) -> Option<dogwatch::core::ledger::row::Lane> {
    bot.rows("main").await.get(&Key::head()).and_then(Head::of).and_then(|head| head.lane.clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn b104_of_two_nodes_one_ends_an_overdue_script_and_one_runs_its_turn() {
    let (one, two) = two_nodes().await;
    let up = one.fifo("up");
    one.llm.will(trigger("Watch it", &for_ever(&up), 3_000));
    one.llm.will(Reply::text("Started."));
    one.say("watch it").await;
    let script = pids(&up).await[0];
    one.posts(1).await;
    one.started().await;
    one.quiet().await;
    let gate = Gate::default();
    one.llm.will(Reply::text("It timed out.").hold_head(&gate));
    one.clock.jump(3_000_000 + 5_000 + OVERDUE_MS + 1);
    one.asked(3).await;
    // A turn of 150 s: its node renews the lane, the other one keeps off.
    for _ in 0..30 {
        one.clock.jump(RENEW_MS + 1);
        let renewed = async {
            while lane(&one)
                .await
                .is_none_or(|lane| lane.until.since_ms(one.clock.now()) < LEASE_MS - RENEW_MS)
            {
                tokio::task::yield_now().await;
            }
        };
        one.wait("a renewal", renewed).await;
    }
    gate.open();
    one.posts(2).await;
    one.quiet().await;
    let seen = one.llm.seen_now();
    assert_eq!((seen.len(), envelopes(&seen[2])), (3, 1));
    let State::Ended(outcome) = one.execution(FIRST).await.state else { panic!("it lives") };
    assert_eq!(outcome.status, Status::TimedOut);
    assert!(tokio::task::spawn_blocking(move || ends(script)).await.unwrap());
    two.finish().await;
    assert_eq!(one.finish().await.fates["acked"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn b107_a_node_that_stood_still_finds_its_turn_done_by_another() {
    let (one, two) = two_nodes().await;
    let gate = Gate::default();
    one.llm.will(Reply::text("From the one that slept.").hold_head(&gate));
    one.llm.will(Reply::text("From the one that did not."));
    one.say("hello").await;
    one.asked(1).await;
    let holder = lane(&one).await.unwrap();
    // Either may have claimed it.
    let (slow, quick) = if one.is_boot(&holder.boot) { (&one, &two) } else { (&two, &one) };
    slow.hand.hold(true);
    quick.clock.jump(2 * LEASE_MS);
    assert_eq!(quick.posts(1).await[0].text, "From the one that did not.");
    gate.open();
    slow.hand.hold(false);
    slow.until("quiet", |view| view.turn.is_none() && view.unposted == 0).await;
    quick.llm.otherwise(|_| Reply::text("Yes."));
    quick.deliver("main", "still", "still there?").await.unwrap();
    let posts = quick.posts(2).await;
    let texts: Vec<_> = posts.iter().map(|post| &*post.text).collect();
    assert_eq!(texts, ["From the one that did not.", "Yes."]);
    quick.until("quiet", |view| view.turn.is_none() && view.unposted == 0).await;
    let log = serde_json::to_string(&quick.log("main").await).unwrap();
    assert!(!log.contains("that slept"), "{log}");
    two.finish().await;
    one.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b116_a_machine_that_was_suspended_ends_what_is_overdue_once_and_no_sooner() {
    let bot = Bot::start().await;
    let up = bot.fifo("up");
    bot.llm.will(trigger("Watch it", &for_ever(&up), 23 * 3_600));
    bot.llm.otherwise(|_| Reply::text("Noted."));
    bot.say("watch it").await;
    let script = pids(&up).await[0];
    bot.posts(1).await;
    bot.started().await;
    bot.quiet().await;
    // Time passes for the ledger and not for the shim, whose own clock stood still.
    bot.pass(8 * HOUR_MS).await;
    assert_eq!(bot.execution(FIRST).await.state, State::Running);
    bot.pass(15 * HOUR_MS).await;
    assert_eq!(bot.execution(FIRST).await.state, State::Running);
    bot.pass(5_000 + OVERDUE_MS + 1).await;
    bot.posts(2).await;
    let told = bot.notices("main").await;
    assert_eq!(told.len(), 1);
    assert!(told[0].contains("status=timed_out"), "{}", told[0]);
    assert!(tokio::task::spawn_blocking(move || ends(script)).await.unwrap());
    bot.pass(24 * HOUR_MS).await;
    bot.quiet().await;
    assert_eq!(bot.llm.seen_now().len(), 3);
    bot.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b116_what_ended_while_the_bot_was_away_is_told_as_late_as_it_is() {
    let mut bot = Bot::start().await;
    let on = bot.fifo("on");
    bot.llm.will(trigger("Watch it", &waits(&on, "print('green')"), 86_400));
    bot.llm.will(Reply::text("Started."));
    bot.say("watch it").await;
    bot.posts(1).await;
    bot.quiet().await;
    bot.llm.will(Reply::status(503));
    bot.llm.otherwise(|_| Reply::text("It was green."));
    said(&on).await;
    bot.until("a failed attempt", |view| view.not_before.is_some()).await;
    bot.crash().await;
    bot.clock.jump(8 * HOUR_MS);
    bot.boot().await;
    bot.posts(2).await;
    bot.quiet().await;
    // The text was fixed when the notice was carried: a later rendering is the same.
    let seen = bot.llm.seen_now();
    let texts: Vec<_> = seen[2..].iter().map(last).collect();
    assert_eq!(texts[0], texts[1]);
    bot.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b102_a_deadline_is_an_instant_and_a_start_does_not_move_it() {
    let mut bot = Bot::start().await;
    let up = bot.fifo("up");
    bot.llm.will(trigger("Watch it", &for_ever(&up), 36_000));
    bot.llm.otherwise(|_| Reply::text("Noted."));
    bot.say("watch it").await;
    pids(&up).await;
    bot.posts(1).await;
    bot.started().await;
    bot.quiet().await;
    let due = |execution: Execution| (execution.started_at, execution.due_at);
    let before = due(bot.execution(FIRST).await);
    for _ in 0..2 {
        bot.crash().await;
        bot.boot().await;
        assert_eq!(due(bot.execution(FIRST).await), before);
    }
    bot.stop(dogwatch::core::execution::Scope::All).await;
    bot.quiet().await;
    bot.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b105_a_long_turn_makes_no_other_deadline_late() {
    let bot = Bot::start().await;
    let fifos = ["a", "b", "c"].map(|name| bot.fifo(name));
    for (i, up) in fifos.iter().enumerate() {
        bot.llm.will(trigger("Watch it", &for_ever(up), 3_600 + i as u64));
        bot.llm.will(Reply::text("Started."));
        bot.say_in(&format!("chat{i}"), "watch it").await;
        pids(up).await;
        bot.posts(i + 1).await;
    }
    let gate = Gate::default();
    bot.llm.will(Reply::text("Slow.").hold_head(&gate));
    bot.say_in("chat0", "think for ten minutes").await;
    bot.asked(7).await;
    bot.llm.otherwise(|_| Reply::text("It timed out."));
    bot.pass(HOUR_MS + 600_000).await;
    let posts = bot.posts(5).await;
    let woken: Vec<_> = posts[3..].iter().map(|post| post.session.as_str()).collect();
    assert!(woken.contains(&"console/chat1") && woken.contains(&"console/chat2"), "{woken:?}");
    assert_eq!(bot.view_of("chat0").await.notices, 1);
    gate.open();
    bot.posts(7).await;
    for i in 0..3 {
        let told = bot.notices(&format!("chat{i}")).await;
        assert_eq!(told.len(), 1);
        assert!(told[0].contains("status=timed_out"), "{}", told[0]);
    }
    bot.wait("quiet", async {
        for i in 0..3 {
            while bot.view_of(&format!("chat{i}")).await.unposted > 0 {
                tokio::task::yield_now().await;
            }
        }
    })
    .await;
    bot.finish().await;
}
