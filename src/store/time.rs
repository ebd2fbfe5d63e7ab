//! The embedded store's time and the clock and ids of a real process. Owns reading the system's
//! clocks. Must not know what is timed.
//!
//! The store's time is the wall clock as it stood at opening plus `CLOCK_BOOTTIME` since, so a
//! step of the wall clock changes nothing until the next start, and a suspended machine does not
//! lose the time it slept. It is not kept on disk: a wall clock that was set back between two
//! starts makes the store's time go back by as much, and what is due comes later by as much.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::BoxFuture;
use nix::time::{ClockId, clock_gettime};
use ulid::Ulid;

use super::alarm::Alarm;
use crate::core::limits::CLOCK_LOOK_MS;
use crate::core::time::Timestamp;
use crate::ports::{Clock, Ids};

/// Milliseconds since the machine started, suspension included.
pub(super) fn boot_ms() -> u64 {
    // Linux has this clock since 2.6.39 and reading it cannot fail.
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(0, |spec| {
        let ms = Duration::from(spec).as_millis();
        u64::try_from(ms).unwrap_or(u64::MAX)
    })
}

#[expect(clippy::disallowed_methods, reason = "this file owns the wall clock, read once at start")]
fn wall() -> Timestamp {
    let ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis());
    Timestamp::from_ms(u64::try_from(ms).unwrap_or(u64::MAX))
}

/// A count of time from one reading of another clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Count {
    base: Timestamp,
    boot_ms: u64,
}

impl Count {
    /// From the wall clock as it stands now.
    pub(super) fn from_wall() -> Self {
        Self::from(wall())
    }

    fn from(base: Timestamp) -> Self {
        Self { base, boot_ms: boot_ms() }
    }

    pub(super) fn now(self) -> Timestamp {
        self.at(boot_ms())
    }

    fn at(self, boot_ms: u64) -> Timestamp {
        self.base.plus_ms(boot_ms.saturating_sub(self.boot_ms))
    }

    /// The machine's time at `at`.
    fn boot_at(self, at: Timestamp) -> u64 {
        self.boot_ms.saturating_add(at.since_ms(self.base))
    }
}

/// The clock of a real process: the store's time. Clones are the same clock.
#[derive(Clone)]
pub struct SystemClock {
    count: Count,
    /// `None` where the kernel gives no such timer.
    alarm: Option<Arc<Alarm>>,
}

impl SystemClock {
    /// Goes on from the store's `now()`, asked once at start.
    pub fn from_store(now: Timestamp) -> Self {
        let alarm = Alarm::start().map(Arc::new).inspect_err(|error| {
            tracing::warn!(%error, "the kernel gives no timer; sleepers look at the clock instead");
        });
        Self { count: Count::from(now), alarm: alarm.ok() }
    }
}

impl fmt::Debug for SystemClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SystemClock").field(&self.count).finish()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        self.count.now()
    }

    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        match &self.alarm {
            Some(alarm) => Box::pin(alarm.until(self.count.boot_at(at))),
            None => Box::pin(look_until(self.count, at)),
        }
    }
}

/// The runtime's timer stands still while the machine is suspended, so the clock is looked at.
async fn look_until(count: Count, at: Timestamp) {
    loop {
        let left_ms = at.since_ms(count.now());
        if left_ms == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(left_ms.min(CLOCK_LOOK_MS))).await;
    }
}

/// Ids of a real process: ULIDs, whose random part alone has 80 bits.
#[derive(Debug, Clone, Copy, Default)]
pub struct UlidIds;

impl Ids for UlidIds {
    fn fresh(&self) -> String {
        Ulid::generate().to_string()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn time_is_the_base_plus_what_passed_since_and_never_less() {
        let count = Count { base: Timestamp::from_ms(1_000), boot_ms: 50 };
        assert_eq!(count.at(50), Timestamp::from_ms(1_000));
        assert_eq!(count.at(80), Timestamp::from_ms(1_030));
        assert_eq!(count.at(20), Timestamp::from_ms(1_000));
    }

    #[tokio::test]
    async fn a_sleeper_never_wakes_early() {
        let clock = SystemClock::from_store(Timestamp::from_ms(7_000_000));
        let at = clock.now().plus_ms(3);
        clock.sleep_until(at).await;
        assert!(clock.now() >= at);
        clock.sleep_until(Timestamp::ZERO).await;
        let at = clock.now().plus_ms(3);
        look_until(clock.count, at).await;
        assert!(clock.now() >= at);
    }

    #[test]
    fn ids_are_fresh_and_have_26_letters_and_digits() {
        let ids: HashSet<String> = (0..1_000).map(|_| UlidIds.fresh()).collect();
        assert_eq!(ids.len(), 1_000);
        assert!(ids.iter().all(|id| id.len() == 26));
        assert!(ids.iter().all(|id| id.bytes().all(|b| b.is_ascii_alphanumeric())));
    }
}
