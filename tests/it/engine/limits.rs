//! What an agent may not do: roles and budgets.

use dogwatch::core::budget::Limits;
use dogwatch::core::execution::PostSort;
use dogwatch::core::ledger::session::Allowance;
use dogwatch::core::policy::Role;

use super::main_job::waits;
use crate::support::bot::{Bot, Setup};
use crate::support::fake_llm::Reply;
use crate::support::process::said;
use crate::support::wire::{prompt, results, tools, trigger};

#[tokio::test(flavor = "multi_thread")]
async fn b84_a_read_only_agent_is_offered_nothing_that_writes_and_gets_nothing_by_name() {
    let bot = Bot::with(Setup { role: Role::ReadOnly, ..Setup::default() }).await;
    let mark = bot.path().join("mark");
    let script = format!("open({:?}, 'w')", mark.display());
    bot.llm.will(trigger("Write it", &script, 60));
    bot.llm.will(Reply::call("c2", "watch__cancel", "{\"id\":\"auto-notify-writ-0001\"}"));
    bot.llm.will(Reply::text("I may not."));
    bot.say("write it").await;
    let seen = bot.asked(3).await;
    let declared = tools(&seen[0]);
    assert_eq!(declared, ["watch__list", "watch__output", "stay_silent"]);
    for result in results(&seen[2]) {
        assert_eq!(result["error"]["code"], "unknown_tool", "{result}");
    }
    let system = prompt(&seen[0]);
    for hidden in ["trigger_and_auto_notify", "watch__cancel"] {
        assert!(!system.contains(hidden), "{system}");
    }
    bot.posts(1).await;
    bot.quiet().await;
    assert!(!mark.exists());
    assert_eq!(bot.finish().await.registered, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn b44_a_chain_that_wakes_itself_ends_and_says_so() {
    let allowance = Allowance { wakes: 3, ..Allowance::default() };
    let bot = Bot::with(Setup { allowance, ..Setup::default() }).await;
    // It starts another one whenever it is asked, and says so in between.
    bot.llm.otherwise(|body| {
        let last = body["messages"].as_array().unwrap().last().unwrap();
        if last["role"] == "tool" {
            Reply::text("And again.")
        } else {
            trigger("Wait", "print('waited')", 60)
        }
    });
    bot.say("wait a while").await;
    // The first answer, three wakes, and word of what does not wake any more.
    let spent = |all: &[dogwatch::ports::Post]| {
        all.iter().any(|post| post.text.contains("budget")) && all.len() >= 5
    };
    let posts = bot.wait("the end of the chain", bot.stage.posted_when(spent)).await;
    bot.until("all is over", |view| view.live.is_empty()).await;
    let view = bot.until("quiet", |view| view.turn.is_none() && view.unposted == 0).await;
    assert!(posts.iter().any(|post| post.text.contains("woken the agent as often as it may")));
    let woken = posts.iter().filter(|post| post.sort == PostSort::Woken).count();
    assert_eq!((woken, view.notices), (3, 1));
    let asked = bot.llm.seen_now().len();
    bot.pass(86_400_000).await;
    assert_eq!(bot.llm.seen_now().len(), asked);
    // A person opens a new chain, and what waited rides along.
    bot.llm.otherwise(|_| Reply::text("I stop here."));
    bot.say("enough").await;
    bot.posts(posts.len() + 1).await;
    bot.quiet().await;
    assert_eq!(bot.finish().await.registered, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_calls_for_ever_ends_with_a_last_word() {
    let limits = Limits { model_calls: 3, ..Limits::default() };
    let bot = Bot::with(Setup { limits, ..Setup::default() }).await;
    bot.llm.otherwise(|body| {
        if body["tools"].as_array().is_some_and(|tools| !tools.is_empty()) {
            Reply::call("c", "watch__list", "{}")
        } else {
            Reply::text("Nothing runs.")
        }
    });
    bot.say("look around").await;
    let posts = bot.posts(1).await;
    assert!(posts[0].text.starts_with("Nothing runs."), "{}", posts[0].text);
    assert!(posts[0].text.contains("budget of 3 model calls"), "{}", posts[0].text);
    bot.quiet().await;
    assert_eq!(bot.llm.seen_now().len(), 4);
    bot.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chain_may_start_only_so_many() {
    let allowance = Allowance { spawns: 2, ..Allowance::default() };
    let bot = Bot::with(Setup { allowance, ..Setup::default() }).await;
    let given = crate::support::wire::arguments("Once", "print(1)", 60);
    let calls: Vec<(String, String)> = (0..3).map(|i| (format!("c{i}"), given.clone())).collect();
    let calls: Vec<(&str, &str, &str)> =
        calls.iter().map(|(id, given)| (&**id, "trigger_and_auto_notify", &**given)).collect();
    bot.llm.will(Reply::calls(&calls));
    bot.llm.otherwise(|_| Reply::text("Noted."));
    bot.say("start three").await;
    let seen = bot.asked(2).await;
    let given = results(&seen[1]);
    assert!(given[..2].iter().all(|result| result["status"] == "waiting"));
    assert_eq!(given[2]["error"]["code"], "limit_reached", "{}", given[2]);
    bot.until("their ends", |view| view.live.is_empty()).await;
    bot.quiet().await;
    assert_eq!(bot.finish().await.registered, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_person_may_have_running_counts_over_all_chats_and_is_given_back() {
    let bot = Bot::with(Setup { live_per_owner: 1, ..Setup::default() }).await;
    let (on, again) = (bot.fifo("on"), bot.fifo("again"));
    bot.llm.will(trigger("Watch the first", &waits(&on, "print('over')"), 60));
    bot.llm.will(Reply::text("It runs."));
    bot.say("watch the first").await;
    bot.posts(1).await;
    // In another chat there is no place, and nothing is told of what runs in the first.
    bot.llm.will(trigger("Watch the second", "print('never')", 60));
    bot.llm.will(Reply::text("There is no place."));
    bot.say_in("other", "watch the second").await;
    bot.posts(2).await;
    let refused = results(&bot.asked(4).await[3])[0].clone();
    assert_eq!(refused["error"]["code"], "limit_reached", "{refused}");
    assert_eq!(refused["error"]["limit"], 1, "{refused}");
    assert_eq!(refused["error"]["running_here"], serde_json::json!([]), "{refused}");
    assert!(!refused.to_string().contains("the first"), "{refused}");
    // The end of the first gives its place back.
    bot.llm.will(Reply::text("The first is over."));
    said(&on).await;
    bot.posts(3).await;
    bot.until_no_place_is_taken().await;
    bot.llm.will(trigger("Watch the third", &waits(&again, "print('over')"), 60));
    bot.llm.will(Reply::text("The third runs."));
    bot.say_in("other", "watch the third").await;
    bot.posts(4).await;
    bot.llm.will(Reply::text("The third is over."));
    said(&again).await;
    bot.posts(5).await;
    bot.until_no_place_is_taken().await;
    assert_eq!(bot.finish().await.registered, 2);
}
