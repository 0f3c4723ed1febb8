//! Times in which this machine or this process stood still: a laptop slept, a virtual machine was paused, the process
//! was stopped. Whatever is known of the links is old then, and nobody tells.
//!
//! Two signs, of which either suffices: the clock that goes on during sleep (`CLOCK_BOOTTIME`) has moved on against the one
//! that does not (`CLOCK_MONOTONIC`), or a timer went off long after it was due.

use ropewalk_proto::time::{Duration, Instant};

/// Sleep below this is no sleep: the two clocks are not read at the same moment.
const LEAST_SLEEP: Duration = Duration::from_millis(500);

/// A loop that is late by less is only busy.
const LEAST_DELAY: Duration = Duration::from_secs(2);

/// Looks for them.
#[derive(Clone, Copy, Debug)]
pub struct Gaps {
    asleep: Duration,
    /// When it was last asked.
    looked_at: Instant,
}

impl Gaps {
    /// `asleep`: how long the machine has slept so far.
    #[must_use]
    pub const fn new(now: Instant, asleep: Duration) -> Self {
        Self { asleep, looked_at: now }
    }

    /// Whether there may have been one since it was last asked. If so, ask before anything is received or sent, which puts off
    /// what was due.
    #[must_use]
    pub const fn are_possible(&self, now: Instant) -> bool {
        now.since(self.looked_at).as_nanos() >= LEAST_DELAY.as_nanos()
    }

    /// The time of which nothing is known, if there was one; `due` is when the loop was to be woken.
    pub fn notice(
        &mut self,
        now: Instant,
        asleep: Duration,
        due: Option<Instant>,
    ) -> Option<Duration> {
        let slept = asleep.saturating_sub(self.asleep);
        (self.asleep, self.looked_at) = (asleep, now);
        let late = due.map_or(Duration::ZERO, |due| now.since(due));
        let is_gap = slept >= LEAST_SLEEP || late >= LEAST_DELAY;
        is_gap.then(|| slept.max(late))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleep_and_long_delays_are_gaps_and_each_is_noticed_once() {
        let (ms, at) = (Duration::from_millis, Instant::from_millis);
        let mut gaps = Gaps::new(at(0), ms(7000));
        let table = [
            (at(1000), ms(7000), None, None),
            (at(1100), ms(7000), Some(at(1100)), None),
            // The two clocks were read a moment apart.
            (at(1200), ms(7001), Some(at(1190)), None),
            // A busy machine.
            (at(3000), ms(7001), Some(at(1500)), None),
            // The lid was closed for an hour, with nothing due and with something due.
            (at(3_603_000), ms(3_607_001), None, Some(ms(3_600_000))),
            (at(3_603_010), ms(3_607_001), None, None),
            (at(7_203_010), ms(7_207_001), Some(at(3_610_000)), Some(ms(3_600_000))),
            // Stopped, or a paused virtual machine whose clocks went on.
            (at(7_213_010), ms(7_207_001), Some(at(7_204_010)), Some(ms(9000))),
        ];
        for (now, asleep, due, expected) in table {
            assert_eq!(gaps.notice(now, asleep, due), expected, "{now:?}");
        }
    }

    #[test]
    fn a_loop_that_looked_a_moment_ago_need_not_look_again() {
        let (ms, at) = (Duration::from_millis, Instant::from_millis);
        let mut gaps = Gaps::new(at(1000), ms(0));
        assert!(!gaps.are_possible(at(2999)) && gaps.are_possible(at(3000)));
        // Something was to be done all the time: the loop stood still.
        assert_eq!(gaps.notice(at(5000), ms(0), Some(at(1025))), Some(ms(3975)));
        assert!(!gaps.are_possible(at(5001)));
        // There was nothing to do.
        assert!(gaps.are_possible(at(9000)));
        assert_eq!(gaps.notice(at(9000), ms(0), Some(at(16_000))), None);
    }
}
