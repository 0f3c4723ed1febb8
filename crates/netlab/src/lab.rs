//! Two ends of a tunnel and the links between them, in virtual time.
//!
//! The lab drives the real core: it hands datagrams from one end through the emulated links to the
//! other, jumps to the next moment at which something happens, and never waits. Every run is
//! replayable from its seed. A NAT between the client and each of its links gives the link an outer
//! address, which can be changed while traffic runs, and forgets a mapping that was silent for too long.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use ropewalk_proto::ecn::Ecn;
use ropewalk_proto::packet::Packet;
use ropewalk_proto::path::{Path, SocketId};
use ropewalk_proto::sink::{PacketSink, TransmitSink};
use ropewalk_proto::time::{Instant, earliest};

use crate::netem::{Conditions, Netem};

mod ends;

/// Where the proxy listens.
pub const PROXY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 51900);

/// One end of a tunnel: what the driver calls.
pub trait End {
    /// A packet from the TUN.
    fn handle_packet(&mut self, now: Instant, packet: &mut [u8], sink: &mut impl PacketSink);
    /// A datagram from a socket.
    fn handle_datagram(
        &mut self,
        now: Instant,
        path: Path,
        ecn: Ecn,
        datagram: &mut [u8],
        sink: &mut impl PacketSink,
    );
    /// The datagrams that came together are all in.
    fn end_of_batch(&mut self, now: Instant);
    /// The timer went off.
    fn handle_timeout(&mut self, now: Instant, sink: &mut impl PacketSink);
    /// Sends.
    fn poll_transmit(&mut self, now: Instant, out: &mut impl TransmitSink);
    /// The next timer.
    fn poll_timeout(&self) -> Option<Instant>;
}

/// Which end, or which direction: that towards it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Towards {
    /// Downstream.
    Client,
    /// Upstream.
    Proxy,
}

impl Towards {
    /// The other end, or direction.
    #[must_use]
    pub const fn opposite(self) -> Self {
        match self {
            Self::Client => Self::Proxy,
            Self::Proxy => Self::Client,
        }
    }
}

/// One link: two directions and its NAT.
pub struct LabLink {
    /// Proxy to client.
    pub down: Netem<Carried>,
    /// Client to proxy.
    pub up: Netem<Carried>,
    /// What the proxy sees as the client's address on this link.
    pub outer: SocketAddr,
    /// After how long without a datagram the NAT forgets the mapping; `None` never.
    pub nat_timeout: Option<Duration>,
    /// Whether a forgotten mapping comes back with another port (else with the same).
    pub nat_renumbers: bool,
    /// Datagrams from the proxy that no mapping took.
    pub unmapped: u64,
    last_used: Instant,
}

impl LabLink {
    /// A datagram of the client passes the NAT at `now`, and opens or refreshes the mapping. Returns its
    /// outer address.
    fn translate(&mut self, now: Instant) -> SocketAddr {
        if !self.is_mapped(now) && self.nat_renumbers {
            self.outer.set_port(self.outer.port().wrapping_add(1).max(1024));
        }
        self.last_used = now;
        self.outer
    }

    /// Whether a datagram to `outer` passes the NAT at `now`; if so it refreshes the mapping.
    fn admit(&mut self, now: Instant, outer: SocketAddr) -> bool {
        let mapped = self.outer == outer && self.is_mapped(now);
        if mapped {
            self.last_used = now;
        } else {
            self.unmapped += 1;
        }
        mapped
    }

    /// The NAT forgets the mapping, and gives another port from then on.
    pub fn forget_mapping(&mut self) {
        self.outer.set_port(self.outer.port().wrapping_add(1).max(1024));
    }

    /// A packet of others, of `size` bytes at IP level, comes to the link; if it passes, it is among
    /// [`Lab::foreign`].
    pub fn share(&mut self, now: Instant, towards: Towards, packet: Vec<u8>, size: usize) {
        let direction = match towards {
            Towards::Client => &mut self.down,
            Towards::Proxy => &mut self.up,
        };
        let carried = Carried { outer: self.outer, datagram: packet };
        direction.handle_foreign(now, carried, size, Ecn::NotEct);
    }

    fn is_mapped(&self, now: Instant) -> bool {
        self.nat_timeout.is_none_or(|timeout| now.since(self.last_used) < timeout)
    }
}

/// A datagram on a link, which lies between the client's NAT and the proxy.
#[derive(Debug)]
pub struct Carried {
    /// The client's end of it.
    outer: SocketAddr,
    datagram: Vec<u8>,
}

/// A packet that came out of a tunnel.
#[derive(Clone, Debug)]
pub struct Delivered {
    /// When.
    pub at: Instant,
    /// The packet.
    pub packet: Vec<u8>,
}

/// The TUN of one end: collects packets.
#[derive(Default)]
pub struct Collect {
    at: Instant,
    packets: Vec<Delivered>,
}

impl PacketSink for Collect {
    fn deliver(&mut self, packet: Packet<'_>) {
        let packet = packet.completed().map(Cow::into_owned);
        self.packets.extend(packet.map(|packet| Delivered { at: self.at, packet }));
    }
}

/// A datagram in a batch.
struct Queued {
    path: Path,
    ecn: Ecn,
    datagram: Vec<u8>,
}

/// A batch of bounded length, as a driver has.
struct Batch {
    reserved: Option<Queued>,
    queued: Vec<Queued>,
}

/// Steps at one and the same moment that only a timer that spins can cause.
const SPIN: u32 = 1000;

/// Datagrams in one batch.
const BATCH: usize = 64;

impl TransmitSink for Batch {
    fn reserve(&mut self, path: Path, ecn: Ecn, len: usize) -> Option<&mut [u8]> {
        if self.queued.len() >= BATCH {
            return None;
        }
        let reserved = self.reserved.insert(Queued { path, ecn, datagram: vec![0; len] });
        Some(&mut reserved.datagram)
    }

    fn has_room(&mut self, paths: &[Path], _len: usize) -> bool {
        self.queued.len() + paths.len() <= BATCH
    }

    fn commit(&mut self, len: usize) {
        if let Some(mut queued) = self.reserved.take() {
            queued.datagram.truncate(len);
            self.queued.push(queued);
        }
    }
}

/// The lab.
pub struct Lab<C, P> {
    /// The present moment.
    pub now: Instant,
    /// The client.
    pub client: C,
    /// The proxy.
    pub proxy: P,
    /// The links; the client's socket of each has the link's place as its number.
    pub links: Vec<LabLink>,
    /// Every datagram that entered a link: direction, link, bytes. Filled if [`record`](Self::record).
    pub recorded: Vec<(Towards, usize, Vec<u8>)>,
    /// Whether datagrams are recorded.
    pub record: bool,
    /// Datagrams of the proxy to addresses that no link has.
    pub unroutable: u64,
    /// Packets of others that came out of a link, and which way they went; for whoever sent them to take.
    pub foreign: Vec<(Towards, Delivered)>,
    at_client: Collect,
    at_proxy: Collect,
}

impl<C: End, P: End> Lab<C, P> {
    /// Two ends without links.
    pub fn new(client: C, proxy: P) -> Self {
        Self {
            now: Instant::ZERO,
            client,
            proxy,
            links: Vec::new(),
            recorded: Vec::new(),
            record: false,
            unroutable: 0,
            foreign: Vec::new(),
            at_client: Collect::default(),
            at_proxy: Collect::default(),
        }
    }

    /// Adds a link whose two directions have these conditions; returns the client's path over it.
    pub fn add_link(&mut self, down: Conditions, up: Conditions, seed: u64) -> Path {
        let mut rng = SmallRng::seed_from_u64(seed);
        let place = u8::try_from(self.links.len()).unwrap_or(u8::MAX);
        self.links.push(LabLink {
            down: Netem::new(self.now, down, SmallRng::seed_from_u64(rng.random())),
            up: Netem::new(self.now, up, SmallRng::seed_from_u64(rng.random())),
            outer: (Ipv4Addr::new(198, 51, 100, place), 40_000).into(),
            nat_timeout: None,
            nat_renumbers: false,
            unmapped: 0,
            last_used: self.now,
        });
        Path { socket: SocketId(u16::from(place)), local: None, remote: PROXY }
    }

    /// Hands a packet to one end, as its TUN would.
    pub fn send(&mut self, from: Towards, packet: &[u8]) {
        self.send_all(from, &[packet]);
    }

    /// Hands packets to one end that its TUN had all at once.
    pub fn send_all(&mut self, from: Towards, packets: &[impl AsRef<[u8]>]) {
        for packet in packets {
            self.hand(from, packet.as_ref());
        }
        self.transmit();
    }

    fn hand(&mut self, from: Towards, packet: &[u8]) {
        let mut packet = packet.to_vec();
        match from {
            Towards::Client => {
                self.at_client.at = self.now;
                self.client.handle_packet(self.now, &mut packet, &mut self.at_client);
            }
            Towards::Proxy => {
                self.at_proxy.at = self.now;
                self.proxy.handle_packet(self.now, &mut packet, &mut self.at_proxy);
            }
        }
    }

    /// Lets the user of the client act on it.
    pub fn with_client<R>(&mut self, act: impl FnOnce(&mut C, Instant, &mut Collect) -> R) -> R {
        self.at_client.at = self.now;
        let result = act(&mut self.client, self.now, &mut self.at_client);
        self.transmit();
        result
    }

    /// What came out at one end since the last call.
    pub fn delivered(&mut self, at: Towards) -> Vec<Delivered> {
        match at {
            Towards::Client => std::mem::take(&mut self.at_client.packets),
            Towards::Proxy => std::mem::take(&mut self.at_proxy.packets),
        }
    }

    /// Injects a datagram at one end as if it came from `path`.
    pub fn inject(&mut self, at: Towards, path: Path, datagram: &[u8]) {
        let mut datagram = datagram.to_vec();
        match at {
            Towards::Client => {
                self.at_client.at = self.now;
                let sink = &mut self.at_client;
                self.client.handle_datagram(self.now, path, Ecn::NotEct, &mut datagram, sink);
                self.client.end_of_batch(self.now);
            }
            Towards::Proxy => {
                self.at_proxy.at = self.now;
                let sink = &mut self.at_proxy;
                self.proxy.handle_datagram(self.now, path, Ecn::NotEct, &mut datagram, sink);
                self.proxy.end_of_batch(self.now);
            }
        }
        self.transmit();
    }

    /// Runs until `end`, which is then the present.
    ///
    /// # Panics
    /// If an end asks for its timer again and again without time passing.
    pub fn run_until(&mut self, end: Instant) {
        self.transmit();
        let mut steps_now = 0;
        while let Some(next) = self.next_event().filter(|next| *next <= end) {
            steps_now = if next > self.now { 0 } else { steps_now + 1 };
            assert!(steps_now < SPIN, "a timer spins at {:?}", self.now);
            self.now = self.now.max(next);
            self.step();
        }
        self.now = end;
    }

    /// The next moment at which something happens.
    #[must_use]
    pub fn next_event(&self) -> Option<Instant> {
        let ends = earliest(self.client.poll_timeout(), self.proxy.poll_timeout());
        self.links.iter().fold(ends, |next, link| {
            earliest(next, earliest(link.down.poll_timeout(), link.up.poll_timeout()))
        })
    }

    fn step(&mut self) {
        let now = self.now;
        (self.at_client.at, self.at_proxy.at) = (now, now);
        for place in 0..self.links.len() {
            self.arrive(place);
        }
        if self.client.poll_timeout().is_some_and(|at| at <= now) {
            self.client.handle_timeout(now, &mut self.at_client);
        }
        if self.proxy.poll_timeout().is_some_and(|at| at <= now) {
            self.proxy.handle_timeout(now, &mut self.at_proxy);
        }
        self.transmit();
    }

    fn arrive(&mut self, place: usize) {
        let now = self.now;
        let link = &mut self.links[place];
        let socket = SocketId(u16::try_from(place).unwrap_or(u16::MAX));
        let mut came = false;
        while let Some(delivery) = link.down.poll_packet(now) {
            let Carried { outer, mut datagram } = delivery.payload;
            if delivery.foreign {
                let delivered = Delivered { at: now, packet: datagram };
                self.foreign.push((Towards::Client, delivered));
                continue;
            }
            if !link.admit(now, outer) {
                continue;
            }
            let path = Path { socket, local: None, remote: PROXY };
            let sink = &mut self.at_client;
            self.client.handle_datagram(now, path, delivery.ecn, &mut datagram, sink);
            came = true;
        }
        if came {
            self.client.end_of_batch(now);
        }
        let mut came = false;
        while let Some(delivery) = link.up.poll_packet(now) {
            let Carried { outer, mut datagram } = delivery.payload;
            if delivery.foreign {
                let delivered = Delivered { at: now, packet: datagram };
                self.foreign.push((Towards::Proxy, delivered));
                continue;
            }
            let path = Path { socket: SocketId(0), local: None, remote: outer };
            let sink = &mut self.at_proxy;
            self.proxy.handle_datagram(now, path, delivery.ecn, &mut datagram, sink);
            came = true;
        }
        if came {
            self.proxy.end_of_batch(now);
        }
    }

    fn transmit(&mut self) {
        loop {
            let mut batch = Batch { reserved: None, queued: Vec::new() };
            self.client.poll_transmit(self.now, &mut batch);
            let sent = batch.queued.len();
            batch.queued.into_iter().for_each(|queued| self.depart(Towards::Proxy, queued));
            let mut batch = Batch { reserved: None, queued: Vec::new() };
            self.proxy.poll_transmit(self.now, &mut batch);
            let answered = batch.queued.len();
            batch.queued.into_iter().for_each(|queued| self.depart(Towards::Client, queued));
            if sent == 0 && answered == 0 {
                break;
            }
        }
    }

    fn depart(&mut self, towards: Towards, queued: Queued) {
        let Queued { path, ecn, datagram } = queued;
        let size = datagram.len() + usize::from(path.header_len());
        let place = match towards {
            Towards::Proxy => usize::from(path.socket.0),
            // A datagram to an address that no link has (any more) is lost.
            Towards::Client => {
                let owns = |link: &LabLink| link.outer.ip() == path.remote.ip();
                let Some(place) = self.links.iter().position(owns) else {
                    self.unroutable += 1;
                    return;
                };
                place
            }
        };
        if self.record {
            self.recorded.push((towards, place, datagram.clone()));
        }
        let Some(link) = self.links.get_mut(place) else { return };
        let (outer, direction) = match towards {
            Towards::Proxy => (link.translate(self.now), &mut link.up),
            Towards::Client => (path.remote, &mut link.down),
        };
        direction.handle_packet(self.now, Carried { outer, datagram }, size, ecn);
    }
}
