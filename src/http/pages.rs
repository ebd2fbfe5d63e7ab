//! The pages for programs: `/livez`, `/readyz`, `/metrics`. Must not know how anything is found
//! out.

use std::time::Duration;

use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use secrecy::SecretString;
use serde_json::json;
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::timeout::{RequestBodyTimeoutLayer, TimeoutLayer};

use super::{Reach, answer};
use crate::core::limits::{HTTP_BODY_BYTES_MAX, HTTP_BODY_MS, HTTP_REQUEST_MS};

/// The form of the metrics that every Prometheus reads.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Clone)]
struct Pages {
    reach: Reach,
    token: Option<SecretString>,
}

/// All pages, with what is around each.
pub(super) fn router(reach: Reach, token: Option<SecretString>, more: Router) -> Router {
    let late = Duration::from_millis(HTTP_REQUEST_MS);
    Router::new()
        .route("/livez", get(live))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .fallback(|| async { StatusCode::NOT_FOUND })
        .with_state(Pages { reach: reach.clone(), token })
        .merge(more)
        .layer(RequestBodyTimeoutLayer::new(Duration::from_millis(HTTP_BODY_MS)))
        .layer(RequestBodyLimitLayer::new(HTTP_BODY_BYTES_MAX))
        .layer(TimeoutLayer::with_status_code(StatusCode::SERVICE_UNAVAILABLE, late))
        .layer(from_fn_with_state(reach, answer::around))
}

async fn live() -> Response {
    ([(CACHE_CONTROL, "no-store")], Json(json!({ "live": true }))).into_response()
}

async fn ready(State(pages): State<Pages>, headers: HeaderMap) -> Response {
    let checks = pages.reach.house.readiness().await;
    let ready = checks.iter().all(|check| check.ok);
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    // The reasons name paths and the like: not for everybody.
    let body = if answer::is_known(&headers, pages.token.as_ref()) {
        json!({ "ready": ready, "checks": checks })
    } else {
        json!({ "ready": ready })
    };
    (status, [(CACHE_CONTROL, "no-store")], Json(body)).into_response()
}

async fn metrics(State(pages): State<Pages>, headers: HeaderMap) -> Response {
    if !answer::is_known(&headers, pages.token.as_ref()) {
        return answer::unauthorized();
    }
    let text = pages.reach.house.metrics().await;
    ([(CONTENT_TYPE, OPENMETRICS), (CACHE_CONTROL, "no-store")], text).into_response()
}
