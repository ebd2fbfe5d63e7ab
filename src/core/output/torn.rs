//! What a cut tears apart at the edge of a stream's head or tail. Owns what is dropped there, so
//! that neither half a character nor a usable part of a secret is kept.

/// At most so much of a torn word is dropped; what is longer is no word.
const WORD_BYTES_MAX: usize = 512;
/// A shorter piece of a secret is of no use.
const PIECE_BYTES_MIN: usize = 8;
/// Bytes of the longest character, less one.
const PARTIAL_BYTES_MAX: usize = 3;

/// Without a character at the end that only began, and how many bytes that was.
pub(super) fn without_torn_end(bytes: &[u8]) -> (&[u8], usize) {
    for n in 1..=PARTIAL_BYTES_MAX.min(bytes.len()) {
        let (rest, end) = bytes.split_at(bytes.len() - n);
        let begins = end.first().is_some_and(|b| b & 0b1100_0000 == 0b1100_0000);
        if begins {
            // Incomplete, not wrong: more bytes would have made it a character.
            let torn = std::str::from_utf8(end).is_err_and(|e| e.error_len().is_none());
            return if torn { (rest, n) } else { (bytes, 0) };
        }
    }
    (bytes, 0)
}

/// Without the rest of a character at the start, and how many bytes that was.
pub(super) fn without_torn_start(bytes: &[u8]) -> (&[u8], usize) {
    let n = bytes.iter().take(PARTIAL_BYTES_MAX).take_while(|b| **b & 0xc0 == 0x80).count();
    let (_, rest) = bytes.split_at(n);
    (rest, n)
}

const fn in_word(c: char) -> bool {
    matches!(c, 'a'..='z' | 'A'..='Z' | '0'..='9' | '_' | '-' | '.' | '+' | '/' | '=' | '%' | '~')
}

/// Random tokens mix letters of both cases or digits; words and rulers do not.
pub(in crate::core) fn is_mixed(word: &str) -> bool {
    let any = |f: fn(&u8) -> bool| usize::from(word.as_bytes().iter().any(f));
    let classes =
        any(u8::is_ascii_lowercase) + any(u8::is_ascii_uppercase) + any(u8::is_ascii_digit);
    word.len() >= PIECE_BYTES_MIN && classes >= 2
}

/// Without the word at the end, where that may be the beginning of a secret.
pub(super) fn without_torn_secret_at_end(text: &str) -> &str {
    let rest = text.trim_end_matches(in_word);
    let keep = rest.len().max(text.len().saturating_sub(WORD_BYTES_MAX));
    // A word is ASCII, so this is between characters.
    match text.split_at_checked(keep) {
        Some((before, word)) if is_mixed(word) => before,
        Some(_) | None => text,
    }
}

/// Without the word at the start, where that may be the end of a secret, and without the rest of a
/// private key.
pub(super) fn without_torn_secret_at_start(text: &str) -> &str {
    let text = after_private_key(text).unwrap_or(text);
    let word = text.len() - text.trim_start_matches(in_word).len();
    match text.split_at_checked(word.min(WORD_BYTES_MAX)) {
        Some((word, after)) if is_mixed(word) => after,
        Some(_) | None => text,
    }
}

/// What follows the end of a private key whose beginning is not in the text.
fn after_private_key(text: &str) -> Option<&str> {
    let (before, rest) = text.split_once("-----END ")?;
    let (kind, after) = rest.split_once("-----")?;
    let torn = kind.contains("PRIVATE KEY") && !before.contains("-----BEGIN ");
    torn.then_some(after)
}
