//! What every answer has: a request id, a line in the log, and JSON where it is an error. Owns
//! the shape of errors and the check of the token. Must not know any page.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::Reach;
use crate::core::limits::REQUEST_ID_CHARS_MAX;

/// Where a request's id stands, in what comes and in what goes.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// An id that a sender may give: it will stand in logs.
fn given_id(headers: &HeaderMap) -> Option<String> {
    let id = headers.get(REQUEST_ID)?.to_str().ok()?;
    let fits = (1..=REQUEST_ID_CHARS_MAX).contains(&id.len());
    let plain = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    (fits && id.bytes().all(plain)).then(|| id.to_owned())
}

/// Around every page.
pub(super) async fn around(State(reach): State<Reach>, request: Request, next: Next) -> Response {
    let id = given_id(request.headers()).unwrap_or_else(|| reach.ids.fresh());
    let (method, path) = (request.method().clone(), path_of(&request));
    let began = reach.clock.now();
    let mut response = next.run(request).await;
    let status = response.status();
    if (status.is_client_error() || status.is_server_error()) && !is_told(&response) {
        let told = response.headers().get(WWW_AUTHENTICATE).cloned();
        let allow = response.headers().get(axum::http::header::ALLOW).cloned();
        response = error(status, &id);
        for (name, value) in [(WWW_AUTHENTICATE, told), (axum::http::header::ALLOW, allow)] {
            if let Some(value) = value {
                response.headers_mut().insert(name, value);
            }
        }
    }
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    tracing::debug!(
        http.request_id = %id,
        http.method = %method,
        http.path = %path,
        http.status = status.as_u16(),
        http.ms = reach.clock.now().since_ms(began),
        "answered"
    );
    response
}

/// Does it say itself what is wrong? Pages for people do so in their own words.
fn is_told(response: &Response) -> bool {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind == "application/json" || kind.starts_with("text/html"))
}

/// A stranger's text, short enough for a log.
fn path_of(request: &Request) -> String {
    request.uri().path().chars().take(120).collect()
}

/// An error as every page tells it.
fn error(status: StatusCode, id: &str) -> Response {
    let (code, message, hint) = words(status);
    let body = json!({
        "error": { "code": code, "message": message, "hint": hint, "request_id": id }
    });
    (status, Json(body)).into_response()
}

fn words(status: StatusCode) -> (&'static str, &'static str, &'static str) {
    match status {
        StatusCode::UNAUTHORIZED => (
            "unauthorized",
            "this page asks for a token",
            "send 'Authorization: Bearer TOKEN' with the token of [http] token",
        ),
        StatusCode::NOT_FOUND => {
            ("not_found", "there is no such page", "there are /livez, /readyz and /metrics")
        }
        StatusCode::METHOD_NOT_ALLOWED => {
            ("method_not_allowed", "this page is only read", "use GET or HEAD")
        }
        StatusCode::PAYLOAD_TOO_LARGE => {
            ("too_large", "the body is larger than 1 MiB", "send less")
        }
        StatusCode::REQUEST_TIMEOUT => {
            ("timeout", "the request took too long", "send it again, faster")
        }
        StatusCode::SERVICE_UNAVAILABLE => {
            ("unavailable", "it took too long to find an answer", "try again in a moment")
        }
        _ if status.is_client_error() => {
            ("bad_request", "the request cannot be understood", "see the documentation of the page")
        }
        _ => ("failed", "something broke here", "the log says more, under the request_id"),
    }
}

/// A page that the token does not open.
pub(super) fn unauthorized() -> Response {
    (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, "Bearer")]).into_response()
}

/// May this request see more than a probe? Everybody may where no token is asked for. Digests are
/// compared, so that the time it takes says nothing about the token.
pub(super) fn is_known(headers: &HeaderMap, token: Option<&SecretString>) -> bool {
    let Some(token) = token else { return true };
    let given = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let given = given.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
    Sha256::digest(given.trim()) == Sha256::digest(token.expose_secret())
}
