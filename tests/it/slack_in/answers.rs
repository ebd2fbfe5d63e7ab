//! Answers to commands, on their way to Slack.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::{Json, Router};
use dogwatch::slack::Settings;
use dogwatch::slack::answer::Teller;
use dogwatch::slack::place::Thread;
use dogwatch::slack::reception::{Answerer, Whom};
use dogwatch::slack::web::Web;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use super::{TS, patiently, settings};
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
    Teller::new(&settings, web, clock).unwrap()
}

#[tokio::test]
async fn an_answer_is_seen_by_one_person_in_a_thread_that_there_is() {
    let slack = slack().await;
    let teller = teller(&format!("{}api/", slack.url));
    let thread = Thread::new("T1", "C1", TS).unwrap();
    let mut whom = Whom { thread, user: "U7".into(), inside: true };
    patiently(teller.tell(&whom, "a <b>")).await;
    whom.inside = false;
    patiently(teller.tell(&whom, "c")).await;
    let seen = slack.seen.borrow().clone();
    assert!(seen.iter().all(|(path, _)| path == "/api/chat.postEphemeral"));
    assert!(seen[0].1.contains(TS) && seen[0].1.contains("U7") && seen[0].1.contains("C1"));
    assert!(!seen[1].1.contains("thread_ts"), "{}", seen[1].1);
}

#[tokio::test]
async fn an_answer_goes_where_slack_said_and_nowhere_else() {
    let slack = slack().await;
    let here = teller(&format!("{}api/", slack.url));
    patiently(here.respond(&format!("{}actions/1", slack.url), "done")).await;
    patiently(here.respond(&format!("{}gone", slack.url), "done")).await;
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
        patiently(real.respond(url, "done")).await;
    }
    assert_eq!(slack.seen.borrow().len(), 2);
}
