//! A proxy, its clients, and the links between them, in virtual time.
//!
//! Each link has a delay and a loss rate in each direction; nothing is reordered within a direction.
//! Batches are small, so that every machine meets full ones.

mod book;
mod configs;
mod network;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};

use ropewalk_netlab::batch::Batch;
pub(crate) use ropewalk_netlab::batch::Tun;
use ropewalk_netlab::pair::client_config;
use ropewalk_proto::client::{Client, ClientConfig, ClientEvent};
use ropewalk_proto::crypto::StaticSecret;
use ropewalk_proto::ecn::Ecn;
use ropewalk_proto::endpoint::{
    Claim, Endpoint, EndpointConfig, EndpointEvent, EndpointStats, InvitationAuthority,
    NoInvitations, PeerConfig, Share, SpeedRules,
};
use ropewalk_proto::event::Event;
use ropewalk_proto::path::Path;
use ropewalk_proto::time::{Duration, Instant};
use ropewalk_settings::PublicKey;

use book::Book;
pub(crate) use configs::{NAME_SERVERS, key_of, link, peer};
use configs::{proxy, seed};
pub(crate) use network::{LISTEN, NOWHERE, NOWHERE_V6, To, Wire};

/// The proxy's inner address.
pub(crate) const PROXY: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// A server on the Internet.
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 80);
/// The wall clock at the start of every test.
const WALL: Duration = Duration::from_secs(1_800_000_000);
/// Datagrams of one batch.
const BATCH: usize = 7;
/// Steps at one instant before it counts as an endless loop.
const MAX_STEPS: u32 = 20_000;

pub(crate) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The inner address of a client.
pub(crate) fn inner(client: usize) -> Ipv4Addr {
    let [high, low] = u16::try_from(client + 2).unwrap().to_be_bytes();
    Ipv4Addr::new(10, 77, high, low)
}

/// An IPv4 packet of `len` bytes with a number in it.
pub(crate) fn packet(from: Ipv4Addr, to: Ipv4Addr, len: usize, number: u32) -> Vec<u8> {
    let mut packet = vec![0; len.max(32)];
    packet[0] = 0x45;
    let total = u16::try_from(packet.len()).unwrap();
    packet[2..4].copy_from_slice(&total.to_be_bytes());
    packet[8..10].copy_from_slice(&[64, 17]);
    packet[12..16].copy_from_slice(&from.octets());
    packet[16..20].copy_from_slice(&to.octets());
    packet[28..32].copy_from_slice(&number.to_be_bytes());
    packet
}

/// The number in a packet.
pub(crate) fn number_of(packet: &[u8]) -> u32 {
    u32::from_be_bytes(packet[28..32].try_into().unwrap())
}

/// A batch that is soon full.
pub(crate) fn batch() -> Batch {
    Batch::of(BATCH)
}

/// A client and what belongs to it.
pub(crate) struct ClientEnd {
    pub(crate) client: Client,
    pub(crate) key: PublicKey,
    pub(crate) wires: Vec<Wire>,
    pub(crate) tun: Tun,
    pub(crate) events: Vec<ClientEvent>,
}

/// The whole world.
pub(crate) struct World {
    pub(crate) now: Instant,
    pub(crate) rng: StdRng,
    pub(crate) secret: StaticSecret,
    /// The proxy, or its first part.
    pub(crate) proxy: Endpoint,
    /// The other parts, where several share the clients.
    pub(crate) others: Vec<Endpoint>,
    /// All datagrams go to this part, wherever their steering field leads.
    pub(crate) misled: Option<u16>,
    /// What parts have for each other finds no way.
    pub(crate) cut: bool,
    pub(crate) book: Book,
    pub(crate) proxy_tun: Tun,
    pub(crate) proxy_events: Vec<EndpointEvent>,
    pub(crate) clients: Vec<ClientEnd>,
    peers: Vec<(PublicKey, PeerConfig)>,
    flights: BTreeMap<(Instant, u64), (To, Path, Vec<u8>)>,
    sequence: u64,
    /// Every datagram that was sent, if wanted.
    pub(crate) record: Option<Vec<(To, Path, Vec<u8>)>>,
    /// Whether the server answers what reaches it.
    pub(crate) echo: bool,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        println!("seed {seed}");
        let mut rng = StdRng::seed_from_u64(seed);
        let secret = StaticSecret::generate(&mut rng);
        let now = Instant::from_millis(1000);
        // A second before the clients: what they ask is newer than its start.
        let proxy = proxy(&secret, rng.next_u64(), 1 << 16, Share::WHOLE);
        let proxy = Endpoint::new(Instant::ZERO, proxy.0, proxy.1);
        Self {
            now,
            rng,
            secret,
            proxy,
            others: Vec::new(),
            misled: None,
            cut: false,
            book: Book::default(),
            proxy_tun: Tun::default(),
            proxy_events: Vec::new(),
            clients: Vec::new(),
            peers: Vec::new(),
            flights: BTreeMap::new(),
            sequence: 0,
            record: None,
            echo: true,
        }
    }

    /// A world whose proxy has so many parts.
    pub(crate) fn shared(seed: u64, parts: u16) -> Self {
        let mut world = Self::new(seed);
        let mut all = (0..parts).map(|part| {
            let share = Share::new(part, parts).unwrap();
            let (config, seed) = proxy(&world.secret, world.rng.next_u64(), 1 << 16, share);
            Endpoint::new(Instant::ZERO, config, seed)
        });
        let first = all.next().unwrap();
        let others = all.collect();
        (world.proxy, world.others) = (first, others);
        world
    }

    /// What the first of the parts is among them.
    pub(crate) fn share(&self) -> Share {
        Share::new(0, u16::try_from(self.others.len() + 1).unwrap()).unwrap()
    }

    /// One of the parts.
    pub(crate) fn part(&mut self, part: u16) -> &mut Endpoint {
        match part {
            0 => &mut self.proxy,
            part => &mut self.others[usize::from(part) - 1],
        }
    }

    /// What each part shows of itself.
    pub(crate) fn stats_by_part(&self) -> Vec<EndpointStats> {
        std::iter::once(&self.proxy).chain(&self.others).map(Endpoint::stats).collect()
    }

    /// Where the kernel leads a datagram: PROTOCOL §2.
    fn part_of(&self, datagram: &[u8]) -> u16 {
        let field = datagram.get(2..5).unwrap_or_default();
        let field = field.iter().fold(0, |value, byte| value << 8 | u32::from(*byte));
        self.misled
            .unwrap_or_else(|| u16::try_from(field % u32::from(self.share().parts())).unwrap())
    }

    /// The owner decides about all whom he put off, in the order in which they asked.
    pub(crate) fn decide(&mut self) {
        for (client, token) in self.book.put_off.take().unwrap_or_default() {
            let claim = self.book.claim(&client, &token);
            if let Claim::Bound { config, .. } = &claim
                && self.share().is_home(&client)
            {
                self.proxy.set_peer(self.now, client, (**config).clone()).unwrap();
            }
            self.proxy.settle_claim(self.now, &client, claim);
        }
        self.step();
    }

    /// What parts have for each other, until nothing is left.
    fn hand_over(&mut self) {
        let mut left = true;
        while std::mem::take(&mut left) {
            for (key, config, instead_of) in std::mem::take(&mut self.book.told) {
                let (now, share) = (self.now, self.share());
                if let Some(old) = instead_of.filter(|old| !share.is_home(old)) {
                    self.part(share.home(&old)).remove_peer(now, old);
                }
                if !share.is_home(&key) {
                    self.part(share.home(&key)).set_peer(now, key, config).unwrap();
                }
            }
            for part in 0..self.share().parts() {
                while let Some(handed) = self.part(part).poll_handed() {
                    left = true;
                    if self.cut {
                        let now = self.now;
                        if let Some(digest) = handed.digest() {
                            self.part(part).note_lost(now, &digest);
                        }
                        continue;
                    }
                    let (now, Self { proxy, others, book, .. }) = (self.now, &mut *self);
                    match handed.to {
                        0 => proxy.handle_handed(now, handed, book),
                        to => others[usize::from(to) - 1].handle_handed(
                            now,
                            handed,
                            &mut NoInvitations,
                        ),
                    }
                }
            }
        }
    }

    /// A world with one client that the proxy knows, with links of these delays.
    pub(crate) fn with_client(seed: u64, delays: &[u64]) -> Self {
        let mut world = Self::new(seed);
        world.add_client(delays);
        world
    }

    /// A client that the proxy knows.
    pub(crate) fn add_client(&mut self, delays: &[u64]) -> usize {
        let secret = StaticSecret::generate(&mut self.rng);
        self.allow(secret.public(), peer(self.clients.len()));
        let config = self.client_config(secret);
        self.add_end(config, delays)
    }

    pub(crate) fn client_config(&self, secret: StaticSecret) -> ClientConfig {
        client_config(secret, self.secret.public(), WALL)
    }

    /// A client with links of these one-way delays in ms.
    pub(crate) fn add_end(&mut self, config: ClientConfig, delays: &[u64]) -> usize {
        let key = config.secret.public();
        let mut client = Client::new(self.now, config, seed(self.rng.next_u64()));
        let mut tun = Tun::default();
        for at in 0..delays.len() {
            client.set_link(self.now, key_of(at), Some(link(at)), &mut tun).unwrap();
        }
        let wires = delays.iter().map(|delay| Wire::new(ms(*delay))).collect();
        self.clients.push(ClientEnd { client, key, wires, tun, events: Vec::new() });
        self.clients.len() - 1
    }

    /// Adds a client to the proxy's table, a second before it asks.
    pub(crate) fn allow(&mut self, key: PublicKey, config: PeerConfig) {
        let (known, home) = (self.now - ms(1000), self.share().home(&key));
        self.part(home).set_peer(known, key, config.clone()).unwrap();
        self.peers.push((key, config));
    }

    /// The proxy's machine is gone and comes back with its keys and its table.
    pub(crate) fn restart_proxy(&mut self) {
        self.restart_proxy_with_room(1 << 16);
    }

    /// As [`Self::restart_proxy`], with room for so many sessions.
    pub(crate) fn restart_proxy_with_room(&mut self, max_sessions: usize) {
        let (config, seed) = proxy(&self.secret, self.rng.next_u64(), max_sessions, Share::WHOLE);
        self.proxy = Endpoint::new(self.now, config, seed);
        for (key, config) in &self.peers {
            self.proxy.set_peer(self.now, *key, config.clone()).unwrap();
        }
    }

    /// The same, and from its start on its clients may test so much; `None`: it is older than speed tests.
    pub(crate) fn restart_proxy_testing(&mut self, speed: Option<SpeedRules>) {
        let (config, seed) = proxy(&self.secret, self.rng.next_u64(), 1 << 16, Share::WHOLE);
        self.proxy = Endpoint::new(self.now, EndpointConfig { speed, ..config }, seed);
        for (key, config) in &self.peers {
            self.proxy.set_peer(self.now, *key, config.clone()).unwrap();
        }
    }

    /// The client sends a packet.
    pub(crate) fn send_up(&mut self, client: usize, packet: &[u8]) {
        let end = &mut self.clients[client];
        end.client.handle_packet(self.now, packet, &mut end.tun);
        self.flush();
    }

    /// A packet for a client comes to the proxy.
    pub(crate) fn send_down(&mut self, packet: &[u8]) {
        self.proxy.handle_packet(self.now, packet, &mut self.proxy_tun);
        self.flush();
    }

    pub(crate) fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        self.run_until(end);
    }

    /// Runs until `end`.
    pub(crate) fn run_until(&mut self, end: Instant) {
        self.flush();
        let mut steps = 0;
        while let Some(next) = self.next_time().filter(|next| *next <= end) {
            steps = if next > self.now { 0 } else { steps + 1 };
            assert!(
                steps < MAX_STEPS,
                "endless work at {:?}: {:?} {:?} {:?}",
                self.now,
                self.flights.keys().next(),
                self.proxy.poll_timeout(),
                self.clients.iter().map(|end| end.client.poll_timeout()).collect::<Vec<_>>()
            );
            self.now = self.now.max(next);
            self.step();
        }
        self.now = end;
    }

    /// Runs until `done` or until `limit` has passed; returns how long it took.
    pub(crate) fn run_while(
        &mut self,
        limit: Duration,
        mut busy: impl FnMut(&Self) -> bool,
    ) -> Duration {
        let start = self.now;
        while busy(self) {
            let past = self.now.since(start);
            assert!(past < limit, "not done after {past:?}: {:?}", self.states());
            self.run_for(ms(1));
        }
        self.now.since(start)
    }

    pub(crate) fn states(&self) -> Vec<ropewalk_proto::client::ClientState> {
        self.clients.iter().map(|end| end.client.state()).collect()
    }

    /// Runs until every client has a link that carries packets.
    pub(crate) fn connect(&mut self) -> Duration {
        self.run_while(ms(20_000), |world| {
            world.clients.iter().any(|end| !is_connected(&end.client))
        })
    }

    /// Sends a packet to the server and waits for the answer.
    pub(crate) fn ping(&mut self, client: usize, limit: Duration) -> Duration {
        let number = self.rng.next_u32();
        self.clients[client].tun.0.clear();
        self.send_up(client, &packet(inner(client), SERVER, 84, number));
        self.run_while(limit, |world| {
            !world.clients[client].tun.0.iter().any(|packet| number_of(packet) == number)
        })
    }

    fn next_time(&self) -> Option<Instant> {
        let flight = self.flights.keys().next().map(|(at, _)| *at);
        let clients = self.clients.iter().filter_map(|end| end.client.poll_timeout());
        let parts = std::iter::once(&self.proxy).chain(&self.others);
        let timers = clients.chain(parts.filter_map(Endpoint::poll_timeout));
        timers.map(|(at, _)| at).chain(flight).min()
    }

    fn step(&mut self) {
        while let Some(entry) = self.flights.first_entry().filter(|e| e.key().0 <= self.now) {
            let (to, path, mut datagram) = entry.remove();
            match to {
                To::Proxy => {
                    let part = self.part_of(&datagram);
                    let Self { now, proxy, others, proxy_tun, book, .. } = self;
                    let (now, ecn, datagram) = (*now, Ecn::NotEct, &mut datagram);
                    match part {
                        0 => proxy
                            .handle_datagram_inviting(now, path, ecn, datagram, proxy_tun, book),
                        part => others[usize::from(part) - 1]
                            .handle_datagram(now, path, ecn, datagram, proxy_tun),
                    }
                }
                To::Client(at) => {
                    let end = &mut self.clients[at];
                    let ClientEnd { client, tun, .. } = end;
                    client.handle_datagram(self.now, path, Ecn::NotEct, &mut datagram, tun);
                }
            }
        }
        self.hand_over();
        for proxy in std::iter::once(&mut self.proxy).chain(&mut self.others) {
            proxy.end_of_batch(self.now);
            if proxy.poll_timeout().is_some_and(|(at, _)| at <= self.now) {
                proxy.handle_timeout(self.now, &mut self.proxy_tun);
            }
        }
        for end in &mut self.clients {
            end.client.end_of_batch(self.now);
            if end.client.poll_timeout().is_some_and(|(at, _)| at <= self.now) {
                end.client.handle_timeout(self.now, &mut end.tun);
            }
        }
        if self.echo {
            self.answer_pings();
        }
        self.flush();
    }

    /// The server sends back what reaches it.
    fn answer_pings(&mut self) {
        for packet in std::mem::take(&mut self.proxy_tun.0) {
            if packet[16..20] == SERVER.octets() {
                let mut answer = packet;
                let (from, to) = answer[12..20].split_at_mut(4);
                from.swap_with_slice(to);
                for proxy in std::iter::once(&mut self.proxy).chain(&mut self.others) {
                    proxy.handle_packet(self.now, &answer, &mut self.proxy_tun);
                }
            }
        }
    }

    /// Sends what the machines have to send.
    pub(crate) fn flush(&mut self) {
        for at in 0..self.clients.len() {
            let mut full = true;
            while full {
                let mut batch = batch();
                self.clients[at].client.poll_transmit(self.now, &mut batch);
                full = batch.is_full();
                batch.sent.into_iter().for_each(|(path, data)| self.carry_up(at, path, data));
            }
            let end = &mut self.clients[at];
            end.events.extend(std::iter::from_fn(|| end.client.poll_event()));
        }
        for part in 0..self.share().parts() {
            let mut full = true;
            while full {
                let (mut batch, now) = (batch(), self.now);
                self.part(part).poll_transmit(now, &mut batch);
                full = batch.is_full();
                batch.sent.into_iter().for_each(|(path, data)| self.carry_down(path, data));
            }
            let Self { proxy, others, proxy_events, .. } = self;
            let endpoint = if part == 0 { proxy } else { &mut others[usize::from(part) - 1] };
            proxy_events.extend(std::iter::from_fn(|| endpoint.poll_event()));
        }
    }

    /// The client's events without their links.
    pub(crate) fn events(&self, client: usize) -> Vec<Event> {
        self.clients[client].events.iter().map(|told| told.event.clone()).collect()
    }

    /// How many sessions a client was given.
    pub(crate) fn sessions_of(&self, client: usize) -> usize {
        let given = |event: &Event| matches!(event, Event::SessionEstablished(_));
        self.events(client).iter().filter(|event| given(event)).count()
    }
}

pub(crate) fn is_connected(client: &Client) -> bool {
    matches!(client.state(), ropewalk_proto::client::ClientState::Connected { .. })
}
