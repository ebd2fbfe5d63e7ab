//! What went wrong with a model call, and whose fault it is. Owns the way from a status, a header
//! or a provider's words to a `ModelError`, and what of them may be shown. Must not know how an
//! answer is read.

use std::error::Error as _;

use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};
use reqwest::{StatusCode, Url};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use crate::core::limits::{MODEL_RETRY_AFTER_MS_MAX, MODEL_SAID_CHARS_MAX};
use crate::core::message::ModelError;
use crate::core::time::Timestamp;

/// Shorter texts are no secrets: taking them out would only garble the message.
const SECRET_BYTES_MIN: usize = 6;
/// How well-known keys begin.
const KEY_PREFIXES: [&str; 10] =
    ["sk-", "sk_", "xai-", "gsk_", "hf_", "key-", "AIza", "xox", "ghp_", "eyJ"];

/// Makes a foreign text fit to be shown: known secrets, key-like words and the private parts of
/// URLs are taken out, control characters become spaces, the length is bounded.
#[derive(Debug, Default)]
pub(crate) struct Scrub {
    known: Vec<SecretString>,
}

impl Scrub {
    /// With the secrets that this client holds.
    pub(crate) fn new(known: impl IntoIterator<Item = SecretString>) -> Self {
        let long = |secret: &SecretString| secret.expose_secret().len() >= SECRET_BYTES_MIN;
        Self { known: known.into_iter().filter(long).collect() }
    }

    /// The text, fit to be shown.
    pub(crate) fn clean(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in &self.known {
            text = text.replace(secret.expose_secret(), "[secret]");
        }
        let mut words: Vec<String> = Vec::new();
        let mut bearer = false;
        for word in text.split(|c: char| c.is_whitespace() || c.is_control()) {
            if word.is_empty() {
                continue;
            }
            words.push(if bearer { "[secret]".to_owned() } else { clean_word(word) });
            bearer = word.trim_matches(|c: char| !c.is_alphabetic()).eq_ignore_ascii_case("bearer");
        }
        cut(&words.join(" "))
    }
}

fn clean_word(word: &str) -> String {
    let core = word.trim_start_matches(|c: char| !c.is_alphanumeric());
    if KEY_PREFIXES.iter().any(|prefix| core.starts_with(prefix)) && core.len() > 8 {
        return "[secret]".to_owned();
    }
    match Url::parse(core.trim_end_matches(['.', ',', ')', '"', '\'', ';'])) {
        Ok(url) if url.has_host() => place(&url),
        Ok(_) | Err(_) => word.to_owned(),
    }
}

/// A URL without user, password, query and fragment.
pub(crate) fn place(url: &Url) -> String {
    format!("{}{}", url.origin().ascii_serialization(), url.path())
}

fn cut(text: &str) -> String {
    if text.chars().count() <= MODEL_SAID_CHARS_MAX {
        return text.to_owned();
    }
    let head: String = text.chars().take(MODEL_SAID_CHARS_MAX).collect();
    format!("{head}…")
}

/// A request that did not come to an answer.
pub(crate) fn of_transport(error: &reqwest::Error, url: &Url, scrub: &Scrub) -> ModelError {
    if error.is_body() || error.is_decode() {
        return outage("the connection broke before the answer was whole");
    }
    let place = url.origin().ascii_serialization();
    let what = if error.is_connect() {
        format!("cannot connect to {place}")
    } else if error.is_timeout() {
        format!("no answer in time from {place}")
    } else {
        format!("the connection to {place} broke")
    };
    // The error itself shows the URL. The last cause is the one that helps: "connection refused",
    // "certificate expired".
    let mut cause = error.source();
    while let Some(deeper) = cause.and_then(std::error::Error::source) {
        cause = Some(deeper);
    }
    let said = cause.map(|cause| format!(": {}", scrub.clean(&cause.to_string())));
    let cure = if error.is_connect() { "; is it running, and is base_url right?" } else { "" };
    outage(format!("{what}{}{cure}", said.unwrap_or_default()))
}

/// An outage that names no time.
pub(crate) fn outage(what: impl Into<String>) -> ModelError {
    ModelError::Outage { what: what.into(), retry_after_ms: None }
}

/// An answer that cannot be used.
pub(crate) fn garbled(what: impl Into<String>) -> ModelError {
    ModelError::Garbled { what: what.into() }
}

/// An answer whose status is not a success.
pub(crate) fn of_status(
    status: u16,
    headers: &HeaderMap,
    body: &[u8],
    now: Timestamp,
    scrub: &Scrub,
) -> ModelError {
    let said = serde_json::from_slice(body).ok().and_then(|body: Value| message_of(&body));
    let said = said.map(|said| format!(": {}", scrub.clean(&said))).unwrap_or_default();
    let cure = match status {
        300..=399 => "; base_url redirects, and a key is not sent elsewhere: name the final URL",
        401 => "; check api_key in [model], then start dogwatch again",
        403 => "; its api_key may not use this model: check [model], then start dogwatch again",
        404 => {
            "; check base_url (it ends before /chat/completions) and model in [model], then start \
             dogwatch again"
        }
        _ => "",
    };
    let words = StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
    let words = words.map(|words| format!(" {words}")).unwrap_or_default();
    let what = format!("HTTP {status}{words}{said}{cure}");
    match status {
        408 | 409 | 425 | 429 | 500..=599 => {
            ModelError::Outage { what, retry_after_ms: retry_after_ms(headers, now) }
        }
        _ => ModelError::Refused { what },
    }
}

/// An error event inside a stream, or an error object with status 200.
pub(crate) fn in_answer(error: &Value, scrub: &Scrub) -> ModelError {
    let said = error.as_str().map(str::to_owned).or_else(|| message_of(error));
    let said = said.unwrap_or_else(|| "no message".to_owned());
    let what = format!("an error instead of the answer: {}", scrub.clean(&said));
    let field = |name: &str| error.get(name).map(plain).unwrap_or_default();
    let (code, kind) = (field("code"), field("type"));
    let blames = |word: &str| {
        word.starts_with("invalid_request")
            || word.starts_with("context_length")
            || word.starts_with("authentication")
            || word.starts_with("permission")
            || word.starts_with("not_found")
            || matches!(word, "400" | "401" | "403" | "404" | "413" | "422")
    };
    // The stream had begun, so the request was taken: only clear words blame it.
    if blames(&code) || blames(&kind) { ModelError::Refused { what } } else { outage(what) }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The message in an error body, wherever the many servers put it. Never the body itself.
fn message_of(body: &Value) -> Option<String> {
    let body = body.get(0).unwrap_or(body);
    let places = ["/error/message", "/error", "/message", "/detail", "/detail/0/msg"];
    places.iter().find_map(|place| body.pointer(place)?.as_str().map(str::to_owned))
}

/// Does a refusal blame `stream_options`, which older servers do not know?
pub(crate) fn blames_stream_options(status: u16, body: &[u8]) -> bool {
    matches!(status, 400 | 422) && String::from_utf8_lossy(body).contains("stream_options")
}

/// How long the provider asks us to wait, by whichever header it uses.
pub(crate) fn retry_after_ms(headers: &HeaderMap, now: Timestamp) -> Option<u64> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let exact = || ms_of(text("retry-after-ms")?.parse().ok()?);
    let standard = || {
        let value = text(RETRY_AFTER.as_str())?;
        if let Ok(seconds) = value.parse::<f64>() {
            return ms_of(seconds * 1000.0);
        }
        // Against the provider's own clock where it says it, so that ours may be wrong.
        let from = text(DATE.as_str()).and_then(http_date).unwrap_or(now);
        Some(http_date(value)?.since_ms(from))
    };
    let limits = || {
        let spent = |what: &str| {
            let left = text(&format!("x-ratelimit-remaining-{what}"))?;
            let reset = text(&format!("x-ratelimit-reset-{what}"))?;
            (left == "0").then(|| span_ms(reset)).flatten()
        };
        spent("requests").into_iter().chain(spent("tokens")).max()
    };
    exact().or_else(standard).or_else(limits).map(|ms| ms.min(MODEL_RETRY_AFTER_MS_MAX))
}

/// Whole milliseconds, rounded up; `None` for what is no span.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "the value is checked to lie between 0 and a small maximum"
)]
fn ms_of(ms: f64) -> Option<u64> {
    let top = MODEL_RETRY_AFTER_MS_MAX as f64;
    (ms >= 0.0).then(|| ms.min(top).ceil() as u64)
}

fn http_date(text: &str) -> Option<Timestamp> {
    let parsed = jiff::fmt::rfc2822::DateTimeParser::new()
        .relaxed_weekday(true)
        .parse_timestamp(text)
        .ok()?;
    u64::try_from(parsed.as_millisecond()).ok().map(Timestamp::from_ms)
}

/// A span as rate limit headers write it: `20ms`, `1.5s`, `6m0s`, `1h2m3s`, or plain seconds.
fn span_ms(text: &str) -> Option<u64> {
    if let Ok(seconds) = text.parse::<f64>() {
        return ms_of(seconds * 1000.0);
    }
    let mut total = 0.0;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(digits);
        let unit = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit);
        let factor = match unit {
            "ms" => 1.0,
            "s" => 1000.0,
            "m" => 60_000.0,
            "h" => 3_600_000.0,
            _ => return None,
        };
        total += number.parse::<f64>().ok()? * factor;
        rest = tail;
    }
    ms_of(total)
}

#[cfg(test)]
mod tests {
    use reqwest::header::{HeaderName, HeaderValue};

    use super::*;

    /// Headers and what they ask for.
    type Case = (&'static [(&'static str, &'static str)], Option<u64>);

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn finds_how_long_to_wait_in_every_header() {
        let now = Timestamp::from_ms(784_111_777_000);
        let cases: &[Case] = &[
            (&[], None),
            (&[("retry-after", "2")], Some(2_000)),
            (&[("retry-after", "0.25")], Some(250)),
            (&[("retry-after", "-1")], None),
            (&[("retry-after", "soon")], None),
            (&[("retry-after", "NaN")], None),
            (&[("retry-after", "1e300")], Some(MODEL_RETRY_AFTER_MS_MAX)),
            (&[("retry-after", "Sun, 06 Nov 1994 08:49:40 GMT")], Some(3_000)),
            (&[("retry-after", "Sun, 06 Nov 1994 08:49:00 GMT")], Some(0)),
            (
                &[
                    ("retry-after", "Sun, 06 Nov 2094 08:49:40 GMT"),
                    ("date", "Sun, 06 Nov 2094 08:49:33 GMT"),
                ],
                Some(7_000),
            ),
            (&[("retry-after-ms", "1200"), ("retry-after", "2")], Some(1_200)),
            (
                &[
                    ("x-ratelimit-remaining-requests", "0"),
                    ("x-ratelimit-reset-requests", "20ms"),
                    ("x-ratelimit-remaining-tokens", "0"),
                    ("x-ratelimit-reset-tokens", "1m1.5s"),
                ],
                Some(61_500),
            ),
            (
                &[
                    ("x-ratelimit-remaining-requests", "7"),
                    ("x-ratelimit-reset-requests", "1h"),
                    ("x-ratelimit-remaining-tokens", "0"),
                    ("x-ratelimit-reset-tokens", "6 days"),
                ],
                None,
            ),
        ];
        for (given, expected) in cases {
            assert_eq!(retry_after_ms(&headers(given), now), *expected, "{given:?}");
        }
    }

    #[test]
    fn b80_takes_secrets_out_of_foreign_words() {
        let scrub = Scrub::new(["hunter2hunter2".to_owned().into(), "ab".to_owned().into()]);
        let cases = [
            ("about hunter2hunter2, ab", "about [secret], ab"),
            ("Incorrect API key provided: sk-proj-1234abcd.", "provided: [secret]"),
            ("header 'Authorization: Bearer abc.def' is bad", "Bearer [secret] is bad"),
            ("see https://u:p@host.example/a?token=1#x.", "see https://host.example/a"),
            ("line\none\u{1b}[31m two", "line one [31m two"),
        ];
        for (given, expected) in cases {
            let got = scrub.clean(given);
            assert!(got.ends_with(expected), "{got}");
        }
        assert_eq!(scrub.clean(&"é".repeat(999)).chars().count(), MODEL_SAID_CHARS_MAX + 1);
    }

    #[test]
    fn reads_the_message_wherever_servers_put_it_and_nothing_else() {
        let said = |body: &str| {
            let scrub = Scrub::default();
            of_status(422, &HeaderMap::new(), body.as_bytes(), Timestamp::ZERO, &scrub).to_string()
        };
        let bodies = [
            r#"{"error":{"message":"no"}}"#,
            r#"{"error":"no"}"#,
            r#"{"message":"no"}"#,
            r#"{"detail":"no"}"#,
            r#"{"detail":[{"msg":"no","input":"private"}]}"#,
            r#"[{"error":{"message":"no"}}]"#,
        ];
        for body in bodies {
            let wanted = "the model refuses the request: HTTP 422 Unprocessable Entity: no";
            assert_eq!(said(body), wanted, "{body}");
        }
        let wanted = "the model refuses the request: HTTP 422 Unprocessable Entity";
        assert_eq!(said("<html>private"), wanted);
    }

    #[test]
    fn an_error_inside_an_answer_blames_the_request_only_in_clear_words() {
        let scrub = Scrub::default();
        let cases = [
            (r#"{"message":"x","type":"server_error"}"#, false),
            (r#"{"message":"x","code":429}"#, false),
            (r#"{"message":"x","code":"rate_limit_exceeded"}"#, false),
            (r#""Overloaded""#, false),
            ("{}", false),
            (r#"{"message":"x","type":"invalid_request_error"}"#, true),
            (r#"{"message":"x","code":"context_length_exceeded"}"#, true),
            (r#"{"message":"x","code":400}"#, true),
        ];
        for (error, refused) in cases {
            let got = in_answer(&serde_json::from_str(error).unwrap(), &scrub);
            assert_eq!(matches!(got, ModelError::Refused { .. }), refused, "{error}");
        }
    }
}
