//! Tokens at rest: sealed, so that a copy of the store speaks for nobody. Owns the form of a sealed
//! text and the key. Must not know what a text is for, nor where it is kept.

use std::fmt;

use ring_crypto::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring_crypto::hkdf::{HKDF_SHA256, Salt};
use ring_crypto::rand::{SecureRandom as _, SystemRandom};
use secrecy::{ExposeSecret as _, SecretString};

/// What stands before a sealed text: the form, so that another one can follow.
const FORM: &str = "1:";
/// What the key is for. Another use of the same secret gives another key.
const USE: &[&[u8]] = &[b"dogwatch: tokens of Slack installations"];

/// Why a sealed text cannot be used. None of these holds a part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// Another key, another place, or damaged.
    #[error(
        "what is kept of its token was sealed with another key: put the old [slack.oauth] seal_key \
         (or client_secret, if there is none) back, or install the app again"
    )]
    Other,
    /// Written by something else.
    #[error("what is kept of its token is of an unknown form: install the app again")]
    Form,
    /// The machine gives no chance or no key.
    #[error("this machine gives no random numbers")]
    Chance,
}

/// Seals and opens.
pub struct Seal {
    key: LessSafeKey,
    chance: SystemRandom,
}

impl fmt::Debug for Seal {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seal").finish_non_exhaustive()
    }
}

impl Seal {
    /// With a key that is derived from `secret`.
    ///
    /// # Errors
    /// Where no key can be made.
    pub fn of(secret: &SecretString) -> Result<Self, SealError> {
        let secret = Salt::new(HKDF_SHA256, b"dogwatch").extract(secret.expose_secret().as_bytes());
        let derived = secret.expand(USE, &CHACHA20_POLY1305).map_err(|_| SealError::Chance)?;
        let key = LessSafeKey::new(UnboundKey::from(derived));
        Ok(Self { key, chance: SystemRandom::new() })
    }

    /// Seals `text` for `place`: it opens nowhere else.
    ///
    /// # Errors
    /// Where the machine gives no random numbers.
    pub fn close(&self, place: &str, text: &str) -> Result<String, SealError> {
        let mut nonce = [0; NONCE_LEN];
        self.chance.fill(&mut nonce).map_err(|_| SealError::Chance)?;
        let mut bytes = text.as_bytes().to_vec();
        let aad = Aad::from(place.as_bytes());
        self.key
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut bytes)
            .map_err(|_| SealError::Chance)?;
        Ok(format!("{FORM}{}{}", hex(&nonce), hex(&bytes)))
    }

    /// Opens what was sealed for `place`.
    ///
    /// # Errors
    /// Where it was sealed with another key or for another place.
    pub fn open(&self, place: &str, sealed: &str) -> Result<SecretString, SealError> {
        let bytes = sealed.strip_prefix(FORM).and_then(unhex).ok_or(SealError::Form)?;
        let (nonce, bytes) = bytes.split_at_checked(NONCE_LEN).ok_or(SealError::Form)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| SealError::Form)?;
        let (mut bytes, aad) = (bytes.to_vec(), Aad::from(place.as_bytes()));
        let text = self.key.open_in_place(nonce, aad, &mut bytes).map_err(|_| SealError::Other)?;
        let text = std::str::from_utf8(text).map_err(|_| SealError::Form)?;
        Ok(SecretString::from(text.to_owned()))
    }
}

/// 256 random bits, as text.
///
/// # Errors
/// Where the machine gives none.
pub(super) fn chance() -> Result<String, SealError> {
    let mut bytes = [0; 32];
    SystemRandom::new().fill(&mut bytes).map_err(|_| SealError::Chance)?;
    Ok(hex(&bytes))
}

/// In lower case.
pub(super) fn hex(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    let digit = |four: u8| DIGITS.get(usize::from(four)).copied().unwrap_or('0');
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|c| c.to_digit(16).and_then(|four| u8::try_from(four).ok())).collect();
    let digits = digits?;
    let pairs = digits.chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return None;
    }
    pairs.map(|pair| if let [high, low] = pair { Some(high << 4 | low) } else { None }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seal(secret: &str) -> Seal {
        Seal::of(&SecretString::from(secret.to_owned())).unwrap()
    }

    #[test]
    fn what_is_sealed_opens_with_its_key_in_its_place_alone() {
        let sealed = seal("a").close("slack/T1", "xoxb-1").unwrap();
        assert!(!sealed.contains("xoxb"), "{sealed}");
        let open = |secret: &str, place: &str, sealed: &str| {
            seal(secret).open(place, sealed).map(|text| text.expose_secret().to_owned())
        };
        assert_eq!(open("a", "slack/T1", &sealed), Ok("xoxb-1".to_owned()));
        assert_eq!(open("b", "slack/T1", &sealed), Err(SealError::Other));
        assert_eq!(open("a", "slack/T2", &sealed), Err(SealError::Other));
        let mut damaged = sealed.clone();
        let last = if damaged.pop() == Some('0') { '1' } else { '0' };
        damaged.push(last);
        assert_eq!(open("a", "slack/T1", &damaged), Err(SealError::Other));
        for odd in ["", "1:", "1:zz", "2:00", "1:000", &sealed[..20]] {
            assert_eq!(open("a", "slack/T1", odd), Err(SealError::Form), "{odd}");
        }
        assert_ne!(seal("a").close("slack/T1", "xoxb-1").unwrap(), sealed);
    }

    #[test]
    fn chance_is_long_and_never_the_same() {
        assert_eq!(chance().unwrap().len(), 64);
        assert_ne!(chance().unwrap(), chance().unwrap());
    }
}
