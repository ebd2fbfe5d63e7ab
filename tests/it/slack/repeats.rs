//! A post whose outcome nobody knows: it is looked for, and each part of it is there once.

use dogwatch::core::limits::SLACK_LOOK_MS_MAX;
use pretty_assertions::assert_eq;

use super::*;
use crate::support::fake_slack::Fault;

const METHOD: &str = "chat.postMessage";
const LOOK: &str = "conversations.replies";

/// Three messages' worth.
fn long() -> String {
    "A line of a long answer.\n".repeat(1_200)
}

#[tokio::test]
async fn what_was_posted_and_never_heard_of_is_found_and_not_posted_again() {
    for fault in [Fault::CutAfter, Fault::Half] {
        let mut stand = Stand::new().await;
        stand.slack.will(METHOD, fault);
        unknown(stand.post("once").await);
        // Also by a bot that remembers nothing.
        stand.restart();
        let receipt = stand.again("once").await.unwrap();
        assert_eq!(stand.texts(), ["once"]);
        assert_eq!(receipt, format!("slack:C1/{}", stand.thread()[0].ts));
        assert_eq!(stand.slack.count(METHOD), 1);
    }
}

#[tokio::test]
async fn what_was_not_posted_is_posted_unmarked() {
    for fault in [Fault::CutBefore, Fault::Status(500)] {
        let stand = Stand::new().await;
        stand.slack.will(METHOD, fault);
        unknown(stand.post("once").await);
        stand.again("once").await.unwrap();
        assert_eq!(stand.texts(), ["once"]);
    }
}

#[tokio::test]
async fn of_a_long_post_that_broke_off_each_part_is_there_once() {
    let faults = [Fault::CutAfter, Fault::CutBefore, Fault::Status(403), Fault::Refuse("new_word")];
    for fault in faults {
        let mut stand = Stand::new().await;
        stand.slack.will(METHOD, Fault::Held(opened()));
        stand.slack.will(METHOD, fault);
        // Whatever ended it: a part is there, so the next try must look.
        unknown(stand.post(&long()).await);
        stand.clock.advance(60_000);
        stand.restart();
        stand.again(&long()).await.unwrap();
        let parts: Vec<String> = stand.thread().iter().map(part).collect();
        assert_eq!(parts, ["0", "1", "2"]);
        let texts: Vec<String> = stand.thread().iter().map(markdown).collect();
        assert_eq!(texts.join("\n"), long().trim_end());
    }
}

fn opened() -> tokio_util::sync::CancellationToken {
    let gate = tokio_util::sync::CancellationToken::new();
    gate.cancel();
    gate
}

#[tokio::test]
async fn where_nobody_can_look_it_is_posted_again_and_says_so() {
    let faults = [Fault::Limited(60), Fault::Scope("channels:history"), Fault::CutBefore];
    for fault in faults {
        let mut stand = Stand::new().await;
        stand.slack.will(METHOD, Fault::CutAfter);
        unknown(stand.post("twice").await);
        stand.slack.always(LOOK, fault);
        stand.restart();
        stand.again("twice").await.unwrap();
        assert_eq!(stand.texts(), ["twice", "_(may be repeated)_\n\ntwice"]);
        assert_eq!(markdown(&stand.thread()[1]), "_(may be repeated)_\n\ntwice");
    }
}

#[tokio::test]
async fn messages_that_do_not_say_what_they_are_prove_nothing() {
    let mut stand = Stand::new().await;
    stand.slack.hide_metadata();
    stand.slack.will(METHOD, Fault::CutAfter);
    unknown(stand.post("twice").await);
    stand.restart();
    stand.again("twice").await.unwrap();
    assert_eq!(stand.texts(), ["twice", "_(may be repeated)_\n\ntwice"]);
}

#[tokio::test]
async fn only_the_bots_own_word_counts_and_only_for_this_post() {
    let stand = Stand::new().await;
    let other = Post { item: ItemId::new("post/0/0").unwrap(), ..post(&stand.root, "earlier") };
    stand.send(other).await.unwrap();
    // Somebody else says that it is there, under a name that can be guessed.
    let mut forged = stand.thread()[0].metadata.clone();
    forged["event_payload"]["item"] = "post/1/0".into();
    stand.slack.forged(&stand.root, forged);
    stand.slack.will(METHOD, Fault::CutBefore);
    unknown(stand.post("mine").await);
    stand.again("mine").await.unwrap();
    assert_eq!(stand.texts().last().unwrap(), "mine");
}

#[tokio::test]
async fn a_long_thread_is_looked_at_page_by_page_within_a_bound() {
    for (messages, marked) in [(40, false), (100, true)] {
        let stand = Stand::new().await;
        stand.slack.page_max(15);
        for _ in 0..messages {
            stand.slack.says("C1", Some(&stand.root), "blah");
        }
        stand.slack.will(METHOD, Fault::CutAfter);
        unknown(stand.post("found").await);
        stand.again("found").await.unwrap();
        let texts = stand.texts();
        let expected = if marked { "_(may be repeated)_\n\nfound" } else { "found" };
        assert_eq!(texts.last().unwrap(), expected);
        assert_eq!(texts.len(), messages + if marked { 2 } else { 1 });
    }
}

#[tokio::test]
async fn a_file_that_was_never_heard_of_is_found_too() {
    let mut stand = Stand::new().await;
    let text = "A line of a very long answer.\n".repeat(2_000);
    stand.slack.will("files.completeUploadExternal", Fault::CutAfter);
    unknown(stand.post(&text).await);
    stand.clock.advance(60_000);
    stand.restart();
    stand.again(&text).await.unwrap();
    let thread = stand.thread();
    assert_eq!(thread.len(), 2);
    assert_eq!(thread[1].files.len(), 1);
    // And one that is not there comes without its beginning a second time.
    let stand = Stand::new().await;
    stand.slack.will("files.completeUploadExternal", Fault::CutBefore);
    unknown(stand.post(&text).await);
    stand.clock.advance(60_000);
    stand.again(&text).await.unwrap();
    assert_eq!(
        stand.thread().iter().map(|message| message.files.len()).collect::<Vec<_>>(),
        [0, 1]
    );
}

#[tokio::test]
async fn what_this_process_has_posted_itself_needs_no_look() {
    let stand = Stand::new().await;
    stand.slack.will(METHOD, Fault::Held(opened()));
    stand.slack.will(METHOD, Fault::CutBefore);
    unknown(stand.post(&long()).await);
    stand.slack.always(LOOK, Fault::Limited(60));
    stand.clock.advance(60_000);
    stand.again(&long()).await.unwrap();
    let thread = stand.thread();
    let parts: Vec<String> = thread.iter().map(part).collect();
    assert_eq!(parts, ["0", "1", "2"]);
    // Only what may have been posted says so.
    let marked = thread.iter().map(|message| markdown(message).starts_with("_(may be repeated)_"));
    assert_eq!(marked.collect::<Vec<_>>(), [false, true, false]);
}

#[tokio::test]
async fn a_look_that_takes_too_long_leaves_time_to_post() {
    let mut stand = Stand::new().await;
    stand.slack.will(METHOD, Fault::CutAfter);
    unknown(stand.post("twice").await);
    stand.slack.will(LOOK, Fault::Stall);
    stand.restart();
    let moves = async {
        stand.slack.called(LOOK, 1).await;
        stand.clock.advance(SLACK_LOOK_MS_MAX);
    };
    let (posted, ()) = tokio::join!(stand.again("twice"), patiently(moves));
    posted.unwrap();
    assert_eq!(stand.texts(), ["twice", "_(may be repeated)_\n\ntwice"]);
}
