//! When the only link of a scenario is read, and what came in each tenth of a second.

use std::time::Duration;

use ropewalk_proto::time::Instant;
use ropewalk_settings::Bitrate;

use super::{CONGESTION, towards};
use crate::lab::Towards;
use crate::reading::Reading;
use crate::scenario::Scenario;
use crate::scenario::file::TrafficSection;
use crate::scenario_report::ScenarioReport;
use crate::stats::mbit;

/// What the links of a scenario are read on, at moments that its traffic decides.
pub(super) struct Meter {
    way: Towards,
    /// What the first link carries the other way, in the mean of the beginning.
    back: Option<Bitrate>,
    /// When the first traffic begins and ends.
    begins: Instant,
    ends: Instant,
    /// When others that come later have been there for as long as it was alone.
    others_from: Option<Instant>,
    begin: Option<Reading>,
    others: Option<Reading>,
    end: Option<Reading>,
}

impl Meter {
    /// For a scenario that began at `start`.
    pub(super) fn new(scenario: &Scenario, start: Instant) -> Self {
        let moment = |seconds| start + Duration::from_secs_f64(seconds);
        let first = scenario.traffic.first();
        let began = first.map_or(0.0, |first| first.start_s);
        let lasts = first.and_then(|first| first.duration_s).unwrap_or(f64::from(u32::MAX));
        // Those whose congestion control virtual time lacks never come.
        let comes = |traffic: &&TrafficSection| {
            traffic.beside.is_some()
                && traffic.congestion.as_deref().is_none_or(|c| c == CONGESTION)
        };
        let beside = scenario.traffic.iter().find(comes);
        Self {
            way: towards(scenario.direction()),
            back: scenario.rate_back(),
            begins: moment(began),
            ends: moment(began + lasts),
            others_from: beside.map(|beside| moment(2.0 * beside.start_s - began)),
            begin: None,
            others: None,
            end: None,
        }
    }

    /// Reads what is due; `read` gives a link's state for the way of the data, where there is one link.
    pub(super) fn look(&mut self, now: Instant, read: impl Fn(Towards) -> Option<Reading>) {
        if now >= self.begins && self.begin.is_none() {
            self.begin = read(self.way);
        }
        if self.others_from.is_some_and(|from| now >= from) && self.others.is_none() {
            self.others = read(self.way);
        }
        if now < self.ends || self.end.is_none() {
            self.end = read(self.way);
        }
    }

    /// Notes what was read.
    pub(super) fn note(&self, report: &mut ScenarioReport) {
        let Some(end) = &self.end else { return };
        if let Some(begin) = &self.begin {
            end.note(report, begin, self.back);
        }
        if let Some(others) = &self.others {
            end.note_others(report, others);
        }
    }
}

/// Mbit/s in each whole tenth of a second of so much time from `start` on.
pub(super) fn per_tenth(
    start: Instant,
    length: Duration,
    came: impl Iterator<Item = (Instant, u64)>,
) -> Vec<f64> {
    let tenth = |time: Duration| usize::try_from(time.as_millis() / 100).unwrap_or(usize::MAX);
    let mut bytes = vec![0u64; tenth(length)];
    for (at, count) in came.filter(|(at, _)| *at >= start) {
        if let Some(bytes) = bytes.get_mut(tenth(at.since(start))) {
            *bytes += count;
        }
    }
    bytes.into_iter().map(|bytes| mbit(bytes, Duration::from_millis(100))).collect()
}
