//! The sender's clock: which moment a send time of 24 bits names.

use crate::time::Instant;
use crate::wire::expand;
use crate::wire::header::{NUMBER_BITS, TIME_UNIT_US};

/// Maps the sender's 24-bit send times to a number line, by our own clock: a send time is the one nearest
/// to where the sender's clock must stand now.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::tunnel) struct SenderClock {
    /// The sender's clock minus ours when last seen, in units of the send time.
    offset: Option<u64>,
}

/// Keeps the number line above zero whatever the two clocks say.
const CLOCK_BASE: u64 = 1 << 40;

impl SenderClock {
    /// When the datagram was sealed, in µs of the sender's clock from an epoch of its own.
    pub(super) fn sent_us(&mut self, now: Instant, send_time: u32) -> i64 {
        let ours = CLOCK_BASE + now.as_micros() / TIME_UNIT_US;
        let expected = ours.wrapping_add(self.offset.unwrap_or(0));
        let units = match self.offset {
            Some(_) => expand(expected, u64::from(send_time), NUMBER_BITS),
            None => CLOCK_BASE + u64::from(send_time),
        };
        self.offset = Some(units.wrapping_sub(ours));
        i64::try_from(units.saturating_mul(TIME_UNIT_US)).unwrap_or(i64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Duration;
    use crate::wire::frame::low24;

    #[test]
    fn send_times_form_one_line_over_wraps_and_long_silences() {
        let mut clock = SenderClock::default();
        let sender_ahead = Duration::from_secs(12_345);
        let mut now = Instant::from_millis(500);
        let mut line = None;
        for pause in [0, 1, 60, 67, 68, 1000, 7, 86_400].map(Duration::from_secs) {
            now += pause;
            let send_time = low24((now + sender_ahead).as_micros() / TIME_UNIT_US);
            let sent_us = clock.sent_us(now, send_time);
            let ours = i64::try_from(now.as_micros()).unwrap();
            let offset = *line.get_or_insert(sent_us - ours);
            assert!((sent_us - ours - offset).abs() <= 4, "after {pause:?}");
        }
    }
}
