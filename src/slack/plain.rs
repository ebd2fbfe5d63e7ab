//! From Slack's writing to what a reader means by it. Owns the one place where what Slack escaped
//! is unescaped, once. Must not know who said it, or what for.
//!
//! In Slack's writing `<`, `>` and `&` stand for nothing but its own marks: `<@U1>` is a person,
//! `<#C1|ops>` a channel, `<!here>` a group, `<https://…|text>` a link. A person's own are `&lt;`,
//! `&gt;` and `&amp;`.

use std::fmt::Write as _;

use super::envelope::{Event, File};
use super::place;
use crate::core::limits::{SLACK_FILE_NAME_CHARS_MAX, SLACK_FILES_SHOWN_MAX};
use crate::core::output::one_line;

/// Does the text name this user?
pub fn names(text: &str, user: &str) -> bool {
    marks(text).any(|part| matches!(part, Part::Mark(mark) if is_user(mark, user)))
}

/// The text as a reader sees it, without `own`, which only says that the bot is meant.
pub fn readable(text: &str, own: Option<&str>) -> String {
    let mut out = String::with_capacity(text.len());
    for part in marks(text) {
        match part {
            Part::Text(text) => {
                // Where a mention was taken out, no gap is left.
                let gap = out.is_empty() || out.ends_with(char::is_whitespace);
                let text = if gap && own.is_some() { text.trim_start_matches(' ') } else { text };
                out.push_str(&unescaped(text));
            }
            Part::Mark(mark) if own.is_some_and(|own| is_user(mark, own)) => {}
            Part::Mark(mark) => out.push_str(&read(mark)),
        }
    }
    let out = out.trim();
    // "@bot, watch the build": the comma belongs to the name.
    let comma = own.is_some_and(|own| is_called(text.trim_start(), own));
    let out = if comma { out.trim_start_matches([',', ':']).trim_start() } else { out };
    out.to_owned()
}

/// Does it begin with the name and a comma or colon?
fn is_called(text: &str, user: &str) -> bool {
    let mut parts = marks(text);
    let (first, second) = (parts.next(), parts.next());
    matches!(first, Some(Part::Mark(mark)) if is_user(mark, user))
        && matches!(second, Some(Part::Text(text)) if starts_with_comma(text))
}

fn starts_with_comma(text: &str) -> bool {
    text.starts_with(", ") || text.starts_with(": ")
}

/// All that a message says, as a reader sees it, without `own`, which only says that the bot is
/// meant.
pub fn whole(event: &Event, own: Option<&str>) -> String {
    let mut text = readable(event.text.as_deref().unwrap_or_default(), own);
    if text.is_empty() {
        text = readable(&attached(event), own);
    }
    for line in files(&event.files) {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&line);
    }
    text
}

/// One line for each file: its id, what it is called and what it is.
fn files(files: &[File]) -> Vec<String> {
    let mut lines: Vec<String> = files.iter().take(SLACK_FILES_SHOWN_MAX).map(file).collect();
    let rest = files.len().saturating_sub(SLACK_FILES_SHOWN_MAX);
    if rest > 0 {
        lines.push(format!("[{rest} more files]"));
    }
    lines
}

fn file(file: &File) -> String {
    let name = file.name.as_deref().or(file.title.as_deref()).unwrap_or_default();
    let name = short(name);
    let name = if name.is_empty() { "without a name".to_owned() } else { name };
    let id = file.id.as_deref().filter(|id| place::is_word(id));
    let mut line = id.map_or_else(|| "[file: ".to_owned(), |id| format!("[file {id}: "));
    line.push_str(&name);
    if let Some(kind) = file.mimetype.as_deref().map(short).filter(|kind| !kind.is_empty()) {
        // Writing to a string cannot fail.
        let _ = write!(line, " ({kind})");
    }
    line.push(']');
    line
}

/// A stranger's word, inside brackets of ours.
fn short(text: &str) -> String {
    let text = one_line(&unescaped(text)).replace(['[', ']'], "_");
    if text.chars().count() <= SLACK_FILE_NAME_CHARS_MAX {
        return text;
    }
    let mut text: String = text.chars().take(SLACK_FILE_NAME_CHARS_MAX - 1).collect();
    text.push('…');
    text
}

/// What a message says that has no text of its own, as other programs write them.
fn attached(event: &Event) -> String {
    let texts = event.attachments.iter().filter_map(|attachment| {
        let own = |text: &Option<String>| text.clone().filter(|text| !text.trim().is_empty());
        own(&attachment.text).or_else(|| own(&attachment.fallback))
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// Text that says nothing to Slack but itself.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            c => out.push(c),
        }
    }
    out
}

enum Part<'a> {
    /// Between marks.
    Text(&'a str),
    /// Between `<` and `>`, without them.
    Mark(&'a str),
}

/// The text, cut at its marks. A `<` that is never closed is text.
fn marks(text: &str) -> impl Iterator<Item = Part<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (before, after) = match rest.split_once('<') {
            Some(("", after)) => match after.split_once('>') {
                Some((mark, after)) => {
                    rest = after;
                    return Some(Part::Mark(mark));
                }
                None => (rest, ""),
            },
            Some((before, _)) => rest.split_at(before.len()),
            None => (rest, ""),
        };
        rest = after;
        Some(Part::Text(before))
    })
}

fn is_user(mark: &str, user: &str) -> bool {
    let (target, _) = halves(mark);
    target.strip_prefix('@').is_some_and(|id| id == user)
}

/// What it points at, and what is shown of it.
fn halves(mark: &str) -> (&str, Option<&str>) {
    match mark.split_once('|') {
        Some((target, label)) => (target, Some(label).filter(|label| !label.is_empty())),
        None => (mark, None),
    }
}

fn read(mark: &str) -> String {
    let (target, label) = halves(mark);
    let named = |sign: char, id: &str| {
        let name = unescaped(label.unwrap_or(id));
        if name.starts_with(sign) { name } else { format!("{sign}{name}") }
    };
    if let Some(id) = target.strip_prefix('@') {
        return named('@', id);
    }
    if let Some(id) = target.strip_prefix('#') {
        return named('#', id);
    }
    if let Some(special) = target.strip_prefix('!') {
        return match (special.split_once('^'), label) {
            (Some(("date", _)), Some(label)) => unescaped(label),
            (Some((_, id)), _) => named('@', id),
            (None, _) => named('@', special),
        };
    }
    let target = unescaped(target);
    match label.map(unescaped) {
        Some(label) if !same(&target, &label) => format!("{label} ({target})"),
        Some(_) | None => target.strip_prefix("mailto:").unwrap_or(&target).to_owned(),
    }
}

/// `example.com` is shown for `http://example.com`, `a@example.com` for `mailto:a@example.com`.
fn same(target: &str, label: &str) -> bool {
    let bare = |text: &str| {
        let text = ["https://", "http://", "mailto:"]
            .iter()
            .find_map(|scheme| text.strip_prefix(scheme))
            .unwrap_or(text);
        text.trim_end_matches('/').to_owned()
    };
    bare(target) == bare(label)
}

/// Once, from left to right: what one escape leaves is not looked at again.
pub(super) fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let known = [("&lt;", '<'), ("&gt;", '>'), ("&amp;", '&')];
        let found = known.iter().find_map(|(word, c)| Some((from.strip_prefix(word)?, *c)));
        if let Some((after, c)) = found {
            out.push(c);
            rest = after;
        } else {
            out.push('&');
            rest = from.get(1..).unwrap_or_default();
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests;
