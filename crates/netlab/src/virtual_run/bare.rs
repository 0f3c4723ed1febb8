//! The scenario without a tunnel: its traffic goes over the first link as it is.

use ropewalk_proto::time::Instant;

use super::others::Others;
use super::traffic::{LONGEST, Site, Traffic};
use super::{REST, SETTLING, note_traffic, plan, towards};
use crate::lab::Towards;
use crate::network::{Network, Wire};
use crate::reading::Reading;
use crate::scenario::Scenario;
use crate::scenario_report::{Runner, ScenarioReport};
use crate::stream::run_all;

/// The longest packets on a link without a tunnel, bytes.
pub(super) const MTU: u16 = 1500;

impl Site for Wire {
    fn reading(&self, way: Towards) -> Option<Reading> {
        Some(Reading::of(self.now, &self.down, &self.up, way))
    }

    fn count(&mut self, _others: &mut Others) {}

    fn carried(&self) -> Vec<u64> {
        vec![self.down.counters().delivered_bytes]
    }
}

pub(super) fn run(scenario: &Scenario) -> ScenarioReport {
    let mut report = ScenarioReport::new(scenario, Runner::Virtual);
    let Some(link) = scenario.links.first() else { return report };
    let (down, up) = (link.downstream.initial.clone(), link.upstream.initial.clone());
    let mut wire = Wire::new(down, up, scenario.seed);
    wire.run_until(Instant::ZERO + SETTLING);
    let start = wire.now;
    plan(&mut wire.down, &link.downstream, start);
    plan(&mut wire.up, &link.upstream, start);
    let mut traffic = Traffic::of(scenario, [MTU, MTU], start);
    wire.others_from = traffic.others_from;
    let end = scenario.duration.unwrap_or(LONGEST);
    traffic.run(&mut wire, start + end);
    let rest = wire.now + REST;
    run_all(&mut wire, &mut traffic.streams, &mut traffic.flows, rest);
    note_traffic(&mut report, scenario, &traffic);
    let dropped = match towards(scenario.direction()) {
        Towards::Client => wire.down.counters(),
        Towards::Proxy => wire.up.counters(),
    };
    report.note_link(&dropped);
    report
}
