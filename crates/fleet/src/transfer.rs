//! Clients of a proxy with files that are brought into the registry, and clients of the registry for such files.
//!
//! An import asks beforehand only how many clients there are, so that it costs what it brings in, however much is there: each
//! transaction holds if nothing stands in its way, and else says what does. Where its clients and those that are there may be too many
//! together, it looks which of its own are new, and does nothing if there is no room for all of these.
//!
//! One import at a time brings clients in, so that two together do not pass the limit that each keeps alone: it writes `fleet` again, unchanged, which
//! ends any other import, and counts once more. That needs no key of its own, and nothing that an import which crashed could leave behind.
//!
//! ```text
//!   clients ──> as many as one transaction takes ──> 8 transactions at a time ──> in
//!                                                       │ something stands there
//!                                                       ├─ just so: it was brought in before
//!                                                       ├─ another's: refused, with the reason
//!                                                       └─ nothing: once more, without the others; or another import has begun
//! ```
//!
//! What was brought in stays, whatever becomes of the rest: the same import, done again, goes on from there.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::pin::pin;

use etcd_client::{Compare, KeyValue, Txn, TxnOp};
use futures_util::stream::{self, StreamExt as _};
use ropewalk_settings::PublicKey;

use crate::changes::{ChangeError, Changes, absent, inner, unchanged};
use crate::layout::{ClientValue, Owner, Place, Unknown, VERSION, read};

/// Keys of clients that are brought in with one transaction: etcd takes 128 conditions and as many changes (`--max-txn-ops`), and
/// one condition is the fleet's. They are 30 kB, of the 1.5 MB that it takes at once (`--max-request-bytes`).
const BATCH_KEYS: usize = 127;

/// Transactions that are under way at a time: what comes together etcd writes to its disks together.
const UNDER_WAY: usize = 8;

/// How often clients are tried of which somebody changed something meanwhile.
const TRIES: u32 = 8;

/// Why an import ends that another one has taken the turn from.
const OTHER_BEGAN: &str = "another import into this fleet began, and so this one ended: both together might have passed `max_peers`. What it \
     brought in stays. Run it again when the other one is over: it goes on from there";

/// A client, as files have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FiledClient {
    /// How it is called.
    pub name: String,
    /// Its key.
    pub public_key: PublicKey,
    /// Its inner IPv4 address.
    pub address_v4: Ipv4Addr,
    /// Its inner IPv6 address.
    pub address_v6: Option<Ipv6Addr>,
    /// When the key was bound, in seconds since 1970.
    pub since: u64,
    /// It gets no session.
    pub disabled: bool,
    /// The key that it had before.
    pub formerly: Option<PublicKey>,
}

/// What became of clients that were to be brought in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// They are in now.
    pub added: usize,
    /// They were in before, just so.
    pub known: usize,
    /// They are not, and why; in the order of the list.
    pub refused: Vec<String>,
}

/// What was taken out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// The clients.
    pub clients: Vec<FiledClient>,
    /// Keys where clients stand whose values are not Ropewalk's, or damaged; why, and what to do.
    pub passed_over: Vec<String>,
}

/// A client with its place in the list.
type Filed<'a> = (usize, &'a FiledClient);

/// What became of some of them.
#[derive(Default)]
struct Brought {
    added: usize,
    known: usize,
    refused: Vec<(usize, String)>,
}

/// What stands at the keys of a client.
enum Found {
    /// The client itself.
    Same,
    /// Something else, which is told so.
    Other(String),
    /// This address is somebody else's.
    Address(IpAddr, Option<PublicKey>),
}

impl Changes {
    /// Brings clients in, and begins the fleet if nobody has. Nothing that is there changes, so it can be done again. `progress` is
    /// told how many of the clients are settled.
    ///
    /// # Errors
    /// The fleet would have more than `max_clients`: no client is written then. Or it is another one, another import began, or the
    /// registry does not answer: what was brought in before stays.
    pub async fn import(
        &self,
        clients: &[FiledClient],
        max_clients: usize,
        mut progress: impl FnMut(usize),
    ) -> Result<Imported, ChangeError> {
        let (mut brought, mut seen) = (Brought::default(), Seen::default());
        let (mut first, mut later) = (Vec::new(), Vec::new());
        for filed @ (at, client) in clients.iter().enumerate() {
            match self.outside(client) {
                Some(why) => brought.refused.push((at, why)),
                None if seen.note(client) => first.push(filed),
                None => later.push(filed),
            }
        }
        self.look_for_room(&first, max_clients).await?;
        self.agree().await?;
        if first.is_empty() && later.is_empty() {
            // Nothing can come in: no other import need end.
            return Ok(brought.of(clients));
        }
        let fleet = self.take_turn().await?;
        // Another import may have brought clients in since: from now on none does.
        self.look_for_room(&first, max_clients).await?;
        let bringing = stream::iter(batches(&first)).map(|batch| self.bring(batch, &fleet));
        let mut bringing = pin!(bringing.buffer_unordered(UNDER_WAY));
        while let Some(some) = bringing.next().await {
            brought.add(some?);
            progress(brought.settled());
        }
        // Whoever has something that another one of the list had before him is judged by what became of that one.
        for filed in later {
            brought.add(self.bring(&[filed], &fleet).await?);
            progress(brought.settled());
        }
        Ok(brought.of(clients))
    }

    /// All clients of the registry.
    ///
    /// # Errors
    /// The registry does not answer.
    pub async fn export(&self) -> Result<Exported, ChangeError> {
        let layout = self.store.layout();
        let mut exported = Exported::default();
        let reading = self.store.read_clients(|kv| {
            let client = match layout.place(kv.key()) {
                Some(Place::Client(key)) => client_of(key, kv.value()),
                _ => Err("Ropewalk keeps nothing there".to_owned()),
            };
            match client {
                Ok(client) => exported.clients.push(client),
                Err(why) => {
                    let key = String::from_utf8_lossy(kv.key());
                    exported.passed_over.push(format!(
                        "{key}: {why}. Put back a snapshot of etcd, or delete the key \
                         (`etcdctl del {key}`)"
                    ));
                }
            }
        });
        reading.await?;
        Ok(exported)
    }

    /// Why an address of a client cannot be one of this fleet.
    fn outside(&self, client: &FiledClient) -> Option<String> {
        let is_outside = |address: &IpAddr| match address {
            IpAddr::V4(v4) => !self.terms.pool_v4.contains(v4),
            IpAddr::V6(v6) => self.terms.pool_v6.is_none_or(|pool| !pool.contains(v6)),
        };
        let address = inner((client.address_v4, client.address_v6)).find(is_outside)?;
        Some(format!("its address {address} is outside the pool of the fleet"))
    }

    /// Ends whatever other import is under way: its transactions hold only while the revision of `fleet` is the one it read, and here
    /// `fleet` is written again, unchanged. Returns the condition that no other import has done so since.
    async fn take_turn(&self) -> Result<Compare, ChangeError> {
        let key = self.store.layout().fleet();
        for _ in 0..TRIES {
            let is_so = self.fleet().await?;
            let Some(kv) = self.store.get(&key).await? else { continue };
            let unchanged_value = TxnOp::put(key.clone(), kv.value(), None);
            let change = Txn::new().when([is_so]).and_then([unchanged_value]);
            if let Some(revision) = self.store.change_at(&change).await? {
                return Ok(unchanged(&key, revision));
            }
        }
        Err(ChangeError::Busy)
    }

    /// Whether there is room for those of these clients that are new.
    async fn look_for_room(
        &self,
        clients: &[Filed<'_>],
        max_clients: usize,
    ) -> Result<(), ChangeError> {
        let there = self.store.count_clients().await?;
        if there.saturating_add(clients.len()) <= max_clients {
            return Ok(());
        }
        let counting = stream::iter(batches(clients)).map(|batch| self.count_new(batch));
        let mut counting = pin!(counting.buffer_unordered(UNDER_WAY));
        let mut new = 0;
        while let Some(some) = counting.next().await {
            new += some?;
        }
        let Some(why) = no_room(there, new, max_clients) else { return Ok(()) };
        // If these are the clients of another fleet, that is what is to be said.
        if self.store.get(&self.store.layout().fleet()).await?.is_some() {
            self.fleet().await?;
        }
        Err(ChangeError::Wish(why))
    }

    /// How many of these have nothing that stands in the registry. They are at most as many as one transaction takes.
    async fn count_new(&self, clients: &[Filed<'_>]) -> Result<usize, ChangeError> {
        let keys = clients.iter().flat_map(|(_, client)| self.keys(client));
        let found = self.store.get_all(keys).await?;
        let there: BTreeSet<&[u8]> = found.iter().map(KeyValue::key).collect();
        let is_there = |key: &String| there.contains(key.as_bytes());
        let mut new = 0;
        for (_, client) in clients {
            new += usize::from(!self.keys(client).iter().any(is_there));
        }
        Ok(new)
    }

    /// The keys at which a client stands: its own, that of its name, and those of its addresses.
    fn keys(&self, client: &FiledClient) -> Vec<String> {
        let layout = self.store.layout();
        let own = [layout.client(&client.public_key), layout.name(&client.name)];
        let addresses = inner((client.address_v4, client.address_v6));
        own.into_iter().chain(addresses.map(|at| layout.address(at))).collect()
    }

    /// Brings in those of whom nothing is taken, and says of the others what is. They are at most as many as one transaction takes.
    async fn bring(&self, clients: &[Filed<'_>], fleet: &Compare) -> Result<Brought, ChangeError> {
        let mut left = clients.to_vec();
        let mut brought = Brought::default();
        for _ in 0..TRIES {
            let Some(there) = self.try_bring(&left, fleet).await? else {
                brought.added += left.len();
                return Ok(brought);
            };
            let before = left.len();
            left = self.settle(left, &there, &mut brought).await?;
            if left.is_empty() {
                return Ok(brought);
            }
            if left.len() == before {
                // Nothing of theirs stands there: it is the fleet that is not as it was.
                self.fleet().await?;
                return Err(ChangeError::Wish(OTHER_BEGAN.to_owned()));
            }
        }
        Err(ChangeError::Busy)
    }

    /// Brings all of these in (`None`), or none: then what stands at their keys is returned, by key.
    async fn try_bring(
        &self,
        clients: &[Filed<'_>],
        fleet: &Compare,
    ) -> Result<Option<BTreeMap<String, Vec<u8>>>, ChangeError> {
        let mut conditions: Vec<Compare> = vec![fleet.clone()];
        let (mut puts, mut gets): (Vec<TxnOp>, Vec<TxnOp>) = (Vec::new(), Vec::new());
        for (_, client) in clients {
            let addresses = (client.address_v4, client.address_v6);
            for key in self.keys(client) {
                conditions.push(absent(&key));
                gets.push(TxnOp::get(key, None));
            }
            let value = ClientValue {
                version: VERSION,
                name: client.name.clone(),
                address_v4: client.address_v4,
                address_v6: client.address_v6,
                since: client.since,
                disabled: client.disabled,
                formerly: client.formerly,
                invitation: None,
                unknown: Unknown::new(),
            };
            puts.extend(self.owned(client.public_key, &value, addresses));
        }
        let change = Txn::new().when(conditions).and_then(puts).or_else(gets);
        let there = self.store.change_or_get(&change).await?;
        let by_key = |kv: KeyValue| {
            let key = String::from_utf8_lossy(kv.key()).into_owned();
            (key, kv.value().to_vec())
        };
        Ok(there.map(|there| there.into_iter().map(by_key).collect()))
    }

    /// Settles clients in whose way something stands. Returns the others.
    async fn settle<'a>(
        &self,
        clients: Vec<Filed<'a>>,
        there: &BTreeMap<String, Vec<u8>>,
        brought: &mut Brought,
    ) -> Result<Vec<Filed<'a>>, ChangeError> {
        let found: Vec<_> = clients.iter().map(|(_, client)| self.find(client, there)).collect();
        let owners = found.iter().flatten().filter_map(|found| match found {
            Found::Address(_, owner) => *owner,
            Found::Same | Found::Other(_) => None,
        });
        let names = self.names(owners.collect()).await?;
        let mut left = Vec::new();
        for (filed, found) in clients.into_iter().zip(found) {
            let why = match found {
                None => {
                    left.push(filed);
                    continue;
                }
                Some(Found::Same) => {
                    brought.known += 1;
                    continue;
                }
                Some(Found::Other(why)) => why,
                Some(Found::Address(address, owner)) => {
                    let name = owner.and_then(|owner| names.get(&owner));
                    let whose = match name {
                        Some(name) => format!("`{}`", name.escape_debug()),
                        None => "another client".to_owned(),
                    };
                    format!(
                        "its address {address} is that of {whose}: invite it, and it gets another \
                         one"
                    )
                }
            };
            brought.refused.push((filed.0, why));
        }
        Ok(left)
    }

    /// What stands at the keys of a client, if anything does.
    fn find(&self, client: &FiledClient, there: &BTreeMap<String, Vec<u8>>) -> Option<Found> {
        let layout = self.store.layout();
        let own = layout.client(&client.public_key);
        if let Some(value) = there.get(&own) {
            let addresses = (client.address_v4, client.address_v6);
            return Some(match read::<ClientValue>(value) {
                Ok(ClientValue { name, address_v4, address_v6, .. })
                    if name == client.name && (address_v4, address_v6) == addresses =>
                {
                    Found::Same
                }
                Ok(ClientValue { name, .. }) => Found::Other(format!(
                    "its key is in already, as `{}` or with other addresses",
                    name.escape_debug()
                )),
                Err(why) => Found::Other(format!(
                    "the value at {own} is not Ropewalk's, or damaged: {why}. Delete the key \
                     (`etcdctl del {own}`)"
                )),
            });
        }
        if there.contains_key(&layout.name(&client.name)) {
            return Some(Found::Other(
                "another client of the fleet has this name: `ropewalk peer remove` one of the two"
                    .to_owned(),
            ));
        }
        inner((client.address_v4, client.address_v6)).find_map(|address| {
            let value = there.get(&layout.address(address))?;
            let owner = read::<Owner>(value).ok().map(|owner| owner.public_key);
            Some(Found::Address(address, owner))
        })
    }

    /// How these clients are called, at most as many as one transaction asks for.
    async fn names(
        &self,
        clients: BTreeSet<PublicKey>,
    ) -> Result<BTreeMap<PublicKey, String>, ChangeError> {
        if clients.is_empty() {
            return Ok(BTreeMap::new());
        }
        let layout = self.store.layout();
        let found = self.store.get_all(clients.iter().map(|key| layout.client(key))).await?;
        let named = found.iter().filter_map(|kv| match layout.place(kv.key()) {
            Some(Place::Client(key)) => Some((key, read::<ClientValue>(kv.value()).ok()?.name)),
            _ => None,
        });
        Ok(named.collect())
    }
}

impl Brought {
    fn add(&mut self, more: Self) {
        self.added += more.added;
        self.known += more.known;
        self.refused.extend(more.refused);
    }

    /// How many clients are settled.
    fn settled(&self) -> usize {
        self.added + self.known + self.refused.len()
    }

    /// The same for who brought these clients in.
    fn of(mut self, clients: &[FiledClient]) -> Imported {
        self.refused.sort_unstable();
        let told = |(at, why): (usize, String)| {
            let name = clients.get(at).map_or("", |client| client.name.as_str());
            format!("{}: {why}", name.escape_debug())
        };
        let refused = self.refused.into_iter().map(told).collect();
        Imported { added: self.added, known: self.known, refused }
    }
}

/// Why a fleet with so many clients takes no `new` ones, if it does not.
fn no_room(there: usize, new: usize, max_clients: usize) -> Option<String> {
    let all = there.saturating_add(new);
    // Where all are in already nothing changes, however many there are.
    (new > 0 && all > max_clients).then(|| {
        format!(
            "the fleet has {there} clients, and {new} more would come in: together {all}, and `max_peers` of the config \
             allows {max_clients}. Nothing was brought in. Write `max_peers = {all}`, or more, into the config of each \
             proxy of the fleet, and restart those that run"
        )
    })
}

/// A client as it stands in the registry.
fn client_of(public_key: PublicKey, value: &[u8]) -> Result<FiledClient, String> {
    let value: ClientValue = read(value)?;
    Ok(FiledClient {
        name: value.name,
        public_key,
        address_v4: value.address_v4,
        address_v6: value.address_v6,
        since: value.since,
        disabled: value.disabled,
        formerly: value.formerly,
    })
}

/// Keys, names and addresses of the list so far, as hashes: two that are equal by chance make one client wait for the others, no more.
#[derive(Default)]
struct Seen(BTreeSet<u64>);

impl Seen {
    /// Notes those of a client. Returns whether nobody had one of them before.
    fn note(&mut self, client: &FiledClient) -> bool {
        let own = [hash(&(0_u8, client.public_key)), hash(&(1_u8, &client.name))];
        let addresses = inner((client.address_v4, client.address_v6));
        let all = own.into_iter().chain(addresses.map(|address| hash(&(2_u8, address))));
        all.filter(|hash| !self.0.insert(*hash)).count() == 0
    }
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Clients in their order, as many at a time as one transaction takes.
fn batches<'a, 'b>(mut clients: &'b [Filed<'a>]) -> impl Iterator<Item = &'b [Filed<'a>]> {
    std::iter::from_fn(move || {
        let mut keys = 0;
        let fits = |(_, client): &&Filed<'a>| {
            // Its own, its name, and its addresses.
            keys += 2 + inner((client.address_v4, client.address_v6)).count();
            keys <= BATCH_KEYS
        };
        let count = clients.iter().take_while(fits).count();
        let (batch, rest) = clients.split_at(count);
        clients = rest;
        (!batch.is_empty()).then_some(batch)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: u32, with_v6: bool) -> FiledClient {
        let mut key = [1; 32];
        key[..4].copy_from_slice(&number.to_be_bytes());
        FiledClient {
            name: format!("laptop {number}"),
            public_key: PublicKey::from_bytes(key),
            address_v4: Ipv4Addr::from(0x0a4d_0002 + number),
            address_v6: with_v6.then(|| Ipv6Addr::from((0xfd00_u128 << 112) + u128::from(number))),
            since: 1,
            disabled: false,
            formerly: None,
        }
    }

    #[test]
    fn a_batch_has_as_many_clients_as_their_keys_allow() {
        let (v4, both) = (client(1, false), client(2, true));
        for (all, expected) in [
            (vec![&v4; 100], vec![42, 42, 16]),
            (vec![&both; 100], vec![31, 31, 31, 7]),
            ([vec![&v4; 41], vec![&both; 3]].concat(), vec![42, 2]),
            (vec![&both], vec![1]),
            (vec![], vec![]),
        ] {
            let filed: Vec<_> = all.into_iter().enumerate().collect();
            let sizes: Vec<_> = batches(&filed).map(<[_]>::len).collect();
            assert_eq!(sizes, expected);
        }
    }

    #[test]
    fn who_has_a_key_a_name_or_an_address_of_one_before_him_is_found() {
        let mut seen = Seen::default();
        assert!((0..10_000).all(|number| seen.note(&client(number, true))));
        let fresh = |number: u32| client(20_000 + number, true);
        let table = [
            FiledClient { public_key: client(7, true).public_key, ..fresh(1) },
            FiledClient { name: "laptop 7".to_owned(), ..fresh(2) },
            FiledClient { address_v4: client(7, true).address_v4, ..fresh(3) },
            FiledClient { address_v6: client(7, true).address_v6, ..fresh(4) },
        ];
        for other in &table {
            assert!(!seen.note(other), "{other:?}");
        }
        assert!(!seen.note(&fresh(1)), "what it has otherwise counts, too");
        assert!(seen.note(&fresh(5)) && seen.note(&client(30_000, false)));
    }

    #[test]
    fn only_clients_that_are_new_need_room() {
        for (there, new, most, has_room) in [
            (0, 1024, 1024, true),
            (0, 1025, 1024, false),
            (1000, 24, 1024, true),
            (1000, 25, 1024, false),
            (2000, 0, 1024, true),
            (2000, 1, 1024, false),
            (usize::MAX, 1, 1024, false),
        ] {
            let why = no_room(there, new, most);
            assert_eq!(why.is_none(), has_room, "{there} {new} {most}: {why:?}");
        }
        let told = no_room(1000, 500, 1024).unwrap();
        for part in ["has 1000 clients", "500 more", "1500", "`max_peers`", "allows 1024"] {
            assert!(told.contains(part), "{told}");
        }
    }

    #[test]
    fn who_was_refused_is_told_in_the_order_of_the_list() {
        let clients = [client(0, false), client(1, false), client(2, false)];
        let mut brought = Brought { added: 1, ..Brought::default() };
        brought.add(Brought { refused: vec![(2, "late".to_owned())], ..Brought::default() });
        brought.add(Brought { refused: vec![(0, "early".to_owned())], ..Brought::default() });
        assert_eq!(brought.settled(), 3);
        let Imported { added, known, refused } = brought.of(&clients);
        assert_eq!((added, known), (1, 0));
        assert_eq!(refused, ["laptop 0: early", "laptop 2: late"]);
    }
}
