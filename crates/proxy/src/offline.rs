//! The book of a proxy that does not run: `ropewalk peer` beside it.
//!
//! The mark of a running proxy is held for as long, so that one that starts meanwhile does not write the same file.

use std::path::Path;

use anyhow::Context as _;
use ropewalk_control::api::{
    EnabledPeer, InviteWish, Invited, PeerStatus, PeersReport, RemovedPeer, Role,
};
use ropewalk_control::folder;
use ropewalk_daemon::mark::{self, Mark};

use crate::config::Config;
use crate::inviting;
use crate::leases::Leases;
use crate::registry::peers_file::PeersFile;

/// The book, while no proxy runs.
#[derive(Debug)]
pub struct Offline {
    config: Config,
    registry: PeersFile,
    _none_runs: Mark,
}

impl Offline {
    /// Opens the book of the proxy with this config, which was read from `file`. Where another user than root can write
    /// that file, root becomes that user for good: the config says which files are written.
    ///
    /// # Errors
    /// A proxy runs (whose control socket is another than was asked), or the book cannot be read.
    pub fn open(config: Config, file: &Path) -> anyhow::Result<Self> {
        if let Some(registry) = &config.registry {
            anyhow::bail!(
                "the clients stand in the registry of the fleet `{}`, and no proxy runs here: ask a proxy that runs, or start \
                 this one",
                registry.fleet
            );
        }
        let none_runs = mark::hold(Role::Proxy)?;
        folder::become_writer(file)
            .with_context(|| format!("cannot act as the owner of {}", file.display()))?;
        let registry = PeersFile::open(config.registry_file())?;
        Ok(Self { config, registry, _none_runs: none_runs })
    }

    /// Invites a client; on return that is on disk.
    ///
    /// # Errors
    /// As [`inviting::invite`], or the file cannot be written.
    pub fn invite(&mut self, wish: &InviteWish) -> anyhow::Result<Invited> {
        let (invited, draft) = inviting::invite(&self.config, &self.registry, wish)?;
        self.registry.write(draft).map_err(|error| inviting::refused(&error))?;
        Ok(invited)
    }

    /// Takes a client out; on return that is on disk.
    ///
    /// # Errors
    /// As [`inviting::remove`], or a file cannot be written.
    pub fn remove(&mut self, name: &str) -> anyhow::Result<RemovedPeer> {
        let (removed, draft) = inviting::remove(&self.config, &self.registry, name)?;
        self.registry.write(draft).map_err(|error| inviting::refused(&error))?;
        if let Some(key) = &removed.public_key {
            let mut leases = Leases::as_written(self.config.leases_file(), self.config.pools)?;
            if leases.forget(key) {
                leases.write()?;
            }
        }
        Ok(removed)
    }

    /// Lets a client in again, or not any more; on return that is on disk.
    ///
    /// # Errors
    /// As [`inviting::enable`], or the file cannot be written.
    pub fn enable(&mut self, name: &str, enabled: bool) -> anyhow::Result<EnabledPeer> {
        let (enabled, draft) = inviting::enable(&self.config, &self.registry, name, enabled)?;
        if let Some(draft) = draft {
            self.registry.write(draft).map_err(|error| inviting::refused(&error))?;
        }
        Ok(enabled)
    }

    /// Who may connect, and who is invited.
    #[must_use]
    pub fn report(&self) -> PeersReport {
        let (peers, _) = self.registry.peers(&self.config.peers);
        let shown = peers.iter().map(|peer| PeerStatus {
            name: peer.name.to_string(),
            public_key: peer.public_key,
            origin: self.config.origin(&peer.public_key),
            disabled: peer.disabled,
            state: None,
            last_seen_s: None,
            up_bytes: 0,
            down_bytes: 0,
            inner_v4: peer.address_v4,
            inner_v6: peer.address_v6,
            remotes: Vec::new(),
            proxy: None,
        });
        PeersReport {
            running: false,
            peers: shown.collect(),
            invitations: inviting::invitations(&self.registry),
        }
    }
}
