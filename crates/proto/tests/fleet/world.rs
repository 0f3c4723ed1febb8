//! Several proxies and one client that knows them, in virtual time.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use arrayvec::ArrayString;
use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};

use ropewalk_netlab::batch::{Batch, Tun};
use ropewalk_netlab::pair::client_config;
use ropewalk_proto::client::{ClientState, LinkKey};
use ropewalk_proto::config::{LinkConfig, TunnelConfig};
use ropewalk_proto::crypto::{Capabilities, CipherSet, StaticSecret};
use ropewalk_proto::ecn::Ecn;
use ropewalk_proto::endpoint::{Endpoint, EndpointConfig, PeerConfig, Share};
use ropewalk_proto::event::Event;
use ropewalk_proto::fleet::{
    FleetClient, FleetEvent, FleetLink, FleetList, FleetProxy, NamedProxy, ProxyId, ProxyState,
    Region,
};
use ropewalk_proto::path::{Path, SocketId};
use ropewalk_proto::time::{Duration, Instant};
use ropewalk_proto::tunnel::InnerFilter;
use ropewalk_proto::wire::hello::parameters::NameServers;
use ropewalk_settings::{Keepalive, LinkPolicy, PresharedKey};

pub(crate) const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 80);
const WALL: Duration = Duration::from_secs(1_800_000_000);
const BATCH: usize = 7;
const LINKS: u16 = 2;
/// Steps at one instant before it counts as an endless loop.
const MAX_STEPS: u32 = 20_000;

pub(crate) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A UDP packet of a flow, with a number in it.
pub(crate) fn packet(port: u8, number: u32) -> Vec<u8> {
    let mut packet = vec![0; 60];
    (packet[0], packet[3], packet[8], packet[9]) = (0x45, 60, 64, 17);
    packet[12..16].copy_from_slice(&CLIENT.octets());
    packet[16..20].copy_from_slice(&SERVER.octets());
    (packet[21], packet[23], packet[25]) = (port, 80, 40);
    packet[28..32].copy_from_slice(&number.to_be_bytes());
    packet
}

fn number_of(packet: &[u8]) -> u32 {
    u32::from_be_bytes(packet[28..32].try_into().unwrap())
}

pub(crate) struct Proxy {
    secret: StaticSecret,
    pub(crate) endpoint: Endpoint,
    tun: Tun,
    /// One way, over each link.
    pub(crate) delay: Duration,
    /// Whether its machine lives.
    pub(crate) alive: bool,
    pub(crate) state: ProxyState,
    pub(crate) load: u8,
    /// The numbers of the packets that came out here, by flow.
    pub(crate) seen: Vec<(u8, u32)>,
    /// Questions and first messages that came.
    pub(crate) hellos: usize,
}

/// To which proxy (`None`: to the client), on which path, and what.
type Flight = (Option<usize>, Path, Vec<u8>);

pub(crate) struct World {
    pub(crate) now: Instant,
    rng: StdRng,
    pub(crate) proxies: Vec<Proxy>,
    pub(crate) client: FleetClient,
    pub(crate) tun: Tun,
    pub(crate) events: Vec<FleetEvent>,
    /// Whether anything passes on the client's links.
    pub(crate) network: bool,
    /// Of a thousand datagrams.
    pub(crate) loss: u32,
    flights: BTreeMap<(Instant, u64), Flight>,
    sequence: u64,
    /// When the last answer came back through the tunnel, and the longest pause between two.
    answered: Instant,
    pub(crate) longest_gap: Duration,
    /// Proxies that were told that the client moves, in order.
    pub(crate) moving: Vec<usize>,
    /// Whether the first one was told before another one had a session.
    pub(crate) told_first: bool,
    sessions: usize,
}

impl World {
    /// Proxies with these one-way delays in ms, all of which the client's owner named.
    pub(crate) fn new(seed: u64, delays: &[u64]) -> Self {
        println!("seed {seed}");
        let mut rng = StdRng::seed_from_u64(seed);
        let secret = StaticSecret::generate(&mut rng);
        let now = Instant::from_millis(1000);
        let mut proxies = Vec::new();
        for delay in delays {
            let own = StaticSecret::generate(&mut rng);
            let mut endpoint = Endpoint::new(Instant::ZERO, endpoint(&own), seed_of(&mut rng));
            endpoint.set_peer(Instant::ZERO, secret.public(), peer()).unwrap();
            proxies.push(Proxy {
                secret: own,
                endpoint,
                tun: Tun::default(),
                delay: ms(*delay),
                alive: true,
                state: ProxyState::Serving,
                load: 0,
                seen: Vec::new(),
                hellos: 0,
            });
        }
        let config = client_config(secret, proxies[0].secret.public(), WALL);
        let client = FleetClient::new(now, config, seed_of(&mut rng));
        let mut world = Self {
            now,
            rng,
            proxies,
            client,
            tun: Tun::default(),
            events: Vec::new(),
            network: true,
            loss: 0,
            flights: BTreeMap::new(),
            sequence: 0,
            answered: now,
            moving: Vec::new(),
            told_first: false,
            sessions: 0,
            longest_gap: Duration::ZERO,
        };
        let named = (0..delays.len()).map(|at| world.named(at)).collect();
        world.client.set_named(now, named, &mut world.tun);
        world
    }

    pub(crate) fn named(&self, at: usize) -> NamedProxy {
        let public_key = self.proxies[at].secret.public();
        NamedProxy { public_key, addresses: vec![address(at)] }
    }

    /// The client gets its links, and so begins.
    pub(crate) fn begin(&mut self) {
        for at in 0..LINKS {
            let key = LinkKey(at.into());
            self.client.set_link(self.now, key, Some(link(at)), &mut self.tun).unwrap();
        }
        self.flush();
    }

    /// The second link has another address from now on.
    pub(crate) fn change_network(&mut self) {
        let other = Some(link(LINKS));
        self.client.set_link(self.now, LinkKey(1), other, &mut self.tun).unwrap();
        self.flush();
    }

    /// All links are gone for a moment, and have other addresses from then on.
    pub(crate) fn change_all_networks(&mut self) {
        for at in 0..LINKS {
            self.client.set_link(self.now, LinkKey(at.into()), None, &mut self.tun).unwrap();
        }
        self.run_for(ms(50));
        for at in 0..LINKS {
            let other = Some(link(LINKS + at));
            self.client.set_link(self.now, LinkKey(at.into()), other, &mut self.tun).unwrap();
        }
        self.flush();
    }

    pub(crate) fn connect(&mut self) {
        self.begin();
        let start = self.now;
        while !self.is_connected() {
            assert!(self.now.since(start) < ms(20_000), "{:?}", self.client.state());
            self.run_for(ms(1));
        }
    }

    pub(crate) fn is_connected(&self) -> bool {
        matches!(self.client.state(), ClientState::Connected { .. })
    }

    /// Which proxy is in use.
    pub(crate) fn present(&self) -> usize {
        let key = self.client.present();
        self.proxies.iter().position(|proxy| proxy.secret.public() == key).unwrap()
    }

    /// All proxies tell their clients of these as they are now.
    pub(crate) fn tell_fleet(&mut self, of: &[usize]) {
        let told = of.iter().map(|at| {
            let proxy = &self.proxies[*at];
            FleetProxy {
                id: ProxyId::new(&format!("p{at}")).unwrap(),
                region: Region::new(if *at == 0 { "eu" } else { "us" }).unwrap(),
                addresses: [address(*at)].into_iter().collect(),
                public_key: proxy.secret.public(),
                state: proxy.state,
                load: proxy.load,
            }
        });
        let list = Arc::new(FleetList::new(told.collect()).unwrap());
        self.proxies.iter_mut().for_each(|proxy| proxy.endpoint.set_fleet(&list));
        self.flush();
    }

    /// A packet of each flow every 20 ms, for so long; numbers go on from `first`. Returns the next number.
    pub(crate) fn stream(&mut self, flows: &[u8], first: u32, time: Duration) -> u32 {
        let end = self.now + time;
        let mut number = first;
        self.answered = self.now;
        while self.now < end {
            for flow in flows {
                let packet = packet(*flow, number);
                self.client.handle_packet(self.now, &packet, &mut self.tun);
            }
            number += 1;
            self.flush();
            self.run_for(ms(20));
        }
        number
    }

    /// The numbers of a flow that came out at a proxy.
    pub(crate) fn seen(&self, proxy: usize, flow: u8) -> Vec<u32> {
        let seen = self.proxies[proxy].seen.iter().filter(|(port, _)| *port == flow);
        seen.map(|(_, number)| *number).collect()
    }

    /// The numbers of the answers of a flow that came back.
    pub(crate) fn answers(&self, flow: u8) -> Vec<u32> {
        let back = self.tun.0.iter().filter(|packet| packet[23] == flow);
        back.map(|packet| number_of(packet)).collect()
    }

    pub(crate) fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        self.flush();
        let mut steps = 0;
        while let Some(next) = self.next_time().filter(|next| *next <= end) {
            steps = if next > self.now { 0 } else { steps + 1 };
            assert!(
                steps < MAX_STEPS,
                "endless at {:?}: {:?}",
                self.now,
                self.client.poll_timeout()
            );
            self.now = self.now.max(next);
            self.step();
        }
        self.now = end;
    }

    fn next_time(&self) -> Option<Instant> {
        let flight = self.flights.keys().next().map(|(at, _)| *at);
        let alive = self.proxies.iter().filter(|proxy| proxy.alive);
        let proxies = alive.filter_map(|proxy| proxy.endpoint.poll_timeout());
        let timers = proxies.chain(self.client.poll_timeout()).map(|(at, _)| at);
        timers.chain(flight).min()
    }

    fn step(&mut self) {
        let now = self.now;
        while let Some(entry) = self.flights.first_entry().filter(|e| e.key().0 <= now) {
            let (to, path, mut datagram) = entry.remove();
            match to {
                Some(at) if self.proxies[at].alive => {
                    let proxy = &mut self.proxies[at];
                    proxy.hellos += usize::from(datagram[0] >= 0x80);
                    let Proxy { endpoint, tun, .. } = proxy;
                    endpoint.handle_datagram(now, path, Ecn::NotEct, &mut datagram, tun);
                }
                Some(_) => {}
                None => {
                    let before = self.tun.0.len();
                    let Self { client, tun, .. } = self;
                    client.handle_datagram(now, path, Ecn::NotEct, &mut datagram, tun);
                    if self.tun.0.len() > before {
                        self.longest_gap = self.longest_gap.max(now.since(self.answered));
                        self.answered = now;
                    }
                }
            }
        }
        for proxy in self.proxies.iter_mut().filter(|proxy| proxy.alive) {
            proxy.endpoint.end_of_batch(now);
            if proxy.endpoint.poll_timeout().is_some_and(|(at, _)| at <= now) {
                proxy.endpoint.handle_timeout(now, &mut proxy.tun);
            }
            for packet in std::mem::take(&mut proxy.tun.0) {
                proxy.seen.push((packet[21], number_of(&packet)));
                let mut answer = packet;
                let (from, to) = answer[12..20].split_at_mut(4);
                from.swap_with_slice(to);
                answer[20..24].rotate_left(2);
                proxy.endpoint.handle_packet(now, &answer, &mut proxy.tun);
            }
        }
        self.client.end_of_batch(now);
        if self.client.poll_timeout().is_some_and(|(at, _)| at <= now) {
            self.client.handle_timeout(now, &mut self.tun);
        }
        self.flush();
    }

    fn flush(&mut self) {
        let now = self.now;
        let mut full = true;
        while full {
            let mut batch = Batch::of(BATCH);
            self.client.poll_transmit(now, &mut batch);
            full = batch.is_full();
            for (path, datagram) in batch.sent {
                let to = (0..self.proxies.len()).find(|at| address(*at) == path.remote);
                let Some(at) = to.filter(|_| self.passes()) else { continue };
                let seen = Path { remote: nat(path.socket), ..path };
                self.fly(self.proxies[at].delay, Some(at), seen, datagram);
            }
        }
        while let Some(event) = self.client.poll_event() {
            if let FleetEvent::List(list) = &event {
                self.client.set_list(now, list.clone(), &mut self.tun);
            }
            self.events.push(event);
        }
        for at in 0..self.proxies.len() {
            let mut full = self.proxies[at].alive;
            while full {
                let mut batch = Batch::of(BATCH);
                self.proxies[at].endpoint.poll_transmit(now, &mut batch);
                full = batch.is_full();
                for (path, datagram) in batch.sent {
                    let mut sockets = (0..2 * LINKS).map(SocketId);
                    let socket = sockets.find(|one| nat(*one) == path.remote);
                    let Some(socket) = socket.filter(|_| self.passes()) else { continue };
                    let to = Path { socket, local: None, remote: address(at) };
                    self.fly(self.proxies[at].delay, None, to, datagram);
                }
            }
            while let Some(event) = self.proxies[at].endpoint.poll_event() {
                match event.event {
                    Event::Moving => self.moving.push(at),
                    Event::SessionEstablished(_) => self.sessions += 1,
                    _ => {}
                }
                self.told_first |= self.sessions == 1 && !self.moving.is_empty();
            }
        }
    }

    fn passes(&mut self) -> bool {
        self.network && self.rng.random_range(0..1000) >= self.loss
    }

    fn fly(&mut self, delay: Duration, to: Option<usize>, path: Path, datagram: Vec<u8>) {
        self.sequence += 1;
        self.flights.insert((self.now + delay, self.sequence), (to, path, datagram));
    }
}

pub(crate) fn address(proxy: usize) -> SocketAddr {
    ([203, 0, 113, u8::try_from(proxy).unwrap() + 1], 4242).into()
}

/// How proxies see a link.
fn nat(socket: SocketId) -> SocketAddr {
    ([100, 64, 0, u8::try_from(socket.0).unwrap() + 1], 5000).into()
}

fn link(at: u16) -> FleetLink {
    let config = LinkConfig {
        name: ArrayString::from(&format!("wan{at}")).unwrap(),
        paths: arrayvec::ArrayVec::new(),
        keepalive: Keepalive::default(),
        metered: false,
        mtu: None,
        policy: LinkPolicy::default(),
    };
    FleetLink { config, sockets: [(true, SocketId(at))].into_iter().collect(), any_port: false }
}

fn peer() -> PeerConfig {
    PeerConfig {
        name: "laptop".into(),
        psk: PresharedKey::NONE,
        inner_v4: Some(ipnet::Ipv4Net::new(CLIENT, 16).unwrap()),
        inner_v6: None,
        filter: InnerFilter {
            sources: [CLIENT.into()].into_iter().collect(),
            ..InnerFilter::default()
        },
        enabled: true,
    }
}

fn endpoint(secret: &StaticSecret) -> EndpointConfig {
    EndpointConfig {
        tunnel: TunnelConfig::default(),
        secret: secret.clone(),
        ciphers: CipherSet::offered(Capabilities { aes: true }),
        inner_v4: Some(Ipv4Addr::new(10, 77, 0, 1)),
        inner_v6: None,
        name_servers: NameServers::default(),
        max_sessions: 16,
        wall_clock: WALL,
        share: Share::WHOLE,
        speed: None,
    }
}

fn seed_of(rng: &mut StdRng) -> [u8; 32] {
    let mut seed = [0; 32];
    rng.fill_bytes(&mut seed);
    seed
}
