//! What the sections of a scenario's traffic mean in virtual time, and running it.

use std::ops::Range;
use std::time::Duration;

use ropewalk_proto::time::Instant;
use ropewalk_proto::tunnel::LinkState;
use ropewalk_settings::Bitrate;

use super::others::Others;
use super::{CONGESTION, sum};
use crate::lab::Towards;
use crate::limit::UDP_HEADERS;
use crate::pair::TunnelLab;
use crate::profile::bitrate;
use crate::scenario::file::{TrafficKind, TrafficSection};
use crate::scenario::{Link, Scenario};
use crate::stream::{Stream, run_all};
use crate::tcp::{Load, TcpFlow};
use ropewalk_settings::Direction;

/// How long traffic without an end of its own may last.
pub(super) const LONGEST: Duration = Duration::from_secs(3600);
/// What counts as data on a link that returns: more than probes and keepalives make in that time.
const CARRIED: u64 = 20_000;
/// An upload may take so many times as long as the links need at best.
const UPLOAD_PATIENCE: u32 = 4;
/// How often a link that returns is looked at, and for how long; and whether all traffic has ended.
const POLL: Duration = Duration::from_millis(10);
const PATIENCE: Duration = Duration::from_secs(15);
/// Echoes of a ping by the second, and their length: that of `ping`.
const ECHOES: u32 = 10;
const ECHO_LEN: usize = 84;

/// What runs, with the sections of the file that asked for it.
pub(super) struct Traffic<'a> {
    pub(super) sections: Vec<&'a TrafficSection>,
    pub(super) streams: Vec<Stream>,
    /// With the places of their connections.
    pub(super) tcp_sections: Vec<(&'a TrafficSection, Range<usize>)>,
    pub(super) flows: Vec<TcpFlow>,
    others: Others,
}

impl<'a> Traffic<'a> {
    /// None yet, over the scenario's links.
    pub(super) fn over(links: &[Link]) -> Self {
        let (sections, streams, tcp_sections, flows) = Default::default();
        Self { sections, streams, tcp_sections, flows, others: Others::on(links) }
    }

    /// Adds what the section asks for, if virtual time has it.
    pub(super) fn add(
        &mut self,
        traffic: &'a TrafficSection,
        scenario: &Scenario,
        mtu: u16,
        start: Instant,
    ) {
        let after = Duration::from_secs_f64(traffic.start_s);
        let rest = scenario.duration.unwrap_or(LONGEST).saturating_sub(after);
        let own = traffic.duration_s.map(Duration::from_secs_f64);
        let start = start + after;
        if matches!(traffic.kind, TrafficKind::Tcp | TrafficKind::Http) {
            if traffic.congestion.as_deref().unwrap_or(CONGESTION) == CONGESTION {
                let limit = own.unwrap_or(rest).min(rest);
                let first = self.flows.len();
                let sum = sum(scenario, traffic.direction) / f64::from(traffic.flows);
                for bytes in traffic.shares() {
                    self.flows.push(flow(traffic.direction, bytes, limit, sum, mtu, start));
                }
                self.tcp_sections.push((traffic, first..self.flows.len()));
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
    pub(super) fn run(&mut self, lab: &mut TunnelLab, end: Instant) {
        while lab.now < end && !self.is_over(lab.now) {
            let next = end.min(lab.now + POLL);
            run_all(lab, &mut self.streams, &mut self.flows, next);
            self.others.count(lab);
        }
    }

    fn is_over(&self, now: Instant) -> bool {
        let streams_over = self.streams.iter().all(|stream| stream.end() <= now);
        streams_over && self.flows.iter().all(TcpFlow::is_over)
    }

    /// From now on, until the link carries data again.
    pub(super) fn time_until_reuse(&mut self, lab: &mut TunnelLab, link: usize) -> f64 {
        let returned = lab.now;
        let carried = |lab: &TunnelLab| lab.links[link].down.counters().delivered_bytes;
        let before = carried(lab);
        let name = lab.client.stats().links.get(link).map(|link| link.id);
        while lab.now < returned + PATIENCE {
            let links = lab.client.stats().links;
            let mut this = links.iter().filter(|link| Some(link.id) == name);
            let up = this.any(|link| link.state == LinkState::Up);
            if up && carried(lab) >= before + CARRIED {
                return lab.now.since(returned).as_secs_f64();
            }
            let next = lab.now + POLL;
            run_all(lab, &mut self.streams, &mut self.flows, next);
        }
        f64::INFINITY
    }
}

/// A connection. An upload without a length is given its part of what the links carry in its time, as on the
/// kernel.
fn flow(
    direction: Direction,
    bytes: Option<u64>,
    limit: Duration,
    sum_mbit: f64,
    mtu: u16,
    start: Instant,
) -> TcpFlow {
    let towards = towards(direction);
    let load = match (towards, bytes) {
        (Towards::Client, None) => Load::For(limit),
        (Towards::Client, Some(bytes)) => Load::BytesWithin(bytes, limit),
        (Towards::Proxy, bytes) => {
            let carried = Bitrate::as_bps(bitrate(sum_mbit)) / 8;
            let bytes = bytes.unwrap_or_else(|| carried.saturating_mul(limit.as_secs()));
            Load::BytesWithin(bytes, limit * UPLOAD_PATIENCE)
        }
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
