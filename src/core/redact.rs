//! Secrets taken out of text. Owns what a secret looks like and in which forms a known one may
//! appear. Must not know where secrets are kept; it never logs, and its `Debug` shows none.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

mod forms;
mod pattern;
mod private_key;

use private_key::PrivateKey;

/// What stands where a secret stood.
pub const REDACTED: &str = "[redacted]";
/// A shorter known value is not looked for: it would take ordinary words out.
pub const LITERAL_CHARS_MIN: usize = 6;
/// So much of a known value at either end of a text is taken for it: a cut tore it apart.
const PIECE_BYTES_MIN: usize = 8;
/// A line is looked at in pieces of so many bytes at most.
const LINE_BYTES_MAX: usize = 64 * 1024;
/// Before the end of such a piece so much is held back, so that a known value stays whole.
const HOLD_BYTES: usize = 8 * 1024;

/// Takes secrets out of texts: known values in all their forms, and what looks like a secret.
#[derive(Clone)]
pub struct Redactor {
    needles: Vec<String>,
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redactor").field("needles", &self.needles.len()).finish()
    }
}

impl Redactor {
    /// Knows these values: plain, in base64 at any offset, percent-encoded and JSON-escaped. One of
    /// several lines is known line by line. Shorter than [`LITERAL_CHARS_MIN`] is not looked for.
    pub fn new(literals: Vec<String>) -> Self {
        let mut needles = Vec::new();
        for literal in literals {
            let lines = literal.lines().map(str::trim);
            let known = lines.filter(|line| line.chars().count() >= LITERAL_CHARS_MIN);
            needles.extend(known.flat_map(forms::of));
        }
        needles.sort_unstable();
        needles.dedup();
        Self { needles }
    }

    /// The text without secrets, each replaced by [`REDACTED`].
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut stream = RedactStream::new(self);
        let mut out = stream.push(text);
        out.push_str(&stream.finish());
        if out == text { Cow::Borrowed(text) } else { Cow::Owned(out) }
    }

    /// Where secrets stand in one line, in order and apart.
    fn ranges(&self, line: &str) -> Vec<Range<usize>> {
        let mut found = pattern::ranges(line);
        for needle in &self.needles {
            found.extend(line.match_indices(needle).map(|(at, s)| at..at + s.len()));
        }
        found
    }

    /// How much of the line's beginning is the end of a known value.
    fn piece_at_start(&self, line: &str) -> Option<Range<usize>> {
        let longest = self.needles.iter().filter_map(|needle| {
            let sizes = PIECE_BYTES_MIN..needle.len().min(line.len() + 1);
            let starts = |n: &usize| {
                needle
                    .as_bytes()
                    .get(needle.len() - n..)
                    .is_some_and(|e| line.as_bytes().starts_with(e))
            };
            sizes.rev().find(starts)
        });
        longest.max().map(|n| 0..n)
    }

    /// How much of the line's end is the beginning of a known value.
    fn piece_at_end(&self, line: &str) -> Option<Range<usize>> {
        let longest = self.needles.iter().filter_map(|needle| {
            let sizes = PIECE_BYTES_MIN..needle.len().min(line.len() + 1);
            let ends = |n: &usize| {
                needle.as_bytes().get(..*n).is_some_and(|b| line.as_bytes().ends_with(b))
            };
            sizes.rev().find(ends)
        });
        longest.max().map(|n| line.len() - n..line.len())
    }
}

/// Redaction of a text that comes in pieces: any way to cut it gives the same result, because what
/// is not a whole line yet is held back.
#[derive(Debug)]
pub struct RedactStream<'a> {
    redactor: &'a Redactor,
    pending: String,
    at_start: bool,
    key: PrivateKey,
}

impl<'a> RedactStream<'a> {
    /// At the beginning of a text.
    pub fn new(redactor: &'a Redactor) -> Self {
        Self { redactor, pending: String::new(), at_start: true, key: PrivateKey::default() }
    }

    /// Takes the next piece, gives what can be shown by now.
    pub fn push(&mut self, piece: &str) -> String {
        self.pending.push_str(piece);
        let mut pending = std::mem::take(&mut self.pending);
        let mut out = String::new();
        let mut done = 0;
        while let Some(rest) = pending.get(done..)
            && let Some(n) = self.line_end(rest)
        {
            let line = rest.get(..n).unwrap_or_default();
            self.line(line, false, &mut out);
            done += n;
        }
        pending.drain(..done);
        self.pending = pending;
        out
    }

    /// The rest.
    pub fn finish(mut self) -> String {
        let mut out = String::new();
        let rest = std::mem::take(&mut self.pending);
        if !rest.is_empty() {
            self.line(&rest, true, &mut out);
        }
        out
    }

    /// Length of the first line, or of the first piece of one that is too long.
    fn line_end(&self, text: &str) -> Option<usize> {
        let (window, more) = text.split_at(text.floor_char_boundary(LINE_BYTES_MAX));
        if let Some(at) = window.find('\n') {
            return Some(at + 1);
        }
        if more.is_empty() {
            return None;
        }
        let mut end = window.floor_char_boundary(LINE_BYTES_MAX - HOLD_BYTES);
        for range in merged(self.redactor.ranges(window)) {
            if range.start < end && end < range.end {
                end = if range.start > 0 { range.start } else { range.end };
            }
        }
        Some(end)
    }

    fn line(&mut self, line: &str, at_end: bool, out: &mut String) {
        let at_start = std::mem::replace(&mut self.at_start, false);
        let text = line.strip_suffix('\n').unwrap_or(line);
        let end = line.get(text.len()..).unwrap_or_default();
        let (skipped, line_ended) = self.key.skip(text, out);
        if line_ended {
            return;
        }
        let text = text.get(skipped..).unwrap_or_default();
        let mut found = self.redactor.ranges(text);
        let opens = self.key.ranges(text, &mut found);
        if at_start {
            found.extend(self.redactor.piece_at_start(text));
        }
        if at_end {
            found.extend(self.redactor.piece_at_end(text));
        }
        let mut done = 0;
        for range in merged(found) {
            out.push_str(text.get(done..range.start).unwrap_or_default());
            out.push_str(REDACTED);
            done = range.end;
        }
        out.push_str(text.get(done..).unwrap_or_default());
        if !opens {
            out.push_str(end);
        }
    }
}

/// In order, with those that overlap as one.
fn merged(mut ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    ranges.sort_unstable_by_key(|r| (r.start, r.end));
    let mut out: Vec<Range<usize>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match out.last_mut() {
            Some(last) if range.start < last.end => last.end = last.end.max(range.end),
            Some(_) | None => out.push(range),
        }
    }
    out
}

#[cfg(test)]
mod tests;
