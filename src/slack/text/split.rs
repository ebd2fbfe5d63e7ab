//! A long Markdown text in pieces. Owns where it is cut, and that a fence which is open at a cut is
//! closed before it and opened again after it. Must not know what is done with the pieces.

use std::ops::Range;

/// Longest marker of a fence; a longer row of backticks is taken for text.
const MARKER_CHARS_MAX: usize = 16;
/// So much of a fence's language is repeated when it is opened again.
const LANGUAGE_CHARS_MAX: usize = 32;
/// What closing and opening a fence costs at most.
const FENCES_CHARS_MAX: usize = 2 * MARKER_CHARS_MAX + LANGUAGE_CHARS_MAX + 2;
/// A cut inside a line goes back so far at most to spare a word, or what is seen as one sign.
const BACK_CHARS_MAX: usize = 64;

/// Length as Slack may count it: a character beyond the first plane counts twice there or once, and
/// nobody says which.
pub(super) fn size(text: &str) -> usize {
    text.chars().map(char::len_utf16).sum()
}

/// The beginning of a block of code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fence {
    marker: String,
    language: String,
}

impl Fence {
    /// The fence that a line opens. However far it is indented: code in a list is.
    pub(super) fn opened(line: &str) -> Option<Self> {
        let line = line.trim();
        let mark = line.chars().next().filter(|c| matches!(c, '`' | '~'))?;
        let language = line.trim_start_matches(mark);
        let marker = line.strip_suffix(language)?;
        let fine = (3..=MARKER_CHARS_MAX).contains(&marker.len());
        if !fine || (mark == '`' && language.contains('`')) {
            return None;
        }
        let language = language.trim().chars().take(LANGUAGE_CHARS_MAX / 2).collect();
        Some(Self { marker: marker.to_owned(), language })
    }

    /// Does a line close it?
    pub(super) fn is_closed(&self, line: &str) -> bool {
        let line = line.trim();
        line.len() >= self.marker.len()
            && self.marker.chars().next().is_some_and(|mark| line.chars().all(|c| c == mark))
    }

    fn opening(&self) -> String {
        format!("{}{}\n", self.marker, self.language)
    }

    fn closing_size(&self) -> usize {
        1 + self.marker.len()
    }
}

/// One piece of a text. All pieces' bodies together are the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece<'a> {
    /// As it stands in the text.
    pub(super) body: &'a str,
    begins_in: Option<Fence>,
    ends_in: Option<Fence>,
}

impl Piece<'_> {
    /// As a text of its own: what was open at its beginning is open again, nothing is at its end.
    pub(super) fn text(&self) -> String {
        let mut out = String::with_capacity(self.body.len() + FENCES_CHARS_MAX);
        match &self.begins_in {
            None => out.push_str(self.body.trim_start_matches('\n')),
            Some(fence) => {
                let (first, rest) = self.body.split_once('\n').unwrap_or((self.body, ""));
                if fence.is_closed(first) {
                    // Nothing of the code is left for this piece.
                    out.push_str(rest.trim_start_matches('\n'));
                } else {
                    out.push_str(&fence.opening());
                    out.push_str(self.body);
                }
            }
        }
        match &self.ends_in {
            None => out.truncate(out.trim_end().len()),
            Some(fence) => {
                if !out.ends_with('\n') {
                    out.push('\n');
                }
                out.push_str(&fence.marker);
            }
        }
        out
    }
}

/// A line, or a piece of one that is too long.
struct Atom<'a> {
    text: &'a str,
    size: usize,
    /// The fence, by its number, in which the text stands after it.
    after: Option<usize>,
    /// A paragraph or a block of code ends with it.
    ends_paragraph: bool,
}

/// Pieces of which none is longer than `max` as a text of its own: cut between paragraphs where
/// that leaves none too small, else between lines, else between words or characters.
pub(super) fn split(text: &str, max: usize) -> Vec<Piece<'_>> {
    let (atoms, fences) = atoms(text, max.saturating_sub(FENCES_CHARS_MAX).max(1));
    let fence = |number: Option<usize>| number.and_then(|number| fences.get(number));
    let mut pieces = Vec::new();
    let (mut start, mut start_byte, mut begins_in) = (0, 0, None);
    while start < atoms.len() {
        let mut end = start;
        let mut paragraph = None;
        let mut used = fence(begins_in).map_or(0, |fence| size(&fence.opening()));
        for (number, atom) in atoms.iter().enumerate().skip(start) {
            let close = fence(atom.after).map_or(0, Fence::closing_size);
            if used + atom.size + close > max && number > start {
                break;
            }
            used += atom.size;
            end = number + 1;
            if atom.ends_paragraph && used >= max / 2 {
                paragraph = Some(end);
            }
        }
        if end < atoms.len() {
            end = paragraph.unwrap_or(end);
        }
        let taken = atoms.get(start..end).unwrap_or_default();
        let bytes: usize = taken.iter().map(|atom| atom.text.len()).sum();
        let ends_in = taken.last().and_then(|atom| atom.after);
        pieces.push(Piece {
            body: text.get(start_byte..start_byte + bytes).unwrap_or_default(),
            begins_in: fence(begins_in).cloned(),
            ends_in: fence(ends_in).cloned(),
        });
        (start, start_byte, begins_in) = (end, start_byte + bytes, ends_in);
    }
    pieces
}

fn atoms(text: &str, room: usize) -> (Vec<Atom<'_>>, Vec<Fence>) {
    let (mut atoms, mut fences) = (Vec::<Atom<'_>>::new(), Vec::<Fence>::new());
    let mut inside = None;
    for line in text.split_inclusive('\n') {
        let open = inside.and_then(|number: usize| fences.get(number));
        let (after, ends_paragraph) = match open {
            Some(fence) if fence.is_closed(line) => (None, true),
            Some(_) => (inside, false),
            None => match Fence::opened(line) {
                Some(fence) => {
                    fences.push(fence);
                    if let Some(before) = atoms.last_mut() {
                        before.ends_paragraph = true;
                    }
                    (Some(fences.len() - 1), false)
                }
                None => (None, line.trim().is_empty()),
            },
        };
        for text in fragments(line, room) {
            atoms.push(Atom { text, size: size(text), after, ends_paragraph });
        }
        inside = after;
    }
    (atoms, fences)
}

/// A line in pieces of at most `room`.
fn fragments(line: &str, room: usize) -> Vec<&str> {
    let mut fragments = Vec::new();
    let mut rest = line;
    while let Some(cut) = first_cut(rest, room) {
        let (head, tail) = rest.split_at_checked(cut).unwrap_or((rest, ""));
        fragments.push(head);
        rest = tail;
    }
    if !rest.is_empty() {
        fragments.push(rest);
    }
    fragments
}

/// Where a line that is too long is cut first; never inside a character.
fn first_cut(line: &str, room: usize) -> Option<usize> {
    let mut used = 0;
    let over = line.char_indices().find(|(_, c)| {
        used += c.len_utf16();
        used > room
    });
    let (at, first) = over?;
    // One character at least, whatever the room.
    let at = if at == 0 { first.len_utf8() } else { at };
    let back = back_range(line, at);
    let window = line.get(back.clone()).unwrap_or_default();
    if let Some((space, c)) = window.char_indices().rev().find(|(_, c)| c.is_whitespace()) {
        return Some(back.start + space + c.len_utf8());
    }
    let apart = |cut: &usize| {
        let (head, tail) = line.split_at_checked(*cut).unwrap_or((line, ""));
        !head.ends_with('\u{200d}') && !tail.starts_with(joins)
    };
    let starts = window.char_indices().rev().map(|(start, _)| back.start + start);
    std::iter::once(at).chain(starts.filter(|start| *start > 0)).find(apart).or(Some(at))
}

/// The bytes before a cut in which a better one is looked for.
fn back_range(line: &str, at: usize) -> Range<usize> {
    let head = line.get(..at).unwrap_or_default();
    let start = head.char_indices().rev().nth(BACK_CHARS_MAX).map_or(0, |(start, _)| start);
    start..at
}

/// Is it drawn onto the character before it?
fn joins(c: char) -> bool {
    matches!(c,
        '\u{300}'..='\u{36f}' | '\u{200d}' | '\u{20d0}'..='\u{20ff}' | '\u{fe00}'..='\u{fe0f}'
        | '\u{1f3fb}'..='\u{1f3ff}' | '\u{e0020}'..='\u{e007f}')
}
