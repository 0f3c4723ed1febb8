//! How often the rate of a path falls.
//!
//! A satellite or a radio cell gives each user another share every second: a tenth, and ten times as much again. Where that
//! happened lately, it will happen again, so that a path without a queue is believed to carry more at once, instead of after some
//! rounds: waiting costs more than the queue of one round trip that a step too far makes.

use crate::number::count;

/// Falls are forgotten with this time, seconds.
const MEMORY: f64 = 20.0;
/// A rate that falls by no more than this share of what it was lately does not count: measurements differ, and others come and go.
const USUAL: f64 = 0.2;
/// What all falls come to, beyond which they count: one fall alone, however deep, spares two rounds at most, and none after some seconds.
const ONCE: f64 = 0.4;
/// A rate that falls so long after a queue was too long fell for it, seconds: a link carries less. Without one it fell for losses: that is a
/// policer's way, and no variation.
const BY_QUEUE: f64 = 0.5;
/// Rounds that are spared for each fall of the whole rate beyond that, and at most: as many as make the step upwards the longest. With more, each
/// moment without a queue doubles the rate.
const SPARED: (f64, f64) = (6.0, 5.0);

/// The falls of the rate of one path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Variation {
    /// The sum of the falls, each a share of the rate, the older ones less; and when that was so.
    falls: f64,
    at: f64,
    /// How deep the present one is.
    fall: f64,
    /// When the queue was last too long.
    queued_at: f64,
}

impl Default for Variation {
    fn default() -> Self {
        Self { falls: 0.0, at: 0.0, fall: 0.0, queued_at: f64::NEG_INFINITY }
    }
}

impl Variation {
    /// At `t`, the queue is too long.
    pub(super) fn on_queue(&mut self, t: f64) {
        self.queued_at = t;
    }

    /// At `t`, the rate is this share of the highest of late.
    pub(super) fn on_rate(&mut self, t: f64, share: f64) {
        let fall = (1.0 - USUAL - share).max(0.0);
        self.falls *= (-(t - self.at) / MEMORY).exp();
        if t - self.queued_at <= BY_QUEUE {
            // More than spares the most rounds would only be remembered for longer.
            self.falls = (self.falls + (fall - self.fall).max(0.0)).min(ONCE + SPARED.1 / SPARED.0);
        }
        (self.at, self.fall) = (t, fall);
    }

    /// As many rounds without a queue as this need not be waited for.
    pub(super) fn spared_rounds(&self) -> u32 {
        let (for_each, most) = SPARED;
        let rounds = (for_each * (self.falls - ONCE).max(0.0)).min(most);
        u32::try_from(count(rounds)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rate, second by second, as shares of the highest that it ever has: what is spared in the end.
    fn after(rates: &[f64], queued: bool) -> u32 {
        let mut variation = Variation::default();
        let mut before = 1.0_f64;
        for (second, rate) in (0_u32..).zip(rates) {
            for tenth in 0..10 {
                let t = f64::from(second) + f64::from(tenth) / 10.0;
                if queued {
                    variation.on_queue(t);
                }
                variation.on_rate(t, rate / rate.max(before));
            }
            before = *rate;
        }
        variation.spared_rounds()
    }

    #[test]
    fn only_a_rate_that_falls_again_and_again_is_known_to_vary() {
        assert_eq!(after(&[1.0; 30], true), 0);
        assert!(after(&[1.0, 0.1, 0.1], true) <= 2, "one step, however deep");
        let measured = [1.0, 0.85, 1.0, 0.82].repeat(20);
        assert_eq!(after(&measured, true), 0, "measurements differ by as much");
        let varied = [1.0, 0.3].repeat(5);
        assert_eq!(after(&varied, true), 5);
        assert_eq!(after(&varied, false), 0, "a policer's losses");
        let varied = [1.0, 0.3].repeat(30);
        assert_eq!(after(&[varied, vec![1.0; 18]].concat(), true), 0, "it is forgotten in 20 s");
    }
}
