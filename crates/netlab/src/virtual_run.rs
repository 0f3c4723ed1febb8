//! A scenario file in virtual time, with the real core: the twin of the run on the kernel.
//!
//! The scenario begins when the links of the tunnel are up. TCP is [that of the lab](crate::tcp), which has
//! CUBIC; a stream that is to use another congestion control is left out, and what it would have measured is
//! [told as such](KERNEL_ONLY), so that one file serves both. The first traffic of a kind is the one that is
//! told; the others are load.

mod bare;
mod meter;
mod others;
mod traffic;
mod turns;

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use ropewalk_proto::config::TunnelConfig;
use ropewalk_proto::time::Instant;
use ropewalk_settings::Bitrate;

use crate::company::Company;
use crate::lab::Towards;
use crate::netem::Netem;
use crate::network::Network;
use crate::pair::{TunnelLab, link_config, tunnels};
use crate::scenario::file::{Beside, TrafficKind};
use crate::scenario::{Course, Scenario};
use crate::scenario_report::{Runner, STALL_TCP, ScenarioReport};
use crate::stalls;
use crate::stats::{Percentiles, percent};
use crate::stream::{Stream, run_all};
use crate::tcp::Together;
use ropewalk_settings::{Direction, SettingError};
use traffic::{LONGEST, Traffic, towards};
use turns::{Turn, What, come, go, turns};

/// Values that only a kernel can give where a stream uses another congestion control.
pub const KERNEL_ONLY: [&str; 9] = [
    "tcp_mbit",
    "tcp_percent_of_sum",
    "tcp_variation",
    "tcp_lowest_second_percent",
    "sha256_ok",
    "longest_stall_ms",
    "seconds_to_reuse",
    "half_rate_after_s",
    "outage_stall_ms",
];

/// Until the links are up and their path MTUs are known.
const SETTLING: Duration = Duration::from_secs(3);
/// What is still under way at the end comes within this time.
const REST: Duration = Duration::from_secs(2);
/// The congestion control of TCP here.
const CONGESTION: &str = "cubic";

/// Runs the scenario; the same file gives the same figures.
///
/// # Errors
/// A setting of the tunnel does not exist.
pub fn run(scenario: &Scenario) -> Result<ScenarioReport, SettingError> {
    run_with(scenario, |config| config)
}

/// The same with both ends' settings changed as `set` does: for what no scenario file can ask for.
///
/// # Errors
/// A setting of the tunnel does not exist.
pub fn run_with(
    scenario: &Scenario,
    set: impl Fn(TunnelConfig) -> TunnelConfig,
) -> Result<ScenarioReport, SettingError> {
    let [client, proxy] = [Direction::Up, Direction::Down].map(|way| scenario.core(way));
    let (client, proxy) = (set(client?), set(proxy?));
    if scenario.tunnel.absent {
        return Ok(bare::run(scenario));
    }
    let keepalive = scenario.tunnel.keepalive;
    let mut lab = tunnels(&client, &proxy, scenario.seed);
    for link in &scenario.links {
        let (down, up) = (link.downstream.initial.clone(), link.upstream.initial.clone());
        let path = lab.add_link(down, up, scenario.seed);
        // More links than a tunnel may have carry nothing.
        let _ = lab.client.add_link(lab.now, &link_config(&link.name, path, keepalive));
    }
    let mut site = Company::nobody(lab);
    if scenario.traffic.iter().any(|traffic| traffic.beside == Some(Beside::Tunnel)) {
        site.open_second(&client, &proxy, scenario.seed);
    }
    site.run_until(Instant::ZERO + SETTLING);
    begin(&mut site.lab, scenario);
    Ok(play(&mut site, scenario))
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

fn play(site: &mut Company, scenario: &Scenario) -> ScenarioReport {
    let start = site.now();
    let mtu = site.lab.client.stats().inner_mtu.unwrap_or(1200);
    let mut traffic = Traffic::of(scenario, [mtu, site.others_mtu(bare::MTU)], start);
    site.others_from = traffic.others_from;
    let end = scenario.duration.map(|duration| start + duration);
    let watched = traffic.fills_downstream() && !scenario.tells_stalls();
    let mut turns = turns(scenario, watched);
    let mut reuse = Vec::new();
    while let Some(Turn { at, link, what }) = turns.pop() {
        // Of two at the same moment, the later one looked at may only seem slower.
        let at = (start + at).max(site.now());
        traffic.run(site, end.map_or(at, |end| end.min(at)));
        if site.now() < at {
            break;
        }
        match what {
            What::Goes(kind) => go(&mut site.lab, link, kind, scenario),
            What::Comes(kind) => come(&mut site.lab, link, kind, scenario),
            What::Returns => {
                let name = &scenario.links[link].name;
                reuse.push(traffic.time_until_reuse(site, link, name));
            }
        }
    }
    traffic.run(site, end.unwrap_or(start + LONGEST));
    let rest = site.now() + REST;
    run_all(site, &mut traffic.streams, &mut traffic.flows, rest);
    report(&site.lab, scenario, &traffic, &reuse)
}

fn report(
    lab: &TunnelLab,
    scenario: &Scenario,
    traffic: &Traffic<'_>,
    reuse: &[f64],
) -> ScenarioReport {
    let mut report = ScenarioReport::new(scenario, Runner::Virtual);
    note_traffic(&mut report, scenario, traffic);
    let way = towards(scenario.direction());
    for line in &lab.links {
        report.note_link(&match way {
            Towards::Client => line.down.counters(),
            Towards::Proxy => line.up.counters(),
        });
    }
    if let Some(slowest) = reuse.iter().copied().reduce(f64::max) {
        report.note("seconds_to_reuse", slowest);
    }
    if let Some(slowest) = traffic.half_rate_after(scenario) {
        report.note("half_rate_after_s", slowest);
    }
    let (client, proxy) = (lab.client.stats(), lab.proxy.stats());
    for (reason, count) in client.drops.iter().chain(proxy.drops.iter()) {
        report.note_drops(reason.as_str(), count);
    }
    let end = match way {
        Towards::Client => &client,
        Towards::Proxy => &proxy,
    };
    // The two ends may not have a link in the same place; only the client has the names.
    let received =
        |id| end.links.iter().find(|link| link.id == id).map_or(0, |link| link.received.bytes);
    let bytes: Vec<_> =
        client.links.iter().map(|link| (link.name.as_str(), received(link.id))).collect();
    report.note_shares(&bytes);
    report.note("inner_mtu", client.inner_mtu.map_or(f64::NAN, f64::from));
    let reseq = &end.reseq;
    let late = reseq.late + reseq.duplicates + reseq.too_old;
    report.note("late_percent", percent(late, reseq.in_order + reseq.resequenced + late));
    #[expect(clippy::cast_precision_loss, reason = "waits are far below 2^52 us")]
    report.note("wait_p99_ms", reseq.wait_p99_us as f64 / 1e3);
    report
}

/// What came of the traffic, and what its only link did meanwhile.
fn note_traffic(report: &mut ScenarioReport, scenario: &Scenario, traffic: &Traffic<'_>) {
    note_tcp(report, scenario, traffic);
    let mut call = Vec::new();
    for (section, stream) in traffic.sections.iter().zip(&traffic.streams) {
        match section.kind {
            TrafficKind::Ping => {
                report.note_ping(&stream.delays(), stream.missing(), stream.sent());
            }
            TrafficKind::Call => call.extend([stream.received()]),
            _ => {
                let length = stream.end().since(stream.start());
                report.note_udp(&stream.received(), length, sum(scenario, section.direction));
            }
        }
    }
    if let [down, up] = &call[..] {
        report.note_call(scenario, down, up);
        if scenario.tells_stalls() {
            let first = |stream: &Stream| {
                let first = stream.came().first().map(|came| came.at);
                first.map_or(Duration::ZERO, |at| at.since(traffic.start))
            };
            let calls = traffic.sections.iter().zip(&traffic.streams);
            let start = calls.filter(|(section, _)| section.kind == TrafficKind::Call);
            let start = start.map(|(_, stream)| first(stream)).max().unwrap_or_default();
            report.note_departures(scenario, start, [down, up]);
        }
    }
    report.per_tenth = traffic.per_tenth();
    traffic.meter.note(report);
}

fn note_tcp(report: &mut ScenarioReport, scenario: &Scenario, traffic: &Traffic<'_>) {
    let mut bodies = Vec::new();
    let ours = traffic.tcp_sections.iter().filter(|(section, _)| section.beside.is_none());
    for (section, flows) in ours {
        let flows = &traffic.flows[flows.clone()];
        if section.times > 1 {
            let fetches = flows.chunks(usize::from(section.flows)).map(Together::of);
            let fetches: Vec<_> =
                fetches.map(|one| one.is_complete().then(|| one.length())).collect();
            bodies.push(fetches.iter().all(Option::is_some));
            let limit = Duration::from_secs_f64(section.duration_s.unwrap_or_default());
            let times = fetches.into_iter().map(|one| one.unwrap_or(limit)).collect();
            report.note_fetches(&Percentiles::of(times));
            continue;
        }
        let came = Together::of(flows);
        let sum = sum(scenario, section.direction);
        report.note_tcp(came.mbit(), &came.per_second(), came.length(), sum);
        report.note("longest_stall_ms", came.longest_stall().as_secs_f64() * 1e3);
        if let Some(outage) = scenario.first_outage() {
            let stall = came.longest_stall_from(traffic.start + outage);
            report.note("outage_stall_ms", stall.as_secs_f64() * 1e3);
        }
        if scenario.tells_stalls() {
            let came = came.came().iter().map(|arrival| arrival.at.since(traffic.start));
            let stalls = stalls::at_each(&scenario.departures(), &stalls::between(came));
            report.note_stalls(STALL_TCP, stalls);
        }
        report.note_flows(came.flows());
        report.congestion_control.get_or_insert_with(|| CONGESTION.to_owned());
        if section.bytes.is_some() {
            bodies.push(came.is_complete());
        }
        if section.bytes.is_some() && came.is_complete() {
            report.note("completion_s", came.length().as_secs_f64());
        }
    }
    if let Some(ok) = bodies.into_iter().reduce(|all, ok| all && ok) {
        report.note("sha256_ok", f64::from(u8::from(ok)));
    }
}

/// The links' initial rates in a direction, Mbit/s.
fn sum(scenario: &Scenario, direction: Direction) -> f64 {
    let bits: u64 = scenario.rates(direction).map(Bitrate::as_bps).sum();
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
            { kind = "http", bytes = 100_000, start_s = 1 },
            { kind = "tcp", duration_s = 2, congestion = "bbr" },
        ]
        checks = [
            { name = "tcp_mbit", minimum = 0.5 },
            { name = "sha256_ok", minimum = 1 },
            { name = "seconds_to_reuse", maximum = 2 },
        ]
    "#;

    #[test]
    fn a_scenario_gives_the_same_figures_each_time() {
        let scenario = scenario(TWO_LINKS);
        let first = run(&scenario).unwrap();
        assert_eq!(first, run(&scenario).unwrap());
        assert!(first.value("in_order_percent") > 99.0, "{first:?}");
        assert!((10.0..80.0).contains(&first.value("ping_p50_ms")), "{first:?}");
        assert!(first.value("udp_lost_percent") > 0.0, "an outage loses packets");
        assert_eq!(first.congestion_control.as_deref(), Some("cubic"));
        let findings = first.findings(&scenario);
        assert!(findings.iter().all(|finding| finding.ok), "{findings:?}");
    }

    #[test]
    fn a_congestion_control_that_is_not_here_is_left_to_the_kernel() {
        let scenario = scenario(
            "name = 'x'\nlinks = [{ name = 'a', both = { rate_mbit = 5 } }]\n\
             traffic = [{ kind = 'tcp', duration_s = 1, congestion = 'bbr' }]\n\
             checks = [{ name = 'tcp_percent_of_sum', minimum = 80 }]",
        );
        let findings = run(&scenario).unwrap().findings(&scenario);
        assert!(findings[0].ok && findings[0].must.contains("kernel"), "{findings:?}");
    }

    #[test]
    fn tcp_fills_both_links_in_either_direction_and_outlives_a_cut() {
        let file = |direction: &str| {
            format!(
                "name = 'x'\nlinks = [\
                 {{ name = 'a', rtt_ms = 20, both = {{ rate_mbit = 6, queue_ms = 100 }},\
                    outages = [{{ at_s = 8, for_s = 2 }}] }},\
                 {{ name = 'b', rtt_ms = 40, both = {{ rate_mbit = 4, queue_ms = 100 }} }}]\n\
                 traffic = [{{ kind = 'http', direction = '{direction}', bytes = 15_000_000 }}]"
            )
        };
        for direction in ["down", "up"] {
            let report = run(&scenario(&file(direction))).unwrap();
            assert_eq!(report.value("sha256_ok"), 1.0, "{report:?}");
            // 2 of 15 s have 4 Mbit/s.
            assert!(report.value("tcp_percent_of_sum") > 65.0, "{direction}: {report:?}");
            assert!(report.value("longest_stall_ms") < 1500.0, "{direction}: {report:?}");
        }
        let down = run(&scenario(&file("down"))).unwrap();
        assert!(down.value("seconds_to_reuse") < 1.0, "{down:?}");
    }

    #[test]
    fn what_others_send_is_counted_and_weighs() {
        let file = |weights: &str, unseen: bool| {
            format!(
                "name = 'shared'\n\
                 links = [{{ name = 'a', rtt_ms = 20, others_unseen = {unseen}, both = {{ rate_mbit = 5, queue_ms = 100 }},\
                    changes = [{{ at_s = 0, down = {{ background_mbit = 4 }} }}] }},\
                 {{ name = 'b', rtt_ms = 20, both = {{ rate_mbit = 5, queue_ms = 100 }} }}]\n\
                 traffic = [{{ kind = 'udp', rate_mbit = 5, duration_s = 20 }}]\n\
                 [tunnel]\nprofile = 'paper'\nscheduler = 'natalie'\ncontroller = 'fixed'\n\
                 rates_told = true\nnatalie = {{ weights = '{weights}', when_full = 'wait' }}"
            )
        };
        let lost = |weights, unseen| {
            run(&scenario(&file(weights, unseen))).unwrap().value("udp_lost_percent")
        };
        let (auto, told) = (lost("auto", false), lost("told", false));
        assert!(auto < 5.0 && told > 20.0, "{auto} {told}");
        let unseen = lost("auto", true);
        println!("lost: counted {auto} %, told {told} %, unseen {unseen} %");
        assert!(unseen > 1.5 * auto, "an unseen host is found out by losses only");
    }

    #[test]
    fn told_rates_and_directions_make_a_link_that_waits_beside_one_that_is_idle() {
        let file = r#"
            name = "told"
            links = [
                { name = "a", direction = "down", both = { rate_mbit = 4, queue_ms = 100, delay_ms = 5 } },
                { name = "b", direction = "down", both = { rate_mbit = 2, queue_ms = 100, delay_ms = 40 } },
                { name = "acks", direction = "up", both = { rate_mbit = 1, queue_ms = 100 } },
            ]
            traffic = [{ kind = "udp", rate_mbit = 3, duration_s = 10 }, { kind = "ping", duration_s = 9 }]
            [tunnel]
            scheduler = "natalie"
            controller = "fixed"
            rates_told = true
            resequencer = { enabled = false }
            natalie = { weights = "told", when_full = "wait" }
            link = { a = { weight = 1 }, b = { weight = 3 } }
        "#;
        let report = run(&scenario(file)).unwrap();
        let share = |link: &str| report.share_percent[link];
        assert!((23.0..30.0).contains(&share("a")) && share("acks") < 5.0, "{report:?}");
        // Three quarters do not fit into 2 Mbit/s.
        assert!((2.5..2.7).contains(&report.value("udp_mbit")), "{report:?}");
        assert!(report.value("in_order_percent") < 95.0, "nothing is put in order: {report:?}");
        assert!(report.value("ping_lost_percent") < 40.0, "{report:?}");
    }

    #[test]
    fn the_same_tcp_without_a_tunnel_has_what_the_headers_of_the_tunnel_take() {
        let file = |tunnel: &str| {
            format!(
                "name = 'x'\nlinks = [{{ name = 'a', rtt_ms = 20, both = {{ rate_mbit = 10, queue_ms = 100 }} }}]\n\
                 traffic = [{{ kind = 'tcp', duration_s = 10, start_s = 0.3 }}]\n{tunnel}"
            )
        };
        let bare = run(&scenario(&file("tunnel = { absent = true }"))).unwrap();
        let tunnel = run(&scenario(&file("tunnel = { profile = 'paper' }"))).unwrap();
        let percent = |report: &ScenarioReport| report.value("tcp_percent_of_sum");
        assert!((96.0..96.6).contains(&percent(&bare)), "{bare:?}");
        assert!((90.0..92.6).contains(&percent(&tunnel)), "{tunnel:?}");
        for report in [&bare, &tunnel] {
            // Cubic fills a queue of 100 ms, and its acknowledgements go back.
            let wait = ["link_wait_p50_ms", "link_wait_p95_ms"].map(|name| report.value(name));
            assert!(20.0 < wait[0] && wait[0] < wait[1] && wait[1] <= 100.0, "{report:?}");
            assert!((0.5..6.0).contains(&report.value("link_back_percent")), "{report:?}");
            assert!(report.value("link_dropped_percent") < 1.0, "{report:?}");
            assert!(report.value("others_share_percent").is_nan(), "nobody else is there");
            assert!((85..=99).contains(&report.per_tenth.len()), "{}", report.per_tenth.len());
        }
        assert!(bare.share_percent.is_empty() && bare.value("inner_mtu").is_nan());
    }

    #[test]
    fn others_beside_the_tunnel_have_their_share_of_its_link() {
        let file = |beside: &str, tunnel: &str| {
            format!(
                "name = 'x'\nlinks = [{{ name = 'a', rtt_ms = 40, both = {{ rate_mbit = 10, queue_ms = 100 }} }}]\n\
                 traffic = [{{ kind = 'tcp', duration_s = 30 }},\
                    {{ kind = 'tcp', duration_s = 27, start_s = 3, beside = '{beside}' }}]\n{tunnel}"
            )
        };
        for (beside, tunnel) in
            [("bare", ""), ("tunnel", ""), ("bare", "tunnel = { absent = true }")]
        {
            let report = run(&scenario(&file(beside, tunnel))).unwrap();
            let (share, ours) = (report.value("others_share_percent"), report.value("tcp_mbit"));
            println!("{beside}, {tunnel}: {share} % are others', ours {ours} Mbit/s");
            assert!((15.0..85.0).contains(&share), "{beside}, {tunnel}: {report:?}");
            assert!((1.0..9.0).contains(&ours), "{report:?}");
        }
        let text = file("bare", "").replace("beside =", "congestion = 'bbr', beside =");
        let report = run(&scenario(&text)).unwrap();
        assert!(report.value("others_share_percent").is_nan(), "left to the kernel: {report:?}");
    }

    #[test]
    fn several_connections_are_told_together_and_each() {
        for direction in ["down", "up"] {
            let text = format!(
                "name = 'x'\nlinks = [{{ name = 'a', rtt_ms = 20, both = {{ rate_mbit = 4, queue_ms = 100 }} }},\
                 {{ name = 'b', rtt_ms = 20, both = {{ rate_mbit = 2, queue_ms = 100 }} }}]\n\
                 traffic = [{{ kind = 'tcp', direction = '{direction}', flows = 3, bytes = 5_000_001 }}]"
            );
            let report = run(&scenario(&text)).unwrap();
            assert_eq!(report.value("sha256_ok"), 1.0, "{report:?}");
            let (mbit, flows) = (report.value("tcp_mbit"), &report.flow_mbit);
            assert!(mbit > 0.85 * 6.0 * 0.925, "{report:?}");
            // None can have more than all, and the slowest has a third of the bytes.
            assert!(
                flows.len() == 3 && flows.iter().all(|one| *one < mbit && *one >= 0.9 * mbit / 3.0)
            );
            let seconds = 5_000_001.0 * 8.0 / mbit / 1e6;
            assert!((seconds..seconds + 0.2).contains(&report.value("completion_s")), "{report:?}");
            // The larger link brings the more, whichever end receives.
            assert!(report.share_percent["a"] > report.share_percent["b"], "{report:?}");
        }
    }

    #[test]
    fn an_upload_without_a_length_goes_on_for_its_time_however_little_it_carries() {
        for tunnel in ["", "tunnel = { absent = true }"] {
            let report = run(&scenario(&format!(
                "name = 'x'\nlinks = [{{ name = 'a', rtt_ms = 20, both = {{ rate_mbit = 10, queue_ms = 100, loss = 0.01 }} }}]\n\
                 traffic = [{{ kind = 'tcp', direction = 'up', duration_s = 10 }}]\n{tunnel}"
            )))
            .unwrap();
            let seconds = report.per_second["tcp"].len();
            assert!((8..=11).contains(&seconds), "{tunnel}: {seconds} s");
            assert!(report.value("tcp_mbit") > 1.0, "{tunnel}: {report:?}");
        }
    }

    #[test]
    fn fetches_follow_each_other_and_take_the_round_trips_of_slow_start() {
        for (bytes, flows, trips) in [(10_000, 1, 2.0), (20_000, 1, 3.0), (60_000, 6, 2.0)] {
            let scenario = scenario(&format!(
                "name = 'x'\nlinks = [{{ name = 'a', rtt_ms = 100, both = {{ rate_mbit = 50 }} }}]\n\
                 traffic = [{{ kind = 'tcp', bytes = {bytes}, flows = {flows}, times = 5, duration_s = 9 }}]\n\
                 tunnel = {{ absent = true }}"
            ));
            let report = run(&scenario).unwrap();
            assert_eq!(report.value("sha256_ok"), 1.0, "{report:?}");
            let (middle, most) = (report.value("fetch_p50_ms"), report.value("fetch_p95_ms"));
            let least = 100.0 * trips;
            assert!((least..least + 20.0).contains(&middle), "{bytes}: {middle} ms");
            assert!(most < least + 20.0, "{bytes}: {most} ms");
            assert!(report.value("tcp_mbit").is_nan(), "times tell, not rates: {report:?}");
        }
    }

    #[test]
    fn a_fetch_that_does_not_end_counts_with_its_limit() {
        let scenario = scenario(
            "name = 'x'\nlinks = [{ name = 'a', rtt_ms = 20, both = { rate_mbit = 1 } }]\n\
             traffic = [{ kind = 'tcp', bytes = 1_000_000, times = 3, duration_s = 2 }]\n\
             tunnel = { absent = true }",
        );
        let report = run(&scenario).unwrap();
        let told = [report.value("sha256_ok"), report.value("fetch_p50_ms")];
        assert_eq!(told, [0.0, 2000.0], "{report:?}");
    }

    #[test]
    fn a_call_is_told_beyond_the_delay_of_the_fastest_link_and_waits_behind_a_download() {
        let file = |downloads: &str| {
            format!(
                "name = 'x'\nlinks = [{{ name = 'a', rtt_ms = 40, both = {{ rate_mbit = 10, queue_ms = 100 }} }}]\n\
                 traffic = [{{ kind = 'call', duration_s = 10 }}{downloads}]\ntunnel = {{ absent = true }}"
            )
        };
        let values = |file: &str| {
            let report = run(&scenario(file)).unwrap();
            let names = ["call_down_added_p50_ms", "call_up_added_p95_ms", "call_lost_packets"];
            names.map(|name| report.value(name))
        };
        // Its own transmission: 200 bytes at 10 Mbit/s.
        let alone = values(&file(""));
        assert!((0.1..0.3).contains(&alone[0]) && alone[1] < 0.3, "{alone:?}");
        assert_eq!(alone[2], 0.0);
        let beside = values(&file(", { kind = 'tcp', duration_s = 10 }"));
        assert!((40.0..100.0).contains(&beside[0]), "behind a full queue: {beside:?}");
    }

    #[test]
    fn a_link_that_goes_down_with_notice_is_sent_less_than_one_cut_in_silence_and_both_return() {
        let run_with = |kind: &str| {
            let scenario = scenario(&format!(
                "name = 'x'\nlinks = [\
                 {{ name = 'a', rtt_ms = 40, both = {{ rate_mbit = 20, queue_ms = 100 }},\
                    outages = [{{ at_s = 3, for_s = 3, kind = '{kind}' }}] }},\
                 {{ name = 'b', rtt_ms = 40, both = {{ rate_mbit = 20, queue_ms = 100 }} }}]\n\
                 traffic = [{{ kind = 'tcp', duration_s = 14 }}]"
            ));
            run(&scenario).unwrap()
        };
        let (told, silent) = (run_with("interface-down"), run_with("silent"));
        for report in [&told, &silent] {
            assert!(report.value("half_rate_after_s") < 8.0, "{report:?}");
            assert!(report.value("seconds_to_reuse") < 2.0, "{report:?}");
            assert!((1.0..500.0).contains(&report.value("outage_stall_ms")), "{report:?}");
        }
        let cut = |report: &ScenarioReport| report.drops["link_cut"];
        println!("sent into the cut: told {}, silent {}", cut(&told), cut(&silent));
        assert!(cut(&told) < cut(&silent), "{} {}", cut(&told), cut(&silent));
    }
}
