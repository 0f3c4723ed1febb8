//! The clients of the config, with what the core does not keep: their leases, and how long and why each is
//! in its present state.
//!
//! | state | means |
//! | --- | --- |
//! | `Idle` | no session: not seen since the start, asleep for too long, or refused |
//! | `Up` | a session with a link that carries packets |
//! | `Stalled` | a session, and no such link |
//! | `Closed` | no session: one of the ends said goodbye |

mod peer;

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use ropewalk_control::api::{ApiError, ErrorCode, TunnelState};
use ropewalk_dense::{Index, Rows};
use ropewalk_proto::event::Event;
use ropewalk_proto::time::Instant;
use ropewalk_settings::{PublicKey, nearest};

use crate::config::PeerConfig;
use crate::leases::LeaseTable;

pub use peer::{Peer, down_reason, end_reason};

/// All clients: those of the config in the order of the file, then those that joined.
#[derive(Debug)]
pub struct PeerBook {
    /// `None`: one that is gone. So that nobody is looked for among all, its place is nobody's until all are put together.
    peers: Rows<Option<Peer>>,
    places: Index,
    /// Whether clients are given IPv6 addresses.
    ipv6: bool,
    moved: Vec<Moved>,
}

/// An inner address, or a network behind a client, and whose it is from now on; `None`: nobody's.
pub type Moved = (IpNet, Option<PublicKey>);

/// Places of clients that are gone that are kept besides as many as there are clients: putting all together takes long.
const GAPS: usize = 1024;

/// A client that is not found is looked for among so many with names like it: more would hold up packets.
const MAY_BE_MEANT: usize = 10_000;

/// What an event means for the host's routes to a client's inner addresses, and to the network behind it.
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
        let none = Rows::default();
        let mut book = Self { peers: none, places: Index::default(), ipv6, moved: Vec::new() };
        for config in peers {
            book.push(Peer::new(now, config, leases, ipv6));
        }
        book.moved = book.iter().flat_map(taken_by).collect();
        book
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// A client joined, or has another key: then it keeps its place. The registry may have told of it before: then it may have a session.
    pub fn admit(&mut self, now: Instant, config: &PeerConfig, leases: &LeaseTable) -> &Peer {
        let mut peer = Peer::new(now, config, leases, self.ipv6);
        let former = config.formerly.as_deref().and_then(|old| self.take_out(old));
        let known = self.take_out(&config.public_key);
        for place in [former, known].into_iter().flatten() {
            let Some(mut before) = self.peers[place].take() else { continue };
            self.moved.extend(freed_by(&before));
            if before.public_key == peer.public_key {
                before.update(peer);
                peer = before;
            }
        }
        self.moved.extend(taken_by(&peer));
        match former.or(known) {
            Some(place) => self.put(place, peer),
            None => self.push(peer),
        }
    }

    /// These keys are nobody's any more, and then these are clients, as the registry says. Those that were so already stay as they
    /// are; returns the others, and what was routed to those of them that have a session and from now on other addresses: it ends, and
    /// the book knows only the new ones then.
    pub fn change(
        &mut self,
        now: Instant,
        gone: &BTreeSet<PublicKey>,
        come: &[PeerConfig],
        leases: &LeaseTable,
    ) -> (Vec<PublicKey>, Vec<IpNet>) {
        gone.iter().for_each(|key| self.remove(key));
        let (mut changed, mut taken) = (Vec::new(), Vec::new());
        let (mut freed, mut in_use) = (Vec::new(), Vec::new());
        for config in come {
            let fresh = Peer::new(now, config, leases, self.ipv6);
            let known = match self.place(&config.public_key) {
                Some(place) => self.peers[place].as_mut(),
                None => None,
            };
            match known {
                Some(peer) if peer.is_as(&fresh) => {
                    // Whoever went may have had the same address when this one was told of first.
                    taken.extend(taken_by(peer));
                    if peer.is_connected() {
                        in_use.extend(peer.networks());
                    }
                    continue;
                }
                Some(peer) => {
                    if peer.is_connected() && peer.networks().ne(fresh.networks()) {
                        freed.extend(peer.networks());
                    }
                    self.moved.extend(freed_by(peer));
                    taken.extend(taken_by(&fresh));
                    peer.update(fresh);
                }
                None => {
                    taken.extend(taken_by(&fresh));
                    self.push(fresh);
                }
            }
            changed.push(config.public_key);
        }
        // After all that were given up: one may have what another had.
        self.moved.extend(taken);
        freed.retain(|net| !in_use.contains(net));
        (changed, freed)
    }

    /// A client gets no session from now on, or is let in again. Returns whether that is new.
    pub fn enable(&mut self, key: &PublicKey, enabled: bool) -> bool {
        let known = self.get_mut(key);
        let Some(peer) = known.filter(|peer| peer.disabled == enabled) else { return false };
        peer.enable(enabled);
        true
    }

    /// The client with this key.
    #[must_use]
    pub fn get(&self, key: &PublicKey) -> Option<&Peer> {
        self.peers[self.place(key)?].as_ref()
    }

    fn get_mut(&mut self, key: &PublicKey) -> Option<&mut Peer> {
        let place = self.place(key)?;
        self.peers[place].as_mut()
    }

    /// Where a client stands among all; who came later stands behind.
    #[must_use]
    pub fn place(&self, key: &PublicKey) -> Option<usize> {
        let has_key = |place| key_at(&self.peers, place).is_some_and(|known| known == *key);
        usize::try_from(self.places.find(key, has_key)?).ok()
    }

    /// A client is none any more.
    pub fn remove(&mut self, key: &PublicKey) {
        let Some(place) = self.take_out(key) else { return };
        if let Some(gone) = self.peers[place].take() {
            self.moved.extend(freed_by(&gone));
        }
        if self.peers.len() > 2 * self.places.len() + GAPS {
            // Not `clear`, which keeps its memory.
            self.places = Index::default();
            for peer in std::mem::take(&mut self.peers).into_iter().flatten() {
                self.push(peer);
            }
        }
    }

    /// A client is not found any more by its key. Returns its place.
    fn take_out(&mut self, key: &PublicKey) -> Option<usize> {
        let Self { peers, places, .. } = self;
        let has_key = |place| key_at(peers, place).is_some_and(|known| known == *key);
        usize::try_from(places.remove(key, has_key)?).ok()
    }

    /// From now on the clients are these. Those that stay are as they were; returns what was routed to them and is not any
    /// more.
    pub fn take_over(
        &mut self,
        now: Instant,
        known: &[PeerConfig],
        leases: &LeaseTable,
    ) -> Vec<IpNet> {
        let before = std::mem::take(&mut self.peers).into_iter().flatten();
        let mut before: BTreeMap<_, _> = before.map(|peer| (peer.public_key, peer)).collect();
        self.places.clear();
        self.moved.extend(before.values().flat_map(freed_by));
        let mut freed = Vec::new();
        for config in known {
            let fresh = Peer::new(now, config, leases, self.ipv6);
            let Some(mut peer) = before.remove(&config.public_key) else {
                self.push(fresh);
                continue;
            };
            if peer.networks().ne(fresh.networks()) {
                freed.extend(peer.networks());
            }
            peer.update(fresh);
            self.push(peer);
        }
        self.moved.extend(self.peers.iter().flatten().flat_map(taken_by));
        freed
    }

    /// One more, behind all others.
    fn push(&mut self, peer: Peer) -> &Peer {
        self.peers.push(None);
        self.put(self.peers.len() - 1, peer)
    }

    /// A client stands at this place, and is found by its key.
    fn put(&mut self, place: usize, peer: Peer) -> &Peer {
        let Self { peers, places, .. } = self;
        let number = u32::try_from(place).expect("fewer clients than 2^32");
        places.insert(&peer.public_key, number, |place| key_at(peers, place));
        peers[place].insert(peer)
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
        let is_it = |peer: &Option<Peer>| peer.as_ref().is_some_and(|peer| *peer.name == *name);
        let place = self.peers.iter().position(is_it);
        let near = match place {
            Some(_) => None,
            None => nearest(name, self.iter().take(MAY_BE_MEANT).map(|peer| &*peer.name)),
        };
        let help = match near {
            Some(near) => format!("did you mean `{near}`?"),
            None => "`ropewalk status` lists them".to_owned(),
        };
        let found = match place {
            Some(place) => self.peers[place].as_mut(),
            None => None,
        };
        found.ok_or_else(|| {
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
            matches!(peer.state(), TunnelState::Up | TunnelState::Stalled | TunnelState::Connecting)
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
        self.peers.iter_mut().flatten().for_each(Peer::schedule_alike);
    }

    /// From now on the clients have IPv6 addresses.
    pub fn hand_out_ipv6(&mut self) {
        self.ipv6 = true;
        for peer in self.peers.iter_mut().flatten() {
            let key = peer.public_key;
            self.moved.extend(peer.hand_out_ipv6().map(|net| (net, Some(key))));
        }
    }

    /// Whose inner addresses and networks are from now on, where that has changed since it was last asked; of one the last counts.
    pub fn take_moved(&mut self) -> Vec<Moved> {
        std::mem::take(&mut self.moved)
    }

    /// Whether the client has a session.
    #[must_use]
    pub fn is_connected(&self, key: &PublicKey) -> bool {
        self.get(key).is_some_and(Peer::is_connected)
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

/// The key of the client at a place.
fn key_at(peers: &Rows<Option<Peer>>, place: u32) -> Option<PublicKey> {
    let peer = peers.get(usize::try_from(place).ok()?)?.as_ref()?;
    Some(peer.public_key)
}

/// What is routed to a client, as it becomes its own.
fn taken_by(peer: &Peer) -> impl Iterator<Item = Moved> + use<> {
    let key = peer.public_key;
    peer.networks().map(move |net| (net, Some(key)))
}

/// The same, as they become nobody's.
fn freed_by(peer: &Peer) -> impl Iterator<Item = Moved> + use<> {
    peer.networks().map(|net| (net, None))
}

#[cfg(test)]
mod tests;
