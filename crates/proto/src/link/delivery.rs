//! How fast a link delivers (draft-cheng-iccrg-delivery-rate-estimation).
//!
//! Every datagram remembers, when it is sent, how much had been confirmed by then and when. When it is
//! confirmed itself, the difference is what the path delivered in between. The time it took is the longer
//! of the sending and the confirming phase: a burst of reports, or of sending, cannot feign a rate.

use crate::congestion::{ArrivalSample, DeliverySample};
use crate::time::{Duration, Instant};

/// What a datagram remembers from the moment it was sent.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    delivered: u64,
    delivered_at: Instant,
    first_sent_at: Instant,
    /// Bytes that had arrived, and when the newest of them had, as far as reports said.
    arrived: u64,
    arrived_us: Option<i64>,
}

/// The counters of one link.
#[derive(Clone, Debug, Default)]
pub(super) struct Delivery {
    /// Bytes confirmed so far.
    delivered: u64,
    /// When the newest of them was confirmed.
    delivered_at: Instant,
    /// When the first datagram of the present sending phase was sent.
    first_sent_at: Instant,
    /// Bytes confirmed so far, also those that had counted as lost.
    arrived: u64,
    /// When the newest datagram of the present sending phase arrived, by the receiver's clock.
    arrived_us: Option<i64>,
    /// The newest datagram of the report that is being applied.
    newest: Option<Newest>,
}

#[derive(Clone, Copy, Debug)]
struct Newest {
    number: u64,
    stamp: Stamp,
    sent_at: Instant,
    held_back: HeldBack,
}

/// Whether the window or the pacing, not a lack of packets, bounded what went before a datagram.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldBack {
    /// Within the last window of datagrams (RFC 7661 §4.1), however long ago that is, or by the pacing.
    pub(super) in_window: bool,
    /// In the round trip before it.
    pub(super) in_trip: bool,
}

impl Delivery {
    /// A datagram is sent; `in_flight` says how many are on their way already. With none, a new phase of
    /// sending begins: the pause before it is not the path's fault.
    pub(super) fn on_sent(&mut self, now: Instant, in_flight: u32) -> Stamp {
        if in_flight == 0 {
            self.first_sent_at = now;
            self.delivered_at = now;
            self.arrived_us = None;
        }
        Stamp {
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
            arrived: self.arrived,
            arrived_us: self.arrived_us,
        }
    }

    /// A report confirmed this datagram, `size` bytes at IP level.
    pub(super) fn on_confirmed(
        &mut self,
        now: Instant,
        number: u64,
        sent_at: Instant,
        size: u32,
        stamp: Stamp,
        held_back: HeldBack,
    ) {
        self.delivered += u64::from(size);
        self.arrived += u64::from(size);
        self.delivered_at = now;
        if self.newest.is_none_or(|newest| number > newest.number) {
            self.first_sent_at = sent_at;
            self.newest = Some(Newest { number, stamp, sent_at, held_back });
        }
    }

    /// One that had counted as lost arrived after all.
    pub(super) fn on_late(&mut self, size: u32) {
        self.arrived += u64::from(size);
    }

    /// The newest datagram of the report arrived at this moment of the receiver's clock. To be asked before
    /// [`take_sample`](Self::take_sample).
    pub(super) fn on_arrival(&mut self, at_us: i64) -> Option<ArrivalSample> {
        let newest = self.newest?;
        let stamp = newest.stamp;
        let sending = newest.sent_at.since(stamp.first_sent_at);
        let confirming = self.delivered_at.since(stamp.delivered_at);
        // By our own clock it cannot have come much faster, whatever the peer's says.
        let receiving = stamp.arrived_us.map_or(confirming, |before| {
            let apart = u64::try_from(at_us.saturating_sub(before)).unwrap_or(0);
            Duration::from_micros(apart).max(confirming / 2)
        });
        self.arrived_us = Some(at_us);
        Some(ArrivalSample {
            at_us,
            sent_at: newest.sent_at,
            bytes: self.arrived - stamp.arrived,
            interval: sending.max(receiving),
            total: self.arrived,
            held_back: newest.held_back.in_trip,
        })
    }

    /// The report is applied: the sample it gave, if any. An interval shorter than the smallest round trip
    /// is an artefact of bunched reports and no sample.
    pub(super) fn take_sample(&mut self, min_rtt: Option<Duration>) -> Option<DeliverySample> {
        let newest = self.newest.take()?;
        let sending = newest.sent_at.since(newest.stamp.first_sent_at);
        let confirming = self.delivered_at.since(newest.stamp.delivered_at);
        let interval = sending.max(confirming);
        if interval.is_zero() || min_rtt.is_some_and(|min| interval < min) {
            return None;
        }
        let bytes = self.delivered - newest.stamp.delivered;
        Some(DeliverySample { bytes, interval, held_back: newest.held_back.in_window })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELD_BACK: HeldBack = HeldBack { in_window: true, in_trip: true };

    const fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    /// 1,000 bytes every 10 ms over a path of 50 ms, confirmed one by one.
    #[test]
    fn a_steady_flow_is_measured_at_its_rate() {
        let mut delivery = Delivery::default();
        let mut stamps = vec![];
        let mut rates = vec![];
        for tick in 0..30u64 {
            let now = at(100 + tick * 10);
            if let Some(number) = tick.checked_sub(5) {
                let sent_at = at(100 + number * 10);
                let stamp = stamps[usize::try_from(number).unwrap()];
                delivery.on_confirmed(now, number, sent_at, 1000, stamp, HELD_BACK);
                rates.extend(delivery.take_sample(Some(Duration::from_millis(50))));
            }
            stamps.push(delivery.on_sent(now, if tick == 0 { 0 } else { 5 }));
        }
        let last = rates.last().unwrap();
        assert_eq!(last.rate().as_bps(), 800_000);
        assert!(rates.iter().all(|sample| sample.rate().as_bps() <= 800_000), "{rates:?}");
    }

    #[test]
    fn a_bunch_of_reports_does_not_feign_a_rate() {
        let mut delivery = Delivery::default();
        let stamps: Vec<_> =
            (0..10).map(|n| delivery.on_sent(at(n * 10), u32::from(n > 0))).collect();
        for (number, stamp) in (0..).zip(&stamps) {
            delivery.on_confirmed(at(200), number, at(number * 10), 1000, *stamp, HELD_BACK);
        }
        let sample = delivery.take_sample(None).unwrap();
        assert_eq!((sample.bytes, sample.interval), (10_000, Duration::from_millis(200)));
    }

    #[test]
    fn an_interval_below_the_round_trip_is_no_sample() {
        let mut delivery = Delivery::default();
        let stamp = delivery.on_sent(at(0), 0);
        delivery.on_confirmed(at(5), 0, at(0), 1000, stamp, HELD_BACK);
        assert_eq!(delivery.take_sample(Some(Duration::from_millis(6))), None);
        assert_eq!(delivery.take_sample(None), None, "a sample is taken once");
    }
}
