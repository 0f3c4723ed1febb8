//! The peer: the core's client over a plain socket, and its malice.

use std::net::{IpAddr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant as Clock, SystemTime, UNIX_EPOCH};

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use ropewalk_proto::client::{Client, LinkKey};
use ropewalk_proto::crypto::StaticSecret;
use ropewalk_proto::ecn::Ecn;
use ropewalk_proto::packet::Packet;
use ropewalk_proto::path::{Path, SocketId};
use ropewalk_proto::sink::PacketSink;
use ropewalk_proto::time::Instant;
use ropewalk_settings::{Keepalive, PublicKey};

use super::inner::{ACK, SYN, accepted, tcp, udp};
use crate::address::{SERVER_V4, client_interface};
use crate::direct::Batch;
use crate::error::LabError;
use crate::pair::{client_config, link_config};
use crate::prove::stranger::PROXY;
use crate::stage::Stage;
use crate::traffic::UdpSender;

/// The client that is bad, and its only link.
const CLIENT: u8 = 1;
const WAN: u8 = 0;
/// What it has sent to it, in bit/s: more than its link carries.
const STREAM: u64 = 40_000_000;
const STREAM_PORT: u16 = 6500;
/// As [`crate::traffic`] says hello: magic, kind 2, a number and a time.
const HELLO: [u8; 24] = {
    let mut hello = [0; 24];
    (hello[0], hello[1], hello[2], hello[3], hello[7]) = (0x72, 0x77, 0x75, 0x64, 2);
    hello
};
/// Connections that it opens, and from which port on.
const CONNECTIONS: u16 = 1500;
const FIRST_PORT: u16 = 10_000;
/// A server's answer that never ends.
const GET: &[u8] = b"GET /1000000000/7 HTTP/1.1\r\n\r\n";
/// Packets that it floods with in a turn, each as short as one can be.
const FLOOD: usize = 256;
/// A turn waits for no longer.
const TURN: Duration = Duration::from_micros(500);

/// What it does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Malice {
    NeverConfirms,
    ConfirmsAtRandom,
    Floods,
    OpensConnections,
}

impl Malice {
    pub(super) const ALL: [Self; 4] =
        [Self::NeverConfirms, Self::ConfirmsAtRandom, Self::Floods, Self::OpensConnections];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::NeverConfirms => "never confirms",
            Self::ConfirmsAtRandom => "confirms at random",
            Self::Floods => "floods frames",
            Self::OpensConnections => "opens connections",
        }
    }

    pub(super) const fn what(self) -> &'static str {
        match self {
            Self::NeverConfirms => "it asks for 40 Mbit/s, and confirms nothing of it",
            Self::ConfirmsAtRandom => {
                "it asks for 40 Mbit/s, and confirms every other datagram, as a die falls"
            }
            Self::Floods => "it sends packets of a byte without end, many in each datagram",
            Self::OpensConnections => {
                "it opens 1,500 connections that bring data without end, and takes none of it"
            }
        }
    }

    /// Whether the core hears of a datagram.
    fn hears(self, rng: &mut StdRng) -> bool {
        match self {
            Self::NeverConfirms => false,
            Self::ConfirmsAtRandom => rng.random_bool(0.5),
            Self::Floods | Self::OpensConnections => true,
        }
    }

    /// Whether it was as bad as it was meant to be, or that divided by this.
    pub(super) fn has_acted(self, spent: &Spent, divisor: u64) -> bool {
        match self {
            Self::NeverConfirms | Self::ConfirmsAtRandom => spent.ignored > 100 / divisor,
            Self::Floods => spent.sent > 1_000 / divisor,
            Self::OpensConnections => {
                spent.connections as u64 > u64::from(CONNECTIONS) / 2 / divisor
            }
        }
    }
}

/// What it did.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Spent {
    pub(super) sent: u64,
    pub(super) came: u64,
    pub(super) ignored: u64,
    pub(super) connections: usize,
}

/// The peer, before it begins.
pub(super) struct Peer {
    malice: Malice,
    client: Client,
    socket: UdpSocket,
    path: Path,
    /// What sends to it, once it said hello.
    stream: UdpSocket,
    begun: Clock,
}

/// Packets that came out of its tunnel.
#[derive(Default)]
struct Came(Vec<Vec<u8>>);

impl PacketSink for Came {
    fn deliver(&mut self, packet: Packet<'_>) {
        self.0.extend(packet.completed().map(std::borrow::Cow::into_owned));
    }
}

impl Peer {
    /// With the key of the deployment's second client, in its namespace.
    pub(super) fn new(stage: &mut Stage, malice: Malice) -> Result<Self, LabError> {
        let failed = || LabError::io("a socket of the hostile peer");
        let file = stage.deployment.folder().join(format!("client{CLIENT}.key"));
        let text = std::fs::read_to_string(&file).map_err(failed())?;
        let malformed = || LabError::Malformed { what: "a key", text: "44 characters".into() };
        let proxy = stage.deployment.client_config(0)["proxy"]["public_key"].clone();
        let proxy: PublicKey =
            proxy.as_str().and_then(|key| key.parse().ok()).ok_or_else(malformed)?;
        let secret = StaticSecret::new(&text.trim().parse().map_err(|_| malformed())?);
        let begun = Clock::now();
        let wall_clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let config = client_config(secret, proxy, wall_clock);
        let mut seed = [0; 32];
        StdRng::seed_from_u64(u64::from(wall_clock.subsec_nanos())).fill(&mut seed);
        let mut client = Client::new(Instant::ZERO, config, seed);
        let namespace = &stage.topology.clients()[usize::from(CLIENT)];
        let socket = namespace.run(|| UdpSocket::bind("0.0.0.0:0"))?.map_err(failed())?;
        socket.set_nonblocking(true).map_err(failed())?;
        let stream = (SERVER_V4, STREAM_PORT + malice as u16);
        let stream = stage.topology.server().run(|| UdpSocket::bind(stream))?.map_err(failed())?;
        let path = Path { socket: SocketId(0), local: None, remote: PROXY };
        let link = link_config(&client_interface(WAN), path, Keepalive::Auto);
        client
            .set_link(Instant::ZERO, LinkKey(1), Some(link), &mut Came::default())
            .map_err(|error| LabError::Unsupported(error.to_string()))?;
        Ok(Self { malice, client, socket, path, stream, begun })
    }

    /// Does its worst until it is told that it is over, and ends its session.
    pub(super) fn run(mut self, over: &AtomicBool) -> Result<Spent, LabError> {
        let duration = Duration::from_secs(60);
        let sender = UdpSender { to: None, bits_per_second: STREAM, size: 1200, duration };
        let stream = self.stream.try_clone().map_err(LabError::io("copying a socket"))?;
        // Ends with its 60 s or with the program; where nobody says hello, within 30 s.
        let _sending = thread::spawn(move || sender.run(&stream));
        let mut spent = Spent::default();
        let mut rng = StdRng::seed_from_u64(5);
        let (mut sink, mut batch, mut buffer) = (Came::default(), Batch::default(), [0; 2048]);
        let mut opened = 0;
        while !over.load(Ordering::Relaxed) {
            let is_in = self.client.session().is_some();
            while let Ok(length) = self.socket.recv(&mut buffer) {
                spent.came += 1;
                // Until it is in it behaves.
                if is_in && self.has_settled() && !self.malice.hears(&mut rng) {
                    spent.ignored += 1;
                    continue;
                }
                let now = self.now();
                let datagram = &mut buffer[..length];
                self.client.handle_datagram(now, self.path, Ecn::NotEct, datagram, &mut sink);
            }
            let now = self.now();
            self.client.end_of_batch(now);
            if self.client.poll_timeout().is_some_and(|(at, _)| at <= now) {
                self.client.handle_timeout(now, &mut sink);
            }
            if let Some(own) = self.own() {
                self.act(now, own, &mut opened, &mut sink, &mut spent);
            }
            sink.0.clear();
            spent.sent += self.transmit(now, &mut batch);
            while self.client.poll_event().is_some() {}
            thread::sleep(TURN);
        }
        self.client.close(self.now());
        self.transmit(self.now(), &mut batch);
        Ok(spent)
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Its links are up, and its inner address is served.
    fn has_settled(&self) -> bool {
        self.begun.elapsed() > Duration::from_secs(1)
    }

    fn own(&self) -> Option<SocketAddrV4> {
        let own = self.client.session()?.own.iter().map(ipnet::IpNet::addr);
        let v4 = own.filter_map(|address| match address {
            IpAddr::V4(v4) => Some(v4),
            IpAddr::V6(_) => None,
        });
        v4.map(|own| SocketAddrV4::new(own, 5000)).next()
    }

    fn act(
        &mut self,
        now: Instant,
        own: SocketAddrV4,
        opened: &mut u16,
        sink: &mut Came,
        spent: &mut Spent,
    ) {
        let server = |port| SocketAddrV4::new(SERVER_V4, port);
        let mut packets = Vec::new();
        match self.malice {
            Malice::NeverConfirms | Malice::ConfirmsAtRandom => {
                if !self.has_settled() {
                    packets.push(udp(own, server(STREAM_PORT + self.malice as u16), &HELLO));
                }
            }
            Malice::Floods => {
                packets.extend((0..FLOOD).map(|_| udp(own, server(9), b"x")));
            }
            Malice::OpensConnections => {
                let from = |port| SocketAddrV4::new(*own.ip(), port);
                for (port, number) in sink.0.iter().filter_map(|packet| accepted(packet)) {
                    spent.connections += 1;
                    packets.push(tcp(
                        (from(port), server(80)),
                        (1, number.wrapping_add(1)),
                        ACK,
                        GET,
                    ));
                }
                // As many as the proxy lets begin: 2,000 at once.
                if *opened < CONNECTIONS && self.has_settled() {
                    packets.push(tcp((from(FIRST_PORT + *opened), server(80)), (0, 0), SYN, b""));
                    *opened += 1;
                }
            }
        }
        let mut answers = Came::default();
        packets.iter().for_each(|packet| self.client.handle_packet(now, packet, &mut answers));
    }

    /// Sends what is to be sent; how many datagrams.
    fn transmit(&mut self, now: Instant, batch: &mut Batch) -> u64 {
        let mut sent = 0;
        loop {
            batch.clear();
            self.client.poll_transmit(now, batch);
            for (path, _, datagram) in batch.each() {
                // A full socket loses it, as a link would.
                let remote: SocketAddr = path.remote;
                sent += u64::from(self.socket.send_to(datagram, remote).is_ok());
            }
            if !batch.is_full() {
                return sent;
            }
        }
    }
}
