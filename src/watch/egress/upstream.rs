//! One request to its upstream, on a connection of its own. Owns what of a request goes on and what
//! of its answer comes back: no header that is meant for the next hop only, no credential but by
//! TLS to its own place. Must not know whether it was allowed.

use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, LINK, LOCATION,
    PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, RETRY_AFTER, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use hyper::http::request::Parts;
use hyper::{Request, Response, StatusCode, Uri, Version};
use hyper_util::rt::TokioIo;
use secrecy::ExposeSecret;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::answer::{Answer, Download, Idle, Lost, Report, Upload, mark_limited};
use super::house::{Execution, Using};
use super::pace::time_of_day;
use super::reach;
use super::wire::Gauge;
use super::words::Lent;
use crate::core::egress::{Account, Denial, Destination, TLS_PORT, Trouble, inward, inward_links};
use crate::core::limits::{EGRESS_FIELDS_MAX, EGRESS_HEAD_BYTES_MAX, EGRESS_HOLD_MS};
use crate::core::time::Timestamp;

/// Meant for the next hop only, or made anew.
const OF_THE_HOP: [HeaderName; 10] = [
    CONNECTION,
    EXPECT,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];
/// How much is left of an upstream's budget, and until when, where it says so.
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// Where a request goes, and with what.
pub(super) struct Onward {
    pub(super) using: Arc<Using>,
    pub(super) gauge: Arc<Gauge>,
    pub(super) to: Destination,
    /// Put into it; then it goes by TLS.
    pub(super) lent: Option<Lent>,
    pub(super) report: Report,
}

/// Takes a request to its upstream and the beginning of the answer back.
pub(super) async fn pass_on(
    execution: &Arc<Execution>,
    onward: Onward,
    request: Request<Incoming>,
) -> Response<Answer> {
    let mut lost = lost(execution, &onward);
    let answered = tokio::select! {
        answered = ask(execution, &onward, request) => answered,
        () = &mut lost => Err(Denial::NotAllowed { to: onward.to.clone() }),
    };
    let Onward { using, gauge, to, lent, mut report } = onward;
    match answered {
        Ok((response, upstream)) => {
            let (mut parts, body) = response.into_parts();
            report.status = Some(parts.status.as_u16());
            strip(&mut parts.headers);
            if lent.is_some() {
                turn_inward(&mut parts.headers, &to);
            }
            // What upstreams say is by the time of day, whatever it was when this process began.
            let now = time_of_day();
            let held_ms = held(parts.status, &parts.headers, now);
            let house = Arc::clone(&report.house);
            let idle = Idle::new(using.told.caps.idle_ms);
            let whole = false;
            let download = Download { body, gauge, report, idle, lost, whole, _upstream: upstream };
            let answer = Answer::Upstream(Box::new(download));
            parts.version = Version::HTTP_11;
            let mut response = Response::from_parts(parts, answer);
            if let Some(held_ms) = held_ms {
                let account = match lent {
                    Some(lent) => Account::Credential(lent.name),
                    None => Account::Host(to.host),
                };
                house.pace.hold(&account, held_ms);
                mark_limited(&mut response, &account.words(), held_ms);
            }
            response
        }
        Err(denial) => {
            gauge.serve(false);
            report.denied(&denial)
        }
    }
}

fn lost(execution: &Arc<Execution>, onward: &Onward) -> Lost {
    let (execution, to) = (Arc::clone(execution), onward.to.clone());
    let lent = onward.lent.as_ref().map(|lent| lent.name.clone());
    Box::pin(async move { execution.loses(&to, lent.as_ref()).await })
}

type Answered = (Response<Incoming>, AbortOnDropHandle<()>);

async fn ask(
    execution: &Execution,
    onward: &Onward,
    request: Request<Incoming>,
) -> Result<Answered, Denial> {
    let Onward { using, to, lent, .. } = onward;
    let trouble = |trouble| Denial::Upstream { to: to.clone(), trouble };
    let request = outward(onward, request).ok_or_else(|| trouble(Trouble::Broken))?;
    let stream = reach::connect(using, execution, to).await?;
    let (mut sender, upstream) = if lent.is_some() {
        speak(reach::secure(using, stream, to).await?).await
    } else {
        speak(stream).await
    }
    .map_err(|_| trouble(Trouble::Broken))?;
    let time = Duration::from_millis(using.told.caps.idle_ms);
    match timeout(time, sender.send_request(request)).await {
        // What follows it would be no HTTP.
        Ok(Ok(response)) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
            Err(trouble(Trouble::Broken))
        }
        Ok(Ok(response)) => Ok((response, upstream)),
        Ok(Err(_broken)) => Err(trouble(Trouble::Broken)),
        Err(_late) => Err(trouble(Trouble::Late)),
    }
}

async fn speak<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
) -> hyper::Result<(SendRequest<Upload>, AbortOnDropHandle<()>)> {
    let (sender, connection) = Builder::new()
        .max_headers(EGRESS_FIELDS_MAX)
        .max_buf_size(EGRESS_HEAD_BYTES_MAX)
        .handshake(TokioIo::new(stream))
        .await?;
    let driven = tokio_util::task::TaskTracker::new().spawn(async move {
        // Whoever waits for the answer hears of it.
        let _ended = connection.await;
    });
    Ok((sender, AbortOnDropHandle::new(driven)))
}

/// The request as the upstream gets it.
fn outward(onward: &Onward, request: Request<Incoming>) -> Option<Request<Upload>> {
    let (Parts { method, uri, mut headers, .. }, body) = request.into_parts();
    strip(&mut headers);
    // Made anew from the body as it was understood here.
    headers.remove(CONTENT_LENGTH);
    let Onward { to, lent, .. } = onward;
    let usual = if lent.is_some() { TLS_PORT } else { 80 };
    let host =
        if to.port == usual { to.host.to_string() } else { format!("{}:{}", to.host, to.port) };
    headers.insert(HOST, HeaderValue::try_from(host).ok()?);
    if let Some(lent) = lent {
        let name = HeaderName::try_from(lent.header.as_str()).ok()?;
        let mut value = HeaderValue::try_from(lent.value.expose_secret()).ok()?;
        value.set_sensitive(true);
        // Whatever the script sent there goes.
        headers.insert(name, value);
    }
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    let idle = Idle::new(onward.using.told.caps.idle_ms);
    let (gauge, count) = (Arc::clone(&onward.gauge), Arc::clone(&onward.report.up));
    let mut request = Request::new(Upload { body, gauge, count, idle });
    *request.method_mut() = method;
    *request.uri_mut() = Uri::try_from(path).ok()?;
    *request.headers_mut() = headers;
    Some(request)
}

/// Takes out what is meant for the next hop only.
fn strip(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| HeaderName::try_from(name.trim()).ok())
        .collect();
    for name in named.iter().chain(&OF_THE_HOP) {
        headers.remove(name);
    }
}

/// Addresses of the same place lead back through here, so that the credential goes along.
fn turn_inward(headers: &mut HeaderMap, to: &Destination) {
    let set = |headers: &mut HeaderMap, name: HeaderName, text: String| {
        if let Ok(value) = HeaderValue::try_from(text) {
            headers.insert(name, value);
        }
    };
    let text = |headers: &HeaderMap, name: HeaderName| {
        headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
    };
    if let Some(address) = text(headers, LOCATION).and_then(|address| inward(&address, to)) {
        set(headers, LOCATION, address);
    }
    if let Some(links) = text(headers, LINK) {
        set(headers, LINK, inward_links(&links, to));
    }
}

/// For how long the upstream asks to be left alone, in milliseconds.
fn held(status: StatusCode, headers: &HeaderMap, now: Timestamp) -> Option<u64> {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let pause = text(RETRY_AFTER).and_then(|value| pause_ms(value.trim(), now));
    let spent = text(REMAINING).is_some_and(|left| left.trim() == "0");
    let reset = || {
        let at = text(RESET)?.trim().parse::<u64>().ok()?;
        Some(Timestamp::from_ms(at.saturating_mul(1_000)).since_ms(now))
    };
    match status {
        StatusCode::TOO_MANY_REQUESTS => {
            Some(pause.or_else(|| reset().filter(|_| spent)).unwrap_or(EGRESS_HOLD_MS))
        }
        StatusCode::SERVICE_UNAVAILABLE => pause,
        StatusCode::FORBIDDEN => pause.or_else(|| reset().filter(|_| spent)),
        _ => None,
    }
}

/// `Retry-After`: seconds, or a date.
fn pause_ms(value: &str, now: Timestamp) -> Option<u64> {
    if let Ok(seconds) = value.parse::<u64>() {
        return Some(seconds.saturating_mul(1_000));
    }
    let at = jiff::fmt::rfc2822::parse(value).ok()?.timestamp().as_millisecond();
    Some(Timestamp::from_ms(u64::try_from(at).ok()?).since_ms(now))
}
