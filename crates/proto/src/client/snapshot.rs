//! What the client shows of itself. Counts go on over the end of a session, so that nothing that is
//! watched jumps back to zero.

use std::collections::BTreeMap;

use super::{Client, LinkKey};
use crate::config::MAX_LINKS;
use crate::error::DropCounters;
use crate::event::SessionInfo;
use crate::tunnel::{Ledger, LinkStats, Outages, Traffic, Tunnel, TunnelStats};
use crate::units::LinkId;
use crate::wire::frame::MAX_NAME;

/// Links whose counts are kept, those taken out included.
const MAX_KEPT: usize = 4 * MAX_LINKS;

/// What the search for sessions did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HandshakeCounters {
    /// Searches begun.
    pub attempts: u64,
    /// First messages sent; a round sends one over each path.
    pub sent: u64,
    /// Answers that gave a session.
    pub answers: u64,
    /// Times the proxy asked for proof that a message is fresh.
    pub retries: u64,
    /// Times the proxy asked for proof that the client is at its address, and got it.
    pub cookies: u64,
    /// Authentic refusals.
    pub refusals: u64,
    /// Sessions so far.
    pub sessions: u64,
}

impl HandshakeCounters {
    /// What another client did, too.
    pub(super) const fn add(&mut self, other: &Self) {
        self.attempts += other.attempts;
        self.sent += other.sent;
        self.answers += other.answers;
        self.retries += other.retries;
        self.cookies += other.cookies;
        self.refusals += other.refusals;
        self.sessions += other.sessions;
    }
}

/// One link.
#[derive(Clone, Debug)]
pub struct ClientLinkStats {
    /// The owner's name for it.
    pub key: LinkKey,
    /// Its name for people.
    pub name: arrayvec::ArrayString<MAX_NAME>,
    /// As it is in the present session; `None`: not in one.
    pub link: Option<LinkStats>,
    /// Datagrams sent over all sessions.
    pub sent: Traffic,
    /// Datagrams received over all sessions.
    pub received: Traffic,
}

/// The client.
#[derive(Clone, Debug)]
pub struct ClientStats {
    /// The present session.
    pub session: Option<SessionInfo>,
    /// Its tunnel.
    pub tunnel: Option<TunnelStats>,
    /// Every link that is configured, by key.
    pub links: Vec<ClientLinkStats>,
    /// Packets taken from the TUN, over all sessions.
    pub accepted: Traffic,
    /// Packets handed to the TUN, over all sessions.
    pub delivered: Traffic,
    /// What links carried, over all sessions, those that were taken out too.
    pub ledger: Ledger,
    /// Links that carried nothing for a while, over all sessions.
    pub outages: Outages,
    /// What was dropped and why, over all sessions, handshakes included.
    pub drops: DropCounters,
    /// The search for sessions.
    pub handshake: HandshakeCounters,
}

impl ClientStats {
    /// What another client over the same links counted, too.
    pub(crate) fn add(&mut self, other: &Self) {
        for link in &mut self.links {
            if let Some(more) = other.links.iter().find(|more| more.key == link.key) {
                link.sent = link.sent.plus(more.sent);
                link.received = link.received.plus(more.received);
            }
        }
        self.accepted = self.accepted.plus(other.accepted);
        self.delivered = self.delivered.plus(other.delivered);
        self.ledger.merge(&other.ledger);
        self.outages.merge(&other.outages);
        self.drops.merge(&other.drops);
        self.handshake.add(&other.handshake);
    }
}

/// Sums over what is gone.
#[derive(Debug, Default)]
pub(super) struct Totals {
    /// Sent and received, by link.
    links: BTreeMap<LinkKey, (Traffic, Traffic)>,
    accepted: Traffic,
    delivered: Traffic,
    ledger: Ledger,
    outages: Outages,
    pub(super) drops: DropCounters,
}

impl Totals {
    /// A link leaves its tunnel, or has just left it.
    pub(super) fn keep_link(&mut self, key: LinkKey, tunnel: &Tunnel, id: LinkId) {
        let Some((more_sent, more_received)) = tunnel.traffic_of(id) else { return };
        let (sent, received) = self.links.entry(key).or_default();
        *sent = (*sent).plus(more_sent);
        *received = (*received).plus(more_received);
    }

    /// What another client counted, too.
    pub(super) fn merge(&mut self, other: &Self) {
        for (key, (more_sent, more_received)) in &other.links {
            let (sent, received) = self.links.entry(*key).or_default();
            *sent = (*sent).plus(*more_sent);
            *received = (*received).plus(*more_received);
        }
        self.accepted = self.accepted.plus(other.accepted);
        self.delivered = self.delivered.plus(other.delivered);
        self.ledger.merge(&other.ledger);
        self.outages.merge(&other.outages);
        self.drops.merge(&other.drops);
    }

    /// Bounds the table, at the cost of links that are not `configured`.
    pub(super) fn forget_links(&mut self, configured: impl Fn(LinkKey) -> bool) {
        let excess = self.links.len().saturating_sub(MAX_KEPT);
        let gone = self.links.keys().copied().filter(|key| !configured(*key));
        for key in gone.take(excess).collect::<Vec<_>>() {
            self.links.remove(&key);
        }
    }

    /// A tunnel is over.
    pub(super) fn keep_tunnel(&mut self, tunnel: &Tunnel) {
        let stats = tunnel.stats();
        self.accepted = self.accepted.plus(stats.accepted);
        self.delivered = self.delivered.plus(stats.delivered);
        self.ledger.merge(&stats.ledger);
        self.outages.merge(&stats.outages);
        self.drops.merge(&stats.drops);
    }
}

impl Client {
    /// Everything, as it is now.
    #[must_use]
    pub fn stats(&self) -> ClientStats {
        let tunnel = self.session.as_ref().map(|session| session.tunnel.stats());
        let totals = &self.totals;
        let (mut drops, mut ledger) = (totals.drops.clone(), totals.ledger.clone());
        let (mut accepted, mut delivered) = (totals.accepted, totals.delivered);
        let mut outages = totals.outages.clone();
        if let Some(tunnel) = &tunnel {
            drops.merge(&tunnel.drops);
            ledger.merge(&tunnel.ledger);
            outages.merge(&tunnel.outages);
            accepted = accepted.plus(tunnel.accepted);
            delivered = delivered.plus(tunnel.delivered);
        }
        let present = tunnel.as_ref().map_or(&[][..], |tunnel| &tunnel.links);
        let links = self.links.iter().map(|link| {
            let now = link.id.and_then(|id| present.iter().find(|stats| stats.id == id));
            let (mut sent, mut received) = totals.links.get(&link.key).copied().unwrap_or_default();
            if let Some(now) = now {
                sent = sent.plus(now.sent);
                received = received.plus(now.received);
            }
            let (key, name) = (link.key, link.config.name);
            ClientLinkStats { key, name, link: now.cloned(), sent, received }
        });
        ClientStats {
            session: self.session().cloned(),
            links: links.collect(),
            accepted,
            delivered,
            ledger,
            outages,
            drops,
            handshake: self.counters,
            tunnel,
        }
    }
}
