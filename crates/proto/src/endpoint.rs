//! The proxy's end: who may have a session, which session a datagram or packet belongs to, and when each
//! is given its turn.
//!
//! A datagram costs the same whatever the number of sessions: its index names the session (`sessions`), a
//! packet's destination names the peer (`peers`), both by one search; timers stand in one ordered set, and only
//! sessions that were touched are asked what they have to send. What a stranger may cause is told in
//! `admission`, what follows from it in `first`.
//!
//! A session is *pending* until its first authentic datagram came, which shows that the client has the
//! keys now. Only then it takes the place of the peer's old session, whose links are told so (`life`).
//!
//! On several cores, several endpoints share the clients: [`Share`].
//!
//! Contract: as for a [`Tunnel`](crate::tunnel::Tunnel): after any `handle_*` call, [`Endpoint::poll_transmit`] until it leaves
//! room in the batch, [`Endpoint::poll_event`] until it has none, and one timer for
//! [`Endpoint::poll_timeout`].

mod addresses;
mod admission;
mod first;
mod invitation_authority;
mod invited;
mod life;
mod load;
mod peer;
mod peers;
mod sessions;
mod share;
mod snapshot;
mod speed;
mod table;
mod transmit;

use std::collections::{BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::StdRng;

use admission::Admission;
use invitation_authority::Waiting;
use peer::Peer;
use peers::PeerTable;
use sessions::{Phase, Sessions};
use share::Outgoing;
use snapshot::Totals;
use transmit::Replies;

pub use invitation_authority::{Claim, InvitationAuthority, NoInvitations};
pub use peers::{AddPeerError, PeerConfig};
pub use share::{Handed, Share};
pub use snapshot::{AdmissionCounters, EndpointStats, PeerStats, SessionStats};
pub use speed::SpeedRules;

use ropewalk_settings::{PublicKey, Scheduling};

use crate::config::TunnelConfig;
use crate::crypto::aead::CipherSet;
use crate::crypto::freshness::Timestamp;
use crate::crypto::handshake::Responder;
use crate::crypto::secret::StaticSecret;
use crate::ecn::Ecn;
use crate::error::{DropCounters, DropReason};
use crate::event::{EndReason, Event};
use crate::fleet::FleetList;
use crate::left::Left;
use crate::packet::{PacketView, transport};
use crate::path::Path;
use crate::sink::PacketSink;
use crate::time::{Duration, Instant};
use crate::timer::{Timer, Wakeup, sooner};
use crate::tunnel::{Flows, KeptByAll, PartialRead};
use crate::units::SessionIndex;
use crate::wire::frame::CloseReason;
use crate::wire::header::{kind_of, steering_index};
use crate::wire::hello::answer::Refusal;
use crate::wire::hello::parameters::NameServers;
use crate::wire::hello::{HelloKind, MAC_LEN};

/// A pending session that was not used in this time is forgotten: longer than a copy of its answer is
/// repeated, and than the round trip of any link.
pub const PENDING_LIFETIME: Duration = Duration::from_secs(10);
/// A session that nothing authentic came for is forgotten: a laptop that sleeps longer asks again.
pub const IDLE_LIFETIME: Duration = Duration::from_secs(30 * 60);
/// Time to say goodbye on all links of a session that is reset.
const ENDING_LIFETIME: Duration = Duration::from_secs(1);

/// What a proxy needs to know.
#[derive(Clone, Debug)]
pub struct EndpointConfig {
    /// How every tunnel behaves.
    pub tunnel: TunnelConfig,
    /// The proxy's identity.
    pub secret: StaticSecret,
    /// The data ciphers to use; see [`CipherSet::offered`].
    pub ciphers: CipherSet,
    /// The proxy's own inner IPv4 address.
    pub inner_v4: Option<std::net::Ipv4Addr>,
    /// The proxy's own inner IPv6 address.
    pub inner_v6: Option<std::net::Ipv6Addr>,
    /// Where clients may look up names; each hears of those of the families that it has an inner address of.
    pub name_servers: NameServers,
    /// Most sessions at a time, pending ones included; at most 2^20, so that a free index is found
    /// quickly.
    pub max_sessions: usize,
    /// The wall clock's time since 1970 at [`Instant::ZERO`].
    pub wall_clock: Duration,
    /// Which of the clients this endpoint serves; all others are to be none of its peers.
    pub share: Share,
    /// How much clients may test; `None`: they are not told that they may ask, as by a proxy that knows no speed tests.
    pub speed: Option<SpeedRules>,
}

/// An [`Event`], with the peer it is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EndpointEvent {
    /// Whose session.
    pub peer: PublicKey,
    /// What happened.
    pub event: Event,
}

/// The proxy's end of all tunnels.
pub struct Endpoint {
    tunnel: TunnelConfig,
    /// The wall clock's time since 1970 at [`Instant::ZERO`].
    wall_clock: Duration,
    share: Share,
    secret: Arc<StaticSecret>,
    admission: Admission,
    peers: PeerTable,
    sessions: Sessions,
    replies: Replies,
    handed: Outgoing,
    /// What the owner decides later.
    waiting: Waiting,
    /// What senders of TCP were told by sessions that are over.
    left: Left,
    /// What is kept for senders of TCP, by all sessions.
    kept: KeptByAll,
    rng: StdRng,
    /// The proxies that clients are told of.
    fleet: Arc<FleetList>,
    speed: Option<SpeedRules>,
    closed: bool,
    drops: DropCounters,
    events: VecDeque<EndpointEvent>,
}

impl Endpoint {
    /// A proxy without peers. `seed` must be unpredictable: ephemeral keys are drawn from it.
    #[must_use]
    pub fn new(now: Instant, config: EndpointConfig, seed: [u8; 32]) -> Self {
        let mut rng = StdRng::from_seed(seed);
        let responder = Responder::new(config.secret.clone(), config.ciphers);
        Self {
            admission: Admission::new(now, responder, &config, &mut rng),
            wall_clock: config.wall_clock,
            tunnel: config.tunnel,
            secret: Arc::new(config.secret),
            peers: PeerTable::default(),
            sessions: Sessions::default(),
            replies: Replies::default(),
            handed: Outgoing::default(),
            waiting: Waiting::default(),
            left: Left::default(),
            kept: KeptByAll::default(),
            share: config.share,
            rng,
            fleet: Arc::default(),
            speed: config.speed,
            closed: false,
            drops: DropCounters::default(),
            events: VecDeque::new(),
        }
    }

    /// Takes a client into the table, or changes it. A change of anything but the name ends the client's
    /// session; it asks for another at once.
    ///
    /// # Errors
    /// [`AddPeerError`]; nothing changes then.
    pub fn set_peer(
        &mut self,
        now: Instant,
        key: PublicKey,
        config: PeerConfig,
    ) -> Result<(), AddPeerError> {
        let known = self.wall_clock + Duration::from_nanos(now.as_nanos());
        if self.peers.set(key, config, Timestamp::from_unix(known))? {
            self.end_peer(now, key, CloseReason::Shutdown, EndReason::Withdrawn);
        }
        Ok(())
    }

    /// The same for several, as one change: each may have what another of them had until now. A client that is none of them, and has
    /// something of what they are to have, is refused until it is set again; so is one of two of them that are to have the same. Returns
    /// the names of those.
    pub fn set_peers(
        &mut self,
        now: Instant,
        peers: impl IntoIterator<Item = (PublicKey, PeerConfig)>,
    ) -> Vec<Arc<str>> {
        let mut without = BTreeSet::new();
        for (key, config) in peers {
            while let Some(owner) = self.peers.take_from_another(&key, &config) {
                self.end_peer(now, owner, CloseReason::Shutdown, EndReason::Withdrawn);
                without.insert(owner);
            }
            match self.set_peer(now, key, config) {
                Ok(()) => without.remove(&key),
                Err(_) => without.insert(key),
            };
        }
        let named = without.iter().filter_map(|key| self.peers.get(key));
        named.map(|peer| Arc::clone(peer.name())).collect()
    }

    /// Takes a client out of the table and ends its session, whose client is told why. Returns whether it was in.
    pub fn remove_peer(&mut self, now: Instant, key: PublicKey) -> bool {
        if !self.peers.contains(&key) {
            return false;
        }
        self.end_peer(now, key, CloseReason::Removed, EndReason::Removed);
        self.peers.remove(&key);
        true
    }

    /// A client has a newer session with another proxy: the one here ends, as with a newer one here. If the client has just said that
    /// it moves, that is the session to which it does, and whoever says so has not heard it: the one here goes on until the client ends it.
    pub fn displace_peer(&mut self, now: Instant, key: PublicKey) {
        let moves = |peer: &Peer| {
            let mut sessions =
                peer.indices().into_iter().filter_map(|index| self.sessions.get(index));
            sessions.any(|session| session.tunnel.begins_to_move(now))
        };
        if self.peers.get(&key).is_some_and(moves) {
            return;
        }
        self.end_peer(now, key, CloseReason::Replaced, EndReason::Elsewhere);
    }

    /// From now on no session begins: a client that is known is told so, and the question whether a proxy is here is met with
    /// silence. Or sessions begin again. Those that there are go on.
    pub fn set_draining(&mut self, draining: bool) {
        if !self.closed {
            self.admission.shut(draining.then_some(Refusal::Draining));
        }
    }

    /// Whether there is a client in the table.
    #[must_use]
    pub fn has_peers(&self) -> bool {
        !self.peers.is_empty()
    }

    /// Another scheduler, and what is said of links, for all clients from now on, also those that had others of their
    /// own.
    pub fn set_scheduling(&mut self, now: Instant, scheduling: &Scheduling) {
        for index in self.sessions.indices() {
            self.reschedule(now, index, scheduling);
        }
        self.peers.iter_mut().for_each(Peer::schedule_alike);
        self.tunnel.scheduling = scheduling.clone();
    }

    /// The same for one client, until the next change for all. Returns whether it is in the table.
    pub fn set_peer_scheduling(
        &mut self,
        now: Instant,
        key: PublicKey,
        scheduling: &Scheduling,
    ) -> bool {
        let Some(peer) = self.peers.get_mut(&key) else { return false };
        peer.set_scheduling(scheduling.clone());
        for index in peer.indices() {
            self.reschedule(now, index, scheduling);
        }
        true
    }

    /// All clients are told of these proxies, from now on; of none before the first call.
    pub fn set_fleet(&mut self, list: &Arc<FleetList>) {
        self.fleet = Arc::clone(list);
        for index in self.sessions.indices() {
            if let Some(mut found) = self.sessions.find(index) {
                found.session.tunnel.set_fleet(Arc::clone(list));
                found.touch();
            }
        }
    }

    fn reschedule(&mut self, now: Instant, index: SessionIndex, scheduling: &Scheduling) {
        if let Some(mut found) = self.sessions.find(index) {
            found.session.tunnel.set_scheduling(now, scheduling.clone());
            found.touch();
        }
    }

    /// The flows that are sent to a client, at most so many; see [`Tunnel::flows`](crate::tunnel::Tunnel::flows).
    #[must_use]
    pub fn flows(&mut self, now: Instant, key: &PublicKey, most: usize) -> Option<Flows> {
        let session = self.peers.get(key)?.session()?;
        Some(self.sessions.find(session)?.session.tunnel.flows(now, most))
    }

    /// A packet came from the TUN: it goes to the session of its destination. `sink` takes what its
    /// sender has to be told.
    pub fn handle_packet(&mut self, now: Instant, packet: &[u8], sink: &mut impl PacketSink) {
        self.handle_packet_or(now, packet, sink, |_| false);
    }

    /// The same, where `elsewhere` is asked about a destination that no session here leads to, and says whether it
    /// has taken the packet.
    pub fn handle_packet_or(
        &mut self,
        now: Instant,
        packet: &[u8],
        sink: &mut impl PacketSink,
        elsewhere: impl FnOnce(IpAddr) -> bool,
    ) {
        let Ok(view) = PacketView::parse(packet) else {
            return self.drops.count(DropReason::PacketMalformed);
        };
        let destination = view.destination();
        let index = self.peers.session_for(destination);
        let Some(mut found) = index.and_then(|index| self.sessions.find(index)) else {
            if !elsewhere(destination) {
                self.drops.count(DropReason::UnknownDestination);
            }
            return;
        };
        found.session.tunnel.handle_read(now, &view, sink);
        found.touch();
    }

    /// A TCP or UDP packet whose checksum is partial came from the TUN. `false`: no session here leads to its destination;
    /// its checksum was completed, and it is to be handled as any other.
    pub fn handle_partial(
        &mut self,
        now: Instant,
        packet: &mut [u8],
        sink: &mut impl PacketSink,
    ) -> bool {
        let view = PacketView::parse(packet).ok();
        let read = view.as_ref().and_then(PartialRead::of);
        let index = view.and_then(|view| self.peers.session_for(view.destination()));
        let Some(mut found) = index.and_then(|index| self.sessions.find(index)) else {
            transport::complete(packet);
            return false;
        };
        match read {
            Some(read) => found.session.tunnel.handle_partial_read(now, packet, read, sink),
            None => self.drops.count(DropReason::PacketMalformed),
        }
        found.touch();
        true
    }

    /// A datagram came from a socket: a session's, or a first message. Nobody is invited.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        path: Path,
        ecn: Ecn,
        datagram: &mut [u8],
        sink: &mut impl PacketSink,
    ) {
        self.handle_datagram_inviting(now, path, ecn, datagram, sink, &mut NoInvitations);
    }

    /// The same, where `authority` knows who is invited.
    pub fn handle_datagram_inviting(
        &mut self,
        now: Instant,
        path: Path,
        ecn: Ecn,
        datagram: &mut [u8],
        sink: &mut impl PacketSink,
        authority: &mut impl InvitationAuthority,
    ) {
        let Some(&first) = datagram.first() else {
            return self.drops.count(DropReason::DatagramMalformed);
        };
        if HelloKind::from_first_byte(first).is_some() {
            return self.handle_first(now, path, datagram, authority);
        }
        if kind_of(first).is_none() {
            return self.drops.count(DropReason::DatagramMalformed);
        }
        let Some(index) = steering_index(datagram) else {
            return self.drops.count(DropReason::UnknownSession);
        };
        let found = self.sessions.find(index);
        let Some(mut found) = found.filter(|found| found.session.phase != Phase::Ending) else {
            return self.drops.count(DropReason::UnknownSession);
        };
        let session = &mut *found.session;
        let authentic = session.tunnel.handle_datagram(now, path, ecn, datagram, sink);
        if !authentic {
            return;
        }
        session.last_heard = now;
        let (pending, tells) = (session.phase == Phase::Pending, session.tunnel.has_event());
        found.touch_received();
        if pending {
            self.confirm(now, index);
        }
        if tells {
            self.take_events(now, index);
        }
    }

    /// All datagrams that were received together are in.
    pub fn end_of_batch(&mut self, now: Instant) {
        while let Some(session) = self.sessions.pop_received() {
            session.tunnel.end_of_batch(now);
        }
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant, sink: &mut impl PacketSink) {
        self.admission.load().handle_timeout(now);
        self.left.handle_timeout(now, sink);
        while let Some((index, session)) = self.sessions.pop_due(now) {
            if session.expires() > now {
                session.tunnel.handle_timeout(now, sink);
                self.sessions.touch(index);
                self.take_events(now, index);
            } else {
                self.forget(now, index, EndReason::Idle);
            }
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due, and why. Early calls are harmless.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Wakeup> {
        let calm = self.admission.poll_timeout().map(|at| (at, Timer::Calm));
        let left = self.left.poll_timeout().map(|at| (at, Timer::LocalAcknowledgement));
        let session = sooner(self.sessions.next_timer(), self.sessions.next_of_touched());
        sooner(session, sooner(calm, left))
    }

    /// Whether there are too many first messages, so that only those with a cookie are decrypted (and a few others by luck).
    #[must_use]
    pub const fn is_asking_for_cookies(&self) -> bool {
        self.admission.is_asking_for_cookies()
    }

    /// What happened, oldest first.
    pub fn poll_event(&mut self) -> Option<EndpointEvent> {
        self.events.pop_front()
    }

    /// The next first message that another part is to answer.
    pub fn poll_handed(&mut self) -> Option<Handed> {
        self.handed.pop()
    }

    /// A first message with this digest, that was polled, found no way to its part: when its client asks again, it is read
    /// again.
    pub fn note_lost(&mut self, now: Instant, digest: &[u8; MAC_LEN]) {
        self.admission.note_lost(now, digest);
    }

    /// Ends every session, within a second: what waits goes out, and the clients are told and answer. No other is
    /// given.
    pub fn close(&mut self, now: Instant) {
        self.closed = true;
        self.admission.shut(Some(Refusal::Stopping));
        for index in self.sessions.indices() {
            match self.sessions.get_mut(index) {
                Some(session) if session.phase == Phase::Confirmed => session.tunnel.close(now),
                Some(session) if session.phase == Phase::Pending => {
                    self.forget(now, index, EndReason::Stopped);
                }
                _ => {}
            }
            self.sessions.touch(index);
        }
    }

    /// Whether nothing is left to say or to hear after [`close`](Self::close).
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed && self.sessions.is_empty()
    }

    fn tell(&mut self, peer: PublicKey, event: Event) {
        self.events.push_back(EndpointEvent { peer, event });
    }
}
