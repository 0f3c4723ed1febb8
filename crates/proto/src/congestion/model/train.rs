//! What trains of datagrams say of a path: sent at once, they arrive as far apart as the path lets them.
//!
//! A train that arrives more slowly than it was sent shows the capacity of the path, from its first eight datagrams on, before any
//! round trip was filled. That lets a fresh link send its bursts as fast as the path carries them, no faster, so that they
//! wait in no queue, and no slower: an inner TCP that starts slowly would see its own bursts drawn out, and take
//! that for congestion (HyStart, RFC 9406). Where delays vary by themselves trains contradict each other, and nothing is
//! said.

use super::FULL;
use crate::congestion::ArrivalSample;
use crate::number::real;
use crate::time::{Duration, Instant};

/// Datagrams that show something, and after which another train begins.
pub(super) const LEAST: f64 = 8.0;
const MOST: f64 = 16.0;
/// A pause of the sender, or of the path, ends a train, µs.
const PAUSE: i64 = 20_000;
/// So does one of a sender that is not held back, if less than a full datagram came meanwhile: the small datagrams of a call are no
/// train, however many there are.
const SENDER_PAUSE: Duration = Duration::from_millis(10);
/// Arriving by this much more slowly is no chance: two percent, and the granularity of clocks in µs.
const STRETCHED: (f64, f64) = (1.02, 50.0);
/// What contradicts by more than this in the mean says nothing.
const IRREGULAR: f64 = 0.25;

/// The trains of one path.
#[derive(Clone, Debug, Default)]
pub(super) struct Trains {
    /// The first datagram of the present one.
    first: Option<ArrivalSample>,
    /// When the newest datagram was sent, and the bytes that had arrived with it.
    last: (Instant, u64),
    /// Bytes a second; 0: nothing is known.
    rate: f64,
    /// By what share trains differ from that, in the mean.
    irregular: f64,
}

impl Trains {
    /// A datagram arrived; a full one has so many bytes.
    pub(super) fn on_arrival(&mut self, arrival: &ArrivalSample, full: f64) {
        let (sent_at, total) = std::mem::replace(&mut self.last, (arrival.sent_at, arrival.total));
        let pauses = arrival.sent_at.since(sent_at) >= SENDER_PAUSE
            && real(arrival.total.saturating_sub(total)) < FULL
            && !arrival.held_back;
        let Some(first) = self.first.filter(|_| !pauses) else {
            self.first = Some(*arrival);
            return;
        };
        let sent =
            i64::try_from(arrival.sent_at.since(first.sent_at).as_micros()).unwrap_or(i64::MAX);
        let apart = arrival.at_us.saturating_sub(first.at_us);
        if apart < 0 || apart > sent.saturating_mul(4).saturating_add(PAUSE) {
            self.first = Some(*arrival);
            return;
        }
        let bytes = real(arrival.total.saturating_sub(first.total));
        if bytes >= LEAST * full {
            self.on_train(bytes, apart, sent);
        }
        if bytes >= MOST * full {
            self.first = Some(*arrival);
        }
    }

    fn on_train(&mut self, bytes: f64, apart: i64, sent: i64) {
        let (apart, sent) = (real(apart.unsigned_abs()), real(sent.unsigned_abs()));
        // Within a tick of the clock nothing is known of the rate.
        let rate = bytes / (apart.max(10.0) * 1e-6);
        let stretched = apart > STRETCHED.0 * sent + STRETCHED.1;
        if self.rate <= 0.0 {
            if stretched {
                // The next one must agree.
                (self.rate, self.irregular) = (rate, 2.0 * IRREGULAR);
            }
        } else if stretched || rate > self.rate {
            let off = ((rate - self.rate) / self.rate).abs().min(1.0);
            self.irregular += (off - self.irregular) / 4.0;
            self.rate += (rate - self.rate) / 4.0;
        }
    }

    /// What the path carries, bytes a second, if trains agree on it.
    pub(super) fn rate(&self) -> Option<f64> {
        (self.rate > 0.0 && self.irregular < IRREGULAR).then_some(self.rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Trains of 32 datagrams of 1,000 bytes each 40 ms, sent this many µs apart; the gaps at the receiver in turn.
    fn after(sent_us: u64, gaps_us: &[i64], trains: u64) -> Option<f64> {
        let mut seen = Trains::default();
        let (mut total, mut gaps) = (0, gaps_us.iter().cycle());
        for train in 0..trains {
            let began = Instant::from_millis(40 * train);
            let mut at_us = i64::try_from(began.as_micros()).unwrap() + 20_000;
            for number in 0..32 {
                at_us += gaps.next().unwrap();
                total += 1000;
                let sample = ArrivalSample {
                    at_us,
                    sent_at: began + Duration::from_micros(number * sent_us),
                    bytes: 0,
                    interval: Duration::ZERO,
                    total,
                    held_back: false,
                };
                seen.on_arrival(&sample, 1000.0);
            }
        }
        seen.rate()
    }

    #[test]
    fn the_datagrams_of_a_call_are_no_train_though_a_queue_delays_some() {
        let mut seen = Trains::default();
        let sample = |number: u64, late_us: i64| ArrivalSample {
            at_us: i64::try_from(number).unwrap() * 20_000 + 50_000 + late_us,
            sent_at: Instant::from_millis(20 * number),
            bytes: 0,
            interval: Duration::ZERO,
            total: 260 * number,
            held_back: false,
        };
        for number in 0..500 {
            seen.on_arrival(&sample(number, if number % 50 < 25 { 0 } else { 15_000 }), 260.0);
            assert_eq!(seen.rate(), None, "after {number}");
        }
    }

    #[test]
    fn a_stretched_train_shows_what_the_path_carries() {
        for (sent_us, gap_us, bytes) in [(0, 160, 6.25e6), (0, 1200, 8.33e5), (10, 100, 1e7)] {
            let rate = after(sent_us, &[gap_us], 2).unwrap();
            assert!((rate / bytes - 1.0).abs() < 0.05, "{gap_us} us: {rate}");
        }
    }

    #[test]
    fn one_that_comes_as_it_was_sent_or_differs_from_the_others_shows_nothing() {
        assert_eq!(after(100, &[100], 5), None, "the path may carry any more");
        let contradict: Vec<i64> = [[60; 32], [1200; 32]].concat();
        assert_eq!(after(0, &contradict, 6), None);
        assert_eq!(after(0, &[160], 0), None);
    }
}
