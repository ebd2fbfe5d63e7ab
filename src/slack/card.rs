//! The message that shows how a watcher stands: its name, since when, until when, a button to
//! cancel it; in the end how it ended, and no button. Must not know how it is posted.

use serde_json::{Value, json};

use super::blocks::{cancel, note, row, section, short};
use super::hear::CANCEL;
use super::plain::escaped as escape;
use crate::core::envelope::human_line;
use crate::core::execution::{Execution, Outcome, State, Status};
use crate::core::time::span;

/// A message in Slack's blocks.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Rendered {
    /// For notifications and readers without blocks.
    pub(super) text: String,
    /// For everybody else.
    pub(super) blocks: Value,
}

/// As it stands now, with the last line that it printed so far, where that is known.
pub(super) fn render(execution: &Execution, last: Option<&str>) -> Rendered {
    match &execution.state {
        State::Ended(outcome) => ended(execution, outcome),
        State::Registered | State::Running => live(execution, "runs", last, true),
        State::Cancelling => live(execution, "is being ended", last, false),
    }
}

fn live(execution: &Execution, verb: &str, last: Option<&str>, button: bool) -> Rendered {
    let name = escape(&short(&execution.name));
    let since = execution.started_at.unwrap_or(execution.registered_at).as_ms() / 1_000;
    // Slack shows the time in each reader's own zone.
    let context = format!(
        "`{}` · since <!date^{since}^{{time}}|{since}> · at most {}",
        escape(execution.id.as_str()),
        span(execution.timeout_ms)
    );
    let text = format!(":hourglass_flowing_sand: *{name}* {verb}");
    let mut blocks = vec![section(&text)];
    if let Some(last) = last {
        let plain = format!("› {}", short(last));
        let element = json!({ "type": "plain_text", "text": plain, "emoji": false });
        blocks.push(json!({ "type": "context", "elements": [element] }));
    }
    blocks.push(note(&context));
    if button {
        blocks.push(row(&[cancel(CANCEL, execution.id.as_str())]));
    }
    Rendered { text: format!("{name} {verb}"), blocks: Value::Array(blocks) }
}

fn ended(execution: &Execution, outcome: &Outcome) -> Rendered {
    let mark = match outcome.status {
        Status::Completed => ":white_check_mark:",
        Status::Failed => ":x:",
        Status::TimedOut => ":alarm_clock:",
        Status::Cancelled | Status::Superseded => ":no_entry_sign:",
        Status::Lost => ":grey_question:",
    };
    let line = escape(&human_line(execution));
    let context = format!("`{}`", escape(execution.id.as_str()));
    let blocks = vec![section(&format!("{mark} {line}")), note(&context)];
    Rendered { text: line, blocks: Value::Array(blocks) }
}

#[cfg(test)]
mod tests;
