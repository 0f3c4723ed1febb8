//! The tunnel: one session's machine, the same at both ends.
//!
//! Its state is divided by what belongs together:
//!
//! | part | what it owns |
//! | --- | --- |
//! | `Session` | the keys that seal and open, and what was dropped |
//! | `LinkSet` | the links, those that left, and what is asked of all of them |
//! | `Egress` | packets that leave: queue, scheduler, numbers |
//! | `Ingress` | packets that came: their order, and which of them pass |
//! | `Outbox` | what is to be said that belongs to no one link |
//! | `Outages` | links that carried nothing for a while, for people |
//! | `Fleet` | the list of proxies, told or heard |
//! | `Speed` | speed tests: what is asked for, granted, and filled with test data |
//! | `Rekey`, `Ending` | fresh keys under way; the end |
//!
//! The tunnel holds them together: what a datagram does (`receive`, `frames`), what leaves (`transmit`, `control`),
//! and what time brings (`timeout`).
//!
//! Contract: after any `handle_*` call, call [`Tunnel::poll_transmit`] until it leaves room in the
//! batch, [`Tunnel::poll_event`] until it has none, and arm one timer with [`Tunnel::poll_timeout`].

mod close;
mod control;
mod doubt;
mod egress;
mod facts;
mod fleet;
mod frames;
mod ingress;
mod link;
mod links;
mod local_ack;
mod outages;
mod outbox;
mod partial;
mod parts;
mod receive;
mod recent;
mod rekey;
mod routing;
mod session;
mod snapshot;
mod speed;
mod timeout;
mod transmit;
mod usage;

use std::mem;
use std::net::IpAddr;

use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};

pub use egress::{
    Bundled, ByLink, FlowWait, MAX_PACKETS, RecentFlow, RecentFlows, Redundancy, Repairs,
};
pub use ingress::InnerFilter;
pub use link::{Duty, Filler, Limit, Limits, LinkState, Traffic};
pub use links::{Ledger, Metered};
pub use local_ack::LocallyAcknowledged;
pub(crate) use local_ack::{KeptByAll, LocalAcks};
pub use outages::{Outage, OutageCause, OutageStage, Outages, STALL_BOUNDS, Stalls};
pub(crate) use partial::PartialRead;
pub use recent::Recent;
pub use rekey::Credentials;
pub use routing::{FlowCounts, FlowTables, PathRow};
pub use snapshot::{Flows, LinkStats, TunnelStats};
pub use speed::{
    SPEED_LIFETIME, SpeedAnswer, SpeedDecision, SpeedError, SpeedPhase, SpeedPlace, SpeedPlaces,
    SpeedUse, Trips,
};

use ropewalk_settings::Direction;

use crate::config::{LinkConfig, MAX_LINKS, TunnelConfig};
use crate::crypto::KeyRing;
use crate::error::DropCounters;
use crate::event::{DownReason, Event};
use crate::link::sender::LinkSender;
use crate::path::Path;
use crate::sink::PacketSink;
use crate::time::Instant;
use crate::units::{LinkId, SessionIndex};
use close::Ending;
use egress::Egress;
use fleet::Fleet;
use ingress::Ingress;
use link::{Link, NewLink, Validation};
use links::LinkSet;
use outages::Gone;
use outbox::Outbox;
use rekey::Rekey;
use session::Session;
use speed::Speed;
use usage::Usage;

/// Which end this is. They differ only in who starts things.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Opens links, rekeys, keeps NATs open.
    Client,
    /// Takes links, follows addresses.
    Proxy,
}

impl Side {
    /// Which way it sends.
    #[must_use]
    pub const fn sends(self) -> Direction {
        match self {
            Self::Client => Direction::Up,
            Self::Proxy => Direction::Down,
        }
    }
}

/// A session that both ends share, as the handshake left it.
pub struct Established {
    /// Which end this is.
    pub side: Side,
    /// The keys.
    pub keys: KeyRing,
    /// The index by which the peer finds the session.
    pub peer: SessionIndex,
    /// What rekeys are made with.
    pub rekey: Credentials,
    /// The proxy's inner addresses: whom an ICMP answer comes from.
    pub gateways: Vec<IpAddr>,
    /// Whether the peer completes partial checksums.
    pub peer_completes: bool,
    /// Whether the peer restores the order within flows.
    pub peer_orders_flows: bool,
    /// Whether the peer is a proxy that knows speed tests.
    pub peer_tests_speed: bool,
}

/// One end of a tunnel.
pub struct Tunnel {
    side: Side,
    config: TunnelConfig,
    session: Session,
    rekey: Rekey,
    links: LinkSet,
    egress: Egress,
    ingress: Ingress,
    outbox: Outbox,
    outages: Outages,
    ending: Ending,
    fleet: Fleet,
    speed: Speed,
    /// Whether the peer completes partial checksums.
    peer_completes: bool,
    /// Whether the peer restores the order within flows.
    peer_orders_flows: bool,
    /// Whether the peer is a proxy that knows speed tests.
    peer_tests_speed: bool,
    usage: Usage,
    /// How much lately: what was accepted, and delivered.
    recent: Recent,
    rng: StdRng,
}

/// The tunnel has as many links as it may have, or the key has no free link id.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AddLinkError {
    /// See [`MAX_LINKS`].
    #[error("a tunnel has at most {MAX_LINKS} links")]
    TooMany,
    /// A rekey is on its way; try again when the tunnel's timer goes off, which it does when the keys before
    /// it die and set ids free.
    #[error("all link ids of the live keys are used up; a rekey is on its way")]
    NoId,
    /// Nothing to send to.
    #[error("the link has no remote address")]
    NoPath,
}

impl Tunnel {
    /// The machine for a fresh session. `seed` must be unpredictable: challenges are drawn from it.
    #[must_use]
    pub fn new(
        now: Instant,
        config: TunnelConfig,
        filter: InnerFilter,
        session: Established,
        seed: [u8; 32],
    ) -> Self {
        let Established { side, keys, peer, rekey, gateways, .. } = session;
        let Established { peer_completes, peer_orders_flows, peer_tests_speed, .. } = session;
        let order = config.order_towards(peer_orders_flows);
        let config = TunnelConfig { sends: side.sends(), ..config };
        Self {
            side,
            session: Session { keys, peer, order, drops: DropCounters::default() },
            rekey: Rekey::new(now, rekey),
            links: LinkSet::default(),
            egress: Egress::new(now, &config, order, gateways),
            ingress: Ingress::new(&config, order, filter),
            outbox: Outbox::default(),
            outages: Outages::default(),
            ending: Ending::default(),
            fleet: Fleet::default(),
            speed: Speed::default(),
            peer_completes,
            peer_orders_flows,
            peer_tests_speed,
            usage: Usage::new(now),
            recent: Recent::new(now),
            config,
            rng: StdRng::from_seed(seed),
        }
    }

    /// Before it carries anything: what it keeps for senders of TCP counts among what is kept by `all`.
    pub(crate) fn count_among(&mut self, all: &KeptByAll) {
        self.ingress.local_acks.count_among(all.clone());
    }

    /// Takes over what another tunnel of the same peer has acknowledged to senders of TCP.
    pub(crate) fn take_over(&mut self, mut local_acks: LocalAcks) {
        local_acks.set_on(self.config.acknowledges_locally(self.session.order));
        local_acks.ask_for_all();
        self.ingress.local_acks = local_acks;
    }

    /// What it has acknowledged to senders of TCP goes to whoever takes it over.
    pub(crate) fn hand_over(&mut self) -> LocalAcks {
        mem::replace(&mut self.ingress.local_acks, LocalAcks::new(false))
    }

    /// Opens a link (client only); the peer has taken it when [`Event::LinkUp`] comes.
    ///
    /// # Errors
    /// [`AddLinkError`].
    pub fn add_link(&mut self, now: Instant, config: &LinkConfig) -> Result<LinkId, AddLinkError> {
        if self.links.is_full() {
            return Err(AddLinkError::TooMany);
        }
        let path = *config.paths.first().ok_or(AddLinkError::NoPath)?;
        let Some(id) = self.session.keys.free_link(now) else {
            // While an older key lives, its death may set ids free: a rekey would only hold them longer.
            if self.session.keys.live_keys() == 1 {
                self.rekey.request();
            }
            return Err(AddLinkError::NoId);
        };
        self.session.keys.claim_link(now, id).map_err(|_| AddLinkError::NoId)?;
        let max_mtu = config.mtu.unwrap_or(u16::MAX).min(self.config.max_mtu);
        let new = self.new_link(id, &config.name, Validation::trusted(path), max_mtu);
        self.insert(Link::joining(now, new, config));
        Ok(id)
    }

    /// The peer answers something else on `path` (client only): asks it on every link.
    pub fn ask_over(&mut self, now: Instant, path: Path) {
        self.links.iter_mut().for_each(|link| link.ask_over(now, path));
    }

    /// Takes a link out and tells the peer over the others.
    pub fn remove_link(&mut self, now: Instant, id: LinkId, sink: &mut impl PacketSink) {
        let Ok(at) = self.links.position(id) else { return };
        let gone = Gone::of(now, &self.links[at]);
        let Some(halt) = self.links.remove(now, id) else { return };
        self.links.announce_leave(halt);
        self.egress.let_wait(now);
        let moved = self.egress.reinject(now, id, true);
        self.note_outage(now, &gone, OutageCause::Removed, moved);
        self.ingress.link_left(now, id, None, &mut self.session.drops, sink);
        self.outbox.tell(Event::LinkDown(id, DownReason::Removed));
        self.update_inner_mtu(now);
    }

    fn new_link<'a>(
        &self,
        id: LinkId,
        name: &'a str,
        validation: Validation,
        max_mtu: u16,
    ) -> NewLink<'a> {
        let mut sender = LinkSender::new(self.config.controller_in_force(), 0);
        if self.egress.repairs().is_some() {
            sender = sender.repaired();
        }
        NewLink { id, name, validation, sender, max_mtu }
    }

    /// Takes a new link in. Returns its place.
    fn insert(&mut self, link: Link) -> usize {
        let at = self.links.insert(link);
        self.apply_terms(at);
        at
    }

    /// What happened, oldest first.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.outbox.poll_event()
    }

    /// Whether [`poll_event`](Self::poll_event) has one.
    pub(crate) fn has_event(&self) -> bool {
        self.outbox.has_event()
    }

    /// Tells when the smallest inner MTU over the links that carry packets has changed.
    fn update_inner_mtu(&mut self, now: Instant) {
        if let Some(mtu) = self.links.poll_inner_mtu(now) {
            self.outbox.tell(Event::InnerMtu(mtu));
        }
    }

    fn token(rng: &mut StdRng) -> [u8; 8] {
        rng.next_u64().to_be_bytes()
    }
}

#[cfg(test)]
mod tests;
