//! Pauses that grow while something does not answer.

use std::time::Duration;

use rand::Rng;
use ropewalk_proto::time::Instant;

/// How long the proxy may be silent before it is looked for again, and the longest pause after that.
const PATIENCE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(600));

/// When to look for the proxy again: while nothing answers, ever less often.
#[derive(Debug)]
pub struct Patience {
    next: Option<Instant>,
    pauses: Backoff,
}

impl Patience {
    /// Nothing is waited for yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { next: None, pauses: Backoff::new(PATIENCE) }
    }

    /// It answers, or there is nothing to ask over.
    pub fn rest(&mut self) {
        self.next = None;
        self.pauses.reset();
    }

    /// It does not answer; said as often as one likes. Returns whether it should be looked for now.
    pub fn is_due(&mut self, now: Instant, rng: &mut impl Rng) -> bool {
        let due = self.next.is_some_and(|next| next <= now);
        if due || self.next.is_none() {
            self.next = Some(now + self.pauses.next(rng));
        }
        due
    }

    /// When [`Patience::is_due`] will say yes.
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Instant> {
        self.next
    }
}

impl Default for Patience {
    fn default() -> Self {
        Self::new()
    }
}

/// Pauses that double between two bounds, each a quarter more or less by chance.
#[derive(Debug)]
pub struct Backoff {
    bounds: (Duration, Duration),
    pause: Duration,
}

impl Backoff {
    /// Between these bounds.
    #[must_use]
    pub const fn new(bounds: (Duration, Duration)) -> Self {
        Self { bounds, pause: bounds.0 }
    }

    /// The next pause.
    pub fn next(&mut self, rng: &mut impl Rng) -> Duration {
        let pause = self.pause;
        self.pause = (pause * 2).min(self.bounds.1);
        pause.mul_f64(rng.random_range(0.75..1.25))
    }

    /// From the shortest again.
    pub const fn reset(&mut self) {
        self.pause = self.bounds.0;
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    use super::*;

    #[test]
    fn patience_lasts_ever_longer_and_begins_again_after_an_answer() {
        let mut rng = SmallRng::seed_from_u64(1);
        let mut patience = Patience::new();
        let mut now = Instant::from_millis(0);
        assert_eq!(patience.poll_timeout(), None);
        let mut last = Duration::ZERO;
        for round in 0..12 {
            assert!(!patience.is_due(now, &mut rng), "round {round}");
            let next = patience.poll_timeout().unwrap();
            let pause = next.since(now);
            assert!(pause <= PATIENCE.1.mul_f64(1.25), "{pause:?}");
            assert!(round > 4 || pause > last, "{pause:?} after {last:?}");
            (now, last) = (next, pause);
            assert!(patience.is_due(now, &mut rng), "round {round}");
            // The next pause has begun with that answer.
            now += Duration::from_nanos(1);
        }
        patience.rest();
        assert!(!patience.is_due(now, &mut rng));
        assert!(patience.poll_timeout().unwrap().since(now) <= PATIENCE.0.mul_f64(1.25));
    }
}
