//! The links: opens and closes their sockets as [`decide`](mod@decide) says, and tells the core.
//!
//! One link's trouble is its own: an interface that vanishes closes its sockets and leaves the others
//! alone. A link whose address changes keeps its key, so that its counters go on, and gets a new path. A
//! socket belongs to the interface's *number*, so an interface that returns under its old name gets a new
//! one.

pub(crate) mod change;
mod decide;

use std::net::{IpAddr, SocketAddr};

use arrayvec::ArrayVec;
use ropewalk_link_io::udp::{ClientSocket, SendErrorKind, Sockets};
use ropewalk_proto::client::LinkKey;
use ropewalk_proto::config::LinkConfig;
use ropewalk_proto::fleet::{FleetClient, FleetLink};
use ropewalk_proto::path::{Path, SocketId};
use ropewalk_proto::sink::PacketSink;
use ropewalk_proto::time::{Duration, Instant};
use ropewalk_settings::{Keepalive, LinkPolicy, shortened};

use crate::captive::Question;
use crate::routes::Numbers;

pub(crate) use decide::{Decision, Obstacle, Seat, Wish, choice, decide};

/// A link without an answer for this long may be in a network that wants a sign-in.
const PORTAL_PATIENCE: Duration = Duration::from_secs(4);

/// Between two questions whether it does: a person who signs in is not waited for, the link comes up by itself.
const PORTAL_INTERVAL: Duration = Duration::from_secs(30);

/// What is under way on a link that is taken out on purpose arrives within this.
const LINGER: Duration = Duration::from_secs(1);

/// Every interface that is or could be a link.
#[derive(Debug, Default)]
pub(crate) struct Links(Vec<Link>);

/// One of them.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) decision: Decision,
    /// Since when it is used, or not used for this reason.
    pub(crate) since: Instant,
    open: Option<Open>,
    /// Why a socket could not be opened.
    pub(crate) trouble: Option<String>,
    /// Where this network leads those who ask for a page: perhaps to its sign-in.
    pub(crate) portal: Option<String>,
    /// When that was last asked.
    portal_asked: Option<Instant>,
    /// What the kernel last said to a datagram, since the link was last up.
    refused: Option<SendErrorKind>,
}

/// A link as it was given to the core.
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

/// What is changed by a reconciliation.
pub(crate) struct LinkResources<'a, S> {
    /// Opened and closed here.
    pub(crate) sockets: &'a mut Sockets,
    /// Gets the links.
    pub(crate) client: &'a mut FleetClient,
    /// Takes the packets that waited for a link that goes.
    pub(crate) sink: &'a mut S,
    /// Sockets of links that were taken out, and until when they stay open for what is under way.
    pub(crate) lingering: &'a mut Vec<(Instant, SocketId)>,
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
        self.0.iter().find(|link| link.key() == Some(key))
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
            link.close(now, resources);
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
        if let Some(link) = self.0.iter_mut().find(|link| link.key() == Some(key)) {
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
            trouble: None,
            portal: None,
            portal_asked: None,
            refused: None,
        }
    }

    /// The name that the core has for it, while it has it.
    pub(crate) fn key(&self) -> Option<LinkKey> {
        self.open.as_ref().map(|open| open.key)
    }

    /// Its first socket, while it has one.
    pub(crate) fn socket(&self) -> Option<SocketId> {
        self.open.as_ref()?.sockets.first().map(|(_, id)| *id)
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
            let on_purpose =
                matches!(self.obstacle(), Some(Obstacle::Disabled | Obstacle::UsedUp(_)));
            if on_purpose {
                self.leave(now, resources);
            } else {
                self.close(now, resources);
            }
            return;
        };
        if let Some(open) = &mut self.open
            && open.policy != self.decision.policy
        {
            open.policy.clone_from(&self.decision.policy);
            resources.client.set_policy(open.key, &open.policy);
        }
        let is_as_wished = self.open.as_ref().is_some_and(|open| {
            open.is_like(wish, &self.decision) && open.sockets.len() == wish.sources.len()
        });
        if is_as_wished {
            return;
        }
        let wish = wish.clone();
        let known_trouble = self.trouble.take();
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
            return self.close(now, resources);
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
            return self.close(now, resources);
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
        FleetLink { config, sockets: sockets.take(2).collect() }
    }

    /// Notes why the link cannot be used as wished; `known` is what was said the last time.
    fn complain(&mut self, error: String, known: Option<&str>) {
        // Only news are worth a line: the same is tried again every few seconds.
        if known != Some(error.as_str()) {
            tracing::warn!(link = %self.decision.name, "the link cannot be used: {error}");
        }
        self.trouble = Some(error);
    }

    /// It is gone, and its sockets are.
    fn close<S: PacketSink>(&mut self, now: Instant, resources: &mut LinkResources<'_, S>) {
        for socket in self.take_out(now, resources) {
            resources.sockets.close(socket);
        }
    }

    /// It works and is to be used no more: what is under way on it is still taken.
    fn leave<S: PacketSink>(&mut self, now: Instant, resources: &mut LinkResources<'_, S>) {
        let sockets = self.take_out(now, resources);
        resources.lingering.extend(sockets.into_iter().map(|socket| (now + LINGER, socket)));
    }

    fn take_out<S: PacketSink>(
        &mut self,
        now: Instant,
        resources: &mut LinkResources<'_, S>,
    ) -> Vec<SocketId> {
        let Some(open) = self.open.take() else { return Vec::new() };
        // Taking a link out never fails.
        let _ = resources.client.set_link(now, open.key, None, resources.sink);
        open.sockets.into_iter().map(|(_, socket)| socket).collect()
    }
}
