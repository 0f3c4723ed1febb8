//! HyStart as Linux has it: slow start ends when acknowledgements come in one train for half of the
//! shortest round trip, or when the delay of a round has risen by an eighth.

use std::time::Duration;

use ropewalk_proto::time::Instant;

/// Smaller windows are left alone.
const LEAST_WINDOW: u32 = 16;
/// Acknowledgements closer than this belong to one train.
const TRAIN_GAP: Duration = Duration::from_millis(2);
/// What segmentation offload may add to a train.
const OFFLOAD: Duration = Duration::from_millis(1);
/// Measurements of a round before its delay is judged.
const SAMPLES: u32 = 8;
/// A delay has risen if it did by an eighth of the shortest, within these.
const RISE: (Duration, Duration) = (Duration::from_millis(4), Duration::from_millis(16));

/// One round of slow start.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct HyStart {
    /// The round ends when this byte is acknowledged.
    round_end: u64,
    round_start: Instant,
    last_ack: Instant,
    shortest: Option<Duration>,
    samples: u32,
    found: bool,
}

impl HyStart {
    /// An acknowledgement came, up to `una`; bytes were sent up to `nxt`.
    pub(crate) fn acknowledged(&mut self, now: Instant, una: u64, nxt: u64) {
        if una > self.round_end {
            self.begin_round(now, nxt);
        }
    }

    pub(crate) fn begin_round(&mut self, now: Instant, nxt: u64) {
        (self.round_start, self.last_ack, self.round_end) = (now, now, nxt);
        (self.shortest, self.samples) = (None, 0);
    }

    /// A round trip was measured; `true`: slow start is to end.
    pub(crate) fn measured(
        &mut self,
        now: Instant,
        rtt: Duration,
        delay_min: Duration,
        window: u32,
    ) -> bool {
        if self.found || window < LEAST_WINDOW {
            return false;
        }
        if now.since(self.last_ack) <= TRAIN_GAP {
            self.last_ack = now;
            self.found |= now.since(self.round_start) > (delay_min + OFFLOAD) / 2;
        }
        let shortest = *self.shortest.insert(self.shortest.map_or(rtt, |other| other.min(rtt)));
        if self.samples < SAMPLES {
            self.samples += 1;
        } else {
            self.found |= shortest > delay_min + (delay_min / 8).clamp(RISE.0, RISE.1);
        }
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(40);

    /// After how many acknowledgements slow start ends.
    fn acks_until_found(gap: Duration, rtt: impl Fn(u32) -> Duration, window: u32) -> Option<u32> {
        let mut hystart = HyStart::default();
        hystart.begin_round(Instant::ZERO, 1_000_000);
        (0..100).find(|n| hystart.measured(Instant::ZERO + gap * *n, rtt(*n), RTT, window))
    }

    #[test]
    fn a_train_of_half_a_round_trip_ends_slow_start() {
        // 20.5 ms at 1 ms each.
        assert_eq!(acks_until_found(Duration::from_millis(1), |_| RTT, 50), Some(21));
        assert_eq!(acks_until_found(Duration::from_millis(3), |_| RTT, 50), None);
        assert_eq!(acks_until_found(Duration::from_millis(1), |_| RTT, 15), None);
    }

    #[test]
    fn a_risen_delay_ends_slow_start_once_enough_were_measured() {
        let gap = Duration::from_millis(3);
        assert_eq!(acks_until_found(gap, |_| RTT + Duration::from_millis(6), 50), Some(8));
        assert_eq!(acks_until_found(gap, |_| RTT + Duration::from_millis(5), 50), None);
        // One short delay in the round is enough to go on.
        let one = |n| if n == 3 { RTT } else { 2 * RTT };
        assert_eq!(acks_until_found(gap, one, 50), None);
    }
}
