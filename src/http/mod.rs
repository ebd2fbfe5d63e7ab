//! The server: probes, metrics, and later the API and the pages. Owns the listener, its limits,
//! request ids and what an error looks like. Must not know the engine, the store or the
//! configuration; what the pages say comes from a [`House`].
//!
//! | path | answers |
//! |---|---|
//! | `/livez` | 200 while the process serves |
//! | `/readyz` | 200 when everything it needs is there, else 503; as JSON, with reasons |
//! | `/metrics` | the metrics, as text |
//!
//! Every error is JSON: `{"error":{"code","message","hint","request_id"}}`.

mod answer;
mod connections;
mod pages;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use futures_util::future::BoxFuture;
use secrecy::SecretString;
use serde::Serialize;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::ports::{Clock, Ids};

/// What the server is told by the composition root.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where it listens.
    pub bind: SocketAddr,
    /// Asked for as a bearer token.
    pub token: Option<SecretString>,
}

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// Somebody else listens there.
    #[error(
        "{bind} is taken: another program or another dogwatch listens there; end that one, or name \
         another address in [http] bind"
    )]
    Taken {
        /// Where.
        bind: SocketAddr,
    },
    /// It cannot be listened on.
    #[error("cannot listen on {bind}: {source}; name an address of this machine in [http] bind")]
    Bind {
        /// Where.
        bind: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// Anybody could come.
    #[error(
        "{bind} can be reached from other machines, and no token is asked for; set [http] token, \
         or bind to 127.0.0.1"
    )]
    Open {
        /// Where.
        bind: SocketAddr,
    },
}

/// One thing that must be well for the bot to be ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Its name, always the same.
    pub name: &'static str,
    /// It is well.
    pub ok: bool,
    /// What was seen, and what now.
    pub what: String,
}

/// What the pages show. Answers at once or within a bound.
pub trait House: Send + Sync + 'static {
    /// Everything that readiness depends on.
    fn readiness(&self) -> BoxFuture<'_, Vec<Check>>;
    /// The metrics, as text.
    fn metrics(&self) -> BoxFuture<'_, String>;
}

/// What the server needs of the rest.
#[derive(Clone)]
pub struct Reach {
    /// What the pages show.
    pub house: Arc<dyn House>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Fresh ids for requests.
    pub ids: Arc<dyn Ids>,
}

/// A server that has its port and does not answer yet.
pub struct Server {
    listener: TcpListener,
    settings: Settings,
}

impl Server {
    /// Takes the port, before anything else is begun.
    pub async fn bind(settings: Settings) -> Result<Self, HttpError> {
        let bind = settings.bind;
        if !bind.ip().is_loopback() && settings.token.is_none() {
            return Err(HttpError::Open { bind });
        }
        let listener = TcpListener::bind(bind).await.map_err(|source| {
            let taken = source.kind() == io::ErrorKind::AddrInUse;
            if taken { HttpError::Taken { bind } } else { HttpError::Bind { bind, source } }
        })?;
        Ok(Self { listener, settings })
    }

    /// Where it listens, with the port that the system chose if it was told 0.
    pub fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap_or(self.settings.bind)
    }

    /// Answers until `ending`, with the pages of others besides its own; then connections end
    /// within [`HTTP_DRAIN_MS`](crate::core::limits::HTTP_DRAIN_MS).
    pub async fn serve(self, reach: Reach, more: Router, ending: CancellationToken) {
        let clock = Arc::clone(&reach.clock);
        let router = pages::router(reach, self.settings.token, more);
        connections::serve(self.listener, router, clock, ending).await;
    }
}
