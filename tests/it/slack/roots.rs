//! Threads that the bot begins itself: the first message is there once, and where it is is kept.

use dogwatch::core::id::Principal;
use dogwatch::core::ledger::row::Opening;
use dogwatch::core::limits::{SLACK_INTRO_CHARS_MAX, SLACK_LOOK_BACK_MS};
use dogwatch::core::time::Timestamp;
use dogwatch::ports::Root;
use pretty_assertions::assert_eq;

use super::*;
use crate::support::fake_slack::Fault;

const METHOD: &str = "chat.postMessage";
const HISTORY: &str = "conversations.history";
const SAID_AT: Timestamp = Timestamp::from_ms(1_799_999_000_000);

fn root(text: &str) -> Root {
    let address = Address { surface: "slack".to_owned(), thread: "T1/C1".to_owned() };
    let principal = Principal::new("slack/T1/U7").unwrap();
    let (text, said_at) = (text.to_owned(), SAID_AT);
    Root {
        item: ItemId::new("root/1").unwrap(),
        session: SessionId::new("slack/T1/C1").unwrap(),
        address,
        opening: Opening { principal, text, said_at, shared: false },
        may_repeat: false,
    }
}

impl Stand {
    async fn begin(&self, text: &str) -> Result<String, ChannelError> {
        patiently(self.posting.root(root(text))).await
    }

    async fn begin_again(&self, text: &str) -> Result<String, ChannelError> {
        patiently(self.posting.root(Root { may_repeat: true, ..root(text) })).await
    }

    /// What stands in the channel and not in a thread, after the stand's own.
    fn beside(&self) -> Vec<Message> {
        let all = self.slack.posted().into_iter();
        all.filter(|one| one.channel == "C1" && one.thread_ts.is_none()).collect()
    }
}

#[tokio::test]
async fn b38_where_the_first_message_is_is_what_is_answered() {
    let stand = Stand::new().await;
    let place = stand.begin("watch *this*\n<!channel> and <@U2>").await.unwrap();
    let [message] = &stand.beside()[..] else { panic!("not one message") };
    assert_eq!(place, format!("T1/C1/{}", message.ts));
    assert_eq!(message.thread_ts, None);
    let by = message.blocks.pointer("/0/elements/0/text").unwrap();
    assert_eq!(by, "<@U7> asks:");
    let said = message.blocks.pointer("/1/text").unwrap();
    assert_eq!(said, "> watch *this*\n> ‹!channel› and ‹@U2›");
    assert!(message.text.starts_with("<@U7> asks:\n"), "{}", message.text);
    assert!(!message.text.contains("<!channel>"), "{}", message.text);
    assert_eq!(part(message), "root");
    // The thread takes answers.
    let ts = message.ts.clone();
    let answer = Post { address: address("C1", &ts), ..post(&ts, "it is quiet") };
    stand.send(answer).await.unwrap();
    assert_eq!(stand.slack.thread("C1", &ts).last().unwrap().text, "it is quiet");
}

#[tokio::test]
async fn a_long_wish_is_shown_by_its_beginning() {
    let stand = Stand::new().await;
    stand.begin(&"word ".repeat(4_000)).await.unwrap();
    let said = stand.beside()[0].blocks.pointer("/1/text").unwrap().as_str().unwrap().to_owned();
    assert_eq!(said.chars().count(), SLACK_INTRO_CHARS_MAX + "> ".len() + 2);
    assert!(said.ends_with(" …"), "{said}");
}

#[tokio::test]
async fn what_was_posted_and_never_heard_of_is_found() {
    for fault in [Fault::CutAfter, Fault::Half, Fault::Bare] {
        let mut stand = Stand::new().await;
        stand.slack.will(METHOD, fault);
        unknown(stand.begin("once").await);
        stand.restart();
        let place = stand.begin_again("once").await.unwrap();
        let [message] = &stand.beside()[..] else { panic!("not one message") };
        assert_eq!(place, format!("T1/C1/{}", message.ts));
        assert_eq!(stand.slack.count(METHOD), 1);
    }
}

#[tokio::test]
async fn what_was_not_posted_is_posted_and_what_nobody_can_look_for_says_that_it_may_repeat() {
    for (hidden, begins) in [(false, "<@U7> asks:"), (true, "_(may be repeated)_ <@U7> asks:")] {
        let mut stand = Stand::new().await;
        stand.slack.will(METHOD, Fault::CutBefore);
        unknown(stand.begin("once").await);
        if hidden {
            stand.slack.always(HISTORY, Fault::Scope("channels:history"));
        }
        stand.restart();
        stand.begin_again("once").await.unwrap();
        let [message] = &stand.beside()[..] else { panic!("not one message") };
        assert!(message.text.starts_with(begins), "{}", message.text);
    }
}

#[tokio::test]
async fn a_thread_in_a_channel_without_the_bot_is_never_begun_and_limits_are_kept() {
    let stand = Stand::new().await;
    stand.slack.will(METHOD, Fault::Refuse("not_in_channel"));
    let what = never(stand.begin("once").await);
    assert!(what.contains("/invite"), "{what}");
    stand.slack.will(METHOD, Fault::Limited(60));
    assert_eq!(retry_ms(stand.begin("once").await), 60_000);
    assert_eq!(stand.beside().len(), 0);
    // What names a thread is none of these, and the reverse (b36).
    let wrong = Root { address: address("C1", &stand.root), ..root("once") };
    never(patiently(stand.posting.root(wrong)).await);
}

#[tokio::test]
async fn what_is_looked_through_begins_when_it_was_asked_for_and_what_nobody_wrote_is_none() {
    let stand = Stand::new().await;
    // The bot joins, is asked again, and nobody hears whether that was posted.
    stand.slack.invited("C1");
    stand.slack.will(METHOD, Fault::CutBefore);
    unknown(stand.begin("once").await);
    stand.begin_again("once").await.unwrap();
    let [message] = &stand.beside()[..] else { panic!("not one message") };
    assert!(message.text.starts_with("<@U7> asks:"), "{}", message.text);
    let looked = stand.slack.called(HISTORY, 1).await;
    let from = (SAID_AT.as_ms() - SLACK_LOOK_BACK_MS) / 1_000;
    assert_eq!(looked[0].arguments["oldest"], format!("{from}.000000"));
}

#[tokio::test]
async fn what_slack_does_not_take_as_markdown_is_posted_as_text() {
    let stand = Stand::new().await;
    stand.slack.will(METHOD, Fault::Refuse("invalid_blocks"));
    let place = stand.begin("watch *this*\n<!channel>").await.unwrap();
    let [message] = &stand.beside()[..] else { panic!("not one message") };
    assert_eq!(place, format!("T1/C1/{}", message.ts));
    assert!(message.blocks.is_null(), "{}", message.blocks);
    assert!(message.text.starts_with("<@U7> asks:\n"), "{}", message.text);
    assert!(message.text.contains("‹!channel›"), "{}", message.text);
    assert_eq!(part(message), "root");
    // That is no cure for everything.
    for _ in 0..2 {
        stand.slack.will(METHOD, Fault::Refuse("invalid_blocks"));
    }
    never(stand.begin("once").await);
}

#[tokio::test]
async fn what_the_bot_repeats_in_its_root_is_not_what_was_said_there_before() {
    let stand = Stand::new().await;
    stand.begin("watch it").await.unwrap();
    let ts = stand.beside()[0].ts.clone();
    stand.slack.says("C1", Some(&ts), "and tell me");
    // As by a clock that is ahead of Slack's.
    let later = Timestamp::from_ms(1_800_000_001_000);
    let earlier = patiently(stand.posting.earlier(&address("C1", &ts), later)).await;
    let said: Vec<_> = earlier.said.iter().map(|said| said.text.as_str()).collect();
    assert_eq!(said, ["and tell me"]);
}
