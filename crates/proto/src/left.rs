//! What sessions that are over had acknowledged to senders of TCP: it waits for the next session with the same peer.
//!
//! A session that changes in the middle of a download would otherwise miss what the sender believes delivered.

use std::collections::{BTreeMap, VecDeque};

use ropewalk_settings::PublicKey;

use crate::sink::PacketSink;
use crate::time::{Duration, Instant};
use crate::tunnel::LocalAcks;

/// For so long a peer may stay away: a machine that starts again.
const PATIENCE: Duration = Duration::from_secs(120);

/// Bytes that wait for all peers together.
const MOST_BYTES: usize = 64 << 20;

/// What waits for its peer.
#[derive(Debug, Default)]
pub(crate) struct Left {
    waiting: BTreeMap<PublicKey, (Instant, LocalAcks)>,
    /// Until when each waits: the first one first. Those whose peer came back are passed over.
    order: VecDeque<(Instant, PublicKey)>,
    /// Bytes of all that waits.
    bytes: usize,
    /// The senders of these are told that their connections are over.
    given_up: Vec<LocalAcks>,
    /// The latest moment known.
    now: Instant,
}

impl Left {
    /// A session is over.
    pub(crate) fn leave(&mut self, now: Instant, peer: PublicKey, local_acks: LocalAcks) {
        self.now = self.now.max(now);
        if local_acks.is_empty() {
            return;
        }
        let before = self.take(&peer);
        self.give_up(before);
        let until = self.now + PATIENCE;
        self.bytes += local_acks.kept_bytes();
        self.waiting.insert(peer, (until, local_acks));
        self.order.push_back((until, peer));
        while self.bytes > MOST_BYTES
            && let Some((_, oldest)) = self.order.front().copied()
        {
            let oldest = self.take(&oldest);
            self.give_up(oldest);
        }
    }

    /// The peer is back.
    pub(crate) fn take(&mut self, peer: &PublicKey) -> Option<LocalAcks> {
        let (_, local_acks) = self.waiting.remove(peer)?;
        self.bytes -= local_acks.kept_bytes();
        while let Some((until, first)) = self.order.front()
            && self.waiting.get(first).is_none_or(|(waits_until, _)| waits_until != until)
        {
            self.order.pop_front();
        }
        Some(local_acks)
    }

    /// What waits with another waits here from now on.
    pub(crate) fn take_in(&mut self, now: Instant, other: &mut Self) {
        for (peer, (_, local_acks)) in std::mem::take(&mut other.waiting) {
            self.leave(now, peer, local_acks);
        }
        self.given_up.append(&mut other.given_up);
    }

    fn give_up(&mut self, local_acks: Option<LocalAcks>) {
        self.given_up.extend(local_acks.filter(|local_acks| local_acks.kept_bytes() > 0));
    }

    /// When something has waited too long.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let at_once = (!self.given_up.is_empty()).then_some(self.now);
        at_once.or_else(|| self.order.front().map(|(until, _)| *until))
    }

    /// Gives up what has waited too long; the senders are told by `sink`.
    pub(crate) fn handle_timeout(&mut self, now: Instant, sink: &mut impl PacketSink) {
        self.now = self.now.max(now);
        while let Some((_, peer)) = self.order.front().filter(|(until, _)| *until <= now).copied() {
            let late = self.take(&peer);
            self.give_up(late);
        }
        self.given_up.drain(..).for_each(|mut local_acks| local_acks.abandon(sink));
    }
}
