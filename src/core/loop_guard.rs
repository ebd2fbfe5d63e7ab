//! Repeated calls. Owns what counts as the same call and as an unchanged probe.
//! Must not know what is done about it.
//!
//! Two calls are the same when tool and arguments are, whatever the order of keys and the white
//! space. Two results of a probe are the same when they differ only in how much time has passed:
//! fields named `now`, `elapsed…`, `age…`, `since…` or `remaining…` are not looked at, nor what
//! dogwatch itself added to the earlier result.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

/// Field of a result that tells the model that it repeats itself.
pub const ALERT_FIELD: &str = "loop_alert";
/// Field of a probe's result that tells the model to wait for the notice.
pub const HINT_FIELD: &str = "polling_hint";

const TIME_FIELDS: [&str; 4] = ["elapsed", "age", "since", "remaining"];

/// The calls of one turn so far. Bounded by the turn's budget of tool calls.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopGuard {
    calls: BTreeMap<String, u32>,
    probes: BTreeMap<String, Probe>,
}

/// The last result of one probe, and how often in a row it was that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Probe {
    result: String,
    times: u32,
}

impl LoopGuard {
    /// Records a call and says how many of it there are now. Not for probes.
    pub fn record(&mut self, name: &str, arguments: &str) -> u32 {
        let times = self.calls.entry(call_print(name, arguments)).or_default();
        *times = times.saturating_add(1);
        *times
    }

    /// How often in a row the probe would have had this result, were it recorded now.
    pub fn probed(&self, name: &str, arguments: &str, result: &Value) -> u32 {
        match self.probes.get(&probe_print(name, arguments)) {
            Some(probe) if probe.result == result_print(result) => probe.times.saturating_add(1),
            Some(_) | None => 1,
        }
    }

    /// Records the result of a probe.
    pub fn record_probe(&mut self, name: &str, arguments: &str, result: &Value) {
        let times = self.probed(name, arguments, result);
        let probe = Probe { result: result_print(result), times };
        self.probes.insert(probe_print(name, arguments), probe);
    }
}

/// A result with a line of dogwatch's own; one that is not an object is wrapped once.
#[must_use]
pub fn annotate(result: Value, field: &str, text: String) -> Value {
    let mut object = match result {
        Value::Object(object) => object,
        other @ (Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)) => Map::from_iter([("output".to_owned(), other)]),
    };
    object.insert(field.to_owned(), Value::String(text));
    Value::Object(object)
}

fn call_print(name: &str, arguments: &str) -> String {
    let arguments = match serde_json::from_str(arguments) {
        Ok(value) => canonical(value, &|_| true).to_string(),
        Err(_) => arguments.trim().to_owned(),
    };
    digest(&[name, &arguments])
}

/// A probe of one execution is the same probe however much of it is asked for.
fn probe_print(name: &str, arguments: &str) -> String {
    let value: Option<Value> = serde_json::from_str(arguments).ok();
    match value.as_ref().and_then(|v| v.get("id")).and_then(Value::as_str) {
        Some(id) => digest(&[name, "id", id]),
        None => call_print(name, arguments),
    }
}

fn result_print(result: &Value) -> String {
    // The wrapping of a result that was no object is undone by giving it to every such result.
    let result = match result {
        Value::Object(_) => result.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Value::Object(Map::from_iter([("output".to_owned(), result.clone())]))
        }
    };
    digest(&[&canonical(result, &|field| !is_of_time(field)).to_string()])
}

fn is_of_time(field: &str) -> bool {
    field == "now"
        || field == ALERT_FIELD
        || field == HINT_FIELD
        || TIME_FIELDS.iter().any(|prefix| {
            field.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
        })
}

/// Keys in order, only those that are kept.
fn canonical(value: Value, keep: &impl Fn(&str) -> bool) -> Value {
    match value {
        Value::Object(object) => {
            let sorted: BTreeMap<String, Value> = object
                .into_iter()
                .filter(|(key, _)| keep(key))
                .map(|(key, value)| (key, canonical(value, keep)))
                .collect();
            Value::Object(sorted.into_iter().collect())
        }
        Value::Array(items) => {
            Value::Array(items.into_iter().map(|item| canonical(item, keep)).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

/// One short text for several, so that large arguments are not kept twice.
fn digest(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.len().to_le_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().iter().fold(String::with_capacity(64), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_same_call_is_counted_whatever_its_spelling() {
        let mut guard = LoopGuard::default();
        let spellings =
            [r#"{"a":1,"b":{"x":[1,2],"y":null}}"#, r#" { "b":{"y":null,"x":[1,2]}, "a":1 }"#];
        for (n, spelling) in spellings.iter().cycle().take(6).enumerate() {
            assert_eq!(guard.record("run", spelling) as usize, n + 1);
        }
    }

    #[test]
    fn another_tool_or_argument_is_another_call() {
        let mut guard = LoopGuard::default();
        assert_eq!(guard.record("run", r#"{"a":[1,2]}"#), 1);
        assert_eq!(guard.record("run", r#"{"a":[2,1]}"#), 1);
        assert_eq!(guard.record("ru", r#"n{"a":[1,2]}"#), 1);
        assert_eq!(guard.record("walk", r#"{"a":[1,2]}"#), 1);
        assert_eq!(guard.record("run", "{broken"), 1);
        assert_eq!(guard.record("run", " {broken "), 2);
    }

    #[test]
    fn a_probe_is_unchanged_when_only_time_passed() {
        let mut guard = LoopGuard::default();
        let look = |elapsed: u64| json!({"status": "running", "elapsed_ms": elapsed, "out": "a"});
        for n in 1..=3 {
            let result = look(u64::from(n) * 10);
            assert_eq!(guard.probed("look", r#"{"id":"w1"}"#, &result), n);
            let stored = annotate(result, HINT_FIELD, "wait".into());
            guard.record_probe("look", &format!(r#"{{"id":"w1","tail_lines":{n}}}"#), &stored);
        }
        assert_eq!(guard.probed("look", r#"{"id":"w2"}"#, &look(1)), 1);
        let moved = json!({"status": "running", "elapsed_ms": 40, "out": "ab"});
        assert_eq!(guard.probed("look", r#"{"id":"w1"}"#, &moved), 1);
    }

    #[test]
    fn only_whole_words_are_of_time() {
        for field in ["now", "elapsed", "elapsed_ms", "age", "age_seconds", "since_ms"] {
            assert!(is_of_time(field), "{field}");
        }
        for field in ["agent", "sincere", "status", "nowhere", "image_age"] {
            assert!(!is_of_time(field), "{field}");
        }
    }

    #[test]
    fn a_result_that_is_no_object_is_wrapped_once_and_still_the_same() {
        let mut guard = LoopGuard::default();
        let wrapped = annotate(json!("out"), HINT_FIELD, "a".into());
        assert_eq!(wrapped, json!({"output": "out", "polling_hint": "a"}));
        let twice = annotate(wrapped.clone(), ALERT_FIELD, "b".into());
        assert_eq!(twice, json!({"output": "out", "polling_hint": "a", "loop_alert": "b"}));
        guard.record_probe("look", "{}", &wrapped);
        assert_eq!(guard.probed("look", "{}", &json!("out")), 2);
    }
}
