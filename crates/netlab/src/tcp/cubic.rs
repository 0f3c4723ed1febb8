//! CUBIC (RFC 9438) as Linux has it: the window in whole segments, fast convergence, the estimate of what
//! Reno would have, and HyStart ([`super::hystart`]) at the end of slow start.

use std::time::Duration;

use ropewalk_proto::time::Instant;

use super::TICK;
use super::hystart::HyStart;

/// What is left of the window after a loss, of 1024.
const BETA: u64 = 717;
const BETA_SCALE: u64 = 1024;
/// The constant C of the cubic function, 0.4 segments a second cubed, as 410 of 1024.
const C: u64 = 410;
/// The cubic function counts time in 1/1024 s.
const TIME_BITS: u32 = 10;
/// How many acknowledged segments, of eight windows, raise Reno's estimate by one: 8 (1 + beta) / 3 (1 - beta).
const RENO_SCALE: u64 = 8 * (BETA_SCALE + BETA) / 3 / (BETA_SCALE - BETA);
/// The function is looked at this often while the window stays the same.
const UPDATE: Duration = Duration::from_millis(1000 / 32);
/// Delays are not believed for so long after a loss.
const UNSETTLED: Duration = Duration::from_secs(1);
/// Before the first loss the window grows by a twentieth a round trip at least.
const FIRST_COUNT: u64 = 20;
/// The window never grows by more than half a round trip.
const LEAST_COUNT: u64 = 2;

/// The growth of one connection's window, in segments.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Cubic {
    /// So many acknowledged segments raise the window by one.
    count: u64,
    /// Acknowledged segments since.
    acknowledged: u64,
    /// The window before the last loss, less after two in a row.
    last_max: u64,
    last_window: u64,
    last_update: Instant,
    epoch: Option<Epoch>,
    delay_min: Option<Duration>,
    pub(crate) hystart: HyStart,
}

/// Growth since the last loss.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Epoch {
    start: Instant,
    /// The window at the inflection of the function, and the time to it in 1/1024 s.
    origin: u64,
    k: u64,
    /// What Reno would have, and acknowledged segments towards its next one.
    reno: u64,
    towards_reno: u64,
}

impl Cubic {
    pub(crate) fn new() -> Self {
        Self {
            count: 0,
            acknowledged: 0,
            last_max: 0,
            last_window: 0,
            last_update: Instant::ZERO,
            epoch: None,
            delay_min: None,
            hystart: HyStart::default(),
        }
    }

    /// A round trip was measured; `true`: slow start has filled the path.
    pub(crate) fn measured(
        &mut self,
        now: Instant,
        rtt: Duration,
        window: u32,
        slow_start: bool,
    ) -> bool {
        if self.epoch.as_ref().is_some_and(|epoch| now.since(epoch.start) < UNSETTLED) {
            return false;
        }
        let delay_min = *self.delay_min.insert(self.delay_min.map_or(rtt, |min| min.min(rtt)));
        slow_start && self.hystart.measured(now, rtt, delay_min, window)
    }

    /// The window after `acked` segments came, beyond slow start.
    pub(crate) fn grow(&mut self, now: Instant, window: u32, acked: u32) -> u32 {
        let (mut window, acked) = (u64::from(window), u64::from(acked));
        self.update(now, window, acked);
        if self.acknowledged >= self.count {
            self.acknowledged = 0;
            window += 1;
        }
        self.acknowledged += acked;
        if self.acknowledged >= self.count {
            window += self.acknowledged / self.count;
            self.acknowledged %= self.count;
        }
        u32::try_from(window).unwrap_or(u32::MAX)
    }

    /// Finds how fast the window grows now.
    fn update(&mut self, now: Instant, window: u64, acked: u64) {
        if let Some(epoch) = &mut self.epoch {
            epoch.towards_reno += acked;
        }
        if self.last_window == window && now.since(self.last_update) <= UPDATE {
            return;
        }
        let same_tick = tick(now) == tick(self.last_update);
        if self.epoch.is_none() || !same_tick {
            (self.last_window, self.last_update) = (window, now);
            let last_max = self.last_max;
            let epoch =
                self.epoch.get_or_insert_with(|| Epoch::begin(now, window, last_max, acked));
            let elapsed = now.since(epoch.start) + self.delay_min.unwrap_or_default();
            let target = epoch.target(elapsed);
            self.count = if target > window { window / (target - window) } else { 100 * window };
            if self.last_max == 0 {
                self.count = self.count.min(FIRST_COUNT);
            }
        }
        if let Some(epoch) = &mut self.epoch {
            let ahead = epoch.reno_ahead(window);
            self.count = self.count.min(window.checked_div(ahead).unwrap_or(u64::MAX));
        }
        self.count = self.count.max(LEAST_COUNT);
    }

    /// A loss with this window; returns the one to go on with.
    pub(crate) fn lost(&mut self, window: u32) -> u32 {
        let window = u64::from(window);
        self.epoch = None;
        // Fast convergence: whoever did not reach the last window leaves room to others.
        self.last_max = if window < self.last_max {
            window * (BETA_SCALE + BETA) / (2 * BETA_SCALE)
        } else {
            window
        };
        u32::try_from(window * BETA / BETA_SCALE).unwrap_or(u32::MAX).max(2)
    }

    /// The count towards the next segment begins again.
    pub(crate) fn forget_count(&mut self) {
        self.acknowledged = 0;
    }

    /// A timeout: nothing of before counts.
    pub(crate) fn timed_out(&mut self, now: Instant, nxt: u64) {
        *self = Self { acknowledged: self.acknowledged, ..Self::new() };
        self.hystart.begin_round(now, nxt);
    }
}

impl Epoch {
    fn begin(start: Instant, window: u64, last_max: u64, acked: u64) -> Self {
        let (origin, k) = if last_max <= window {
            (window, 0)
        } else {
            (last_max, cubic_root((1 << 40) / C * (last_max - window)))
        };
        Self { start, origin, k, reno: window, towards_reno: acked }
    }

    /// The window that the cubic function wants after `elapsed`.
    fn target(&self, elapsed: Duration) -> u64 {
        let micros = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX >> TIME_BITS);
        let time = (micros << TIME_BITS) / 1_000_000;
        let distance = u128::from(time.abs_diff(self.k));
        let delta = (u128::from(C) * distance.pow(3)) >> (10 + 3 * TIME_BITS);
        let delta = u64::try_from(delta).unwrap_or(u64::MAX);
        if time < self.k {
            self.origin.saturating_sub(delta)
        } else {
            self.origin.saturating_add(delta)
        }
    }

    /// By how much Reno's window is larger.
    fn reno_ahead(&mut self, window: u64) -> u64 {
        let step = (window * RENO_SCALE / 8).max(1);
        self.reno += self.towards_reno.saturating_sub(1) / step;
        self.towards_reno -= self.towards_reno.saturating_sub(1) / step * step;
        self.reno.saturating_sub(window)
    }
}

fn tick(at: Instant) -> u128 {
    at.since(Instant::ZERO).as_nanos() / TICK.as_nanos()
}

/// The largest whole number whose cube is not above `value`.
fn cubic_root(value: u64) -> u64 {
    let mut root: u64 = 0;
    for bit in (0..22).rev() {
        let next = root | 1 << bit;
        if u128::from(next).pow(3) <= u128::from(value) {
            root = next;
        }
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cubic_root_is_rounded_down() {
        for (value, root) in [(0, 0), (1, 1), (7, 1), (8, 2), (26, 2), (1 << 60, 1 << 20)] {
            assert_eq!(cubic_root(value), root, "{value}");
        }
    }

    /// Windows once a round trip of 100 ms, each of whose segments is acknowledged.
    fn grow(cubic: &mut Cubic, start: Instant, window: u32, rounds: u32) -> Vec<u32> {
        let mut windows = vec![window];
        for round in 1..=rounds {
            let mut window = windows[windows.len() - 1];
            let now = start + Duration::from_millis(100) * round;
            (0..window).for_each(|_| window = cubic.grow(now, window, 1));
            windows.push(window);
        }
        windows
    }

    #[test]
    fn the_window_returns_to_where_it_was_lost_in_the_time_of_the_cubic_function() {
        let mut cubic = Cubic::new();
        let after = cubic.lost(1000);
        assert_eq!(after, 700);
        // K = (300 / 0.4)^(1/3) = 9.1 s.
        let windows = grow(&mut cubic, Instant::from_millis(50), after, 120);
        assert!((970..=1000).contains(&windows[85]), "{windows:?}");
        assert!((990..=1015).contains(&windows[95]), "{windows:?}");
        assert!(windows[120] > 1005, "{windows:?}");
        let [early, late] = [windows[20] - windows[10], windows[90] - windows[80]];
        assert!(early > 5 * late, "{windows:?}");
    }

    #[test]
    fn a_small_window_grows_as_renos_would() {
        // Reno with beta 0.7: 3 (1 - 0.7) / (1 + 0.7) = 0.53 segments a round trip.
        let mut cubic = Cubic::new();
        let after = cubic.lost(10);
        let windows = grow(&mut cubic, Instant::from_millis(50), after, 20);
        assert!((16..=19).contains(&windows[20]), "{windows:?}");
    }

    #[test]
    fn a_second_loss_below_the_first_leaves_room_to_others() {
        let mut cubic = Cubic::new();
        cubic.lost(1000);
        cubic.lost(800);
        assert_eq!(cubic.last_max, 800 * (1024 + 717) / 2048);
        cubic.lost(900);
        assert_eq!(cubic.last_max, 900);
        assert_eq!(cubic.lost(2), 2);
    }

    #[test]
    fn without_a_loss_the_window_grows_by_a_twentieth_at_least_and_by_half_at_most() {
        let windows = grow(&mut Cubic::new(), Instant::from_millis(50), 100, 5);
        assert!(windows.windows(2).all(|pair| pair[1] * 100 >= pair[0] * 104), "{windows:?}");
        assert!(windows.windows(2).all(|pair| pair[1] * 2 <= pair[0] * 3 + 2), "{windows:?}");
    }
}
