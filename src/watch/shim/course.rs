//! When a script is signalled, and what its end is called. Pure: time comes in as milliseconds of
//! the monotonic clock. Must not know processes.

use crate::core::execution::{Exit, Status};
use crate::watch::sandbox::Passed;

/// Why a script is ended before its own end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// Its time is over.
    Deadline,
    /// Somebody asked for it.
    Cancel,
    /// It is to end at once.
    Kill,
    /// The host ends its supervisor.
    Shutdown,
    /// Nobody could find its record any more.
    Removed,
    /// It passed a limit.
    Passed(Passed),
}

/// A signal to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// TERM, and CONT so that a stopped process hears it.
    Terminate,
    /// KILL.
    Kill,
}

/// The course of one script.
#[derive(Debug, Clone)]
pub(super) struct Course {
    grace_ms: u64,
    deadline: u64,
    why: Option<Why>,
    kill_at: Option<u64>,
    killed: bool,
}

impl Course {
    /// It was let run at `now`.
    pub(super) fn new(now: u64, timeout_ms: u64, grace_ms: u64) -> Self {
        let deadline = now.saturating_add(timeout_ms);
        Self { grace_ms, deadline, why: None, kill_at: None, killed: false }
    }

    /// It is to end. The first reason stays; a kill ends the grace of an earlier one.
    pub(super) fn end(&mut self, now: u64, why: Why) {
        // Who passed a limit would go on with it through a grace.
        if matches!(why, Why::Kill | Why::Passed(_)) {
            self.kill_at = Some(now);
        }
        self.why.get_or_insert(why);
    }

    /// The next signal that is due. Ask until there is none.
    pub(super) fn step(&mut self, now: u64) -> Option<Step> {
        if now >= self.deadline {
            self.end(now, Why::Deadline);
        }
        self.why?;
        let Some(kill_at) = self.kill_at else {
            self.kill_at = Some(now.saturating_add(self.grace_ms));
            return Some(Step::Terminate);
        };
        if self.killed || now < kill_at {
            return None;
        }
        self.killed = true;
        Some(Step::Kill)
    }

    /// When `step` may have something new.
    pub(super) fn next(&self) -> Option<u64> {
        match (self.killed, self.why) {
            (true, _) => None,
            (false, None) => Some(self.deadline),
            (false, Some(_)) => self.kill_at.or(Some(0)),
        }
    }

    /// The limit for which it was ended.
    pub(super) fn passed(&self) -> Option<Passed> {
        match self.why {
            Some(Why::Passed(passed)) => Some(passed),
            Some(Why::Deadline | Why::Cancel | Why::Kill | Why::Shutdown | Why::Removed) | None => {
                None
            }
        }
    }

    /// What its end is called.
    pub(super) fn verdict(&self, exit: Option<Exit>) -> (Status, Option<String>) {
        match self.why {
            None if exit == Some(Exit::Code(0)) => (Status::Completed, None),
            // Which limit, the caller says.
            None | Some(Why::Passed(_)) => (Status::Failed, None),
            Some(Why::Deadline) => (Status::TimedOut, None),
            Some(Why::Cancel) => (Status::Cancelled, None),
            Some(Why::Kill) => (Status::Cancelled, Some("killed".to_owned())),
            Some(Why::Shutdown) => {
                (Status::Cancelled, Some("the host ended its supervisor".to_owned()))
            }
            Some(Why::Removed) => {
                (Status::Lost, Some("its lock was removed from the spool".to_owned()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_terminates_then_kills_after_the_grace() {
        let mut course = Course::new(100, 1_000, 50);
        assert_eq!((course.step(1_099), course.next()), (None, Some(1_100)));
        assert_eq!(course.step(1_103), Some(Step::Terminate));
        assert_eq!((course.step(1_152), course.next()), (None, Some(1_153)));
        assert_eq!(course.step(1_153), Some(Step::Kill));
        assert_eq!((course.step(9_999), course.next()), (None, None));
        assert_eq!(course.verdict(Some(Exit::Code(0))).0, Status::TimedOut);
    }

    #[test]
    fn the_first_reason_stays() {
        let mut course = Course::new(0, 1_000, 5_000);
        course.end(10, Why::Cancel);
        assert_eq!(course.next(), Some(0));
        assert_eq!(course.step(10), Some(Step::Terminate));
        assert_eq!(course.step(2_000), None);
        assert_eq!(course.verdict(None).0, Status::Cancelled);
        course.end(2_001, Why::Kill);
        assert_eq!(course.step(2_001), Some(Step::Kill));
        assert_eq!(course.verdict(None), (Status::Cancelled, None));
    }

    #[test]
    fn a_kill_has_no_grace() {
        let mut course = Course::new(0, 1_000, 5_000);
        course.end(3, Why::Kill);
        assert_eq!(course.step(3), Some(Step::Kill));
        assert_eq!(course.step(3), None);
    }

    #[test]
    fn a_passed_limit_has_no_grace_and_is_a_failure() {
        let mut course = Course::new(0, 1_000, 5_000);
        course.end(3, Why::Passed(Passed::Memory));
        assert_eq!((course.step(3), course.passed()), (Some(Step::Kill), Some(Passed::Memory)));
        assert_eq!(course.verdict(None).0, Status::Failed);
    }

    #[test]
    fn the_own_end_is_named_by_its_exit() {
        let course = Course::new(0, 1_000, 5_000);
        assert_eq!(course.verdict(Some(Exit::Code(0))), (Status::Completed, None));
        assert_eq!(course.verdict(Some(Exit::Code(3))), (Status::Failed, None));
        assert_eq!(course.verdict(Some(Exit::Signal(15))), (Status::Failed, None));
    }
}
