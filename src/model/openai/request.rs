//! A request in the words of Chat Completions. Owns the provider's roles, which appear nowhere
//! else. Must not know the connection.
//!
//! Compatible servers are stricter than their model: their templates refuse what does not look like
//! a plain conversation. So the most common shape is sent to all of them:
//!
//! - Instructions, wherever they stand, become the one `system` message at the beginning: several
//!   templates refuse a later one, and the `user` role would let a person forge them.
//! - A report becomes a `user` message: `system` would give data the authority of rules, and most
//!   servers do not know `developer`. What it begins with tells the model that dogwatch speaks.
//! - Neighbours of the same role are merged: several templates demand that `user` and `assistant`
//!   take turns.
//! - Every call has an id of its own within the request: some servers send empty ids or the same
//!   one again. A new id is the number of the call, so the same log gives the same bytes.
//! - Arguments that are no JSON object are wrapped into one: servers that parse the history refuse
//!   the whole request otherwise, and with it the session, for ever.
//! - Every call has a result right behind it, every result a call, since servers refuse the rest.

use std::collections::{HashSet, VecDeque};

use serde_json::{Map, Value, json};

use super::Settings;
use crate::core::message::{Message, Request, ToolSpec};
use crate::core::transcript::Call;

/// Longest name of a function that servers accept.
const NAME_CHARS_MAX: usize = 64;

/// The body of the HTTP request.
pub(super) fn body(request: &Request, settings: &Settings, usage: bool) -> Value {
    let mut body = Map::new();
    body.insert("model".to_owned(), json!(settings.model_of(&request.agent)));
    body.insert("messages".to_owned(), Value::Array(messages(&request.messages)));
    if !request.tools.is_empty() {
        body.insert("tools".to_owned(), request.tools.iter().map(tool).collect());
    }
    if let Some(most) = settings.max_tokens {
        body.insert("max_tokens".to_owned(), json!(most));
    }
    if let Some(temperature) = settings.temperature {
        body.insert("temperature".to_owned(), json!(temperature));
    }
    body.insert("stream".to_owned(), json!(true));
    if usage {
        body.insert("stream_options".to_owned(), json!({ "include_usage": true }));
    }
    Value::Object(body)
}

fn tool(spec: &ToolSpec) -> Value {
    json!({
        "type": "function",
        "function": {
            "name": spec.name,
            "description": spec.description,
            "parameters": spec.parameters,
        },
    })
}

fn messages(given: &[Message]) -> Vec<Value> {
    let rules: Vec<&str> = given
        .iter()
        .filter_map(|message| match message {
            Message::Instructions(text) => Some(text.as_str()),
            Message::Person(_)
            | Message::Report(_)
            | Message::Model { .. }
            | Message::Tool { .. } => None,
        })
        .collect();
    let mut talk = Talk { ids: Ids::with_those_of(given), ..Talk::default() };
    if !rules.is_empty() {
        talk.out.push(json!({ "role": "system", "content": rules.join("\n\n") }));
    }
    for message in given {
        match message {
            Message::Instructions(_) => {}
            Message::Person(text) | Message::Report(text) => talk.user(text),
            Message::Model { text, calls } => talk.assistant(text, calls),
            Message::Tool { call_id, name, content } => talk.result(call_id, name, content),
        }
    }
    talk.settle();
    talk.out
}

/// The conversation so far.
#[derive(Default)]
struct Talk {
    out: Vec<Value>,
    ids: Ids,
    /// Calls of the last answer that have no result yet.
    open: VecDeque<Open>,
}

struct Open {
    given: String,
    sent: String,
    name: String,
}

impl Talk {
    fn user(&mut self, text: &str) {
        self.settle();
        if !self.merged("user", text) {
            self.out.push(json!({ "role": "user", "content": text }));
        }
    }

    fn assistant(&mut self, text: &str, calls: &[Call]) {
        self.settle();
        let mut sent = Vec::new();
        for call in calls {
            let id = self.ids.unique(&call.id);
            sent.push(json!({
                "id": id,
                "type": "function",
                "function": { "name": name(&call.name), "arguments": arguments(&call.arguments) },
            }));
            let (given, name) = (call.id.clone(), call.name.clone());
            self.open.push_back(Open { given, sent: id, name });
        }
        if !self.merged("assistant", text) {
            // The key is there even when it says nothing: some servers demand it.
            let content = if text.is_empty() && !sent.is_empty() { None } else { Some(text) };
            self.out.push(json!({ "role": "assistant", "content": content }));
        }
        if let (false, Some(Value::Object(last))) = (sent.is_empty(), self.out.last_mut()) {
            last.insert("tool_calls".to_owned(), Value::Array(sent));
        }
    }

    fn result(&mut self, call_id: &str, name: &str, content: &str) {
        let exact = self.open.iter().position(|open| open.given == call_id && open.name == name);
        let place = exact.or_else(|| self.open.iter().position(|open| open.given == call_id));
        match self.open.remove(place.unwrap_or(0)) {
            Some(open) => self.push_result(&open.sent, content),
            None => self.user(&format!("Result of {name}: {content}")),
        }
    }

    fn push_result(&mut self, id: &str, content: &str) {
        self.out.push(json!({ "role": "tool", "tool_call_id": id, "content": content }));
    }

    /// Answers the calls that have no result: what became of them is not known.
    fn settle(&mut self) {
        while let Some(open) = self.open.pop_front() {
            self.push_result(&open.sent, r#"{"status":"unknown"}"#);
        }
    }

    /// Appends to the last message if it has this role and made no calls.
    fn merged(&mut self, role: &str, text: &str) -> bool {
        let Some(Value::Object(last)) = self.out.last_mut() else { return false };
        if last.get("role") != Some(&json!(role)) || last.contains_key("tool_calls") {
            return false;
        }
        if let Some(Value::String(had)) = last.get_mut("content") {
            if !had.is_empty() && !text.is_empty() {
                had.push_str("\n\n");
            }
            had.push_str(text);
        }
        true
    }
}

/// Ids of calls that are in use.
#[derive(Default)]
struct Ids {
    /// Every id in the log, so that no new one is like a later one of the provider's.
    given: HashSet<String>,
    sent: HashSet<String>,
    count: u32,
}

impl Ids {
    fn with_those_of(messages: &[Message]) -> Self {
        let calls = messages.iter().flat_map(|message| match message {
            Message::Model { calls, .. } => calls.as_slice(),
            Message::Instructions(_)
            | Message::Person(_)
            | Message::Report(_)
            | Message::Tool { .. } => &[],
        });
        Self { given: calls.map(|call| call.id.clone()).collect(), ..Self::default() }
    }

    fn unique(&mut self, given: &str) -> String {
        self.count += 1;
        if !given.is_empty() && self.sent.insert(given.to_owned()) {
            return given.to_owned();
        }
        // Nine letters and digits: the strictest provider takes nothing else.
        let mut number = self.count;
        loop {
            let id = format!("call{number:05}");
            if !self.given.contains(&id) && self.sent.insert(id.clone()) {
                return id;
            }
            number += 10_000;
        }
    }
}

/// A function's name that servers accept: a model may have called what never existed.
fn name(given: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "_-".contains(c) { c } else { '_' };
    let name: String = given.chars().take(NAME_CHARS_MAX).map(plain).collect();
    if name.is_empty() { "unnamed".to_owned() } else { name }
}

/// Arguments as a JSON object.
fn arguments(given: &str) -> String {
    match serde_json::from_str(given) {
        Ok(Value::Object(_)) => given.to_owned(),
        Ok(_) | Err(_) if given.trim().is_empty() => "{}".to_owned(),
        Ok(_) | Err(_) => json!({ "not_a_json_object": given }).to_string(),
    }
}
