//! Section D of the peers' behaviours, `trigger_and_auto_notify`: lines that hold over a whole
//! turn. What a line says about one tool or one text is shown beside that tool or text.

use dogwatch::core::execution::{Exit, Fate, ModelReceipt, Scope, State, Status};
use dogwatch::ports::{Done, Progress};
use rustix::process::Signal;

use super::waits;
use crate::support::bot::{Bot, Setup};
use crate::support::fake_llm::{Gate, Reply, chunk};
use crate::support::process::{ends, pids, said, signal};
use crate::support::wire::{envelopes, last, prompt, results, trigger};

const FIRST: &str = "auto-notify-watc-0001";

#[tokio::test(flavor = "multi_thread")]
async fn peer_d02_peer_d03_the_answer_of_the_call_names_the_execution() {
    let bot = Bot::start().await;
    bot.llm.will(trigger("Überwache #42", "print(1)", 60));
    bot.llm.otherwise(|_| Reply::text("Noted."));
    bot.say("watch it").await;
    let seen = bot.asked(2).await;
    let given = results(&seen[1]).remove(0);
    assert_eq!(given["execution_id"], "auto-notify-berw-0001");
    assert_eq!((&given["status"], &given["name"]), (&"waiting".into(), &"Überwache #42".into()));
    bot.posts(2).await;
    bot.quiet().await;
    bot.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn peer_d05_a_script_runs_isolated_in_a_directory_of_its_own() {
    let bot = Bot::start().await;
    let script = "import os, sys\nprint(sorted(os.environ), sys.flags.isolated, os.listdir('.'))";
    bot.llm.will(trigger("Look", script, 60));
    bot.llm.otherwise(|_| Reply::text("Noted."));
    bot.say("look").await;
    bot.posts(2).await;
    let told = bot.notices("main").await.concat();
    assert!(told.contains("['HOME', 'LANG', 'PATH', 'TMPDIR'] 1 ['watcher.py']"), "{told}");
    bot.quiet().await;
    bot.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn peer_d07_what_is_raised_is_told_with_its_traceback() {
    let bot = Bot::start().await;
    bot.llm.will(trigger("Watch it", "print('plain')\nraise ValueError('no')", 60));
    bot.llm.otherwise(|_| Reply::text("Noted."));
    bot.say("watch it").await;
    bot.posts(2).await;
    let told = bot.notices("main").await.concat();
    for part in ["status=failed", "Output: plain", "Traceback", "line 2", "ValueError: no"] {
        assert!(told.contains(part), "{told}");
    }
    bot.quiet().await;
    bot.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn peer_d13_what_was_stopped_never_wakes_and_its_end_stands() {
    let bot = Bot::start().await;
    let (up, on) = (bot.fifo("up"), bot.fifo("on"));
    let script = format!(
        "import os, signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n\
         print(os.getpid(), file=open({up:?}, 'w'))\n{}",
        waits(&on, "raise SystemExit(9)")
    );
    bot.llm.will(trigger("Watch it", &script, 600));
    bot.llm.will(Reply::text("Started."));
    bot.say("watch it").await;
    let pid = pids(&up).await[0];
    bot.posts(1).await;
    bot.quiet().await;
    assert_eq!(bot.stop(Scope::All).await, Done::Stopped { ended: 1, turn: false });
    assert!(tokio::task::spawn_blocking(move || ends(pid)).await.unwrap());
    bot.quiet().await;
    bot.pass(3_600_000).await;
    let execution = bot.execution(FIRST).await;
    let State::Ended(outcome) = &execution.state else { panic!("it lives") };
    assert_eq!(outcome.status, Status::Cancelled);
    assert_eq!(execution.model, ModelReceipt::Fate(Fate::Stopped));
    assert_eq!(bot.llm.seen_now().len(), 2);
    bot.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn peer_d14_what_somebody_else_ended_is_a_failure_and_wakes() {
    let bot = Bot::start().await;
    let (up, on) = (bot.fifo("up"), bot.fifo("on"));
    let script =
        format!("import os\nprint(os.getpid(), file=open({up:?}, 'w'))\n{}", waits(&on, ""));
    bot.llm.will(trigger("Watch it", &script, 600));
    bot.llm.otherwise(|_| Reply::text("Noted."));
    bot.say("watch it").await;
    let pid = pids(&up).await[0];
    bot.posts(1).await;
    signal(pid, Signal::TERM);
    bot.posts(2).await;
    let State::Ended(outcome) = bot.execution(FIRST).await.state else { panic!("it lives") };
    assert_eq!((outcome.status, outcome.exit), (Status::Failed, Some(Exit::Signal(15))));
    bot.quiet().await;
    bot.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn peer_d17_peer_d19_a_chat_gets_the_whole_result_as_data() {
    let bot = Bot::start().await;
    bot.llm.will(trigger("Watch it", "print('y' * 9000)", 60));
    bot.llm.otherwise(|_| Reply::text("Noted."));
    bot.say("watch it").await;
    bot.posts(2).await;
    let seen = bot.asked(3).await;
    let text = last(&seen[2])["content"].as_str().unwrap().to_owned();
    assert!(text.contains(&"y".repeat(9_000)));
    let rules = prompt(&seen[2]);
    assert!(rules.contains("they give no authority") && rules.contains("Never"), "{rules}");
    bot.quiet().await;
    bot.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn peer_d21_peer_d23_an_opened_stream_is_no_delivery_and_a_failed_turn_tries_again() {
    let bot = Bot::start().await;
    bot.llm.will(trigger("Watch it", "print('green')", 60));
    bot.llm.will(Reply::text("Started."));
    bot.llm.will(Reply::stream().data(&chunk::text("It is gr")).cut());
    bot.llm.otherwise(|_| Reply::text("It is green."));
    bot.say("watch it").await;
    bot.until("a failed attempt", |view| view.not_before.is_some()).await;
    let view = bot.view().await;
    assert_eq!(bot.balance().await.fates.get("acked"), None, "{view:?}");
    bot.pass(300_000).await;
    assert_eq!(bot.posts(2).await[1].text, "It is green.");
    let seen = bot.asked(4).await;
    assert_eq!((envelopes(&seen[2]), envelopes(&seen[3])), (1, 1));
    bot.quiet().await;
    assert_eq!(bot.finish().await.fates["acked"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn peer_d22_peer_d27_a_synthetic_turn_has_the_lane_like_any_other() {
    let bot = Bot::start().await;
    let gate = Gate::default();
    bot.llm.will(trigger("Watch it", "print('green')", 60));
    bot.llm.will(Reply::text("Started."));
    bot.llm.will(Reply::call("c2", "watch__list", "{}").hold_head(&gate));
    bot.llm.will(Reply::text("It is green, and you asked the time."));
    bot.say("watch it").await;
    bot.asked(3).await;
    bot.say("what time is it?").await;
    bot.until("the question", |view| view.people == 1).await;
    // It waits for the lane; it starts no second turn.
    assert_eq!(bot.view().await.turn.unwrap().0, 2);
    gate.open();
    let posts = bot.posts(2).await;
    assert_eq!(posts[1].text, "It is green, and you asked the time.");
    let seen = bot.asked(4).await;
    assert_eq!(last(&seen[3])["content"], "what time is it?");
    bot.quiet().await;
    assert_eq!(bot.llm.seen_now().len(), 4);
    bot.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn peer_d30_a_silent_stream_is_abandoned_and_what_drips_is_not() {
    let bot = Bot::with(Setup { idle_ms: 500, ..Setup::default() }).await;
    let drips = (0..8).fold(Reply::stream(), |reply, _| reply.data(&chunk::text("drip ")));
    bot.llm.will(drips.data(&chunk::finish("stop")).done());
    bot.say("drip").await;
    assert_eq!(bot.posts(1).await[0].text.matches("drip").count(), 8);
    bot.llm.will(Reply::stream().data(&chunk::text("and the")).stall());
    bot.llm.will(Reply::text("Here."));
    bot.say("stall").await;
    bot.wait("the client to go", bot.llm.left(1)).await;
    bot.until("a failed attempt", |view| view.not_before.is_some()).await;
    bot.pass(300_000).await;
    assert_eq!(bot.posts(2).await[1].text, "Here.");
    bot.quiet().await;
    bot.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn peer_d31_only_a_persons_new_message_opens_a_stopped_chat() {
    let mut bot = Bot::start().await;
    bot.llm.otherwise(|_| Reply::text("Noted."));
    bot.stop(Scope::All).await;
    bot.pass(3_600_000).await;
    bot.crash().await;
    bot.boot().await;
    assert!(bot.view().await.stopped);
    assert!(bot.llm.seen_now().is_empty());
    bot.say("hello").await;
    bot.posts(1).await;
    assert!(!bot.quiet().await.stopped);
    bot.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn peer_d34_what_follows_from_a_steered_completion_is_the_same_turn() {
    let bot = Bot::start().await;
    let on = bot.fifo("on");
    let gate = Gate::default();
    bot.llm.will(trigger("First", &waits(&on, "print('one')"), 60));
    bot.llm.will(Reply::call("c2", "watch__list", "{}").hold_head(&gate));
    bot.llm.will(trigger("Second", "print('two')", 60));
    bot.llm.otherwise(|_| Reply::text("Noted."));
    bot.say("go").await;
    bot.asked(2).await;
    said(&on).await;
    bot.until("its end", |view| view.notices == 1).await;
    gate.open();
    bot.asked(4).await;
    bot.until("both ends", |view| view.live.is_empty()).await;
    bot.quiet().await;
    let second = bot.execution("auto-notify-seco-0002").await;
    assert_eq!((second.turn, second.chain), (1, 1));
    assert_eq!(bot.finish().await.fates["acked"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn peer_d35_a_synthetic_turn_shows_that_it_is_one_before_it_speaks() {
    let bot = Bot::start().await;
    let on = bot.fifo("on");
    bot.llm.will(trigger("Watch it", &waits(&on, ""), 60));
    bot.llm.otherwise(|_| Reply::text("Noted."));
    bot.say("watch it").await;
    bot.posts(1).await;
    bot.quiet().await;
    said(&on).await;
    bot.posts(2).await;
    bot.quiet().await;
    let shown: Vec<_> = bot.stage.shown().into_iter().map(|(_, progress)| progress).collect();
    let began = shown
        .iter()
        .position(|one| matches!(one, Progress::Began { turn: 2, synthetic: true }))
        .unwrap();
    let spoke = shown.iter().rposition(|one| matches!(one, Progress::Text(_))).unwrap();
    assert!(began < spoke);
    let tools = shown.iter().filter(|one| matches!(one, Progress::Tool { .. })).count();
    assert_eq!(tools, 1, "a tool that runs once is shown once");
    bot.finish().await;
}
