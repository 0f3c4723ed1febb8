//! The links: opens and closes their sockets as [`decide`](mod@decide) says, and tells the core.
//!
//! One link's trouble is its own: an interface that vanishes closes its sockets and leaves the others
//! alone. A link whose address changes keeps its key, so that its counters go on, and gets a new path. A
//! socket belongs to the interface's *number*, so an interface that returns under its old name gets a new
//! one. Where UDP is not answered, [`Fallback`] says when the link goes over TLS.

pub(crate) mod change;
mod decide;
mod over_tls;

use std::net::{IpAddr, SocketAddr};

use arrayvec::ArrayVec;
use ropewalk_daemon::links::LinkResources;
use ropewalk_daemon::way::{InUse, in_use};
use ropewalk_link_io::udp::{ClientSocket, SendErrorKind, Sockets};
use ropewalk_proto::client::{ClientStats, LinkKey};
use ropewalk_proto::config::LinkConfig;
use ropewalk_proto::fleet::FleetLink;
use ropewalk_proto::path::{Path, SocketId};
use ropewalk_proto::sink::PacketSink;
use ropewalk_proto::time::{Duration, Instant, earliest};
use ropewalk_settings::{Keepalive, LinkPolicy, PublicKey, TlsUse, shortened};
use ropewalk_tls::{Fallback, Seen};

use self::over_tls::OpenOverTls;
use crate::captive::Question;
use crate::probe::Way;
use crate::routes::Numbers;
use crate::udp_again;

pub(crate) use decide::{Decision, Obstacle, Seat, Wish, choice, decide};

/// A link without an answer for this long may be in a network that wants a sign-in.
const PORTAL_PATIENCE: Duration = Duration::from_secs(4);

/// Between two questions whether it does: a person who signs in is not waited for, the link comes up by itself.
const PORTAL_INTERVAL: Duration = Duration::from_secs(30);

/// Every interface that is or could be a link.
#[derive(Debug, Default)]
pub(crate) struct Links(Vec<Link>);

/// One of them.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) decision: Decision,
    /// Since when it is used, or not used for this reason.
    pub(crate) since: Instant,
    /// As it goes by UDP.
    open: Option<Open>,
    /// As it goes over TLS.
    over_tls: Option<OpenOverTls>,
    /// Which of the two it goes by.
    fallback: Fallback,
    /// Why a socket could not be opened.
    pub(crate) trouble: Option<String>,
    /// Where this network leads those who ask for a page: perhaps to its sign-in.
    pub(crate) portal: Option<String>,
    /// When that was last asked.
    portal_asked: Option<Instant>,
    /// What the kernel last said to a datagram, since the link was last up.
    refused: Option<SendErrorKind>,
}

/// A link by UDP as it was given to the core.
#[derive(Debug)]
struct Open {
    key: LinkKey,
    wish: Wish,
    keepalive: Keepalive,
    metered: bool,
    policy: LinkPolicy,
    sockets: Vec<(IpAddr, SocketId)>,
}

impl Open {
    /// Whether it is what is wished now, whatever its policy is: that changes in place.
    fn is_like(&self, wish: &Wish, decision: &Decision) -> bool {
        self.wish.is_like(wish)
            && (self.keepalive, self.metered) == (decision.keepalive, decision.metered)
    }
}

/// What is to be done after a look at which links go over TLS.
#[derive(Debug, Default)]
pub(crate) struct TlsOutlook {
    /// Some go by other ways than before.
    pub(crate) changed: bool,
    /// On these UDP is to be asked for.
    pub(crate) ask: Vec<udp_again::Question>,
    /// When to look again, if nothing happens before.
    pub(crate) at: Option<Instant>,
}

impl Links {
    /// All, in the order of the decisions.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Link> {
        self.0.iter()
    }

    /// The name of the link that the core calls this.
    pub(crate) fn name_of(&self, key: LinkKey) -> Option<&str> {
        self.of(key).map(|link| link.decision.name.as_str())
    }

    /// The link that the core knows by this key.
    pub(crate) fn of(&self, key: LinkKey) -> Option<&Link> {
        self.0.iter().find(|link| link.has(key))
    }

    /// Whether the core knows a link over TLS by this key.
    pub(crate) fn is_over_tls(&self, key: LinkKey) -> bool {
        self.0.iter().any(|link| link.tls_key() == Some(key))
    }

    /// Looks which links are to go over TLS. `is_up` tells those that carry datagrams; `wait`: until when the proxy, whose
    /// key is `proxy`, has this client wait for a session.
    pub(crate) fn look_at_tls(
        &mut self,
        now: Instant,
        setting: TlsUse,
        is_up: impl Fn(LinkKey) -> bool,
        wait: Option<Instant>,
        proxy: PublicKey,
    ) -> TlsOutlook {
        let mut all = TlsOutlook::default();
        // What is told by the config does not change by itself.
        let of_auto = self.0.iter_mut().filter(|_| setting == TlsUse::Auto);
        for link in of_auto.filter(|link| link.decision.wish.is_ok()) {
            let seen = Seen {
                udp: link.key().is_some_and(&is_up),
                tls: link.tls_key().is_some_and(&is_up),
                wait,
            };
            let outlook = link.fallback.look(now, seen);
            all.changed |= outlook.changed;
            all.at = earliest(all.at, outlook.at);
            if outlook.changed {
                link.tell_way();
            }
            if outlook.ask {
                all.ask.extend(link.question(proxy));
            }
        }
        all
    }

    /// The proxy answers on this link by UDP. Returns whether links go by other ways than before.
    pub(crate) fn note_udp_answer(&mut self, now: Instant, slot: u16) -> bool {
        let link = self.0.iter_mut().find(|link| link.decision.slot == Some(slot));
        link.is_some_and(|link| link.fallback.on_udp_answer(now))
    }

    /// This link could not be asked whether the proxy answers by UDP. Returns when it is.
    pub(crate) fn ask_soon(&mut self, now: Instant, slot: u16) -> Option<Instant> {
        let link = self.0.iter_mut().find(|link| link.decision.slot == Some(slot));
        link.and_then(|link| link.fallback.ask_soon(now))
    }

    /// UDP is to be tried again on all links, beside TLS where they go over it: the machine stood still, or the settings
    /// are others. To be reconciled afterwards.
    pub(crate) fn forget_fallbacks(&mut self, now: Instant) {
        self.0.iter_mut().for_each(|link| link.forget_fallback(now));
    }

    /// Makes it as decided, changing only what differs. Returns whether every wish was fulfilled; if not,
    /// the same may succeed later.
    pub(crate) fn reconcile<S: PacketSink>(
        &mut self,
        now: Instant,
        decisions: Vec<Decision>,
        resources: &mut LinkResources<'_, S>,
    ) -> bool {
        let mut before = std::mem::take(&mut self.0);
        for decision in decisions {
            let known = before.iter().position(|link| {
                (&link.decision.interface, link.decision.slot)
                    == (&decision.interface, decision.slot)
            });
            let obstacle = decision.wish.as_ref().err().copied();
            let mut link = match known {
                Some(at) => before.remove(at),
                None => Link::new(now, decision.clone()),
            };
            if known.is_none() || link.obstacle() != obstacle {
                link.since = now;
                match obstacle {
                    // The look-up is told by itself, and the config knows what it says.
                    None | Some(Obstacle::Unresolved | Obstacle::Disabled) => {}
                    Some(why) => tracing::info!(link = %decision.name, "link is down: {why}"),
                }
            }
            link.decision = decision;
            link.reconcile(now, resources);
            self.0.push(link);
        }
        for mut link in before {
            if link.goes_untold() {
                let link = &link.decision.name;
                tracing::info!(%link, "link is gone: its interface is not there, or leads nowhere");
            }
            link.end(now, false, resources);
            link.end_over_tls(now, false, resources);
        }
        self.0.iter().all(|link| link.trouble.is_none())
    }

    /// The kernel refused a datagram.
    pub(crate) fn note_send_error(&mut self, path: Path, kind: SendErrorKind) {
        let owner = self.0.iter_mut().find(|link| link.owns(path.socket));
        if let Some(link) = owner {
            link.refused = Some(kind);
        }
    }

    /// Datagrams pass on this link (again).
    pub(crate) fn note_up(&mut self, key: LinkKey) {
        if let Some(link) = self.0.iter_mut().find(|link| link.has(key)) {
            link.refused = None;
            (link.portal, link.portal_asked) = (None, None);
        }
    }

    /// A network leads those who ask for a page there, or nowhere.
    pub(crate) fn note_portal(&mut self, slot: u16, page: Option<String>) {
        if let Some(link) = self.0.iter_mut().find(|link| link.decision.slot == Some(slot)) {
            if let Some(page) = page.as_ref().filter(|page| link.portal.as_ref() != Some(page)) {
                tracing::info!(link = %link.decision.name, "this network may want a sign-in at {page}");
            }
            link.portal = page;
        }
    }

    /// The next link without an answer of which is to be asked whether its network wants a sign-in; `is_up` tells those
    /// that have one.
    pub(crate) fn poll_portal(
        &mut self,
        now: Instant,
        is_up: impl Fn(LinkKey) -> bool,
    ) -> Option<Question> {
        self.0.iter_mut().find_map(|link| {
            let key = link.key().filter(|key| !is_up(*key))?;
            if link.tls_key().is_some_and(&is_up) {
                return None;
            }
            let waited = now.since(link.since) >= PORTAL_PATIENCE;
            let due = link.portal_asked.is_none_or(|asked| now.since(asked) >= PORTAL_INTERVAL);
            let wish = link.decision.wish.as_ref().ok().filter(|_| waited && due)?;
            let (source, proxy) = wish.sources.iter().find_map(|source| {
                let same = |remote: &&SocketAddr| remote.is_ipv4() == source.is_ipv4();
                Some((*source, wish.remotes.iter().find(same)?.ip()))
            })?;
            link.portal_asked = Some(now);
            let slot = u16::try_from(key.0).ok()?;
            Some(Question { slot, interface: link.decision.interface.clone(), source, proxy })
        })
    }
}

impl Link {
    fn new(now: Instant, decision: Decision) -> Self {
        Self {
            decision,
            since: now,
            open: None,
            over_tls: None,
            fallback: Fallback::default(),
            trouble: None,
            portal: None,
            portal_asked: None,
            refused: None,
        }
    }

    /// The name that the core has for it by UDP, while it has it.
    pub(crate) fn key(&self) -> Option<LinkKey> {
        self.open.as_ref().map(|open| open.key)
    }

    /// The name that the core has for it over TLS, while it has it.
    pub(crate) fn tls_key(&self) -> Option<LinkKey> {
        self.over_tls.as_ref().map(|open| open.key)
    }

    /// Whether the core knows it by this name, by UDP or over TLS.
    pub(crate) fn has(&self, key: LinkKey) -> bool {
        self.key() == Some(key) || self.tls_key() == Some(key)
    }

    /// The way that it goes, UDP or TLS; `None`: it is open by neither.
    pub(crate) fn in_use<'a>(&self, stats: &'a ClientStats) -> Option<InUse<'a>> {
        in_use(self.key(), self.tls_key(), stats)
    }

    /// Its first socket, while it has one.
    pub(crate) fn socket(&self) -> Option<SocketId> {
        self.open.as_ref()?.sockets.first().map(|(_, id)| *id)
    }

    /// The socket whose datagrams go over TLS, while there is one.
    pub(crate) fn tls_socket(&self) -> Option<SocketId> {
        self.over_tls.as_ref().map(|open| open.socket)
    }

    /// Whether it is to be used, as far as config and host are concerned.
    pub(crate) fn obstacle(&self) -> Option<Obstacle> {
        self.decision.wish.as_ref().err().copied()
    }

    /// Whether the log has no word yet of why it is no candidate any more.
    fn goes_untold(&self) -> bool {
        use crate::host::NoWay::{Name, NoAddress, NoCarrier};
        matches!(self.obstacle(), None | Some(Obstacle::NoWay(Name | NoAddress | NoCarrier)))
    }

    /// What the kernel says against sending on it, for people.
    pub(crate) fn refusal(&self) -> Option<&'static str> {
        self.refused.map(SendErrorKind::in_words)
    }

    fn owns(&self, socket: SocketId) -> bool {
        let sockets = self.open.iter().flat_map(|open| &open.sockets);
        sockets.into_iter().any(|(_, id)| *id == socket)
    }

    fn reconcile<S: PacketSink>(&mut self, now: Instant, resources: &mut LinkResources<'_, S>) {
        let (Ok(wish), Some(slot)) = (&self.decision.wish, self.decision.slot) else {
            self.trouble = None;
            self.fallback = Fallback::default();
            let on_purpose =
                matches!(self.obstacle(), Some(Obstacle::Disabled | Obstacle::UsedUp(_)));
            self.end(now, on_purpose, resources);
            self.end_over_tls(now, on_purpose, resources);
            return;
        };
        let wish = wish.clone();
        self.follow_policy(resources);
        if self.known_wish().is_some_and(|known| !known.is_like(&wish)) {
            // In another network UDP may pass.
            self.forget_fallback(now);
        }
        let known_trouble = self.trouble.take();
        self.reconcile_over_tls(now, slot, &wish, known_trouble.as_deref(), resources);
        if !self.fallback.uses_udp(resources.tls.setting) {
            return self.end(now, true, resources);
        }
        let is_as_wished = self.open.as_ref().is_some_and(|open| {
            open.is_like(&wish, &self.decision) && open.sockets.len() == wish.sources.len()
        });
        if is_as_wished {
            return;
        }
        // Sockets of the same interface and address go on; the rest is closed when the core has let go.
        let same_interface = self.open.as_ref().filter(|open| open.wish.index == wish.index);
        let kept = same_interface.map(|open| open.sockets.clone()).unwrap_or_default();
        let mut sockets = Vec::new();
        for source in &wish.sources {
            match kept.iter().find(|(address, _)| address == source) {
                Some(kept) => sockets.push(*kept),
                None => match self.open_socket(slot, *source, resources.sockets) {
                    Ok(id) => sockets.push((*source, id)),
                    Err(error) => self.complain(error.to_string(), known_trouble.as_deref()),
                },
            }
        }
        if sockets.is_empty() {
            return self.end(now, false, resources);
        }
        if self
            .open
            .as_ref()
            .is_some_and(|open| open.sockets == sockets && open.is_like(&wish, &self.decision))
        {
            // What failed before failed again; to give the core the same link would restart it.
            return;
        }
        let key = LinkKey(u32::from(slot));
        let link = self.core_link(&wish, &sockets);
        if let Err(error) = resources.client.set_link(now, key, Some(link), resources.sink) {
            self.complain(error.to_string(), known_trouble.as_deref());
            sockets.iter().filter(|socket| !kept.contains(socket)).for_each(|(_, id)| {
                resources.sockets.close(*id);
            });
            return self.end(now, false, resources);
        }
        (self.since, self.refused) = (now, None);
        let Decision { keepalive, metered, .. } = self.decision;
        let policy = self.decision.policy.clone();
        let old = self.open.replace(Open { key, wish, keepalive, metered, policy, sockets });
        let open = self.open.as_ref().map_or(&[][..], |open| &open.sockets);
        for (address, id) in old.into_iter().flat_map(|old| old.sockets) {
            if !open.contains(&(address, id)) {
                resources.sockets.close(id);
            }
        }
    }

    fn open_socket(
        &self,
        slot: u16,
        source: IpAddr,
        sockets: &mut Sockets,
    ) -> Result<SocketId, ropewalk_link_io::udp::OpenError> {
        let interface = self.decision.interface.clone();
        let mark = Some(Numbers::default().mark_of(slot));
        sockets.open_client(&ClientSocket { interface, source, mark })
    }

    fn core_link(&self, wish: &Wish, sockets: &[(IpAddr, SocketId)]) -> FleetLink {
        let config = LinkConfig {
            name: shortened(&self.decision.name),
            // They follow from where the proxy in use is.
            paths: ArrayVec::new(),
            keepalive: self.decision.keepalive,
            metered: self.decision.metered,
            mtu: Some(wish.mtu),
            policy: self.decision.policy.clone(),
        };
        let sockets = sockets.iter().map(|(source, id)| (source.is_ipv4(), *id));
        // One for each family.
        FleetLink { config, sockets: sockets.take(2).collect(), any_port: false }
    }

    /// Notes why the link cannot be used as wished; `known` is what was said the last time.
    fn complain(&mut self, error: String, known: Option<&str>) {
        // Only news are worth a line: the same is tried again every few seconds.
        if known != Some(error.as_str()) {
            tracing::warn!(link = %self.decision.name, "the link cannot be used: {error}");
        }
        self.trouble = Some(error);
    }

    /// It goes no more by UDP. `on_purpose`: it works, so what is under way on it is still taken.
    fn end<S: PacketSink>(
        &mut self,
        now: Instant,
        on_purpose: bool,
        resources: &mut LinkResources<'_, S>,
    ) {
        let Some(open) = self.open.take() else { return };
        let sockets = open.sockets.into_iter().map(|(_, socket)| socket);
        resources.take_out(now, open.key, sockets, on_purpose);
    }

    /// It goes no more over TLS.
    fn end_over_tls<S: PacketSink>(
        &mut self,
        now: Instant,
        on_purpose: bool,
        resources: &mut LinkResources<'_, S>,
    ) {
        let Some(open) = self.over_tls.take() else { return };
        resources.take_out(now, open.key, [open.socket], on_purpose);
    }

    /// Opens it over TLS, changes it, or ends it there, as [`Fallback`] says; `known_trouble` is what was said the last
    /// time.
    fn reconcile_over_tls<S: PacketSink>(
        &mut self,
        now: Instant,
        slot: u16,
        wish: &Wish,
        known_trouble: Option<&str>,
        resources: &mut LinkResources<'_, S>,
    ) {
        let terms = resources.tls;
        if !self.fallback.uses_tls(terms.setting) {
            return self.end_over_tls(now, true, resources);
        }
        let known = self.over_tls.as_ref();
        if known.is_some_and(|open| open.is_like(wish, &self.decision, terms.port)) {
            return;
        }
        self.end_over_tls(now, false, resources);
        let opened = OpenOverTls::open(slot, wish, &self.decision, terms, resources.sockets);
        let opened = opened.and_then(|(open, link)| {
            match resources.client.set_link(now, open.key, Some(link), resources.sink) {
                Ok(()) => Ok(open),
                Err(error) => {
                    resources.sockets.close(open.socket);
                    Err(error.to_string())
                }
            }
        });
        match opened {
            Ok(open) => self.over_tls = Some(open),
            Err(error) => self.complain(format!("over TLS: {error}"), known_trouble),
        }
    }

    /// What people say of the link holds for it by UDP and over TLS.
    fn follow_policy<S>(&mut self, resources: &mut LinkResources<'_, S>) {
        let policy = &self.decision.policy;
        let udp = self.open.as_mut().map(|open| (open.key, &mut open.policy));
        let tls = self.over_tls.as_mut().map(|open| (open.key, &mut open.policy));
        for (key, known) in udp.into_iter().chain(tls) {
            if known != policy {
                known.clone_from(policy);
                resources.client.set_policy(key, policy);
            }
        }
    }

    /// What was seen of UDP here is old.
    fn forget_fallback(&mut self, now: Instant) {
        self.fallback = Fallback::again(now, self.over_tls.is_some());
    }

    /// The network in which it was opened.
    fn known_wish(&self) -> Option<&Wish> {
        let udp = self.open.as_ref().map(|open| &open.wish);
        udp.or_else(|| self.over_tls.as_ref().map(|open| &open.wish))
    }

    /// Whether the proxy answers on it by UDP: what is to be asked.
    fn question(&self, proxy: PublicKey) -> Option<udp_again::Question> {
        let (wish, slot) = (self.decision.wish.as_ref().ok()?, self.decision.slot?);
        let way = |remote: &SocketAddr| {
            let same = |source: &&IpAddr| source.is_ipv4() == remote.is_ipv4();
            Some(Way {
                interface: self.decision.interface.clone(),
                source: *wish.sources.iter().find(same)?,
                mark: Some(Numbers::default().mark_of(slot)),
                remote: *remote,
            })
        };
        let ways = wish.remotes.iter().filter_map(way).collect();
        Some(udp_again::Question { slot, ways, proxy })
    }

    /// A line of the log for the way it goes now.
    fn tell_way(&self) {
        let link = &self.decision.name;
        match self.fallback {
            Fallback::Udp(_) => tracing::info!(%link, "UDP is answered here: TLS is not used"),
            Fallback::Both(..) => tracing::info!(%link, "the link is tried by UDP and over TLS"),
            Fallback::Tls(_) => {
                tracing::info!(%link, "the link goes over TLS, because UDP is not answered here");
            }
        }
    }
}
