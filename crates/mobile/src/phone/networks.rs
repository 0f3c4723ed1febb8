//! The networks: opens and closes their sockets, which the app binds, and tells the core.
//!
//! One network's trouble is its own. A network that the app describes again keeps what need not change: with the same
//! address its socket, and with other terms its link. Where the app says no address, the kernel is asked which one it would
//! choose there, so that addresses of a translator (464XLAT), which no list shows, are found, too.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use arrayvec::ArrayVec;
use ropewalk_daemon::held::Held;
use ropewalk_link_io::udp::{Bound, OpenError, SendErrorKind, Sockets, source_towards};
use ropewalk_proto::client::LinkKey;
use ropewalk_proto::config::{LinkConfig, MAX_LINKS};
use ropewalk_proto::fleet::{FleetClient, FleetLink};
use ropewalk_proto::path::{Path, SocketId};
use ropewalk_proto::time::Instant;
use ropewalk_settings::shortened;

use crate::{App, Network};

/// Where the app says the addresses of a network.
const NO_FAMILY: &str = "the proxy has no address of the family (IPv4, IPv6) used on this network";

/// All of them, by the app's numbers.
#[derive(Debug, Default)]
pub(super) struct Networks {
    joined: BTreeMap<u64, Joined>,
    /// For the core, which knows a network that comes again as another one: its counts begin anew.
    next_key: u32,
}

/// One of them.
#[derive(Debug)]
pub(super) struct Joined {
    pub(super) network: Network,
    key: LinkKey,
    /// Since when it is used so, or not used.
    pub(super) since: Instant,
    open: Option<Open>,
    /// Why it cannot be used, or not in one of two address families.
    pub(super) trouble: Option<String>,
    /// What the kernel last said to a datagram, since the network last carried packets.
    refused: Option<SendErrorKind>,
}

/// A network as it was given to the core.
#[derive(Debug)]
struct Open {
    network: Network,
    sockets: Vec<(IpAddr, SocketId)>,
}

/// What is changed with the networks.
pub(super) struct Resources<'a> {
    pub(super) sockets: &'a mut Sockets,
    pub(super) client: &'a mut FleetClient,
    /// Takes the packets that waited for a network that goes.
    pub(super) held: &'a mut Held,
    pub(super) app: &'a dyn App,
}

impl Networks {
    /// All, in the order of their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Joined> {
        self.joined.values()
    }

    /// The network that the core knows by this key.
    pub(super) fn of(&self, key: LinkKey) -> Option<&Joined> {
        self.joined.values().find(|joined| joined.key == key)
    }

    /// Adds a network, or describes one that is there anew. It is used with the next [`reconcile`](Self::reconcile).
    ///
    /// # Errors
    /// There are as many as there can be.
    pub(super) fn set(&mut self, now: Instant, network: Network) -> Result<(), String> {
        if let Some(known) = self.joined.get_mut(&network.id) {
            known.network = network;
            return Ok(());
        }
        if self.joined.len() >= MAX_LINKS {
            return Err(format!("a tunnel has at most {MAX_LINKS} networks: take one out first"));
        }
        let key = LinkKey(self.next_key);
        self.next_key = self.next_key.wrapping_add(1);
        let joined = Joined { key, since: now, open: None, trouble: None, refused: None, network };
        self.joined.insert(joined.network.id, joined);
        Ok(())
    }

    /// Takes a network out.
    pub(super) fn remove(&mut self, now: Instant, id: u64, resources: &mut Resources<'_>) {
        if let Some(mut joined) = self.joined.remove(&id) {
            joined.close(now, resources);
        }
    }

    /// Opens and closes sockets as described, changing only what differs, for proxies at these addresses. Returns the
    /// numbers of networks with a trouble that is new.
    pub(super) fn reconcile(
        &mut self,
        now: Instant,
        remotes: &[SocketAddr],
        resources: &mut Resources<'_>,
    ) -> Vec<u64> {
        let mut news = Vec::new();
        for (id, joined) in &mut self.joined {
            let before = joined.trouble.take();
            joined.trouble = joined.reconcile(now, remotes, resources);
            if joined.trouble.is_some() && joined.trouble != before {
                news.push(*id);
            }
        }
        news
    }

    /// Whether one of them has a trouble that may be over later.
    pub(super) fn have_trouble(&self) -> bool {
        self.joined.values().any(|joined| joined.trouble.is_some())
    }

    /// The network of this number.
    pub(super) fn get(&self, id: u64) -> Option<&Joined> {
        self.joined.get(&id)
    }

    /// The kernel refused a datagram.
    pub(super) fn note_send_error(&mut self, path: Path, kind: SendErrorKind) {
        let owner = self.joined.values_mut().find(|joined| joined.owns(path.socket));
        if let Some(joined) = owner {
            joined.refused = Some(kind);
        }
    }

    /// Packets pass on this network (again).
    pub(super) fn note_up(&mut self, key: LinkKey) {
        if let Some(joined) = self.joined.values_mut().find(|joined| joined.key == key) {
            joined.refused = None;
        }
    }
}

impl Joined {
    /// The name that the core has for it, while it has it.
    pub(super) fn key(&self) -> Option<LinkKey> {
        self.open.as_ref().map(|_| self.key)
    }

    /// Its first socket, while it has one.
    pub(super) fn socket(&self) -> Option<SocketId> {
        self.open.as_ref()?.sockets.first().map(|(_, id)| *id)
    }

    /// What the kernel says against sending on it, for people.
    pub(super) fn refusal(&self) -> Option<&'static str> {
        self.refused.map(SendErrorKind::in_words)
    }

    fn owns(&self, socket: SocketId) -> bool {
        let mut sockets = self.open.iter().flat_map(|open| &open.sockets);
        sockets.any(|(_, id)| *id == socket)
    }

    /// Returns what is wrong.
    fn reconcile(
        &mut self,
        now: Instant,
        remotes: &[SocketAddr],
        resources: &mut Resources<'_>,
    ) -> Option<String> {
        // Where the proxy is, is not known yet: that is told by itself.
        if remotes.is_empty() {
            self.close(now, resources);
            return None;
        }
        let sources = match self.sources(remotes, resources.app) {
            Ok(sources) => sources,
            Err(trouble) => {
                self.close(now, resources);
                return Some(trouble);
            }
        };
        let known = self.open.as_ref().map(|open| open.sockets.clone()).unwrap_or_default();
        let (mut sockets, mut trouble) = (Vec::new(), None);
        for source in sources {
            match known.iter().find(|(address, _)| *address == source) {
                Some(kept) => sockets.push(*kept),
                None => match self.open_socket(source, resources) {
                    Ok(id) => sockets.push((source, id)),
                    Err(error) => trouble = Some(error.to_string()),
                },
            }
        }
        if sockets.is_empty() {
            self.close(now, resources);
            return trouble;
        }
        self.give(now, sockets, resources).err().or(trouble)
    }

    /// Gives the core the link with these sockets, as far as it differs from the one that it has.
    fn give(
        &mut self,
        now: Instant,
        sockets: Vec<(IpAddr, SocketId)>,
        resources: &mut Resources<'_>,
    ) -> Result<(), String> {
        match &self.open {
            Some(open) if open.sockets == sockets && open.network.is_like(&self.network) => {
                if open.network.policy != self.network.policy {
                    resources.client.set_policy(self.key, &self.network.policy);
                }
            }
            _ => {
                let link = Some(self.core_link(&sockets));
                let given = resources.client.set_link(now, self.key, link, resources.held);
                if let Err(error) = given {
                    for (_, id) in sockets {
                        resources.sockets.close(id);
                    }
                    self.close(now, resources);
                    return Err(error.to_string());
                }
                (self.since, self.refused) = (now, None);
            }
        }
        let given = Open { network: self.network.clone(), sockets: sockets.clone() };
        // What is not used any more is closed once the core has let go of it.
        let before = self.open.replace(given).into_iter().flat_map(|open| open.sockets);
        for (_, id) in before.filter(|socket| !sockets.contains(socket)) {
            resources.sockets.close(id);
        }
        Ok(())
    }

    /// Our address on it in each family in which there is a proxy.
    fn sources(&self, remotes: &[SocketAddr], app: &dyn App) -> Result<Vec<IpAddr>, String> {
        let Network { id, addresses, .. } = &self.network;
        let (mut sources, mut trouble): (Vec<IpAddr>, _) = (Vec::new(), None);
        for is_ipv4 in [true, false] {
            let Some(remote) = remotes.iter().find(|remote| remote.is_ipv4() == is_ipv4) else {
                continue;
            };
            if !addresses.is_empty() {
                sources.extend(addresses.iter().find(|address| address.is_ipv4() == is_ipv4));
                continue;
            }
            match source_towards(*remote, &mut |fd| app.bind_socket(fd, *id)) {
                Ok(source) => sources.push(source),
                Err(error) => trouble = Some(error.to_string()),
            }
        }
        // A network of one address family is as good as others.
        if !sources.is_empty() {
            return Ok(sources);
        }
        Err(trouble.unwrap_or_else(|| NO_FAMILY.to_owned()))
    }

    fn open_socket(
        &self,
        source: IpAddr,
        resources: &mut Resources<'_>,
    ) -> Result<SocketId, OpenError> {
        let (app, id) = (resources.app, self.network.id);
        let bound = Bound::prepared(source, &mut |fd| app.bind_socket(fd, id))?;
        resources.sockets.adopt(bound)
    }

    fn core_link(&self, sockets: &[(IpAddr, SocketId)]) -> FleetLink {
        let Network { name, mtu, keepalive, metered, policy, .. } = &self.network;
        let config = LinkConfig {
            name: shortened(name),
            // They follow from where the proxy in use is.
            paths: ArrayVec::new(),
            keepalive: *keepalive,
            metered: *metered,
            mtu: *mtu,
            policy: policy.clone(),
        };
        let sockets = sockets.iter().map(|(source, id)| (source.is_ipv4(), *id));
        // One for each family.
        FleetLink { config, sockets: sockets.take(2).collect(), any_port: false }
    }

    /// It is not used any more.
    fn close(&mut self, now: Instant, resources: &mut Resources<'_>) {
        let Some(open) = self.open.take() else { return };
        self.since = now;
        // There is nothing that could be wrong with taking a link out.
        let _ = resources.client.set_link(now, self.key, None, resources.held);
        for (_, id) in open.sockets {
            resources.sockets.close(id);
        }
    }
}
