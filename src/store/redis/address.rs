//! Where Redis is. Owns reading the URL in all its forms, and the words for it in logs and errors,
//! which never hold a password. Must not know connections.
//!
//! - `redis://[USER:PASSWORD@]HOST[:PORT][/DB]`: one server
//! - `rediss://…`: the same over TLS; each form below has its `rediss` twin
//! - `unix:///PATH[?db=…&user=…&pass=…]`: one server by its socket
//! - `redis-sentinel://[USER:PASSWORD@]HOST[:PORT],…/MASTER[/DB]`: the master that they name
//! - `redis-cluster://[USER:PASSWORD@]HOST[:PORT],…`: a cluster, found by any of these nodes

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};

use crate::ports::StoreError;

const SENTINEL_PORT: u16 = 26_379;

/// Which servers, and how they are found.
#[derive(Debug, Clone)]
pub(super) enum Servers {
    /// This one.
    One(ConnectionInfo),
    /// The master of this name; the sentinels share its user, password and TLS, not its database.
    Sentinel {
        /// Who is asked.
        sentinels: Vec<ConnectionAddr>,
        /// For whom.
        master: String,
        /// How the master is spoken to; its address is the first sentinel's.
        info: ConnectionInfo,
    },
    /// All that belong to the cluster of these.
    Cluster(Vec<ConnectionInfo>),
}

/// Where Redis is.
#[derive(Clone)]
pub(super) struct Address {
    pub(super) servers: Servers,
    words: String,
    password: Option<String>,
}

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.words)
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.words)
    }
}

impl Address {
    /// Reads a URL. The error says what is wrong with it and does not repeat it.
    pub(super) fn parse(url: &str) -> Result<Self, StoreError> {
        let (scheme, rest) = url.split_once("://").ok_or_else(|| bad("it has no `://`"))?;
        let (tls, form) = match scheme {
            "redis" | "rediss" | "unix" => return Self::one(url),
            "redis-sentinel" => ("redis", "sentinel"),
            "rediss-sentinel" => ("rediss", "sentinel"),
            "redis-cluster" => ("redis", "cluster"),
            "rediss-cluster" => ("rediss", "cluster"),
            _ => return Err(bad("its scheme is none of those")),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, hosts) = match authority.rsplit_once('@') {
            Some((user, hosts)) => (format!("{user}@"), hosts),
            None => (String::new(), authority),
        };
        let hosts = hosts.split(',').filter(|host| !host.is_empty());
        if form == "cluster" {
            let of = |host: &str| info(&format!("{tls}://{user}{host}"));
            Self::cluster(hosts.map(of).collect::<Result<_, _>>()?)
        } else {
            let (master, db) = path.split_once('/').unwrap_or((path, "0"));
            let of = |host: &str| {
                let has_port = host.rsplit(']').next().is_some_and(|end| end.contains(':'));
                let port = if has_port { String::new() } else { format!(":{SENTINEL_PORT}") };
                info(&format!("{tls}://{user}{host}{port}/{db}"))
            };
            Self::sentinel(&hosts.map(of).collect::<Result<Vec<_>, _>>()?, master)
        }
    }

    fn one(url: &str) -> Result<Self, StoreError> {
        let info = info(url)?;
        let words = format!("redis at {}", info.addr());
        Ok(Self::of(&info, words, Servers::One(info.clone())))
    }

    fn cluster(nodes: Vec<ConnectionInfo>) -> Result<Self, StoreError> {
        let first = nodes.first().cloned().ok_or_else(|| bad("it names no node"))?;
        let words = format!("the redis cluster of {}", list(&nodes));
        Ok(Self::of(&first, words, Servers::Cluster(nodes)))
    }

    fn sentinel(nodes: &[ConnectionInfo], master: &str) -> Result<Self, StoreError> {
        let info = nodes.first().ok_or_else(|| bad("it names no sentinel"))?;
        if master.is_empty() {
            return Err(bad("it does not name the master after the sentinels"));
        }
        let words = format!("the redis master {master} of the sentinels {}", list(nodes));
        let sentinels = nodes.iter().map(|node| node.addr().clone()).collect();
        let master = master.to_owned();
        let servers = Servers::Sentinel { sentinels, master, info: info.clone() };
        Ok(Self::of(info, words, servers))
    }

    fn of(info: &ConnectionInfo, words: String, servers: Servers) -> Self {
        let password = info.redis_settings().password().map(str::to_owned);
        let password = password.filter(|password| !password.is_empty());
        Self { servers, words, password }
    }

    /// Somebody's text without the password, should it repeat it.
    pub(super) fn scrub(&self, text: &str) -> String {
        match &self.password {
            Some(password) => text.replace(password, "[password]"),
            None => text.to_owned(),
        }
    }
}

fn info(url: &str) -> Result<ConnectionInfo, StoreError> {
    // Its errors are fixed words without anything of the URL, but for what a host cannot be.
    url.into_connection_info().map_err(|e| bad(e.category()))
}

fn list(nodes: &[ConnectionInfo]) -> String {
    nodes.iter().map(|node| node.addr().to_string()).collect::<Vec<_>>().join(", ")
}

fn bad(what: &str) -> StoreError {
    StoreError::Data(format!(
        "the URL of the store cannot be used: {what}. Write redis://HOST:6379, rediss://HOST:6379, \
         unix:///PATH, redis-sentinel://HOST,HOST/MASTER or redis-cluster://HOST,HOST, with \
         USER:PASSWORD@ before the first host where Redis asks for one"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(url: &str) -> String {
        Address::parse(url).map_or_else(|e| e.to_string(), |a| a.to_string())
    }

    #[test]
    fn each_form_is_read_and_told_without_its_password() {
        for (url, said) in [
            ("redis://u:s3cret@h:7000/2", "redis at h:7000"),
            ("rediss://:s3cret@h", "redis at h:6379"),
            ("unix:///run/redis.sock?pass=s3cret", "redis at /run/redis.sock"),
            (
                "redis-sentinel://u:s3cret@a,b:1,[::1]/main/3",
                "the redis master main of the sentinels a:26379, b:1, ::1:26379",
            ),
            ("rediss-cluster://u:s3cret@a:1,b", "the redis cluster of a:1, b:6379"),
        ] {
            let address = Address::parse(url).unwrap();
            assert_eq!(address.to_string(), said);
            assert!(!format!("{address:?}").contains("s3cret"));
            assert_eq!(address.password.as_deref(), Some("s3cret"));
            assert_eq!(address.scrub("no s3cret here"), "no [password] here");
        }
    }

    #[test]
    fn a_master_has_the_database_and_the_user_of_the_url() {
        let address = Address::parse("rediss-sentinel://u:p@a,b/main/3").unwrap();
        let Servers::Sentinel { sentinels, master, info } = address.servers else { panic!() };
        assert_eq!((sentinels.len(), master.as_str()), (2, "main"));
        assert_eq!(info.redis_settings().db(), 3);
        assert_eq!(info.redis_settings().username(), Some("u"));
        assert!(matches!(sentinels[0], ConnectionAddr::TcpTls { .. }));
    }

    #[test]
    fn what_is_no_address_is_refused_in_words_that_do_not_repeat_it() {
        for url in [
            "s3cret",
            "http://s3cret@h",
            "redis://u:s3cret@h/x",
            "redis://u:s3cret@",
            "redis-sentinel://u:s3cret@a,b",
            "redis-sentinel://u:s3cret@/main",
            "redis-cluster://u:s3cret@",
            "redis-cluster://u:s3cret@a:port",
        ] {
            let said = words(url);
            assert!(said.contains("cannot be used") && said.contains("redis://HOST"), "{said}");
            assert!(!said.contains("s3cret"), "{said}");
        }
    }
}
