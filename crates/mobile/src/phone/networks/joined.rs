//! One network: as it goes by UDP, and which of the two ways it goes.

use std::net::{IpAddr, SocketAddr};

use arrayvec::ArrayVec;
use ropewalk_link_io::udp::{Bound, OpenError, SendErrorKind, source_towards};
use ropewalk_proto::client::LinkKey;
use ropewalk_proto::config::LinkConfig;
use ropewalk_proto::fleet::FleetLink;
use ropewalk_proto::path::SocketId;
use ropewalk_proto::time::Instant;
use ropewalk_settings::shortened;
use ropewalk_tls::Fallback;

use super::Resources;
use super::over_tls::OverTls;
use crate::{App, Network};

/// Where the app says the addresses of a network.
const NO_FAMILY: &str = "the proxy has no address of the family (IPv4, IPv6) used on this network";

/// A network.
#[derive(Debug)]
pub(in crate::phone) struct Joined {
    pub(in crate::phone) network: Network,
    /// The names that the core has for it: by UDP, and over TLS.
    keys: [LinkKey; 2],
    /// Since when it is used so, or not used.
    pub(in crate::phone) since: Instant,
    by_udp: Option<ByUdp>,
    pub(super) over_tls: Option<OverTls>,
    /// Which of the two it goes by.
    pub(super) fallback: Fallback,
    /// Our addresses on it, while it is used.
    sources: Vec<IpAddr>,
    /// Why it cannot be used, or not as it should.
    pub(in crate::phone) trouble: Option<String>,
    /// What the kernel last said to a datagram, since the network last carried packets.
    pub(super) refused: Option<SendErrorKind>,
}

/// A network by UDP as it was given to the core.
#[derive(Debug)]
struct ByUdp {
    network: Network,
    sockets: Vec<(IpAddr, SocketId)>,
}

impl Joined {
    /// It is not used yet.
    pub(super) fn new(now: Instant, keys: [LinkKey; 2], network: Network) -> Self {
        Self {
            network,
            keys,
            since: now,
            by_udp: None,
            over_tls: None,
            fallback: Fallback::default(),
            sources: Vec::new(),
            trouble: None,
            refused: None,
        }
    }

    /// The name that the core has for it by UDP, while it has it.
    pub(in crate::phone) fn key(&self) -> Option<LinkKey> {
        self.by_udp.as_ref().map(|_| self.keys[0])
    }

    /// The name that the core has for it over TLS, while it has it.
    pub(in crate::phone) fn tls_key(&self) -> Option<LinkKey> {
        self.over_tls.as_ref().map(|_| self.keys[1])
    }

    /// Whether the core knows it by this key, or did a moment ago.
    pub(in crate::phone) fn has(&self, key: LinkKey) -> bool {
        self.keys.contains(&key)
    }

    /// The name of its other way, while it goes by that, too.
    pub(in crate::phone) fn beside(&self, key: LinkKey) -> Option<LinkKey> {
        if key == self.keys[0] { self.tls_key() } else { self.key() }
    }

    /// Whether the core has it, by whichever way.
    pub(in crate::phone) fn is_open(&self) -> bool {
        self.by_udp.is_some() || self.over_tls.is_some()
    }

    /// Its first socket, while it has one.
    pub(in crate::phone) fn socket(&self) -> Option<SocketId> {
        self.by_udp.as_ref()?.sockets.first().map(|(_, id)| *id)
    }

    /// The socket whose datagrams go over TLS, while there is one.
    pub(in crate::phone) fn tls_socket(&self) -> Option<SocketId> {
        self.over_tls.as_ref().map(|open| open.socket)
    }

    /// Our addresses on it, while it is used.
    pub(in crate::phone) fn sources(&self) -> &[IpAddr] {
        &self.sources
    }

    /// What the kernel says against sending on it, for people.
    pub(in crate::phone) fn refusal(&self) -> Option<&'static str> {
        self.refused.map(SendErrorKind::in_words)
    }

    /// A line of the log for the way it goes now.
    pub(super) fn tell_way(&self) {
        let network = &self.network.name;
        match self.fallback {
            Fallback::Udp(_) => tracing::info!(%network, "UDP is answered here: TLS is not used"),
            Fallback::Both(..) => {
                tracing::info!(%network, "the network is tried by UDP and over TLS");
            }
            Fallback::Tls(_) => {
                tracing::info!(%network, "the network goes over TLS, because UDP is not answered here");
            }
        }
    }

    pub(super) fn owns(&self, socket: SocketId) -> bool {
        let mut sockets = self.by_udp.iter().flat_map(|open| &open.sockets);
        sockets.any(|(_, id)| *id == socket)
    }

    /// Returns what is wrong.
    pub(super) fn reconcile(
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
        let sources = match self.find_sources(remotes, &**resources.app) {
            Ok(sources) => sources,
            Err(trouble) => {
                self.close(now, resources);
                return Some(trouble);
            }
        };
        if self.sources != sources {
            // In another network UDP may pass.
            (self.fallback, self.sources) = (Fallback::default(), sources);
        }
        let over_tls = self.reconcile_over_tls(now, resources);
        let by_udp = self.reconcile_by_udp(now, resources);
        by_udp.and(over_tls).err()
    }

    /// It is not used any more.
    pub(super) fn close(&mut self, now: Instant, resources: &mut Resources<'_>) {
        if self.is_open() {
            self.since = now;
        }
        self.end_by_udp(now, false, resources);
        self.end_over_tls(now, false, resources);
        self.fallback = Fallback::default();
        self.sources.clear();
    }

    /// Our address on it in each family in which there is a proxy.
    fn find_sources(&self, remotes: &[SocketAddr], app: &dyn App) -> Result<Vec<IpAddr>, String> {
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

    /// Opens it by UDP, changes it, or ends it there.
    fn reconcile_by_udp(
        &mut self,
        now: Instant,
        resources: &mut Resources<'_>,
    ) -> Result<(), String> {
        if !self.fallback.uses_udp(resources.links.tls.setting) {
            self.end_by_udp(now, true, resources);
            return Ok(());
        }
        let known = self.by_udp.as_ref().map(|open| open.sockets.clone()).unwrap_or_default();
        let (mut sockets, mut trouble) = (Vec::new(), None);
        for source in &self.sources {
            match known.iter().find(|(address, _)| address == source) {
                Some(kept) => sockets.push(*kept),
                None => match self.open_socket(*source, resources) {
                    Ok(id) => sockets.push((*source, id)),
                    Err(error) => trouble = Some(error.to_string()),
                },
            }
        }
        if sockets.is_empty() {
            self.end_by_udp(now, false, resources);
        } else {
            self.give(now, sockets, resources)?;
        }
        trouble.map_or(Ok(()), Err)
    }

    /// Gives the core the link with these sockets, as far as it differs from the one that it has.
    fn give(
        &mut self,
        now: Instant,
        sockets: Vec<(IpAddr, SocketId)>,
        resources: &mut Resources<'_>,
    ) -> Result<(), String> {
        let [key, _] = self.keys;
        match &self.by_udp {
            Some(open) if open.sockets == sockets && open.network.is_like(&self.network) => {
                if open.network.policy != self.network.policy {
                    resources.links.client.set_policy(key, &self.network.policy);
                }
            }
            _ => {
                let families = sockets.iter().map(|(source, id)| (source.is_ipv4(), *id));
                let link = link(&self.network, self.network.mtu, families, false);
                let links = &mut resources.links;
                let given = links.client.set_link(now, key, Some(link), links.sink);
                if let Err(error) = given {
                    for (_, id) in sockets {
                        resources.links.sockets.close(id);
                    }
                    self.end_by_udp(now, false, resources);
                    return Err(error.to_string());
                }
                (self.since, self.refused) = (now, None);
            }
        }
        let given = ByUdp { network: self.network.clone(), sockets: sockets.clone() };
        // What is not used any more is closed once the core has let go of it.
        let before = self.by_udp.replace(given).into_iter().flat_map(|open| open.sockets);
        for (_, id) in before.filter(|socket| !sockets.contains(socket)) {
            resources.links.sockets.close(id);
        }
        Ok(())
    }

    fn open_socket(
        &self,
        source: IpAddr,
        resources: &mut Resources<'_>,
    ) -> Result<SocketId, OpenError> {
        let (app, id) = (resources.app, self.network.id);
        let bound = Bound::prepared(source, &mut |fd| app.bind_socket(fd, id))?;
        resources.links.sockets.adopt(bound)
    }

    /// It goes no more by UDP. `on_purpose`: it works, so what is under way is still taken.
    fn end_by_udp(&mut self, now: Instant, on_purpose: bool, resources: &mut Resources<'_>) {
        let Some(open) = self.by_udp.take() else { return };
        let sockets = open.sockets.into_iter().map(|(_, id)| id);
        resources.links.take_out(now, self.keys[0], sockets, on_purpose);
    }

    /// Opens it over TLS, changes it, or ends it there.
    fn reconcile_over_tls(
        &mut self,
        now: Instant,
        resources: &mut Resources<'_>,
    ) -> Result<(), String> {
        if !self.fallback.uses_tls(resources.links.tls.setting) {
            self.end_over_tls(now, true, resources);
            return Ok(());
        }
        let [_, key] = self.keys;
        let Self { network, over_tls, sources, .. } = self;
        if let Some(open) = over_tls.as_mut().filter(|open| open.is_like(network, sources)) {
            if open.network.policy != network.policy {
                resources.links.client.set_policy(key, &network.policy);
                open.network.policy.clone_from(&network.policy);
            }
            return Ok(());
        }
        self.end_over_tls(now, false, resources);
        let opened = OverTls::open(now, key, &self.network, &self.sources, resources);
        let open = opened.map_err(|error| format!("over TLS: {error}"))?;
        if self.by_udp.is_none() {
            self.since = now;
        }
        self.over_tls = Some(open);
        Ok(())
    }

    /// It goes no more over TLS.
    fn end_over_tls(&mut self, now: Instant, on_purpose: bool, resources: &mut Resources<'_>) {
        let Some(open) = self.over_tls.take() else { return };
        resources.links.take_out(now, self.keys[1], [open.socket], on_purpose);
    }
}

/// A network for the core: with this largest IP packet, and sockets each of which is for IPv4 or not. `any_port`: they
/// reach a proxy whatever port is named.
pub(super) fn link(
    network: &Network,
    mtu: Option<u16>,
    sockets: impl Iterator<Item = (bool, SocketId)>,
    any_port: bool,
) -> FleetLink {
    let config = LinkConfig {
        name: shortened(&network.name),
        // They follow from where the proxy in use is.
        paths: ArrayVec::new(),
        keepalive: network.keepalive,
        metered: network.metered,
        mtu,
        policy: network.policy.clone(),
    };
    // One for each family.
    FleetLink { config, sockets: sockets.take(2).collect(), any_port }
}
