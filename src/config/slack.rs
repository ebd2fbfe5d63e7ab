//! `[slack]`, from raw to checked. Owns what its keys may say. Must not know what Slack is asked.

use std::collections::BTreeMap;

use secrecy::{ExposeSecret as _, SecretString};

use super::checked::Checking;
use super::raw::{
    RawRole, RawSlack, RawSlackChannel, RawSlackIngress, RawSlackMode, RawSlackOAuth,
    RawSlackStreaming,
};
use super::secret::SecretRef;
use super::{
    Agent, SlackConfig, SlackCredentials, SlackIngress, SlackMode, SlackPlace, SlackStreaming,
    agents,
};
use crate::core::nearest::echo;
use crate::core::policy::Role;

/// Where people come back to.
const CALLBACK: &str = "/slack/oauth";
const API: &str = "https://slack.com/api/";

/// `None` where Slack is not asked for, or cannot be used as it is written.
pub(super) fn slack(
    raw: Option<&RawSlack>,
    (agents, agent): (&[Agent], &str),
    checking: &mut Checking<'_>,
) -> Option<SlackConfig> {
    let raw = raw?;
    let credentials = credentials(raw, checking);
    let connections = checking.whole("slack.connections", raw.connections, 2, 1..=10);
    let ingress = match raw.ingress.unwrap_or(RawSlackIngress::Socket) {
        RawSlackIngress::Socket => token(checking, ("app_token", "xapp-"), raw.app_token.as_ref())
            .map(|app_token| {
                let connections = u8::try_from(connections).unwrap_or(1);
                SlackIngress::Socket { app_token, connections }
            }),
        RawSlackIngress::Http => {
            token(checking, ("signing_secret", ""), raw.signing_secret.as_ref())
                .map(|signing_secret| SlackIngress::Http { signing_secret })
        }
    };
    let written = Written {
        mode: raw.mode,
        agent: raw.agent.as_deref(),
        role: raw.role,
        shared_authority: raw.shared_authority,
    };
    let usual = Usual {
        mode: SlackMode::Thread,
        agent: agent.to_owned(),
        role: Role::Writable,
        shared_authority: false,
    };
    let usual = usual.but("slack", &written, agents, checking);
    let channels = channels(raw, &usual, agents, checking);
    let bots = ids(checking, "bots", &raw.bots, &['B', 'U']);
    let guests = ids(checking, "guests", &raw.guests, &['U', 'W']);
    let api = api(raw.api.as_deref(), checking);
    let streaming = raw.streaming.map_or(SlackStreaming::Auto, streaming);
    Some(SlackConfig {
        api,
        credentials: credentials?,
        ingress: ingress?,
        place: usual.place(agents),
        channels,
        streaming,
        bots,
        guests,
    })
}

/// One token, or the way to many.
fn credentials(raw: &RawSlack, checking: &mut Checking<'_>) -> Option<SlackCredentials> {
    match (&raw.oauth, &raw.bot_token) {
        (None, given) => {
            token(checking, ("bot_token", "xoxb-"), given.as_ref()).map(SlackCredentials::Token)
        }
        (Some(_), Some(_)) => {
            let what = "there is [slack.oauth] as well: tokens come from there or from here";
            let cure = "Take bot_token out, or [slack.oauth].";
            checking.wrong("slack.bot_token", what, cure);
            None
        }
        (Some(raw), None) => oauth(raw, checking),
    }
}

fn oauth(raw: &RawSlackOAuth, checking: &mut Checking<'_>) -> Option<SlackCredentials> {
    let client_id = checking.line("slack.oauth.client_id", raw.client_id.as_deref());
    let cure = "Take both from the page \"Basic Information\", \"App Credentials\".";
    if raw.client_id.is_none() {
        checking.wrong("slack.oauth.client_id", "it is missing, and Slack needs it", cure);
    }
    if raw.client_secret.is_none() {
        checking.wrong("slack.oauth.client_secret", "it is missing, and Slack needs it", cure);
    }
    let client_secret = raw.client_secret.as_ref();
    let client_secret =
        client_secret.and_then(|given| checking.secret("slack.oauth.client_secret", given));
    let seal_key = raw.seal_key.as_ref();
    let seal_key = seal_key.map(|given| checking.secret("slack.oauth.seal_key", given));
    let redirect_url = checking.line("slack.oauth.redirect_url", raw.redirect_url.as_deref());
    if let Some(what) = redirect_url.as_deref().and_then(misled) {
        let cure = "Write what the app's page \"OAuth & Permissions\" has under \"Redirect URLs\".";
        checking.wrong("slack.oauth.redirect_url", what, cure);
    }
    let seal_key = match seal_key {
        Some(None) => return None,
        Some(key) => key,
        None => None,
    };
    Some(SlackCredentials::OAuth {
        client_id: client_id?,
        client_secret: client_secret?,
        redirect_url,
        seal_key,
    })
}

/// Why nobody comes back by this address, if so.
fn misled(redirect_url: &str) -> Option<String> {
    let url = reqwest::Url::parse(redirect_url).ok();
    let ends = |url: &reqwest::Url| url.path() == CALLBACK && url.fragment().is_none();
    let Some(url) = url.filter(ends) else {
        return Some(format!("it does not end in {CALLBACK}, where dogwatch waits"));
    };
    // The browser keeps the cookie of an installation for https alone.
    let what = "it does not begin with https://, and nobody comes back by another way";
    (url.scheme() != "https").then(|| what.to_owned())
}

const fn mode(raw: RawSlackMode) -> SlackMode {
    match raw {
        RawSlackMode::Mention => SlackMode::Mention,
        RawSlackMode::Thread => SlackMode::Thread,
        RawSlackMode::All => SlackMode::All,
    }
}

const fn streaming(raw: RawSlackStreaming) -> SlackStreaming {
    match raw {
        RawSlackStreaming::Auto => SlackStreaming::Auto,
        RawSlackStreaming::Edit => SlackStreaming::Edit,
        RawSlackStreaming::Off => SlackStreaming::Off,
    }
}

/// A secret that must be there, and begins as Slack's secrets of its sort do.
fn token(
    checking: &mut Checking<'_>,
    (name, prefix): (&str, &str),
    given: Option<&SecretRef>,
) -> Option<SecretString> {
    let key = format!("slack.{name}");
    let Some(given) = given else {
        let variable = format!("SLACK_{}", name.to_uppercase());
        let cure = format!("Write {name} = {{ env = \"{variable}\" }}, for example.");
        checking.wrong(&key, "it is missing, and Slack needs it", cure);
        return None;
    };
    let secret = checking.secret(&key, given)?;
    if secret.expose_secret().starts_with(prefix) {
        return Some(secret);
    }
    let what = format!("it does not begin with {prefix}, so it is another of Slack's secrets");
    let cure = match prefix {
        "xoxb-" => "Take the Bot User OAuth Token from the page \"OAuth & Permissions\".",
        _ => "Take an App-Level Token with connections:write from the page \"Basic Information\".",
    };
    checking.wrong(&key, what, cure);
    None
}

fn is_id(id: &str, first: &[char]) -> bool {
    let letters = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit();
    id.starts_with(first) && id.len() > 1 && id.len() <= 32 && id.chars().all(letters)
}

/// What is written of a place.
struct Written<'a> {
    mode: Option<RawSlackMode>,
    agent: Option<&'a str>,
    role: Option<RawRole>,
    shared_authority: Option<bool>,
}

impl<'a> Written<'a> {
    fn of(raw: &'a RawSlackChannel) -> Self {
        match raw {
            RawSlackChannel::Mode(mode) => {
                Self { mode: Some(*mode), agent: None, role: None, shared_authority: None }
            }
            RawSlackChannel::Table(raw) => Self {
                mode: raw.mode,
                agent: raw.agent.as_deref(),
                role: raw.role,
                shared_authority: raw.shared_authority,
            },
        }
    }
}

/// How it is where nothing else is written.
struct Usual {
    mode: SlackMode,
    agent: String,
    role: Role,
    shared_authority: bool,
}

impl Usual {
    /// With what is written under this key.
    fn but(
        &self,
        key: &str,
        written: &Written<'_>,
        agents: &[Agent],
        checking: &mut Checking<'_>,
    ) -> Self {
        let agent = agents::named(&format!("{key}.agent"), written.agent, agents, checking);
        let agent = agent.unwrap_or_else(|| self.agent.clone());
        let role = written.role.map(agents::role_of);
        // Somebody who writes it down believes it.
        let known = agents.iter().any(|other| other.name == agent);
        if known && role == Some(Role::Writable) && own_role(agents, &agent) == Role::ReadOnly {
            let what = format!("the agent {} is read-only everywhere", echo(&agent));
            let cure = "A place can only narrow what its agent may do. Leave the key out, or name \
                        another agent.";
            checking.wrong(&format!("{key}.role"), what, cure);
        }
        Self {
            mode: written.mode.map_or(self.mode, mode),
            agent,
            role: role.unwrap_or(self.role),
            shared_authority: written.shared_authority.unwrap_or(self.shared_authority),
        }
    }

    fn place(self, agents: &[Agent]) -> SlackPlace {
        let Self { mode, agent, role, shared_authority } = self;
        let role = role.narrower(own_role(agents, &agent));
        SlackPlace { mode, agent, role, shared_authority }
    }
}

/// Of an agent that is not there it is the one that allows less.
fn own_role(agents: &[Agent], name: &str) -> Role {
    let agent = agents.iter().find(|agent| agent.name == name);
    agent.map_or(Role::ReadOnly, |agent| agent.role)
}

fn channels(
    raw: &RawSlack,
    usual: &Usual,
    agents: &[Agent],
    checking: &mut Checking<'_>,
) -> BTreeMap<String, SlackPlace> {
    for id in raw.channels.keys().filter(|id| !is_id(id, &['C', 'G'])) {
        let what = format!("{} is not the id of a channel", echo(id));
        let cure = "Names change, ids stay: open the channel's details, the id is at the bottom.";
        checking.wrong("slack.channels", what, cure);
    }
    let mut places = BTreeMap::new();
    for (id, raw) in &raw.channels {
        let key = format!("slack.channels.{id}");
        let place = usual.but(&key, &Written::of(raw), agents, checking).place(agents);
        places.insert(id.clone(), place);
    }
    places
}

fn ids(checking: &mut Checking<'_>, name: &str, given: &[String], first: &[char]) -> Vec<String> {
    for id in given.iter().filter(|id| !is_id(id, first)) {
        let what = format!("{} is not an id of Slack's", echo(id));
        let cure = "Open the profile, choose \"Copy member ID\".";
        checking.wrong(&format!("slack.{name}"), what, cure);
    }
    given.to_vec()
}

/// Tokens are sent there, so it is https, or this machine.
fn api(given: Option<&str>, checking: &mut Checking<'_>) -> String {
    let Some(written) = checking.line("slack.api", given) else { return API.to_owned() };
    let fine = reqwest::Url::parse(&written).is_ok_and(|url| {
        let host = url.host_str().unwrap_or_default();
        let here = host == "localhost"
            || host
                .trim_matches(['[', ']'])
                .parse()
                .is_ok_and(|ip: std::net::IpAddr| ip.is_loopback());
        let plain = url.username().is_empty() && url.password().is_none() && url.query().is_none();
        plain && url.path().ends_with('/') && (url.scheme() == "https" || here)
    });
    if !fine {
        let cure = "Write an https URL that ends in /, or leave the key out: it is for tests.";
        checking.wrong("slack.api", "Slack's Web API cannot be there", cure);
        return API.to_owned();
    }
    written
}
