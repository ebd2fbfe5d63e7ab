//! Runs scripts, each under a shim of its own, and keeps what becomes of them in a spool that
//! outlives the bot. Implements `ports::Launcher`. Must not know the ledger, sessions or channels.
//!
//! Each runs in a sandbox ([`sandbox`]), of the strongest tier that this machine has; without any
//! none is run. Where somebody wrote that there be none, a script runs as the user of dogwatch,
//! with an environment of its own but the same files, processes and network.

mod adopt;
mod attend;
mod beside;
mod ctl;
pub mod egress;
mod exit_record;
mod file;
mod look;
mod network;
mod passing;
mod ring;
mod sandbox;
mod scan;
mod settings;
pub mod shim;
mod spawn;
mod spec;
mod spool;
mod stray;
mod syntax;
mod zygote;

use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use rustix::process::Signal;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::adopt::Redactor;
use self::adopt::{Suspect, judge, printed};
use self::attend::{Attendant, Handle, Sign};
pub use self::beside::{beside, shim_of};
use self::ctl::Order;
pub use self::look::{Seen, look_at};
use self::network::Network;
pub use self::network::NetworkSettings;
pub use self::sandbox::{Limits, Tier, Version, probe};
use self::scan::scan;
pub use self::settings::{Sandbox, Settings, Timing};
use self::spawn::Shim;
pub use self::spawn::{ENV_ALLOWED, find_python};
use self::spec::Common;
pub use self::spool::SpoolError;
use self::spool::{Entry, Spool};
use self::syntax::Syntax;
use self::zygote::{Asked, Zygote};
use crate::core::egress::Access;
use crate::core::execution::Outcome;
use crate::core::id::{ExecutionId, SessionId, SpoolId};
use crate::core::limits::SHIM_ORDERS_MAX;
use crate::core::time::Timestamp;
use crate::failpoint;
use crate::ports::{
    Clock, ExitSink, Found, Glance, Ids, Launch, LaunchError, Launcher, SpoolEntry, SyntaxFault,
};

type Name = (SessionId, ExecutionId);

/// What the launcher and its tasks hold together.
struct Shared {
    spool: Spool,
    /// What is run as the shim.
    program: PathBuf,
    /// What shims are copies of.
    zygote: Zygote,
    common: Common,
    /// What scripts may reach, as the egress process is told it.
    network: Network,
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

    /// What nobody attends to has no end any more that would forget what it may reach. When the bot
    /// ends nobody does, and scripts go on.
    fn forget_if_over(&self, name: &Name) {
        if !self.live().contains_key(name) && !self.stop.is_cancelled() {
            self.network.forget(&name.0, &name.1);
        }
    }

    /// For ever if there is no time to wait for.
    async fn sleep_until(&self, at: Option<Timestamp>) {
        match at {
            Some(at) => self.clock.sleep_until(at).await,
            None => std::future::pending().await,
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
        let (fence, sandbox) = settings.hold();
        let stop = CancellationToken::new();
        let python = settings.python.clone();
        let syntax = Syntax::start(python, Arc::clone(&clock), stop.clone(), &tasks);
        let network = Network::new(settings.network, spool.egress(), &settings.program);
        let answer_ms = settings.timing.answer_ms;
        let shared = Shared {
            zygote: Zygote::new(settings.shim.clone(), spool.executions(), answer_ms),
            spool,
            program: settings.shim,
            common: Common {
                python: settings.python,
                env: spawn::allowed(&settings.env),
                start_ms: settings.timing.start_ms,
                fence,
                group: None,
                network: None,
            },
            network,
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

    fn attend(&self, name: Name, entry: Entry, shim: Option<Shim>) {
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
                shared.network.forget(&name.0, &name.1);
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

    /// The way out of what is to be launched, if it wants one. Whoever answers there knows already
    /// what may be reached.
    async fn network_for(&self, launch: &Launch) -> Result<Option<spec::Network>, LaunchError> {
        if launch.access.is_none() {
            return Ok(None);
        }
        self.has_network()?;
        let network = self.shared.network.way_out(&launch.session, &launch.execution)?;
        self.shared.network.allow(&network, &launch.access).await?;
        Ok(Some(network))
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

/// Where a sandbox is required and there is none, nothing is run.
fn allowed(shared: &Shared) -> Result<(), LaunchError> {
    match &shared.sandbox {
        Some(found) if found.tier.is_none() => Err(LaunchError { what: found.refusal() }),
        Some(_) | None => Ok(()),
    }
}

/// Makes the entry and starts its shim.
fn start(
    shared: &Shared,
    launch: &Launch,
    network: Option<spec::Network>,
) -> Result<(Entry, Shim), LaunchError> {
    allowed(shared)?;
    let groups = shared.sandbox.as_ref().and_then(|found| found.groups.as_ref());
    // Others of this host may have executions of the same name.
    let name = shared.spool.unique(&launch.session, &launch.execution);
    let group = groups.map(|of_bot| of_bot.named(&name));
    let common = Common { group, network, ..shared.common.clone() };
    let (entry, lock) = shared.spool.create(launch, common)?;
    failpoint!("launch.made");
    let started = start_in(shared, &entry, lock);
    if started.is_err() {
        let _left_for_the_next_start = entry.remove();
    }
    started.map(|shim| (entry, shim))
}

fn start_in(shared: &Shared, entry: &Entry, lock: File) -> Result<Shim, LaunchError> {
    let log = entry.log()?;
    let lock = match shared.zygote.start(entry, lock, &log)? {
        Asked::Started(shim) => return Ok(shim),
        Asked::Not(lock) => lock,
    };
    spawn::shim(&shared.program, &entry.dir, lock, log).map_err(|error| LaunchError {
        what: format!("{} does not start: {error}", shared.program.display()),
    })
}

impl Launcher for Watch {
    fn spool(&self) -> SpoolId {
        self.shared.spool.id().clone()
    }

    fn has_network(&self) -> Result<(), LaunchError> {
        allowed(&self.shared)?;
        let refusal = match &self.shared.sandbox {
            Some(found) => found.network_refusal(),
            None => Some(network::UNHELD.to_owned()),
        };
        refusal.map_or(Ok(()), |what| Err(LaunchError { what }))
    }

    fn allow<'a>(
        &'a self,
        session: &'a SessionId,
        execution: &'a ExecutionId,
        access: &'a Access,
    ) -> BoxFuture<'a, Result<(), LaunchError>> {
        let entry = self.shared.spool.entry(session, execution);
        let name = (session.clone(), execution.clone());
        async move {
            // What has ended meanwhile, or never had a network, needs nothing.
            match self.on_spool(move |_| entry.spec()).await?.map(|spec| spec.network) {
                Ok(Some(network)) => {
                    let told = self.shared.network.allow(&network, access).await;
                    self.shared.forget_if_over(&name);
                    told
                }
                Ok(None) => Ok(()),
                Err(error) if error.is_missing() => Ok(()),
                Err(error) => Err(error.into()),
            }
        }
        .boxed()
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
            let begun = async {
                let network = self.network_for(&launch).await?;
                self.on_spool(move |shared| start(shared, &launch, network)).await?
            };
            let begun = begun.await.inspect_err(|_failed| self.shared.forget_if_over(&name));
            let (entry, shim) = begun?;
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
