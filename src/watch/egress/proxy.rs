//! What becomes of one request, done. Owns the order: the pass, the way, the caps, the budgets,
//! then the way itself. What rules decide decides [`way`](crate::core::egress::way()).

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hyper::body::{Body as _, Incoming};
use hyper::header::{CONTENT_LENGTH, HeaderMap, PROXY_AUTHORIZATION, TRANSFER_ENCODING};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use secrecy::ExposeSecret;
use tokio::io::copy_bidirectional_with_sizes;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::answer::{Answer, Report, taken_away};
use super::house::{Execution, House, Seat, Using, same_pass};
use super::log::Verdict;
use super::reach;
use super::upstream::{self, Onward};
use super::wire::{Gauge, full};
use super::words::Rules;
use crate::core::egress::{Account, Asked, Asker, Cap, Denial, Destination, Way, way};
use crate::core::limits::EGRESS_COPY_BYTES;

/// Longest method that the log shows.
const METHOD_CHARS_MAX: usize = 16;

/// Who is connected.
pub(super) struct Visit {
    pub(super) house: Arc<House>,
    pub(super) execution: Arc<Execution>,
    /// Each request brings the pass.
    pub(super) guarded: bool,
    /// The connection is one too many.
    pub(super) above: bool,
    /// The execution is over, or its shim is gone.
    pub(super) over: CancellationToken,
}

/// Answers one request.
pub(super) async fn answer(
    visit: Arc<Visit>,
    gauge: Arc<Gauge>,
    seat: Arc<Seat>,
    request: Request<Incoming>,
) -> Response<Answer> {
    let mut report = Report {
        house: Arc::clone(&visit.house),
        execution: visit.execution.name.clone(),
        method: request.method().as_str().chars().take(METHOD_CHARS_MAX).collect(),
        to: None,
        verdict: Verdict::Passed,
        reason: None,
        status: None,
        up: Arc::new(AtomicU64::new(0)),
        down: 0,
    };
    let using = visit.house.using();
    match allowed(&visit, &gauge, &using, &request, &mut report).await {
        Ok((Way::Tunnel(to), _)) => {
            let tunnel = Tunnel { visit, gauge, seat, report };
            tunnel.open(&using, &to, request).await
        }
        Ok((Way::Plain(to), _)) => {
            let onward = Onward { using, gauge, to, lent: None, report };
            upstream::pass_on(&visit.execution, onward, request).await
        }
        Ok((Way::Lent { to, credential }, rules)) => {
            let lent = rules.lent.get(credential).cloned();
            let onward = Onward { using, gauge, to, lent, report };
            upstream::pass_on(&visit.execution, onward, request).await
        }
        Err(denial) => {
            gauge.serve(false);
            report.denied(&denial)
        }
    }
}

/// Whatever stands before the way itself.
async fn allowed(
    visit: &Visit,
    gauge: &Gauge,
    using: &Using,
    request: &Request<Incoming>,
    report: &mut Report,
) -> Result<(Way, Arc<Rules>), Denial> {
    let execution = &visit.execution;
    let caps = &using.told.caps;
    if visit.above {
        return Err(Denial::Cap(Cap::Connections(caps.connections)));
    }
    let rules = execution.rules.borrow().clone().ok_or(Denial::Over)?;
    if visit.guarded && !brings_pass(request.headers(), rules.pass.expose_secret()) {
        return Err(Denial::Pass);
    }
    check_lengths(request.headers())?;
    let lent: Vec<Destination> = rules.lent.iter().map(|lent| lent.host.clone()).collect();
    let asked = Asked {
        method: request.method().as_str(),
        scheme: request.uri().scheme_str(),
        authority: request.uri().authority().map(hyper::http::uri::Authority::as_str),
    };
    let way = way(&rules.hosts, &lent, asked).inspect_err(|denial| {
        if let Denial::NotAllowed { to } = denial {
            report.to = Some(to.clone());
        }
    })?;
    let (to, credential) = match &way {
        Way::Tunnel(to) | Way::Plain(to) => (to, None),
        Way::Lent { to, credential } => (to, rules.lent.get(*credential)),
    };
    report.to = Some(to.clone());
    if execution.requests.fetch_add(1, Ordering::Relaxed) >= caps.requests {
        return Err(Denial::Cap(Cap::Requests(caps.requests)));
    }
    if gauge.is_full() {
        return Err(Denial::Cap(Cap::Bytes(caps.bytes)));
    }
    let turn = async |account: Account, per_minute: u32| {
        let wait_ms = caps.wait_ms;
        let who = Asker { execution: &execution.name, per_minute, wait_ms };
        visit.house.pace.pass(&account, who).await.map_err(|refusal| Denial::RateLimited {
            whose: account.words(),
            until: visit.house.clock.shown(refusal.until),
            wait_ms: refusal.until.since_ms(visit.house.clock.now()),
            by_upstream: refusal.by_upstream,
        })
    };
    if let Some(lent) = credential {
        turn(Account::Credential(lent.name.clone()), lent.requests_per_minute).await?;
    }
    turn(Account::Host(to.host.clone()), using.told.requests_per_minute).await?;
    Ok((way, rules))
}

/// Does the request bring the pass, as the password of any user?
fn brings_pass(headers: &HeaderMap, pass: &str) -> bool {
    let mut brought = headers.get_all(PROXY_AUTHORIZATION).iter();
    let (Some(value), None) = (brought.next(), brought.next()) else { return false };
    let basic = value.to_str().ok().and_then(|value| {
        let (scheme, rest) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("basic").then(|| rest.trim())
    });
    let bytes = basic.and_then(|text| BASE64_STANDARD.decode(text).ok());
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    let password = text.as_deref().and_then(|text| text.split_once(':'));
    password.is_some_and(|(_, password)| same_pass(password, pass))
}

/// Two programs may take two lengths for different ones, and so the end of one request for the
/// beginning of another.
fn check_lengths(headers: &HeaderMap) -> Result<(), Denial> {
    let lengths = headers.get_all(CONTENT_LENGTH).iter().count();
    if lengths > 1 || (lengths == 1 && headers.contains_key(TRANSFER_ENCODING)) {
        return Err(Denial::Lengths);
    }
    Ok(())
}

/// A connection that becomes a tunnel.
struct Tunnel {
    visit: Arc<Visit>,
    gauge: Arc<Gauge>,
    seat: Arc<Seat>,
    report: Report,
}

impl Tunnel {
    async fn open(
        mut self,
        using: &Using,
        to: &Destination,
        request: Request<Incoming>,
    ) -> Response<Answer> {
        debug_assert_eq!(request.method(), Method::CONNECT);
        if !request.body().is_end_stream() {
            self.gauge.serve(false);
            return self.report.denied(&Denial::Lengths);
        }
        match reach::connect(using, &self.visit.execution, to).await {
            Ok(upstream) => {
                self.report.status = Some(200);
                let tasks = self.visit.house.connections.clone();
                tasks.spawn(self.copy(to.clone(), upstream, request));
                Response::new(Answer::Text(None))
            }
            Err(denial) => {
                self.gauge.serve(false);
                self.report.denied(&denial)
            }
        }
    }

    /// Copies both ways until either end, or time, ends it.
    async fn copy(mut self, to: Destination, mut upstream: TcpStream, request: Request<Incoming>) {
        let Ok(upgraded) = hyper::upgrade::on(request).await else { return };
        self.gauge.tunnel();
        let (up, down) = self.gauge.moved();
        let mut script = TokioIo::new(upgraded);
        let copied = tokio::select! {
            copied = copy_bidirectional_with_sizes(
                &mut script,
                &mut upstream,
                EGRESS_COPY_BYTES,
                EGRESS_COPY_BYTES,
            ) => copied.map(|_| ()),
            () = self.gauge.stood_still() => Err(ErrorKind::TimedOut.into()),
            () = self.visit.over.cancelled() => Ok(()),
            () = self.visit.execution.loses(&to, None) => Err(taken_away()),
        };
        if let Err(error) = copied {
            self.report.verdict = Verdict::Cut;
            let is = |kind| error.kind() == kind;
            let reason = if self.gauge.is_full() {
                full().to_string()
            } else if is(ErrorKind::TimedOut) {
                "nothing moved".to_owned()
            } else if is(ErrorKind::PermissionDenied) {
                error.to_string()
            } else {
                "it broke off".to_owned()
            };
            self.report.reason = Some(reason);
        }
        let (up_now, down_now) = self.gauge.moved();
        self.report.up.store(up_now.saturating_sub(up), Ordering::Relaxed);
        self.report.down = down_now.saturating_sub(down);
        drop(self.seat);
    }
}
