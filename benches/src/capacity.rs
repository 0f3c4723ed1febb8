//! Links that vary: what they could carry while a run lasted, of which its percentages are then.

use std::collections::BTreeMap;
use std::time::Duration;

use ropewalk_netlab::scenario::{Course, Link, Scenario, TraceSource};
use ropewalk_settings::Direction;

/// What each link of a point could carry in each second of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Capacity {
    /// Mbit/s at IP level, by link.
    pub links: BTreeMap<String, Vec<f64>>,
    /// Whether recordings are followed: of those, only figures may be kept.
    pub recorded: bool,
    /// Whether a link follows any trace, and so varies all the time.
    pub follows: bool,
    /// When a link last changed, in seconds since the first of these; absent where it is as at the beginning.
    pub changed_s: Option<f64>,
}

impl Capacity {
    /// Of links of which at least one varies or is shared with others, else `None`; in the direction of the
    /// traffic.
    #[must_use]
    pub fn of(scenario: &Scenario, from: Duration, seconds: u32) -> Option<Self> {
        let way = scenario.direction();
        let course = |link: &Link| {
            if way == Direction::Up { &link.upstream } else { &link.downstream }.clone()
        };
        let courses: Vec<_> = scenario.links.iter().map(course).collect();
        if !courses.iter().any(Course::varies) {
            return None;
        }
        let mut sources = courses.iter().flat_map(|course| &course.traces);
        let recorded = sources.any(|source| matches!(source, TraceSource::Recorded(_)));
        let follows = courses.iter().any(|course| !course.traces.is_empty());
        let changes = courses.iter().filter_map(|course| course.changes.last());
        let changed = changes.map(|(at, _)| at.as_secs_f64() - from.as_secs_f64());
        let changed_s = changed.filter(|at| *at > 0.0).reduce(f64::max);
        let links = scenario.links.iter().zip(&courses);
        let links = links.filter(|(link, _)| link.direction.includes(way));
        let links = links.map(|(link, course)| (link.name.clone(), course.capacity(from, seconds)));
        Some(Self { links: links.collect(), recorded, follows, changed_s })
    }

    /// Mean of all links together.
    #[must_use]
    pub fn sum_mbit(&self) -> f64 {
        self.links.values().map(|seconds| mean(seconds)).sum()
    }

    /// Mean of one link; 0 where there is none of that name.
    #[must_use]
    pub fn mean_mbit(&self, link: &str) -> f64 {
        self.links.get(link).map_or(0.0, |seconds| mean(seconds))
    }

    /// The most payload in each second that links can carry, of which `share` gives the payload's part in a
    /// link's capacity, where no more than `offered_mbit` is sent.
    #[must_use]
    pub fn limits_mbit(&self, share: &BTreeMap<String, f64>, offered_mbit: f64) -> Vec<f64> {
        let seconds = self.links.values().map(Vec::len).max().unwrap_or_default();
        let carried = |second: usize| {
            let parts = share
                .iter()
                .filter_map(|(link, part)| Some(part * self.links.get(link)?.get(second)?));
            parts.sum::<f64>().min(offered_mbit)
        };
        (0..seconds).map(carried).collect()
    }
}

/// Of figures by the second; 0 of none.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "a run has few seconds")]
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn links_that_do_not_vary_have_no_capacity_of_their_own() {
        let text = "name = 'x'\nlinks = [{ name = 'a', down = { rate_mbit = 4 } }]";
        let scenario = Scenario::parse(text, Path::new(".")).unwrap();
        assert_eq!(Capacity::of(&scenario, Duration::ZERO, 3), None);
    }

    #[test]
    fn a_link_that_does_not_vary_counts_beside_one_that_does() {
        let text = "name = 'x'\nlinks = [{ name = 'a', down = { rate_mbit = 4 } },\n\
            { name = 'b', down = { recorded = 'none', generated = 'hspa' } }]";
        let scenario = Scenario::parse(text, Path::new(".")).unwrap();
        let capacity = Capacity::of(&scenario, Duration::ZERO, 3).unwrap();
        assert!(!capacity.recorded && capacity.follows);
        assert!((capacity.mean_mbit("a") - 4.0).abs() < 1e-9);
        assert!(capacity.sum_mbit() > 4.0 && capacity.mean_mbit("c") == 0.0);
    }

    #[test]
    fn the_limit_of_each_second_is_what_links_carry_and_what_is_sent() {
        let links = [("a".to_owned(), vec![10.0, 0.0]), ("b".to_owned(), vec![10.0, 2.0])];
        let (recorded, follows, changed_s) = (false, false, None);
        let capacity = Capacity { links: links.into(), recorded, follows, changed_s };
        let share = [("a".to_owned(), 0.9), ("b".to_owned(), 0.5)];
        assert_eq!(capacity.limits_mbit(&share.clone().into(), f64::INFINITY), [14.0, 1.0]);
        assert_eq!(capacity.limits_mbit(&share.into(), 8.0), [8.0, 1.0]);
        assert_eq!(capacity.limits_mbit(&[("a".to_owned(), 0.9)].into(), 8.0), [8.0, 0.0]);
    }

    #[test]
    fn links_shared_with_others_have_what_those_leave() {
        let text = "name = 'x'\nlinks = [{ name = 'a', down = { rate_mbit = 4 },\n\
            changes = [{ at_s = 1, down = { background_mbit = 3 } }] },\n\
            { name = 'acks', direction = 'up', down = { rate_mbit = 9 } }]";
        let scenario = Scenario::parse(text, Path::new(".")).unwrap();
        let capacity = Capacity::of(&scenario, Duration::ZERO, 3).unwrap();
        assert_eq!(capacity.links, [("a".to_owned(), vec![4.0, 1.0, 1.0])].into());
        assert!(!capacity.recorded && !capacity.follows);
        assert_eq!(capacity.changed_s, Some(1.0));
    }
}
