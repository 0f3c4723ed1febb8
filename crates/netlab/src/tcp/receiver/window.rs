//! The receive window, as Linux tunes it: it begins with 64 KiB, is opened by two segments for each that
//! comes, and may be twice of what the application took within the last round trip, and more while that
//! grows. What waits out of order takes from it.

use std::time::Duration;

use ropewalk_proto::time::Instant;

/// The first window, in bytes.
const INITIAL: u64 = 65_535;
/// What the first buffer of 128 KiB and the largest one of 6 MiB (`tcp_rmem`) leave to data: two thirds.
const FIRST_LIMIT: u64 = (128 << 10) / 3 * 2;
const LARGEST: u64 = (6 << 20) / 3 * 2;
/// A round trip's worth is thought so many segments at first.
const FIRST_TAKEN: u64 = 10;
/// The longest segment until one came (RFC 9293 §3.7.1).
const FIRST_SEGMENT: u64 = 536;

/// The window of one receiver.
#[derive(Clone, Debug)]
pub(super) struct Window {
    /// The longest segment, and the length of the last one, in bytes.
    segment: u64,
    last_length: u64,
    /// What may be offered now, and at most.
    open: u64,
    limit: u64,
    /// The end of what was offered, and its length.
    edge: u64,
    offered: u64,
    /// What the application took in a round trip, and when and where this one began.
    taken: u64,
    round: Option<(Instant, u64)>,
    rtt: Option<Duration>,
    last_echo: u32,
}

impl Window {
    pub(super) const fn new(mss: u64) -> Self {
        Self {
            segment: FIRST_SEGMENT,
            last_length: 0,
            open: INITIAL,
            limit: FIRST_LIMIT,
            edge: INITIAL,
            offered: INITIAL,
            taken: FIRST_TAKEN * mss,
            round: None,
            rtt: None,
            last_echo: 0,
        }
    }

    pub(super) const fn segment(&self) -> u64 {
        self.segment
    }

    pub(super) const fn offered(&self) -> u64 {
        self.offered
    }

    /// The round trip as the receiver sees it.
    pub(super) const fn rtt(&self) -> Option<Duration> {
        self.rtt
    }

    /// Measures the round trip by the echo of our own clock, once for each of its values.
    pub(super) fn measure_echo(&mut self, clock: u32, echo: u32, length: u64) {
        if echo == self.last_echo || length < self.segment {
            return;
        }
        self.last_echo = echo;
        let sample = Duration::from_millis(clock.saturating_sub(echo).max(1).into());
        self.rtt = Some(self.rtt.map_or(sample, |rtt| (7 * rtt + sample) / 8));
    }

    /// A segment came in order. Two short ones in a row show that none are longer.
    pub(super) fn came(&mut self, now: Instant, nxt: u64, length: u64) {
        if length > self.segment || length == self.last_length {
            self.segment = length;
        }
        self.last_length = length;
        self.round.get_or_insert((now, nxt));
    }

    /// Opens the window for a segment of `length` bytes, while `waiting` are held; `true` if it grew.
    pub(super) fn grow(&mut self, length: u64, waiting: u64) -> bool {
        let room = self.limit.saturating_sub(waiting).saturating_sub(self.open);
        self.open += room.min(2 * length.max(self.segment));
        room > 0
    }

    /// The application took all before `nxt`; beyond it something came up to `span` bytes away.
    pub(super) fn read(&mut self, now: Instant, nxt: u64, span: u64) {
        let (Some((start, from)), Some(rtt)) = (self.round, self.rtt) else { return };
        if now.since(start) < rtt {
            return;
        }
        let taken = nxt - from;
        if taken > self.taken {
            // Room for a doubled rate, and twice for the growth that was seen.
            let window = 2 * taken;
            let growth = window * (taken - self.taken) / self.taken;
            self.taken = taken;
            self.enlarge(window + 2 * growth + span);
        }
        self.round = Some((now, nxt));
    }

    /// Something waits out of order, `span` bytes away: a doubled rate is to have room beside it.
    pub(super) fn wait(&mut self, span: u64) {
        self.enlarge(2 * self.taken + span);
    }

    fn enlarge(&mut self, limit: u64) {
        self.limit = self.limit.max(limit.min(LARGEST));
    }

    /// The window to tell, of which `waiting` bytes are used. Its end never moves back.
    pub(super) fn offer(&mut self, nxt: u64, waiting: u64) -> u64 {
        let room = self.open.min(self.limit.saturating_sub(waiting));
        self.edge = self.edge.max(nxt + room);
        self.offered = self.edge - nxt;
        self.offered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u64 = 1388;

    /// The window after `rounds` round trips of 100 ms with these many segments in each.
    fn after_rounds(segments: &[u64]) -> u64 {
        let mut window = Window::new(MSS);
        let (mut nxt, mut now) = (0, Instant::from_millis(1000));
        for (round, count) in (1u32..).zip(segments) {
            for _ in 0..*count {
                nxt += MSS;
                window.measure_echo(200 * round, 200 * round - 100, MSS);
                window.came(now, nxt, MSS);
                window.grow(MSS, 0);
                window.read(now, nxt, 0);
            }
            now += Duration::from_millis(100);
        }
        window.offer(nxt, 0)
    }

    #[test]
    fn the_window_keeps_ahead_of_slow_start_and_stays_within_the_buffer() {
        assert_eq!(after_rounds(&[]), INITIAL);
        let doubling: Vec<u64> = (0..10).map(|round| 10 << round).collect();
        for rounds in 1..10 {
            let next = (10 << rounds) * MSS;
            let window = after_rounds(&doubling[..rounds]);
            assert!(window >= next.min(LARGEST), "{rounds}: {window} of {next}");
        }
        let steady = after_rounds(&[40; 20]);
        assert!((80 * MSS..LARGEST / 2).contains(&steady), "{steady}");
        assert_eq!(after_rounds(&[40; 40]), steady);
        assert_eq!(after_rounds(&[1000, 3000, 9000, 9000, 9000]), LARGEST);
    }

    #[test]
    fn the_end_of_the_window_never_moves_back() {
        let mut window = Window::new(MSS);
        let before = window.offer(0, 0);
        assert_eq!(window.offer(10_000, 80_000), before - 10_000);
    }
}
