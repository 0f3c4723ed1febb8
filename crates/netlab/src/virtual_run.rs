//! A scenario file in virtual time, with the real core: the twin of the run on the kernel.
//!
//! The scenario begins when the links of the tunnel are up. What needs a kernel's TCP is left out, and what
//! it would have measured is [told as such](KERNEL_ONLY), so that one file serves both. The first
//! traffic of a kind is the one that is told; the others are load.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use ropewalk_proto::config::{Keepalive, TunnelConfig};
use ropewalk_proto::sched::WhenClosed;
use ropewalk_proto::time::Instant;
use ropewalk_proto::tunnel::LinkState;
use ropewalk_proto::units::Bitrate;

use crate::lab::Towards;
use crate::limit::UDP_HEADERS;
use crate::netem::{Conditions, Netem};
use crate::pair::{TunnelLab, link_config, tunnels};
use crate::profile::bitrate;
use crate::scenario::file::{Direction, TrafficKind, TrafficSection, TunnelSection};
use crate::scenario::{Course, Link, Scenario};
use crate::scenario_report::{Runner, ScenarioReport};
use crate::stats::percent;
use crate::stream::{Stream, run as run_streams};

/// Values that only a kernel's TCP can give; the last one where no UDP stream runs downstream.
pub const KERNEL_ONLY: [&str; 5] =
    ["tcp_mbit", "tcp_percent_of_sum", "sha256_ok", "longest_stall_ms", "seconds_to_reuse"];

/// Until the links are up and their path MTUs are known.
const SETTLING: Duration = Duration::from_secs(3);
/// How long traffic without an end of its own lasts: what needs TCP has none here.
const LONGEST: Duration = Duration::from_secs(3600);
/// What is still under way at the end comes within this time.
const REST: Duration = Duration::from_secs(2);
/// What counts as data on a link that returns: more than probes and keepalives make in that time.
const CARRIED: u64 = 20_000;
/// How often a link that returns is looked at, and for how long.
const POLL: Duration = Duration::from_millis(10);
const PATIENCE: Duration = Duration::from_secs(15);
/// Echoes of a ping by the second, and their length: that of `ping`.
const ECHOES: u32 = 10;
const ECHO_LEN: usize = 84;

/// A setting of the tunnel that does not exist.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("tunnel: {name} cannot be {value:?}")]
pub struct UnknownSetting {
    name: &'static str,
    value: String,
}

/// Runs the scenario; the same file gives the same figures.
///
/// # Errors
/// A setting of the tunnel does not exist.
pub fn run(scenario: &Scenario) -> Result<ScenarioReport, UnknownSetting> {
    let config = settings(&scenario.tunnel)?;
    let keepalive = keepalive(scenario.tunnel.keepalive.as_deref())?;
    let mut lab = tunnels(&config, &config, scenario.seed);
    for link in &scenario.links {
        let (down, up) = (link.downstream.initial.clone(), link.upstream.initial.clone());
        let path = lab.add_link(down, up, scenario.seed);
        // More links than a tunnel may have carry nothing.
        let _ = lab.client.add_link(lab.now, &link_config(&link.name, path, keepalive));
    }
    lab.run_until(Instant::ZERO + SETTLING);
    begin(&mut lab, scenario);
    Ok(play(&mut lab, scenario))
}

fn settings(section: &TunnelSection) -> Result<TunnelConfig, UnknownSetting> {
    let mut config = TunnelConfig::default();
    if let Some(name) = &section.scheduler {
        config.scheduler = name.parse().map_err(|_| unknown("scheduler", name))?;
    }
    if let Some(name) = &section.controller {
        config.controller = name.parse().map_err(|_| unknown("controller", name))?;
    }
    config.when_closed = match section.when_closed.as_deref() {
        None => config.when_closed,
        Some("queue") => WhenClosed::Queue,
        Some("drop") => WhenClosed::Drop,
        Some(other) => return Err(unknown("when_closed", other)),
    };
    if let Some(seconds) = section.rekey_s {
        let time = Duration::try_from_secs_f64(seconds);
        config.rekey_after = time.map_err(|_| unknown("rekey_s", &seconds.to_string()))?;
    }
    Ok(config)
}

fn keepalive(text: Option<&str>) -> Result<Keepalive, UnknownSetting> {
    match text {
        None => Ok(Keepalive::default()),
        Some("off") => Ok(Keepalive::Off),
        Some("auto") => Ok(Keepalive::Auto),
        Some(text) => {
            let every = humantime::parse_duration(text);
            every.map(Keepalive::Every).map_err(|_| unknown("keepalive", text))
        }
    }
}

fn unknown(name: &'static str, value: &str) -> UnknownSetting {
    UnknownSetting { name, value: value.to_owned() }
}

/// From this moment the links follow their courses, and the NATs forget.
fn begin(lab: &mut TunnelLab, scenario: &Scenario) {
    let mut rng = SmallRng::seed_from_u64(scenario.seed);
    let start = lab.now;
    for (line, link) in lab.links.iter_mut().zip(&scenario.links) {
        plan(&mut line.down, &link.downstream, start);
        plan(&mut line.up, &link.upstream, start);
        line.nat_timeout = link.nat_udp_timeout;
        line.nat_renumbers = rng.random();
    }
}

fn plan<T>(netem: &mut Netem<T>, course: &Course, start: Instant) {
    for (at, conditions) in &course.changes {
        netem.plan_change(start + *at, conditions.clone());
    }
}

fn play(lab: &mut TunnelLab, scenario: &Scenario) -> ScenarioReport {
    let start = lab.now;
    let mtu = usize::from(lab.client.stats().inner_mtu.unwrap_or(1200));
    let limit = scenario.duration.unwrap_or(LONGEST);
    let told: Vec<_> = scenario
        .traffic
        .iter()
        .filter_map(|traffic| Some((traffic, stream(traffic, mtu, start, limit)?)))
        .collect();
    let (sections, mut streams): (Vec<_>, Vec<_>) = told.into_iter().unzip();
    let last = streams.iter().map(Stream::end).max().unwrap_or(start);
    let end = scenario.duration.map_or(last, |duration| start + duration);
    let watched = sections.iter().any(|section| {
        section.kind == TrafficKind::Udp && towards(section.direction) == Towards::Client
    });
    let mut returns = if watched { returns(scenario) } else { Vec::new() };
    let mut reuse = Vec::new();
    while let Some((at, link)) = returns.pop().filter(|(at, _)| start + *at < end) {
        // Of two at the same moment, the later one looked at may only seem slower.
        let at = (start + at).max(lab.now);
        run_streams(lab, &mut streams, at);
        reuse.push(time_until_reuse(lab, &mut streams, link));
    }
    let rest = (end + REST).max(lab.now);
    run_streams(lab, &mut streams, rest);
    report(lab, scenario, &sections, &streams, &reuse)
}

/// What the section asks for, if virtual time has it.
fn stream(traffic: &TrafficSection, mtu: usize, start: Instant, limit: Duration) -> Option<Stream> {
    let after = Duration::from_secs_f64(traffic.start_s);
    let rest = limit.saturating_sub(after);
    let rate = bitrate(traffic.rate_mbit.unwrap_or_default());
    let by_bytes = traffic.bytes.map(|bytes| rate.time_for(bytes));
    let own = traffic.duration_s.map(Duration::from_secs_f64);
    let length = own.or(by_bytes).unwrap_or(rest).min(rest);
    match traffic.kind {
        TrafficKind::Udp => {
            let towards = towards(traffic.direction);
            // The file says how much payload.
            let payload = mtu.saturating_sub(usize::from(UDP_HEADERS)).max(1);
            #[expect(clippy::cast_precision_loss, reason = "a packet is short")]
            let whole = mtu as f64 / payload as f64;
            let mbit = traffic.rate_mbit.unwrap_or_default() * whole;
            Some(Stream::at_rate(towards, mbit, mtu, start + after, length))
        }
        TrafficKind::Ping => {
            Some(Stream::echoes(Duration::from_secs(1) / ECHOES, ECHO_LEN, start + after, length))
        }
        TrafficKind::Tcp | TrafficKind::Http => None,
    }
}

const fn towards(direction: Direction) -> Towards {
    match direction {
        Direction::Up => Towards::Proxy,
        Direction::Down | Direction::Both => Towards::Client,
    }
}

/// The ends of outages downstream, with the link; the last one first.
fn returns(scenario: &Scenario) -> Vec<(Duration, usize)> {
    let mut ends = Vec::new();
    for (place, link) in scenario.links.iter().enumerate() {
        let is_cut = |conditions: &Conditions| conditions.cut.is_some();
        let pairs = link.downstream.changes.windows(2);
        let ended = pairs.filter(|pair| is_cut(&pair[0].1) && !is_cut(&pair[1].1));
        ends.extend(ended.map(|pair| (pair[1].0, place)));
    }
    ends.sort_unstable();
    ends.reverse();
    ends
}

fn time_until_reuse(lab: &mut TunnelLab, streams: &mut [Stream], link: usize) -> f64 {
    let returned = lab.now;
    let carried = |lab: &TunnelLab| lab.links[link].down.counters().delivered_bytes;
    let before = carried(lab);
    let name = lab.client.stats().links.get(link).map(|link| link.id);
    while lab.now < returned + PATIENCE {
        let up = lab
            .client
            .stats()
            .links
            .iter()
            .any(|link| Some(link.id) == name && link.state == LinkState::Up);
        if up && carried(lab) >= before + CARRIED {
            return lab.now.since(returned).as_secs_f64();
        }
        let now = lab.now;
        run_streams(lab, streams, now + POLL);
    }
    f64::INFINITY
}

fn report(
    lab: &TunnelLab,
    scenario: &Scenario,
    sections: &[&TrafficSection],
    streams: &[Stream],
    reuse: &[f64],
) -> ScenarioReport {
    let mut report = ScenarioReport::new(scenario, Runner::Virtual);
    for (section, stream) in sections.iter().zip(streams) {
        if section.kind == TrafficKind::Ping {
            report.note_ping(&stream.delays(), stream.missing(), stream.sent());
        } else {
            let length = stream.end().since(stream.start());
            report.note_udp(&stream.received(), length, sum(scenario, section.direction));
        }
    }
    for line in &lab.links {
        report.note_link(&line.down.counters());
    }
    if let Some(slowest) = reuse.iter().copied().reduce(f64::max) {
        report.note("seconds_to_reuse", slowest);
    }
    let (client, proxy) = (lab.client.stats(), lab.proxy.stats());
    for (reason, count) in client.drops.iter().chain(proxy.drops.iter()) {
        report.note_drops(reason.as_str(), count);
    }
    let bytes: Vec<_> =
        client.links.iter().map(|link| (link.name.as_str(), link.received.bytes)).collect();
    report.note_shares(&bytes);
    report.note("inner_mtu", client.inner_mtu.map_or(f64::NAN, f64::from));
    let reseq = client.reseq;
    let late = reseq.late + reseq.duplicates + reseq.too_old;
    report.note("late_percent", percent(late, reseq.in_order + reseq.resequenced + late));
    #[expect(clippy::cast_precision_loss, reason = "waits are far below 2^52 us")]
    report.note("wait_p99_ms", reseq.wait_p99_us as f64 / 1e3);
    report
}

/// The links' initial rates in a direction, Mbit/s.
fn sum(scenario: &Scenario, direction: Direction) -> f64 {
    let course = |link: &Link| match towards(direction) {
        Towards::Proxy => link.upstream.initial.rate.mean(),
        Towards::Client => link.downstream.initial.rate.mean(),
    };
    let bits: u64 = scenario.links.iter().filter_map(course).map(Bitrate::as_bps).sum();
    #[expect(clippy::cast_precision_loss, reason = "rates are far below 2^52 bit/s")]
    let mbit = bits as f64 / 1e6;
    mbit
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn scenario(text: &str) -> Scenario {
        Scenario::parse(text, Path::new(".")).expect("a valid scenario")
    }

    const TWO_LINKS: &str = r#"
        name = "two"
        links = [
            { name = "a", rtt_ms = 10, both = { rate_mbit = 8, queue_ms = 100 },
              outages = [{ at_s = 8, for_s = 2 }] },
            { name = "b", rtt_ms = 100, both = { rate_mbit = 2, queue_ms = 100 } },
        ]
        traffic = [
            { kind = "udp", rate_mbit = 6, duration_s = 15 },
            { kind = "ping", duration_s = 5 },
            { kind = "http", bytes = 1000 },
        ]
        checks = [
            { name = "tcp_percent_of_sum", minimum = 80 },
            { name = "seconds_to_reuse", maximum = 2 },
        ]
    "#;

    #[test]
    fn a_scenario_gives_the_same_figures_each_time_and_leaves_tcp_to_the_kernel() {
        let scenario = scenario(TWO_LINKS);
        let first = run(&scenario).unwrap();
        assert_eq!(first, run(&scenario).unwrap());
        assert!(first.value("in_order_percent") > 99.0, "{first:?}");
        assert!((10.0..80.0).contains(&first.value("ping_p50_ms")), "{first:?}");
        assert!(first.value("seconds_to_reuse") < 2.0, "{first:?}");
        assert!(first.value("udp_lost_percent") > 0.0, "an outage loses packets");
        let findings = first.findings(&scenario);
        assert!(findings.iter().all(|finding| finding.ok), "{findings:?}");
        assert!(findings[0].must.contains("kernel"), "{findings:?}");
    }

    #[test]
    fn a_setting_that_does_not_exist_is_named() {
        let text = "name = 'x'\nlinks = [{ name = 'a' }]\ntunnel = { scheduler = 'best' }";
        let error = run(&scenario(text)).unwrap_err();
        assert_eq!(error.to_string(), "tunnel: scheduler cannot be \"best\"");
    }
}
