//! What runs in a thread, shown to one person with buttons. Owns how such an answer looks and what
//! its buttons carry: the thread, since Slack does not say in which one an answer stood that only
//! one person sees. Must not know who is told, nor who does what is pressed.

use serde_json::Value;

use super::blocks::{button, cancel, danger, note, row, section, section_with};
use super::hear::{Asker, CANCEL_LISTED, RUNNING, STOP, STOP_ALL};
use super::order;
use super::place::Thread;
use crate::core::execution::{Execution, State};
use crate::core::limits::SLACK_LISTED_MAX;
use crate::core::time::Timestamp;
use crate::ports::SessionView;

/// What one person is told.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    /// For notifications and readers without blocks; all of it, where there are none.
    pub text: String,
    /// For everybody else.
    pub blocks: Option<Value>,
}

impl From<String> for Told {
    /// Only text.
    fn from(text: String) -> Self {
        Self { text: order::bounded(&text), blocks: None }
    }
}

fn told(text: &str, blocks: Vec<Value>) -> Told {
    Told { text: order::bounded(text), blocks: Some(Value::Array(blocks)) }
}

/// What the thread is doing, and what runs in it.
pub fn status(view: &SessionView, by: &Asker, now: Timestamp) -> Told {
    let text = order::status(view, now);
    let mut blocks = vec![section(&order::bounded(&text))];
    blocks.extend(listed(view, by, now));
    let more = view.live.len().saturating_sub(SLACK_LISTED_MAX);
    if more > 0 {
        blocks.push(note(&format!("and {more} more; `watchers` shows all")));
    }
    blocks.push(buttons(view, &by.thread));
    told(&text, blocks)
}

/// What runs, oldest first, and what ended, newest first.
pub fn watchers(view: &SessionView, by: &Asker, now: Timestamp) -> Told {
    let mut blocks = vec![section(&order::head(view))];
    blocks.extend(listed(view, by, now));
    let rest = view.live.iter().skip(SLACK_LISTED_MAX).chain(&view.ended);
    let rest: Vec<String> = rest.map(|execution| order::row(execution, now)).collect();
    if !rest.is_empty() {
        blocks.push(section(&order::bounded(&rest.join("\n"))));
    }
    blocks.push(buttons(view, &by.thread));
    told(&order::watchers(view, now), blocks)
}

/// What became of a press, in place of what was pressed.
pub fn done(text: &str, thread: &Thread) -> Told {
    told(text, vec![section(&order::bounded(text)), row(&[running(thread)])])
}

/// The first of what runs. Only who started it can cancel it, so only they get a button.
fn listed<'a>(
    view: &'a SessionView,
    by: &'a Asker,
    now: Timestamp,
) -> impl Iterator<Item = Value> + 'a {
    view.live.iter().take(SLACK_LISTED_MAX).map(move |execution| {
        let value = by.thread.carried(execution.id.as_str());
        let button = may_cancel(execution, by).then(|| cancel(CANCEL_LISTED, &value));
        section_with(&order::row(execution, now), button)
    })
}

fn may_cancel(execution: &Execution, by: &Asker) -> bool {
    match execution.state {
        State::Registered | State::Running => execution.owner == by.by,
        State::Cancelling | State::Ended(_) => false,
    }
}

fn running(thread: &Thread) -> Value {
    button("What is running here", RUNNING, &thread.carried(""))
}

fn buttons(view: &SessionView, thread: &Thread) -> Value {
    let mut buttons = vec![running(thread)];
    if let Some((turn, _)) = view.turn {
        // Pressed later, it must not end another one.
        buttons.push(button("Stop this turn", STOP, &thread.carried(&turn.to_string())));
    }
    if view.turn.is_some() || !view.live.is_empty() {
        let words = [
            "Stop everything here?",
            "The turn and all watchers of this thread end at once, also those of others.",
            "Stop all",
            "Let it run",
        ];
        buttons.push(danger(button("Stop all", STOP_ALL, &thread.carried("")), words));
    }
    row(&buttons)
}

#[cfg(test)]
mod tests;
