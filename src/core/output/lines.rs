//! A part of a long text, by its lines. Owns which of them are shown where not all have room. Must
//! not know what the text is.

use super::cut;

/// Lines of a text, from one on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lines {
    /// What is shown, with a line that says what is missing.
    pub text: String,
    /// How many lines the whole text has.
    pub lines: u64,
    /// The first and the last line that are not shown, where some are not.
    pub not_shown: Option<(u64, u64)>,
}

/// The lines of `text` from number `from` on, which counts from 1. Of more than `bytes_max` as JSON
/// three quarters are head and the rest is tail; a line that is longer than half of it is cut.
pub fn lines(text: &str, from: u64, bytes_max: usize) -> Lines {
    let all: Vec<&str> = text.lines().collect();
    let skip = usize::try_from(from.saturating_sub(1)).unwrap_or(usize::MAX).min(all.len());
    // Its rest, encoded, is never more than twice as long as it is.
    let each = bytes_max / 4;
    let kept: Vec<String> = all.iter().skip(skip).map(|line| cut(line, each)).collect();
    let head = fitting(kept.iter(), bytes_max);
    let lines = all.len() as u64;
    if head == kept.len() {
        return Lines { text: kept.join("\n"), lines, not_shown: None };
    }
    let head = fitting(kept.iter(), bytes_max / 4 * 3);
    let tail = fitting(kept.iter().skip(head).rev(), bytes_max / 4);
    let missing = kept.len() - head - tail;
    let (first, last) = ((skip + head + 1) as u64, (skip + head + missing) as u64);
    let gap = format!("… lines {first} to {last} are not shown …");
    let parts = kept.iter().take(head).map(String::as_str);
    let parts = parts.chain([gap.as_str()]);
    let parts = parts.chain(kept.iter().skip(head + missing).map(String::as_str));
    Lines { text: parts.collect::<Vec<_>>().join("\n"), lines, not_shown: Some((first, last)) }
}

/// How many of the first ones have room.
fn fitting<'a>(lines: impl Iterator<Item = &'a String>, bytes_max: usize) -> usize {
    let mut left = bytes_max;
    let room = |line: &&String| {
        let Some(rest) = left.checked_sub(encoded(line) + 2) else { return false };
        left = rest;
        true
    };
    lines.take_while(room).count()
}

/// Its bytes in a JSON string. A cleaned text has nothing else that is escaped.
fn encoded(line: &str) -> usize {
    line.len() + line.bytes().filter(|byte| matches!(byte, b'"' | b'\\' | b'\t' | b'\n')).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::clean;
    use super::*;

    #[test]
    fn what_has_room_is_shown_whole_from_its_line_on() {
        let shown = lines("a\nb\nc\n", 2, 1_000);
        let whole = Lines { text: "b\nc".to_owned(), lines: 3, not_shown: None };
        assert_eq!(shown, whole);
        assert_eq!(lines("a\nb", 3, 1_000).text, "");
        assert_eq!(lines("", 1, 1_000).lines, 0);
    }

    #[test]
    fn the_next_part_begins_where_the_last_one_ended() {
        let text: Vec<String> = (1..=1_000).map(|n| format!("line {n}")).collect();
        let (text, mut from, mut seen) = (text.join("\n"), 1, vec![]);
        loop {
            let shown = lines(&text, from, 800);
            let head = shown.text.lines().take_while(|line| !line.starts_with('…'));
            seen.extend(head.map(str::to_owned));
            assert!(shown.text.ends_with("line 1000"));
            let Some((first, last)) = shown.not_shown else { break };
            assert!(first > from && last < 1_000);
            from = first;
        }
        assert_eq!(seen.join("\n"), text);
    }

    #[test]
    fn one_endless_line_is_cut() {
        let shown = lines(&"x".repeat(100_000), 1, 8_000);
        assert!(shown.text.contains("bytes not shown") && shown.text.len() < 4_000);
        assert_eq!((shown.lines, shown.not_shown), (1, None));
    }

    proptest! {
        #[test]
        fn it_has_room_as_json_and_all_is_shown_or_named(
            text in "([\"\\\\a-zé\t]{0,300}\n?){0,40}",
            from in 1_u64..60,
        ) {
            let text = clean(&text);
            let shown = lines(&text, from, 1_024);
            prop_assert!(serde_json::to_string(&shown.text).unwrap().len() < 1_024 + 100);
            let missing = shown.not_shown.map_or(0, |(first, last)| last + 1 - first);
            let gaps = u64::from(shown.not_shown.is_some());
            let wanted = (text.lines().count() as u64).saturating_sub(from - 1);
            prop_assert!(missing <= wanted);
            prop_assert!(shown.not_shown.is_none_or(|(first, _)| first > from));
            // A cut line brings two line ends of its own.
            let cuts = shown.text.matches("bytes not shown").count() as u64;
            let joined = wanted - missing + gaps + 2 * cuts;
            prop_assert_eq!(shown.text.split('\n').count() as u64, joined.max(1));
        }
    }
}
