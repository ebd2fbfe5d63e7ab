//! What becomes of a delivery: safe first, then acknowledged, and in time or not at all.

use dogwatch::core::arrival::What;
use dogwatch::core::execution::Scope;
use dogwatch::core::id::{ExecutionId, PressId, StopId};
use dogwatch::core::limits::{
    SLACK_ACK_MS, SLACK_BOT_MESSAGES_MAX, SLACK_IN_HAND_MAX, SLACK_RETRIES_MAX,
};
use dogwatch::ports::{Command, DeskError};
use dogwatch::slack::hear::CANCEL;
use dogwatch::slack::{Mode, Settings};
use serde_json::{Value, json};

use super::{Front, TS, callback, message, patiently, settings, twin, who};

#[tokio::test]
async fn b85_slack_06_what_is_not_safe_in_time_is_not_acknowledged_and_taken_once() {
    let front = Front::new();
    front.desk.shut();
    let raw = callback("Ev1", &message(TS, "watch the build"));
    let first = front.reception.receive(front.delivery(&raw, 0));
    let moves = async {
        front.desk.came(1).await;
        assert_eq!(front.clock.sleeps(1).await, [SLACK_ACK_MS]);
        front.clock.advance(SLACK_ACK_MS);
    };
    let (reply, ()) = patiently(async { tokio::join!(first, moves) }).await;
    assert_eq!((reply.status, front.desk.safe_now().len()), (503, 0));
    // It went on, and what Slack sends again finds it.
    front.desk.open();
    front.desk.safe(1).await;
    for attempt in 1..=3 {
        let again = front.reception.receive(front.delivery(&raw, attempt));
        assert!(patiently(again).await.is_ack());
    }
    front.desk.repeats(3).await;
    assert_eq!(front.desk.texts(), ["watch the build"]);
}

#[tokio::test]
async fn no_acknowledgement_comes_before_it_is_safe() {
    let front = Front::new();
    front.desk.shut();
    let many = SLACK_IN_HAND_MAX;
    let raws: Vec<Value> = (0..many)
        .map(|n| callback(&format!("Ev{n}"), &message(&format!("17000000{n:02}.000100"), "go")))
        .collect();
    let replies = raws.iter().map(|raw| front.reception.receive(front.delivery(raw, 0)));
    let all = futures_util::future::join_all(replies);
    let mut all = Box::pin(all);
    // All of them stand before the desk, none is through: none is answered.
    let came = front.desk.came(many);
    tokio::select! {
        biased;
        _ = &mut all => panic!("acknowledged before it was safe"),
        () = came => {}
    }
    // One more has no place, and is told so at once.
    let more = callback("EvX", &message("1700000999.000100", "go"));
    assert_eq!(front.status(&more).await, 503);
    front.desk.open();
    let replies = patiently(all).await;
    assert!(replies.iter().all(dogwatch::slack::reception::Reply::is_ack));
    assert_eq!(front.desk.safe_now().len(), many);
    assert!(front.receive(&more).await.is_ack());
}

#[tokio::test]
async fn b86_slack_05_a_repeat_that_is_the_only_delivery_is_taken() {
    let front = Front::new();
    let raw = callback("Ev1", &message(TS, "watch the build"));
    let only = front.reception.receive(front.delivery(&raw, 1));
    assert!(patiently(only).await.is_ack());
    assert_eq!(front.desk.texts(), ["watch the build"]);
}

#[tokio::test]
async fn b88_slack_01_a_mention_is_one_message_in_whatever_order_it_comes() {
    let event = message(TS, "watch the build");
    let (plain, mention) = (callback("Ev1", &event), callback("Ev2", &twin(&event)));
    for deliveries in [
        vec![&plain, &mention],
        vec![&mention, &plain],
        vec![&mention],
        vec![&plain],
        vec![&mention, &plain, &mention, &plain],
    ] {
        for mode in [Mode::Mention, Mode::Thread, Mode::All] {
            let front = Front::of(Settings { hearing: mode.into(), ..settings() });
            front.reception.introduce(who());
            for raw in &deliveries {
                assert!(front.receive(raw).await.is_ack());
            }
            let safe = front.desk.safe_now();
            assert_eq!(safe.len(), 1);
            assert!(!safe[0].1.continues, "a mention begins a conversation");
            assert_eq!(front.desk.texts(), ["watch the build"]);
            front.desk.repeats(deliveries.len() - 1).await;
        }
    }
}

#[tokio::test]
async fn b88_a_command_in_both_events_is_carried_out_and_answered_once() {
    let event = message(TS, "stop all");
    let (plain, mention) = (callback("Ev1", &event), callback("Ev2", &twin(&event)));
    for deliveries in [[&plain, &mention], [&mention, &plain]] {
        let front = Front::new();
        front.desk.shut();
        // Both at once: the second waits for the first.
        let both = async {
            tokio::join!(
                front.reception.receive(front.delivery(deliveries[0], 0)),
                front.reception.receive(front.delivery(deliveries[1], 0)),
            )
        };
        let opens = async {
            front.desk.came(1).await;
            front.desk.open();
        };
        let ((first, second), ()) = patiently(async { tokio::join!(both, opens) }).await;
        assert!(first.is_ack() && second.is_ack());
        let answers = front.answers.given(1).await;
        assert!(answers[0].1.contains("nothing wakes until you write"), "{answers:?}");
        front.reception.finish().await;
        assert_eq!((front.answers.count(), front.desk.commands().len()), (1, 1));
        let stop = StopId::new(format!("slack/T1/C1/{TS}")).unwrap();
        // When it was written, not when it came: what was written after it is answered.
        let seconds: u64 = TS.split('.').next().unwrap().parse().unwrap();
        let said_at = front.desk.commands()[0].2.clone();
        let Command::Stop { said_at: Some(said_at), .. } = said_at else { panic!("{said_at:?}") };
        assert_eq!(said_at.as_ms() / 1_000, seconds);
        let wanted = Command::Stop { scope: Scope::All, stop, said_at: Some(said_at) };
        assert_eq!(front.desk.commands()[0].2, wanted);
        assert_eq!(front.desk.safe_now(), []);
    }
}

#[tokio::test]
async fn b90_an_edit_or_deletion_goes_to_its_message_and_begins_nothing() {
    let front = Front::new();
    let before = message(TS, "watch a");
    let mut now = message(TS, "watch b");
    now["edited"] = json!({});
    let changed = json!({ "type": "message", "subtype": "message_changed", "hidden": true,
        "channel": "C1", "ts": "1700000009.000300", "event_ts": "1700000009.000300",
        "message": now, "previous_message": before });
    let deleted = json!({ "type": "message", "subtype": "message_deleted", "hidden": true,
        "channel": "C1", "ts": "1700000010.000300", "event_ts": "1700000010.000300",
        "deleted_ts": TS, "previous_message": before });
    let mut again = twin(&now);
    again["event_ts"] = json!("1700000009.000400");
    for (id, event) in [("Ev1", before), ("Ev2", changed), ("Ev3", again), ("Ev4", deleted)] {
        assert!(front.receive(&callback(id, &event)).await.is_ack());
    }
    let safe = front.desk.safe_now();
    assert_eq!(front.desk.texts(), ["watch a", "watch b", "(gone)"]);
    let key = &safe[0].1.keys[1];
    assert!(matches!(&safe[1].1.what, What::Edit { of, .. } if of == key));
    assert!(matches!(&safe[2].1.what, What::Deletion { of } if of == key));
    assert!(safe[1].1.continues && safe[2].1.continues);
    assert!(safe.iter().all(|(session, _)| session == &safe[0].0));
}

#[tokio::test]
async fn slack_03_unfolded_links_say_nothing() {
    let front = Front::new();
    let before = message(TS, "see https://example.com");
    for n in 0..50 {
        let ts = format!("17000000{n:02}.000300");
        let mut now = before.clone();
        now["attachments"] = json!([{ "text": format!("unfolded {n}") }]);
        let changed = json!({ "type": "message", "subtype": "message_changed", "hidden": true,
            "channel": "C1", "ts": ts, "event_ts": ts, "message": now,
            "previous_message": before });
        assert!(front.receive(&callback(&format!("Ev{n}"), &changed)).await.is_ack());
    }
    assert_eq!(front.desk.safe_now(), []);
}

#[tokio::test]
async fn b54_until_the_bot_knows_itself_nothing_is_acknowledged() {
    let front = Front::of(Settings { hearing: Mode::All.into(), ..settings() });
    let own = json!({ "type": "message", "user": "UBOT", "bot_id": "BBOT", "text": "On it",
                      "channel": "C1", "channel_type": "channel", "ts": TS });
    let (own, other) = (callback("Ev1", &own), callback("Ev2", &message(TS, "hi")));
    assert_eq!((front.status(&own).await, front.status(&other).await), (503, 503));
    assert!(!front.reception.health().ok);
    front.reception.introduce(who());
    assert!(front.reception.health().ok);
    assert_eq!((front.status(&own).await, front.status(&other).await), (200, 200));
    assert_eq!(front.desk.texts(), ["hi"]);
}

#[tokio::test]
async fn b53_slack_34_two_programs_do_not_talk_for_ever() {
    let front = Front::of(Settings { bots: vec!["B9".into()], ..settings() });
    front.reception.introduce(who());
    for n in 0..SLACK_BOT_MESSAGES_MAX + 5 {
        let mut event = message(&format!("17000000{n:02}.000300"), "and then?");
        event["bot_id"] = json!("B9");
        event["thread_ts"] = json!(TS);
        for (twin_of, event) in [(0, event.clone()), (1, twin(&event))] {
            let raw = callback(&format!("Ev{n}.{twin_of}"), &event);
            assert!(front.receive(&raw).await.is_ack());
        }
    }
    assert_eq!(front.desk.safe_now().len(), SLACK_BOT_MESSAGES_MAX);
    let mut stranger = message("1700000099.000300", "and I?");
    stranger["bot_id"] = json!("B8");
    assert!(front.receive(&callback("EvX", &stranger)).await.is_ack());
    assert_eq!(front.desk.safe_now().len(), SLACK_BOT_MESSAGES_MAX);
}

#[tokio::test]
async fn what_is_full_or_away_comes_again_and_what_is_wrong_is_told_once() {
    let front = Front::new();
    let event = message(TS, "hi");
    let (plain, mention) = (callback("Ev1", &event), callback("Ev2", &twin(&event)));
    let full = || DeskError::Full("256 messages here are not read yet".into());
    front.desk.refuses(full());
    assert_eq!(front.status(&plain).await, 503);
    front.desk.refuses(DeskError::Away("the store is away".into()));
    assert_eq!(front.status(&plain).await, 503);
    assert_eq!(front.answers.count(), 0, "Slack tries again, so nobody is told");
    // At the last try there is nobody else to say it.
    front.desk.refuses(full());
    let last = front.reception.receive(front.delivery(&plain, SLACK_RETRIES_MAX));
    assert_eq!(patiently(last).await.status, 503);
    let (whom, text) = front.answers.given(1).await.remove(0);
    let whom = whom.unwrap();
    assert_eq!((whom.user.as_str(), whom.thread.root(), whom.inside), ("U7", TS, false));
    assert!(text.starts_with("Not taken: 256 messages"), "{text}");

    let front = Front::new();
    for raw in [&plain, &mention] {
        front.desk.refuses(DeskError::Invalid("it is too long".into()));
        assert!(front.receive(raw).await.is_ack());
    }
    front.reception.finish().await;
    assert_eq!(front.answers.count(), 1);
    assert_eq!(front.desk.safe_now(), []);
}

fn press(action: &Value, user: &str) -> Value {
    json!({
        "type": "block_actions", "user": { "id": user, "team_id": "T1" }, "team": { "id": "T1" },
        "channel": { "id": "C1" },
        "container": { "message_ts": "1700000001.000300", "thread_ts": TS },
        "response_url": "https://hooks.slack.com/actions/T1/1/x",
        "actions": [action],
    })
}

#[tokio::test]
async fn only_who_started_it_may_cancel_and_everybody_is_answered() {
    let front = Front::new();
    front.desk.runs(&format!("slack/T1/C1/{TS}"), "w-1", "slack/T1/U7");
    let cancel = json!({ "action_id": CANCEL, "value": "w-1", "action_ts": "1700000005.000001" });
    assert!(front.receive(&press(&cancel, "U8")).await.is_ack());
    let (whom, text) = front.answers.given(1).await.remove(0);
    assert_eq!(text, "`w-1` is <@U7>'s; ask them.");
    assert!(whom.unwrap().inside);
    // A repeat of a press is that press.
    for _ in 0..2 {
        assert!(front.receive(&press(&cancel, "U7")).await.is_ack());
    }
    let answers = front.answers.given(2).await;
    assert!(answers[1].1.contains("is being ended"), "{answers:?}");
    let press_id = PressId::new("slack/press/U7/1700000005.000001").unwrap();
    let wanted = Command::Cancel { execution: ExecutionId::new("w-1").unwrap(), press: press_id };
    let (session, by, command) = front.desk.commands().remove(1);
    assert_eq!((session.as_str(), by.as_str()), ("slack/T1/C1/1700000000.000100", "slack/T1/U7"));
    assert_eq!(command, wanted);
    // By words, too.
    let mut event = message("1700000006.000100", "cancel `w-1`");
    event["thread_ts"] = json!(TS);
    event["user"] = json!("U8");
    assert!(front.receive(&callback("Ev9", &event)).await.is_ack());
    assert_eq!(front.answers.given(3).await[2].1, "`w-1` is <@U7>'s; ask them.");
    event["text"] = json!("<@UBOT> cancel w-9");
    event["ts"] = json!("1700000007.000100");
    assert!(front.receive(&callback("Ev10", &event)).await.is_ack());
    assert!(front.answers.given(4).await[3].1.starts_with("There is no `w-9`"));
    assert_eq!(front.desk.commands().len(), 4, "whose it is the desk knows");
}

#[tokio::test]
async fn a_press_that_cannot_be_done_is_told_and_one_that_repeats_is_tried_anew() {
    let front = Front::new();
    let stop = json!({ "action_id": "stop_turn", "action_ts": "1700000005.000001" });
    front.desk.refuses(DeskError::Away("the store is away".into()));
    assert!(front.receive(&press(&stop, "U8")).await.is_ack());
    assert!(front.answers.given(1).await[0].1.contains("look at `status`"));
    assert!(front.receive(&press(&stop, "U8")).await.is_ack());
    assert!(front.answers.given(2).await[1].1.starts_with("The turn is stopped"));
    assert_eq!(front.desk.commands().len(), 1, "anybody may stop a turn");
}

#[tokio::test]
async fn commands_show_what_there_is() {
    let front = Front::new();
    front.desk.runs(&format!("slack/T1/C1/{TS}"), "w-1", "slack/T1/U7");
    for (n, text, wanted) in [
        (1, "watchers", "• `w-1` running, 1m0s of 10m0s – deploy &lt;watch&gt;"),
        (2, "status", "*This thread: turn 3 is running*\n• unread: 1 message, 0 results"),
        (3, "help", "• `cancel ID`"),
        (4, "", "• `cancel ID`"),
    ] {
        let mut event = message(&format!("170000000{n}.000100"), text);
        event["thread_ts"] = json!(TS);
        assert!(front.receive(&callback(&format!("Ev{n}"), &event)).await.is_ack());
        let answers = front.answers.given(n).await;
        assert!(answers[n - 1].1.contains(wanted), "{answers:?}");
        assert!(answers[n - 1].0.as_ref().unwrap().inside);
    }
}

#[tokio::test]
async fn where_there_is_no_thread_the_answer_goes_with_the_acknowledgement() {
    let front = Front::new();
    let slash = json!({ "command": "/dogwatch", "text": "stop", "user_id": "U7" });
    let reply = front.receive(&slash).await;
    let body = reply.body.unwrap();
    assert_eq!(body["response_type"], "ephemeral");
    assert!(body["text"].as_str().unwrap().contains("in the thread"), "{body}");
    let old = json!({ "action_id": "old", "value": "x", "action_ts": "1.1" });
    let mut home = press(&old, "U7");
    home["channel"] = Value::Null;
    home["container"] = json!({ "type": "view" });
    assert_eq!(front.receive(&home).await.body, None);
    let (whom, text) = front.answers.given(1).await.remove(0);
    assert!(whom.is_none() && text.starts_with("https://hooks.slack.com/"), "{text}");
}

#[tokio::test]
async fn what_becomes_of_the_installation_is_seen() {
    let front = Front::new();
    let limited = json!({ "type": "app_rate_limited", "team_id": "T1" });
    assert!(front.receive(&limited).await.is_ack());
    assert!(front.reception.health().ok);
    for event in [
        json!({ "type": "tokens_revoked", "tokens": { "bot": ["UBOT"] } }),
        json!({ "type": "app_uninstalled" }),
        json!({ "type": "app_uninstalled" }),
    ] {
        assert!(front.receive(&callback("Ev1", &event)).await.is_ack());
        let health = front.reception.health();
        assert!(!health.ok && health.what.contains("install"), "{health:?}");
    }
}
