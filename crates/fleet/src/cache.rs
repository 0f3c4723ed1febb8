//! The copy of the registry in memory: what handshakes are served from, whether etcd answers or not.
//!
//! A fleet may have a million clients, so that each takes little: they stand side by side, their names are shared with whoever keeps
//! them, too, and of an address only a bit is kept, beside that of its client (docs/FLEET.md, "How it grows").

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use etcd_client::KeyValue;
use ipnet::{Ipv4Net, Ipv6Net};
use ropewalk_dense::DenseMap;
use ropewalk_settings::PublicKey;

use crate::addresses::AddressSet;
use crate::differences::Differences;
use crate::last_known::LastKnown;
use crate::layout::{
    ClientValue, DrainValue, FleetValue, InvitationValue, Layout, Place, ProxyValue, SessionValue,
    Unknown, VERSION, read,
};
use crate::mirror::Mirror;
use crate::store::{Store, StoreError};

/// Most clients that are kept.
pub const MAX_CLIENTS: usize = 1 << 20;

/// Most proxies, and most invitations.
pub(crate) const MAX_OTHERS: usize = 4096;

/// Values that are not ours and are named to people.
const MAX_FOREIGN: usize = 8;

/// A client, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// How it is called. Whoever keeps this client, too, shares the text.
    pub name: Arc<str>,
    /// Its inner addresses.
    pub address_v4: Ipv4Addr,
    /// The same for IPv6.
    pub address_v6: Option<Ipv6Addr>,
    /// It gets no session.
    pub disabled: bool,
}

impl Client {
    /// Its inner addresses.
    pub(crate) fn addresses(&self) -> (Ipv4Addr, Option<Ipv6Addr>) {
        (self.address_v4, self.address_v6)
    }
}

/// Where a client has its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The proxy's id.
    pub proxy: Arc<str>,
    /// Since when, in microseconds since 1970 by the proxy's clock.
    pub since_us: u64,
    /// The revision at which it was first written.
    pub first: i64,
}

/// What a change means for who looks on.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A client came, or is another one.
    Came(PublicKey, Client),
    /// A client is gone.
    Gone(PublicKey),
    /// A session began, moved or ended.
    Session(PublicKey),
    /// A proxy, or a wish that one drains, is new, different or gone.
    Proxies,
}

/// The copy.
#[derive(Debug, Default)]
pub struct Cache {
    /// What the fleet has agreed on, with its revision.
    pub fleet: Option<(FleetValue, i64)>,
    /// The clients.
    pub clients: DenseMap<PublicKey, Client>,
    /// The invitations that are open, by the hash of their tokens, those that have expired included.
    pub invitations: BTreeMap<String, InvitationValue>,
    /// The proxies that run.
    pub proxies: BTreeMap<String, ProxyValue>,
    /// The proxies that are to drain.
    pub drains: BTreeMap<String, DrainValue>,
    /// The sessions.
    pub sessions: DenseMap<PublicKey, Session>,
    /// The revision up to which this is so.
    pub revision: i64,
    /// The cluster that said so.
    pub cluster: u64,
    /// Keys below the prefix that are not ours, or damaged, and why.
    pub foreign: BTreeMap<String, String>,
    taken: AddressSet,
    /// Below this offset of the pool no address is free.
    next_v4: u32,
    /// Ids of proxies, each kept once.
    ids: BTreeSet<Arc<str>>,
}

impl Cache {
    /// All that the registry has, at one moment. Clients that are called as in the copy of `mirror` share their names with it.
    ///
    /// # Errors
    /// It does not answer, or a value is too long.
    pub async fn read(store: &Store, mirror: &Mirror) -> Result<Self, StoreError> {
        let (mut cache, layout) = (Self::default(), store.layout());
        // That copy is held for each key by itself, so that others need not wait for all.
        let reading = store.read_all(|kv| {
            drop(cache.put_beside(layout, kv, Some(&mirror.lock().cache)));
        });
        let head = reading.await?;
        (cache.revision, cache.cluster) = (head.revision, head.cluster);
        Ok(cache)
    }

    /// Takes over one that was read afresh. Returns what differs from what was known.
    pub fn replace(&mut self, fresh: Self) -> Differences {
        let before = std::mem::replace(self, fresh);
        Differences::new(before, self)
    }

    /// Clients at so many places from one on, each as one that comes, and the place to go on from, if there are more.
    #[must_use]
    pub(crate) fn came(&self, from: usize, places: usize) -> (Vec<Change>, Option<usize>) {
        let (part, next) = self.clients.part(from, places);
        (part.map(|(key, client)| Change::Came(*key, client.clone())).collect(), next)
    }

    /// A key is so now.
    pub fn put(&mut self, layout: &Layout, kv: &KeyValue) -> Option<Change> {
        self.put_beside(layout, kv, None)
    }

    /// The same, where there is another copy, with which names can be shared.
    fn put_beside(
        &mut self,
        layout: &Layout,
        kv: &KeyValue,
        other: Option<&Self>,
    ) -> Option<Change> {
        self.revision = self.revision.max(kv.mod_revision());
        let Some(place) = layout.place(kv.key()) else {
            self.note_foreign(kv.key(), "Ropewalk keeps nothing there");
            return None;
        };
        match self.take(place, kv, other) {
            Ok(change) => {
                if let Ok(key) = std::str::from_utf8(kv.key()) {
                    self.foreign.remove(key);
                }
                change
            }
            Err(why) => {
                self.note_foreign(kv.key(), &why);
                None
            }
        }
    }

    fn take(
        &mut self,
        place: Place,
        kv: &KeyValue,
        other: Option<&Self>,
    ) -> Result<Option<Change>, String> {
        Ok(match place {
            Place::Index => None,
            Place::Fleet => {
                self.fleet = Some((read(kv.value())?, kv.mod_revision()));
                None
            }
            Place::Client(key) => {
                let is_known = self.clients.contains_key(&key);
                has_room(is_known, self.clients.len(), MAX_CLIENTS)?;
                let value: ClientValue = read(kv.value())?;
                let known = self.clients.get(&key).or_else(|| other?.clients.get(&key));
                let known = known.filter(|known| *known.name == *value.name);
                let client = Client {
                    name: known.map_or_else(|| value.name.into(), |known| Arc::clone(&known.name)),
                    address_v4: value.address_v4,
                    address_v6: value.address_v6,
                    disabled: value.disabled,
                };
                self.insert(key, client.clone());
                Some(Change::Came(key, client))
            }
            Place::Invitation(hash) => {
                let value: InvitationValue = read(kv.value())?;
                if value.used_by.is_some() || value.withdrawn {
                    // For a month there may be as many of these as clients joined, and nobody asks for one.
                    self.invitations.remove(&hash);
                    return Ok(None);
                }
                let is_known = self.invitations.contains_key(&hash);
                has_room(is_known, self.invitations.len(), MAX_OTHERS)?;
                self.invitations.insert(hash, value);
                None
            }
            Place::Proxy(id) => {
                has_room(self.proxies.contains_key(&id), self.proxies.len(), MAX_OTHERS)?;
                self.proxies.insert(id, read(kv.value())?);
                Some(Change::Proxies)
            }
            Place::Drain(id) => {
                has_room(self.drains.contains_key(&id), self.drains.len(), MAX_OTHERS)?;
                self.drains.insert(id, read(kv.value())?);
                Some(Change::Proxies)
            }
            Place::Session(key) => {
                let is_known = self.sessions.contains_key(&key);
                has_room(is_known, self.sessions.len(), MAX_CLIENTS)?;
                let value: SessionValue = read(kv.value())?;
                let proxy = self.id(&value.proxy);
                let first = value.first.unwrap_or_else(|| kv.mod_revision());
                self.sessions.insert(key, Session { proxy, since_us: value.since_us, first });
                Some(Change::Session(key))
            }
        })
    }

    /// A key is gone.
    pub fn delete(&mut self, layout: &Layout, kv: &KeyValue) -> Option<Change> {
        self.revision = self.revision.max(kv.mod_revision());
        if let Ok(key) = std::str::from_utf8(kv.key()) {
            self.foreign.remove(key);
        }
        match layout.place(kv.key())? {
            Place::Index => None,
            Place::Fleet => {
                self.fleet = None;
                None
            }
            Place::Client(key) => {
                self.free(&key);
                self.clients.remove(&key).map(|_| Change::Gone(key))
            }
            Place::Invitation(hash) => {
                self.invitations.remove(&hash);
                None
            }
            Place::Proxy(id) => self.proxies.remove(&id).map(|_| Change::Proxies),
            Place::Drain(id) => self.drains.remove(&id).map(|_| Change::Proxies),
            Place::Session(key) => self.sessions.remove(&key).map(|_| Change::Session(key)),
        }
    }

    /// A client came in here, instead of one with another key. The watch says so, too, and later.
    pub fn note_bound(&mut self, key: PublicKey, client: Client, formerly: Option<&PublicKey>) {
        if let Some(formerly) = formerly {
            self.clients.remove(formerly);
        }
        if self.clients.len() < MAX_CLIENTS {
            self.insert(key, client);
        }
    }

    /// The clients that were known before the proxy's start, and the proxies that were to drain. This is no base for a watch.
    pub fn recall(&mut self, known: LastKnown) {
        let LastKnown { as_of: since, drains, clients } = known;
        for (key, client) in clients {
            self.insert(key, client);
        }
        let drain = || DrainValue { version: VERSION, since, unknown: Unknown::new() };
        self.drains.extend(drains.into_iter().map(|id| (id, drain())));
    }

    /// Gives the memory back of clients and sessions that are gone, where these are most. The others stand at other places then, so that
    /// nobody may be looking at a part of them after the other.
    pub(crate) fn compact(&mut self) {
        self.clients.compact();
        self.sessions.compact();
    }

    /// How many IPv6 addresses are taken.
    #[must_use]
    pub fn addresses_v6(&self) -> usize {
        self.taken.len_v6()
    }

    fn insert(&mut self, key: PublicKey, client: Client) {
        let known = self.clients.get(&key).map(Client::addresses);
        if known != Some(client.addresses()) {
            self.free(&key);
            self.take_addresses(client.addresses());
        }
        self.clients.insert(key, client);
    }

    /// These addresses are somebody's.
    fn take_addresses(&mut self, (v4, v6): (Ipv4Addr, Option<Ipv6Addr>)) {
        self.taken.insert(v4.into());
        if let Some(v6) = v6 {
            self.taken.insert(v6.into());
        }
    }

    /// These addresses are nobody's any more.
    fn free_addresses(&mut self, (v4, v6): (Ipv4Addr, Option<Ipv6Addr>)) {
        self.taken.remove(v4.into());
        if let Some(v6) = v6 {
            self.taken.remove(v6.into());
        }
        self.next_v4 = self.offset(v4, v6).min(self.next_v4);
    }

    /// The lowest offset in the pools that one of these addresses has, at which there may be a free address now.
    fn offset(&self, v4: Ipv4Addr, v6: Option<Ipv6Addr>) -> u32 {
        let Some((fleet, _)) = &self.fleet else { return 0 };
        let from_v4 = u32::from(v4).checked_sub(fleet.pool_v4.network().into());
        let from_v6 = v6.zip(fleet.pool_v6).and_then(|(v6, pool)| {
            let offset = u128::from(v6).checked_sub(pool.network().into())?;
            // Beyond the IPv4 pool nobody looks.
            u32::try_from(offset).ok()
        });
        from_v4.into_iter().chain(from_v6).min().unwrap_or(0)
    }

    /// The lowest free address, and the IPv6 address with the same offset where that is free; both count as taken from now on.
    pub fn reserve(
        &mut self,
        v4: Ipv4Net,
        v6: Option<Ipv6Net>,
    ) -> Option<(Ipv4Addr, Option<Ipv6Addr>)> {
        let size = 1_u64 << (32 - u32::from(v4.prefix_len()));
        // The last one is the broadcast address, and the first client's is the third.
        let last = u32::try_from(size.saturating_sub(2)).unwrap_or(u32::MAX);
        self.next_v4 = self.next_v4.max(2);
        while self.next_v4 <= last {
            let offset = self.next_v4;
            self.next_v4 += 1;
            let address = Ipv4Addr::from(u32::from(v4.network()).wrapping_add(offset));
            let with = v6.map(|v6| Ipv6Addr::from(u128::from(v6.network()) | u128::from(offset)));
            let v6_is_taken = with.is_some_and(|with| self.taken.contains(IpAddr::V6(with)));
            let outside = v6.zip(with).is_some_and(|(v6, with)| !v6.contains(&with));
            if outside || v6_is_taken || self.taken.contains(IpAddr::V4(address)) {
                continue;
            }
            self.take_addresses((address, with));
            return Some((address, with));
        }
        None
    }

    /// An address that was reserved is not used: it is free, or another proxy has given it.
    pub fn give_back(&mut self, v4: Ipv4Addr, v6: Option<Ipv6Addr>) {
        let has_one =
            |client: &Client| client.address_v4 == v4 || (v6.is_some() && client.address_v6 == v6);
        if !self.clients.values().any(has_one) {
            self.free_addresses((v4, v6));
        }
    }

    fn free(&mut self, key: &PublicKey) {
        if let Some(addresses) = self.clients.get(key).map(Client::addresses) {
            self.free_addresses(addresses);
        }
    }

    fn id(&mut self, id: &str) -> Arc<str> {
        if let Some(known) = self.ids.get(id) {
            return Arc::clone(known);
        }
        if self.ids.len() >= MAX_OTHERS {
            self.ids.clear();
        }
        let id: Arc<str> = id.into();
        self.ids.insert(Arc::clone(&id));
        id
    }

    fn note_foreign(&mut self, key: &[u8], why: &str) {
        let key: String = String::from_utf8_lossy(key).chars().take(128).collect();
        if self.foreign.len() < MAX_FOREIGN
            && self.foreign.insert(key.clone(), why.into()).is_none()
        {
            tracing::warn!(
                key,
                "a value in the registry is not read: {why}. If another program put it there, delete it or use another \
                 prefix"
            );
        }
    }
}

/// Whether one more of its kind may be kept, or this one, which is known, in another form.
fn has_room(is_known: bool, len: usize, most: usize) -> Result<(), String> {
    match is_known || len < most {
        true => Ok(()),
        false => Err(format!("there are more than {most} of its kind")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(last: u8, with_v6: Option<u16>) -> Client {
        Client {
            name: "laptop".into(),
            address_v4: [10, 77, 0, last].into(),
            address_v6: with_v6.map(|last| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last)),
            disabled: false,
        }
    }

    fn key(number: u8) -> PublicKey {
        PublicKey::from_bytes([number; 32])
    }

    fn fleet() -> FleetValue {
        FleetValue {
            version: VERSION,
            name: "home".into(),
            pool_v4: "10.77.0.0/29".parse().unwrap(),
            pool_v6: Some("fd00::/64".parse().unwrap()),
            unknown: Unknown::new(),
        }
    }

    #[test]
    fn a_client_takes_72_bytes_beside_its_name() {
        assert!(size_of::<Option<(PublicKey, Client)>>() <= 72);
    }

    #[test]
    fn the_lowest_free_address_is_given_whatever_went_and_came_before() {
        let FleetValue { pool_v4, pool_v6, .. } = fleet();
        for known in [None, Some((fleet(), 1))] {
            let mut cache = Cache { fleet: known, ..Cache::default() };
            let reserve = |cache: &mut Cache| {
                let given = cache.reserve(pool_v4, pool_v6)?;
                let Some(v6) = given.1 else { panic!("a pool has addresses: {given:?}") };
                assert_eq!(u32::from(v6.segments()[7]), u32::from(given.0) & 0xffff);
                Some(given.0.octets()[3])
            };
            // The address of the one is free for IPv4, and for IPv6 that of the other.
            cache.insert(key(1), client(2, Some(5)));
            cache.insert(key(2), client(4, None));
            assert_eq!(reserve(&mut cache), Some(3));
            assert_eq!(reserve(&mut cache), Some(6));
            assert_eq!(reserve(&mut cache), None);
            // The same again changes nothing.
            cache.insert(key(2), Client { disabled: true, ..client(4, None) });
            assert_eq!(reserve(&mut cache), None);
            cache.free(&key(1));
            cache.clients.remove(&key(1));
            assert_eq!((reserve(&mut cache), reserve(&mut cache)), (Some(2), Some(5)));
            cache.give_back([10, 77, 0, 3].into(), Some("fd00::3".parse().unwrap()));
            cache.give_back([10, 77, 0, 4].into(), None);
            assert_eq!((reserve(&mut cache), reserve(&mut cache)), (Some(3), None));
            cache.insert(key(2), client(7, None));
            assert_eq!((reserve(&mut cache), reserve(&mut cache)), (Some(4), None));
        }
    }

    #[test]
    fn what_differs_from_the_copy_before_is_told_in_parts_and_nothing_else() {
        let session = |since_us| Session { proxy: "one".into(), since_us, first: 1 };
        let (mut cache, mut fresh) = (Cache::default(), Cache::default());
        for number in 0..200 {
            cache.insert(key(number), client(number, None));
            cache.sessions.insert(key(number), session(1));
        }
        for number in 50..250 {
            let moved = if number == 99 { client(251, None) } else { client(number, None) };
            fresh.insert(key(number), moved);
            fresh.sessions.insert(key(number), session(1 + u64::from(number == 98)));
        }
        fresh.drains.insert(
            "one".to_owned(),
            DrainValue { version: VERSION, since: 1, unknown: Unknown::new() },
        );
        let mut differences = cache.replace(fresh);
        let mut told = Vec::new();
        while let Some(part) = differences.part(&cache) {
            assert!(part.len() <= 256);
            told.extend(part);
        }
        let count = |is: fn(&Change) -> bool| told.iter().filter(|change| is(change)).count();
        assert_eq!(count(|change| matches!(change, Change::Gone(_))), 51);
        assert_eq!(count(|change| matches!(change, Change::Came(..))), 51);
        assert_eq!(count(|change| matches!(change, Change::Session(_))), 101);
        assert_eq!(count(|change| matches!(change, Change::Proxies)), 1);
        assert!(told.contains(&Change::Came(key(99), client(251, None))));
        assert!(told.contains(&Change::Session(key(98))));
    }

    #[test]
    fn nobody_comes_with_an_address_before_whoever_had_it_went() {
        let cache_of = |clients: &[(u8, u8)]| {
            let mut cache = Cache::default();
            for (number, last) in clients {
                cache.insert(key(*number), client(*last, None));
            }
            cache
        };
        let mut cache = cache_of(&[(1, 1), (2, 2), (3, 3), (4, 4)]);
        // Two have each other's, and one has that of one that is gone.
        let mut differences = cache.replace(cache_of(&[(2, 1), (1, 2), (5, 4), (3, 3)]));
        let mut owners: BTreeMap<_, _> =
            [1, 2, 3, 4].map(|number| (client(number, None).address_v4, key(number))).into();
        while let Some(part) = differences.part(&cache) {
            for change in part {
                match change {
                    Change::Gone(key) => owners.retain(|_, owner| *owner != key),
                    Change::Came(key, client) => {
                        assert_eq!(owners.insert(client.address_v4, key), None, "{key}");
                    }
                    Change::Session(_) | Change::Proxies => panic!("{change:?}"),
                }
            }
        }
        let expected = [(1, 2), (2, 1), (3, 3), (4, 5)];
        let expected = expected.map(|(last, number)| (client(last, None).address_v4, key(number)));
        assert_eq!(owners, BTreeMap::from(expected));
    }

    #[test]
    fn what_is_kept_already_may_change_when_there_is_no_room_for_more() {
        assert_eq!(has_room(false, 7, 8), Ok(()));
        assert_eq!(has_room(true, 8, 8), Ok(()));
        let told = has_room(false, 8, 8).unwrap_err();
        assert!(told.contains("more than 8"), "{told}");
    }
}
