//! Takes connections of one execution and serves each. Owns that none holds up another, how many
//! there are, and that they end with their execution. Must not know what requests ask for.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};

use super::house::{House, Seat, Served, are_of};
use super::proxy::{self, Visit};
use super::wire::{Gauge, Wire};
use crate::core::limits::{EGRESS_FIELDS_MAX, EGRESS_HEAD_BYTES_MAX};

/// Wait before the next connection is taken when the system gave none.
pub(super) const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// What a shim handed over.
pub(super) struct Entry<'a> {
    pub(super) listener: TcpListener,
    /// Everybody on this machine can connect.
    pub(super) guarded: bool,
    /// What the shim says of the execution.
    pub(super) pass: &'a str,
}

/// Takes connections for ever. While the execution has no rules, or others than those of this shim,
/// they wait in the system's queue.
pub(super) async fn run(house: &Arc<House>, served: &Served, entry: Entry<'_>) {
    let execution = &served.execution;
    let mut rules = execution.rules.subscribe();
    loop {
        if rules.wait_for(|rules| are_of(rules.as_ref(), entry.pass)).await.is_err() {
            return;
        }
        // Before one is taken, so that what has no room waits in the system's queue.
        house.room(execution).await;
        let taken = tokio::select! {
            taken = entry.listener.accept() => taken,
            // They may be others now.
            _changed = rules.changed() => continue,
        };
        match taken {
            Ok((stream, _)) => {
                let seat = house.seat(execution).await;
                let (guarded, above) = (entry.guarded, seat.is_above());
                let house = Arc::clone(house);
                let execution = Arc::clone(execution);
                let over = served.over.clone();
                let visit = Visit { house, execution, guarded, above, over };
                visit.house.connections.clone().spawn(attend(visit, stream, seat));
            }
            Err(_) => tokio::time::sleep(ACCEPT_AGAIN).await,
        }
    }
}

/// One connection, to its end. Whatever goes wrong in it ends nothing else.
async fn attend(visit: Visit, stream: TcpStream, seat: Seat) {
    let _slower_without_it = stream.set_nodelay(true);
    let caps = visit.house.using().told.caps;
    let (over, retired) = (visit.over.clone(), visit.house.retired.clone());
    let mut retired_before = false;
    let gauge = Gauge::new(Arc::clone(&visit.execution), visit.house.clock, caps);
    let gauge = Arc::new(gauge);
    let wire = Wire::new(stream, Arc::clone(&gauge));
    let seat = Arc::new(seat);
    let answering = Arc::new(visit);
    let service = {
        let gauge = Arc::clone(&gauge);
        service_fn(move |request| {
            let (visit, gauge) = (Arc::clone(&answering), Arc::clone(&gauge));
            let seat = Arc::clone(&seat);
            async move {
                gauge.serve(true);
                Ok::<_, Infallible>(proxy::answer(visit, gauge, seat, request).await)
            }
        })
    };
    let connection = Builder::new()
        .max_headers(EGRESS_FIELDS_MAX)
        .max_buf_size(EGRESS_HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(wire), service)
        .with_upgrades();
    let mut connection = Box::pin(connection);
    let mut lasts = true;
    while lasts {
        lasts = tokio::select! {
            // Whoever is at the other end went away, is too slow, or speaks no HTTP.
            _ended = connection.as_mut() => false,
            () = gauge.stood_still() => false,
            () = over.cancelled() => false,
            // The next request is for the next process, which alone hears of other rules.
            () = retired.cancelled(), if !retired_before => {
                connection.as_mut().graceful_shutdown();
                retired_before = true;
                true
            }
        };
    }
}
