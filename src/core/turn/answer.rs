//! Answers and results made fit for one row of the log. Owns their bounds and the uniqueness of
//! call ids in an answer. Must not know what the calls mean.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::core::limits::{
    ANSWER_ARGUMENTS_BYTES_MAX, ANSWER_TEXT_BYTES_MAX, CALL_NAME_BYTES_MAX,
    CALLS_KEPT_PER_ANSWER_MAX, RESULT_BYTES_MAX,
};
use crate::core::message::Answer;
use crate::core::transcript::{Body, Call, Finish};

/// The log's entry for an answer. A last word has no calls, whatever the model wrote.
pub(super) fn entry(answer: Answer, tools: bool) -> Body {
    let mut finish = answer.finish;
    let text = head(&answer.text, ANSWER_TEXT_BYTES_MAX).to_owned();
    if text.len() < answer.text.len() {
        finish = Finish::Length;
    }
    let calls = if tools { tidy(answer.calls) } else { Vec::new() };
    if calls.is_empty() && finish == Finish::ToolCalls {
        finish = Finish::Stop;
    }
    Body::Model { text, calls, finish, usage: answer.usage }
}

/// Bounded, and with ids that tell the calls apart: some servers send none, or the same for all,
/// and then refuse the request that hands them back. Arguments that are cut are no JSON any more,
/// so the call is answered with what was wrong.
fn tidy(calls: Vec<Call>) -> Vec<Call> {
    let mut arguments_left = ANSWER_ARGUMENTS_BYTES_MAX;
    let mut ids = BTreeSet::new();
    let mut kept: Vec<Call> = calls.into_iter().take(CALLS_KEPT_PER_ANSWER_MAX).collect();
    for (n, call) in kept.iter_mut().enumerate() {
        call.name = head(&call.name, CALL_NAME_BYTES_MAX).to_owned();
        call.arguments = head(&call.arguments, arguments_left).to_owned();
        arguments_left = arguments_left.saturating_sub(encoded(&call.arguments));
        // Room for the number that may be added.
        call.id = head(call.id.trim(), CALL_NAME_BYTES_MAX - 8).to_owned();
        if call.id.is_empty() || !ids.insert(call.id.clone()) {
            call.id = fresh(&call.id, n, &ids);
            ids.insert(call.id.clone());
        }
    }
    kept
}

fn fresh(id: &str, n: usize, taken: &BTreeSet<String>) -> String {
    let stem = if id.is_empty() { "call" } else { id };
    (n..=n + CALLS_KEPT_PER_ANSWER_MAX)
        .map(|n| format!("{stem}_{n}"))
        .find(|id| !taken.contains(id))
        .unwrap_or_else(|| format!("{stem}_{n}"))
}

/// A result that fits one row: of a larger one the head and the tail as text.
pub(super) fn bounded(result: Value) -> Value {
    let text = result.to_string();
    if text.len() <= RESULT_BYTES_MAX {
        return result;
    }
    // The text is encoded once more as a JSON string, so the halves are measured as such.
    let half = RESULT_BYTES_MAX / 2 - 256;
    let (first, last) = (head(&text, half), tail(&text, half));
    let missing = text.len() - first.len() - last.len();
    json!({"output": format!("{first}\n… {missing} bytes are missing here …\n{last}")})
}

/// Bytes of a character in a JSON string.
fn width(c: char) -> usize {
    match c {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        c if c < ' ' => 6,
        c => c.len_utf8(),
    }
}

fn encoded(text: &str) -> usize {
    text.chars().map(width).sum()
}

/// The longest head with at most so many bytes as JSON.
fn head(text: &str, bytes_max: usize) -> &str {
    let mut left = bytes_max;
    for (at, c) in text.char_indices() {
        match left.checked_sub(width(c)) {
            Some(rest) => left = rest,
            None => return text.get(..at).unwrap_or_default(),
        }
    }
    text
}

/// The longest tail with at most so many bytes as JSON.
fn tail(text: &str, bytes_max: usize) -> &str {
    let mut left = bytes_max;
    for (at, c) in text.char_indices().rev() {
        match left.checked_sub(width(c)) {
            Some(rest) => left = rest,
            None => return text.get(at + c.len_utf8()..).unwrap_or_default(),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::core::limits::ROW_BYTES_MAX;
    use crate::core::transcript::Usage;

    fn call(id: &str, arguments: &str) -> Call {
        Call { id: id.into(), name: "t".into(), arguments: arguments.into() }
    }

    fn answer(text: &str, calls: Vec<Call>) -> Answer {
        Answer { text: text.into(), calls, finish: Finish::ToolCalls, usage: Usage::default() }
    }

    fn calls_of(body: Body) -> Vec<Call> {
        let Body::Model { calls, .. } = body else { panic!("no answer") };
        calls
    }

    #[test]
    fn ids_that_are_the_same_or_missing_are_told_apart() {
        let ids = ["a", "a", "", "a_1", "a", " ", "call_2"];
        let calls =
            calls_of(entry(answer("", ids.iter().map(|id| call(id, "{}")).collect()), true));
        let unique: BTreeSet<_> = calls.iter().map(|c| c.id.as_str()).collect();
        assert_eq!(unique.len(), ids.len(), "{calls:?}");
        assert!(!unique.contains(""), "{calls:?}");
        assert_eq!(calls[0].id, "a");
    }

    #[test]
    fn a_last_word_keeps_its_text_and_drops_its_calls() {
        let body = entry(answer("bye", vec![call("a", "{}")]), false);
        let usage = Usage::default();
        let want = Body::Model { text: "bye".into(), calls: vec![], finish: Finish::Stop, usage };
        assert_eq!(body, want);
    }

    #[test]
    fn text_beyond_its_bound_is_said_to_be_cut() {
        let Body::Model { text, finish, .. } =
            entry(answer(&"ä".repeat(ANSWER_TEXT_BYTES_MAX), vec![]), true)
        else {
            panic!("no answer")
        };
        assert_eq!(text.len(), ANSWER_TEXT_BYTES_MAX);
        assert_eq!(finish, Finish::Length);
    }

    #[test]
    fn the_worst_answer_fits_a_row() {
        let name = "\u{1}".repeat(ROW_BYTES_MAX);
        let calls = (0..200)
            .map(|_| Call { id: name.clone(), name: name.clone(), arguments: "\"".repeat(9_000) })
            .collect();
        let body = entry(answer(&"\"".repeat(ROW_BYTES_MAX), calls), true);
        assert!(serde_json::to_string(&body).unwrap().len() < ROW_BYTES_MAX);
        assert_eq!(calls_of(body).len(), CALLS_KEPT_PER_ANSWER_MAX);
    }

    #[test]
    fn a_result_beyond_its_bound_keeps_head_and_tail() {
        let result = json!({"first": "x".repeat(RESULT_BYTES_MAX), "last": "\n".repeat(40_000)});
        let cut = bounded(result);
        assert!(cut.to_string().len() <= RESULT_BYTES_MAX);
        let output = cut["output"].as_str().unwrap();
        assert!(output.starts_with(r#"{"first":"xx"#), "head");
        assert!(output.ends_with(r#"\n\n"}"#), "tail");
        assert!(output.contains("bytes are missing here"));
        let small = json!({"a": 1});
        assert_eq!(bounded(small.clone()), small);
    }

    proptest! {
        #[test]
        fn widths_are_those_of_serde(text in ".*", control in "[\\x00-\\x7f]*") {
            for text in [text, control] {
                prop_assert_eq!(encoded(&text) + 2, serde_json::to_string(&text).unwrap().len());
            }
        }
    }
}
