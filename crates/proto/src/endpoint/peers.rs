//! The clients that may have a session, by public key, and whose each inner address is.

use std::net::IpAddr;
use std::sync::Arc;

use arrayvec::ArrayVec;
use ipnet::{Ipv4Net, Ipv6Net};

use ropewalk_settings::{PresharedKey, PublicKey, Scheduling};

use super::Totals;
use super::speed::SpeedAccount;
use super::table::Table;
use crate::crypto::freshness::{FreshnessRecord, Timestamp};
use crate::time::{Duration, Instant};
use crate::tunnel::{InnerFilter, SpeedUse};
use crate::units::SessionIndex;

/// What the proxy's owner says of a client.
#[derive(Clone, Debug)]
pub struct PeerConfig {
    /// For people. Whoever keeps this client, too, shares the text.
    pub name: Arc<str>,
    /// What it and the proxy share beside, or [`PresharedKey::NONE`].
    pub psk: PresharedKey,
    /// Its inner IPv4 address, and the prefix of the tunnel's network.
    pub inner_v4: Option<Ipv4Net>,
    /// Its inner IPv6 address, and the prefix of the tunnel's network.
    pub inner_v6: Option<Ipv6Net>,
    /// What it may send.
    pub filter: InnerFilter,
    /// Whether it gets a session; if not, it is told so.
    pub enabled: bool,
}

impl PeerConfig {
    fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        let v4 = self.inner_v4.map(|net| IpAddr::V4(net.addr()));
        v4.into_iter().chain(self.inner_v6.map(|net| IpAddr::V6(net.addr())))
    }

    /// Whether a session made under one could go on under the other.
    fn is_same(&self, other: &Self) -> bool {
        self.psk == other.psk
            && (self.inner_v4, self.inner_v6) == (other.inner_v4, other.inner_v6)
            && self.filter == other.filter
            && self.enabled == other.enabled
    }
}

/// Why a peer cannot be set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AddPeerError {
    /// Two clients would have the same inner address.
    #[error("another client has the inner address {0}")]
    AddressTaken(IpAddr),
}

/// Pending sessions of one client. A client has two questions open at most, and may take either answer.
const MAX_PENDING: usize = 2;

/// What is known of a client.
pub(super) struct Peer {
    pub(super) config: PeerConfig,
    pub(super) freshness: FreshnessRecord,
    /// Granted, but not used yet; oldest first.
    pub(super) pending: ArrayVec<SessionIndex, MAX_PENDING>,
    /// In use.
    pub(super) session: Option<SessionIndex>,
    /// Sessions so far.
    pub(super) sessions: u64,
    /// How this end sends to it, if otherwise than to all.
    pub(super) scheduling: Option<Box<Scheduling>>,
    /// Sum over the sessions that are over; none is yet. Most of many clients are idle: they are kept small.
    pub(super) totals: Option<Box<Totals>>,
    /// When a first message of it was last spared the limit on decryptions.
    spared_at: Option<Instant>,
    /// What it used of an hour's speed tests, if it ever tested.
    speed: Option<Box<SpeedAccount>>,
}

/// A client asks once a second at most, whatever it hears (PROTOCOL §6.6): more is not spared.
const SPARED_EVERY: Duration = Duration::from_secs(1);

impl Peer {
    /// Another session is granted. Returns the one that has to go for it.
    pub(super) fn grant(&mut self, index: SessionIndex) -> Option<SessionIndex> {
        let oldest = self.pending.is_full().then(|| self.pending.remove(0));
        self.pending.push(index);
        oldest
    }

    /// Whether a first message that brought it a session is spared the limit on decryptions.
    pub(super) fn is_spared(&mut self, now: Instant) -> bool {
        let spared = self.spared_at.is_none_or(|at| now.since(at) >= SPARED_EVERY);
        if spared {
            self.spared_at = Some(now);
        }
        spared
    }

    /// It used so much for speed tests.
    pub(super) fn note_speed_use(&mut self, now: Instant, used: SpeedUse) {
        if used != SpeedUse::default() {
            self.speed_account(now).add(now, used);
        }
    }

    /// What it has had of an hour's speed tests.
    pub(super) fn speed_account(&mut self, now: Instant) -> &mut SpeedAccount {
        self.speed.get_or_insert_with(|| Box::new(SpeedAccount::new(now)))
    }

    /// How many sessions it has.
    pub(super) fn count(&self) -> usize {
        self.pending.len() + usize::from(self.session.is_some())
    }

    /// Whether it never had a session, nor has one that waits to be used.
    pub(super) fn is_unused(&self) -> bool {
        self.sessions == 0 && self.count() == 0
    }

    /// It has this session no more.
    pub(super) fn detach(&mut self, index: SessionIndex) {
        self.session.take_if(|present| *present == index);
        self.pending.retain(|present| *present != index);
    }
}

/// All clients.
#[derive(Default)]
pub(super) struct PeerTable {
    peers: Table<PublicKey, Peer>,
    owners: Table<IpAddr, PublicKey>,
}

impl PeerTable {
    /// Adds or changes a peer; one that is added is known since `now`. Returns whether its session must end.
    pub(super) fn set(
        &mut self,
        key: PublicKey,
        config: PeerConfig,
        now: Timestamp,
    ) -> Result<bool, AddPeerError> {
        let taken = |address: &IpAddr| self.owners.get(address).is_some_and(|owner| *owner != key);
        if let Some(address) = config.addresses().find(taken) {
            return Err(AddPeerError::AddressTaken(address));
        }
        self.free_addresses(&key);
        self.owners.extend(config.addresses().map(|address| (address, key)));
        if let Some(peer) = self.peers.get_mut(&key) {
            let changed = !peer.config.is_same(&config);
            peer.config = config;
            return Ok(changed);
        }
        let peer = Peer {
            config,
            freshness: FreshnessRecord::since(now),
            pending: ArrayVec::new(),
            session: None,
            sessions: 0,
            scheduling: None,
            totals: None,
            spared_at: None,
            speed: None,
        };
        self.peers.insert(key, peer);
        Ok(false)
    }

    pub(super) fn remove(&mut self, key: &PublicKey) {
        self.free_addresses(key);
        self.peers.remove(key);
    }

    /// The addresses that it has may be another's.
    fn free_addresses(&mut self, key: &PublicKey) {
        let Some(peer) = self.peers.get(key) else { return };
        for address in peer.config.addresses() {
            self.owners.remove(&address);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }

    pub(super) fn contains(&self, key: &PublicKey) -> bool {
        self.peers.contains_key(key)
    }

    pub(super) fn get(&self, key: &PublicKey) -> Option<&Peer> {
        self.peers.get(key)
    }

    pub(super) fn get_mut(&mut self, key: &PublicKey) -> Option<&mut Peer> {
        self.peers.get_mut(key)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Peer> {
        self.peers.values_mut()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&PublicKey, &Peer)> {
        self.peers.iter()
    }

    /// The session in use that leads to an inner address.
    pub(super) fn session_for(&self, destination: IpAddr) -> Option<SessionIndex> {
        self.peers.get(self.owners.get(&destination)?)?.session
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_unix(Duration::from_secs(1_800_000_000));

    fn config(v4: &str) -> PeerConfig {
        PeerConfig {
            name: "".into(),
            psk: PresharedKey::NONE,
            inner_v4: Some(v4.parse().unwrap()),
            inner_v6: None,
            filter: InnerFilter::default(),
            enabled: true,
        }
    }

    #[test]
    fn an_inner_address_belongs_to_one_client() {
        let mut peers = PeerTable::default();
        let (a, b) = (PublicKey::from_bytes([1; 32]), PublicKey::from_bytes([2; 32]));
        assert_eq!(peers.set(a, config("10.0.0.2/24"), NOW), Ok(false));
        let taken = AddPeerError::AddressTaken("10.0.0.2".parse().unwrap());
        assert_eq!(peers.set(b, config("10.0.0.2/24"), NOW), Err(taken));
        assert!(!peers.contains(&b));
        assert_eq!(peers.set(a, config("10.0.0.3/24"), NOW), Ok(true));
        assert_eq!(peers.set(b, config("10.0.0.2/24"), NOW), Ok(false));
        peers.remove(&a);
        assert_eq!(peers.set(b, config("10.0.0.3/24"), NOW), Ok(true));
    }

    #[test]
    fn another_name_keeps_the_session() {
        let mut peers = PeerTable::default();
        let key = PublicKey::from_bytes([1; 32]);
        assert_eq!(peers.set(key, config("10.0.0.2/24"), NOW), Ok(false));
        let renamed = PeerConfig { name: "lisa".into(), ..config("10.0.0.2/24") };
        assert_eq!(peers.set(key, renamed.clone(), NOW), Ok(false));
        assert_eq!(peers.set(key, PeerConfig { enabled: false, ..renamed }, NOW), Ok(true));
    }
}
