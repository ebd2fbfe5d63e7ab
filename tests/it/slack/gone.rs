//! An app that is removed, or whose token is made void: its work is stopped, on the real program.

#![expect(clippy::indexing_slicing, reason = "a test fails by panicking")]

use serde_json::{Value, json};

use crate::support::fake_slack::Fault;
use crate::support::service::Service;

use super::patiently;
use super::whole::{Town, count, deliver, has, ts, under_way};

/// Slack says that the app is gone from `team` by now.
pub(super) fn end_of(town: &mut Town, team: &str, kind: &str) -> Value {
    let mut event = town.event(&json!({ "type": kind, "tokens": { "bot": ["U0BOT"] } }));
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    event["event_time"] = now.into();
    event["team_id"] = team.into();
    event["authorizations"][0]["team_id"] = team.into();
    event
}

async fn no_scripts(town: &Town) {
    patiently(async {
        while !town.place.shims().is_empty() {
            crate::support::process::pause().await;
        }
    })
    .await;
}

/// Waits for a line of the log.
fn hears(bot: &mut Service, line: &str) {
    tokio::task::block_in_place(|| bot.hear(line));
}

pub(super) async fn ready_is(bot: &Service, status: u16, words: &str) {
    patiently(async {
        loop {
            let ready = tokio::task::block_in_place(|| bot.get("/readyz"));
            if ready.status == status && ready.body.contains(words) {
                return;
            }
            crate::support::process::pause().await;
        }
    })
    .await;
}

const STOPPED: &str = "the work of an installation that is gone is stopped";

#[tokio::test(flavor = "multi_thread")]
async fn an_app_that_is_removed_ends_its_work_once_and_is_whole_when_it_comes_back() {
    for kinds in [["app_uninstalled", "tokens_revoked"], ["tokens_revoked", "app_uninstalled"]] {
        let mut town = Town::new(&["one"]).await;
        let mut bot = town.bot();
        let asked = town.says(None, "<@U0BOT> watch one");
        let root = ts(&asked);
        deliver(&bot, &asked).await;
        patiently(town.slack.until("C1", &root, under_way)).await;
        // An answer waits for its next try.
        town.slack.always("chat.postMessage", Fault::Status(503));
        let more = town.says(Some(&root), "anybody there?");
        deliver(&bot, &more).await;
        town.slack.called("chat.postMessage", 3).await;
        town.slack.token_is(Some("account_inactive"));
        town.slack.never_again("chat.postMessage");
        for kind in kinds {
            let news = end_of(&mut town, "T1", kind);
            deliver(&bot, &news).await;
            deliver(&bot, &news).await;
        }
        hears(&mut bot, STOPPED);
        no_scripts(&town).await;
        // The answer's next try gives it up, not one in two days.
        let is_dead = |line: &String| line.contains("a dead letter") && line.contains("post/2/0");
        while !bot.log.iter().any(is_dead) {
            hears(&mut bot, "a dead letter");
        }
        ready_is(&bot, 503, "install the app again").await;
        // It is put back; nobody starts the bot again.
        town.slack.token_is(None);
        ready_is(&bot, 200, "Slack knows the bot").await;
        let more = town.says(Some(&root), "<@U0BOT> and now?");
        deliver(&bot, &more).await;
        let thread = town.slack.until("C1", &root, |all| has(all, "heard and now?"));
        let thread = patiently(thread).await;
        assert_eq!(count(&thread, "anybody there"), 1, "only the person's: {thread:#?}");
        assert_eq!(count(&thread, "NEWS"), 0, "{thread:#?}");
        assert_eq!(bot.end().0, Some(0));
        let (even, audit) = town.place.audit();
        assert!(even, "{audit:#}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_after_the_news_of_a_removal_leaves_no_work_and_other_installations_go_on() {
    let mut town = Town::new(&["one"]).await;
    let bot = town.bot();
    let asked = town.says(None, "<@U0BOT> watch one");
    let root = ts(&asked);
    deliver(&bot, &asked).await;
    patiently(town.slack.until("C1", &root, under_way)).await;
    // Another company's copy of the app ends; this one has nothing to do with it.
    let news = end_of(&mut town, "T2", "app_uninstalled");
    deliver(&bot, &news).await;
    ready_is(&bot, 200, "Slack knows the bot").await;
    assert_eq!(town.place.shims().len(), 1);
    town.slack.token_is(Some("account_inactive"));
    let news = end_of(&mut town, "T1", "app_uninstalled");
    deliver(&bot, &news).await;
    // Wherever it is with the stops.
    tokio::task::block_in_place(|| bot.kill());
    let bot = tokio::task::block_in_place(|| town.bot());
    no_scripts(&town).await;
    assert_eq!(bot.end().0, Some(0));
    let (even, audit) = town.place.audit();
    assert!(even, "{audit:#}");
}
