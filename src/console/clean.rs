//! Text that a terminal may see. Owns the removal of everything that would steer it.
//! Must not know whose text it is.
//!
//! Work is done line by line, so that text cleaned while it streams is the same as the whole
//! text cleaned at once.

use unicode_width::UnicodeWidthChar;

/// One line without control sequences, control characters and marks that turn the reading
/// direction. Tabs stay.
pub(super) fn line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\u{1b}' => skip_escape(&mut rest),
            '\u{9b}' => skip_csi(&mut rest),
            '\u{90}' | '\u{98}' | '\u{9d}' | '\u{9e}' | '\u{9f}' => skip_string(&mut rest),
            '\t' => out.push('\t'),
            '\u{2028}' | '\u{2029}' => out.push(' '),
            c if c.is_control() || turns_direction(c) => {}
            c => out.push(c),
        }
    }
    out
}

/// A text of several lines, each cleaned; line ends become `\n`.
pub(super) fn text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (i, part) in text.split('\n').enumerate() {
        if i > 0 {
            out.push('\n');
        }
        out.push_str(&line(part));
    }
    out
}

/// A text as one line: line ends become spaces.
pub(super) fn one_line(text: &str) -> String {
    text.split('\n').map(|part| line(part).trim().to_owned()).collect::<Vec<_>>().join(" ")
}

/// At most `max` columns of a terminal, the last of them `…` when something is missing.
pub(super) fn cut(text: &str, max: usize) -> String {
    let columns = |c: char| c.width().unwrap_or(0);
    if text.chars().map(columns).sum::<usize>() <= max {
        return text.to_owned();
    }
    let mut room = max.saturating_sub(1);
    let fits = |c: &char| {
        let left = room.checked_sub(columns(*c));
        room = left.unwrap_or(0);
        left.is_some()
    };
    let mut out: String = text.chars().take_while(fits).collect();
    out.push('…');
    out
}

const fn turns_direction(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
}

type Rest<'a> = std::iter::Peekable<std::str::Chars<'a>>;

fn skip_escape(rest: &mut Rest<'_>) {
    match rest.peek() {
        Some('[') => {
            rest.next();
            skip_csi(rest);
        }
        Some(']' | 'P' | 'X' | '^' | '_') => {
            rest.next();
            skip_string(rest);
        }
        // Intermediates, then one final character.
        Some(' '..='/') => {
            while rest.next_if(|c| matches!(c, ' '..='/')).is_some() {}
            rest.next_if(|c| matches!(c, '0'..='~'));
        }
        Some('0'..='~') => {
            rest.next();
        }
        Some(_) | None => {}
    }
}

fn skip_csi(rest: &mut Rest<'_>) {
    while rest.next_if(|c| matches!(c, ' '..='?')).is_some() {}
    rest.next_if(|c| matches!(c, '@'..='~'));
}

/// A command string ends with BEL, ST, or the line.
fn skip_string(rest: &mut Rest<'_>) {
    while let Some(c) = rest.next() {
        match c {
            '\u{7}' | '\u{9c}' => return,
            '\u{1b}' => {
                rest.next_if_eq(&'\\');
                return;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_steers_a_terminal_is_left() {
        let table = [
            ("plain\ttext", "plain\ttext"),
            ("\u{1b}[31mred\u{1b}[0m", "red"),
            ("\u{1b}]0;title\u{7}after", "after"),
            ("\u{1b}]8;;http://x\u{1b}\\link\u{1b}]8;;\u{1b}\\", "link"),
            ("\u{9b}2Jx\u{9d}52;c;aGk=\u{9c}y", "xy"),
            ("\u{1b}(0lqk\u{1b}(B", "lqk"),
            ("\u{1b}cgone", "gone"),
            ("over\rwrite\u{8}\u{7f}\0", "overwrite"),
            ("ab\u{202e}cd\u{2066}", "abcd"),
            ("\u{1b}[", ""),
            ("\u{1b}", ""),
            ("\u{1b}]never closed", ""),
            ("héllo 漢字 🙂", "héllo 漢字 🙂"),
        ];
        for (given, wanted) in table {
            assert_eq!(line(given), wanted, "{given:?}");
        }
    }

    #[test]
    fn a_sequence_over_a_line_end_cannot_hide_what_follows() {
        assert_eq!(text("a\u{1b}]0;x\nb"), "a\nb");
        assert_eq!(text("a\r\nb"), "a\nb");
        assert_eq!(one_line("a\n  b\u{2028}c"), "a b c");
    }

    #[test]
    fn a_cut_is_shown() {
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("abcd", 4), "abcd");
        assert_eq!(cut("漢字漢字", 8), "漢字漢字");
        assert_eq!(cut("漢字漢字", 7), "漢字漢…");
        assert_eq!(cut("漢字漢字", 6), "漢字…");
    }

    proptest::proptest! {
        #[test]
        fn no_control_character_survives(given in "\\PC*|(\\x1b|\\[|\\]|[\\x00-\\x9f]|.)*") {
            let cleaned = text(&given);
            let steers = |c: char| c.is_control() && c != '\n' && c != '\t';
            proptest::prop_assert!(!cleaned.chars().any(steers));
        }
    }
}
