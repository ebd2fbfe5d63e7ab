//! A clock that is moved by hand and ids that count, for tests and the simulator. Owns virtual
//! time. Must not know the system's clocks.

use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::BoxFuture;
use tokio::sync::watch;

use crate::core::time::Timestamp;
use crate::ports::{Clock, Ids};

/// Time that stands still until it is moved. A clone is the same clock.
#[derive(Debug, Clone)]
pub struct ManualClock(watch::Sender<Timestamp>);

impl ManualClock {
    /// Stands at `now`.
    pub fn new(now: Timestamp) -> Self {
        Self(watch::Sender::new(now))
    }

    /// Moves on by `ms` and wakes whoever slept until then or before.
    pub fn advance(&self, ms: u64) {
        self.0.send_modify(|now| *now = now.plus_ms(ms));
    }

    /// Moves on to `at`; stays where it is when that is past.
    pub fn advance_to(&self, at: Timestamp) {
        self.0.send_modify(|now| *now = at.max(*now));
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        *self.0.borrow()
    }

    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        // The sender is kept, so a sleeper of a dropped clock sleeps on instead of waking early.
        let clock = self.0.clone();
        Box::pin(async move {
            let mut seen = clock.subscribe();
            let _reached = seen.wait_for(|now| *now >= at).await;
        })
    }
}

/// Ids that count from 1, the same in every run.
#[derive(Debug, Default)]
pub struct CountedIds(AtomicU64);

impl Ids for CountedIds {
    fn fresh(&self) -> String {
        format!("{:026}", self.0.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn advancing_wakes_those_whose_time_has_come_and_only_those() {
        let clock = ManualClock::new(Timestamp::from_ms(10));
        let mut soon = clock.sleep_until(Timestamp::from_ms(15));
        let mut late = clock.sleep_until(Timestamp::from_ms(16));
        assert!(soon.as_mut().now_or_never().is_none());
        clock.clone().advance(5);
        assert!(soon.now_or_never().is_some());
        assert!(late.as_mut().now_or_never().is_none());
        clock.advance_to(Timestamp::from_ms(12));
        assert_eq!(clock.now(), Timestamp::from_ms(15));
        clock.advance_to(Timestamp::from_ms(20));
        late.await;
    }

    #[test]
    fn counted_ids_are_the_same_in_every_run() {
        let ids = CountedIds::default();
        assert_eq!(ids.fresh(), "00000000000000000000000001");
        assert_eq!(ids.fresh(), "00000000000000000000000002");
    }
}
