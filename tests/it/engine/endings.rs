//! How scripts end, and what the model and people read of it.

use dogwatch::core::execution::{Exit, State, Status};
use dogwatch::core::limits::START_MS_MAX;

use super::main_job::waits;
use crate::support::bot::{Bot, Setup};
use crate::support::fake_llm::Reply;
use crate::support::process::{ends, pids, processes_of, said};
use crate::support::wire::{envelopes, last, results, trigger};

/// Runs one script to its end and gives the notice's text.
async fn notice_of(bot: &Bot, python: &str, timeout_seconds: u64) -> String {
    bot.llm.will(trigger("Watch it", python, timeout_seconds));
    bot.llm.will(Reply::text("Started."));
    bot.llm.will(Reply::text("Noted."));
    bot.say("watch it").await;
    let seen = bot.asked(3).await;
    assert_eq!(bot.posts(2).await[1].text, "Noted.");
    bot.quiet().await;
    assert_eq!(bot.llm.seen_now().len(), 3);
    assert_eq!(envelopes(&seen[2]), 1);
    last(&seen[2])["content"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_wakes_with_its_code_and_both_outputs() {
    let bot = Bot::start().await;
    let script =
        "import sys\nprint('half way')\nprint('no such host', file=sys.stderr)\nsys.exit(3)";
    let text = notice_of(&bot, script, 60).await;
    assert!(text.contains("failed — status=failed."), "{text}");
    assert!(text.contains("Output: half way") && text.contains("Stderr: no such host"), "{text}");
    assert!(text.contains("exit code 3"), "{text}");
    bot.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b56_a_timeout_says_that_the_outcome_is_unknown_and_reruns_nothing() {
    let bot = Bot::start().await;
    let marks = bot.path().join("marks");
    let script = format!(
        "import time\nopen({:?}, 'a').write('sent\\n')\nprint('sent')\ntime.sleep(50)",
        marks.display()
    );
    let text = notice_of(&bot, &script, 1).await;
    assert!(text.contains("timed out — status=timed_out."), "{text}");
    assert!(text.contains("Output: sent"), "{text}");
    assert!(text.contains("Side effects may have happened and should be verified"), "{text}");
    assert_eq!(std::fs::read_to_string(marks).unwrap(), "sent\n");
    bot.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_started_is_a_completion_too() {
    let setup = Setup { python: "/no/such/python3".into(), ..Setup::default() };
    let bot = Bot::with(setup).await;
    bot.llm.will(trigger("Watch it", "print(1)", 60));
    bot.llm.will(Reply::text("It could not be started."));
    bot.llm.will(Reply::text("It ended at once."));
    bot.say("watch it").await;
    let seen = bot.asked(2).await;
    let given = &results(&seen[1])[0];
    if given["error"].is_object() {
        // No compiler, no start: the call itself says so, and nothing is registered.
        assert!(
            given["error"]["message"].as_str().unwrap().contains("/no/such/python3"),
            "{given}"
        );
        bot.quiet().await;
        assert_eq!(bot.finish().await.registered, 0);
    } else {
        let seen = bot.asked(3).await;
        let text = last(&seen[2]).to_string();
        assert!(text.contains("status=failed") && text.contains("/no/such/python3"), "{text}");
        bot.quiet().await;
        assert_eq!(bot.finish().await.fates["acked"], 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_syntax_error_is_the_answer_of_the_call_and_starts_nothing() {
    let bot = Bot::start().await;
    bot.llm.will(trigger("Watch it", "x = 1\nwhile True print(x)", 60));
    bot.llm.will(Reply::text("I made a mistake."));
    bot.say("watch it").await;
    let seen = bot.asked(2).await;
    let error = results(&seen[1])[0]["error"].clone();
    assert_eq!(error["code"], "syntax_error");
    assert_eq!(error["line"], 2);
    bot.posts(1).await;
    bot.quiet().await;
    assert_eq!(bot.finish().await.registered, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn b01_an_end_without_output_is_told_at_once_and_says_so() {
    let bot = Bot::start().await;
    let on = bot.fifo("on");
    bot.llm.will(trigger("Poll", &waits(&on, ""), 60));
    bot.llm.will(Reply::text("Started."));
    bot.llm.will(Reply::text("It ended without a word."));
    bot.say("poll").await;
    bot.posts(1).await;
    bot.quiet().await;
    said(&on).await;
    // No sweep is due for seconds, and no time is skipped: the exit itself wakes.
    let seen = bot.asked(3).await;
    let text = last(&seen[2])["content"].as_str().unwrap().to_owned();
    assert!(text.contains("status=completed") && text.contains("Output: (empty)"), "{text}");
    assert_eq!(bot.posts(2).await[1].text, "It ended without a word.");
    bot.quiet().await;
    assert_eq!(bot.finish().await.fates["acked"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_execution_ends_with_the_signal_that_ended_it() {
    let bot = Bot::start().await;
    let text = notice_of(&bot, "import os\nos.kill(os.getpid(), 9)", 60).await;
    assert!(text.contains("status=failed") && text.contains("signal 9 (SIGKILL)"), "{text}");
    let State::Ended(outcome) = bot.execution("auto-notify-watc-0001").await.state else {
        panic!("it lives")
    };
    assert_eq!((outcome.status, outcome.exit), (Status::Failed, Some(Exit::Signal(9))));
    bot.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_spool_does_not_have_is_lost_with_the_reason() {
    let mut bot = Bot::start().await;
    let (up, on) = (bot.fifo("up"), bot.fifo("on"));
    let script = format!("open({up:?}, 'w').close()\n{}", waits(&on, ""));
    bot.llm.will(trigger("Watch it", &script, 600));
    bot.llm.will(Reply::text("Started."));
    bot.say("watch it").await;
    bot.posts(1).await;
    said(&up).await;
    bot.quiet().await;
    // The spool is gone with all that was in it.
    bot.crash().await;
    said(&on).await;
    for pid in processes_of(bot.path()) {
        assert!(ends(pid));
    }
    let entries = bot.path().join("spool/e");
    for entry in std::fs::read_dir(&entries).unwrap() {
        std::fs::remove_dir_all(entry.unwrap().path()).unwrap();
    }
    bot.llm.will(Reply::text("It was lost."));
    bot.boot().await;
    let seen = bot.asked(3).await;
    let text = last(&seen[2])["content"].as_str().unwrap().to_owned();
    assert!(
        text.contains("was lost — status=lost.") && text.contains("removed from the spool"),
        "{text}"
    );
    bot.posts(2).await;
    bot.quiet().await;
    bot.pass(START_MS_MAX * 2).await;
    assert_eq!(bot.finish().await.fates["acked"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_execution_wakes_nobody_and_a_human_one_tells_people_only() {
    let bot = Bot::start().await;
    let (a, b) = (bot.fifo("a"), bot.fifo("b"));
    let told = |name: &str, script: String, notify: &str| {
        let arguments = serde_json::json!({
            "name": name, "python": script, "timeout_seconds": 60, "notify": notify,
        });
        arguments.to_string()
    };
    let silent = told("Quiet", format!("print(1, file=open({a:?}, 'w'))"), "silent");
    let human =
        told("Loud", format!("print('all well')\nprint(1, file=open({b:?}, 'w'))"), "human");
    let name = "trigger_and_auto_notify";
    bot.llm.will(Reply::calls(&[("c1", name, &silent), ("c2", name, &human)]));
    bot.llm.will(Reply::text("Started both."));
    bot.say("go").await;
    pids(&a).await;
    pids(&b).await;
    let posts = bot.posts(2).await;
    let human = posts.iter().find(|post| post.text.contains("all well")).unwrap();
    assert!(human.text.contains("'Loud' completed"), "{}", human.text);
    bot.until("both over", |view| view.live.is_empty() && view.unposted == 0).await;
    bot.quiet().await;
    assert_eq!(bot.llm.seen_now().len(), 2);
    let sum = bot.finish().await;
    assert_eq!(sum.fates["waived"], 2);
}
