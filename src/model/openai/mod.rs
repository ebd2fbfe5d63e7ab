//! Chat Completions, the interface that most servers of language models speak. Owns the connection:
//! its deadlines, its errors and its end. Must not know turns or retries: one call is one try.

mod answer;
mod calls;
mod request;

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Response, Url};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

pub(crate) use self::answer::estimate;
use self::answer::{Assembly, End};
use super::error::{self, Scrub, garbled, outage};
use super::sse::Decoder;
use crate::core::limits::{
    MODEL_CONNECT_MS, MODEL_ERROR_BYTES_MAX, MODEL_HEADER_MS, MODEL_IDLE_MS,
    MODEL_STREAM_BYTES_MAX, MODEL_TAIL_MS, MODEL_TOTAL_MS,
};
use crate::core::message::{Answer, Delta, ModelError, Request};
use crate::core::time::span;
use crate::ports::{Clock, Model};

/// How to reach a server.
#[derive(Clone)]
pub struct Settings {
    /// Everything before `/chat/completions`, such as `http://127.0.0.1:8080/v1`. May hold secrets
    /// in its query or before its host.
    pub base_url: String,
    /// The model's name there.
    pub model: String,
    /// Likewise of an agent that wants another, by the agent's name.
    pub models: BTreeMap<String, String>,
    /// Sent as a bearer token.
    pub api_key: Option<SecretString>,
    /// Further headers, for gateways that want their own.
    pub headers: Vec<(String, SecretString)>,
    /// The most tokens of one answer; the server's own bound if `None`.
    pub max_tokens: Option<u32>,
    /// The server's own if `None`.
    pub temperature: Option<f64>,
    /// Until the connection is there.
    pub connect_ms: u64,
    /// Until the head of the answer is there, connecting included.
    pub header_ms: u64,
    /// Silence after which the call is given up. Any byte is life, also a comment.
    pub idle_ms: u64,
    /// The whole call.
    pub total_ms: u64,
}

impl Settings {
    /// With the deadlines of `core/limits.rs` and nothing else.
    pub fn new(base_url: impl Into<String>, model: impl Into<String>) -> Self {
        Self {
            base_url: base_url.into(),
            model: model.into(),
            models: BTreeMap::new(),
            api_key: None,
            headers: Vec::new(),
            max_tokens: None,
            temperature: None,
            connect_ms: MODEL_CONNECT_MS,
            header_ms: MODEL_HEADER_MS,
            idle_ms: MODEL_IDLE_MS,
            total_ms: MODEL_TOTAL_MS,
        }
    }
}

impl Settings {
    /// The name of the model that an agent asks.
    pub(super) fn model_of(&self, agent: &str) -> &str {
        self.models.get(agent).unwrap_or(&self.model)
    }
}

impl fmt::Debug for Settings {
    /// Without the base URL, which may hold secrets as plain text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Settings")
            .field("model", &self.model)
            .field("headers", &names)
            .finish_non_exhaustive()
    }
}

/// Why a client cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// Not a URL that can be asked.
    #[error("base_url is not an http or https URL: {0}; write for example https://HOST/v1")]
    BaseUrl(String),
    /// Two ways to be known, of which only one can be sent.
    #[error("base_url has a user name and there is an api_key too: remove one of them")]
    TwoKeys,
    /// A header that cannot be sent.
    #[error(
        "header `{0}` cannot be sent: its name or value has characters that no header may have, \
         such as a line feed at the end of a key"
    )]
    Header(String),
    /// No TLS.
    #[error("the HTTP client cannot be made: {0}; are the system's certificates installed?")]
    Client(String),
}

/// A model behind a server that speaks Chat Completions.
pub struct OpenAi {
    http: Client,
    url: Url,
    settings: Settings,
    clock: Arc<dyn Clock>,
    scrub: Scrub,
    /// The server has refused `stream_options` before.
    plain: AtomicBool,
}

/// A request that was answered with an error.
struct Rejected {
    error: ModelError,
    /// The server does not know `stream_options`.
    options: bool,
}

impl From<ModelError> for Rejected {
    fn from(error: ModelError) -> Self {
        Self { error, options: false }
    }
}

impl OpenAi {
    /// Checks the settings; does not connect.
    pub fn new(settings: Settings, clock: Arc<dyn Clock>) -> Result<Self, SettingsError> {
        let url = endpoint(&settings.base_url)?;
        if settings.api_key.is_some() && !(url.username().is_empty() && url.password().is_none()) {
            return Err(SettingsError::TwoKeys);
        }
        let mut secrets = secrets_in(&url);
        secrets.extend(settings.api_key.clone());
        secrets.extend(settings.headers.iter().map(|(_, value)| value.clone()));
        let mut http = Client::builder()
            .user_agent(concat!("dogwatch/", env!("CARGO_PKG_VERSION")))
            .default_headers(headers(&settings)?)
            // A redirect could carry the key elsewhere.
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(Duration::from_millis(settings.connect_ms));
        if is_loopback(&url) {
            http = http.no_proxy();
        }
        let http = http.build().map_err(|error| SettingsError::Client(error.to_string()))?;
        let (scrub, plain) = (Scrub::new(secrets), AtomicBool::new(false));
        Ok(Self { http, url, settings, clock, scrub, plain })
    }

    /// What answers, for people: the model's name and where it is.
    pub fn describe(&self) -> String {
        let Settings { model, models, .. } = &self.settings;
        let own: Vec<_> = models.iter().map(|(agent, own)| format!("{agent}: {own}")).collect();
        let own = if own.is_empty() { String::new() } else { format!(" ({})", own.join(", ")) };
        format!("{model}{own} at {}", error::place(&self.url))
    }

    async fn ask(
        &self,
        request: &Request,
        progress: &mut (dyn FnMut(Delta) + Send),
    ) -> Result<Answer, ModelError> {
        let total = self.settings.total_ms;
        match self.within(total, self.exchange(request, progress)).await {
            Some(result) => result,
            None => Err(outage(format!("the answer was not whole after {}", span(total)))),
        }
    }

    async fn exchange(
        &self,
        request: &Request,
        progress: &mut (dyn FnMut(Delta) + Send),
    ) -> Result<Answer, ModelError> {
        let usage = !self.plain.load(Ordering::Relaxed);
        let asked = request::body(request, &self.settings, usage).to_string();
        let asked_bytes = asked.len();
        let opened = match self.open(asked).await {
            Err(rejected) if usage && rejected.options => {
                self.plain.store(true, Ordering::Relaxed);
                self.open(request::body(request, &self.settings, false).to_string()).await
            }
            other => other,
        };
        let response = opened.map_err(|rejected| rejected.error)?;
        let kind = kind_of(&response);
        if kind.contains("html") {
            let what = format!("it is a page ({kind}), not a completion; check base_url");
            return Err(garbled(what));
        }
        if kind.contains("json") {
            return self.whole(response, asked_bytes, progress).await;
        }
        self.stream(response, asked_bytes, progress).await
    }

    /// Sends the request and waits for the head of the answer.
    async fn open(&self, body: String) -> Result<Response, Rejected> {
        let request = self.http.post(self.url.clone()).header(CONTENT_TYPE, "application/json");
        let ms = self.settings.header_ms;
        let response = match self.within(ms, request.body(body).send()).await {
            None => return Err(outage(format!("no answer began within {}", span(ms))).into()),
            Some(sent) => sent.map_err(|error| self.broken(&error))?,
        };
        if response.status().is_success() {
            return Ok(response);
        }
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        // The status says enough, whatever becomes of the body.
        let body = self.body(response, MODEL_ERROR_BYTES_MAX).await.unwrap_or_default();
        let now = self.clock.now();
        let error = error::of_status(status, &headers, &body, now, &self.scrub);
        Err(Rejected { error, options: error::blames_stream_options(status, &body) })
    }

    async fn stream(
        &self,
        mut response: Response,
        asked_bytes: usize,
        progress: &mut (dyn FnMut(Delta) + Send),
    ) -> Result<Answer, ModelError> {
        let kind = kind_of(&response);
        let mut decoder = Decoder::default();
        let mut answer = Assembly::new(&self.scrub);
        let mut bytes = 0;
        let end = loop {
            let idle = self.settings.idle_ms;
            let quiet = if answer.closed() { idle.min(MODEL_TAIL_MS) } else { idle };
            let chunk = match self.within(quiet, response.chunk()).await {
                None => break End::Silent(quiet),
                Some(Err(error)) => break End::Cut(self.broken(&error)),
                Some(Ok(None)) => break End::Closed,
                Some(Ok(Some(chunk))) => chunk,
            };
            bytes += chunk.len();
            if bytes > MODEL_STREAM_BYTES_MAX {
                return Err(garbled(format!("it has more than {MODEL_STREAM_BYTES_MAX} bytes")));
            }
            let mut done = false;
            for event in decoder.push(&chunk).map_err(|error| garbled(error.to_string()))? {
                done = done || answer.event(&event, progress)?;
            }
            if done {
                // Takes the end of the body if it is there already, so that the connection can be
                // used again. Nothing waits for it.
                let _ = response.chunk().now_or_never();
                return answer.finish(End::Done, asked_bytes);
            }
        };
        let rest = if matches!(end, End::Closed) { decoder.finish() } else { None };
        if let Some(event) = rest
            && answer.event(&event, progress)?
        {
            return answer.finish(End::Done, asked_bytes);
        }
        // Some servers stream under another name. One that says nothing is no model's server: it
        // would be asked for ever if this were an outage.
        if !answer.heard() && !kind.contains("event-stream") {
            let what = format!("it is `{kind}`, not a stream of events; check base_url");
            return Err(garbled(what));
        }
        answer.finish(end, asked_bytes)
    }

    /// A server that does not stream answers with one object.
    async fn whole(
        &self,
        response: Response,
        asked_bytes: usize,
        progress: &mut (dyn FnMut(Delta) + Send),
    ) -> Result<Answer, ModelError> {
        let body = self.body(response, MODEL_STREAM_BYTES_MAX).await?;
        let value: Value = serde_json::from_slice(&body)
            .map_err(|error| garbled(format!("it is not the JSON it says to be: {error}")))?;
        let mut answer = Assembly::new(&self.scrub);
        answer.chunk(&value, progress)?;
        answer.finish(End::Done, asked_bytes)
    }

    async fn body(&self, mut response: Response, bytes_max: usize) -> Result<Vec<u8>, ModelError> {
        let mut body = Vec::new();
        let idle = self.settings.idle_ms;
        loop {
            match self.within(idle, response.chunk()).await {
                None => return Err(outage(format!("the answer was silent for {}", span(idle)))),
                Some(Err(error)) => return Err(self.broken(&error)),
                Some(Ok(None)) => return Ok(body),
                Some(Ok(Some(chunk))) if body.len() + chunk.len() > bytes_max => {
                    return Err(garbled(format!("it has more than {bytes_max} bytes")));
                }
                Some(Ok(Some(chunk))) => body.extend_from_slice(&chunk),
            }
        }
    }

    fn broken(&self, error: &reqwest::Error) -> ModelError {
        error::of_transport(error, &self.url, &self.scrub)
    }

    /// `None` if it takes longer.
    async fn within<T>(&self, ms: u64, work: impl Future<Output = T>) -> Option<T> {
        let deadline = self.clock.sleep_until(self.clock.now().plus_ms(ms));
        tokio::select! {
            biased;
            value = work => Some(value),
            () = deadline => None,
        }
    }
}

impl Model for OpenAi {
    fn call<'a>(
        &'a self,
        request: &'a Request,
        progress: &'a mut (dyn FnMut(Delta) + Send),
    ) -> BoxFuture<'a, Result<Answer, ModelError>> {
        Box::pin(self.ask(request, progress))
    }
}

fn endpoint(base: &str) -> Result<Url, SettingsError> {
    let mut url = Url::parse(base).map_err(|error| SettingsError::BaseUrl(error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(SettingsError::BaseUrl(format!("its scheme is `{}`", url.scheme())));
    }
    // The query stays: some gateways want their version there.
    let path = format!("{}/chat/completions", url.path().trim_end_matches('/'));
    url.set_path(&path);
    Ok(url)
}

fn kind_of(response: &Response) -> String {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.unwrap_or_default().to_owned()
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let bare = host.trim_matches(['[', ']']);
    host == "localhost" || bare.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// What of a URL must never be shown, as it is written there.
fn secrets_in(url: &Url) -> Vec<SecretString> {
    let query = url.query().unwrap_or_default();
    let values = query.split('&').filter_map(|pair| Some(pair.split_once('=')?.1));
    let user = [url.username(), url.password().unwrap_or_default()];
    values.chain(user).map(|secret| secret.to_owned().into()).collect()
}

fn headers(settings: &Settings) -> Result<HeaderMap, SettingsError> {
    let mut map = HeaderMap::new();
    let key = settings.api_key.as_ref().map(|key| {
        let value: SecretString = format!("Bearer {}", key.expose_secret()).into();
        (AUTHORIZATION.to_string(), value)
    });
    for (name, value) in key.iter().chain(&settings.headers) {
        let bad = || SettingsError::Header(name.clone());
        let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
        let mut value = HeaderValue::from_str(value.expose_secret()).map_err(|_| bad())?;
        value.set_sensitive(true);
        map.insert(header, value);
    }
    Ok(map)
}
