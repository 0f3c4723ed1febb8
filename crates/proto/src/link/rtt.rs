//! Round-trip time and the timeout that follows from it (RFC 6298).
//!
//! Samples are exact: the receiver says how long it kept the datagram before it reported, and every
//! datagram has a number of its own, so that none is ambiguous (Karn's rule is not needed).
//!
//! Nothing is sent again after the timeout; it only takes everything in flight for lost and closes the
//! window to one datagram. So RFC 6298's floor of one second is not due (RFC 4341 §5 says so too).

use crate::time::Duration;

/// How long the receiver may keep what it has to report (PROTOCOL §7.1). The timeout waits for
/// the report, the samples leave it out: so it is added.
pub const MAX_REPORT_DELAY: Duration = Duration::from_millis(25);

/// Before the first sample (RFC 6298 §2.1).
const INITIAL_RTO: Duration = Duration::from_secs(1);

/// The smallest timeout. It must exceed the report delay of 25 ms and one wake-up of a busy machine; and
/// radio links stand still for 50 to 150 ms at a handover without losing anything, which must not
/// collapse the window. 200 ms is also TCP's floor on Linux; a link that really is dead costs nothing in
/// the meantime but one window of datagrams.
const MIN_RTO: Duration = Duration::from_millis(200);

/// The largest timeout (RFC 6298 §2.5 allows a bound from 60 s). A link that is down is probed apart from
/// it, and the first confirmation ends the back-off.
const MAX_RTO: Duration = Duration::from_secs(60);

/// Clock granularity G of RFC 6298: the driver's timer wheel has milliseconds.
const GRANULARITY: Duration = Duration::from_millis(1);

/// A round trip longer than the shortest by a quarter and this much waited in a queue: jitter is mostly less.
const QUEUED: Duration = Duration::from_millis(10);

/// Doublings after which [`MAX_RTO`] is certainly reached: 200 ms * 2^9 > 60 s.
const MAX_BACKOFF: u32 = 9;

/// What is known of a link's round-trip time.
#[derive(Clone, Debug, Default)]
pub struct Rtt {
    smoothed: Option<Smoothed>,
    newest: Option<Duration>,
    min: Option<Duration>,
    backoff: u32,
}

#[derive(Clone, Copy, Debug)]
struct Smoothed {
    srtt: Duration,
    var: Duration,
    /// What follows is asked for more often than samples come: how long an answer takes at most, and the timeout without
    /// back-off.
    patience: Duration,
    rto: Duration,
}

impl Smoothed {
    fn new(srtt: Duration, var: Duration) -> Self {
        // RFC 6298 §2.3, and the time that a report may wait.
        let patience = srtt + (var * 4).max(GRANULARITY) + MAX_REPORT_DELAY;
        Self { srtt, var, patience, rto: patience.clamp(MIN_RTO, MAX_RTO) }
    }
}

impl Rtt {
    /// A sample came in: the time from sending to the arrival of the report, without the report delay.
    pub fn on_sample(&mut self, rtt: Duration) {
        self.newest = Some(rtt);
        self.min = Some(self.min.map_or(rtt, |min| min.min(rtt)));
        self.smoothed = Some(match self.smoothed {
            // RFC 6298 §2.2
            None => Smoothed::new(rtt, rtt / 2),
            // RFC 6298 §2.3: alpha = 1/8, beta = 1/4, the variation first.
            Some(Smoothed { srtt, var, .. }) => {
                Smoothed::new((srtt * 7 + rtt) / 8, (var * 3 + srtt.abs_diff(rtt)) / 4)
            }
        });
    }

    /// How long an answer takes at most, in all likelihood: the timeout without its lower bound.
    #[must_use]
    pub fn patience(&self) -> Option<Duration> {
        self.smoothed.map(|smoothed| smoothed.patience)
    }

    /// Smoothed round-trip time; `None` before the first sample.
    #[must_use]
    pub fn srtt(&self) -> Option<Duration> {
        self.smoothed.map(|smoothed| smoothed.srtt)
    }

    /// Mean deviation of the round-trip time.
    #[must_use]
    pub fn rttvar(&self) -> Option<Duration> {
        self.smoothed.map(|smoothed| smoothed.var)
    }

    /// The newest sample.
    #[must_use]
    pub fn newest(&self) -> Option<Duration> {
        self.newest
    }

    /// The smallest sample so far.
    #[must_use]
    pub fn min(&self) -> Option<Duration> {
        self.min
    }

    /// Whether the newest sample waited in a queue.
    #[must_use]
    pub fn shows_queue(&self) -> bool {
        self.newest.zip(self.min).is_some_and(|(newest, min)| newest > min * 5 / 4 + QUEUED)
    }

    /// The timeout, backed off.
    #[must_use]
    pub fn rto(&self) -> Duration {
        (self.base_rto() * (1 << self.backoff)).min(MAX_RTO)
    }

    /// The timeout without back-off.
    #[must_use]
    pub fn base_rto(&self) -> Duration {
        self.smoothed.map_or(INITIAL_RTO, |smoothed| smoothed.rto)
    }

    /// A timeout passed: the next one waits twice as long (RFC 6298 §5.5).
    pub fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(MAX_BACKOFF);
    }

    /// Something was confirmed: the link is alive and the back-off over.
    pub fn end_backoff(&mut self) {
        self.backoff = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Worked out by hand from RFC 6298 §2.2 and §2.3.
    #[test]
    fn smoothing_follows_the_rfc() {
        let mut rtt = Rtt::default();
        // sample, srtt, rttvar in microseconds
        let table = [
            (100_000, 100_000, 50_000),
            (100_000, 100_000, 37_500),
            (180_000, 110_000, 48_125),
            (30_000, 100_000, 56_093),
        ];
        for (sample, srtt, var) in table {
            rtt.on_sample(Duration::from_micros(sample));
            assert_eq!(rtt.srtt().unwrap().as_micros(), srtt);
            assert_eq!(rtt.rttvar().unwrap().as_micros(), var);
        }
        assert_eq!(rtt.min(), Some(ms(30)));
        assert_eq!(rtt.rto().as_micros(), 100_000 + 4 * 56_093 + 25_000 + 3, "4 * 56,093.75");
    }

    #[test]
    fn the_timeout_has_a_floor_and_a_start() {
        let mut rtt = Rtt::default();
        assert_eq!(rtt.rto(), INITIAL_RTO);
        for _ in 0..100 {
            rtt.on_sample(ms(10));
        }
        assert_eq!(rtt.rto(), MIN_RTO);
    }

    #[test]
    fn the_timeout_always_leaves_time_for_the_report() {
        let mut rtt = Rtt::default();
        for _ in 0..200 {
            rtt.on_sample(ms(600));
        }
        assert!(rtt.rto() >= ms(600) + MAX_REPORT_DELAY);
    }

    #[test]
    fn back_off_doubles_up_to_a_minute_and_ends_at_once() {
        let mut rtt = Rtt::default();
        for _ in 0..100 {
            rtt.on_sample(ms(10));
        }
        let mut seen = vec![];
        for _ in 0..12 {
            rtt.back_off();
            seen.push(rtt.rto().as_millis());
        }
        assert_eq!(seen[..4], [400, 800, 1600, 3200]);
        assert_eq!(seen[8..], [60_000; 4]);
        rtt.end_backoff();
        assert_eq!(rtt.rto(), MIN_RTO);
    }

    #[test]
    fn absurd_samples_do_not_overflow() {
        let mut rtt = Rtt::default();
        rtt.on_sample(Duration::from_secs(1 << 33));
        rtt.on_sample(Duration::ZERO);
        assert_eq!(rtt.rto(), MAX_RTO);
    }
}
