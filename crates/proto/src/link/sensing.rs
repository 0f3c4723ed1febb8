//! What the traffic of one link tells of it: capacity, throughput, and what others send on it.
//!
//! | value | raw | filtered |
//! | --- | --- | --- |
//! | capacity | the newest delivery sample of a full window | the largest of the last 5 to 10 s, unless it was told |
//! | throughput | the newest delivery sample | Kalman ([`crate::sched::kalman`]) |
//! | others | as the driver counts on the interface, by the interval | exponential, half a sample |
//! | available | capacity (told, else raw) minus others | the same of the filtered |
//!
//! Round-trip time and loss are the sender's ([`super::sender::SenderStats`]). A sample of a sender that had
//! nothing more to send says only that the link carries at least so much: it counts where it is above what is
//! known. Else a link that is given little would seem to carry little, and be given less.

use super::sender::SenderStats;
use crate::congestion::DeliverySample;
use crate::sched::kalman::Kalman;
use crate::time::{Duration, Instant};
use crate::units::Bitrate;

/// Half of the window of the capacity: long enough to bridge a halving of the window and its recovery, short enough
/// to forget a cell left behind.
const HALF_WINDOW: Duration = Duration::from_secs(5);

/// How much a fresh count of what others send weighs: at 4 counts a second a change is followed within one.
const OTHERS_GAIN: f64 = 0.5;

/// A value as last measured, and filtered; `None`: not measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reading<T> {
    /// The newest measurement.
    pub raw: Option<T>,
    /// What is made of it and those before.
    pub filtered: Option<T>,
}

impl<T> Default for Reading<T> {
    fn default() -> Self {
        Self { raw: None, filtered: None }
    }
}

/// All that is sensed of a link in the direction in which this end sends; the module says how each value is measured and
/// filtered. Rates are bit/s.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Sensed {
    /// What the link carries at most, if a person said so.
    pub told: Option<Bitrate>,
    /// What it carries at most, as measured.
    pub capacity: Reading<Bitrate>,
    /// What of that is there for this tunnel.
    pub available: Reading<Bitrate>,
    /// What others send on its interface.
    pub others: Reading<Bitrate>,
    /// What it delivers for this tunnel.
    pub throughput: Reading<Bitrate>,
    /// Round-trip time without the receiver's report delay.
    pub rtt: Reading<Duration>,
    /// Share of losses among the last 512 to 1,024 datagrams resolved, from 0 to 1.
    pub loss_recent: Option<f64>,
    /// Share of losses among all datagrams resolved, from 0 to 1.
    pub loss_total: Option<f64>,
}

/// What is sensed of a link, in the direction in which this end sends.
#[derive(Clone, Debug, Default)]
pub struct Sensing {
    /// The largest rate in the present and the previous half of the window.
    halves: [Option<Bitrate>; 2],
    half_began: Instant,
    /// The newest sample of a full window.
    full: Option<Bitrate>,
    raw: Option<Bitrate>,
    throughput: Kalman,
    others: Reading<f64>,
}

impl Sensing {
    /// A report gave a sample of the rate of delivery.
    pub fn on_delivery(&mut self, now: Instant, sample: &DeliverySample) {
        let rate = sample.rate();
        self.raw = Some(rate);
        self.turn(now);
        if sample.window_limited {
            self.full = Some(rate);
        }
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
        let filtered = match self.others.filtered {
            None => rate,
            Some(before) => before + OTHERS_GAIN * (rate - before),
        };
        self.others = Reading { raw: Some(rate), filtered: Some(filtered) };
    }

    /// Everything, with what was told and what the sender knows.
    #[must_use]
    pub fn all(&self, told: Option<Bitrate>, sender: &SenderStats) -> Sensed {
        let capacity = Reading { raw: self.full, filtered: self.measured() };
        let left = |capacity: Option<Bitrate>, others: Option<f64>| {
            let others = others.map_or(Bitrate::default(), bitrate);
            let left = |capacity: Bitrate| capacity.as_bps().saturating_sub(others.as_bps());
            told.or(capacity).map(|capacity| Bitrate::from_bps(left(capacity)))
        };
        let resolved = sender.confirmed + sender.lost;
        Sensed {
            told,
            capacity,
            available: Reading {
                raw: left(capacity.raw, self.others.raw),
                filtered: left(capacity.filtered, self.others.filtered),
            },
            others: Reading {
                raw: self.others.raw.map(bitrate),
                filtered: self.others.filtered.map(bitrate),
            },
            throughput: Reading {
                raw: self.raw,
                filtered: self.throughput().map(|kilobytes| bitrate(kilobytes * 8e3)),
            },
            rtt: Reading { raw: sender.newest_rtt, filtered: sender.srtt },
            loss_recent: (resolved > 0).then_some(sender.loss_ratio),
            loss_total: (resolved > 0).then(|| share(sender.lost, resolved)),
        }
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

    /// Filtered throughput, kB/s.
    #[must_use]
    pub fn throughput(&self) -> Option<f64> {
        self.throughput.estimate()
    }

    /// What others send, bit/s, filtered.
    #[must_use]
    pub fn others(&self) -> Option<f64> {
        self.others.filtered
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

/// As a rate; what is negative or no number is none at all.
fn bitrate(bps: f64) -> Bitrate {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast saturates")]
    Bitrate::from_bps(bps as u64)
}

#[expect(clippy::cast_precision_loss, reason = "a share needs no 53 bits of precision")]
fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
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
        let all = sensing.all(None, &SenderStats::default());
        assert_eq!(all.throughput.raw, Some(Bitrate::from_mbps(1)));
        assert_eq!(all.capacity.raw, Some(Bitrate::from_mbps(8)));
        sensing.on_delivery(Instant::from_millis(2100), &sample(12, false));
        assert_eq!(sensing.measured(), Some(Bitrate::from_mbps(12)), "it carries at least so much");
    }

    #[test]
    fn what_is_not_measured_is_not_told_of() {
        let sensing = Sensing::default();
        assert_eq!(sensing.all(None, &SenderStats::default()), Sensed::default());
        let told = Bitrate::from_mbps(3);
        let all = sensing.all(Some(told), &SenderStats::default());
        let available = Reading { raw: Some(told), filtered: Some(told) };
        assert_eq!(all, Sensed { told: Some(told), available, ..Sensed::default() });
    }

    #[test]
    fn what_others_send_is_not_available() {
        let mut sensing = Sensing::default();
        sensing.on_delivery(Instant::ZERO, &sample(8, true));
        sensing.on_others(125_000, Duration::from_secs(1));
        let sender = SenderStats { confirmed: 9, lost: 1, loss_ratio: 0.2, ..Default::default() };
        let all = sensing.all(None, &sender);
        let rate = |mbit| Some(Bitrate::from_mbps(mbit));
        assert_eq!(all.others, Reading { raw: rate(1), filtered: rate(1) });
        assert_eq!(all.available, Reading { raw: rate(7), filtered: rate(7) });
        assert_eq!((all.loss_recent, all.loss_total), (Some(0.2), Some(0.1)));
        sensing.on_others(u64::MAX, Duration::from_secs(1));
        let none = sensing.all(None, &sender).available;
        assert_eq!(none, Reading { raw: rate(0), filtered: rate(0) }, "never less than nothing");
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
