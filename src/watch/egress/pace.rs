//! Lets requests go when it is their turn. Owns the waiting; whose turn it is decides
//! [`Budgets`](crate::core::egress::Budgets). Must not know what a request is.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::time::ClockId;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::core::egress::{Account, Asker, Budgets, Refusal, Ticket, Turn};
use crate::core::time::Timestamp;

/// Time as people read it when the process began, and from there on without jumps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    began: Instant,
    wall: Timestamp,
}

impl Clock {
    pub(super) fn start() -> Self {
        Self { began: Instant::now(), wall: time_of_day() }
    }

    /// An instant to come of this clock, as people read it.
    pub(super) fn shown(self, at: Timestamp) -> Timestamp {
        time_of_day().plus_ms(at.since_ms(self.now()))
    }

    pub(super) fn now(self) -> Timestamp {
        let ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.wall.plus_ms(ms)
    }

    pub(super) async fn sleep_until(self, at: Timestamp) {
        let ms = at.since_ms(self.wall);
        tokio::time::sleep_until(self.began + Duration::from_millis(ms)).await;
    }
}

/// Time as people read it now: it may have been set since the process began, or this machine have
/// slept.
pub(super) fn time_of_day() -> Timestamp {
    let now = ClockId::CLOCK_REALTIME.now().map(Duration::from).unwrap_or_default();
    Timestamp::from_ms(u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

#[derive(Debug)]
struct State {
    budgets: Budgets,
    waiting: HashMap<Ticket, oneshot::Sender<Result<(), Refusal>>>,
}

/// All that wait for their turn.
#[derive(Debug)]
pub(super) struct Pace {
    clock: Clock,
    state: Mutex<State>,
    changed: Notify,
}

/// A place in the line, given up when whoever waits goes away.
struct Place<'a> {
    pace: &'a Pace,
    account: &'a Account,
    ticket: Ticket,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut state = self.pace.state();
        if state.waiting.remove(&self.ticket).is_some() {
            state.budgets.leave(self.account, self.ticket);
            self.pace.changed.notify_one();
        }
    }
}

impl Pace {
    pub(super) fn new(clock: Clock, seed: u64) -> Self {
        let state = State { budgets: Budgets::new(seed), waiting: HashMap::new() };
        Self { clock, state: Mutex::new(state), changed: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when it is this one's turn, or when it will not be in time.
    pub(super) async fn pass(&self, account: &Account, asker: Asker<'_>) -> Result<(), Refusal> {
        let (ticket, answer) = {
            let mut state = self.state();
            match state.budgets.ask(account, asker, self.clock.now()) {
                Turn::Go => return Ok(()),
                Turn::Refused(refusal) => return Err(refusal),
                Turn::Wait(ticket) => {
                    let (told, answer) = oneshot::channel();
                    state.waiting.insert(ticket, told);
                    (ticket, answer)
                }
            }
        };
        self.changed.notify_one();
        let _place = Place { pace: self, account, ticket };
        // Only where this process ends nobody answers.
        answer.await.unwrap_or(Ok(()))
    }

    /// The upstream asked to be left alone.
    pub(super) fn hold(&self, account: &Account, for_ms: u64) {
        self.state().budgets.hold(account, self.clock.now(), for_ms);
        self.changed.notify_one();
    }

    /// Calls those whose turn it is, for ever.
    pub(super) async fn run(&self) {
        loop {
            let next = {
                let mut state = self.state();
                for (ticket, turn) in state.budgets.turn(self.clock.now()) {
                    if let Some(told) = state.waiting.remove(&ticket) {
                        let _gone = told.send(turn);
                    }
                }
                state.budgets.next()
            };
            let time = async {
                match next {
                    Some(at) => self.clock.sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = time => {}
                () = self.changed.notified() => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_people_read_follows_their_clock_and_what_is_waited_for_does_not() {
        // As after a night in which this machine slept.
        let clock = Clock { began: Instant::now(), wall: Timestamp::from_ms(1_000) };
        let (before, at) = (time_of_day(), clock.now().plus_ms(60_000));
        let shown = clock.shown(at);
        assert!(at < Timestamp::from_ms(120_000));
        assert!(shown > before && shown <= time_of_day().plus_ms(60_000), "{shown:?}");
    }
}
