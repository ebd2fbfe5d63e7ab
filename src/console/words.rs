//! How things read for a person. Owns the wording and the layout of posts, tables and lines, for
//! wide and narrow terminals, with and without colour. Must not know when something is shown.

use std::fmt::Write as _;

use crate::core::execution::PostSort;
use crate::core::limits::MESSAGE_BYTES_MAX;
use crate::core::time::{Timestamp, span};
use crate::ports::DeskError;

use super::clean;
use super::event::{CancelResult, Reply, Stand, Step, Summary, Work};

/// Below this a table puts the name of a watcher on a line of its own.
const NARROW_COLUMNS: usize = 72;

/// How wide the terminal is and whether it shows colour.
#[derive(Debug, Clone, Copy)]
pub(super) struct Look {
    pub(super) columns: usize,
    pub(super) colour: bool,
}

/// A colour or weight.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ink {
    Faint,
    Bold,
    Good,
    Bad,
}

impl Look {
    pub(super) fn ink(self, ink: Ink, text: &str) -> String {
        let code = match ink {
            Ink::Faint => "2",
            Ink::Bold => "1",
            Ink::Good => "32",
            Ink::Bad => "31",
        };
        if self.colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    /// A faint line beside the talk. The terminal wraps it: its end may be what matters.
    pub(super) fn aside(self, text: &str) -> String {
        self.ink(Ink::Faint, &format!("  · {}", clean::one_line(text)))
    }
}

/// The bot of an attached terminal is away, or back.
pub(super) fn link(up: bool, look: Look) -> String {
    if up {
        return look.aside("the bot is back");
    }
    let mark = look.ink(Ink::Bad, "!");
    format!("{mark} the bot is away; this terminal waits for it, and shows then what was said")
}

/// Who speaks, before the first line of a post.
pub(super) fn speaker(sort: PostSort, look: Look) -> String {
    let (ink, name) = match sort {
        PostSort::Answer => (Ink::Bold, "dogwatch:"),
        PostSort::Woken => (Ink::Bold, "dogwatch (woken):"),
        PostSort::Human => (Ink::Bold, "notice:"),
        PostSort::Failure => (Ink::Bad, "! failed:"),
    };
    look.ink(ink, name)
}

/// A whole post. `text` is cleaned.
pub(super) fn post(sort: PostSort, text: &str, may_repeat: bool, look: Look) -> String {
    let mut out = format!("{} {}", speaker(sort, look), text.trim());
    if may_repeat {
        out.push_str(" (may be repeated)");
    }
    out
}

/// What a turn does, where it is worth a line.
pub(super) fn step(step: &Step, now: Timestamp, look: Look) -> Option<String> {
    match step {
        Step::Began { synthetic: true, .. } => Some(look.aside("a result came; dogwatch reads it")),
        Step::Tool { name } => Some(look.aside(&format!("runs {name}"))),
        Step::Failed { what, again_at: Some(at) } => Some(failed(what, *at, now, look)),
        // Who must hear of it gets a post, which cannot be lost.
        Step::Failed { again_at: None, .. }
        | Step::Began { synthetic: false, .. }
        | Step::Text { .. }
        | Step::Discarded
        | Step::Whole
        | Step::Ended => None,
    }
}

fn failed(what: &str, again_at: Timestamp, now: Timestamp, look: Look) -> String {
    format!(
        "{} {}; tried again in {}, `stop` gives it up",
        look.ink(Ink::Bad, "! no answer yet:"),
        clean::one_line(what),
        ahead(again_at, now)
    )
}

/// How long until then, in whole seconds: `5s`, `1m40s`.
fn ahead(at: Timestamp, now: Timestamp) -> String {
    match at.since_ms(now).div_ceil(1000) {
        s @ 0..=9 => format!("{s}s"),
        s => span(s * 1000),
    }
}

/// A watcher was seen to start, to be asked to end, or to be over.
pub(super) fn watcher(work: &Work, look: Look) -> String {
    let name = clean::one_line(&work.name);
    let what = match work.state {
        Stand::Starting | Stand::Running => format!(
            "watcher runs: {name} ({}, {} of {})",
            work.id,
            span(work.elapsed_ms),
            span(work.timeout_ms)
        ),
        Stand::Cancelling => format!("watcher is being ended: {name} ({})", work.id),
        Stand::Completed
        | Stand::Failed
        | Stand::TimedOut
        | Stand::Cancelled
        | Stand::Lost
        | Stand::Superseded => format!("watcher {}: {name}", ended(work)),
    };
    look.aside(&what)
}

/// `failed after 2.3s, exit 3`
fn ended(work: &Work) -> String {
    let mut out = format!("{} after {}", work.state.word(), span(work.elapsed_ms));
    if let Some(ending) = &work.ending {
        let _ = write!(out, ", {}", clean::one_line(ending));
    }
    out
}

/// The answer to a command.
pub(super) fn reply(reply: &Reply, chat: &str, now: Timestamp, look: Look) -> String {
    match reply {
        Reply::Watchers { live, ended } => watchers(chat, live, ended, look),
        Reply::Status(summary) => status(summary, now, look),
        Reply::Cancel { id, result } => match result {
            CancelResult::Cancelling => {
                format!("{id} is being ended; its result rides with the next turn")
            }
            CancelResult::Over(stand) => format!("{id} is over already: {}", stand.word()),
            CancelResult::Foreign(owner) => format!("{id} is {owner}'s, who alone can end it"),
            CancelResult::Unknown => {
                format!("there is no {id} in chat {chat}; `watchers` shows the ids")
            }
        },
        Reply::Stop { all, turn, ended } => stopped(*all, *turn, *ended),
        Reply::Help { text } => text.clone(),
        Reply::Chat { name } => format!("chat {name}"),
        Reply::Chats { chats } => chats_table(chats, now, look),
    }
}

fn stopped(all: bool, turn: bool, ended: usize) -> String {
    let turn = if turn { "the turn is stopped" } else { "no turn was running" };
    match (all, ended) {
        (false, _) => format!("{turn}; watchers run on (`stop all` ends them)"),
        (true, 0) => format!("{turn}; no watcher was running; nothing wakes until you write"),
        (true, n) => {
            format!("{turn}; {} ended; nothing wakes until you write", count(n, "watcher"))
        }
    }
}

/// `1 watcher`, `2 watchers`
pub(super) fn count(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

fn watchers(chat: &str, live: &[Work], over: &[Work], look: Look) -> String {
    let mut out = format!("watchers in {chat}: {} running, {} ended", live.len(), over.len());
    if live.is_empty() && over.is_empty() {
        out.push_str("\n  (ask for one: \"watch the deployment and tell me when it is done\")");
    }
    let ids = live.iter().chain(over).map(|work| work.id.as_str().len()).max().unwrap_or(0);
    for work in live.iter().chain(over) {
        out.push('\n');
        out.push_str(&row(work, ids, look));
    }
    out
}

fn row(work: &Work, id_columns: usize, look: Look) -> String {
    let time = if work.state.is_over() {
        match &work.ending {
            Some(ending) => format!("{}, {}", span(work.elapsed_ms), clean::one_line(ending)),
            None => span(work.elapsed_ms),
        }
    } else {
        format!("{} of {}", span(work.elapsed_ms), span(work.timeout_ms))
    };
    let name = clean::one_line(&work.name);
    let stalled = if work.stalled { " (does not answer)" } else { "" };
    let head = format!("  {:<id_columns$}  ", work.id.as_str());
    let state = work.state.word();
    let (first, second) = if look.columns < NARROW_COLUMNS {
        (format!("{head}{state}"), Some(format!("    {time} · {name}{stalled}")))
    } else {
        (format!("{head}{state:<11}  {time:<16}  {name}{stalled}"), None)
    };
    let mut out = clean::cut(&first, look.columns);
    // Colour comes after the cut, so that no sequence is cut in two.
    if let Some(ink) = ink_of(work.state)
        && let Some(rest) = out.get(head.len()..).and_then(|rest| rest.strip_prefix(state))
    {
        out = format!("{head}{}{rest}", look.ink(ink, state));
    }
    let last = work.last_line.as_ref().map(|line| format!("    | {}", clean::one_line(line)));
    for line in second.into_iter().chain(last) {
        out.push('\n');
        out.push_str(&look.ink(Ink::Faint, &clean::cut(&line, look.columns)));
    }
    out
}

const fn ink_of(state: Stand) -> Option<Ink> {
    match state {
        Stand::Completed => Some(Ink::Good),
        Stand::Failed | Stand::TimedOut | Stand::Lost => Some(Ink::Bad),
        Stand::Starting
        | Stand::Running
        | Stand::Cancelling
        | Stand::Cancelled
        | Stand::Superseded => None,
    }
}

fn status(summary: &Summary, now: Timestamp, look: Look) -> String {
    let mut lines = vec![format!("chat {}: {}", summary.name, doing(summary, now))];
    lines.push(format!(
        "  unread: {}, {}",
        count(summary.messages, "message"),
        count(summary.results, "result")
    ));
    lines.push(format!("  running: {}", count(summary.running, "watcher")));
    if summary.unposted > 0 {
        lines.push(format!("  not posted yet: {}", summary.unposted));
    }
    lines.iter().map(|line| clean::cut(line, look.columns)).collect::<Vec<_>>().join("\n")
}

fn doing(summary: &Summary, now: Timestamp) -> String {
    let again = summary.again_at.filter(|at| *at > now);
    // An outage of the model is no attempt.
    let tries = match summary.attempt {
        None | Some(0 | 1) => String::new(),
        Some(attempt) => format!(", attempt {attempt}"),
    };
    match (summary.turn, again) {
        (Some(turn), Some(at)) => {
            format!("turn {turn} got no answer yet{tries}; tried again in {}", ahead(at, now))
        }
        (Some(turn), None) => format!("turn {turn} is running{tries}"),
        (None, _) if summary.stopped => "stopped; nothing wakes until you write".to_owned(),
        (None, _) => "idle".to_owned(),
    }
}

fn chats_table(chats: &[Summary], now: Timestamp, look: Look) -> String {
    let mut out = String::from("chats:");
    let names = chats.iter().map(|chat| chat.name.as_str().len()).max().unwrap_or(0);
    for chat in chats {
        let line = format!(
            "  {:<names$}  {}, {} unread; {}",
            chat.name.as_str(),
            count(chat.running, "watcher"),
            chat.messages + chat.results,
            doing(chat, now)
        );
        out.push('\n');
        out.push_str(&clean::cut(&line, look.columns));
    }
    out
}

/// A line that was not taken.
pub(super) fn too_long() -> String {
    format!("the line is longer than {MESSAGE_BYTES_MAX} bytes and was not taken; send it in parts")
}

/// A message or command that the desk did not take.
pub(super) fn refused(error: &DeskError) -> String {
    let now = match error {
        DeskError::Full(_) => "wait until what stands there is answered, or `stop all`",
        DeskError::Invalid(_) => "write it differently",
        DeskError::Away(_) => "it may or may not have been taken; look at `status`, then repeat it",
    };
    format!("not taken: {error}; {now}")
}

#[cfg(test)]
mod tests;
