//! Many clients that have a session and nothing to say, in one thread: the client's core over a few shared sockets, without
//! TUNs, routes or processes of their own.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::BindToDevice;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use ropewalk_netlab::deployment::PROXY_PORT;
use ropewalk_netlab::namespace::Namespace;
use ropewalk_netlab::pair::{client_config, link_config};
use ropewalk_proto::client::{Client, LinkKey};
use ropewalk_proto::crypto::StaticSecret;
use ropewalk_proto::ecn::Ecn;
use ropewalk_proto::packet::Packet;
use ropewalk_proto::path::{Path, SocketId};
use ropewalk_proto::sink::{PacketSink, TransmitSink};
use ropewalk_proto::time::Instant;
use ropewalk_proto::units::SessionIndex;
use ropewalk_proto::wire::header::{kind_of, steering_index};
use ropewalk_settings::{Keepalive, PublicKey};

use super::network::{PROXY, interface};

/// Clients share so many sockets: fewer than a process may open, and enough that a socket holds what comes for its clients.
const SOCKETS: usize = 16;
/// Clients that ask at a time, one for each socket: an answer goes to whoever asks on its socket.
const ASKING: usize = SOCKETS;
/// How long all may take: the proxy begins more than a thousand sessions a second, and the crowd is one thread.
const PATIENCE: Duration = Duration::from_secs(120);
/// A client that got no session in this time is left for later.
const TRY: Duration = Duration::from_secs(10);
/// Between two looks at the sockets.
const PAUSE: Duration = Duration::from_millis(2);

/// The keys of a crowd, for the proxy's config.
pub(super) struct Keys(Vec<StaticSecret>);

impl Keys {
    /// Of so many clients: the same in each run.
    pub(super) fn new(clients: u32) -> Self {
        let mut rng = StdRng::seed_from_u64(10_000);
        Self((0..clients).map(|_| StaticSecret::generate(&mut rng)).collect())
    }

    /// How many.
    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }

    /// `[[peer]]` entries.
    pub(super) fn peers(&self) -> Vec<toml::Table> {
        let keys = self.0.iter().map(|secret| STANDARD.encode(secret.public().as_bytes()));
        let peer = |(number, key): (usize, String)| {
            let name = format!("crowd{number}");
            [("name".to_owned(), name.into()), ("public_key".to_owned(), key.into())]
                .into_iter()
                .collect()
        };
        keys.enumerate().map(peer).collect()
    }
}

/// A crowd that is connected. Dropped, it falls silent.
#[derive(Debug)]
pub(super) struct Crowd {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Crowd {
    /// Connects all of them, and keeps them alive from then on.
    pub(super) fn connect(host: &Namespace, keys: Keys, proxy: &str) -> Result<Self> {
        let bytes: [u8; 32] = STANDARD
            .decode(proxy)
            .ok()
            .and_then(|bytes| bytes.try_into().ok())
            .context("the proxy's key is no key")?;
        let proxy = PublicKey::from_bytes(bytes);
        let sockets: Vec<UdpSocket> = host.run(|| {
            (0..SOCKETS)
                .map(|_| {
                    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
                    // Not into the tunnel of the client that runs beside it.
                    setsockopt(&socket, BindToDevice, &interface(0).into())?;
                    socket.connect((PROXY, PROXY_PORT))?;
                    socket.set_nonblocking(true)?;
                    Ok(socket)
                })
                .collect::<io::Result<_>>()
        })??;
        let wanted = keys.len();
        let (ended, connected) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let mut members = Members::new(sockets, keys, proxy);
        let thread = {
            let (ended, connected) = (Arc::clone(&ended), Arc::clone(&connected));
            thread::Builder::new().name("crowd".into()).spawn(move || {
                while !ended.load(Ordering::Acquire) {
                    members.turn();
                    connected.store(members.connected, Ordering::Release);
                    thread::sleep(PAUSE);
                }
            })?
        };
        let crowd = Self { ended, thread: Some(thread) };
        let started = std::time::Instant::now();
        while connected.load(Ordering::Acquire) < wanted {
            let (now, so_far) = (started.elapsed(), connected.load(Ordering::Acquire));
            ensure!(now < PATIENCE, "only {so_far} of {wanted} clients got a session");
            thread::sleep(Duration::from_millis(20));
        }
        Ok(crowd)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // What went wrong in it was seen as clients that did not connect.
            let _ = thread.join();
        }
    }
}

struct Member {
    client: Client,
    socket: usize,
    timer: Option<Instant>,
    index: Option<SessionIndex>,
}

struct Members {
    all: Vec<Member>,
    out: Out,
    started: std::time::Instant,
    timers: BTreeSet<(Instant, usize)>,
    by_index: BTreeMap<(usize, SessionIndex), usize>,
    /// Who has not asked yet.
    waiting: VecDeque<usize>,
    /// Who asks on each socket, and since when.
    asking: [Option<(usize, Instant)>; ASKING],
    connected: u32,
}

impl Members {
    fn new(sockets: Vec<UdpSocket>, keys: Keys, proxy: PublicKey) -> Self {
        let wall_clock =
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        // Nobody is to be kept out of this tunnel; two runs are to differ.
        let mut rng = StdRng::seed_from_u64(
            wall_clock.as_secs() ^ u64::from(wall_clock.subsec_nanos()) << 32,
        );
        let member = |(number, secret): (usize, StaticSecret)| {
            let config = client_config(secret, proxy, wall_clock);
            let client = Client::new(Instant::ZERO, config, rng.random());
            Member { client, socket: number % SOCKETS, timer: None, index: None }
        };
        let all: Vec<Member> = keys.0.into_iter().enumerate().map(member).collect();
        Self {
            waiting: (0..all.len()).collect(),
            all,
            out: Out { sockets, buffer: vec![0; 2048], reserved: None },
            started: std::time::Instant::now(),
            timers: BTreeSet::new(),
            by_index: BTreeMap::new(),
            asking: [None; ASKING],
            connected: 0,
        }
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn turn(&mut self) {
        self.ask();
        let mut buffer = [0; 2048];
        for socket in 0..SOCKETS {
            // At most what a socket holds; an error is an ICMP answer, which the cores find out by themselves.
            while let Ok(len) = self.out.sockets[socket].recv(&mut buffer) {
                self.take(socket, &mut buffer[..len]);
            }
        }
        let now = self.now();
        while let Some(&(at, member)) = self.timers.first().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, member));
            self.all[member].timer = None;
            self.all[member].client.handle_timeout(now, &mut Nowhere);
            self.settle(now, member);
        }
    }

    /// Lets one client on each socket ask.
    fn ask(&mut self) {
        let now = self.now();
        for socket in 0..SOCKETS {
            if let Some((member, since)) = self.asking[socket] {
                if self.all[member].index.is_none() && now.since(since) < TRY {
                    continue;
                }
                self.asking[socket] = None;
            }
            let next = self.waiting.iter().position(|member| self.all[*member].socket == socket);
            // The list is in the order of the sockets: the first ones.
            let Some(member) = next.and_then(|place| self.waiting.remove(place)) else { continue };
            let path = path(socket);
            let config = link_config("crowd", path, Keepalive::default());
            // There is room for one link.
            let _ = self.all[member].client.set_link(now, LinkKey(0), Some(config), &mut Nowhere);
            self.asking[socket] = Some((member, now));
            self.settle(now, member);
        }
    }

    fn take(&mut self, socket: usize, datagram: &mut [u8]) {
        let now = self.now();
        let transport = datagram.first().is_some_and(|first| kind_of(*first).is_some());
        let member = match steering_index(datagram) {
            Some(index) if transport => self.by_index.get(&(socket, index)).copied(),
            _ => self.asking[socket].map(|(member, _)| member),
        };
        let Some(member) = member else { return };
        let client = &mut self.all[member].client;
        client.handle_datagram(now, path(socket), Ecn::NotEct, datagram, &mut Nowhere);
        client.end_of_batch(now);
        self.settle(now, member);
    }

    /// What a client has to say is said, and its timer set.
    fn settle(&mut self, now: Instant, number: usize) {
        let member = &mut self.all[number];
        self.out.reserved = None;
        member.client.poll_transmit(now, &mut self.out);
        while member.client.poll_event().is_some() {}
        let index = member.client.session().map(|session| session.index);
        if index != member.index {
            if let Some(old) = member.index.take() {
                self.by_index.remove(&(member.socket, old));
                self.connected -= 1;
            }
            if let Some(new) = index {
                self.by_index.insert((member.socket, new), number);
                self.connected += 1;
            }
            member.index = index;
        }
        let timer = member.client.poll_timeout().map(|(at, _)| at);
        if timer != member.timer {
            if let Some(old) = member.timer {
                self.timers.remove(&(old, number));
            }
            self.timers.extend(timer.map(|new| (new, number)));
            member.timer = timer;
        }
    }
}

fn path(socket: usize) -> Path {
    let socket = SocketId(u16::try_from(socket).unwrap_or(u16::MAX));
    Path { socket, local: None, remote: SocketAddr::from((PROXY, PROXY_PORT)) }
}

/// Sends each datagram at once.
struct Out {
    sockets: Vec<UdpSocket>,
    buffer: Vec<u8>,
    reserved: Option<usize>,
}

impl TransmitSink for Out {
    fn reserve(&mut self, path: Path, _ecn: Ecn, len: usize) -> Option<&mut [u8]> {
        self.reserved = Some(usize::from(path.socket.0));
        self.buffer.get_mut(..len)
    }

    fn has_room(&mut self, _paths: &[Path], len: usize) -> bool {
        len <= self.buffer.len()
    }

    fn commit(&mut self, len: usize) {
        let socket = self.reserved.take().and_then(|socket| self.sockets.get(socket));
        if let Some(socket) = socket {
            // What is lost is asked for again.
            let _ = socket.send(&self.buffer[..len]);
        }
    }
}

/// Nobody of the crowd listens.
struct Nowhere;

impl PacketSink for Nowhere {
    fn deliver(&mut self, _packet: Packet<'_>) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_member_has_a_name_and_a_key_of_its_own() {
        let peers = Keys::new(20).peers();
        let of = |key: &str| -> BTreeSet<String> {
            peers.iter().map(|peer| peer[key].to_string()).collect()
        };
        assert_eq!((of("name").len(), of("public_key").len()), (20, 20));
    }
}
