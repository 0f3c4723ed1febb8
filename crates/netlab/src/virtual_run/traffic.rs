//! What the sections of a scenario's traffic mean in virtual time, and running it.

use std::ops::Range;
use std::time::Duration;

use ropewalk_proto::time::Instant;
use ropewalk_proto::tunnel::LinkState;

use super::CONGESTION;
use super::meter::{Meter, per_tenth};
use super::others::Others;
use super::turns::link_named;
use crate::company::Company;
use crate::half_rate::half_rate_after;
use crate::lab::Towards;
use crate::limit::UDP_HEADERS;
use crate::network::Network;
use crate::pair::TunnelLab;
use crate::profile::bitrate;
use crate::reading::Reading;
use crate::scenario::Scenario;
use crate::scenario::file::{CALL_LEN, CALL_MBIT, PAUSE, TrafficKind, TrafficSection};
use crate::stream::{Stream, run_all};
use crate::tcp::{Load, TcpFlow, Together};
use ropewalk_settings::Direction;

/// How long traffic without an end of its own may last.
pub(super) const LONGEST: Duration = Duration::from_secs(3600);
/// What counts as data on a link that returns: more than probes and keepalives make in that time.
const CARRIED: u64 = 20_000;
/// An upload of a known length may take so many times as long as it is given, as on the kernel.
const UPLOAD_PATIENCE: u32 = 4;
/// How often a link that returns is looked at, and for how long; and whether all traffic has ended.
const POLL: Duration = Duration::from_millis(10);
const PATIENCE: Duration = Duration::from_secs(15);
/// When a fetch begins that waits for another: later than any run lasts.
const LATER: Duration = Duration::from_secs(7 * 24 * 3600);
/// Echoes of a ping by the second, and their length: that of `ping`.
const ECHOES: u32 = 10;
const ECHO_LEN: usize = 84;

/// Where traffic runs: a network that can be looked at.
pub(super) trait Site: Network {
    /// How its only link is now; `None` where it has several.
    fn reading(&self, way: Towards) -> Option<Reading>;
    /// Counts what others send on its links.
    fn count(&mut self, others: &mut Others);
    /// What each link has carried downstream, bytes.
    fn carried(&self) -> Vec<u64>;
}

impl Site for Company {
    fn reading(&self, way: Towards) -> Option<Reading> {
        let [link] = &self.lab.links[..] else { return None };
        Some(Reading::of(self.lab.now, &link.down, &link.up, way))
    }

    fn count(&mut self, others: &mut Others) {
        others.count(&mut self.lab);
    }

    fn carried(&self) -> Vec<u64> {
        self.lab.links.iter().map(|link| link.down.counters().delivered_bytes).collect()
    }
}

/// What runs, with the sections of the file that asked for it.
pub(super) struct Traffic<'a> {
    pub(super) sections: Vec<&'a TrafficSection>,
    pub(super) streams: Vec<Stream>,
    /// With the places of their connections.
    pub(super) tcp_sections: Vec<(&'a TrafficSection, Range<usize>)>,
    pub(super) flows: Vec<TcpFlow>,
    /// Connections from this place on are others'.
    pub(super) others_from: u16,
    pub(super) meter: Meter,
    others: Others,
    /// When the scenario began.
    pub(super) start: Instant,
    /// What each link had carried downstream, every [`POLL`]; where one returns.
    carried: Option<Vec<(Instant, Vec<u64>)>>,
}

impl<'a> Traffic<'a> {
    /// What the scenario asks for from `start` on, in packets of up to so many bytes: ours, and others'.
    pub(super) fn of(scenario: &'a Scenario, mtus: [u16; 2], start: Instant) -> Self {
        let (sections, streams, tcp_sections, flows) = Default::default();
        let others = Others::on(&scenario.links);
        let meter = Meter::new(scenario, start);
        let carried = (!scenario.returns().is_empty()).then(Vec::new);
        let mut traffic = Self {
            sections,
            streams,
            tcp_sections,
            flows,
            others_from: 0,
            meter,
            others,
            start,
            carried,
        };
        let (theirs, ours): (Vec<_>, Vec<_>) =
            scenario.traffic.iter().partition(|section| section.beside.is_some());
        for section in ours {
            traffic.add(section, scenario, mtus[0], start);
        }
        traffic.others_from = u16::try_from(traffic.flows.len()).unwrap_or(u16::MAX);
        for section in theirs {
            traffic.add(section, scenario, mtus[1], start);
        }
        traffic
    }

    /// Adds what the section asks for, if virtual time has it.
    fn add(&mut self, traffic: &'a TrafficSection, scenario: &Scenario, mtu: u16, start: Instant) {
        let after = Duration::from_secs_f64(traffic.start_s);
        let rest = scenario.duration.unwrap_or(LONGEST).saturating_sub(after);
        let own = traffic.duration_s.map(Duration::from_secs_f64);
        let start = start + after;
        if matches!(traffic.kind, TrafficKind::Tcp | TrafficKind::Http) {
            if traffic.congestion.as_deref().unwrap_or(CONGESTION) == CONGESTION {
                let limit = own.unwrap_or(rest).min(rest);
                let first = self.flows.len();
                // All but the first wait until the one before has ended.
                let later = start + LATER;
                for start in std::iter::once(start).chain((1..traffic.times).map(|_| later)) {
                    for bytes in traffic.shares() {
                        self.flows.push(flow(traffic.direction, bytes, limit, mtu, start));
                    }
                }
                self.tcp_sections.push((traffic, first..self.flows.len()));
            }
            return;
        }
        if traffic.kind == TrafficKind::Call {
            let length = own.unwrap_or(rest).min(rest);
            for towards in [Towards::Client, Towards::Proxy] {
                self.sections.push(traffic);
                self.streams.push(Stream::at_rate(towards, CALL_MBIT, CALL_LEN, start, length));
            }
            return;
        }
        let rate = bitrate(traffic.rate_mbit.unwrap_or_default());
        let by_bytes = traffic.bytes.map(|bytes| rate.time_for(bytes));
        let length = own.or(by_bytes).unwrap_or(rest).min(rest);
        self.sections.push(traffic);
        self.streams.push(if traffic.kind == TrafficKind::Ping {
            Stream::echoes(Duration::from_secs(1) / ECHOES, ECHO_LEN, start, length)
        } else {
            udp(traffic, length, mtu, start)
        });
    }

    /// Whether something is sent to the client that fills links.
    pub(super) fn fills_downstream(&self) -> bool {
        let udp = self.sections.iter().filter(|section| section.kind == TrafficKind::Udp);
        let mut sections = udp.chain(self.tcp_sections.iter().map(|(section, _)| section));
        sections.any(|section| towards(section.direction) == Towards::Client)
    }

    /// Runs until `end`, or until all has ended.
    pub(super) fn run(&mut self, site: &mut impl Site, end: Instant) {
        while site.now() < end && !self.is_over(site.now()) {
            self.step(site, end.min(site.now() + POLL));
        }
    }

    fn step(&mut self, site: &mut impl Site, until: Instant) {
        self.meter.look(site.now(), |way| site.reading(way));
        run_all(site, &mut self.streams, &mut self.flows, until);
        site.count(&mut self.others);
        self.fetch_next(site.now());
        if let Some(carried) = &mut self.carried {
            carried.push((site.now(), site.carried()));
        }
    }

    /// Of fetches one after the other, lets those begin of which the one before has ended.
    fn fetch_next(&mut self, now: Instant) {
        let later = self.start + LATER;
        for (section, flows) in self.tcp_sections.iter().filter(|(section, _)| section.times > 1) {
            let mut fetches = self.flows[flows.clone()].chunks_mut(usize::from(section.flows));
            let next = fetches.find(|fetch| !fetch.iter().all(TcpFlow::is_over)).into_iter();
            for flow in next.flatten().filter(|flow| flow.start() >= later) {
                flow.begin_at(now + PAUSE);
            }
        }
    }

    /// From a link's return until it carried half of its rate, seconds, the longest; `None` where none returned.
    pub(super) fn half_rate_after(&self, scenario: &Scenario) -> Option<f64> {
        let carried = self.carried.as_ref().filter(|_| self.fills_downstream())?;
        let after = |(at, link): (Duration, usize)| {
            let returned = self.start + at;
            let since = carried.iter().filter(|(now, _)| *now >= returned);
            let since: Vec<_> =
                since.map(|(now, bytes)| (now.since(returned), bytes[link])).collect();
            let rate = scenario.links[link].downstream.initial.mean_rate()?;
            Some(half_rate_after(&since, rate).map_or(f64::INFINITY, |after| after.as_secs_f64()))
        };
        scenario.returns().into_iter().filter_map(after).reduce(f64::max)
    }

    fn is_over(&self, now: Instant) -> bool {
        let streams_over = self.streams.iter().all(|stream| stream.end() <= now);
        streams_over && self.flows.iter().all(TcpFlow::is_over)
    }

    /// From now on, until the link carries data again.
    pub(super) fn time_until_reuse(&mut self, site: &mut Company, link: usize, name: &str) -> f64 {
        let returned = site.now();
        let carried = |lab: &TunnelLab| lab.links[link].down.counters().delivered_bytes;
        let before = carried(&site.lab);
        while site.now() < returned + PATIENCE {
            let up = link_named(&site.lab, name).is_some_and(|link| link.state == LinkState::Up);
            if up && carried(&site.lab) >= before + CARRIED {
                return site.now().since(returned).as_secs_f64();
            }
            self.step(site, site.now() + POLL);
        }
        f64::INFINITY
    }

    /// Mbit/s of the first traffic in each tenth of a second since it began.
    pub(super) fn per_tenth(&self) -> Vec<f64> {
        let stream = self.sections.iter().position(|section| section.kind == TrafficKind::Udp);
        if let Some((_, flows)) = self.tcp_sections.first().filter(|(s, _)| s.beside.is_none()) {
            let together = Together::of(&self.flows[flows.clone()]);
            let came = together.came().iter().map(|arrival| (arrival.at, arrival.bytes));
            return per_tenth(self.flows[flows.start].start(), together.length(), came);
        }
        let Some(stream) = stream.map(|place| &self.streams[place]) else { return Vec::new() };
        let payload = |len: usize| len.saturating_sub(usize::from(UDP_HEADERS)) as u64;
        let came = stream.came().iter().map(|came| (came.at, payload(came.len)));
        per_tenth(stream.start(), stream.end().since(stream.start()), came)
    }
}

/// A connection.
fn flow(
    direction: Direction,
    bytes: Option<u64>,
    limit: Duration,
    mtu: u16,
    start: Instant,
) -> TcpFlow {
    let towards = towards(direction);
    let load = match (towards, bytes) {
        (_, None) => Load::For(limit),
        (Towards::Client, Some(bytes)) => Load::BytesWithin(bytes, limit),
        (Towards::Proxy, Some(bytes)) => Load::BytesWithin(bytes, limit * UPLOAD_PATIENCE),
    };
    TcpFlow::new(towards, load, mtu, start)
}

fn udp(traffic: &TrafficSection, length: Duration, mtu: u16, start: Instant) -> Stream {
    // The file says how much payload.
    let payload = mtu.saturating_sub(UDP_HEADERS).max(1);
    let whole = f64::from(mtu) / f64::from(payload);
    let mbit = traffic.rate_mbit.unwrap_or_default() * whole;
    Stream::at_rate(towards(traffic.direction), mbit, usize::from(mtu), start, length)
}

/// Which way the data go; both is down.
pub(super) const fn towards(direction: Direction) -> Towards {
    match direction {
        Direction::Up => Towards::Proxy,
        Direction::Down | Direction::Both => Towards::Client,
    }
}
