//! Processes of executions, as their spools see them: launched, let run, ended, reported.

use dogwatch::core::execution::{Outcome, Status};
use dogwatch::core::id::{ExecutionId, SessionId};
use dogwatch::core::ledger::Refusal;
use dogwatch::core::ledger::session::{Complete, Go, Started};

use super::nodes::{Process, Work};
use super::world::{Ran, World};

impl World {
    pub(crate) fn launch(&mut self, node: usize, session: &SessionId, id: &ExecutionId) {
        self.nodes[node].launches.push_back((session.clone(), id.clone()));
    }

    pub(super) fn launch_one(&mut self) {
        let Some(node) = self.up() else { return };
        let Some(work) = self.nodes[node].launches.pop_front() else { return };
        self.nodes[node].processes.insert(work.clone(), Process::Waiting);
        // It waits for "go" longer than its bot lives, now and then.
        if self.draining() || self.rng.chance(85) {
            self.start(node, &work);
        }
    }

    fn start(&mut self, node: usize, work: &Work) {
        let boot = self.boot(node);
        let started =
            Started { session: work.0.clone(), execution: work.1.clone(), boot: boot.clone() };
        let mut answer = self.run(node, &started);
        while answer == Err(Ran::Lost) && self.nodes[node].up && self.boot(node) == boot {
            answer = self.run(node, &started);
        }
        if !self.nodes[node].up || self.boot(node) != boot {
            return;
        }
        self.follow(node, work, answer);
    }

    pub(super) fn follow(&mut self, node: usize, work: &Work, answer: Result<Go, Ran>) {
        let until = self.now().plus_ms(self.rng.below(25_000) as u64);
        let waits = self.nodes[node].processes.get(work) == Some(&Process::Waiting);
        match answer {
            Ok(Go::Run) if waits => {
                let running = Process::Running { until };
                self.nodes[node].processes.insert(work.clone(), running);
            }
            Ok(Go::Run) | Err(Ran::Lost) => {}
            Ok(Go::Cancel) => self.end_process(&work.0, &work.1),
            Err(Ran::Refused(refusal)) => {
                if matches!(refusal, Refusal::Ended(_)) {
                    self.count("a start refused");
                }
                self.nodes[node].processes.remove(work);
            }
        }
    }

    /// The home ends a process that was cancelled, and reports it.
    pub(crate) fn end_process(&mut self, session: &SessionId, id: &ExecutionId) {
        let work = (session.clone(), id.clone());
        let home = (0..self.nodes.len()).find(|i| self.nodes[*i].processes.contains_key(&work));
        let Some(node) = home else { return };
        if !matches!(self.nodes[node].processes.get(&work), Some(Process::Done(_))) {
            let outcome = Outcome::bare(Status::Cancelled, "cancelled");
            self.nodes[node].processes.insert(work.clone(), Process::Done(outcome));
        }
        if self.nodes[node].up {
            self.report(node, &work);
        }
    }

    /// A process ends by itself; its spool keeps the record whether or not its bot is there.
    pub(super) fn exit_one(&mut self) {
        let node = self.rng.below(self.nodes.len());
        let now = self.now();
        let running: Vec<Work> = self.nodes[node]
            .processes
            .iter()
            .filter(|(_, p)| matches!(p, Process::Running { .. }))
            .map(|(work, _)| work.clone())
            .collect();
        let Some(work) = self.rng.pick(&running) else { return };
        let Some(Process::Running { until }) = self.nodes[node].processes.get(&work).cloned()
        else {
            return;
        };
        let status = match self.rng.below(10) {
            _ if now < until => return,
            0..7 => Status::Completed,
            7..9 => Status::Failed,
            _ => Status::TimedOut,
        };
        let outcome = Outcome::bare(status, format!("exit {}", self.fresh()));
        self.nodes[node].processes.insert(work.clone(), Process::Done(outcome));
        if self.nodes[node].up {
            self.nodes[node].reports.push_back(work);
        }
    }

    pub(super) fn report_one(&mut self) {
        let Some(node) = self.up() else { return };
        let Some(work) = self.nodes[node].reports.pop_front() else { return };
        if !self.report(node, &work) || self.rng.chance(10) {
            // Not answered, or said twice.
            self.nodes[node].reports.push_back(work);
        }
    }

    /// Answers whether the ledger answered.
    fn report(&mut self, node: usize, work: &Work) -> bool {
        let Some(Process::Done(outcome)) = self.nodes[node].processes.get(work).cloned() else {
            return true;
        };
        let complete = Complete {
            session: work.0.clone(),
            execution: work.1.clone(),
            outcome,
            boot: self.boot(node),
        };
        let answer = self.run(node, &complete);
        self.tell(&format!("report {} by {node} -> {answer:?}", work.1));
        answer != Err(Ran::Lost)
    }
}
