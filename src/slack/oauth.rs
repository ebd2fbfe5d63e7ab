//! Installing the app: the way to Slack's page and back, and what is kept of it. Owns the pages
//! that people see on it, and that a way is gone once. Must not know how an installation is used.
//!
//! Whoever begins gets a state for Slack and a cookie for the browser; only both together end it,
//! once, on any node. No token and no code is ever said, logged or part of an address of ours.

use std::future::{Ready, ready};
use std::sync::Arc;

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_TYPE, COOKIE, LOCATION, REFERRER_POLICY, SET_COOKIE,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::OAuth;
use super::access::{Keyring, Tokens, id_of};
use super::checkup::SCOPES;
use super::hear::Who;
use super::seal::{SealError, chance, hex};
use super::web::{CallError, Web};
use crate::core::id::InstallationId;
use crate::core::installation::{Grant, Redeemed, Refresh};
use crate::core::limits::INVITATION_MS;
use crate::core::time::Timestamp;
use crate::ports::{Clock, DeskError};

/// Where people begin.
pub const INSTALL: &str = "/slack/install";
/// Where Slack sends them back.
pub const CALLBACK: &str = "/slack/oauth";
const COOKIE_NAME: &str = "dogwatch_install";
const CSP: &str = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'";

/// What installing needs of the rest.
pub struct Installing {
    /// How Slack knows the app.
    pub oauth: OAuth,
    /// Keeps what comes of it.
    pub keyring: Arc<Keyring>,
    /// Asks Slack.
    pub web: Arc<Web>,
    /// Time.
    pub clock: Arc<dyn Clock>,
}

/// The pages.
pub fn routes(installing: Arc<Installing>) -> Router {
    // A way is gone once it is walked: whoever only looks must not walk it.
    let (install, callback) = (get(begin).head(nothing), get(end).head(nothing));
    Router::new().route(INSTALL, install).route(CALLBACK, callback).with_state(installing)
}

/// Why somebody did not get there: what, and the cure.
#[derive(Debug)]
enum Stray {
    /// The way back names no way that was begun.
    NoState,
    /// It was begun elsewhere, or too long ago.
    Unknown,
    /// It was ended before.
    Used,
    /// The person said no, or Slack did.
    Denied(String),
    /// Slack did not take the code.
    Refused(String),
    /// Slack was not reached, or its answer is none.
    Unclear(String),
    /// It cannot be kept.
    Unkept(String),
}

impl Stray {
    const fn status(&self) -> StatusCode {
        match self {
            Self::NoState | Self::Unknown | Self::Used | Self::Denied(_) | Self::Refused(_) => {
                StatusCode::BAD_REQUEST
            }
            Self::Unclear(_) => StatusCode::BAD_GATEWAY,
            Self::Unkept(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    fn words(&self) -> (String, &'static str) {
        match self {
            Self::NoState => (
                "This link does not belong to an installation that was begun here.".to_owned(),
                "Begin again.",
            ),
            Self::Unknown => (
                "This installation was begun in another browser, or more than ten minutes ago."
                    .to_owned(),
                "Begin again, and stay in one browser.",
            ),
            Self::Used => (
                "This link was used before.".to_owned(),
                "If the bot is in your workspace, all is well. Otherwise begin again.",
            ),
            Self::Denied(word) => (
                format!("Slack did not let the app in ({word})."),
                "Begin again and choose \"Allow\". Where only admins may add apps, ask one.",
            ),
            Self::Refused(word) => (
                format!("Slack did not take the installation ({word})."),
                "Begin again. If it stays, compare client_id, client_secret and redirect_url in \
                 [slack.oauth] with the app's page at Slack.",
            ),
            Self::Unclear(what) => (format!("{what}."), "Begin again in a minute."),
            Self::Unkept(what) => {
                (format!("It could not be written down: {what}."), "Begin again in a minute.")
            }
        }
    }
}

impl From<SealError> for Stray {
    fn from(error: SealError) -> Self {
        Self::Unkept(error.to_string())
    }
}

impl From<DeskError> for Stray {
    fn from(_: DeskError) -> Self {
        Self::Unkept("the store does not answer".to_owned())
    }
}

fn nothing() -> Ready<Response> {
    ready(guarded((StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, "GET")]).into_response()))
}

async fn begin(State(installing): State<Arc<Installing>>) -> Response {
    match installing.invite().await {
        Ok(response) => response,
        Err(stray) => page_of(&stray),
    }
}

/// What Slack sends people back with.
#[derive(Default)]
struct Back {
    code: Option<String>,
    state: Option<String>,
    error: Option<String>,
}

impl Back {
    fn of(query: &str) -> Self {
        let mut back = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match name.as_ref() {
                "code" => back.code = Some(value.into_owned()),
                "state" => back.state = Some(value.into_owned()),
                "error" => back.error = Some(value.into_owned()),
                _ => {}
            }
        }
        back
    }
}

async fn end(
    State(installing): State<Arc<Installing>>,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Response {
    let back = Back::of(query.as_deref().unwrap_or_default());
    match installing.take(&headers, back).await {
        Ok((name, before)) => {
            let head = if before { "Installed again" } else { "Installed" };
            let what = format!("dogwatch is in {name} now.");
            let next = "Back in Slack, /invite @dogwatch into a channel, mention it, and say what \
                        it shall watch.";
            page(StatusCode::OK, head, (&what, next), None)
        }
        Err(stray) => {
            tracing::warn!(slack.stray = ?stray, "an installation did not come about");
            page_of(&stray)
        }
    }
}

impl Installing {
    async fn invite(&self) -> Result<Response, Stray> {
        let installations = self.keyring.installations().ok_or_else(starting)?;
        let (state, cookie) = (chance()?, chance()?);
        installations.invite(&hash_of(&state, &cookie)).await?;
        let mut url = self.web.authorize();
        let scopes = SCOPES.map(|(scope, _)| scope).join(",");
        url.query_pairs_mut()
            .append_pair("client_id", &self.oauth.client_id)
            .append_pair("scope", &scopes)
            .append_pair("state", &state);
        if let Some(redirect) = &self.oauth.redirect_url {
            url.query_pairs_mut().append_pair("redirect_uri", redirect);
        }
        let cookie = format!(
            "{COOKIE_NAME}={cookie}; Path={CALLBACK}; Max-Age={}; HttpOnly; Secure; SameSite=Lax",
            INVITATION_MS / 1_000
        );
        let mut response = StatusCode::FOUND.into_response();
        for (name, value) in [(LOCATION, url.to_string()), (SET_COOKIE, cookie)] {
            if let Ok(value) = HeaderValue::from_str(&value) {
                response.headers_mut().insert(name, value);
            }
        }
        Ok(guarded(response))
    }

    /// Answers who it is for, and whether it was there before.
    async fn take(&self, headers: &HeaderMap, back: Back) -> Result<(String, bool), Stray> {
        let installations = self.keyring.installations().ok_or_else(starting)?;
        let state = back.state.filter(|state| !state.is_empty()).ok_or(Stray::NoState)?;
        let cookie = cookie_of(headers).ok_or(Stray::Unknown)?;
        match installations.redeem(&hash_of(&state, &cookie)).await? {
            Redeemed::Fresh => {}
            Redeemed::Used => return Err(Stray::Used),
            Redeemed::Unknown => return Err(Stray::Unknown),
        }
        if let Some(word) = back.error {
            return Err(Stray::Denied(plain(&word)));
        }
        let code = back.code.filter(|code| !code.is_empty()).ok_or(Stray::NoState)?;
        let asked = json!({ "code": code, "redirect_uri": self.oauth.redirect_url });
        let answer = self.exchange(&asked).await?;
        let now = self.clock.now();
        let granted = Granted::of(&answer, now)
            .ok_or_else(|| Stray::Unclear("Slack's answer lacks what is needed".to_owned()))?;
        let id = id_of(&granted.installation)
            .ok_or_else(|| Stray::Unclear("Slack's answer names no place".to_owned()))?;
        let grant = granted.grant(&self.keyring, &id)?;
        let name = grant.name.clone();
        // Before it is used: what is not written down is nobody's.
        let before = installations.install(&id, grant).await?;
        tracing::info!(slack.installation = %granted.installation, again = before, "installed");
        self.meet(&id, &granted).await;
        self.keyring.changed();
        Ok((name, before))
    }

    async fn exchange(&self, asked: &Value) -> Result<Value, Stray> {
        self.web.exchange(&self.oauth, asked).await.map_err(|error| match error {
            CallError::Refused { error, .. } => Stray::Refused(error),
            CallError::Limited { .. } | CallError::Unreached { .. } | CallError::Unknown { .. } => {
                Stray::Unclear(error.to_string())
            }
        })
    }

    /// Under which bot its messages are: only the token's owner is told. Not needed to begin.
    async fn meet(&self, id: &InstallationId, granted: &Granted) {
        let answer = self.web.call(&granted.tokens.access, "auth.test", &json!({})).await;
        let who = answer.ok().as_ref().and_then(Who::of);
        let Some(bot) = who.and_then(|who| who.bot) else { return };
        if let Some(installations) = self.keyring.installations()
            && let Err(error) = installations.introduce(id, &bot).await
        {
            tracing::debug!(%error, "the bot's own id is not kept");
        }
    }
}

fn starting() -> Stray {
    Stray::Unkept("dogwatch is starting".to_owned())
}

/// What Slack grants, as `oauth.v2.access` says it.
pub(super) struct Granted {
    /// The enterprise, where all of it is the installation, else the team.
    pub(super) installation: String,
    name: String,
    user: String,
    app: Option<String>,
    scopes: String,
    pub(super) tokens: Tokens,
    now: Timestamp,
}

impl Granted {
    pub(super) fn of(answer: &Value, now: Timestamp) -> Option<Self> {
        let word = |path: &str| {
            let text = answer.pointer(path).and_then(Value::as_str);
            text.filter(|text| !text.is_empty()).map(str::to_owned)
        };
        let whole = answer.pointer("/is_enterprise_install").and_then(Value::as_bool) == Some(true);
        let (id, name) = if whole || word("/team/id").is_none() {
            (word("/enterprise/id")?, word("/enterprise/name"))
        } else {
            (word("/team/id")?, word("/team/name"))
        };
        Some(Self {
            name: name.unwrap_or_else(|| id.clone()),
            installation: id,
            user: word("/bot_user_id")?,
            app: word("/app_id"),
            scopes: word("/scope").unwrap_or_default(),
            tokens: Tokens::of(answer)?,
            now,
        })
    }

    fn grant(&self, keyring: &Keyring, id: &InstallationId) -> Result<Grant, SealError> {
        let sealed = keyring.close(id, &self.tokens)?;
        Ok(Grant {
            name: self.name.clone(),
            user: self.user.clone(),
            bot: None,
            app: self.app.clone(),
            scopes: self.scopes.clone(),
            sealed,
            refresh: self.tokens.expires_ms.map(|ms| Refresh::new(self.now, ms)),
        })
    }
}

/// The store keeps this and not the two.
fn hash_of(state: &str, cookie: &str) -> String {
    hex(&Sha256::digest(format!("{state}/{cookie}").as_bytes()))
}

fn cookie_of(headers: &HeaderMap) -> Option<String> {
    let all = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let named = all.flat_map(|text| text.split(';')).filter_map(|pair| pair.split_once('='));
    named.filter(|(name, _)| name.trim() == COOKIE_NAME).map(|(_, v)| v.trim().to_owned()).next()
}

/// Only what looks like one of Slack's own words is shown.
fn plain(word: &str) -> String {
    let fine = |c: char| c.is_ascii_alphanumeric() || c == '_';
    word.chars().filter(|c| fine(*c)).take(60).collect()
}

fn page_of(stray: &Stray) -> Response {
    let (what, cure) = stray.words();
    page(stray.status(), "Not installed", (&what, cure), Some(INSTALL))
}

/// A page without anything that is loaded from elsewhere.
fn page(
    status: StatusCode,
    head: &str,
    (what, next): (&str, &str),
    link: Option<&str>,
) -> Response {
    let link = link.map(|to| format!("<p><a href=\"{to}\">Begin again</a></p>"));
    let text = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width\"><title>dogwatch: {head}</title><style>body{{font:1.1em/1.5 \
         system-ui,sans-serif;max-width:36em;margin:3em auto;padding:0 1em;color-scheme:light \
         dark}}</style><h1>{head}</h1><p>{}</p><p>{}</p>{}</html>\n",
        escaped(what),
        escaped(next),
        link.unwrap_or_default()
    );
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    guarded((status, [(CONTENT_TYPE, html)], text).into_response())
}

/// Kept by nobody, and its address told to nobody.
fn guarded(mut response: Response) -> Response {
    let csp = HeaderName::from_static("content-security-policy");
    for (name, value) in [(CACHE_CONTROL, "no-store"), (REFERRER_POLICY, "no-referrer"), (csp, CSP)]
    {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
