//! What looks like a secret. Owns the patterns; none of them reaches past the end of a line.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use crate::core::output::is_mixed;

/// Whatever stands in the place of a secret is one.
const ANY: bool = false;
/// Only a word that mixes letters of both cases or digits is one: prose is not.
const MIXED: bool = true;

/// The groups `s`, `d` and `q` hold the secret; without them all of the match is.
const PATTERNS: [(&str, bool); 16] = [
    (r"xox[a-z](?:\.xox[a-z])?-[A-Za-z0-9-]{8,}", ANY),
    (r"xapp-[0-9]-[A-Za-z0-9-]{8,}", ANY),
    (r"hooks\.slack\.com/(?:services|workflows|triggers)/(?P<s>[A-Za-z0-9/_-]{8,})", ANY),
    (
        concat!(
            r#"(?i)\b(?:proxy-)?authorization\\?["']?[ \t]*[:=][ \t]*\\?["']?"#,
            r#"(?:(?:bearer|basic|token|digest|apikey)[ \t]+)?(?P<s>[^\s"',;\\]{3,})"#,
        ),
        ANY,
    ),
    (r"(?i)\b(?:bearer|basic)[ \t]+(?P<s>[A-Za-z0-9._~+/=-]{8,})", MIXED),
    (r"\bsk-[A-Za-z0-9_-]{16,}", MIXED),
    (
        concat!(
            r"(?:gh[pousr]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{16,}",
            r"|glpat-[A-Za-z0-9_-]{16,}|npm_[A-Za-z0-9]{30,}|[rs]k_(?:live|test)_[A-Za-z0-9]{8,}",
            r"|whsec_[A-Za-z0-9+/=]{16,}|AIza[A-Za-z0-9_-]{30,})",
        ),
        ANY,
    ),
    (r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b", ANY),
    (r"eyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]*", ANY),
    (r"(?i)[a-z][a-z0-9+.-]*://[^\s/?#@:]*:(?P<s>[^\s/?#@]+)@", ANY),
    (r"(?i)[a-z][a-z0-9+.-]*://(?P<s>[^\s/?#@:]{8,})@", MIXED),
    (
        concat!(
            r"(?i)[?&](?:[a-z_-]*token|sig|signature|key|[a-z_-]*api_?key|[a-z_-]*secret",
            r"|password|auth|code|x-amz-(?:signature|credential|security-token))",
            r#"=(?P<s>[^&\s#"'<>\\]+)"#,
        ),
        ANY,
    ),
    (
        concat!(
            r#"(?i)(?:password|passwd|passphrase)\\?["']?[ \t]*[:=]+[ \t]*\\?"#,
            r#"(?:"(?P<d>[^"\\]{3,})|'(?P<q>[^'\\]{3,})|(?P<s>[^\s"'&,;\\]{3,}))"#,
        ),
        ANY,
    ),
    (
        concat!(
            r"(?i)(?:secret|token|api[_-]?key|access[_-]?key|private[_-]?key)",
            r#"=(?P<s>[^\s"'&,;\\]{6,})"#,
        ),
        ANY,
    ),
    (
        concat!(
            r"(?i)(?:secret|token|api[_-]?key|access[_-]?key|private[_-]?key)",
            r#"\\?["']?[ \t]*[:=]+[ \t]*\\?["']?(?P<s>[^\s"'&,;\\]{8,})"#,
        ),
        MIXED,
    ),
    (r"(?i)\b(?:set-)?cookie[ \t]*:[ \t]*(?P<s>[^\s=;]+=[^\r\n]{4,})", ANY),
];

#[expect(clippy::expect_used, reason = "constant patterns; every test of this module runs them")]
static COMPILED: LazyLock<Vec<(Regex, bool)>> = LazyLock::new(|| {
    PATTERNS
        .iter()
        .map(|(pattern, check)| (Regex::new(pattern).expect("a constant pattern"), *check))
        .collect()
});

/// Where something in the line looks like a secret, in no order.
pub(super) fn ranges(line: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for (pattern, mixed) in COMPILED.iter() {
        for captures in pattern.captures_iter(line) {
            let secret = ["s", "d", "q"]
                .iter()
                .find_map(|name| captures.name(name))
                .or_else(|| captures.get(0));
            let secret = secret.filter(|s| !mixed || is_mixed(s.as_str()));
            found.extend(secret.map(|s| s.range()));
        }
    }
    found
}
