//! What the proxy shows of itself. Counts of a client go on over the end of a session.

use std::sync::Arc;

use super::Endpoint;
use super::peer::Peer;
use super::sessions::Phase;
use crate::error::DropCounters;
use crate::event::SessionInfo;
use crate::time::Instant;
use crate::tunnel::{Ledger, Outages, Traffic, Tunnel, TunnelStats};
use ropewalk_settings::PublicKey;

/// What came of first messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AdmissionCounters {
    /// First messages in our version with a right mac1, copies included.
    pub first_messages: u64,
    /// Sessions granted.
    pub grants: u64,
    /// Times a client was asked for proof that its message is fresh.
    pub retries: u64,
    /// Sealed refusals.
    pub refusals: u64,
    /// Lists of versions sent.
    pub version_answers: u64,
    /// Cookies sent, while there were too many first messages.
    pub cookies: u64,
    /// First messages that came with a right cookie then.
    pub with_cookie: u64,
}

/// A session in use.
#[derive(Clone, Debug)]
pub struct SessionStats {
    /// What the handshake settled.
    pub info: SessionInfo,
    /// When it was first used.
    pub since: Instant,
    /// When something authentic came last.
    pub last_heard: Instant,
    /// Its tunnel.
    pub tunnel: TunnelStats,
}

/// One client.
#[derive(Clone, Debug)]
pub struct PeerStats {
    /// Its key.
    pub key: PublicKey,
    /// Its name.
    pub name: Arc<str>,
    /// Its session in use.
    pub session: Option<SessionStats>,
    /// Sessions so far.
    pub sessions: u64,
    /// Packets for it taken from the TUN, over all sessions.
    pub accepted: Traffic,
    /// Packets from it handed to the TUN, over all sessions.
    pub delivered: Traffic,
    /// What its links carried, over all sessions.
    pub ledger: Ledger,
    /// Links that carried nothing for a while, over all sessions.
    pub outages: Outages,
    /// What was dropped in its sessions and why.
    pub drops: DropCounters,
}

/// The proxy.
#[derive(Clone, Debug)]
pub struct EndpointStats {
    /// Every client that has or had a session, by key. Of others there is nothing to tell, and they may be many.
    pub peers: Vec<PeerStats>,
    /// Sessions in use.
    pub sessions: usize,
    /// Sessions granted but not used yet.
    pub pending: usize,
    /// First messages kept to answer copies of them.
    pub recent: usize,
    /// What came of first messages.
    pub admission: AdmissionCounters,
    /// What was dropped and why: handshakes, and the sessions of all clients.
    pub drops: DropCounters,
}

impl EndpointStats {
    /// With those of another part of the proxy, whose clients are others.
    #[must_use]
    pub fn with(mut self, other: Self) -> Self {
        self.peers.extend(other.peers);
        self.peers.sort_unstable_by_key(|peer| peer.key);
        self.sessions += other.sessions;
        self.pending += other.pending;
        self.recent += other.recent;
        self.admission = self.admission.plus(&other.admission);
        self.drops.merge(&other.drops);
        self
    }
}

impl AdmissionCounters {
    fn plus(&self, other: &Self) -> Self {
        Self {
            first_messages: self.first_messages + other.first_messages,
            grants: self.grants + other.grants,
            retries: self.retries + other.retries,
            refusals: self.refusals + other.refusals,
            version_answers: self.version_answers + other.version_answers,
            cookies: self.cookies + other.cookies,
            with_cookie: self.with_cookie + other.with_cookie,
        }
    }
}

/// Sums over the sessions of a client that are over.
#[derive(Debug, Default)]
pub(super) struct Totals {
    accepted: Traffic,
    delivered: Traffic,
    ledger: Ledger,
    outages: Outages,
    drops: DropCounters,
}

impl Totals {
    /// A session is over.
    pub(super) fn keep(&mut self, tunnel: &Tunnel) {
        let stats = tunnel.stats();
        self.accepted = self.accepted.plus(stats.accepted);
        self.delivered = self.delivered.plus(stats.delivered);
        self.ledger.merge(&stats.ledger);
        self.outages.merge(&stats.outages);
        self.drops.merge(&stats.drops);
    }
}

impl Endpoint {
    /// Everything, as it is now.
    #[must_use]
    pub fn stats(&self) -> EndpointStats {
        let told_of = self.peers.iter().filter(|(_, peer)| !peer.is_unused());
        let mut peers: Vec<_> = told_of.map(|(key, peer)| self.peer_stats(*key, peer)).collect();
        peers.sort_unstable_by_key(|peer| peer.key);
        let mut drops = self.drops.clone();
        peers.iter().for_each(|peer| drops.merge(&peer.drops));
        let count = |phase| self.sessions.iter().filter(|session| session.phase == phase).count();
        EndpointStats {
            peers,
            sessions: count(Phase::Confirmed),
            pending: count(Phase::Pending),
            recent: self.admission.recent_len(),
            admission: self.admission.counters,
            drops,
        }
    }

    fn peer_stats(&self, key: PublicKey, peer: &Peer) -> PeerStats {
        let mut stats = PeerStats {
            key,
            name: Arc::clone(peer.name()),
            session: None,
            sessions: peer.sessions(),
            accepted: Traffic::default(),
            delivered: Traffic::default(),
            ledger: Ledger::default(),
            outages: Outages::default(),
            drops: DropCounters::default(),
        };
        if let Some(totals) = peer.totals() {
            (stats.accepted, stats.delivered) = (totals.accepted, totals.delivered);
            stats.ledger.clone_from(&totals.ledger);
            stats.outages.clone_from(&totals.outages);
            stats.drops.clone_from(&totals.drops);
        }
        if let Some(session) = peer.session().and_then(|index| self.sessions.get(index)) {
            let tunnel = session.tunnel.stats();
            stats.accepted = stats.accepted.plus(tunnel.accepted);
            stats.delivered = stats.delivered.plus(tunnel.delivered);
            stats.ledger.merge(&tunnel.ledger);
            stats.outages.merge(&tunnel.outages);
            stats.drops.merge(&tunnel.drops);
            stats.session = Some(SessionStats {
                info: session.info.clone(),
                since: session.since,
                last_heard: session.last_heard,
                tunnel,
            });
        }
        stats
    }
}
