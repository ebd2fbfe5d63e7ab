//! What `dogwatch doctor` looks at in Slack: tokens, scopes, the way in. Owns what an app must be
//! allowed, and the cure for each lack. Changes nothing there.

pub mod setup;

use serde_json::{Value, json};

use self::setup::Setup;
use super::access::Keyring;
use super::web::{CallError, Web};
use super::{Credentials, Ingress, Settings};
use crate::core::id::InstallationId;
use crate::core::installation::{Installation, Presence};
use crate::core::time::Timestamp;

/// What the bot's token must be allowed, and for what. `config/slack-manifest.yaml` asks for these.
pub const SCOPES: [(&str, &str); 10] = [
    ("app_mentions:read", "to hear mentions"),
    ("assistant:write", "to show what a turn does"),
    ("channels:history", "to follow threads in public channels"),
    ("chat:write", "to answer"),
    ("commands", "for /dogwatch"),
    ("files:read", "to read the text files of a thread"),
    ("files:write", "for answers that are too long for messages"),
    ("groups:history", "to follow threads in private channels"),
    ("im:history", "to hear direct messages"),
    ("mpim:history", "to follow conversations of several people"),
];

const REINSTALL: &str = "add it under \"OAuth & Permissions\", then install the app again: a token \
                         keeps the scopes of its installation";
const BOT_TOKEN: &str = "take the Bot User OAuth Token of this app again, from \"OAuth & \
                         Permissions\", and put it where [slack] bot_token points to";
const APP_TOKEN: &str = "make an App-Level Token with connections:write under \"Basic \
                         Information\", switch Socket Mode on, and put the token where [slack] \
                         app_token points to";
const INSTALL: &str = "open /slack/install of this bot's server, and install the app there again";
const SEAL: &str = "put the secret back that it was sealed with, [slack.oauth] seal_key or \
                    client_secret, or install the app again: open /slack/install";
const NETWORK: &str = "is slack.com reachable from here, also through the proxy that is set?";

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// It is as it should be.
    pub ok: bool,
    /// What was seen.
    pub what: String,
    /// What to do.
    pub cure: Option<&'static str>,
}

fn fine(what: impl Into<String>) -> Finding {
    Finding { ok: true, what: what.into(), cure: None }
}

fn lack(what: impl Into<String>, cure: &'static str) -> Finding {
    Finding { ok: false, what: what.into(), cure: Some(cure) }
}

/// Asks Slack who the bot is, what it may do, for a connection where events come by one, and how
/// the app is set up.
pub async fn look(settings: &Settings, web: &Web, kept: &Kept, setup: &Setup) -> Vec<Finding> {
    let mut findings = vec![];
    match &settings.credentials {
        Credentials::Token(token) => match web.known(token).await {
            Ok((answer, scopes)) => {
                findings.push(fine(whom(&answer)));
                findings.extend(missing(scopes.as_deref()));
            }
            Err(error) => findings.push(failed(&error, BOT_TOKEN)),
        },
        Credentials::OAuth(_) => findings.extend(installations(settings, kept)),
    }
    match &settings.ingress {
        Ingress::Socket { app_token, .. } => {
            findings.push(match web.call(app_token, "apps.connections.open", &json!({})).await {
                Ok(_) => fine("a connection can be opened; events come by it"),
                Err(error) => failed(&error, APP_TOKEN),
            });
        }
        Ingress::Http { .. } => findings.push(fine(
            "events come by signed requests to /slack/events, /slack/interactive and \
             /slack/commands: Slack must reach them by https, under the URLs in the app's settings",
        )),
    }
    findings.extend(setup::look(settings, web, setup).await);
    findings
}

/// What a store keeps of installations, and its time.
#[derive(Debug, Clone, Default)]
pub struct Kept {
    /// All of them.
    pub all: Vec<(InstallationId, Installation)>,
    /// Now.
    pub now: Timestamp,
}

/// Nobody is asked: tokens that are kept are the bot's to use.
fn installations(settings: &Settings, kept: &Kept) -> Vec<Finding> {
    let keyring = match Keyring::of(settings) {
        Ok(keyring) => keyring,
        Err(error) => return vec![lack(error.to_string(), SEAL)],
    };
    if kept.all.is_empty() {
        let what = "nobody has installed the app yet: open /slack/install of this bot's server";
        return vec![fine(what)];
    }
    kept.all.iter().flat_map(|(id, one)| installation(&keyring, (id, one), kept.now)).collect()
}

fn installation(
    keyring: &Keyring,
    (id, one): (&InstallationId, &Installation),
    now: Timestamp,
) -> Vec<Finding> {
    if let Presence::Gone { why, .. } = one.presence {
        let what = format!("{id}: {}; to be installed again, if it is wanted", why.words());
        return vec![fine(what)];
    }
    let Some(grant) = &one.grant else {
        return vec![lack(format!("{id} was used with [slack] bot_token"), INSTALL)];
    };
    let name = format!("{} ({id})", grant.name);
    if let Err(error) = keyring.open(id, &grant.sealed) {
        return vec![lack(format!("{name}: {error}"), SEAL)];
    }
    let ends = match &grant.refresh {
        None => "its token does not end".to_owned(),
        Some(refresh) => match &refresh.void {
            Some(why) => return vec![lack(format!("{name}: {why}"), INSTALL)],
            None if refresh.expires_at <= now => {
                "its token has ended and is changed at the next start".to_owned()
            }
            None => {
                let minutes = refresh.expires_at.since_ms(now) / 60_000;
                format!("its token ends in {minutes} min and is changed before")
            }
        },
    };
    let mut findings = vec![fine(format!("{name}: the bot is {}; {ends}", grant.user))];
    let lacks = missing(Some(&grant.scopes)).into_iter().filter(|finding| !finding.ok);
    findings.extend(lacks.map(|lack| Finding {
        what: format!("{name}: {}", lack.what),
        cure: Some(INSTALL),
        ..lack
    }));
    findings
}

fn whom(answer: &Value) -> String {
    let word = |key: &str| answer.get(key).and_then(Value::as_str).unwrap_or("?");
    format!("the bot is {} in {}", word("user_id"), word("team_id"))
}

fn missing(scopes: Option<&str>) -> Vec<Finding> {
    let Some(scopes) = scopes else {
        return vec![fine("Slack does not say which scopes the token has")];
    };
    let has = |wanted: &str| scopes.split(',').any(|scope| scope.trim() == wanted);
    let lacks: Vec<Finding> = SCOPES
        .iter()
        .filter(|(scope, _)| !has(scope))
        .map(|(scope, why)| lack(format!("the token lacks the scope {scope}, {why}"), REINSTALL))
        .collect();
    if lacks.is_empty() { vec![fine("the token has every scope that is needed")] } else { lacks }
}

fn failed(error: &CallError, token: &'static str) -> Finding {
    let cure = match error {
        CallError::Refused { .. } => token,
        CallError::Limited { .. } => "wait a minute, then try again",
        CallError::Unreached { .. } | CallError::Unknown { .. } => NETWORK,
    };
    lack(error.to_string(), cure)
}
