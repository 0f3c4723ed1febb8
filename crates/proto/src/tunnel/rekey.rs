//! Fresh keys under way (PROTOCOL §6.5): when a rekey starts, over which link it is tried, and who asks.
//!
//! The client starts one when its keys are older than the configured time and were used, when either end has
//! sealed so much that the AEAD's limit comes near, or when link ids run out. It repeats its message over
//! one link after the other until the answer comes. No packet waits for it.

use std::sync::Arc;

use rand::rngs::StdRng;

use super::link::Link;
use super::{Side, Tunnel};
use crate::crypto::keys::EpochKeys;
use crate::crypto::limit::TokenBucket;
use crate::crypto::rekey::{Identity, RekeyContext, RekeyInitiator, RekeyResponder};
use crate::crypto::secret::StaticSecret;
use crate::error::DropReason;
use crate::event::Event;
use crate::time::{Duration, Instant, earliest};
use crate::wire::frame::Frame;
use ropewalk_settings::{PresharedKey, PublicKey};

/// Time between tries: longer than the round trip of any ordinary link, so that one try is usually
/// enough.
const RETRY: Duration = Duration::from_millis(500);

/// Handshakes a second that the proxy answers in one session, and at once: keys are replaced once a second
/// at most, and each costs about as much as that of a stranger.
const ANSWERS: (u32, u32) = (1, 4);

/// What rekeys are made with.
#[derive(Clone)]
pub struct Credentials {
    /// This end's identity.
    pub local: Arc<StaticSecret>,
    /// The peer's.
    pub remote: PublicKey,
    /// What both share beside.
    pub psk: PresharedKey,
    /// What the next rekey is bound to.
    pub context: RekeyContext,
}

impl Credentials {
    fn identity(&self) -> Identity<'_> {
        Identity { local: &self.local, remote: &self.remote, psk: &self.psk }
    }
}

/// The state of rekeys.
pub(super) struct Rekey {
    credentials: Credentials,
    /// When the present keys came.
    since: Instant,
    /// Packets sent and received by then.
    used_before: u64,
    requested: bool,
    running: Option<RekeyInitiator>,
    responder: RekeyResponder,
    /// Handshakes that may be answered now.
    answers: TokenBucket,
    /// The proxy's last answer.
    pub(super) answer: Vec<u8>,
    next_try: Option<Instant>,
    tries: usize,
}

impl Rekey {
    pub(super) fn new(now: Instant, credentials: Credentials) -> Self {
        Self {
            responder: RekeyResponder::new(credentials.context),
            credentials,
            since: now,
            used_before: 0,
            requested: false,
            running: None,
            answers: TokenBucket::new(now, ANSWERS.0, ANSWERS.1),
            answer: Vec::new(),
            next_try: None,
            tries: 0,
        }
    }

    /// Wants new keys as soon as possible.
    pub(super) fn request(&mut self) {
        self.requested = true;
    }

    /// What this end says of a rekey: the client its message, while one is under way; the proxy asks for one.
    pub(super) fn frame(&self, side: Side) -> Frame<'_> {
        let message = self.running.as_ref().map(RekeyInitiator::message);
        match side {
            Side::Client => message.map_or(Frame::Padding, Frame::RekeyFirst),
            Side::Proxy => Frame::RekeyRequest,
        }
    }

    fn start(&mut self, now: Instant, rng: &mut StdRng) {
        let identity = self.credentials.identity();
        self.running = Some(RekeyInitiator::start(&identity, &self.credentials.context, rng));
        (self.next_try, self.tries) = (Some(now), 0);
    }

    fn finished(&mut self, now: Instant, context: RekeyContext, used: u64) {
        self.credentials.context = context;
        (self.since, self.used_before) = (now, used);
        (self.running, self.requested, self.next_try) = (None, false, None);
    }
}

impl Tunnel {
    fn used(&self) -> u64 {
        self.egress.accepted().datagrams + self.ingress.delivered().datagrams
    }

    fn rekey_due_at(&self) -> Option<Instant> {
        let used = self.used() > self.rekey.used_before;
        let by_time = used.then(|| self.rekey.since + self.config.rekey_after);
        let at_once = self.rekey.requested || self.session.keys.wants_rekey();
        earliest(by_time, at_once.then_some(self.rekey.since))
    }

    /// When [`rekey_timeout`](Self::rekey_timeout) is due.
    pub(super) fn poll_rekey(&self) -> Option<Instant> {
        match (self.side, &self.rekey.running) {
            (Side::Client, None) => self.rekey_due_at().map(|at| match self.rekey.next_try {
                Some(not_before) => at.max(not_before),
                None => at,
            }),
            (Side::Client, Some(_)) => self.rekey.next_try,
            (Side::Proxy, _) => self
                .session
                .keys
                .wants_rekey()
                .then(|| self.rekey.next_try.unwrap_or(self.rekey.since)),
        }
    }

    /// Starts, repeats, or asks for a rekey.
    pub(super) fn rekey_timeout(&mut self, now: Instant) {
        if self.poll_rekey().is_none_or(|at| at > now) {
            return;
        }
        if self.side == Side::Client && self.rekey.running.is_none() {
            if !self.session.keys.can_install(now) {
                // A key of the same phase still lives; it has seconds left at most.
                self.rekey.next_try = Some(now + RETRY);
                return;
            }
            self.rekey.start(now, &mut self.rng);
        }
        self.rekey.next_try = Some(now + RETRY);
        let up = |link: &&mut Link| link.life.is_up();
        let mut links: Vec<_> = self.links.iter_mut().filter(up).collect();
        links.sort_by_key(|link| link.sender.rtt().srtt());
        let turn = self.rekey.tries % links.len().max(1);
        self.rekey.tries += 1;
        if let Some(link) = links.get_mut(turn) {
            link.control.pending.rekey = true;
        }
    }

    /// The proxy wants fresh keys.
    pub(super) fn on_rekey_request(&mut self) {
        if self.side == Side::Client {
            self.rekey.request();
        }
    }

    /// The client's message came on link `at`.
    pub(super) fn on_rekey_first(&mut self, now: Instant, at: usize, message: &[u8]) {
        if self.side != Side::Proxy {
            return self.session.drops.count(DropReason::FrameUnexpected);
        }
        if self.rekey.responder.is_next(message) {
            if !self.session.keys.can_install(now) {
                return self.session.drops.count(DropReason::RekeyOutOfOrder);
            }
            if !self.rekey.answers.take(now) {
                return self.session.drops.count(DropReason::RekeyRateLimited);
            }
        }
        let identity = self.rekey.credentials.identity();
        let (answer, keys) = match self.rekey.responder.respond(&identity, message, &mut self.rng) {
            Ok(answer) => answer,
            Err(error) => return self.session.drops.count(error.into()),
        };
        self.rekey.answer.clear();
        self.rekey.answer.extend_from_slice(answer);
        self.links[at].control.pending.rekey_answer = true;
        if let Some(keys) = keys {
            self.install(now, &keys);
        }
    }

    /// Puts fresh keys into use. The client, which gives the ids, counts links that left as links of theirs,
    /// too: the proxy may not have known yet when it installed the keys, and would refuse the id.
    fn install(&mut self, now: Instant, keys: &EpochKeys) {
        self.session.keys.set_delay_spread(self.ingress.order().delay_spread());
        let present = self.links.iter().map(|link| link.id);
        let removed = self.links.removed_ids().filter(|_| self.side == Side::Client);
        if self.session.keys.install(now, keys, present.chain(removed)).is_ok() {
            let used = self.used();
            self.rekey.finished(now, RekeyContext::from(keys), used);
            self.outbox.tell(Event::Rekeyed(keys.epoch));
        }
    }

    /// The proxy's answer came.
    pub(super) fn on_rekey_response(&mut self, now: Instant, message: &[u8]) {
        let Some(running) = &mut self.rekey.running else {
            return self.session.drops.count(DropReason::RekeyOutOfOrder);
        };
        match running.finish(message) {
            Ok(keys) => self.install(now, &keys),
            Err(error) => self.session.drops.count(error.into()),
        }
    }
}
