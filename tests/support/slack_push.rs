//! Slack as it sends events by requests: signed, and with whatever a test makes wrong about them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;

use axum::Router;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

/// Sends to a server of its own with these routes. The server ends with it.
pub(crate) struct Pusher {
    url: String,
    secret: String,
    http: reqwest::Client,
    _stop: Option<DropGuard>,
}

/// A request, before it is sent.
pub(crate) struct Push {
    path: String,
    body: String,
    headers: HeaderMap,
    seconds: u64,
}

/// As Slack signs.
pub(crate) fn signature(secret: &str, seconds: u64, body: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(format!("v0:{seconds}:{body}").as_bytes());
    mac.finalize().into_bytes().iter().fold("v0=".to_owned(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn client() -> reqwest::Client {
    // Another test of this process may have installed it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().build().unwrap()
}

impl Pusher {
    pub(crate) async fn to(routes: Router, secret: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        TaskTracker::new().spawn(async move {
            tokio::select! {
                served = async { axum::serve(listener, routes).await } => served.unwrap(),
                () = stopped.cancelled() => {}
            }
        });
        let http = client();
        Self { url, secret: secret.to_owned(), http, _stop: Some(stop.drop_guard()) }
    }

    /// Sends to a bot that serves there.
    pub(crate) fn at(address: std::net::SocketAddr, secret: &str) -> Self {
        let http = client();
        Self { url: format!("http://{address}"), secret: secret.to_owned(), http, _stop: None }
    }

    /// The status of the answer, where there is one.
    pub(crate) async fn try_send(&self, push: Push) -> Option<u16> {
        let request = self.http.post(format!("{}{}", self.url, push.path));
        let answer = request.headers(push.headers).body(push.body).send().await.ok()?;
        Some(answer.status().as_u16())
    }

    /// Signed at this second.
    pub(crate) fn push(&self, path: &str, body: impl Into<String>, seconds: u64) -> Push {
        let body = body.into();
        let mut headers = HeaderMap::new();
        headers.insert("x-slack-request-timestamp", HeaderValue::from(seconds));
        let signature = signature(&self.secret, seconds, &body);
        headers.insert("x-slack-signature", HeaderValue::from_str(&signature).unwrap());
        let kind = if body.starts_with(['{', '[']) {
            "application/json"
        } else {
            "application/x-www-form-urlencoded"
        };
        headers.insert("content-type", HeaderValue::from_static(kind));
        Push { path: path.to_owned(), body, headers, seconds }
    }

    /// Status, body and headers of the answer.
    pub(crate) async fn send(&self, push: Push) -> (u16, String, HeaderMap) {
        let request = self.http.post(format!("{}{}", self.url, push.path));
        let answer = request.headers(push.headers).body(push.body).send().await.unwrap();
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        (status, answer.text().await.unwrap(), headers)
    }
}

impl Push {
    pub(crate) fn without(mut self, name: &str) -> Self {
        self.headers.remove(name);
        self
    }

    /// One header more, beside what is there of this name.
    pub(crate) fn also(mut self, name: &str, value: &str) -> Self {
        let name: HeaderName = name.parse().unwrap();
        self.headers.append(name, HeaderValue::from_str(value).unwrap());
        self
    }

    pub(crate) fn signed_with(mut self, secret: &str) -> Self {
        let signature = signature(secret, self.seconds, &self.body);
        self.headers.insert("x-slack-signature", HeaderValue::from_str(&signature).unwrap());
        self
    }

    /// Another body under the same signature.
    pub(crate) fn body(mut self, body: impl Into<String>) -> Self {
        self.body = body.into();
        self
    }
}
