//! What the traffic did to the only link of a scenario, and what others had of it.

use std::time::Duration;

use super::Play;
use crate::error::LabError;
use crate::limit::{TCP_HEADERS, UDP_HEADERS, bare_payload_share, payload_share};
use crate::netem::Counters;
use crate::per_second::PerSecond;
use crate::reading::Reading;
use crate::scenario::Scenario;
use crate::scenario::file::{TrafficKind, TrafficSection};
use crate::scenario_report::ScenarioReport;
use ropewalk_settings::Direction;

/// The link when the first traffic began and when it ended.
pub(super) struct Readings {
    begin: Reading,
    end: Reading,
}

impl Readings {
    pub(super) fn note(&self, report: &mut ScenarioReport, scenario: &Scenario) {
        self.end.note(report, &self.begin, scenario.rate_back());
    }
}

impl Play<'_> {
    /// Reads the link at both moments; `None` where there are several, or no emulator.
    pub(super) fn readings(&self) -> Result<Option<Readings>, LabError> {
        let (Some(first), 1) = (self.scenario.traffic.first(), self.scenario.links.len()) else {
            return Ok(None);
        };
        let begins = Duration::from_secs_f64(first.start_s);
        let lasts = Duration::from_secs_f64(first.duration_s.unwrap_or_default());
        self.sleep_until(begins);
        let begin = self.reading()?;
        self.sleep_until(begins + lasts);
        Ok(begin.zip(self.reading()?).map(|(begin, end)| Readings { begin, end }))
    }

    fn reading(&self) -> Result<Option<Reading>, LabError> {
        let Some(emulator) = self.stage.topology().emulator() else { return Ok(None) };
        let report = emulator.report()?;
        let both = report.links.first().zip(report.waits.into_iter().next());
        Ok(both.map(|(link, [up, down])| {
            let (data, back, waits) = match self.scenario.direction() {
                Direction::Up => (link.upstream, link.downstream, up),
                Direction::Down | Direction::Both => (link.downstream, link.upstream, down),
            };
            // The emulator does not know whose a frame is.
            Reading { at: emulator.now(), data, back, others: Counters::default(), waits }
        }))
    }
}

/// The share that others, who had so much in each second since they came, have of what was carried once they had
/// been there as long as the first traffic was alone; at IP level, in percent. Packets inside the tunnel have up to `mtu`
/// bytes.
pub(super) fn others_share(
    report: &ScenarioReport,
    scenario: &Scenario,
    mtu: u16,
    section: &TrafficSection,
    others: &PerSecond,
) -> Option<f64> {
    let first = scenario.traffic.first()?;
    let (name, headers) = match first.kind {
        TrafficKind::Udp => ("udp", UDP_HEADERS),
        _ => ("tcp", TCP_HEADERS),
    };
    let share = match scenario.tunnel.absent {
        true => bare_payload_share(headers),
        false => payload_share(mtu, headers),
    };
    let ours = report.per_second.get(name)?;
    let others = others.mbit(ours.len());
    let alone = Duration::from_secs_f64(section.start_s - first.start_s).as_secs();
    let alone = usize::try_from(alone).unwrap_or(usize::MAX);
    let sum = |seconds: &[f64], from: usize| -> f64 {
        seconds.get(from..).unwrap_or_default().iter().sum()
    };
    let ours = sum(ours, 2 * alone) / share;
    let others = sum(&others[..others.len().saturating_sub(alone)], alone);
    let others = others / bare_payload_share(TCP_HEADERS);
    Some(100.0 * others / (others + ours))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::scenario_report::Runner;

    #[test]
    fn others_have_their_share_of_the_time_in_which_both_had_settled() {
        let text = "name = 'x'\nlinks = [{ name = 'a' }]\ntraffic = [\
            { kind = 'tcp', duration_s = 6, start_s = 0.5 },\
            { kind = 'tcp', duration_s = 4, start_s = 2.5, beside = 'bare' }]\n\
            tunnel = { absent = true }";
        let scenario = Scenario::parse(text, Path::new(".")).expect("a valid scenario");
        let mut report = ScenarioReport::new(&scenario, Runner::Kernel);
        report.per_second.insert("tcp", vec![9.0, 9.0, 8.0, 7.0, 6.0, 2.0]);
        let mut series = PerSecond::default();
        for (second, mbit) in (0..).zip([1, 2, 3, 5]) {
            series.note(Duration::from_secs(second), mbit * 125_000);
        }
        // They came in the third second: ours 6 and 2, theirs 3 and 5.
        let share = others_share(&report, &scenario, 1500, &scenario.traffic[1], &series);
        assert!((share.expect("both are known") - 50.0).abs() < 1e-9, "{share:?}");
    }
}
