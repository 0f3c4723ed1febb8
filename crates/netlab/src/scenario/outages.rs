//! When links of a scenario are away.

use std::time::Duration;

use super::Scenario;
use crate::netem::Conditions;

/// A time in which the client's interface is down.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Down {
    /// When it goes, since the beginning of the scenario.
    pub from: Duration,
    /// When it is up again.
    pub until: Duration,
}

impl Scenario {
    /// The ends of outages downstream, with the place of the link; in the order in which they happen.
    #[must_use]
    pub fn returns(&self) -> Vec<(Duration, usize)> {
        let mut ends = Vec::new();
        for (place, link) in self.links.iter().enumerate() {
            let pairs = link.downstream.changes.windows(2);
            let ended = pairs.filter(|pair| is_cut(&pair[0].1) && !is_cut(&pair[1].1));
            ends.extend(ended.map(|pair| (pair[1].0, place)));
        }
        ends.sort_unstable();
        ends
    }

    /// The shortest delay of any link at the beginning: down, up.
    #[must_use]
    pub fn idle_delays(&self) -> [Duration; 2] {
        let least = |delays: &mut dyn Iterator<Item = Duration>| delays.min().unwrap_or_default();
        [
            least(&mut self.links.iter().map(|link| link.downstream.initial.delay)),
            least(&mut self.links.iter().map(|link| link.upstream.initial.delay)),
        ]
    }

    /// When the first outage downstream begins; `None` where there is none.
    #[must_use]
    pub fn first_outage(&self) -> Option<Duration> {
        let changes = self.links.iter().flat_map(|link| &link.downstream.changes);
        changes.filter(|(_, conditions)| is_cut(conditions)).map(|(at, _)| *at).min()
    }
}

const fn is_cut(conditions: &Conditions) -> bool {
    conditions.cut.is_some()
}
