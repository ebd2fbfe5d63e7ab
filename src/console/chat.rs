//! Names of chats. Owns how a chat's name becomes a session and an address, and back.
//! Must not know what is said in a chat.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

use crate::core::execution::Address;
use crate::core::id::{IdError, SessionId};
use crate::core::limits::CHAT_NAME_CHARS_MAX;

/// The surface of every address in a terminal.
pub const SURFACE: &str = "console";

/// A chat's name: letters, digits, `-`, `_` and `.`, at most [`CHAT_NAME_CHARS_MAX`] characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct ChatName(String);

/// Why a text is not a chat's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{given:?} is not a name for a chat: use 1 to {CHAT_NAME_CHARS_MAX} letters, digits, `-`, `_` \
     or `.`, for example `/chat deploys`"
)]
pub struct ChatNameError {
    given: String,
}

impl ChatName {
    /// Takes a well-formed name.
    pub fn new(text: impl Into<String>) -> Result<Self, ChatNameError> {
        let text = text.into();
        let fits = (1..=CHAT_NAME_CHARS_MAX).contains(&text.len());
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if fits && text.chars().all(plain) {
            Ok(Self(text))
        } else {
            Err(ChatNameError { given: text.chars().take(CHAT_NAME_CHARS_MAX + 1).collect() })
        }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its session, `console/NAME`.
    pub fn session(&self) -> Result<SessionId, IdError> {
        SessionId::new(format!("{SURFACE}/{self}"))
    }

    /// Where its posts go.
    pub fn address(&self) -> Address {
        Address { surface: SURFACE.to_owned(), thread: self.0.clone() }
    }

    /// The chat of a session, if it is one of a terminal.
    pub fn of_session(session: &SessionId) -> Option<Self> {
        let name = session.as_str().strip_prefix(SURFACE)?.strip_prefix('/')?;
        Self::new(name).ok()
    }

    /// The chat of an address, if it is of this surface.
    pub fn of(address: &Address) -> Option<Self> {
        (address.surface == SURFACE).then(|| Self::new(address.thread.clone()).ok()).flatten()
    }
}

impl fmt::Display for ChatName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for ChatName {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(d)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_an_address_and_back() {
        let chat = ChatName::new("deploys-2").unwrap();
        assert_eq!(chat.session().unwrap().as_str(), "console/deploys-2");
        assert_eq!(ChatName::of(&chat.address()), Some(chat.clone()));
        assert_eq!(ChatName::of_session(&chat.session().unwrap()), Some(chat));
    }

    #[test]
    fn a_name_cannot_leave_its_surface() {
        for bad in ["", "a/b", "a b", "é", "a\n", &"x".repeat(65)] {
            let error = ChatName::new(bad).unwrap_err().to_string();
            assert!(error.contains("letters, digits"), "{error}");
        }
        let elsewhere = Address { surface: "slack".to_owned(), thread: "main".to_owned() };
        assert_eq!(ChatName::of(&elsewhere), None);
    }
}
