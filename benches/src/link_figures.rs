//! Where links are judged one by one: what a load does to its link, and how soon it has it.

use ropewalk_netlab::scenario_report::ScenarioReport;

use crate::capacity::mean;

/// Figures of the link that mean the same in a scenario's report.
const COMMON: [&str; 5] = [
    "link_wait_p50_ms",
    "link_wait_p95_ms",
    "link_dropped_percent",
    "link_back_percent",
    "others_share_percent",
];
/// Of the second half of the run, when everybody has had time to find the rate.
const SECOND_HALF: &str = "second_half_percent_of_limit";
/// From the beginning, or from the last change of the link, until half a second has [`REACHED`] of the limit.
const REACHED_AFTER: &str = "reached_after_s";
const REACHED: f64 = 0.9;
/// Tenths of a second of which that is the mean.
const WINDOW: usize = 5;

/// What is known of a run.
#[derive(Clone, Copy, Debug)]
pub struct LinkFigures<'a> {
    /// What was measured.
    pub report: &'a ScenarioReport,
    /// Goodput in each second, Mbit/s.
    pub seconds: &'a [f64],
    /// The most that it can be in each second.
    pub limits: &'a [f64],
    /// When the link last changed, in seconds since the beginning.
    pub changed: Option<f64>,
    /// Whether it varies all the time, so that there is no limit to be reached once.
    pub follows: bool,
}

impl LinkFigures<'_> {
    /// Hands out each figure with its name; what was not measured is no number.
    pub fn each(&self, mut note: impl FnMut(&str, f64)) {
        for name in COMMON {
            note(name, self.report.value(name));
        }
        note(SECOND_HALF, second_half(self.seconds, self.limits));
        if let Some(limit) = self.limits.last().filter(|_| !self.follows) {
            let after = reached_after(&self.report.per_tenth, self.changed.unwrap_or(0.0), *limit);
            note(REACHED_AFTER, after.unwrap_or(f64::NAN));
        }
    }
}

/// See [`SECOND_HALF`]; in percent.
fn second_half(seconds: &[f64], limits: &[f64]) -> f64 {
    let half = seconds.len() / 2;
    let limits = limits.get(half..seconds.len().min(limits.len())).unwrap_or_default();
    100.0 * mean(&seconds[half..]) / mean(limits)
}

/// See [`REACHED_AFTER`].
fn reached_after(tenths: &[f64], changed: f64, limit: f64) -> Option<f64> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a run has few tenths of a second, and none before its beginning"
    )]
    let from = (changed * 10.0).ceil() as usize;
    let windows = tenths.get(from..)?.windows(WINDOW);
    let reached = windows.map(mean).position(|goodput| goodput >= REACHED * limit)?;
    #[expect(clippy::cast_precision_loss, reason = "few tenths")]
    let after = reached as f64 / 10.0;
    Some(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_half_is_judged_by_the_limits_of_its_seconds() {
        assert_eq!(second_half(&[1.0, 2.0, 6.0, 3.0], &[10.0, 10.0, 10.0, 5.0]), 60.0);
        assert_eq!(second_half(&[1.0, 2.0, 8.0], &[10.0, 10.0, 10.0, 10.0]), 50.0);
        assert!(second_half(&[], &[]).is_nan());
    }

    #[test]
    fn a_rate_is_reached_when_half_a_second_in_a_row_has_it() {
        let mut tenths = vec![1.0; 10];
        tenths.extend([9.5; 4]);
        tenths.extend([5.0; 6]);
        tenths.extend([9.5; 20]);
        // A mean of 9 needs one tenth of 5 among five of at most 10: none of 9.5 allows that.
        assert_eq!(reached_after(&tenths, 0.0, 10.0), Some(2.0));
        assert_eq!(reached_after(&tenths, 2.05, 10.0), Some(0.0), "counted from a change on");
        assert_eq!(reached_after(&tenths, 0.0, 20.0), None);
        assert_eq!(reached_after(&tenths, 99.0, 10.0), None);
    }
}
