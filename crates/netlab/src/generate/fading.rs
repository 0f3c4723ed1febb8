//! Fading: the logarithm of the rate is a normal process that forgets itself exponentially (an AR(1)
//! process, the sampled Ornstein-Uhlenbeck process).
//!
//! Shadowing by buildings is log-normal with exponential correlation (Gudmundson, "Correlation model for
//! shadow fading in mobile radio systems", Electronics Letters 1991); rates measured over radio links
//! keep that shape.

use rand::Rng;
use rand::rngs::SmallRng;
use rand_distr::StandardNormal;

use super::TICK;

/// How a rate fades.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FadingModel {
    /// Standard deviation of the natural logarithm of the rate.
    pub spread: f64,
    /// Seconds after which the correlation has fallen to 1/e.
    pub coherence_s: f64,
}

/// One process.
#[derive(Debug)]
pub struct Fading {
    spread: f64,
    /// What one step leaves of the deviation before it.
    kept: f64,
    /// In units of the spread.
    deviation: f64,
    rng: SmallRng,
}

impl Fading {
    /// One that has gone on for long already.
    #[must_use]
    pub fn new(model: &FadingModel, mut rng: SmallRng) -> Self {
        let kept = (-TICK.as_secs_f64() / model.coherence_s).exp();
        Self { spread: model.spread, kept, deviation: rng.sample(StandardNormal), rng }
    }

    /// By what the median rate is multiplied for the next tick.
    pub fn next_factor(&mut self) -> f64 {
        let news: f64 = self.rng.sample(StandardNormal);
        self.deviation = self.kept * self.deviation + (1.0 - self.kept * self.kept).sqrt() * news;
        (self.spread * self.deviation).exp()
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn spread_and_coherence_are_those_of_the_model() {
        let model = FadingModel { spread: 0.7, coherence_s: 3.0 };
        let mut fading = Fading::new(&model, SmallRng::seed_from_u64(5));
        // Four hours of ticks, some 2,400 independent values.
        let logs: Vec<f64> = (0..720_000).map(|_| fading.next_factor().ln()).collect();
        let mean_of = |values: &mut dyn Iterator<Item = f64>| {
            let (sum, count) = values.fold((0.0, 0.0), |(sum, n), value| (sum + value, n + 1.0));
            sum / count
        };
        let mean = mean_of(&mut logs.iter().copied());
        let variance = mean_of(&mut logs.iter().map(|log| log * log));
        let lag = 150;
        let covariance =
            mean_of(&mut logs.iter().zip(logs.iter().skip(lag)).map(|(one, later)| one * later));
        assert!(mean.abs() < 0.05, "{mean}");
        assert!((variance.sqrt() - 0.7).abs() < 0.04, "{variance}");
        assert!((covariance / variance - (-1.0_f64).exp()).abs() < 0.06, "{covariance}");
    }
}
