//! The model client against a fake service on a real socket: deadlines, errors, cancellation, and
//! what is sent. Time is moved by the tests alone.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod scripted;
mod traps;

use std::sync::Arc;
use std::time::Duration;

use dogwatch::core::limits::MODEL_TAIL_MS;
use dogwatch::core::message::{Answer, Delta, Message, ModelError, Request, ToolSpec};
use dogwatch::core::time::span;
use dogwatch::core::transcript::{Call, Finish};
use dogwatch::model::OpenAi;
use dogwatch::model::openai::Settings;
use dogwatch::ports::Model;
use pretty_assertions::assert_eq;
use serde_json::json;

use crate::support::fake_llm::{FakeLlm, Gate, Reply, chunk};
use crate::support::manual_clock::ManualClock;

/// Only to fail a test that hangs.
const PATIENCE: Duration = Duration::from_mins(1);

const IDLE_MS: u64 = 1_000;
const HEADER_MS: u64 = 4_000;
const TOTAL_MS: u64 = 10_000;

fn settings(base_url: &str) -> Settings {
    // Another test of this process may have installed it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let plain = Settings::new(base_url, "test-model");
    Settings {
        connect_ms: 30_000,
        header_ms: HEADER_MS,
        idle_ms: IDLE_MS,
        total_ms: TOTAL_MS,
        ..plain
    }
}

fn client(base_url: &str, clock: &ManualClock) -> OpenAi {
    OpenAi::new(settings(base_url), Arc::new(clock.clone())).unwrap()
}

fn hello() -> Request {
    Request {
        agent: "main".to_owned(),
        messages: vec![Message::Person("hello".to_owned())],
        tools: Vec::new(),
    }
}

async fn patiently<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("it hangs")
}

/// One call; what it gave and what was heard of it on the way.
async fn ask(model: &impl Model, request: &Request) -> (Result<Answer, ModelError>, Vec<Delta>) {
    let mut heard = Vec::new();
    let mut progress = |delta| heard.push(delta);
    let result = patiently(model.call(request, &mut progress)).await;
    (result, heard)
}

async fn once(reply: Reply) -> (Result<Answer, ModelError>, Vec<Delta>) {
    let llm = FakeLlm::start().await;
    llm.will(reply);
    ask(&client(&llm.base_url(), &ManualClock::new()), &hello()).await
}

fn outage(result: Result<Answer, ModelError>) -> (String, Option<u64>) {
    match result {
        Err(ModelError::Outage { what, retry_after_ms }) => (what, retry_after_ms),
        other => panic!("not an outage: {other:?}"),
    }
}

#[tokio::test]
async fn an_answer_comes_in_pieces_and_then_whole() {
    let (result, heard) = once(Reply::text("All is well.")).await;
    let answer = result.unwrap();
    assert_eq!(answer.text, "All is well.");
    assert_eq!(answer.finish, Finish::Stop);
    assert_eq!(answer.usage.tokens(), 15);
    assert!(answer.usage.reported);
    assert_eq!(heard, ["All ", "is ", "well."].map(|word| Delta::Text(word.to_owned())));
}

#[tokio::test]
async fn each_status_has_its_class() {
    let said = |status: u16| Reply::status(status).error("because");
    for status in [408, 409, 425, 429, 500, 502, 503, 504, 529] {
        let (what, after) = outage(once(said(status)).await.0);
        assert!(what.starts_with(&format!("HTTP {status}")) && what.ends_with(": because"));
        assert_eq!(after, None);
    }
    for status in [302, 400, 401, 402, 403, 404, 413, 422] {
        match once(said(status)).await.0 {
            Err(ModelError::Refused { what }) => {
                assert!(what.starts_with(&format!("HTTP {status} ")), "{what}");
                assert!(what.contains(": because"), "{what}");
                let teaches = matches!(status, 302 | 401 | 403 | 404);
                assert_eq!(
                    what.contains("api_key") || what.contains("base_url"),
                    teaches,
                    "{what}"
                );
            }
            other => panic!("{status}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn the_provider_says_when_to_come_back() {
    let busy = Reply::status(429).header("retry-after", "2").error("slow down");
    let (what, after) = outage(once(busy).await.0);
    assert_eq!((what.as_str(), after), ("HTTP 429 Too Many Requests: slow down", Some(2_000)));
}

#[tokio::test]
async fn a_server_that_does_not_know_stream_options_is_asked_once_more_without() {
    let llm = FakeLlm::start().await;
    llm.will(Reply::status(400).error("Unrecognized request argument supplied: stream_options"));
    llm.otherwise(|_| Reply::text("yes"));
    let model = client(&llm.base_url(), &ManualClock::new());
    for _ in 0..2 {
        assert_eq!(ask(&model, &hello()).await.0.unwrap().text, "yes");
    }
    let seen = llm.seen_now();
    let options: Vec<bool> = seen.iter().map(|s| s.body.get("stream_options").is_some()).collect();
    assert_eq!(options, [true, false, false]);
}

#[tokio::test]
async fn a_refusal_is_not_asked_again() {
    let llm = FakeLlm::start().await;
    llm.otherwise(|_| Reply::status(400).error("no stream_options, ever"));
    let model = client(&llm.base_url(), &ManualClock::new());
    let refused = ask(&model, &hello()).await.0;
    assert!(matches!(refused, Err(ModelError::Refused { .. })), "{refused:?}");
    assert_eq!(llm.seen_now().len(), 2);
}

#[tokio::test]
async fn a_redirect_is_not_followed_with_the_key() {
    let (llm, other) = (FakeLlm::start().await, FakeLlm::start().await);
    llm.will(Reply::status(307).header("location", &other.base_url()));
    let refused = ask(&client(&llm.base_url(), &ManualClock::new()), &hello()).await.0;
    assert!(matches!(refused, Err(ModelError::Refused { .. })), "{refused:?}");
    assert!(other.seen_now().is_empty());
}

#[tokio::test]
async fn no_server_is_an_outage() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
    drop(listener);
    let (what, _) = outage(ask(&client(&base_url, &ManualClock::new()), &hello()).await.0);
    assert!(
        what.starts_with("cannot connect to http://127.0.0.1:") && what.contains("refused"),
        "{what}"
    );
}

#[tokio::test]
async fn a_handshake_without_answer_ends_at_the_connect_deadline() {
    // The kernel takes the connection, nobody ever speaks.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut settings = settings(&format!("https://{}/v1", listener.local_addr().unwrap()));
    settings.connect_ms = 20;
    let model = OpenAi::new(settings, Arc::new(ManualClock::new())).unwrap();
    let (what, _) = outage(ask(&model, &hello()).await.0);
    assert!(what.starts_with("cannot connect"), "{what}");
}

#[tokio::test]
async fn a_head_that_does_not_come_ends_at_the_header_deadline() {
    let (llm, clock) = (FakeLlm::start().await, ManualClock::new());
    llm.will(Reply::text("late").hold_head(&Gate::default()));
    let model = client(&llm.base_url(), &clock);
    let request = hello();
    let moves = async {
        llm.seen(1).await;
        assert_eq!(clock.sleeps(2).await, [TOTAL_MS, HEADER_MS]);
        clock.advance(HEADER_MS);
        llm.left(1).await;
    };
    let ((result, _), ()) = tokio::join!(ask(&model, &request), patiently(moves));
    assert_eq!(outage(result).0, format!("no answer began within {}", span(HEADER_MS)));
}

#[tokio::test]
async fn silence_in_a_stream_ends_at_the_idle_deadline() {
    let (llm, clock) = (FakeLlm::start().await, ManualClock::new());
    llm.will(Reply::stream().data(&chunk::text("half")).stall());
    let model = client(&llm.base_url(), &clock);
    let request = hello();
    let moves = async {
        // Total, header, the first chunk, the silence.
        assert_eq!(clock.sleeps(4).await.last(), Some(&IDLE_MS));
        clock.advance(IDLE_MS);
        llm.left(1).await;
    };
    let ((result, heard), ()) = tokio::join!(ask(&model, &request), patiently(moves));
    assert_eq!(outage(result).0, format!("the stream was silent for {}", span(IDLE_MS)));
    assert_eq!(heard, [Delta::Text("half".to_owned())]);
}

#[tokio::test]
async fn a_comment_is_life_but_not_for_ever() {
    let (llm, clock) = (FakeLlm::start().await, ManualClock::new());
    let gates: Vec<Gate> = (0..15).map(|_| Gate::default()).collect();
    let quiet = Reply::stream().data(&chunk::text("half"));
    let pings = |reply: Reply, gate: &Gate| reply.hold(gate).raw(": ping\n\n");
    llm.will(gates.iter().take(3).fold(quiet.clone(), pings).data(&chunk::finish("stop")).done());
    llm.will(gates.iter().skip(3).fold(quiet, pings).stall());
    let model = client(&llm.base_url(), &clock);
    let request = hello();
    let nearly = IDLE_MS * 9 / 10;

    // Each piece costs one sleep, so their number says how far the client has read.
    let moves = async {
        for (count, gate) in (4..).zip(gates.iter().take(3)) {
            clock.sleeps(count).await;
            clock.advance(nearly);
            gate.open();
        }
    };
    let ((result, _), ()) = tokio::join!(ask(&model, &request), patiently(moves));
    assert_eq!(result.unwrap().text, "half");

    let before = clock.sleeps(0).await.len();
    let moves = async {
        let mut passed = 0;
        for (count, gate) in (before + 4..).zip(gates.iter().skip(3)) {
            clock.sleeps(count).await;
            clock.advance(nearly);
            passed += nearly;
            if passed >= TOTAL_MS {
                break;
            }
            gate.open();
        }
        llm.left(1).await;
    };
    let ((result, _), ()) = tokio::join!(ask(&model, &request), patiently(moves));
    assert_eq!(outage(result).0, format!("the answer was not whole after {}", span(TOTAL_MS)));
}

#[tokio::test]
async fn a_finished_answer_is_not_kept_waiting_for_its_usage() {
    let (llm, clock) = (FakeLlm::start().await, ManualClock::new());
    llm.will(Reply::stream().data(&chunk::text("done")).data(&chunk::finish("stop")).stall());
    let mut settings = settings(&llm.base_url());
    settings.idle_ms = MODEL_TAIL_MS * 2;
    let model = OpenAi::new(settings, Arc::new(clock.clone())).unwrap();
    let request = hello();
    let moves = async {
        let mut sleeps = 3;
        while clock.sleeps(sleeps).await.last() != Some(&MODEL_TAIL_MS) {
            sleeps += 1;
        }
        clock.advance(MODEL_TAIL_MS);
    };
    let ((result, _), ()) = tokio::join!(ask(&model, &request), patiently(moves));
    let answer = result.unwrap();
    assert_eq!((answer.text.as_str(), answer.usage.reported), ("done", false));
}

#[tokio::test]
async fn dropping_the_call_closes_the_connection() {
    for reply in [
        Reply::stream().data(&chunk::text("half")).stall(),
        Reply::text("late").hold_head(&Gate::default()),
    ] {
        let llm = FakeLlm::start().await;
        llm.will(reply);
        let model = client(&llm.base_url(), &ManualClock::new());
        let request = hello();
        let mut progress = |_| ();
        let mut call = model.call(&request, &mut progress);
        tokio::select! {
            _ = &mut call => panic!("it cannot be over"),
            _ = patiently(llm.seen(1)) => {}
        }
        drop(call);
        patiently(llm.left(1)).await;
    }
}

#[tokio::test]
async fn b80_no_error_shows_the_key_or_the_private_parts_of_the_url() {
    let secrets = ["sk-secret-key-123", "hunter2hunter2", "query-token-9", "gateway-pass-7"];
    let llm = FakeLlm::start().await;
    let echo = "you sent Bearer sk-secret-key-123 with gateway-pass-7 to \
                http://bot:hunter2hunter2@h/v1?token=query-token-9";
    let inside = json!({ "error": { "message": echo } });
    let replies = [
        Reply::status(401).error(echo),
        Reply::status(500).error(echo),
        Reply::status(400).raw(echo),
        Reply::stream().data(&inside.clone()),
        Reply::stream().raw(format!("event: error\ndata: {echo}\n\n")),
        Reply::stream().raw(format!("data: {echo}\n\n")),
        Reply::json(&inside),
        Reply::status(200).header("content-type", "application/json").raw(echo),
        Reply::stream().cut(),
    ];
    llm.otherwise(|_| Reply::text("the end"));
    let private = |base: &str, key: bool| {
        let mut settings = settings(base);
        settings.base_url.push_str("?token=query-token-9");
        if key {
            settings.api_key = Some("sk-secret-key-123".to_owned().into());
        } else {
            settings.base_url = settings.base_url.replace("//", "//bot:hunter2hunter2@");
        }
        settings.headers = vec![("x-gateway".to_owned(), "gateway-pass-7".to_owned().into())];
        let shown = format!("{settings:?}");
        (OpenAi::new(settings, Arc::new(ManualClock::new())).unwrap(), shown)
    };
    let mut errors = Vec::new();
    for key in [true, false] {
        for reply in &replies {
            llm.will(reply.clone());
        }
        let (model, _) = private(&llm.base_url(), key);
        errors.push(model.describe());
        while let Err(error) = ask(&model, &hello()).await.0 {
            errors.push(format!("{error} {error:?}"));
        }
    }
    assert_eq!(errors.len(), 2 * (replies.len() + 1));
    let seen = llm.seen_now();
    assert_eq!(seen[0].headers["authorization"], "Bearer sk-secret-key-123");
    assert_eq!(seen[0].headers["x-gateway"], "gateway-pass-7");
    assert_eq!(seen[0].path, "/v1/chat/completions?token=query-token-9");
    assert!(
        seen[replies.len() + 1].headers["authorization"].to_str().unwrap().starts_with("Basic")
    );

    drop(llm);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = format!("http://{}/v1", listener.local_addr().unwrap());
    drop(listener);
    for key in [true, false] {
        let (model, shown) = private(&dead, key);
        errors.push(shown);
        errors.push(format!("{:?}", ask(&model, &hello()).await.0));
    }
    for error in &errors {
        for secret in secrets {
            assert!(!error.contains(secret), "{error}");
        }
    }
}

#[test]
fn bad_settings_teach() {
    let made = |change: &dyn Fn(&mut Settings)| {
        let mut settings = settings("http://127.0.0.1:1/v1");
        change(&mut settings);
        OpenAi::new(settings, Arc::new(ManualClock::new())).map(|_| ()).unwrap_err().to_string()
    };
    let errors = [
        made(&|settings| settings.base_url = "localhost".to_owned()),
        made(&|settings| settings.base_url = "ftp://host/v1".to_owned()),
        made(&|settings| settings.api_key = Some("key\n".to_owned().into())),
        made(&|settings| {
            settings.base_url = "http://user:pass@host/v1".to_owned();
            settings.api_key = Some("key".to_owned().into());
        }),
        made(&|settings| settings.headers = vec![("x y".to_owned(), "v".to_owned().into())]),
    ];
    insta::assert_snapshot!(errors.join("\n"));
}

#[tokio::test]
async fn the_request_is_what_every_server_takes() {
    let call = |id: &str, name: &str, arguments: &str| Call {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments: arguments.to_owned(),
    };
    let model_said = |text: &str, calls: Vec<Call>| Message::Model { text: text.to_owned(), calls };
    let result = |id: &str, name: &str, content: &str| Message::Tool {
        call_id: id.to_owned(),
        name: name.to_owned(),
        content: content.to_owned(),
    };
    let request = Request {
        agent: "main".to_owned(),
        messages: vec![
            Message::Instructions("Rules.".to_owned()),
            Message::Person("Watch it.".to_owned()),
            Message::Report("[AUTO-NOTIFICATION] done".to_owned()),
            model_said("On it.", vec![call("", "one", "{\"a\":1}"), call("", "two", "{broken")]),
            result("", "one", "1"),
            result("", "two", "2"),
            Message::Instructions("Later rules.".to_owned()),
            model_said("", vec![call("x", "a b!", ""), call("x", "lost", "[]")]),
            result("x", "a b!", "3"),
            Message::Person("Well?".to_owned()),
            model_said("", vec![call("y", "left", "{}")]),
            model_said("First.", Vec::new()),
            model_said("Second.", Vec::new()),
            result("nobody", "ghost", "4"),
            model_said("", Vec::new()),
        ],
        tools: vec![ToolSpec {
            name: "one".to_owned(),
            description: "Does one.".to_owned(),
            parameters: json!({ "type": "object", "properties": {} }),
        }],
    };
    let llm = FakeLlm::start().await;
    llm.otherwise(|_| Reply::text("ok"));
    let mut settings = settings(&llm.base_url());
    (settings.max_tokens, settings.temperature) = (Some(512), Some(0.5));
    let model = OpenAi::new(settings, Arc::new(ManualClock::new())).unwrap();
    for _ in 0..2 {
        ask(&model, &request).await.0.unwrap();
    }
    let seen = llm.seen_now();
    assert_eq!(seen[0].body, seen[1].body);
    insta::assert_json_snapshot!(seen[0].body);
}

#[tokio::test]
async fn an_agent_may_ask_a_model_of_its_own() {
    let llm = FakeLlm::start().await;
    llm.otherwise(|_| Reply::text("ok"));
    let mut settings = settings(&llm.base_url());
    settings.models.insert("deploys".to_owned(), "large".to_owned());
    let usual = settings.model.clone();
    let model = OpenAi::new(settings, Arc::new(ManualClock::new())).unwrap();
    for agent in ["deploys", "main"] {
        let request = Request { agent: agent.to_owned(), ..hello() };
        ask(&model, &request).await.0.unwrap();
    }
    let models: Vec<_> = llm.seen_now().iter().map(|seen| seen.body["model"].clone()).collect();
    assert_eq!(models, ["large", usual.as_str()]);
    assert!(model.describe().contains("(deploys: large) at "), "{}", model.describe());
}
