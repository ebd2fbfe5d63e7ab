//! Is it from Slack? Owns the check of the signature of a request. Must not know what is in it.
//!
//! Slack signs `v0:TIME:BODY` with HMAC-SHA-256 and the app's secret, over the bytes as they come.
//! A request without a right signature is refused, whatever is wrong with it.

use hmac::{Hmac, KeyInit, Mac};
use secrecy::{ExposeSecret, SecretString};
use sha2::Sha256;

use crate::core::limits::SLACK_SKEW_MS_MAX;
use crate::core::time::Timestamp;

/// When it was signed, in seconds.
pub const TIME: &str = "x-slack-request-timestamp";
/// The signature.
pub const SIGNATURE: &str = "x-slack-signature";

/// Why a request is not believed to be from Slack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// A header is missing, stands there twice, or has another form.
    #[error("it has no signature of Slack's form")]
    Form,
    /// It may be an old one, sent again by somebody else.
    #[error("it was signed {0} s from now: is this machine's clock right?")]
    Time(u64),
    /// It was not signed with this secret.
    #[error("its signature is wrong: is [slack] signing_secret that of this app?")]
    Wrong,
    /// There is nothing to compare it with.
    #[error("there is no secret to check it with")]
    Secret,
}

/// What a request has of each of the two headers, one for each time that it stands there.
#[derive(Debug, Clone, Default)]
pub struct Signed<'a> {
    /// [`TIME`].
    pub time: Vec<&'a [u8]>,
    /// [`SIGNATURE`].
    pub signature: Vec<&'a [u8]>,
}

/// Is the body from Slack?
pub fn check(
    signed: &Signed<'_>,
    body: &[u8],
    secret: &SecretString,
    now: Timestamp,
) -> Result<(), SignatureError> {
    let ([time], [signature]) = (signed.time.as_slice(), signed.signature.as_slice()) else {
        return Err(SignatureError::Form);
    };
    let seconds = seconds(time).ok_or(SignatureError::Form)?;
    let given = signature.strip_prefix(b"v0=").and_then(bytes).ok_or(SignatureError::Form)?;
    let at = Timestamp::from_ms(seconds.saturating_mul(1_000));
    let skew_ms = at.since_ms(now).max(now.since_ms(at));
    if skew_ms > SLACK_SKEW_MS_MAX {
        return Err(SignatureError::Time(skew_ms / 1_000));
    }
    let secret = secret.expose_secret();
    if secret.is_empty() {
        return Err(SignatureError::Secret);
    }
    let mut mac =
        Hmac::<Sha256>::new_from_slice(secret.as_bytes()).map_err(|_| SignatureError::Secret)?;
    for part in [b"v0:".as_slice(), time, b":", body] {
        mac.update(part);
    }
    // Takes as long wherever they differ.
    mac.verify_slice(&given).map_err(|_| SignatureError::Wrong)
}

fn seconds(text: &[u8]) -> Option<u64> {
    let digits = !text.is_empty() && text.len() <= 12 && text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| digits)?.parse().ok()
}

/// Of 64 hexadecimal digits.
fn bytes(text: &[u8]) -> Option<[u8; 32]> {
    let digits: Option<Vec<u8>> = text.iter().map(|c| digit(*c)).collect();
    let pairs: Vec<u8> = digits?
        .chunks_exact(2)
        .map(|pair| pair.iter().fold(0, |byte, digit| byte * 16 + digit))
        .collect();
    if text.len() == 64 { pairs.try_into().ok() } else { None }
}

const fn digit(c: u8) -> Option<u8> {
    match c {
        b'0'..=b'9' => Some(c - b'0'),
        b'a'..=b'f' => Some(c - b'a' + 10),
        b'A'..=b'F' => Some(c - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
