//! The clients that may have a session, by public key, and whose each inner address is.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::{Ipv4Net, Ipv6Net};
use ropewalk_dense::{DenseMap, Index};
use ropewalk_settings::{PresharedKey, PublicKey};

use super::peer::{Peer, Terms};
use crate::crypto::freshness::Timestamp;
use crate::tunnel::InnerFilter;
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
    pub(super) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
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

/// Terms that are known, for the next clients to share: more differ only where clients have addresses of one family, or filters of their own.
const KNOWN_TERMS: usize = 8;

/// All clients.
#[derive(Default)]
pub(super) struct PeerTable {
    peers: DenseMap<PublicKey, Peer>,
    /// Whose each inner address is.
    by_v4: Index,
    by_v6: Index,
    /// What several clients have in common, those of the newest first.
    terms: Vec<Arc<Terms>>,
}

impl PeerTable {
    /// Adds or changes a peer; one that is added is known since `now`. Returns whether its session must end.
    pub(super) fn set(
        &mut self,
        key: PublicKey,
        config: PeerConfig,
        now: Timestamp,
    ) -> Result<bool, AddPeerError> {
        let taken = |address: &IpAddr| {
            let owner = self.place_of(*address).and_then(|place| self.peers.at(place));
            owner.is_some_and(|(owner, _)| *owner != key)
        };
        if let Some(address) = config.addresses().find(taken) {
            return Err(AddPeerError::AddressTaken(address));
        }
        self.free_addresses(&key);
        let terms = self.share(Terms::of(&config));
        let changed = match self.peers.get_mut(&key) {
            Some(peer) => {
                let changed = !peer.config().is_same(&config);
                peer.set(config, terms);
                changed
            }
            None => {
                self.peers.insert(key, Peer::new(config, terms, now));
                false
            }
        };
        self.take_addresses(&key);
        Ok(changed)
    }

    /// These terms, shared with other clients that have the same.
    fn share(&mut self, fresh: Terms) -> Arc<Terms> {
        if !fresh.are_common() {
            return Arc::new(fresh);
        }
        let known = self.terms.iter().position(|terms| **terms == fresh);
        let terms = known.map_or_else(|| Arc::new(fresh), |at| self.terms.remove(at));
        self.terms.truncate(KNOWN_TERMS - 1);
        self.terms.insert(0, Arc::clone(&terms));
        terms
    }

    pub(super) fn remove(&mut self, key: &PublicKey) {
        self.free_addresses(key);
        self.peers.remove(key);
    }

    /// The addresses that it has are its own.
    fn take_addresses(&mut self, key: &PublicKey) {
        let Self { peers, by_v4, by_v6, .. } = self;
        let Some(place) = peers.place(key) else { return };
        if let Some(v4) = v4_at(peers, place) {
            by_v4.insert(&v4, place, |place| v4_at(peers, place));
        }
        if let Some(v6) = v6_at(peers, place) {
            by_v6.insert(&v6, place, |place| v6_at(peers, place));
        }
    }

    /// The addresses that it has may be another's.
    fn free_addresses(&mut self, key: &PublicKey) {
        let Self { peers, by_v4, by_v6, .. } = self;
        let Some(place) = peers.place(key) else { return };
        if let Some(v4) = v4_at(peers, place) {
            by_v4.remove(&v4, |owner| owner == place);
        }
        if let Some(v6) = v6_at(peers, place) {
            by_v6.remove(&v6, |owner| owner == place);
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
        self.peers.iter_mut().map(|(_, peer)| peer)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&PublicKey, &Peer)> {
        self.peers.iter()
    }

    /// The session in use that leads to an inner address.
    pub(super) fn session_for(&self, destination: IpAddr) -> Option<SessionIndex> {
        let (_, peer) = self.peers.at(self.place_of(destination)?)?;
        peer.session()
    }

    /// Where the client with an inner address stands.
    fn place_of(&self, address: IpAddr) -> Option<u32> {
        match address {
            IpAddr::V4(v4) => {
                let v4 = u32::from(v4);
                self.by_v4.find(&v4, |place| v4_at(&self.peers, place) == Some(v4))
            }
            IpAddr::V6(v6) => {
                let v6 = u128::from(v6);
                self.by_v6.find(&v6, |place| v6_at(&self.peers, place) == Some(v6))
            }
        }
    }
}

/// The inner IPv4 address of the client at a place.
fn v4_at(peers: &DenseMap<PublicKey, Peer>, place: u32) -> Option<u32> {
    let (_, peer) = peers.at(place)?;
    peer.v4().map(u32::from)
}

/// The inner IPv6 address of the client at a place.
fn v6_at(peers: &DenseMap<PublicKey, Peer>, place: u32) -> Option<u128> {
    let (_, peer) = peers.at(place)?;
    peer.v6().map(u128::from)
}

#[cfg(test)]
mod tests {
    use ipnet::IpNet;

    use super::*;
    use crate::time::Duration;

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

    #[test]
    fn what_the_owner_says_of_a_client_is_kept_whatever_others_have_in_common() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let filter = InnerFilter {
            sources: [address("10.0.0.2"), address("fd00::2")].into(),
            refused: ["10.0.0.0/24".parse::<IpNet>().unwrap()].into(),
            ..InnerFilter::default()
        };
        let inner_v6 = Some("fd00::2/64".parse().unwrap());
        let both = PeerConfig { inner_v6, filter, ..config("10.0.0.2/24") };
        let table = [
            both.clone(),
            PeerConfig { name: "lisa".into(), ..both.clone() },
            PeerConfig { enabled: false, ..both.clone() },
            PeerConfig { psk: PresharedKey::from_bytes([7; 32]), ..both.clone() },
            PeerConfig { inner_v4: None, ..both.clone() },
            PeerConfig { inner_v6: None, ..both.clone() },
            PeerConfig { inner_v4: None, inner_v6: None, ..both.clone() },
            PeerConfig { filter: InnerFilter::default(), ..both.clone() },
            PeerConfig { inner_v4: Some("10.0.0.2/16".parse().unwrap()), ..both },
        ];
        let mut peers = PeerTable::default();
        let key = PublicKey::from_bytes([1; 32]);
        for (round, said) in (0..).zip(table.iter().cycle().take(3 * table.len())) {
            peers.set(key, said.clone(), NOW).unwrap();
            let kept = peers.get(&key).unwrap().config();
            assert!(kept.is_same(said) && kept.name == said.name, "{round}: {kept:?}");
            assert!(peers.terms.len() <= KNOWN_TERMS);
            let is_found = |text: &str| peers.place_of(address(text)).is_some();
            let expected = (said.inner_v4.is_some(), said.inner_v6.is_some());
            assert_eq!((is_found("10.0.0.2"), is_found("fd00::2")), expected, "{round}");
        }
    }

    #[test]
    fn a_client_that_was_never_here_takes_104_bytes_and_shares_the_rest() {
        assert!(size_of::<Option<(PublicKey, Peer)>>() <= 104);
        let mut peers = PeerTable::default();
        for number in 1..=1000_u16 {
            let [high, low] = number.to_be_bytes();
            let mut key = [9; 32];
            key[..2].copy_from_slice(&[high, low]);
            let own = format!("10.1.{high}.{low}");
            let sources = [own.parse().unwrap()].into_iter().collect();
            let filter = InnerFilter { sources, ..InnerFilter::default() };
            let config = PeerConfig { filter, ..config(&format!("{own}/16")) };
            peers.set(PublicKey::from_bytes(key), config, NOW).unwrap();
        }
        assert_eq!((peers.terms.len(), Arc::strong_count(&peers.terms[0])), (1, 1001));
    }
}
