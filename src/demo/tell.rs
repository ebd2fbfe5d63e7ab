//! How the story reads. Owns its lines. Must not know what comes next.

use std::fmt::Write as _;

use crate::console::event::{Event, Stand, Step};
use crate::core::execution::PostSort;
use crate::core::time::span;

fn ink(colour: bool, code: &str, text: &str) -> String {
    if colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
}

fn line(now: u64, who: &str, text: &str) -> String {
    let seconds = format!("{}.{}s", now / 1000, now % 1000 / 100);
    let mut lines = text.split('\n').filter(|line| !line.trim().is_empty());
    let mut out = format!("  {seconds:>6}  {who:<14} {}", lines.next().unwrap_or_default());
    for more in lines {
        let _ = write!(out, "\n{:24} {more}", "");
    }
    out
}

pub(super) fn title(colour: bool) -> String {
    let title = ink(colour, "1", "dogwatch demo: background work that finds its way back");
    format!(
        "{title}\n  A script plays the language model, and says so. All else is real: the bot and \
         its\n  store, the watchers and their processes, the kill."
    )
}

pub(super) fn scene(number: usize, title: &str, colour: bool) -> String {
    format!("\n{}", ink(colour, "1", &format!("{number}. {title}")))
}

pub(super) fn typed(now: u64, text: &str, colour: bool) -> String {
    if text.starts_with('/') {
        return remark(now, &format!("the person types {text}"), colour);
    }
    line(now, "you", text)
}

pub(super) fn remark(now: u64, what: &str, colour: bool) -> String {
    ink(colour, "2", &line(now, "·", what))
}

pub(super) fn good(what: &str, colour: bool) -> String {
    format!("          {} {what}", ink(colour, "32", "✓"))
}

pub(super) fn bad(what: &str, colour: bool) -> String {
    format!("          {} {what}", ink(colour, "31", "✗"))
}

pub(super) fn end(now: u64, colour: bool) -> String {
    let what = format!("All of it happened, in {}.", span(now));
    let next = "`dogwatch chat --config config/dogwatch.toml`";
    format!("\n{} Talk to it yourself: {next}.", ink(colour, "1;32", &what))
}

/// What is worth a line of the story.
pub(super) fn event(now: u64, event: &Event, colour: bool) -> Option<String> {
    match event {
        Event::Post { chat, text, sort, may_repeat, .. } => {
            let who = match sort {
                PostSort::Answer | PostSort::Human => "dogwatch",
                PostSort::Woken => "dogwatch ⚑",
                PostSort::Failure => "! failed",
            };
            let repeat = if *may_repeat { " (may be repeated)" } else { "" };
            let place = if chat.as_str() == "main" { String::new() } else { format!("[{chat}] ") };
            Some(line(now, who, &format!("{place}{text}{repeat}")))
        }
        Event::Watcher { work, .. } => {
            let what = match work.state {
                Stand::Starting | Stand::Running => format!("watcher runs: {}", work.name),
                Stand::Cancelling => format!("watcher is being ended: {}", work.name),
                Stand::Completed
                | Stand::Failed
                | Stand::TimedOut
                | Stand::Cancelled
                | Stand::Lost
                | Stand::Superseded => format!(
                    "watcher {}: {}, after {}",
                    work.state.word(),
                    work.name,
                    span(work.elapsed_ms)
                ),
            };
            Some(remark(now, &what, colour))
        }
        Event::Progress { step: Step::Began { synthetic: true, turn }, .. } => {
            Some(remark(now, &format!("synthetic turn {turn} begins: a result came"), colour))
        }
        Event::Progress { step: Step::Failed { what, .. }, .. } | Event::Error { what, .. } => {
            Some(line(now, "!", what))
        }
        Event::Progress { .. }
        | Event::Ready { .. }
        | Event::Accepted { .. }
        | Event::Command { .. }
        | Event::Link { .. }
        | Event::Bye { .. } => None,
    }
}
