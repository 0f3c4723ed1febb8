//! What a proxy says of itself: that it runs, and which clients have their session with it.
//!
//! Both stand under a lease of 10 s: when the proxy is gone, or cut off, they go. The newest session of a client wins: a proxy
//! that finds a newer one of another proxy lets its own go, and one that was cut off for a while does not write an old session
//! over a newer one.
//!
//! | of two sessions the newer is | where |
//! | --- | --- |
//! | the one that was written later, by etcd's revisions | both were written when they began |
//! | the one that began later, by its proxy's clock | one began while its proxy was cut off, or etcd was restored from a snapshot |

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use etcd_client::{PutOptions, Txn, TxnOp};
use futures_util::future::join_all;
use ropewalk_settings::PublicKey;

use crate::changes::unchanged;
use crate::layout::{ProxyState, ProxyValue, SessionValue, Unknown, VERSION, read, written};
use crate::mirror::{Mirror, now};
use crate::store::{Store, StoreError};

/// How long the lease holds without a word.
const LEASE_S: i64 = 10;

/// How often the lease is renewed.
pub const RENEWAL: Duration = Duration::from_secs(3);

/// How often a session that others write, too, is tried.
const TRIES: u32 = 8;

/// How long sessions are said at a stretch: then the lease may be due, and orders and changes wait.
const STRETCH: Duration = Duration::from_millis(250);

/// Sessions that are said at a time: what comes together etcd writes to its disks together.
const UNDER_WAY: usize = 16;

/// How long a displaced session is remembered. A client that has just said that it moves keeps its session for as long (PROTOCOL §4.2),
/// and its word may come later than that of the other proxy.
const REMEMBERED: Duration = Duration::from_secs(10);

/// Points of load that are worth a word to the others.
const LOAD_STEP: u8 = 5;

/// What a proxy is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    /// Its id in the fleet.
    pub id: String,
    /// Where it stands.
    pub region: String,
    /// Clients that it is made for.
    pub capacity: u32,
    /// Its public key.
    pub public_key: PublicKey,
    /// Where clients find it.
    pub addresses: Vec<SocketAddr>,
    /// The version of its program.
    pub program: String,
}

/// What it says of itself.
#[derive(Debug)]
pub struct Presence {
    own: Own,
    store: Store,
    mirror: Mirror,
    since: u64,
    lease: Option<i64>,
    /// Its sessions.
    sessions: BTreeMap<PublicKey, Begun>,
    /// How often etcd was found to be restored, when revisions were last looked at.
    restored: u64,
    /// Those of which etcd does not know yet, or knows still.
    unsaid: BTreeSet<PublicKey>,
    /// Those that were found to be older than another proxy's, with when they began, until somebody is told.
    displaced: Vec<(PublicKey, u64)>,
    /// Those that were displaced, and when, for a while.
    gone: BTreeMap<PublicKey, (Begun, Instant)>,
    /// The state and the load that were said last.
    said: Option<(ProxyState, u8)>,
}

/// A session of this proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Begun {
    /// When, in microseconds since 1970 by this proxy's clock.
    since_us: u64,
    /// The revision at which it was first written; `None`: it was not, or that revision says nothing any more.
    first: Option<i64>,
}

impl Begun {
    /// Whether another proxy's session, which began then and was first written at that revision, is newer.
    fn is_older_than(self, since_us: u64, first: i64) -> bool {
        match self.first {
            Some(own) => first > own,
            None => since_us > self.since_us,
        }
    }
}

/// What became of a session that was said.
enum Said {
    /// The registry has it, first at this revision.
    Written(i64),
    /// Another proxy has a newer one.
    Older,
    /// It is over; or others write at its key all the time.
    Nothing,
}

impl Presence {
    /// Of this proxy. Nothing is said yet.
    #[must_use]
    pub fn new(own: Own, store: Store, mirror: Mirror) -> Self {
        Self {
            own,
            store,
            mirror,
            since: now(),
            lease: None,
            sessions: BTreeMap::new(),
            restored: 0,
            unsaid: BTreeSet::new(),
            displaced: Vec::new(),
            gone: BTreeMap::new(),
            said: None,
        }
    }

    /// A session with this client began then, or has ended.
    pub fn note(&mut self, client: PublicKey, since_us: Option<u64>) {
        match since_us {
            Some(since_us) => self.sessions.insert(client, Begun { since_us, first: None }),
            None => self.sessions.remove(&client),
        };
        self.gone.remove(&client);
        self.unsaid.insert(client);
    }

    /// Whether a session here is older than what the registry has of another proxy: then it is forgotten, and this is when it
    /// began.
    pub fn displaced(&mut self, client: &PublicKey) -> Option<u64> {
        self.note_restored();
        let own = *self.sessions.get(client)?;
        let newer = {
            let mirrored = self.mirror.lock();
            let other = mirrored.cache.sessions.get(client)?;
            *other.proxy != *self.own.id && own.is_older_than(other.since_us, other.first)
        };
        if !newer {
            return None;
        }
        self.displace(*client, own);
        Some(own.since_us)
    }

    fn displace(&mut self, client: PublicKey, own: Begun) {
        self.unsaid.remove(&client);
        self.sessions.remove(&client);
        self.gone.insert(client, (own, Instant::now()));
    }

    /// The sessions that were found to be older than another proxy's when they were said, with when they began.
    pub fn take_displaced(&mut self) -> Vec<(PublicKey, u64)> {
        std::mem::take(&mut self.displaced)
    }

    /// A session that was just displaced goes on here, beside the newer one: the registry keeps that.
    pub fn restore(&mut self, client: &PublicKey) {
        if let Some((own, _)) = self.gone.remove(client) {
            self.sessions.entry(*client).or_insert(own);
        }
    }

    /// If etcd was restored from a snapshot, or is another one, the revisions that were noted say nothing any more.
    fn note_restored(&mut self) {
        let restored = self.mirror.lock().restored;
        if std::mem::replace(&mut self.restored, restored) != restored {
            let gone = self.gone.values_mut().map(|(own, _)| own);
            self.sessions.values_mut().chain(gone).for_each(|own| own.first = None);
        }
    }

    /// Whether the operator wants it to drain.
    #[must_use]
    pub fn state(&self) -> ProxyState {
        match self.mirror.lock().cache.drains.contains_key(&self.own.id) {
            true => ProxyState::Draining,
            false => ProxyState::Serving,
        }
    }

    /// Whether something is to be said.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.lease.is_none() || !self.unsaid.is_empty() || self.has_news()
    }

    /// Whether sessions are left that can be said at once.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.lease.is_some() && !self.unsaid.is_empty()
    }

    fn has_news(&self) -> bool {
        let (state, load) = (self.state(), self.load());
        let is_news = |(said, at): (ProxyState, u8)| {
            said != state || at.abs_diff(load) >= LOAD_STEP || (at == 100) != (load == 100)
        };
        self.said.is_none_or(is_news)
    }

    fn load(&self) -> u8 {
        let sessions = self.sessions.len() as u64;
        u8::try_from((sessions * 100 / u64::from(self.own.capacity.max(1))).min(100)).unwrap_or(100)
    }

    /// Renews the lease; without one, takes one and says everything again.
    ///
    /// # Errors
    /// etcd does not answer, or another proxy has this id.
    pub async fn renew(&mut self) -> Result<(), StoreError> {
        self.gone.retain(|_, (_, at)| at.elapsed() < REMEMBERED);
        if let Some(lease) = self.lease {
            let mut client = self.store.client().await?;
            match tokio::time::timeout(RENEWAL, client.lease_keep_alive(lease)).await {
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(error)) => {
                    tracing::debug!("the lease in the registry is not renewed: {error}");
                }
                Err(_) => tracing::debug!("the lease in the registry is not renewed in time"),
            }
            self.lease = None;
        }
        let mut client = self.store.client().await?;
        let granted = tokio::time::timeout(RENEWAL, client.lease_grant(LEASE_S, None)).await;
        let granted = granted.map_err(|_| self.store.away("no lease within 3 s"))?;
        self.lease = Some(granted.map_err(|error| self.store.told(&error))?.id());
        self.said = None;
        self.unsaid.extend(self.sessions.keys());
        Ok(())
    }

    /// Says what is new, for a quarter of a second or little more: [what is left](Self::has_more) is said the next time. Sessions of which another
    /// proxy has a newer one are [to be taken](Self::take_displaced) then, also after an error.
    ///
    /// # Errors
    /// etcd does not answer, or another proxy has this id; what was not said is said later.
    pub async fn say(&mut self) -> Result<(), StoreError> {
        let Some(lease) = self.lease else { return Ok(()) };
        self.note_restored();
        if self.has_news() {
            self.say_proxy(lease).await?;
        }
        let begun = Instant::now();
        while !self.unsaid.is_empty() && begun.elapsed() < STRETCH {
            let next = self.unsaid.iter().take(UNDER_WAY);
            let some: Vec<(PublicKey, Option<Begun>)> =
                next.map(|client| (*client, self.sessions.get(client).copied())).collect();
            let saying = some.iter().map(|&(client, own)| self.say_client(client, own, lease));
            let all_said = join_all(saying).await;
            let mut done = Ok(());
            for ((client, own), said) in some.into_iter().zip(all_said) {
                match said {
                    Ok(said) => self.note_said(client, own, &said),
                    Err(error) => done = Err(error),
                }
            }
            done?;
        }
        Ok(())
    }

    async fn say_client(
        &self,
        client: PublicKey,
        own: Option<Begun>,
        lease: i64,
    ) -> Result<Said, StoreError> {
        match own {
            Some(own) => self.say_session(client, own, lease).await,
            None => self.say_end(client).await.map(|()| Said::Nothing),
        }
    }

    fn note_said(&mut self, client: PublicKey, own: Option<Begun>, said: &Said) {
        self.unsaid.remove(&client);
        match (own, said) {
            (Some(own), Said::Written(first)) => {
                self.sessions.insert(client, Begun { first: Some(*first), ..own });
            }
            (Some(own), Said::Older) => {
                self.displace(client, own);
                self.displaced.push((client, own.since_us));
            }
            (None, _) | (_, Said::Nothing) => {}
        }
    }

    async fn say_proxy(&mut self, lease: i64) -> Result<(), StoreError> {
        let (state, load) = (self.state(), self.load());
        let key = self.store.layout().proxy(&self.own.id);
        let here = self.store.get(&key).await?;
        let revision = here.as_ref().map_or(0, etcd_client::KeyValue::mod_revision);
        let other = here.and_then(|kv| read::<ProxyValue>(kv.value()).ok());
        if other.is_some_and(|other| other.public_key != self.own.public_key) {
            return Err(StoreError::Refused(format!(
                "another proxy with another key runs as `{}`: give this one an `id` of its own in [registry]",
                self.own.id
            )));
        }
        let value = ProxyValue {
            version: VERSION,
            public_key: self.own.public_key,
            addresses: self.own.addresses.clone(),
            region: self.own.region.clone(),
            capacity: self.own.capacity,
            load,
            sessions: u32::try_from(self.sessions.len()).unwrap_or(u32::MAX),
            program: self.own.program.clone(),
            state,
            since: self.since,
            unknown: Unknown::new(),
        };
        let put =
            TxnOp::put(key.clone(), written(&value), Some(PutOptions::new().with_lease(lease)));
        let change = Txn::new().when([unchanged(&key, revision)]).and_then([put]);
        if self.store.change(&change).await? {
            self.said = Some((state, load));
        }
        Ok(())
    }

    async fn say_session(
        &self,
        client: PublicKey,
        own: Begun,
        lease: i64,
    ) -> Result<Said, StoreError> {
        let key = self.store.layout().session(&client);
        for _ in 0..TRIES {
            let here = self.store.get(&key).await?;
            let revision = here.as_ref().map_or(0, etcd_client::KeyValue::mod_revision);
            let value = here.and_then(|kv| read::<SessionValue>(kv.value()).ok());
            let other = value.filter(|value| value.proxy != self.own.id);
            let is_newer = |other: SessionValue| {
                own.is_older_than(other.since_us, other.first.unwrap_or(revision))
            };
            if other.is_some_and(is_newer) {
                return Ok(Said::Older);
            }
            let value = SessionValue {
                version: VERSION,
                proxy: self.own.id.clone(),
                since_us: own.since_us,
                first: own.first,
                unknown: Unknown::new(),
            };
            let options = Some(PutOptions::new().with_lease(lease));
            let put = TxnOp::put(key.clone(), written(&value), options);
            let change = Txn::new().when([unchanged(&key, revision)]).and_then([put]);
            if let Some(written) = self.store.change_at(&change).await? {
                return Ok(Said::Written(own.first.unwrap_or(written)));
            }
        }
        Ok(Said::Nothing)
    }

    async fn say_end(&self, client: PublicKey) -> Result<(), StoreError> {
        let key = self.store.layout().session(&client);
        let Some(kv) = self.store.get(&key).await? else { return Ok(()) };
        let ours = read::<SessionValue>(kv.value()).is_ok_and(|value| value.proxy == self.own.id);
        if ours {
            let delete = TxnOp::delete(key.clone(), None);
            let change = Txn::new().when([unchanged(&key, kv.mod_revision())]).and_then([delete]);
            self.store.change(&change).await?;
        }
        Ok(())
    }

    /// Takes back what was said, at the end.
    pub async fn leave(&mut self) {
        let Some(lease) = self.lease.take() else { return };
        if let Ok(mut client) = self.store.client().await {
            // What is not taken back goes with the lease.
            drop(tokio::time::timeout(Duration::from_secs(1), client.lease_revoke(lease)).await);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::cache::Session;
    use crate::store::Access;

    fn presence(mirror: &Mirror) -> Presence {
        let own = Own {
            id: "one".to_owned(),
            region: "test".to_owned(),
            capacity: 100,
            public_key: PublicKey::from_bytes([9; 32]),
            addresses: Vec::new(),
            program: "0".to_owned(),
        };
        let endpoints = vec!["http://192.0.2.1:2379".to_owned()];
        let access = Access { endpoints, prefix: "/ropewalk/test".to_owned(), tls: None };
        Presence::new(own, Store::new(access), mirror.clone())
    }

    #[test]
    fn a_session_whose_client_is_heard_to_move_only_when_it_was_displaced_is_had_again() {
        let (mirror, client) = (Mirror::default(), PublicKey::from_bytes([1; 32]));
        let mut one = presence(&mirror);
        let newer = Session { proxy: Arc::from("two"), since_us: 2_000, first: 7 };
        mirror.lock().cache.sessions.insert(client, newer);
        one.note(client, Some(1_000));
        assert_eq!(one.displaced(&client), Some(1_000));
        assert!(one.sessions.is_empty() && one.unsaid.is_empty());
        one.restore(&client);
        assert!(one.sessions.contains_key(&client));
        assert!(one.unsaid.is_empty(), "the registry keeps the newer one");
        // When it was kept long enough it is displaced again.
        assert_eq!(one.displaced(&client), Some(1_000));
        one.note(client, None);
        one.restore(&client);
        assert!(one.sessions.is_empty(), "it is over");
    }
}
