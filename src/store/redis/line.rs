//! The connection over which everything is asked. Owns making it, noticing that it is broken, and
//! not storming a server that is away. Must not know what is asked.
//!
//! What the client would do by itself is set on purpose. It repeats nothing: an apply is repeated
//! by whoever asked for it, who is told that its outcome is unknown. Only in a cluster it follows
//! a slot to its new node, and may send an apply twice; its revision makes that harmless.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr};
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::sentinel::{SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, FromRedisValue, RedisError, RedisResult,
    TlsCertificates, TlsMode,
};
use tokio::sync::Mutex;

use super::address::{Address, Servers};
use super::fault::is_of_the_connection;
use super::keys;
use super::together::Together;
use crate::core::limits::{
    REDIS_ANSWER_MS, REDIS_CLUSTER_RETRIES_MAX, REDIS_CONNECT_MS, REDIS_PING_MS, REDIS_QUEUE_MAX,
    REDIS_RECONNECT_FIRST_MS, REDIS_RECONNECT_MS_MAX,
};
use crate::store::time::boot_ms;

/// An open connection; clones share it.
#[derive(Clone)]
pub(super) enum Wire {
    One(Together),
    Cluster(ClusterConnection),
}

impl Wire {
    pub(super) async fn ask<T: FromRedisValue>(&mut self, command: Cmd) -> RedisResult<T> {
        match self {
            Self::One(one) => Ok(T::from_redis_value(one.ask(command).await?)?),
            Self::Cluster(cluster) => command.query_async(cluster).await,
        }
    }

    /// Asks the node that holds shard 0, where a command has no key.
    pub(super) async fn ask_first<T: FromRedisValue>(&mut self, command: Cmd) -> RedisResult<T> {
        match self {
            Self::One(one) => Ok(T::from_redis_value(one.ask(command).await?)?),
            Self::Cluster(cluster) => {
                let route = Route::new(keys::slot(0), SlotAddr::Master);
                let node = SingleNodeRoutingInfo::SpecificNode(route);
                let answer = cluster.route_command(command, RoutingInfo::SingleNode(node)).await?;
                Ok(T::from_redis_value(answer.extract_error()?)?)
            }
        }
    }
}

#[derive(Default)]
struct State {
    wire: Option<Wire>,
    /// How many connections there were: tells a broken one from the one after it.
    number: u64,
    /// The last try failed in this way, and until then it is not tried again.
    failed: Option<(RedisError, u64)>,
    /// Failures in a row.
    failures: u32,
}

/// The way to Redis: one connection at a time, made when it is needed.
pub(super) struct Line {
    pub(super) address: Address,
    tls: Option<TlsCertificates>,
    state: Mutex<State>,
}

impl Line {
    pub(super) fn new(address: Address, ca: Option<Vec<u8>>) -> Self {
        let tls = ca.map(|ca| TlsCertificates { client_tls: None, root_cert: Some(ca) });
        Self { address, tls, state: Mutex::default() }
    }

    /// Asks once.
    pub(super) async fn ask<T: FromRedisValue>(&self, command: Cmd) -> RedisResult<T> {
        let (mut wire, number) = self.wire().await?;
        let answer = wire.ask(command).await;
        self.judge(answer, number).await
    }

    /// Asks the node that holds shard 0 once.
    pub(super) async fn ask_first<T: FromRedisValue>(&self, command: Cmd) -> RedisResult<T> {
        let (mut wire, number) = self.wire().await?;
        let answer = wire.ask_first(command).await;
        self.judge(answer, number).await
    }

    /// The open connection, and its number for [`Line::judge`].
    pub(super) async fn wire(&self) -> RedisResult<(Wire, u64)> {
        let mut state = self.state.lock().await;
        if let Some(wire) = &state.wire {
            return Ok((wire.clone(), state.number));
        }
        if let Some((error, until)) = &state.failed
            && boot_ms() < *until
        {
            return Err(error.clone());
        }
        match self.connect().await {
            Ok(wire) => {
                state.number += 1;
                state.failures = 0;
                state.failed = None;
                state.wire = Some(wire.clone());
                Ok((wire, state.number))
            }
            Err(error) => {
                let wait = REDIS_RECONNECT_FIRST_MS << state.failures.min(16);
                state.failures += 1;
                let until = boot_ms() + wait.min(REDIS_RECONNECT_MS_MAX);
                state.failed = Some((error.clone(), until));
                Err(error)
            }
        }
    }

    /// Passes an answer on, and lets the connection go if it says so.
    pub(super) async fn judge<T>(&self, answer: RedisResult<T>, number: u64) -> RedisResult<T> {
        if let Err(error) = &answer {
            let cluster = matches!(self.address.servers, Servers::Cluster(_));
            if is_of_the_connection(error, cluster) {
                let mut state = self.state.lock().await;
                if state.number == number {
                    state.wire = None;
                }
            }
        }
        answer
    }

    async fn connect(&self) -> RedisResult<Wire> {
        match &self.address.servers {
            Servers::One(_) | Servers::Sentinel { .. } => {
                Ok(Wire::One(Together::over(self.one().await?)))
            }
            Servers::Cluster(nodes) => {
                let mut builder = ClusterClient::builder(nodes.clone())
                    .connection_timeout(connect_time())
                    .response_timeout(answer_time())
                    .overall_response_timeout(Some(answer_time()))
                    .retries(REDIS_CLUSTER_RETRIES_MAX)
                    .min_retry_wait(REDIS_RECONNECT_FIRST_MS)
                    .max_retry_wait(REDIS_RECONNECT_MS_MAX)
                    .tcp_settings(tcp());
                if let Some(tls) = &self.tls {
                    builder = builder.certs(tls.clone());
                }
                Ok(Wire::Cluster(builder.build()?.get_async_connection().await?))
            }
        }
    }

    /// A new connection to the one server.
    pub(super) async fn one(&self) -> RedisResult<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(connect_time()))
            .set_response_timeout(Some(answer_time()))
            .set_pipeline_buffer_size(REDIS_QUEUE_MAX);
        self.client().await?.get_multiplexed_async_connection_with_config(&config).await
    }

    /// A client of one server that passes hints on: each node of a cluster does.
    pub(super) async fn client(&self) -> RedisResult<Client> {
        let info = match &self.address.servers {
            Servers::One(info) => info,
            Servers::Cluster(nodes) => {
                let turn = usize::try_from(boot_ms() / REDIS_RECONNECT_MS_MAX).unwrap_or(0);
                match nodes.get(turn % nodes.len().max(1)) {
                    Some(info) => info,
                    None => return self.master().await,
                }
            }
            Servers::Sentinel { .. } => return self.master().await,
        };
        let info = info.clone().set_tcp_settings(tcp());
        match &self.tls {
            Some(tls) => Client::build_with_tls(info, tls.clone()),
            None => Client::open(info),
        }
    }

    /// A client of the server that the sentinels name now.
    async fn master(&self) -> RedisResult<Client> {
        let Servers::Sentinel { sentinels, master, info } = &self.address.servers else {
            return Err((redis::ErrorKind::EmptySentinelList, "no server is named").into());
        };
        let mut builder = SentinelClientBuilder::new(
            sentinels.clone(),
            master.clone(),
            SentinelServerType::Master,
        )?
        .set_client_to_redis_db(info.redis_settings().db())
        .set_client_to_redis_tcp_settings(tcp())
        .set_client_to_sentinel_tcp_settings(tcp());
        if let Some(user) = info.redis_settings().username() {
            builder = builder.set_client_to_redis_username(user);
        }
        if let Some(password) = info.redis_settings().password() {
            builder = builder.set_client_to_redis_password(password);
        }
        if matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
            builder = builder
                .set_client_to_redis_tls_mode(TlsMode::Secure)
                .set_client_to_sentinel_tls_mode(TlsMode::Secure);
        }
        if let Some(tls) = &self.tls {
            builder = builder
                .set_client_to_redis_certificates(tls.clone())
                .set_client_to_sentinel_certificates(tls.clone());
        }
        let mut sentinel = builder.build()?;
        // A sentinel that does not answer must not hold the line for ever.
        let asked = tokio::time::timeout(answer_time(), sentinel.async_get_client()).await;
        asked.map_err(|_| RedisError::from(std::io::Error::from(std::io::ErrorKind::TimedOut)))?
    }
}

pub(super) const fn answer_time() -> Duration {
    Duration::from_millis(REDIS_ANSWER_MS)
}

pub(super) const fn connect_time() -> Duration {
    Duration::from_millis(REDIS_CONNECT_MS)
}

/// Small requests are sent at once, and a peer that vanished without a word is noticed.
fn tcp() -> TcpSettings {
    let alive = TcpKeepalive::new().with_time(Duration::from_millis(REDIS_PING_MS));
    TcpSettings::default().set_nodelay(true).set_keepalive(alive).set_user_timeout(answer_time())
}
