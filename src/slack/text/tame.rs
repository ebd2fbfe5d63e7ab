//! Mentions made inert. Owns what Slack takes for a call to people, in mrkdwn and in Markdown. Must
//! not know whose text it is: only the bot's own words, which nobody asked for, may call people,
//! and it has none that do.

/// Words after `<!` that Slack acts on.
const COMMANDS: [&str; 6] = ["channel", "here", "everyone", "group", "subteam", "date"];
/// Words after `@` that call everybody.
const MASSES: [&str; 3] = ["channel", "here", "everyone"];
/// So many unseen characters are looked through for what follows.
const UNSEEN_MAX: usize = 32;
/// Longest name of an entity.
const ENTITY_BYTES_MAX: usize = 10;
/// Letters that are compared.
const WORD_CHARS_MAX: usize = 12;

/// The text with every mention written so that it is read as before and calls nobody: `<` becomes
/// `‹` and `@` becomes `＠`. A replaced character cannot come back to life, however often Slack
/// decodes, joins or cleans the text. Control characters go, lines end with `\n`.
pub(super) fn tame(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut before = ' ';
    // The `>` of a form that was made inert goes with its `<`.
    let mut closes = false;
    for (at, c) in text.char_indices() {
        let rest = text.get(at + c.len_utf8()..).unwrap_or_default();
        match c {
            '<' if is_live(rest) => {
                closes = true;
                out.push('‹');
            }
            '>' if closes => {
                closes = false;
                out.push('›');
            }
            '@' if calls_masses(rest) && !before.is_ascii_alphanumeric() => out.push('＠'),
            // Markdown may be decoded before it is looked at for mentions.
            '&' if is_encoded(text.get(at..).unwrap_or_default()) => out.push('＆'),
            '\n' | '\t' => out.push(c),
            '\u{2028}' | '\u{2029}' => out.push('\n'),
            _ if c.is_control() => {}
            _ => out.push(c),
        }
        closes = closes && c != '\n';
        before = c;
    }
    out
}

/// Is this an encoded `<` or `@` that would call somebody?
fn is_encoded(text: &str) -> bool {
    match entity(text) {
        Some(('<', rest)) => is_live(rest),
        Some(('@', rest)) => calls_masses(rest),
        Some(_) | None => false,
    }
}

/// The character that an entity at the beginning stands for, and what follows it.
fn entity(text: &str) -> Option<(char, &str)> {
    let near = text.get(..text.floor_char_boundary(2 * ENTITY_BYTES_MAX)).unwrap_or(text);
    let (name, _) = near.strip_prefix('&')?.split_once(';')?;
    let rest = text.get(name.len() + 2..)?;
    let c = match name {
        "lt" | "LT" => '<',
        "commat" => '@',
        "excl" => '!',
        "num" => '#',
        _ if name.len() > ENTITY_BYTES_MAX => return None,
        _ => {
            let number = name.strip_prefix('#')?;
            let code = match number.strip_prefix(['x', 'X']) {
                Some(number) => u32::from_str_radix(number, 16),
                None => number.parse(),
            };
            char::from_u32(code.ok()?)?
        }
    };
    Some((c, rest))
}

/// The characters of a text, decoded once.
struct Decoded<'a>(&'a str);

impl Iterator for Decoded<'_> {
    type Item = char;

    fn next(&mut self) -> Option<char> {
        if let Some((c, rest)) = entity(self.0) {
            self.0 = rest;
            return Some(c);
        }
        let c = self.0.chars().next()?;
        self.0 = self.0.get(c.len_utf8()..).unwrap_or_default();
        Some(c)
    }
}

/// Does what stands after a `<` make it one of Slack's forms?
fn is_live(rest: &str) -> bool {
    let mut seen = Decoded(rest).scan(0, unseen_run).filter(|c| !is_unseen(*c) && *c != '\\');
    let kind = seen.next();
    let word: String = seen
        .take_while(char::is_ascii_alphanumeric)
        .take(WORD_CHARS_MAX)
        .map(|c| c.to_ascii_lowercase())
        .collect();
    match kind {
        Some('!') => COMMANDS.iter().any(|command| word.starts_with(command)),
        Some('@') => word.starts_with(['u', 'w']),
        Some('#') => word.starts_with(['c', 'g', 'd']),
        Some(_) | None => false,
    }
}

/// Does what stands after an `@` make it a call to everybody?
fn calls_masses(rest: &str) -> bool {
    let word: String = Decoded(rest)
        .scan(0, unseen_run)
        .filter(|c| !is_zero_width(*c))
        .take(WORD_CHARS_MAX)
        .take_while(char::is_ascii_alphabetic)
        .map(|c| c.to_ascii_lowercase())
        .collect();
    MASSES.contains(&word.as_str())
}

/// Ends a text in which too much is unseen: looking on would cost its length for each character.
fn unseen_run(run: &mut usize, c: char) -> Option<char> {
    *run = if is_unseen(c) { *run + 1 } else { 0 };
    (*run <= UNSEEN_MAX).then_some(c)
}

fn is_unseen(c: char) -> bool {
    c != '\n' && (c.is_whitespace() || c.is_control() || is_zero_width(c))
}

fn is_zero_width(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}'
        | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
        | '\u{e0000}'..='\u{e0fff}')
}
