//! `watch__list`, `watch__cancel`, `watch__output`: looking after background work of the same
//! session. Owns their schemas, how a written id is understood, and the words of their results.
//! Must not know where records or output come from.

use serde_json::{Map, Value, json};

use super::check::{Id, Whole, bad_id};
use super::error::{Code, ToolError};
use super::shape::{Field, Shape};
use super::{Action, AfterCrash, Rule, Tool, Wiring};
use crate::core::execution::{Execution, Exit, Notify, Outcome, State};
use crate::core::id::{ExecutionId, Principal, SessionId};
use crate::core::limits::{NAMES_IN_ERROR_MAX, TAIL_LINES, TAIL_LINES_MAX};
use crate::core::message::ToolSpec;
use crate::core::nearest::{echo, nearest};
use crate::core::output::Captured;
use crate::core::policy::Role;
use crate::core::time::{Timestamp, span};
use crate::ports::Glance;

/// Lists work.
pub const LIST: &str = "watch__list";
/// Ends one.
pub const CANCEL: &str = "watch__cancel";
/// Shows the output of one.
pub const OUTPUT: &str = "watch__output";

const ID: Field<Id> = Field {
    name: "id",
    about: "The execution_id, for example 'auto-notify-watc-0001'.",
    check: Id,
};
const TAIL: Field<Whole> = Field {
    name: "tail_lines",
    about: "Optional. How many of the last lines of each stream.",
    check: Whole { min: 1, max: TAIL_LINES_MAX, unit: "lines" },
};

/// The field of results is called otherwise than the argument.
const NAMED: &[(&str, &str)] = &[("execution_id", "The argument is called 'id'.")];

fn list_shape() -> Shape {
    Shape::new(json!({}))
}

fn cancel_shape() -> Shape {
    Shape::new(json!({ "id": "auto-notify-watc-0001" })).need(&ID).without(NAMED)
}

fn output_shape() -> Shape {
    Shape::new(json!({ "id": "auto-notify-watc-0001", "tail_lines": 20 }))
        .need(&ID)
        .may(&TAIL)
        .without(NAMED)
}

/// The tools. Their texts name only what an agent of that role can call.
pub(super) fn tools(wiring: &Wiring) -> Vec<Tool> {
    let cancel_too = match wiring.role {
        Role::Writable => format!(" To end one use {CANCEL}."),
        Role::ReadOnly => String::new(),
    };
    vec![
        Tool {
            spec: ToolSpec {
                name: LIST.to_owned(),
                description: format!(
                    "List the background work of this conversation: what runs, and what ended \
                     lately. It only looks. You need not call it to wait: the end of work \
                     arrives by itself as an [AUTO-NOTIFICATION].{cancel_too}"
                ),
                parameters: list_shape().schema(),
            },
            rule: Rule::PROBE,
            writes: false,
            parse: |arguments| list_shape().read(arguments).map(|_| Action::ListWatchers),
        },
        Tool {
            spec: ToolSpec {
                name: CANCEL.to_owned(),
                description: format!(
                    "End one piece of background work of this conversation. It gets TERM, {} \
                     seconds later KILL; the result carries what it printed until then, and no \
                     notification follows.",
                    wiring.grace_ms.div_ceil(1000)
                ),
                parameters: cancel_shape().schema(),
            },
            // Run again it finds the work ending or ended, and says so.
            rule: Rule {
                probe: false,
                parallel: true,
                ends_turn: false,
                after_crash: AfterCrash::Rerun,
            },
            writes: true,
            parse: |arguments| {
                Ok(Action::CancelWatcher { id: cancel_shape().read(arguments)?.need(&ID)? })
            },
        },
        Tool {
            spec: ToolSpec {
                name: OUTPUT.to_owned(),
                description: format!(
                    "Show the last lines that one piece of background work of this conversation \
                     printed ({TAIL_LINES} of each stream unless you say otherwise). It only \
                     looks, and works while it runs and after it ended."
                ),
                parameters: output_shape().schema(),
            },
            rule: Rule::PROBE,
            writes: false,
            parse: |arguments| {
                let given = output_shape().read(arguments)?;
                let tail_lines = given.may(&TAIL)?.unwrap_or(TAIL_LINES);
                Ok(Action::WatcherOutput { id: given.need(&ID)?, tail_lines })
            },
        },
    ]
}

/// The id that the model meant, in this session. It may write `<session>/<id>`.
pub fn resolve(session: &SessionId, written: &str) -> Result<ExecutionId, ToolError> {
    let own = format!("{session}/");
    let id = written.strip_prefix(&own).unwrap_or(written);
    if id.contains('/') {
        return Err(ToolError::new(
            Code::OtherSession,
            format!("{} is not of this conversation", echo(written)),
            format!("Only work started here can be seen from here; {LIST} shows it."),
        )
        .of(ID.name));
    }
    ExecutionId::new(id).map_err(|error| bad_id(ID.name, &error).of(ID.name))
}

/// There is no such execution in this session. `known` are those that there are.
pub fn unknown(id: &ExecutionId, known: &[Execution]) -> ToolError {
    let id = id.as_str();
    let named = known.iter().find(|e| e.name.eq_ignore_ascii_case(id)).map(|e| e.id.as_str());
    let hint = match named.or_else(|| nearest(id, known.iter().map(|e| e.id.as_str()))) {
        Some(meant) => format!("Did you mean '{meant}'? {LIST} shows all."),
        None if known.is_empty() => {
            "Nothing was started in this conversation, or it is no longer kept.".to_owned()
        }
        None => {
            let shown = known.iter().map(|e| e.id.as_str()).take(NAMES_IN_ERROR_MAX);
            let ids: Vec<_> = shown.collect();
            format!("{LIST} shows what there is: {}.", ids.join(", "))
        }
    };
    let message = format!("there is no execution {} in this conversation", echo(id));
    ToolError::new(Code::UnknownExecution, message, hint).of(ID.name)
}

/// It had ended before it could be cancelled.
pub fn already_over(execution: &Execution) -> ToolError {
    let how = status_word(&execution.state);
    ToolError::new(
        Code::AlreadyOver,
        format!("'{}' is over already: {how}", execution.id),
        format!("Nothing was ended. {OUTPUT} shows what it printed."),
    )
    .of(ID.name)
    .with("status", how)
}

/// It is somebody else's, or there are others in this turn.
pub fn foreign(owner: &Principal) -> ToolError {
    ToolError::new(
        Code::NotOwner,
        format!("it belongs to {owner}; only a turn of theirs alone may end it"),
        format!(
            "Nothing was ended. Tell the person that {owner} can end it: with a message of their \
             own, its Cancel button, or the command `cancel ID`. `stop all`, said by anybody \
             here, ends everything."
        ),
    )
    .of(ID.name)
    .with("owner", owner.as_str())
}

/// The record cannot be read or written now.
pub fn unavailable(what: &str) -> ToolError {
    ToolError::new(
        Code::Unavailable,
        format!("it could not be done: {what}"),
        "Try once more, or tell the person.",
    )
    .later()
}

/// The work of a session: what is not over, oldest first, and what ended lately, newest first.
pub fn listed(live: &[Execution], ended: &[Execution], now: Timestamp) -> Value {
    let all = || live.iter().chain(ended);
    // Who alone can end it; of no interest where there is nobody else.
    let several = all().any(|one| Some(&one.owner) != all().next().map(|first| &first.owner));
    let rows = all().map(|execution| {
        let mut row = row(execution, now);
        if several {
            row.insert("owner".into(), execution.owner.as_str().into());
        }
        Value::Object(row)
    });
    let rows: Vec<_> = rows.collect();
    json!({ "running": live.len(), "watchers": rows })
}

/// What one printed. `glance` is what its home sees now; an ended one has it in its record.
pub fn output(
    execution: &Execution,
    glance: Option<&Glance>,
    tail_lines: u64,
    now: Timestamp,
) -> Value {
    let mut row = row(execution, now);
    match (&execution.state, glance) {
        (State::Ended(outcome), _) => streams(&mut row, outcome, tail_lines),
        (State::Registered | State::Running | State::Cancelling, Some(glance)) => {
            row.insert("stdout".into(), stream(&glance.stdout, tail_lines));
            row.insert("stderr".into(), stream(&glance.stderr, tail_lines));
            if glance.stalled {
                row.insert("stalled".into(), "its supervisor does not answer".into());
            }
        }
        (State::Registered | State::Running | State::Cancelling, None) => {
            row.insert("output".into(), "cannot be seen now".into());
        }
    }
    Value::Object(row)
}

/// It was ended, with what it had printed.
pub fn cancelled(execution: &Execution, outcome: &Outcome) -> Value {
    let mut row = Map::new();
    row.insert("execution_id".into(), execution.id.as_str().into());
    row.insert("name".into(), execution.name.as_str().into());
    end(&mut row, outcome);
    streams(&mut row, outcome, TAIL_LINES_MAX);
    Value::Object(row)
}

/// It was asked to end and did not within the grace; its end will be recorded.
pub fn cancelling(execution: &Execution) -> Value {
    json!({
        "execution_id": execution.id,
        "name": execution.name,
        "status": "cancelling",
        "message": "it was asked to end and has not ended yet",
    })
}

fn row(execution: &Execution, now: Timestamp) -> Map<String, Value> {
    let mut row = Map::new();
    row.insert("execution_id".into(), execution.id.as_str().into());
    row.insert("name".into(), execution.name.as_str().into());
    if let State::Ended(outcome) = &execution.state {
        end(&mut row, outcome);
        if let Some(at) = execution.ended_at {
            row.insert("ended".into(), format!("{} ago", span(now.since_ms(at))).into());
        }
    } else {
        row.insert("status".into(), status_word(&execution.state).into());
        let since = execution.started_at.unwrap_or(execution.registered_at);
        row.insert("elapsed".into(), span(now.since_ms(since)).into());
        row.insert("timeout_seconds".into(), (execution.timeout_ms / 1000).into());
        if execution.unattended {
            row.insert("unattended".into(), "its host is away; it may still run".into());
        }
    }
    match execution.notify {
        Notify::Agent => {}
        Notify::Human => drop(row.insert("notify".into(), "human".into())),
        Notify::Both => drop(row.insert("notify".into(), "both".into())),
        Notify::Silent => drop(row.insert("notify".into(), "silent".into())),
    }
    if let Some(key) = &execution.key {
        row.insert("key".into(), key.as_str().into());
    }
    row
}

fn end(row: &mut Map<String, Value>, outcome: &Outcome) {
    row.insert("status".into(), outcome.status.word().into());
    match outcome.exit {
        Some(Exit::Code(code)) => drop(row.insert("exit_code".into(), code.into())),
        Some(Exit::Signal(signal)) => drop(row.insert("signal".into(), signal.into())),
        None => {}
    }
    if let Some(reason) = &outcome.reason {
        row.insert("reason".into(), reason.as_str().into());
    }
    row.insert("elapsed".into(), span(outcome.elapsed_ms).into());
    if outcome.leftovers_killed > 0 {
        row.insert("leftovers_killed".into(), outcome.leftovers_killed.into());
    }
}

const fn status_word(state: &State) -> &'static str {
    match state {
        State::Registered => "waiting",
        State::Running => "running",
        State::Cancelling => "cancelling",
        State::Ended(outcome) => outcome.status.word(),
    }
}

fn streams(row: &mut Map<String, Value>, outcome: &Outcome, tail_lines: u64) {
    row.insert("stdout".into(), stream(&outcome.stdout, tail_lines));
    row.insert("stderr".into(), stream(&outcome.stderr, tail_lines));
}

/// The last lines of a stream, and how much is not shown.
fn stream(captured: &Captured, tail_lines: u64) -> Value {
    let whole = captured.text();
    let lines: Vec<&str> = whole.lines().collect();
    let keep = usize::try_from(tail_lines).unwrap_or(usize::MAX);
    let skipped = lines.len().saturating_sub(keep);
    let mut shown = Map::new();
    shown.insert("bytes".into(), captured.bytes.into());
    if skipped > 0 {
        shown.insert("earlier_lines_not_shown".into(), skipped.into());
    }
    let text: Vec<_> = lines.into_iter().skip(skipped).collect();
    shown.insert("text".into(), text.join("\n").into());
    Value::Object(shown)
}
