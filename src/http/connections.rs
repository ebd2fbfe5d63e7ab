//! Connections: how many, how slow they may be, and how they end. Must not know what is asked.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1::Builder;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::core::limits::{
    HTTP_CONNECTIONS_MAX, HTTP_DRAIN_MS, HTTP_HEAD_BYTES_MAX, HTTP_HEAD_MS, HTTP_HEADERS_MAX,
};
use crate::ports::Clock;

/// Wait before the next connection is taken when the system gave none.
const ACCEPT_AGAIN_MS: u64 = 100;

/// Serves until `ending`, then until the last connection has ended, or its time is over.
pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    clock: Arc<dyn Clock>,
    ending: CancellationToken,
) {
    let tasks = TaskTracker::new();
    let cut = CancellationToken::new();
    let seats = Arc::new(Semaphore::new(HTTP_CONNECTIONS_MAX));
    // Cancelling safely drops what waits to be taken.
    while let Some(taken) = ending.run_until_cancelled(take(&listener, &seats)).await {
        match taken {
            Some((stream, seat)) => {
                let ways = Ways { ending: ending.clone(), cut: cut.clone() };
                tasks.spawn(serve_one(stream, seat, router.clone(), ways));
            }
            // Out of descriptors, most likely: they come back as connections end.
            None => clock.sleep_until(clock.now().plus_ms(ACCEPT_AGAIN_MS)).await,
        }
    }
    drop(listener);
    tasks.close();
    let until = clock.sleep_until(clock.now().plus_ms(HTTP_DRAIN_MS));
    tokio::select! {
        () = tasks.wait() => {}
        () = until => {
            tracing::warn!(http.connections = tasks.len(), "connections are cut: they did not end");
            cut.cancel();
            tasks.wait().await;
        }
    }
}

/// A seat first, then who sits on it: what has no seat waits in the system's queue.
async fn take(
    listener: &TcpListener,
    seats: &Arc<Semaphore>,
) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    let seat = Arc::clone(seats).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, seat)),
        Err(error) => {
            tracing::warn!(%error, "no connection can be taken");
            None
        }
    }
}

/// How a connection may be ended from outside.
struct Ways {
    /// After the answer that is under way.
    ending: CancellationToken,
    /// Now.
    cut: CancellationToken,
}

async fn serve_one(stream: TcpStream, seat: OwnedSemaphorePermit, router: Router, ways: Ways) {
    let _slower_without_it = stream.set_nodelay(true);
    let connection = Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_millis(HTTP_HEAD_MS))
        .max_headers(HTTP_HEADERS_MAX)
        .max_buf_size(HTTP_HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = ways.ending.cancelled() => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                ended = connection.as_mut() => ended,
                () = ways.cut.cancelled() => Ok(()),
            }
        }
    };
    if let Err(error) = ended {
        // Whoever is at the other end went away, is too slow, or speaks no HTTP.
        tracing::debug!(%error, "a connection broke off");
    }
    drop(seat);
}
