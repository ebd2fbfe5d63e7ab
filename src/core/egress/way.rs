//! What becomes of one request: refused, passed on as it is, taken through a tunnel, or passed on
//! with a credential. Owns that a credential leaves only by TLS and only to its own place. Must not
//! know its value.

use super::access::{Destination, TLS_PORT};
use super::denial::Denial;
use super::host::{Host, HostRule, split};

/// The port of `http://` without one.
const HTTP_PORT: u16 = 80;

/// What a request's first line asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked<'a> {
    /// Its method, such as `GET` or `CONNECT`.
    pub method: &'a str,
    /// `http`, where the target is a whole address.
    pub scheme: Option<&'a str>,
    /// Host and port as they were written.
    pub authority: Option<&'a str>,
}

/// Where a request goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// Bytes are copied both ways, and nobody looks into them.
    Tunnel(Destination),
    /// As it is, without TLS.
    Plain(Destination),
    /// By TLS, with a header field in it.
    Lent {
        /// The credential's own place.
        to: Destination,
        /// Which of the credentials.
        credential: usize,
    },
}

/// Decides by an execution's rules and the places of the credentials that it was lent.
pub fn way(hosts: &[HostRule], lent: &[Destination], asked: Asked<'_>) -> Result<Way, Denial> {
    let authority = asked.authority.ok_or(Denial::NoProxyRequest)?;
    let (host, port) = split(authority).map_err(Denial::Host)?;
    let host = Host::parse(host).map_err(Denial::Host)?;
    let way = if asked.method == "CONNECT" {
        Way::Tunnel(Destination { host, port: port.unwrap_or(TLS_PORT) })
    } else {
        match asked.scheme {
            None => return Err(Denial::NoProxyRequest),
            Some(scheme) if !scheme.eq_ignore_ascii_case("http") => return Err(Denial::Scheme),
            Some(_) if asked.method.eq_ignore_ascii_case("TRACE") => return Err(Denial::Trace),
            Some(_) => plain_or_lent(host, port.unwrap_or(HTTP_PORT), lent),
        }
    };
    let to = match &way {
        Way::Tunnel(to) | Way::Plain(to) | Way::Lent { to, .. } => to,
    };
    if hosts.iter().any(|rule| rule.matches(&to.host, to.port)) {
        return Ok(way);
    }
    Err(Denial::NotAllowed { to: to.clone() })
}

/// A request without TLS to a credential's host is meant for its place, and goes there by TLS: with
/// the port that the credential has, or with none. To another port it is nobody's but its own.
fn plain_or_lent(host: Host, port: u16, lent: &[Destination]) -> Way {
    let own = |to: &&Destination| to.host == host;
    let exact = lent.iter().position(|to| own(&to) && to.port == port);
    let any = || {
        let usual = lent.iter().position(|to| own(&to) && to.port == TLS_PORT);
        usual.or_else(|| lent.iter().position(|to| own(&to)))
    };
    let credential = exact.or_else(|| (port == HTTP_PORT).then(any).flatten());
    match credential.and_then(|at| Some((at, lent.get(at)?.clone()))) {
        Some((credential, to)) => Way::Lent { to, credential },
        None => Way::Plain(Destination { host, port }),
    }
}

/// An address in an answer from a credential's place, as the script has to ask for it: where it
/// leads to that same place, without TLS, so that the credential goes along again. `None` where it
/// leads elsewhere or is relative.
pub fn inward(address: &str, to: &Destination) -> Option<String> {
    const HTTPS: &str = "https://";
    let rest = match address.split_at_checked(HTTPS.len()) {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case(HTTPS) => rest,
        Some(_) | None => return None,
    };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len()));
    let (host, port) = split(authority).ok()?;
    let place = Destination { host: Host::parse(host).ok()?, port: port.unwrap_or(TLS_PORT) };
    (place == *to && !path.starts_with('\\')).then(|| format!("http://{to}{path}"))
}

/// The same for all addresses between `<` and `>`, as `Link` has them.
pub fn inward_links(links: &str, to: &Destination) -> String {
    let mut pieces = links.split('<');
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        text.push('<');
        match piece.split_once('>').and_then(|(at, rest)| Some((inward(at, to)?, rest))) {
            Some((address, rest)) => {
                text.push_str(&address);
                text.push('>');
                text.push_str(rest);
            }
            None => text.push_str(piece),
        }
    }
    text
}
