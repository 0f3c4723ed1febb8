//! A small world: a proxy, machines, and the datagrams between them.

mod adversary;
mod rules;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use ropewalk_netlab::batch::Batch;
use ropewalk_netlab::pair::{client_config, link_config};
use ropewalk_proto::client::{Client, ClientConfig, LinkKey};
use ropewalk_proto::config::TunnelConfig;
use ropewalk_proto::crypto::{Capabilities, CipherSet, StaticSecret};
use ropewalk_proto::ecn::Ecn;
use ropewalk_proto::endpoint::{
    Claim, Endpoint, EndpointConfig, InvitationAuthority, PeerConfig, Share,
};
use ropewalk_proto::event::{EndReason, Event};
use ropewalk_proto::packet::Packet;
use ropewalk_proto::path::{Path, SocketId};
use ropewalk_proto::sink::PacketSink;
use ropewalk_proto::time::{Duration, Instant};
use ropewalk_proto::tunnel::InnerFilter;
use ropewalk_proto::wire::frame::CloseReason;
use ropewalk_proto::wire::hello::answer::Refusal;
use ropewalk_proto::wire::hello::parameters::NameServers;
use ropewalk_settings::{InvitationToken, Keepalive, PresharedKey, PublicKey};

use crate::{Plan, Who};
pub(crate) use adversary::Choice;

const WALL: Duration = Duration::from_secs(1_800_000_000);
const LISTEN: ([u8; 4], u16) = ([203, 0, 113, 1], 4242);
/// Turns at one instant that only a loop causes.
const SPIN: u32 = 1000;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum To {
    Proxy,
    Machine(usize),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Datagram {
    to: To,
    path: Path,
    bytes: Vec<u8>,
}

impl Datagram {
    fn is_handshake(&self) -> bool {
        self.bytes.first().is_some_and(|first| first & 0x80 != 0)
    }
}

/// The numbers of packets that came to a TUN.
#[derive(Default)]
struct Tun(Vec<u8>);

impl PacketSink for Tun {
    fn deliver(&mut self, packet: Packet<'_>) {
        self.0.push(*packet.bytes.last().unwrap());
    }
}

/// The owner's book: one invitation.
#[derive(Default)]
struct Book(Vec<PublicKey>);

impl InvitationAuthority for Book {
    fn claim(&mut self, client: &PublicKey, token: &InvitationToken) -> Claim {
        if *token != invitation() {
            return Claim::Unknown;
        }
        if !self.0.is_empty() {
            return Claim::Refused(Refusal::InvitationUsed);
        }
        self.0.push(*client);
        Claim::Bound { config: Box::new(peer(9)), instead_of: None }
    }
}

fn invitation() -> InvitationToken {
    InvitationToken::from_bytes([7; 16])
}

struct Machine {
    who: Who,
    key: PublicKey,
    config: Option<ClientConfig>,
    /// From when it was switched on.
    client: Option<Client>,
    seed: [u8; 32],
    /// Sessions that it took up.
    established: u64,
    tun: Tun,
}

pub(crate) struct World {
    now: Instant,
    proxy: Endpoint,
    proxy_tun: Tun,
    book: Book,
    machines: Vec<Machine>,
    under_way: Vec<Datagram>,
    seen: Vec<Datagram>,
    packets: u8,
    left: [u8; 3],
    each: bool,
    /// The last epoch of each machine's session, by the session's index.
    epochs: Vec<(u32, u32)>,
}

fn inner(client: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, 2 + client)
}

fn peer(client: u8) -> PeerConfig {
    PeerConfig {
        name: format!("client{client}").into(),
        psk: PresharedKey::NONE,
        inner_v4: ipnet::Ipv4Net::new(inner(client), 16).ok(),
        inner_v6: None,
        filter: InnerFilter {
            sources: [inner(client).into()].into_iter().collect(),
            ..InnerFilter::default()
        },
        enabled: true,
    }
}

impl World {
    pub(crate) fn new(plan: &Plan) -> Self {
        let mut rng = StdRng::seed_from_u64(1);
        let secret = StaticSecret::generate(&mut rng);
        let ciphers = CipherSet::offered(Capabilities { aes: true });
        let rekey_after = Duration::from_secs(1);
        let tunnel = TunnelConfig { rekey_after, ..TunnelConfig::default() };
        let endpoint = EndpointConfig {
            tunnel: tunnel.clone(),
            secret: secret.clone(),
            ciphers,
            inner_v4: Some([10, 77, 0, 1].into()),
            inner_v6: None,
            name_servers: NameServers::default(),
            max_sessions: 16,
            share: Share::WHOLE,
            speed: None,
            wall_clock: WALL,
        };
        let mut proxy = Endpoint::new(Instant::ZERO, endpoint, rng.random());
        let known: Vec<_> = (0..2).map(|_| StaticSecret::generate(&mut rng)).collect();
        for (at, secret) in (0..).zip(&known) {
            proxy.set_peer(Instant::ZERO, secret.public(), peer(at)).unwrap();
        }
        let machine = |who: &Who| {
            let local = match who {
                Who::Known(key) => known[usize::from(*key)].clone(),
                Who::Guest | Who::Stranger => StaticSecret::generate(&mut rng),
            };
            let config = ClientConfig {
                tunnel: tunnel.clone(),
                invitation: (*who == Who::Guest).then(invitation),
                ..client_config(local.clone(), secret.public(), WALL)
            };
            Machine {
                who: *who,
                key: local.public(),
                config: Some(config),
                client: None,
                seed: rng.random(),
                established: 0,
                tun: Tun::default(),
            }
        };
        let machines: Vec<_> = plan.who.iter().map(machine).collect();
        let mut world = Self {
            now: Instant::from_millis(1000),
            proxy,
            proxy_tun: Tun::default(),
            book: Book::default(),
            epochs: vec![(u32::MAX, 0); machines.len()],
            machines,
            under_way: Vec::new(),
            seen: Vec::new(),
            packets: 0,
            left: plan.budget,
            each: plan.each,
        };
        if plan.established {
            (0..world.machines.len()).for_each(|at| world.choose(Choice::Start(at)));
            world.heal(Duration::from_millis(900));
            world.seen.clear();
        }
        world
    }

    fn start(&mut self, at: usize) {
        let machine = &mut self.machines[at];
        let config = machine.config.take().unwrap();
        let mut client = Client::new(self.now, config, machine.seed);
        let path = Path { socket: SocketId(0), local: None, remote: LISTEN.into() };
        let link = link_config("wan", path, Keepalive::Off);
        client.set_link(self.now, LinkKey(1), Some(link), &mut machine.tun).unwrap();
        machine.client = Some(client);
    }

    fn send(&mut self, at: usize) {
        self.packets += 1;
        let machine = &mut self.machines[at];
        let address = match machine.who {
            Who::Known(key) => inner(key),
            Who::Guest | Who::Stranger => inner(9),
        };
        let mut packet = [0; 40];
        packet[..4].copy_from_slice(&[0x45, 0, 0, 40]);
        packet[8..10].copy_from_slice(&[64, 253]);
        packet[12..16].copy_from_slice(&address.octets());
        packet[16..20].copy_from_slice(&[192, 0, 2, 80]);
        packet[39] = self.packets;
        machine.client.as_mut().unwrap().handle_packet(self.now, &packet, &mut machine.tun);
    }

    fn arrive(&mut self, datagram: &Datagram) {
        let mut bytes = datagram.bytes.clone();
        let (now, path) = (self.now, datagram.path);
        match datagram.to {
            To::Proxy => {
                let Self { proxy, proxy_tun, book, .. } = self;
                proxy.handle_datagram_inviting(now, path, Ecn::NotEct, &mut bytes, proxy_tun, book);
                proxy.end_of_batch(now);
            }
            To::Machine(at) => {
                let machine = &mut self.machines[at];
                let Some(client) = &mut machine.client else { return };
                client.handle_datagram(now, path, Ecn::NotEct, &mut bytes, &mut machine.tun);
                client.end_of_batch(now);
            }
        }
    }

    /// When the next timer is due.
    fn due(&self) -> Option<Instant> {
        let clients = self.machines.iter().filter_map(|machine| machine.client.as_ref());
        let clients = clients.filter_map(Client::poll_timeout);
        clients.chain(self.proxy.poll_timeout()).map(|(at, _)| at).min()
    }

    /// Lets the next timer go off, or time pass until `end`.
    fn tick(&mut self, end: Instant) {
        let due = self.due().unwrap_or(end);
        self.now = due.clamp(self.now, end);
        if self.proxy.poll_timeout().is_some_and(|(at, _)| at <= self.now) {
            self.proxy.handle_timeout(self.now, &mut self.proxy_tun);
        }
        for machine in &mut self.machines {
            let Some(client) = &mut machine.client else { continue };
            if client.poll_timeout().is_some_and(|(at, _)| at <= self.now) {
                client.handle_timeout(self.now, &mut machine.tun);
            }
        }
    }

    /// What all have to send is under way from now on, and seen.
    fn flush(&mut self) {
        let mut sent = Vec::new();
        for (at, machine) in self.machines.iter_mut().enumerate() {
            let Some(client) = &mut machine.client else { continue };
            let mut batch = Batch::default();
            client.poll_transmit(self.now, &mut batch);
            while let Some(told) = client.poll_event() {
                machine.established +=
                    u64::from(matches!(told.event, Event::SessionEstablished(_)));
            }
            let port = 5000 + u16::try_from(at).unwrap();
            let remote = SocketAddr::from(([100, 0, 0, 1], port));
            let path = Path { socket: SocketId(0), local: None, remote };
            sent.extend(batch.sent.into_iter().map(|(_, bytes)| (To::Proxy, path, bytes)));
        }
        let mut batch = Batch::default();
        self.proxy.poll_transmit(self.now, &mut batch);
        for (path, bytes) in batch.sent {
            let at = usize::from(path.remote.port().wrapping_sub(5000));
            let from = Path { socket: SocketId(0), local: None, remote: LISTEN.into() };
            if path.remote.ip() == IpAddr::from([100, 0, 0, 1]) && at < self.machines.len() {
                sent.push((To::Machine(at), from, bytes));
            }
        }
        for (to, path, bytes) in sent {
            let datagram = Datagram { to, path, bytes };
            if (self.each || datagram.is_handshake()) && !self.seen.contains(&datagram) {
                self.seen.push(datagram.clone());
            }
            self.under_way.push(datagram);
        }
        let mut replaced = Vec::new();
        while let Some(told) = self.proxy.poll_event() {
            let closed = EndReason::Closed(CloseReason::Replaced);
            if let Event::SessionEnded(reason) = told.event
                && (reason == EndReason::Replaced || reason == closed)
            {
                replaced.push(told.peer);
            }
        }
        for key in replaced {
            assert!(self.taken_up(&key) >= 2, "a session was displaced by nobody who has the key");
        }
    }

    /// The network carries everything, at once, for this long.
    fn heal(&mut self, time: Duration) {
        let end = self.now + time;
        let mut spins = 0;
        loop {
            for datagram in std::mem::take(&mut self.under_way) {
                self.arrive(&datagram);
            }
            self.flush();
            self.check();
            if self.under_way.is_empty() {
                if self.due().is_none_or(|due| due > end) {
                    break;
                }
                let before = self.now;
                self.tick(end);
                spins = if self.now > before { 0 } else { spins + 1 };
                assert!(spins < SPIN, "endless work: {:?}", self.proxy.poll_timeout());
                self.flush();
            }
        }
        self.now = end;
        self.check();
    }
}
