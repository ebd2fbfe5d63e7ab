//! The bot's side of one shim: a task that keeps a connection to it, passes orders on, notices when
//! they are not answered, and reports its end. While nothing is asked it only waits for the end of
//! the connection: a thousand quiet shims cost nothing. Must not know what an execution is for.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use rustix::process::{Pid, Signal, WaitOptions, waitpid};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf, pipe};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::Shared;
use super::adopt::{Suspect, judge};
use super::ctl::{self, LINE_BYTES_MAX, Order, Peer};
use super::spawn::Shim;
use super::spool::Entry;
use super::stray;
use crate::core::execution::Outcome;
use crate::core::id::{ExecutionId, SessionId};
use crate::core::time::Timestamp;
#[cfg(feature = "failpoints")]
use crate::failpoint;
use crate::ports::Found;

/// First wait between two looks at a shim that is neither there nor gone; it doubles.
const AGAIN_FIRST_MS: u64 = 20;

/// Shims that are looked at before others get their turn.
const LOOKS_AT_ONCE: usize = 1_024;

/// How others reach the task.
#[derive(Debug, Clone)]
pub(super) struct Handle {
    /// What the shim is to be told.
    pub(super) orders: mpsc::Sender<Order>,
    /// What is known of it.
    pub(super) sign: Arc<Sign>,
}

/// What is known of a shim without asking it.
#[derive(Debug, Default)]
pub(super) struct Sign {
    /// It does not answer.
    pub(super) stalled: AtomicBool,
    /// Its process, 0 while there is no connection. Only to look at: it may be gone.
    pid: AtomicI32,
}

impl Sign {
    /// Somebody stopped it, so that it would not answer. Reads one file that is no file on a disk.
    pub(super) fn is_stopped(&self) -> bool {
        let pid = self.pid.load(Ordering::Relaxed);
        pid != 0 && ctl::is_stopped(pid)
    }
}

/// The task of one shim.
pub(super) struct Attendant {
    pub(super) shared: Arc<Shared>,
    pub(super) session: SessionId,
    pub(super) execution: ExecutionId,
    pub(super) entry: Entry,
    pub(super) orders: mpsc::Receiver<Order>,
    pub(super) sign: Arc<Sign>,
    /// Sent on a connection that broke before they were answered.
    pub(super) unheard: Vec<Order>,
    /// Since when there is no connection.
    pub(super) unconnected_since: Option<Timestamp>,
    /// Who ended the shim, should it leave no record.
    pub(super) suspect: Suspect,
}

/// How a stretch of attention ended.
enum Stretch {
    /// The shim closed the connection, or there is none.
    Gone,
    /// The bot lets go; the shim goes on.
    Released,
}

/// A connection, and what is owed on it.
struct Line {
    read: OwnedReadHalf,
    write: OwnedWriteHalf,
    peer: Option<Peer>,
    /// The orders that were not answered yet, and when they were sent.
    asked: VecDeque<(Order, Timestamp)>,
    /// When it is looked whether they are.
    check_at: Option<Timestamp>,
}

impl Shared {
    /// A stopped shim cannot say that it is: so it is asked, and woken when it does not answer.
    /// Those that run are not disturbed.
    pub(super) async fn look_for_stopped(self: Arc<Self>) {
        loop {
            if self.live().is_empty() {
                self.some.notified().await;
            }
            self.sleep_until(Some(self.clock.now().plus_ms(self.timing.check_ms))).await;
            let handles: Vec<Handle> = self.live().values().cloned().collect();
            // Each look takes microseconds; another thread for them would have to be woken.
            for (no, some) in handles.chunks(LOOKS_AT_ONCE).enumerate() {
                if no > 0 {
                    tokio::task::yield_now().await;
                }
                for handle in some.iter().filter(|handle| handle.sign.is_stopped()) {
                    // A full queue has orders that ask as well.
                    let _asked = handle.orders.try_send(Order::Probe);
                }
            }
        }
    }
}

impl Attendant {
    /// Attends to the end, which it answers; `None` when the bot lets go before. `shim` is the
    /// process, where this bot started it.
    pub(super) async fn run(mut self, shim: Option<Shim>) -> Option<Outcome> {
        let is_own = shim.is_some();
        let mut pid = shim.as_ref().and_then(|shim| shim.pid);
        let mut ready = shim.and_then(|shim| pipe::Receiver::from_owned_fd(shim.ready).ok());
        while let Some(pipe) = &mut ready {
            let until = self.shared.clock.now().plus_ms(self.shared.timing.check_ms);
            tokio::select! {
                _either = pipe.read_u8() => ready = None,
                stretch = self.unconnected(until) => match stretch {
                    Stretch::Released => return None,
                    Stretch::Gone => {}
                },
            }
        }
        let mut again_ms = AGAIN_FIRST_MS;
        loop {
            match self.stretch().await {
                Stretch::Released => return None,
                Stretch::Gone => {}
            }
            let peer = Pid::from_raw(self.sign.pid.swap(0, Ordering::Relaxed));
            // Who is a child stays this one until it is reaped; others may be anybody by then.
            pid = pid.or(peer.filter(|_| is_own));
            if let Some(outcome) = self.judge().await {
                self.sign.stalled.store(false, Ordering::Relaxed);
                if let Some(pid) = pid {
                    self.shared.stop.run_until_cancelled(reap(pid)).await;
                }
                return Some(outcome);
            }
            let again = self.shared.clock.now().plus_ms(again_ms);
            again_ms = (again_ms * 2).min(self.shared.timing.check_ms);
            match self.unconnected(again).await {
                Stretch::Released => return None,
                Stretch::Gone => {}
            }
        }
    }

    /// `None` while its lock is held.
    async fn judge(&self) -> Option<Outcome> {
        let (shared, entry) = (Arc::clone(&self.shared), self.entry.clone());
        let (now, suspect) = (shared.clock.now(), self.suspect);
        let found =
            tokio::task::spawn_blocking(move || judge(&entry, now, suspect, &*shared.redactor));
        match found.await.ok()? {
            Ok(Found::Ended(outcome)) => Some(outcome),
            Ok(Found::Held) => None,
            Err(error) => {
                let (session, execution) = (&self.session, &self.execution);
                tracing::warn!(%session, %execution, %error, "cannot look after a script");
                None
            }
        }
    }

    /// Waits without a connection. Orders are kept for the next one; a shim that has none for too
    /// long is woken, and a kill that it cannot hear is carried out from here.
    async fn unconnected(&mut self, until: Timestamp) -> Stretch {
        let shared = Arc::clone(&self.shared);
        let since = *self.unconnected_since.get_or_insert(shared.clock.now());
        loop {
            tokio::select! {
                () = shared.stop.cancelled() => return Stretch::Released,
                Some(order) = self.orders.recv() => {
                    if !self.unheard.contains(&order) {
                        self.unheard.push(order);
                    }
                }
                () = shared.clock.sleep_until(until) => break,
            }
        }
        if shared.clock.now().since_ms(since) < shared.timing.answer_ms {
            return Stretch::Gone;
        }
        let is_killed = self.unheard.contains(&Order::Kill);
        let signal = if is_killed { Signal::KILL } else { Signal::CONT };
        let dir = self.entry.dir.clone();
        let suspect = self.suspect;
        if is_killed {
            // Before the signal: its end may be seen before this goes on, which then never does.
            self.suspect = Suspect::Ourselves;
        }
        let looked = tokio::task::spawn_blocking(move || stray::signal_shim(&dir, signal));
        let is_there = looked.await.unwrap_or(false);
        if !is_there {
            self.suspect = suspect;
        }
        self.sign.stalled.store(is_there, Ordering::Relaxed);
        Stretch::Gone
    }

    async fn stretch(&mut self) -> Stretch {
        let shared = Arc::clone(&self.shared);
        if shared.stop.is_cancelled() {
            return Stretch::Released;
        }
        let Ok(stream) = ctl::connect(&self.entry.dir).await else {
            return Stretch::Gone;
        };
        let mut line = Line::new(stream);
        self.unconnected_since = None;
        self.sign.stalled.store(false, Ordering::Relaxed);
        self.sign.pid.store(line.peer.as_ref().map_or(0, Peer::pid), Ordering::Relaxed);
        for order in std::mem::take(&mut self.unheard) {
            self.ask(&mut line, order).await;
        }
        loop {
            let kill_at = line.kill_due(shared.timing.answer_ms);
            let mut bytes = [0; LINE_BYTES_MAX];
            tokio::select! {
                () = shared.stop.cancelled() => return Stretch::Released,
                read = line.read.read(&mut bytes) => {
                    if !matches!(read, Ok(1..)) {
                        self.unheard = line.asked.into_iter().map(|(order, _)| order).collect();
                        return Stretch::Gone;
                    }
                    self.hear(&mut line, &bytes);
                }
                Some(order) = self.orders.recv() => self.ask(&mut line, order).await,
                () = shared.sleep_until(kill_at.into_iter().chain(line.check_at).min()) => {
                    let now = shared.clock.now();
                    if kill_at.is_some_and(|due| due <= now) {
                        self.suspect = Suspect::Ourselves;
                        line.kill();
                    }
                    if line.check_at.is_some_and(|due| due <= now) {
                        line.check_at = Some(now.plus_ms(shared.timing.check_ms));
                        self.check(&line);
                    }
                }
            }
        }
    }

    /// Passes an order on. A question adds nothing while an answer is owed anyway.
    async fn ask(&self, line: &mut Line, order: Order) {
        if order == Order::Probe && !line.asked.is_empty() {
            return;
        }
        let now = self.shared.clock.now();
        line.check_at.get_or_insert(now.plus_ms(self.shared.timing.answer_ms));
        line.send(order, now).await;
    }

    /// Each line answers the oldest order. The last one, that the record is written, answers none,
    /// and the end of the connection follows it.
    fn hear(&self, line: &mut Line, bytes: &[u8]) {
        for _ in bytes.iter().filter(|byte| **byte == b'\n') {
            line.asked.pop_front();
        }
        if !line.asked.is_empty() {
            return;
        }
        line.check_at = None;
        if self.sign.stalled.swap(false, Ordering::Relaxed) {
            let (session, execution) = (&self.session, &self.execution);
            tracing::info!(%session, %execution, "the supervisor of a script answers again");
        }
    }

    /// Wakes who owes an answer for too long.
    fn check(&self, line: &Line) {
        let (session, execution) = (&self.session, &self.execution);
        if !self.sign.stalled.swap(true, Ordering::Relaxed) {
            tracing::warn!(%session, %execution, "the supervisor of a script does not answer");
        }
        line.wake();
    }
}

/// Takes the exit code of a shim that has written its record, so that nothing is left of it.
async fn reap(shim: Pid) {
    // Before the first look, so that no end falls between.
    let Ok(mut ends) = signal(SignalKind::child()) else { return };
    while matches!(waitpid(Some(shim), WaitOptions::NOHANG), Ok(None)) {
        ends.recv().await;
    }
}

impl Line {
    fn new(stream: UnixStream) -> Self {
        // Where the peer cannot be had it is just gone: the next read says so.
        let peer = Peer::of(&stream).ok();
        let (read, write) = stream.into_split();
        Self { read, write, peer, asked: VecDeque::new(), check_at: None }
    }

    /// A shim that is stopped reads it when it goes on. One that is gone ends the reading.
    async fn send(&mut self, order: Order, now: Timestamp) {
        if order == Order::Kill {
            self.wake();
        }
        #[cfg(feature = "failpoints")]
        match order {
            Order::Go => failpoint!("go.before"),
            Order::Cancel => failpoint!("cancel.before"),
            Order::Kill => failpoint!("kill.before"),
            Order::Probe => {}
        }
        let _gone = self.write.write_all(format!("{}\n", order.word()).as_bytes()).await;
        #[cfg(feature = "failpoints")]
        match order {
            Order::Go => failpoint!("go.after"),
            Order::Cancel => failpoint!("cancel.after"),
            Order::Kill => failpoint!("kill.after"),
            Order::Probe => {}
        }
        self.asked.push_back((order, now));
    }

    /// When a kill that the shim did not hear is carried out from here.
    fn kill_due(&self, answer_ms: u64) -> Option<Timestamp> {
        let kill = self.asked.iter().find(|(order, _)| *order == Order::Kill);
        kill.map(|(_, since)| since.plus_ms(answer_ms))
    }

    fn wake(&self) {
        if let Some(peer) = &self.peer {
            let _gone_meanwhile = peer.wake();
        }
    }

    /// The script dies with its shim.
    fn kill(&mut self) {
        self.asked.retain(|(order, _)| *order != Order::Kill);
        if let Some(peer) = &self.peer {
            let _gone_meanwhile = peer.kill();
        }
    }
}
