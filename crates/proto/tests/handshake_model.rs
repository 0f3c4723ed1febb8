//! The use of the handshake, checked exhaustively in small worlds.
//!
//! The transition function is the real code: real clients, a real proxy, real cryptography with seeded randomness. The
//! adversary is the network: it delivers in any order, loses, and repeats whatever it saw, from an address of its own or in
//! another's name. Every schedule of its choices up to a depth is run from the start; a state that was reached before is not
//! explored again. What counts refusals and limits rates is not part of a state.
//!
//! What must hold after every step:
//!
//! * authentication: the proxy has no session that a machine with that key did not take up; a stranger has none;
//! * replay: so a repeated first message makes no session, and displaces none; at most two are pending for a key;
//! * an invitation binds one key;
//! * displacement: a session is replaced only when a machine with the same key took up another;
//! * rekey: both ends are at most one epoch apart, no epoch comes twice;
//! * no packet is delivered twice or was not sent;
//!
//! and at the end of schedules, when the network behaves again: who may have a session has one that carries packets, one of
//! two machines with one key has, and whatever was said before, repeated, changes nothing but counters.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
#![expect(clippy::print_stdout, reason = "a check says how much it looked at")]
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "how long the check takes is told"
)]

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Instant as WallClock;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use ropewalk_netlab::batch::Batch;
use ropewalk_netlab::pair::link_config;
use ropewalk_proto::client::{Client, ClientConfig, ClientState, LinkKey};
use ropewalk_proto::config::TunnelConfig;
use ropewalk_proto::crypto::{Capabilities, CipherSet, StaticSecret};
use ropewalk_proto::ecn::Ecn;
use ropewalk_proto::endpoint::{
    Claim, Endpoint, EndpointConfig, EndpointStats, InvitationAuthority, PeerConfig, Share,
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

const WALL: Duration = Duration::from_secs(1_800_000_000);
const LISTEN: ([u8; 4], u16) = ([203, 0, 113, 1], 4242);
/// Where the adversary sends from in its own name.
const ELSEWHERE: ([u8; 4], u16) = ([100, 99, 0, 1], 666);
/// Turns at one instant that only a loop causes.
const SPIN: u32 = 1000;

/// Who is in a world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Who {
    /// Has this one of the keys that the proxy knows.
    Known(u8),
    /// Has a key of its own that the proxy does not know, and the invitation.
    Guest,
    /// Has neither.
    Stranger,
}

/// A small world and how far it is explored.
struct Plan {
    name: &'static str,
    who: &'static [Who],
    /// Every datagram is the adversary's to choose, else only those of handshakes; the others go together.
    each: bool,
    /// Whether sessions are established, with keys that are about to be replaced, before the adversary begins.
    established: bool,
    depth: usize,
    /// Most that it loses, repeats, and lets time go on.
    budget: [u8; 3],
}

/// The adversary's choices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Choice {
    /// A machine is switched on.
    Start(usize),
    /// One of the datagrams under way arrives.
    Deliver(usize),
    /// The oldest is lost.
    Lose,
    /// All that is not of handshakes arrives, or is lost.
    Carry,
    LoseAll,
    /// One that was seen comes again: from the adversary's address, or in its sender's name.
    Replay {
        seen: usize,
        own_name: bool,
    },
    /// Time goes on to the next timer.
    Tick,
    /// A machine with a session sends a packet.
    Packet(usize),
}

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

struct World {
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
    fn new(plan: &Plan) -> Self {
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
                secret: local.clone(),
                proxy: secret.public(),
                psk: PresharedKey::NONE,
                invitation: (*who == Who::Guest).then(invitation),
                ciphers,
                wall_clock: WALL,
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

    /// What the adversary may do next.
    fn choices(&self) -> Vec<Choice> {
        let mut choices = Vec::new();
        let off = self.machines.iter().position(|machine| machine.client.is_none());
        choices.extend(off.map(Choice::Start));
        let chosen = self.chosen();
        choices.extend((0..chosen.len().min(2)).map(Choice::Deliver));
        if chosen.len() < self.under_way.len() {
            choices.push(Choice::Carry);
        }
        let [lose, repeat, tick] = self.left;
        if lose > 0 && !chosen.is_empty() {
            choices.push(Choice::Lose);
        }
        if lose > 0 && chosen.len() < self.under_way.len() {
            choices.push(Choice::LoseAll);
        }
        if repeat > 0 {
            for seen in 0..self.seen.len().min(6) {
                choices.extend([false, true].map(|own_name| Choice::Replay { seen, own_name }));
            }
        }
        if tick > 0 {
            choices.push(Choice::Tick);
        }
        let connected = |machine: &Machine| {
            matches!(
                machine.client.as_ref().map(Client::state),
                Some(ClientState::Connected { .. })
            )
        };
        if self.packets < 2 {
            choices.extend(self.machines.iter().position(connected).map(Choice::Packet));
        }
        choices
    }

    /// Places of the datagrams under way that are the adversary's to choose.
    fn chosen(&self) -> Vec<usize> {
        let mine = |at: &usize| self.each || self.under_way[*at].is_handshake();
        (0..self.under_way.len()).filter(mine).collect()
    }

    fn choose(&mut self, choice: Choice) {
        match choice {
            Choice::Start(at) => self.start(at),
            Choice::Deliver(at) => {
                let place = self.chosen()[at];
                let datagram = self.under_way.remove(place);
                self.arrive(&datagram);
            }
            Choice::Lose => {
                self.left[0] -= 1;
                let place = self.chosen()[0];
                self.under_way.remove(place);
            }
            Choice::Carry => self.take_others().iter().for_each(|datagram| self.arrive(datagram)),
            Choice::LoseAll => {
                self.left[0] -= 1;
                self.take_others();
            }
            Choice::Replay { seen, own_name } => {
                self.left[1] -= 1;
                let mut datagram = self.seen[seen].clone();
                if own_name && datagram.to == To::Proxy {
                    datagram.path.remote = ELSEWHERE.into();
                }
                self.arrive(&datagram);
            }
            Choice::Tick => {
                self.left[2] -= 1;
                self.tick(Instant::ZERO + Duration::from_secs(1 << 30));
            }
            Choice::Packet(at) => self.send(at),
        }
        self.flush();
        self.check();
    }

    fn take_others(&mut self) -> Vec<Datagram> {
        let (mine, others) =
            std::mem::take(&mut self.under_way).into_iter().partition(Datagram::is_handshake);
        self.under_way = mine;
        others
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

    /// Sessions that machines with this key took up.
    fn taken_up(&self, key: &PublicKey) -> u64 {
        let with_key = self.machines.iter().filter(|machine| machine.key == *key);
        with_key.map(|machine| machine.established).sum()
    }

    fn check(&mut self) {
        let stats = self.proxy.stats();
        for peer in &stats.peers {
            let taken_up = self.taken_up(&peer.key);
            assert!(peer.sessions <= taken_up, "{} sessions, {taken_up} taken up", peer.sessions);
        }
        assert!(stats.pending <= 2 * stats.peers.len(), "{} pending", stats.pending);
        assert!(self.book.0.len() <= 1, "an invitation bound {} keys", self.book.0.len());
        let guests = self.machines.iter().filter(|machine| machine.who == Who::Guest);
        let let_in = guests.filter(|machine| machine.established > 0).count();
        assert!(let_in <= self.book.0.len(), "{let_in} guests came in");
        let mut came = self.proxy_tun.0.clone();
        came.sort_unstable();
        assert!(came.windows(2).all(|two| two[0] < two[1]), "a packet came twice: {came:?}");
        assert!(came.last().is_none_or(|last| *last <= self.packets), "an invented packet");
        for (machine, before) in self.machines.iter().zip(&mut self.epochs) {
            if machine.who == Who::Stranger {
                assert_eq!(machine.established, 0, "a stranger has a session");
                assert!(stats.peers.iter().all(|peer| peer.key != machine.key));
            }
            let Some(client) = &machine.client else { continue };
            let Some(session) = client.session() else { continue };
            let Some(tunnel) = client.stats().tunnel else { continue };
            let index = session.index.get();
            assert!(before.0 != index || tunnel.epoch >= before.1, "an epoch came again");
            assert!(before.0 != index || tunnel.epoch <= before.1 + 1, "an epoch was left out");
            *before = (index, tunnel.epoch);
            let proxy = stats.peers.iter().find(|peer| peer.key == machine.key);
            let proxy = proxy.and_then(|peer| peer.session.as_ref());
            if let Some(proxy) = proxy.filter(|_| self.machines.len() == 1) {
                assert!(proxy.tunnel.epoch.abs_diff(tunnel.epoch) <= 1, "epochs apart");
            }
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

    /// What is left of the schedule when the network behaves again.
    fn finish(&mut self) {
        // Longer than every pause between two questions, and than keys that were replaced live.
        self.heal(Duration::from_secs(150));
        let old = self.seen.clone();
        let mut connected = BTreeSet::new();
        for at in 0..self.machines.len() {
            let Some(client) = &self.machines[at].client else { continue };
            if matches!(client.state(), ClientState::Connected { .. }) {
                connected.insert(*self.machines[at].key.as_bytes());
                let before = self.proxy_tun.0.len();
                self.send(at);
                self.flush();
                self.heal(Duration::from_secs(1));
                assert_eq!(self.proxy_tun.0.len(), before + 1, "the session carries nothing");
            }
        }
        for machine in &self.machines {
            let is_in = connected.contains(machine.key.as_bytes());
            let may = match machine.who {
                Who::Known(_) => true,
                Who::Guest => self.book.0.contains(&machine.key),
                Who::Stranger => false,
            };
            assert!(machine.client.is_none() || is_in == may, "{:?}: {is_in}, {may}", machine.who);
        }
        // Keys that are used are replaced, and the old ones die.
        for _ in 0..2 {
            for at in 0..self.machines.len() {
                let client = self.machines[at].client.as_ref();
                if client.is_some_and(|client| client.session().is_some()) {
                    self.send(at);
                    self.flush();
                }
            }
            self.heal(Duration::from_secs(15));
        }
        let before = self.shown();
        for datagram in old {
            if !(datagram.to == To::Proxy && datagram.is_handshake()) {
                self.arrive(&datagram);
            }
        }
        let after = self.shown();
        assert_eq!(before, after, "what was said under old keys counts");
    }

    /// All that shows, but for what counts refusals.
    fn shown(&self) -> String {
        let mut proxy: EndpointStats = self.proxy.stats();
        (proxy.drops, proxy.admission) = Default::default();
        for peer in &mut proxy.peers {
            peer.drops = Default::default();
            if let Some(session) = &mut peer.session {
                session.tunnel.drops = Default::default();
            }
        }
        let machine = |machine: &Machine| {
            let client = machine.client.as_ref()?;
            let mut stats = client.stats();
            stats.drops = Default::default();
            if let Some(tunnel) = &mut stats.tunnel {
                tunnel.drops = Default::default();
            }
            Some(format!("{stats:?} {:?} {:?}", client.state(), client.poll_timeout()))
        };
        let machines: Vec<_> = self.machines.iter().map(machine).collect();
        format!("{proxy:?} {:?} {machines:?}", self.proxy.poll_timeout())
    }

    fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.shown().hash(&mut hasher);
        let established: Vec<_> = self.machines.iter().map(|machine| machine.established).collect();
        (self.now.as_micros(), &self.under_way, &self.seen, self.packets).hash(&mut hasher);
        (self.left, established, self.book.0.len()).hash(&mut hasher);
        hasher.finish()
    }
}

/// Runs all schedules of the plan.
fn explore(plan: &Plan) {
    let began = WallClock::now();
    let (mut states, mut steps, mut ends) = (BTreeSet::new(), 0_u64, 0_u64);
    let root = World::new(plan);
    let mut level = vec![(Vec::new(), root.choices())];
    let mut depth = 0;
    while depth < plan.depth && !level.is_empty() {
        depth += 1;
        let mut next = Vec::new();
        for (schedule, choices) in level {
            for choice in choices {
                let schedule: Vec<Choice> =
                    schedule.iter().copied().chain(std::iter::once(choice)).collect();
                let outcome = std::panic::catch_unwind(|| {
                    let mut world = World::new(plan);
                    schedule.iter().for_each(|choice| world.choose(*choice));
                    let found = (world.digest(), world.choices());
                    // Every eighth is brought to its end; which, follows from the state.
                    let ends = depth == plan.depth && found.0.is_multiple_of(8);
                    if ends {
                        world.finish();
                    }
                    (found, ends)
                });
                assert!(outcome.is_ok(), "{}: {schedule:?}", plan.name);
                let Ok(((digest, choices), ended)) = outcome else { continue };
                steps += 1;
                ends += u64::from(ended);
                if states.insert(digest) {
                    next.push((schedule, choices));
                }
            }
        }
        level = next;
    }
    let took = began.elapsed().as_secs_f64();
    let count = states.len();
    println!(
        "{}: {count} states, {steps} schedules, {ends} brought to an end, depth {depth}, {took:.1} s",
        plan.name
    );
    assert!(count > 50 && ends > 0, "{}: too little to mean anything", plan.name);
}

/// How many steps deeper than in every run: `ROPEWALK_MODEL_DEEPER`.
fn deeper() -> usize {
    std::env::var("ROPEWALK_MODEL_DEEPER").ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

#[test]
fn a_known_client_gets_one_session_whatever_is_lost_or_repeated_and_a_stranger_none() {
    explore(&Plan {
        name: "one client and a stranger",
        who: &[Who::Known(0), Who::Stranger],
        each: false,
        established: false,
        depth: 6 + deeper(),
        budget: [1, 2, 1],
    });
}

#[test]
fn of_two_machines_with_one_key_only_the_newer_displaces_the_other() {
    explore(&Plan {
        name: "two machines with one key",
        who: &[Who::Known(0), Who::Known(0)],
        each: false,
        established: false,
        depth: 6 + deeper(),
        budget: [1, 1, 1],
    });
}

#[test]
fn of_two_guests_with_one_invitation_one_comes_in() {
    explore(&Plan {
        name: "two guests with one invitation",
        who: &[Who::Guest, Who::Guest],
        each: false,
        established: false,
        depth: 6 + deeper(),
        budget: [1, 1, 1],
    });
}

#[test]
fn whatever_happens_to_a_rekey_both_ends_keep_one_key_and_nothing_comes_twice() {
    explore(&Plan {
        name: "a rekey",
        who: &[Who::Known(0)],
        each: true,
        established: true,
        depth: 6 + deeper(),
        budget: [2, 1, 4],
    });
}
