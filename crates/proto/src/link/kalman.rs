//! A scalar Kalman filter: softens the spikes of a measured rate (BATCP, Amezcua Valdovinos et al. 2017 §3.5).
//!
//! The paper names the filter and neither its model nor its parameters; they are these. The state is the
//! link's throughput `x`. Between two measurements it wanders (a random walk):
//! `x[k] = x[k-1] + w, w ~ N(0, Q)`; a measurement sees it through noise: `z[k] = x[k] + v, v ~ N(0, R)`.
//! Rates differ by orders of magnitude, and so do their spreads, which is why the spreads are relative:
//! `Q = (q x)^2` for each second that passed and `R = (r x)^2`.
//!
//! ```text
//! predict:  P += Q dt            K = P / (P + R)
//! correct:  x += K (z - x)       P = (1 - K) P
//! ```

use crate::time::{Duration, Instant};

/// How far a link's throughput wanders in a second, of itself: recorded LTE links change by about a third from one
/// second to the next.
const WANDER: f64 = 0.3;

/// How far one measurement is off, of the throughput: reports come in bursts, and a sample of few
/// datagrams is easily half or twice the truth.
const NOISE: f64 = 0.5;

/// Below this the relative spreads would freeze the filter, in the unit of the measurements.
const LEAST: f64 = 1e-3;

/// No rate is higher; far below where a square overflows.
const MOST: f64 = 1e18;

/// After a longer pause the state says nothing more.
const FORGET: Duration = Duration::from_secs(30);

/// The filter.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Kalman {
    state: Option<State>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    estimate: f64,
    variance: f64,
    at: Instant,
}

impl Kalman {
    /// The estimate, in the unit of the measurements; `None` before the first.
    #[must_use]
    pub(super) fn estimate(&self) -> Option<f64> {
        self.state.map(|state| state.estimate)
    }

    /// A measurement, taken at `now`. What is no number, or negative, is not one.
    pub(super) fn on_sample(&mut self, now: Instant, measured: f64) {
        if measured.is_nan() || measured < 0.0 {
            return;
        }
        let measured = measured.min(MOST);
        let fresh = State { estimate: measured, variance: noise(measured), at: now };
        let state = match self.state {
            Some(state) if now.since(state.at) < FORGET => state.corrected(now, measured),
            _ => fresh,
        };
        self.state = Some(state);
    }
}

impl State {
    fn corrected(self, now: Instant, measured: f64) -> Self {
        let elapsed = now.since(self.at).as_secs_f64();
        let variance = self.variance + (WANDER * self.estimate.max(LEAST)).powi(2) * elapsed;
        let gain = variance / (variance + noise(self.estimate));
        Self {
            estimate: self.estimate + gain * (measured - self.estimate),
            variance: (1.0 - gain) * variance,
            at: now,
        }
    }
}

/// R.
fn noise(rate: f64) -> f64 {
    (NOISE * rate.max(LEAST)).powi(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The filter after samples that came every 100 ms.
    fn after(samples: impl IntoIterator<Item = f64>) -> f64 {
        let mut filter = Kalman::default();
        let mut now = Instant::ZERO;
        for sample in samples {
            filter.on_sample(now, sample);
            now += Duration::from_millis(100);
        }
        filter.estimate().unwrap_or(f64::NAN)
    }

    #[test]
    fn a_spike_is_softened() {
        let spiky = (0..50).map(|n| if n == 49 { 1000.0 } else { 100.0 });
        let estimate = after(spiky);
        assert!((100.0..300.0).contains(&estimate), "{estimate}");
    }

    #[test]
    fn noise_of_half_the_rate_is_smoothed_to_a_tenth() {
        let noisy = (0..200).map(|n| if n % 2 == 0 { 50.0 } else { 150.0 });
        let estimate = after(noisy);
        assert!((90.0..110.0).contains(&estimate), "{estimate}");
    }

    #[test]
    fn a_lasting_change_is_followed_within_two_seconds() {
        for to in [20.0, 400.0] {
            let estimate = after((0..70).map(|n| if n < 50 { 100.0 } else { to }));
            assert!((estimate - to).abs() < 0.2 * to, "to {to}: {estimate}");
        }
    }

    #[test]
    fn the_estimate_stays_finite_and_is_never_negative() {
        for odd in [0.0, f64::MAX, f64::INFINITY, f64::NAN, -1.0, 1e-300] {
            let estimate = after([1.0, odd, 0.0, 1.0, odd, 5.0]);
            assert!(estimate.is_finite() && estimate >= 0.0, "{odd}: {estimate}");
        }
    }

    #[test]
    fn after_a_long_pause_the_first_measurement_counts_alone() {
        let mut filter = Kalman::default();
        filter.on_sample(Instant::ZERO, 100.0);
        filter.on_sample(Instant::ZERO + FORGET, 7.0);
        assert_eq!(filter.estimate(), Some(7.0));
    }
}
