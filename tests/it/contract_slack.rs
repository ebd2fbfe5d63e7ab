//! Slack's own SDK beside the bot: it signs what the bot believes and believes what the tests sign;
//! its client and its framework pass against the same fakes as the bot, so the fakes are Slack
//! enough.
//!
//! It lives in a virtual environment that `tests/peers.sh` makes. Without it these tests fail.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::support::fake_slack::FakeSlack;
use crate::support::slack_push;
use crate::support::slack_socket::SlackSocket;

const SECRET: &str = "8f742231b10e8888abcd99yyyzzz85a5";
/// Only to fail a test that hangs.
const PATIENCE: Duration = Duration::from_mins(2);

async fn patiently<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.unwrap()
}

#[expect(clippy::disallowed_methods, reason = "a test starts its peers, and ends them")]
fn sdk(words: &[&str]) -> Child {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = package.join("target/peers-venv/bin/python");
    assert!(python.exists(), "{} is missing: run tests/peers.sh", python.display());
    let mut command = Command::new(python);
    command.arg("-B").arg(package.join("tests/peers/slack.py")).args(words);
    command.kill_on_drop(true).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().unwrap()
}

/// What it answers to this input.
async fn answer(words: &[&str], input: &str) -> String {
    let mut child = sdk(words);
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).await.unwrap();
    drop(stdin);
    let output = patiently(child.wait_with_output()).await.unwrap();
    assert!(output.status.success(), "{words:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[tokio::test]
async fn what_the_sdk_signs_is_signed_alike_here_and_believed_there() {
    let body = json!({ "type": "event_callback", "text": "grüße & <b>" }).to_string();
    let seconds = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let signature = slack_push::signature(SECRET, seconds, &body);
    let at = seconds.to_string();
    assert_eq!(answer(&["sign", SECRET, &at], &body).await, signature);
    assert_eq!(answer(&["believe", SECRET, &at, &signature], &body).await, "yes");
    assert_eq!(answer(&["believe", "another", &at, &signature], &body).await, "no");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sdk_s_client_gets_on_with_the_fake_that_the_bot_is_tested_with() {
    let slack = FakeSlack::start().await;
    let root = slack.root("C1");
    let said = answer(&["client", &slack.api(), "C1", &root], "").await;
    let seen: Value = serde_json::from_str(&said).unwrap();
    let wanted = json!({
        "texts": ["first, changed", ""],
        "metadata": [{ "event_type": "script", "event_payload": { "part": "0" } }],
        "files": ["a"],
    });
    assert_eq!(seen, wanted);
    let home = slack.home("T1", "U7").unwrap();
    assert_eq!(home.pointer("/blocks/0/text/text"), Some(&json!("nothing runs")));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sdk_s_stream_gets_on_with_the_fake_that_streams_are_tested_with() {
    let slack = FakeSlack::start().await;
    let root = slack.root("C1");
    let said = answer(&["stream", &slack.api(), "C1", &root], "").await;
    let seen: Value = serde_json::from_str(&said).unwrap();
    let over = "message_not_in_streaming_state";
    let wanted = json!({
        "seen": "*first* of it, more and the end",
        "refused": [over, over, "missing_recipient_user_id"],
    });
    assert_eq!(seen, wanted);
    let message = slack.posted().pop().unwrap();
    assert_eq!(
        (message.text.as_str(), &message.metadata["event_type"]),
        ("all of it", &json!("script"))
    );
    assert_eq!(slack.session("C1", &root).as_deref(), Some("active"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sdk_s_framework_answers_over_the_connections_that_the_bot_is_tested_with() {
    let (slack, lines) = (FakeSlack::start().await, SlackSocket::start().await);
    slack.socket_url(&lines.url());
    let mut bolt = sdk(&["bolt", &slack.api()]);
    let line = patiently(lines.greeted(1)).await;
    let mut said = BufReader::new(bolt.stdout.take().unwrap()).lines();
    assert_eq!(patiently(said.next_line()).await.unwrap().as_deref(), Some("ready"));
    let root = slack.says("C1", None, "<@U0BOT> hello");
    let event = json!({
        "type": "app_mention", "user": "U7", "text": "<@U0BOT> hello", "ts": root,
        "channel": "C1", "event_ts": root,
    });
    let envelope = json!({
        "type": "event_callback", "team_id": "T1", "api_app_id": "A1", "event_id": "Ev1",
        "event_time": 1_800_000_000, "event": event,
        "authorizations": [{ "team_id": "T1", "user_id": "U0BOT", "is_bot": true }],
    });
    line.envelope("e1", "events_api", &envelope);
    patiently(lines.acked("e1")).await;
    patiently(slack.until("C1", &root, |all| all.iter().any(|one| one.text == "bolt heard"))).await;
    drop(bolt.stdin.take());
    patiently(bolt.wait()).await.unwrap();
}
