//! What the bot itself asks of Slack here: that people are answered, and who it is.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use dogwatch::core::limits::SLACK_WHO_FIRST_MS;
use dogwatch::slack::Settings;
use dogwatch::slack::access::Keyring;
use dogwatch::slack::answer::Teller;
use dogwatch::slack::home::Homes;
use dogwatch::slack::panel::Told;
use dogwatch::slack::place::Thread;
use dogwatch::slack::reception::{Answerer, Whom};
use dogwatch::slack::web::Web;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use super::desk::TestDesk;
use super::{Front, TS, callback, patiently, settings};
use crate::support::manual_clock::ManualClock;

type Seen = Arc<watch::Sender<Vec<(String, String)>>>;

struct Slack {
    url: String,
    seen: Seen,
    _serves: AbortOnDropHandle<()>,
}

async fn answer(State(seen): State<Seen>, request: Request) -> (StatusCode, Json<Value>) {
    let path = request.uri().path().to_owned();
    let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
    let body = String::from_utf8(body.to_vec()).unwrap();
    seen.send_modify(|seen| seen.push((path.clone(), body)));
    let gone = path.ends_with("gone");
    let status = if gone { StatusCode::NOT_FOUND } else { StatusCode::OK };
    (status, Json(json!({ "ok": !gone, "error": "user_not_in_channel" })))
}

async fn slack() -> Slack {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let seen = Seen::default();
    let app = Router::new().fallback(answer).with_state(Arc::clone(&seen));
    let serves = TaskTracker::new().spawn(async move { axum::serve(listener, app).await.unwrap() });
    Slack { url, seen, _serves: AbortOnDropHandle::new(serves) }
}

fn teller(api: &str) -> Teller {
    let clock = Arc::new(ManualClock::new());
    let settings = Settings { api: api.to_owned(), ..settings() };
    let web = Arc::new(Web::new(api, clock.clone()).unwrap());
    let keyring = Keyring::of(&settings).unwrap();
    let desk = Arc::new(TestDesk::default());
    let homes = Homes::new(desk, Arc::clone(&keyring), Arc::clone(&web), clock.clone());
    Teller::new(keyring, web, clock, Arc::new(homes)).unwrap()
}

fn only(text: &str) -> Told {
    Told::from(text.to_owned())
}

#[tokio::test]
async fn an_answer_is_seen_by_one_person_in_a_thread_that_there_is() {
    let slack = slack().await;
    let teller = teller(&format!("{}api/", slack.url));
    let thread = Thread::new("T1", "C1", TS).unwrap();
    let mut whom = Whom { thread, user: "U7".into(), inside: true };
    patiently(teller.tell(&whom, &only("a <b>"))).await;
    whom.inside = false;
    patiently(teller.tell(&whom, &only("c"))).await;
    let seen = slack.seen.borrow().clone();
    assert!(seen.iter().all(|(path, _)| path == "/api/chat.postEphemeral"));
    assert!(seen[0].1.contains(TS) && seen[0].1.contains("U7") && seen[0].1.contains("C1"));
    assert!(!seen[1].1.contains("thread_ts"), "{}", seen[1].1);
}

#[tokio::test]
async fn an_answer_goes_where_slack_said_and_nowhere_else() {
    let slack = slack().await;
    let here = teller(&format!("{}api/", slack.url));
    patiently(here.respond(&format!("{}actions/1", slack.url), &only("done"))).await;
    patiently(here.respond(&format!("{}gone", slack.url), &only("done"))).await;
    let seen = slack.seen.borrow().clone();
    assert_eq!((seen.len(), seen[0].0.as_str()), (2, "/actions/1"));
    let body: Value = serde_json::from_str(&seen[0].1).unwrap();
    assert_eq!(
        (&body["response_type"], &body["replace_original"]),
        (&json!("ephemeral"), &json!(false))
    );
    // A real one never sends to this machine, nor to strangers.
    let real = teller("https://slack.com/api/");
    for url in
        [&slack.url, "http://hooks.slack.com/x", "https://hooks.slack.com.example.com/x", "x"]
    {
        patiently(real.respond(url, &only("done"))).await;
    }
    assert_eq!(slack.seen.borrow().len(), 2);
}

#[tokio::test]
async fn what_cannot_stand_in_place_of_a_press_is_told_beside_it() {
    let slack = slack().await;
    let teller = teller(&format!("{}api/", slack.url));
    let thread = Thread::new("T1", "C1", TS).unwrap();
    let whom = Whom { thread, user: "U7".into(), inside: true };
    let told = Told { text: "done".to_owned(), blocks: Some(json!([{ "type": "divider" }])) };
    patiently(teller.replace(&format!("{}actions/1", slack.url), &whom, &told)).await;
    let seen = slack.seen.borrow().clone();
    assert_eq!(seen.len(), 1);
    let body: Value = serde_json::from_str(&seen[0].1).unwrap();
    assert_eq!(
        (&body["replace_original"], &body["blocks"]),
        (&json!(true), &json!([{ "type": "divider" }]))
    );
    // Its time is over.
    patiently(teller.replace(&format!("{}gone", slack.url), &whom, &told)).await;
    let seen = slack.seen.borrow().clone();
    assert_eq!(seen.len(), 3);
    assert_eq!(seen[2].0, "/api/chat.postEphemeral");
    assert!(seen[2].1.contains("divider") && seen[2].1.contains("done"), "{}", seen[2].1);
}

/// Says who the bot is at the third time.
async fn test_auth(State(asked): State<Arc<watch::Sender<usize>>>) -> Json<Value> {
    asked.send_modify(|asked| *asked += 1);
    let count = *asked.borrow();
    Json(match count {
        1 => json!({ "ok": false, "error": "invalid_auth" }),
        2 => json!({ "ok": true }),
        _ => json!({ "ok": true, "user_id": "UBOT", "bot_id": "BBOT", "team_id": "T1" }),
    })
}

#[tokio::test]
async fn b54_the_bot_asks_until_it_knows_who_it_is() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let api = format!("http://{}/api/", listener.local_addr().unwrap());
    let asked = Arc::new(watch::Sender::new(0));
    let routes = Router::new().route("/api/auth.test", post(test_auth));
    let routes = routes.with_state(Arc::clone(&asked));
    let serves = async move { axum::serve(listener, routes).await.unwrap() };
    let _serves = AbortOnDropHandle::new(TaskTracker::new().spawn(serves));
    let front = Front::of(Settings { api: api.clone(), ..settings() });
    let web = Web::new(&api, Arc::new(front.clock.clone())).unwrap();
    let learns = front.reception.learn(&web, CancellationToken::new());
    let moves = async {
        let mut heard = asked.subscribe();
        for (n, wanted) in [(1, "invalid_auth"), (2, "does not say")] {
            heard.wait_for(|asked| *asked == n).await.unwrap();
            // One sleep for the call, one until the next.
            let waits = front.clock.sleeps(2 * n).await;
            assert_eq!(waits.last(), Some(&(SLACK_WHO_FIRST_MS << (n - 1))));
            let health = front.reception.health();
            assert!(!health.ok && health.what.contains(wanted), "{health:?}");
            front.clock.advance(SLACK_WHO_FIRST_MS << (n - 1));
        }
    };
    Box::pin(patiently(async { tokio::join!(learns, moves) })).await;
    assert!(front.reception.health().ok);
    let event = json!({ "type": "message", "user": "UBOT", "text": "On it", "channel": "D1",
                        "channel_type": "im", "ts": TS });
    assert!(front.receive(&callback("Ev1", &event)).await.is_ack());
    assert_eq!(front.desk.safe_now(), []);
}
