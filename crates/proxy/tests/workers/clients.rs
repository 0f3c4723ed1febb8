//! Clients with real sockets, all turned by the test's own thread.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{IpAddr, UdpSocket};
use std::time::{Duration, Instant as Clock};

use ropewalk_daemon::core::wall_clock;
use ropewalk_daemon::service;
use ropewalk_link_io::clock::Clock as OwnClock;
use ropewalk_proto::client::{Client, ClientConfig, ClientState, LinkKey};
use ropewalk_proto::config::{LinkConfig, TunnelConfig};
use ropewalk_proto::crypto::{Capabilities, CipherSet, StaticSecret};
use ropewalk_proto::ecn::Ecn;
use ropewalk_proto::event::Event;
use ropewalk_proto::packet::Packet;
use ropewalk_proto::path::{Path, SocketId};
use ropewalk_proto::sink::{PacketSink, TransmitSink};
use ropewalk_proto::units::SessionIndex;
use ropewalk_proto::wire::hello::HelloKind;
use ropewalk_settings::{
    InvitationToken, Keepalive, LinkPolicy, PresharedKey, PrivateKey, PublicKey,
};

use crate::bed::Bed;

/// Longer than anything takes, even on a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// Links of each client, by turns over IPv4 and IPv6.
const LINKS: u16 = 4;

/// One client.
struct End {
    client: Client,
    key: PublicKey,
    out: Out,
    tun: Tun,
    events: Vec<Event>,
    /// Switched off.
    off: bool,
}

/// Its sockets, one a link.
struct Out {
    sockets: Vec<UdpSocket>,
    reserved: Option<(Path, Vec<u8>)>,
    /// The index in the first message.
    asked_with: Option<SessionIndex>,
}

/// The numbers of the packets that came.
#[derive(Default)]
struct Tun(BTreeSet<u32>);

impl PacketSink for Tun {
    fn deliver(&mut self, packet: Packet<'_>) {
        self.0.insert(u32::from_be_bytes(packet.bytes[28..32].try_into().unwrap()));
    }
}

impl TransmitSink for Out {
    fn reserve(&mut self, path: Path, _: Ecn, len: usize) -> Option<&mut [u8]> {
        Some(&mut self.reserved.insert((path, vec![0; len])).1)
    }

    fn has_room(&mut self, _: &[Path], _: usize) -> bool {
        true
    }

    fn commit(&mut self, len: usize) {
        let (path, datagram) = self.reserved.take().expect("reserved before");
        if HelloKind::from_first_byte(datagram[0]) == Some(HelloKind::First) {
            let index = u32::from_be_bytes([0, datagram[2], datagram[3], datagram[4]]);
            self.asked_with.get_or_insert(SessionIndex::new(index));
        }
        // Whatever the kernel refuses is lost on the way, as it were.
        drop(self.sockets[usize::from(path.socket.0)].send_to(&datagram[..len], path.remote));
    }
}

/// All clients of a test.
pub(crate) struct Crowd {
    clock: OwnClock,
    proxy: [std::net::SocketAddr; 2],
    ends: Vec<End>,
}

impl Crowd {
    pub(crate) fn new(bed: &Bed) -> Self {
        Self { clock: OwnClock::start(), proxy: bed.addresses(), ends: Vec::new() }
    }

    /// A client with this key begins to ask. Returns its place.
    pub(crate) fn add(&mut self, key: &PrivateKey, invitation: Option<InvitationToken>) -> usize {
        let now = self.clock.now();
        let config = ClientConfig {
            tunnel: TunnelConfig { rekey_after: Duration::from_secs(1), ..TunnelConfig::default() },
            secret: StaticSecret::new(key),
            proxy: Bed::proxy_key(),
            psk: PresharedKey::NONE,
            invitation,
            ciphers: CipherSet::offered(Capabilities { aes: true }),
            wall_clock: wall_clock(self.clock.sample()),
        };
        let mut client = Client::new(now, config, service::seed().unwrap());
        let (mut sockets, mut tun) = (Vec::new(), Tun::default());
        for at in 0..LINKS {
            let remote = self.proxy[usize::from(at % 2)];
            let local: IpAddr = remote.ip();
            let socket = UdpSocket::bind((local, 0)).unwrap();
            socket.set_nonblocking(true).unwrap();
            sockets.push(socket);
            let path = Path { socket: SocketId(at), local: None, remote };
            let link = LinkConfig {
                name: format!("wan{at}").as_str().try_into().unwrap(),
                paths: [path].into_iter().collect(),
                keepalive: Keepalive::default(),
                metered: false,
                mtu: None,
                policy: LinkPolicy::default(),
            };
            client.set_link(now, LinkKey(at.into()), Some(link), &mut tun).unwrap();
        }
        let out = Out { sockets, reserved: None, asked_with: None };
        let key = key.public_key();
        self.ends.push(End { client, key, out, tun, events: Vec::new(), off: false });
        self.ends.len() - 1
    }

    /// Turns all clients until it is so.
    pub(crate) fn run_until(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) {
        let late = Clock::now() + SOON;
        while !is_so(self) {
            assert!(Clock::now() < late, "not in time: {what}: {:?}", self.states());
            for _ in 0..5 {
                self.ends.iter_mut().filter(|end| !end.off).for_each(|end| end.turn(self.clock));
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    fn states(&self) -> Vec<ClientState> {
        self.ends.iter().map(|end| end.client.state()).collect()
    }

    /// The client with this key sends a packet.
    pub(crate) fn send(&mut self, key: &PublicKey, packet: &[u8]) {
        let End { client, tun, .. } =
            self.ends.iter_mut().find(|end| end.key == *key).expect("a client of the test");
        client.handle_packet(self.clock.now(), packet, tun);
    }

    pub(crate) fn is_connected(&self, at: usize) -> bool {
        matches!(self.ends[at].client.state(), ClientState::Connected { .. })
    }

    /// How many are connected.
    pub(crate) fn connected(&self) -> usize {
        (0..self.ends.len()).filter(|at| self.is_connected(*at)).count()
    }

    /// Whether the packet with this number came to it.
    pub(crate) fn has_packet(&self, at: usize, number: u32) -> bool {
        self.ends[at].tun.0.contains(&number)
    }

    /// How many have had so many fresh keys.
    pub(crate) fn rekeyed(&self, times: usize) -> usize {
        let rekeys = |end: &&End| {
            end.events.iter().filter(|event| matches!(event, Event::Rekeyed(_))).count() >= times
        };
        self.ends.iter().filter(rekeys).count()
    }

    /// How often this happened to any.
    pub(crate) fn count(&self, is_it: impl Fn(&Event) -> bool) -> usize {
        self.ends.iter().flat_map(|end| &end.events).filter(|event| is_it(event)).count()
    }

    /// What happened before and what came counts no more.
    pub(crate) fn forget_events(&mut self) {
        for end in &mut self.ends {
            end.events.clear();
            end.tun.0.clear();
        }
    }

    /// All others are switched off.
    pub(crate) fn keep_only(&mut self, place: usize) {
        for (at, end) in self.ends.iter_mut().enumerate() {
            end.off = at != place;
        }
    }

    /// The index by which the client asked.
    pub(crate) fn index_asked_with(&self, at: usize) -> SessionIndex {
        self.ends[at].out.asked_with.expect("it asked")
    }
}

impl End {
    /// One pass over all that there is to do.
    fn turn(&mut self, clock: OwnClock) {
        let Self { client, out, tun, events, .. } = self;
        let mut buffer = [0; 2048];
        for (at, socket) in (0..).zip(&out.sockets) {
            loop {
                match socket.recv_from(&mut buffer) {
                    Ok((len, remote)) => {
                        let path = Path { socket: SocketId(at), local: None, remote };
                        let datagram = &mut buffer[..len];
                        client.handle_datagram(clock.now(), path, Ecn::NotEct, datagram, tun);
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    // The proxy is gone; the core finds out.
                    Err(_) => {}
                }
            }
        }
        let now = clock.now();
        client.end_of_batch(now);
        if client.poll_timeout().is_some_and(|(at, _)| at <= now) {
            client.handle_timeout(now, tun);
        }
        client.poll_transmit(now, out);
        events.extend(std::iter::from_fn(|| client.poll_event()).map(|told| told.event));
    }
}
