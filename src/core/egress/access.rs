//! Who may reach what. Owns the wish of an execution, what an agent's policy allows of it, and
//! what is said where it does not. Must not know where policies are written down.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::host::{Host, HostError, HostRule, PORTS_DEFAULT, split};
use crate::core::limits::{CREDENTIAL_NAME_BYTES_MAX, EGRESS_CREDENTIALS_MAX, EGRESS_HOSTS_MAX};
use crate::core::nearest::{echo, nearest};
use crate::core::policy::Role;

/// The port of a credential that names none: nothing secret leaves without TLS.
pub const TLS_PORT: u16 = 443;

/// A credential's name: 1 to 64 lower case letters, digits, `-` and `_`. Never its value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct CredentialName(String);

/// Why a text is no credential's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text} is no credential's name; it has 1 to {CREDENTIAL_NAME_BYTES_MAX} lower case letters, \
     digits, '-' and '_'"
)]
pub struct CredentialNameError {
    text: String,
}

impl CredentialName {
    /// Takes a well-formed name.
    pub fn parse(text: &str) -> Result<Self, CredentialNameError> {
        let known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c);
        if (1..=CREDENTIAL_NAME_BYTES_MAX).contains(&text.len()) && text.chars().all(known) {
            return Ok(Self(text.to_owned()));
        }
        Err(CredentialNameError { text: echo(text) })
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CredentialName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for CredentialName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

/// What an execution wants of the network. Empty is none at all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Access {
    /// Hosts that it reaches.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostRule>,
    /// Credentials that are put into its requests.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub credentials: Vec<CredentialName>,
}

impl Access {
    /// Is there no network at all?
    pub fn is_none(&self) -> bool {
        self.hosts.is_empty() && self.credentials.is_empty()
    }
}

/// The one host and port to which a credential is ever sent, always by TLS.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Destination {
    /// The host; never a wildcard.
    pub host: Host,
    /// The port; [`TLS_PORT`] where none is written.
    pub port: u16,
}

impl Destination {
    /// Reads `host` or `host:port`.
    pub fn parse(text: &str) -> Result<Self, HostError> {
        let (host, port) = split(text)?;
        if host.contains('*') {
            return Err(HostError::Wildcard { text: echo(text) });
        }
        Ok(Self { host: Host::parse(host)?, port: port.unwrap_or(TLS_PORT) })
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.port == TLS_PORT {
            return write!(f, "{}", self.host);
        }
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl Serialize for Destination {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Destination {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

/// Who may be lent a credential, as an operator wrote it down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Its name.
    pub name: CredentialName,
    /// Where it is sent.
    pub to: Destination,
    /// Agents that may use it.
    pub agents: Vec<String>,
    /// Roles in which they may.
    pub roles: Vec<Role>,
}

/// What one agent may reach.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    /// Hosts; none is no network.
    pub hosts: Vec<HostRule>,
    /// All credentials there are, also those that are not its own.
    pub grants: Vec<Grant>,
}

/// Why a wish is refused. Says what would be allowed, never a credential's value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// The agent reaches nothing.
    #[error("this agent has no network; leave hosts and credentials out")]
    NoNetwork,
    /// A host that its policy does not cover.
    #[error("this agent may not reach {host}; it may reach {allowed}")]
    Host {
        /// As it was wanted.
        host: HostRule,
        /// What its policy has.
        allowed: String,
    },
    /// No such credential, or none that this agent may use in its role: which of them is not said.
    #[error("this agent has no credential {name}; {meant}")]
    Credential {
        /// As it was wanted.
        name: CredentialName,
        /// Those it has, or the one that was meant.
        meant: String,
    },
    /// Its host is not among those that are wanted.
    #[error("the credential {name} is for {to}; name that in hosts too")]
    NoHost {
        /// The credential.
        name: CredentialName,
        /// Where it is sent.
        to: HostRule,
    },
    /// Two credentials for one place: it would be a matter of order which is sent.
    #[error("the credentials {first} and {second} are both for {to}; ask for one of them")]
    Twice {
        /// One of them.
        first: CredentialName,
        /// The other.
        second: CredentialName,
        /// Where both are sent.
        to: Destination,
    },
    /// More hosts than one execution may name.
    #[error("{count} hosts are too many, at most {EGRESS_HOSTS_MAX} are allowed; use *.suffix")]
    ManyHosts {
        /// How many there are.
        count: usize,
    },
    /// More credentials than one execution may be lent.
    #[error("{count} credentials are too many, at most {EGRESS_CREDENTIALS_MAX} are allowed")]
    ManyCredentials {
        /// How many there are.
        count: usize,
    },
}

impl Policy {
    /// May this agent, in this role, have all of that?
    pub fn judge(&self, agent: &str, role: Role, wanted: &Access) -> Result<(), AccessError> {
        if wanted.is_none() {
            return Ok(());
        }
        if self.hosts.is_empty() {
            return Err(AccessError::NoNetwork);
        }
        let (hosts, credentials) = (wanted.hosts.len(), wanted.credentials.len());
        if hosts > EGRESS_HOSTS_MAX {
            return Err(AccessError::ManyHosts { count: hosts });
        }
        if credentials > EGRESS_CREDENTIALS_MAX {
            return Err(AccessError::ManyCredentials { count: credentials });
        }
        for host in &wanted.hosts {
            if !self.hosts.iter().any(|own| own.covers(host)) {
                let allowed = list(self.hosts.iter());
                return Err(AccessError::Host { host: host.clone(), allowed });
            }
        }
        let mut lent: Vec<&Grant> = Vec::new();
        for name in &wanted.credentials {
            let grant = self.granted(agent, role).find(|grant| grant.name == *name);
            let grant = grant.ok_or_else(|| self.unknown(agent, role, name))?;
            if !wanted.hosts.iter().any(|rule| rule.matches(&grant.to.host, grant.to.port)) {
                let to = host_of(&grant.to);
                return Err(AccessError::NoHost { name: name.clone(), to });
            }
            let other = lent.iter().find(|other| other.to == grant.to && other.name != grant.name);
            if let Some(other) = other {
                let (first, second) = (other.name.clone(), name.clone());
                return Err(AccessError::Twice { first, second, to: grant.to.clone() });
            }
            lent.push(grant);
        }
        Ok(())
    }

    /// The credentials that this agent may use in this role.
    pub fn granted(&self, agent: &str, role: Role) -> impl Iterator<Item = &Grant> {
        self.grants.iter().filter(move |grant| {
            grant.agents.iter().any(|name| name == agent) && grant.roles.contains(&role)
        })
    }

    fn unknown(&self, agent: &str, role: Role, name: &CredentialName) -> AccessError {
        let own = || self.granted(agent, role).map(|grant| grant.name.as_str());
        let meant = match nearest(name.as_str(), own()) {
            Some(near) => format!("did you mean {near}?"),
            None if own().next().is_none() => "it has none; leave credentials out".to_owned(),
            None => format!("it has {}", list(own())),
        };
        AccessError::Credential { name: name.clone(), meant }
    }
}

/// The shortest rule that lets somebody go there.
fn host_of(to: &Destination) -> HostRule {
    let text = to.to_string();
    let short = HostRule::parse(&text).ok().filter(|_| PORTS_DEFAULT.contains(&to.port));
    short.unwrap_or_else(|| HostRule::exactly(to.host.clone(), to.port))
}

/// Names in a row, as far as an error has room.
fn list(items: impl Iterator<Item = impl fmt::Display>) -> String {
    const SHOWN: usize = 8;
    let mut all: Vec<String> = items.map(|item| item.to_string()).collect();
    let more = all.len().saturating_sub(SHOWN);
    all.truncate(SHOWN);
    let shown = all.join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}
