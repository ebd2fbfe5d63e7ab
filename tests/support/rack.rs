//! A launcher without processes: what it runs ends when a test says so. Like a spool it outlives
//! the boots of its host.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use dogwatch::core::execution::{Exit, Outcome, Status};
use dogwatch::core::id::{ExecutionId, SessionId, SpoolId};
use dogwatch::core::output::Captured;
use dogwatch::ports::{
    ExitSink, Found, Glance, Launch, LaunchError, Launcher, SpoolEntry, SyntaxFault,
};
use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::watch;

pub(crate) type Name = (SessionId, ExecutionId);

/// What became of one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Job {
    Waits,
    Runs,
    Over(Outcome),
    Settled(Outcome),
}

/// A clone is the same.
#[derive(Clone)]
pub(crate) struct Rack(Arc<Shared>);

struct Shared {
    spool: SpoolId,
    jobs: watch::Sender<BTreeMap<Name, Job>>,
    /// Who hears of ends now, and where.
    sink: Mutex<Option<(Arc<dyn ExitSink>, Handle)>>,
}

/// Exit 0 with this output.
pub(crate) fn printed(text: &str) -> Outcome {
    Outcome {
        status: Status::Completed,
        exit: Some(Exit::Code(0)),
        reason: None,
        stdout: Captured { head: text.into(), ..Captured::default() },
        stderr: Captured::default(),
        elapsed_ms: 5,
        leftovers_killed: 0,
    }
}

impl Rack {
    pub(crate) fn new(spool: &str) -> Self {
        let spool = SpoolId::new(spool).unwrap();
        Self(Arc::new(Shared { spool, jobs: watch::Sender::default(), sink: Mutex::default() }))
    }

    /// The next boot of the host.
    pub(crate) fn tell(&self, sink: Arc<dyn ExitSink>, runtime: Handle) {
        *self.0.sink.lock().unwrap() = Some((sink, runtime));
    }

    /// Nobody of the host is there.
    pub(crate) fn deserted(&self) {
        *self.0.sink.lock().unwrap() = None;
    }

    pub(crate) fn jobs(&self) -> BTreeMap<Name, Job> {
        self.0.jobs.borrow().clone()
    }

    /// Those that run.
    pub(crate) fn running(&self) -> Vec<Name> {
        let runs = |(name, job): (Name, Job)| (job == Job::Runs).then_some(name);
        self.jobs().into_iter().filter_map(runs).collect()
    }

    /// Waits until `is` holds of all.
    pub(crate) async fn until(&self, is: impl Fn(&BTreeMap<Name, Job>) -> bool) {
        self.0.jobs.subscribe().wait_for(|jobs| is(jobs)).await.unwrap();
    }

    /// It ends so, unless it is over.
    pub(crate) fn end(&self, name: &Name, outcome: &Outcome) -> bool {
        let ended = self.0.jobs.send_if_modified(|jobs| match jobs.get_mut(name) {
            Some(job @ (Job::Waits | Job::Runs)) => {
                *job = Job::Over(outcome.clone());
                true
            }
            Some(Job::Over(_) | Job::Settled(_)) | None => false,
        });
        if ended && let Some((sink, runtime)) = &*self.0.sink.lock().unwrap() {
            let _inside = runtime.enter();
            sink.exited(name.0.clone(), name.1.clone(), outcome.clone());
        }
        ended
    }

    fn ended_by_us(&self, session: &SessionId, execution: &ExecutionId) {
        let name = (session.clone(), execution.clone());
        self.end(&name, &Outcome::bare(Status::Cancelled, "ended on demand"));
    }
}

impl Launcher for Rack {
    fn spool(&self) -> SpoolId {
        self.0.spool.clone()
    }

    fn check_syntax<'a>(
        &'a self,
        _: &'a str,
    ) -> BoxFuture<'a, Result<Option<SyntaxFault>, LaunchError>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn launch(&self, launch: Launch) -> BoxFuture<'_, Result<(), LaunchError>> {
        Box::pin(async move {
            self.0.jobs.send_modify(|jobs| {
                jobs.insert((launch.session, launch.execution), Job::Waits);
            });
            Ok(())
        })
    }

    fn go<'a>(
        &'a self,
        session: &'a SessionId,
        execution: &'a ExecutionId,
    ) -> BoxFuture<'a, Result<(), LaunchError>> {
        Box::pin(async move {
            self.0.jobs.send_modify(|jobs| {
                let job = jobs.get_mut(&(session.clone(), execution.clone()));
                if let Some(job) = job.filter(|job| **job == Job::Waits) {
                    *job = Job::Runs;
                }
            });
            Ok(())
        })
    }

    fn cancel<'a>(
        &'a self,
        session: &'a SessionId,
        execution: &'a ExecutionId,
    ) -> BoxFuture<'a, Result<(), LaunchError>> {
        Box::pin(async move {
            self.ended_by_us(session, execution);
            Ok(())
        })
    }

    fn kill<'a>(
        &'a self,
        session: &'a SessionId,
        execution: &'a ExecutionId,
    ) -> BoxFuture<'a, Result<(), LaunchError>> {
        self.cancel(session, execution)
    }

    fn adopt(&self) -> BoxFuture<'_, Result<Vec<SpoolEntry>, LaunchError>> {
        let found = |((session, execution), job): (Name, Job)| {
            let found = match job {
                Job::Waits | Job::Runs => Found::Held,
                Job::Over(outcome) => Found::Ended(outcome),
                Job::Settled(_) => return None,
            };
            Some(SpoolEntry { session, execution, networked: false, found })
        };
        let all = self.jobs().into_iter().filter_map(found).collect();
        Box::pin(std::future::ready(Ok(all)))
    }

    fn recall<'a>(
        &'a self,
        session: &'a SessionId,
        execution: &'a ExecutionId,
    ) -> BoxFuture<'a, Option<Outcome>> {
        let job = self.jobs().remove(&(session.clone(), execution.clone()));
        Box::pin(std::future::ready(match job {
            Some(Job::Settled(outcome)) => Some(outcome),
            Some(Job::Waits | Job::Runs | Job::Over(_)) | None => None,
        }))
    }

    fn glance<'a>(
        &'a self,
        session: &'a SessionId,
        execution: &'a ExecutionId,
    ) -> BoxFuture<'a, Option<Glance>> {
        let job = self.jobs().remove(&(session.clone(), execution.clone()));
        let there = matches!(job, Some(Job::Waits | Job::Runs | Job::Over(_)));
        Box::pin(std::future::ready(there.then(Glance::default)))
    }

    fn settled<'a>(
        &'a self,
        session: &'a SessionId,
        execution: &'a ExecutionId,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            self.0.jobs.send_modify(|jobs| {
                let job = jobs.get_mut(&(session.clone(), execution.clone()));
                if let Some(job) = job
                    && let Job::Over(outcome) = job
                {
                    *job = Job::Settled(outcome.clone());
                }
            });
        })
    }
}
