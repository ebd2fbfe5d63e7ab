//! What a model is told about a call that was not run, or not run as it hoped. Owns the wording
//! and the one JSON shape of errors. Must not know when each is due.

use serde_json::{Value, json};

use crate::core::budget::Limits;

/// Longest part of a tool's name that is shown, in characters.
const NAME_CHARS_MAX: usize = 64;

struct Lesson<'a> {
    code: &'a str,
    field: Option<&'a str>,
    message: String,
    hint: &'a str,
    example: Option<Value>,
    retryable: bool,
}

impl Lesson<'_> {
    fn result(self) -> Value {
        json!({"error": {
            "code": self.code,
            "field": self.field,
            "message": self.message,
            "hint": self.hint,
            "example": self.example,
            "retryable": self.retryable,
        }})
    }
}

/// Did the call fail?
pub(super) fn is_error(result: &Value) -> bool {
    result.get("error").is_some_and(|error| !error.is_null())
}

/// A name that the model wrote, fit to be shown to it and to people.
pub(super) fn shown(name: &str) -> String {
    let kept: String =
        name.chars().filter(|c| !c.is_control() && *c != '`').take(NAME_CHARS_MAX).collect();
    format!("`{kept}`")
}

pub(super) fn surplus(limits: &Limits, kept: usize) -> Value {
    Lesson {
        code: "too_many_calls",
        field: None,
        message: format!(
            "One answer may make {} calls; this one beyond them was not run, and calls after the \
             {kept}th are not even kept.",
            limits.calls_per_answer
        ),
        hint: "Make it again in a later answer if it is still needed.",
        example: None,
        retryable: true,
    }
    .result()
}

pub(super) fn tool_budget(limits: &Limits) -> Value {
    Lesson {
        code: "budget_spent",
        field: None,
        message: format!(
            "This turn's budget of {} tool calls is spent; this call was not run.",
            limits.tool_calls
        ),
        hint: "Answer with what you know and say what is left to do.",
        example: None,
        retryable: false,
    }
    .result()
}

pub(super) fn chain_budget(name: &str) -> Value {
    Lesson {
        code: "budget_spent",
        field: None,
        message: format!(
            "{} was not run: the budget of this conversation's chain is spent.",
            shown(name)
        ),
        hint: "A person's next message opens a new budget.",
        example: None,
        retryable: false,
    }
    .result()
}

pub(super) fn unknown_tool(name: &str, declared: &[&str]) -> Value {
    let hint = if declared.is_empty() {
        "There are no tools here; answer in text.".to_owned()
    } else {
        format!("Names are matched exactly. The tools here are: {}.", declared.join(", "))
    };
    Lesson {
        code: "unknown_tool",
        field: Some("name"),
        message: format!("There is no tool {} here.", shown(name)),
        hint: &hint,
        example: None,
        retryable: false,
    }
    .result()
}

pub(super) fn invalid_json(name: &str, fault: &str, cut: bool) -> Value {
    Lesson {
        code: "invalid_json",
        field: Some("arguments"),
        message: format!("The arguments of {} are not JSON: {fault}.", shown(name)),
        hint: if cut {
            "The answer was cut at the output limit, and the arguments with it. Make the call \
             again with shorter arguments."
        } else {
            "Make the call again with one complete JSON object."
        },
        example: Some(json!({"field": "value"})),
        retryable: false,
    }
    .result()
}

pub(super) fn not_an_object(name: &str) -> Value {
    Lesson {
        code: "not_an_object",
        field: Some("arguments"),
        message: format!("The arguments of {} are JSON, but not an object.", shown(name)),
        hint: "Make the call again with one JSON object.",
        example: Some(json!({"field": "value"})),
        retryable: false,
    }
    .result()
}

pub(super) fn repeated(name: &str, limits: &Limits) -> Value {
    Lesson {
        code: "repeated_call",
        field: None,
        message: format!(
            "{} was called {} times with the same arguments; it was not run again and the turn \
             ends now.",
            shown(name),
            limits.loop_end_at
        ),
        hint: "Say in text what you found and what is left to do.",
        example: None,
        retryable: false,
    }
    .result()
}

pub(super) fn person_waits(name: &str) -> Value {
    Lesson {
        code: "not_now",
        field: None,
        message: format!("A person waits for an answer; {} is not possible.", shown(name)),
        hint: "Answer in text.",
        example: None,
        retryable: false,
    }
    .result()
}

pub(super) fn not_alone(name: &str) -> Value {
    Lesson {
        code: "not_now",
        field: None,
        message: format!("{} ends the turn, but other calls stand beside it.", shown(name)),
        hint: "Read their results first, then call it alone.",
        example: None,
        retryable: true,
    }
    .result()
}

pub(super) fn interrupted(name: &str) -> Value {
    Lesson {
        code: "interrupted",
        field: None,
        message: format!(
            "outcome unknown: dogwatch was interrupted while {} ran; it may or may not have been \
             done.",
            shown(name)
        ),
        hint: "Side effects may have happened: verify before redoing it.",
        example: None,
        retryable: false,
    }
    .result()
}

pub(super) fn not_started(name: &str) -> Value {
    Lesson {
        code: "not_started",
        field: None,
        message: format!("{} was not run: dogwatch was interrupted before it.", shown(name)),
        hint: "Make the call again if it is still needed.",
        example: None,
        retryable: true,
    }
    .result()
}

/// The line in the result of a call that was made before with the same arguments.
pub(super) fn loop_alert(name: &str, times: u32, limits: &Limits) -> String {
    format!(
        "{} was called {times} times with the same arguments in this turn. Change something or \
         answer; the turn ends at the {}th.",
        shown(name),
        limits.loop_end_at
    )
}

/// The line in the result of a probe that shows nothing new.
pub(super) fn polling_hint(times: u32) -> String {
    format!(
        "This shows the same for the {times}th time. Looking again does not make it end sooner: \
         end the turn, and a notice wakes you as soon as there is a result."
    )
}
