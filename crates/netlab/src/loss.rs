//! Which packets a link loses at random: independently, or in bursts.
//!
//! Bursts follow the two-state Markov chain of Gilbert (1960) and Elliott (1963): the link is in a
//! good or a bad state, each packet first moves the chain one step and is then lost with the
//! probability of the state it found.

use rand::Rng;

/// A loss model; a link keeps one [`LossState`] beside it.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Loss {
    /// Nothing is lost at random.
    #[default]
    None,
    /// Each packet is lost on its own with this probability (0 to 1).
    Bernoulli(f64),
    /// Losses come in bursts.
    GilbertElliott(GilbertElliott),
}

/// Parameters of the two-state chain; each is a probability from 0 to 1.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct GilbertElliott {
    /// That the next packet finds the bad state when the last one found the good state ("p").
    pub good_to_bad: f64,
    /// That the next packet finds the good state when the last one found the bad state ("r").
    pub bad_to_good: f64,
    /// That a packet is lost in the good state ("1 - k").
    pub loss_in_good: f64,
    /// That a packet is lost in the bad state ("1 - h").
    pub loss_in_bad: f64,
}

impl GilbertElliott {
    /// The simple Gilbert chain (all lost in the bad state, nothing in the good one) with this mean
    /// loss (0 to below 1) and this mean length of a burst in packets (at least 1). `None` if no such
    /// chain exists.
    #[must_use]
    pub fn from_mean_and_burst(mean: f64, burst: f64) -> Option<Self> {
        if !(0.0..1.0).contains(&mean) || burst.is_nan() || burst < 1.0 {
            return None;
        }
        // Stationary share of the bad state: p / (p + r) = mean; mean stay in it: 1 / r = burst.
        let bad_to_good = burst.recip();
        let good_to_bad = bad_to_good * mean / (1.0 - mean);
        (good_to_bad <= 1.0).then_some(Self {
            good_to_bad,
            bad_to_good,
            loss_in_good: 0.0,
            loss_in_bad: 1.0,
        })
    }

    /// The share of packets lost in the long run.
    #[must_use]
    pub fn mean_loss(&self) -> f64 {
        let bad = self.share_of_bad();
        bad * self.loss_in_bad + (1.0 - bad) * self.loss_in_good
    }

    /// The share of packets that find the bad state in the long run. A chain that never moves stays
    /// good.
    fn share_of_bad(&self) -> f64 {
        let moves = self.good_to_bad + self.bad_to_good;
        if moves > 0.0 { self.good_to_bad / moves } else { 0.0 }
    }
}

impl Loss {
    /// The share of packets lost in the long run.
    #[must_use]
    pub fn mean(&self) -> f64 {
        match self {
            Self::None => 0.0,
            Self::Bernoulli(probability) => *probability,
            Self::GilbertElliott(chain) => chain.mean_loss(),
        }
    }

    /// Whether every parameter is a probability.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let parameters = match *self {
            Self::None => [0.0; 4],
            Self::Bernoulli(p) => [p, 0.0, 0.0, 0.0],
            Self::GilbertElliott(c) => {
                [c.good_to_bad, c.bad_to_good, c.loss_in_good, c.loss_in_bad]
            }
        };
        parameters.iter().all(|p| (0.0..=1.0).contains(p))
    }
}

/// Where a link stands in its loss model. It survives a change of the model's parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LossState {
    bad: bool,
}

impl LossState {
    /// Whether the next packet is lost.
    pub fn next_is_lost(&mut self, loss: &Loss, rng: &mut impl Rng) -> bool {
        match loss {
            Loss::None => false,
            Loss::Bernoulli(probability) => chance(*probability, rng),
            Loss::GilbertElliott(chain) => {
                let leave = if self.bad { chain.bad_to_good } else { chain.good_to_bad };
                self.bad ^= chance(leave, rng);
                chance(if self.bad { chain.loss_in_bad } else { chain.loss_in_good }, rng)
            }
        }
    }
}

/// True with this probability. Unlike `random_bool` it takes any number: what is not above zero is
/// never, what is above one is always.
pub(crate) fn chance(probability: f64, rng: &mut impl Rng) -> bool {
    rng.random::<f64>() < probability
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    use super::*;

    const PACKETS: u32 = 400_000;

    /// (share lost, mean length of a run of losses) over [`PACKETS`] packets.
    fn measure(loss: Loss, seed: u64) -> (f64, f64) {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut state = LossState::default();
        let (mut lost, mut bursts, mut before) = (0_u32, 0_u32, false);
        for _ in 0..PACKETS {
            let now = state.next_is_lost(&loss, &mut rng);
            lost += u32::from(now);
            bursts += u32::from(now && !before);
            before = now;
        }
        (f64::from(lost) / f64::from(PACKETS), f64::from(lost) / f64::from(bursts.max(1)))
    }

    #[test]
    fn independent_losses_come_at_the_rate_asked_for() {
        for (seed, p) in [(1, 0.0), (2, 0.001), (3, 0.02), (4, 0.5), (5, 1.0)] {
            let (share, _) = measure(Loss::Bernoulli(p), seed);
            // Five standard deviations of a binomial share.
            let bound = 5.0 * (p * (1.0 - p) / f64::from(PACKETS)).sqrt();
            assert!((share - p).abs() <= bound, "seed {seed}: {share} instead of {p} ± {bound}");
        }
    }

    #[test]
    fn a_gilbert_chain_has_the_mean_and_the_burst_it_was_made_for() {
        for (seed, mean, burst) in [(1, 0.01, 1.0), (2, 0.02, 4.0), (3, 0.1, 10.0), (4, 0.3, 3.0)] {
            let chain = GilbertElliott::from_mean_and_burst(mean, burst).unwrap();
            assert!((chain.mean_loss() - mean).abs() < 1e-12);
            let (share, length) = measure(Loss::GilbertElliott(chain), seed);
            // Bursts are the independent samples, about `PACKETS * mean / burst` >= 2,000 of them; both
            // the share and the length deviate by about 2 / sqrt(samples): five deviations.
            let bound = 5.0 * 2.0 / (f64::from(PACKETS) * mean / burst).sqrt();
            assert!((share / mean - 1.0).abs() < bound, "seed {seed}: share {share}, not {mean}");
            assert!((length / burst - 1.0).abs() < bound, "seed {seed}: burst {length}");
        }
    }

    #[test]
    fn an_elliott_chain_loses_in_both_states() {
        let chain = GilbertElliott {
            good_to_bad: 0.01,
            bad_to_good: 0.04,
            loss_in_good: 0.005,
            loss_in_bad: 0.4,
        };
        assert!((chain.mean_loss() - (0.2 * 0.4 + 0.8 * 0.005)).abs() < 1e-12);
        let (share, _) = measure(Loss::GilbertElliott(chain), 9);
        assert!((share / chain.mean_loss() - 1.0).abs() < 0.1, "{share}");
    }

    #[test]
    fn impossible_chains_are_refused() {
        for (mean, burst) in [(1.0, 2.0), (-0.1, 2.0), (0.1, 0.5), (0.9, 1.0), (0.1, f64::NAN)] {
            assert_eq!(GilbertElliott::from_mean_and_burst(mean, burst), None, "{mean} {burst}");
        }
        assert!(!Loss::Bernoulli(1.01).is_valid());
        assert!(Loss::Bernoulli(1.0).is_valid());
    }

    #[test]
    fn a_chain_that_never_moves_stays_good() {
        let chain = GilbertElliott {
            good_to_bad: 0.0,
            bad_to_good: 0.0,
            loss_in_good: 0.0,
            loss_in_bad: 1.0,
        };
        assert!(chain.mean_loss().abs() < f64::EPSILON);
        assert!(measure(Loss::GilbertElliott(chain), 1).0.abs() < f64::EPSILON);
    }
}
