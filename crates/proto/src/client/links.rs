//! The links that the client is to use, by the owner's names.

use arrayvec::ArrayVec;

use super::LinkKey;
use crate::config::{LinkConfig, MAX_LINKS};
use crate::path::Path;
use crate::units::LinkId;

/// Why a link cannot be set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SetLinkError {
    /// See [`MAX_LINKS`]. Take another out first.
    #[error("a tunnel has at most {MAX_LINKS} links")]
    TooMany,
    /// Nothing to send to: the proxy's name has no address of a family that the interface has.
    #[error("the link has no remote address")]
    NoPath,
}

/// A link as its owner wants it, and its name in the present tunnel.
#[derive(Debug)]
pub(super) struct ConfiguredLink {
    pub(super) key: LinkKey,
    pub(super) config: LinkConfig,
    /// `None`: the tunnel does not have it (yet).
    pub(super) id: Option<LinkId>,
    /// How little it is preferred ([`TunnelConfig::reluctance`](crate::config::TunnelConfig::reluctance)).
    reluctance: f64,
}

/// All of them, by key.
#[derive(Debug, Default)]
pub(super) struct LinkTable(ArrayVec<ConfiguredLink, MAX_LINKS>);

impl LinkTable {
    /// Adds or changes a link. Returns the id under which the tunnel has the link as it was before.
    pub(super) fn set(
        &mut self,
        key: LinkKey,
        config: LinkConfig,
    ) -> Result<Option<LinkId>, SetLinkError> {
        if config.paths.is_empty() {
            return Err(SetLinkError::NoPath);
        }
        match self.0.binary_search_by_key(&key, |link| link.key) {
            Ok(at) => {
                self.0[at].config = config;
                Ok(self.0[at].id.take())
            }
            Err(_) if self.0.is_full() => Err(SetLinkError::TooMany),
            Err(at) => {
                self.0.insert(at, ConfiguredLink { key, config, id: None, reluctance: 0.0 });
                Ok(None)
            }
        }
    }

    /// Takes a link out. Returns its id in the tunnel.
    pub(super) fn remove(&mut self, key: LinkKey) -> Option<LinkId> {
        let at = self.0.binary_search_by_key(&key, |link| link.key).ok()?;
        self.0.remove(at).id
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// How little each link is preferred.
    pub(super) fn note_reluctance(&mut self, of: impl Fn(&LinkConfig) -> f64) {
        self.0.iter_mut().for_each(|link| link.reluctance = of(&link.config));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &ConfiguredLink> {
        self.0.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut ConfiguredLink> {
        self.0.iter_mut()
    }

    /// Whether a link has this key.
    pub(super) fn contains(&self, key: LinkKey) -> bool {
        self.0.binary_search_by_key(&key, |link| link.key).is_ok()
    }

    /// The owner's name of the tunnel's link.
    pub(super) fn key_of(&self, id: LinkId) -> Option<LinkKey> {
        self.0.iter().find(|link| link.id == Some(id)).map(|link| link.key)
    }

    /// The link's name in the tunnel, while that has it.
    pub(super) fn id_of(&self, key: LinkKey) -> Option<LinkId> {
        let at = self.0.binary_search_by_key(&key, |link| link.key).ok()?;
        self.0[at].id
    }

    /// The link of this key.
    pub(super) fn get_mut(&mut self, key: LinkKey) -> Option<&mut ConfiguredLink> {
        let at = self.0.binary_search_by_key(&key, |link| link.key).ok()?;
        self.0.get_mut(at)
    }

    /// The tunnel has lost the link. Returns the owner's name of it.
    pub(super) fn forget_id(&mut self, id: LinkId) -> Option<LinkKey> {
        let link = self.0.iter_mut().find(|link| link.id == Some(id))?;
        link.id = None;
        Some(link.key)
    }

    /// All paths of all links, or of those that are preferred most: where a first message goes.
    pub(super) fn paths(&self, all: bool) -> impl Iterator<Item = Path> {
        let least = self.0.iter().map(|link| link.reluctance).reduce(f64::min).unwrap_or_default();
        let meant = self.0.iter().filter(move |link| all || link.reluctance <= least);
        meant.flat_map(|link| link.config.paths.iter().copied())
    }

    /// The tunnel is gone.
    pub(super) fn forget_ids(&mut self) {
        self.0.iter_mut().for_each(|link| link.id = None);
    }

    /// Each link begins with the remote address that answered first, if it has it.
    pub(super) fn prefer(&mut self, answered: &Path) {
        for link in &mut self.0 {
            link.config.paths.sort_by_key(|path| path.remote != answered.remote);
        }
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_settings::{Keepalive, LinkPolicy};

    use super::*;
    use crate::path::SocketId;
    use arrayvec::ArrayString;

    fn path(socket: u16, port: u16) -> Path {
        Path { socket: SocketId(socket), local: None, remote: ([192, 0, 2, 1], port).into() }
    }

    fn config(paths: &[Path]) -> LinkConfig {
        LinkConfig {
            name: ArrayString::new(),
            paths: paths.iter().copied().collect(),
            keepalive: Keepalive::Off,
            metered: false,
            mtu: None,
            policy: LinkPolicy::default(),
        }
    }

    #[test]
    fn the_table_is_bounded_and_refuses_links_without_a_way() {
        let mut links = LinkTable::default();
        assert_eq!(links.set(LinkKey(9), config(&[])), Err(SetLinkError::NoPath));
        for key in 0..16 {
            assert_eq!(links.set(LinkKey(key), config(&[path(0, 1)])), Ok(None));
        }
        assert_eq!(links.set(LinkKey(16), config(&[path(0, 1)])), Err(SetLinkError::TooMany));
        assert_eq!(links.set(LinkKey(3), config(&[path(0, 2)])), Ok(None));
        links.remove(LinkKey(0));
        assert_eq!(links.set(LinkKey(16), config(&[path(0, 1)])), Ok(None));
    }

    #[test]
    fn the_address_that_answered_comes_first_on_every_link() {
        let mut links = LinkTable::default();
        links.set(LinkKey(0), config(&[path(0, 1), path(0, 2), path(0, 3)])).unwrap();
        links.set(LinkKey(1), config(&[path(1, 1), path(1, 3)])).unwrap();
        links.prefer(&path(0, 3));
        let order: Vec<_> = links.paths(true).map(|path| path.remote.port()).collect();
        assert_eq!(order, [3, 1, 2, 3, 1]);
    }

    #[test]
    fn links_preferred_alike_are_asked_first_and_the_others_with_them_later() {
        let mut links = LinkTable::default();
        for (key, name) in [(0, "lte"), (1, "wlan"), (2, "dsl")] {
            let name = ArrayString::from(name).unwrap();
            let config = LinkConfig { name, ..config(&[path(key, key + 1)]) };
            links.set(LinkKey(key.into()), config).unwrap();
        }
        let ports = |links: &LinkTable, all| -> Vec<u16> {
            links.paths(all).map(|path| path.remote.port()).collect()
        };
        assert_eq!(ports(&links, false), [1, 2, 3], "nothing is said of any");
        links.note_reluctance(|link| if link.name.as_str() == "lte" { 0.9 } else { 0.1 });
        assert_eq!((ports(&links, false), ports(&links, true)), (vec![2, 3], vec![1, 2, 3]));
    }
}
