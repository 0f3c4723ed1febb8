//! Which inner addresses belong to which key, across restarts of the proxy.
//!
//! An address once given stays that of its key: a download that outlives the proxy needs the same
//! source. Addresses fixed by the config file come first and take an address from whoever leased it;
//! the others get the lowest free address of the pool, IPv6 with the same offset as IPv4 where that is
//! free. The result depends only on the file, the peers and their order. A peer for whom a pool has no
//! address left goes without, and is told so; the others are served.
//!
//! The file is JSON, written as a whole beside the old one, synced and renamed over it, so that a
//! crash leaves the old or the new one. A damaged file is an error and is never overwritten: losing the
//! leases would give clients other addresses without a word. A running proxy has the file written beside its packet loop
//! ([`Files`](crate::registry::files::Files)), so a crash within that moment may cost the newest clients their addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use ipnet::{IpNet, Ipv6Net};
use ropewalk_control::folder;
use ropewalk_daemon::file;
use ropewalk_daemon::format::{self, NewerFormat};
use ropewalk_settings::PublicKey;
use serde::{Deserialize, Serialize};

use crate::config::PeerConfig;
use crate::pool::{Pools, v6_at};

/// The version of the file.
const FILE_VERSION: u32 = 1;

/// Bytes of the longest file that is read: 65,000 leases take about 10 MiB, and a million, which are for `ropewalk fleet import` only,
/// about 150 MiB.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// The inner addresses of one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// In the IPv4 pool.
    pub v4: Ipv4Addr,
    /// In the IPv6 pool; `None` where there is none.
    pub v6: Option<Ipv6Addr>,
}

/// The leases of one proxy.
#[derive(Debug)]
pub struct Leases {
    file: PathBuf,
    pools: Pools,
    table: LeaseTable,
}

/// Whose addresses are whose.
#[derive(Debug, Default)]
pub struct LeaseTable {
    by_key: BTreeMap<PublicKey, Lease>,
    refused: BTreeMap<PublicKey, LeaseError>,
}

impl LeaseTable {
    /// These addresses are a peer's.
    pub fn set(&mut self, key: PublicKey, lease: Lease) {
        self.by_key.insert(key, lease);
    }

    /// A peer has none any more.
    pub fn remove(&mut self, key: &PublicKey) {
        self.by_key.remove(key);
    }

    /// The addresses of a peer.
    #[must_use]
    pub fn get(&self, key: &PublicKey) -> Option<Lease> {
        self.by_key.get(key).copied()
    }

    /// Whoever has addresses.
    pub fn keys(&self) -> impl Iterator<Item = &PublicKey> {
        self.by_key.keys()
    }

    /// Why a peer has no addresses.
    #[must_use]
    pub fn refusal(&self, key: &PublicKey) -> Option<&LeaseError> {
        self.refused.get(key)
    }

    /// IPv6 leases in all, with those of keys that are no peers.
    #[must_use]
    pub fn len_v6(&self) -> usize {
        self.by_key.values().filter(|lease| lease.v6.is_some()).count()
    }

    /// Leases in all, with those of keys that are no peers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Whether nothing is leased.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }
}

/// Why addresses cannot be given or kept.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// The file exists and cannot be read.
    #[error("cannot read the address leases {}: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file cannot be written.
    #[error("cannot write the address leases {}: {source}", file.display())]
    Write {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is not what was written.
    #[error(
        "the address leases {} are damaged: {what}; repair the file, or move it away: all clients \
         without a fixed address then get new ones",
        file.display()
    )]
    Damaged {
        /// The file.
        file: PathBuf,
        /// Where and how.
        what: String,
    },
    /// A newer program wrote the file, which stays as it is.
    #[error("cannot read the address leases {}: {newer}", file.display())]
    Newer {
        /// The file.
        file: PathBuf,
        /// Its version.
        newer: NewerFormat,
    },
    /// The pools of the config are others than those of the leases.
    #[error(
        "the pool was changed, and clients have addresses outside it ({} keeps them): {}. With the new pool they get other \
         addresses, and their open connections end. Put the old pool back, or start the proxy once with --drop-leases \
         (systemd: stop the unit, `sudo ropewalk proxy --drop-leases`, end it with Ctrl+C, start the unit)",
        file.display(), few(clients)
    )]
    OutsidePool {
        /// The file.
        file: PathBuf,
        /// Name or key, and the address.
        clients: Vec<String>,
    },
    /// No address is left.
    #[error(
        "the pool {pool} is exhausted: all {size} addresses are leased, {stale} of them to keys that \
         are no peers (remove those from {}, or give a larger pool)",
        file.display()
    )]
    Exhausted {
        /// The prefix.
        pool: IpNet,
        /// Addresses that can be leased in it.
        size: u128,
        /// Leases of keys that are no peers.
        stale: usize,
        /// The file.
        file: PathBuf,
    },
}

/// The file as it stands on disk.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LeasesFile {
    version: u32,
    leases: Vec<LeaseLine>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LeaseLine {
    public_key: PublicKey,
    address_v4: Ipv4Addr,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    address_v6: Option<Ipv6Addr>,
}

impl Leases {
    /// Reads the leases and gives every peer its addresses; what changed is on disk on return. Leases outside the pools are
    /// dropped with `drop_outside` only.
    ///
    /// # Errors
    /// The file cannot be read or written, is damaged or of a newer program, or holds leases outside the pools. It stays as
    /// it is then.
    pub fn open(
        file: PathBuf,
        pools: Pools,
        peers: &[PeerConfig],
        drop_outside: bool,
    ) -> Result<Self, LeaseError> {
        let read = read(&file)?;
        let clients = outside(&read, &pools, peers);
        if !clients.is_empty() && !drop_outside {
            return Err(LeaseError::OutsidePool { file, clients });
        }
        for client in clients {
            tracing::warn!("{client} is outside the pool: this lease is dropped");
        }
        let mut by_key = read.clone();
        by_key.retain(|_, lease| pools.check_v4(lease.v4).is_ok());
        for lease in by_key.values_mut() {
            lease.v6 = lease.v6.filter(|&v6| pools.check_v6(v6).is_ok());
        }
        let mut leases =
            Self { file, pools, table: LeaseTable { by_key, refused: BTreeMap::new() } };
        leases.assign(peers);
        if leases.table.by_key != read {
            leases.write()?;
        }
        Ok(leases)
    }

    /// The leases as they stand in the file, for who gives no addresses.
    ///
    /// # Errors
    /// The file cannot be read, is damaged or of a newer program.
    pub fn as_written(file: PathBuf, pools: Pools) -> Result<Self, LeaseError> {
        let by_key = read(&file)?;
        Ok(Self { file, pools, table: LeaseTable { by_key, refused: BTreeMap::new() } })
    }

    /// Whether all leases of this file are in the pools.
    ///
    /// # Errors
    /// As [`Leases::open`]; nothing is written.
    pub fn check(file: &Path, pools: &Pools, peers: &[PeerConfig]) -> Result<(), LeaseError> {
        let clients = outside(&read(file)?, pools, peers);
        if clients.is_empty() {
            return Ok(());
        }
        Err(LeaseError::OutsidePool { file: file.to_path_buf(), clients })
    }

    /// Gives addresses to whoever of `peers` has none, and passes on those of keys that were replaced. Returns whether
    /// anything changed: then it is to be [written](Self::write).
    #[must_use]
    pub fn admit(&mut self, peers: &[PeerConfig]) -> bool {
        let before = self.table.by_key.clone();
        self.table.refused.clear();
        self.assign(peers);
        self.table.by_key != before
    }

    /// A key is no peer's any more, for good: its addresses are free. Returns whether it had any: then that is to be
    /// [written](Self::write).
    #[must_use]
    pub fn forget(&mut self, key: &PublicKey) -> bool {
        self.table.refused.remove(key);
        self.table.by_key.remove(key).is_some()
    }

    /// These addresses are a client's: to be [written](Self::write).
    pub fn set(&mut self, key: PublicKey, lease: Lease) {
        self.table.set(key, lease);
    }

    /// Writes the file, for who carries no packets. On return it is on disk.
    ///
    /// # Errors
    /// The file cannot be written; the addresses hold until the end of the process.
    pub fn write(&self) -> Result<(), LeaseError> {
        let written = (self.content())().and_then(|json| file::replace(&self.file, &json));
        written.map_err(|source| self.not_written(source))
    }

    /// What is to stand in the file, to be made on any thread.
    pub(crate) fn content(&self) -> impl FnOnce() -> io::Result<Vec<u8>> + Send + 'static {
        let by_key = self.table.by_key.clone();
        move || {
            let line = |(public_key, Lease { v4, v6 })| LeaseLine {
                public_key,
                address_v4: v4,
                address_v6: v6,
            };
            let leases = by_key.into_iter().map(line).collect();
            Ok(serde_json::to_vec_pretty(&LeasesFile { version: FILE_VERSION, leases })?)
        }
    }

    pub(crate) fn not_written(&self, source: io::Error) -> LeaseError {
        LeaseError::Write { file: self.file.clone(), source }
    }

    /// The file.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// The addresses.
    #[must_use]
    pub fn table(&self) -> &LeaseTable {
        &self.table
    }

    fn assign(&mut self, peers: &[PeerConfig]) {
        for peer in peers {
            if !self.table.by_key.contains_key(&peer.public_key)
                && let Some(old) = peer.formerly.as_deref()
                && let Some(lease) = self.table.by_key.remove(old)
            {
                self.table.by_key.insert(peer.public_key, lease);
            }
        }
        let mut fixed = BTreeMap::new();
        for peer in peers {
            let addresses = [peer.address_v4.map(IpAddr::V4), peer.address_v6.map(IpAddr::V6)];
            fixed.extend(addresses.into_iter().flatten().map(|address| (address, peer.public_key)));
        }
        // A fixed address is taken from whoever else leased it.
        let mine = |key: &PublicKey, address| fixed.get(&address).is_none_or(|owner| owner == key);
        self.table.by_key.retain(|key, lease| mine(key, IpAddr::V4(lease.v4)));
        for (key, lease) in &mut self.table.by_key {
            lease.v6 = lease.v6.filter(|&v6| mine(key, IpAddr::V6(v6)));
        }

        let mut taken = Taken { used: fixed.into_keys().collect(), next_v4: 2, next_v6: 2 };
        for lease in self.table.by_key.values() {
            taken.note(*lease);
        }
        for peer in peers {
            match self.lease(peer, &mut taken) {
                Ok(lease) => {
                    taken.note(lease);
                    self.table.by_key.insert(peer.public_key, lease);
                }
                Err(pool) => {
                    let error = self.exhausted(pool, peers);
                    self.table.refused.insert(peer.public_key, error);
                }
            }
        }
    }

    /// The addresses of a peer: the fixed one, its old one, or a free one. Else the pool without any.
    fn lease(&self, peer: &PeerConfig, taken: &mut Taken) -> Result<Lease, IpNet> {
        let old = self.table.by_key.get(&peer.public_key).copied();
        let v4 = peer
            .address_v4
            .or(old.map(|old| old.v4))
            .or_else(|| taken.free_v4(&self.pools))
            .ok_or(self.pools.v4())?;
        let Some(prefix) = self.pools.v6() else { return Ok(Lease { v4, v6: None }) };
        let v6 = peer
            .address_v6
            .or(old.and_then(|old| old.v6))
            .or_else(|| taken.free_v6(&self.pools, prefix, v4))
            .ok_or(prefix)?;
        Ok(Lease { v4, v6: Some(v6) })
    }

    fn exhausted(&self, pool: IpNet, peers: &[PeerConfig]) -> LeaseError {
        let size = match pool {
            IpNet::V4(_) => self.pools.size_v4().into(),
            IpNet::V6(_) => self.pools.size_v6(),
        };
        let known: BTreeSet<&PublicKey> = peers.iter().map(|peer| &peer.public_key).collect();
        let stale = self.table.by_key.keys().filter(|key| !known.contains(key)).count();
        LeaseError::Exhausted { pool, size, stale, file: self.file.clone() }
    }
}

/// The addresses in use, and from where on there may be free ones: none becomes free while addresses
/// are given, so that the search never goes back.
struct Taken {
    used: BTreeSet<IpAddr>,
    next_v4: u32,
    next_v6: u128,
}

impl Taken {
    fn note(&mut self, lease: Lease) {
        self.used.insert(IpAddr::V4(lease.v4));
        self.used.extend(lease.v6.map(IpAddr::V6));
    }

    /// The lowest free address.
    fn free_v4(&mut self, pools: &Pools) -> Option<Ipv4Addr> {
        let last = u32::try_from(pools.size_v4()).unwrap_or(u32::MAX).saturating_add(1);
        while self.next_v4 <= last {
            let address = pools.v4_at(self.next_v4);
            if !self.used.contains(&IpAddr::V4(address)) {
                return Some(address);
            }
            self.next_v4 += 1;
        }
        None
    }

    /// The address with the same offset as the IPv4 address, else the lowest free one.
    fn free_v6(&mut self, pools: &Pools, prefix: Ipv6Net, v4: Ipv4Addr) -> Option<Ipv6Addr> {
        let last = pools.size_v6().saturating_add(1);
        let same = u128::from(u32::from(v4).wrapping_sub(u32::from(pools.v4().network())));
        let address = v6_at(prefix, same);
        if (2..=last).contains(&same) && !self.used.contains(&IpAddr::V6(address)) {
            return Some(address);
        }
        while self.next_v6 <= last {
            let address = v6_at(prefix, self.next_v6);
            if !self.used.contains(&IpAddr::V6(address)) {
                return Some(address);
            }
            self.next_v6 += 1;
        }
        None
    }
}

/// Who has addresses outside the pools, and which. An address that the config fixes is not asked of the pool: it was
/// checked when that was read.
fn outside(
    leases: &BTreeMap<PublicKey, Lease>,
    pools: &Pools,
    peers: &[PeerConfig],
) -> Vec<String> {
    let by_key: BTreeMap<_, _> = peers.iter().map(|peer| (&peer.public_key, peer)).collect();
    let mut clients = Vec::new();
    for (key, lease) in leases {
        let peer = by_key.get(key);
        let name = || peer.map_or_else(|| key.to_string(), |peer| peer.name.to_string());
        let fixed_v4 = peer.is_some_and(|peer| peer.address_v4.is_some());
        let fixed_v6 = peer.is_some_and(|peer| peer.address_v6.is_some());
        if !fixed_v4 && pools.check_v4(lease.v4).is_err() {
            clients.push(format!("{} at {}", name(), lease.v4));
        }
        if let Some(v6) = lease.v6.filter(|v6| !fixed_v6 && pools.check_v6(*v6).is_err()) {
            clients.push(format!("{} at {v6}", name()));
        }
    }
    clients
}

/// The first of a list that may be long.
fn few(clients: &[String]) -> String {
    const SHOWN: usize = 8;
    let shown = clients.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    match clients.len().checked_sub(SHOWN) {
        Some(more @ 1..) => format!("{shown} and {more} more"),
        _ => shown,
    }
}

/// Reads the file; one that does not exist holds no lease.
fn read(file: &Path) -> Result<BTreeMap<PublicKey, Lease>, LeaseError> {
    let failed = |source| LeaseError::Read { file: file.to_path_buf(), source };
    let damaged = |what: String| LeaseError::Damaged { file: file.to_path_buf(), what };
    let text = match folder::read(file, MAX_FILE_BYTES) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
            return Err(damaged(error.to_string()));
        }
        text => text.map_err(failed)?.bytes,
    };
    let newer = |newer| LeaseError::Newer { file: file.to_path_buf(), newer };
    format::check(&text, FILE_VERSION).map_err(newer)?;
    let read: LeasesFile =
        serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
    if read.version != FILE_VERSION {
        return Err(damaged(format!("version {} is not {FILE_VERSION}", read.version)));
    }
    let mut by_key = BTreeMap::new();
    let mut addresses = BTreeSet::new();
    for line in read.leases {
        let lease = Lease { v4: line.address_v4, v6: line.address_v6 };
        let fresh = addresses.insert(IpAddr::V4(lease.v4))
            && lease.v6.is_none_or(|v6| addresses.insert(IpAddr::V6(v6)));
        if !fresh || by_key.insert(line.public_key, lease).is_some() {
            return Err(damaged(format!("{} or its address stands twice", line.public_key)));
        }
    }
    Ok(by_key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_a_restart_and_a_change_of_order() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state/leases.json");
        let pools = pools("10.77.0.0/16", Some("fd00:1::/64"));
        let first = open(file.clone(), pools, &[peer(1), peer(2), peer(3)]).unwrap();
        assert_eq!(first.table().get(&key(1)), Some(lease("10.77.0.2", "fd00:1::2")));
        assert_eq!(first.table().get(&key(3)), Some(lease("10.77.0.4", "fd00:1::4")));

        let second = open(file.clone(), pools, &[peer(3), peer(9), peer(1)]).unwrap();
        assert_eq!(second.table().get(&key(3)), first.table().get(&key(3)));
        assert_eq!(second.table().get(&key(1)), first.table().get(&key(1)));
        // The address of 2, who is away, is not given to 9.
        assert_eq!(second.table().get(&key(9)), Some(lease("10.77.0.5", "fd00:1::5")));
        let third = open(file, pools, &[peer(2)]).unwrap();
        assert_eq!(third.table().get(&key(2)), first.table().get(&key(2)));
        assert_eq!(third.table().len(), 4);
        assert!(!third.table().is_empty());
    }

    #[test]
    fn a_fixed_address_is_taken_from_whoever_leased_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("leases.json");
        let pools = pools("10.77.0.0/16", Some("fd00:1::/64"));
        open(file.clone(), pools, &[peer(1), peer(2)]).unwrap();

        let mut fixed = peer(3);
        fixed.address_v4 = Some("10.77.0.2".parse().unwrap());
        fixed.address_v6 = Some("fd00:1::3".parse().unwrap());
        let leases = open(file, pools, &[peer(1), peer(2), fixed]).unwrap();
        assert_eq!(leases.table().get(&key(3)), Some(lease("10.77.0.2", "fd00:1::3")));
        assert_eq!(leases.table().get(&key(2)), Some(lease("10.77.0.3", "fd00:1::2")));
        assert_eq!(leases.table().get(&key(1)), Some(lease("10.77.0.4", "fd00:1::4")));
    }

    #[test]
    fn who_finds_the_pool_exhausted_goes_without_and_the_others_are_served() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("leases.json");
        let pools = pools("10.9.0.0/29", None);
        let peers: Vec<_> = (1..=5).map(peer).collect();
        let full = open(file.clone(), pools, &peers).unwrap();
        assert_eq!(full.table().get(&key(5)).unwrap().v4, "10.9.0.6".parse::<Ipv4Addr>().unwrap());

        let leases = open(file.clone(), pools, &[peer(6), peer(1)]).expect("the others are served");
        assert_eq!(leases.table().get(&key(6)), None);
        let error = leases.table().refusal(&key(6)).unwrap().to_string();
        assert!(error.contains("the pool 10.9.0.0/29 is exhausted: all 5 addresses"), "{error}");
        assert!(error.contains("4 of them to keys that are no peers"), "{error}");
        assert_eq!(leases.table().get(&key(1)), full.table().get(&key(1)));
        assert!(leases.table().refusal(&key(1)).is_none());
        // What is on disk is as it was.
        assert_eq!(open(file, pools, &peers).unwrap().table().len(), 5);
    }

    #[test]
    fn leases_outside_a_changed_pool_are_dropped_only_by_who_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("leases.json");
        let old = pools("10.77.0.0/16", Some("fd00:1::/64"));
        open(file.clone(), old, &[peer(1), peer(2)]).unwrap();
        let before = std::fs::read(&file).unwrap();
        for new in [
            pools("10.88.0.0/16", Some("fd00:1::/64")),
            pools("10.77.0.0/30", Some("fd00:1::/64")),
            pools("10.77.0.0/16", Some("fd00:2::/64")),
            pools("10.77.0.0/16", None),
        ] {
            for error in [
                open(file.clone(), new, &[peer(1)]).unwrap_err(),
                Leases::check(&file, &new, &[peer(1)]).unwrap_err(),
            ] {
                assert!(matches!(error, LeaseError::OutsidePool { .. }), "{error}");
                let said = error.to_string();
                assert!(said.contains(&format!("{} at ", key(2))), "{said}");
                assert!(said.contains("--drop-leases"), "{said}");
            }
            assert_eq!(std::fs::read(&file).unwrap(), before, "nothing is lost");
        }
        Leases::check(&file, &pools("10.76.0.0/15", Some("fd00:1::/48")), &[]).unwrap();

        let new = pools("10.88.0.0/16", Some("fd00:2::/64"));
        let leases = Leases::open(file.clone(), new, &[peer(1)], true).unwrap();
        assert_eq!(leases.table().get(&key(1)), Some(lease("10.88.0.2", "fd00:2::2")));
        assert_eq!(leases.table().get(&key(2)), None);
        let again = open(file.clone(), new, &[peer(1)]).unwrap();
        assert_eq!(again.table().get(&key(1)), leases.table().get(&key(1)), "once is enough");
        let without = Leases::open(file, pools("10.88.0.0/16", None), &[peer(1)], true).unwrap();
        assert_eq!(without.table().get(&key(1)).unwrap().v6, None);
    }

    #[test]
    fn a_file_of_a_newer_program_is_called_so_and_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("leases.json");
        let newer = "{\"version\":3,\"leases\":[{\"mac\":1}]}";
        std::fs::write(&file, newer).unwrap();
        let error = Leases::open(file.clone(), pools("10.77.0.0/16", None), &[peer(1)], true);
        let said = error.unwrap_err().to_string();
        assert!(said.contains("newer version of ropewalk (format 3"), "{said}");
        assert!(!said.contains("damaged"), "{said}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), newer);
    }

    #[test]
    fn a_new_key_inherits_the_addresses_of_the_one_before_also_after_a_crash_in_between() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("leases.json");
        let pools = pools("10.77.0.0/16", Some("fd00:1::/64"));
        let mut leases = open(file.clone(), pools, &[peer(1), peer(2)]).unwrap();
        let second = leases.table().get(&key(2));
        let rotated = PeerConfig { formerly: Some(Box::new(key(2))), ..peer(3) };
        // The process ended before the leases were asked: the next start does it.
        let after = open(file.clone(), pools, &[peer(1), rotated.clone()]).unwrap();
        assert_eq!((after.table().get(&key(3)), after.table().get(&key(2))), (second, None));
        assert!(leases.admit(&[peer(1), rotated.clone()]));
        assert!(!leases.admit(&[peer(1), rotated.clone()]), "nothing is to be written");
        assert_eq!((leases.table().get(&key(3)), leases.table().len()), (second, 2));
        assert!(leases.forget(&key(3)) && !leases.forget(&key(3)));
        assert!(leases.admit(&[peer(1), peer(4)]));
        leases.write().unwrap();
        assert_eq!(leases.table().get(&key(4)), second, "what was forgotten is free");
        assert_eq!(open(file, pools, &[]).unwrap().table().get(&key(4)), second);
    }

    #[test]
    fn a_damaged_file_is_an_error_and_stays_as_it_is() {
        let line =
            |n: u8, v4: &str| format!("{{\"public_key\":\"{}\",\"address_v4\":\"{v4}\"}}", key(n));
        let twice = format!(
            "{{\"version\":1,\"leases\":[{},{}]}}",
            line(1, "10.77.0.2"),
            line(2, "10.77.0.2")
        );
        let cases = [
            ("", "EOF"),
            ("{\"version\":1,\"leases\":[", "line 1 column"),
            ("{\"version\":0,\"leases\":[]}", "version 0 is not 1"),
            ("{\"version\":1,\"leases\":[],\"x\":0}", "unknown field `x`"),
            ("{\"version\":1,\"leases\":[{\"public_key\":\"AAAA\"}]}", "44 characters"),
            ("\0\0\0\0", "line 1 column"),
            (&*twice, "stands twice"),
        ];
        for (text, expected) in cases {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("leases.json");
            std::fs::write(&file, text).unwrap();
            let pools = pools("10.77.0.0/16", None);
            let error = open(file.clone(), pools, &[peer(1)]).unwrap_err().to_string();
            assert!(error.contains("are damaged"), "{error}");
            assert!(error.contains(expected), "{text:?}: {error}");
            assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
        }
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let error = open("/dev/null/x/leases.json".into(), pools("10.0.0.0/8", None), &[peer(1)])
            .unwrap_err()
            .to_string();
        assert!(error.contains("/dev/null/x/leases.json"), "{error}");
    }

    fn open(file: PathBuf, pools: Pools, peers: &[PeerConfig]) -> Result<Leases, LeaseError> {
        Leases::open(file, pools, peers, false)
    }

    fn key(n: u8) -> PublicKey {
        PublicKey::from_bytes([n; 32])
    }

    fn peer(n: u8) -> PeerConfig {
        PeerConfig {
            name: format!("peer {n}").into(),
            public_key: key(n),
            preshared_key: None,
            address_v4: None,
            address_v6: None,
            prefix_v6: None,
            formerly: None,
            disabled: false,
        }
    }

    fn pools(v4: &str, v6: Option<&str>) -> Pools {
        Pools::new(v4.parse().unwrap(), v6.map(|v6| v6.parse().unwrap()))
    }

    fn lease(v4: &str, v6: &str) -> Lease {
        Lease { v4: v4.parse().unwrap(), v6: Some(v6.parse().unwrap()) }
    }
}
