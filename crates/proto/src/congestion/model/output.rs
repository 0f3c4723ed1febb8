//! What follows from the model: a gain on the rate, the pace, and the window.

use ropewalk_settings::Bitrate;

use super::phases::YIELDED;
use super::{FAR, FULL, INITIAL_WINDOW, LEAST_WINDOW, Model, Phase};
use crate::congestion::MAX_WINDOW;
use crate::number::count;

/// Full datagrams that may leave within a round trip while nothing waits.
const INITIAL_FLIGHT: f64 = 10.0;

/// After so long without a queue its last one says nothing of the rate, seconds.
const UNQUEUED: f64 = 10.0;

/// Places beyond what the path holds: what joined packets and reports hold up.
pub(super) const SLACK: f64 = 12.0;

/// Pace and window over the rate while starting: 2 / ln 2, the least with which a rate can double each round (draft-cardwell-iccrg-bbr).
const STARTUP_GAIN: f64 = 2.885;

/// What the window grows by for each place that is confirmed while starting.
const STARTUP_GROWTH: f64 = 2.0;

/// Pace over what trains arrive at: enough to see whether the path carries more.
const TRAIN_GAIN: f64 = 1.06;

/// Pace over the rate while little is sent and nothing waits: an inner TCP that starts doubles.
const UNLIMITED_GAIN: f64 = 2.0;

/// The same while a queue told lately what the path carries: a longer burst would wait there.
const KNOWN_GAIN: f64 = 1.25;

/// By how much pace differs from the rate: for each second of queue below or above the target, a round trip, seconds.
const SLOPE: f64 = 0.4;

/// What the link asks for each datagram: worked out when the model changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Output {
    /// The window in places.
    pub(super) window: u32,
    /// `None`: as fast as the window lets.
    pub(super) pace: Option<Bitrate>,
    /// The rate that is believed, if any is.
    pub(super) rate: Option<Bitrate>,
}

impl Default for Output {
    /// That of a path of which nothing is known.
    fn default() -> Self {
        Self { window: whole(INITIAL_WINDOW), pace: None, rate: None }
    }
}

/// So many places, the last of which may be a part.
fn whole(places: f64) -> u32 {
    u32::try_from(count(places.ceil())).unwrap_or(MAX_WINDOW).min(MAX_WINDOW)
}

impl Model {
    pub(super) fn set_output(&mut self) {
        let rate = |bytes: f64| Bitrate::from_bps(count(bytes * 8.0).max(1));
        let places = if self.timed_out { LEAST_WINDOW } else { self.window / self.place };
        self.output = Output {
            window: whole(places),
            pace: (self.pace > 0.0 && self.pace.is_finite()).then(|| rate(self.pace)),
            rate: (self.rate > 0.0).then(|| rate(self.rate)),
        };
    }

    pub(super) fn set_gain(&mut self, t: f64) {
        self.gain = match (self.phase, self.rival.is_some()) {
            (Phase::Startup, _) => STARTUP_GAIN,
            (Phase::Drain, _) => 0.5,
            (Phase::Refresh { .. }, true) => 0.9,
            (Phase::Refresh { deep: true }, false) => {
                0.9 * (self.rates.short.max(0.05 * self.rate) / self.rate.max(1.0)).min(1.0)
            }
            (Phase::Refresh { deep: false }, false) if t - self.since < self.refresh_for => 0.75,
            (Phase::Refresh { deep: false }, false) | (Phase::Cruise, true) => 1.0,
            (Phase::Cruise, false) => self.cruise_gain(t),
        };
    }

    pub(super) fn cruise_gain(&self, t: f64) -> f64 {
        let (queue, target) = (self.queue(), self.target());
        let error = SLOPE * (target - queue) / self.srtt.max(0.01);
        if error < 0.0 {
            let least = if queue > 3.0 * self.limit() { -0.5 } else { -0.25 };
            return 1.0 + error.max(least);
        }
        if self.losses.is_held(t) {
            return 1.0;
        }
        if !self.rates.held_back {
            return if self.knows_rate(t) { KNOWN_GAIN } else { UNLIMITED_GAIN };
        }
        let free_rounds = self.free_rounds.saturating_add(self.variation.spared_rounds());
        let most = match free_rounds {
            5.. => 1.0,
            3.. => 0.5,
            _ => 0.25,
        };
        1.0 + (error * f64::from(1 << free_rounds.min(8))).min(most)
    }

    /// Whether a queue told lately what the path carries, and nothing since that it is less: a burst that leaves faster would only
    /// wait there. Where delays vary by themselves a queue tells little.
    fn knows_rate(&self, t: f64) -> bool {
        let has_fallen = self.rate < YIELDED.2 * self.lately;
        t - self.queued_at <= UNQUEUED && !self.delays.is_noisy() && !has_fallen
    }

    pub(super) fn set_pace(&mut self, t: f64) {
        let cap = self.losses.cap(t).unwrap_or(f64::INFINITY);
        let pace = match (self.phase, &self.rival) {
            (Phase::Startup, _) => {
                let noisy = self.delays.is_noisy();
                let far = self.delays.floor().filter(|floor| noisy && *floor > FAR.0);
                let pace = match (self.trains.rate().filter(|_| !noisy), far) {
                    (Some(rate), _) => TRAIN_GAIN * rate,
                    (None, Some(floor)) => STARTUP_GROWTH * self.window / floor.min(FAR.1),
                    (None, None) => f64::INFINITY,
                };
                pace.min(self.returned_pace())
            }
            (Phase::Cruise, Some(rival)) => 1.2 * rival.window * self.place / self.srtt.max(0.001),
            (_, Some(_)) => self.gain * self.rate,
            (_, None) => (self.gain * self.rate).min(0.98 * cap),
        };
        self.pace = pace.max(self.least_pace(t));
    }

    /// While nothing ever waits, little is known of the rate: what a connection may send at first (RFC 6928) may always leave within a round
    /// trip. Else a link on which hardly anything was sent could keep to a rate that starves who begins.
    pub(super) fn least_pace(&self, t: f64) -> f64 {
        let is_unknown = t - self.queued_at > UNQUEUED && self.srtt > 0.0 && self.rival.is_none();
        if is_unknown { INITIAL_FLIGHT * FULL / self.srtt } else { 0.0 }
    }

    /// The window is for safety; the pace does the work. So much was confirmed, at `t`.
    pub(super) fn set_window(&mut self, t: f64, confirmed: f64) {
        let floor = self.delays.floor().unwrap_or(self.srtt);
        let slack = SLACK * self.place;
        self.window = match (self.phase, &self.rival) {
            (Phase::Cruise, Some(rival)) => rival.window * self.place,
            (_, Some(_)) => (0.9 * self.rate * floor).min(self.company.withdrawn_window(t)),
            (Phase::Startup, None) => {
                let target =
                    STARTUP_GAIN * self.rate * (floor.min(self.srtt) + self.lateness) + slack;
                let grows = self.window < target || self.rate <= 0.0;
                self.window + if grows { STARTUP_GROWTH * confirmed } else { 0.0 }
            }
            (Phase::Refresh { deep: true }, None) => {
                0.9 * self.rate.min(self.rates.short) * floor.min(self.srtt) + 2.0 * self.place
            }
            (_, None) => {
                // Not the least round trip alone: jitter would starve the path.
                let spare = (0.03 + self.limit() + 2.0 * self.noise()).max(floor / 4.0);
                self.rate * self.gain.max(1.0) * (floor + spare + self.lateness) + slack
            }
        };
        let most = f64::from(MAX_WINDOW) * self.place;
        self.window = self.window.clamp(LEAST_WINDOW * self.place, most);
    }
}
