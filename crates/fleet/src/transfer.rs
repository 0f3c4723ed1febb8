//! Clients of a proxy with files that are brought into the registry, and clients of the registry for such files.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etcd_client::{Compare, Txn, TxnOp};
use ropewalk_settings::PublicKey;

use crate::changes::{ChangeError, Changes, absent, inner};
use crate::layout::{ClientValue, Place, Unknown, VERSION, read};

/// Keys of clients that are brought in with one transaction: etcd takes 128 conditions and as many changes (`--max-txn-ops`), and
/// one condition is the fleet's.
const BATCH_KEYS: usize = 127;

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
    /// They are not, and why.
    pub refused: Vec<String>,
}

/// Who has what in the registry.
#[derive(Default)]
struct Taken {
    clients: BTreeMap<PublicKey, (String, Vec<IpAddr>)>,
    names: BTreeMap<String, PublicKey>,
    addresses: BTreeMap<IpAddr, String>,
}

impl Changes {
    /// Brings clients in, and begins the fleet if nobody has. Nothing that is there changes, so it can be done again.
    ///
    /// # Errors
    /// The fleet is another one, or the registry does not answer. What was brought in before stays.
    pub async fn import(&self, clients: &[FiledClient]) -> Result<Imported, ChangeError> {
        self.agree().await?;
        let mut taken = Taken::default();
        self.export().await?.into_iter().for_each(|client| taken.note(&client));
        let (mut imported, mut fresh) = (Imported::default(), Vec::new());
        for client in clients {
            match self.judge_filed(&taken, client) {
                Ok(true) => imported.known += 1,
                Ok(false) => {
                    taken.note(client);
                    fresh.push(client);
                }
                Err(why) => imported.refused.push(format!("{}: {why}", client.name.escape_debug())),
            }
        }
        for batch in batches(&fresh) {
            if self.bring(batch).await? {
                imported.added += batch.len();
                continue;
            }
            // Somebody changed something meanwhile: each by itself.
            for client in batch {
                match self.bring(std::slice::from_ref(client)).await? {
                    true => imported.added += 1,
                    false => imported.refused.push(format!(
                        "{}: its key, name or address was given to somebody else in this moment",
                        client.name.escape_debug()
                    )),
                }
            }
        }
        Ok(imported)
    }

    /// All clients of the registry. Values that are not Ropewalk's are passed over.
    ///
    /// # Errors
    /// The registry does not answer.
    pub async fn export(&self) -> Result<Vec<FiledClient>, ChangeError> {
        let layout = self.store.layout();
        let listed = self.store.list(&format!("{}clients/", layout.prefix())).await?;
        let clients = listed.iter().filter_map(|kv| {
            let Some(Place::Client(public_key)) = layout.place(kv.key()) else { return None };
            let value: ClientValue = read(kv.value()).ok()?;
            Some(FiledClient {
                name: value.name,
                public_key,
                address_v4: value.address_v4,
                address_v6: value.address_v6,
                since: value.since,
                disabled: value.disabled,
                formerly: value.formerly,
            })
        });
        Ok(clients.collect())
    }

    /// Whether a client is there just so, or why it cannot be brought in.
    fn judge_filed(&self, taken: &Taken, client: &FiledClient) -> Result<bool, String> {
        let own: Vec<IpAddr> = inner((client.address_v4, client.address_v6)).collect();
        match taken.clients.get(&client.public_key) {
            Some((name, addresses)) if *name == client.name && *addresses == own => {
                return Ok(true);
            }
            Some((name, _)) => {
                return Err(format!(
                    "its key is in already, as `{}` or with other addresses",
                    name.escape_debug()
                ));
            }
            None => {}
        }
        if taken.names.contains_key(&client.name) {
            return Err(
                "another client of the fleet has this name: `ropewalk peer remove` one of the two"
                    .to_owned(),
            );
        }
        for address in own {
            let is_in_pool = match address {
                IpAddr::V4(v4) => self.terms.pool_v4.contains(&v4),
                IpAddr::V6(v6) => self.terms.pool_v6.is_some_and(|pool| pool.contains(&v6)),
            };
            if !is_in_pool {
                return Err(format!("its address {address} is outside the pool of the fleet"));
            }
            if let Some(other) = taken.addresses.get(&address) {
                return Err(format!(
                    "its address {address} is that of `{}`: invite it, and it gets another one",
                    other.escape_debug()
                ));
            }
        }
        Ok(false)
    }

    /// Brings all of these in, or none: `false`, if something of them is taken.
    async fn bring(&self, clients: &[&FiledClient]) -> Result<bool, ChangeError> {
        let layout = self.store.layout();
        let mut conditions: Vec<Compare> = vec![self.fleet().await?];
        let mut ops: Vec<TxnOp> = Vec::new();
        for client in clients {
            let addresses = (client.address_v4, client.address_v6);
            conditions.push(absent(&layout.client(&client.public_key)));
            conditions.push(absent(&layout.name(&client.name)));
            conditions.extend(inner(addresses).map(|address| absent(&layout.address(address))));
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
            ops.extend(self.owned(client.public_key, &value, addresses));
        }
        Ok(self.store.change(&Txn::new().when(conditions).and_then(ops)).await?)
    }
}

/// Clients in their order, as many at a time as one transaction takes.
fn batches<'a, 'b>(
    mut clients: &'b [&'a FiledClient],
) -> impl Iterator<Item = &'b [&'a FiledClient]> {
    std::iter::from_fn(move || {
        let mut keys = 0;
        let fits = |client: &&&FiledClient| {
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

impl Taken {
    fn note(&mut self, client: &FiledClient) {
        let addresses: Vec<IpAddr> = inner((client.address_v4, client.address_v6)).collect();
        for address in &addresses {
            self.addresses.insert(*address, client.name.clone());
        }
        self.names.insert(client.name.clone(), client.public_key);
        self.clients.insert(client.public_key, (client.name.clone(), addresses));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_has_as_many_clients_as_their_keys_allow() {
        let client = |with_v6: bool| FiledClient {
            name: "laptop".to_owned(),
            public_key: PublicKey::from_bytes([1; 32]),
            address_v4: [10, 77, 0, 2].into(),
            address_v6: with_v6.then(|| "fd00::2".parse().unwrap()),
            since: 1,
            disabled: false,
            formerly: None,
        };
        let (v4, both) = (client(false), client(true));
        for (all, expected) in [
            (vec![&v4; 100], vec![42, 42, 16]),
            (vec![&both; 100], vec![31, 31, 31, 7]),
            ([vec![&v4; 41], vec![&both; 3]].concat(), vec![42, 2]),
            (vec![&both], vec![1]),
            (vec![], vec![]),
        ] {
            let sizes: Vec<_> = batches(&all).map(<[_]>::len).collect();
            assert_eq!(sizes, expected);
        }
    }
}
