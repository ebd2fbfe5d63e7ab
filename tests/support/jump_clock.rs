//! A clock that goes as fast as any other, and that a test can push ahead: hours pass at once.

use std::time::Duration;

use dogwatch::core::time::Timestamp;
use dogwatch::ports::Clock;
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio::time::Instant;

/// It begins at some day of this century, so that nothing is before its beginning.
const BEGIN_MS: u64 = 1_800_000_000_000;

/// A clone is the same clock.
#[derive(Debug, Clone)]
pub(crate) struct JumpClock {
    begun: Instant,
    /// So many times as fast as other clocks.
    rate: u64,
    ahead_ms: watch::Sender<u64>,
}

impl JumpClock {
    /// Goes from now on.
    pub(crate) fn start() -> Self {
        Self::fast(1)
    }

    /// Goes so many times as fast.
    pub(crate) fn fast(rate: u64) -> Self {
        Self { begun: Instant::now(), rate, ahead_ms: watch::Sender::new(0) }
    }

    /// So many milliseconds have passed, as after a machine was suspended.
    pub(crate) fn jump(&self, ms: u64) {
        self.ahead_ms.send_modify(|ahead| *ahead += ms);
    }
}

impl Clock for JumpClock {
    fn now(&self) -> Timestamp {
        let passed = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        Timestamp::from_ms(BEGIN_MS + passed * self.rate + *self.ahead_ms.borrow())
    }

    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        let clock = self.clone();
        Box::pin(async move {
            let mut jumps = clock.ahead_ms.subscribe();
            loop {
                let left_ms = at.since_ms(clock.now());
                if left_ms == 0 {
                    return;
                }
                tokio::select! {
                    () = tokio::time::sleep(Duration::from_millis(left_ms.div_ceil(clock.rate))) => {}
                    // The sender lives in the clock that is held here.
                    _ = jumps.changed() => {}
                }
            }
        })
    }
}
