//! The text of notices. Owns how the end of background work is told: to the model as a notice, to
//! people as one line. States facts and gives no orders. Must not know when or to whom it is told.

use std::fmt::Write as _;

use super::execution::{Execution, Exit, LateFact, Outcome, State, Status};
use super::id::{ExecutionId, Nonce};
use super::inert::inert;
use super::limits::{
    DELAYED_MS, LATE_FACTS_MAX, NAME_CHARS_MAX, NOTICE_BYTES_MAX, NOTICES_WHOLE_MAX,
};
use super::output::{Captured, cut, one_line};
use super::time::{Timestamp, span};
use super::transcript::Notice;

/// What begins a genuine notice, and nothing else.
pub const MARKER: &str = "[AUTO-NOTIFICATION]";

/// Where more completions stand in a notice than are shown whole, the digest has so much room.
const DIGEST_BYTES_MAX: usize = 12 * 1024;
/// Longest name in a digest and in a line for people.
const SHORT_NAME_CHARS_MAX: usize = 60;
/// Longest name in a list.
const LISTED_NAME_CHARS_MAX: usize = 100;
/// Longest reason.
const REASON_BYTES_MAX: usize = 160;
/// Longest piece of output in a line for people.
const LAST_LINE_BYTES_MAX: usize = 300;

/// The end of one execution, as a notice tells it.
#[derive(Debug, Clone, Copy)]
pub struct Completion<'a> {
    /// Which execution.
    pub id: &'a ExecutionId,
    /// Its name, as the model gave it.
    pub name: &'a str,
    /// How it ended.
    pub outcome: &'a Outcome,
    /// When it ended.
    pub ended_at: Timestamp,
    /// It was let run, so it may have done something.
    pub started: bool,
    /// Reports that came after the end.
    pub late: &'a [LateFact],
}

impl<'a> Completion<'a> {
    /// Of an execution that is over.
    pub fn of(execution: &'a Execution) -> Option<Self> {
        let State::Ended(outcome) = &execution.state else { return None };
        Some(Self {
            id: &execution.id,
            name: &execution.name,
            outcome,
            ended_at: execution.ended_at.unwrap_or(execution.registered_at),
            started: execution.started_at.is_some(),
            late: &execution.late,
        })
    }

    /// The verb and the status, and how late that is.
    fn ending(&self, now: Timestamp) -> String {
        let status = self.outcome.status;
        let age = now.since_ms(self.ended_at);
        let delay = if age > DELAYED_MS {
            format!(", delayed (finished {} ago)", span(age))
        } else {
            String::new()
        };
        format!("{} — status={}{delay}", verb(status), status.word())
    }

    /// What is known besides the output: facts of dogwatch's own.
    fn facts(&self) -> String {
        let outcome = self.outcome;
        let mut line = format!("Execution {}: {}.", inert(self.id.as_str()), brief(outcome));
        if outcome.leftovers_killed > 0 {
            let n = outcome.leftovers_killed;
            let _ = write!(line, " Processes that it left behind and that were killed: {n}.");
        }
        if self.started && is_uncertain(outcome) {
            line.push_str(
                " Side effects may have happened and should be verified before it is done again.",
            );
        }
        line
    }
}

/// How it ended, in a verb.
const fn verb(status: Status) -> &'static str {
    match status {
        Status::Completed => "completed",
        Status::Failed => "failed",
        Status::TimedOut => "timed out",
        Status::Cancelled => "was cancelled",
        Status::Lost => "was lost",
        Status::Superseded => "was superseded",
    }
}

/// Nobody can say how far it came.
const fn is_uncertain(outcome: &Outcome) -> bool {
    match outcome.status {
        Status::TimedOut | Status::Lost => true,
        Status::Failed => matches!(outcome.exit, Some(Exit::Signal(_))),
        Status::Completed | Status::Cancelled | Status::Superseded => false,
    }
}

/// Time, exit and reason.
fn brief(outcome: &Outcome) -> String {
    let mut parts = Vec::new();
    if outcome.elapsed_ms > 0 || outcome.exit.is_some() {
        parts.push(format!("ran {}", span(outcome.elapsed_ms)));
    }
    match outcome.exit {
        Some(Exit::Code(code)) => parts.push(format!("exit code {code}")),
        Some(Exit::Signal(signal)) => parts.push(format!("ended by {}", signal_name(signal))),
        None => parts.push("no exit code known".to_owned()),
    }
    if let Some(reason) = &outcome.reason {
        let reason = cut(&one_line(reason), REASON_BYTES_MAX);
        parts.push(format!("reason: {}", inert(&one_line(&reason))));
    }
    parts.join(", ")
}

fn signal_name(signal: i32) -> String {
    let name = match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        _ => return format!("signal {signal}"),
    };
    format!("signal {signal} ({name})")
}

/// A name that stays on its line and inside its quotes.
fn shown_name(name: &str, chars_max: usize) -> String {
    let name = one_line(name).replace('\'', "’").replace('"', "”").replace("**", "*");
    let short: String = name.chars().take(chars_max).collect();
    let more = if short.len() < name.len() { "…" } else { "" };
    format!("{}{more}", inert(&short))
}

/// The notice of these completions, oldest first: one in full form, several as a list, and what is
/// more than [`NOTICES_WHOLE_MAX`] as a digest. At most [`NOTICE_BYTES_MAX`] bytes: where the
/// outputs do not fit, the longest are cut first.
pub fn notice(now: Timestamp, nonce: &Nonce, items: &[Completion<'_>]) -> Notice {
    let text = match items {
        [one] => {
            let shown = Shown::new(*one, NAME_CHARS_MAX);
            let level = level(std::slice::from_ref(&shown), NOTICE_BYTES_MAX);
            let body = shown.body(nonce, level);
            format!("{MARKER} Agent '{}' {}.\n{body}", shown.name, one.ending(now))
        }
        _ => list(now, nonce, items),
    };
    Notice { nonce: nonce.clone(), text }
}

fn list(now: Timestamp, nonce: &Nonce, items: &[Completion<'_>]) -> String {
    let (whole, rest) = items.split_at(items.len().min(NOTICES_WHOLE_MAX));
    let whole: Vec<_> = whole.iter().map(|i| Shown::new(*i, LISTED_NAME_CHARS_MAX)).collect();
    let reserved = if rest.is_empty() { 0 } else { DIGEST_BYTES_MAX };
    let level = level(&whole, NOTICE_BYTES_MAX - reserved);
    let mut text = format!("{MARKER} {} background completions:", items.len());
    for shown in &whole {
        let _ = write!(text, "\n- **{}** {}.\n", shown.name, shown.item.ending(now));
        text.push_str(&shown.body(nonce, level));
    }
    if !rest.is_empty() {
        text.push_str(&digest(now, rest));
    }
    text
}

/// One stream of a completion, inert, and what stands before it.
struct Stream {
    intro: String,
    label: &'static str,
    text: String,
}

impl Stream {
    fn new(label: &'static str, captured: &Captured) -> Self {
        let text = captured.text();
        let text = if captured.is_empty() { "(empty)" } else { text.trim_end() };
        Self { intro: String::new(), label, text: inert(text).into_owned() }
    }

    /// On the line of its label where it is one line.
    fn shown(&self, level: usize) -> String {
        let text = cut(&self.text, level);
        let gap = if text.contains('\n') { '\n' } else { ' ' };
        format!("{}{}:{gap}{text}", self.intro, self.label)
    }
}

/// A completion that is shown whole.
struct Shown<'a> {
    item: Completion<'a>,
    name: String,
    streams: Vec<Stream>,
    facts: String,
}

impl<'a> Shown<'a> {
    fn new(item: Completion<'a>, name_chars_max: usize) -> Self {
        let outcome = item.outcome;
        let mut streams = vec![Stream::new("Output", &outcome.stdout)];
        let errors_told = match outcome.status {
            Status::Failed | Status::TimedOut => true,
            Status::Completed | Status::Cancelled | Status::Lost | Status::Superseded => {
                !outcome.stderr.is_empty()
            }
        };
        if errors_told {
            streams.push(Stream::new("Stderr", &outcome.stderr));
        }
        for late in item.late.iter().take(LATE_FACTS_MAX) {
            let after = span(late.at.since_ms(item.ended_at));
            let (word, brief) = (late.outcome.status.word(), brief(&late.outcome));
            let mut output = Stream::new("Output", &late.outcome.stdout);
            output.intro = format!("Late report, {after} after the end: {word}, {brief}.\n");
            streams.push(output);
            if !late.outcome.stderr.is_empty() {
                streams.push(Stream::new("Stderr", &late.outcome.stderr));
            }
        }
        let name = shown_name(item.name, name_chars_max);
        Self { item, name, streams, facts: item.facts() }
    }

    /// The fenced data and the facts about it, with no stream longer than `level` bytes.
    fn body(&self, nonce: &Nonce, level: usize) -> String {
        let data: Vec<String> = self.streams.iter().map(|s| s.shown(level)).collect();
        let data = data.join("\n");
        format!("Result:\n⟦{nonce}⟧\n{data}\n⟦/{nonce}⟧\n{}", self.facts)
    }

    /// What it takes besides its streams.
    fn frame_bytes(&self) -> usize {
        let labels: usize = self.streams.iter().map(|s| s.intro.len() + s.label.len() + 3).sum();
        self.name.len() + self.facts.len() + labels + FRAME_BYTES_MAX
    }
}

/// The longest that a stream may be so that all of `items` fit: short ones stay whole and leave
/// their room to the long ones.
fn level(items: &[Shown<'_>], bytes_max: usize) -> usize {
    let frames: usize = items.iter().map(Shown::frame_bytes).sum();
    let mut room = bytes_max.saturating_sub(MARKER.len() + 64 + frames);
    let mut sizes: Vec<usize> =
        items.iter().flat_map(|i| &i.streams).map(|s| s.text.len()).collect();
    sizes.sort_unstable();
    let mut left = sizes.len();
    for size in sizes {
        let share = room / left.max(1);
        if size > share {
            return share;
        }
        room -= size;
        left -= 1;
    }
    bytes_max
}

/// Marks, verb, age and both fence lines with the longest nonce.
const FRAME_BYTES_MAX: usize = 640;

/// One line each while there is room, then their number.
fn digest(now: Timestamp, items: &[Completion<'_>]) -> String {
    let mut text = String::new();
    for (i, item) in items.iter().enumerate() {
        let name = shown_name(item.name, SHORT_NAME_CHARS_MAX);
        let id = inert(item.id.as_str());
        let line = format!("\n- **{name}** {} ({id}).", item.ending(now));
        if text.len() + line.len() + GROUPS_BYTES_MAX > DIGEST_BYTES_MAX {
            let rest = items.get(i..).unwrap_or_default();
            let _ = write!(text, "\n- {} more: {}.", rest.len(), groups(rest));
            break;
        }
        text.push_str(&line);
    }
    text
}

/// The longest last line of a digest.
const GROUPS_BYTES_MAX: usize = 256;

fn groups(items: &[Completion<'_>]) -> String {
    [
        Status::Completed,
        Status::Failed,
        Status::TimedOut,
        Status::Cancelled,
        Status::Lost,
        Status::Superseded,
    ]
    .iter()
    .map(|status| (items.iter().filter(|i| i.outcome.status == *status).count(), status.word()))
    .filter(|(n, _)| *n > 0)
    .map(|(n, word)| format!("{n} {word}"))
    .collect::<Vec<_>>()
    .join(", ")
}

/// The end of an execution for people, on one line; empty while it is not over.
pub fn human_line(execution: &Execution) -> String {
    let Some(item) = Completion::of(execution) else { return String::new() };
    let outcome = item.outcome;
    let name = shown_name(item.name, SHORT_NAME_CHARS_MAX);
    let stream = match outcome.status {
        Status::Completed | Status::Cancelled | Status::Superseded => &outcome.stdout,
        Status::Failed | Status::TimedOut | Status::Lost if outcome.stderr.is_empty() => {
            &outcome.stdout
        }
        Status::Failed | Status::TimedOut | Status::Lost => &outcome.stderr,
    };
    let text = stream.text();
    let last = text.lines().rev().find(|l| !l.trim().is_empty()).map(one_line);
    let last = last.map_or_else(|| "no output".to_owned(), |l| inert(&l).into_owned());
    let last = one_line(&cut(&last, LAST_LINE_BYTES_MAX));
    format!("'{name}' {} ({}): {last}", verb(outcome.status), brief(outcome))
}

/// A report that came after the end, for people, on one line.
pub fn late_line(execution: &Execution, late: &LateFact) -> String {
    let name = shown_name(&execution.name, SHORT_NAME_CHARS_MAX);
    let recorded = Completion::of(execution).map_or("not over", |c| c.outcome.status.word());
    let ended_at = execution.ended_at.unwrap_or(late.at);
    format!(
        "'{name}' was recorded as {recorded}; {} later its own report came: {}, {}",
        span(late.at.since_ms(ended_at)),
        late.outcome.status.word(),
        brief(&late.outcome),
    )
}

#[cfg(test)]
mod tests;
