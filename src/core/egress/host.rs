//! Hosts and rules about hosts. Owns what a host's name is, in one form only, and what a rule
//! covers. Must not know which addresses a name has.

use std::fmt;
use std::str::FromStr;

// Addresses are data: `core::net` opens nothing.
use core::net::{IpAddr, Ipv6Addr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::core::limits::{HOST_BYTES_MAX, HOST_LABEL_BYTES_MAX};
use crate::core::nearest::echo;

/// The ports of a rule that names none.
pub const PORTS_DEFAULT: [u16; 2] = [80, 443];

/// Why a text is no host, or no rule about hosts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// Nothing there.
    #[error("the host is empty; write a name such as api.example.com")]
    Empty,
    /// It goes on after the host.
    #[error(
        "{text} is more than a host; write only its name, such as api.example.com, or name:port"
    )]
    More {
        /// As it was written.
        text: String,
    },
    /// A user stands before the host.
    #[error("a user or password before the host is not allowed; ask for a credential instead")]
    User,
    /// A character that no host has.
    #[error("{text} is no host name; write names of other alphabets as xn--…")]
    Character {
        /// As it was written.
        text: String,
    },
    /// Too long, or a part of it is, or a part is empty.
    #[error(
        "{text} is no host name: each part has 1 to {HOST_LABEL_BYTES_MAX} characters, all \
         together {HOST_BYTES_MAX}"
    )]
    Length {
        /// As it was written.
        text: String,
    },
    /// A number in a form that programs read in different ways.
    #[error("{text} is an odd form of an address; write it as 192.0.2.1 or [2001:db8::1]")]
    Odd {
        /// As it was written.
        text: String,
    },
    /// No port.
    #[error("{text} has no port from 1 to 65535 after the colon")]
    Port {
        /// As it was written.
        text: String,
    },
    /// A wildcard that stands for too much, or elsewhere than in front.
    #[error("{text}: a * stands only in front, before at least two parts: *.example.com")]
    Wildcard {
        /// As it was written.
        text: String,
    },
}

/// A host in the one form in which hosts are compared.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// A name: lower case, ASCII, no dot at its end.
    Name(String),
    /// An address. One of IPv4 is never written as one of IPv6.
    Address(IpAddr),
}

impl Host {
    /// Reads a host as it stands in an address of the web.
    pub fn parse(text: &str) -> Result<Self, HostError> {
        let said = || echo(text);
        if text.is_empty() {
            return Err(HostError::Empty);
        }
        if let Some(inside) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            let address =
                inside.parse::<Ipv6Addr>().map_err(|_| HostError::Odd { text: said() })?;
            return Ok(Self::Address(IpAddr::V6(address).to_canonical()));
        }
        if text.contains('@') {
            return Err(HostError::User);
        }
        if text.contains(['/', '?', '#', ':']) {
            return Err(HostError::More { text: said() });
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::Address(address.to_canonical()));
        }
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        check(&name).map_err(|fault| fault.of(said()))?;
        Ok(Self::Name(name))
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(IpAddr::V4(address)) => write!(f, "{address}"),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

enum Fault {
    Character,
    Length,
    Odd,
}

impl Fault {
    fn of(self, text: String) -> HostError {
        match self {
            Self::Character => HostError::Character { text },
            Self::Length => HostError::Length { text },
            Self::Odd => HostError::Odd { text },
        }
    }
}

/// Is it a name, in lower case and without a dot at its end?
fn check(name: &str) -> Result<(), Fault> {
    let known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_.".contains(c);
    if !name.chars().all(known) {
        return Err(Fault::Character);
    }
    let fits = |label: &str| (1..=HOST_LABEL_BYTES_MAX).contains(&label.len());
    if name.len() > HOST_BYTES_MAX || !name.split('.').all(fits) {
        return Err(Fault::Length);
    }
    if name.split('.').any(|label| label.starts_with('-') || label.ends_with('-')) {
        return Err(Fault::Character);
    }
    // 2130706433, 0x7f.1 and 127.1 are addresses to some programs and names to others.
    let last = name.rsplit('.').next().unwrap_or_default();
    let hexadecimal = last
        .strip_prefix("0x")
        .is_some_and(|rest| rest.chars().all(|digit| digit.is_ascii_hexdigit()));
    if hexadecimal || last.chars().all(|digit| digit.is_ascii_digit()) {
        return Err(Fault::Odd);
    }
    Ok(())
}

/// Parts a host from its port. The port is missing where nothing says it.
pub fn split(text: &str) -> Result<(&str, Option<u16>), HostError> {
    if text.contains('@') {
        return Err(HostError::User);
    }
    let colon = match text.rfind(']') {
        Some(end) if text.starts_with('[') => {
            let rest = text.get(end + 1..).unwrap_or_default();
            match rest.strip_prefix(':') {
                Some(_) => Some(end + 1),
                None if rest.is_empty() => None,
                None => return Err(HostError::More { text: echo(text) }),
            }
        }
        Some(_) | None => text.find(':'),
    };
    let Some((host, port)) = colon.and_then(|at| text.split_at_checked(at)) else {
        return Ok((text, None));
    };
    let digits = port.get(1..).unwrap_or_default();
    if digits.contains(['/', '?', '#']) {
        return Err(HostError::More { text: echo(text) });
    }
    let number = (1..=5).contains(&digits.len()) && digits.chars().all(|c| c.is_ascii_digit());
    let port = digits.parse::<u16>().ok().filter(|port| number && *port > 0);
    port.map(|port| (host, Some(port))).ok_or_else(|| HostError::Port { text: echo(text) })
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Pattern {
    /// This host.
    Exact(Host),
    /// Every name below this one.
    Under(String),
}

/// Hosts that may be reached: `name`, `name:port`, `*.suffix` or `*.suffix:port`. Without a port it
/// is [`PORTS_DEFAULT`]. `*.suffix` is not `suffix` itself, and never an address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostRule {
    pattern: Pattern,
    port: Option<u16>,
}

impl HostRule {
    /// Reads a rule as people and models write it.
    pub fn parse(text: &str) -> Result<Self, HostError> {
        if text.contains("//") {
            return Err(HostError::More { text: echo(text) });
        }
        let (host, port) = split(text)?;
        if !host.contains('*') {
            return Ok(Self { pattern: Pattern::Exact(Host::parse(host)?), port });
        }
        let wildcard = || HostError::Wildcard { text: echo(text) };
        let suffix = host.strip_prefix("*.").filter(|suffix| !suffix.contains('*'));
        match Host::parse(suffix.ok_or_else(wildcard)?)? {
            Host::Name(name) if name.contains('.') => {
                Ok(Self { pattern: Pattern::Under(name), port })
            }
            Host::Name(_) | Host::Address(_) => Err(wildcard()),
        }
    }

    /// The rule about one port of one host.
    pub fn exactly(host: Host, port: u16) -> Self {
        Self { pattern: Pattern::Exact(host), port: Some(port) }
    }

    /// Does it let somebody reach this port of this host?
    pub fn matches(&self, host: &Host, port: u16) -> bool {
        self.ports().contains(&port) && self.has(host)
    }

    /// Does it let somebody reach whatever `other` lets them reach?
    pub fn covers(&self, other: &Self) -> bool {
        let named = match &other.pattern {
            Pattern::Exact(host) => self.has(host),
            Pattern::Under(suffix) => match &self.pattern {
                Pattern::Exact(_) => false,
                Pattern::Under(own) => own == suffix || is_under(suffix, own),
            },
        };
        named && other.ports().iter().all(|port| self.ports().contains(port))
    }

    fn has(&self, host: &Host) -> bool {
        match (&self.pattern, host) {
            (Pattern::Exact(own), host) => own == host,
            (Pattern::Under(suffix), Host::Name(name)) => is_under(name, suffix),
            (Pattern::Under(_), Host::Address(_)) => false,
        }
    }

    fn ports(&self) -> &[u16] {
        match &self.port {
            Some(port) => std::slice::from_ref(port),
            None => &PORTS_DEFAULT,
        }
    }
}

fn is_under(name: &str, suffix: &str) -> bool {
    name.strip_suffix(suffix).is_some_and(|before| before.len() > 1 && before.ends_with('.'))
}

impl fmt::Display for HostRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.pattern {
            Pattern::Exact(host) => write!(f, "{host}")?,
            Pattern::Under(suffix) => write!(f, "*.{suffix}")?,
        }
        match self.port {
            Some(port) => write!(f, ":{port}"),
            None => Ok(()),
        }
    }
}

impl FromStr for HostRule {
    type Err = HostError;

    fn from_str(text: &str) -> Result<Self, HostError> {
        Self::parse(text)
    }
}

impl Serialize for HostRule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HostRule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}
