//! What `dogwatch doctor` looks at in Slack: tokens, scopes, the way in. Owns what an app must be
//! allowed, and the cure for each lack. Changes nothing there.

use serde_json::{Value, json};

use super::web::{CallError, Web};
use super::{Ingress, Settings};

/// What the bot's token must be allowed, and for what. `config/slack-manifest.yaml` asks for these.
pub const SCOPES: [(&str, &str); 9] = [
    ("app_mentions:read", "to hear mentions"),
    ("assistant:write", "to show what a turn does"),
    ("channels:history", "to follow threads in public channels"),
    ("chat:write", "to answer"),
    ("commands", "for /dogwatch"),
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

/// Asks Slack who the bot is, what it may do, and for a connection where events come by one.
pub async fn look(settings: &Settings, web: &Web) -> Vec<Finding> {
    let mut findings = vec![];
    match web.known(&settings.bot_token).await {
        Ok((answer, scopes)) => {
            findings.push(fine(whom(&answer)));
            findings.extend(missing(scopes.as_deref()));
        }
        Err(error) => findings.push(failed(&error, BOT_TOKEN)),
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
