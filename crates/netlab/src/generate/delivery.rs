//! From a rate to single packets: a Poisson process whose rate varies. With everything else alike, the gap
//! until the next packet is exponential, counted in packets that the rate would have carried.

use std::time::Duration;

use rand::Rng;
use rand::rngs::SmallRng;
use rand_distr::Exp1;

use super::TICK;
use crate::trace::{OPPORTUNITY_BYTES, Trace, TraceError};

/// One direction.
#[derive(Debug)]
pub struct Delivery {
    at_ms: Vec<u32>,
    /// What the rate must still carry until the next packet leaves, in packets.
    until_next: f64,
    rng: SmallRng,
}

impl Delivery {
    /// With nothing sent yet.
    #[must_use]
    pub fn new(mut rng: SmallRng) -> Self {
        Self { at_ms: Vec::new(), until_next: rng.sample(Exp1), rng }
    }

    /// One tick from `at` on, with this rate at IP level.
    pub fn advance(&mut self, at: Duration, mbit: f64) {
        #[expect(clippy::cast_precision_loss, reason = "1500")]
        let packets_per_s = mbit * 1e6 / (8.0 * OPPORTUNITY_BYTES as f64);
        let carried = packets_per_s * TICK.as_secs_f64();
        let mut passed = 0.0;
        while carried - passed > self.until_next {
            passed += self.until_next;
            let moment = at + TICK.mul_f64(passed / carried);
            // An hour at most; and a packet that leaves within a millisecond can be used at its end.
            self.at_ms.push(u32::try_from(moment.as_millis() + 1).unwrap_or(u32::MAX));
            self.until_next = self.rng.sample(Exp1);
        }
        self.until_next -= carried - passed;
    }

    /// The trace, one round of which lasts until `end`. Its format demands a packet at that moment.
    pub fn finish(mut self, end: Duration) -> Result<Trace, TraceError> {
        let end_ms = u32::try_from(end.as_millis()).unwrap_or(u32::MAX);
        if self.at_ms.last() != Some(&end_ms) {
            self.at_ms.push(end_ms);
        }
        Trace::new(self.at_ms)
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn packets_come_at_the_rate_with_the_spread_of_a_poisson_process() {
        let mut delivery = Delivery::new(SmallRng::seed_from_u64(5));
        let ticks = 5_000_u32;
        for tick in 0..ticks {
            // Ten packets a tick.
            delivery.advance(TICK * tick, 6.0);
        }
        let trace = delivery.finish(TICK * ticks).unwrap();
        assert_eq!(trace.period(), TICK * ticks);
        let seconds = trace.per_second();
        let mean = seconds.iter().sum::<f64>() / 100.0;
        let variance = seconds.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / 100.0;
        assert!((mean - 6.0).abs() < 0.1, "{mean}");
        // 500 packets a second: a deviation of the root of 500, in units of 0.012 Mbit/s.
        assert!((variance.sqrt() - 0.268).abs() < 0.06, "{variance}");
    }

    #[test]
    fn nothing_leaves_while_there_is_no_rate() {
        let mut delivery = Delivery::new(SmallRng::seed_from_u64(5));
        delivery.advance(Duration::ZERO, 0.0);
        assert_eq!(delivery.finish(TICK).unwrap(), Trace::new(vec![20]).unwrap());
    }
}
