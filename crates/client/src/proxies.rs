//! The file in which the proxies of the fleet survive a restart, so that a client whose first proxy is gone finds another.
//!
//! It holds for the proxies that the config names, by whose word the others are trusted: with other ones in the config it
//! does not count. Nobody else may write it (mode 600), or it does not count either. What cannot be written is logged.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ropewalk_control::folder;
use ropewalk_daemon::file;
use ropewalk_daemon::proxies::{KeptProxy, fleet_of, kept};
use ropewalk_proto::fleet::FleetList;
use ropewalk_settings::PublicKey;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::config::ProxyConfig;

/// Its name in the state folder.
const NAME: &str = "proxies.json";

/// The version of the file.
const VERSION: u32 = 1;

/// The longest list is a third of this.
const MAX_BYTES: u64 = 1 << 17;

/// From one writing of the file to the next: a proxy that tells of another fleet all the time wears no disk out.
const WRITE_PAUSE: Duration = Duration::from_secs(5);

/// The bits of a mode by which others than its owner may write or read.
const OF_OTHERS: u32 = 0o077;

#[derive(Serialize, Deserialize)]
struct ProxiesFile {
    version: u32,
    /// The proxies of the config that told.
    told_by: Vec<PublicKey>,
    proxies: Vec<KeptProxy>,
}

/// What the fleet told of itself in the run before; nothing where there is nothing that can be trusted.
pub(crate) fn load(state_dir: &Path, config: &ProxyConfig) -> FleetList {
    let path = state_dir.join(NAME);
    match read(&path, config) {
        Ok(list) => list,
        Err(error) if error.kind() == io::ErrorKind::NotFound => FleetList::default(),
        Err(error) => {
            let path = path.display();
            tracing::warn!(
                "{path} is not used: {error}; the next session tells of the proxies again"
            );
            FleetList::default()
        }
    }
}

fn read(path: &Path, config: &ProxyConfig) -> io::Result<FleetList> {
    let content = folder::read(path, MAX_BYTES)?;
    if content.is_others || content.mode & OF_OTHERS != 0 {
        return Err(io::Error::other("others than its owner can read or write it"));
    }
    let file: ProxiesFile = serde_json::from_slice(&content.bytes)?;
    if file.version != VERSION {
        return Err(io::Error::other(format!("version {} is not {VERSION}", file.version)));
    }
    if file.told_by != told_by(config) {
        return Ok(FleetList::default());
    }
    fleet_of(&file.proxies).map_err(io::Error::other)
}

fn told_by(config: &ProxyConfig) -> Vec<PublicKey> {
    config.endpoints().into_iter().map(|(key, _)| key).collect()
}

/// Writes the list when what is kept of it changed.
pub(crate) struct Keeper {
    path: PathBuf,
    told_by: Vec<PublicKey>,
    lists: watch::Receiver<FleetList>,
    kept: Vec<KeptProxy>,
}

impl Keeper {
    pub(crate) fn new(
        state_dir: &Path,
        config: &ProxyConfig,
        lists: watch::Receiver<FleetList>,
    ) -> Self {
        let kept = kept(&lists.borrow());
        Self { path: state_dir.join(NAME), told_by: told_by(config), lists, kept }
    }

    /// Runs until the daemon is gone.
    pub(crate) async fn run(mut self) {
        while self.lists.changed().await.is_ok() {
            let proxies = kept(&self.lists.borrow_and_update());
            if proxies == self.kept {
                continue;
            }
            self.kept.clone_from(&proxies);
            let (path, told_by) = (self.path.clone(), self.told_by.clone());
            // Beside the packets, which wait for no disk.
            let task = tokio::task::spawn_blocking(move || write(&path, told_by, proxies));
            if let Ok(Err(error)) = task.await {
                let path = self.path.display();
                tracing::warn!("cannot keep the proxies of the fleet in {path}: {error}");
            }
            tokio::time::sleep(WRITE_PAUSE).await;
        }
    }
}

fn write(path: &Path, told_by: Vec<PublicKey>, proxies: Vec<KeptProxy>) -> io::Result<()> {
    let json = serde_json::to_vec_pretty(&ProxiesFile { version: VERSION, told_by, proxies })?;
    file::replace(path, &json)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use ropewalk_proto::fleet::{FleetProxy, Preference, ProxyId, ProxyState, Region};
    use ropewalk_settings::{KEY_LEN, TlsUse};

    use super::*;

    fn config(key: u8) -> ProxyConfig {
        ProxyConfig {
            addresses: Vec::new(),
            public_key: PublicKey::from_bytes([key; KEY_LEN]),
            preshared_key: None,
            invitation: None,
            others: Vec::new(),
            choose: Preference::Auto,
            tls: TlsUse::Auto,
            tls_port: 443,
        }
    }

    fn list() -> FleetList {
        let proxy = FleetProxy {
            id: ProxyId::new("fra-1").unwrap(),
            region: Region::new("eu").unwrap(),
            addresses: [([203, 0, 113, 7], 51_900).into()].into_iter().collect(),
            public_key: PublicKey::from_bytes([7; KEY_LEN]),
            state: ProxyState::Serving,
            load: 0,
        };
        FleetList::new(vec![proxy]).unwrap()
    }

    #[test]
    fn what_the_fleet_told_is_known_after_a_restart_and_to_no_client_of_another_proxy() {
        let folder = tempfile::tempdir().unwrap();
        assert!(load(folder.path(), &config(1)).is_empty());
        let path = folder.path().join(NAME);
        write(&path, told_by(&config(1)), kept(&list())).unwrap();
        assert_eq!(load(folder.path(), &config(1)), list());
        assert!(load(folder.path(), &config(2)).is_empty(), "another proxy's word");
    }

    #[test]
    fn a_file_that_others_can_write_or_that_makes_no_sense_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(NAME);
        write(&path, told_by(&config(1)), kept(&list())).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        for (from, to) in [("fra-1", "Fra 1"), ("51900", "0"), ("\"version\": 1", "\"version\": 2")]
        {
            std::fs::write(&path, text.replace(from, to)).unwrap();
            assert!(load(folder.path(), &config(1)).is_empty(), "{to}");
        }
        std::fs::write(&path, &text).unwrap();
        assert_eq!(load(folder.path(), &config(1)), list());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o620)).unwrap();
        assert!(load(folder.path(), &config(1)).is_empty());
    }
}
