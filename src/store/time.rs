//! The embedded store's time and the clock and ids of a real process. Owns reading the system's
//! clocks. Must not know what is timed.
//!
//! The store's time is the wall clock as it stood at opening plus `CLOCK_BOOTTIME` since, so a
//! step of the wall clock changes nothing until the next start, and a suspended machine does not
//! lose the time it slept. It is not kept on disk: a wall clock that was set back between two
//! starts makes the store's time go back by as much, and what is due comes later by as much.
//!
//! Where the store is shared its time is that of its server, asked again and again; in between this
//! process counts on, and its own wall clock is never looked at.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::BoxFuture;
use nix::time::{ClockId, clock_gettime};
use ulid::Ulid;

use tokio::sync::watch;

use super::alarm::Alarm;
use crate::core::limits::{CLOCK_LOOK_MS, CLOCK_SHIFT_MS};
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
    count: watch::Sender<Count>,
    /// What it told last, in milliseconds: it never tells less.
    told: Arc<AtomicU64>,
    /// `None` where the kernel gives no such timer.
    alarm: Option<Arc<Alarm>>,
}

impl SystemClock {
    /// Goes on from the store's `now()`, asked at start.
    pub fn from_store(now: Timestamp) -> Self {
        let alarm = Alarm::start().map(Arc::new).inspect_err(|error| {
            tracing::warn!(%error, "the kernel gives no timer; sleepers look at the clock instead");
        });
        Self {
            count: watch::Sender::new(Count::from(now)),
            told: Arc::default(),
            alarm: alarm.ok(),
        }
    }

    async fn until(self, at: Timestamp) {
        let mut counts = self.count.subscribe();
        while self.now() < at {
            let count = *counts.borrow_and_update();
            let slept = async {
                match &self.alarm {
                    Some(alarm) => alarm.until(count.boot_at(at)).await,
                    None => look_until(count, at).await,
                }
            };
            tokio::select! {
                () = slept => {}
                // The sender is held here.
                _ = counts.changed() => {}
            }
        }
    }
}

impl fmt::Debug for SystemClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SystemClock").field(&*self.count.borrow()).finish()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let now = self.count.borrow().now();
        Timestamp::from_ms(self.told.fetch_max(now.as_ms(), Ordering::Relaxed)).max(now)
    }

    fn wall(&self) -> Timestamp {
        wall()
    }

    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        Box::pin(self.clone().until(at))
    }

    fn agree(&self, now: Timestamp) {
        let new = Count::from(now);
        self.count.send_if_modified(|count| {
            let before = std::mem::replace(count, new).at(new.boot_ms);
            let shift_ms = now.since_ms(before).max(before.since_ms(now));
            // Nobody is woken for the little by which two clocks differ.
            shift_ms > CLOCK_SHIFT_MS
        });
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

    use futures_util::FutureExt;

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
        let count = *clock.count.borrow();
        look_until(count, at).await;
        assert!(clock.now() >= at);
    }

    #[tokio::test]
    async fn it_agrees_with_the_store_and_never_goes_back() {
        let clock = SystemClock::from_store(Timestamp::from_ms(7_000_000));
        let at = Timestamp::from_ms(10_600_000);
        // An hour ahead of what it thought: who sleeps until then need not wait for the hour.
        let mut slept = clock.sleep_until(at);
        assert!(slept.as_mut().now_or_never().is_none());
        clock.agree(at);
        tokio::time::timeout(Duration::from_mins(1), slept).await.unwrap();
        assert!(clock.now() >= at);
        let told = clock.now();
        clock.agree(Timestamp::from_ms(8_000_000));
        assert!(clock.now() >= told);
        assert!(clock.clone().now() >= told, "a clone is the same clock");
        clock.agree(told.plus_ms(1));
        assert!(clock.now() > told);
    }

    #[test]
    fn ids_are_fresh_and_have_26_letters_and_digits() {
        let ids: HashSet<String> = (0..1_000).map(|_| UlidIds.fresh()).collect();
        assert_eq!(ids.len(), 1_000);
        assert!(ids.iter().all(|id| id.len() == 26));
        assert!(ids.iter().all(|id| id.bytes().all(|b| b.is_ascii_alphanumeric())));
    }
}
