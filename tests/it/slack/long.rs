//! Long posts: several messages, or a file.

use dogwatch::core::limits::{
    POST_LEASE_MS, SLACK_BLOCK_CHARS_MAX, SLACK_CALL_MS, SLACK_MENDED_MS, SLACK_PACE_MS,
    SLACK_TEXT_CHARS_MAX,
};
use dogwatch::ports::Clock;
use pretty_assertions::assert_eq;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::support::fake_slack::Fault;

const METHOD: &str = "chat.postMessage";

/// Numbered lines of so many characters in all.
fn lines(chars: usize) -> String {
    let lines: Vec<String> = (0..chars / 20).map(|n| format!("line {n:<13}x\n")).collect();
    let mut text = lines.concat();
    text.extend(std::iter::repeat_n('x', chars - text.len()));
    text
}

/// Everything that the thread's messages show, without what joins them.
fn whole(messages: &[Message]) -> String {
    messages.iter().map(markdown).collect::<Vec<_>>().join("\n")
}

fn fit(messages: &[Message]) {
    for message in messages {
        assert!(message.text.chars().count() <= SLACK_TEXT_CHARS_MAX);
        assert!(markdown(message).chars().count() <= SLACK_BLOCK_CHARS_MAX);
    }
}

#[tokio::test]
async fn b91_slack_17_slack_18_long_answers_land_whole_and_in_order() {
    for (chars, messages) in [(3_001, 1), (4_001, 1), (11_401, 2), (13_202, 2), (34_000, 3)] {
        let stand = Stand::new().await;
        let text = lines(chars);
        assert_eq!(text.chars().count(), chars);
        stand.post(&text).await.unwrap();
        let thread = stand.thread();
        assert_eq!(thread.len(), messages, "{chars}");
        fit(&thread);
        assert_eq!(whole(&thread), text.trim_end(), "{chars}");
        let parts: Vec<String> = thread.iter().map(part).collect();
        assert_eq!(parts, ["0", "1", "2"][..messages]);
    }
}

#[tokio::test]
async fn b91_what_is_too_long_for_messages_is_a_file_in_the_thread() {
    let stand = Stand::new().await;
    let text = lines(40_001);
    let receipt = stand.post(&text).await.unwrap();
    let thread = stand.thread();
    assert_eq!(thread.len(), 2);
    assert_eq!(receipt, format!("slack:C1/{}", thread[0].ts));
    fit(&thread);
    assert!(markdown(&thread[0]).starts_with("line 0 "));
    let says = "2001 lines with 40001 characters, is in the file below._";
    assert!(markdown(&thread[0]).ends_with(says), "{}", markdown(&thread[0]));
    assert_eq!(thread[1].files.len(), 1);
    assert_eq!(thread[1].files[0].name, "answer.md");
    assert_eq!(thread[1].files[0].bytes.as_deref(), Some(text.as_bytes()));
}

#[tokio::test]
async fn where_slack_takes_no_file_all_of_it_comes_as_messages() {
    for method in ["files.getUploadURLExternal", "files.completeUploadExternal"] {
        let stand = Stand::new().await;
        stand.slack.always(method, Fault::Scope("files:write"));
        let text = lines(40_001);
        // One message a second, once a few have gone at once.
        pass(&stand.clock, SLACK_PACE_MS, stand.post(&text)).await.unwrap();
        let thread = stand.thread();
        let messages: Vec<Message> =
            thread.into_iter().filter(|message| part(message) != "intro").collect();
        assert_eq!(messages.len(), 4);
        assert_eq!(whole(&messages), text.trim_end());
    }
}

#[tokio::test]
async fn slack_17_where_slack_takes_no_blocks_the_text_comes_in_smaller_pieces() {
    for word in ["msg_blocks_too_long", "msg_too_long", "invalid_blocks"] {
        let stand = Stand::new().await;
        stand.slack.will(METHOD, Fault::Refuse(word));
        let text = lines(9_001);
        stand.post(&text).await.unwrap();
        let thread = stand.thread();
        let parts: Vec<String> = thread.iter().map(part).collect();
        assert_eq!(parts, ["0/0", "0/1", "0/2"]);
        let texts: Vec<String> = thread.iter().map(|message| message.text.clone()).collect();
        assert_eq!(texts.join("\n"), text.trim_end());
        assert!(thread.iter().all(|message| message.blocks.is_null()));
        fit(&thread);
    }
}

#[tokio::test]
async fn a_try_ends_in_time_however_slow_slack_is_and_the_next_one_goes_on() {
    let stand = Stand::new().await;
    let text = lines(34_000);
    let gates: Vec<CancellationToken> = (0..2).map(|_| CancellationToken::new()).collect();
    for gate in &gates {
        stand.slack.will(METHOD, Fault::Held(gate.clone()));
    }
    let began = stand.clock.now();
    let moves = async {
        for (number, gate) in gates.iter().enumerate() {
            stand.slack.called(METHOD, number + 1).await;
            // The end of the try and that of the call.
            stand.clock.sleeps(2 * (number + 1)).await;
            stand.clock.advance(SLACK_CALL_MS - 500);
            gate.cancel();
        }
    };
    let (posted, ()) = tokio::join!(stand.post(&text), patiently(moves));
    let what = unknown(posted);
    assert!(what.contains("2 messages of it are there"), "{what}");
    assert!(stand.clock.now().since_ms(began) < POST_LEASE_MS);
    stand.clock.advance(60_000);
    stand.again(&text).await.unwrap();
    let parts: Vec<String> = stand.thread().iter().map(part).collect();
    assert_eq!(parts, ["0", "1", "2"]);
}

#[tokio::test]
async fn what_slack_takes_in_no_form_is_given_up_with_its_word() {
    let stand = Stand::new().await;
    stand.slack.always(METHOD, Fault::Refuse("invalid_blocks"));
    assert!(never(stand.post("x").await).contains("invalid_blocks"));
    stand.slack.always(METHOD, Fault::Refuse("something_new"));
    assert_eq!(retry_ms(stand.post("x").await), SLACK_MENDED_MS);
}
