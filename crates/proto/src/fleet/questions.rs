//! Asking proxies whether they are there, and how far away, with the question that a stranger may ask (PROTOCOL §6.4).
//!
//! In a round each proxy gets one question, the same bytes over every link; the first answer is its round trip. Questions
//! of one round and of the round before are open.

use std::collections::{BTreeMap, VecDeque};

use rand::RngCore;
use rand::rngs::StdRng;
use ropewalk_settings::PublicKey;

use crate::crypto::handshake::inquiry::{Inquiry, MIN_LEN};
use crate::ecn::Ecn;
use crate::path::Path;
use crate::sink::TransmitSink;
use crate::time::{Duration, Instant};
use crate::units::SessionIndex;
use crate::wire::hello::HelloKind;

/// Most proxies asked in one round: a long list is asked in turns, the ones that answered longest ago first.
pub(super) const MAX_ASKED: usize = 16;

/// What is known of a proxy's distance.
#[derive(Clone, Debug, Default)]
struct Distance {
    /// As the newest answer says: an older one would hide that the distance grew.
    trip: Option<Duration>,
    answered: Option<Instant>,
    asked: Option<Instant>,
}

/// A question that waits for its answer.
#[derive(Debug)]
struct Question {
    proxy: PublicKey,
    inquiry: Inquiry,
    asked: Instant,
    answered: bool,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Questions {
    newest: Vec<Question>,
    before: Vec<Question>,
    /// What of the newest round is still to be sent.
    unsent: VecDeque<(usize, Path)>,
    distances: BTreeMap<PublicKey, Distance>,
}

impl Questions {
    /// Asks these proxies over these paths.
    pub(super) fn ask(
        &mut self,
        now: Instant,
        rng: &mut StdRng,
        mut targets: Vec<(PublicKey, Vec<Path>)>,
    ) {
        targets.retain(|(_, paths)| !paths.is_empty());
        targets.sort_by_key(|(key, _)| self.distances.get(key).and_then(|known| known.asked));
        targets.truncate(MAX_ASKED);
        self.before = std::mem::take(&mut self.newest);
        self.unsent.clear();
        for (place, (proxy, paths)) in targets.into_iter().enumerate() {
            let index = SessionIndex::new(rng.next_u32());
            let inquiry = Inquiry::new(&proxy, index, MIN_LEN);
            self.newest.push(Question { proxy, inquiry, asked: now, answered: false });
            self.unsent.extend(paths.into_iter().map(|path| (place, path)));
            self.distances.entry(proxy).or_default().asked = Some(now);
        }
    }

    /// Sends what is to be sent. `false`: the batch is full.
    pub(super) fn poll_transmit(&mut self, out: &mut impl TransmitSink) -> bool {
        while let Some((place, path)) = self.unsent.front().copied() {
            if let Some(question) = self.newest.get(place) {
                let datagram = question.inquiry.datagram();
                let Some(room) = out.reserve(path, Ecn::NotEct, datagram.len()) else {
                    return false;
                };
                room.copy_from_slice(datagram);
                out.commit(datagram.len());
            }
            self.unsent.pop_front();
        }
        true
    }

    /// Whether a datagram answered an open question.
    pub(super) fn take(&mut self, now: Instant, datagram: &[u8]) -> bool {
        let Some(HelloKind::Versions) =
            datagram.first().copied().and_then(HelloKind::from_first_byte)
        else {
            return false;
        };
        let mut open = self.newest.iter_mut().chain(&mut self.before);
        let Some(question) = open.find(|question| question.inquiry.is_answer(datagram)) else {
            return false;
        };
        // Copies came over the other links.
        if !std::mem::replace(&mut question.answered, true) {
            let known = self.distances.entry(question.proxy).or_default();
            known.trip = Some(now.since(question.asked));
            known.answered = Some(now);
        }
        true
    }

    /// The round trip to a proxy, if it answered since then.
    pub(super) fn trip(&self, proxy: &PublicKey, since: Instant) -> Option<Duration> {
        let known = self.distances.get(proxy)?;
        known.answered.filter(|answered| *answered >= since)?;
        known.trip
    }

    /// When it last answered.
    pub(super) fn answered(&self, proxy: &PublicKey) -> Option<Instant> {
        self.distances.get(proxy)?.answered
    }

    /// Whether everyone who was asked last has answered.
    pub(super) fn all_answered(&self) -> bool {
        !self.newest.is_empty() && self.newest.iter().all(|question| question.answered)
    }

    /// Forgets all others.
    pub(super) fn retain(&mut self, is_known: impl Fn(&PublicKey) -> bool) {
        self.distances.retain(|key, _| is_known(key));
    }
}
