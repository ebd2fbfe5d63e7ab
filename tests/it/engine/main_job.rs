//! The main job: a script is started, people go on, its end wakes the chat.

use dogwatch::core::execution::{PostSort, Status};
use dogwatch::ports::Progress;

use crate::support::bot::Bot;
use crate::support::fake_llm::Reply;
use crate::support::process::said;
use crate::support::wire::{envelopes, last, prompt, results, trigger, user};

/// A script that waits until somebody reads its fifo.
pub(super) fn waits(on: &str, then: &str) -> String {
    format!("open({on:?}, 'w').close()\n{then}")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_script_resumes_the_chat_that_started_it() {
    let bot = Bot::start().await;
    let on = bot.fifo("on");
    let script = waits(&on, "print('{\"deployment_id\":\"abc123\",\"status\":\"healthy\"}')");
    bot.llm.will(trigger("Watch deployment abc123", &script, 600));
    bot.llm.will(Reply::text("I am watching it."));
    bot.say("deploy abc123 and watch it").await;
    let posts = bot.posts(1).await;
    assert_eq!(posts[0].text, "I am watching it.");
    assert_eq!(posts[0].sort, PostSort::Answer);
    let seen = bot.asked(2).await;
    let given = &results(&seen[1])[0];
    assert_eq!(given["execution_id"], "auto-notify-watc-0001");
    assert_eq!(given["status"], "waiting");
    let view = bot.quiet().await;
    assert_eq!(view.live.len(), 1);

    bot.llm.will(Reply::text("Four."));
    bot.say("meanwhile, what is two and two?").await;
    assert_eq!(bot.posts(2).await[1].text, "Four.");
    let seen = bot.asked(3).await;
    assert!(prompt(&seen[2]).contains("auto-notify-watc-0001 'Watch deployment abc123': running"));
    assert_eq!(envelopes(&seen[2]), 0);

    bot.llm.will(Reply::text("Deployment abc123 is healthy."));
    said(&on).await;
    let posts = bot.posts(3).await;
    assert_eq!(posts[2].text, "Deployment abc123 is healthy.");
    assert_eq!(posts[2].sort, PostSort::Woken);
    let seen = bot.asked(4).await;
    assert_eq!(envelopes(&seen[3]), 1);
    let text = last(&seen[3])["content"].as_str().unwrap().to_owned();
    assert!(text.starts_with(
        "[AUTO-NOTIFICATION] Agent 'Watch deployment abc123' completed — status=completed.\nResult:\n⟦k"
    ), "{text}");
    assert!(
        text.contains("Output: {\"deployment_id\":\"abc123\",\"status\":\"healthy\"}"),
        "{text}"
    );
    assert_eq!(user(&seen[3]).len(), 3);
    let began: Vec<_> = bot
        .stage
        .shown()
        .into_iter()
        .filter_map(|(_, progress)| {
            let Progress::Began { synthetic, .. } = progress else { return None };
            Some(synthetic)
        })
        .collect();
    assert_eq!(began, [false, false, true]);
    bot.quiet().await;
    let execution = bot.execution("auto-notify-watc-0001").await;
    let ended = matches!(&execution.state,
        dogwatch::core::execution::State::Ended(outcome) if outcome.status == Status::Completed);
    assert!(ended, "{execution:?}");
    let sum = bot.finish().await;
    assert_eq!((sum.registered, sum.fates.get("acked")), (1, Some(&1)));
}
