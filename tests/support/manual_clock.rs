//! A clock that only a test moves. Nothing in it depends on how fast the machine is.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::{Arc, Mutex};

use dogwatch::core::time::Timestamp;
use dogwatch::ports::Clock;
use futures_util::future::BoxFuture;
use tokio::sync::watch;

/// Stands still until [`ManualClock::advance`].
#[derive(Debug, Clone)]
pub(crate) struct ManualClock {
    now: watch::Sender<u64>,
    /// Every sleep that was begun: when it ends.
    sleeps: watch::Sender<Vec<u64>>,
    /// Held while time moves, so that no sleep begins half before and half after.
    moving: Arc<Mutex<()>>,
}

impl ManualClock {
    /// At 1,000,000 ms.
    pub(crate) fn new() -> Self {
        Self {
            now: watch::Sender::new(1_000_000),
            sleeps: watch::Sender::new(Vec::new()),
            moving: Arc::default(),
        }
    }

    /// Lets `ms` milliseconds pass.
    pub(crate) fn advance(&self, ms: u64) {
        let _moving = self.moving.lock().unwrap();
        self.now.send_modify(|now| *now += ms);
    }

    /// Waits until at least `count` sleeps were begun, counted from the start of the test. Gives
    /// back how long each lasts from now, in the order in which they were begun.
    pub(crate) async fn sleeps(&self, count: usize) -> Vec<u64> {
        let mut sleeps = self.sleeps.subscribe();
        let begun = sleeps.wait_for(|sleeps| sleeps.len() >= count).await.unwrap();
        let now = *self.now.borrow();
        begun.iter().map(|until| until.saturating_sub(now)).collect()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_ms(*self.now.borrow())
    }

    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        let _moving = self.moving.lock().unwrap();
        let mut now = self.now.subscribe();
        self.sleeps.send_modify(|sleeps| sleeps.push(at.as_ms()));
        Box::pin(async move {
            // The sender lives in the clock; without it time stands still for ever.
            if now.wait_for(|now| *now >= at.as_ms()).await.is_err() {
                std::future::pending::<()>().await;
            }
        })
    }
}
