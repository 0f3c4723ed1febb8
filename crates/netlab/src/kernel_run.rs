//! A scenario file on this machine's kernel, with the real daemons: the twin of the run in virtual time.
//!
//! The scenario begins when all links of the tunnel are up. The first traffic of a kind is the one
//! that is told; the others are load. Without a tunnel (`absent`) the daemons are not started, and curl binds to the
//! first link, as it does for others' downloads beside the tunnel. What uploads use is set by a route, so that all of a
//! scenario use the same.

mod link;

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use ropewalk_settings::Bitrate;
use toml::Table;

use crate::access::Access;
use crate::address::{SERVER_V4, client_interface};
use crate::demo::late_percent;
use crate::download::{Curl, Download};
use crate::emulator::Bound;
use crate::error::LabError;
use crate::half_rate::half_rate_after;
use crate::http::{Upload, body_sha256};
use crate::per_second::PerSecond;
use crate::ping::{Ping, Pinged};
use crate::scenario::file::{OutageKind, PAUSE, TrafficKind, TrafficSection};
use crate::scenario::{Link, Outage, Scenario};
use crate::scenario_report::{Runner, STALL_TCP, ScenarioReport};
use crate::stage::{CONGESTION, Progress, Stage};
use crate::stalls::{Stall, at_each};
use crate::stats::{Percentiles, mbit};
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
/// By then the connection of an upload exists.
const CONNECTED: Duration = Duration::from_secs(2);
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
    /// How long fetches took that followed each other.
    Fetches(Percentiles),
    /// A call's streams, down and up, and when it began.
    Call(Duration, [UdpReceived; 2]),
    /// How long a connection stood still.
    Stalls(Vec<Stall>),
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
        /// The longest from the first outage on.
        outage_ms: Option<f64>,
    },
    /// Until a link that returned carried data again, and until it carried half its rate.
    Reuse {
        seconds: f64,
        half_rate: f64,
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
        true => {
            if let Some(congestion) = upload_congestion(scenario) {
                stage.route_uploads_through(congestion, true)?;
            }
            TunnelConfig::default().max_mtu
        }
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
    stage.route_uploads_through(upload_congestion(scenario).unwrap_or(CONGESTION), false)?;
    Ok(mtu)
}

/// What uploads use; `None` where there are none.
fn upload_congestion(scenario: &Scenario) -> Option<&str> {
    let upload = scenario.traffic.iter().find(|traffic| traffic.is_upload())?;
    Some(upload.congestion.as_deref().unwrap_or(CONGESTION))
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
    let mut settings = tunnel(Direction::Up);
    if let Some(toml::Value::Table(told)) = settings.remove("link") {
        tell_of_links(client, &told);
    }
    client.insert("tunnel".into(), settings.into());
    client.insert("keepalive".into(), scenario.tunnel.keepalive.to_string().into());
}

/// What is said of links to the end that sends up, in the words of a client's config: that is about both directions.
fn tell_of_links(client: &mut Table, told: &Table) {
    let links = client.get_mut("link").and_then(toml::Value::as_array_mut);
    for link in links.into_iter().flatten().filter_map(toml::Value::as_table_mut) {
        let name = link.get("interface").and_then(toml::Value::as_str).unwrap_or_default();
        let terms = told.get(name).and_then(toml::Value::as_table).cloned().unwrap_or_default();
        for (key, value) in terms {
            let key = if matches!(&*key, "rate" | "max") { format!("{key}_up") } else { key };
            link.insert(key, value);
        }
    }
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
            let interfaces = scope.spawn(|| self.interfaces().map(|()| Vec::new()));
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
            for running in traffic.into_iter().chain([returns, interfaces, readings]) {
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
            (TrafficKind::Call, _) => self.call(start, duration),
            (TrafficKind::Udp, direction) => self.udp(traffic, direction, duration),
            (TrafficKind::Tcp | TrafficKind::Http, Direction::Up) => {
                self.upload(traffic, seed, duration)
            }
            (TrafficKind::Tcp | TrafficKind::Http, _) if traffic.times > 1 => {
                self.fetches(traffic, seed, duration)
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
        let done = self.connections(traffic, seed, duration)?;
        let mut series = PerSecond::default();
        done.iter().for_each(|one| series.add(&one.per_second));
        if traffic.beside.is_some() {
            return Ok(vec![Outcome::Others { section: traffic.clone(), series }]);
        }
        let stall = done.iter().map(|one| one.longest_stall_ms).fold(0.0, f64::max);
        let outage_ms = self.scenario.first_outage().map(|outage| {
            let from = outage.as_secs_f64() - traffic.start_s;
            done.iter().map(|one| one.longest_stall_from(from)).fold(0.0, f64::max)
        });
        let stalls = done.iter().flat_map(|one| &one.stalls);
        let stalls = Outcome::Stalls(since(traffic.start_s, stalls));
        let mut outcomes = vec![Outcome::Stall { ms: stall, outage_ms }, stalls];
        let all_as_sent = all_as_sent(&done, traffic, seed);
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

    /// One download over each of its connections.
    fn connections(
        &self,
        traffic: &TrafficSection,
        seed: u64,
        limit: Duration,
    ) -> Result<Vec<Download>, LabError> {
        let congestion = traffic.congestion.as_deref().unwrap_or(CONGESTION);
        let bare = self.scenario.tunnel.absent || traffic.beside.is_some();
        let interface = bare.then(|| client_interface(0));
        let curl = Curl { interface, limit: Some(limit) };
        at_once(traffic.shares(), |bytes| {
            let url = self.stage.url_using(congestion, bytes.unwrap_or(u64::MAX), seed);
            curl.download(self.stage.topology().client(), &url, |_| {})
        })
    }

    /// Downloads one after the other, each of which may take so long.
    fn fetches(
        &self,
        traffic: &TrafficSection,
        seed: u64,
        limit: Duration,
    ) -> Result<Vec<Outcome>, LabError> {
        let (mut times, mut whole) = (Vec::new(), true);
        for number in 0..traffic.times {
            if number > 0 {
                thread::sleep(PAUSE);
            }
            let done = self.connections(traffic, seed, limit)?;
            let came = all_as_sent(&done, traffic, seed);
            let seconds = done.iter().map(|one| one.seconds).fold(0.0, f64::max);
            times.push(if came { Duration::from_secs_f64(seconds) } else { limit });
            whole &= came;
        }
        Ok(vec![Outcome::Body(whole), Outcome::Fetches(Percentiles::of(times))])
    }

    fn call(&self, start: Duration, duration: Duration) -> Result<Vec<Outcome>, LabError> {
        let interface = self.scenario.tunnel.absent.then(|| client_interface(0));
        Ok(vec![Outcome::Call(start, self.stage.call(interface.as_deref(), duration)?)])
    }

    /// Has links go and come of which somebody but the emulator has to be told; none that nothing would notice.
    fn interfaces(&self) -> Result<(), LabError> {
        let end = self.scenario.traffic_end();
        let mut moments = Vec::new();
        for (wan, link) in (0u8..).zip(&self.scenario.links) {
            for outage in link.outages.iter().filter(|outage| outage.from < end) {
                let &Outage { from, until, kind } = outage;
                moments.extend([(from, wan, kind, false), (until, wan, kind, true)]);
            }
        }
        moments.sort_unstable();
        let topology = self.stage.topology();
        for (at, wan, kind, there) in moments {
            self.sleep_until(at);
            let router = &topology.routers()[usize::from(wan)];
            match kind {
                // The emulator follows the link's course.
                OutageKind::Silent => {}
                OutageKind::InterfaceDown => topology.set_interface(0, wan, there)?,
                OutageKind::AddressLost => topology.set_address(0, wan, there)?,
                OutageKind::RouterGone => router.set_uplink(there)?,
                OutageKind::NatForgets if there => {}
                OutageKind::NatForgets => router.rebind()?,
            }
        }
        Ok(())
    }

    /// One without a length goes on for its time; what curl has then written already is still sent.
    fn upload(
        &self,
        traffic: &TrafficSection,
        seed: u64,
        duration: Duration,
    ) -> Result<Vec<Outcome>, LabError> {
        let interface = self.scenario.tunnel.absent.then(|| client_interface(0));
        let curl = Curl { interface, limit: Some(duration.saturating_mul(4)) };
        let lengths = traffic.shares();
        let started = Instant::now();
        let (done, seconds, used) = thread::scope(|scope| {
            let used = scope.spawn(|| {
                thread::sleep(CONNECTED.min(duration / 2));
                self.stage.uploads_use()
            });
            let done = at_once(lengths.clone(), |length| {
                let (client, url) = (self.stage.topology().client(), self.stage.url(0, 0));
                match length {
                    Some(length) => curl.upload(client, &url, length, seed),
                    None => curl.upload_for(client, &url, duration, seed),
                }
            });
            (done, started.elapsed().as_secs_f64(), used.join())
        });
        let done = done?;
        // Without `ss`, or where it came too late, nothing is known of it.
        let used = used.unwrap_or_else(|panic| std::panic::resume_unwind(panic)).ok();
        let as_sent = |(one, length): (&Upload, Option<u64>)| {
            length.is_none_or(|length| one.bytes == length)
                && one.sha256 == body_sha256(one.bytes, seed)
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
            congestion: used.filter(|used| !used.is_empty()),
        };
        let stalls = done.iter().flat_map(|one| &one.stalls);
        let stalls = Outcome::Stalls(since(traffic.start_s, stalls));
        let mut outcomes = vec![tcp, Outcome::Body(all_as_sent), stalls];
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
        if self.scenario.tunnel.absent || self.scenario.tells_stalls() {
            return Ok(Vec::new());
        }
        let mut outcomes = Vec::new();
        for (end, place) in self.scenario.returns() {
            self.sleep_until(end);
            outcomes.push(self.watch_return(place)?);
        }
        Ok(outcomes)
    }

    /// Watches the link from now on, until it carries data and half of its rate.
    fn watch_return(&self, place: usize) -> Result<Outcome, LabError> {
        let interface = client_interface(u8::try_from(place).unwrap_or(u8::MAX));
        let rate = self.scenario.links[place].downstream.initial.mean_rate();
        let returned = Instant::now();
        let (before, mut carried) =
            (self.stage.client_status()?.bytes(&interface, "down"), Vec::new());
        let (mut seconds, mut half) = (None, None);
        while returned.elapsed() < PATIENCE
            && (seconds.is_none() || (half.is_none() && rate.is_some()))
        {
            let status = self.stage.client_status()?;
            let since = returned.elapsed();
            // A link that was given up and taken again counts from nothing.
            let bytes = status.bytes(&interface, "down");
            let came = bytes.checked_sub(before).unwrap_or(bytes);
            if seconds.is_none() && status.is_up(&interface) && came >= CARRIED {
                seconds = Some(since);
            }
            if let Some(emulator) = self.stage.topology().emulator() {
                let links = emulator.report()?.links;
                let bytes = links.get(place).map_or(0, |link| link.downstream.delivered_bytes);
                carried.push((returned.elapsed(), bytes));
            }
            half = half.or_else(|| half_rate_after(&carried, rate?));
            thread::sleep(POLL);
        }
        let told = |time: Option<Duration>| time.map_or(f64::INFINITY, |time| time.as_secs_f64());
        Ok(Outcome::Reuse { seconds: told(seconds), half_rate: told(half) })
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

/// Whether each connection brought its part as it was sent; what has no length is never wrong.
fn all_as_sent(done: &[Download], traffic: &TrafficSection, seed: u64) -> bool {
    done.iter().zip(traffic.shares()).all(|(one, bytes)| {
        bytes.is_none_or(|bytes| one.complete && one.sha256 == body_sha256(bytes, seed))
    })
}

/// Stalls that were told in seconds and ms of traffic that began so late.
fn since<'a>(start_s: f64, stalls: impl Iterator<Item = &'a (f64, f64)>) -> Vec<Stall> {
    let time = |seconds| Duration::try_from_secs_f64(seconds).unwrap_or_default();
    stalls.map(|(end, ms)| Stall { end: time(start_s + end), length: time(ms / 1e3) }).collect()
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
            Outcome::Fetches(times) => report.note_fetches(&times),
            Outcome::Call(start, [down, up]) => {
                report.note_call(scenario, &down, &up);
                if scenario.tells_stalls() {
                    report.note_departures(scenario, start, [&down, &up]);
                }
            }
            Outcome::Stalls(stalls) => {
                if scenario.tells_stalls() {
                    report.note_stalls(STALL_TCP, at_each(&scenario.departures(), &stalls));
                }
            }
            Outcome::Stall { ms, outage_ms } => {
                report.note("longest_stall_ms", ms);
                if let Some(ms) = outage_ms {
                    report.note("outage_stall_ms", ms);
                }
            }
            Outcome::Body(as_sent) => bodies.push(as_sent),
            Outcome::Reuse { seconds, half_rate } => returns.push((seconds, half_rate)),
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
    if !returns.is_empty() {
        let slowest = |times: &mut dyn Iterator<Item = f64>| times.fold(0.0, f64::max);
        report.note("seconds_to_reuse", slowest(&mut returns.iter().map(|times| times.0)));
        report.note("half_rate_after_s", slowest(&mut returns.iter().map(|times| times.1)));
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
            Outcome::Reuse { seconds: 1.5, half_rate: 2.0 },
            Outcome::Reuse { seconds: 0.5, half_rate: 3.0 },
        ];
        note(&mut report, &scenario, 1440, outcomes);
        assert_eq!(report.value("sha256_ok"), 0.0);
        assert_eq!(report.value("seconds_to_reuse"), 1.5);
        assert_eq!(report.value("half_rate_after_s"), 3.0);
        assert_eq!((report.value("tcp_mbit"), report.value("tcp_percent_of_sum")), (3.0, 30.0));
        assert_eq!(report.congestion_control.as_deref(), Some("cubic"));
    }
}
