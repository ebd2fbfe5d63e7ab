//! The app's own tab, as one person sees it: what of theirs runs, where, and how to begin. Owns how
//! it looks, within Slack's limits. Must not know who looks.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::blocks::{cancel, note, section, section_with, short};
use super::super::hear::CANCEL_HOME;
use super::super::order::{code, count};
use super::super::place::{Thread, instant};
use super::super::plain::escaped;
use crate::core::execution::{Execution, State};
use crate::core::limits::{SLACK_HOME_THREADS_MAX, SLACK_HOME_WATCHERS_MAX};
use crate::core::output::one_line;
use crate::core::time::span;
use crate::ports::Owned;

const WHO: &str =
    "*dogwatch* starts what takes long, and comes back to the thread when it is done.";
const HOW: &str = "*To begin*, mention me in a channel that I am in, or write me a message, such \
                   as “watch the deployment and tell me when it is done”. `help` in a mention \
                   lists what I know without the model.";

/// All of it; with what became of a press.
pub(super) fn home(owned: &Owned, said: Option<&str>) -> Value {
    let live: Vec<(Thread, &Execution)> = owned
        .live
        .iter()
        .filter_map(|execution| Some((Thread::of(&execution.address).ok()?, execution)))
        .collect();
    let mut blocks = vec![section(WHO)];
    blocks.extend(said.map(section));
    blocks.push(json!({ "type": "divider" }));
    if live.is_empty() {
        blocks.push(section("*Nothing of yours is running.*"));
    } else {
        blocks.push(section(&threads(&live)));
        blocks.push(section(&format!("*Your watchers: {}*", live.len())));
        blocks.extend(live.iter().take(SLACK_HOME_WATCHERS_MAX).map(|(at, one)| watcher(at, one)));
    }
    let shown = live.len().min(SLACK_HOME_WATCHERS_MAX);
    let more = owned.taken.saturating_sub(shown);
    if more > 0 {
        blocks.push(note(&format!("and {more} more; say `watchers` in their threads")));
    }
    blocks.push(note(&format!("{} of your {} places are taken", owned.taken, owned.cap)));
    blocks.push(json!({ "type": "divider" }));
    blocks.push(section(HOW));
    json!({ "type": "home", "blocks": blocks })
}

/// Where something of theirs runs.
fn threads(live: &[(Thread, &Execution)]) -> String {
    let mut counts: BTreeMap<&Thread, usize> = BTreeMap::new();
    for (thread, _) in live {
        *counts.entry(thread).or_default() += 1;
    }
    let mut lines = vec!["*Where something of yours runs*".to_owned()];
    let listed = counts.iter().take(SLACK_HOME_THREADS_MAX);
    lines.extend(listed.map(|(thread, n)| {
        let (place, link, began) = (place(thread), link(thread), began(thread));
        let date = format!("<!date^{began}^the thread of {{date_short_pretty}}, {{time}}^{link}|");
        format!("• {place}, {date}the thread>: {}", count(*n, "watcher"))
    }));
    let more = counts.len().saturating_sub(SLACK_HOME_THREADS_MAX);
    if more > 0 {
        lines.push(format!("• and {}", count(more, "thread")));
    }
    lines.join("\n")
}

fn place(thread: &Thread) -> String {
    match thread.channel() {
        direct if direct.starts_with('D') => "messages with me".to_owned(),
        channel => format!("<#{channel}>"),
    }
}

/// Slack finds out by itself in which workspace that is.
fn link(thread: &Thread) -> String {
    let (seconds, rest) = thread.root().split_once('.').unwrap_or_default();
    format!("https://slack.com/archives/{}/p{seconds}{rest:0<6}", thread.channel())
}

fn began(thread: &Thread) -> u64 {
    instant(thread.root()).as_ms() / 1_000
}

fn watcher(thread: &Thread, execution: &Execution) -> Value {
    let stand = match execution.state {
        State::Registered => "is starting",
        State::Running if execution.unattended => "runs, out of sight",
        State::Running => "runs",
        State::Cancelling => "is being ended",
        State::Ended(_) => "is over",
    };
    let button = match execution.state {
        State::Registered | State::Running => {
            Some(cancel(CANCEL_HOME, &thread.carried(execution.id.as_str())))
        }
        State::Cancelling | State::Ended(_) => None,
    };
    let since = execution.started_at.unwrap_or(execution.registered_at).as_ms() / 1_000;
    let text = format!(
        "*{}* {stand}\n{} · since <!date^{since}^{{date_short_pretty}}, {{time}}|{since}> · \
         at most {} · {}",
        escaped(&short(&one_line(&execution.name))),
        code(&execution.id),
        span(execution.timeout_ms),
        place(thread)
    );
    section_with(&text, button)
}

#[cfg(test)]
mod tests;
