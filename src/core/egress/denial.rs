//! What a watcher is told instead of an answer. Owns the words: a status, a reason that says what,
//! since some programs show nothing else, and what to do now. Must not know HTTP libraries.

use super::access::Destination;
use super::address::Closed;
use super::host::HostError;
use crate::core::time::{Timestamp, span};

/// A limit of an execution that was met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cap {
    /// Connections at once.
    Connections(usize),
    /// Requests in its life.
    Requests(u64),
    /// Bytes in its life, one way.
    Bytes(u64),
}

/// Why an upstream gave no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// Its name has no address.
    Name,
    /// Nothing there takes connections.
    Connect,
    /// Its certificate is not trusted, or TLS failed otherwise.
    Tls,
    /// It broke off, or spoke no HTTP.
    Broken,
    /// It did not answer in time.
    Late,
}

/// Why a request went no further.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Denial {
    /// The proxy was asked as if it were a server.
    NoProxyRequest,
    /// An address of another scheme than `http`, without a tunnel.
    Scheme,
    /// The host is none.
    Host(HostError),
    /// Two lengths, which two programs may read in two ways.
    Lengths,
    /// TRACE would show the headers that were added.
    Trace,
    /// No rule lets it.
    NotAllowed {
        /// Where it wanted to go.
        to: Destination,
    },
    /// The host's address is not public.
    Address {
        /// Where it wanted to go.
        to: Destination,
        /// What is there.
        closed: Closed,
    },
    /// The pass is missing or wrong.
    Pass,
    /// The execution has no network any more.
    Over,
    /// A limit was met.
    Cap(Cap),
    /// There were too many requests.
    RateLimited {
        /// Whose budget: a host or a credential.
        whose: String,
        /// From then on there is room.
        until: Timestamp,
        /// How far that is, in milliseconds.
        wait_ms: u64,
        /// The upstream said so.
        by_upstream: bool,
    },
    /// The upstream gave no answer.
    Upstream {
        /// Where it went.
        to: Destination,
        /// What happened.
        trouble: Trouble,
    },
}

impl Denial {
    /// The status of the answer.
    pub const fn status(&self) -> u16 {
        match self {
            Self::NoProxyRequest | Self::Scheme | Self::Host(_) | Self::Lengths => 400,
            Self::Trace => 405,
            Self::NotAllowed { .. }
            | Self::Address { .. }
            | Self::Over
            | Self::Cap(Cap::Requests(_) | Cap::Bytes(_)) => 403,
            Self::Pass => 407,
            Self::Cap(Cap::Connections(_)) | Self::RateLimited { .. } => 429,
            Self::Upstream { trouble: Trouble::Late, .. } => 504,
            Self::Upstream { .. } => 502,
        }
    }

    /// One line without control characters: what.
    pub fn reason(&self) -> String {
        match self {
            Self::NoProxyRequest => "this is a proxy and not a server".to_owned(),
            Self::Scheme => "the proxy takes http:// here and CONNECT for https".to_owned(),
            Self::Host(error) => plain(&error.to_string()),
            Self::Lengths => "the request has more than one length".to_owned(),
            Self::Trace => "TRACE is not passed on".to_owned(),
            Self::NotAllowed { to } => format!("{} is not in this watcher's hosts", place(to)),
            Self::Address { to, closed } => {
                format!("{} is {} and not listed in addresses", place(to), closed.words())
            }
            Self::Pass => "the proxy needs the pass of this watcher".to_owned(),
            Self::Over => "this watcher has no network any more".to_owned(),
            Self::Cap(Cap::Connections(most)) => {
                format!("this watcher has {most} connections open, which is its limit")
            }
            Self::Cap(Cap::Requests(most)) => {
                format!("this watcher has made {most} requests, which is its limit")
            }
            Self::Cap(Cap::Bytes(most)) => {
                format!("this watcher has moved {most} bytes one way, which is its limit")
            }
            Self::RateLimited { whose, until, by_upstream, .. } => {
                let why = if *by_upstream { "it asked for a pause" } else { "its budget is spent" };
                format!("rate_limited: {whose} until {}: {why}", clock(*until))
            }
            Self::Upstream { to, trouble } => format!("{} {}", place(to), trouble.words()),
        }
    }

    /// What to do now.
    pub fn cure(&self) -> String {
        match self {
            Self::NoProxyRequest | Self::Scheme => {
                "Use it as a proxy: http_proxy and https_proxy are set, and urllib, requests and \
                 curl heed them."
                    .to_owned()
            }
            Self::Host(_) | Self::NotAllowed { .. } => {
                "Start the watcher again with this host in `hosts`, by the name that the request \
                 uses."
                    .to_owned()
            }
            Self::Lengths => "Send one Content-Length, or chunks, and not both.".to_owned(),
            Self::Trace => "Use GET.".to_owned(),
            Self::Address { .. } => {
                "Only an operator can let watchers go there: `addresses` in [watch.network]."
                    .to_owned()
            }
            Self::Pass => {
                "Use the address in http_proxy as it is, with its user and password.".to_owned()
            }
            Self::Over | Self::Cap(Cap::Requests(_) | Cap::Bytes(_)) => {
                "Print what there is and end.".to_owned()
            }
            Self::Cap(Cap::Connections(_)) => "Close connections, then try again.".to_owned(),
            Self::RateLimited { wait_ms, .. } => format!(
                "This is no outage. All watchers share this budget: wait {}, then ask less often.",
                span(*wait_ms)
            ),
            Self::Upstream { trouble, .. } => match trouble {
                Trouble::Name => "Check the name.".to_owned(),
                Trouble::Connect | Trouble::Broken | Trouble::Late => "Try again later.".to_owned(),
                Trouble::Tls => {
                    "Only an operator can trust more: `extra_ca` in [watch.network].".to_owned()
                }
            },
        }
    }

    /// Seconds after which it may be tried again, where waiting helps.
    pub fn retry_after_s(&self) -> Option<u64> {
        match self {
            Self::RateLimited { wait_ms, .. } => Some(wait_ms.div_ceil(1_000).max(1)),
            Self::Cap(Cap::Connections(_)) => Some(1),
            Self::NoProxyRequest
            | Self::Scheme
            | Self::Host(_)
            | Self::Lengths
            | Self::Trace
            | Self::NotAllowed { .. }
            | Self::Address { .. }
            | Self::Pass
            | Self::Over
            | Self::Cap(Cap::Requests(_) | Cap::Bytes(_))
            | Self::Upstream { .. } => None,
        }
    }
}

impl Trouble {
    const fn words(self) -> &'static str {
        match self {
            Self::Name => "has no address",
            Self::Connect => "takes no connection",
            Self::Tls => "is not trusted: TLS failed",
            Self::Broken => "broke off",
            Self::Late => "did not answer in time",
        }
    }
}

/// Host and port, both always said.
fn place(to: &Destination) -> String {
    format!("{}:{}", to.host, to.port)
}

/// Only what a reason phrase may have.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii() && !c.is_control() { c } else { '?' }).collect()
}

/// The time of day, in UTC.
fn clock(at: Timestamp) -> String {
    let s = at.as_ms() / 1_000 % 86_400;
    format!("{:02}:{:02}:{:02}Z", s / 3_600, s / 60 % 60, s % 60)
}
