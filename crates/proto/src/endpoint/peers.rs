//! The clients that may have a session, by public key, and whose each inner address is.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
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
    /// The networks behind two clients would have addresses in common.
    #[error("the network {0} overlaps that of another client")]
    NetworkTaken(Ipv6Net),
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
    /// The networks behind clients, by their first addresses, and where the client of each stands. Few have one.
    networks: BTreeMap<Ipv6Addr, (Ipv6Net, u32)>,
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
        if let Some((error, _)) = self.taken(&key, &config) {
            return Err(error);
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
        if self.peers.compact() {
            self.find_all_again();
            return;
        }
        // Nobody moved, though the last ones may be gone.
        let Self { peers, by_v4, by_v6, .. } = self;
        by_v4.shrink(|place| v4_at(peers, place));
        by_v6.shrink(|place| v6_at(peers, place));
    }

    /// Clients stand at other places: addresses, and those of the networks behind them, lead there from now on.
    fn find_all_again(&mut self) {
        (self.by_v4, self.by_v6) = (Index::default(), Index::default());
        self.networks.clear();
        let keys: Vec<_> = self.peers.keys().copied().collect();
        keys.iter().for_each(|key| self.take_addresses(key));
    }

    /// The addresses that it has are its own, and those of the network behind it.
    fn take_addresses(&mut self, key: &PublicKey) {
        let Self { peers, by_v4, by_v6, networks, .. } = self;
        let Some(place) = peers.place(key) else { return };
        if let Some(v4) = v4_at(peers, place) {
            by_v4.insert(&v4, place, |place| v4_at(peers, place));
        }
        if let Some(v6) = v6_at(peers, place) {
            by_v6.insert(&v6, place, |place| v6_at(peers, place));
        }
        if let Some(network) = network_at(peers, place) {
            networks.insert(network.network(), (network, place));
        }
    }

    /// The addresses that it has may be another's, and those of the network behind it.
    fn free_addresses(&mut self, key: &PublicKey) {
        let Self { peers, by_v4, by_v6, networks, .. } = self;
        let Some(place) = peers.place(key) else { return };
        if let Some(v4) = v4_at(peers, place) {
            by_v4.remove(&v4, |owner| owner == place);
        }
        if let Some(v6) = v6_at(peers, place) {
            by_v6.remove(&v6, |owner| owner == place);
        }
        if let Some(network) = network_at(peers, place) {
            networks.remove(&network.network());
        }
    }

    /// What another client has of what this one is to have, and which client that is.
    fn taken(&self, key: &PublicKey, config: &PeerConfig) -> Option<(AddPeerError, PublicKey)> {
        let own = self.peers.place(key);
        let another = |place: u32| {
            let (owner, _) = self.peers.at(place).filter(|_| Some(place) != own)?;
            Some(*owner)
        };
        let address = config.addresses().find_map(|address| {
            let owner = another(self.place_of(address)?)?;
            Some((AddPeerError::AddressTaken(address), owner))
        });
        address.or_else(|| {
            let network = config.filter.network?;
            let owner = self.overlapping(network).find_map(another)?;
            Some((AddPeerError::NetworkTaken(network), owner))
        })
    }

    /// Another client that has something of what this one is to have loses all of its addresses, and the network behind it: it is refused
    /// until it is set again. Returns which client that is, if there is one.
    pub(super) fn take_from_another(
        &mut self,
        key: &PublicKey,
        config: &PeerConfig,
    ) -> Option<PublicKey> {
        let (_, owner) = self.taken(key, config)?;
        self.free_addresses(&owner);
        let before = self.peers.get(&owner)?.config();
        let filter = InnerFilter::default();
        let without = PeerConfig { inner_v4: None, inner_v6: None, filter, ..before };
        let terms = self.share(Terms::of(&without));
        self.peers.get_mut(&owner)?.set(without, terms);
        Some(owner)
    }

    /// Where the clients stand behind which a network has addresses. The networks that are known have none in common.
    fn overlapping(&self, network: Ipv6Net) -> impl Iterator<Item = u32> {
        let within = self.networks.range(network.network()..=network.broadcast());
        let around = self.networks.range(..network.network()).next_back();
        let around = around.filter(|(_, (known, _))| known.contains(&network.network()));
        within.chain(around).map(|(_, (_, place))| *place)
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

    /// The session in use that leads to an inner address, or to one behind a client.
    pub(super) fn session_for(&self, destination: IpAddr) -> Option<SessionIndex> {
        let place = self.place_of(destination).or_else(|| self.behind(destination));
        let (_, peer) = self.peers.at(place?)?;
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

    /// Where the client stands in whose network an address lies.
    fn behind(&self, address: IpAddr) -> Option<u32> {
        let IpAddr::V6(address) = address else { return None };
        let (_, (network, place)) = self.networks.range(..=address).next_back()?;
        network.contains(&address).then_some(*place)
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

/// The network behind the client at a place.
fn network_at(peers: &DenseMap<PublicKey, Peer>, place: u32) -> Option<Ipv6Net> {
    let (_, peer) = peers.at(place)?;
    peer.network()
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
    fn a_network_is_behind_one_client_and_each_of_its_addresses_leads_there() {
        let mut peers = PeerTable::default();
        let (a, b) = (PublicKey::from_bytes([1; 32]), PublicKey::from_bytes([2; 32]));
        let with = |v4: &str, network: &str| {
            let network = Some(network.parse().unwrap());
            PeerConfig { filter: InnerFilter { network, ..InnerFilter::default() }, ..config(v4) }
        };
        assert_eq!(peers.set(a, with("10.0.0.2/24", "2001:db8:7:100::/56"), NOW), Ok(false));
        for taken in ["2001:db8:7::/48", "2001:db8:7:100::/56", "2001:db8:7:1ff::/64"] {
            let error = AddPeerError::NetworkTaken(taken.parse().unwrap());
            assert_eq!(peers.set(b, with("10.0.0.3/24", taken), NOW), Err(error), "{taken}");
        }
        assert_eq!(peers.set(b, with("10.0.0.3/24", "2001:db8:7:200::/64"), NOW), Ok(false));
        let owner = |peers: &PeerTable, address: &str| {
            let place = peers.behind(address.parse().unwrap())?;
            peers.peers.at(place).map(|(key, _)| *key)
        };
        for (address, expected) in [
            ("2001:db8:7:100::", Some(a)),
            ("2001:db8:7:1ff:ffff:ffff:ffff:ffff", Some(a)),
            ("2001:db8:7:200::5", Some(b)),
            ("2001:db8:7:201::", None),
            ("2001:db8:7:ff::1", None),
            ("::1", None),
            ("10.0.0.2", None),
        ] {
            assert_eq!(owner(&peers, address), expected, "{address}");
        }
        // Another one of its own, also one around the old one, is no other client's.
        assert_eq!(peers.set(a, with("10.0.0.2/24", "2001:db8:7:100::/64"), NOW), Ok(true));
        assert_eq!(owner(&peers, "2001:db8:7:1ff::1"), None);
        assert_eq!(peers.set(a, with("10.0.0.2/24", "2001:db8:7:100::/56"), NOW), Ok(true));
        peers.remove(&a);
        assert_eq!(owner(&peers, "2001:db8:7:100::"), None);
        assert_eq!(peers.set(b, with("10.0.0.3/24", "2001:db8:7::/48"), NOW), Ok(true));
    }

    #[test]
    fn what_one_client_is_to_have_is_taken_from_another_with_all_that_it_has() {
        let key = |number: u8| PublicKey::from_bytes([number; 32]);
        let with = |v4: &str, network: &str| {
            let network = Some(network.parse().unwrap());
            PeerConfig { filter: InnerFilter { network, ..InnerFilter::default() }, ..config(v4) }
        };
        let (one, two) = ("2001:db8:7:100::/56", "2001:db8:7:200::/56");
        let mut peers = PeerTable::default();
        peers.set(key(1), with("10.0.0.2/24", one), NOW).unwrap();
        peers.set(key(2), with("10.0.0.3/24", two), NOW).unwrap();
        peers.set(key(3), config("10.0.0.4/24"), NOW).unwrap();
        for own in [with("10.0.0.2/24", one), config("10.0.0.9/24")] {
            assert_eq!(peers.take_from_another(&key(1), &own), None);
        }
        // The address of the one, and the network behind the other.
        let wish = with("10.0.0.4/24", two);
        assert_eq!(peers.take_from_another(&key(1), &wish), Some(key(3)));
        assert_eq!(peers.take_from_another(&key(1), &wish), Some(key(2)));
        assert_eq!(peers.take_from_another(&key(1), &wish), None);
        assert_eq!(peers.set(key(1), wish, NOW), Ok(true));
        let left = peers.get(&key(2)).unwrap().config();
        assert_eq!((left.inner_v4, left.filter.network), (None, None));
        let place = |address: &str| peers.place_of(address.parse().unwrap());
        assert_eq!((place("10.0.0.2"), place("10.0.0.3")), (None, None));
        assert_eq!(place("10.0.0.4"), peers.peers.place(&key(1)));
        assert_eq!(peers.set(key(2), with("10.0.0.2/24", one), NOW), Ok(true));
        assert_eq!(peers.behind("2001:db8:7:1ff::1".parse().unwrap()), peers.peers.place(&key(2)));
        assert_eq!(peers.behind("2001:db8:7:2ff::1".parse().unwrap()), peers.peers.place(&key(1)));
    }

    #[test]
    fn addresses_lead_to_the_clients_that_are_left_when_the_memory_of_most_is_given_back() {
        let key = |number: u16| {
            let [high, low] = number.to_be_bytes();
            let mut key = [9; 32];
            key[..2].copy_from_slice(&[high, low]);
            PublicKey::from_bytes(key)
        };
        let stays = |number: u16| number % 100 == 99;
        let mut peers = PeerTable::default();
        for number in 0..2000_u16 {
            let [high, low] = number.to_be_bytes();
            let inner_v6 = Some(format!("fd00::{number:x}/64").parse().unwrap());
            let network = Some(format!("2001:db8:{number:x}::/64").parse().unwrap());
            let filter = InnerFilter { network, ..InnerFilter::default() };
            let both = PeerConfig { inner_v6, filter, ..config(&format!("10.1.{high}.{low}/16")) };
            assert_eq!(peers.set(key(number), both, NOW), Ok(false));
        }
        for number in (0..2000).filter(|number| !stays(*number)) {
            peers.remove(&key(number));
        }
        assert!(peers.peers.capacity() < 500, "{}", peers.peers.capacity());
        for number in 0..2000_u16 {
            let [high, low] = number.to_be_bytes();
            let address = |text: String| text.parse::<IpAddr>().unwrap();
            let (v4, v6) = (format!("10.1.{high}.{low}"), format!("fd00::{number:x}"));
            let places = [
                peers.place_of(address(v4)),
                peers.place_of(address(v6)),
                peers.behind(address(format!("2001:db8:{number:x}::7"))),
            ];
            let owners = places.map(|place| peers.peers.at(place?).map(|(key, _)| *key));
            assert_eq!(owners, [stays(number).then(|| key(number)); 3], "{number}");
        }
        assert_eq!((peers.by_v4.len(), peers.by_v6.len(), peers.networks.len()), (20, 20, 20));
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
        let network = Some("2001:db8:7::/56".parse().unwrap());
        let behind = InnerFilter { network, ..filter.clone() };
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
            PeerConfig { filter: behind, ..both.clone() },
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
        // The network behind one of them is shared with nobody.
        let network = Some("2001:db8:7::/56".parse().unwrap());
        let filter = InnerFilter { network, ..InnerFilter::default() };
        let own = PeerConfig { filter, ..config("10.2.0.1/16") };
        peers.set(PublicKey::from_bytes([8; 32]), own, NOW).unwrap();
        assert_eq!((peers.terms.len(), Arc::strong_count(&peers.terms[0])), (1, 1001));
    }
}
