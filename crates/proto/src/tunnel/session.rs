//! What both ends share, and the one place where a datagram is made: reserve, fill, seal, commit, account.

use ropewalk_settings::Order;

use super::link::{Duty, Link};
use crate::crypto::keys::KeyRing;
use crate::ecn::Ecn;
use crate::error::{DropCounters, DropReason};
use crate::link::carried::Carried;
use crate::link::receiver::LinkReceiver;
use crate::link::sent::Sent;
use crate::path::Path;
use crate::sink::TransmitSink;
use crate::time::Instant;
use crate::units::SessionIndex;
use crate::wire::cursor::{Truncated, Writer};
use crate::wire::frame::{Frame, emit, low24};
use crate::wire::header::{CLEAR_LEN, Clear, Kind, OVERHEAD, Sealed, TAG_LEN, TIME_UNIT_US};

/// A datagram to be made.
pub(super) struct Datagram {
    pub(super) path: Path,
    pub(super) kind: Kind,
    pub(super) ecn: Ecn,
    /// The sender's next global number, or the packet's own where it is alone ([`Kind::is_packet`]).
    pub(super) global: u64,
    pub(super) previous_on_link: u8,
    pub(super) previous_of_flow: u8,
    /// Most bytes of the body.
    pub(super) room: usize,
    /// Places that it takes in the congestion window: one for each packet.
    pub(super) places: u8,
    /// Whether the peer reports it.
    pub(super) eliciting: bool,
}

/// What became of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Made {
    /// It is in the batch.
    Sent,
    /// The batch is full: nothing happened.
    Full,
    /// It cannot be sealed or written now: nothing happened.
    Refused,
}

/// What both ends share, and what was dropped of what passes.
pub(super) struct Session {
    pub(super) keys: KeyRing,
    /// The index by which the peer finds the session.
    pub(super) peer: SessionIndex,
    /// Which order the peer restores of what is sent.
    pub(super) order: Order,
    pub(super) drops: DropCounters,
}

impl Session {
    /// Makes one datagram on `link`. `fill` writes the body and says what it carries; the receiver is
    /// the link's, for what rides along.
    pub(super) fn send(
        &mut self,
        now: Instant,
        link: &mut Link,
        datagram: &Datagram,
        out: &mut impl TransmitSink,
        fill: impl FnOnce(&mut Writer<'_>, &mut LinkReceiver) -> Result<Carried, Truncated>,
    ) -> Made {
        let Some(phase) = self.keys.send_phase() else {
            self.drops.count(DropReason::NotSealed);
            return Made::Refused;
        };
        let reserved = datagram.room + OVERHEAD;
        let Some(buffer) = out.reserve(datagram.path, datagram.ecn, reserved) else {
            return Made::Full;
        };
        let Some((clear, rest)) = buffer.split_first_chunk_mut::<CLEAR_LEN>() else {
            return Made::Refused;
        };
        let mut writer = Writer::new(rest);
        let rests = link.agreed.duty() == Duty::Rests;
        let filled = datagram
            .emit_head(now, rests, &mut writer)
            .and_then(|()| fill(&mut writer, &mut link.receiver));
        let Ok(carried) = filled else { return Made::Refused };
        let len = writer.len() + TAG_LEN;
        let number = link.sender.next_number();
        *clear = Clear {
            kind: datagram.kind,
            phase,
            link: link.id,
            receiver: self.peer,
            number: low24(number),
        }
        .to_bytes();
        let Some(sealable) = rest.get_mut(..len) else { return Made::Refused };
        if self.keys.seal(link.id, number, clear, sealable).is_err() {
            self.drops.count(DropReason::NotSealed);
            return Made::Refused;
        }
        let size = CLEAR_LEN + len;
        out.commit(size);
        link.on_sent(now, datagram, size, carried);
        Made::Sent
    }
}

impl Datagram {
    /// Writes what stands before the body. A link that `rests` says so in front of the other frames, where a peer that does
    /// not know it skips it.
    #[inline]
    fn emit_head(
        &self,
        now: Instant,
        rests: bool,
        writer: &mut Writer<'_>,
    ) -> Result<(), Truncated> {
        let sealed = Sealed {
            send_time: low24(now.as_micros() / TIME_UNIT_US),
            global: low24(self.global),
            previous_on_link: self.previous_on_link,
            previous_of_flow: self.previous_of_flow,
        };
        sealed.emit(writer)?;
        match self.kind {
            Kind::Frames if rests => emit(writer, &Frame::Resting),
            Kind::Frames | Kind::Data | Kind::FlowFrames | Kind::FlowData => Ok(()),
        }
    }
}

impl Link {
    /// A datagram of `size` bytes of UDP payload left.
    #[inline]
    fn on_sent(&mut self, now: Instant, datagram: &Datagram, size: usize, carried: Carried) {
        let Datagram { ref path, places, eliciting, .. } = *datagram;
        let (header, in_window) = (path.header_len(), places > 0);
        let sent = Sent {
            size: u32::try_from(size).unwrap_or(u32::MAX),
            header: u8::try_from(header).unwrap_or(u8::MAX),
            places,
            eliciting,
            window_limited: in_window && self.is_window_limited(now, places),
            window_full: in_window && self.is_full(now),
            paced: in_window && self.is_paced(now),
            carried,
        };
        let (on_wire, pace) = (size + usize::from(header), self.pace());
        self.opening.on_sent(now, on_wire, pace, in_window);
        self.sender.on_sent(now, sent);
        self.paths.validation.on_sent(path, size);
        self.activity.on_sent(now, eliciting);
        self.keepalive.on_traffic(now);
        self.numbering.told = datagram.global + u64::from(datagram.kind.is_packet());
        self.counters.on_sent(size, on_wire);
    }
}
