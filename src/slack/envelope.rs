//! What Slack sends, as it is written. Owns the wire: every field may be missing or of another sort
//! than expected, nothing is lost over it, and what is not known is kept as it came. Must not know
//! what any of it means for the bot.

use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer};
use serde_json::{Map, Value};

/// Something that Slack sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Envelope {
    /// What it is.
    pub kind: Kind,
    /// All of it, as it came.
    pub raw: Value,
}

/// What Slack sends.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// Something happened in a workspace.
    Event(Box<Callback>),
    /// Slack asks whether this address is ours.
    Verification {
        /// To be given back.
        challenge: String,
    },
    /// Slack holds events back for a minute.
    RateLimited,
    /// Somebody pressed something.
    Actions(Box<Actions>),
    /// A slash command.
    Slash(Box<Slash>),
    /// Slack looks at the certificate.
    SslCheck,
    /// Something else, by its type.
    Unknown(String),
}

/// A missing or odd field is no reason to lose the rest.
fn lenient<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + Default,
{
    let value = Value::deserialize(deserializer)?;
    Ok(T::deserialize(value).unwrap_or_default())
}

/// The envelope of an event.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct Callback {
    /// The team it happened in, which in a shared channel may be another company's.
    #[serde(deserialize_with = "lenient")]
    pub team_id: Option<String>,
    /// Likewise the enterprise.
    #[serde(deserialize_with = "lenient")]
    pub enterprise_id: Option<String>,
    /// The app it is for.
    #[serde(deserialize_with = "lenient")]
    pub api_app_id: Option<String>,
    /// The same in every repeat.
    #[serde(deserialize_with = "lenient")]
    pub event_id: Option<String>,
    /// When it happened, in seconds.
    #[serde(deserialize_with = "lenient")]
    pub event_time: Option<u64>,
    /// Somebody from elsewhere may be in the channel.
    #[serde(deserialize_with = "lenient")]
    pub is_ext_shared_channel: Option<bool>,
    /// For whom it is; Slack gives one.
    #[serde(deserialize_with = "lenient")]
    pub authorizations: Vec<Authorization>,
    /// What happened.
    #[serde(deserialize_with = "lenient")]
    pub event: Event,
}

/// An installation that sees the event.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct Authorization {
    /// Its enterprise.
    #[serde(deserialize_with = "lenient")]
    pub enterprise_id: Option<String>,
    /// Its team; none where the whole enterprise is the installation.
    #[serde(deserialize_with = "lenient")]
    pub team_id: Option<String>,
    /// As whom it sees it.
    #[serde(deserialize_with = "lenient")]
    pub user_id: Option<String>,
    /// That is the bot.
    #[serde(deserialize_with = "lenient")]
    pub is_bot: bool,
    /// The whole enterprise is the installation.
    #[serde(deserialize_with = "lenient")]
    pub is_enterprise_install: bool,
}

/// What happened: the fields of all sorts of events that are read here.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct Event {
    /// What sort.
    #[serde(rename = "type", deserialize_with = "lenient")]
    pub kind: Option<String>,
    /// What sort of message.
    #[serde(deserialize_with = "lenient")]
    pub subtype: Option<String>,
    /// Not shown to people.
    #[serde(deserialize_with = "lenient")]
    pub hidden: bool,
    /// Who.
    #[serde(deserialize_with = "lenient")]
    pub user: Option<String>,
    /// Which bot.
    #[serde(deserialize_with = "lenient")]
    pub bot_id: Option<String>,
    /// Which app.
    #[serde(deserialize_with = "lenient")]
    pub app_id: Option<String>,
    /// The bot, in more words.
    #[serde(deserialize_with = "lenient")]
    pub bot_profile: BotProfile,
    /// What was said, in Slack's own writing.
    #[serde(deserialize_with = "lenient")]
    pub text: Option<String>,
    /// When, and the message's name in its channel.
    #[serde(deserialize_with = "lenient")]
    pub ts: Option<String>,
    /// The thread's first message.
    #[serde(deserialize_with = "lenient")]
    pub thread_ts: Option<String>,
    /// Who wrote that.
    #[serde(deserialize_with = "lenient")]
    pub parent_user_id: Option<String>,
    /// When the event happened.
    #[serde(deserialize_with = "lenient")]
    pub event_ts: Option<String>,
    /// Where.
    #[serde(deserialize_with = "lenient")]
    pub channel: Option<String>,
    /// `channel`, `group`, `im`, `mpim`.
    #[serde(deserialize_with = "lenient")]
    pub channel_type: Option<String>,
    /// Given by the person's own program.
    #[serde(deserialize_with = "lenient")]
    pub client_msg_id: Option<String>,
    /// Present in what was edited, though it may be empty.
    #[serde(deserialize_with = "lenient")]
    pub edited: Option<Value>,
    /// What came with it.
    #[serde(deserialize_with = "lenient")]
    pub files: Vec<File>,
    /// Quotes and the like; what other programs say is often in here.
    #[serde(deserialize_with = "lenient")]
    pub attachments: Vec<Attachment>,
    /// The team of the message.
    #[serde(deserialize_with = "lenient")]
    pub team: Option<String>,
    /// The person's team or enterprise.
    #[serde(deserialize_with = "lenient")]
    pub user_team: Option<String>,
    /// Likewise.
    #[serde(deserialize_with = "lenient")]
    pub source_team: Option<String>,
    /// A changed message as it is now.
    #[serde(deserialize_with = "lenient")]
    pub message: Option<Box<Event>>,
    /// As it was.
    #[serde(deserialize_with = "lenient")]
    pub previous_message: Option<Box<Event>>,
    /// The message that is gone.
    #[serde(deserialize_with = "lenient")]
    pub deleted_ts: Option<String>,
    /// Which tab of the app is opened: `home`, `messages`.
    #[serde(deserialize_with = "lenient")]
    pub tab: Option<String>,
    /// Which tokens are void.
    #[serde(deserialize_with = "lenient")]
    pub tokens: Tokens,
}

/// A bot.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct BotProfile {
    /// Its id.
    #[serde(deserialize_with = "lenient")]
    pub id: Option<String>,
    /// Its app.
    #[serde(deserialize_with = "lenient")]
    pub app_id: Option<String>,
}

/// A file, without what is in it.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct File {
    /// Its id: of a file from another company it may be all that an event says.
    #[serde(deserialize_with = "lenient")]
    pub id: Option<String>,
    /// Its name.
    #[serde(deserialize_with = "lenient")]
    pub name: Option<String>,
    /// Its title.
    #[serde(deserialize_with = "lenient")]
    pub title: Option<String>,
    /// Its type.
    #[serde(deserialize_with = "lenient")]
    pub mimetype: Option<String>,
}

/// Something that hangs on a message.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct Attachment {
    /// Its text.
    #[serde(deserialize_with = "lenient")]
    pub text: Option<String>,
    /// In place of everything else in it.
    #[serde(deserialize_with = "lenient")]
    pub fallback: Option<String>,
}

/// Whose tokens are void.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct Tokens {
    /// Users of bots.
    #[serde(deserialize_with = "lenient")]
    pub bot: Vec<String>,
}

/// Somebody pressed something.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct Actions {
    /// Who.
    #[serde(deserialize_with = "lenient")]
    pub user: Party,
    /// In which team; none where the whole enterprise is the installation.
    #[serde(deserialize_with = "lenient")]
    pub team: Party,
    /// In which enterprise.
    #[serde(deserialize_with = "lenient")]
    pub enterprise: Party,
    /// The whole enterprise is the installation.
    #[serde(deserialize_with = "lenient")]
    pub is_enterprise_install: bool,
    /// Where.
    #[serde(deserialize_with = "lenient")]
    pub channel: Party,
    /// In what.
    #[serde(deserialize_with = "lenient")]
    pub container: Container,
    /// The message it stands in; not for one that only one person sees.
    #[serde(deserialize_with = "lenient")]
    pub message: Option<Box<Event>>,
    /// An answer may be given here for a while.
    #[serde(deserialize_with = "lenient")]
    pub response_url: Option<String>,
    /// What was pressed; Slack gives one.
    #[serde(deserialize_with = "lenient")]
    pub actions: Vec<Action>,
}

/// Somebody or something with an id.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct Party {
    /// Its id.
    #[serde(deserialize_with = "lenient")]
    pub id: Option<String>,
    /// A person's team.
    #[serde(deserialize_with = "lenient")]
    pub team_id: Option<String>,
    /// A team's enterprise.
    #[serde(deserialize_with = "lenient")]
    pub enterprise_id: Option<String>,
}

/// What a button stands in.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct Container {
    /// The message.
    #[serde(deserialize_with = "lenient")]
    pub message_ts: Option<String>,
    /// Its thread.
    #[serde(deserialize_with = "lenient")]
    pub thread_ts: Option<String>,
    /// Its channel.
    #[serde(deserialize_with = "lenient")]
    pub channel_id: Option<String>,
}

/// What was pressed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct Action {
    /// Which.
    #[serde(deserialize_with = "lenient")]
    pub action_id: Option<String>,
    /// With what in it.
    #[serde(deserialize_with = "lenient")]
    pub value: Option<String>,
    /// When; with the person it names the press.
    #[serde(deserialize_with = "lenient")]
    pub action_ts: Option<String>,
}

/// A slash command. In a form everything is text.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct Slash {
    /// Its name, with the slash.
    #[serde(deserialize_with = "lenient")]
    pub command: Option<String>,
    /// What stood after it.
    #[serde(deserialize_with = "lenient")]
    pub text: Option<String>,
    /// The workspace.
    #[serde(deserialize_with = "lenient")]
    pub team_id: Option<String>,
    /// Its enterprise.
    #[serde(deserialize_with = "lenient")]
    pub enterprise_id: Option<String>,
    /// Whether the whole of that is the installation: true or false, in a form as a text.
    pub is_enterprise_install: Value,
    /// Where it was written.
    #[serde(deserialize_with = "lenient")]
    pub channel_id: Option<String>,
    /// By whom.
    #[serde(deserialize_with = "lenient")]
    pub user_id: Option<String>,
    /// Names this use of it.
    #[serde(deserialize_with = "lenient")]
    pub trigger_id: Option<String>,
}

/// Reads a part of it; what is no object is an empty one.
fn part<T: DeserializeOwned + Default>(raw: &Value) -> T {
    T::deserialize(raw).unwrap_or_default()
}

fn word<'a>(raw: &'a Value, key: &str) -> &'a str {
    raw.get(key).and_then(Value::as_str).unwrap_or_default()
}

impl Envelope {
    /// Of JSON.
    pub fn of(raw: Value) -> Self {
        let kind = match word(&raw, "type") {
            "event_callback" => Kind::Event(Box::new(part(&raw))),
            "url_verification" => {
                Kind::Verification { challenge: word(&raw, "challenge").to_owned() }
            }
            "app_rate_limited" => Kind::RateLimited,
            "block_actions" => Kind::Actions(Box::new(part(&raw))),
            "" if raw.get("ssl_check").is_some() => Kind::SslCheck,
            "" if raw.get("command").is_some() => Kind::Slash(Box::new(part(&raw))),
            other => Kind::Unknown(other.to_owned()),
        };
        Self { kind, raw }
    }

    /// Of a body of JSON; nothing where it is none.
    pub fn of_json(body: &[u8]) -> Option<Self> {
        serde_json::from_slice(body).ok().map(Self::of)
    }

    /// Of a form: a slash command, or JSON in its field `payload`.
    pub fn of_form(body: &[u8]) -> Option<Self> {
        let mut fields = Map::new();
        for (name, value) in form_urlencoded::parse(body) {
            if name == "payload" {
                return Self::of_json(value.as_bytes());
            }
            fields.insert(name.into_owned(), Value::String(value.into_owned()));
        }
        Some(Self::of(Value::Object(fields)))
    }

    /// What it is, in a word that may stand in a log.
    pub fn word(&self) -> String {
        let text = match &self.kind {
            Kind::Event(callback) => {
                let event = &callback.event;
                let kind = event.kind.as_deref().unwrap_or("event");
                event.subtype.as_deref().map_or(kind.to_owned(), |sub| format!("{kind}.{sub}"))
            }
            Kind::Verification { .. } => "url_verification".to_owned(),
            Kind::RateLimited => "app_rate_limited".to_owned(),
            Kind::Actions(_) => "block_actions".to_owned(),
            Kind::Slash(_) => "slash_command".to_owned(),
            Kind::SslCheck => "ssl_check".to_owned(),
            Kind::Unknown(kind) => kind.clone(),
        };
        plain(&text)
    }
}

/// Only what looks like one of Slack's own words stands in a log.
fn plain(text: &str) -> String {
    let fine = |c: &char| c.is_ascii_alphanumeric() || "_.:-".contains(*c);
    let text: String = text.chars().filter(fine).take(80).collect();
    if text.is_empty() { "nothing".to_owned() } else { text }
}

/// A frame of Socket Mode.
#[derive(Debug, Clone, PartialEq)]
pub enum Frame {
    /// The connection is there.
    Hello,
    /// The connection ends, or will.
    Disconnect(Reason),
    /// Something to be acknowledged.
    Envelope(Box<Parcel>),
    /// Something else, by its type.
    Unknown(String),
}

/// Why a connection ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// In some 10 s.
    Warning,
    /// Slack wants a fresh one.
    Refresh,
    /// Socket Mode is switched off.
    Disabled,
    /// There are more than Slack allows.
    TooMany,
    /// Something else, in Slack's word.
    Other(String),
}

/// What is sent on a connection, with what its acknowledgement needs.
#[derive(Debug, Clone, PartialEq)]
pub struct Parcel {
    /// To be given back.
    pub envelope_id: String,
    /// What is in it.
    pub envelope: Envelope,
    /// The acknowledgement may hold an answer.
    pub answers: bool,
    /// Which repeat it is, from 1; 0 for the first.
    pub attempt: u32,
}

impl Frame {
    /// Of the text of a frame.
    pub fn of(text: &str) -> Self {
        let Ok(mut raw) = serde_json::from_str::<Value>(text) else {
            return Self::Unknown("no JSON".to_owned());
        };
        match word(&raw, "type") {
            "hello" => Self::Hello,
            "disconnect" => Self::Disconnect(match word(&raw, "reason") {
                "warning" => Reason::Warning,
                "refresh_requested" => Reason::Refresh,
                "link_disabled" => Reason::Disabled,
                "too_many_websockets" => Reason::TooMany,
                other => Reason::Other(plain(other)),
            }),
            kind => {
                let kind = plain(kind);
                let envelope_id = word(&raw, "envelope_id").to_owned();
                if envelope_id.is_empty() {
                    return Self::Unknown(kind);
                }
                let answers =
                    raw.get("accepts_response_payload").and_then(Value::as_bool).unwrap_or(false);
                let attempt = raw.get("retry_attempt").and_then(Value::as_u64).unwrap_or(0);
                let payload = raw.get_mut("payload").map(Value::take).unwrap_or_default();
                let envelope = match kind.as_str() {
                    "events_api" | "interactive" | "slash_commands" => Envelope::of(payload),
                    // Its payload may look like something known, and mean something else.
                    _ => Envelope { kind: Kind::Unknown(kind), raw: payload },
                };
                let attempt = u32::try_from(attempt).unwrap_or(u32::MAX);
                Self::Envelope(Box::new(Parcel { envelope_id, envelope, answers, attempt }))
            }
        }
    }
}

#[cfg(test)]
mod tests;
