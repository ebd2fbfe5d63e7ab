//! The requests of Slack's, where events come by them. Owns their paths and that only what is
//! signed is read. Must not know what they mean.

use std::sync::Arc;

use axum::Router;
use axum::body::{Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;

use super::envelope::Envelope;
use super::reception::{Delivery, Reception, Reply};
use super::signature::{self, Signed};
use crate::core::limits::HTTP_BODY_BYTES_MAX;

/// Which repeat of an event it is. Only told on: the desk knows a repeat by its names.
const ATTEMPT: &str = "x-slack-retry-num";

/// The paths that are entered in the app's settings at Slack.
pub fn routes(reception: Arc<Reception>) -> Router {
    Router::new()
        .route("/slack/events", post(events))
        .route("/slack/interactive", post(forms))
        .route("/slack/commands", post(forms))
        .with_state(reception)
}

async fn events(State(reception): State<Arc<Reception>>, request: Request) -> Response {
    take(&reception, request, Envelope::of_json).await
}

async fn forms(State(reception): State<Arc<Reception>>, request: Request) -> Response {
    take(&reception, request, Envelope::of_form).await
}

async fn take(
    reception: &Arc<Reception>,
    request: Request,
    read: fn(&[u8]) -> Option<Envelope>,
) -> Response {
    // Slack has counted since it began to send.
    let at = reception.now();
    let (parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, HTTP_BODY_BYTES_MAX).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    if !is_slacks(reception, &parts.headers, &body) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let Some(envelope) = read(&body) else {
        tracing::warn!(slack.bytes = body.len(), "Slack sent what cannot be read");
        return StatusCode::BAD_REQUEST.into_response();
    };
    let attempt = parts.headers.get(ATTEMPT).and_then(|value| value.to_str().ok());
    let attempt = attempt.and_then(|text| text.parse().ok()).unwrap_or(0);
    answer(reception.receive(Delivery { at, envelope, attempt }).await)
}

fn is_slacks(reception: &Reception, headers: &HeaderMap, body: &Bytes) -> bool {
    let all = |name: &str| headers.get_all(name).iter().map(HeaderValue::as_bytes).collect();
    let signed = Signed { time: all(signature::TIME), signature: all(signature::SIGNATURE) };
    // Without a secret nothing is Slack's.
    let Some(secret) = reception.signing_secret() else { return false };
    match signature::check(&signed, body, secret, reception.wall()) {
        Ok(()) => true,
        Err(error) => {
            if reception.doubts() {
                tracing::warn!(%error, "a request to Slack's pages is not believed to be Slack's");
            }
            false
        }
    }
}

fn answer(reply: Reply) -> Response {
    let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
    match reply.body {
        Some(body) => (status, axum::Json(body)).into_response(),
        None if reply.is_ack() => status.into_response(),
        None => (status, [(RETRY_AFTER, "1")]).into_response(),
    }
}
