//! One session of the client: from the answer to its end.

use arrayvec::ArrayVec;
use ipnet::IpNet;

use super::{Answered, Client, JOIN_PATIENCE, Seek};
use crate::config::MAX_LINKS;
use crate::crypto::handshake;
use crate::crypto::keys::{HandshakeRole, KeyRing};
use crate::crypto::rekey::RekeyContext;
use crate::event::{EndReason, Event, SessionInfo};
use crate::path::Path;
use crate::time::{Duration, Instant};
use crate::tunnel::{Established, InnerFilter, LinkState, Side, Tunnel};
use crate::units::LinkId;

/// Least time that the other links have to show that the proxy still knows the session, after one link
/// went down: a link that is cut is ordinary, a proxy that was restarted is not.
const MIN_PATIENCE: Duration = Duration::from_millis(150);
/// The longest such time: with it, and a second to find the first link down, a restart of the proxy is
/// noticed within two seconds.
const MAX_PATIENCE: Duration = Duration::from_millis(750);

/// A session in use.
pub(super) struct Session {
    pub(super) tunnel: Tunnel,
    pub(super) info: SessionInfo,
    pub(super) since: Instant,
    /// The links that carry packets.
    pub(super) up: ArrayVec<LinkId, MAX_LINKS>,
    /// Whether any link ever did.
    pub(super) was_up: bool,
    /// When the set of links that carry packets last changed.
    pub(super) changed: Instant,
}

impl Session {
    /// Keeps the list of links that carry packets.
    pub(super) fn note(&mut self, now: Instant, event: &Event) {
        match event {
            Event::LinkUp(id) => {
                self.up.retain(|up| up != id);
                let _ = self.up.try_push(*id);
                (self.was_up, self.changed) = (true, now);
            }
            Event::LinkDown(id, _) => {
                self.up.retain(|up| up != id);
                self.changed = now;
            }
            _ => {}
        }
    }

    /// How long after a link went down another session is asked for, unless something comes on the
    /// others: they were asked when it did, and answer within a round trip and the delay of a report.
    pub(super) fn patience(&self) -> Duration {
        let stats = self.tunnel.stats();
        let up = stats.links.iter().filter(|link| link.state == LinkState::Up);
        let patience = up.filter_map(|link| link.sender.srtt).min().map(|srtt| srtt * 2);
        let Some(patience) = patience else { return Duration::ZERO };
        patience.clamp(MIN_PATIENCE, MAX_PATIENCE)
    }

    /// How long an answer that came on `path` waits for one of this session, which is asked there: two round trips.
    pub(super) fn grace(&self, path: &Path) -> Duration {
        let stats = self.tunnel.stats();
        let link = stats.links.iter().find(|link| link.path.socket == path.socket);
        let trip = link.and_then(|link| link.sender.srtt);
        trip.map_or(MAX_PATIENCE, |trip| (trip * 2).clamp(MIN_PATIENCE, MAX_PATIENCE))
    }
}

impl Client {
    /// The proxy gave a session. It takes the place of an old one.
    pub(super) fn start_session(&mut self, now: Instant, answered: Answered) {
        let had_one = self.session.is_some();
        self.end_session(now, EndReason::Replaced);
        let Answered { index, path, established } = answered;
        let handshake::Established { keys, accept } = established;
        self.origin.forget_invitation();
        self.origin.set_yields(false);
        let mut config = self.tunnel.clone();
        if let Some(interval) = accept.parameters.rekey_interval {
            config.rekey_after = config.rekey_after.min(interval).max(Duration::from_secs(1));
        }
        let info = SessionInfo::of_client(&accept, index);
        let session = Established {
            side: Side::Client,
            keys: KeyRing::new(HandshakeRole::Initiator, &keys),
            peer: accept.index,
            rekey: self.origin.credentials(RekeyContext::from(&keys)),
            gateways: info.peer.iter().map(IpNet::addr).collect(),
            peer_completes: accept.parameters.partial_checksums,
            peer_orders_flows: accept.parameters.orders_flows,
            peer_tests_speed: accept.parameters.speed_tests,
        };
        let seed = self.seed();
        let mut tunnel = Tunnel::new(now, config, InnerFilter::default(), session, seed);
        if let Some(local_acks) = self.left.take(&self.origin.proxy()) {
            tunnel.take_over(local_acks);
        }
        self.tell(None, Event::SessionEstablished(info.clone()));
        // What this client itself had and does not know of any more is told, too: it was not stopped in order.
        if let Some(ago) = accept.parameters.displaced.filter(|_| !had_one) {
            self.tell(None, Event::Displaced(ago));
        }
        let up = ArrayVec::new();
        self.session = Some(Session { tunnel, info, since: now, up, was_up: false, changed: now });
        self.links.prefer(&path);
        self.join_links(now);
        self.trouble = None;
        self.seek = Seek::At(now + JOIN_PATIENCE);
        self.counters.sessions += 1;
    }

    /// Forgets the session, keeps its counts.
    pub(super) fn end_session(&mut self, now: Instant, reason: EndReason) {
        let Some(mut session) = self.session.take() else { return };
        self.left.leave(now, self.origin.proxy(), session.tunnel.hand_over());
        self.asking_since = now;
        for link in self.links.iter() {
            if let Some(id) = link.id {
                self.totals.keep_link(link.key, &session.tunnel, id);
            }
        }
        self.totals.keep_tunnel(&session.tunnel);
        self.links.forget_ids();
        self.tell(None, Event::SessionEnded(reason));
    }
}
