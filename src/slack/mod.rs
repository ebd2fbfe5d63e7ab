//! Slack: people talk to the bot in threads. Owns what is Slack's own: its wire, its words, its
//! limits. Must not know turns or executions: what people say goes to the desk, and only the outbox
//! posts.

pub mod envelope;
pub mod hear;
pub mod order;
pub mod place;
pub mod plain;
pub mod signature;

mod blocks;
mod card;
mod guard;
mod live;
mod pace;
mod surface;
#[cfg(test)]
mod tests;
mod text;
mod verdict;

pub mod access;
pub mod answer;
pub mod checkup;
pub mod home;
pub mod oauth;
pub mod panel;
pub mod posting;
pub mod reception;
pub mod rotation;
pub mod routes;
pub mod seal;
pub mod socket;
pub mod watching;
pub mod web;

use std::collections::BTreeMap;
use std::fmt;

use secrecy::{ExposeSecret as _, SecretString};

/// Where Slack's Web API is.
pub const API: &str = "https://slack.com/api/";

/// How Slack is reached, and who is heard where.
#[derive(Clone)]
pub struct Settings {
    /// Everything before the name of a method, with its last slash; [`API`] but in tests.
    pub api: String,
    /// Where tokens come from.
    pub credentials: Credentials,
    /// How events come.
    pub ingress: Ingress,
    /// How direct messages are heard, and channels that are not in `channels`.
    pub hearing: Hearing,
    /// How a channel is heard, by its id.
    pub channels: BTreeMap<String, Hearing>,
    /// Other bots that are heard, by the id of their user or bot.
    pub bots: Vec<String>,
    /// How an answer is shown while it comes.
    pub streaming: Streaming,
    /// People of other companies, in shared channels, that are heard, by the id of their user.
    pub guests: Vec<String>,
}

impl Settings {
    /// How a channel is heard.
    pub fn hearing_in(&self, channel: &str) -> Hearing {
        *self.channels.get(channel).unwrap_or(&self.hearing)
    }

    /// The app's id, where its own token says it: `xapp-1-A0123ABCD-…`.
    pub fn app_id(&self) -> Option<String> {
        let Ingress::Socket { app_token, .. } = &self.ingress else { return None };
        let id = app_token.expose_secret().split('-').nth(2)?;
        place::is_word(id).then(|| id.to_owned())
    }
}

/// Where tokens come from.
#[derive(Clone)]
pub enum Credentials {
    /// `xoxb-…`, configured: posts and reads in the one place where the app is installed.
    Token(SecretString),
    /// From whoever installs the app.
    OAuth(OAuth),
}

/// How Slack knows the app.
#[derive(Clone)]
pub struct OAuth {
    /// Its name at Slack.
    pub client_id: String,
    /// Proves that we are it.
    pub client_secret: SecretString,
    /// Where Slack sends people back, where the app's page names several places.
    pub redirect_url: Option<String>,
    /// Seals what is kept; `client_secret` where there is none.
    pub seal_key: Option<SecretString>,
}

/// How events come.
#[derive(Clone)]
pub enum Ingress {
    /// By connections that the bot opens.
    Socket {
        /// `xapp-…`: opens them.
        app_token: SecretString,
        /// How many at once, 1 to 10.
        connections: u8,
    },
    /// By signed requests to the bot's server.
    Http {
        /// Signs them.
        signing_secret: SecretString,
    },
}

/// How a place is heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hearing {
    /// What starts a conversation.
    pub mode: Mode,
    /// What is said may stand in one turn with what others say.
    pub shared: bool,
}

impl From<Mode> for Hearing {
    /// Of one person at a time.
    fn from(mode: Mode) -> Self {
        Self { mode, shared: false }
    }
}

/// How an answer is shown while it comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Streaming {
    /// It is streamed where the workspace has that, else it stands in a message that is edited.
    #[default]
    Auto,
    /// It stands in a message that is edited.
    Edit,
    /// It is not shown before it is whole.
    Off,
}

/// What is heard in a channel. In a direct message everything is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Only what names the bot.
    Mention,
    /// What names the bot starts a conversation, and everything in its thread goes on with it.
    #[default]
    Thread,
    /// Every message starts a conversation or goes on with one.
    All,
}

impl fmt::Debug for Settings {
    /// Without its secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("hearing", &self.hearing)
            .field("channels", &self.channels)
            .field("bots", &self.bots)
            .field("guests", &self.guests)
            .finish_non_exhaustive()
    }
}
