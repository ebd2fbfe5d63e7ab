//! What the egress process holds: executions with their rules and counters, the settings, and who
//! is connected. Owns that an execution is known by its name and pass together. Must not know HTTP.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::{ClientConfig, RootCertStore};
use secrecy::ExposeSecret;
use sha2::{Digest, Sha256};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::log::Log;
use super::pace::{Clock, Pace};
use super::reach;
use super::words::{Rules, Told};
use crate::core::egress::{CredentialName, Destination};
use crate::core::limits::{
    EGRESS_CONNECTIONS_TOTAL_MAX, EGRESS_EXECUTIONS_MAX, EGRESS_TURNED_AWAY_MAX, EGRESS_UNUSED_MS,
};

/// Lookups of names of one execution at once: each takes a thread until the system answers.
const LOOKUPS_MAX: usize = 4;

/// One execution, as long as it has rules or a shim.
#[derive(Debug)]
pub(super) struct Execution {
    /// Its name.
    pub(super) name: String,
    /// What it may do; none while the bot has not said.
    pub(super) rules: watch::Sender<Option<Arc<Rules>>>,
    /// Shims that serve it.
    shims: AtomicUsize,
    /// Connections that are open.
    pub(super) live: AtomicUsize,
    /// Requests so far.
    pub(super) requests: AtomicU64,
    /// Bytes from it and to it so far.
    pub(super) up: AtomicU64,
    pub(super) down: AtomicU64,
    /// Its lookups of names.
    pub(super) lookups: Arc<tokio::sync::Semaphore>,
    /// It is over: whatever it has open ends.
    pub(super) over: CancellationToken,
}

impl Execution {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            rules: watch::Sender::new(None),
            shims: AtomicUsize::new(0),
            live: AtomicUsize::new(0),
            requests: AtomicU64::new(0),
            up: AtomicU64::new(0),
            down: AtomicU64::new(0),
            lookups: Arc::new(tokio::sync::Semaphore::new(LOOKUPS_MAX)),
            over: CancellationToken::new(),
        }
    }

    /// Returns when its rules let it go there no longer, or not with that credential. What is
    /// without rules is over, which is heard elsewhere.
    pub(super) async fn loses(&self, to: &Destination, lent: Option<&CredentialName>) {
        let mut rules = self.rules.subscribe();
        let has = |rules: &Arc<Rules>| {
            let named = |name: &CredentialName| {
                rules.lent.iter().any(|own| own.name == *name && own.host == *to)
            };
            rules.hosts.iter().any(|rule| rule.matches(&to.host, to.port)) && lent.is_none_or(named)
        };
        let lost = |rules: &Option<Arc<Rules>>| rules.as_ref().is_some_and(|rules| !has(rules));
        if rules.wait_for(lost).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Are they the same? Takes as long whether they are or not.
pub(super) fn same_pass(one: &str, other: &str) -> bool {
    Sha256::digest(one) == Sha256::digest(other)
}

/// How the network is used now.
#[derive(Debug)]
pub(super) struct Using {
    pub(super) told: Told,
    pub(super) tls: Arc<ClientConfig>,
}

/// Everything.
#[derive(Debug)]
pub(super) struct House {
    pub(super) clock: Clock,
    pub(super) pace: Pace,
    pub(super) log: Log,
    /// The user whose words are heard, beside root.
    pub(super) owner: u32,
    /// Connections of scripts.
    pub(super) connections: TaskTracker,
    /// What else goes on.
    pub(super) tasks: TaskTracker,
    /// A newer process takes over.
    pub(super) retired: CancellationToken,
    /// The lock and the socket are given up.
    pub(super) unlocked: CancellationToken,
    /// Bots that are connected.
    bots: AtomicUsize,
    /// Bots and shims that are connected.
    pub(super) peers: watch::Sender<usize>,
    /// A connection has ended.
    freed: Notify,
    live: AtomicUsize,
    live_max: usize,
    system: RootCertStore,
    using: Mutex<Arc<Using>>,
    executions: Mutex<HashMap<String, Arc<Execution>>>,
}

impl House {
    /// Of a process that has just begun. `files_max` is how many files it may open.
    pub(super) fn new(log: Log, owner: u32, seed: u64, files_max: u64) -> io::Result<Self> {
        let clock = Clock::start();
        let told = Told::default();
        let system = reach::system();
        let tls = reach::trust(&system, None)?;
        // Each connection takes two, and each listener and shim one.
        let files = usize::try_from(files_max / 3).unwrap_or(usize::MAX);
        Ok(Self {
            clock,
            pace: Pace::new(clock, seed),
            log,
            owner,
            connections: TaskTracker::new(),
            tasks: TaskTracker::new(),
            retired: CancellationToken::new(),
            unlocked: CancellationToken::new(),
            bots: AtomicUsize::new(0),
            peers: watch::Sender::new(0),
            freed: Notify::new(),
            live: AtomicUsize::new(0),
            live_max: files.clamp(1, EGRESS_CONNECTIONS_TOTAL_MAX),
            system,
            using: Mutex::new(Arc::new(Using { told, tls })),
            executions: Mutex::default(),
        })
    }

    /// How the network is used now.
    pub(super) fn using(&self) -> Arc<Using> {
        Arc::clone(&self.using.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// From now on it is used so.
    pub(super) fn settle(&self, told: Told) -> io::Result<()> {
        let tls = reach::trust(&self.system, told.extra_ca.as_deref())?;
        let using = Arc::new(Using { told, tls });
        *self.using.lock().unwrap_or_else(PoisonError::into_inner) = using;
        Ok(())
    }

    /// How long it stays when nobody is connected, in milliseconds.
    pub(super) fn unused_ms(&self) -> u64 {
        self.using().told.unused_ms.unwrap_or(EGRESS_UNUSED_MS)
    }

    fn executions(&self) -> MutexGuard<'_, HashMap<String, Arc<Execution>>> {
        self.executions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(
        all: &mut HashMap<String, Arc<Execution>>,
        name: &str,
    ) -> Result<Arc<Execution>, String> {
        if let Some(execution) = all.get(name) {
            return Ok(Arc::clone(execution));
        }
        if all.len() >= EGRESS_EXECUTIONS_MAX {
            return Err(format!("{EGRESS_EXECUTIONS_MAX} executions have a network already"));
        }
        let execution = Arc::new(Execution::new(name));
        all.insert(name.to_owned(), Arc::clone(&execution));
        Ok(execution)
    }

    /// From now on an execution may do this.
    pub(super) fn rule(&self, rules: Rules) -> Result<(), String> {
        rules.check()?;
        let execution = Self::find(&mut self.executions(), &rules.execution)?;
        execution.rules.send_replace(Some(Arc::new(rules)));
        Ok(())
    }

    /// An execution is over.
    pub(super) fn forget(&self, name: &str) {
        if let Some(execution) = self.executions().remove(name) {
            execution.rules.send_replace(None);
            execution.over.cancel();
        }
    }

    /// A bot is connected until what this answers is dropped.
    pub(super) fn greet(self: &Arc<Self>) -> Bot {
        self.bots.fetch_add(1, Ordering::Relaxed);
        Bot { house: Arc::clone(self) }
    }

    /// A shim serves an execution until what this answers is dropped.
    pub(super) fn serve(self: &Arc<Self>, name: &str) -> Result<Served, String> {
        let mut all = self.executions();
        let execution = Self::find(&mut all, name)?;
        execution.shims.fetch_add(1, Ordering::Relaxed);
        let over = execution.over.child_token();
        Ok(Served { house: Arc::clone(self), execution, over })
    }

    /// Returns when there is room for one more connection of an execution.
    pub(super) async fn room(&self, execution: &Execution) {
        loop {
            let mut freed = std::pin::pin!(self.freed.notified());
            // From here on, nothing that ends is missed.
            freed.as_mut().enable();
            let most = self.using().told.caps.connections.saturating_add(EGRESS_TURNED_AWAY_MAX);
            let room = execution.live.load(Ordering::Relaxed) < most;
            if room && self.live.load(Ordering::Relaxed) < self.live_max {
                return;
            }
            freed.await;
        }
    }

    /// A seat for a connection that was taken, when there is room.
    pub(super) async fn seat(self: &Arc<Self>, execution: &Arc<Execution>) -> Seat {
        self.room(execution).await;
        execution.live.fetch_add(1, Ordering::Relaxed);
        self.live.fetch_add(1, Ordering::Relaxed);
        Seat { house: Arc::clone(self), execution: Arc::clone(execution) }
    }
}

/// A bot that is connected.
pub(super) struct Bot {
    house: Arc<House>,
}

impl Drop for Bot {
    fn drop(&mut self) {
        let mut all = self.house.executions();
        if self.house.bots.fetch_sub(1, Ordering::Relaxed) == 1 {
            // The next one says again what it knows of. Nobody would forget the others.
            all.retain(|_, execution| execution.shims.load(Ordering::Relaxed) > 0);
        }
    }
}

/// A shim that serves an execution.
pub(super) struct Served {
    house: Arc<House>,
    /// Which.
    pub(super) execution: Arc<Execution>,
    /// The shim is gone: whatever came by its listener ends.
    pub(super) over: CancellationToken,
}

impl Drop for Served {
    fn drop(&mut self) {
        let mut all = self.house.executions();
        let others = self.execution.shims.fetch_sub(1, Ordering::Relaxed) > 1;
        if self.house.retired.is_cancelled() {
            // It is served by the next process; what is open here ends by itself.
            return;
        }
        self.over.cancel();
        // A bot that is there knows best when it is over; the shim may only come again.
        let is_own =
            all.get(&self.execution.name).is_some_and(|own| Arc::ptr_eq(own, &self.execution));
        if is_own && !others && self.house.bots.load(Ordering::Relaxed) == 0 {
            all.remove(&self.execution.name);
        }
    }
}

/// Room for one connection.
pub(super) struct Seat {
    house: Arc<House>,
    execution: Arc<Execution>,
}

impl Seat {
    /// It is above what the execution may have: whoever sits there is only told so.
    pub(super) fn is_above(&self) -> bool {
        let most = self.house.using().told.caps.connections;
        self.execution.live.load(Ordering::Relaxed) > most
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.execution.live.fetch_sub(1, Ordering::Relaxed);
        self.house.live.fetch_sub(1, Ordering::Relaxed);
        self.house.freed.notify_waiters();
    }
}

/// Do these rules belong to whoever says this pass?
pub(super) fn are_of(rules: Option<&Arc<Rules>>, pass: &str) -> bool {
    rules.is_some_and(|rules| same_pass(rules.pass.expose_secret(), pass))
}
