//! Where something is said in Slack: an installation, a channel, a thread. Owns how that is written
//! as a session, an address and a person. Must not know messages.

use crate::core::execution::Address;
use crate::core::id::{IdError, Principal, SessionId};
use crate::core::time::Timestamp;

/// The surface of addresses that Slack serves.
pub const SURFACE: &str = "slack";

/// Longest id of Slack's, in bytes: those seen have 9 to 11.
const WORD_BYTES_MAX: usize = 32;

/// Why something is no place in Slack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// Not letters and digits, or too many.
    #[error("{0} is not an id of Slack's: up to 32 capital letters and digits, such as C0123ABCD")]
    Word(&'static str),
    /// Not seconds, a dot and six digits.
    #[error("{0} is not a time stamp of Slack's, such as 1700000000.000100")]
    Stamp(&'static str),
    /// Not three parts.
    #[error("an address in Slack is INSTALLATION/CHANNEL/THREAD")]
    Address,
}

/// A thread: where a conversation is, and where its answers go. Frozen with whatever it starts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Thread {
    installation: String,
    channel: String,
    root: String,
}

/// Longest id of what made Slack send something, in bytes: those seen have 50.
const TRIGGER_BYTES_MAX: usize = 100;

/// Is it written as Slack names what made it send something?
pub(super) fn is_trigger(text: &str) -> bool {
    let fine = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '-';
    !text.is_empty() && text.len() <= TRIGGER_BYTES_MAX && text.chars().all(fine)
}

/// A channel: where people read, without a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spot {
    installation: String,
    channel: String,
}

impl Spot {
    /// A channel or direct message.
    pub fn new(installation: &str, channel: &str) -> Result<Self, PlaceError> {
        Ok(Self {
            installation: word("the installation", installation)?,
            channel: word("the channel", channel)?,
        })
    }

    /// The channel that an address names, if it names no thread.
    pub fn of(address: &Address) -> Result<Self, PlaceError> {
        match address.thread.split_once('/') {
            Some((installation, channel)) => Self::new(installation, channel),
            None => Err(PlaceError::Address),
        }
    }

    /// The enterprise or team that the bot is installed in.
    pub fn installation(&self) -> &str {
        &self.installation
    }

    /// The channel or direct message.
    pub fn channel(&self) -> &str {
        &self.channel
    }

    /// As an address; nothing but the first message of a thread is posted there.
    pub fn address(&self) -> Address {
        let Self { installation, channel } = self;
        Address { surface: SURFACE.to_owned(), thread: format!("{installation}/{channel}") }
    }

    /// What belongs to it and to no thread of it, such as `slack/T1/C2`.
    pub fn session(&self) -> Result<SessionId, IdError> {
        SessionId::new(format!("{SURFACE}/{}", self.address().thread))
    }
}

/// Is it written as Slack's ids are?
pub(super) fn is_word(text: &str) -> bool {
    let fine = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit();
    !text.is_empty() && text.len() <= WORD_BYTES_MAX && text.chars().all(fine)
}

fn word(what: &'static str, text: &str) -> Result<String, PlaceError> {
    if !is_word(text) {
        return Err(PlaceError::Word(what));
    }
    Ok(text.to_owned())
}

fn stamp(what: &'static str, text: &str) -> Result<String, PlaceError> {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    match text.split_once('.') {
        Some((seconds, rest))
            if digits(seconds) && seconds.len() <= 12 && digits(rest) && rest.len() <= 6 =>
        {
            Ok(text.to_owned())
        }
        Some(_) | None => Err(PlaceError::Stamp(what)),
    }
}

impl Thread {
    /// The thread whose first message is `root`, never the time stamp of a reply in it.
    pub fn new(installation: &str, channel: &str, root: &str) -> Result<Self, PlaceError> {
        Ok(Self {
            installation: word("the installation", installation)?,
            channel: word("the channel", channel)?,
            root: stamp("the thread", root)?,
        })
    }

    /// The thread that an address names.
    pub fn of(address: &Address) -> Result<Self, PlaceError> {
        let mut parts = address.thread.split('/');
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(installation), Some(channel), Some(root), None) => {
                Self::new(installation, channel, root)
            }
            _ => Err(PlaceError::Address),
        }
    }

    /// The enterprise or team that the bot is installed in.
    pub fn installation(&self) -> &str {
        &self.installation
    }

    /// The channel or direct message.
    pub fn channel(&self) -> &str {
        &self.channel
    }

    /// The time stamp of the thread's first message.
    pub fn root(&self) -> &str {
        &self.root
    }

    /// As a button carries it, with what the button is about: without the installation, which Slack
    /// says with each press.
    pub(super) fn carried(&self, what: &str) -> String {
        format!("{}/{}/{what}", self.channel, self.root)
    }

    /// The thread that a button carries, in the installation where it is pressed, and what the
    /// button is about.
    pub(super) fn carrying<'a>(installation: &str, value: &'a str) -> Option<(Self, &'a str)> {
        let (channel, rest) = value.split_once('/')?;
        let (root, what) = rest.split_once('/')?;
        Some((Self::new(installation, channel, root).ok()?, what))
    }

    /// Where its answers go.
    pub fn address(&self) -> Address {
        let Self { installation, channel, root } = self;
        Address { surface: SURFACE.to_owned(), thread: format!("{installation}/{channel}/{root}") }
    }

    /// Its conversation, such as `slack/T1/C2/1700000000.000100`.
    pub fn session(&self) -> Result<SessionId, IdError> {
        SessionId::new(format!("{SURFACE}/{}", self.address().thread))
    }
}

/// A person, such as `slack/T1/U2`: of this installation, wherever they came from.
pub fn principal(installation: &str, user: &str) -> Result<Principal, PlaceError> {
    let (installation, user) = (word("the installation", installation)?, word("the user", user)?);
    Principal::new(format!("{SURFACE}/{installation}/{user}"))
        .map_err(|_| PlaceError::Word("the user"))
}

/// Slack's time stamps are seconds with six digits after the dot.
pub(super) fn instant(ts: &str) -> Timestamp {
    let (seconds, rest) = ts.split_once('.').unwrap_or((ts, ""));
    let millis: String = rest.chars().chain("000".chars()).take(3).collect();
    let seconds: u64 = seconds.parse().unwrap_or(0);
    Timestamp::from_ms(seconds.saturating_mul(1_000).saturating_add(millis.parse().unwrap_or(0)))
}

/// The id of a person's user.
pub fn user_of(person: &Principal) -> Option<&str> {
    let rest = person.as_str().strip_prefix(SURFACE)?.strip_prefix('/')?;
    rest.split_once('/').map(|(_, user)| user)
}

#[cfg(test)]
mod tests;
