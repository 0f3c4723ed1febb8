//! How often the control groups, and the devices behind shared interfaces, are followed: everybody can make news of
//! theirs without end.

use std::time::Duration;

use tokio::time::Instant;

/// The first rest: a session that begins makes some dozens of units, which are a few looks so.
const FIRST: Duration = Duration::from_millis(50);

/// The longest rest. A look at a thousand folders takes some tens of milliseconds, of a second no more than a few per cent.
const LONGEST: Duration = Duration::from_secs(1);

/// A rest behind each look, longer while it goes on.
#[derive(Debug)]
pub(super) struct Pace {
    rests_until: Instant,
    rest: Duration,
}

impl Pace {
    /// It may be looked at once.
    pub(super) const fn new(now: Instant) -> Self {
        Self { rests_until: now, rest: FIRST }
    }

    /// The end of the rest.
    pub(super) const fn rests_until(&self) -> Instant {
        self.rests_until
    }

    /// It was looked.
    pub(super) fn looked(&mut self, now: Instant) {
        // What came within the rest, or as soon behind it, goes on.
        let goes_on = now.saturating_duration_since(self.rests_until) < self.rest;
        self.rest = if goes_on { (self.rest * 2).min(LONGEST) } else { FIRST };
        self.rests_until = now + self.rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_on_is_looked_at_once_a_second_and_what_comes_now_and_then_at_once() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        let ms = Duration::from_millis;
        // Somebody who makes and removes folders without a pause: as soon as the rest is over.
        let mut now = start + ms(500);
        let mut rests = Vec::new();
        for _ in 0..7 {
            pace.looked(now);
            rests.push(pace.rests_until() - now);
            now = pace.rests_until();
        }
        assert_eq!(rests, [50, 100, 200, 400, 800, 1000, 1000].map(ms));
        // Quiet for as long as the rest was.
        now += ms(1000);
        assert!(pace.rests_until() < now, "it rests without a reason");
        pace.looked(now);
        assert_eq!(pace.rests_until() - now, FIRST);
    }
}
