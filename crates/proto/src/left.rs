//! What sessions that are over had acknowledged to senders of TCP: it waits for the next session of the same client.
//!
//! A client that changes its session in the midst of a download would otherwise miss what the sender believes delivered.

use std::collections::BTreeMap;

use ropewalk_settings::PublicKey;

use crate::sink::PacketSink;
use crate::time::{Duration, Instant};
use crate::tunnel::LocalAcks;

/// For so long a client may come back: a machine that starts again.
const PATIENCE: Duration = Duration::from_secs(120);

/// Bytes that wait for all clients together.
const MOST_BYTES: usize = 64 << 20;

/// What waits for its client.
#[derive(Debug, Default)]
pub(super) struct Left {
    waiting: BTreeMap<PublicKey, (Instant, LocalAcks)>,
    /// The senders of these are told that their connections are over.
    given_up: Vec<LocalAcks>,
    /// The latest moment known.
    now: Instant,
}

impl Left {
    /// A session is over.
    pub(super) fn leave(&mut self, client: PublicKey, local_acks: LocalAcks) {
        if local_acks.is_empty() {
            return;
        }
        let before = self.waiting.insert(client, (self.now + PATIENCE, local_acks));
        self.give_up(before.map(|(_, local_acks)| local_acks));
        let kept = |waiting: &BTreeMap<_, (Instant, LocalAcks)>| -> usize {
            waiting.values().map(|(_, local_acks)| local_acks.kept_bytes()).sum()
        };
        while kept(&self.waiting) > MOST_BYTES {
            let oldest = self.waiting.iter().min_by_key(|(_, (until, _))| *until);
            let Some(client) = oldest.map(|(client, _)| *client) else { return };
            let oldest = self.take(&client);
            self.give_up(oldest);
        }
    }

    /// The client is back.
    pub(super) fn take(&mut self, client: &PublicKey) -> Option<LocalAcks> {
        self.waiting.remove(client).map(|(_, local_acks)| local_acks)
    }

    fn give_up(&mut self, local_acks: Option<LocalAcks>) {
        self.given_up.extend(local_acks.filter(|local_acks| local_acks.kept_bytes() > 0));
    }

    /// When something has waited too long.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let at_once = (!self.given_up.is_empty()).then_some(self.now);
        at_once.or_else(|| self.waiting.values().map(|(until, _)| *until).min())
    }

    /// Gives up what has waited too long; the senders are told by `sink`.
    pub(super) fn handle_timeout(&mut self, now: Instant, sink: &mut impl PacketSink) {
        self.now = self.now.max(now);
        while let Some(client) =
            self.waiting.iter().find(|(_, (until, _))| *until <= now).map(|(client, _)| *client)
        {
            let late = self.take(&client);
            self.give_up(late);
        }
        self.given_up.drain(..).for_each(|mut local_acks| local_acks.abandon(sink));
    }
}
