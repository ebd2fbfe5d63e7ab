//! Which addresses may be reached. Owns what is somebody's own network in every form in which such
//! an address may be written. Must not know names.

use std::fmt;
use std::str::FromStr;

// Addresses are data: `core::net` opens nothing.
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::core::nearest::echo;

/// Why a text lists no addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text} is no address; write one such as 10.0.0.5 or fd00::1, or a block such as 10.1.0.0/16"
)]
pub struct AddressError {
    text: String,
}

/// Addresses that an operator lets watchers reach though they are not public: one or a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddressRule {
    first: IpAddr,
    prefix: u8,
}

impl AddressRule {
    /// Reads an address or a block in CIDR form. Bits behind the prefix must be zero.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let wrong = || AddressError { text: echo(text) };
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => {
                let digits =
                    (1..=3).contains(&prefix.len()) && prefix.chars().all(|c| c.is_ascii_digit());
                (address, Some(prefix.parse::<u8>().ok().filter(|_| digits).ok_or_else(wrong)?))
            }
            None => (text, None),
        };
        let first: IpAddr = address.parse().map_err(|_| wrong())?;
        let bits = if first.is_ipv4() { 32 } else { 128 };
        let rule = Self { first, prefix: prefix.unwrap_or(bits) };
        if rule.prefix > bits || masked(first, rule.prefix) != masked(first, bits) {
            return Err(wrong());
        }
        Ok(rule)
    }

    /// Is the address one of them?
    pub fn has(&self, address: IpAddr) -> bool {
        self.first.is_ipv4() == address.is_ipv4()
            && masked(address, self.prefix) == masked(self.first, self.prefix)
    }
}

impl fmt::Display for AddressRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = if self.first.is_ipv4() { 32 } else { 128 };
        match self.prefix {
            prefix if prefix == bits => write!(f, "{}", self.first),
            prefix => write!(f, "{}/{prefix}", self.first),
        }
    }
}

impl FromStr for AddressRule {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        Self::parse(text)
    }
}

impl Serialize for AddressRule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for AddressRule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

/// The first bits of an address, as a number; the others are zero.
fn masked(address: IpAddr, prefix: u8) -> u128 {
    let (bits, width) = match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()), 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    };
    let behind = u32::from(width - prefix.min(width));
    bits & u128::MAX.checked_shl(behind).unwrap_or(0)
}

/// Why an address is not reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closed {
    /// This machine.
    Loopback,
    /// Somebody's own network.
    Private,
    /// This machine's link, or the data about it that its provider keeps there.
    LinkLocal,
    /// Data about this machine that its provider keeps at a public address.
    Metadata,
    /// Many machines at once, or none.
    NoHost,
    /// Kept for examples, for measurements or for what comes.
    Reserved,
}

impl Closed {
    /// What it is, in a few words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Loopback => "this machine itself",
            Self::Private => "a private network",
            Self::LinkLocal => "the link of this machine",
            Self::Metadata => "data about this machine",
            Self::NoHost => "no single host",
            Self::Reserved => "reserved",
        }
    }
}

/// May this address be reached? Whatever is not public must be listed.
pub fn judge(address: IpAddr, listed: &[AddressRule]) -> Result<(), Closed> {
    let inner = match address {
        IpAddr::V4(_) => None,
        IpAddr::V6(outer) => embedded(outer),
    };
    let is_listed = |address: IpAddr| listed.iter().any(|rule| rule.has(address));
    if is_listed(address) || inner.is_some_and(|inner| is_listed(IpAddr::V4(inner))) {
        return Ok(());
    }
    let closed = match (address, inner) {
        (IpAddr::V4(address), _) | (IpAddr::V6(_), Some(address)) => closed_v4(address),
        (IpAddr::V6(address), None) => closed_v6(address),
    };
    closed.map_or(Ok(()), Err)
}

/// The address of IPv4 to which one of IPv6 leads in the end.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    match address.segments() {
        // `::` and `::1` are their own; what else begins so is an address in an old form.
        [0, 0, 0, 0, 0, 0, 0, _] => None,
        // Compatible, mapped, as translations write it, and NAT64.
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        // 6to4.
        | [0x2002, high, low, ..] => {
            Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)))
        }
        _ => None,
    }
}

fn closed_v4(address: Ipv4Addr) -> Option<Closed> {
    match address.octets() {
        [127, ..] => Some(Closed::Loopback),
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] | [100, 64..=127, ..] => {
            Some(Closed::Private)
        }
        [169, 254, ..] => Some(Closed::LinkLocal),
        // Azure answers its machines there, and nobody else.
        [168, 63, 129, 16] => Some(Closed::Metadata),
        [0 | 224..=239, ..] | [255, 255, 255, 255] => Some(Closed::NoHost),
        [192, 0, 0 | 2, _]
        | [192, 88, 99, _]
        | [198, 18..=19, ..]
        | [198, 51, 100, _]
        | [203, 0, 113, _]
        | [240..=255, ..] => Some(Closed::Reserved),
        _ => None,
    }
}

fn closed_v6(address: Ipv6Addr) -> Option<Closed> {
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 1] => Some(Closed::Loopback),
        [0xfe80..=0xfebf, ..] => Some(Closed::LinkLocal),
        // Also NAT64 of somebody's own: where the address of IPv4 stands in it is theirs to choose.
        [0xfc00..=0xfdff | 0xfec0..=0xfeff, ..] | [0x64, 0xff9b, ..] => Some(Closed::Private),
        [0, 0, 0, 0, 0, 0, 0, 0] | [0xff00..=0xffff, ..] => Some(Closed::NoHost),
        // Teredo and other tunnels, identifiers, and examples.
        [0x2001, 0..=0x1ff | 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => Some(Closed::Reserved),
        [0x2000..=0x3fff, ..] => None,
        _ => Some(Closed::Reserved),
    }
}
