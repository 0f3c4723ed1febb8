//! A scenario file on this machine's kernel, with the real daemons: the twin of the run in virtual time.
//!
//! The scenario begins when all links of the tunnel are up. The first traffic of a kind is the one
//! that is told; the others are load. Without a tunnel (`absent`) the daemons are not started, and curl binds to the
//! first link, as it does for others' downloads beside the tunnel.

mod link;

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use ropewalk_settings::Bitrate;

use crate::access::Access;
use crate::address::{SERVER_V4, client_interface};
use crate::demo::late_percent;
use crate::download::{Curl, Download};
use crate::emulator::Bound;
use crate::error::LabError;
use crate::http::{Upload, body_sha256};
use crate::per_second::PerSecond;
use crate::ping::{Ping, Pinged};
use crate::scenario::file::{TrafficKind, TrafficSection};
use crate::scenario::{Link, Scenario};
use crate::scenario_report::{Runner, ScenarioReport};
use crate::stage::{CONGESTION, Progress, Stage};
use crate::stats::mbit;
use crate::tally::UdpReceived;
use crate::topology::{TopologyConfig, WanConfig};
use link::{Readings, others_share};
use ropewalk_proto::config::TunnelConfig;
use ropewalk_settings::Direction;

/// How long traffic without an end of its own may last.
const LONGEST: Duration = Duration::from_secs(3600);
/// What counts as data on a link that returns: more than probes and keepalives make in that time.
const CARRIED: u64 = 20_000;
/// How often a link that returns is looked at, and for how long.
const POLL: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(15);
/// Echoes of a ping by the second.
const ECHOES: u32 = 10;

/// What came of one traffic.
enum Outcome {
    Udp {
        came: UdpReceived,
        length: Duration,
        sum: f64,
    },
    Tcp {
        mbit: f64,
        /// Of each connection.
        flows: Vec<f64>,
        series: PerSecond,
        length: Duration,
        sum: f64,
        congestion: Option<String>,
    },
    /// All of a known length came after so long.
    Completion {
        seconds: f64,
    },
    Ping(Pinged),
    /// What others downloaded beside the tunnel.
    Others {
        section: TrafficSection,
        series: PerSecond,
    },
    /// What the traffic did to its only link.
    Link(Box<Readings>),
    /// Whether a body came as sent.
    Body(bool),
    Stall {
        ms: f64,
    },
    /// Until a link that returned carried data again.
    Reuse {
        seconds: f64,
    },
}

/// Runs `scenario` with the `ropewalk` at `program`.
///
/// # Errors
/// When the network or the daemons cannot be started, or a tool fails.
pub fn run(
    scenario: &Scenario,
    program: &Path,
    progress: &dyn Progress,
) -> Result<ScenarioReport, LabError> {
    progress.say("building the network");
    let mut stage = Stage::build(program, &network(scenario))?;
    let mtu = match scenario.tunnel.absent {
        true => TunnelConfig::default().max_mtu,
        false => open_tunnel(&mut stage, scenario)?,
    };

    progress.say("the scenario begins");
    let play = Play { stage: &stage, scenario, mtu, started: Instant::now() };
    if let Some(emulator) = stage.topology().emulator() {
        let start = emulator.now();
        for (index, link) in scenario.links.iter().enumerate() {
            emulator.follow(index, link, start)?;
        }
    }
    let mut report = ScenarioReport::new(scenario, Runner::Kernel);
    note(&mut report, scenario, mtu, play.everything()?);
    if !scenario.tunnel.absent {
        note_tunnel(&mut report, &play)?;
    }
    if let Some(emulator) = stage.topology().emulator() {
        for link in &emulator.report()?.links {
            let up = scenario.direction() == Direction::Up;
            report.note_link(if up { &link.upstream } else { &link.downstream });
        }
    }
    report.void = stage.void_because(&Bound::default())?;
    Ok(report)
}

/// Starts the daemons as the scenario sets them. Returns the longest packet inside.
fn open_tunnel(stage: &mut Stage, scenario: &Scenario) -> Result<u16, LabError> {
    configure(stage, scenario);
    let links = u8::try_from(scenario.links.len()).unwrap_or(u8::MAX);
    stage.start(0..links)?;
    let mtu = stage.settled_mtu()?;
    stage.route_uploads_through_cubic()?;
    Ok(mtu)
}

/// Notes what the daemons tell.
fn note_tunnel(report: &mut ScenarioReport, play: &Play<'_>) -> Result<(), LabError> {
    let Play { stage, scenario, mtu, .. } = *play;
    let (status, proxy) = (stage.client_status()?, stage.proxy_status()?);
    let (way, receiver) = match scenario.direction() {
        Direction::Up => ("up", &proxy),
        Direction::Down | Direction::Both => ("down", &status),
    };
    report.note("inner_mtu", f64::from(mtu));
    report.note("late_percent", late_percent(receiver));
    report.note("wait_p99_ms", receiver.resequencer("wait_p99_ms"));
    for (reason, count) in status.all_drops().into_iter().chain(proxy.all_drops()) {
        report.note_drops(&reason, count);
    }
    let links: Vec<_> = (0u8..)
        .zip(&scenario.links)
        .map(|(wan, link)| (link.name.as_str(), status.bytes(&client_interface(wan), way)))
        .collect();
    report.note_shares(&links);
    Ok(())
}

fn network(scenario: &Scenario) -> TopologyConfig {
    let wan = |link: &Link| WanConfig {
        access: Some(Access {
            upstream: link.upstream.initial.clone(),
            downstream: link.downstream.initial.clone(),
        }),
        udp_timeout: link.nat_udp_timeout,
    };
    let wans = scenario.links.iter().map(wan).collect();
    TopologyConfig { seed: scenario.seed, ..TopologyConfig::new(wans) }
}

/// The words of the scenario are those of the config files.
fn configure(stage: &mut Stage, scenario: &Scenario) {
    let deployment = stage.deployment();
    let tunnel = |sends| scenario.table(sends, client_interface);
    deployment.proxy_config().insert("tunnel".into(), tunnel(Direction::Down).into());
    let client = deployment.client_config(0);
    client.insert("tunnel".into(), tunnel(Direction::Up).into());
    client.insert("keepalive".into(), scenario.tunnel.keepalive.to_string().into());
}

/// A scenario under way.
struct Play<'a> {
    stage: &'a Stage,
    scenario: &'a Scenario,
    mtu: u16,
    started: Instant,
}

impl Play<'_> {
    /// All traffic, and beside it the watch over links that return; outcomes in the order of the file.
    fn everything(&self) -> Result<Vec<Outcome>, LabError> {
        thread::scope(|scope| {
            let returns = scope.spawn(|| self.reuse());
            let readings = scope.spawn(|| {
                Ok(self
                    .readings()?
                    .map(|both| Outcome::Link(Box::new(both)))
                    .into_iter()
                    .collect::<Vec<_>>())
            });
            let traffic: Vec<_> = (0u64..)
                .zip(&self.scenario.traffic)
                .map(|(number, traffic)| scope.spawn(move || self.traffic(number, traffic)))
                .collect();
            let mut outcomes = Vec::new();
            for running in traffic.into_iter().chain([returns, readings]) {
                match running.join() {
                    Ok(outcome) => outcomes.extend(outcome?),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            Ok(outcomes)
        })
    }

    fn sleep_until(&self, moment: Duration) {
        thread::sleep((self.started + moment).saturating_duration_since(Instant::now()));
    }

    fn traffic(&self, number: u64, traffic: &TrafficSection) -> Result<Vec<Outcome>, LabError> {
        let start = Duration::from_secs_f64(traffic.start_s);
        self.sleep_until(start);
        let rest = self.scenario.duration.map_or(LONGEST, |end| end.saturating_sub(start));
        let own = traffic.duration_s.map_or(LONGEST, Duration::from_secs_f64);
        let duration = own.min(rest);
        // Each its own body, and none that of seed 0.
        let seed = number + 1;
        match (traffic.kind, traffic.direction) {
            (TrafficKind::Ping, _) => self.ping(duration),
            (TrafficKind::Udp, direction) => self.udp(traffic, direction, duration),
            (TrafficKind::Tcp | TrafficKind::Http, Direction::Up) => {
                self.upload(traffic, seed, duration)
            }
            (TrafficKind::Tcp | TrafficKind::Http, _) => self.download(traffic, seed, duration),
        }
    }

    fn download(
        &self,
        traffic: &TrafficSection,
        seed: u64,
        duration: Duration,
    ) -> Result<Vec<Outcome>, LabError> {
        let congestion = traffic.congestion.as_deref().unwrap_or(CONGESTION);
        let bare = self.scenario.tunnel.absent || traffic.beside.is_some();
        let interface = bare.then(|| client_interface(0));
        let curl = Curl { interface, limit: Some(duration) };
        let done = at_once(traffic.shares(), |bytes| {
            let url = self.stage.url_using(congestion, bytes.unwrap_or(u64::MAX), seed);
            curl.download(self.stage.topology().client(), &url, |_| {})
        })?;
        let mut series = PerSecond::default();
        done.iter().for_each(|one| series.add(&one.per_second));
        if traffic.beside.is_some() {
            return Ok(vec![Outcome::Others { section: traffic.clone(), series }]);
        }
        let stall = done.iter().map(|one| one.longest_stall_ms).fold(0.0, f64::max);
        let mut outcomes = vec![Outcome::Stall { ms: stall }];
        let as_sent = |(one, bytes): (&Download, &Option<u64>)| {
            bytes.is_none_or(|bytes| one.complete && one.sha256 == body_sha256(bytes, seed))
        };
        let all_as_sent = done.iter().zip(&traffic.shares()).all(as_sent);
        let seconds = done.iter().map(|one| one.seconds).fold(0.0, f64::max);
        if traffic.bytes.is_some() {
            outcomes.push(Outcome::Body(all_as_sent));
            outcomes.extend(all_as_sent.then_some(Outcome::Completion { seconds }));
        }
        // Seconds count from the first byte, of each connection for itself.
        let first = done.iter().map(|one| one.first_byte_ms / 1e3).fold(f64::INFINITY, f64::min);
        let began = Duration::try_from_secs_f64(first).unwrap_or_default();
        let last = done.iter().map(|one| one.samples.last().map_or(0.0, |last| last.0));
        let last = last.fold(0.0, f64::max);
        let bytes = done.iter().map(|one| one.bytes).sum();
        let took = Duration::try_from_secs_f64(last - first).unwrap_or_default();
        outcomes.push(Outcome::Tcp {
            mbit: mbit(bytes, took),
            flows: done.iter().map(|one| one.mbit).collect(),
            length: duration.min(Duration::from_secs_f64(seconds)).saturating_sub(began),
            series,
            sum: self.sum_mbit(Direction::Down),
            congestion: done.into_iter().find_map(|one| one.congestion_control),
        });
        Ok(outcomes)
    }

    /// One without a length is given what the links carry in its time, since the server answers only
    /// to a whole body.
    fn upload(
        &self,
        traffic: &TrafficSection,
        seed: u64,
        duration: Duration,
    ) -> Result<Vec<Outcome>, LabError> {
        let carried = self.sum(Direction::Up).as_bps() / 8 / u64::from(traffic.flows);
        let carried = carried.saturating_mul(duration.as_secs());
        let curl = Curl { interface: None, limit: Some(duration.saturating_mul(4)) };
        let lengths = traffic.shares().into_iter().map(|bytes| bytes.unwrap_or(carried));
        let started = Instant::now();
        let done = at_once(lengths.clone().collect(), |length| {
            let client = self.stage.topology().client();
            curl.upload(client, &self.stage.url(0, 0), length, seed)
        })?;
        let seconds = started.elapsed().as_secs_f64();
        let as_sent = |(one, length): (&Upload, u64)| {
            one.bytes == length && one.sha256 == body_sha256(length, seed)
        };
        let all_as_sent = done.iter().zip(lengths).all(as_sent);
        let bytes = done.iter().map(|one| one.bytes).sum();
        let longest = done.iter().map(|one| one.seconds).fold(0.0, f64::max);
        let tcp = Outcome::Tcp {
            mbit: mbit(bytes, Duration::try_from_secs_f64(longest).unwrap_or_default()),
            flows: done.iter().map(|one| one.mbit).collect(),
            length: Duration::ZERO,
            series: PerSecond::default(),
            sum: self.sum_mbit(Direction::Up),
            congestion: None,
        };
        let mut outcomes = vec![tcp, Outcome::Body(all_as_sent)];
        if traffic.bytes.is_some() && all_as_sent {
            outcomes.push(Outcome::Completion { seconds });
        }
        Ok(outcomes)
    }

    fn udp(
        &self,
        traffic: &TrafficSection,
        direction: Direction,
        duration: Duration,
    ) -> Result<Vec<Outcome>, LabError> {
        // Checked with the file: a UDP stream has a rate.
        let rate = crate::profile::bitrate(traffic.rate_mbit.unwrap_or_default()).as_bps();
        let came = match direction {
            Direction::Up => self.stage.stream_up(rate, self.mtu, duration)?,
            Direction::Down | Direction::Both => {
                self.stage.stream_down(rate, self.mtu, duration)?
            }
        };
        Ok(vec![Outcome::Udp { came, length: duration, sum: self.sum_mbit(direction) }])
    }

    fn ping(&self, duration: Duration) -> Result<Vec<Outcome>, LabError> {
        let count = u32::try_from(duration.as_secs()).unwrap_or(u32::MAX).saturating_mul(ECHOES);
        let interval = Duration::from_secs(1) / ECHOES;
        let ping = Ping { interval, ..Ping::new(SERVER_V4.into(), count.max(1)) };
        Ok(vec![Outcome::Ping(ping.run(self.stage.topology().client())?)])
    }

    /// After each outage, how long until the tunnel sends data over its link again.
    fn reuse(&self) -> Result<Vec<Outcome>, LabError> {
        if self.scenario.tunnel.absent {
            return Ok(Vec::new());
        }
        let mut ends: Vec<(Duration, String)> = Vec::new();
        for (wan, link) in (0u8..).zip(&self.scenario.links) {
            let changes = &link.downstream.changes;
            let cuts = changes.windows(2).filter(|pair| pair[0].1.cut.is_some());
            let returns = cuts.filter(|pair| pair[1].1.cut.is_none());
            ends.extend(returns.map(|pair| (pair[1].0, client_interface(wan))));
        }
        ends.sort();
        let mut outcomes = Vec::new();
        for (end, link) in ends {
            self.sleep_until(end);
            outcomes.push(Outcome::Reuse { seconds: self.time_until_reuse(&link)? });
        }
        Ok(outcomes)
    }

    fn time_until_reuse(&self, link: &str) -> Result<f64, LabError> {
        let returned = Instant::now();
        let before = self.stage.client_status()?.bytes(link, "down");
        while returned.elapsed() < PATIENCE {
            let status = self.stage.client_status()?;
            if status.is_up(link) && status.bytes(link, "down") >= before + CARRIED {
                return Ok(returned.elapsed().as_secs_f64());
            }
            thread::sleep(POLL);
        }
        Ok(f64::INFINITY)
    }

    /// The links' initial rates in a direction.
    fn sum(&self, direction: Direction) -> Bitrate {
        Bitrate::from_bps(self.scenario.rates(direction).map(Bitrate::as_bps).sum())
    }

    #[expect(clippy::cast_precision_loss, reason = "rates are far below 2^52 bit/s")]
    fn sum_mbit(&self, direction: Direction) -> f64 {
        self.sum(direction).as_bps() as f64 / 1e6
    }
}

/// Does the same with each of these at once.
fn at_once<T: Send, R: Send>(
    these: Vec<T>,
    act: impl Fn(T) -> Result<R, LabError> + Sync,
) -> Result<Vec<R>, LabError> {
    thread::scope(|scope| {
        let act = &act;
        let running: Vec<_> = these.into_iter().map(|one| scope.spawn(move || act(one))).collect();
        let joined = running
            .into_iter()
            .map(|one| one.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        joined.collect()
    })
}

/// The first of each kind counts, but all bodies must be right, and the slowest return is told.
fn note(report: &mut ScenarioReport, scenario: &Scenario, mtu: u16, outcomes: Vec<Outcome>) {
    let mut others = Vec::new();
    let mut bodies = Vec::new();
    let mut returns = Vec::new();
    for outcome in outcomes {
        match outcome {
            Outcome::Udp { came, length, sum } => report.note_udp(&came, length, sum),
            Outcome::Tcp { mbit, flows, series, length, sum, congestion } => {
                report.note_tcp(mbit, &series, length, sum);
                report.note_flows(&flows);
                report.congestion_control = report.congestion_control.take().or(congestion);
            }
            Outcome::Ping(pinged) => {
                report.note_ping(&pinged.rtt, pinged.lost as u64, pinged.sent as u64);
            }
            Outcome::Completion { seconds } => report.note("completion_s", seconds),
            Outcome::Stall { ms } => report.note("longest_stall_ms", ms),
            Outcome::Body(as_sent) => bodies.push(as_sent),
            Outcome::Reuse { seconds } => returns.push(seconds),
            Outcome::Others { section, series } => others.push((section, series)),
            Outcome::Link(readings) => readings.note(report, scenario),
        }
    }
    for (section, series) in others {
        if let Some(share) = others_share(report, scenario, mtu, &section, &series) {
            report.note("others_share_percent", share);
        }
    }
    if !bodies.is_empty() {
        report.note("sha256_ok", f64::from(u8::from(bodies.into_iter().all(|as_sent| as_sent))));
    }
    if let Some(slowest) = returns.into_iter().reduce(f64::max) {
        report.note("seconds_to_reuse", slowest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wrong_body_and_the_slowest_return_are_what_is_told() {
        let text = "name = 'x'\nlinks = [{ name = 'a' }]";
        let scenario = Scenario::parse(text, Path::new(".")).expect("a valid scenario");
        let mut report = ScenarioReport::new(&scenario, Runner::Kernel);
        let tcp = |mbit, congestion: &str| Outcome::Tcp {
            mbit,
            flows: vec![mbit],
            series: PerSecond::default(),
            length: Duration::ZERO,
            sum: 10.0,
            congestion: Some(congestion.to_owned()),
        };
        let outcomes = vec![
            tcp(3.0, "cubic"),
            Outcome::Body(true),
            tcp(1.0, "bbr"),
            Outcome::Body(false),
            Outcome::Reuse { seconds: 1.5 },
            Outcome::Reuse { seconds: 0.5 },
        ];
        note(&mut report, &scenario, 1440, outcomes);
        assert_eq!(report.value("sha256_ok"), 0.0);
        assert_eq!(report.value("seconds_to_reuse"), 1.5);
        assert_eq!((report.value("tcp_mbit"), report.value("tcp_percent_of_sum")), (3.0, 30.0));
        assert_eq!(report.congestion_control.as_deref(), Some("cubic"));
    }
}
