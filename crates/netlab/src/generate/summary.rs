//! What a trace is like in a few figures, over seconds: those given with published recordings.

use serde::Serialize;

use crate::trace::Trace;

/// Below this a second counts as an outage, in Mbit/s.
pub const OUTAGE_MBIT: f64 = 0.1;

/// Figures over the seconds of one round, in Mbit/s.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Summary {
    /// The mean.
    pub mean_mbit: f64,
    /// The 5th percentile (nearest rank).
    pub p5_mbit: f64,
    /// The 95th percentile.
    pub p95_mbit: f64,
    /// The largest.
    pub max_mbit: f64,
    /// Seconds below [`OUTAGE_MBIT`].
    pub outage_s: usize,
    /// Seconds in all.
    pub seconds: usize,
}

impl Summary {
    /// Of a trace.
    #[must_use]
    pub fn of(trace: &Trace) -> Self {
        let mut seconds = trace.per_second();
        seconds.sort_unstable_by(f64::total_cmp);
        let rank = |percent: usize| {
            let index = (seconds.len() * percent).div_ceil(100).max(1) - 1;
            seconds.get(index).copied().unwrap_or_default()
        };
        #[expect(clippy::cast_precision_loss, reason = "a trace has far fewer than 2^52 seconds")]
        let count = seconds.len().max(1) as f64;
        Self {
            mean_mbit: seconds.iter().sum::<f64>() / count,
            p5_mbit: rank(5),
            p95_mbit: rank(95),
            max_mbit: rank(100),
            outage_s: seconds.iter().filter(|mbit| **mbit < OUTAGE_MBIT).count(),
            seconds: seconds.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_of_whole_seconds() {
        // A packet of 12,000 bits a millisecond is 12 Mbit/s; the second second has eight packets.
        let mut at_ms: Vec<u32> = (1..=1000).collect();
        at_ms.extend([1100, 1200, 1300, 1400, 1500, 1600, 1700, 2000]);
        let summary = Summary::of(&Trace::new(at_ms).unwrap());
        let expected = Summary {
            mean_mbit: 6.048,
            p5_mbit: 0.096,
            p95_mbit: 12.0,
            max_mbit: 12.0,
            outage_s: 1,
            seconds: 2,
        };
        assert_eq!(summary, expected);
    }
}
