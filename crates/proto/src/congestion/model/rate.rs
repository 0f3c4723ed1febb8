//! How fast a path delivers, by the receiver's clock.

use std::collections::VecDeque;

use crate::congestion::ArrivalSample;
use crate::number::real;

/// The shorter measurement takes half a round trip, but so long, seconds: shorter ones show how a radio link hands out its
/// turns, longer ones what was long ago.
const SHORT: (f64, f64) = (0.04, 0.15);
/// Delays that vary by themselves average out over so many of their deviations.
const NOISE: f64 = 6.0;
/// Arrivals remembered. Reports come at most every ten full datagrams; at higher rates the oldest are forgotten early.
const MOST: usize = 4096;

/// The rates of one path, bytes a second.
#[derive(Clone, Debug, Default)]
pub(super) struct Rates {
    arrivals: VecDeque<(i64, u64)>,
    /// Over the last round trip, or the time in which it was sent, if that is longer.
    pub(super) of_trip: f64,
    /// Over a shorter time, by arrivals alone; 0: not known.
    pub(super) short: f64,
    /// Whether the window or the pacing bounded what is measured, and not a lack of packets.
    pub(super) held_back: bool,
}

impl Rates {
    /// Nothing arrived for long: what did says nothing of a short time any more.
    pub(super) fn release_memory(&mut self) {
        self.arrivals = VecDeque::new();
    }

    /// A datagram arrived; round trips take `srtt`, and delays vary by `noise`, seconds.
    pub(super) fn on_arrival(&mut self, arrival: &ArrivalSample, srtt: f64, noise: f64) {
        self.of_trip = real(arrival.bytes) / arrival.interval.as_secs_f64().max(1e-6);
        self.held_back = arrival.held_back;
        if self.arrivals.back().is_some_and(|(at, _)| *at > arrival.at_us) {
            // The receiver's clock went back: what was before means nothing.
            self.arrivals.clear();
        }
        if self.arrivals.len() >= MOST {
            self.arrivals.pop_front();
        }
        self.arrivals.push_back((arrival.at_us, arrival.total));
        let span = (srtt / 2.0).clamp(SHORT.0, SHORT.1).max(NOISE * noise);
        let passed = |from: i64| real(arrival.at_us.abs_diff(from)) * 1e-6;
        while self.arrivals.len() > 2 && passed(self.arrivals[1].0) >= span {
            self.arrivals.pop_front();
        }
        let (from, before) = self.arrivals[0];
        if passed(from) > span / 2.0 {
            self.short = real(arrival.total.saturating_sub(before)) / passed(from);
        }
    }
}
