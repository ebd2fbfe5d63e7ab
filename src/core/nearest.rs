//! What somebody probably meant. Owns the measure of "nearly the same word" behind every
//! "did you mean", and how somebody else's text is repeated in an error.
//! Must not know whose words they are.

use super::limits::ECHO_CHARS_MAX;

/// The candidate nearest to `word`, if one is near enough to be meant.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Longer texts are no slips of the pen, and the measure costs their product.
    if word.chars().count() > ECHO_CHARS_MAX {
        return None;
    }
    let word = plain(word);
    candidates
        .into_iter()
        .filter(|candidate| candidate.chars().count() <= ECHO_CHARS_MAX)
        .map(|candidate| (distance(&word, &plain(candidate)), candidate))
        .filter(|(far, candidate)| *far <= candidate.chars().count().max(3) / 3)
        .min_by_key(|(far, _)| *far)
        .map(|(_, candidate)| candidate)
}

/// Somebody's text as an error may repeat it: one short line, in quotes.
pub fn echo(text: &str) -> String {
    let mut short: String = text.chars().take(ECHO_CHARS_MAX).flat_map(visible).collect();
    if text.chars().nth(ECHO_CHARS_MAX).is_some() {
        short.push('…');
    }
    format!("'{short}'")
}

fn visible(c: char) -> Vec<char> {
    let seen = !c.is_control() && !matches!(c, '\u{2028}' | '\u{2029}' | '\u{200b}'..='\u{200f}');
    if seen { vec![c] } else { c.escape_unicode().collect() }
}

fn plain(word: &str) -> String {
    word.chars()
        .filter(|c| !matches!(c, '_' | '-' | ' ' | '.'))
        .flat_map(char::to_lowercase)
        .collect()
}

/// Letters to insert, remove, replace, or swap with the next.
fn distance(a: &str, b: &str) -> usize {
    let mut before: Vec<usize> = vec![];
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    let mut last = None;
    for (i, x) in a.chars().enumerate() {
        let mut next = vec![i + 1];
        let mut beside = None;
        for (j, y) in b.chars().enumerate() {
            let at = |row: &[usize], j: usize| row.get(j).copied().unwrap_or(usize::MAX / 2);
            let mut best =
                (at(&row, j) + usize::from(x != y)).min(at(&row, j + 1) + 1).min(at(&next, j) + 1);
            if j > 0 && last == Some(y) && beside == Some(x) {
                best = best.min(at(&before, j - 1) + 1);
            }
            next.push(best);
            beside = Some(y);
        }
        before = std::mem::replace(&mut row, next);
        last = Some(x);
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{echo, nearest};

    #[test]
    fn a_slip_is_recognised_and_another_word_is_not() {
        let words = ["timeout_seconds", "python", "name"];
        for (word, meant) in [
            ("timeoutSeconds", Some("timeout_seconds")),
            ("timeout", None),
            ("timeout_secs", Some("timeout_seconds")),
            ("pyton", Some("python")),
            ("Name", Some("name")),
            ("pyhton", Some("python")),
            ("naem", Some("name")),
            ("hosts", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, words), meant, "{word}");
        }
    }

    #[test]
    fn an_echo_is_one_short_visible_line() {
        assert_eq!(echo("a\nb\u{0}"), "'a\\u{a}b\\u{0}'");
        assert!(echo(&"x".repeat(10_000)).chars().count() < 100);
    }
}
