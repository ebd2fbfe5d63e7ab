//! What goes back to a script: a refusal in words, or an upstream's answer as it comes. Owns that
//! each request is told to the log once, when its answer is over. Must not know why it was refused.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::ext::ReasonPhrase;
use hyper::header::RETRY_AFTER;
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, PROXY_AUTHENTICATE};
use hyper::{Response, StatusCode};
use tokio::time::{Instant, Sleep};
use tokio_util::task::AbortOnDropHandle;

use super::house::House;
use super::log::{Entry, Verdict, when};
use super::pace::time_of_day;
use super::wire::{Gauge, full};
use crate::core::egress::{Cap, Denial, Destination};

/// Says in a header what programs look for in vain in a body.
const SAYS: HeaderName = HeaderName::from_static("x-dogwatch");
/// What it says where there were too many requests.
const RATE_LIMITED: HeaderValue = HeaderValue::from_static("rate_limited");

/// What is known of a request, told to the log when it is dropped.
pub(super) struct Report {
    pub(super) house: Arc<House>,
    pub(super) execution: String,
    pub(super) method: String,
    pub(super) to: Option<Destination>,
    pub(super) verdict: Verdict,
    pub(super) reason: Option<String>,
    pub(super) status: Option<u16>,
    /// Bytes to the upstream, which somebody else counts.
    pub(super) up: Arc<AtomicU64>,
    pub(super) down: u64,
}

impl Drop for Report {
    fn drop(&mut self) {
        self.house.log.write(&Entry {
            at: when(time_of_day()),
            execution: &self.execution,
            method: &self.method,
            host: self.to.as_ref().map(|to| to.host.to_string()),
            port: self.to.as_ref().map(|to| to.port),
            verdict: self.verdict,
            reason: self.reason.take(),
            status: self.status,
            up: self.up.load(Ordering::Relaxed),
            down: self.down,
        });
    }
}

impl Report {
    /// It was refused.
    pub(super) fn denied(mut self, denial: &Denial) -> Response<Answer> {
        self.verdict = match denial {
            Denial::RateLimited { .. } => Verdict::RateLimited,
            Denial::Upstream { .. } => Verdict::Failed,
            Denial::NoProxyRequest
            | Denial::Scheme
            | Denial::Host(_)
            | Denial::Lengths
            | Denial::Trace
            | Denial::NotAllowed { .. }
            | Denial::Address { .. }
            | Denial::Pass
            | Denial::Over
            | Denial::Cap(_) => Verdict::Denied,
        };
        self.reason = Some(denial.reason());
        refusal(denial)
    }
}

/// Returns when the execution may not go there any more.
pub(super) type Lost = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The body of an answer.
pub(super) enum Answer {
    /// A text of our own, or nothing.
    Text(Option<Bytes>),
    /// What the upstream sends.
    Upstream(Box<Download>),
}

/// Tells a script what it was refused. Where the request may still be on its way, or the next would
/// be refused as well, the connection ends.
fn refusal(denial: &Denial) -> Response<Answer> {
    let reason = denial.reason();
    let text = format!("{reason}\n{}\n", denial.cure());
    let mut response = Response::new(Answer::Text(Some(Bytes::from(text))));
    *response.status_mut() = StatusCode::from_u16(denial.status()).unwrap_or_default();
    phrase(&mut response, reason);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    if matches!(denial, Denial::Pass) {
        headers.insert(PROXY_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"dogwatch\""));
    }
    if let Some(seconds) = denial.retry_after_s() {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if matches!(denial, Denial::RateLimited { .. }) {
        headers.insert(SAYS, RATE_LIMITED);
    }
    if matches!(denial, Denial::Lengths | Denial::Cap(Cap::Connections(_)) | Denial::Over) {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// An upstream's own word that there were too many requests, so that it looks like ours.
pub(super) fn mark_limited(response: &mut Response<Answer>, whose: &str, wait_ms: u64) {
    let seconds = wait_ms.div_ceil(1_000);
    phrase(response, format!("rate_limited: {whose} asks for a pause of {seconds} s"));
    response.headers_mut().insert(SAYS, RATE_LIMITED);
}

fn phrase(response: &mut Response<Answer>, reason: String) {
    if let Ok(reason) = ReasonPhrase::try_from(reason.into_bytes()) {
        response.extensions_mut().insert(reason);
    }
}

/// The bot says other rules than those by which it was begun.
pub(super) fn taken_away() -> io::Error {
    let what = "the execution may not go there any more";
    io::Error::new(io::ErrorKind::PermissionDenied, what)
}

/// What the upstream sends, as far as the execution may have it.
pub(super) struct Download {
    pub(super) body: Incoming,
    pub(super) gauge: Arc<Gauge>,
    pub(super) report: Report,
    pub(super) idle: Idle,
    /// Returns when the execution may not have it any more.
    pub(super) lost: Lost,
    /// It was read to its end.
    pub(super) whole: bool,
    /// Ends the connection to the upstream when this is dropped.
    pub(super) _upstream: AbortOnDropHandle<()>,
}

impl Drop for Download {
    fn drop(&mut self) {
        let whole = self.whole || self.body.is_end_stream();
        if !whole && self.report.verdict == Verdict::Passed {
            self.report.verdict = Verdict::Cut;
        }
        self.gauge.serve(false);
    }
}

impl Download {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.gauge.is_full() {
            self.report.verdict = Verdict::Cut;
            self.report.reason = Some(full().to_string());
            return Poll::Ready(Some(Err(full())));
        }
        if self.lost.as_mut().poll(cx).is_ready() {
            self.report.verdict = Verdict::Cut;
            self.report.reason = Some(taken_away().to_string());
            return Poll::Ready(Some(Err(taken_away())));
        }
        let frame = match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(frame) => frame,
            Poll::Pending => {
                ready!(self.idle.poll(cx));
                self.report.verdict = Verdict::Cut;
                self.report.reason = Some("the upstream stood still".to_owned());
                return Poll::Ready(Some(Err(io::ErrorKind::TimedOut.into())));
            }
        };
        self.idle.moved();
        self.whole = frame.is_none();
        Poll::Ready(frame.map(|frame| {
            let frame = frame.map_err(|_| {
                self.report.verdict = Verdict::Cut;
                self.report.reason = Some("the upstream broke off".to_owned());
                io::Error::from(io::ErrorKind::ConnectionAborted)
            })?;
            self.report.down += frame.data_ref().map_or(0, |data| data.len() as u64);
            Ok(frame)
        }))
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match &mut *self {
            Self::Text(text) => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
            Self::Upstream(download) => download.poll(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Text(text) => text.is_none(),
            Self::Upstream(download) => download.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Text(text) => SizeHint::with_exact(text.as_ref().map_or(0, Bytes::len) as u64),
            Self::Upstream(download) => download.body.size_hint(),
        }
    }
}

/// What the script sends, as far as it may.
pub(super) struct Upload {
    pub(super) body: Incoming,
    pub(super) gauge: Arc<Gauge>,
    pub(super) count: Arc<AtomicU64>,
    pub(super) idle: Idle,
}

impl Body for Upload {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.gauge.is_full() {
            return Poll::Ready(Some(Err(full())));
        }
        let frame = match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(frame) => frame,
            Poll::Pending => {
                ready!(self.idle.poll(cx));
                return Poll::Ready(Some(Err(io::ErrorKind::TimedOut.into())));
            }
        };
        self.idle.moved();
        match frame {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => {
                    self.count.fetch_add(data.len() as u64, Ordering::Relaxed);
                    Poll::Ready(Some(Ok(Frame::data(data))))
                }
                // Trailers end with the hop.
                Err(_trailers) => Poll::Ready(None),
            },
            Some(Err(_broken)) => Poll::Ready(Some(Err(io::ErrorKind::ConnectionAborted.into()))),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The time after which a body that stands still is given up.
pub(super) struct Idle {
    span: Duration,
    sleep: Pin<Box<Sleep>>,
}

impl Idle {
    pub(super) fn new(ms: u64) -> Self {
        let span = Duration::from_millis(ms);
        Self { span, sleep: Box::pin(tokio::time::sleep(span)) }
    }

    fn moved(&mut self) {
        self.sleep.as_mut().reset(Instant::now() + self.span);
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.sleep.as_mut().poll(cx)
    }
}
