//! What waits to be said on a link.

use arrayvec::ArrayVec;
use ropewalk_settings::Bitrate;

use super::PolicyNews;
use crate::config::MAX_LINKS;
use crate::time::Instant;
use crate::wire::frame::Halt;

/// After the last of what others received the peer is told of silence so often, one less: each count halves what it has
/// heard, and one or two may be lost.
const SILENCES: u8 = 6;

/// Frames that wait for the link's next datagram.
#[derive(Clone, Debug, Default)]
pub(in crate::tunnel) struct Pending {
    pub(in crate::tunnel) join: bool,
    pub(in crate::tunnel) join_ack: bool,
    pub(in crate::tunnel) ping: bool,
    /// Tokens of challenges: a peer may ask at two addresses at a time.
    pub(in crate::tunnel) responses: ArrayVec<[u8; 8], 2>,
    pub(in crate::tunnel) echo_after: Option<(u32, u32)>,
    pub(in crate::tunnel) echo: Option<u32>,
    pub(in crate::tunnel) leaves: ArrayVec<Halt, MAX_LINKS>,
    pub(in crate::tunnel) downs: ArrayVec<Halt, MAX_LINKS>,
    pub(in crate::tunnel) mtu_hint: Option<u16>,
    /// What others receive on the link, in units of 1,000 bit/s: goes with what goes anyway.
    pub(in crate::tunnel) others: Option<u32>,
    /// The client's rekey message, or the proxy's wish for one.
    pub(in crate::tunnel) rekey: bool,
    /// The proxy's answer.
    pub(in crate::tunnel) rekey_answer: bool,
}

impl Pending {
    /// Answers a challenge; of more than two the latest.
    pub(in crate::tunnel) fn respond(&mut self, token: [u8; 8]) {
        self.responses.retain(|other| *other != token);
        if self.responses.is_full() {
            self.responses.remove(0);
        }
        self.responses.push(token);
    }

    /// Whether something is worth a datagram of its own.
    pub(in crate::tunnel) fn any(&self) -> bool {
        self.join
            || self.join_ack
            || self.ping
            || !self.responses.is_empty()
            || self.echo_after.is_some()
            || self.echo.is_some()
            || self.mtu_hint.is_some()
            || !self.leaves.is_empty()
            || !self.downs.is_empty()
            || self.rekey
            || self.rekey_answer
    }
}

/// What is to be said on a link without packets: with the next datagram, or at its time.
#[derive(Clone, Debug, Default)]
pub(in crate::tunnel) struct ControlQueue {
    /// Leaves with the next datagram.
    pub(in crate::tunnel) pending: Pending,
    /// It is more than an unproven address may get: it waits until more comes from there.
    pub(in crate::tunnel) held: bool,
    /// An echo that the peer asked for, and when it is due.
    pub(in crate::tunnel) echo_due: Option<(u32, Instant)>,
    /// What the peer is to know of the link's policy, or knows.
    pub(in crate::tunnel) policy: PolicyNews,
    /// How often the peer is yet to be told that others receive nothing on the link.
    silences: u8,
}

impl ControlQueue {
    /// What waits for the next datagram.
    pub(super) fn with(pending: Pending) -> Self {
        Self { pending, ..Self::default() }
    }

    /// The peer is told with the next datagram what others receive on the link; of silence only as often as its filter
    /// needs to forget them.
    pub(super) fn tell_others(&mut self, rate: Bitrate) {
        let kbps = u32::try_from(rate.as_bps() / 1000).unwrap_or(u32::MAX);
        self.silences = match self.pending.others {
            _ if kbps > 0 => SILENCES,
            None => self.silences.saturating_sub(1),
            Some(_) => self.silences,
        };
        self.pending.others = (self.silences > 0).then_some(kbps);
    }

    /// An echo whose time has come waits for the next datagram.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if let Some((token, _)) = self.echo_due.take_if(|(_, at)| *at <= now) {
            self.pending.echo = Some(token);
        }
    }
}
