//! What the one-way delays of a path say of its queue.
//!
//! * **Noise**: `1.4 x median |d_i - 2 d_(i-1) + d_(i-2)| / 2` of delays at least 8 ms apart. A queue that grows or
//!   drains evenly gives nothing, jitter does.
//! * **Queue**: delays are gathered in slots of half a round trip (30 to 100 ms); the value of a slot is its least delay, or on
//!   a noisy path its mean. The queue is the present slot's value over the base, the least value of ten seconds.

use std::collections::VecDeque;

use super::least::Least;
use crate::number::real;

/// Samples of the noise are at least this far apart, seconds: those of one burst share their delay.
const NOISE_STEP: f64 = 0.008;
/// Differences of which the noise is the median.
const NOISE_SAMPLES: usize = 41;
/// The median of |difference| of normal noise to its standard deviation.
const NOISE_SCALE: f64 = 1.4;
/// One odd delay counts no more than this, seconds.
const NOISE_MOST: f64 = 0.1;
/// From here on a path counts as noisy, seconds: a scheduler's tick on a busy machine is less.
const NOISY: f64 = 0.002;
/// How long the base is believed, seconds.
const BASE_SPAN: f64 = 10.0;
/// Samples of the noise further apart than this say nothing of each other, seconds: between bursts of its own a queue comes
/// and goes.
const NOISE_PAUSE: f64 = 0.1;
/// Slots kept: ten seconds have 333 at most, and a rival may keep an older base.
const MOST_SLOTS: usize = 1024;
/// Delays of the last half round trip kept.
const MOST_DELAYS: usize = 512;
/// So many are kept however old they are: fewer say nothing.
const LEAST_DELAYS: usize = 3;
/// Delays before which the noise is not known.
const LEAST_NOISE_SAMPLES: usize = 8;
/// On a noisy path, a slot counts for the base if at least this share of the rate that is believed now came while it lasted. Where nothing
/// overtakes, a datagram waits for the slow ones before it: the more come, the longer each takes, without any queue.
const ALIKE: f64 = 0.6;
/// A slot has so many samples at least.
const SLOT_SAMPLES: u32 = 3;

#[derive(Clone, Copy, Debug)]
struct Slot {
    at: f64,
    value: f64,
    /// The rate at which data came when it ended, and the mean round trip.
    came: f64,
    trip: f64,
}

/// The delays of one path, all in seconds.
#[derive(Clone, Debug)]
pub(super) struct Delays {
    /// Of the last half round trip.
    recent: VecDeque<(f64, f64)>,
    slots: VecDeque<Slot>,
    slot_began: f64,
    slot_least: f64,
    slot_sum: f64,
    slot_count: u32,
    trip_sum: f64,
    trip_count: u32,
    differences: VecDeque<f64>,
    /// The last two samples of it, the older first.
    before: [Option<f64>; 2],
    noise_at: f64,
    noise: f64,
    base: f64,
    floor: f64,
    queue: f64,
    standing: Least,
    least_standing: f64,
}

impl Default for Delays {
    fn default() -> Self {
        Self {
            recent: VecDeque::new(),
            slots: VecDeque::new(),
            slot_began: 0.0,
            slot_least: f64::INFINITY,
            slot_sum: 0.0,
            slot_count: 0,
            trip_sum: 0.0,
            trip_count: 0,
            differences: VecDeque::new(),
            before: [None; 2],
            noise_at: f64::NEG_INFINITY,
            noise: 0.0,
            base: f64::INFINITY,
            floor: f64::INFINITY,
            queue: 0.0,
            standing: Least::default(),
            least_standing: 0.0,
        }
    }
}

impl Delays {
    /// The standard deviation of the delay that is no queue.
    pub(super) fn noise(&self) -> f64 {
        self.noise
    }

    /// Whether delays vary by themselves.
    pub(super) fn is_noisy(&self) -> bool {
        self.noise > NOISY
    }

    /// How long a datagram waits now.
    pub(super) fn queue(&self) -> f64 {
        self.queue
    }

    /// The least of it over the last round trips.
    pub(super) fn standing(&self) -> f64 {
        self.least_standing
    }

    /// The round trip without a queue.
    pub(super) fn floor(&self) -> Option<f64> {
        self.floor.is_finite().then_some(self.floor)
    }

    /// Enough delays came for the queue to mean something.
    pub(super) fn is_known(&self) -> bool {
        self.recent.len() >= LEAST_DELAYS && self.differences.len() >= LEAST_NOISE_SAMPLES
    }

    /// A round trip was measured.
    pub(super) fn on_trip(&mut self, trip: f64) {
        self.trip_sum += trip;
        self.trip_count += 1;
    }

    /// A delay, while data `came` at that rate, and the path is believed to carry `rate`. The base is not older than `keep_from`, or
    /// ten seconds.
    pub(super) fn on_delay(
        &mut self,
        at: f64,
        delay: f64,
        came: f64,
        rate: f64,
        srtt: f64,
        keep_from: f64,
    ) {
        self.note_noise(at, delay);
        let span = (srtt / 2.0).clamp(0.03, 0.1);
        self.recent.push_back((at, delay));
        while self.recent.len() > MOST_DELAYS
            || self.recent.len() > LEAST_DELAYS
                && self.recent.front().is_some_and(|(then, _)| *then < at - span)
        {
            self.recent.pop_front();
        }
        self.slot_sum += delay;
        self.slot_count += 1;
        self.slot_least = self.slot_least.min(delay);
        if at - self.slot_began >= span && self.slot_count >= SLOT_SAMPLES {
            self.end_slot(at, came, rate, srtt, keep_from);
        }
        let present = self.value_of_recent();
        if self.recent.len() >= LEAST_DELAYS || !self.base.is_finite() {
            self.base = self.base.min(present);
        }
        self.queue = (present - self.base).max(0.0);
        self.least_standing = self.standing.note(at, self.queue, 1.5 * srtt + 0.03);
    }

    fn value_of_recent(&self) -> f64 {
        let delays = self.recent.iter().map(|(_, delay)| *delay);
        if self.is_noisy() {
            delays.sum::<f64>() / real(self.recent.len() as u64)
        } else {
            delays.fold(f64::INFINITY, f64::min)
        }
    }

    fn note_noise(&mut self, at: f64, delay: f64) {
        if at - self.noise_at < NOISE_STEP {
            return;
        }
        if at - self.noise_at > NOISE_PAUSE {
            self.before = [None; 2];
        }
        if let [Some(first), Some(second)] = self.before {
            let difference = ((delay - 2.0 * second + first) / 2.0).abs().min(NOISE_MOST);
            if self.differences.len() >= NOISE_SAMPLES {
                self.differences.pop_front();
            }
            self.differences.push_back(difference);
            let mut differences = [0.0; NOISE_SAMPLES];
            let known = &mut differences[..self.differences.len()];
            known.iter_mut().zip(&self.differences).for_each(|(to, from)| *to = *from);
            let middle = known.len() / 2;
            self.noise = NOISE_SCALE * *known.select_nth_unstable_by(middle, f64::total_cmp).1;
        }
        self.before = [self.before[1], Some(delay)];
        self.noise_at = at;
    }

    /// What came before this moment says nothing of the path as it is now.
    pub(super) fn restart(&mut self, since: f64) {
        self.slots.retain(|slot| slot.at >= since);
        let least = |of: fn(&Slot) -> f64| self.slots.iter().map(of).fold(f64::INFINITY, f64::min);
        (self.base, self.floor) = (least(|slot| slot.value), least(|slot| slot.trip));
        self.standing.clear();
        (self.queue, self.least_standing) = (0.0, 0.0);
    }

    /// Gives back memory that is not in use.
    pub(super) fn release_memory(&mut self) {
        self.recent.drain(..self.recent.len().saturating_sub(LEAST_DELAYS));
        self.recent.shrink_to_fit();
        self.slots.shrink_to_fit();
    }

    fn end_slot(&mut self, at: f64, came: f64, rate: f64, srtt: f64, keep_from: f64) {
        let mean = self.slot_sum / f64::from(self.slot_count);
        let value = if self.is_noisy() { mean } else { self.slot_least };
        let trip =
            if self.trip_count > 0 { self.trip_sum / f64::from(self.trip_count) } else { srtt };
        self.slots.push_back(Slot { at, value, came, trip });
        let old = (at - BASE_SPAN).min(keep_from);
        while self.slots.len() > MOST_SLOTS
            || self.slots.len() > 1 && self.slots.front().is_some_and(|slot| slot.at < old)
        {
            self.slots.pop_front();
        }
        let noisy = self.is_noisy();
        let is_alike = |slot: &Slot| !noisy || slot.came >= ALIKE * rate;
        // After a long time with little to send there is nothing better.
        let takes_all = !self.slots.iter().any(is_alike);
        let least = |of: fn(&Slot) -> f64| {
            let counted = self.slots.iter().filter(|slot| takes_all || is_alike(slot));
            counted.map(of).fold(f64::INFINITY, f64::min)
        };
        (self.base, self.floor) = (least(|slot| slot.value), least(|slot| slot.trip));
        (self.slot_began, self.slot_least) = (at, f64::INFINITY);
        (self.slot_sum, self.slot_count) = (0.0, 0);
        (self.trip_sum, self.trip_count) = (0.0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the path carries, bytes a second.
    const FAST: f64 = 10e6;

    /// One datagram each `step` seconds, whose delays are the two of `between` in turn, while data `came` at that rate. Returns when the last one came.
    fn feed(
        delays: &mut Delays,
        from: f64,
        seconds: f64,
        step: f64,
        between: [f64; 2],
        came: f64,
    ) -> f64 {
        let mut at = from;
        let mut turn = 0;
        while at < from + seconds {
            delays.on_delay(at, between[turn], came, FAST, 0.07, at);
            delays.on_trip(between[turn] + 0.02);
            turn = 1 - turn;
            at += step;
        }
        at
    }

    #[test]
    fn what_few_datagrams_take_does_not_make_the_delay_of_many_a_queue() {
        for (few, expected) in [(0.1 * FAST, 0.0..0.01), (0.9 * FAST, 0.015..0.03)] {
            let mut delays = Delays::default();
            let at = feed(&mut delays, 0.0, 3.0, 0.009, [0.038, 0.046], FAST);
            assert!(delays.is_noisy());
            let at = feed(&mut delays, at, 1.0, 0.015, [0.018, 0.026], few);
            let at = feed(&mut delays, at, 1.0, 0.009, [0.038, 0.046], FAST);
            let queue = delays.queue();
            assert!(expected.contains(&queue), "{few}: {queue}");
            feed(&mut delays, at, 11.0, 0.015, [0.018, 0.026], 0.1 * FAST);
            let floor = delays.floor().expect("it is known");
            assert!(
                (0.035..0.05).contains(&floor),
                "after ten seconds nothing else is known: {floor}"
            );
        }
    }
}
