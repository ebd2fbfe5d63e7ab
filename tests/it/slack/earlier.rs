//! What was said in a thread before the bot was called there.

use std::sync::Arc;

use dogwatch::core::arrival::{Incoming, What};
use dogwatch::core::id::{DedupeKey, Principal};
use dogwatch::core::time::Timestamp;
use dogwatch::ports::{Channel, Desk};
use pretty_assertions::assert_eq;

use super::{Stand, address, patiently, session};
use crate::support::bot::{Bot, Setup};
use crate::support::fake_llm::Reply;
use crate::support::fake_slack::{FakeSlack, Fault};

const METHOD: &str = "conversations.replies";
/// The second after the one in which everything is said.
const LATER: Timestamp = Timestamp::from_ms(1_800_000_001_000);

#[tokio::test]
async fn a_thread_is_read_from_its_root_to_the_call_over_several_pages() {
    let stand = Stand::new().await;
    stand.slack.says("C1", Some(&stand.root), "since 10 &lt;o'clock&gt;, <@U9>");
    stand.slack.forged(&stand.root, serde_json::json!({}));
    stand.slack.page_max(2);
    let at = address("C1", &stand.root);
    let earlier = patiently(stand.posting.earlier(&at, LATER)).await;
    let said: Vec<_> = earlier.said.iter().map(|said| (&*said.who, &*said.text)).collect();
    let expected = [
        ("slack/T1/U7", "hey bot"),
        ("slack/T1/U7", "since 10 <o'clock>, @U9"),
        ("a program", "forged"),
    ];
    assert_eq!(said, expected);
    assert!(!earlier.more && earlier.unread.is_none());
    assert_eq!(stand.slack.count(METHOD), 2);
}

#[tokio::test]
async fn a_thread_that_the_call_began_is_not_read() {
    let stand = Stand::new().await;
    let at = address("C1", &stand.root);
    let earlier =
        patiently(stand.posting.earlier(&at, Timestamp::from_ms(1_800_000_000_000))).await;
    assert!(earlier.said.is_empty() && earlier.unread.is_none());
    assert_eq!(stand.slack.count(METHOD), 0);
}

#[tokio::test]
async fn a_limit_is_kept_and_what_could_not_be_read_is_said() {
    let stand = Stand::new().await;
    stand.slack.will(METHOD, Fault::Limited(60));
    let at = address("C1", &stand.root);
    for _ in 0..3 {
        let earlier = patiently(stand.posting.earlier(&at, LATER)).await;
        let why = earlier.unread.unwrap();
        assert!(earlier.said.is_empty() && why.contains("limits"), "{why}");
    }
    // Slack is not asked again before it said that it may be.
    assert_eq!(stand.slack.count(METHOD), 1);
}

async fn say(bot: &Bot, root: &str, text: &str) {
    let incoming = Incoming {
        keys: vec![DedupeKey::new(text).unwrap()],
        what: What::Message { text: text.to_owned() },
        principal: Principal::new("slack/T1/U7").unwrap(),
        address: address("C1", root),
        source_at: LATER,
        continues: false,
        shared: false,
    };
    patiently(bot.desk().accept(&session("C1", root), incoming)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_model_reads_once_what_was_said_before_it_was_called() {
    let slack = Arc::new(FakeSlack::start().await);
    let root = slack.root("C1");
    slack.says("C1", Some(&root), "the deploy hangs; token xoxb-1-secret-of-somebody");
    let setup = Setup { slack: Some(Arc::clone(&slack)), ..Setup::default() };
    let bot = Bot::with(setup).await;
    for (no, text) in ["why does it hang?", "and now?"].into_iter().enumerate() {
        bot.llm.will(Reply::text("Let me see."));
        say(&bot, &root, text).await;
        let seen = patiently(bot.llm.seen(no + 1)).await;
        let request = seen[no].body.to_string();
        assert_eq!(request.matches("[EARLIER HERE] 2 messages").count(), 1, "{request}");
        assert!(
            request.contains("the deploy hangs") && !request.contains("secret-of"),
            "{request}"
        );
    }
    assert_eq!(slack.count(METHOD), 1);
    bot.finish().await;
}
