//! One call of Slack's Web API: what its answers mean, and what never leaves the process.

use std::sync::Arc;

use dogwatch::core::limits::{SLACK_LIMITED_MS, SLACK_LIMITED_MS_MAX};
use dogwatch::ports::Clock;
use dogwatch::slack::Credentials;
use dogwatch::slack::web::{CallError, Web};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::patiently;
use crate::support::fake_llm::{FakeLlm, Reply};
use crate::support::fake_slack::{FakeSlack, Fault};
use crate::support::manual_clock::ManualClock;

const SECRET: &str = "xoxb-secret-of-this-test";

fn web(api: &str) -> Web {
    // Another test of this process may have installed it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new());
    Web::new(api, clock).unwrap()
}

/// One call that is answered so by a server that knows nothing of Slack.
async fn once(reply: Reply) -> Result<Value, CallError> {
    let server = FakeLlm::start().await;
    server.will(reply);
    let web = web(&format!("{}/", server.base_url()));
    patiently(web.call(&SECRET.to_owned().into(), "auth.test", &json!({}))).await
}

#[tokio::test]
async fn an_answer_counts_only_if_it_says_that_it_is_ok() {
    let good = once(Reply::json(&json!({ "ok": true, "user_id": "U1" }))).await;
    assert_eq!(good.unwrap()["user_id"], "U1");
    let error = json!({ "ok": false, "error": "missing_scope", "needed": "chat:write" });
    let refused = once(Reply::json(&error)).await.unwrap_err();
    let said = "Slack refused auth.test: missing_scope (it needs the scope chat:write)";
    assert_eq!(refused.to_string(), said);
    let replies = [
        Reply::json(&json!({ "user_id": "U1" })),
        Reply::json(&json!({ "ok": "true" })),
        Reply::status(200).raw("<html>"),
        Reply::status(200).raw("{\"ok\":true").cut(),
        Reply::status(500).error("x"),
        Reply::status(408),
        Reply::json(&json!({ "ok": false, "error": "internal_error" })),
    ];
    for reply in replies {
        let unknown = once(reply).await.unwrap_err();
        assert!(matches!(unknown, CallError::Unknown { .. }), "{unknown}");
    }
}

#[tokio::test]
async fn slack_says_how_long_to_wait_and_never_for_ever() {
    let busy = |after: &str| Reply::status(429).header("retry-after", after);
    let cases = [
        (busy("30"), 30_000),
        (busy("soon"), SLACK_LIMITED_MS),
        (Reply::status(429), SLACK_LIMITED_MS),
        (busy("99999999999"), SLACK_LIMITED_MS_MAX),
        (Reply::json(&json!({ "ok": false, "error": "rate_limited" })), SLACK_LIMITED_MS),
    ];
    for (reply, expected) in cases {
        let error = once(reply).await.unwrap_err();
        let CallError::Limited { after_ms, .. } = error else { panic!("{error}") };
        assert_eq!(after_ms, expected);
    }
}

#[tokio::test]
async fn b80_no_error_shows_the_token_or_what_slack_wrote() {
    let (server, other) = (FakeLlm::start().await, FakeLlm::start().await);
    let echo = format!("you sent {SECRET} <script>");
    let replies = [
        Reply::status(401).raw(echo.clone()),
        Reply::status(502).raw(echo.clone()),
        Reply::status(307).header("location", &other.base_url()),
        Reply::status(200).raw(echo.clone()),
        Reply::json(&json!({ "ok": false, "error": echo, "needed": echo })),
    ];
    let count = replies.len();
    for reply in replies {
        server.will(reply);
    }
    let web = web(&format!("{}/", server.base_url()));
    let (token, body) = (SECRET.to_owned().into(), json!({ "a": 1 }));
    for _ in 0..count {
        let error = patiently(web.call(&token, "auth.test", &body)).await.unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains(SECRET) && !shown.contains("script"), "{shown}");
    }
    // A redirect is not followed with the token.
    assert!(other.seen_now().is_empty());
    let seen = server.seen_now();
    assert_eq!(seen[0].path, "/v1/auth.test");
    assert_eq!(seen[0].headers["authorization"], format!("Bearer {SECRET}"));
    assert_eq!(seen[0].headers["content-type"], "application/x-www-form-urlencoded");
}

#[tokio::test]
async fn what_is_not_plain_is_json_in_a_form() {
    let slack = FakeSlack::start().await;
    let web = web(&slack.api());
    slack.will("chat.postMessage", Fault::Refuse("no_text"));
    let body = json!({
        "text": "a=b&c d+ä\u{1f44d}%", "none": null, "yes": true, "two": 2,
        "list": [{ "x": "<&>" }],
    });
    let Credentials::Token(token) = slack.settings().credentials else { panic!("no token") };
    patiently(web.call(&token, "chat.postMessage", &body)).await.unwrap_err();
    let seen = patiently(slack.called("chat.postMessage", 1)).await.remove(0).arguments;
    let expected = json!({
        "text": "a=b&c d+ä\u{1f44d}%", "yes": "true", "two": "2", "list": "[{\"x\":\"<&>\"}]",
    });
    assert_eq!(Value::Object(seen), expected);
}

#[tokio::test]
async fn tokens_and_files_go_to_no_place_that_may_not_have_them() {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new());
    for api in ["http://slack.example.com/api/", "https://slack.com/api", "ftp://x/", "slack"] {
        assert!(Web::new(api, Arc::clone(&clock)).is_err(), "{api}");
    }
    let slack = FakeSlack::start().await;
    let web = web(&slack.api());
    for url in ["http://files.example.com/x", "ftp://localhost/x", "files"] {
        let error = patiently(web.upload(url, vec![1])).await.unwrap_err();
        assert!(matches!(error, CallError::Unreached { .. }), "{error}");
    }
}
