//! The model client against services that were not written for it: one that breaks every answer on
//! demand and judges its client, and a real server with a real, very small model.
//!
//! They live in a virtual environment that `tests/peers.sh` makes. Without it these tests fail.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use dogwatch::core::message::{Answer, Delta, Message, ModelError, Request, ToolSpec};
use dogwatch::core::time::Timestamp;
use dogwatch::core::transcript::Finish;
use dogwatch::model::OpenAi;
use dogwatch::model::openai::Settings;
use dogwatch::ports::{Clock, Model};
use futures_util::future::BoxFuture;
use pretty_assertions::assert_eq;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::Instant;

use crate::support::program::Home;

/// Only to fail a test that hangs.
const PATIENCE: Duration = Duration::from_mins(3);
/// Longer than a busy machine ever makes a healthy stream pause.
const IDLE_MS: u64 = 5_000;
/// As the ledger: so many attempts at most.
const ATTEMPTS: usize = 5;

fn venv(program: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/peers-venv/bin").join(program);
    assert!(path.exists(), "{} is missing: run tests/peers.sh", path.display());
    path
}

#[expect(clippy::disallowed_methods, reason = "a test starts its peers, and ends them")]
fn command(program: &str) -> Command {
    let mut command = Command::new(venv(program));
    command.kill_on_drop(true).stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// A service in a process of its own. It ends with its standard input or when this is dropped.
struct Peer {
    url: String,
    process: Child,
}

impl Peer {
    async fn start(script: &str) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers").join(script);
        let mut process =
            command("python").arg("-B").arg(script).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let url = lines.next_line().await.unwrap().expect("the peer ended before it was ready");
        Self { url, process }
    }

    async fn end(mut self) {
        drop(self.process.stdin.take());
        self.process.wait().await.unwrap();
    }
}

struct WallClock(Instant);

impl Clock for WallClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_ms(u64::try_from(self.0.elapsed().as_millis()).unwrap())
    }

    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep_until(self.0 + Duration::from_millis(at.as_ms())))
    }
}

fn client(url: &str, idle_ms: u64) -> OpenAi {
    // Another test of this process may have installed it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut settings = Settings::new(format!("{}/v1", url.trim_end_matches('/')), "gpt-4o");
    settings.api_key = Some("sk-contract".to_owned().into());
    (settings.max_tokens, settings.temperature) = (Some(24), Some(0.0));
    settings.idle_ms = idle_ms;
    OpenAi::new(settings, Arc::new(WallClock(Instant::now()))).unwrap()
}

fn request(text: &str, tools: &[&str]) -> Request {
    let tool = |name: &&str| ToolSpec {
        name: (*name).to_owned(),
        description: format!("The tool {name}."),
        parameters: json!({
            "type": "object",
            "properties": { "id": { "type": "string" } },
            "required": ["id"],
        }),
    };
    Request {
        agent: "main".to_owned(),
        messages: vec![
            Message::Instructions("Be brief.".to_owned()),
            Message::Person(text.to_owned()),
        ],
        tools: tools.iter().map(tool).collect(),
    }
}

/// What became of one call, tried again as the ledger would.
struct Story {
    errors: Vec<ModelError>,
    answer: Option<Answer>,
    /// What was heard during the last try.
    heard: Vec<Delta>,
}

impl Story {
    fn answer(&self) -> &Answer {
        self.answer.as_ref().expect("no answer")
    }

    /// One letter for each error: Outage, Garbled, Refused.
    fn errors(&self) -> String {
        let letter = |error: &ModelError| match error {
            ModelError::Outage { .. } => 'O',
            ModelError::Garbled { .. } => 'G',
            ModelError::Refused { .. } => 'R',
        };
        self.errors.iter().map(letter).collect()
    }
}

async fn tell(model: &OpenAi, request: &Request) -> Story {
    let mut story = Story { errors: Vec::new(), answer: None, heard: Vec::new() };
    let mut backoff_ms = 100;
    while story.errors.len() < ATTEMPTS {
        story.heard.clear();
        let mut progress = |delta| story.heard.push(delta);
        let call = model.call(request, &mut progress);
        let wait_ms = match tokio::time::timeout(PATIENCE, call).await.expect("it hangs") {
            Ok(answer) => {
                story.answer = Some(answer);
                break;
            }
            Err(error @ ModelError::Refused { .. }) => {
                story.errors.push(error);
                break;
            }
            Err(error) => {
                let asked = match &error {
                    ModelError::Outage { retry_after_ms, .. } => retry_after_ms.unwrap_or(0),
                    ModelError::Garbled { .. } | ModelError::Refused { .. } => 0,
                };
                story.errors.push(error);
                asked.max(backoff_ms)
            }
        };
        // The provider's own wish, so it is time that must pass.
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        backoff_ms *= 2;
    }
    story
}

async fn get(url: String) -> Value {
    let text = reqwest::get(url).await.unwrap().text().await.unwrap();
    serde_json::from_str(&text).unwrap()
}

async fn prepare(peer: &Peer, behaviors: Value) {
    if behaviors == json!([]) {
        return;
    }
    let body = json!({ "behaviors": behaviors }).to_string();
    let post = reqwest::Client::new().post(format!("{}/_llmock/scenario", peer.url)).body(body);
    let answer = post.send().await.unwrap();
    assert_eq!(answer.status(), 201, "{}", answer.text().await.unwrap());
}

/// The faults of a provider: what is prepared, the errors we see, the number of faults.
fn faults() -> Vec<(&'static str, Value, &'static str)> {
    let fail = |status: u16| json!([{ "type": "fail", "status": status }]);
    let stream = |kind: &str, after: u32| {
        json!([{ "type": "stream_fault", "kind": kind,
        "after_chunks": after, "stall_seconds": 30 }])
    };
    // Long, so that it is still being sent when we go away from it, and the service sees that.
    let malformed = json!([
        { "type": "stream_fault", "kind": "malformed", "after_chunks": 2 },
        { "type": "reply", "text": "on and ".repeat(500) },
    ]);
    vec![
        ("nothing", json!([]), ""),
        ("busy", json!([{ "type": "fail", "status": 429, "retry_after": 1, "times": 2 }]), "OO"),
        ("timeout", fail(408), "O"),
        ("conflict", fail(409), "O"),
        ("crash", fail(500), "O"),
        ("gateway", fail(502), "O"),
        ("down", json!([{ "type": "fail", "status": 503, "times": 3 }]), "OOO"),
        ("overloaded", fail(529), "O"),
        ("bad request", fail(400), "R"),
        ("bad key", fail(401), "R"),
        ("forbidden", fail(403), "R"),
        ("not found", fail(404), "R"),
        ("unprocessable", fail(422), "R"),
        ("drop at once", stream("disconnect", 0), "O"),
        ("drop", stream("disconnect", 3), "O"),
        ("no finish reason", stream("truncate", 3), "O"),
        ("empty stream", stream("truncate", 0), "O"),
        ("not json", malformed, "G"),
        ("stall", stream("stall", 2), "O"),
        ("slow", json!([{ "type": "slow_first_token", "seconds": 0.2 }]), ""),
        ("late", json!([{ "type": "delay", "seconds": 0.2 }]), ""),
    ]
}

async fn drive_faults(peer: &Peer) {
    let model = client(&peer.url, IDLE_MS);
    for (name, behaviors, expected) in faults() {
        prepare(peer, behaviors).await;
        let story = tell(&model, &request(&format!("Tell me of {name}."), &[])).await;
        assert_eq!(story.errors(), expected, "{name}: {:?}", story.errors);
        if name == "busy" {
            let after = |error: &ModelError| {
                matches!(error,
                ModelError::Outage { retry_after_ms: Some(ms), .. } if *ms >= 1_000)
            };
            assert!(story.errors.iter().all(after), "{:?}", story.errors);
        }
        if expected.contains('R') {
            continue;
        }
        let answer = story.answer();
        let text = |delta: &Delta| match delta {
            Delta::Text(text) => text.clone(),
            Delta::Call { .. } => String::new(),
        };
        assert_eq!(story.heard.iter().map(text).collect::<String>(), answer.text, "{name}");
        assert!(!answer.text.is_empty() && story.heard.len() > 1, "{name}");
        assert!(answer.usage.reported && answer.usage.tokens() > 0, "{name}");
        assert_eq!(answer.finish, Finish::Stop, "{name}");
    }
}

async fn drive_tools(peer: &Peer) {
    let model = client(&peer.url, IDLE_MS);
    let tools = ["watch__output", "watch__list"];

    // A whole turn: it calls, gets the result, answers.
    let mut turn = request("What is the output of the watch?", &tools);
    let story = tell(&model, &turn).await;
    let calls = story.answer().calls.clone();
    assert_eq!((calls.len(), story.answer().finish), (1, Finish::ToolCalls));
    let arguments: Value = serde_json::from_str(&calls[0].arguments).unwrap();
    assert!(arguments["id"].is_string(), "{arguments}");
    let (call_id, name) = (calls[0].id.clone(), calls[0].name.clone());
    turn.messages.push(Message::Model { text: String::new(), calls });
    turn.messages.push(Message::Tool { call_id, name, content: "{}".to_owned() });
    assert_eq!(tell(&model, &turn).await.answer().finish, Finish::Stop);

    prepare(peer, json!([{ "type": "tool_fault", "kind": "malformed_arguments" }])).await;
    let mut broken = request("Broken arguments of the list?", &tools);
    let calls = tell(&model, &broken).await.answer().calls.clone();
    assert!(serde_json::from_str::<Value>(&calls[0].arguments).is_err(), "{calls:?}");
    // They can be sent back, with what the tool said to them.
    let (call_id, name) = (calls[0].id.clone(), calls[0].name.clone());
    broken.messages.push(Message::Model { text: String::new(), calls });
    broken.messages.push(Message::Tool { call_id, name, content: "{\"error\":{}}".to_owned() });
    assert_eq!(tell(&model, &broken).await.answer().finish, Finish::Stop);

    prepare(peer, json!([{ "type": "tool_fault", "kind": "unknown_tool" }])).await;
    let calls = tell(&model, &request("Unknown tool?", &tools)).await.answer().calls.clone();
    assert!(!tools.contains(&calls[0].name.as_str()), "{calls:?}");

    let two = json!([{ "name": "watch__list", "arguments": { "id": "1" } },
        { "name": "watch__output", "arguments": { "id": "é\n2" } }]);
    prepare(peer, json!([{ "type": "reply", "text": "Both.", "tool_calls": two }])).await;
    let story = tell(&model, &request("Both?", &tools)).await;
    let answer = story.answer();
    let names: Vec<&str> = answer.calls.iter().map(|call| call.name.as_str()).collect();
    assert_eq!((answer.text.as_str(), names), ("Both.", vec!["watch__list", "watch__output"]));
    let second: Value = serde_json::from_str(&answer.calls[1].arguments).unwrap();
    assert_eq!(second, json!({ "id": "é\n2" }));
    assert_ne!(answer.calls[0].id, answer.calls[1].id);

    // A call that is cut in the middle of its arguments is no call.
    prepare(peer, json!([{ "type": "stream_fault", "kind": "disconnect", "after_chunks": 3 }]))
        .await;
    let story = tell(&model, &request("List, cut?", &tools)).await;
    assert_eq!((story.errors().as_str(), story.answer().calls.len()), ("O", 1));

    for (reason, finish) in [("length", Finish::Length), ("content_filter", Finish::Filtered)] {
        prepare(peer, json!([{ "type": "reply", "text": "Half", "finish_reason": reason }])).await;
        let story = tell(&model, &request(&format!("Why {reason}?"), &[])).await;
        assert_eq!((story.answer().text.as_str(), story.answer().finish), ("Half", finish));
    }
}

#[tokio::test]
async fn llmock_has_nothing_to_say_against_our_client() {
    let peer = Peer::start("llmock_server.py").await;
    drive_faults(&peer).await;
    drive_tools(&peer).await;

    // The verdict is worth something: every fault was really injected, none is left.
    let pending = get(format!("{}/_llmock/scenario", peer.url)).await;
    assert_eq!(pending, json!({ "pending": [] }));
    let verdict = get(format!("{}/_llmock/verdict", peer.url)).await;
    assert!(verdict["faults_injected"].as_u64().unwrap() >= 20, "{verdict}");
    let mut report = command("llmock");
    report.args(["report", "--strict", "--url", &peer.url]);
    let report = report.output().await.unwrap();
    let said = String::from_utf8_lossy(&report.stdout);
    assert!(report.status.success(), "{said}");
    assert!(said.contains("PASS"), "{said}");
    peer.end().await;
}

/// The whole program against it: the service calls one of the tools that it is offered, with
/// arguments made from the tool's schema, and answers once the result is back.
#[tokio::test(flavor = "multi_thread")]
async fn llmock_has_nothing_to_say_against_a_whole_turn_of_the_program() {
    let peer = Peer::start("llmock_server.py").await;
    let home = Home::with_model(&format!("{}/v1", peer.url.trim_end_matches('/')), IDLE_MS);
    let shown = tokio::task::spawn_blocking(move || {
        let mut chat = home.chat(&["--json", "--wait"]);
        chat.say("What do the watchers do?");
        chat.wait_for("\"kind\":\"tool\"");
        chat.wait_for("\"sort\":\"answer\"");
        let shown = chat.ends_well();
        home.keeps_the_secret();
        shown
    });
    let shown = shown.await.unwrap();
    assert!(!shown.contains("\"kind\":\"failed\""), "{shown}");
    let mut report = command("llmock");
    report.args(["report", "--strict", "--url", &peer.url]);
    let report = report.output().await.unwrap();
    let said = String::from_utf8_lossy(&report.stdout);
    assert!(report.status.success() && said.contains("PASS"), "{said}\n{shown}");
    peer.end().await;
}

#[tokio::test]
async fn a_real_server_streams_counts_and_finishes() {
    let peer = Peer::start("llama_server.py").await;
    let model = client(&peer.url, 60_000);
    let story = tell(&model, &request("Say hello to the dog.", &[])).await;
    let answer = story.answer();
    assert_eq!(story.errors(), "");
    assert!(!answer.text.trim().is_empty());
    assert!(story.heard.len() > 1, "it does not stream: {:?}", story.heard);
    assert!(answer.usage.reported && answer.usage.input_tokens > 0);
    // Either it is done or it is cut at 24 tokens, and the two go together.
    assert_eq!(answer.finish == Finish::Length, answer.usage.output_tokens >= 24, "{answer:?}");

    // A history with all that a log may hold is one that the server's template takes.
    let mut long = request("Look after it.", &["watch__list"]);
    long.messages.push(Message::Report("[AUTO-NOTIFICATION] it ended".to_owned()));
    let call = |arguments: &str| dogwatch::core::transcript::Call {
        id: String::new(),
        name: "watch__list".to_owned(),
        arguments: arguments.to_owned(),
    };
    let calls = vec![call("{}"), call("{\"a\": tru")];
    long.messages.push(Message::Model { text: "I look.".to_owned(), calls });
    for content in ["{}", "{\"error\":{}}"] {
        let (call_id, name) = (String::new(), "watch__list".to_owned());
        long.messages.push(Message::Tool { call_id, name, content: content.to_owned() });
    }
    long.messages.push(Message::Instructions("This is the last word.".to_owned()));
    long.messages.push(Message::Person("Well?".to_owned()));
    let story = tell(&model, &long).await;
    assert_eq!(story.errors(), "", "{:?}", story.errors);
    assert!(story.answer().usage.reported);
    peer.end().await;
}
