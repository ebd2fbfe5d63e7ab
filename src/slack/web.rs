//! Slack's Web API: one call is one try. Owns its deadlines and what its answers mean. Must not
//! know what is asked.

mod download;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::{Client, RequestBuilder, Response, StatusCode, Url};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use super::OAuth;
use crate::core::limits::{
    SLACK_ANSWER_BYTES_MAX, SLACK_CALL_MS, SLACK_CONNECT_MS, SLACK_LIMITED_MS, SLACK_LIMITED_MS_MAX,
};
use crate::ports::Clock;

pub(super) use self::download::{Download, DownloadError};

/// In an answer's head: what the token is allowed.
const SCOPES: &str = "x-oauth-scopes";

/// Why a call has no answer that can be used. None of these holds a URL, a token or a body.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// Slack said no: nothing was done.
    #[error("Slack refused {method}: {error}{}", scope_words(needed.as_deref()))]
    Refused {
        /// Which method.
        method: &'static str,
        /// Slack's word for it, such as `channel_not_found`.
        error: String,
        /// The scope that is missing, for `missing_scope`.
        needed: Option<String>,
    },
    /// Too many calls: nothing was done.
    #[error("Slack limits {method} for {after_ms} ms")]
    Limited {
        /// Which method.
        method: &'static str,
        /// Not before.
        after_ms: u64,
    },
    /// It was not reached: nothing was done.
    #[error("Slack was not reached for {method}: {what}")]
    Unreached {
        /// Which method.
        method: &'static str,
        /// What was seen.
        what: String,
    },
    /// It was asked and gave no answer that can be read: it may have been done.
    #[error("nobody knows whether Slack did {method}: {what}")]
    Unknown {
        /// Which method.
        method: &'static str,
        /// What was seen.
        what: String,
    },
}

fn scope_words(needed: Option<&str>) -> String {
    needed.map(|scope| format!(" (it needs the scope {scope})")).unwrap_or_default()
}

/// Why there is no client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WebError {
    /// Tokens would go to a place that may not have them.
    #[error("[slack] api must be an https URL, or http on this machine, and end in /")]
    Api,
    /// No TLS.
    #[error("the HTTP client cannot be made: {0}; are the system's certificates installed?")]
    Client(String),
}

/// The Web API.
pub struct Web {
    http: Client,
    api: Url,
    clock: Arc<dyn Clock>,
}

impl Web {
    /// Does not connect.
    pub fn new(api: &str, clock: Arc<dyn Clock>) -> Result<Self, WebError> {
        let api = Url::parse(api).map_err(|_| WebError::Api)?;
        let here = is_here(&api);
        let fine = api.scheme() == "https" || (api.scheme() == "http" && here);
        if !fine || !api.path().ends_with('/') || api.query().is_some() {
            return Err(WebError::Api);
        }
        // A redirect would carry the token along.
        let http = Client::builder()
            .connect_timeout(Duration::from_millis(SLACK_CONNECT_MS))
            .redirect(reqwest::redirect::Policy::none())
            .tcp_nodelay(true);
        let http = if here { http.no_proxy() } else { http };
        let http = http.build().map_err(|error| WebError::Client(error.to_string()))?;
        Ok(Self { http, api, clock })
    }

    /// Is Slack on this machine? It is in tests.
    pub(super) fn is_here(&self) -> bool {
        is_here(&self.api)
    }

    /// Asks once. `body` is an object; the answer is Slack's, with `ok: true`.
    ///
    /// # Errors
    /// All but [`CallError::Unknown`] mean that nothing was done.
    pub async fn call(
        &self,
        token: &SecretString,
        method: &'static str,
        body: &Value,
    ) -> Result<Value, CallError> {
        // Whoever calls carries no more of it than where it is.
        let asked = Box::pin(async {
            let Ok(url) = self.api.join(method) else {
                return Err(CallError::Unreached { method, what: "no such method".to_owned() });
            };
            let request = self.http.post(url).bearer_auth(token.expose_secret());
            let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
            judge(method, &ask(method, request.body(form(body))).await?.bytes)
        });
        self.in_time(method, asked).await
    }

    /// Slack's page on which people let an app in.
    pub(super) fn authorize(&self) -> Url {
        self.api.join("/oauth/v2/authorize").unwrap_or_else(|_| self.api.clone())
    }

    /// Exchanges a code, or a token that gets new ones, for tokens.
    ///
    /// # Errors
    /// As of [`Web::call`].
    pub(super) async fn exchange(&self, oauth: &OAuth, body: &Value) -> Result<Value, CallError> {
        let method = "oauth.v2.access";
        let asked = Box::pin(async {
            let Ok(url) = self.api.join(method) else {
                return Err(CallError::Unreached { method, what: "no such method".to_owned() });
            };
            let secret = oauth.client_secret.expose_secret();
            let request = self.http.post(url).basic_auth(&oauth.client_id, Some(secret));
            let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
            judge(method, &ask(method, request.body(form(body))).await?.bytes)
        });
        self.in_time(method, asked).await
    }

    /// Whose a token is, and the scopes that Slack says it has, with commas between them.
    ///
    /// # Errors
    /// As of [`Web::call`].
    pub async fn known(&self, token: &SecretString) -> Result<(Value, Option<String>), CallError> {
        let method = "auth.test";
        let asked = Box::pin(async {
            let Ok(url) = self.api.join(method) else {
                return Err(CallError::Unreached { method, what: "no such method".to_owned() });
            };
            let got = ask(method, self.http.post(url).bearer_auth(token.expose_secret())).await?;
            Ok((judge(method, &got.bytes)?, got.scopes))
        });
        self.in_time(method, asked).await
    }

    /// Sends the bytes of a file to where Slack said that it takes them, without the token. They
    /// are seen by nobody until the upload is completed.
    ///
    /// # Errors
    /// As of [`Web::call`].
    pub async fn upload(&self, url: &str, bytes: Vec<u8>) -> Result<(), CallError> {
        let method = "the upload of a file";
        let here = |url: &Url| url.scheme() == "http" && is_here(url) && is_here(&self.api);
        let url = Url::parse(url).ok().filter(|url| url.scheme() == "https" || here(url));
        let Some(url) = url else {
            let what = "Slack named no https URL for it".to_owned();
            return Err(CallError::Unreached { method, what });
        };
        let request = self.http.post(url).header(CONTENT_TYPE, "application/octet-stream");
        let sent = Box::pin(ask(method, request.body(bytes)));
        self.in_time(method, sent).await.map(drop)
    }

    async fn in_time<T>(
        &self,
        method: &'static str,
        call: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        let until = self.clock.now().plus_ms(SLACK_CALL_MS);
        tokio::select! {
            answer = call => answer,
            () = self.clock.sleep_until(until) => Err(CallError::Unknown {
                method,
                what: format!("no answer for {SLACK_CALL_MS} ms"),
            }),
        }
    }
}

/// Is it this machine? Then what is sent there needs no TLS.
pub(super) fn is_here(url: &Url) -> bool {
    url.host_str().is_some_and(|host| {
        host == "localhost"
            || host.trim_matches(['[', ']']).parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
    })
}

/// Every method takes a form, only some take JSON. What is not plain is JSON inside of it.
fn form(body: &Value) -> String {
    let Ok(mut url) = Url::parse("http://localhost/") else { return String::new() };
    {
        let mut pairs = url.query_pairs_mut();
        for (key, value) in body.as_object().into_iter().flatten() {
            match value {
                Value::Null => {}
                Value::String(text) => drop(pairs.append_pair(key, text)),
                Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                    pairs.append_pair(key, &value.to_string());
                }
            }
        }
    }
    url.query().unwrap_or_default().to_owned()
}

/// An answer, whatever it says.
struct Got {
    bytes: Vec<u8>,
    scopes: Option<String>,
}

async fn ask(method: &'static str, request: RequestBuilder) -> Result<Got, CallError> {
    let response = request.send().await.map_err(|error| unsent(method, &error))?;
    let status = response.status();
    if status == StatusCode::TOO_MANY_REQUESTS {
        return Err(CallError::Limited { method, after_ms: after_ms(&response) });
    }
    if !status.is_success() {
        let what = format!("HTTP {}", status.as_u16());
        // What something on the way turned down has not come to Slack.
        let turned_down = matches!(status.as_u16(), 300..=407 | 410..=499);
        return Err(if turned_down {
            CallError::Unreached { method, what }
        } else {
            CallError::Unknown { method, what }
        });
    }
    let scopes = response.headers().get(SCOPES).and_then(|value| value.to_str().ok());
    let scopes = scopes.map(str::to_owned);
    let bytes = whole(response).await.map_err(|what| CallError::Unknown { method, what })?;
    Ok(Got { bytes, scopes })
}

fn unsent(method: &'static str, error: &reqwest::Error) -> CallError {
    if error.is_connect() || error.is_builder() {
        let what = "no connection: is the network there, and are the system's certificates?";
        CallError::Unreached { method, what: what.to_owned() }
    } else {
        CallError::Unknown { method, what: "the connection broke".to_owned() }
    }
}

fn after_ms(response: &Response) -> u64 {
    let seconds = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    let seconds = seconds.and_then(|text| text.trim().parse::<u64>().ok());
    let after_ms = seconds.map_or(SLACK_LIMITED_MS, |seconds| seconds.saturating_mul(1_000));
    after_ms.min(SLACK_LIMITED_MS_MAX)
}

async fn whole(mut response: Response) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) if bytes.len() + chunk.len() <= SLACK_ANSWER_BYTES_MAX => {
                bytes.extend_from_slice(&chunk);
            }
            Ok(Some(_)) => return Err(format!("more than {SLACK_ANSWER_BYTES_MAX} bytes")),
            Ok(None) => return Ok(bytes),
            Err(_) => return Err("the answer broke off".to_owned()),
        }
    }
}

/// Slack answers 200 also when it refuses.
fn judge(method: &'static str, bytes: &[u8]) -> Result<Value, CallError> {
    let unknown = |what: &str| CallError::Unknown { method, what: what.to_owned() };
    let answer: Value =
        serde_json::from_slice(bytes).map_err(|_| unknown("the answer is not JSON"))?;
    match answer.get("ok").and_then(Value::as_bool) {
        Some(true) => Ok(answer),
        Some(false) => Err(refused(method, &answer)),
        None => Err(unknown("the answer does not say whether it is ok")),
    }
}

fn refused(method: &'static str, answer: &Value) -> CallError {
    let word = |key: &str| answer.get(key).and_then(Value::as_str).and_then(plain);
    let error = word("error").unwrap_or_else(|| "no reason given".to_owned());
    match error.as_str() {
        // Two spellings of one thing.
        "ratelimited" | "rate_limited" => CallError::Limited { method, after_ms: SLACK_LIMITED_MS },
        // Slack's own faults: it may have been done before they happened.
        "internal_error" | "fatal_error" | "service_unavailable" | "request_timeout" => {
            CallError::Unknown { method, what: error }
        }
        _ => CallError::Refused { method, error, needed: word("needed") },
    }
}

/// Only what looks like one of Slack's own words is shown to people or logged.
fn plain(text: &str) -> Option<String> {
    let fine = |c: char| c.is_ascii_alphanumeric() || "_:,.-".contains(c);
    (!text.is_empty() && text.len() <= 100 && text.chars().all(fine)).then(|| text.to_owned())
}
