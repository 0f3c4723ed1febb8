//! What is changed in the registry: each in one transaction, which holds whole or not at all.
//!
//! A transaction says what must be so for it to hold: the invitation is as it was read, the name and the addresses are
//! nobody's. So of all proxies that try at once one wins, and each of the others reads again and is told. It also says
//! that the fleet's version is as it was read: an older program writes nothing for a newer fleet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etcd_client::{Compare, CompareOp, KeyValue, Txn, TxnOp};
use ropewalk_settings::{InvitationToken, PublicKey};

use crate::cache::Client;
use crate::layout::{
    ClientValue, DrainValue, FleetValue, InvitationValue, Owner, Unknown, VERSION, hash, read,
    written,
};
use crate::mirror::{Mirror, now};
use crate::store::{Store, StoreError};

/// How often a change that lost against another one is tried again.
const TRIES: u32 = 32;

/// How long an invitation is remembered after it expired.
const REMEMBERED_S: u64 = 30 * 24 * 60 * 60;

/// Most open invitations of a fleet.
const MAX_OPEN: usize = 1024;

/// Invitations that are forgotten with one change.
const FORGOTTEN: usize = 32;

/// Why a change is not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// The registry does not do it.
    #[error("{0}; nothing was changed")]
    Store(#[from] StoreError),
    /// The fleet is another one, or of a newer program; or nobody has begun it.
    #[error("{0}")]
    Fleet(String),
    /// The wish cannot be met so.
    #[error("{0}")]
    Wish(String),
    /// There is no such client, or proxy.
    #[error("{0}")]
    NoClient(String),
    /// Others were faster, again and again.
    #[error("the registry is changed by others all the time: try again")]
    Busy,
}

/// What becomes of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// It was never given, or not for this proxy.
    Unknown,
    /// It let another key in before.
    Used(String),
    /// It is out of date, or was taken back.
    Over(String),
    /// There are as many clients as may be.
    Full(String),
    /// No inner address is free.
    NoAddress(String),
    /// The key is a client's from now on.
    Bound {
        /// How the client is called.
        name: String,
        /// The key that it had before.
        formerly: Option<PublicKey>,
        /// Its inner addresses.
        address_v4: Ipv4Addr,
        /// The same for IPv6.
        address_v6: Option<Ipv6Addr>,
        /// It gets no session, as the key that it had before.
        disabled: bool,
    },
}

/// What was taken out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed {
    /// The client's key, if there was one.
    pub public_key: Option<PublicKey>,
    /// How many invitations for it are void.
    pub invitations: usize,
}

/// What all changes need.
#[derive(Clone, Debug)]
pub struct Changes {
    /// The way to etcd.
    pub store: Store,
    /// The copy, for looking at.
    pub mirror: Mirror,
    /// What the fleet must have agreed on.
    pub terms: FleetValue,
    /// This proxy's id.
    pub proxy: String,
}

/// A value with the revision at which it was read.
struct Seen<T> {
    value: T,
    revision: i64,
}

impl Changes {
    /// Begins the fleet if nobody has, and looks whether its terms are ours.
    ///
    /// # Errors
    /// They are not; or the registry does not answer.
    pub async fn agree(&self) -> Result<(), ChangeError> {
        let key = self.store.layout().fleet();
        let begin =
            Txn::new().when([absent(&key)]).and_then([TxnOp::put(key, written(&self.terms), None)]);
        if self.store.change(&begin).await? {
            tracing::info!(
                fleet = self.terms.name,
                prefix = self.store.layout().prefix(),
                "the fleet was begun: nobody had used this prefix. If it was begun before, `prefix` or `endpoints` of [registry] \
                 are not those of its other proxies"
            );
        }
        self.fleet().await.map(drop)
    }

    /// The condition that the fleet is as we know it.
    pub(crate) async fn fleet(&self) -> Result<Compare, ChangeError> {
        let key = self.store.layout().fleet();
        let Some(kv) = self.store.get(&key).await? else {
            return Err(ChangeError::Fleet(format!(
                "no proxy has begun the fleet at {key} yet: start one, or run `ropewalk fleet import`"
            )));
        };
        let theirs: FleetValue = read(kv.value()).map_err(|why| {
            ChangeError::Fleet(format!(
                "{key} is not Ropewalk's: {why}. Another program uses this prefix: write another one into [registry]"
            ))
        })?;
        differs(&self.terms, &theirs).map_or(Ok(()), |why| Err(ChangeError::Fleet(why)))?;
        Ok(unchanged(&key, kv.mod_revision()))
    }

    /// A key that is no client's shows a token.
    ///
    /// # Errors
    /// The registry does not answer, or the fleet is of a newer program.
    pub async fn claim(
        &self,
        token: &InvitationToken,
        client: PublicKey,
        max_clients: usize,
    ) -> Result<Claimed, ChangeError> {
        let hash = hash(token);
        for _ in 0..TRIES {
            if let Some(claimed) = self.try_claim(&hash, client, max_clients).await? {
                return Ok(claimed);
            }
        }
        Err(ChangeError::Busy)
    }

    /// One attempt; `None`: another one was faster with something.
    async fn try_claim(
        &self,
        hash: &str,
        client: PublicKey,
        max_clients: usize,
    ) -> Result<Option<Claimed>, ChangeError> {
        let layout = self.store.layout();
        let key = layout.invitation(hash);
        let Some(invitation) = self.seen::<InvitationValue>(&key).await? else {
            return Ok(Some(Claimed::Unknown));
        };
        let name = invitation.value.name.clone();
        let here = self.seen::<ClientValue>(&layout.client(&client)).await?;
        if let Some(Seen { value, .. }) = here {
            // The answer to an earlier attempt was lost.
            let ours = value.invitation.as_deref() == Some(hash);
            return Ok(Some(if ours { self.bound(client, value) } else { Claimed::Unknown }));
        }
        if let Some(over) = self.judge(&invitation.value) {
            return Ok(Some(over));
        }
        let conditions = [
            self.fleet().await?,
            unchanged(&key, invitation.revision),
            absent(&layout.client(&client)),
        ];
        let mut used = invitation.value;
        used.used_by = Some(client);
        let puts = vec![TxnOp::put(key, written(&used), None)];
        let bind = Bind { name, client, hash, conditions: conditions.into(), puts };
        match self.owner(&layout.name(&bind.name)).await? {
            Some(old) => self.rebind(bind, old).await,
            None => self.bind(bind, max_clients).await,
        }
    }

    /// Why an invitation does not let anybody in.
    fn judge(&self, invitation: &InvitationValue) -> Option<Claimed> {
        let name = invitation.name.clone();
        if invitation.used_by.is_some() {
            return Some(Claimed::Used(name));
        }
        if invitation.withdrawn || invitation.expires <= now() {
            return Some(Claimed::Over(name));
        }
        let elsewhere = !invitation.proxies.is_empty() && !invitation.proxies.contains(&self.proxy);
        elsewhere.then_some(Claimed::Unknown)
    }

    /// The client that had another key keeps its name and its addresses.
    async fn rebind(
        &self,
        bind: Bind<'_>,
        old: Seen<Owner>,
    ) -> Result<Option<Claimed>, ChangeError> {
        let layout = self.store.layout();
        let (before, name) = (old.value.public_key, bind.name.clone());
        let Some(was) = self.seen::<ClientValue>(&layout.client(&before)).await? else {
            return Ok(None);
        };
        let mut value = was.value;
        (value.since, value.formerly) = (now(), Some(before));
        value.invitation = Some(bind.hash.to_owned());
        let addresses = (value.address_v4, value.address_v6);
        let mut change = bind.conditions;
        change.push(unchanged(&layout.name(&name), old.revision));
        change.push(unchanged(&layout.client(&before), was.revision));
        let mut ops = bind.puts;
        ops.push(TxnOp::delete(layout.client(&before), None));
        ops.push(TxnOp::delete(layout.session(&before), None));
        ops.extend(self.owned(bind.client, &value, addresses));
        let made = self.store.change(&Txn::new().when(change).and_then(ops)).await?;
        Ok(made.then(|| self.bound(bind.client, value)))
    }

    /// A new client, with addresses that nobody has.
    async fn bind(
        &self,
        bind: Bind<'_>,
        max_clients: usize,
    ) -> Result<Option<Claimed>, ChangeError> {
        let reserved = {
            let mut mirrored = self.mirror.lock();
            if mirrored.cache.clients.len() >= max_clients {
                return Ok(Some(Claimed::Full(bind.name)));
            }
            mirrored.cache.reserve(self.terms.pool_v4, self.terms.pool_v6)
        };
        let Some(addresses) = reserved else { return Ok(Some(Claimed::NoAddress(bind.name))) };
        let layout = self.store.layout();
        let name = bind.name.clone();
        let mut change = bind.conditions;
        change.push(absent(&layout.name(&name)));
        change.extend(inner(addresses).map(|address| absent(&layout.address(address))));
        let value = ClientValue {
            version: VERSION,
            name: name.clone(),
            address_v4: addresses.0,
            address_v6: addresses.1,
            since: now(),
            disabled: false,
            formerly: None,
            invitation: Some(bind.hash.to_owned()),
            unknown: Unknown::new(),
        };
        let mut ops = bind.puts;
        ops.extend(self.owned(bind.client, &value, addresses));
        let made = self.store.change(&Txn::new().when(change).and_then(ops)).await;
        if let Ok(true) = made {
            return Ok(Some(self.bound(bind.client, value)));
        }
        // An address that another proxy has given stays taken: the watch will say whose it is.
        let mut given = false;
        if made.is_ok() {
            for address in inner(addresses) {
                given |= self.store.get(&layout.address(address)).await?.is_some();
            }
        }
        if !given {
            self.mirror.lock().cache.give_back(addresses.0, addresses.1);
        }
        made?;
        Ok(None)
    }

    /// The client is in; the copy knows it before the watch says so.
    fn bound(&self, client: PublicKey, value: ClientValue) -> Claimed {
        let ClientValue { name, formerly, address_v4, address_v6, disabled, .. } = value;
        let known = Client { name: name.as_str().into(), address_v4, address_v6, disabled };
        self.mirror.lock().cache.note_bound(client, known, formerly.as_ref());
        Claimed::Bound { name, formerly, address_v4, address_v6, disabled }
    }

    /// The puts of a client with its name and addresses.
    pub(crate) fn owned(
        &self,
        client: PublicKey,
        value: &ClientValue,
        addresses: (Ipv4Addr, Option<Ipv6Addr>),
    ) -> Vec<TxnOp> {
        let layout = self.store.layout();
        let owner =
            written(&Owner { version: VERSION, public_key: client, unknown: Unknown::new() });
        let mut ops = vec![
            TxnOp::put(layout.client(&client), written(value), None),
            TxnOp::put(layout.name(&value.name), owner.clone(), None),
        ];
        let addresses = inner(addresses);
        ops.extend(
            addresses.map(|address| TxnOp::put(layout.address(address), owner.clone(), None)),
        );
        ops
    }

    /// Invites a client; with `again` one that has a key. Returns the key that goes out then, and how many invitations for the
    /// same name are void by this one.
    ///
    /// # Errors
    /// The wish cannot be met, or the registry does not answer.
    pub async fn invite(
        &self,
        name: &str,
        again: bool,
        (token, expires): (&InvitationToken, u64),
        max_clients: usize,
    ) -> Result<(Option<PublicKey>, usize), ChangeError> {
        let layout = self.store.layout();
        for _ in 0..TRIES {
            let fleet = self.fleet().await?;
            let key = layout.name(name);
            let owner = self.owner(&key).await?;
            let shown = name.escape_debug();
            match (&owner, again) {
                (Some(_), false) => {
                    return Err(ChangeError::Wish(format!(
                        "`{shown}` has joined already: `ropewalk peer rotate {shown}` invites it again, `ropewalk peer \
                         remove {shown}` takes it out"
                    )));
                }
                (None, true) => return Err(no_client(name)),
                _ => {}
            }
            if owner.is_none() && self.mirror.lock().cache.clients.len() >= max_clients {
                return Err(ChangeError::Wish(format!(
                    "there are {max_clients} clients, as many as `max_peers` of the config allows"
                )));
            }
            let (mut ops, voided) = self.void(name).await?;
            let value = InvitationValue {
                version: VERSION,
                name: name.to_owned(),
                expires,
                proxies: Vec::new(),
                used_by: None,
                withdrawn: false,
                unknown: Unknown::new(),
            };
            let invitation = layout.invitation(&hash(token));
            ops.push(TxnOp::put(invitation, written(&value), None));
            let name_is = owner.as_ref().map_or(0, |owner| owner.revision);
            let change = Txn::new().when([fleet, unchanged(&key, name_is)]).and_then(ops);
            if self.store.change(&change).await? {
                return Ok((owner.map(|owner| owner.value.public_key), voided));
            }
        }
        Err(ChangeError::Busy)
    }

    /// What makes the open invitations for a name void, and forgets some that are long over; and how many are void.
    async fn void(&self, name: &str) -> Result<(Vec<TxnOp>, usize), ChangeError> {
        let folder = format!("{}invitations/", self.store.layout().prefix());
        let (mut ops, mut voided, mut open, mut forgotten) = (Vec::new(), 0, 0, 0);
        for kv in self.store.list(&folder).await? {
            let Ok(mut value) = read::<InvitationValue>(kv.value()) else { continue };
            if value.expires.saturating_add(REMEMBERED_S) <= now() {
                if forgotten < FORGOTTEN {
                    ops.push(TxnOp::delete(kv.key(), None));
                    forgotten += 1;
                }
                continue;
            }
            if value.used_by.is_some() || value.withdrawn {
                continue;
            }
            open += 1;
            if value.name == name && voided < FORGOTTEN {
                value.withdrawn = true;
                voided += 1;
                ops.push(TxnOp::put(kv.key(), written(&value), None));
            }
        }
        if open - voided >= MAX_OPEN {
            return Err(ChangeError::Wish(format!(
                "{MAX_OPEN} invitations are open: take some back with `ropewalk peer remove NAME`"
            )));
        }
        Ok((ops, voided))
    }

    /// Takes a client and its invitations out.
    ///
    /// # Errors
    /// There is none; or the registry does not answer.
    pub async fn remove(&self, name: &str) -> Result<Removed, ChangeError> {
        let layout = self.store.layout();
        for _ in 0..TRIES {
            let fleet = self.fleet().await?;
            let key = layout.name(name);
            let owner = self.owner(&key).await?;
            let (mut ops, invitations) = self.void(name).await?;
            if owner.is_none() && invitations == 0 {
                return Err(no_client(name));
            }
            let revision = owner.as_ref().map_or(0, |owner| owner.revision);
            let public_key = owner.map(|owner| owner.value.public_key);
            if let Some(client) = public_key {
                if let Some(was) = self.seen::<ClientValue>(&layout.client(&client)).await? {
                    let addresses = inner((was.value.address_v4, was.value.address_v6));
                    ops.extend(addresses.map(|at| TxnOp::delete(layout.address(at), None)));
                }
                let gone = [layout.client(&client), layout.session(&client), key.clone()];
                ops.extend(gone.map(|key| TxnOp::delete(key, None)));
            }
            let change = Txn::new().when([fleet, unchanged(&key, revision)]).and_then(ops);
            if self.store.change(&change).await? {
                return Ok(Removed { public_key, invitations });
            }
        }
        Err(ChangeError::Busy)
    }

    /// A client gets no session from now on, or is let in again. Returns its key, and whether that is new.
    ///
    /// # Errors
    /// There is none; or the registry does not answer.
    pub async fn enable(
        &self,
        name: &str,
        enabled: bool,
    ) -> Result<(PublicKey, bool), ChangeError> {
        let layout = self.store.layout();
        for _ in 0..TRIES {
            let fleet = self.fleet().await?;
            let key = layout.name(name);
            let Some(owner) = self.owner(&key).await? else { return Err(no_client(name)) };
            let client = owner.value.public_key;
            let at = layout.client(&client);
            // It got another key in this moment.
            let Some(was) = self.seen::<ClientValue>(&at).await? else { continue };
            if was.value.disabled != enabled {
                return Ok((client, false));
            }
            let value = ClientValue { disabled: !enabled, ..was.value };
            let put = TxnOp::put(at.clone(), written(&value), None);
            let is_so = [fleet, unchanged(&key, owner.revision), unchanged(&at, was.revision)];
            if self.store.change(&Txn::new().when(is_so).and_then([put])).await? {
                return Ok((client, true));
            }
        }
        Err(ChangeError::Busy)
    }

    /// A proxy is to take no new sessions, or to take them again. Returns whether that is new.
    ///
    /// # Errors
    /// No such proxy runs; or the registry does not answer.
    pub async fn drain(&self, id: &str, drain: bool) -> Result<bool, ChangeError> {
        let layout = self.store.layout();
        let key = layout.drain(id);
        for _ in 0..TRIES {
            let fleet = self.fleet().await?;
            let here = self.store.get(&key).await?;
            if here.is_some() == drain {
                return Ok(false);
            }
            if drain && self.store.get(&layout.proxy(id)).await?.is_none() {
                return Err(ChangeError::NoClient(format!(
                    "no proxy `{}` runs: `ropewalk fleet` names those that do",
                    id.escape_debug()
                )));
            }
            let value = DrainValue { version: VERSION, since: now(), unknown: Unknown::new() };
            let op = match drain {
                true => TxnOp::put(key.clone(), written(&value), None),
                false => TxnOp::delete(key.clone(), None),
            };
            let revision = here.map_or(0, |kv| kv.mod_revision());
            let change = Txn::new().when([fleet, unchanged(&key, revision)]).and_then([op]);
            if self.store.change(&change).await? {
                return Ok(true);
            }
        }
        Err(ChangeError::Busy)
    }

    async fn owner(&self, key: &str) -> Result<Option<Seen<Owner>>, ChangeError> {
        self.seen(key).await
    }

    /// What stands at a key.
    async fn seen<T: serde::de::DeserializeOwned>(
        &self,
        key: &str,
    ) -> Result<Option<Seen<T>>, ChangeError> {
        let Some(kv) = self.store.get(key).await? else { return Ok(None) };
        let value = value_of(key, &kv)?;
        Ok(Some(Seen { value, revision: kv.mod_revision() }))
    }
}

/// What binding a key to an invitation takes, whether or not the client is new.
struct Bind<'a> {
    name: String,
    client: PublicKey,
    hash: &'a str,
    conditions: Vec<Compare>,
    puts: Vec<TxnOp>,
}

fn value_of<T: serde::de::DeserializeOwned>(key: &str, kv: &KeyValue) -> Result<T, ChangeError> {
    read(kv.value()).map_err(|why| {
        ChangeError::Wish(format!(
            "the value at {key} is not Ropewalk's, or damaged: {why}. Put back a snapshot of etcd, or delete the key \
             (`etcdctl del {key}`)"
        ))
    })
}

fn no_client(name: &str) -> ChangeError {
    let shown = name.escape_debug();
    ChangeError::NoClient(format!(
        "no client `{shown}` has joined: `ropewalk peer list` names them"
    ))
}

/// The inner addresses of a client.
pub(crate) fn inner((v4, v6): (Ipv4Addr, Option<Ipv6Addr>)) -> impl Iterator<Item = IpAddr> {
    std::iter::once(IpAddr::V4(v4)).chain(v6.map(IpAddr::V6))
}

/// The condition that nothing stands at a key.
#[must_use]
pub fn absent(key: &str) -> Compare {
    Compare::create_revision(key, CompareOp::Equal, 0)
}

/// The condition that a key is as it was read; 0: nothing stood there.
#[must_use]
pub fn unchanged(key: &str, revision: i64) -> Compare {
    Compare::mod_revision(key, CompareOp::Equal, revision)
}

/// Why this proxy cannot be one of that fleet.
fn differs(ours: &FleetValue, theirs: &FleetValue) -> Option<String> {
    let pool =
        |pool: Option<ipnet::Ipv6Net>| pool.map_or("off".to_owned(), |pool| pool.to_string());
    if theirs.version > VERSION {
        return Some(format!(
            "the fleet has version {} of the registry, and this program knows {VERSION}: install a newer ropewalk here",
            theirs.version
        ));
    }
    if ours.name != theirs.name {
        return Some(format!(
            "the registry below this prefix is of the fleet `{}`, and `fleet` of [registry] is `{}`: correct it, or use \
             another prefix",
            theirs.name, ours.name
        ));
    }
    if (ours.pool_v4, ours.pool_v6) != (theirs.pool_v4, theirs.pool_v6) {
        return Some(format!(
            "the fleet has pool_v4 = \"{}\" and pool_v6 = \"{}\", and this proxy has \"{}\" and \"{}\": all proxies of a \
             fleet need the same, so write those of the fleet into the config",
            theirs.pool_v4,
            pool(theirs.pool_v6),
            ours.pool_v4,
            pool(ours.pool_v6)
        ));
    }
    None
}
