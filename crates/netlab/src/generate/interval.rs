//! Intervals: Starlink assigns satellites to terminals every 15 s, everywhere at the same moment. With the
//! satellite the rate and the way change, after a short gap.
//!
//! Tanveer, Puchol, Singh, Bianchi and Nithyanand, "Making Sense of Constellations: Methodologies for
//! Understanding Starlink's Scheduling Algorithms" (CoNEXT 2023 Companion, arXiv 2307.00402).

use std::time::Duration;

use rand::Rng;
use rand::rngs::SmallRng;
use rand_distr::StandardNormal;

use crate::loss::chance;

/// How intervals differ.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct IntervalModel {
    /// How long each is.
    pub length: Duration,
    /// Standard deviation of the natural logarithm of the rate, from interval to interval.
    pub spread: f64,
    /// An interval has a delay of up to this on top of the shortest, one way, all equally probable.
    pub extra_delay: Duration,
    /// The share of intervals that bring another satellite, and with it a gap.
    pub handovers: f64,
    /// A gap is at most this long, all lengths equally probable.
    pub longest_gap: Duration,
}

/// The one that lasts.
#[derive(Debug)]
pub struct Interval {
    model: IntervalModel,
    /// When the next begins.
    ends: Duration,
    /// Until when nothing passes.
    gap_ends: Duration,
    level: f64,
}

impl Interval {
    /// Before the first. A link begins anywhere within an interval.
    #[must_use]
    pub fn new(model: IntervalModel, rng: &mut SmallRng) -> Self {
        let ends = model.length.mul_f64(rng.random());
        Self { model, ends, gap_ends: Duration::ZERO, level: draw_level(&model, rng) }
    }

    /// Whether another interval begins at `at`, and with which delay if the satellite changes.
    pub fn begins(&mut self, at: Duration, rng: &mut SmallRng) -> Option<Duration> {
        if at < self.ends {
            return None;
        }
        self.ends += self.model.length;
        if !chance(self.model.handovers, rng) {
            return None;
        }
        self.level = draw_level(&self.model, rng);
        self.gap_ends = at + self.model.longest_gap.mul_f64(rng.random());
        Some(self.model.extra_delay.mul_f64(rng.random()))
    }

    /// By what the rate is multiplied at `at`.
    #[must_use]
    pub fn factor(&self, at: Duration) -> f64 {
        if at < self.gap_ends { 0.0 } else { self.level }
    }
}

fn draw_level(model: &IntervalModel, rng: &mut SmallRng) -> f64 {
    let deviation: f64 = rng.sample(StandardNormal);
    (model.spread * deviation).exp()
}
