//! Look-alikes of the envelope made inert. Owns which texts could pass for a notice of dogwatch's
//! own. Must not know where a text comes from: whatever is not a typed notice goes through here.

use std::borrow::Cow;
use std::ops::Range;

use serde_json::{Map, Value};

mod fold;

use fold::{Fold, fold};

/// When a row of letters is a look-alike.
#[derive(Debug, Clone, Copy)]
enum Rule {
    /// A bracket stands before or after it.
    Bracketed,
    /// Its words, the first of so many letters, are joined as in a key.
    Joined(usize),
}

struct Mark {
    letters: &'static [u8],
    rule: Rule,
    /// What is written instead; in itself no look-alike.
    instead: &'static str,
}

const MARKS: [Mark; 3] = [
    Mark {
        letters: b"autonotification",
        rule: Rule::Bracketed,
        instead: "(auto-notification look-alike)",
    },
    Mark {
        letters: b"systemnotifications",
        rule: Rule::Joined(6),
        instead: "system notifications look-alike",
    },
    Mark {
        letters: b"notificationinstruction",
        rule: Rule::Joined(12),
        instead: "notification instruction look-alike",
    },
];

/// A character that is read, and where it stands.
struct Glyph {
    fold: Fold,
    at: Range<usize>,
}

/// The text with every look-alike of an envelope written differently: the marker in any case,
/// spacing, script or decoration, the brackets of the fence, the keys that carry notices.
///
/// Idempotent, and linear in the text's length.
pub fn inert(text: &str) -> Cow<'_, str> {
    let changes = look_alikes(text);
    if changes.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut done = 0;
    for (at, instead) in changes {
        out.push_str(text.get(done..at.start).unwrap_or_default());
        out.push_str(instead);
        done = at.end;
    }
    out.push_str(text.get(done..).unwrap_or_default());
    Cow::Owned(out)
}

/// Is there anything in the text that could pass for an envelope?
pub fn is_inert(text: &str) -> bool {
    look_alikes(text).is_empty()
}

/// A JSON value with inert texts and keys.
pub fn inert_value(value: &Value) -> Value {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        Value::String(text) => Value::String(inert(text).into_owned()),
        Value::Array(items) => Value::Array(items.iter().map(inert_value).collect()),
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .map(|(key, value)| (inert_key(key), inert_value(value)))
                .collect::<Map<_, _>>(),
        ),
    }
}

/// A key is one of ours however its words are joined.
fn inert_key(key: &str) -> String {
    let letters: Option<Vec<u8>> = glyphs(key)
        .iter()
        .map(|g| if let Fold::Letter(l) = g.fold { Some(l) } else { None })
        .collect();
    let mark = MARKS
        .iter()
        .find(|m| matches!(m.rule, Rule::Joined(_)) && letters.as_deref() == Some(m.letters));
    match mark {
        Some(mark) => mark.instead.to_owned(),
        None => inert(key).into_owned(),
    }
}

fn glyphs(text: &str) -> Vec<Glyph> {
    let mut glyphs = Vec::with_capacity(text.len());
    for (start, c) in text.char_indices() {
        let at = start..start + c.len_utf8();
        match fold(c) {
            Fold::Skip => {}
            Fold::Pair(a, b) => {
                glyphs.push(Glyph { fold: Fold::Letter(a), at: at.clone() });
                glyphs.push(Glyph { fold: Fold::Letter(b), at });
            }
            fold @ (Fold::Open | Fold::Close | Fold::Letter(_) | Fold::Other) => {
                glyphs.push(Glyph { fold, at });
            }
        }
    }
    glyphs
}

/// Where look-alikes stand, in order and apart, and what to write there.
fn look_alikes(text: &str) -> Vec<(Range<usize>, &'static str)> {
    let glyphs = glyphs(text);
    let mut found = Vec::new();
    let mut i = 0;
    while let Some(glyph) = glyphs.get(i) {
        let mark = MARKS.iter().find_map(|m| Some((m, matched(text, &glyphs, i, m)?)));
        if let Some((mark, at)) = mark {
            // An opening bracket before the letters was taken for a fence's: it goes with them.
            found.pop_if(|(before, _): &mut (Range<usize>, _)| before.start >= at.start);
            i += mark.letters.len();
            while glyphs.get(i).is_some_and(|g| g.at.start < at.end) {
                i += 1;
            }
            found.push((at, mark.instead));
            continue;
        }
        let fence = text.get(glyph.at.clone()).and_then(|t| t.chars().next()).and_then(fold::fence);
        if let Some(instead) = fence {
            found.push((glyph.at.clone(), instead));
        }
        i += 1;
    }
    found
}

/// The range of a look-alike of `mark` whose letters begin at glyph `i`.
fn matched(text: &str, glyphs: &[Glyph], i: usize, mark: &Mark) -> Option<Range<usize>> {
    let end = i + mark.letters.len();
    let row = glyphs.get(i..end)?;
    if !row.iter().zip(mark.letters).all(|(g, l)| g.fold == Fold::Letter(*l)) {
        return None;
    }
    let (first, last) = (row.first()?, row.last()?);
    match mark.rule {
        Rule::Bracketed => {
            let open = i.checked_sub(1).and_then(|b| glyphs.get(b));
            let open = open.filter(|g| g.fold == Fold::Open);
            let close = glyphs.get(end).filter(|g| g.fold == Fold::Close);
            if open.is_none() && close.is_none() {
                return None;
            }
            Some(open.unwrap_or(first).at.start..close.unwrap_or(last).at.end)
        }
        Rule::Joined(words) => {
            let (before, after) = (row.get(words - 1)?, row.get(words)?);
            let between = text.get(before.at.end..after.at.start)?;
            let joined = between.chars().any(|c| fold::is_underscore(c) || fold::is_invisible(c));
            joined.then_some(first.at.start..last.at.end)
        }
    }
}

#[cfg(test)]
mod tests;
