//! Interruptions: what takes a link from time to time, such as a handover or a hole in the coverage. A
//! chain of two states, so that the times in each are distributed exponentially.

use rand::rngs::SmallRng;

use super::TICK;
use crate::loss::chance;

/// One cause.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Interruption {
    /// Mean time from the end of one to the begin of the next, in seconds.
    pub every_s: f64,
    /// Its mean length, in seconds.
    pub for_s: f64,
    /// What it leaves of the rate, 0 to 1.
    pub leaves: f64,
}

/// One cause in the course of time.
#[derive(Debug)]
pub struct Interrupted<'a> {
    model: &'a Interruption,
    now: bool,
}

impl<'a> Interrupted<'a> {
    /// Not at the beginning: nobody sets up a tunnel over a link that is away.
    #[must_use]
    pub fn new(model: &'a Interruption) -> Self {
        Self { model, now: false }
    }

    /// By what the rate is multiplied for the next tick.
    pub fn next_factor(&mut self, rng: &mut SmallRng) -> f64 {
        let mean_s = if self.now { self.model.for_s } else { self.model.every_s };
        self.now ^= chance(TICK.as_secs_f64() / mean_s, rng);
        if self.now { self.model.leaves } else { 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn the_mean_times_are_those_of_the_model() {
        let model = Interruption { every_s: 8.0, for_s: 2.0, leaves: 0.25 };
        let mut rng = SmallRng::seed_from_u64(5);
        let mut interrupted = Interrupted::new(&model);
        let ticks = 2_000_000_u32;
        let (mut within, mut begins, mut before) = (0_u32, 0_u32, 1.0);
        for _ in 0..ticks {
            let factor = interrupted.next_factor(&mut rng);
            assert!(factor == 0.25 || factor == 1.0, "{factor}");
            within += u32::from(factor < 1.0);
            begins += u32::from(factor < before);
            before = factor;
        }
        let share = f64::from(within) / f64::from(ticks);
        let length_s = f64::from(within) / f64::from(begins) * TICK.as_secs_f64();
        assert!((share - 0.2).abs() < 0.02, "{share}");
        assert!((length_s - 2.0).abs() < 0.15, "{length_s}");
    }
}
