//! What a person may command, and how the answers read. Owns the words of commands in Slack. Must
//! not know who carries a command out.
//!
//! A text is a command when it is exactly one, in any case: `watchers`, `status`, `stop`, `stop
//! all`, `help` and `cancel ID`, where ID has a digit, as every id has, so that "cancel it" is a
//! message.

use crate::core::execution::{Execution, Exit, Scope, State, Status};
use crate::core::id::{ExecutionId, Principal, TurnNo};
use crate::core::limits::{NAME_CHARS_MAX, SLACK_TOLD_CHARS_MAX};
use crate::core::output::one_line;
use crate::core::time::{Timestamp, span};
use crate::ports::{DeskError, Done, SessionView};

use super::place::SURFACE;
use super::plain::escaped;

/// A command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// Show the running watchers and the last ended ones.
    Watchers,
    /// Show what the thread is doing.
    Status,
    /// Show the commands.
    Help,
    /// End one execution.
    Cancel(ExecutionId),
    /// End the turn, or everything.
    Stop(Scope),
    /// End this turn, if it is still the one that runs.
    StopTurn(TurnNo),
    /// A command that cannot be one; why, and what now.
    Wrong(String),
}

/// The commands, for people.
pub const HELP: &str = "\
Mention me with what you want, or with one of these words alone:
• `watchers` – what runs in the background of this thread, and what ended
• `status` – what this thread is doing
• `cancel ID` – end one watcher; only who started it can
• `stop` – end the turn that is running; watchers run on
• `stop all` – end the turn and all watchers of this thread
• `help` – this list
They work while the model is away. In a direct message no mention is needed.

`/dogwatch` with what you want begins a thread for it.";

/// A slash command has no thread, so there is nothing that it could be about.
pub const NO_THREAD: &str = "\
Slack gives slash commands no thread, and everything I do belongs to one. Write it in the thread, \
with a mention of me: `@me status`.";

/// Understands a text; nothing where it is a message.
pub fn read(text: &str) -> Option<Order> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let lower: Vec<String> = words.iter().map(|word| word.to_ascii_lowercase()).collect();
    let lower: Vec<&str> = lower.iter().map(String::as_str).collect();
    match lower.as_slice() {
        ["watchers"] => Some(Order::Watchers),
        ["status"] => Some(Order::Status),
        ["help"] => Some(Order::Help),
        ["stop"] => Some(Order::Stop(Scope::Turn)),
        ["stop", "all"] => Some(Order::Stop(Scope::All)),
        ["cancel", id] if id.contains(|c: char| c.is_ascii_digit()) => {
            Some(cancel(words.last().copied().unwrap_or_default()))
        }
        [..] => None,
    }
}

/// The end of one execution, by its id.
pub fn cancel(id: &str) -> Order {
    // Ids are shown, and so copied, between backticks.
    match ExecutionId::new(id.trim_matches('`')) {
        Ok(id) => Order::Cancel(id),
        Err(error) => Order::Wrong(format!("{error}; `watchers` shows the ids")),
    }
}

/// As much as is shown, cut at a line.
pub fn bounded(text: &str) -> String {
    if text.chars().count() <= SLACK_TOLD_CHARS_MAX {
        return text.to_owned();
    }
    let head: String = text.chars().take(SLACK_TOLD_CHARS_MAX - 2).collect();
    let whole = head.rsplit_once('\n').map_or(head.as_str(), |(lines, _)| lines);
    format!("{whole}\n…")
}

/// What runs, oldest first, and what ended, newest first.
pub fn watchers(view: &SessionView, now: Timestamp) -> String {
    let mut lines = vec![head(view)];
    lines.extend(view.live.iter().chain(&view.ended).map(|execution| row(execution, now)));
    lines.join("\n")
}

/// What stands above them.
pub(super) fn head(view: &SessionView) -> String {
    let (live, ended) = (view.live.len(), view.ended.len());
    let head = format!("*Watchers of this thread: {live} running, {ended} ended*");
    if live + ended == 0 {
        return format!("{head}\nAsk for one: “watch the deployment and tell me when it is done”.");
    }
    head
}

/// One of them.
pub(super) fn row(execution: &Execution, now: Timestamp) -> String {
    let name: String = one_line(&execution.name).chars().take(NAME_CHARS_MAX).collect();
    let begun = execution.started_at.unwrap_or(execution.registered_at);
    let going = |word: &str| {
        format!("{word}, {} of {}", span(now.since_ms(begun)), span(execution.timeout_ms))
    };
    let stand = match &execution.state {
        State::Registered => "starting".to_owned(),
        State::Running if execution.unattended => going("running, out of sight"),
        State::Running => going("running"),
        State::Cancelling => going("cancelling"),
        State::Ended(outcome) => {
            let exit = match outcome.exit {
                Some(Exit::Code(0)) | None => String::new(),
                Some(Exit::Code(code)) => format!(", exit {code}"),
                Some(Exit::Signal(signal)) => format!(", signal {signal}"),
            };
            format!("{} after {}{exit}", word(outcome.status), span(outcome.elapsed_ms))
        }
    };
    format!("• {} {stand} – {}", code(&execution.id), escaped(&name))
}

const fn word(status: Status) -> &'static str {
    match status {
        Status::Completed => "completed",
        Status::Failed => "failed",
        Status::TimedOut => "timed out",
        Status::Cancelled => "cancelled",
        Status::Lost => "lost",
        Status::Superseded => "superseded",
    }
}

/// What a thread is doing.
pub fn status(view: &SessionView, now: Timestamp) -> String {
    let tries = match view.turn {
        Some((_, attempt)) if attempt > 1 => format!(", attempt {attempt}"),
        Some(_) | None => String::new(),
    };
    let doing = match (view.turn, view.not_before.filter(|at| *at > now)) {
        (Some((turn, _)), Some(at)) => {
            let wait = span(at.since_ms(now));
            format!("turn {turn} got no answer yet{tries}; tried again in {wait}")
        }
        (Some((turn, _)), None) => format!("turn {turn} is running{tries}"),
        (None, _) if view.stopped => "stopped; nothing wakes until you write".to_owned(),
        (None, _) => "idle".to_owned(),
    };
    let mut lines = vec![
        format!("*This thread: {doing}*"),
        format!("• unread: {}, {}", count(view.people, "message"), count(view.notices, "result")),
        format!("• running: {}", count(view.live.len(), "watcher")),
    ];
    if view.unposted > 0 {
        lines.push(format!("• not posted yet: {}", view.unposted));
    }
    lines.join("\n")
}

pub(super) fn count(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// An id may be anything that a person typed.
pub(super) fn code(id: &ExecutionId) -> String {
    format!("`{}`", escaped(&id.as_str().replace('`', "'")))
}

/// What came of a command.
pub fn done(order: &Order, done: &Done) -> String {
    match (order, done) {
        (Order::Stop(scope), Done::Stopped { ended, turn }) => stopped(*scope, *turn, *ended),
        (Order::StopTurn(turn), Done::Stopped { turn: false, .. }) => {
            format!("Turn {turn} is not running any more; nothing was stopped.")
        }
        (Order::StopTurn(_), Done::Stopped { ended, .. }) => stopped(Scope::Turn, true, *ended),
        (Order::Cancel(id), Done::Cancelling) => {
            let id = code(id);
            format!("{id} is being ended; its result rides with the next turn.")
        }
        (Order::Cancel(id), Done::Over(status)) => {
            format!("{} is over already: {}.", code(id), word(*status))
        }
        (Order::Cancel(id), Done::Foreign(owner)) => foreign(id, owner),
        (Order::Cancel(id), Done::Unknown) => {
            format!("There is no {} in this thread; `watchers` shows the ids.", code(id))
        }
        // The desk answers what it was asked.
        (
            _,
            Done::Cancelling
            | Done::Over(_)
            | Done::Unknown
            | Done::Foreign(_)
            | Done::Stopped { .. },
        ) => "It is done.".to_owned(),
    }
}

/// What came of a cancel where there is no thread.
pub fn done_at_home(order: &Order, what: &Done) -> String {
    match (order, what) {
        (Order::Cancel(id), Done::Unknown) => {
            format!("{} is long over: nothing is known of it any more.", code(id))
        }
        _ => done(order, what),
    }
}

fn stopped(scope: Scope, turn: bool, ended: usize) -> String {
    let turn = if turn { "The turn is stopped" } else { "No turn was running" };
    match (scope, ended) {
        (Scope::Turn, _) => format!("{turn}; watchers run on (`stop all` ends them)."),
        (Scope::All, 0) => {
            format!("{turn}; no watcher was running; nothing wakes until you write.")
        }
        (Scope::All, n) => {
            format!("{turn}; {} ended; nothing wakes until you write.", count(n, "watcher"))
        }
    }
}

/// Somebody else's work.
fn foreign(id: &ExecutionId, owner: &Principal) -> String {
    let owner = owner.as_str();
    let user = owner.strip_prefix(SURFACE).and_then(|rest| rest.strip_prefix('/'));
    match user.and_then(|rest| rest.split_once('/')) {
        Some((_, user)) => format!("{} is <@{}>'s; ask them.", code(id), escaped(user)),
        None => format!("{} was started by {}; ask them.", code(id), escaped(owner)),
    }
}

/// Something that was not taken or done.
pub fn refused(error: &DeskError) -> String {
    let now = match error {
        DeskError::Full(_) => "wait until what stands there is answered, or `stop all`",
        DeskError::Invalid(_) => "write it differently",
        DeskError::Away(_) => "it may or may not have been done; look at `status`, then repeat it",
    };
    not_taken(error, now)
}

/// A wish that was not taken. It has no thread, in which one could look or stop.
pub fn refused_wish(error: &DeskError) -> String {
    let now = match error {
        DeskError::Full(_) => "wait until those have begun, then write it again",
        DeskError::Invalid(_) => "write it differently",
        DeskError::Away(_) => "if no thread appears in a moment, write it again",
    };
    not_taken(error, now)
}

fn not_taken(error: &DeskError, now: &str) -> String {
    format!("Not taken: {}; {now}.", escaped(&error.to_string()))
}

#[cfg(test)]
mod tests;
