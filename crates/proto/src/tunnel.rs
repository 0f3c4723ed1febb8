//! The tunnel: one session's machine, the same at both ends.
//!
//! The way of a packet out is told in `egress`, the way in in `ingress`, what is said without
//! packets in `control`, and what time brings in `timeout`. Each part of the machine keeps its own
//! state and makes its own decisions; this file only holds them together.
//!
//! Contract: after any `handle_*` call, call [`Tunnel::poll_transmit`] until it leaves room in the
//! batch, [`Tunnel::poll_event`] until it has none, and arm one timer with [`Tunnel::poll_timeout`].

mod backup;
mod bundle;
mod close;
mod control;
mod departed;
mod egress;
mod feedback;
mod filter;
mod flows;
mod ingress;
mod keepalive;
mod ledger;
mod limits;
mod link;
mod partial;
mod parts;
mod path;
mod recent;
mod rekey;
mod routing;
mod seal;
mod snapshot;
mod timeout;
mod waiting;
mod weigh;

use std::collections::VecDeque;
use std::net::IpAddr;

use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};

pub use backup::Duty;
pub use bundle::{Bundled, MAX_PACKETS};
pub use filter::InnerFilter;
pub use ledger::{Ledger, Metered};
pub use limits::{Limit, Limits};
pub use link::{LinkState, Traffic};
pub(crate) use partial::PartialRead;
pub use recent::Recent;
pub use rekey::Credentials;
pub use routing::{FlowCounts, FlowTables, PathRow};
pub use snapshot::{LinkStats, TunnelStats};
pub use weigh::LinkShare;

use crate::config::{LinkConfig, MAX_LINKS, TunnelConfig};
use crate::crypto::KeyRing;
use crate::crypto::limit::TokenBucket;
use crate::error::DropCounters;
use crate::event::{DownReason, Event};
use crate::link::mtu::PathMtu;
use crate::link::received::Report;
use crate::link::receiver::LinkReceiver;
use crate::link::sender::LinkSender;
use crate::path::Path;
use crate::queue::SparseFirst;
use crate::reseq::Resequencer;
use crate::sched::AnyScheduler;
use crate::sink::PacketSink;
use crate::time::Instant;
use crate::units::{LinkId, SessionIndex};
use backup::Backups;
use close::Ending;
use departed::Departures;
use flows::FlowTable;
use link::{Link, NewLink, Usage};
use parts::Joiner;
use path::Validation;
use rekey::Rekey;
use waiting::LinkQueues;
use weigh::Weigher;

/// ICMP answers a second at most (RFC 1812 §4.3.2.8): enough for every flow to learn its MTU.
const ANSWERS_PER_SECOND: u32 = 100;

/// Which end this is. They differ only in who starts things.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Opens links, rekeys, keeps NATs open.
    Client,
    /// Takes links, follows addresses.
    Proxy,
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
}

/// One end of a tunnel.
pub struct Tunnel {
    side: Side,
    config: TunnelConfig,
    keys: KeyRing,
    peer: SessionIndex,
    rekey: Rekey,
    /// Sorted by id.
    links: Vec<Link>,
    departed: Departures,
    /// What links carried that left.
    ledger: Ledger,
    scheduler: AnyScheduler,
    weigher: Weigher,
    backups: Backups,
    queue: SparseFirst,
    waiting: LinkQueues,
    /// When a packet was last dropped because no link had room.
    refused_at: Option<Instant>,
    flows: FlowTable,
    next_global: u64,
    reseq: Resequencer,
    sender_clock: ingress::SenderClock,
    filter: InnerFilter,
    gateways: Vec<IpAddr>,
    /// Whether the peer completes partial checksums.
    peer_completes: bool,
    /// ICMP answers that may be sent now.
    answers: TokenBucket,
    inner_mtu: Option<u16>,
    ending: Ending,
    events: VecDeque<Event>,
    drops: DropCounters,
    /// Packets handed to the TUN.
    delivered: Traffic,
    /// Packets taken from the TUN.
    accepted: Traffic,
    /// How much lately: what was accepted, and delivered.
    recent: Recent,
    /// Reports to be repeated over another link; the newest of each link that is down.
    report_copies: Vec<Report>,
    /// Packets sent in two parts, modulo 2^16.
    split: u16,
    joiner: Joiner,
    /// Packets that came in two parts.
    joined: u64,
    /// Packets sent that shared their datagram with others.
    bundled: Bundled,
    /// When a packet last came or was to go.
    usage: Usage,
    /// A packet that shared its datagram, while it is looked at.
    scratch: Vec<u8>,
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
        Self {
            side: session.side,
            scheduler: AnyScheduler::new(now, &config.scheduling),
            weigher: Weigher::default(),
            backups: Backups::default(),
            queue: SparseFirst::new(config.queue),
            waiting: LinkQueues::new(config.queue),
            refused_at: None,
            reseq: Resequencer::new(config.reseq, 0),
            rekey: Rekey::new(now, session.rekey),
            config,
            keys: session.keys,
            peer: session.peer,
            links: Vec::new(),
            departed: Departures::default(),
            ledger: Ledger::default(),
            flows: FlowTable::new(),
            next_global: 0,
            sender_clock: ingress::SenderClock::default(),
            filter,
            gateways: session.gateways,
            peer_completes: session.peer_completes,
            answers: TokenBucket::new(now, ANSWERS_PER_SECOND, ANSWERS_PER_SECOND),
            inner_mtu: None,
            ending: Ending::default(),
            events: VecDeque::new(),
            drops: DropCounters::default(),
            delivered: Traffic::default(),
            accepted: Traffic::default(),
            recent: Recent::new(now),
            report_copies: Vec::new(),
            split: 0,
            joiner: Joiner::default(),
            joined: 0,
            bundled: Bundled::default(),
            usage: Usage::new(now),
            scratch: Vec::new(),
            rng: StdRng::from_seed(seed),
        }
    }

    /// Opens a link (client only); the peer has taken it when [`Event::LinkUp`] comes.
    ///
    /// # Errors
    /// [`AddLinkError`].
    pub fn add_link(&mut self, now: Instant, config: &LinkConfig) -> Result<LinkId, AddLinkError> {
        if self.links.len() >= MAX_LINKS {
            return Err(AddLinkError::TooMany);
        }
        let path = *config.paths.first().ok_or(AddLinkError::NoPath)?;
        let Some(id) = self.keys.free_link(now) else {
            // While an older key lives, its death may set ids free: a rekey would only hold them longer.
            if self.keys.live_keys() == 1 {
                self.rekey.request();
            }
            return Err(AddLinkError::NoId);
        };
        self.keys.claim_link(now, id).map_err(|_| AddLinkError::NoId)?;
        let validation = Validation::trusted(path);
        let max_mtu = config.mtu.unwrap_or(u16::MAX).min(self.config.max_mtu);
        let new = self.new_link(now, id, &config.name, validation, max_mtu);
        let mut link = Link::joining(now, new, config);
        self.departed.forget(id);
        self.departed.announce(&mut link.pending.leaves);
        self.insert(link);
        Ok(id)
    }

    /// The peer answers something else on `path` (client only): asks it on every link.
    pub fn ask_over(&mut self, now: Instant, path: Path) {
        self.links.iter_mut().for_each(|link| link.ask_over(now, path));
    }

    /// Takes a link out and tells the peer over the others.
    pub fn remove_link(&mut self, now: Instant, id: LinkId, sink: &mut impl PacketSink) {
        let Some(halt) = self.take_out(now, id) else { return };
        for other in &mut self.links {
            let _ = other.pending.leaves.try_push(halt);
        }
        self.with_gate(sink, |reseq, gate| reseq.link_left(now, id, None, gate));
        self.events.push_back(Event::LinkDown(id, DownReason::Removed));
        self.update_inner_mtu(now);
    }

    fn new_link<'a>(
        &self,
        now: Instant,
        id: LinkId,
        name: &'a str,
        validation: Validation,
        max_mtu: u16,
    ) -> NewLink<'a> {
        let header_len = validation.path().header_len();
        NewLink {
            id,
            name,
            validation,
            sender: LinkSender::new(self.config.controller, 0),
            receiver: LinkReceiver::new(id, 0),
            mtu: PathMtu::new(now, header_len, max_mtu),
            max_mtu,
        }
    }

    fn insert(&mut self, link: Link) {
        let at = self.links.partition_point(|other| other.id < link.id);
        self.links.insert(at, link);
        self.apply_terms(at);
    }

    fn position(&self, id: LinkId) -> Result<usize, usize> {
        self.links.binary_search_by_key(&id, |link| link.id)
    }

    /// What happened, oldest first.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Whether [`poll_event`](Self::poll_event) has one.
    pub(crate) fn has_event(&self) -> bool {
        !self.events.is_empty()
    }

    /// The smallest inner MTU over the links that carry packets.
    fn update_inner_mtu(&mut self, now: Instant) {
        self.links.iter_mut().for_each(Link::watch_mtu);
        let usable = self.links.iter().filter(|link| link.is_usable(now));
        let Some(mtu) = usable.map(Link::inner_mtu).min() else { return };
        if self.inner_mtu != Some(mtu) {
            self.inner_mtu = Some(mtu);
            self.events.push_back(Event::InnerMtu(mtu));
        }
    }

    /// Keeps the totals of this moment for the rates, at most once a second.
    fn mark_recent(&mut self, now: Instant) {
        if self.recent.is_due(now) {
            self.recent.mark(now, [self.accepted.bytes, self.delivered.bytes]);
            self.links.iter_mut().for_each(|link| {
                link.recent.mark(now, [link.sent.bytes, link.received.bytes]);
            });
        }
    }

    fn token(rng: &mut StdRng) -> [u8; 8] {
        rng.next_u64().to_be_bytes()
    }

    /// The best link that answers, by round-trip time; not `except`.
    fn best_link(&self, except: Option<LinkId>) -> Option<usize> {
        let live = |link: &Link| link.state == LinkState::Up && Some(link.id) != except;
        let links = self.links.iter().enumerate().filter(|(_, link)| live(link));
        links.min_by_key(|(_, link)| link.sender.rtt().srtt()).map(|(at, _)| at)
    }
}

#[cfg(test)]
mod tests;
