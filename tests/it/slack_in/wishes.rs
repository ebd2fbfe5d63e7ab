//! What comes as a slash command and is none: it is safe before it is acknowledged, and what begins
//! its thread is known by what made Slack send it.

use dogwatch::core::ledger::row::Opening;
use dogwatch::ports::{Clock, DeskError};
use dogwatch::slack::Hearing;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::{Front, settings, who};

fn wish(text: &str) -> Value {
    json!({
        "command": "/dogwatch", "text": text, "team_id": "T1", "enterprise_id": "E1",
        "is_enterprise_install": "false", "channel_id": "C1", "user_id": "U7",
        "trigger_id": "133.474.80ab", "response_url": "https://hooks.slack.com/commands/T1/1/x",
    })
}

/// What only this person sees.
async fn told(front: &Front, raw: &Value) -> String {
    let reply = front.receive(raw).await;
    assert!(reply.is_ack());
    let body = reply.body.unwrap();
    assert_eq!(body["response_type"], "ephemeral");
    body["text"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn b38_what_is_no_command_asks_for_a_thread_in_the_channel_that_it_is_written_in() {
    let front = Front::new();
    let text = told(&front, &wish("watch <#C2|ops> &amp; tell me")).await;
    assert!(text.starts_with("I begin a thread for it here."), "{text}");
    assert!(text.contains("/invite"), "{text}");
    let [(session, item, address, opening)] = &front.desk.openings()[..] else {
        panic!("not one opening")
    };
    assert_eq!((session.as_str(), item.as_str()), ("slack/T1/C1", "root/133.474.80ab"));
    assert_eq!((address.surface.as_str(), address.thread.as_str()), ("slack", "T1/C1"));
    let Opening { principal, text, said_at, shared } = opening;
    assert_eq!((principal.as_str(), text.as_str()), ("slack/T1/U7", "watch #ops & tell me"));
    assert_eq!((*said_at, *shared), (front.clock.now(), false));
    assert!(front.desk.safe_now().is_empty() && front.desk.commands().is_empty());
}

#[tokio::test]
async fn an_enterprise_is_one_installation_and_a_channel_may_be_shared() {
    let mut given = settings();
    let shared = Hearing { shared: true, ..given.hearing };
    given.channels.insert("C1".to_owned(), shared);
    for whole in [json!("true"), json!(true)] {
        let front = Front::of(given.clone());
        front.reception.introduce(who());
        let mut raw = wish("watch it");
        raw["is_enterprise_install"] = whole;
        raw["team_id"] = Value::Null;
        told(&front, &raw).await;
        let (session, _, _, opening) = front.desk.openings().remove(0);
        assert_eq!((session.as_str(), opening.shared), ("slack/E1/C1", true));
        assert_eq!(opening.principal.as_str(), "slack/E1/U7");
    }
}

#[tokio::test]
async fn commands_stay_commands_and_what_says_not_where_it_is_begins_nothing() {
    let front = Front::new();
    for (text, wanted) in [("stop all", "in the thread"), ("help", "`cancel ID`"), (" ", "`help`")]
    {
        let text = told(&front, &wish(text)).await;
        assert!(text.contains(wanted), "{text}");
    }
    for (key, value) in [
        ("channel_id", Value::Null),
        ("channel_id", json!("C1/1.1")),
        ("team_id", json!("")),
        ("user_id", json!(7)),
        ("trigger_id", json!("../x y")),
        ("trigger_id", json!("")),
    ] {
        let mut raw = wish("watch it");
        raw[key] = value;
        let text = told(&front, &raw).await;
        assert!(text.contains("does not say where you are"), "{key}: {text}");
    }
    assert!(front.desk.openings().is_empty());
}

#[tokio::test]
async fn what_is_not_taken_is_told_since_slack_sends_no_command_again() {
    let front = Front::new();
    let full = DeskError::Full("50 conversations are to be begun here and are not yet".to_owned());
    front.desk.refuses(full);
    let text = told(&front, &wish("watch it")).await;
    assert!(text.starts_with("Not taken: 50 conversations"), "{text}");
    front.desk.refuses(DeskError::Away("the store is away".to_owned()));
    let away = told(&front, &wish("watch it")).await;
    assert!(away.ends_with("if no thread appears in a moment, write it again."), "{away}");
    // There is no thread yet in which one could look or stop.
    assert!(!text.contains("stop all") && !away.contains("status"), "{text} {away}");
    // Nothing is acknowledged before it is safe.
    front.desk.shut();
    let raw = wish("watch it");
    let receiving = front.receive(&raw);
    tokio::pin!(receiving);
    let early = tokio::select! {
        biased;
        _reply = &mut receiving => true,
        () = tokio::task::yield_now() => false,
    };
    assert!(!early);
    front.desk.open();
    assert!(receiving.await.is_ack());
    assert_eq!(front.desk.openings().len(), 1);
}

#[tokio::test]
async fn where_the_app_is_not_installed_nothing_is_asked_for() {
    let front = Front::closed();
    let reply = front.receive(&wish("watch it")).await;
    assert_eq!((reply.status, reply.body), (200, None));
    assert!(front.desk.openings().is_empty());
}
