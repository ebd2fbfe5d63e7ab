//! Text without anything that steers a terminal, a log or a JSON reader. Owns what is taken out.

use std::iter::Peekable;
use std::str::Chars;

const ESCAPE: char = '\u{1b}';

/// Takes out escape sequences, controls other than new line and tab, direction overrides and
/// invisible tags. Every sort of line end becomes `\n`. Idempotent.
pub fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\n' | '\t' => out.push(c),
            '\r' => {
                if chars.peek() == Some(&'\n') {
                    chars.next();
                }
                out.push('\n');
            }
            '\u{85}' | '\u{2028}' | '\u{2029}' => out.push('\n'),
            ESCAPE => escape(&mut chars),
            '\u{9b}' => control_sequence(&mut chars),
            '\u{90}' | '\u{98}' | '\u{9d}' | '\u{9e}' | '\u{9f}' => string_sequence(&mut chars),
            _ if c.is_control() || steers(c) => {}
            _ => out.push(c),
        }
    }
    out
}

/// A cleaned text on one line: any white space becomes one space, none at either end.
pub fn one_line(text: &str) -> String {
    clean(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Characters that show nothing and change how or in which order others are read.
const fn steers(c: char) -> bool {
    matches!(c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

fn escape(chars: &mut Peekable<Chars<'_>>) {
    match chars.peek() {
        Some('[') => {
            chars.next();
            control_sequence(chars);
        }
        Some(']' | 'P' | 'X' | '^' | '_') => {
            chars.next();
            string_sequence(chars);
        }
        Some(_) => {
            while chars.next_if(|c| matches!(c, ' '..='/')).is_some() {}
            chars.next_if(|c| matches!(c, '0'..='~'));
        }
        None => {}
    }
}

/// Parameters, intermediates and one final character.
fn control_sequence(chars: &mut Peekable<Chars<'_>>) {
    while chars.next_if(|c| matches!(c, ' '..='?')).is_some() {}
    chars.next_if(|c| matches!(c, '@'..='~'));
}

/// Up to BEL or ST. One that is never ended loses its introducer alone, so that output is not
/// swallowed; a line end or another escape ends the search, so each character is looked at once
/// more at most.
fn string_sequence(chars: &mut Peekable<Chars<'_>>) {
    let mut ahead = chars.clone();
    while let Some(c) = ahead.next() {
        match c {
            '\u{7}' | '\u{9c}' => {
                *chars = ahead;
                return;
            }
            ESCAPE => {
                if ahead.next() == Some('\\') {
                    *chars = ahead;
                }
                return;
            }
            '\n' | '\r' => return,
            _ => {}
        }
    }
}
