//! One connection with its application, as it is measured: a download that the client asks for, or an upload.

use std::time::Duration;

use ropewalk_proto::time::{Instant, earliest};

use super::endpoint::Endpoint;
use super::segment::Incoming;
use super::sender::{Sender, SenderStats};
use crate::lab::Towards;
use crate::per_second::PerSecond;
use crate::stats::mbit;

/// Bytes of the client's question for a download, such as `curl` sends.
const REQUEST: u64 = 90;
/// More than any run carries.
const ENDLESS: u64 = 1 << 50;
/// The distance of the samples that are kept of the sender.
const SAMPLE: Duration = Duration::from_millis(10);

/// How much there is to carry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Load {
    /// So many bytes of payload.
    Bytes(u64),
    /// As many as this time allows, from the question on.
    For(Duration),
    /// What of the two is reached first.
    BytesWithin(u64, Duration),
}

/// Bytes of payload that had come in order at some moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delivered {
    /// When.
    pub at: Instant,
    /// How many until then.
    pub bytes: u64,
}

/// What the sender knew at some moment.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sample {
    /// When.
    pub at: Instant,
    /// The congestion window, in segments.
    pub cwnd: u32,
    /// Where slow start ends, in segments; `None` while nothing limited it.
    pub ssthresh: Option<u32>,
    /// Segments thought under way.
    pub in_flight: u32,
    /// The smoothed round-trip time.
    pub rtt: Option<Duration>,
    /// Whether losses are being repaired.
    pub recovering: bool,
}

/// One connection.
#[derive(Clone, Debug)]
pub struct TcpFlow {
    towards: Towards,
    start: Instant,
    /// When its application gives up.
    end: Option<Instant>,
    bytes: u64,
    mtu: u16,
    flow: u16,
    client: Endpoint,
    server: Endpoint,
    phase: Phase,
    arrivals: Vec<Delivered>,
    samples: Vec<Sample>,
}

/// How far its application is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Phase {
    Waiting,
    Connecting,
    Asked,
    Carrying,
    Over,
}

impl TcpFlow {
    /// A connection that the client opens at `start` to carry data `towards` one end, in packets of up to
    /// `mtu` bytes.
    #[must_use]
    pub fn new(towards: Towards, load: Load, mtu: u16, start: Instant) -> Self {
        let (bytes, time) = match load {
            Load::Bytes(bytes) => (bytes, None),
            Load::For(time) => (ENDLESS, Some(time)),
            Load::BytesWithin(bytes, time) => (bytes, Some(time)),
        };
        let end = time.map(|time| start + time);
        let (client, server) = ends(0, mtu);
        let (phase, arrivals, samples) = (Phase::Waiting, Vec::new(), Vec::new());
        let flow = 0;
        Self { towards, start, end, bytes, mtu, flow, client, server, phase, arrivals, samples }
    }

    /// Tells it apart from others of the same network; before it starts.
    pub(crate) fn set_number(&mut self, flow: u16) {
        if self.phase == Phase::Waiting && flow != self.flow {
            self.flow = flow;
            (self.client, self.server) = ends(flow, self.mtu);
        }
    }

    /// Begins at another time, and gives up as long after that; before it starts.
    pub(crate) fn begin_at(&mut self, start: Instant) {
        if self.phase == Phase::Waiting {
            self.end = self.end.map(|end| start + end.since(self.start));
            self.start = start;
        }
    }

    /// When it begins.
    #[must_use]
    pub const fn start(&self) -> Instant {
        self.start
    }

    /// When its application gives up; `None`: only when all has come.
    #[must_use]
    pub const fn end(&self) -> Option<Instant> {
        self.end
    }

    /// Which way the data go.
    #[must_use]
    pub const fn towards(&self) -> Towards {
        self.towards
    }

    /// Whether nothing happens any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// Whether its packets may be under way.
    pub(crate) fn is_running(&self) -> bool {
        !matches!(self.phase, Phase::Waiting | Phase::Over)
    }

    /// Bytes of payload that came in order.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.arrivals.last().map_or(0, |last| last.bytes)
    }

    /// Whether all came, in order and as sent.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.received() == self.bytes && self.wrong() == 0
    }

    /// Bytes that came altered.
    #[must_use]
    pub const fn wrong(&self) -> u64 {
        self.client.receiver.wrong() + self.server.receiver.wrong()
    }

    /// What came, segment by segment.
    #[must_use]
    pub fn arrivals(&self) -> &[Delivered] {
        &self.arrivals
    }

    /// What the sender knew, at most every 10 ms.
    #[must_use]
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// What the sender did.
    #[must_use]
    pub const fn stats(&self) -> SenderStats {
        self.sender().stats()
    }

    /// Goodput in Mbit/s of payload from the first to the last byte that came.
    #[must_use]
    pub fn mbit(&self) -> f64 {
        match (self.arrivals.first(), self.arrivals.last()) {
            (Some(first), Some(last)) => mbit(last.bytes, last.at.since(first.at)),
            _ => 0.0,
        }
    }

    /// Goodput in Mbit/s between two moments.
    #[must_use]
    pub fn mbit_between(&self, from: Instant, to: Instant) -> f64 {
        mbit(self.bytes_until(to) - self.bytes_until(from), to.since(from))
    }

    /// What came in each second since the first byte.
    #[must_use]
    pub fn per_second(&self) -> PerSecond {
        let mut series = PerSecond::default();
        let Some(first) = self.arrivals.first() else { return series };
        let mut before = 0;
        for arrival in &self.arrivals {
            series.note(arrival.at.since(first.at), arrival.bytes - before);
            before = arrival.bytes;
        }
        series
    }

    /// The longest time without a byte between the first and the last.
    #[must_use]
    pub fn longest_stall(&self) -> Duration {
        let pairs = self.arrivals.windows(2);
        pairs.map(|pair| pair[1].at.since(pair[0].at)).max().unwrap_or_default()
    }

    /// Bytes that came before `at`.
    fn bytes_until(&self, at: Instant) -> u64 {
        let count = self.arrivals.partition_point(|arrival| arrival.at < at);
        count.checked_sub(1).map_or(0, |last| self.arrivals[last].bytes)
    }

    const fn sender(&self) -> &Sender {
        match self.towards {
            Towards::Client => &self.server.sender,
            Towards::Proxy => &self.client.sender,
        }
    }

    /// A packet of this connection came to one end.
    pub(crate) fn handle_packet(&mut self, now: Instant, at: Towards, incoming: &Incoming<'_>) {
        if matches!(self.phase, Phase::Waiting | Phase::Over) {
            return;
        }
        let end = match at {
            Towards::Client => &mut self.client,
            Towards::Proxy => &mut self.server,
        };
        match incoming {
            Incoming::Segment(segment, payload) => end.handle_segment(now, segment, payload),
            Incoming::TooBig(mtu) => end.handle_too_big(now, *mtu),
        }
        self.proceed(now);
        self.sample(now);
    }

    /// When something is due.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        match self.phase {
            Phase::Waiting => Some(self.start),
            Phase::Over => None,
            _ => {
                let ends = earliest(self.client.poll_timeout(), self.server.poll_timeout());
                earliest(ends, self.end)
            }
        }
    }

    /// Does what is due.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if self.poll_timeout().is_none_or(|at| at > now) {
            return;
        }
        if self.end.is_some_and(|end| end <= now) {
            self.phase = Phase::Over;
        } else if self.phase == Phase::Waiting {
            self.phase = Phase::Connecting;
            self.client.connect(now);
        } else {
            self.client.handle_timeout(now);
            self.server.handle_timeout(now);
            self.sample(now);
        }
    }

    /// The next packet to send, and by which end.
    pub(crate) fn poll_packet(&mut self) -> Option<(Towards, Vec<u8>)> {
        let from_client = self.client.poll_packet().map(|packet| (Towards::Client, packet));
        from_client.or_else(|| self.server.poll_packet().map(|packet| (Towards::Proxy, packet)))
    }

    /// The applications do what has become possible.
    fn proceed(&mut self, now: Instant) {
        if self.phase == Phase::Connecting && self.client.is_established() {
            match self.towards {
                Towards::Client => {
                    self.phase = Phase::Asked;
                    self.client.write(now, REQUEST);
                }
                Towards::Proxy => {
                    self.phase = Phase::Carrying;
                    self.client.write(now, self.bytes);
                }
            }
        }
        if self.phase == Phase::Asked && self.server.receiver.came() == REQUEST {
            self.phase = Phase::Carrying;
            self.server.write(now, self.bytes);
        }
        if self.phase == Phase::Carrying {
            let bytes = match self.towards {
                Towards::Client => self.client.receiver.came(),
                Towards::Proxy => self.server.receiver.came(),
            };
            if bytes > self.received() {
                self.arrivals.push(Delivered { at: now, bytes });
            }
            if bytes == self.bytes && self.sender().is_done() {
                self.phase = Phase::Over;
            }
        }
    }

    fn sample(&mut self, now: Instant) {
        let is_due = self.samples.last().is_none_or(|last| now.since(last.at) >= SAMPLE);
        if self.phase == Phase::Carrying && is_due {
            let sender = self.sender();
            let sample = Sample {
                at: now,
                cwnd: sender.cwnd(),
                ssthresh: sender.ssthresh(),
                in_flight: sender.in_flight(),
                rtt: sender.rtt().smoothed(),
                recovering: sender.is_repairing(),
            };
            self.samples.push(sample);
        }
    }
}

fn ends(flow: u16, mtu: u16) -> (Endpoint, Endpoint) {
    (Endpoint::new(flow, Towards::Proxy, mtu), Endpoint::new(flow, Towards::Client, mtu))
}
