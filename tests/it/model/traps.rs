//! Golden streams: what compatible servers really send, one test a trap.

use dogwatch::core::limits::{MODEL_EVENT_BYTES_MAX, MODEL_TEXT_BYTES_MAX};
use dogwatch::core::message::{Answer, Delta, ModelError};
use dogwatch::core::transcript::{Finish, Usage};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use super::{IDLE_MS, ask, client, hello, once, outage, patiently};
use crate::support::fake_llm::{FakeLlm, Reply, chunk};
use crate::support::manual_clock::ManualClock;

async fn answer(reply: Reply) -> Answer {
    once(reply).await.0.unwrap()
}

async fn garbled(reply: Reply) -> String {
    match once(reply).await.0 {
        Err(ModelError::Garbled { what }) => what,
        other => panic!("not garbled: {other:?}"),
    }
}

/// Lets the idle deadline pass once so many chunks were read.
async fn silent_after(reply: Reply, chunks: usize) -> Result<Answer, ModelError> {
    let (llm, clock) = (FakeLlm::start().await, ManualClock::new());
    llm.will(reply);
    let (model, request) = (client(&llm.base_url(), &clock), hello());
    let moves = async {
        // Total, header, each chunk, the silence.
        clock.sleeps(2 + chunks + 1).await;
        clock.advance(IDLE_MS);
    };
    let ((result, _), ()) = tokio::join!(ask(&model, &request), patiently(moves));
    result
}

fn flat(answer: &Answer) -> Vec<(&str, &str, &str)> {
    let calls = answer.calls.iter();
    calls.map(|call| (call.id.as_str(), call.name.as_str(), call.arguments.as_str())).collect()
}

fn with_finish(mut chunk: Value, reason: &str) -> Value {
    chunk["choices"][0]["finish_reason"] = json!(reason);
    chunk
}

fn hi() -> Reply {
    Reply::stream().data(&chunk::text("hi"))
}

#[tokio::test]
async fn a_finish_reason_in_every_chunk_does_not_end_the_arguments() {
    let pieces = [("c", "one", "{\"a\""), ("", "", ":1"), ("", "", "}")];
    let chunks = pieces.map(|(id, name, part)| chunk::call(0, id, name, part));
    let reply = chunks
        .into_iter()
        .fold(Reply::stream(), |reply, chunk| reply.data(&with_finish(chunk, "tool_calls")));
    let got = answer(reply.clone().done()).await;
    assert_eq!(flat(&got), [("c", "one", "{\"a\":1}")]);
    assert_eq!(got.finish, Finish::ToolCalls);
    // Such a server's finish reason proves nothing when the connection breaks or is silent, also
    // with the first chunk.
    outage(once(reply.clone().cut()).await.0);
    outage(once(Reply::stream().data(&with_finish(chunk::text("I"), "stop")).cut()).await.0);
    let got = silent_after(reply.stall(), 3).await;
    assert_eq!(outage(got).0, "the stream was silent for 1.0s");
}

#[tokio::test]
async fn an_empty_or_missing_finish_reason_counts_only_with_done() {
    for chunk in [with_finish(chunk::text("!"), ""), chunk::text("!")] {
        let got = answer(hi().data(&chunk.clone()).done()).await;
        assert_eq!((got.text.as_str(), got.finish), ("hi!", Finish::Stop));
        let (what, _) = outage(once(hi().data(&chunk)).await.0);
        assert_eq!(what, "the stream ended without a finish reason");
    }
}

#[tokio::test]
async fn a_missing_done_is_no_loss() {
    let got = answer(hi().data(&chunk::finish("stop"))).await;
    assert_eq!((got.text.as_str(), got.finish), ("hi", Finish::Stop));
    // Nor is a connection that breaks behind the finish.
    assert_eq!(answer(hi().data(&chunk::finish("stop")).cut()).await.text, "hi");
}

#[tokio::test]
async fn a_connection_left_open_behind_the_last_word_is_no_loss() {
    let reply = hi().data(&with_finish(chunk::text("!"), "stop")).stall();
    assert_eq!(silent_after(reply, 2).await.unwrap().text, "hi!");
}

#[tokio::test]
async fn a_last_event_without_its_empty_line_is_read() {
    let got = answer(hi().raw("data: [DONE]")).await;
    assert_eq!(got.text, "hi");
    let last = chunk::finish("length");
    assert_eq!(answer(hi().raw(format!("data: {last}\r\n"))).await.finish, Finish::Length);
}

#[tokio::test]
async fn a_broken_connection_is_an_outage() {
    let (what, _) = outage(once(hi().cut()).await.0);
    assert!(what.starts_with("the connection broke"), "{what}");
}

#[tokio::test]
async fn names_may_be_repeated_empty_or_come_late() {
    let reply = Reply::stream()
        .data(&chunk::call(1, "b", "two", ""))
        .data(&chunk::call(0, "a", "one", "{\"x\":"))
        .data(&chunk::call(0, "a", "one", "1}"))
        .data(&chunk::call(1, "", "", "{}"))
        .data(&chunk::finish("tool_calls"))
        .done();
    let (result, heard) = once(reply).await;
    assert_eq!(flat(&result.unwrap()), [("a", "one", "{\"x\":1}"), ("b", "two", "{}")]);
    assert_eq!(heard, ["two", "one"].map(|name| Delta::Call { name: name.to_owned() }));
}

#[tokio::test]
async fn pieces_without_an_index_find_their_call() {
    let piece = |id: &str, name: &str, arguments: &str| {
        let mut chunk = chunk::call(0, id, name, arguments);
        let call = chunk["choices"][0]["delta"]["tool_calls"][0].as_object_mut().unwrap();
        call.remove("index");
        chunk
    };
    let reply = Reply::stream()
        .data(&piece("a", "one", "{\"x\":"))
        .data(&piece("", "", "1}"))
        .data(&piece("b", "two", "{}"))
        .data(&chunk::finish("tool_calls"))
        .done();
    assert_eq!(flat(&answer(reply).await), [("a", "one", "{\"x\":1}"), ("b", "two", "{}")]);
}

#[tokio::test]
async fn arguments_that_are_not_json_are_passed_on() {
    let got = answer(Reply::call("c", "one", "{\"a\": tru")).await;
    assert_eq!(flat(&got), [("c", "one", "{\"a\": tru")]);
}

#[tokio::test]
async fn what_the_answer_does_decides_what_its_finish_means() {
    let call = chunk::call(0, "c", "one", "{}");
    let table = [
        (call.clone(), "stop", Finish::ToolCalls),
        (call.clone(), "length", Finish::Length),
        (chunk::text("x"), "tool_calls", Finish::Stop),
        (chunk::text("x"), "eos", Finish::Stop),
        (chunk::text("x"), "length", Finish::Length),
        (chunk::text("x"), "content_filter", Finish::Filtered),
    ];
    for (said, reason, finish) in table {
        let got = answer(Reply::stream().data(&said).data(&chunk::finish(reason)).done()).await;
        assert_eq!(got.finish, finish, "{reason}");
    }
    let refusal = chunk::delta(&json!({ "content": null, "refusal": "I will not." }));
    let got = answer(Reply::stream().data(&refusal).data(&chunk::finish("stop")).done()).await;
    assert_eq!((got.text.as_str(), got.finish), ("I will not.", Finish::Filtered));
    let failed = hi().data(&chunk::finish("error")).done();
    outage(once(failed).await.0);
}

#[tokio::test]
async fn usage_is_the_last_one_said_or_an_estimate() {
    let mut early = chunk::text("!");
    early["usage"] = json!({ "prompt_tokens": 1, "completion_tokens": 1 });
    let mut none = chunk::finish("stop");
    none["usage"] = Value::Null;
    let reply = hi().data(&early).data(&none).data(&chunk::usage(7, 3));
    let got = answer(reply.data(&json!({ "object": "ping" })).done()).await;
    assert_eq!(got.usage, Usage { input_tokens: 7, output_tokens: 3, reported: true });

    let got = answer(hi().data(&none).done()).await;
    assert!(!got.usage.reported && got.usage.input_tokens > 0);
    assert_eq!(got.usage.output_tokens, 1);
}

#[tokio::test]
async fn an_error_inside_the_stream_has_the_class_of_its_words() {
    let event = |error: Value| hi().data(&json!({ "error": error }));
    let busy = event(json!({ "message": "Overloaded", "code": 529 }));
    let (what, _) = outage(once(busy).await.0);
    assert_eq!(what, "an error instead of the answer: Overloaded");
    outage(once(event(json!("gone"))).await.0);
    outage(once(hi().raw("event: error\ndata: it broke\n\n")).await.0);
    let long = event(json!({ "message": "too long", "code": "context_length_exceeded" }));
    let refused = once(long).await.0;
    assert!(matches!(refused, Err(ModelError::Refused { .. })), "{refused:?}");
}

#[tokio::test]
async fn a_chunk_that_is_no_json_object_garbles_the_answer() {
    assert!(garbled(hi().raw("data: {\"choices\": [\n\n").done()).await.contains("not JSON"));
    assert!(garbled(hi().raw("data: 7\n\n").done()).await.contains("no JSON object"));
}

#[tokio::test]
async fn what_is_not_an_answer_is_garbled() {
    let page = Reply::status(200).header("content-type", "text/html").raw("<html>");
    assert!(garbled(page).await.contains("base_url"));
    for kind in ["text/plain", ""] {
        let other = Reply::status(200).header("content-type", kind).raw("Welcome to nginx");
        assert!(garbled(other).await.contains("base_url"));
    }
    let stream = hi().header("content-type", "text/plain");
    assert_eq!(answer(stream.clone().done()).await.text, "hi");
    outage(once(stream).await.0);
    assert!(garbled(Reply::json(&json!({ "hello": 1 }))).await.contains("no answer"));
    assert!(garbled(Reply::stream().done()).await.contains("no answer"));
    let broken = Reply::status(200).header("content-type", "application/json").raw("{\"cho");
    assert!(garbled(broken).await.contains("not the JSON"));
}

#[tokio::test]
async fn unknown_chunks_comments_and_other_choices_are_passed_over() {
    let mut other = chunk::text("other");
    other["choices"][0]["index"] = json!(1);
    let reply = Reply::stream()
        .raw(": OPENROUTER PROCESSING\n\n")
        .data(&json!({ "object": "ping" }))
        .raw("event: ping\ndata: {}\n\ndata:\n\n")
        .data(&chunk::delta(&json!({ "role": "assistant", "content": null })))
        .data(&chunk::delta(&json!({ "reasoning_content": "hm" })))
        .data(&other)
        .data(&chunk::delta(&json!({ "content": [{ "type": "text", "text": "parts" }] })))
        .data(&chunk::finish("stop"))
        .done();
    assert_eq!(answer(reply).await.text, "parts");
}

#[tokio::test]
async fn frames_may_end_in_any_way_and_be_cut_anywhere() {
    let stream = format!(
        "\u{feff}data: {}\r\n\r\ndata:{}\r\rdata: {}\n\ndata: [DONE]\r\n\r\n",
        chunk::text("grüße "),
        chunk::text("🐶"),
        chunk::finish("stop"),
    );
    let bytes = stream.as_bytes().chunks(1);
    let reply = bytes.fold(Reply::stream(), |reply, byte| reply.raw(byte.to_vec()));
    assert_eq!(answer(reply).await.text, "grüße 🐶");
}

#[tokio::test]
async fn an_answer_that_is_not_streamed_is_taken_too() {
    let got = answer(Reply::json(&json!({
        "choices": [{
            "message": {
                "role": "assistant",
                "content": "whole",
                "tool_calls": [
                    { "id": "a", "function": { "name": "one", "arguments": "{}" } },
                    { "id": "b", "function": { "name": "one", "arguments": { "x": 1 } } },
                ],
            },
            "finish_reason": "tool_calls",
        }],
        "usage": { "prompt_tokens": 3, "completion_tokens": 4 },
    })))
    .await;
    assert_eq!(got.text, "whole");
    assert_eq!(flat(&got), [("a", "one", "{}"), ("b", "one", "{\"x\":1}")]);
    assert_eq!(got.usage, Usage { input_tokens: 3, output_tokens: 4, reported: true });
}

#[tokio::test]
async fn an_answer_without_end_is_refused() {
    let text = "x".repeat(MODEL_TEXT_BYTES_MAX / 2);
    let reply = hi().data(&chunk::text(&text)).data(&chunk::text(&text)).stall();
    assert!(garbled(reply).await.contains("max_tokens"));
    let line = "x".repeat(MODEL_EVENT_BYTES_MAX / 2);
    let reply = hi().raw(line.clone()).raw(line).raw("xx").stall();
    assert!(garbled(reply).await.contains("larger than"));
    let many = (0..40).map(|index| chunk::call(index, "", "one", "{}"));
    let reply = many.fold(Reply::stream(), |reply, chunk| reply.data(&chunk)).stall();
    assert!(garbled(reply).await.contains("tool calls"));
}
