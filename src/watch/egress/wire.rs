//! A watcher's connection, with what moves on it counted. Owns that no execution moves more than it
//! may, and that no connection stands still for ever. Must not know HTTP.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::house::Execution;
use super::pace::Clock;
use super::settings::Caps;
use crate::core::time::Timestamp;

/// What is known of a connection while it lives.
#[derive(Debug)]
pub(super) struct Gauge {
    execution: Arc<Execution>,
    clock: Clock,
    caps: Caps,
    /// When something moved last, in milliseconds.
    moved: AtomicU64,
    /// When the head of a request began that is not whole, in milliseconds; else 0.
    head: AtomicU64,
    /// A request is under way.
    serving: AtomicBool,
    /// What moves is no HTTP any more.
    tunnel: AtomicBool,
    /// Bytes from the script and to it.
    up: AtomicU64,
    down: AtomicU64,
}

impl Gauge {
    pub(super) fn new(execution: Arc<Execution>, clock: Clock, caps: Caps) -> Self {
        Self {
            execution,
            clock,
            caps,
            moved: AtomicU64::new(clock.now().as_ms()),
            head: AtomicU64::new(0),
            serving: AtomicBool::new(false),
            tunnel: AtomicBool::new(false),
            up: AtomicU64::new(0),
            down: AtomicU64::new(0),
        }
    }

    /// The head of a request is whole, or its answer is.
    pub(super) fn serve(&self, serving: bool) {
        self.serving.store(serving, Ordering::Relaxed);
        self.head.store(0, Ordering::Relaxed);
        self.moved.store(self.clock.now().as_ms(), Ordering::Relaxed);
    }

    /// From now on it is a tunnel.
    pub(super) fn tunnel(&self) {
        self.tunnel.store(true, Ordering::Relaxed);
        self.serve(false);
    }

    /// Has the execution moved all it may?
    pub(super) fn is_full(&self) -> bool {
        let most = self.caps.bytes;
        let Execution { up, down, .. } = &*self.execution;
        up.load(Ordering::Relaxed) >= most || down.load(Ordering::Relaxed) >= most
    }

    /// An error where it has.
    fn check_tunnel(&self) -> io::Result<()> {
        if self.tunnel.load(Ordering::Relaxed) && self.is_full() {
            return Err(full());
        }
        Ok(())
    }

    /// Bytes from the script and to it so far.
    pub(super) fn moved(&self) -> (u64, u64) {
        (self.up.load(Ordering::Relaxed), self.down.load(Ordering::Relaxed))
    }

    fn up(&self, count: u64) {
        let now = self.clock.now().as_ms();
        self.moved.store(now, Ordering::Relaxed);
        self.up.fetch_add(count, Ordering::Relaxed);
        self.execution.up.fetch_add(count, Ordering::Relaxed);
        if !self.serving.load(Ordering::Relaxed) && !self.tunnel.load(Ordering::Relaxed) {
            let _since_earlier =
                self.head.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    fn down(&self, count: u64) {
        self.moved.store(self.clock.now().as_ms(), Ordering::Relaxed);
        self.down.fetch_add(count, Ordering::Relaxed);
        self.execution.down.fetch_add(count, Ordering::Relaxed);
    }

    /// When the connection is to be ended unless something moves.
    fn deadline(&self) -> Timestamp {
        let moved = Timestamp::from_ms(self.moved.load(Ordering::Relaxed));
        let head = self.head.load(Ordering::Relaxed);
        if self.serving.load(Ordering::Relaxed) {
            // The upstream has its own deadlines, which say more to the script than an end.
            let upstream = self.caps.wait_ms.saturating_add(self.caps.connect_ms);
            return moved.plus_ms(self.caps.idle_ms.saturating_mul(2).saturating_add(upstream));
        }
        let idle = moved.plus_ms(self.caps.idle_ms);
        if head == 0 { idle } else { idle.min(Timestamp::from_ms(head).plus_ms(self.caps.head_ms)) }
    }

    /// Returns when it stood still for too long.
    pub(super) async fn stood_still(&self) {
        loop {
            let deadline = self.deadline();
            if deadline <= self.clock.now() {
                return;
            }
            self.clock.sleep_until(deadline).await;
        }
    }
}

/// The connection itself.
#[derive(Debug)]
pub(super) struct Wire {
    stream: TcpStream,
    gauge: Arc<Gauge>,
}

impl Wire {
    pub(super) fn new(stream: TcpStream, gauge: Arc<Gauge>) -> Self {
        Self { stream, gauge }
    }
}

/// An execution has moved all it may.
pub(super) fn full() -> io::Error {
    io::Error::new(io::ErrorKind::QuotaExceeded, "the execution has moved all it may")
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        self.gauge.check_tunnel()?;
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        let count = buffer.filled().len().saturating_sub(before) as u64;
        if count > 0 {
            self.gauge.up(count);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.gauge.check_tunnel()?;
        let count = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes))?;
        self.gauge.down(count as u64);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
