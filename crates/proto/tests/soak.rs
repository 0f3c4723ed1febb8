//! A proxy whose clients come, go, move and change keys for a day: its memory does not grow.
//!
//! Time is virtual, and everything else is real: a thousand clients and a proxy, over a network without delay. All that both
//! ends ask of the allocator is counted.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
#![expect(clippy::print_stdout, reason = "the figures are for docs/SECURITY.md")]

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use allocation_counter::measure;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use ropewalk_netlab::batch::Batch;
use ropewalk_netlab::direct::Count;
use ropewalk_netlab::pair::{client_config, link_config};
use ropewalk_proto::client::{Client, ClientConfig, LinkKey};
use ropewalk_proto::config::TunnelConfig;
use ropewalk_proto::crypto::{Capabilities, CipherSet, StaticSecret};
use ropewalk_proto::ecn::Ecn;
use ropewalk_proto::endpoint::{Endpoint, EndpointConfig, PeerConfig, Share};
use ropewalk_proto::event::Event;
use ropewalk_proto::path::{Path, SocketId};
use ropewalk_proto::time::{Duration, Instant};
use ropewalk_proto::tunnel::InnerFilter;
use ropewalk_proto::wire::hello::parameters::NameServers;
use ropewalk_settings::{Keepalive, PresharedKey};

const LISTEN: ([u8; 4], u16) = ([203, 0, 113, 1], 4242);
const WALL: Duration = Duration::from_secs(1_800_000_000);
/// Links of each client.
const LINKS: u16 = 2;
/// Packets of a burst, each way.
const BURST: u32 = 20;
/// The time is divided into so many parts, whose ends are compared.
const PARTS: u32 = 12;
/// Most that the memory may be larger at the end of a late part than at any of the first four. A few clients more or less
/// are within a burst.
const GROWTH: f64 = 1.1;

/// What happened.
#[derive(Clone, Copy, Default, Debug)]
struct Tally {
    came: u64,
    went: u64,
    moved: u64,
    rekeys: u64,
    bursts: u64,
    datagrams: u64,
}

struct Machine {
    config: ClientConfig,
    client: Option<Client>,
    /// In front of its NAT.
    port: u16,
    /// When its timer is due, and when it does something.
    due: Option<Instant>,
    acts: Instant,
}

struct World {
    now: Instant,
    rng: StdRng,
    proxy: Endpoint,
    machines: Vec<Machine>,
    timers: BTreeSet<(Instant, usize)>,
    acts: BTreeSet<(Instant, usize)>,
    pause: Duration,
    tun: Count,
    tally: Tally,
}

fn inner(at: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0a4d_0002 + u32::try_from(at).unwrap())
}

/// The outer address of a link.
fn outer(at: usize, link: u16) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x6400_0000 | u32::try_from(at).unwrap() << 4 | u32::from(link))
}

/// Whose that is.
fn whose(ip: Ipv4Addr) -> (usize, u16) {
    let bits = ip.to_bits();
    ((bits >> 4 & 0xf_ffff) as usize, (bits & 0xf) as u16)
}

/// A packet of a client's, up or down.
fn packet(at: usize, up: bool) -> [u8; 400] {
    let mut packet = [0; 400];
    packet[..4].copy_from_slice(&[0x45, 0, 1, 144]);
    packet[8..10].copy_from_slice(&[64, 253]);
    let (server, client) = ([192, 0, 2, 80], inner(at).octets());
    let (from, to) = if up { (client, server) } else { (server, client) };
    packet[12..16].copy_from_slice(&from);
    packet[16..20].copy_from_slice(&to);
    packet
}

impl World {
    /// `pause`: how often each machine does something, on the average.
    fn new(machines: usize, pause: Duration) -> Self {
        let mut rng = StdRng::seed_from_u64(1);
        let secret = StaticSecret::generate(&mut rng);
        let ciphers = CipherSet::offered(Capabilities { aes: true });
        let proxy_key = secret.public();
        let config = EndpointConfig {
            tunnel: TunnelConfig::default(),
            secret,
            ciphers,
            inner_v4: Some([10, 77, 0, 1].into()),
            inner_v6: None,
            name_servers: NameServers::default(),
            max_sessions: 1 << 14,
            share: Share::WHOLE,
            speed: None,
            wall_clock: WALL,
        };
        let now = Instant::from_millis(1000);
        let mut proxy = Endpoint::new(Instant::ZERO, config, rng.random());
        let mut acts = BTreeSet::new();
        let machine = |at: usize| {
            let secret = StaticSecret::generate(&mut rng);
            let peer = PeerConfig {
                name: format!("client{at}").into(),
                psk: PresharedKey::NONE,
                inner_v4: ipnet::Ipv4Net::new(inner(at), 16).ok(),
                inner_v6: None,
                filter: InnerFilter {
                    sources: [inner(at).into()].into_iter().collect(),
                    ..Default::default()
                },
                enabled: true,
            };
            proxy.set_peer(Instant::ZERO, secret.public(), peer).unwrap();
            let config = client_config(secret, proxy_key, WALL);
            // They come one after the other, over 10 s.
            let first = now + Duration::from_millis(10 * at as u64);
            acts.insert((first, at));
            Machine { config, client: None, port: 5000, due: None, acts: first }
        };
        let machines = (0..machines).map(machine).collect();
        Self {
            now,
            rng,
            proxy,
            machines,
            timers: BTreeSet::new(),
            acts,
            pause,
            tun: Count::default(),
            tally: Tally::default(),
        }
    }

    fn run_until(&mut self, end: Instant) {
        loop {
            let timer = self.timers.first().map(|(at, _)| *at);
            let act = self.acts.first().map(|(at, _)| *at);
            let proxy = self.proxy.poll_timeout().map(|(at, _)| at);
            let Some(next) = [timer, act, proxy].into_iter().flatten().min() else { break };
            if next > end {
                break;
            }
            self.now = self.now.max(next);
            if proxy.is_some_and(|at| at <= self.now) {
                self.proxy.handle_timeout(self.now, &mut self.tun);
            }
            let mut touched = BTreeSet::new();
            while let Some((_, at)) = self.timers.first().copied().filter(|(at, _)| *at <= self.now)
            {
                self.timers.pop_first();
                let machine = &mut self.machines[at];
                machine.due = None;
                if let Some(client) = &mut machine.client {
                    client.handle_timeout(self.now, &mut self.tun);
                }
                touched.insert(at);
            }
            while let Some((_, at)) = self.acts.first().copied().filter(|(at, _)| *at <= self.now) {
                self.acts.pop_first();
                self.act(at);
                touched.insert(at);
            }
            self.exchange(touched);
        }
        self.now = end;
    }

    /// A machine does something: it comes, goes, moves, or talks.
    fn act(&mut self, at: usize) {
        let pause = self.pause.mul_f64(self.rng.random_range(0.2..1.8));
        let now = self.now;
        let machine = &mut self.machines[at];
        machine.acts = now + pause;
        let Some(client) = &mut machine.client else {
            let mut client = Client::new(now, machine.config.clone(), self.rng.random());
            for link in 0..LINKS {
                let path = Path { socket: SocketId(link), local: None, remote: LISTEN.into() };
                let config = link_config(&format!("wan{link}"), path, Keepalive::default());
                client.set_link(now, LinkKey(link.into()), Some(config), &mut self.tun).unwrap();
            }
            machine.client = Some(client);
            self.tally.came += 1;
            self.acts.insert((machine.acts, at));
            return;
        };
        match self.rng.random_range(0..6) {
            0 => {
                // In order, or as when the power fails; it is back soon.
                if self.rng.random() {
                    client.close(now);
                    self.client_sends(at);
                }
                let machine = &mut self.machines[at];
                machine.client = None;
                machine.acts = now + Duration::from_secs(self.rng.random_range(3..60));
                self.tally.went += 1;
            }
            1 => {
                machine.port = 5000 + (machine.port - 4999) % 50_000;
                self.tally.moved += 1;
            }
            _ => {
                for _ in 0..BURST {
                    client.handle_packet(now, &packet(at, true), &mut self.tun);
                    self.proxy.handle_packet(now, &packet(at, false), &mut self.tun);
                }
                self.tally.bursts += 1;
            }
        }
        self.acts.insert((self.machines[at].acts, at));
    }

    /// Carries datagrams until nobody has any.
    fn exchange(&mut self, mut touched: BTreeSet<usize>) {
        let now = self.now;
        let mut turns = touched.clone();
        loop {
            for at in std::mem::take(&mut turns) {
                self.client_sends(at);
            }
            let mut batch = Batch::default();
            self.proxy.end_of_batch(now);
            self.proxy.poll_transmit(now, &mut batch);
            while self.proxy.poll_event().is_some() {}
            if batch.sent.is_empty() {
                break;
            }
            for (path, mut datagram) in batch.sent {
                self.tally.datagrams += 1;
                let IpAddr::V4(ip) = path.remote.ip() else { continue };
                let (at, link) = whose(ip);
                let machine = &mut self.machines[at];
                let is_here = machine.port == path.remote.port();
                let Some(client) = machine.client.as_mut().filter(|_| is_here) else { continue };
                let path = Path { socket: SocketId(link), local: None, remote: LISTEN.into() };
                client.handle_datagram(now, path, Ecn::NotEct, &mut datagram, &mut self.tun);
                turns.insert(at);
                touched.insert(at);
            }
        }
        for at in touched {
            let machine = &mut self.machines[at];
            if let Some(due) = machine.due.take() {
                self.timers.remove(&(due, at));
            }
            machine.due =
                machine.client.as_ref().and_then(Client::poll_timeout).map(|(due, _)| due);
            self.timers.extend(machine.due.map(|due| (due, at)));
        }
    }

    fn client_sends(&mut self, at: usize) {
        let (now, machine) = (self.now, &mut self.machines[at]);
        let Some(client) = &mut machine.client else { return };
        client.end_of_batch(now);
        let mut batch = Batch::default();
        client.poll_transmit(now, &mut batch);
        while let Some(told) = client.poll_event() {
            self.tally.rekeys += u64::from(matches!(told.event, Event::Rekeyed(_)));
        }
        for (path, mut datagram) in batch.sent {
            self.tally.datagrams += 1;
            let link = path.socket.0;
            let remote = SocketAddr::from((outer(at, link), machine.port));
            let from = Path { socket: SocketId(0), local: None, remote };
            self.proxy.handle_datagram(now, from, Ecn::NotEct, &mut datagram, &mut self.tun);
        }
    }
}

/// Runs so many machines for so long.
fn soak(machines: usize, time: Duration, pause: Duration) {
    let mut world = None;
    let mut kept = measure(|| world = Some(World::new(machines, pause))).bytes_current;
    let mut world = world.unwrap();
    let mut parts = Vec::new();
    for part in 1..=PARTS {
        let end = Instant::from_millis(1000) + time / PARTS * part;
        kept += measure(|| world.run_until(end)).bytes_current;
        let stats = world.proxy.stats();
        println!(
            "{:?}: {kept} bytes, {} sessions, {} pending, {:?}",
            time / PARTS * part,
            stats.sessions,
            stats.pending,
            world.tally
        );
        assert!(stats.sessions <= machines && stats.pending <= 2 * machines);
        parts.push(kept);
    }
    let most = |parts: &[i64]| parts.iter().copied().max().unwrap();
    let (early, late) = (most(&parts[..4]), most(&parts[4..]));
    println!("{machines} machines, {time:?}: at most {early} bytes early, {late} late");
    let Tally { came, went, moved, rekeys, bursts, .. } = world.tally;
    assert!(came > 0 && went > 0 && moved > 0 && rekeys > 0 && bursts > 0, "{:?}", world.tally);
    assert!(late as f64 <= GROWTH * early as f64, "{late} bytes, {early} before");
}

#[test]
fn the_memory_of_a_proxy_does_not_grow_in_a_busy_quarter_of_an_hour() {
    soak(100, Duration::from_secs(15 * 60), Duration::from_secs(30));
}

#[test]
#[ignore = "takes minutes; scripts/nightly runs it"]
fn the_memory_of_a_proxy_does_not_grow_in_a_day_of_a_thousand_sessions() {
    soak(1000, Duration::from_secs(24 * 3600), Duration::from_secs(600));
}
