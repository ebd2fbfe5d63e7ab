//! Sleeping by a clock that goes on while the machine is suspended. Owns one timer of the kernel
//! and the thread that waits for it: however many sleep, nothing wakes before the first of them
//! is due. Must not know what time the store has.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use super::time::boot_ms;

/// When, in milliseconds since the machine started; and whose.
type Place = (u64, u64);

#[derive(Default)]
struct Sleepers {
    places: u64,
    due: BTreeMap<Place, Waker>,
    /// What the timer is set to.
    armed: Option<u64>,
    /// Times that the timer was set, and went off.
    armings: u64,
    rings: u64,
    closed: bool,
}

struct Shared {
    timer: TimerFd,
    sleepers: Mutex<Sleepers>,
}

impl Shared {
    fn sleepers(&self) -> MutexGuard<'_, Sleepers> {
        // Nothing panics while it is locked.
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the timer for the first sleeper, unless it goes off before anyway.
    fn arm(&self, sleepers: &mut Sleepers) {
        let Some(first) = sleepers.due.keys().next().map(|place| place.0) else { return };
        if sleepers.armed.is_some_and(|at| at <= first) {
            return;
        }
        sleepers.armed = Some(first);
        sleepers.armings += 1;
        // Zero would unset it.
        let at = Expiration::OneShot(Duration::from_millis(first.max(1)).into());
        if let Err(error) = self.timer.set(at, TimerSetTimeFlags::TFD_TIMER_ABSTIME) {
            tracing::error!(%error, "the kernel's timer cannot be set");
        }
    }

    /// Waits for the timer and wakes who is due, until the alarm is dropped.
    fn run(&self) {
        loop {
            match self.timer.wait() {
                Ok(()) | Err(Errno::EINTR) => {}
                Err(error) => {
                    tracing::error!(%error, "the kernel's timer cannot be read");
                    return;
                }
            }
            let mut sleepers = self.sleepers();
            if sleepers.closed {
                return;
            }
            sleepers.rings += 1;
            sleepers.armed = None;
            let later = sleepers.due.split_off(&(boot_ms() + 1, 0));
            let due = std::mem::replace(&mut sleepers.due, later);
            self.arm(&mut sleepers);
            drop(sleepers);
            due.into_values().for_each(Waker::wake);
        }
    }
}

/// Wakes sleepers. Its thread ends with it.
pub(super) struct Alarm(Arc<Shared>);

impl Alarm {
    /// Makes the timer and starts the thread.
    pub(super) fn start() -> io::Result<Self> {
        let timer = TimerFd::new(ClockId::CLOCK_BOOTTIME, TimerFlags::TFD_CLOEXEC)?;
        let shared = Arc::new(Shared { timer, sleepers: Mutex::default() });
        let of_thread = Arc::clone(&shared);
        thread::Builder::new().name("clock".into()).spawn(move || of_thread.run())?;
        Ok(Self(shared))
    }

    /// Returns once the machine has been up for `at` milliseconds.
    pub(super) fn until(self: &Arc<Self>, at: u64) -> Sleep {
        Sleep { alarm: Arc::clone(self), at, place: None }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.0.sleepers().closed = true;
        let now = Expiration::OneShot(Duration::from_nanos(1).into());
        // It is not waited for: this may be the thread itself, dropping the last task.
        let _stays_until_the_process_ends = self.0.timer.set(now, TimerSetTimeFlags::empty());
    }
}

/// One who sleeps.
pub(super) struct Sleep {
    alarm: Arc<Alarm>,
    at: u64,
    place: Option<Place>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if boot_ms() >= self.at {
            return Poll::Ready(());
        }
        let (shared, at) = (Arc::clone(&self.alarm.0), self.at);
        let mut sleepers = shared.sleepers();
        let place = *self.place.get_or_insert_with(|| {
            sleepers.places += 1;
            (at, sleepers.places)
        });
        sleepers.due.insert(place, context.waker().clone());
        shared.arm(&mut sleepers);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            let waker = self.alarm.0.sleepers().due.remove(&place);
            // Not under the lock: it may be the last of a task that sleeps elsewhere.
            drop(waker);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::{join_all, poll_immediate};

    use super::*;

    fn counts(alarm: &Alarm) -> (u64, u64, usize) {
        let sleepers = alarm.0.sleepers();
        (sleepers.armings, sleepers.rings, sleepers.due.len())
    }

    #[tokio::test]
    async fn a_thousand_sleepers_are_woken_by_one_ring_and_nothing_rings_before() {
        let alarm = Arc::new(Alarm::start().unwrap());
        let at = boot_ms() + 40;
        let sleepers: Vec<Sleep> = (0..1_000).map(|_| alarm.until(at)).collect();
        join_all(sleepers).await;
        assert!(boot_ms() >= at);
        assert_eq!(counts(&alarm), (1, 1, 0));
    }

    #[tokio::test]
    async fn the_timer_is_set_only_for_who_is_earlier_than_all_others() {
        let alarm = Arc::new(Alarm::start().unwrap());
        let now = boot_ms();
        let mut late = alarm.until(now + 3_600_000);
        assert!(poll_immediate(&mut late).await.is_none());
        for hours in 2..500 {
            let mut later = alarm.until(now + hours * 3_600_000);
            assert!(poll_immediate(&mut later).await.is_none());
        }
        assert_eq!(counts(&alarm), (1, 0, 1));
        alarm.until(now + 5).await;
        assert_eq!(counts(&alarm), (3, 1, 1));
    }

    #[tokio::test]
    async fn who_sleeps_no_more_is_forgotten() {
        let alarm = Arc::new(Alarm::start().unwrap());
        let mut sleep = alarm.until(boot_ms() + 3_600_000);
        assert!(poll_immediate(&mut sleep).await.is_none());
        drop(sleep);
        assert_eq!(counts(&alarm).2, 0);
        assert!(poll_immediate(alarm.until(0)).await.is_some());
        let shared = Arc::downgrade(&alarm.0);
        drop(alarm);
        // The thread lets go of it by itself.
        while shared.strong_count() > 0 {
            thread::yield_now();
        }
    }
}
