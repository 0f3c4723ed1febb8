//! The registry that several proxies share: what [`ropewalk_fleet`] keeps in etcd, for the daemon.
//!
//! The copy in memory answers what a handshake asks. A claim, and a wish at the control socket, goes to the registry's thread,
//! and its answer comes back to the loop as [`News`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use ropewalk_control::api::{
    ApiError, EnabledPeer, ErrorCode, OpenInvitation, RegistryStatus, RemovedPeer, Request,
    Response,
};
use ropewalk_control::invitation::InvitingProxy;
use ropewalk_control::server;
use ropewalk_fleet::FleetProxy;
use ropewalk_fleet::cache::{Change, Client};
use ropewalk_fleet::changes::{ChangeError, Claimed};
use ropewalk_fleet::layout::{FleetValue, ProxyState, Unknown, VERSION};
use ropewalk_fleet::presence::Own;
use ropewalk_fleet::service::{Invite, News as FleetNews, Options, Service};
use ropewalk_fleet::store::{Access, StoreError};
use ropewalk_proto::endpoint::Claim;
use ropewalk_proto::fleet::{self as proto, FleetList};
use ropewalk_proto::wire::hello::answer::Refusal;
use ropewalk_settings::{HostPort, InvitationToken, PublicKey};
use tokio::sync::mpsc;
use tokio::task::spawn_local;

use crate::config::{Config, PeerConfig, RegistryConfig};
use crate::daemon::Command;
use crate::inviting;
use crate::leases::{Lease, LeaseTable};
use crate::registry::fleet_file::FleetFile;
use crate::registry::{Member, News, Outcome, Registry, inviting_proxies};

/// Claims that may be under way; whoever comes then has to ask again.
const MAX_CLAIMS: usize = 64;

/// News of the registry's thread that may wait for the loop, each of at most some hundred clients.
const NEWS: usize = 16;

/// The registry in etcd.
#[derive(Debug)]
pub struct Etcd {
    service: Service,
    config: RegistryConfig,
    /// Nothing: addresses stand with their clients.
    leases: LeaseTable,
    /// The sessions here, and when each began, in microseconds since 1970.
    sessions: BTreeMap<PublicKey, u64>,
    /// Who waits for an answer to a claim.
    claims: BTreeSet<PublicKey>,
    draining: bool,
    /// The loop's queue.
    commands: mpsc::Sender<Command>,
}

impl Etcd {
    /// Begins to follow the registry of `config`; `commands` is the queue of the loop, in whose
    /// [`LocalSet`](tokio::task::LocalSet) all calls are to be.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(
        config: &Config,
        registry: &RegistryConfig,
        commands: mpsc::Sender<Command>,
    ) -> std::io::Result<Self> {
        let (news, mut heard) = mpsc::channel(NEWS);
        let options = Options {
            access: access(registry),
            terms: terms(config, registry),
            own: own(config, registry),
            max_clients: config.max_peers,
            kept_in: Arc::new(FleetFile::open(config.fleet_file())?),
        };
        let service = Service::start(options, news)?;
        let to_loop = commands.clone();
        spawn_local(async move {
            while let Some(news) = heard.recv().await {
                if to_loop.send(Command::Registry(News::Fleet(news))).await.is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            service,
            config: registry.clone(),
            leases: LeaseTable::default(),
            sessions: BTreeMap::new(),
            claims: BTreeSet::new(),
            draining: false,
            commands,
        })
    }

    /// What comes of an answer is for the loop.
    fn later<T: 'static>(
        &self,
        answer: impl Future<Output = T> + 'static,
        news: impl FnOnce(T) -> News + 'static,
    ) {
        let commands = self.commands.clone();
        spawn_local(async move {
            let news = news(answer.await);
            // A loop that has ended wants to know nothing.
            drop(commands.send(Command::Registry(news)).await);
        });
    }

    fn invite(&self, config: &Config, asked: server::Command) {
        let Request::Invite(wish) = &asked.request else { return };
        let prepared = match inviting::prepare(config, wish) {
            Ok(prepared) => prepared.with_others(self.inviting_proxies()),
            Err(error) => return asked.answer(Err(error)),
        };
        let wish = Invite {
            name: wish.name.clone(),
            again: wish.again,
            token: prepared.invitation.token.clone(),
            expires: prepared.invitation.expires,
        };
        let name = wish.name.clone();
        let answer = self.service.invite(wish);
        spawn_local(async move {
            let answer = answer.await.map_err(|error| refused(&error));
            asked.answer(answer.map(|(replaces, voided)| {
                let invited = prepared.into_invited(&name, replaces, voided);
                Response::Invited(Box::new(invited))
            }));
        });
    }

    /// The other proxies that an invitation of this one names.
    fn inviting_proxies(&self) -> Vec<InvitingProxy> {
        let proxies = ropewalk_fleet::proxies(&self.service.mirror().lock().cache);
        inviting_proxies::choose((&self.config.id, &self.config.region), &proxies)
    }

    fn remove(&self, name: String, asked: server::Command) {
        let answer = self.service.remove(name.clone());
        self.later(answer, move |removed| News::Removed(asked, name, removed));
    }

    fn enable(&self, name: String, enabled: bool, asked: server::Command) {
        let answer = self.service.enable(name.clone(), enabled);
        self.later(answer, move |done| News::Enabled(asked, (name, enabled), done));
    }

    /// What the answer to a claim means.
    fn claimed(&mut self, client: PublicKey, claimed: Result<Claimed, ChangeError>) -> Outcome {
        self.claims.remove(&client);
        let claim = match claimed {
            Ok(Claimed::Bound { name, formerly, address_v4, address_v6, disabled }) => {
                let (since, public_key) = (inviting::now(), client);
                let lease = Lease { v4: address_v4, v6: address_v6 };
                let member = Member { name, public_key, since, formerly, disabled };
                return Outcome::Bound(member, Some(lease));
            }
            Ok(Claimed::Unknown) => {
                tracing::debug!(key = %client, "an invitation that was never given: silence");
                Claim::Unknown
            }
            Ok(Claimed::Used(name)) => {
                tracing::warn!(peer = name, key = %client, "refused: the invitation was used before, with another key");
                Claim::Refused(Refusal::InvitationUsed)
            }
            Ok(Claimed::Over(name)) => {
                tracing::warn!(peer = name, key = %client, "refused: the invitation has expired or was taken back");
                Claim::Refused(Refusal::InvitationExpired)
            }
            Ok(Claimed::Full(name)) => {
                tracing::warn!(
                    peer = name,
                    "refused: there are as many clients as `max_peers` allows"
                );
                Claim::Refused(Refusal::Full)
            }
            Ok(Claimed::NoAddress(name)) => {
                tracing::warn!(peer = name, "refused: no inner address of the pool is free");
                Claim::Refused(Refusal::NoAddress)
            }
            Err(error) => {
                tracing::error!("a client with an invitation cannot be let in: {error}");
                Claim::Unknown
            }
        };
        Outcome::Settled(client, claim)
    }
}

impl Registry for Etcd {
    fn peers(&self, of_file: &[PeerConfig]) -> (Vec<PeerConfig>, Vec<String>) {
        let mirrored = self.service.mirror().lock();
        let joined = mirrored.cache.clients.iter().map(|(key, client)| peer(*key, client));
        (of_file.iter().cloned().chain(joined).collect(), Vec::new())
    }

    fn invitations(&self) -> Vec<OpenInvitation> {
        let now = inviting::now();
        let mirrored = self.service.mirror().lock();
        let open = &mirrored.cache.invitations;
        let invited: BTreeSet<&str> = open.values().map(|open| &*open.name).collect();
        let clients = mirrored.cache.clients.values().map(|client| &*client.name);
        // Clients may be many: where nobody is invited none is looked at.
        let clients = clients.take_while(|_| !invited.is_empty());
        let joined: BTreeSet<&str> = clients.filter(|name| invited.contains(name)).collect();
        let shown = open.values().map(|open| OpenInvitation {
            name: open.name.clone(),
            expires: open.expires,
            expired: open.expires <= now,
            replaces: joined.contains(&*open.name),
        });
        shown.collect()
    }

    fn leases(&self) -> &LeaseTable {
        &self.leases
    }

    fn leased(&self) -> (usize, usize) {
        let mirrored = self.service.mirror().lock();
        (mirrored.cache.clients.len(), mirrored.cache.addresses_v6())
    }

    fn name_of(&self, of_file: &[PeerConfig], key: &PublicKey) -> Option<String> {
        if let Some(peer) = of_file.iter().find(|peer| peer.public_key == *key) {
            return Some(peer.name.to_string());
        }
        let mirrored = self.service.mirror().lock();
        mirrored.cache.clients.get(key).map(|client| client.name.to_string())
    }

    fn admit(&mut self, _of_file: &[PeerConfig]) {}

    fn forget(&mut self, _key: &PublicKey) {}

    fn ask(&mut self, config: &Config, asked: server::Command) {
        match &asked.request {
            Request::Invite(_) => self.invite(config, asked),
            Request::RemovePeer { name } => self.remove(name.clone(), asked),
            Request::EnablePeer { name, enabled } => self.enable(name.clone(), *enabled, asked),
            // Nothing else is asked of the registry.
            _ => asked.answer(Err(ApiError::new(
                ErrorCode::BadRequest,
                "this is not the registry's to answer",
            ))),
        }
    }

    fn show(&mut self, _config: &Config, client: PublicKey, token: &InvitationToken) -> Claim {
        if self.service.mirror().lock().cache.clients.contains_key(&client) {
            // It was let in while this message was on its way from its home, which knows it by now.
            return Claim::Unknown;
        }
        if self.claims.contains(&client) {
            return Claim::Later;
        }
        if self.claims.len() >= MAX_CLAIMS {
            tracing::warn!("a client with an invitation has to ask again: the registry is slow");
            return Claim::Unknown;
        }
        self.claims.insert(client);
        let answer = self.service.claim(token.clone(), client);
        self.later(answer, move |claimed| News::Claimed(client, claimed));
        Claim::Later
    }

    fn hear(&mut self, _config: &Config, news: News) -> Vec<Outcome> {
        match news {
            // It has no files.
            News::Written(..) => Vec::new(),
            News::Claimed(client, claimed) => vec![self.claimed(client, claimed)],
            News::Removed(asked, name, Ok(removed)) => {
                let (public_key, invitations) = (removed.public_key, removed.invitations);
                vec![Outcome::Removed(
                    asked,
                    Box::new(RemovedPeer { name, public_key, invitations }),
                )]
            }
            News::Enabled(asked, (name, enabled), Ok((public_key, changed))) => {
                let enabled = EnabledPeer { name, public_key, enabled, changed };
                vec![Outcome::Enabled(asked, Box::new(enabled))]
            }
            News::Removed(asked, _, Err(error)) | News::Enabled(asked, _, Err(error)) => {
                asked.answer(Err(refused(&error)));
                Vec::new()
            }
            News::Fleet(FleetNews::Changes(changes)) => vec![changed(changes)],
            News::Fleet(FleetNews::Displaced(client, since)) => {
                // It may have begun another one here meanwhile.
                let is_present = self.sessions.get(&client) == Some(&since);
                is_present.then_some(Outcome::Displaced(client)).into_iter().collect()
            }
            News::Fleet(FleetNews::State(state)) => {
                self.draining = state == ProxyState::Draining;
                vec![Outcome::Draining(self.draining)]
            }
            News::Fleet(FleetNews::Proxies(proxies)) => vec![Outcome::Fleet(list(&proxies))],
            News::Fleet(FleetNews::NotOurs) => vec![Outcome::NotOurs],
        }
    }

    fn note_session(&mut self, client: PublicKey, is_up: bool) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut since = u64::try_from(since.as_micros()).unwrap_or(u64::MAX);
        if is_up {
            let known =
                self.service.mirror().lock().cache.sessions.get(&client).map(|it| it.since_us);
            since = begins(since, known);
            self.sessions.insert(client, since);
        } else {
            self.sessions.remove(&client);
        }
        self.service.note_session(client, is_up.then_some(since));
    }

    fn keep_session(&mut self, client: PublicKey) {
        self.service.keep_session(client);
    }

    fn proxy_of(&self, client: &PublicKey) -> Option<String> {
        let mirrored = self.service.mirror().lock();
        mirrored.cache.sessions.get(client).map(|session| session.proxy.to_string())
    }

    fn status(&self, clients: usize) -> Option<RegistryStatus> {
        let mirrored = self.service.mirror().lock();
        let away = mirrored.away.as_ref();
        Some(RegistryStatus {
            fleet: self.config.fleet.clone(),
            id: self.config.id.clone(),
            endpoints: self.config.endpoints.clone(),
            begun: mirrored.lists > 0,
            away_s: away.map(|away| inviting::now().saturating_sub(away.since)),
            away_why: away.map(|away| away.why.clone()),
            copy_age_s: mirrored.recalled.map(|as_of| inviting::now().saturating_sub(as_of)),
            draining: self.draining,
            clients: clients as u64,
            proxies: mirrored.cache.proxies.len() as u64,
            sessions: mirrored.cache.sessions.len() as u64,
            revision: mirrored.cache.revision,
            foreign: mirrored.cache.foreign.clone(),
        })
    }
}

/// What changes of clients mean, in the order in which they were made: of several of one client the last counts, and that it was
/// gone before that, for then its session is over.
#[must_use]
pub fn changed(changes: Vec<Change>) -> Outcome {
    // Of each client whether it was gone, and what it is in the end.
    let mut clients: BTreeMap<PublicKey, (bool, Option<Client>)> = BTreeMap::new();
    for change in changes {
        match change {
            Change::Came(key, client) => clients.entry(key).or_default().1 = Some(client),
            Change::Gone(key) => drop(clients.insert(key, (true, None))),
            Change::Session(_) | Change::Proxies => {}
        }
    }
    let (mut gone, mut come) = (Vec::new(), Vec::new());
    for (key, (was_gone, client)) in clients {
        if was_gone {
            gone.push(key);
        }
        come.extend(client.map(|client| peer(key, &client)));
    }
    Outcome::Changed { gone, come }
}

/// When a session that begins at `clock` began: the clocks of two proxies differ, and it is newer than the one that is known of.
fn begins(clock: u64, known: Option<u64>) -> u64 {
    clock.max(known.map_or(0, |known| known.saturating_add(1)))
}

/// Where the registry of a config is.
#[must_use]
pub fn access(registry: &RegistryConfig) -> Access {
    Access {
        endpoints: registry.endpoints.clone(),
        prefix: registry.prefix.clone(),
        tls: registry.tls.clone(),
    }
}

/// What the fleet of a config must have agreed on.
#[must_use]
pub fn terms(config: &Config, registry: &RegistryConfig) -> FleetValue {
    FleetValue {
        version: VERSION,
        name: registry.fleet.clone(),
        pool_v4: config.pools.v4(),
        pool_v6: config.pools.v6(),
        unknown: Unknown::new(),
    }
}

fn own(config: &Config, registry: &RegistryConfig) -> Own {
    let addresses = match inviting::public_addresses(config) {
        Ok(addresses) => addresses.iter().filter_map(HostPort::address).collect(),
        Err(error) => {
            tracing::warn!("the fleet is not told where this proxy is: {error}");
            Vec::new()
        }
    };
    Own {
        id: registry.id.clone(),
        region: registry.region.clone(),
        capacity: registry.capacity,
        public_key: config.private_key.public_key(),
        addresses,
        program: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

fn peer(key: PublicKey, client: &Client) -> PeerConfig {
    PeerConfig {
        name: Arc::clone(&client.name),
        public_key: key,
        preshared_key: None,
        address_v4: Some(client.address_v4),
        address_v6: client.address_v6,
        prefix_v6: None,
        formerly: None,
        disabled: client.disabled,
    }
}

/// The proxies, as clients are told of them. One that no client could use is left out.
fn list(proxies: &[FleetProxy]) -> Arc<FleetList> {
    let mut told: Vec<proto::FleetProxy> = Vec::new();
    for proxy in proxies {
        let Some(one) = for_clients(proxy) else {
            tracing::warn!(
                proxy = proxy.id,
                "clients are not told of this proxy: its name or region is none"
            );
            continue;
        };
        told.push(one);
        if let Err(error) = FleetList::new(told.clone()) {
            tracing::warn!("clients are not told of a proxy: {error}");
            told.pop();
        }
    }
    // Each was taken, so all are.
    Arc::new(FleetList::new(told).unwrap_or_default())
}

fn for_clients(proxy: &FleetProxy) -> Option<proto::FleetProxy> {
    Some(proto::FleetProxy {
        id: proto::ProxyId::new(&proxy.id)?,
        region: proto::Region::new(&proxy.region)?,
        addresses: proxy.addresses.iter().copied().take(proto::MAX_PROXY_ADDRESSES).collect(),
        public_key: proxy.public_key,
        state: match proxy.state {
            ProxyState::Serving => proto::ProxyState::Serving,
            ProxyState::Draining => proto::ProxyState::Draining,
        },
        load: proxy.load,
    })
}

/// How the registry's error is told at the control socket.
#[must_use]
pub fn refused(error: &ChangeError) -> ApiError {
    let code = match error {
        ChangeError::Wish(_) => ErrorCode::BadRequest,
        ChangeError::NoClient(_) => ErrorCode::NotFound,
        ChangeError::Busy | ChangeError::Store(StoreError::Away { .. }) => ErrorCode::Busy,
        ChangeError::Fleet(_) | ChangeError::Store(_) => ErrorCode::Failed,
    };
    ApiError::new(code, error.to_string())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn of_several_changes_of_a_client_the_last_counts_and_that_it_was_gone_between() {
        let key = |number: u8| PublicKey::from_bytes([number; 32]);
        let came = |number: u8, last: u8| {
            let address_v4 = Ipv4Addr::new(10, 77, 0, last);
            let client =
                Client { name: "laptop".into(), address_v4, address_v6: None, disabled: false };
            Change::Came(key(number), client)
        };
        let changes = vec![
            // One goes, and comes again just as it was.
            Change::Gone(key(1)),
            came(1, 2),
            // One comes, and goes.
            came(2, 3),
            Change::Gone(key(2)),
            // One changes twice, another one after it was gone.
            came(3, 4),
            came(3, 5),
            came(4, 6),
            Change::Gone(key(4)),
            came(4, 7),
            came(4, 8),
        ];
        let Outcome::Changed { gone, come } = changed(changes) else { panic!("nothing changed") };
        assert_eq!(gone, [key(1), key(2), key(4)]);
        let come: Vec<_> = come.iter().map(|peer| (peer.public_key, peer.address_v4)).collect();
        let now = |number: u8, last: u8| (key(number), Some(Ipv4Addr::new(10, 77, 0, last)));
        assert_eq!(come, [now(1, 2), now(3, 5), now(4, 8)]);
    }

    #[test]
    fn a_session_that_begins_is_newer_than_the_known_one_whatever_the_clock_says() {
        const HOUR: u64 = 3_600_000_000;
        let now = 500 * HOUR;
        for (clock, known, expected) in [
            (now, None, now),
            (now, Some(now - 1), now),
            (now, Some(now), now + 1),
            (now - HOUR, Some(now), now + 1),
            (now, Some(now + HOUR), now + HOUR + 1),
            (now, Some(u64::MAX), u64::MAX),
        ] {
            assert_eq!(begins(clock, known), expected, "{clock} after {known:?}");
        }
    }
}
