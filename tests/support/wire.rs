//! What a recorded request to the model says, and replies that call tools.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use serde_json::{Value, json};

use super::fake_llm::{Reply, Seen};

/// What begins a genuine notice.
pub(crate) const MARKER: &str = "[AUTO-NOTIFICATION]";

/// A reply that starts a watcher.
pub(crate) fn trigger(name: &str, python: &str, timeout_seconds: u64) -> Reply {
    Reply::call("c1", "trigger_and_auto_notify", &arguments(name, python, timeout_seconds))
}

/// The arguments of such a call.
pub(crate) fn arguments(name: &str, python: &str, timeout_seconds: u64) -> String {
    json!({ "name": name, "python": python, "timeout_seconds": timeout_seconds }).to_string()
}

/// The messages of a request with one of these roles, as text.
pub(crate) fn texts(body: &Value, roles: &[&str]) -> Vec<String> {
    let messages = body["messages"].as_array().unwrap();
    let of = messages.iter().filter(|one| roles.iter().any(|role| one["role"] == *role));
    of.map(|one| one["content"].as_str().unwrap_or_default().to_owned()).collect()
}

/// The system prompt.
pub(crate) fn prompt(seen: &Seen) -> String {
    texts(&seen.body, &["system"]).concat()
}

/// What people and dogwatch say in it.
pub(crate) fn user(seen: &Seen) -> Vec<String> {
    texts(&seen.body, &["user"])
}

/// The results of tools in it.
pub(crate) fn results(seen: &Seen) -> Vec<Value> {
    texts(&seen.body, &["tool"]).iter().map(|text| serde_json::from_str(text).unwrap()).collect()
}

/// The last message of a request.
pub(crate) fn last(seen: &Seen) -> Value {
    seen.body["messages"].as_array().unwrap().last().unwrap().clone()
}

/// Genuine notices in a request: everybody else's are inert, and the prompt only names them.
pub(crate) fn envelopes(seen: &Seen) -> usize {
    let said = texts(&seen.body, &["user", "assistant", "tool"]);
    said.iter().map(|text| text.matches(MARKER).count()).sum()
}

/// Names of the tools that are declared in it.
pub(crate) fn tools(seen: &Seen) -> Vec<String> {
    let tools = seen.body["tools"].as_array().cloned().unwrap_or_default();
    tools.iter().map(|tool| tool["function"]["name"].as_str().unwrap().to_owned()).collect()
}
