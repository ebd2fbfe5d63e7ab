//! How the app is set up at Slack: which events it gets, its tabs, buttons and commands. Slack
//! shows that to whoever may configure the app, so a token of that person's is asked for, by
//! `doctor` alone. Must not know tokens that the bot itself has.

use secrecy::SecretString;
use serde_json::{Value, json};

use super::{CallError, Finding, Web, failed, fine, lack};
use crate::slack::verdict::is_of_now;
use crate::slack::{Ingress, Settings};

/// What the app must be told of, and for what. `config/slack-manifest.yaml` asks for these.
pub const EVENTS: [(&str, &str); 8] = [
    ("app_home_opened", "to show people its home tab"),
    ("app_mention", "to hear mentions"),
    ("app_uninstalled", "to stop the work of who removed it"),
    ("message.channels", "to follow threads in public channels"),
    ("message.groups", "to follow threads in private channels"),
    ("message.im", "to hear direct messages"),
    ("message.mpim", "to follow conversations of several people"),
    ("tokens_revoked", "to stop the work of who took its token away"),
];

/// The environment variable of the token.
pub const TOKEN_VARIABLE: &str = "SLACK_CONFIG_TOKEN";
/// The environment variable of the app's id, where no app-level token has it.
pub const APP_VARIABLE: &str = "SLACK_APP_ID";

const UNSEEN: &str = "which events the app gets, and whether it has its home tab, buttons and \
                      /dogwatch, cannot be seen with the bot's own tokens; compare its manifest \
                      with config/slack-manifest.yaml, or make an App Configuration Token on the \
                      page of all your apps (it ends after 12 hours) and try again with it in \
                      SLACK_CONFIG_TOKEN";
const EVENT: &str = "add it under \"Event Subscriptions\", \"Subscribe to bot events\", save, and \
                     install the app again where Slack asks for it";
const HOME: &str = "switch \"Home Tab\" on under \"App Home\"";
const MESSAGES: &str = "switch \"Messages Tab\" on under \"App Home\", and let people send \
                        messages from there";
const BUTTONS: &str = "switch \"Interactivity\" on under \"Interactivity & Shortcuts\"";
const COMMAND: &str = "add it under \"Slash Commands\"";
const SOCKET: &str = "switch \"Socket Mode\" on, or set [slack] ingress = \"http\"";
const REQUESTS: &str = "switch \"Socket Mode\" off, or set [slack] ingress = \"socket\"";
const TOKEN: &str = "make an App Configuration Token on the page of all your apps; each ends \
                     after 12 hours";
const APP: &str = "put the App ID of \"Basic Information\" into SLACK_APP_ID";
const OTHER: &str = "put the App ID of \"Basic Information\" into SLACK_APP_ID, and make the App \
                     Configuration Token as somebody who may configure that app, in its workspace; \
                     each ends after 12 hours";

/// With what it may be looked at.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    /// An app configuration token, `xoxe.…`.
    pub token: Option<SecretString>,
    /// The id of the app.
    pub app: Option<String>,
}

pub(super) async fn look(settings: &Settings, web: &Web, setup: &Setup) -> Vec<Finding> {
    let Some(token) = &setup.token else { return vec![fine(UNSEEN)] };
    let Some(app) = setup.app.clone().or_else(|| settings.app_id()) else {
        return vec![lack("which app it is cannot be told from the tokens", APP)];
    };
    match web.call(token, "apps.manifest.export", &json!({ "app_id": app })).await {
        Ok(answer) => {
            let found = compared(settings, answer.get("manifest").unwrap_or(&Value::Null));
            if found.is_empty() { vec![fine("the app is set up as it must be")] } else { found }
        }
        Err(CallError::Refused { error, .. }) => {
            let cure = if is_of_token(&error) { TOKEN } else { OTHER };
            vec![lack(format!("Slack does not show how the app {app} is set up: {error}"), cure)]
        }
        Err(error) => vec![failed(&error, TOKEN)],
    }
}

/// Does this word say that the token is at fault? Any other may be about the app.
fn is_of_token(error: &str) -> bool {
    is_of_now(error) || matches!(error, "not_allowed_token_type" | "missing_scope")
}

/// What the app lacks.
fn compared(settings: &Settings, manifest: &Value) -> Vec<Finding> {
    let is = |pointer: &str| manifest.pointer(pointer).and_then(Value::as_bool) == Some(true);
    let list = |pointer: &str| {
        manifest.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
    };
    let events = list("/settings/event_subscriptions/bot_events");
    let missing = EVENTS.iter().filter(|(event, _)| !events.iter().any(|given| given == event));
    let mut found: Vec<Finding> = missing
        .map(|(event, why)| lack(format!("the app does not get the event {event}, {why}"), EVENT))
        .collect();
    let commands = list("/features/slash_commands");
    let command = commands.iter().any(|one| one.get("command").is_some_and(|c| c == "/dogwatch"));
    let messages = is("/features/app_home/messages_tab_enabled")
        && !is("/features/app_home/messages_tab_read_only_enabled");
    let by_socket = is("/settings/socket_mode_enabled");
    let by = match settings.ingress {
        Ingress::Socket { .. } => (by_socket, "Socket Mode is off", SOCKET),
        Ingress::Http { .. } => (!by_socket, "Socket Mode is on, so no requests come", REQUESTS),
    };
    let parts = [
        (is("/features/app_home/home_tab_enabled"), "the app has no home tab", HOME),
        (messages, "people cannot write to the app directly", MESSAGES),
        (is("/settings/interactivity/is_enabled"), "buttons do nothing", BUTTONS),
        (command, "there is no /dogwatch", COMMAND),
        by,
    ];
    found.extend(parts.into_iter().filter(|part| !part.0).map(|(_, what, cure)| lack(what, cure)));
    found
}
