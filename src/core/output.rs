//! Output of scripts and tools as bounded text. Owns head-and-tail capture, its cleaning and its
//! wording. Must not know pipes, files or processes.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::limits::OUTPUT_BYTES_MAX;

mod clean;
mod lines;
mod torn;

pub use clean::{clean, one_line};
pub use lines::{Lines, lines};
pub(in crate::core) use torn::is_mixed;

/// What is kept of each end of a stream.
pub const HALF_BYTES: usize = OUTPUT_BYTES_MAX / 2;

/// What was kept of one stream: its head, its tail and how much is missing between them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Captured {
    /// From the beginning. Sanitised text.
    pub head: String,
    /// To the end. Empty when everything is in `head`.
    pub tail: String,
    /// Bytes that the stream had in all.
    pub bytes: u64,
    /// Bytes between head and tail that were not kept.
    pub missing_bytes: u64,
}

impl Captured {
    /// Head and tail as one text, with a line between them that says what is missing.
    pub fn text(&self) -> String {
        if self.missing_bytes == 0 {
            return format!("{}{}", self.head, self.tail);
        }
        format!("{}{}{}", self.head, gap(self.missing_bytes), self.tail)
    }

    /// Is there nothing to read?
    pub fn is_empty(&self) -> bool {
        self.missing_bytes == 0 && self.head.trim().is_empty() && self.tail.trim().is_empty()
    }
}

fn gap(missing: u64) -> String {
    format!("\n… {missing} bytes not shown …\n")
}

/// Raw bytes of a stream as the text that is kept: decoded, cleaned, redacted, bounded.
///
/// `head` are the first bytes of the stream and `tail` the last ones, without overlap; `bytes` is
/// how many there were in all. What a cut tore apart is dropped at the edge: half a character, and
/// a piece of a word that may be part of a secret. The result has at most [`OUTPUT_BYTES_MAX`].
pub fn capture(head: &[u8], tail: &[u8], bytes: u64, redact: &dyn Fn(&str) -> String) -> Captured {
    let kept = (head.len() as u64).saturating_add(tail.len() as u64);
    let missing = bytes.saturating_sub(kept);
    if missing == 0 {
        let whole = redact(&clean(&lossy(&[head, tail].concat())));
        let (head, tail, missing_bytes) = halves(whole);
        return Captured { head, tail, bytes, missing_bytes };
    }
    let (head, head_torn) = torn::without_torn_end(head);
    let (tail, tail_torn) = torn::without_torn_start(tail);
    let head_text = clean(&lossy(head));
    let tail_text = clean(&lossy(tail));
    let head_safe = torn::without_torn_secret_at_end(&head_text);
    let tail_safe = torn::without_torn_secret_at_start(&tail_text);
    let torn = head_torn
        + tail_torn
        + (head_text.len() - head_safe.len())
        + (tail_text.len() - tail_safe.len());
    let mut head = redact(head_safe);
    let mut tail = redact(tail_safe);
    let cut = shorten_end(&mut head, HALF_BYTES) + shorten_start(&mut tail, HALF_BYTES);
    let missing_bytes = missing.saturating_add((torn + cut) as u64);
    Captured { head, tail, bytes, missing_bytes }
}

/// Invalid bytes become U+FFFD, one for each run: binary output does not grow threefold.
fn lossy(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        if !chunk.invalid().is_empty() && !text.ends_with(char::REPLACEMENT_CHARACTER) {
            text.push(char::REPLACEMENT_CHARACTER);
        }
    }
    text
}

/// A text that may have grown past the bound in cleaning, as head and tail.
fn halves(mut text: String) -> (String, String, u64) {
    if text.len() <= OUTPUT_BYTES_MAX {
        return (text, String::new(), 0);
    }
    let mut tail = text.clone();
    let dropped = shorten_end(&mut text, HALF_BYTES);
    shorten_start(&mut tail, HALF_BYTES);
    let missing = dropped.saturating_sub(tail.len());
    (text, tail, missing as u64)
}

fn shorten_end(text: &mut String, bytes_max: usize) -> usize {
    let before = text.len();
    text.truncate(text.floor_char_boundary(bytes_max));
    before - text.len()
}

fn shorten_start(text: &mut String, bytes_max: usize) -> usize {
    let cut = text.ceil_char_boundary(text.len().saturating_sub(bytes_max));
    text.drain(..cut);
    cut
}

/// Room that the line about what is missing may take.
const GAP_BYTES_MAX: usize = 64;

/// Head and tail of a text that is longer than `bytes_max`, with a line that says how much is
/// missing. Cuts between characters. The result has at most `bytes_max` bytes, or 64 where that is
/// less: the line is never left out.
pub fn cut(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    let room = bytes_max.saturating_sub(GAP_BYTES_MAX);
    let (head, rest) = text.split_at(text.floor_char_boundary(room / 2));
    let (missing, tail) =
        rest.split_at(rest.ceil_char_boundary(rest.len().saturating_sub(room / 2)));
    format!("{head}{}{tail}", gap(missing.len() as u64))
}

/// The first and the last bytes of a stream that comes in pieces. Never grows past twice `each`.
#[derive(Debug, Clone)]
pub struct HeadTail {
    each: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    bytes: u64,
}

impl HeadTail {
    /// Keeps `each` bytes of either end.
    pub fn new(each: usize) -> Self {
        Self { each, head: Vec::new(), tail: VecDeque::new(), bytes: 0 }
    }

    /// Takes the next piece.
    pub fn push(&mut self, piece: &[u8]) {
        self.bytes = self.bytes.saturating_add(piece.len() as u64);
        let room = self.each.saturating_sub(self.head.len()).min(piece.len());
        let (first, rest) = piece.split_at(room);
        self.head.extend_from_slice(first);
        let (_, last) = rest.split_at(rest.len().saturating_sub(self.each));
        let over = (self.tail.len() + last.len()).saturating_sub(self.each);
        self.tail.drain(..over.min(self.tail.len()));
        self.tail.extend(last);
    }

    /// The first bytes, at most `each`.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// The last bytes that are not in the head, at most `each`.
    pub fn tail(&self) -> Vec<u8> {
        self.tail.iter().copied().collect()
    }

    /// Bytes taken in all.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What was taken so far, as text.
    pub fn captured(&self, redact: &dyn Fn(&str) -> String) -> Captured {
        capture(&self.head, &self.tail(), self.bytes, redact)
    }
}

#[cfg(test)]
mod tests;
