//! Text of an answer while it comes. Owns which of it is on the screen already, so that the answer
//! stands there exactly once. Must not know screens.

use crate::core::limits::STREAM_BYTES_MAX;

use super::clean;

/// The text of one turn so far. Whole lines of it are shown, the last one waits for its end.
#[derive(Debug, Default)]
pub(super) struct Stream {
    /// Whole lines, cleaned, each with its `\n`; all of them are shown.
    lines: String,
    /// The line that is not whole yet, as it came.
    tail: String,
    /// Bytes of `lines` and the tail that posts have accounted for.
    posted: usize,
    /// Too long, or not in front: what comes is not shown.
    given_up: bool,
}

/// What is left to show of a post.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// All of it.
    Whole,
    /// Its end; the beginning is on the screen. May be empty.
    Rest(String),
}

impl Stream {
    /// Takes a piece; returns the whole lines to show now, without the last `\n`.
    pub(super) fn push(&mut self, piece: &str) -> Option<String> {
        if self.given_up {
            return None;
        }
        if self.lines.len() + self.tail.len() + piece.len() > STREAM_BYTES_MAX {
            self.given_up = true;
            return None;
        }
        self.tail.push_str(piece);
        let (whole, rest) = self.tail.rsplit_once('\n')?;
        let cleaned = clean::text(whole);
        let (whole, rest) = (cleaned, rest.to_owned());
        self.tail = rest;
        // Blank lines before the first word are not worth a line of the screen.
        let shown = if self.lines.is_empty() { whole.trim_start_matches('\n') } else { &whole };
        let shown = shown.to_owned();
        self.lines.push_str(&whole);
        self.lines.push('\n');
        (!shown.trim().is_empty() || self.is_shown()).then_some(shown)
    }

    /// Nothing more comes: the line that was not whole is.
    pub(super) fn close(&mut self) -> Option<String> {
        if self.tail.is_empty() { None } else { self.push("\n") }
    }

    /// Is any of it on the screen?
    pub(super) fn is_shown(&self) -> bool {
        !self.lines.trim().is_empty()
    }

    /// What is not on the screen yet.
    pub(super) fn unshown(&self) -> String {
        clean::line(&self.tail)
    }

    /// Its chat is not in front: nothing of it is shown, only its posts are.
    pub(super) fn give_up(&mut self) {
        self.given_up = true;
    }

    /// A post came: how much of it is not on the screen? `None` when it is not of this stream.
    /// `text` is cleaned.
    pub(super) fn post(&mut self, text: &str) -> Option<Left> {
        let wanted = text.trim();
        let mut all = self.lines.clone();
        all.push_str(&clean::line(&self.tail));
        let open = all.get(self.posted..).unwrap_or_default().trim_start();
        if self.given_up || !open.starts_with(wanted) {
            return None;
        }
        let start = all.len() - open.len();
        let end = start + wanted.len();
        let shown = self.lines.len();
        self.posted = end;
        if shown <= start {
            return Some(Left::Whole);
        }
        let rest = all.get(shown.min(end)..end).unwrap_or_default();
        Some(Left::Rest(rest.trim_start_matches('\n').to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn streamed(pieces: &[&str]) -> (Stream, Vec<String>) {
        let mut stream = Stream::default();
        let shown = pieces.iter().filter_map(|piece| stream.push(piece)).collect();
        (stream, shown)
    }

    fn rest(text: &str) -> Left {
        Left::Rest(text.to_owned())
    }

    #[test]
    fn lines_are_shown_when_whole_and_the_post_adds_the_rest() {
        let (mut stream, shown) = streamed(&["one\ntw", "o\nthr", "ee"]);
        assert_eq!(shown, ["one", "two"]);
        assert_eq!(stream.post("one\ntwo\nthree"), Some(rest("three")));
    }

    #[test]
    fn a_single_line_comes_with_the_post() {
        let (mut stream, shown) = streamed(&["a short ", "answer"]);
        assert!(shown.is_empty());
        assert_eq!(stream.post("a short answer"), Some(Left::Whole));
    }

    #[test]
    fn a_text_that_ended_with_a_line_is_not_repeated() {
        let (mut stream, shown) = streamed(&["all\nof it\n"]);
        assert_eq!(shown, ["all\nof it"]);
        assert_eq!(stream.post("all\nof it"), Some(rest("")));
    }

    #[test]
    fn another_text_is_not_of_the_stream() {
        let (mut stream, _) = streamed(&["one\ntwo\n"]);
        assert_eq!(stream.post("one\n[redacted]"), None);
        assert_eq!(stream.post("one\ntwo"), Some(rest("")));
    }

    #[test]
    fn two_posts_of_one_turn_each_find_their_part() {
        let (mut stream, _) = streamed(&["first\nanswer", "\nsecond\nanswer"]);
        assert_eq!(stream.post("first\nanswer"), Some(rest("")));
        assert_eq!(stream.post("second\nanswer"), Some(rest("answer")));
    }

    #[test]
    fn control_sequences_neither_show_nor_spoil_the_comparison() {
        let (mut stream, shown) = streamed(&["\n\u{1b}[1mbold\u{1b}", "[0m\nend"]);
        assert_eq!(shown, ["bold"]);
        assert_eq!(stream.post("bold\nend"), Some(rest("end")));
    }

    #[test]
    fn a_flood_is_not_held() {
        let mut stream = Stream::default();
        let line = format!("{}\n", "x".repeat(1023));
        let shown = (0..1000).filter(|_| stream.push(&line).is_some()).count();
        assert_eq!(shown, STREAM_BYTES_MAX / 1024);
        assert_eq!(stream.post("something"), None);
    }
}
