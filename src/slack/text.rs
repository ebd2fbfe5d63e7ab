//! From a post's Markdown to what is sent to Slack. Owns how it is cut to Slack's sizes and when
//! the whole becomes a file. Must not know threads, calls or failures of calls.

mod mrkdwn;
mod split;
mod tame;

use crate::core::limits::{
    SLACK_BLOCK_CHARS_MAX, SLACK_INTRO_CHARS_MAX, SLACK_MARK_CHARS_MAX, SLACK_PARTS_MAX,
    SLACK_TEXT_CHARS_MAX,
};

/// Stands where the rest of a notification's text is left out.
const MORE: &str = " …";

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    /// For the `markdown` block.
    pub(super) markdown: String,
    /// In mrkdwn, for notifications and screen readers: the beginning, where it is long.
    pub(super) text: String,
}

/// What a post becomes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    /// All of it as messages, in order; one at least.
    pub(super) parts: Vec<Part>,
    /// One message for all of it, with the whole as a file, where that would be too many.
    pub(super) intro: Option<Part>,
}

impl Part {
    fn new(markdown: String) -> Self {
        let mut texts = plain(&markdown).into_iter();
        let mut text = texts.next().unwrap_or_default();
        if texts.next().is_some() {
            text.push_str(MORE);
        }
        Self { markdown, text }
    }
}

/// How a text is sent.
pub(super) fn plan(text: &str) -> Plan {
    let tamed = tame::tame(text);
    let mut parts = parts(&tamed, SLACK_BLOCK_CHARS_MAX - SLACK_MARK_CHARS_MAX);
    if parts.is_empty() {
        parts.push(Part::new("(nothing)".to_owned()));
    }
    let intro = (parts.len() > SLACK_PARTS_MAX).then(|| intro(&tamed));
    Plan { parts, intro }
}

fn parts(tamed: &str, max: usize) -> Vec<Part> {
    let texts = split::split(tamed, max).into_iter().map(|piece| piece.text());
    // Slack refuses what has nothing in it.
    texts.filter(|text| !text.trim().is_empty()).map(Part::new).collect()
}

/// The beginning of a long text, and where the rest is.
fn intro(tamed: &str) -> Part {
    let first = split::split(tamed, SLACK_INTRO_CHARS_MAX).into_iter().next();
    let beginning = first.map(|piece| piece.text()).unwrap_or_default();
    let (lines, characters) = (tamed.lines().count(), tamed.chars().count());
    Part::new(format!(
        "{beginning}\n\n… _This is the beginning. All of it, {lines} lines with {characters} \
         characters, is in the file below._"
    ))
}

/// What may be shown of a text that is not whole yet: whatever follows, it stays the beginning of
/// what the whole becomes. At most so many bytes.
pub(super) fn begun(text: &str, bytes_max: usize) -> String {
    let text = text.get(..text.floor_char_boundary(bytes_max)).unwrap_or_default();
    // What stands after these in their line says whether they call somebody.
    let line = text.rfind('\n').map_or(0, |end| end + 1);
    let open = text.get(line..).and_then(|rest| rest.find(['<', '@', '&']));
    let sure = open.map_or(text.len(), |open| line + open);
    // Space at the end may be none in the whole.
    tame::tame(text.get(..sure).unwrap_or_default().trim_end()).trim_end().to_owned()
}

/// A text that is not whole yet as a message.
pub(super) fn draft(begun: &str) -> Part {
    Part::new(begun.to_owned())
}

/// What a person said, as their words: the beginning, where it is long.
pub(super) fn quoted(said: &str) -> Part {
    let tamed = tame::tame(said);
    let mut head: String = tamed.chars().take(SLACK_INTRO_CHARS_MAX).collect();
    if head.len() < tamed.len() {
        head.push_str(MORE);
    }
    let lines: Vec<String> = head.lines().map(|line| format!("> {line}")).collect();
    Part::new(lines.join("\n"))
}

/// The rest of a text, whose beginning stands elsewhere.
pub(super) fn rest(markdown: &str) -> Part {
    Part::new(markdown.trim_start().to_owned())
}

/// A part in mrkdwn, in pieces small enough for the oldest limit there is; each stands for itself.
pub(super) fn plain(markdown: &str) -> Vec<String> {
    let mut out = Vec::new();
    plain_within(markdown, SLACK_TEXT_CHARS_MAX - SLACK_MARK_CHARS_MAX, &mut out);
    out
}

/// Escaping makes a text longer, so what came out too long is cut smaller.
fn plain_within(markdown: &str, max: usize, out: &mut Vec<String>) {
    for piece in split::split(markdown, max) {
        let markdown = piece.text();
        let text = mrkdwn::mrkdwn(&markdown);
        if split::size(&text) <= SLACK_TEXT_CHARS_MAX - SLACK_MARK_CHARS_MAX {
            if !text.trim().is_empty() {
                out.push(text);
            }
        } else if max > SLACK_MARK_CHARS_MAX {
            plain_within(&markdown, max / 2, out);
        }
    }
}

#[cfg(test)]
mod tests;
