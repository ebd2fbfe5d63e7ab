//! The real program, killed while an answer streams: at each call, before Slack did it or after.

use dogwatch::slack::Streaming;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::patiently;
use super::streaming::{APPEND, POST, START, STOP, UPDATE, lines};
use super::whole::{BY_REQUESTS, Town, bots, deliver, ts};
use crate::support::fake_llm::{FakeLlm, Gate, Reply, chunk};
use crate::support::fake_slack::streams::reads;
use crate::support::fake_slack::{Fault, Message, Stream};

/// Is the answer whole, and said once?
fn is_whole(message: &Message) -> bool {
    let text = reads(message);
    message.stream != Stream::Open && (text.ends_with("anew") || text.ends_with("end"))
}

/// The bot asks this model, and shows its answers so.
fn asks(town: &Town, llm: &FakeLlm, streaming: &str) {
    let config = std::fs::read_to_string(town.place.path("dogwatch.toml")).unwrap();
    let model = format!("kind = \"openai\"\nmodel = \"test\"\nbase_url = \"{}\"", llm.base_url());
    let config = config.replace("kind = \"scripted\"\nplaybook = \"playbook.toml\"", &model);
    let config =
        config.replace(BY_REQUESTS, &format!("{BY_REQUESTS}streaming = \"{streaming}\"\n"));
    town.place.write("dogwatch.toml", &config);
}

async fn killed_at(streaming: Streaming, method: &str, nth: usize, fault: Fault) {
    let what = format!("{method} {nth} {fault:?}");
    let llm = FakeLlm::start().await;
    let mut town = Town::new(&[]).await;
    asks(&town, &llm, if streaming == Streaming::Edit { "edit" } else { "auto" });
    let open = CancellationToken::new();
    open.cancel();
    for _ in 1..nth {
        town.slack.will(method, Fault::Held(open.clone()));
    }
    town.slack.will(method, fault);
    let (first, second) = (Gate::default(), Gate::default());
    let reply = Reply::stream().data(&chunk::text(&lines("one"))).hold(&first);
    let reply = reply.data(&chunk::text(&lines("two"))).hold(&second);
    let reply = reply.data(&chunk::text("end")).data(&chunk::finish("stop"));
    llm.will(reply.data(&chunk::usage(10, 5)).done());
    llm.otherwise(|_| Reply::text(&format!("{}anew", lines("one"))));
    let bot = town.bot();
    let asked: Value = town.says(None, "<@U0BOT> tell me");
    let root = ts(&asked);
    deliver(&bot, &asked).await;
    let shows = |text: &'static str| {
        let says = move |all: &[Message]| all.iter().any(|one| reads(one).contains(text));
        patiently(town.slack.until("C1", &root, says))
    };
    if ![START, POST].contains(&method) {
        shows("**one**").await;
        first.open();
    }
    if method == STOP || (method == UPDATE && nth > 1) {
        shows("**two**").await;
        second.open();
    }
    patiently(town.slack.called(method, nth)).await;
    tokio::task::block_in_place(|| bot.kill());
    let bot = tokio::task::block_in_place(|| town.bot());
    let over = |all: &[Message]| {
        let ours = bots(all);
        ours.len() == 1 && ours.iter().all(is_whole)
    };
    patiently(town.slack.until("C1", &root, over)).await;
    assert_eq!(bot.end().0, Some(0), "{what}");
    let thread = bots(&town.slack.thread("C1", &root));
    assert!(over(&thread), "{what}: {thread:#?}");
    assert!(thread.iter().all(|one| !reads(one).contains("repeated")), "{what}: {thread:#?}");
    let (even, audit) = town.place.audit();
    assert!(even, "{what}: {audit:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn b91_a_kill_at_any_call_of_a_stream_leaves_one_message_with_the_whole_answer() {
    for method in [START, APPEND, STOP] {
        for fault in [Fault::Stall, Fault::Mute] {
            killed_at(Streaming::Auto, method, 1, fault).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b91_a_kill_at_any_call_of_a_draft_leaves_one_message_with_the_whole_answer() {
    for (method, nth) in [(POST, 1), (UPDATE, 1), (UPDATE, 2)] {
        for fault in [Fault::Stall, Fault::Mute] {
            killed_at(Streaming::Edit, method, nth, fault).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thread_that_is_locked_while_an_answer_streams_is_said_in_the_log() {
    let llm = FakeLlm::start().await;
    let mut town = Town::new(&[]).await;
    asks(&town, &llm, "auto");
    let (gate, end) = (Gate::default(), Gate::default());
    let reply = Reply::stream().data(&chunk::text(&lines("one"))).hold(&gate);
    let reply = reply.data(&chunk::text(&lines("two"))).hold(&end).data(&chunk::finish("stop"));
    llm.will(reply.data(&chunk::usage(10, 5)).done());
    let mut bot = town.bot();
    let asked: Value = town.says(None, "<@U0BOT> tell me");
    let root = ts(&asked);
    deliver(&bot, &asked).await;
    let shows = |all: &[Message]| all.iter().any(|one| reads(one).contains("**one**"));
    patiently(town.slack.until("C1", &root, shows)).await;
    town.slack.always(APPEND, Fault::Refuse("restricted_action_thread_locked"));
    gate.open();
    let said = tokio::task::block_in_place(|| bot.hear("nothing more can be shown there"));
    assert_eq!(said["slack.thread"], root.as_str(), "{said}");
    end.open();
    assert_eq!(bot.end().0, Some(0));
}
