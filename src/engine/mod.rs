//! The async driver of `core`: runs operations, turns and errands, and wakes when something is
//! due. Owns tasks. Must not know adapters; they come in as ports.

pub mod desk;
pub mod ledger;

mod effects;
pub mod home;
pub mod installations;
mod kept;
mod lanes;
mod log;
mod look_back;
mod nodes;
mod outbox;
mod owners;
mod recovery;
mod sweep;
mod turn_task;
mod watcher;
mod weight;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::core::budget::Limits;
use crate::core::egress::Policy;
use crate::core::execution::{Address, Home};
use crate::core::id::{BootId, InstallationId, SessionId};
use crate::core::ledger::session::Allowance;
use crate::core::limits::{INSTALLATIONS_KEPT_MAX, STIRS_KEPT_MAX};
use crate::core::redact::Redactor;
use crate::ports::{Channel, Clock, Ids, Launcher, Meter, Model, Store};
use crate::tools::Wiring;

pub use ledger::{Ledger, LedgerError};
pub use recovery::{RecoveryError, Restored};

/// One agent, as far as a turn needs it.
#[derive(Debug, Clone)]
pub struct Agent {
    /// Its name.
    pub name: String,
    /// What it is told besides the rules.
    pub instructions: String,
    /// What it may call.
    pub wiring: Wiring,
    /// What its scripts may ask for of the network, in the role that it has there.
    pub reach: Policy,
    /// What one turn of it may do.
    pub limits: Limits,
    /// What a chain of it may do.
    pub allowance: Allowance,
}

/// Which agent answers where. Asked anew for each claim by the address that a turn's first arrival
/// froze, so what is configured now counts, also for a turn that another process began and for the
/// end of work that another agent started.
#[derive(Clone)]
pub struct Agents(Arc<AgentOf>);

type AgentOf = dyn Fn(&Address) -> Arc<Agent> + Send + Sync;

impl Agents {
    /// As this says.
    pub fn by(of: impl Fn(&Address) -> Arc<Agent> + Send + Sync + 'static) -> Self {
        Self(Arc::new(of))
    }

    /// The one that answers there.
    pub fn at(&self, address: &Address) -> Arc<Agent> {
        (self.0)(address)
    }
}

impl From<Agent> for Agents {
    /// The same everywhere.
    fn from(agent: Agent) -> Self {
        let agent = Arc::new(agent);
        Self::by(move |_| Arc::clone(&agent))
    }
}

impl fmt::Debug for Agents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agents").finish_non_exhaustive()
    }
}

/// How the engine is set up.
#[derive(Debug, Clone)]
pub struct Settings {
    /// This process. One that is buried goes on under another name.
    pub boot: BootId,
    /// This process holds the whole store alone.
    pub sole: bool,
    /// Who answers.
    pub agents: Agents,
    /// Between TERM and KILL.
    pub grace_ms: u64,
    /// Executions of one person that are not over, over all sessions.
    pub live_per_owner: u32,
    /// Turns that run at the same time.
    pub turns_max: usize,
}

/// What the engine works with.
pub struct Ports {
    /// Keeps rows.
    pub store: Arc<dyn Store>,
    /// Tells time.
    pub clock: Arc<dyn Clock>,
    /// Makes ids.
    pub ids: Arc<dyn Ids>,
    /// Answers.
    pub model: Arc<dyn Model>,
    /// Posts, by surface.
    pub channels: HashMap<String, Arc<dyn Channel>>,
    /// Runs scripts.
    pub launcher: Arc<dyn Launcher>,
    /// Takes secrets out of what goes to people and to the model.
    pub redactor: Arc<Redactor>,
}

/// The engine. Cheap to share; all its tasks end when it is shut down.
pub struct Engine {
    settings: Settings,
    ledger: Arc<Ledger>,
    ports: Ports,
    meter: Arc<dyn Meter>,
    home: Home,
    /// The name of this process now.
    boot: Mutex<BootId>,
    tasks: TaskTracker,
    /// Ends everything.
    shutdown: CancellationToken,
    /// Sessions whose turn runs here.
    turns: Mutex<HashMap<SessionId, lanes::Running>>,
    /// A session's task has ended; look again.
    ready: Notify,
    /// Somebody reads who did not before; look at what waits for readers.
    attended: Notify,
    /// Items that are being delivered here.
    delivering: Mutex<HashSet<String>>,
    /// Items that other nodes deliver.
    elsewhere: Mutex<HashMap<String, outbox::Elsewhere>>,
    /// An execution of this session was let run or ended.
    stirs: tokio::sync::broadcast::Sender<SessionId>,
    /// Installations whose tokens are to be changed.
    due_installations: tokio::sync::broadcast::Sender<InstallationId>,
    /// How often the store came back after it had been away.
    back: tokio::sync::watch::Sender<u64>,
}

impl Engine {
    /// Over these ports; nothing runs yet, see `start`.
    pub fn new(settings: Settings, ports: Ports) -> Arc<Self> {
        Self::metered(settings, ports, Arc::new(()))
    }

    /// The same, counted by `meter`.
    pub fn metered(settings: Settings, ports: Ports, meter: Arc<dyn Meter>) -> Arc<Self> {
        let sole = settings.sole.then(|| settings.boot.clone());
        let ledger = Ledger::new(
            Arc::clone(&ports.store),
            Arc::clone(&ports.clock),
            Arc::clone(&ports.ids),
            sole,
        )
        .metered(Arc::clone(&meter));
        let home = Home::Spool(ports.launcher.spool());
        let boot = Mutex::new(settings.boot.clone());
        Arc::new(Self {
            settings,
            ledger: Arc::new(ledger),
            ports,
            meter,
            home,
            boot,
            tasks: TaskTracker::new(),
            shutdown: CancellationToken::new(),
            turns: Mutex::new(HashMap::new()),
            ready: Notify::new(),
            attended: Notify::new(),
            delivering: Mutex::new(HashSet::new()),
            elsewhere: Mutex::new(HashMap::new()),
            stirs: tokio::sync::broadcast::channel(STIRS_KEPT_MAX).0,
            due_installations: tokio::sync::broadcast::channel(INSTALLATIONS_KEPT_MAX).0,
            back: tokio::sync::watch::Sender::new(0),
        })
    }

    /// Restores what an earlier boot left, then begins to work.
    pub async fn start(self: &Arc<Self>) -> Result<Restored, RecoveryError> {
        let restored = recovery::restore(self).await?;
        restored.say("started");
        lanes::start(self);
        outbox::start(self);
        home::start(self);
        sweep::start(self);
        owners::start(self);
        nodes::start(self);
        Ok(restored)
    }

    /// Hands open turns over and ends all tasks. Scripts run on.
    pub async fn shut_down(&self) {
        self.shutdown.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// The ledger, for reading and for commands.
    pub const fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    /// Sessions whose turn runs here, or waits for a place.
    pub fn turns_in_progress(&self) -> usize {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Where its executions live.
    pub fn home(&self) -> &Home {
        &self.home
    }

    /// The name under which this process beats now.
    pub fn boot(&self) -> BootId {
        self.boot.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// This process goes on as `boot`, without the turns it ran.
    fn rename(&self, boot: BootId) {
        *self.boot.lock().unwrap_or_else(PoisonError::into_inner) = boot;
        let turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.values().for_each(|running| running.stop.cancel());
    }

    fn elsewhere(&self) -> MutexGuard<'_, HashMap<String, outbox::Elsewhere>> {
        self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn channel(&self, surface: &str) -> Option<&Arc<dyn Channel>> {
        self.ports.channels.get(surface)
    }

    /// Cancels the turn of a session that runs here, if one does.
    fn interrupt(&self, session: &SessionId) {
        let turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = turns.get(session) {
            running.stop.cancel();
        }
    }
}
