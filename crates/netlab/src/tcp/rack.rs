//! RACK: what was sent before something that came, and is missing for longer than reordering explains, is
//! lost (RFC 8985, as Linux has it).

use std::time::Duration;

use ropewalk_proto::time::Instant;

use super::rtt::RttEstimator;
use super::scoreboard::{Scoreboard, is_after};

/// For so many recoveries a widened tolerance stays.
const PERSIST: u32 = 16;
/// The tolerance is at most so many quarters of the shortest round trip.
const MAX_STEPS: u32 = 255;

/// The last segment sent of those that came, and how much reordering is borne.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Rack {
    newest: Option<(Instant, u64)>,
    rtt: Duration,
    /// Something came since losses were looked for.
    pub(crate) advanced: bool,
    steps: u32,
    persist: u32,
    /// A needless retransmission was told since the tolerance was widened.
    pub(crate) duplicate_seen: bool,
    /// How many segments were delivered when it was.
    widened_at: u64,
}

/// What the tolerance depends on beside RACK's own state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reordering {
    /// Some was seen.
    pub(crate) seen: bool,
    /// Losses are being repaired.
    pub(crate) recovering: bool,
    /// As many came out of order as no reordering explains so far.
    pub(crate) over_threshold: bool,
}

impl Rack {
    pub(crate) const fn new() -> Self {
        Self {
            newest: None,
            rtt: Duration::ZERO,
            advanced: false,
            steps: 1,
            persist: 0,
            duplicate_seen: false,
            widened_at: 0,
        }
    }

    /// A segment sent at `at`, ending at `end`, came. One sent twice whose time is too short was the first.
    pub(crate) fn came(
        &mut self,
        now: Instant,
        (at, end): (Instant, u64),
        again: bool,
        min_rtt: Option<Duration>,
    ) {
        let rtt = now.since(at);
        if again && min_rtt.is_none_or(|min| rtt < min) {
            return;
        }
        (self.advanced, self.rtt) = (true, rtt);
        if self.newest.is_none_or(|newest| is_after((at, end), newest)) {
            self.newest = Some((at, end));
        }
    }

    /// An acknowledgement said that `delivered` segments came, of which `before` had come when the newest
    /// of those it is about was sent.
    pub(crate) fn adapt(&mut self, delivered: u64, before: Option<u64>) {
        let Some(before) = before.filter(|before| *before > 0) else { return };
        // A round trip must have passed.
        self.duplicate_seen &= before >= self.widened_at;
        if self.duplicate_seen {
            self.duplicate_seen = false;
            self.steps = (self.steps + 1).min(MAX_STEPS);
            (self.widened_at, self.persist) = (delivered, PERSIST);
        } else if self.persist == 0 {
            self.steps = 1;
        }
    }

    /// A recovery ended; `needless`: by the proof that nothing was lost.
    pub(crate) fn recovered(&mut self, needless: bool) {
        self.persist =
            if needless { PERSIST.min(self.persist + 1) } else { self.persist.saturating_sub(1) };
    }

    /// How much later than what was sent after it a segment may come.
    pub(crate) fn tolerance(&self, reordering: Reordering, rtt: &RttEstimator) -> Duration {
        if !reordering.seen && (reordering.recovering || reordering.over_threshold) {
            return Duration::ZERO;
        }
        let quarter = rtt.min().unwrap_or(Duration::MAX / (4 * MAX_STEPS)) / 4;
        (quarter * self.steps).min(rtt.smoothed().unwrap_or_default())
    }

    /// How long it takes from now until a segment sent at `at` is overdue; `None` if it is.
    pub(crate) fn remaining(
        &self,
        now: Instant,
        at: Instant,
        tolerance: Duration,
    ) -> Option<Duration> {
        (self.rtt + tolerance).checked_sub(now.since(at)).filter(|left| !left.is_zero())
    }

    /// Marks what is lost; returns how many, and when to look again.
    pub(crate) fn find_losses(
        &mut self,
        now: Instant,
        board: &mut Scoreboard,
        tolerance: Duration,
    ) -> (u32, Option<Duration>) {
        let (mut lost, mut longest) = (0, None);
        let Some((at, end)) = self.newest else { return (0, None) };
        for place in board.places() {
            let Some(sent) = board.get(place) else { continue };
            let earlier = is_after((at, end), (sent.at, sent.bytes.end));
            if !earlier || sent.sacked || (sent.lost && !sent.again) {
                continue;
            }
            match self.remaining(now, sent.at, tolerance) {
                None => lost += u32::from(board.lose(place)),
                left => longest = longest.max(left),
            }
        }
        (lost, longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALM: Reordering = Reordering { seen: false, recovering: false, over_threshold: false };

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn path() -> RttEstimator {
        let mut rtt = RttEstimator::new();
        rtt.measured(ms(40), 0, 1);
        rtt.at_least(ms(40));
        rtt
    }

    #[test]
    fn what_was_sent_before_something_that_came_is_lost_after_the_tolerance() {
        let mut board = Scoreboard::default();
        (0..4).for_each(|n| board.push(n * 100..n * 100 + 100, Instant::from_millis(n), 0));
        let mut rack = Rack::new();
        board.sack(2);
        let now = Instant::from_millis(42);
        rack.came(now, (Instant::from_millis(2), 300), false, Some(ms(40)));
        // The first is 2 ms older than the one that came, the second 1 ms.
        let (lost, again) = rack.find_losses(now, &mut board, ms(2));
        assert_eq!((lost, again), (1, Some(ms(1))));
        let (lost, again) = rack.find_losses(now + ms(1), &mut board, ms(2));
        assert_eq!((lost, again, board.lost()), (1, None, 2));
    }

    #[test]
    fn reordering_that_was_seen_is_borne_and_more_after_needless_retransmissions() {
        let (mut rack, path) = (Rack::new(), path());
        let seen = Reordering { seen: true, recovering: true, ..CALM };
        assert_eq!(rack.tolerance(Reordering { recovering: true, ..CALM }, &path), ms(0));
        assert_eq!(rack.tolerance(Reordering { over_threshold: true, ..CALM }, &path), ms(0));
        assert_eq!(rack.tolerance(CALM, &path), ms(10));
        assert_eq!(rack.tolerance(seen, &path), ms(10));
        rack.duplicate_seen = true;
        rack.adapt(100, Some(50));
        assert_eq!(rack.tolerance(seen, &path), ms(20));
        // A second one within the round trip says nothing new.
        rack.duplicate_seen = true;
        rack.adapt(110, Some(60));
        assert_eq!(rack.tolerance(seen, &path), ms(20));
        for round in 2..10 {
            rack.duplicate_seen = true;
            rack.adapt(100 * round, Some(100 * round - 50));
        }
        assert_eq!(rack.tolerance(seen, &path), ms(40), "at most a round trip");
        (0..16).for_each(|_| rack.recovered(false));
        rack.adapt(2000, Some(1950));
        assert_eq!(rack.tolerance(seen, &path), ms(10));
    }

    #[test]
    fn a_time_too_short_for_a_second_transmission_was_that_of_the_first() {
        let mut rack = Rack::new();
        let now = Instant::from_millis(100);
        rack.came(now, (Instant::from_millis(90), 100), true, Some(ms(40)));
        assert!(!rack.advanced);
        rack.came(now, (Instant::from_millis(60), 100), true, Some(ms(40)));
        assert!(rack.advanced);
    }
}
