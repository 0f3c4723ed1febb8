//! The clients of the config, with what the core does not keep: their leases, and how long and why each is
//! in its present state.
//!
//! | state | means |
//! | --- | --- |
//! | `Idle` | no session: not seen since the start, asleep for too long, or refused |
//! | `Up` | a session with a link that carries packets |
//! | `Stalled` | a session, and no such link |
//! | `Closed` | no session: one of the ends said goodbye |

use std::borrow::Cow;
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
use crate::core::{self, Inside};
use crate::leases::{Lease, LeaseTable};

/// All clients: those of the config in the order of the file, then those that joined.
#[derive(Debug)]
pub struct PeerBook {
    /// `None`: one that is gone. So that nobody is looked for among all, its place is nobody's until all are put together.
    peers: Vec<Option<Peer>>,
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
    pub reason: Option<Cow<'static, str>>,
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

/// Places of clients that are gone that are kept besides as many as there are clients: putting all together takes long.
const GAPS: usize = 1024;

/// Why a disabled client has no session.
const DISABLED: &str = "disabled: `ropewalk peer enable NAME` lets it in again";

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
        let all = Vec::with_capacity(peers.len());
        let mut book = Self { peers: all, places: BTreeMap::new(), ipv6 };
        for config in peers {
            book.push(Peer::new(now, config, leases, ipv6));
        }
        book
    }

    /// A client joined, or has another key: then it keeps its place.
    pub fn admit(&mut self, now: Instant, config: &PeerConfig, leases: &LeaseTable) -> &Peer {
        let peer = Peer::new(now, config, leases, self.ipv6);
        let known = self.places.get(&config.public_key).copied();
        let place = known.or_else(|| self.places.remove(config.formerly.as_deref()?));
        match place {
            Some(place) => {
                self.places.insert(config.public_key, place);
                self.peers[place].insert(peer)
            }
            None => self.push(peer),
        }
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
        gone.iter().for_each(|key| self.remove(key));
        let mut changed = Vec::new();
        for config in come {
            let fresh = Peer::new(now, config, leases, self.ipv6);
            match self.get_mut(&config.public_key) {
                Some(peer) if peer.is_as(&fresh) => continue,
                Some(peer) => peer.update(fresh),
                None => {
                    self.push(fresh);
                }
            }
            changed.push(config.public_key);
        }
        changed
    }

    /// A client gets no session from now on, or is let in again. Returns whether that is new.
    pub fn enable(&mut self, key: &PublicKey, enabled: bool) -> bool {
        let known = self.get_mut(key);
        let Some(peer) = known.filter(|peer| peer.config.disabled == enabled) else { return false };
        peer.config.disabled = !enabled;
        peer.reason = (!enabled).then_some(DISABLED.into());
        true
    }

    /// The client with this key.
    #[must_use]
    pub fn get(&self, key: &PublicKey) -> Option<&Peer> {
        self.peers.get(*self.places.get(key)?)?.as_ref()
    }

    fn get_mut(&mut self, key: &PublicKey) -> Option<&mut Peer> {
        self.peers.get_mut(*self.places.get(key)?)?.as_mut()
    }

    /// A client is none any more.
    pub fn remove(&mut self, key: &PublicKey) {
        let Some(place) = self.places.remove(key) else { return };
        self.peers[place] = None;
        if self.peers.len() > 2 * self.places.len() + GAPS {
            self.peers.retain(Option::is_some);
            let keys = self.peers.iter().flatten().map(|peer| peer.config.public_key);
            self.places = keys.zip(0..).collect();
        }
    }

    /// From now on the clients are these. Those that stay are as they were; returns addresses that were theirs and are
    /// not any more.
    pub fn take_over(
        &mut self,
        now: Instant,
        known: &[PeerConfig],
        leases: &LeaseTable,
    ) -> Vec<IpAddr> {
        let before = std::mem::take(&mut self.peers).into_iter().flatten();
        let mut before: BTreeMap<_, _> =
            before.map(|peer| (peer.config.public_key, peer)).collect();
        self.places.clear();
        let mut freed = Vec::new();
        for config in known {
            let fresh = Peer::new(now, config, leases, self.ipv6);
            let Some(mut peer) = before.remove(&config.public_key) else {
                self.push(fresh);
                continue;
            };
            if peer.lease != fresh.lease {
                freed.extend(peer.addresses());
            }
            peer.update(fresh);
            self.push(peer);
        }
        freed
    }

    /// One more, behind all others.
    fn push(&mut self, peer: Peer) -> &Peer {
        let place = self.peers.len();
        self.places.insert(peer.config.public_key, place);
        self.peers.push(None);
        self.peers[place].insert(peer)
    }

    /// All of them, in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.peers.iter().flatten()
    }

    /// The client of this name.
    ///
    /// # Errors
    /// There is none; what may have been meant.
    pub fn named(&mut self, name: &str) -> Result<&mut Peer, ApiError> {
        let help = match nearest(name, self.iter().map(|peer| &*peer.config.name)) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "`ropewalk status` lists them".to_owned(),
        };
        let mut all = self.peers.iter_mut().flatten();
        all.find(|peer| *peer.config.name == *name).ok_or_else(|| {
            let message = format!("there is no peer `{}`: {help}", name.escape_debug());
            ApiError::new(ErrorCode::NotFound, message)
        })
    }

    /// The only client there is, or the only one with a session.
    ///
    /// # Errors
    /// There are several: one must be named.
    pub fn only(&self) -> Result<&Peer, ApiError> {
        let mut all = self.iter();
        if let (Some(only), None) = (all.next(), all.next()) {
            return Ok(only);
        }
        let connected = |peer: &&Peer| {
            matches!(peer.state, TunnelState::Up | TunnelState::Stalled | TunnelState::Connecting)
        };
        let mut connected = self.iter().filter(connected);
        if let (Some(only), None) = (connected.next(), connected.next()) {
            return Ok(only);
        }
        let message = format!(
            "this proxy has {} peers: say which with --peer NAME (in the API: ?peer=NAME); \
             `ropewalk status` lists them",
            self.places.len()
        );
        Err(ApiError::new(ErrorCode::BadRequest, message))
    }

    /// From now on all are sent to alike.
    pub fn schedule_alike(&mut self) {
        self.peers.iter_mut().flatten().for_each(|peer| peer.scheduling = None);
    }

    /// From now on the clients have IPv6 addresses.
    pub fn hand_out_ipv6(&mut self, leases: &LeaseTable) {
        self.ipv6 = true;
        for peer in self.peers.iter_mut().flatten() {
            peer.lease = leases.get(&peer.config.public_key);
        }
    }

    /// Whether the client has a session.
    #[must_use]
    pub fn is_connected(&self, key: &PublicKey) -> bool {
        let peer = self.get(key);
        peer.is_some_and(|peer| matches!(peer.state, TunnelState::Up | TunnelState::Stalled))
    }

    /// Notes an event of the core; says whose it is and what becomes of the routes.
    pub fn note(
        &mut self,
        now: Instant,
        key: &PublicKey,
        event: &Event,
    ) -> Option<(&Peer, RouteChange)> {
        let peer = self.get_mut(key)?;
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
            reason: Some(match refusal {
                Some(error) => format!("refused: {error}").into(),
                None if config.disabled => DISABLED.into(),
                None => "not seen since the proxy's start".into(),
            }),
            keys_since: now,
            session_since: now,
            seen: None,
            scheduling: None,
            up: BTreeSet::new(),
        }
    }

    /// What the endpoint is told of it.
    #[must_use]
    pub fn for_core(&self, config: &Config, inside: &Inside) -> CorePeer {
        core::peer(&self.config, self.lease, &config.pools, inside)
    }

    /// Whether the registry says the same of both.
    fn is_as(&self, fresh: &Self) -> bool {
        (&self.config.name, self.config.disabled) == (&fresh.config.name, fresh.config.disabled)
            && self.lease == fresh.lease
    }

    /// The file or the registry says this of it from now on.
    fn update(&mut self, fresh: Self) {
        if self.config.disabled != fresh.config.disabled {
            self.reason = fresh.reason.filter(|_| fresh.config.disabled);
        }
        (self.config, self.lease) = (fresh.config, fresh.lease);
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
                self.turn(now, TunnelState::Stalled, Some("no link has joined yet".into()));
            }
            Event::LinkUp(link) => {
                self.up.insert(*link);
                self.turn(now, TunnelState::Up, None);
            }
            Event::LinkDown(link, reason) => {
                self.up.remove(link);
                if self.up.is_empty() {
                    let why = format!("the last link is down: {}", down_reason(*reason));
                    self.turn(now, TunnelState::Stalled, Some(why.into()));
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
                let why = if self.config.disabled { DISABLED } else { end_reason(*reason) };
                self.turn(now, state, Some(why.into()));
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

    fn turn(&mut self, now: Instant, state: TunnelState, reason: Option<Cow<'static, str>>) {
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
    use std::slice;

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
            let before = nth(&book, 0).state;
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
        assert_eq!(&*book.named("peer 2").unwrap().config.name, "peer 2");
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
        assert_eq!(&*book.only().unwrap().config.name, "peer 1");
        book.remove(&PublicKey::from_bytes([2; 32]));
        book.get_mut(&key).unwrap().state = TunnelState::Idle;
        assert_eq!(&*book.only().unwrap().config.name, "peer 1");
    }

    #[test]
    fn a_client_is_found_by_its_key_after_others_came_and_went_and_got_new_keys() {
        let (mut book, first) = book("10.9.0.0/24", true);
        let key = |number: u8| PublicKey::from_bytes([number; 32]);
        let client = |number: u8, name: &str| PeerConfig {
            name: name.into(),
            public_key: key(number),
            preshared_key: None,
            address_v4: None,
            address_v6: None,
            formerly: None,
            disabled: false,
        };
        let (now, leases) = (Instant::ZERO, LeaseTable::default());
        let name = |book: &PeerBook, key| book.get(&key).map(|peer| peer.config.name.to_string());
        let come = [client(50, "c50"), client(51, "c51")];
        assert_eq!(book.change(now, &BTreeSet::new(), &come, &leases), [key(50), key(51)]);
        assert!(book.change(now, &BTreeSet::new(), &come, &leases).is_empty(), "nothing is new");
        // A new key of the same client takes its place; the registry may have told of it before.
        let again = PeerConfig { formerly: Some(Box::new(key(50))), ..client(60, "c50") };
        book.admit(now, &again, &leases);
        book.admit(now, &again, &leases);
        assert_eq!((name(&book, key(50)), name(&book, key(60))), (None, Some("c50".to_owned())));
        book.admit(now, &client(61, "c61"), &leases);
        book.change(now, &BTreeSet::from([first]), &[], &leases);
        assert_eq!(name(&book, first), None);
        for (number, expected) in [(51, "c51"), (60, "c50"), (61, "c61")] {
            assert_eq!(name(&book, key(number)).as_deref(), Some(expected));
        }
        let names: Vec<_> = book.iter().map(|peer| &*peer.config.name).collect();
        assert_eq!(names, ["peer 2", "c50", "c51", "c61"], "in their order");
    }

    #[test]
    fn clients_that_come_and_go_leave_no_places_behind_and_the_others_stay_in_their_order() {
        let (mut book, _) = book("10.9.0.0/24", true);
        let leases = LeaseTable::default();
        let mut gone = BTreeSet::new();
        for number in 0..u16::try_from(3 * GAPS).unwrap() {
            let mut key = [7; 32];
            key[..2].copy_from_slice(&number.to_be_bytes());
            let public_key = PublicKey::from_bytes(key);
            let name = number.to_string().into();
            let come = [PeerConfig { name, public_key, ..configs().remove(0) }];
            assert_eq!(book.change(Instant::ZERO, &gone, &come, &leases), [public_key]);
            gone = BTreeSet::from([public_key]);
            let names: Vec<_> = book.iter().map(|peer| &*peer.config.name).collect();
            assert_eq!(names, ["peer 1", "peer 2", &*number.to_string()]);
            assert!(book.get(&public_key).is_some());
        }
        assert!(book.peers.len() <= GAPS + 6, "{}", book.peers.len());
    }

    #[test]
    fn a_client_that_is_disabled_says_so_with_and_without_a_session() {
        let (mut book, key) = book("10.9.0.0/24", true);
        let reason = |book: &PeerBook| book.get(&key).unwrap().reason.clone().unwrap_or_default();
        assert!(book.enable(&key, false) && !book.enable(&key, false));
        assert!(reason(&book).contains("peer enable"), "{}", reason(&book));
        assert!(book.enable(&key, true) && !reason(&book).contains("peer enable"));
        book.note(Instant::ZERO, &key, &Event::LinkUp(LinkId(1)));
        // As another proxy of the fleet says it.
        let disabled = PeerConfig { disabled: true, ..configs().remove(0) };
        let leases = leases("10.9.0.0/24");
        let changed = book.change(
            Instant::ZERO,
            &BTreeSet::new(),
            slice::from_ref(&disabled),
            leases.table(),
        );
        assert_eq!(changed, [key]);
        let ended = Event::SessionEnded(EndReason::Withdrawn);
        book.note(Instant::ZERO, &key, &ended);
        assert!(reason(&book).contains("peer enable"), "{}", reason(&book));
        let again = book.change(Instant::ZERO, &BTreeSet::new(), &[disabled], leases.table());
        assert!(again.is_empty(), "nothing is new");
    }

    #[test]
    fn ipv6_is_handed_out_only_when_it_can_leave() {
        let (book, _) = book("10.9.0.0/24", false);
        let addresses = |book: &PeerBook| nth(book, 0).addresses().count();
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
        renamed.name = "another name".into();
        let freed =
            book.take_over(Instant::from_millis(5), &[renamed], leases("10.9.0.0/24").table());
        assert_eq!(freed, [] as [IpAddr; 0]);
        let peer = book.only().unwrap();
        assert_eq!((peer.state, &*peer.config.name), (TunnelState::Up, "another name"));
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
        assert_eq!(nth(&book, 0).addresses().count(), 2);
        assert_eq!(nth(&book, 1).addresses().count(), 0);
        let reason = nth(&book, 1).reason.clone().unwrap();
        assert!(reason.contains("refused: the pool 10.9.0.0/30 is exhausted"), "{reason}");
        assert!(!nth(&book, 0).reason.as_ref().unwrap().contains("refused"));
    }

    fn nth(book: &PeerBook, at: usize) -> &Peer {
        book.iter().nth(at).unwrap()
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
            name: format!("peer {n}").into(),
            public_key: PublicKey::from_bytes([n; 32]),
            preshared_key: None,
            address_v4: None,
            address_v6: None,
            formerly: None,
            disabled: false,
        };
        vec![peer(1), peer(2)]
    }
}
