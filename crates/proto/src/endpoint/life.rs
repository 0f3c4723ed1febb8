//! The life of a session: it is pending, takes the place of the peer's old one, and ends.

use std::sync::Arc;

use ipnet::IpNet;
use rand::RngCore;
use ropewalk_settings::PublicKey;

use super::Endpoint;
use super::admission::Admitted;
use super::peers::PeerConfig;
use super::sessions::{Phase, Session};
use crate::crypto::keys::{HandshakeRole, KeyRing};
use crate::crypto::rekey::RekeyContext;
use crate::event::{EndReason, Event, SessionInfo};
use crate::time::Instant;
use crate::tunnel::{Credentials, Established, Side, Tunnel};
use crate::units::SessionIndex;
use crate::wire::frame::CloseReason;

impl Endpoint {
    /// Makes a pending session of a peer; its oldest one goes if there are too many.
    pub(super) fn start_session(&mut self, now: Instant, admitted: Admitted) {
        let Admitted { client, client_index, accept, keys, links, completes, orders_flows } =
            admitted;
        let Some(peer) = self.peers.get_mut(&client) else { return };
        let oldest = peer.grant(accept.index);
        let PeerConfig { psk, filter, .. } = peer.config();
        let info = SessionInfo::of_proxy(&accept, links);
        let established = Established {
            side: Side::Proxy,
            keys: KeyRing::new(HandshakeRole::Responder, &keys),
            peer: client_index,
            rekey: Credentials {
                local: Arc::clone(&self.secret),
                remote: client,
                psk,
                context: RekeyContext::from(&keys),
            },
            gateways: info.own.iter().map(IpNet::addr).collect(),
            peer_completes: completes,
            peer_orders_flows: orders_flows,
            // Only a proxy is asked.
            peer_tests_speed: false,
        };
        let mut config = self.tunnel.clone();
        if let Some(scheduling) = peer.scheduling() {
            config.scheduling.clone_from(scheduling);
        }
        let mut seed = [0; 32];
        self.rng.fill_bytes(&mut seed);
        let mut tunnel = Tunnel::new(now, config, filter, established, seed);
        tunnel.count_among(&self.kept);
        tunnel.set_fleet(Arc::clone(&self.fleet));
        self.sessions.insert(accept.index, Session::pending(now, client, info, tunnel));
        if let Some(oldest) = oldest {
            self.sessions.remove(oldest);
        }
    }

    /// The client has the keys: the session takes the place of the peer's old one.
    pub(super) fn confirm(&mut self, now: Instant, index: SessionIndex) {
        let Some(session) = self.sessions.get_mut(index) else { return };
        (session.phase, session.since) = (Phase::Confirmed, now);
        let (key, info) = (session.peer, session.info.clone());
        let Some(peer) = self.peers.get_mut(&key) else { return };
        if let Some(old) = peer.take_up(index) {
            self.leave(now, old, CloseReason::Replaced, EndReason::Replaced);
        }
        if let Some(local_acks) = self.left.take(&key)
            && let Some(session) = self.sessions.get_mut(index)
        {
            session.tunnel.take_over(local_acks);
        }
        self.tell(key, Event::SessionEstablished(info));
    }

    /// Ends a peer's sessions because the table changed.
    pub(super) fn end_peer(
        &mut self,
        now: Instant,
        key: PublicKey,
        said: CloseReason,
        reason: EndReason,
    ) {
        let Some(peer) = self.peers.get_mut(&key) else { return };
        for index in peer.indices() {
            self.end(now, index, said, reason);
        }
    }

    /// Ends a session, with a goodbye if the client has it.
    fn end(&mut self, now: Instant, index: SessionIndex, said: CloseReason, reason: EndReason) {
        match self.sessions.get(index).map(|session| session.phase) {
            Some(Phase::Pending) => self.forget(now, index, reason),
            Some(Phase::Confirmed) => {
                self.detach(index);
                self.leave(now, index, said, reason);
            }
            Some(Phase::Ending) | None => {}
        }
    }

    /// Resets a session; it goes when the client was told.
    fn leave(&mut self, now: Instant, index: SessionIndex, said: CloseReason, reason: EndReason) {
        let Some(session) = self.sessions.get_mut(index) else { return };
        session.tunnel.stop_speed_test(now);
        session.tunnel.reset(said);
        (session.phase, session.since) = (Phase::Ending, now);
        let key = session.peer;
        self.left.leave(now, key, session.tunnel.hand_over());
        if let Some(peer) = self.peers.get_mut(&key) {
            peer.totals_mut().keep(&session.tunnel);
            peer.note_speed_use(now, session.tunnel.take_speed_use(now));
        }
        self.sessions.touch(index);
        self.tell(key, Event::SessionEnded(reason));
    }

    /// Forgets a session at once.
    pub(super) fn forget(&mut self, now: Instant, index: SessionIndex, reason: EndReason) {
        self.detach(index);
        let Some(mut session) = self.sessions.remove(index) else { return };
        if session.phase == Phase::Confirmed {
            self.left.leave(now, session.peer, session.tunnel.hand_over());
            if let Some(peer) = self.peers.get_mut(&session.peer) {
                peer.totals_mut().keep(&session.tunnel);
                peer.note_speed_use(now, session.tunnel.take_speed_use(now));
            }
            self.tell(session.peer, Event::SessionEnded(reason));
        }
    }

    /// The peer has this session no more.
    fn detach(&mut self, index: SessionIndex) {
        let Some(session) = self.sessions.get_mut(index) else { return };
        if let Some(peer) = self.peers.get_mut(&session.peer) {
            peer.detach(index);
        }
    }

    /// A session's tunnel has ended.
    pub(super) fn on_end(&mut self, now: Instant, index: SessionIndex) {
        // The client may have begun it.
        self.take_events(now, index);
        self.forget(now, index, EndReason::Stopped);
    }

    /// Passes a session's events on. A goodbye of the client ends the session.
    pub(super) fn take_events(&mut self, now: Instant, index: SessionIndex) {
        while let Some(session) = self.sessions.get_mut(index) {
            let Some(event) = session.tunnel.poll_event() else { return };
            let key = session.peer;
            match event {
                Event::Closed(reason) => return self.forget(now, index, EndReason::Closed(reason)),
                _ if session.phase == Phase::Ending => {}
                Event::SpeedWish => self.judge_speed_wish(now, index),
                event => self.tell(key, event),
            }
        }
    }
}
