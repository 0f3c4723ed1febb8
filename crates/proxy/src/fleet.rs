//! `ropewalk fleet`: straight at the registry that several proxies share, whether or not one of them runs here.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use ropewalk_fleet::cache::Cache;
use ropewalk_fleet::changes::{ChangeError, Changes};
use ropewalk_fleet::mirror::Mirror;
use ropewalk_fleet::proxies;
use ropewalk_fleet::store::{Store, StoreError, too_old};
use ropewalk_fleet::transfer::{Exported, FiledClient};
use ropewalk_settings::PublicKey;
use serde::Serialize;
use tokio::runtime::Runtime;

use crate::config::{Config, MAX_PEERS, RegistryConfig};
use crate::leases::{Lease, Leases};
use crate::registry::etcd::{access, terms};
use crate::registry::peers_file::{Draft, Member, PeersFile};

pub use ropewalk_fleet::ProxyState;
pub use ropewalk_fleet::transfer::Imported;

/// How long one member of etcd has to say how it is.
const HEALTH: Duration = Duration::from_secs(2);

/// The fleet of a config.
#[derive(Debug)]
pub struct Fleet {
    runtime: Runtime,
    changes: Changes,
    registry: RegistryConfig,
}

/// How it is with a fleet.
#[derive(Clone, Debug, Serialize)]
pub struct FleetReport {
    /// The fleet's name.
    pub fleet: String,
    /// What its keys begin with.
    pub prefix: String,
    /// The revision at which this was so.
    pub revision: i64,
    /// Its proxies that run.
    pub proxies: Vec<ProxyReport>,
    /// Proxies that are to drain and do not run.
    pub drained: Vec<String>,
    /// Clients.
    pub clients: usize,
    /// Open invitations, expired ones included.
    pub invitations: usize,
    /// The members of etcd.
    pub members: Vec<MemberReport>,
    /// Keys below the prefix that are not Ropewalk's or damaged, and why; the first few.
    pub foreign: std::collections::BTreeMap<String, String>,
}

/// One proxy.
#[derive(Clone, Debug, Serialize)]
pub struct ProxyReport {
    /// Its id.
    pub id: String,
    /// Where it stands.
    pub region: String,
    /// Whether it takes new sessions.
    pub state: ProxyState,
    /// How much of its capacity is used, in percent.
    pub load: u8,
    /// Clients that have their session with it.
    pub sessions: usize,
    /// Clients that it is made for.
    pub capacity: u32,
    /// The version of its program.
    pub program: String,
    /// When it began, in seconds since 1970.
    pub since: u64,
    /// Its key.
    pub public_key: PublicKey,
    /// Where clients find it.
    pub addresses: Vec<SocketAddr>,
}

/// One member of etcd.
#[derive(Clone, Debug, Serialize)]
pub struct MemberReport {
    /// Its URL.
    pub endpoint: String,
    /// The version of its program, if it answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Bytes of its database.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<i64>,
    /// Whether it leads.
    pub leader: bool,
    /// What is wrong.
    pub problems: Vec<String>,
}

impl Fleet {
    /// The fleet to which a config belongs.
    ///
    /// # Errors
    /// It belongs to none.
    pub fn open(config: &Config) -> anyhow::Result<Self> {
        let registry = config.registry.clone().context(
            "this proxy is in no fleet: its config has no [registry] (docs/FLEET.md says how to begin one)",
        )?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let changes = Changes {
            store: Store::new(access(&registry)),
            mirror: Mirror::default(),
            terms: terms(config, &registry),
            proxy: registry.id.clone(),
        };
        Ok(Self { runtime, changes, registry })
    }

    /// How it is.
    ///
    /// # Errors
    /// The registry does not answer.
    pub fn report(&self) -> anyhow::Result<FleetReport> {
        self.runtime.block_on(async {
            let store = &self.changes.store;
            let cache = Cache::read(store, &self.changes.mirror).await?;
            let mut members = Vec::new();
            for at in 0..store.members().len() {
                members.push(member(store, at).await);
            }
            Ok(self.report_of(&cache, members))
        })
    }

    fn report_of(&self, cache: &Cache, members: Vec<MemberReport>) -> FleetReport {
        let sessions_of =
            |id: &str| cache.sessions.values().filter(|session| *session.proxy == *id).count();
        let shown = proxies(cache);
        let proxies = shown.iter().filter_map(|proxy| {
            let value = cache.proxies.get(&proxy.id)?;
            Some(ProxyReport {
                id: proxy.id.clone(),
                region: proxy.region.clone(),
                state: proxy.state,
                load: proxy.load,
                sessions: sessions_of(&proxy.id),
                capacity: value.capacity,
                program: value.program.clone(),
                since: value.since,
                public_key: proxy.public_key,
                addresses: proxy.addresses.clone(),
            })
        });
        let drained = cache.drains.keys().filter(|id| !cache.proxies.contains_key(*id));
        FleetReport {
            fleet: self.registry.fleet.clone(),
            prefix: self.registry.prefix.clone(),
            revision: cache.revision,
            proxies: proxies.collect(),
            drained: drained.cloned().collect(),
            clients: cache.clients.len(),
            invitations: cache.invitations.len(),
            members,
            foreign: cache.foreign.clone(),
        }
    }

    /// Brings the clients of this proxy's own files into the registry. What is there stays as it is. `progress` is told how many of how
    /// many are settled.
    ///
    /// # Errors
    /// There are no files, one cannot be read, or the fleet would have more clients than `max_peers` of the config says: nothing is
    /// written then. Or the registry does not answer: what was brought in before stays.
    pub fn import(
        &self,
        config: &Config,
        mut progress: impl FnMut(usize, usize),
    ) -> anyhow::Result<Imported> {
        let file = config.registry_file();
        let members = PeersFile::open(file.clone())?;
        let leases = Leases::as_written(config.leases_file(), config.pools)?;
        anyhow::ensure!(
            !members.members().is_empty(),
            "no client has joined by {}: there is nothing to import",
            file.display()
        );
        let (mut clients, mut without) = (Vec::new(), Vec::new());
        for member in members.members() {
            let Some(lease) = leases.table().get(&member.public_key) else {
                without.push(format!(
                    "{}: it has no address in {}",
                    member.name.escape_debug(),
                    config.leases_file().display()
                ));
                continue;
            };
            clients.push(FiledClient {
                name: member.name.clone(),
                public_key: member.public_key,
                address_v4: lease.v4,
                address_v6: lease.v6.filter(|_| self.changes.terms.pool_v6.is_some()),
                since: member.since,
                disabled: member.disabled,
                formerly: member.formerly,
            });
        }
        // The clients hold all that is needed.
        drop((members, leases));
        let settled = |settled| progress(settled, clients.len());
        let importing = self.changes.import(&clients, config.max_peers, settled);
        let mut imported = self.runtime.block_on(importing).map_err(|error| match error {
            ChangeError::Store(error) => anyhow::anyhow!(
                "{error}. The import ended early: what was brought in stays, and the same command goes on \
                 from there"
            ),
            error => error.into(),
        })?;
        imported.refused.extend(without);
        Ok(imported)
    }

    /// Writes the clients of the registry into this proxy's own files, for a proxy without `[registry]`. Returns how many, and of which keys
    /// the values cannot be read. Files that are there are kept beside, with the ending `.before`, if they may be replaced.
    ///
    /// # Errors
    /// There are files already, they cannot be written, or the registry does not answer.
    pub fn export(&self, config: &Config, replace: bool) -> anyhow::Result<(usize, Vec<String>)> {
        // First, so that nothing is moved away for a registry that does not answer.
        let exported = self.runtime.block_on(self.changes.export())?;
        let Exported { clients, passed_over } = exported;
        anyhow::ensure!(
            clients.len() <= MAX_PEERS,
            "the fleet has {} clients, and a proxy with files has at most {MAX_PEERS}",
            clients.len()
        );
        let files = [config.registry_file(), config.leases_file()];
        for file in &files {
            let is_there =
                file.try_exists().with_context(|| format!("cannot look at {}", file.display()))?;
            anyhow::ensure!(
                replace || !is_there,
                "{} is there already: say --replace to write another one (it stays as {0}.before)",
                file.display()
            );
            if is_there {
                let before = format!("{}.before", file.display());
                std::fs::rename(file, &before)
                    .with_context(|| format!("cannot rename {} to {before}", file.display()))?;
            }
        }
        let [registry_file, leases_file] = files;
        let member = |client: &FiledClient| Member {
            name: client.name.clone(),
            public_key: client.public_key,
            since: client.since,
            formerly: client.formerly,
            disabled: client.disabled,
        };
        let mut members = PeersFile::open(registry_file)?;
        members.write(Draft::of_members(clients.iter().map(member).collect()))?;
        let mut leases = Leases::as_written(leases_file, config.pools)?;
        for client in &clients {
            let lease = Lease { v4: client.address_v4, v6: client.address_v6 };
            leases.set(client.public_key, lease);
        }
        leases.write()?;
        Ok((clients.len(), passed_over))
    }

    /// A proxy is to take no new sessions, or to take them again. Returns whether that is new.
    ///
    /// # Errors
    /// No such proxy runs, or the registry does not answer.
    pub fn drain(&self, id: &str, drain: bool) -> anyhow::Result<bool> {
        Ok(self.runtime.block_on(self.changes.drain(id, drain))?)
    }
}

async fn member(store: &Store, at: usize) -> MemberReport {
    let endpoint = store.members()[at].clone();
    let asked = async {
        let mut client = store.connect(at).await?;
        let asked = tokio::time::timeout(HEALTH, client.status()).await;
        let status = asked.map_err(|_| store.away("no answer within 2 s"))?;
        status.map_err(|error| store.told(&error))
    };
    match asked.await {
        Ok(status) => {
            let leader =
                status.header().is_some_and(|header| header.member_id() == status.leader());
            MemberReport {
                endpoint,
                version: Some(status.version().to_owned()),
                bytes: Some(status.db_size()),
                leader,
                problems: problems(status.errors(), status.version()),
            }
        }
        Err(error) => MemberReport {
            endpoint,
            version: None,
            bytes: None,
            leader: false,
            problems: vec![error.to_string()],
        },
    }
}

/// What is wrong with a member that says this of itself, and what to do.
fn problems(errors: &[String], version: &str) -> Vec<String> {
    let is_full = errors.iter().any(|error| error.contains("NOSPACE"));
    let full = is_full.then_some(StoreError::Full);
    let explained = full.into_iter().chain(too_old(version)).map(|error| error.to_string());
    errors.iter().cloned().chain(explained).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_is_full_or_old_says_what_to_do() {
        let full = ["memberID:7 alarm:NOSPACE ".to_owned()];
        let told = problems(&full, "3.4.23");
        assert_eq!(told.len(), 2);
        assert!(told[1].contains("etcdctl alarm disarm"), "{told:?}");
        let old = problems(&[], "3.3.1");
        assert!(old[0].contains("upgrade"), "{old:?}");
        assert!(problems(&[], "3.5.9").is_empty());
    }
}
