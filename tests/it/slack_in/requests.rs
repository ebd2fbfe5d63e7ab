//! Signed requests, over a real socket.

use std::sync::Arc;

use dogwatch::core::limits::{HTTP_BODY_BYTES_MAX, SLACK_SKEW_MS_MAX};
use dogwatch::core::time::Timestamp;
use dogwatch::ports::{Clock, DeskError};
use dogwatch::slack::routes::routes;
use dogwatch::slack::{Ingress, Settings};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::{Front, SECRET, TS, callback, message, patiently, settings, who};
use crate::support::manual_clock::ManualClock;
use crate::support::slack_push::{Push, Pusher};

struct House {
    front: Front,
    slack: Pusher,
}

async fn house() -> House {
    let front = Front::new();
    let slack = Pusher::to(routes(Arc::clone(&front.reception)), SECRET).await;
    House { front, slack }
}

impl House {
    fn push(&self, path: &str, body: impl Into<String>) -> Push {
        // As the bot's clock has it.
        self.slack.push(path, body, 1_000)
    }

    async fn status(&self, push: Push) -> u16 {
        patiently(self.slack.send(push)).await.0
    }
}

#[tokio::test]
async fn a_signed_event_is_taken_and_slacks_question_answered() {
    let house = house().await;
    let raw = callback("Ev1", &message(TS, "hi")).to_string();
    assert_eq!(house.status(house.push("/slack/events", raw)).await, 200);
    assert_eq!(house.front.desk.texts(), ["hi"]);
    let question = json!({ "type": "url_verification", "challenge": "c-1", "token": "t" });
    let push = house.push("/slack/events", question.to_string());
    let (status, body, _) = patiently(house.slack.send(push)).await;
    assert_eq!(
        (status, serde_json::from_str::<Value>(&body).unwrap()),
        (200, json!({ "challenge": "c-1" }))
    );
    let push = house.push("/slack/commands", "ssl_check=1&token=t");
    assert_eq!(house.status(push).await, 200);
}

/// Begun while the machine's clock was wrong: the bot's time goes on from there.
#[derive(Clone)]
struct SetRight(ManualClock, Timestamp);

impl Clock for SetRight {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn wall(&self) -> Timestamp {
        self.1
    }

    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        self.0.sleep_until(at)
    }
}

#[tokio::test]
async fn what_is_signed_is_judged_by_the_clock_as_it_is_set_now() {
    let right = Timestamp::from_ms(1_700_000_600_000);
    let front = Front::at(Arc::new(SetRight(ManualClock::new(), right)));
    let slack = Pusher::to(routes(Arc::clone(&front.reception)), SECRET).await;
    let raw = callback("Ev1", &message(TS, "hi")).to_string();
    let push = slack.push("/slack/events", raw.clone(), 1_700_000_600);
    assert_eq!(patiently(slack.send(push)).await.0, 200);
    let late = slack.push("/slack/events", raw, 1_700_000_000);
    assert_eq!(patiently(slack.send(late)).await.0, 401);
}

#[tokio::test]
async fn forms_are_commands_and_presses() {
    let house = house().await;
    let push = house.push("/slack/commands", "command=%2Fdogwatch&text=help&user_id=U7");
    let (status, body, _) = patiently(house.slack.send(push)).await;
    assert_eq!(status, 200);
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap()["response_type"], "ephemeral");
    let press = json!({
        "type": "block_actions", "user": { "id": "U7" }, "team": { "id": "T1" },
        "channel": { "id": "C1" }, "container": { "message_ts": "1.1", "thread_ts": TS },
        "actions": [{ "action_id": "stop_all", "action_ts": "1700000005.000001" }],
    });
    let body = format!("payload={}", escaped(&press.to_string()));
    assert_eq!(house.status(house.push("/slack/interactive", body)).await, 200);
    assert_eq!(house.front.desk.commands().len(), 1);
    house.front.answers.given(1).await;
}

fn escaped(text: &str) -> String {
    text.bytes().fold(String::new(), |text, byte| format!("{text}%{byte:02X}"))
}

#[tokio::test]
async fn what_is_not_signed_is_not_read() {
    let house = house().await;
    let raw = callback("Ev1", &message(TS, "hi")).to_string();
    let push = || house.push("/slack/events", raw.clone());
    let late = SLACK_SKEW_MS_MAX / 1_000 + 1;
    for wrong in [
        push().without("x-slack-signature"),
        push().without("x-slack-request-timestamp"),
        push().also("x-slack-signature", "v0=00"),
        push().also("x-slack-request-timestamp", "1000"),
        push().signed_with("another secret"),
        push().body(raw.replace("hi", "ho")),
        push().body(format!("{raw} ")),
        house.slack.push("/slack/events", raw.clone(), 1_000 + late),
        house.slack.push("/slack/events", raw.clone(), 1_000 - late),
        house.push("/slack/commands", "ssl_check=1").without("x-slack-signature"),
        house.push("/slack/interactive", "payload=%7B%7D").signed_with("x"),
        house
            .push("/slack/events", json!({ "type": "url_verification" }).to_string())
            .signed_with("x"),
    ] {
        assert_eq!(house.status(wrong).await, 401);
    }
    house.front.reception.finish().await;
    assert_eq!(house.front.desk.safe_now(), []);
    let edge = late - 1;
    for seconds in [1_000 + edge, 1_000 - edge] {
        let push = house.slack.push("/slack/events", raw.clone(), seconds);
        assert_eq!(house.status(push).await, 200);
    }
}

#[tokio::test]
async fn what_cannot_be_read_is_refused_and_what_is_unknown_is_acknowledged() {
    let house = house().await;
    assert_eq!(house.status(house.push("/slack/events", "{")).await, 400);
    assert_eq!(house.status(house.push("/slack/interactive", "payload=%7B")).await, 400);
    let big = "x".repeat(HTTP_BODY_BYTES_MAX + 1);
    assert_eq!(house.status(house.push("/slack/events", big)).await, 413);
    for raw in [json!({ "type": "of_later" }), json!([]), callback("Ev1", &json!({ "type": "x" }))]
    {
        assert_eq!(house.status(house.push("/slack/events", raw.to_string())).await, 200);
    }
}

#[tokio::test]
async fn b86_slack_05_retries_are_taken_and_known_by_their_names() {
    let house = house().await;
    let raw = callback("Ev1", &message(TS, "hi")).to_string();
    let push = |n: u32| {
        house
            .push("/slack/events", raw.clone())
            .also("x-slack-retry-num", &n.to_string())
            .also("x-slack-retry-reason", "http_timeout")
    };
    // The first delivery never came here.
    assert_eq!(house.status(push(1)).await, 200);
    assert_eq!(house.status(push(2)).await, 200);
    assert_eq!(house.front.desk.texts(), ["hi"]);
}

#[tokio::test]
async fn b85_a_full_house_asks_for_another_try_and_the_last_one_is_told() {
    let house = house().await;
    let raw = callback("Ev1", &message(TS, "hi")).to_string();
    for n in 0..4 {
        house.front.desk.refuses(DeskError::Full("full".into()));
        let push = house.push("/slack/events", raw.clone());
        let push = if n > 0 { push.also("x-slack-retry-num", &n.to_string()) } else { push };
        let (status, _, headers) = patiently(house.slack.send(push)).await;
        assert_eq!((status, headers.contains_key("retry-after")), (503, true));
    }
    house.front.reception.finish().await;
    assert_eq!(house.front.answers.count(), 1);
}

#[tokio::test]
async fn b85_who_hangs_up_before_the_answer_loses_nothing() {
    let house = house().await;
    house.front.desk.shut();
    let raw = callback("Ev1", &message(TS, "hi")).to_string();
    let push = house.slack.send(house.push("/slack/events", raw.clone()));
    tokio::select! {
        _ = push => panic!("it is answered before it is safe"),
        () = house.front.desk.came(1) => {}
    }
    // The connection is dropped here, the work is not.
    house.front.desk.open();
    house.front.desk.safe(1).await;
    assert_eq!(house.status(house.push("/slack/events", raw)).await, 200);
    assert_eq!(house.front.desk.texts(), ["hi"]);
}

#[tokio::test]
async fn where_events_come_by_connections_requests_open_nothing() {
    let ingress = Ingress::Socket { app_token: "xapp-1".to_owned().into(), connections: 1 };
    let front = Front::of(Settings { ingress, ..settings() });
    front.reception.introduce(who());
    for secret in ["", SECRET, "xapp-1"] {
        let slack = Pusher::to(routes(Arc::clone(&front.reception)), secret).await;
        let push =
            slack.push("/slack/events", callback("Ev1", &message(TS, "hi")).to_string(), 1_000);
        assert_eq!(patiently(slack.send(push)).await.0, 401);
    }
}
