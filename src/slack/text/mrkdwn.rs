//! From Markdown to what Slack calls mrkdwn. Owns the two grammars and the escaping of `&`, `<` and
//! `>`, which happens here, once. Must not know lengths.

use std::borrow::Cow;

use super::split::Fence;

/// What closes a construct is looked for within so many bytes, so that a line costs its length.
const WINDOW_BYTES: usize = 1_000;
/// Emphasis inside emphasis.
const DEPTH_MAX: usize = 4;

/// The text in mrkdwn. Code is untouched but for what must be escaped or would end it.
pub(super) fn mrkdwn(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 8);
    let mut inside: Option<Fence> = None;
    for line in text.split_inclusive('\n') {
        let bare = line.strip_suffix('\n').unwrap_or(line);
        match &inside {
            Some(fence) if fence.is_closed(bare) => {
                inside = None;
                out.push_str("```");
            }
            Some(_) => escape(&unfenced(bare), &mut out),
            None => {
                inside = Fence::opened(bare);
                // mrkdwn would show the language as code.
                if inside.is_some() {
                    out.push_str("```");
                } else {
                    let mut text = String::with_capacity(bare.len());
                    block(bare, &mut text);
                    out.push_str(&unfenced(&text));
                }
            }
        }
        out.push_str(line.get(bare.len()..).unwrap_or_default());
    }
    out
}

/// So that it is read as it stands.
fn escape(text: &str, out: &mut String) {
    text.chars().for_each(|c| escape_one(c, out));
}

/// A line in which no row of backticks begins or ends a block: mrkdwn takes three of them for that
/// wherever they stand.
fn unfenced(line: &str) -> Cow<'_, str> {
    if !line.contains("```") {
        return Cow::Borrowed(line);
    }
    let mut out = String::with_capacity(line.len() + line.len() / 2);
    let mut row = 0;
    for c in line.chars() {
        row = if c == '`' { row + 1 } else { 0 };
        if row > 2 {
            out.push('\u{200b}');
            row = 1;
        }
        out.push(c);
    }
    Cow::Owned(out)
}

fn escape_one(c: char, out: &mut String) {
    match c {
        '&' => out.push_str("&amp;"),
        '<' => out.push_str("&lt;"),
        '>' => out.push_str("&gt;"),
        _ => out.push(c),
    }
}

/// One line outside of code.
fn block(line: &str, out: &mut String) {
    let text = line.trim_start();
    let indent = line.strip_suffix(text).unwrap_or_default();
    if let Some(title) = heading(text) {
        let title = title.replace("**", "").replace("__", "");
        out.push('*');
        inline(title.trim(), 1, out);
        out.push('*');
        return;
    }
    out.push_str(indent);
    if let Some(rest) = ["- ", "* ", "+ "].iter().find_map(|bullet| text.strip_prefix(bullet)) {
        out.push_str("• ");
        inline(rest, 0, out);
    } else if let Some(rest) = text.strip_prefix('>') {
        // A quote is written in both grammars alike.
        out.push('>');
        inline(rest, 0, out);
    } else {
        inline(text, 0, out);
    }
}

fn heading(text: &str) -> Option<&str> {
    let title = text.trim_start_matches('#');
    let level = text.len() - title.len();
    let title = title.strip_prefix(' ')?.trim_end().trim_end_matches('#').trim();
    ((1..=6).contains(&level) && !title.is_empty()).then_some(title)
}

fn inline(text: &str, depth: usize, out: &mut String) {
    let mut rest = text;
    let mut before = ' ';
    while let Some(c) = rest.chars().next() {
        let taken = construct(rest, before, depth, out).unwrap_or_else(|| {
            escape_one(c, out);
            c.len_utf8()
        });
        let (head, tail) = rest.split_at_checked(taken).unwrap_or((rest, ""));
        before = head.chars().next_back().unwrap_or(' ');
        rest = tail;
    }
}

/// Writes what begins here, if something does; how many bytes of the Markdown that took.
fn construct(rest: &str, before: char, depth: usize, out: &mut String) -> Option<usize> {
    match rest.chars().next()? {
        '`' => Some(code(rest, out)),
        '\\' => escaped(rest, out),
        '<' => autolink(rest, out),
        '[' => link(rest, out),
        '!' => Some(1 + link(rest.strip_prefix('!')?, out)?),
        c @ ('*' | '_' | '~') => Some(emphasis(rest, (c, before), depth, out)),
        _ => None,
    }
}

fn window(text: &str) -> &str {
    text.get(..text.floor_char_boundary(WINDOW_BYTES)).unwrap_or(text)
}

fn run(text: &str, c: char) -> usize {
    text.len() - text.trim_start_matches(c).len()
}

/// A row of backticks, with the code after it if the same row stands there again.
fn code(rest: &str, out: &mut String) -> usize {
    let ticks = run(rest, '`');
    let (mark, after) = rest.split_at_checked(ticks).unwrap_or((rest, ""));
    let mut from = 0;
    let near = window(after);
    while let Some(found) = near.get(from..).and_then(|text| text.find(mark)) {
        let at = from + found;
        let length = run(near.get(at..).unwrap_or_default(), '`');
        if length == ticks {
            out.push('`');
            escape(near.get(..at).unwrap_or_default().trim(), out);
            out.push('`');
            return ticks + at + ticks;
        }
        from = at + length;
    }
    out.push_str(mark);
    ticks
}

fn escaped(rest: &str, out: &mut String) -> Option<usize> {
    let c = rest.chars().nth(1).filter(char::is_ascii_punctuation)?;
    escape_one(c, out);
    Some(2)
}

/// `<https://example.com>`
fn autolink(rest: &str, out: &mut String) -> Option<usize> {
    let inner = rest.strip_prefix('<')?;
    let end = window(inner).find('>')?;
    let url = address(inner.get(..end)?)?;
    out.push('<');
    out.push_str(&url);
    out.push('>');
    Some(end + 2)
}

/// `[text](https://example.com "title")`
fn link(rest: &str, out: &mut String) -> Option<usize> {
    let near = window(rest.strip_prefix('[')?);
    let middle = near.find("](")?;
    let text = near.get(..middle)?;
    let target = near.get(middle + 2..)?;
    let end = target.find(')')?;
    let url = address(target.get(..end)?.split_whitespace().next()?)?;
    if text.contains(['[', '\n']) {
        return None;
    }
    out.push('<');
    out.push_str(&url);
    out.push('|');
    // What would end the link or its text early.
    escape(&text.replace('|', "¦").replace('`', ""), out);
    out.push('>');
    Some(1 + middle + 2 + end + 1)
}

/// An address that may stand in a link, escaped.
fn address(url: &str) -> Option<String> {
    let known = ["https://", "http://", "mailto:"].iter().any(|scheme| url.starts_with(scheme));
    if !known || url.contains(|c: char| c.is_whitespace() || "<>".contains(c)) {
        return None;
    }
    let mut out = String::with_capacity(url.len());
    escape(&url.replace('|', "%7C"), &mut out);
    Some(out)
}

/// A row of marks, with what they emphasise if the same row stands after it.
fn emphasis(rest: &str, (c, before): (char, char), depth: usize, out: &mut String) -> usize {
    let marks = run(rest, c);
    let (mark, after) = rest.split_at_checked(marks).unwrap_or((rest, ""));
    let instead = match (c, marks) {
        ('*' | '_', 1) => Some(("_", "_")),
        ('*' | '_', 2) => Some(("*", "*")),
        ('*' | '_', 3) => Some(("*_", "_*")),
        ('~', 2) => Some(("~", "~")),
        _ => None,
    };
    let opens = !after.starts_with(char::is_whitespace)
        && depth < DEPTH_MAX
        && !(c == '_' && before.is_alphanumeric());
    let inner = instead.filter(|_| opens).and_then(|_| closed(after, c, marks));
    if let (Some((open, close)), Some(inner)) = (instead, inner) {
        out.push_str(open);
        inline(inner, depth + 1, out);
        out.push_str(close);
        marks + inner.len() + marks
    } else {
        out.push_str(mark);
        marks
    }
}

/// What stands before a closing row of exactly so many marks.
fn closed(text: &str, c: char, marks: usize) -> Option<&str> {
    let near = window(text);
    let mut from = 0;
    while let Some(found) = near.get(from..).and_then(|text| text.find(c)) {
        let at = from + found;
        let inner = near.get(..at)?;
        let tail = near.get(at..)?;
        let length = run(tail, c);
        let next = tail.get(length..).and_then(|text| text.chars().next());
        let inside_word = c == '_' && next.is_some_and(char::is_alphanumeric);
        let after_space = inner.ends_with(|last: char| last.is_whitespace() || last == '\\');
        if length == marks && !inner.is_empty() && !after_space && !inside_word {
            return Some(inner);
        }
        from = at + length;
    }
    None
}
