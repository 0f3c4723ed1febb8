//! Clients and a proxy joined by fixed memory: no emulated network, no allocation, nothing that costs time but the
//! ends themselves. For measurements of the core; what a network does to it is [`crate::lab`]'s.
//!
//! Time passes only by [`Direct::pass`], and a round trip takes [`ROUND_TRIP`] of it. One client talks at a time.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use ipnet::Ipv4Net;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use ropewalk_proto::client::{Client, ClientConfig, LinkKey};
use ropewalk_proto::config::TunnelConfig;
use ropewalk_proto::crypto::{Capabilities, CipherSet, StaticSecret};
use ropewalk_proto::ecn::Ecn;
use ropewalk_proto::endpoint::{Endpoint, EndpointConfig, PeerConfig, Share};
use ropewalk_proto::packet::Packet;
use ropewalk_proto::path::{Path, SocketId};
use ropewalk_proto::sink::{PacketSink, TransmitSink};
use ropewalk_proto::time::Instant;
use ropewalk_proto::tunnel::InnerFilter;
use ropewalk_proto::wire::hello::parameters::NameServers;
use ropewalk_settings::{Keepalive, PresharedKey};

use crate::error::LabError;
use crate::inner::CLIENT;
use crate::pair::{client_config, link_config};

/// From a datagram of the client to the answer.
pub const ROUND_TRIP: Duration = Duration::from_millis(2);

/// Datagrams of a batch; also of a driver's lane.
pub const BATCH: usize = 64;
/// Bytes of the largest datagram here.
const LARGEST: usize = 1500;
/// Inner addresses that clients may have.
const MOST: u32 = 1 << 16;
/// Where every client takes the proxy to be.
pub const PROXY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(203, 0, 113, 2)), 51_900);

/// Datagrams in memory that is there from the start.
pub struct Batch {
    bytes: Box<[u8]>,
    entries: Vec<(Path, Ecn, usize)>,
    reserved: Option<(Path, Ecn)>,
    full: bool,
}

impl Default for Batch {
    fn default() -> Self {
        Self {
            bytes: vec![0; BATCH * LARGEST].into_boxed_slice(),
            entries: Vec::with_capacity(BATCH),
            reserved: None,
            full: false,
        }
    }
}

impl Batch {
    /// Forgets what it holds.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.full = false;
    }

    /// Whether it refused something.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.full
    }

    /// Each datagram, with where it goes.
    pub fn each(&mut self) -> impl Iterator<Item = (Path, Ecn, &mut [u8])> {
        let places = self.bytes.as_chunks_mut::<LARGEST>().0.iter_mut();
        self.entries
            .iter()
            .zip(places)
            .map(|((path, ecn, len), place)| (*path, *ecn, &mut place[..*len]))
    }
}

impl TransmitSink for Batch {
    fn reserve(&mut self, path: Path, ecn: Ecn, len: usize) -> Option<&mut [u8]> {
        let at = self.entries.len();
        if at == BATCH || len > LARGEST {
            self.full = true;
            return None;
        }
        self.reserved = Some((path, ecn));
        self.bytes.get_mut(at * LARGEST..at * LARGEST + len)
    }

    fn has_room(&mut self, paths: &[Path], len: usize) -> bool {
        let fits = self.entries.len() + paths.len() <= BATCH && len <= LARGEST;
        self.full |= !fits;
        fits
    }

    fn commit(&mut self, len: usize) {
        if let Some((path, ecn)) = self.reserved.take() {
            self.entries.push((path, ecn, len));
        }
    }
}

/// Counts what is delivered.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl PacketSink for Count {
    fn deliver(&mut self, packet: Packet<'_>) {
        self.packets += 1;
        self.bytes += packet.bytes.len() as u64;
    }
}

/// One proxy and its clients.
pub struct Direct {
    /// The present moment.
    pub now: Instant,
    /// Each client.
    pub clients: Vec<Client>,
    /// The proxy.
    pub proxy: Endpoint,
    /// What came to clients.
    pub at_clients: Count,
    /// What came to the proxy.
    pub at_proxy: Count,
    up: Batch,
    down: Batch,
    links: u8,
}

impl Direct {
    /// A proxy that knows so many clients, none of which has asked for a session.
    ///
    /// # Errors
    /// When there are more clients than addresses.
    pub fn new(config: &TunnelConfig, clients: u32, links: u8) -> Result<Self, LabError> {
        let mut rng = StdRng::seed_from_u64(7);
        let wall_clock = Duration::from_secs(1_800_000_000);
        let ciphers = CipherSet::offered(Capabilities { aes: true });
        let secret = StaticSecret::generate(&mut rng);
        let proxy_key = secret.public();
        let endpoint = EndpointConfig {
            tunnel: config.clone(),
            secret,
            ciphers,
            inner_v4: Some([10, 77, 0, 1].into()),
            inner_v6: None,
            name_servers: NameServers::default(),
            max_sessions: 1 << 17,
            share: Share::WHOLE,
            speed: None,
            // It began a second before the clients: what it is asked is newer than its start.
            wall_clock: wall_clock.saturating_sub(Duration::from_secs(1)),
        };
        let mut direct = Self {
            now: Instant::ZERO,
            clients: Vec::new(),
            proxy: Endpoint::new(Instant::ZERO, endpoint, rng.random()),
            at_clients: Count::default(),
            at_proxy: Count::default(),
            up: Batch::default(),
            down: Batch::default(),
            links,
        };
        let full = |what: &dyn std::fmt::Display| {
            LabError::Unsupported(format!("{clients} clients: {what}"))
        };
        if clients >= MOST - 2 {
            return Err(full(&"the address plan has fewer"));
        }
        for number in 0..clients {
            let secret = StaticSecret::generate(&mut rng);
            let inner = inner(number);
            let peer = PeerConfig {
                name: format!("client{number}").into(),
                psk: PresharedKey::NONE,
                inner_v4: Ipv4Net::new(inner, 16).ok(),
                inner_v6: None,
                filter: InnerFilter {
                    sources: [inner.into()].into_iter().collect(),
                    ..InnerFilter::default()
                },
                enabled: true,
            };
            let added = direct.proxy.set_peer(Instant::ZERO, secret.public(), peer);
            added.map_err(|error| full(&error))?;
            let client = client_config(secret, proxy_key, wall_clock);
            let client = ClientConfig { tunnel: config.clone(), ..client };
            let mut client = Client::new(Instant::ZERO, client, rng.random());
            for link in 0..links {
                let path = Path { socket: SocketId(link.into()), local: None, remote: PROXY };
                let config = link_config(&format!("link{link}"), path, Keepalive::default());
                let set = client.set_link(
                    Instant::ZERO,
                    LinkKey(link.into()),
                    Some(config),
                    &mut direct.at_clients,
                );
                set.map_err(|error| full(&error))?;
            }
            direct.clients.push(client);
        }
        Ok(direct)
    }

    /// Gives every client its session, all of whose links have come to rest: windows open, path MTU known.
    ///
    /// # Errors
    /// When one gets none.
    pub fn connect(&mut self) -> Result<(), LabError> {
        /// Handshake, joins and a search of the path MTU take five.
        const MOST_ROUNDS: usize = 200;
        /// So many without a datagram are rest.
        const SILENT: usize = 5;
        for client in 0..self.clients.len() {
            let mut silent = 0;
            for _ in 0..MOST_ROUNDS {
                silent = if self.exchange(client) == 0 { silent + 1 } else { 0 };
                if silent == SILENT {
                    break;
                }
            }
            if self.clients[client].session().is_none() {
                return Err(LabError::Unsupported(format!("client {client} got no session")));
            }
        }
        Ok(())
    }

    /// Time passes, and brings what it brings to this client and the proxy.
    pub fn pass(&mut self, client: usize, time: Duration) {
        self.now += time;
        if self.proxy.poll_timeout().is_some_and(|(at, _)| at <= self.now) {
            self.proxy.handle_timeout(self.now, &mut self.at_proxy);
        }
        if self.clients[client].poll_timeout().is_some_and(|(at, _)| at <= self.now) {
            self.clients[client].handle_timeout(self.now, &mut self.at_clients);
        }
        while self.proxy.poll_event().is_some() {}
        while self.clients[client].poll_event().is_some() {}
    }

    /// One round trip: all that the client has to say, and what the proxy says to that. Returns how many datagrams
    /// that were.
    pub fn exchange(&mut self, client: usize) -> usize {
        let mut datagrams = 0;
        self.pass(client, ROUND_TRIP / 2);
        loop {
            let said = self.client_sends(client);
            if said == 0 {
                break;
            }
            datagrams += said;
            self.proxy_receives(client);
        }
        self.pass(client, ROUND_TRIP / 2);
        loop {
            let said = self.proxy_sends();
            if said == 0 {
                return datagrams;
            }
            datagrams += said;
            self.client_receives();
        }
    }

    /// A packet of the application at the client.
    pub fn packet_up(&mut self, client: usize, packet: &[u8]) {
        self.clients[client].handle_packet(self.now, packet, &mut self.at_clients);
    }

    /// A packet from the Internet, to the client whose address it has.
    pub fn packet_down(&mut self, packet: &[u8]) {
        self.proxy.handle_packet(self.now, packet, &mut self.at_proxy);
    }

    /// The client fills a batch; returns how many datagrams.
    pub fn client_sends(&mut self, client: usize) -> usize {
        self.up.clear();
        self.clients[client].poll_transmit(self.now, &mut self.up);
        self.up.entries.len()
    }

    /// The proxy takes that batch.
    pub fn proxy_receives(&mut self, client: usize) {
        for (path, ecn, datagram) in self.up.each() {
            let from =
                Path { socket: SocketId(0), local: None, remote: outer(client, path.socket) };
            self.proxy.handle_datagram(self.now, from, ecn, datagram, &mut self.at_proxy);
        }
        self.proxy.end_of_batch(self.now);
    }

    /// The proxy fills a batch; returns how many datagrams.
    pub fn proxy_sends(&mut self) -> usize {
        self.down.clear();
        self.proxy.poll_transmit(self.now, &mut self.down);
        self.down.entries.len()
    }

    /// The clients take that batch.
    pub fn client_receives(&mut self) {
        let mut last = None;
        for (path, ecn, datagram) in self.down.each() {
            let (number, socket) = whose(path.remote);
            let Some(client) = self.clients.get_mut(number) else { continue };
            let on = Path { socket, local: None, remote: PROXY };
            client.handle_datagram(self.now, on, ecn, datagram, &mut self.at_clients);
            if last.is_some_and(|last| last != number)
                && let Some(client) = last.and_then(|last: usize| self.clients.get_mut(last))
            {
                client.end_of_batch(self.now);
            }
            last = Some(number);
        }
        if let Some(client) = last.and_then(|last| self.clients.get_mut(last)) {
            client.end_of_batch(self.now);
        }
    }

    /// How many links each client has.
    #[must_use]
    pub const fn links(&self) -> u8 {
        self.links
    }
}

/// The inner address of a client; of the first, that of [`crate::inner`]'s packets.
#[must_use]
pub fn inner(client: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(CLIENT.0.to_bits() + client)
}

/// Where the proxy sees a client's socket.
fn outer(client: usize, socket: SocketId) -> SocketAddr {
    let number = u32::try_from(client).unwrap_or(u32::MAX);
    (Ipv4Addr::from_bits(0x0a00_0000 | number), 1000 + socket.0).into()
}

/// Whose socket that is.
fn whose(outer: SocketAddr) -> (usize, SocketId) {
    let bits = match outer.ip() {
        IpAddr::V4(v4) => v4.to_bits() & 0x00ff_ffff,
        IpAddr::V6(_) => u32::MAX,
    };
    (usize::try_from(bits).unwrap_or(usize::MAX), SocketId(outer.port().wrapping_sub(1000)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inner::Inner;
    use crate::lab::Towards;

    #[test]
    fn what_clients_and_proxy_send_each_other_comes() {
        let mut direct = Direct::new(&TunnelConfig::default(), 3, 2).unwrap();
        direct.connect().unwrap();
        for number in 0..100 {
            direct.packet_up(0, &Inner::plain(Towards::Proxy, number, 1400).packet());
            direct.packet_down(&Inner::plain(Towards::Client, number, 1400).packet());
            direct.exchange(0);
        }
        assert_eq!(direct.at_proxy, Count { packets: 100, bytes: 140_000 });
        assert_eq!(direct.at_clients, direct.at_proxy);
        assert!(direct.clients.iter().all(|client| client.session().is_some()));
    }

    #[test]
    fn an_outer_address_tells_whose_it_is() {
        for (client, socket) in [(0, 0), (1, 1), (65_000, 3)] {
            assert_eq!(whose(outer(client, SocketId(socket))), (client, SocketId(socket)));
        }
    }
}
