//! Round-trip times and the retransmission timeout (RFC 6298), with the two ways of Linux: the variation
//! is the largest of a round and never below 200 ms, and a falling round-trip time hardly raises it.

use std::time::Duration;

/// The least variation, which makes it the least timeout beyond a round trip.
const MIN_VARIATION_US: i64 = 200_000;
/// Before the first measurement.
const INITIAL_TIMEOUT: Duration = Duration::from_secs(1);
/// The longest timeout.
pub(crate) const MAX_TIMEOUT: Duration = Duration::from_secs(120);

/// What is known of the round trip. Microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RttEstimator {
    /// Eight times the smoothed round-trip time; zero before the first measurement.
    srtt8: i64,
    /// Four times the smoothed deviation, now and at most in this round.
    deviation4: i64,
    deviation4_max: i64,
    variation: i64,
    /// The round ends when this byte is acknowledged.
    round_end: u64,
    min: Option<Duration>,
}

impl RttEstimator {
    pub(crate) const fn new() -> Self {
        Self {
            srtt8: 0,
            deviation4: 0,
            deviation4_max: MIN_VARIATION_US,
            variation: 0,
            round_end: 0,
            min: None,
        }
    }

    /// A measurement; bytes are acknowledged up to `una` and sent up to `nxt`.
    pub(crate) fn measured(&mut self, rtt: Duration, una: u64, nxt: u64) {
        let rtt = micros(rtt);
        if self.srtt8 == 0 {
            self.srtt8 = (rtt * 8).max(1);
            self.deviation4 = rtt * 2;
            self.variation = self.deviation4.max(MIN_VARIATION_US);
            self.deviation4_max = self.variation;
            self.round_end = nxt;
            return;
        }
        let error = rtt - self.srtt8 / 8;
        self.srtt8 = (self.srtt8 + error).max(1);
        let mut step = error.abs() - self.deviation4 / 4;
        if error < 0 && step > 0 {
            step /= 8;
        }
        self.deviation4 += step;
        self.deviation4_max = self.deviation4_max.max(self.deviation4);
        self.variation = self.variation.max(self.deviation4_max);
        if una > self.round_end {
            self.variation -= (self.variation - self.deviation4_max).max(0) / 4;
            self.round_end = nxt;
            self.deviation4_max = MIN_VARIATION_US;
        }
    }

    /// A time that may be the shortest so far.
    pub(crate) fn at_least(&mut self, rtt: Duration) {
        self.min = Some(self.min.map_or(rtt, |min| min.min(rtt)));
    }

    /// The smoothed round-trip time.
    pub(crate) fn smoothed(&self) -> Option<Duration> {
        (self.srtt8 > 0).then(|| duration(self.srtt8 / 8))
    }

    /// The shortest round-trip time.
    pub(crate) const fn min(&self) -> Option<Duration> {
        self.min
    }

    /// The retransmission timeout without back-off.
    pub(crate) fn timeout(&self) -> Duration {
        if self.srtt8 == 0 {
            return INITIAL_TIMEOUT;
        }
        duration(self.srtt8 / 8 + self.variation).min(MAX_TIMEOUT)
    }
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX / 16)
}

fn duration(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_steady_path_has_a_timeout_of_its_round_trip_and_two_hundred_milliseconds() {
        let mut rtt = RttEstimator::new();
        assert_eq!(rtt.timeout(), INITIAL_TIMEOUT);
        for round in 0..100 {
            rtt.measured(ms(50), round, round);
        }
        assert_eq!(rtt.smoothed(), Some(ms(50)));
        assert_eq!(rtt.timeout(), ms(250));
    }

    #[test]
    fn variation_rises_at_once_and_falls_by_a_quarter_a_round() {
        let mut rtt = RttEstimator::new();
        rtt.measured(ms(50), 0, 1);
        for _ in 0..20 {
            rtt.measured(ms(600), 1, 2);
        }
        let high = rtt.timeout();
        assert!(high > ms(1200), "{high:?}");
        let mut timeouts = Vec::new();
        for round in 2..40 {
            (0..20).for_each(|_| rtt.measured(ms(600), round, round));
            timeouts.push(rtt.timeout());
        }
        assert!(timeouts[1] > high / 2, "{timeouts:?}");
        assert!(*timeouts.last().unwrap() < ms(820), "{timeouts:?}");
    }

    #[test]
    fn a_faster_path_does_not_raise_the_timeout() {
        let mut rtt = RttEstimator::new();
        (0..50).for_each(|round| rtt.measured(ms(300), round, round));
        let before = rtt.timeout();
        rtt.measured(ms(100), 50, 50);
        assert!(rtt.timeout() < before);
    }
}
