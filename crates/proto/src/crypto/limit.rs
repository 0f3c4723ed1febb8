//! How often something may happen: a token bucket without a clock.

use crate::time::Instant;

/// Lets `rate` events a second pass, and `burst` at once after a pause.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenBucket {
    /// Nanoseconds of credit that one event costs.
    cost: u64,
    /// Credit never grows beyond this.
    full: u64,
    credit: u64,
    at: Instant,
}

impl TokenBucket {
    /// A full bucket. A rate of zero lets `burst` events pass, ever.
    #[must_use]
    pub(crate) const fn new(now: Instant, rate: u32, burst: u32) -> Self {
        let cost = match 1_000_000_000_u64.checked_div(rate as u64) {
            Some(0) => 1,
            Some(cost) => cost,
            None => u64::MAX / (u32::MAX as u64 + 1),
        };
        let full = cost * burst as u64;
        Self { cost, full, credit: full, at: now }
    }

    /// Takes one token, if there is one. A clock that is read out of order gives no credit.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        self.credit = self.credit(now);
        self.at = self.at.max(now);
        let Some(rest) = self.credit.checked_sub(self.cost) else {
            return false;
        };
        self.credit = rest;
        true
    }

    /// Whether less than half was left when it was last asked.
    pub(crate) const fn is_low(&self) -> bool {
        self.credit < self.full / 2
    }

    /// What there is to spend, in a measure that is the same for all buckets of this rate and burst.
    pub(crate) fn credit(&self, now: Instant) -> u64 {
        let earned = u64::try_from(now.since(self.at).as_nanos()).unwrap_or(u64::MAX);
        self.credit.saturating_add(earned).min(self.full)
    }

    /// Puts the token back that was just taken: it was for something else.
    pub(crate) fn give_back(&mut self) {
        self.credit = self.credit.saturating_add(self.cost).min(self.full);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_then_the_rate_holds() {
        let mut bucket = TokenBucket::new(Instant::ZERO, 10, 5);
        let passed = |bucket: &mut TokenBucket, from: u64, to: u64| {
            (from..to).filter(|&ms| bucket.take(Instant::from_millis(ms))).count()
        };
        assert_eq!(passed(&mut bucket, 0, 10), 5);
        assert_eq!(passed(&mut bucket, 10, 10_010), 100);
        // A pause of an hour gives a burst, not an hour's worth.
        assert_eq!(passed(&mut bucket, 3_610_000, 3_610_050), 5);
    }

    #[test]
    fn a_bucket_is_low_from_half_on() {
        let mut bucket = TokenBucket::new(Instant::ZERO, 10, 4);
        let low: Vec<bool> = (0..5)
            .map(|_| {
                bucket.take(Instant::ZERO);
                bucket.is_low()
            })
            .collect();
        assert_eq!(low, [false, false, true, true, true]);
        assert_eq!(bucket.credit(Instant::ZERO), 0);
        assert_eq!(bucket.credit(Instant::from_millis(400)), bucket.full);
        bucket.take(Instant::from_millis(400));
        assert!(!bucket.is_low());
    }

    #[test]
    fn a_token_given_back_can_be_taken_again_and_the_bucket_holds_no_more_than_before() {
        let mut bucket = TokenBucket::new(Instant::ZERO, 10, 2);
        for _ in 0..100 {
            assert!(bucket.take(Instant::ZERO));
            bucket.give_back();
        }
        bucket.give_back();
        let taken = (0..10).filter(|_| bucket.take(Instant::ZERO)).count();
        assert_eq!(taken, 2);
    }

    #[test]
    fn a_clock_read_out_of_order_gives_no_credit() {
        let mut bucket = TokenBucket::new(Instant::from_millis(1_000), 1, 1);
        assert!(bucket.take(Instant::from_millis(1_000)));
        assert!(!bucket.take(Instant::from_millis(0)));
        assert!(!bucket.take(Instant::from_millis(1_000)));
        assert!(bucket.take(Instant::from_millis(2_000)));
    }

    #[test]
    fn the_extremes_of_rate_and_burst_do_not_overflow() {
        for (rate, burst) in [(0, 0), (0, u32::MAX), (u32::MAX, u32::MAX), (u32::MAX, 1)] {
            let mut bucket = TokenBucket::new(Instant::ZERO, rate, burst);
            assert_eq!(bucket.take(Instant::ZERO), burst > 0, "{rate} {burst}");
            bucket.take(Instant::from_nanos(u64::MAX));
        }
    }
}
