//! The only reader of the clock: maps the kernel's clocks to the core's [`Instant`].
//!
//! Time is counted by `CLOCK_BOOTTIME`: it never steps, and unlike `CLOCK_MONOTONIC` it goes on while
//! a laptop sleeps, so that keys, NAT bindings and sessions are as old after the lid opens as the
//! peer and the routers take them to be.

use ropewalk_proto::time::Instant;
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::time::Duration;

/// An arrival further back than this is not believed: the wall clock was set between the datagram's
/// arrival and our reading of it. Longer than any datagram waits in a socket buffer of a live loop.
const OLDEST_ARRIVAL: Duration = Duration::from_secs(1);

/// The process's clock. Make one at the start and copy it: instants of two clocks do not compare.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Boot time, in nanoseconds, that is [`Instant::ZERO`].
    epoch: u64,
}

impl Clock {
    /// A clock that reads [`Instant::ZERO`] now.
    #[must_use]
    pub fn start() -> Self {
        Self { epoch: nanos(clock_gettime(ClockId::Boottime)) }
    }

    /// Time since [`Clock::start`]; goes on during suspend and is not moved by setting the date.
    #[must_use]
    pub fn now(&self) -> Instant {
        Instant::from_nanos(nanos(clock_gettime(ClockId::Boottime)).saturating_sub(self.epoch))
    }

    /// Time since 1970 by the wall clock, which may step in either direction.
    #[must_use]
    pub fn unix_time(&self) -> Duration {
        Duration::from_nanos(nanos(clock_gettime(ClockId::Realtime)))
    }

    /// How long the machine has slept since it was started; grows while it sleeps, and only then.
    #[must_use]
    pub fn asleep(&self) -> Duration {
        // In this order: what passes between the two readings makes it smaller, never larger.
        let boot = nanos(clock_gettime(ClockId::Boottime));
        let awake = nanos(clock_gettime(ClockId::Monotonic));
        Duration::from_nanos(boot.saturating_sub(awake))
    }

    /// Both clocks, read together.
    #[must_use]
    pub fn sample(&self) -> Sample {
        Sample { now: self.now(), unix: self.unix_time() }
    }

    /// `instant` on the scale of the kernel's boot clock, for timers.
    pub(crate) fn boot_time(&self, instant: Instant) -> Timespec {
        let nanos = self.epoch.saturating_add(instant.as_nanos());
        Timespec {
            tv_sec: (nanos / 1_000_000_000).cast_signed(),
            tv_nsec: (nanos % 1_000_000_000).cast_signed(),
        }
    }
}

/// One moment on both clocks; converts the kernel's wall clock timestamps.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// The moment.
    pub now: Instant,
    /// The same, since 1970.
    pub unix: Duration,
}

impl Sample {
    /// When a datagram arrived that the kernel stamped with `stamp` (since 1970). Never later than
    /// `now`; a stamp from before or after a step of the wall clock is not believed and gives `now`.
    #[must_use]
    pub fn arrival(&self, stamp: Option<Duration>) -> Instant {
        match stamp.and_then(|stamp| self.unix.checked_sub(stamp)) {
            Some(age) if age <= OLDEST_ARRIVAL => self.now - age,
            Some(_) | None => self.now,
        }
    }
}

/// A kernel time in nanoseconds; these clocks are never negative, and 64 bits last for 584 years.
fn nanos(time: Timespec) -> u64 {
    u64::try_from(time.tv_sec)
        .unwrap_or(0)
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_starts_near_zero_and_goes_forward() {
        let clock = Clock::start();
        let first = clock.now();
        assert!(first < Instant::from_millis(60_000), "{first:?}");
        assert!(clock.now() >= first);
    }

    #[test]
    fn a_kernel_stamp_becomes_an_arrival_that_is_not_in_the_future() {
        let sample =
            Sample { now: Instant::from_millis(5_000), unix: Duration::from_secs(1_000_000) };
        let table = [
            ("no stamp", None, 5_000),
            ("3 ms ago", Some(Duration::from_millis(999_999_997)), 4_997),
            ("this moment", Some(sample.unix), 5_000),
            ("the wall clock was set back", Some(Duration::from_millis(1_000_000_001)), 5_000),
            ("the wall clock was set forward", Some(Duration::from_secs(999_000)), 5_000),
        ];
        for (case, stamp, millis) in table {
            assert_eq!(sample.arrival(stamp), Instant::from_millis(millis), "{case}");
        }
    }

    #[test]
    fn an_instant_and_the_boot_clock_agree() {
        let clock = Clock { epoch: 1_999_999_999 };
        let time = clock.boot_time(Instant::from_nanos(2));
        assert_eq!((time.tv_sec, time.tv_nsec), (2, 1));
    }
}
