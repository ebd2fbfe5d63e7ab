//! The right chat, whatever else is open; see also `engine::steering::b33_…`.

use super::waits;
use crate::support::bot::Bot;
use crate::support::fake_llm::Reply;
use crate::support::process::said;
use crate::support::wire::{envelopes, results, trigger};

#[tokio::test(flavor = "multi_thread")]
async fn b33_no_chat_can_see_or_end_the_work_of_another() {
    let bot = Bot::start().await;
    let on = bot.fifo("on");
    bot.llm.will(trigger("Watch it", &waits(&on, "print('mine')"), 600));
    bot.llm.will(Reply::text("Started."));
    bot.say_in("one", "watch it").await;
    bot.posts(1).await;
    let id = "{\"id\":\"auto-notify-watc-0001\"}";
    let calls = [
        ("a", "watch__list", "{}"),
        ("b", "watch__cancel", id),
        ("c", "watch__output", id),
        ("d", "watch__cancel", "{\"id\":\"console/one/auto-notify-watc-0001\"}"),
    ];
    bot.llm.will(Reply::calls(&calls));
    bot.llm.will(Reply::text("Nothing of mine runs."));
    bot.say_in("two", "cancel it").await;
    bot.posts(2).await;
    let seen = bot.asked(4).await;
    let given = results(&seen[3]);
    assert!(!given[0].to_string().contains("watc-0001"), "{}", given[0]);
    for result in &given[1..] {
        assert!(result["error"].is_object(), "{result}");
    }
    assert_eq!(bot.view_of("one").await.live.len(), 1);
    bot.llm.will(Reply::text("It is done."));
    said(&on).await;
    let posts = bot.posts(3).await;
    assert_eq!(posts[2].session.as_str(), "console/one");
    assert_eq!(envelopes(&bot.asked(5).await[4]), 1);
    bot.quiet().await;
    bot.finish().await;
}
