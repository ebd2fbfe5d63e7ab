//! Runs scripts, each under a shim of its own, and keeps what becomes of them in a spool that
//! outlives the bot. Implements `ports::Launcher`. Must not know the ledger, sessions or channels.
//!
//! Each runs in a sandbox ([`sandbox`]), of the strongest tier that this machine has; without any
//! none is run. Where somebody wrote that there be none, a script runs as the user of dogwatch,
//! with an environment of its own but the same files, processes and network.

mod adopt;
mod attend;
mod ctl;
mod exit_record;
mod file;
mod look;
mod ring;
mod sandbox;
mod settings;
pub mod shim;
mod spawn;
mod spool;
mod stray;
mod syntax;

use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rustix::process::Signal;
use tokio::process::Child;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::adopt::Redactor;
use self::adopt::{Suspect, judge, printed};
use self::attend::{Attendant, Handle, Sign};
use self::ctl::Order;
pub use self::look::{Seen, look_at};
use self::sandbox::Fence;
pub use self::sandbox::{Limits, Tier, Version, probe};
pub use self::settings::{Sandbox, Settings, Timing};
pub use self::spawn::{ENV_ALLOWED, find_python};
pub use self::spool::SpoolError;
use self::spool::{Common, Entry, EntryError, Spool};
use self::syntax::Syntax;
use crate::core::execution::Outcome;
use crate::core::id::{ExecutionId, SessionId, SpoolId};
use crate::core::limits::SHIM_ORDERS_MAX;
use crate::core::time::Timestamp;
use crate::failpoint;
use crate::ports::{
    Clock, ExitSink, Found, Glance, Ids, Launch, LaunchError, Launcher, SpoolEntry, SyntaxFault,
};

/// Shims that are looked at before others get their turn.
const LOOKS_AT_ONCE: usize = 1_024;

type Name = (SessionId, ExecutionId);

/// What the launcher and its tasks hold together.
struct Shared {
    spool: Spool,
    program: PathBuf,
    common: Common,
    /// What was found of the sandbox, where one is required.
    sandbox: Option<probe::Finding>,
    redactor: Arc<Redactor>,
    timing: Timing,
    clock: Arc<dyn Clock>,
    sink: Arc<dyn ExitSink>,
    stop: CancellationToken,
    /// What is attended to.
    live: Mutex<HashMap<Name, Handle>>,
    /// Something is attended to again.
    some: Notify,
}

impl Shared {
    fn live(&self) -> MutexGuard<'_, HashMap<Name, Handle>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For ever if there is no time to wait for.
    async fn sleep_until(&self, at: Option<Timestamp>) {
        match at {
            Some(at) => self.clock.sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    /// A stopped shim cannot say that it is: so it is asked, and woken when it does not answer.
    /// Those that run are not disturbed.
    async fn look_for_stopped(self: Arc<Self>) {
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

/// The launcher. Dropping it, or [`Watch::release`], lets the shims go on alone; the spool stays
/// locked until the tasks of the tracker have ended.
pub struct Watch {
    shared: Arc<Shared>,
    syntax: Syntax,
    tasks: TaskTracker,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.release();
    }
}

impl Watch {
    /// Opens the spool and takes its lock. Blocking: for the start of a process. Tasks run in
    /// `tasks`, in the current runtime.
    pub fn open(
        settings: Settings,
        ids: &dyn Ids,
        clock: Arc<dyn Clock>,
        sink: Arc<dyn ExitSink>,
        tasks: TaskTracker,
    ) -> Result<Self, SpoolError> {
        let spool = Spool::open(&settings.spool, ids)?;
        if let Err(error) = spawn::allow_many_files() {
            tracing::warn!(%error, "the limit of open files stays as it is");
        }
        let (fence, sandbox) = hold(&settings);
        let stop = CancellationToken::new();
        let python = settings.python.clone();
        let syntax = Syntax::start(python, Arc::clone(&clock), stop.clone(), &tasks);
        let shared = Shared {
            spool,
            program: settings.program,
            common: Common {
                python: settings.python,
                env: spawn::allowed(&settings.env),
                start_ms: settings.timing.start_ms,
                fence,
            },
            sandbox,
            redactor: settings.redactor,
            timing: settings.timing,
            clock,
            sink,
            stop,
            live: Mutex::default(),
            some: Notify::new(),
        };
        let shared = Arc::new(shared);
        let looked = Arc::clone(&shared).look_for_stopped();
        let until_the_end = shared.stop.clone().run_until_cancelled_owned(looked);
        tasks.spawn(async move {
            until_the_end.await;
        });
        Ok(Self { shared, syntax, tasks })
    }

    /// What was found of the sandbox, `None` where none is required.
    pub fn sandbox(&self) -> Option<&probe::Finding> {
        self.shared.sandbox.as_ref()
    }

    /// Is the spool still this launcher's alone?
    pub fn holds_its_spool(&self) -> bool {
        self.shared.spool.is_held()
    }

    /// Ends the tasks of this launcher. What runs goes on; nothing more is reported.
    pub fn release(&self) {
        self.shared.stop.cancel();
    }

    fn attend(&self, name: Name, entry: Entry, shim: Option<Child>) {
        let (orders, received) = mpsc::channel(SHIM_ORDERS_MAX);
        let sign = Arc::new(Sign::default());
        let handle = Handle { orders, sign: Arc::clone(&sign) };
        self.shared.live().insert(name.clone(), handle);
        self.shared.some.notify_one();
        let shared = Arc::clone(&self.shared);
        let (session, execution) = name.clone();
        let attendant = Attendant {
            shared: Arc::clone(&shared),
            session,
            execution,
            entry,
            orders: received,
            sign,
            unheard: Vec::new(),
            unconnected_since: None,
            suspect: Suspect::Unknown,
        };
        self.tasks.spawn(async move {
            let ended = attendant.run(shim).await;
            shared.live().remove(&name);
            if let Some(outcome) = ended {
                failpoint!("exit.heard");
                shared.sink.exited(name.0, name.1, outcome);
            }
        });
    }

    /// `false` when nothing is attended to under this name.
    async fn order(&self, session: &SessionId, execution: &ExecutionId, order: Order) -> bool {
        let name = (session.clone(), execution.clone());
        let orders = self.shared.live().get(&name).map(|handle| handle.orders.clone());
        match orders {
            Some(orders) => orders.send(order).await.is_ok(),
            None => false,
        }
    }

    /// Runs blocking work on the spool.
    async fn on_spool<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Shared) -> T + Send + 'static,
    ) -> Result<T, LaunchError> {
        let shared = Arc::clone(&self.shared);
        let done = tokio::task::spawn_blocking(move || work(&shared)).await;
        done.map_err(|error| LaunchError { what: format!("work on the spool broke off: {error}") })
    }
}

impl From<EntryError> for LaunchError {
    fn from(error: EntryError) -> Self {
        Self { what: error.to_string() }
    }
}

/// Chooses how scripts are held: by trying it.
fn hold(settings: &Settings) -> (Option<Fence>, Option<probe::Finding>) {
    match settings.sandbox {
        Sandbox::Off => (None, None),
        Sandbox::Required(limits) => {
            let found = probe::ask(&settings.program, &settings.python, limits, &settings.spool);
            let fence = |tier| Fence { tier, limits, group: found.group };
            (found.tier.map(fence), Some(found))
        }
    }
}

/// Where a sandbox is required and there is none, nothing is run.
fn allowed(shared: &Shared) -> Result<(), LaunchError> {
    match &shared.sandbox {
        Some(found) if found.tier.is_none() => Err(LaunchError { what: found.refusal() }),
        Some(_) | None => Ok(()),
    }
}

/// Makes the entry and starts its shim.
fn start(shared: &Shared, launch: &Launch) -> Result<(Entry, Child), LaunchError> {
    allowed(shared)?;
    let (entry, lock) = shared.spool.create(launch, shared.common.clone())?;
    failpoint!("launch.made");
    let started = start_in(shared, &entry, lock);
    if started.is_err() {
        let _left_for_the_next_start = entry.remove();
    }
    started.map(|shim| (entry, shim))
}

fn start_in(shared: &Shared, entry: &Entry, lock: File) -> Result<Child, LaunchError> {
    let log = entry.log()?;
    spawn::shim(&shared.program, &entry.dir, lock, log).map_err(|error| LaunchError {
        what: format!("{} does not start: {error}", shared.program.display()),
    })
}

/// What in the spool is not settled, and forgets what is for long.
fn scan(shared: &Shared) -> Result<Vec<(SpoolEntry, Entry)>, EntryError> {
    let now = shared.clock.now();
    if let Err(error) = shared.spool.forget(now) {
        tracing::warn!(%error, "old spool entries stay");
    }
    let mut all = Vec::new();
    for entry in shared.spool.entries()? {
        match look(shared, &entry) {
            Ok(found) => all.push((found, entry)),
            Err(error) => {
                tracing::warn!(dir = %entry.dir.display(), %error, "a spool entry is unusable");
                if is_dead(&entry) {
                    let _kept_for_a_while = shared.spool.settle(&entry, now);
                }
            }
        }
    }
    Ok(all)
}

/// May an unusable entry be set aside? A shim without a lock is ended first.
fn is_dead(entry: &Entry) -> bool {
    match entry.lock() {
        Ok(lock) => lock.is_some(),
        Err(error) if error.is_missing() => {
            stray::signal_shim(&entry.dir, Signal::KILL);
            true
        }
        Err(_) => false,
    }
}

fn look(shared: &Shared, entry: &Entry) -> Result<SpoolEntry, EntryError> {
    let spec = entry.spec()?;
    if shared.spool.entry(&spec.session, &spec.execution).dir != entry.dir {
        // A script that wrote it could end another's work.
        return Err(entry.foreign());
    }
    let found = judge(entry, shared.clock.now(), Suspect::Unknown, &*shared.redactor)?;
    Ok(SpoolEntry { session: spec.session, execution: spec.execution, found })
}

impl Launcher for Watch {
    fn spool(&self) -> SpoolId {
        self.shared.spool.id().clone()
    }

    fn check_syntax<'a>(
        &'a self,
        python: &'a str,
    ) -> BoxFuture<'a, Result<Option<SyntaxFault>, LaunchError>> {
        async move {
            // Before anything is registered, so that the model hears it as the tool's answer.
            allowed(&self.shared)?;
            self.syntax.check(python).await
        }
        .boxed()
    }

    fn launch(&self, launch: Launch) -> BoxFuture<'_, Result<(), LaunchError>> {
        let name = (launch.session.clone(), launch.execution.clone());
        async move {
            failpoint!("launch.before");
            let (entry, shim) = self.on_spool(move |shared| start(shared, &launch)).await??;
            failpoint!("launch.after");
            self.attend(name, entry, Some(shim));
            Ok(())
        }
        .boxed()
    }

    fn go<'a>(
        &'a self,
        session: &'a SessionId,
        execution: &'a ExecutionId,
    ) -> BoxFuture<'a, Result<(), LaunchError>> {
        async move {
            // One that has ended before was reported, which says more than an error here.
            let spool = &self.shared.spool;
            if self.order(session, execution, Order::Go).await
                || spool.entry(session, execution).dir.exists()
                || spool.settled(session, execution).is_some()
            {
                return Ok(());
            }
            let what = format!("{} is not in the spool", execution.within(session));
            Err(LaunchError { what })
        }
        .boxed()
    }

    fn cancel<'a>(
        &'a self,
        session: &'a SessionId,
        execution: &'a ExecutionId,
    ) -> BoxFuture<'a, Result<(), LaunchError>> {
        async move {
            self.order(session, execution, Order::Cancel).await;
            Ok(())
        }
        .boxed()
    }

    fn kill<'a>(
        &'a self,
        session: &'a SessionId,
        execution: &'a ExecutionId,
    ) -> BoxFuture<'a, Result<(), LaunchError>> {
        async move {
            if !self.order(session, execution, Order::Kill).await {
                // Nobody attends to it: its entry is gone, or was never there.
                let dir = self.shared.spool.entry(session, execution).dir;
                self.on_spool(move |_| stray::signal_shim(&dir, Signal::KILL)).await?;
            }
            Ok(())
        }
        .boxed()
    }

    fn adopt(&self) -> BoxFuture<'_, Result<Vec<SpoolEntry>, LaunchError>> {
        async move {
            failpoint!("adopt.before");
            let mut found = Vec::new();
            for (entry, place) in self.on_spool(scan).await?? {
                let name = (entry.session.clone(), entry.execution.clone());
                let known = self.shared.live().contains_key(&name);
                if entry.found == Found::Held && !known {
                    self.attend(name, place, None);
                }
                found.push(entry);
            }
            failpoint!("adopt.after");
            Ok(found)
        }
        .boxed()
    }

    fn recall<'a>(
        &'a self,
        session: &'a SessionId,
        execution: &'a ExecutionId,
    ) -> BoxFuture<'a, Option<Outcome>> {
        let (session, execution) = (session.clone(), execution.clone());
        let read = move |shared: &Shared| {
            let entry = shared.spool.settled(&session, &execution)?;
            let now = shared.clock.now();
            match judge(&entry, now, Suspect::Unknown, &*shared.redactor) {
                Ok(Found::Ended(outcome)) => Some(outcome),
                Ok(Found::Held) => None,
                Err(error) => {
                    tracing::warn!(%session, %execution, %error, "a settled record is unusable");
                    None
                }
            }
        };
        async move { self.on_spool(read).await.ok().flatten() }.boxed()
    }

    fn glance<'a>(
        &'a self,
        session: &'a SessionId,
        execution: &'a ExecutionId,
    ) -> BoxFuture<'a, Option<Glance>> {
        let name = (session.clone(), execution.clone());
        let entry = self.shared.spool.entry(session, execution);
        async move {
            let read = move |shared: &Shared| printed(&entry, &*shared.redactor);
            let (stdout, stderr) = self.on_spool(read).await.ok()??;
            let handle = self.shared.live().get(&name).cloned();
            let stalled = handle.is_some_and(|handle| {
                // Who looks learns at the next look whether it answers.
                let _asked = handle.orders.try_send(Order::Probe);
                handle.sign.stalled.load(Ordering::Relaxed)
            });
            Some(Glance { stdout, stderr, stalled })
        }
        .boxed()
    }

    fn settled<'a>(
        &'a self,
        session: &'a SessionId,
        execution: &'a ExecutionId,
    ) -> BoxFuture<'a, ()> {
        let entry = self.shared.spool.entry(session, execution);
        async move {
            failpoint!("settle.before");
            let settle = move |shared: &Shared| shared.spool.settle(&entry, shared.clock.now());
            if let Ok(Err(error)) = self.on_spool(settle).await {
                tracing::warn!(%session, %execution, %error, "cannot set a spool entry aside");
            }
            failpoint!("settle.after");
        }
        .boxed()
    }
}
