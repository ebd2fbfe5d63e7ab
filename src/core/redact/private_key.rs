//! Private keys in PEM, over several lines. Owns where one begins and ends.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

#[expect(clippy::expect_used, reason = "a constant pattern; the tests of this module run it")]
static BEGIN: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----").expect("a pattern")
});
#[expect(clippy::expect_used, reason = "a constant pattern; the tests of this module run it")]
static END: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"-----END [A-Z0-9 ]{0,40}-----").expect("a pattern"));

/// Whether the lines so far end inside a key.
#[derive(Debug, Default)]
pub(super) struct PrivateKey {
    open: bool,
}

impl PrivateKey {
    /// Inside a key: how much of the line belongs to it, and whether that is all there is to say
    /// about the line. Where the key turns out not to go on, the line end that was held back is
    /// written.
    pub(super) fn skip(&mut self, line: &str, out: &mut String) -> (usize, bool) {
        if !self.open {
            return (0, false);
        }
        if is_body(line.trim()) {
            return (line.len(), true);
        }
        self.open = false;
        if let Some(end) = END.find(line) {
            return (end.end(), false);
        }
        out.push('\n');
        (0, false)
    }

    /// Adds the keys of a line. Does the last one go on in the next line?
    pub(super) fn ranges(&mut self, line: &str, found: &mut Vec<Range<usize>>) -> bool {
        let mut at = 0;
        let mut endless = false;
        while let Some(begin) = BEGIN.find_at(line, at) {
            let end = if endless { None } else { END.find_at(line, begin.end()) };
            at = if let Some(end) = end {
                end.end()
            } else {
                endless = true;
                let rest = line.get(begin.end()..).unwrap_or_default();
                let body = rest.len() - rest.trim_start_matches(in_body).len();
                self.open = body == rest.len();
                begin.end() + body
            };
            found.push(begin.start()..at);
        }
        self.open
    }
}

const fn in_body(c: char) -> bool {
    matches!(c, 'a'..='z' | 'A'..='Z' | '0'..='9' | '+' | '/' | '=' | '\\' | '\r')
}

/// Base64, nothing, or a header such as `Proc-Type: 4,ENCRYPTED`.
fn is_body(line: &str) -> bool {
    let header = |name: &str| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    };
    line.chars().all(in_body) || line.split_once(": ").is_some_and(|(name, _)| header(name))
}
