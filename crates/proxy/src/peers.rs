//! The clients of the config, with what the core does not keep: their leases, and how long and why each is
//! in its present state.
//!
//! | state | means |
//! | --- | --- |
//! | `Idle` | no session: not seen since the start, asleep for too long, or refused |
//! | `Up` | a session with a link that carries packets |
//! | `Stalled` | a session, and no such link |
//! | `Closed` | no session: one of the ends said goodbye |

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ropewalk_control::api::{ApiError, ErrorCode, TunnelState};
use ropewalk_proto::endpoint::{IDLE_LIFETIME, PeerConfig as CorePeer};
use ropewalk_proto::event::{DownReason, EndReason, Event};
use ropewalk_proto::time::Instant;
use ropewalk_proto::units::LinkId;
use ropewalk_proto::wire::frame::CloseReason;
use ropewalk_settings::{PublicKey, Scheduling, nearest};

use crate::config::{Config, PeerConfig};
use crate::core;
use crate::leases::{Lease, LeaseTable};

/// All clients: those of the config in the order of the file, then those that joined.
#[derive(Debug)]
pub struct PeerBook {
    peers: Vec<Peer>,
    places: BTreeMap<PublicKey, usize>,
    /// Whether clients are given IPv6 addresses.
    ipv6: bool,
}

/// One client.
#[derive(Debug)]
pub struct Peer {
    /// What the file says.
    pub config: PeerConfig,
    /// Its addresses; IPv6 only while it is handed out.
    pub lease: Option<Lease>,
    /// Whether packets pass.
    pub state: TunnelState,
    /// Since when.
    pub since: Instant,
    /// Why, where there is something to say.
    pub reason: Option<String>,
    /// Since when the keys in use are.
    pub keys_since: Instant,
    /// Since when the session is.
    pub session_since: Instant,
    /// When it was last heard of before the present session; none since the proxy's start.
    pub seen: Option<Instant>,
    /// How the proxy sends to it, if otherwise than to all.
    pub scheduling: Option<Box<Scheduling>>,
    up: BTreeSet<LinkId>,
}

/// What an event means for the host's routes to a client's inner addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteChange {
    /// Nothing.
    Keep,
    /// Packets of at most this many bytes go into the TUN.
    Route(u16),
    /// The addresses are unreachable.
    Remove,
}

impl PeerBook {
    /// The clients, with their leases. Without `ipv6` they have only IPv4 addresses.
    #[must_use]
    pub fn new(now: Instant, peers: &[PeerConfig], leases: &LeaseTable, ipv6: bool) -> Self {
        let places = (0..).zip(peers).map(|(place, peer)| (peer.public_key, place));
        let places = places.collect();
        let peers = peers.iter().map(|peer| Peer::new(now, peer, leases, ipv6)).collect();
        Self { peers, places, ipv6 }
    }

    /// A client joined, or has another key: the same name then keeps its place.
    pub fn admit(&mut self, now: Instant, config: &PeerConfig, leases: &LeaseTable) -> &Peer {
        let peer = Peer::new(now, config, leases, self.ipv6);
        let place = match self.peers.iter().position(|peer| peer.config.name == config.name) {
            Some(place) => {
                let before = std::mem::replace(&mut self.peers[place], peer);
                self.places.remove(&before.config.public_key);
                place
            }
            None => {
                self.peers.push(peer);
                self.peers.len() - 1
            }
        };
        self.places.insert(config.public_key, place);
        &self.peers[place]
    }

    /// These keys are nobody's any more, and these are clients, as the registry says. Those that were so already stay as they
    /// are; returns the others.
    pub fn change(
        &mut self,
        now: Instant,
        gone: &BTreeSet<PublicKey>,
        come: &[PeerConfig],
        leases: &LeaseTable,
    ) -> Vec<PublicKey> {
        if !gone.is_empty() {
            self.peers.retain(|peer| !gone.contains(&peer.config.public_key));
            self.index();
        }
        let mut changed = Vec::new();
        for config in come {
            let fresh = Peer::new(now, config, leases, self.ipv6);
            let known = self.places.get(&config.public_key).map(|place| &mut self.peers[*place]);
            match known {
                Some(peer) if peer.config.name == config.name && peer.lease == fresh.lease => {
                    continue;
                }
                Some(peer) => (peer.config, peer.lease) = (fresh.config, fresh.lease),
                None => {
                    self.places.insert(config.public_key, self.peers.len());
                    self.peers.push(fresh);
                }
            }
            changed.push(config.public_key);
        }
        changed
    }

    /// The client with this key.
    #[must_use]
    pub fn get(&self, key: &PublicKey) -> Option<&Peer> {
        self.peers.get(*self.places.get(key)?)
    }

    /// A client is none any more.
    pub fn remove(&mut self, key: &PublicKey) {
        self.peers.retain(|peer| peer.config.public_key != *key);
        self.index();
    }

    /// From now on the clients are these. Those that stay are as they were; returns addresses that were theirs and are
    /// not any more.
    pub fn take_over(
        &mut self,
        now: Instant,
        known: &[PeerConfig],
        leases: &LeaseTable,
    ) -> Vec<IpAddr> {
        let mut before = std::mem::take(&mut self.peers);
        let mut freed = Vec::new();
        for config in known {
            let fresh = Peer::new(now, config, leases, self.ipv6);
            let same = |peer: &Peer| peer.config.public_key == config.public_key;
            let Some(at) = before.iter().position(same) else {
                self.peers.push(fresh);
                continue;
            };
            let mut peer = before.swap_remove(at);
            if peer.lease != fresh.lease {
                freed.extend(peer.addresses());
            }
            (peer.config, peer.lease) = (fresh.config, fresh.lease);
            self.peers.push(peer);
        }
        self.index();
        freed
    }

    fn index(&mut self) {
        let keys = self.peers.iter().map(|peer| peer.config.public_key);
        self.places = keys.zip(0..).collect();
    }

    /// All of them, in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.peers.iter()
    }

    /// The client of this name.
    ///
    /// # Errors
    /// There is none; what may have been meant.
    pub fn named(&mut self, name: &str) -> Result<&mut Peer, ApiError> {
        let names = self.peers.iter().map(|peer| peer.config.name.as_str());
        let help = match nearest(name, names) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "`ropewalk status` lists them".to_owned(),
        };
        let named = self.peers.iter_mut().find(|peer| peer.config.name == name);
        named.ok_or_else(|| {
            let message = format!("there is no peer `{}`: {help}", name.escape_debug());
            ApiError::new(ErrorCode::NotFound, message)
        })
    }

    /// The only client there is, or the only one with a session.
    ///
    /// # Errors
    /// There are several: one must be named.
    pub fn only(&self) -> Result<&Peer, ApiError> {
        let connected = |peer: &&Peer| {
            matches!(peer.state, TunnelState::Up | TunnelState::Stalled | TunnelState::Connecting)
        };
        let mut connected = self.peers.iter().filter(connected);
        match (self.peers.as_slice(), connected.next(), connected.next()) {
            ([only], ..) | (_, Some(only), None) => Ok(only),
            (peers, ..) => {
                let message = format!(
                    "this proxy has {} peers: say which with --peer NAME (in the API: ?peer=NAME); \
                     `ropewalk status` lists them",
                    peers.len()
                );
                Err(ApiError::new(ErrorCode::BadRequest, message))
            }
        }
    }

    /// From now on all are sent to alike.
    pub fn schedule_alike(&mut self) {
        self.peers.iter_mut().for_each(|peer| peer.scheduling = None);
    }

    /// From now on the clients have IPv6 addresses.
    pub fn hand_out_ipv6(&mut self, leases: &LeaseTable) {
        self.ipv6 = true;
        for peer in &mut self.peers {
            peer.lease = leases.get(&peer.config.public_key);
        }
    }

    /// Whether the client has a session.
    #[must_use]
    pub fn is_connected(&self, key: &PublicKey) -> bool {
        let peer = self.places.get(key).and_then(|place| self.peers.get(*place));
        peer.is_some_and(|peer| matches!(peer.state, TunnelState::Up | TunnelState::Stalled))
    }

    /// Notes an event of the core; says whose it is and what becomes of the routes.
    pub fn note(
        &mut self,
        now: Instant,
        key: &PublicKey,
        event: &Event,
    ) -> Option<(&Peer, RouteChange)> {
        let peer = self.peers.get_mut(*self.places.get(key)?)?;
        let change = peer.note(now, event);
        Some((peer, change))
    }
}

impl Peer {
    fn new(now: Instant, config: &PeerConfig, leases: &LeaseTable, ipv6: bool) -> Self {
        let mut lease = leases.get(&config.public_key);
        if let Some(lease) = &mut lease {
            lease.v6 = lease.v6.filter(|_| ipv6);
        }
        let refusal = leases.refusal(&config.public_key);
        Self {
            config: config.clone(),
            lease,
            state: TunnelState::Idle,
            since: now,
            reason: Some(refusal.map_or_else(
                || "not seen since the proxy's start".to_owned(),
                |error| format!("refused: {error}"),
            )),
            keys_since: now,
            session_since: now,
            seen: None,
            scheduling: None,
            up: BTreeSet::new(),
        }
    }

    /// What the endpoint is told of it.
    #[must_use]
    pub fn for_core(&self, config: &Config) -> CorePeer {
        core::peer(&self.config, self.lease, &config.pools, config.client_to_client)
    }

    /// Its inner addresses.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        let v6 = self.lease.and_then(|lease| lease.v6).map(IpAddr::V6);
        self.lease.map(|lease| IpAddr::V4(lease.v4)).into_iter().chain(v6)
    }

    fn note(&mut self, now: Instant, event: &Event) -> RouteChange {
        match event {
            Event::SessionEstablished(_) => {
                (self.keys_since, self.session_since) = (now, now);
                self.up.clear();
                self.turn(now, TunnelState::Stalled, Some("no link has joined yet".to_owned()));
            }
            Event::LinkUp(link) => {
                self.up.insert(*link);
                self.turn(now, TunnelState::Up, None);
            }
            Event::LinkDown(link, reason) => {
                self.up.remove(link);
                if self.up.is_empty() {
                    let why = format!("the last link is down: {}", down_reason(*reason));
                    self.turn(now, TunnelState::Stalled, Some(why));
                }
            }
            Event::InnerMtu(mtu) => return RouteChange::Route(*mtu),
            Event::Rekeyed(_) => self.keys_since = now,
            // The newer session is told of next; the routes stay.
            Event::SessionEnded(EndReason::Replaced) => {}
            Event::SessionEnded(reason) => {
                self.up.clear();
                self.seen = Some(match reason {
                    EndReason::Idle => {
                        let ago = u64::try_from(IDLE_LIFETIME.as_nanos()).unwrap_or(u64::MAX);
                        Instant::from_nanos(now.as_nanos().saturating_sub(ago))
                    }
                    _ => now,
                });
                let state = match reason {
                    EndReason::Idle => TunnelState::Idle,
                    _ => TunnelState::Closed,
                };
                self.turn(now, state, Some(end_reason(*reason).to_owned()));
                return RouteChange::Remove;
            }
            Event::PathMoved(..) | Event::PacketsMoved(_) | Event::Moving | Event::SpeedTest => {}
            // These are a client's, or end in a tunnel's owner.
            Event::Closed(_)
            | Event::Refused(_)
            | Event::Displaced(_)
            | Event::OtherVersions(_)
            | Event::Fleet(_)
            | Event::SpeedWish => {}
        }
        RouteChange::Keep
    }

    fn turn(&mut self, now: Instant, state: TunnelState, reason: Option<String>) {
        if self.state != state {
            (self.state, self.since) = (state, now);
        }
        self.reason = reason;
    }
}

/// Why a link carries nothing, for people.
#[must_use]
pub fn down_reason(reason: DownReason) -> &'static str {
    match reason {
        DownReason::NoAnswer => "nothing is confirmed any more",
        DownReason::Left => "the client took it out",
        DownReason::Removed => "taken out",
    }
}

/// Why a session is over, for people.
#[must_use]
pub fn end_reason(reason: EndReason) -> &'static str {
    match reason {
        EndReason::Closed(CloseReason::Shutdown) => "the client was stopped",
        EndReason::Closed(CloseReason::Replaced) => "the client began another session",
        EndReason::Closed(CloseReason::Removed | CloseReason::Other(_)) => "the client closed it",
        EndReason::Replaced => "replaced by a newer session of the same key",
        EndReason::Elsewhere => "replaced by a newer session with another proxy of the fleet",
        EndReason::Idle => "nothing was heard of the client for half an hour",
        EndReason::Withdrawn => "the peer was changed",
        EndReason::Removed => "the peer was removed",
        EndReason::Stopped => "the proxy stops",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrayvec::ArrayVec;
    use ropewalk_proto::crypto::Cipher;
    use ropewalk_proto::event::SessionInfo;
    use ropewalk_proto::units::SessionIndex;

    use crate::pool::Pools;

    #[test]
    fn the_state_of_a_peer_follows_its_events() {
        let (mut book, key) = book("10.9.0.0/24", true);
        let established = Event::SessionEstablished(SessionInfo {
            own: ArrayVec::new(),
            peer: ArrayVec::new(),
            cipher: Cipher::Aes256Gcm,
            index: SessionIndex::new(7),
            links: Some(2),
            name_servers: ArrayVec::new(),
        });
        let (a, b) = (LinkId(1), LinkId(2));
        let ended = |reason| Event::SessionEnded(reason);
        let table = [
            (established.clone(), TunnelState::Stalled, RouteChange::Keep),
            (Event::LinkUp(a), TunnelState::Up, RouteChange::Keep),
            (Event::InnerMtu(1400), TunnelState::Up, RouteChange::Route(1400)),
            (Event::LinkUp(b), TunnelState::Up, RouteChange::Keep),
            (Event::LinkDown(a, DownReason::NoAnswer), TunnelState::Up, RouteChange::Keep),
            (Event::LinkDown(b, DownReason::Left), TunnelState::Stalled, RouteChange::Keep),
            (Event::LinkUp(b), TunnelState::Up, RouteChange::Keep),
            (ended(EndReason::Replaced), TunnelState::Up, RouteChange::Keep),
            (established.clone(), TunnelState::Stalled, RouteChange::Keep),
            // Link 2 of the old session says nothing of the new one.
            (Event::LinkUp(a), TunnelState::Up, RouteChange::Keep),
            (Event::LinkDown(a, DownReason::NoAnswer), TunnelState::Stalled, RouteChange::Keep),
            (
                ended(EndReason::Closed(CloseReason::Shutdown)),
                TunnelState::Closed,
                RouteChange::Remove,
            ),
            (established, TunnelState::Stalled, RouteChange::Keep),
            (ended(EndReason::Idle), TunnelState::Idle, RouteChange::Remove),
        ];
        for (step, (event, state, change)) in (1..).zip(table) {
            let now = Instant::from_millis(1000 * step);
            let before = book.peers[0].state;
            let (peer, found) = book.note(now, &key, &event).unwrap();
            assert_eq!((peer.state, found), (state, change), "step {step}: {event:?}");
            assert_eq!(peer.since == now, before != state, "step {step}: {event:?}");
        }
        assert!(
            book.note(Instant::ZERO, &PublicKey::from_bytes([9; 32]), &Event::LinkUp(a)).is_none()
        );
    }

    #[test]
    fn a_peer_is_found_by_its_name_or_as_the_only_one() {
        let (mut book, key) = book("10.9.0.0/24", true);
        assert_eq!(book.named("peer 2").unwrap().config.name, "peer 2");
        for (name, help) in
            [("pear 2", "did you mean `peer 2`?"), ("x\n", "`ropewalk status` lists")]
        {
            let error = book.named(name).unwrap_err();
            assert_eq!(error.code, ErrorCode::NotFound);
            assert!(error.message.contains(help) && !error.message.contains('\n'), "{error}");
        }
        let error = book.only().unwrap_err();
        assert!(error.message.contains("2 peers: say which"), "{error}");
        book.note(Instant::ZERO, &key, &Event::LinkUp(LinkId(1)));
        assert_eq!(book.only().unwrap().config.name, "peer 1");
        book.peers.pop();
        book.peers[0].state = TunnelState::Idle;
        assert_eq!(book.only().unwrap().config.name, "peer 1");
    }

    #[test]
    fn a_client_is_found_by_its_key_after_others_came_and_went_and_got_new_keys() {
        let (mut book, first) = book("10.9.0.0/24", true);
        let key = |number: u8| PublicKey::from_bytes([number; 32]);
        let client = |number: u8, name: &str| PeerConfig {
            name: name.to_owned(),
            public_key: key(number),
            preshared_key: None,
            address_v4: None,
            address_v6: None,
            formerly: None,
        };
        let (now, leases) = (Instant::ZERO, LeaseTable::default());
        let name = |book: &PeerBook, key| book.get(&key).map(|peer| peer.config.name.clone());
        let come = [client(50, "c50"), client(51, "c51")];
        assert_eq!(book.change(now, &BTreeSet::new(), &come, &leases), [key(50), key(51)]);
        assert!(book.change(now, &BTreeSet::new(), &come, &leases).is_empty(), "nothing is new");
        // A new key under the same name takes its place.
        book.admit(now, &client(60, "c50"), &leases);
        assert_eq!((name(&book, key(50)), name(&book, key(60))), (None, Some("c50".to_owned())));
        book.admit(now, &client(61, "c61"), &leases);
        book.change(now, &BTreeSet::from([first]), &[], &leases);
        assert_eq!(name(&book, first), None);
        for (number, expected) in [(51, "c51"), (60, "c50"), (61, "c61")] {
            assert_eq!(name(&book, key(number)).as_deref(), Some(expected));
        }
        assert_eq!(book.iter().count(), 4, "peer 2 and three more");
    }

    #[test]
    fn ipv6_is_handed_out_only_when_it_can_leave() {
        let (book, _) = book("10.9.0.0/24", false);
        let addresses = |book: &PeerBook| book.peers[0].addresses().count();
        assert_eq!(addresses(&book), 1);
        let (mut later, _) = self::book("10.9.0.0/24", false);
        later.hand_out_ipv6(leases("10.9.0.0/24").table());
        assert_eq!(addresses(&later), 2);
    }

    #[test]
    fn those_that_stay_are_as_they_were_and_those_that_go_are_gone() {
        let (mut book, key) = book("10.9.0.0/24", true);
        book.note(Instant::ZERO, &key, &Event::LinkUp(LinkId(1)));
        let mut renamed = configs().remove(0);
        renamed.name = "another name".to_owned();
        let freed =
            book.take_over(Instant::from_millis(5), &[renamed], leases("10.9.0.0/24").table());
        assert_eq!(freed, [] as [IpAddr; 0]);
        let peer = book.only().unwrap();
        assert_eq!((peer.state, peer.config.name.as_str()), (TunnelState::Up, "another name"));
        assert_eq!(book.iter().count(), 1);
        let back =
            book.take_over(Instant::from_millis(9), &configs(), leases("10.9.0.0/24").table());
        assert_eq!((back.len(), book.named("peer 2").unwrap().state), (0, TunnelState::Idle));
        assert_eq!(book.named("peer 1").unwrap().state, TunnelState::Up);
        let moved =
            book.take_over(Instant::from_millis(9), &configs(), leases("10.8.0.0/24").table());
        assert_eq!(moved.len(), 4, "two addresses of each: {moved:?}");
    }

    #[test]
    fn a_peer_without_a_lease_says_why_and_the_others_do_not() {
        let (book, _) = book("10.9.0.0/30", true);
        assert_eq!(book.peers[0].addresses().count(), 2);
        assert_eq!(book.peers[1].addresses().count(), 0);
        let reason = book.peers[1].reason.clone().unwrap();
        assert!(reason.contains("refused: the pool 10.9.0.0/30 is exhausted"), "{reason}");
        assert!(!book.peers[0].reason.as_ref().unwrap().contains("refused"));
    }

    fn book(pool: &str, ipv6: bool) -> (PeerBook, PublicKey) {
        let book = PeerBook::new(Instant::ZERO, &configs(), leases(pool).table(), ipv6);
        (book, PublicKey::from_bytes([1; 32]))
    }

    fn leases(pool: &str) -> crate::leases::Leases {
        let folder = tempfile::tempdir().unwrap();
        let pools = Pools::new(pool.parse().unwrap(), Some("fd00:9::/64".parse().unwrap()));
        crate::leases::Leases::open(folder.path().join("leases.json"), pools, &configs(), false)
            .unwrap()
    }

    fn configs() -> Vec<PeerConfig> {
        let peer = |n: u8| PeerConfig {
            name: format!("peer {n}"),
            public_key: PublicKey::from_bytes([n; 32]),
            preshared_key: None,
            address_v4: None,
            address_v6: None,
            formerly: None,
        };
        vec![peer(1), peer(2)]
    }
}
