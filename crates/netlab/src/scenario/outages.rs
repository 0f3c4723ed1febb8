//! When links of a scenario are away.

use std::time::Duration;

use super::file::{LinkSection, OutageKind, OutageSection, TrafficKind};
use super::value::seconds;
use super::{Scenario, ScenarioError, invalid};
use crate::netem::Conditions;
use ropewalk_settings::Direction;

/// A time in which a link is away.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Outage {
    /// When it goes, since the beginning of the scenario.
    pub from: Duration,
    /// When it is there again.
    pub until: Duration,
    /// How it goes.
    pub kind: OutageKind,
}

/// All that a section means, ascending.
pub(super) fn of(place: &str, section: &OutageSection) -> Result<Vec<Outage>, ScenarioError> {
    let at = seconds(place, "at_s of an outage", section.at_s)?;
    let length = seconds(place, "for_s of an outage", section.for_s)?;
    let every = seconds(place, "every_s of an outage", section.every_s)?;
    if section.direction != Direction::Both && section.kind != OutageKind::Silent {
        return Err(invalid(place, "only a silent outage is of one direction"));
    }
    let starts = (0..u32::from(section.times)).map(|number| at + every * number);
    Ok(starts.map(|from| Outage { from, until: from + length, kind: section.kind }).collect())
}

/// All outages of a link, in the order in which they happen.
pub(super) fn all(place: &str, link: &LinkSection) -> Result<Vec<Outage>, ScenarioError> {
    let each = link.outages.iter().map(|section| of(place, section));
    let mut outages: Vec<_> = each.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
    outages.sort_unstable();
    Ok(outages)
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

    /// When an outage of any link begins that traffic outlives by a second, ascending.
    #[must_use]
    pub fn departures(&self) -> Vec<Duration> {
        let end = self.traffic_end();
        let outages = self.links.iter().flat_map(|link| &link.outages);
        let mut starts: Vec<_> = outages.map(|outage| outage.from).collect();
        starts.retain(|from| *from + Duration::from_secs(1) <= end);
        starts.sort_unstable();
        starts
    }

    /// Until when any traffic lasts that has a length of its own.
    #[must_use]
    pub fn traffic_end(&self) -> Duration {
        let end = |start: f64, length: f64| Duration::try_from_secs_f64(start + length);
        let ends = self.traffic.iter().map(|traffic| match traffic.duration_s {
            Some(length) => end(traffic.start_s, length).unwrap_or(Duration::MAX),
            None => Duration::MAX,
        });
        ends.max().unwrap_or_default()
    }

    /// Whether it is told how long each traffic stands still where links go: beside a call, and not how soon they are used
    /// again.
    #[must_use]
    pub fn tells_stalls(&self) -> bool {
        self.traffic.iter().any(|traffic| traffic.kind == TrafficKind::Call)
            && self.links.iter().any(|link| !link.outages.is_empty())
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
