//! The nodes of one store: this one says that it lives, and sees who does not. Owns beating,
//! burying, and what a node does that was buried itself or whose store was away. Must not know what
//! a turn is. Where one boot holds the store alone, nobody asks whether it lives.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, HashSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::{Engine, LedgerError, home, recovery};
use crate::core::execution::Home;
use crate::core::id::BootId;
use crate::core::ledger::node::{Beat, Bury, Vigil};
use crate::core::ledger::row::{Beat as BeatRow, RowType};
use crate::core::ledger::session::HomeLost;
use crate::core::ledger::{Aggregate, Index, Key, Refusal};
use crate::core::limits::{
    AWAY_FIRST_MS, AWAY_MS_MAX, BACK_SPREAD_MS, CLOCK_ANSWER_MS_MAX, LEASE_MS, RENEW_MS, SWEEP_MS,
};
use crate::core::time::Timestamp;
use crate::ports::{Member, StoreError};

/// Begins to beat and to watch.
pub(super) fn start(engine: &Arc<Engine>) {
    if engine.settings.sole {
        return;
    }
    let mut node = Node {
        engine: Arc::clone(engine),
        vigil: Vigil::default(),
        counter: None,
        away: false,
        buried: BTreeMap::new(),
    };
    engine.tasks.spawn(async move {
        let mut at = node.engine.ports.clock.now();
        loop {
            // At a steady pace, however long a beat takes; what was slept through is not made up.
            at = at.plus_ms(RENEW_MS).max(node.engine.ports.clock.now());
            tokio::select! {
                () = node.engine.shutdown.cancelled() => return,
                () = node.engine.ports.clock.sleep_until(at) => {}
            }
            if node.beat().await
                && let Err(error) = node.look().await
            {
                tracing::warn!(error = %error, "the other nodes cannot be looked at");
            }
        }
    });
}

/// The store's time, unless the answer took so long that it is none any more.
pub(super) async fn agree(engine: &Engine) -> Result<(), StoreError> {
    let clock = &engine.ports.clock;
    let asked_at = clock.now();
    let now = engine.ports.store.now().await?;
    if clock.now().since_ms(asked_at) <= CLOCK_ANSWER_MS_MAX {
        clock.agree(now);
    }
    Ok(())
}

/// A number below `below` that differs from node to node and from one thing to another, so that
/// not all do the same at the same time.
pub(super) fn spread(engine: &Engine, what: &impl Hash, below: u64) -> u64 {
    let mut hash = DefaultHasher::new();
    engine.settings.boot.hash(&mut hash);
    what.hash(&mut hash);
    hash.finish() % below.max(1)
}

/// Waits before something is tried again that the store did not answer, longer after each try.
/// Where several nodes share the store, its next answer to a beat ends the wait, and those who
/// wait go on one after the other. `false` when the engine ends.
pub(super) async fn pause(engine: &Engine, tries: u32, what: &(impl Hash + Sync)) -> bool {
    let clock = &engine.ports.clock;
    let mut back = engine.back.subscribe();
    let most = AWAY_FIRST_MS.saturating_mul(1 << tries.min(10)).min(AWAY_MS_MAX);
    let wait_ms = most / 2 + spread(engine, what, most / 2);
    tokio::select! {
        () = engine.shutdown.cancelled() => return false,
        () = clock.sleep_until(clock.now().plus_ms(wait_ms)) => return true,
        _ = back.changed() => {}
    }
    let spread_ms = spread(engine, what, BACK_SPREAD_MS);
    tokio::select! {
        () = engine.shutdown.cancelled() => false,
        () = clock.sleep_until(clock.now().plus_ms(spread_ms)) => true,
    }
}

/// The boot that attends to an execution, if it is buried or unknown.
pub(super) async fn buried(engine: &Engine, boot: BootId) -> Result<Option<BootId>, StoreError> {
    if boot == engine.boot() {
        return Ok(None);
    }
    let row = beat_of(engine, &boot).await?;
    Ok(row.is_none_or(|beat| beat.buried_at.is_some()).then_some(boot))
}

async fn beat_of(engine: &Engine, boot: &BootId) -> Result<Option<BeatRow>, StoreError> {
    let aggregate = Aggregate::Node(boot.clone());
    let rows = engine.ports.store.load(&aggregate, &[Key::beat()]).await?.rows;
    Ok(rows.into_iter().flatten().next().as_ref().and_then(BeatRow::of).cloned())
}

/// A boot that was buried a moment ago.
struct Late {
    /// Until then something of it may still come into the record: it did not know that it is dead.
    until: Timestamp,
    /// What of it was looked after.
    done: HashSet<Member>,
}

/// This node, among the others.
struct Node {
    engine: Arc<Engine>,
    vigil: Vigil,
    /// What the store answered to the last beat.
    counter: Option<u64>,
    /// The last beat was not answered.
    away: bool,
    buried: BTreeMap<BootId, Late>,
}

impl Node {
    /// Answers whether the store knows that this node lives.
    async fn beat(&mut self) -> bool {
        let engine = Arc::clone(&self.engine);
        let spool = Some(engine.ports.launcher.spool());
        let beat = Beat { boot: engine.boot(), spool };
        let answer = match agree(&engine).await {
            Ok(()) => engine.ledger.run(&beat).await,
            Err(error) => Err(error.into()),
        };
        match answer {
            Ok(counter) => {
                self.vigil.answered(engine.ports.clock.now());
                let forgot = self.counter.replace(counter).is_some_and(|last| counter <= last);
                if forgot {
                    tracing::error!(
                        "the store has forgotten what it knew: it was emptied, or an \
                        older copy was put back. Nothing is made up for it; `dogwatch audit` \
                        lists what of this host it does not know"
                    );
                }
                if forgot || std::mem::take(&mut self.away) {
                    self.back().await;
                }
                true
            }
            Err(LedgerError::Refused(Refusal::Buried)) => self.reborn().await,
            Err(error) => {
                self.vigil.unanswered();
                if !std::mem::replace(&mut self.away, true) {
                    tracing::error!(error = %error, "this node's beat is not taken");
                }
                false
            }
        }
    }

    /// The store answers again: who waits for it goes on, and every record of the spool that it
    /// does not have is reported again.
    async fn back(&self) {
        tracing::info!("the store answers again");
        self.engine.back.send_modify(|count| *count += 1);
        match recovery::reconcile(&self.engine).await {
            Ok(restored) => restored.say("looked through the spool again"),
            Err(error) => {
                tracing::error!(error = %error, "the spool cannot be compared with the store");
            }
        }
    }

    /// Others have taken this node for dead. It takes a new name and lets go of every turn; what
    /// runs here runs on, under the new name.
    async fn reborn(&mut self) -> bool {
        let engine = Arc::clone(&self.engine);
        let Ok(boot) = BootId::new(engine.ports.ids.fresh()) else { return false };
        let spool = Some(engine.ports.launcher.spool());
        let Ok(counter) = engine.ledger.run(&Beat { boot: boot.clone(), spool }).await else {
            // The old name is refused again at the next beat.
            self.vigil.unanswered();
            return false;
        };
        tracing::error!(boot.old = %engine.boot(), boot.new = %boot,
            "this node did not beat for a lease, so another one has buried it: it goes on under a \
             new name, and lets go of the turns it ran. Was the process stopped, or the machine?");
        engine.rename(boot);
        self.vigil = Vigil::default();
        self.vigil.answered(engine.ports.clock.now());
        self.counter = Some(counter);
        self.away = false;
        self.back().await;
        true
    }

    /// One read of an index, whoever lives.
    async fn look(&mut self) -> Result<(), LedgerError> {
        let engine = Arc::clone(&self.engine);
        let own = engine.boot();
        let members = recovery::pages(&engine, &Index::Nodes).await?;
        let living: Vec<(BootId, Timestamp)> = members
            .into_iter()
            .filter_map(|member| match member.aggregate {
                Aggregate::Node(boot) => Some((boot, Timestamp::from_ms(member.score))),
                Aggregate::Session(_)
                | Aggregate::Installer
                | Aggregate::Installation(_)
                | Aggregate::Owner(_) => None,
            })
            .filter(|(boot, _)| *boot != own)
            .collect();
        let now = engine.ports.clock.now();
        let sight = self.vigil.look(now, &living);
        // Before those that others have buried now: these come to their homes first.
        self.settle_estates(now).await?;
        for boot in sight.gone {
            self.remember(boot, now);
        }
        for (boot, last) in sight.still {
            if let Some(beat) = beat_of(&engine, &boot).await?
                && beat.at == last
                && self.bury(&boot, beat.counter).await?
            {
                self.remember(boot, now);
                self.settle_estates(now).await?;
            }
        }
        Ok(())
    }

    async fn bury(&self, boot: &BootId, seen: u64) -> Result<bool, LedgerError> {
        match self.engine.ledger.run(&Bury { boot: boot.clone(), seen }).await {
            Ok(()) => {
                tracing::warn!(boot.id = %boot, "a node stood still for a lease and is buried");
                Ok(true)
            }
            Err(LedgerError::Refused(refusal)) => {
                tracing::debug!(boot.id = %boot, refusal = %refusal, "not buried");
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn remember(&mut self, boot: BootId, now: Timestamp) {
        let until = now.plus_ms(2 * LEASE_MS + SWEEP_MS);
        self.buried.entry(boot).or_insert(Late { until, done: HashSet::new() });
    }

    /// What lived in the process of a buried boot is lost; what lives in its spool is unattended.
    /// Begins at the homes, again at each sweep for a while: the dead may have been writing.
    async fn settle_estates(&mut self, now: Timestamp) -> Result<(), LedgerError> {
        for (boot, late) in &mut self.buried {
            let spool = beat_of(&self.engine, boot).await?.and_then(|beat| beat.spool);
            let homes = [Some(Home::Process(boot.clone())), spool.map(Home::Spool)];
            for home in homes.into_iter().flatten() {
                for member in recovery::pages(&self.engine, &Index::Home(home)).await? {
                    if !late.done.contains(&member) {
                        home_lost(&self.engine, &member, boot).await?;
                        late.done.insert(member);
                    }
                }
            }
        }
        self.buried.retain(|_, late| now < late.until);
        Ok(())
    }
}

/// Ends or leaves one execution of a buried boot, unless another attends to it by now.
pub(super) async fn home_lost(
    engine: &Engine,
    member: &Member,
    boot: &BootId,
) -> Result<(), LedgerError> {
    let (Some(session), Some(execution)) = (member.aggregate.session(), home::id_of(member)) else {
        return Ok(());
    };
    let lost = HomeLost { session: session.clone(), execution, boot: boot.clone() };
    match engine.ledger.run(&lost).await {
        Ok(ended) => {
            let became = if ended { "lost" } else { "unattended" };
            tracing::warn!(session.id = %session, execution.id = %lost.execution, became = became,
                "its node is buried");
            let _nobody_listens = engine.stirs.send(session.clone());
            Ok(())
        }
        Err(LedgerError::Refused(_)) => Ok(()),
        Err(error) => Err(error),
    }
}
