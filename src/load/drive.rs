//! Whole cycles of background work through the ledger, in many sessions at once. Owns the cycle.
//! Must not know the store.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use tokio::task::JoinSet;

use super::record::{Recorder, Script};
use super::report::Measured;
use super::{LoadError, Scratch, Settings};
use crate::core::arrival::{Incoming, What};
use crate::core::egress::Access;
use crate::core::execution::{Address, Home, Kind, Notify, Outcome, Status};
use crate::core::id::{BootId, ClaimId, DedupeKey, IdError, Nonce, Principal, SessionId, SpoolId};
use crate::core::ledger::row::Turn;
use crate::core::ledger::session::{
    Accept, Allowance, Append, Claim, Claimed, Commit, Complete, New, Register, Token,
};
use crate::core::limits::SETTLE_MS;
use crate::core::transcript::{Body, Finish, Usage};
use crate::engine::Ledger;
use crate::ports::{Clock, Ids};
use crate::store::UlidIds;

const SURFACE: &str = "load";

#[expect(clippy::disallowed_methods, reason = "what is measured is time that passes")]
pub(super) fn now() -> Instant {
    Instant::now()
}

/// What this process has used of processors; nothing where the system does not say.
pub(super) fn own_cpu() -> Duration {
    let Ok(used) = getrusage(UsageWho::RUSAGE_SELF) else { return Duration::ZERO };
    let us = used.user_time().num_microseconds() + used.system_time().num_microseconds();
    Duration::from_micros(us.unsigned_abs())
}

/// A name that no session had before.
pub(super) fn scratch_session() -> Result<SessionId, IdError> {
    SessionId::new(format!("{SURFACE}/{}", UlidIds.fresh()))
}

/// A ledger over a scratch store.
pub(super) struct Lab {
    driver: Driver,
    store: Arc<Recorder>,
    scratch: Scratch,
    settings: Settings,
}

/// A session's turn that has begun.
#[derive(Clone)]
struct Lane {
    session: SessionId,
    token: Token,
    turn: Turn,
}

/// What a cycle needs.
#[derive(Clone)]
struct Driver {
    ledger: Arc<Ledger>,
    clock: Arc<dyn Clock>,
    boot: BootId,
    home: Home,
}

impl Lab {
    /// A ledger of its own over the scratch store.
    pub(super) fn new(scratch: Scratch, settings: Settings) -> Result<Self, LoadError> {
        let store = Arc::new(Recorder::new(Arc::clone(&scratch.store)));
        let boot = BootId::new(UlidIds.fresh())?;
        let ledger = Ledger::new(
            Arc::<Recorder>::clone(&store),
            Arc::clone(&scratch.clock),
            Arc::new(UlidIds),
            settings.sole.then(|| boot.clone()),
        );
        let driver = Driver {
            ledger: Arc::new(ledger),
            clock: Arc::clone(&scratch.clock),
            boot,
            home: Home::Spool(SpoolId::new(SURFACE)?),
        };
        Ok(Self { driver, store, scratch, settings })
    }

    /// Opens all sessions, each with its first turn.
    async fn open(&self) -> Result<Vec<Lane>, LoadError> {
        let mut sessions = vec![];
        for _ in 0..self.settings.sessions {
            let session = scratch_session()?;
            self.driver.open(&session).await?;
            sessions.push(session);
        }
        self.driver.settle().await;
        let mut lanes = vec![];
        for session in sessions {
            lanes.push(self.driver.claim(session).await?);
        }
        Ok(lanes)
    }

    /// All that one session does, as a script.
    pub(super) async fn record(&self) -> Result<Arc<Script>, LoadError> {
        let session = scratch_session()?;
        self.store.record(true);
        self.driver.open(&session).await?;
        self.driver.settle().await;
        let mut lane = self.driver.claim(session).await?;
        let opening = self.store.take();
        for _ in 0..self.settings.executions {
            self.driver.cycle(&mut lane).await?;
        }
        self.store.record(false);
        Ok(Arc::new(Script { opening, cycles: self.store.take() }))
    }

    /// All sessions at once, each its executions one after the other.
    pub(super) async fn measure(&self) -> Result<Measured, LoadError> {
        let Self { driver, store, scratch, settings } = self;
        let lanes = self.open().await?;
        let count = |of: &std::sync::atomic::AtomicU64| of.load(Ordering::Relaxed);
        let before = (count(&store.loads), count(&store.applies), count(&store.conflicts));
        let cpu_before = scratch.cpu().await;
        let (begun, own_before) = (now(), own_cpu());
        let mut tasks = JoinSet::new();
        for mut lane in lanes {
            let (driver, executions) = (driver.clone(), settings.executions);
            tasks.spawn(async move {
                let mut latencies = vec![];
                for _ in 0..executions {
                    latencies.push(driver.cycle(&mut lane).await?);
                }
                Ok::<_, LoadError>(latencies)
            });
        }
        let mut latencies = vec![];
        while let Some(done) = tasks.join_next().await {
            let done = done.map_err(|_| LoadError::Disturbed("a session's task broke off"))?;
            latencies.extend(done?);
        }
        let (took, own) = (begun.elapsed(), own_cpu().saturating_sub(own_before));
        let cpu_us = cpu_before.zip(scratch.cpu().await).map(|(from, to)| to.saturating_sub(from));
        Ok(Measured {
            cycles: latencies.len(),
            took,
            latencies,
            loads: count(&store.loads) - before.0,
            applies: count(&store.applies) - before.1,
            conflicts: count(&store.conflicts) - before.2,
            cpu_us,
            own,
        })
    }
}

impl Scratch {
    async fn cpu(&self) -> Option<u64> {
        match &self.cpu_us {
            Some(ask) => ask().await,
            None => None,
        }
    }
}

impl Driver {
    /// A message of a person: the session's first turn is ready a moment later.
    async fn open(&self, session: &SessionId) -> Result<(), LoadError> {
        let incoming = Incoming {
            keys: vec![DedupeKey::new(UlidIds.fresh())?],
            what: What::Message { text: "keep it busy".into() },
            principal: Principal::new(SURFACE)?,
            address: Address { surface: SURFACE.into(), thread: session.to_string() },
            source_at: self.clock.now(),
            continues: false,
            shared: false,
        };
        let chain = Allowance { wakes: u32::MAX, tokens: u64::MAX, spawns: u32::MAX };
        let accept = Accept { session: session.clone(), incoming, chain };
        self.ledger.run(&accept).await?;
        Ok(())
    }

    /// A person's message waits a moment for the next one.
    async fn settle(&self) {
        let ready = self.clock.now().plus_ms(SETTLE_MS + 1);
        self.clock.sleep_until(ready).await;
    }

    async fn claim(&self, session: SessionId) -> Result<Lane, LoadError> {
        let claim = Claim {
            session: session.clone(),
            boot: self.boot.clone(),
            alone: false,
            claim: ClaimId::new(UlidIds.fresh())?,
            nonce: Nonce::new(SURFACE)?,
        };
        match self.ledger.run(&claim).await? {
            Claimed::Turn(token, turn) => Ok(Lane { session, token, turn: *turn }),
            Claimed::Buried(_) | Claimed::Riders => {
                Err(LoadError::Disturbed("a claim got no turn"))
            }
        }
    }

    /// A turn that starts work and ends, the end of that work, and the turn that it wakes. Answers
    /// how long it took from the completion to that turn.
    async fn cycle(&self, lane: &mut Lane) -> Result<Duration, LoadError> {
        let Lane { session, token, turn } = lane.clone();
        let at = turn.base + turn.len;
        let execution = self.ledger.run(&self.register(&token, at)).await?.id;
        let said = Body::Model {
            text: "It runs; I will tell you when it ends.".into(),
            calls: vec![],
            finish: Finish::Stop,
            usage: Usage::default(),
        };
        let append = Append {
            token: token.clone(),
            at,
            chain: turn.chain,
            new: vec![New { body: said, collect: None }],
            take: false,
            nonce: Nonce::new(SURFACE)?,
        };
        self.ledger.run(&append).await?;
        self.ledger.run(&Commit { token, posts: vec![] }).await?;
        let ended = now();
        let outcome = Outcome::bare(Status::Completed, "exit 0");
        let boot = self.boot.clone();
        let complete = Complete { session: session.clone(), execution, outcome, boot };
        self.ledger.run(&complete).await?;
        *lane = self.claim(session).await?;
        Ok(ended.elapsed())
    }

    fn register(&self, token: &Token, at: u64) -> Register {
        Register {
            token: token.clone(),
            call: (at, 0),
            request: "load".into(),
            prefix: "auto-notify-load".into(),
            kind: Kind::Script,
            name: "load".into(),
            notify: Notify::Agent,
            key: None,
            timeout_ms: 60_000,
            home: self.home.clone(),
            boot: self.boot.clone(),
            shown: false,
            access: Access::default(),
        }
    }
}
