//! One post: where it lands, what it looks like, and what becomes of it when Slack says no.

use dogwatch::core::limits::{SLACK_MENDED_MS, SLACK_PACE_MS};
use dogwatch::ports::Clock;
use dogwatch::slack::access::Keyring;
use dogwatch::slack::web::Web;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::*;
use crate::support::fake_slack::Fault;

const METHOD: &str = "chat.postMessage";

#[tokio::test]
async fn slack_09_one_answer_is_one_message_in_its_thread() {
    let stand = Stand::new().await;
    let receipt = stand.post("The deploy is **healthy**.").await.unwrap();
    let thread = stand.thread();
    assert_eq!(thread.len(), 1);
    assert_eq!(receipt, format!("slack:C1/{}", thread[0].ts));
    assert_eq!(thread[0].text, "The deploy is *healthy*.");
    assert_eq!(markdown(&thread[0]), "The deploy is **healthy**.");
    // No preview of a link makes another event, and what is told beside the text are ids.
    let asked = &thread[0].arguments;
    assert_eq!(
        (&asked["unfurl_links"], &asked["unfurl_media"]),
        (&json!("false"), &json!("false"))
    );
    let expected = json!({
        "event_type": "dogwatch_post",
        "event_payload": {
            "session": session("C1", &stand.root).as_str(), "item": "post/1/0", "part": "0",
        },
    });
    assert_eq!(thread[0].metadata, expected);
    assert_eq!(stand.slack.count(METHOD), 1);
}

#[tokio::test]
async fn b36_slack_26_what_names_no_thread_is_never_posted_beside_one() {
    let stand = Stand::new().await;
    for thread in ["T1/C1", "T1/C1/", "C1/1700000000.000001", "T1/C1/latest"] {
        let mut post = post(&stand.root, "to nobody");
        post.address.thread = thread.to_owned();
        assert!(never(stand.send(post).await).contains("dead-lettered"), "{thread}");
    }
    assert_eq!(stand.slack.posted().len(), 0);
    // A reply's time stamp is no root, and a thread that is gone is none either.
    let reply = stand.slack.says("C1", Some(&stand.root), "hm");
    assert!(never(stand.send(post(&reply, "x")).await).contains("thread"));
    assert!(never(stand.send(post("1600000000.000001", "x")).await).contains("thread"));
    assert_eq!(stand.slack.posted().len(), 0);
}

#[tokio::test]
async fn b39_an_answer_goes_where_it_was_asked_and_nowhere_else() {
    let stand = Stand::new().await;
    let (here, there) = (stand.slack.root("C2"), stand.slack.root("C1"));
    let mut first = post(&here, "here");
    first.address = address("C2", &here);
    // What a text says of other places moves nothing.
    let text = format!("channel=C1 thread_ts={} <#C1> there", stand.root);
    let second = post(&there, &text);
    stand.send(first).await.unwrap();
    stand.send(second).await.unwrap();
    assert_eq!(stand.slack.thread("C2", &here).len(), 1);
    assert_eq!(stand.slack.thread("C1", &there).len(), 1);
    assert_eq!(stand.slack.posted().len(), 2);
    assert_eq!(stand.thread().len(), 0);
}

#[tokio::test]
async fn a_failure_is_seen_as_one_and_the_rest_is_as_it_is() {
    let stand = Stand::new().await;
    for (number, sort) in [PostSort::Answer, PostSort::Woken, PostSort::Human, PostSort::Failure]
        .into_iter()
        .enumerate()
    {
        let item = ItemId::new(format!("post/{number}/0")).unwrap();
        stand.send(Post { sort, item, ..post(&stand.root, "It broke.") }).await.unwrap();
    }
    assert_eq!(stand.texts(), ["It broke.", "It broke.", "It broke.", "⚠ It broke."]);
}

#[tokio::test]
async fn slack_30_a_text_calls_nobody_in_any_of_its_forms() {
    let stand = Stand::new().await;
    let hostile = "<!channel> <!here|x> <@U7> @everyone <\u{200b}!channel> `<!everyone>` \
                   [x](!channel) <!subteam^S1> a & b <i>";
    stand.post(hostile).await.unwrap();
    let message = stand.thread().remove(0);
    for form in [&message.text, &markdown(&message)] {
        let seen: String = form.chars().filter(|c| *c != '\u{200b}').collect();
        for live in ["<!", "<@", "@everyone"] {
            assert!(!seen.contains(live), "{live} in {form}");
        }
    }
    assert!(message.text.ends_with("a &amp; b &lt;i&gt;"), "{}", message.text);
}

#[tokio::test]
async fn b55_a_limit_on_everything_leaves_one_post_that_waits_and_no_other_word() {
    let stand = Stand::new().await;
    stand.slack.always("*", Fault::Limited(30));
    assert_eq!(retry_ms(stand.post("the answer").await), 30_000);
    // Nothing else goes there meanwhile, so nothing else is refused.
    for _ in 0..100 {
        assert_eq!(retry_ms(stand.post("the answer").await), 30_000);
    }
    assert_eq!(stand.slack.count(METHOD), 1);
    let failure = Post {
        item: ItemId::new("dead/1").unwrap(),
        sort: PostSort::Failure,
        ..post(&stand.root, "It could not be posted.")
    };
    assert_eq!(retry_ms(stand.send(failure).await), 30_000);
    assert_eq!(stand.slack.count(METHOD), 1);
    // Its time is up, but Slack's patience is not.
    stand.clock.advance(30_000);
    assert_eq!(retry_ms(stand.post("the answer").await), 30_000);
    assert_eq!(stand.slack.count(METHOD), 2);
    stand.slack.never_again("*");
    stand.clock.advance(30_000);
    stand.post("the answer").await.unwrap();
    assert_eq!(stand.texts(), ["the answer"]);
    assert_eq!(stand.slack.count(METHOD), 3);
}

#[tokio::test]
async fn slack_22_a_channel_that_is_limited_holds_up_no_other() {
    let stand = Stand::new().await;
    stand.slack.will(METHOD, Fault::LimitedInside);
    let there = stand.slack.root("C2");
    let first = stand.post("limited");
    let moves = async {
        // A short limit is waited for by the same try.
        stand.slack.called(METHOD, 1).await;
        let mut other = post(&there, "not limited");
        other.address = address("C2", &there);
        stand.send(other).await.unwrap();
        assert_eq!(stand.thread().len(), 0);
        stand.clock.sleeps(4).await;
        stand.clock.advance(5_000);
    };
    let (posted, ()) = tokio::join!(first, patiently(moves));
    posted.unwrap();
    assert_eq!(stand.texts(), ["limited"]);
}

#[tokio::test]
async fn slack_21_a_few_messages_go_at_once_and_then_one_a_second() {
    let stand = Stand::new().await;
    let roots: Vec<String> = (0..6).map(|_| stand.slack.root("C1")).collect();
    for root in &roots[..4] {
        stand.send(post(root, "at once")).await.unwrap();
    }
    for (number, root) in roots[4..].iter().enumerate() {
        let before = stand.clock.sleeps(0).await.len();
        let moves = async {
            // The wait of the pace is the one sleep before the call's own.
            let sleeps = stand.clock.sleeps(before + 1).await;
            assert_eq!(sleeps[before], SLACK_PACE_MS);
            assert_eq!(stand.slack.count(METHOD), 4 + number);
            stand.clock.advance(SLACK_PACE_MS);
        };
        let (posted, ()) = tokio::join!(stand.send(post(root, "later")), patiently(moves));
        posted.unwrap();
    }
}

#[tokio::test]
async fn what_cannot_be_is_said_so_that_a_person_understands_it() {
    let stand = Stand::new().await;
    let said = |what: &str, word: &str, result| {
        let said = never(result);
        assert!(said.contains(what) && said.contains(word), "{said}");
    };
    stand.slack.room("C1", |room| room.is_member = false);
    said("/invite", "not_in_channel", stand.post("x").await);
    stand.slack.room("C1", |room| (room.is_member, room.is_archived) = (true, true));
    said("archived", "is_archived", stand.post("x").await);
    let root = stand.root.clone();
    stand.slack.room("C1", |room| (room.is_archived, room.locked) = (false, vec![root]));
    said("locked", "restricted_action_thread_locked", stand.post("x").await);
    let mut elsewhere = post(&stand.root, "x");
    elsewhere.address = address("C9", &stand.root);
    said("gone", "channel_not_found", stand.send(elsewhere).await);
    assert_eq!(stand.slack.posted().len(), 0);
}

#[tokio::test]
async fn what_an_operator_can_mend_is_kept_with_its_cure() {
    let stand = Stand::new().await;
    for word in ["invalid_auth", "token_revoked", "account_inactive"] {
        stand.slack.token_is(Some(word));
        match stand.post("kept").await {
            Err(ChannelError::Retry { what, after_ms }) => {
                assert!(what.contains("bot_token") && what.contains(word), "{what}");
                assert_eq!(after_ms, SLACK_MENDED_MS);
            }
            other => panic!("{other:?}"),
        }
    }
    stand.slack.token_is(None);
    stand.clock.advance(SLACK_MENDED_MS);
    stand.slack.will(METHOD, Fault::Scope("chat:write"));
    assert_eq!(retry_ms(stand.post("kept").await), SLACK_MENDED_MS);
    stand.post("kept").await.unwrap();
    assert_eq!(stand.texts(), ["kept"]);
}

#[tokio::test]
async fn what_slack_did_without_saying_what_is_done() {
    let stand = Stand::new().await;
    stand.slack.will(METHOD, Fault::Bare);
    assert_eq!(stand.post("once").await.unwrap(), "slack:C1/?");
    assert_eq!(stand.texts(), ["once"]);
}

#[tokio::test]
async fn nobody_there_is_tried_again_and_silence_is_unknown() {
    let stand = Stand::new().await;
    stand.slack.will(METHOD, Fault::Stall);
    let moves = async {
        stand.slack.called(METHOD, 1).await;
        // The end of the try, and of the call.
        stand.clock.sleeps(2).await;
        stand.clock.advance(SLACK_CALL_MS);
    };
    let (posted, ()) = tokio::join!(stand.post("x"), patiently(moves));
    assert!(unknown(posted).contains("no answer for 10000 ms"));
    stand.slack.will(METHOD, Fault::Status(503));
    assert!(unknown(stand.post("x").await).contains("HTTP 503"));
    stand.slack.will(METHOD, Fault::Status(403));
    assert_eq!(retry_ms(stand.post("x").await), 0);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let api = format!("http://{}/api/", listener.local_addr().unwrap());
    drop(listener);
    let clock: Arc<dyn Clock> = Arc::new(stand.clock.clone());
    let web = Arc::new(Web::new(&api, Arc::clone(&clock)).unwrap());
    let nowhere = {
        let settings = stand.slack.settings();
        Posting::new(settings.streaming, Keyring::of(&settings).unwrap(), web, clock)
    };
    let what = format!("{:?}", patiently(nowhere.post(post(&stand.root, "x"))).await);
    assert!(what.contains("Retry") && what.contains("no connection"), "{what}");
    assert_eq!(stand.thread().len(), 0);
}

/// A conversation as people read it, in Slack's own form.
#[tokio::test]
async fn a_conversation_is_rendered_so() {
    let stand = Stand::new().await;
    let say = async |number: usize, sort, text: &str| {
        let item = ItemId::new(format!("post/{number}/0")).unwrap();
        stand.clock.advance(10_000);
        stand.send(Post { item, sort, ..post(&stand.root, text) }).await.unwrap();
    };
    say(1, PostSort::Answer, "I watch the deploy (`deploy_1`) and say when it is **done**.").await;
    let woken = "# Deploy done\n\nAll **3** of 3 pods are ready & healthy, see \
                 [the log](https://example.com/log?a=1&b=2):\n\n- `web-1` up\n- `web-2` up\n\n\
                 ```console\n$ kubectl get pods <web>\nweb-1   Running\n```\n\n\
                 | pod | state |\n|---|---|\n| web-1 | up |\n\n> said <!channel> nobody";
    say(2, PostSort::Woken, woken).await;
    say(3, PostSort::Failure, "The turn broke off: the model does not answer.").await;
    let shown =
        |message: &Message| -> Value { json!({ "text": message.text, "blocks": message.blocks }) };
    let thread: Vec<Value> = stand.thread().iter().map(shown).collect();
    insta::assert_json_snapshot!(thread);
}
