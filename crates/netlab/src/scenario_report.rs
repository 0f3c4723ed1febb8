//! What came of a scenario, under the same names whether it ran in virtual time or on the kernel.
//!
//! | name | meaning |
//! | --- | --- |
//! | `tcp_mbit` | goodput of the first stream of TCP or HTTP, all its connections together |
//! | `tcp_percent_of_sum` | the same, of the links' initial rates in its direction |
//! | `sha256_ok` | 1 if every body of known length arrived as sent |
//! | `completion_s` | from asking for the first stream of known length to its last byte |
//! | `longest_stall_ms` | longest time without a byte of the first stream |
//! | `udp_mbit`, `udp_percent_of_sum` | goodput of the first UDP stream |
//! | `udp_lost_percent` | packets of it that did not come |
//! | `in_order_percent` | packets of it that came in order, of those that came |
//! | `udp_delay_p50_ms`, `_p95_ms`, `_p99_ms` | from sending to coming, application to application |
//! | `udp_variation`, `tcp_variation` | coefficient of variation of what came in order in each second |
//! | `udp_lowest_second_percent`, `tcp_...` | the worst of these seconds, of their mean |
//! | `udp_first_second_percent`, `tcp_...` | the first second, of the same mean |
//! | `ping_p50_ms`, `ping_p99_ms`, `ping_lost_percent` | the first series of echoes |
//! | `seconds_to_reuse` | from an outage's end until the link carries data again, the longest |
//! | `half_rate_after_s` | from an outage's end until the link carried half of its rate for 200 ms, the longest |
//! | `outage_stall_ms` | longest time without a byte of the first stream from the first outage on |
//! | `fetch_p50_ms`, `fetch_p95_ms` | from asking to the last byte of fetches one after the other; one that did not end counts with its limit |
//! | `call_down_added_p50_ms`, `_p95_ms`, `call_up_...` | one-way delay of a call's packets beyond the delay of the fastest link when idle |
//! | `call_lost_packets` | those that did not come, both ways |
//! | `call_doubled_packets` | those that came twice, both ways, where links go |
//! | `stall_down_p50_ms`, `_p90_ms`, `_p99_ms`, `_max_ms`, `stall_up_...`, `stall_tcp_...` | how long a call and the connection beside it stood still, over the moments at which a link went |
//! | `late_percent` | packets the receiver's resequencer delivered late or dropped as doubles |
//! | `wait_p99_ms` | 99th percentile of its waits |
//! | `link_wait_p50_ms`, `link_wait_p95_ms` | how long the tunnel's datagrams waited for their turn on its only link |
//! | `link_dropped_percent` | those that its queue or policer dropped |
//! | `link_back_percent` | what went back on it, of its rate that way |
//! | `others_share_percent` | what others' connections beside the tunnel had of all that it carried |
//! | `inner_mtu` | the longest packet through the tunnel, bytes |
//!
//! A name whose traffic the scenario lacks is absent, and a check of it fails. Series by the second
//! are `udp`, `udp_in_order` and `tcp`; their seconds count from the first packet or byte. How even they are
//! is told without the first two, in which the windows open.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::netem::Counters;
use crate::per_second::{PerSecond, coefficient_of_variation, percent_of_mean};
use crate::prove::Finding;
use crate::scenario::Scenario;
use crate::stalls::{Stall, at_each};
use crate::stats::{Percentiles, percent};
use crate::tally::UdpReceived;
use crate::virtual_run::KERNEL_ONLY;

/// Seconds in which the windows open.
const OPENING: usize = 2;

/// How long a call stood still where links go, down and up, and a connection beside it.
const STALL_DOWN: [&str; 4] =
    ["stall_down_p50_ms", "stall_down_p90_ms", "stall_down_p99_ms", "stall_down_max_ms"];
const STALL_UP: [&str; 4] =
    ["stall_up_p50_ms", "stall_up_p90_ms", "stall_up_p99_ms", "stall_up_max_ms"];
pub(crate) const STALL_TCP: [&str; 4] =
    ["stall_tcp_p50_ms", "stall_tcp_p90_ms", "stall_tcp_p99_ms", "stall_tcp_max_ms"];

/// Where a scenario ran.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Runner {
    /// The core, in virtual time.
    Virtual,
    /// The daemons, on this machine's kernel.
    Kernel,
}

/// The measured values by name, with what makes them worth something.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ScenarioReport {
    /// The scenario's name.
    pub scenario: String,
    /// Where it ran.
    pub runner: Runner,
    /// Decided losses and jitter.
    pub seed: u64,
    /// What links with a trace followed, such as `wlan down: generated wlan-walking`.
    pub traces: Vec<String>,
    /// By name.
    pub values: BTreeMap<&'static str, f64>,
    /// Mbit/s in each second, by name.
    pub per_second: BTreeMap<&'static str, Vec<f64>>,
    /// Mbit/s of the first stream in each tenth of a second since it began; in virtual time only.
    #[serde(skip)]
    pub per_tenth: Vec<f64>,
    /// Mbit/s of each connection of the first stream of TCP or HTTP, where it has several.
    pub flow_mbit: Vec<f64>,
    /// Packets dropped, by reason: in the tunnel, or `link_...` on the links, in the direction of the first
    /// stream.
    pub drops: BTreeMap<String, u64>,
    /// Of the bytes that came in that direction, by the link that carried them.
    pub share_percent: BTreeMap<String, f64>,
    /// What the sender's socket of the first stream of TCP or HTTP uses.
    pub congestion_control: Option<String>,
    /// Why nothing may be concluded from it, if so.
    pub void: Option<String>,
}

impl ScenarioReport {
    /// Without a value yet.
    #[must_use]
    pub fn new(scenario: &Scenario, runner: Runner) -> Self {
        Self {
            scenario: scenario.name.clone(),
            runner,
            seed: scenario.seed,
            traces: scenario.traces(),
            values: BTreeMap::new(),
            per_second: BTreeMap::new(),
            per_tenth: Vec::new(),
            flow_mbit: Vec::new(),
            drops: BTreeMap::new(),
            share_percent: BTreeMap::new(),
            congestion_control: None,
            void: None,
        }
    }

    /// Notes a value; the first of a name counts.
    pub fn note(&mut self, name: &'static str, value: f64) {
        self.values.entry(name).or_insert(value);
    }

    /// Notes a UDP stream that was to last so long, over links of this sum.
    pub fn note_udp(&mut self, came: &UdpReceived, length: Duration, sum_mbit: f64) {
        if self.values.contains_key("udp_mbit") {
            return;
        }
        self.note("udp_mbit", came.mbit);
        self.note("udp_percent_of_sum", 100.0 * came.mbit / sum_mbit);
        self.note("udp_lost_percent", percent(came.lost, came.sent));
        self.note("in_order_percent", came.in_order_percent);
        self.note("udp_delay_p50_ms", came.delay.p50_ms);
        self.note("udp_delay_p95_ms", came.delay.p95_ms);
        self.note("udp_delay_p99_ms", came.delay.p99_ms);
        self.note_series("udp", &came.per_second, length);
        let in_order = self.note_series("udp_in_order", &came.in_order_per_second, length);
        let names = ["udp_variation", "udp_lowest_second_percent", "udp_first_second_percent"];
        self.note_evenness(names, &in_order);
    }

    /// Notes a stream of TCP or HTTP that lasted so long, over links of this sum.
    pub fn note_tcp(&mut self, mbit: f64, series: &PerSecond, length: Duration, sum_mbit: f64) {
        if self.values.contains_key("tcp_mbit") {
            return;
        }
        self.note("tcp_mbit", mbit);
        self.note("tcp_percent_of_sum", 100.0 * mbit / sum_mbit);
        let seconds = self.note_series("tcp", series, length);
        let names = ["tcp_variation", "tcp_lowest_second_percent", "tcp_first_second_percent"];
        self.note_evenness(names, &seconds);
    }

    /// Notes what each connection of a stream of TCP or HTTP had, Mbit/s.
    pub fn note_flows(&mut self, mbit: &[f64]) {
        if self.flow_mbit.is_empty() && mbit.len() > 1 {
            self.flow_mbit = mbit.to_vec();
        }
    }

    /// Notes a series of echoes.
    pub fn note_ping(&mut self, rtt: &Percentiles, lost: u64, sent: u64) {
        self.note("ping_p50_ms", rtt.p50_ms);
        self.note("ping_p99_ms", rtt.p99_ms);
        self.note("ping_lost_percent", percent(lost, sent));
    }

    /// Notes fetches one after the other.
    pub fn note_fetches(&mut self, times: &Percentiles) {
        self.note("fetch_p50_ms", times.p50_ms);
        self.note("fetch_p95_ms", times.p95_ms);
    }

    /// Notes a call's two streams.
    pub fn note_call(&mut self, scenario: &Scenario, down: &UdpReceived, up: &UdpReceived) {
        let [idle_down, idle_up] = scenario.idle_delays().map(|delay| delay.as_secs_f64() * 1e3);
        self.note("call_down_added_p50_ms", down.delay.p50_ms - idle_down);
        self.note("call_down_added_p95_ms", down.delay.p95_ms - idle_down);
        self.note("call_up_added_p50_ms", up.delay.p50_ms - idle_up);
        self.note("call_up_added_p95_ms", up.delay.p95_ms - idle_up);
        #[expect(clippy::cast_precision_loss, reason = "a call has few packets")]
        self.note("call_lost_packets", (down.lost + up.lost) as f64);
    }

    /// Notes how long traffic stood still at each moment at which a link went, under the names of the median, the 90th and the
    /// 99th percentile, and the longest.
    pub fn note_stalls(&mut self, names: [&'static str; 4], mut stalls: Vec<Duration>) {
        stalls.sort_unstable();
        for (name, percent) in names.into_iter().zip([50, 90, 99, 100]) {
            // The nearest rank.
            let rank = (stalls.len() * percent).div_ceil(100).saturating_sub(1);
            if let Some(stall) = stalls.get(rank) {
                self.note(name, stall.as_secs_f64() * 1e3);
            }
        }
    }

    /// Notes what a call that began so late met where links go.
    pub fn note_departures(
        &mut self,
        scenario: &Scenario,
        start: Duration,
        [down, up]: [&UdpReceived; 2],
    ) {
        let departures = scenario.departures();
        for (names, came) in [(STALL_DOWN, down), (STALL_UP, up)] {
            let later = |stall: &Stall| Stall { end: stall.end + start, ..*stall };
            let stalls: Vec<_> = came.stalls.iter().map(later).collect();
            self.note_stalls(names, at_each(&departures, &stalls));
        }
        #[expect(clippy::cast_precision_loss, reason = "a call has few packets")]
        self.note("call_doubled_packets", (down.duplicates + up.duplicates) as f64);
    }

    /// Notes what a link dropped.
    pub fn note_link(&mut self, dropped: &Counters) {
        for (reason, count) in [
            ("link_lost", dropped.lost),
            ("link_queue_full", dropped.queue_full),
            ("link_policed", dropped.policed),
            ("link_too_big", dropped.too_big),
            ("link_cut", dropped.cut),
        ] {
            self.note_drops(reason, count);
        }
    }

    /// Notes packets dropped for a reason.
    pub fn note_drops(&mut self, reason: &str, count: u64) {
        if count > 0 {
            *self.drops.entry(reason.to_owned()).or_default() += count;
        }
    }

    /// Notes how many bytes each link, by name, brought.
    pub fn note_shares(&mut self, bytes: &[(&str, u64)]) {
        let whole = bytes.iter().map(|(_, bytes)| bytes).sum();
        for (link, bytes) in bytes {
            self.share_percent.insert((*link).to_owned(), percent(*bytes, whole));
        }
    }

    /// The whole seconds of a series of this length.
    fn note_series(
        &mut self,
        name: &'static str,
        series: &PerSecond,
        length: Duration,
    ) -> Vec<f64> {
        let seconds = series.mbit(usize::try_from(length.as_secs()).unwrap_or(usize::MAX));
        self.per_second.insert(name, seconds.clone());
        seconds
    }

    /// Under these names: variation, lowest second, first second.
    fn note_evenness(&mut self, names: [&'static str; 3], seconds: &[f64]) {
        let steady = seconds.get(OPENING..).unwrap_or_default();
        let of_mean = |second: f64| percent_of_mean(second, steady);
        let values = [
            coefficient_of_variation(steady),
            steady.iter().copied().reduce(f64::min).and_then(of_mean),
            seconds.first().copied().and_then(of_mean),
        ];
        for (name, value) in names.into_iter().zip(values) {
            if let Some(value) = value {
                self.note(name, value);
            }
        }
    }

    /// A value by its name; no number where it was not measured.
    #[must_use]
    pub fn value(&self, name: &str) -> f64 {
        self.values.get(name).copied().unwrap_or(f64::NAN)
    }

    /// The checks of the scenario, and what else was measured.
    #[must_use]
    pub fn findings(&self, scenario: &Scenario) -> Vec<Finding> {
        let mut findings = Vec::new();
        for check in &scenario.checks {
            let value = self.value(&check.name);
            let elsewhere = self.runner == Runner::Virtual && value.is_nan();
            if elsewhere && KERNEL_ONLY.contains(&check.name.as_str()) {
                findings.push(Finding::not_here(&check.name, "on the kernel only"));
                continue;
            }
            if let Some(minimum) = check.minimum {
                findings.push(Finding::at_least(&check.name, value, minimum, ""));
            }
            if let Some(maximum) = check.maximum {
                findings.push(Finding::at_most(&check.name, value, maximum, ""));
            }
        }
        let unchecked = self
            .values
            .iter()
            .filter(|(name, _)| scenario.checks.iter().all(|check| check.name != **name));
        findings.extend(unchecked.map(|(name, value)| Finding::told(*name, *value, "")));
        findings
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_opening_of_the_windows_is_told_apart_from_how_even_the_rest_is() {
        let text = "name = 'x'\nlinks = [{ name = 'a' }]";
        let scenario = Scenario::parse(text, Path::new(".")).expect("a valid scenario");
        let mut report = ScenarioReport::new(&scenario, Runner::Virtual);
        let mut series = PerSecond::default();
        for (second, bytes) in (0..).zip([50, 200, 90, 110, 1_000_000]) {
            series.note(Duration::from_secs(second), bytes);
        }
        report.note_tcp(1.0, &series, Duration::from_millis(4_900), 2.0);
        let value = |name| report.value(name);
        let told = [value("tcp_variation"), value("tcp_lowest_second_percent")];
        assert!((told[0] - 0.1).abs() < 1e-9 && (told[1] - 90.0).abs() < 1e-9, "{told:?}");
        assert!((value("tcp_first_second_percent") - 50.0).abs() < 1e-9);
        assert_eq!(report.per_second["tcp"].len(), 4);
    }

    #[test]
    fn a_check_of_what_was_not_measured_fails() {
        let text = "name = 'x'\nlinks = [{ name = 'a' }]\n\
            checks = [{ name = 'tcp_mbit', minimum = 1 }, { name = 'udp_mbit', maximum = 9 }]";
        let scenario = Scenario::parse(text, Path::new(".")).expect("a valid scenario");
        let mut report = ScenarioReport::new(&scenario, Runner::Kernel);
        report.note("tcp_mbit", 2.0);
        report.note("tcp_mbit", 0.5);
        report.note("wait_p99_ms", 7.0);
        let findings = report.findings(&scenario);
        let seen: Vec<_> = findings.iter().map(|f| (f.what.as_str(), f.ok)).collect();
        assert_eq!(seen, [("tcp_mbit", true), ("udp_mbit", false), ("wait_p99_ms", true)]);
    }
}
