//! Loops and cost; see also `engine::limits` and `engine::stopping`.

use crate::support::bot::Bot;
use crate::support::fake_llm::Reply;
use crate::support::process::processes_of;

#[tokio::test(flavor = "multi_thread")]
async fn b50_an_idle_day_asks_no_model() {
    let bot = Bot::start().await;
    bot.llm.will(Reply::text("Hello!"));
    bot.say("hello").await;
    bot.posts(1).await;
    bot.quiet().await;
    for _ in 0..24 * 4 {
        bot.pass(900_000).await;
    }
    assert_eq!((bot.llm.seen_now().len(), bot.stage.posted().len()), (1, 1));
    assert!(processes_of(bot.path()).is_empty());
    bot.finish().await;
}
