//! Traffic in virtual time: streams of packets at a constant rate, echoes, and TCP beside them, with what came
//! of each.

use std::time::Duration;

use ropewalk_proto::ecn::Ecn;
use ropewalk_proto::time::{Instant, earliest};

use crate::inner::{Inner, flow_and_number};
use crate::lab::Towards;
use crate::limit::UDP_HEADERS;
use crate::network::Network;
use crate::stats::{Percentiles, mbit};
use crate::tally::{Tally, UdpReceived};
use crate::tcp::{self, TcpFlow};

/// What a stream is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Packets one way.
    OneWay,
    /// Packets to a server that sends each of them back at once.
    Echo,
}

/// Packets at a constant rate, and when each came.
#[derive(Clone, Debug)]
pub struct Stream {
    kind: Kind,
    towards: Towards,
    gap: Duration,
    /// Bytes of a packet; may be changed at any time.
    pub len: usize,
    /// The mark of its packets.
    pub ecn: Ecn,
    start: Instant,
    next: Instant,
    end: Instant,
    sent: Vec<Instant>,
    came: Vec<Came>,
}

/// A packet that came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Came {
    /// Which.
    pub number: u64,
    /// When.
    pub at: Instant,
    /// Its bytes.
    pub len: usize,
    /// Its mark.
    pub ecn: Ecn,
}

impl Stream {
    /// Packets of `len` bytes at `mbit` Mbit/s (inner IP level) from `start` for `length`.
    #[must_use]
    pub fn at_rate(
        towards: Towards,
        mbit: f64,
        len: usize,
        start: Instant,
        length: Duration,
    ) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "a packet is short")]
        let gap = Duration::from_secs_f64(len as f64 * 8.0 / (mbit * 1e6));
        Self::every(Kind::OneWay, towards, gap, len, start, length)
    }

    /// Echo requests of `len` bytes from the client.
    #[must_use]
    pub fn echoes(gap: Duration, len: usize, start: Instant, length: Duration) -> Self {
        Self::every(Kind::Echo, Towards::Proxy, gap, len, start, length)
    }

    fn every(
        kind: Kind,
        towards: Towards,
        gap: Duration,
        len: usize,
        start: Instant,
        length: Duration,
    ) -> Self {
        let (sent, came) = (Vec::new(), Vec::new());
        Self {
            kind,
            towards,
            gap,
            len,
            ecn: Ecn::NotEct,
            start,
            next: start,
            end: start + length,
            sent,
            came,
        }
    }

    /// When it begins.
    #[must_use]
    pub fn start(&self) -> Instant {
        self.start
    }

    /// When it ends.
    #[must_use]
    pub fn end(&self) -> Instant {
        self.end
    }

    /// Packets sent.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent.len() as u64
    }

    /// Those that came, in the order in which they did.
    #[must_use]
    pub fn came(&self) -> &[Came] {
        &self.came
    }

    /// Packets that did not come.
    #[must_use]
    pub fn missing(&self) -> u64 {
        self.sent() - self.came.len() as u64
    }

    /// Mbit/s at inner IP level of what came between two moments.
    #[must_use]
    pub fn mbit_between(&self, from: Instant, to: Instant) -> f64 {
        let within = self.came.iter().filter(|came| came.at >= from && came.at < to);
        mbit(within.map(|came| came.len as u64).sum(), to.since(from))
    }

    /// Percent of what came that came before all that was sent later.
    #[must_use]
    pub fn in_order_percent(&self) -> f64 {
        self.received().in_order_percent
    }

    /// As an application counts it.
    #[must_use]
    pub fn received(&self) -> UdpReceived {
        let mut tally = Tally::default();
        for came in &self.came {
            let payload = came.len.saturating_sub(usize::from(UDP_HEADERS)) as u64;
            let sent = self.sent_at(came.number).unwrap_or(came.at);
            tally.packet(came.at.as_nanos(), came.number, sent.as_nanos(), payload);
        }
        tally.end(self.sent());
        tally.finish()
    }

    /// From sending to coming; for echoes there and back.
    #[must_use]
    pub fn delays(&self) -> Percentiles {
        Percentiles::of(self.came.iter().filter_map(|came| self.delay(came)).collect())
    }

    /// As [`Self::delays`], of what was sent from `from` on.
    #[must_use]
    pub fn delays_from(&self, from: Instant) -> Percentiles {
        let late = self.came.iter().filter_map(|came| {
            let delay = self.delay(came)?;
            (came.at >= from + delay).then_some(delay)
        });
        Percentiles::of(late.collect())
    }

    /// How long one took.
    #[must_use]
    pub fn delay(&self, came: &Came) -> Option<Duration> {
        Some(came.at.since(self.sent_at(came.number)?))
    }

    fn sent_at(&self, number: u64) -> Option<Instant> {
        self.sent.get(usize::try_from(number).ok()?).copied()
    }

    /// The longest time between `from` and `to` in which nothing came.
    #[must_use]
    pub fn longest_stall(&self, from: Instant, to: Instant) -> Duration {
        let within = self.came.iter().map(|came| came.at).filter(|at| *at >= from && *at < to);
        let mut last = from;
        let stalls = within.chain([to]).map(|at| at.since(std::mem::replace(&mut last, at)));
        stalls.max().unwrap_or_default()
    }

    fn due(&self) -> Option<Instant> {
        (self.next < self.end).then_some(self.next)
    }
}

/// Flows are told apart by the server's ports from here on. A call comes first: down at this port, up at the next one, on the
/// kernel as well.
pub(crate) const FIRST_FLOW: u16 = 1000;

/// Runs the network with these streams until `end`.
pub fn run(network: &mut impl Network, streams: &mut [Stream], end: Instant) {
    run_all(network, streams, &mut [], end);
}

/// Runs the network with these streams and connections until `end`.
pub fn run_all(
    network: &mut impl Network,
    streams: &mut [Stream],
    flows: &mut [TcpFlow],
    end: Instant,
) {
    (0..).zip(flows.iter_mut()).for_each(|(number, flow)| flow.set_number(number));
    let echoes = streams.iter().any(|stream| stream.kind == Kind::Echo);
    loop {
        let due = streams.iter().fold(None, |next, stream| earliest(next, stream.due()));
        let due = flows.iter().fold(due, |next, flow| earliest(next, flow.poll_timeout()));
        // Whoever answers does so at once, so every moment counts.
        let answers = echoes || flows.iter().any(TcpFlow::is_running);
        let event = if answers { network.next_event() } else { None };
        let next = earliest(due, event).filter(|at| *at <= end);
        network.run_until(next.unwrap_or(end).max(network.now()));
        collect(network, streams, flows);
        for (flow, stream) in (FIRST_FLOW..).zip(streams.iter_mut()) {
            while stream.due().is_some_and(|at| at <= network.now()) {
                let packet = make(stream, flow, stream.sent());
                stream.sent.push(network.now());
                stream.next += stream.gap;
                network.send(stream.towards.opposite(), &packet);
            }
        }
        for flow in flows.iter_mut() {
            flow.handle_timeout(network.now());
            transmit(network, flow);
        }
        if next.is_none() {
            return collect(network, streams, flows);
        }
    }
}

fn transmit(network: &mut impl Network, flow: &mut TcpFlow) {
    while let Some((from, packet)) = flow.poll_packet() {
        network.send(from, &packet);
    }
}

fn make(stream: &Stream, flow: u16, number: u64) -> Vec<u8> {
    let plain = Inner::plain(stream.towards, number, stream.len);
    Inner { flow, ecn: stream.ecn, ..plain }.packet()
}

fn collect(network: &mut impl Network, streams: &mut [Stream], flows: &mut [TcpFlow]) {
    for end in [Towards::Proxy, Towards::Client] {
        for delivered in network.delivered(end) {
            let packet = &delivered.packet;
            if let Some((number, incoming)) = tcp::read(packet) {
                if let Some(flow) = flows.get_mut(usize::from(number)) {
                    flow.handle_packet(delivered.at, end, &incoming);
                    transmit(network, flow);
                }
                continue;
            }
            let Some((flow, number)) = flow_and_number(packet) else { continue };
            let place = usize::from(flow.wrapping_sub(FIRST_FLOW));
            let Some(stream) = streams.get_mut(place) else { continue };
            if stream.kind == Kind::Echo && end == Towards::Proxy {
                let plain = Inner::plain(Towards::Client, number, stream.len);
                network.send(Towards::Proxy, &Inner { flow, ..plain }.packet());
            } else {
                let ecn = Ecn::from_tos(packet[1]);
                let len = packet.len();
                stream.came.push(Came { number, at: delivered.at, len, ecn });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_proto::config::TunnelConfig;

    use ropewalk_settings::Keepalive;

    use super::*;
    use crate::pair::{conditions, link_config, tunnels};

    #[test]
    fn a_stream_and_echoes_find_the_rate_and_the_delay_of_a_link() {
        let config = TunnelConfig::default();
        let mut lab = tunnels(&config, &config, 1);
        let path = lab.add_link(conditions(10.0, 40, 100), conditions(10.0, 40, 100), 1);
        lab.client.add_link(lab.now, &link_config("a", path, Keepalive::Off)).unwrap();
        lab.run_until(Instant::from_millis(2000));
        let (start, length) = (lab.now, Duration::from_secs(5));
        let mut streams = [
            Stream::at_rate(Towards::Client, 5.0, 1200, start, length),
            Stream::echoes(Duration::from_millis(100), 100, start, length),
        ];
        run(&mut lab, &mut streams, start + length + Duration::from_secs(1));
        let [down, echo] = &streams;
        assert_eq!((down.missing(), echo.missing(), echo.sent()), (0, 0, 50));
        assert!((down.mbit_between(start, start + length) - 5.0).abs() < 0.1);
        assert!((down.in_order_percent() - 100.0).abs() < f64::EPSILON);
        assert!((40.0..43.0).contains(&echo.delays().p50_ms), "{:?}", echo.delays());
        assert!(down.longest_stall(start, start + length) < Duration::from_millis(40));
    }
}
