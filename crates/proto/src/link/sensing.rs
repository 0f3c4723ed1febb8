//! What the traffic of one link tells of it: capacity, throughput, and what others send on it.
//!
//! | value | raw | filtered |
//! | --- | --- | --- |
//! | capacity | the newest delivery sample of a full window | the largest of the last 5 to 10 s, unless it was told |
//! | throughput | the newest delivery sample | Kalman ([`crate::sched::kalman`]) |
//! | others | as the driver counts on the interface, by the interval | exponential, half a sample |
//!
//! Round-trip time and loss are the sender's ([`super::sender::SenderStats`]). A sample of a sender that had
//! nothing more to send says only that the link carries at least so much: it counts where it is above what is
//! known. Else a link that is given little would seem to carry little, and be given less.

use crate::congestion::DeliverySample;
use crate::sched::kalman::Kalman;
use crate::time::{Duration, Instant};
use crate::units::Bitrate;

/// Half of the window of the capacity: long enough to bridge a halving of the window and its recovery, short enough
/// to forget a cell left behind.
const HALF_WINDOW: Duration = Duration::from_secs(5);

/// How much a fresh count of what others send weighs: at 4 counts a second a change is followed within one.
const OTHERS_GAIN: f64 = 0.5;

/// What is sensed of a link, in the direction in which this end sends.
#[derive(Clone, Debug, Default)]
pub struct Sensing {
    /// The largest rate in the present and the previous half of the window.
    halves: [Option<Bitrate>; 2],
    half_began: Instant,
    raw: Option<Bitrate>,
    throughput: Kalman,
    others: Option<f64>,
}

impl Sensing {
    /// A report gave a sample of the rate of delivery.
    pub fn on_delivery(&mut self, now: Instant, sample: &DeliverySample) {
        let rate = sample.rate();
        self.raw = Some(rate);
        self.turn(now);
        if sample.window_limited || self.measured().is_some_and(|known| rate > known) {
            self.halves[0] = self.halves[0].max(Some(rate));
        }
        let kilobytes = kilobytes(rate);
        if sample.window_limited || self.throughput.estimate().is_none_or(|known| kilobytes > known)
        {
            self.throughput.on_sample(now, kilobytes);
        }
    }

    /// The driver counted what others sent on the interface since the last count, over `interval`.
    pub fn on_others(&mut self, bytes: u64, interval: Duration) {
        let rate = as_f64(Bitrate::from_bytes_in(bytes, interval));
        self.others = Some(match self.others {
            None => rate,
            Some(before) => before + OTHERS_GAIN * (rate - before),
        });
    }

    /// The path is another: nothing of what was sensed holds.
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// The filtered capacity, where one was measured.
    #[must_use]
    pub fn measured(&self) -> Option<Bitrate> {
        self.halves[0].max(self.halves[1])
    }

    /// The newest rate of delivery.
    #[must_use]
    pub fn raw(&self) -> Option<Bitrate> {
        self.raw
    }

    /// Filtered throughput, kB/s.
    #[must_use]
    pub fn throughput(&self) -> Option<f64> {
        self.throughput.estimate()
    }

    /// What others send, bit/s, filtered.
    #[must_use]
    pub fn others(&self) -> Option<f64> {
        self.others
    }

    /// Begins another half of the window if it is time. While nothing is measured what is known stays.
    fn turn(&mut self, now: Instant) {
        if now.since(self.half_began) >= HALF_WINDOW && self.halves[0].is_some() {
            self.halves = [None, self.halves[0]];
            self.half_began = now;
        }
    }
}

/// Bits per second as a float.
#[must_use]
pub fn as_f64(rate: Bitrate) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a rate needs no 53 bits of precision")]
    let bps = rate.as_bps() as f64;
    bps
}

fn kilobytes(rate: Bitrate) -> f64 {
    as_f64(rate) / 8e3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(mbit: u64, window_limited: bool) -> DeliverySample {
        let interval = Duration::from_millis(100);
        DeliverySample { bytes: mbit * 12_500, interval, window_limited }
    }

    #[test]
    fn the_capacity_is_the_largest_rate_of_the_last_seconds() {
        let mut sensing = Sensing::default();
        let table = [(0, 5, 5), (1, 9, 9), (2, 6, 9), (6, 4, 9), (9, 4, 9), (12, 4, 4)];
        for (second, mbit, expected) in table {
            sensing.on_delivery(Instant::from_millis(second * 1000), &sample(mbit, true));
            assert_eq!(sensing.measured(), Some(Bitrate::from_mbps(expected)), "after {second} s");
        }
    }

    #[test]
    fn a_sender_with_nothing_more_to_send_does_not_make_its_link_seem_slow() {
        let mut sensing = Sensing::default();
        sensing.on_delivery(Instant::ZERO, &sample(1, false));
        assert_eq!((sensing.measured(), sensing.throughput()), (None, Some(125.0)));
        sensing.on_delivery(Instant::ZERO, &sample(8, true));
        let full = sensing.throughput();
        for tenth in 1..20 {
            sensing.on_delivery(Instant::from_millis(tenth * 100), &sample(1, false));
        }
        assert_eq!(sensing.measured(), Some(Bitrate::from_mbps(8)));
        assert_eq!(sensing.throughput(), full);
        assert_eq!(sensing.raw(), Some(Bitrate::from_mbps(1)));
        sensing.on_delivery(Instant::from_millis(2100), &sample(12, false));
        assert_eq!(sensing.measured(), Some(Bitrate::from_mbps(12)), "it carries at least so much");
    }

    #[test]
    fn what_others_send_is_followed_within_a_second() {
        let mut sensing = Sensing::default();
        let quarter = Duration::from_millis(250);
        assert_eq!(sensing.others(), None);
        sensing.on_others(0, quarter);
        for _ in 0..4 {
            sensing.on_others(6_000_000 / 32, quarter);
        }
        let others = sensing.others().unwrap_or_default();
        assert!((5.5e6..6.0e6).contains(&others), "{others}");
    }
}
