//! From what a run measured to what stands in the results: common names, limits, cases and their checks.

use std::collections::BTreeMap;

use ropewalk_netlab::limit::{
    TCP_HEADERS, TUNNEL_OVERHEAD, UDP_HEADERS, bare_payload_share, payload_share,
};
use ropewalk_netlab::scenario_report::ScenarioReport;
use ropewalk_proto::config::TunnelConfig;

use crate::capacity::{Capacity, mean};
use crate::compared::{CALL, FETCH, best};
use crate::file::CheckSection;
use crate::link_figures::LinkFigures;
use crate::plan::{Candidate, PlannedCase};
use crate::results::{Case, Checked, LinkSummary, Run, Spread, Traffic, Tried, rounded};

/// Names of a scenario's report that mean the same here; what stands for the traffic is left out.
const COMMON: [&str; 29] = [
    "late_percent",
    "wait_p99_ms",
    "ping_p50_ms",
    "ping_p99_ms",
    "ping_lost_percent",
    "inner_mtu",
    "completion_s",
    "half_rate_after_s",
    "outage_stall_ms",
    FETCH[0],
    FETCH[1],
    "call_down_added_p50_ms",
    CALL,
    "call_up_added_p50_ms",
    "call_up_added_p95_ms",
    "call_lost_packets",
    "call_doubled_packets",
    "stall_down_p50_ms",
    "stall_down_p90_ms",
    "stall_down_p99_ms",
    "stall_down_max_ms",
    "stall_up_p50_ms",
    "stall_up_p90_ms",
    "stall_up_p99_ms",
    "stall_up_max_ms",
    "stall_tcp_p50_ms",
    "stall_tcp_p90_ms",
    "stall_tcp_p99_ms",
    "stall_tcp_max_ms",
];
/// Names of the traffic's own values, there behind `udp_` or `tcp_`, and here.
const OWN: [(&str, &str); 7] = [
    ("lost_percent", "lost_percent"),
    ("delay_p50_ms", "delay_p50_ms"),
    ("delay_p95_ms", "delay_p95_ms"),
    ("delay_p99_ms", "delay_p99_ms"),
    ("variation", "coefficient_of_variation"),
    ("lowest_second_percent", "lowest_second_percent_of_mean"),
    ("first_second_percent", "first_second_percent_of_mean"),
];

/// What all links of the point could carry during a run, where links vary.
const SUM: &str = "sum_mbit";
/// And the most payload that those used could.
const LIMIT: &str = "limit_mbit";
/// Seconds in a row in which a run got less than [`DIP`] of what the links could carry in each, the longest; where links
/// vary.
const LONGEST_DIP: &str = "longest_dip_s";
const DIP: f64 = 0.9;
/// The second from which on the mean of [`SETTLED`] stays within [`NEAR`] of the limit; absent where there is none, and
/// where links vary.
const CONVERGED: &str = "converged_after_s";
const SETTLED: usize = 10;
const NEAR: f64 = 0.05;
/// Seconds in which the windows open.
const OPENING: usize = 2;
/// With the link's name, what it could carry in each second, where links vary.
pub const CAPACITY: &str = "capacity_mbit_";

/// In what packets payload crosses the links.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Packets {
    /// In the tunnel's, where those inside have up to so many bytes.
    Tunnel(u16),
    /// As they are.
    Bare,
}

impl Packets {
    /// Of a case, with the inner MTU measured.
    pub(crate) fn of(case: &PlannedCase, inner_mtu: f64) -> Self {
        if case.bare { Self::Bare } else { Self::Tunnel(self::inner_mtu(inner_mtu)) }
    }
}

/// The most payload that links can carry for this traffic, Mbit/s: full packets, of which each link loses
/// its share.
#[must_use]
pub fn limit_mbit(links: &[LinkSummary], traffic: Traffic, packets: Packets) -> f64 {
    let headers = match traffic {
        Traffic::Udp | Traffic::Call => UDP_HEADERS,
        Traffic::TcpCubic
        | Traffic::TcpBbr
        | Traffic::TcpCubicUp
        | Traffic::TcpBbrUp
        | Traffic::Fetches => TCP_HEADERS,
    };
    let carried: f64 = links.iter().map(|link| link.rate_mbit * (1.0 - link.loss)).sum();
    carried
        * match packets {
            Packets::Tunnel(inner_mtu) => payload_share(inner_mtu, headers),
            Packets::Bare => bare_payload_share(headers),
        }
}

/// How long a transfer took that ended with its bytes.
#[must_use]
pub fn completion(report: &ScenarioReport) -> Option<f64> {
    Some(report.value("completion_s")).filter(|seconds| seconds.is_finite())
}

/// What came of a run, as it stands in the results.
#[must_use]
pub fn run_of(
    report: &ScenarioReport,
    case: &PlannedCase,
    candidate: &Candidate,
    capacity: Option<&Capacity>,
    first: bool,
) -> Run {
    let prefix = if case.traffic == Traffic::Udp { "udp" } else { "tcp" };
    let mut values = BTreeMap::new();
    let mut note = |name: &str, value: f64| {
        // What was not measured is absent.
        if value.is_finite() {
            values.insert(name.to_owned(), rounded(value));
        }
    };
    for name in COMMON {
        note(name, report.value(name));
    }
    if !case.traffic.is_bulk() {
        return run_with(report, values, BTreeMap::new());
    }
    // A link that comes and goes may be away at the first or the last byte: then all of the time counts, but
    // for a transfer, which has its own time.
    let goodput = capacity
        .filter(|_| case.bytes.is_none())
        .and(report.per_second.get(prefix))
        .map_or_else(|| report.value(&format!("{prefix}_mbit")), |seconds| mean(seconds));
    note("goodput_mbit", goodput);
    for (theirs, ours) in OWN {
        note(ours, report.value(&format!("{prefix}_{theirs}")));
    }
    let packets = Packets::of(case, report.value("inner_mtu"));
    let seconds = report.per_second.get(prefix).map_or(&[][..], Vec::as_slice);
    let (sum, limits) = match capacity {
        None => {
            let limit = limit_mbit(&candidate.summaries, case.traffic, packets);
            note(CONVERGED, converged(seconds, limit).unwrap_or(f64::NAN));
            (case.sum_mbit, vec![limit; seconds.len().max(1)])
        }
        Some(capacity) => {
            let share = |link: &LinkSummary| {
                let whole = LinkSummary { rate_mbit: 1.0, ..link.clone() };
                (link.name.clone(), limit_mbit(&[whole], case.traffic, packets))
            };
            let shares = candidate.summaries.iter().map(share).collect();
            let udp = case.traffic == Traffic::Udp;
            let offered = if udp { candidate.offered_mbit } else { f64::INFINITY };
            let limits = capacity.limits_mbit(&shares, offered);
            note(LONGEST_DIP, longest_dip(seconds, &limits));
            let sum = capacity.sum_mbit();
            note(SUM, sum);
            note(LIMIT, mean(&limits));
            (sum, limits)
        }
    };
    let limit = mean(&limits);
    note("percent_of_sum", 100.0 * goodput / sum);
    note("percent_of_limit", 100.0 * goodput / limit);
    if case.traffic == Traffic::Udp {
        note("in_order_percent", report.value("in_order_percent"));
    }
    if case.one_by_one {
        let changed = capacity.and_then(|capacity| capacity.changed_s);
        let follows = capacity.is_some_and(|capacity| capacity.follows);
        let figures = LinkFigures { report, seconds, limits: &limits, changed, follows };
        figures.each(|name, value| note(name, value));
    }
    let mut per_second = BTreeMap::new();
    // Of recordings, results have figures only.
    let kept = first && !case.one_by_one;
    if kept && capacity.is_none_or(|capacity| !capacity.recorded) {
        let mut keep = |ours: &str, theirs: &str| {
            if let Some(series) = report.per_second.get(theirs) {
                per_second.insert(ours.to_owned(), series.iter().copied().map(rounded).collect());
            }
        };
        keep("goodput_mbit", prefix);
        // TCP gives its application nothing out of order.
        keep("in_order_mbit", if case.traffic == Traffic::Udp { "udp_in_order" } else { prefix });
        for (link, seconds) in capacity.iter().flat_map(|capacity| &capacity.links) {
            let seconds = seconds.iter().copied().map(rounded).collect();
            per_second.insert(format!("{CAPACITY}{link}"), seconds);
        }
    }
    run_with(report, values, per_second)
}

/// The run with these values and series, and what every report has.
fn run_with(
    report: &ScenarioReport,
    values: BTreeMap<String, f64>,
    per_second: BTreeMap<String, Vec<f64>>,
) -> Run {
    let shares = report.share_percent.iter();
    Run {
        seed: report.seed,
        void: report.void.clone(),
        values,
        per_second,
        flow_mbit: report.flow_mbit.iter().copied().map(rounded).collect(),
        drops: report.drops.clone(),
        share_percent: shares.map(|(link, share)| (link.clone(), rounded(*share))).collect(),
        congestion_control: report.congestion_control.clone(),
    }
}

/// See [`CONVERGED`].
fn converged(seconds: &[f64], limit: f64) -> Option<f64> {
    let near = |window: &[f64]| (mean(window) - limit).abs() <= NEAR * limit;
    let settled = seconds.windows(SETTLED).rev().take_while(|window| near(window)).count();
    #[expect(clippy::cast_precision_loss, reason = "a run has few seconds")]
    let after = || (seconds.len() + 1 - SETTLED - settled) as f64;
    (settled > 0).then(after)
}

/// See [`LONGEST_DIP`].
fn longest_dip(seconds: &[f64], limits: &[f64]) -> f64 {
    let low = seconds.iter().zip(limits).skip(OPENING).map(|(came, most)| *came < DIP * most);
    let mut longest = 0;
    let mut row = 0;
    for low in low {
        row = if low { row + 1 } else { 0 };
        longest = longest.max(row);
    }
    f64::from(longest)
}

/// The inner MTU measured, or that of IPv4 paths with the largest packets that the tunnel tries.
fn inner_mtu(measured: f64) -> u16 {
    let usual = TunnelConfig::default().max_mtu - TUNNEL_OVERHEAD;
    // An MTU is a whole number below 2^16; what was not measured is not finite.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "just said")]
    if measured.is_finite() { measured as u16 } else { usual }
}

/// A case from the runs of its candidates (those of one after the other); the best candidate counts. Its checks come
/// later.
#[must_use]
pub fn case_of(case: &PlannedCase, runs: Vec<Vec<Run>>) -> Case {
    let best = best(case, &runs);
    let tried = case.candidates.iter().zip(&runs).enumerate();
    let tried = tried.filter_map(|(place, (candidate, runs))| {
        let (name, best) = (candidate.name.clone()?, best == Some(place));
        Some(Tried { name, goodput_mbit: spread(runs, "goodput_mbit"), best })
    });
    let tried = tried.collect();
    let best = case.candidates.iter().zip(runs).nth(best.unwrap_or_default());
    let (links, runs) = best.map_or_else(
        || (Vec::new(), Vec::new()),
        |(candidate, runs)| (summaries(candidate, &runs), runs),
    );
    let mtu = runs.iter().find_map(|run| run.values.get("inner_mtu").copied());
    let packets = Packets::of(case, mtu.unwrap_or(f64::NAN));
    let limit_mbit = limit_mbit(&links, case.traffic, packets);
    // Links that vary have another sum and limit in each run.
    let median = |name| spread(&runs, name).map(|spread| spread.median);
    let limit_mbit = median(LIMIT).unwrap_or(limit_mbit);
    let sum_mbit = median(SUM).unwrap_or(case.sum_mbit);
    let names: Vec<&String> = runs.iter().flat_map(|run| run.values.keys()).collect();
    let summary =
        names.into_iter().filter_map(|name| Some((name.clone(), spread(&runs, name)?))).collect();
    Case {
        id: case.id.clone(),
        point: case.point.clone(),
        series: case.series.clone(),
        traffic: case.traffic,
        bytes: case.bytes,
        links,
        sum_mbit: rounded(sum_mbit),
        limit_mbit: rounded(limit_mbit),
        seconds: case.seconds,
        planned_runs: case.runs,
        runs,
        tried,
        summary,
        checks: Vec::new(),
    }
}

/// The links, those generated with their rates in the first run.
fn summaries(candidate: &Candidate, runs: &[Run]) -> Vec<LinkSummary> {
    let mut links = candidate.summaries.clone();
    for link in &mut links {
        let capacity = |run: &Run| run.per_second.get(&format!("{CAPACITY}{}", link.name)).cloned();
        if let Some(seconds) = runs.first().and_then(capacity) {
            link.rate_mbit = rounded(mean(&seconds));
        }
    }
    links
}

/// A value over the runs that are not void.
pub(crate) fn spread(runs: &[Run], name: &str) -> Option<Spread> {
    let sound = runs.iter().filter(|run| run.void.is_none());
    Spread::of(sound.filter_map(|run| run.values.get(name).copied()).collect())
}

/// Holds the checks of the plan against the cases, which are in the same order.
pub fn check(planned: &[PlannedCase], cases: &mut [Case]) {
    let checked: Vec<Vec<Checked>> = planned
        .iter()
        .zip(cases.iter())
        .map(|(plan, case)| {
            let held = plan.checks.iter().filter(|check| can_be_held(check, case, cases));
            held.map(|check| outcome(check, case, cases)).collect()
        })
        .collect();
    for (case, checked) in cases.iter_mut().zip(checked) {
        case.checks = checked;
    }
}

/// Not every mode runs every series: a check against one that was not to be run says nothing.
fn can_be_held(check: &CheckSection, case: &Case, cases: &[Case]) -> bool {
    check.at_least_series.as_ref().is_none_or(|series| beside(case, series, cases).is_some())
}

/// The case of another series under the same conditions.
fn beside<'a>(case: &Case, series: &str, cases: &'a [Case]) -> Option<&'a Case> {
    cases.iter().find(|other| {
        other.series == series
            && other.point.label == case.point.label
            && other.traffic == case.traffic
    })
}

fn outcome(check: &CheckSection, case: &Case, cases: &[Case]) -> Checked {
    let spread = case.summary.get(&check.value);
    let measured = spread.map(|spread| match (check.each_run, check.at_most) {
        (false, _) => spread.median,
        (true, None) => spread.lowest,
        (true, Some(_)) => spread.highest,
    });
    let other = check.at_least_series.as_ref().and_then(|series| {
        let other = beside(case, series, cases)?.summary.get(&check.value)?;
        Some(rounded(check.share.unwrap_or(1.0) * other.median))
    });
    let at_least = check.at_least.into_iter().chain(other).reduce(f64::max);
    let unknown = check.at_least_series.is_some() && other.is_none();
    let within = |value: f64| {
        at_least.is_none_or(|bound| value >= bound)
            && check.at_most.is_none_or(|bound| value <= bound)
    };
    Checked {
        value: check.value.clone(),
        at_least,
        at_most: check.at_most,
        measured,
        ok: !unknown && measured.is_some_and(within),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Point;

    fn link(rate_mbit: f64, loss: f64) -> LinkSummary {
        LinkSummary {
            name: "a".into(),
            rate_mbit,
            rtt_ms: 10.0,
            loss,
            jitter_ms: 0.0,
            follows: None,
        }
    }

    #[test]
    fn limits_are_those_of_full_packets_of_what_is_not_lost() {
        let links = [link(8.0, 0.0), link(2.0, 0.5)];
        let usual = Packets::Tunnel(inner_mtu(f64::NAN));
        let of = |traffic| limit_mbit(&links, traffic, usual);
        assert!((of(Traffic::Udp) - 9.0 * 1412.0 / 1500.0).abs() < 1e-9);
        assert!((of(Traffic::TcpCubic) - 9.0 * 1388.0 / 1500.0).abs() < 1e-9);
        let one = |packets| limit_mbit(&links[..1], Traffic::TcpBbr, packets);
        assert!((one(Packets::Tunnel(1420)) - 8.0 * 1368.0 / 1480.0).abs() < 1e-9);
        assert!((one(Packets::Bare) - 8.0 * 1448.0 / 1500.0).abs() < 1e-9);
    }

    #[test]
    fn the_overhead_told_is_that_of_the_wire_format() {
        let (all, outer) = (TUNNEL_OVERHEAD, UDP_HEADERS);
        let whole = TunnelConfig::default().max_mtu;
        let percent = 100.0 * f64::from(all) / f64::from(whole);
        let own = all - outer;
        let told = format!(
            "{all} of {whole} bytes, {percent:.1} %: {own} of the tunnel and {outer} of outer IPv4 and UDP."
        );
        assert!(include_str!("../README.md").contains(&told), "{told}");
    }

    fn case(series: &str, goodputs: &[f64]) -> Case {
        let run = |goodput: &f64| Run {
            seed: 1,
            void: (*goodput == 0.0).then(|| "busy".to_owned()),
            values: [("goodput_mbit".to_owned(), *goodput)].into(),
            per_second: BTreeMap::new(),
            flow_mbit: Vec::new(),
            drops: BTreeMap::new(),
            share_percent: BTreeMap::new(),
            congestion_control: None,
        };
        let runs: Vec<Run> = goodputs.iter().map(run).collect();
        let summary = spread(&runs, "goodput_mbit").map(|spread| ("goodput_mbit".into(), spread));
        Case {
            id: series.to_owned(),
            point: Point { axis: "x".into(), label: "1".into(), value: 1.0, group: None },
            series: series.to_owned(),
            traffic: Traffic::Udp,
            bytes: None,
            links: Vec::new(),
            sum_mbit: 10.0,
            limit_mbit: 9.0,
            seconds: 1.0,
            planned_runs: runs.len(),
            runs,
            tried: Vec::new(),
            summary: summary.into_iter().collect(),
            checks: Vec::new(),
        }
    }

    #[test]
    fn a_check_is_about_the_median_or_about_each_run_and_void_runs_say_nothing() {
        let cases =
            [case("ours", &[5.0, 0.0, 7.0, 6.0]), case("single", &[5.5]), case("void", &[0.0])];
        let base = CheckSection {
            series: "ours".into(),
            traffic: None,
            points: None,
            mode: None,
            value: "goodput_mbit".into(),
            at_least: None,
            at_least_series: None,
            share: None,
            at_most: None,
            each_run: false,
        };
        let held = |check: &CheckSection, case: usize| {
            let checked = outcome(check, &cases[case], &cases);
            (checked.measured, checked.at_least, checked.ok)
        };
        let median = CheckSection { at_least: Some(6.0), ..base.clone() };
        assert_eq!(held(&median, 0), (Some(6.0), Some(6.0), true));
        let each = CheckSection { each_run: true, ..median.clone() };
        assert_eq!(held(&each, 0), (Some(5.0), Some(6.0), false));
        let worst = CheckSection { at_least: None, at_most: Some(6.5), ..each };
        assert_eq!(held(&worst, 0), (Some(7.0), None, false));
        let against = CheckSection { at_least_series: Some("single".into()), ..base.clone() };
        assert_eq!(held(&against, 0), (Some(6.0), Some(5.5), true));
        let part = CheckSection { share: Some(1.1), ..against };
        assert_eq!(held(&part, 0), (Some(6.0), Some(6.05), false));
        let unknown = CheckSection { at_least_series: Some("void".into()), ..base };
        assert_eq!(held(&unknown, 0), (Some(6.0), None, false));
        let not_run = CheckSection { at_least_series: Some("paper".into()), ..unknown.clone() };
        assert!(can_be_held(&unknown, &cases[0], &cases), "run, and all its runs are void");
        assert!(!can_be_held(&not_run, &cases[0], &cases));
        assert_eq!(held(&median, 2), (None, Some(6.0), false));
    }

    #[test]
    fn a_run_converges_in_the_second_from_which_on_it_stays_near_its_limit() {
        let of = |low: usize, high: usize, end: f64| {
            let mut seconds = vec![5.0; low];
            seconds.extend(vec![9.8; high]);
            seconds.push(end);
            converged(&seconds, 10.0)
        };
        assert_eq!(of(0, 30, 9.8), Some(0.0));
        // Nine good seconds beside one of 5 have a mean of 9.32; all ten are needed.
        assert_eq!(of(20, 30, 9.8), Some(20.0));
        assert_eq!(of(20, 30, 0.0), None, "the last ten are not near");
        assert_eq!(of(3, 5, 9.8), None, "fewer than ten");
    }

    #[test]
    fn a_dip_is_as_long_as_seconds_in_a_row_are_far_below_what_there_is() {
        let limits = [10.0, 10.0, 10.0, 10.0, 5.0, 5.0, 10.0, 10.0, 10.0];
        let dip = |seconds: &[f64]| longest_dip(seconds, &limits);
        assert_eq!(dip(&[0.0, 0.0, 9.5, 9.1, 4.6, 5.2, 9.0, 9.9, 9.9]), 0.0, "windows open first");
        assert_eq!(dip(&[9.5, 9.5, 8.9, 9.5, 4.4, 4.4, 9.5, 3.0, 9.5]), 2.0);
    }
}
