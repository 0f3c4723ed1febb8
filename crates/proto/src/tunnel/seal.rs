//! The one place where a datagram is made: reserve, fill, seal, commit, account.

use super::backup::Duty;
use super::link::Link;
use crate::crypto::keys::KeyRing;
use crate::ecn::Ecn;
use crate::error::{DropCounters, DropReason};
use crate::link::receiver::{LinkReceiver, ReportToken};
use crate::link::sent::Sent;
use crate::path::Path;
use crate::sink::TransmitSink;
use crate::time::Instant;
use crate::units::SessionIndex;
use crate::wire::cursor::{Truncated, Writer};
use crate::wire::frame::{Frame, emit, low24};
use crate::wire::header::{CLEAR_LEN, Clear, Kind, OVERHEAD, Sealed, TAG_LEN, TIME_UNIT_US};

/// What a datagram carries, as the sent ring remembers it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cargo {
    /// A packet, or control frames.
    Plain,
    /// A report on the link it was sent on, and perhaps more.
    Report(ReportToken),
    /// A path MTU probe of this many bytes at IP level.
    Probe(u16),
    /// A packet in a datagram of this many bytes at IP level, too large for the base path MTU.
    Large(u16),
}

impl Cargo {
    const fn tag(self) -> u64 {
        match self {
            Self::Plain => 0,
            Self::Report(token) => 1 << 32 | token.0 as u64,
            Self::Probe(size) => 2 << 32 | size as u64,
            Self::Large(size) => 3 << 32 | size as u64,
        }
    }

    /// The cargo that `tag` stands for.
    #[expect(clippy::cast_possible_truncation, reason = "the low bits are the value")]
    pub(super) const fn from_tag(tag: u64) -> Self {
        match tag >> 32 {
            1 => Self::Report(ReportToken(tag as u32)),
            2 => Self::Probe(tag as u16),
            3 => Self::Large(tag as u16),
            _ => Self::Plain,
        }
    }
}

/// A datagram to be made.
pub(super) struct Datagram {
    pub(super) path: Path,
    pub(super) kind: Kind,
    pub(super) ecn: Ecn,
    /// The sender's next global number, or the packet's own with [`Kind::Data`].
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

/// What sealing needs of the tunnel.
pub(super) struct Press<'a> {
    pub(super) keys: &'a mut KeyRing,
    pub(super) peer: SessionIndex,
    pub(super) drops: &'a mut DropCounters,
}

impl Press<'_> {
    /// Makes one datagram on `link`. `fill` writes the body and says what it carries; the receiver is
    /// the link's, for what rides along.
    pub(super) fn send(
        &mut self,
        now: Instant,
        link: &mut Link,
        datagram: &Datagram,
        out: &mut impl TransmitSink,
        fill: impl FnOnce(&mut Writer<'_>, &mut LinkReceiver) -> Result<Cargo, Truncated>,
    ) -> Made {
        let Some(phase) = self.keys.send_phase() else {
            self.drops.count(DropReason::NotSealed);
            return Made::Refused;
        };
        let number = link.sender.next_number();
        let reserved = datagram.room + OVERHEAD;
        let Some(buffer) = out.reserve(datagram.path, datagram.ecn, reserved) else {
            return Made::Full;
        };
        let Some((clear, rest)) = buffer.split_first_chunk_mut::<CLEAR_LEN>() else {
            return Made::Refused;
        };
        let mut writer = Writer::new(rest);
        let sealed = Sealed {
            send_time: low24(now.as_micros() / TIME_UNIT_US),
            global: low24(datagram.global),
            previous_on_link: datagram.previous_on_link,
            previous_of_flow: datagram.previous_of_flow,
        };
        // In front of the rest, where a peer that does not know it skips it.
        let rests = datagram.kind == Kind::Frames && link.duty == Duty::Rests;
        let filled = sealed
            .emit(&mut writer)
            .and_then(|()| if rests { emit(&mut writer, &Frame::Resting) } else { Ok(()) })
            .and_then(|()| fill(&mut writer, &mut link.receiver));
        let Ok(cargo) = filled else { return Made::Refused };
        let len = writer.len() + TAG_LEN;
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
        let header = datagram.path.header_len();
        let sent = Sent {
            size: u32::try_from(size).unwrap_or(u32::MAX),
            header: u8::try_from(header).unwrap_or(u8::MAX),
            places: datagram.places,
            eliciting: datagram.eliciting,
            window_limited: datagram.places > 0 && link.is_window_limited(datagram.places),
            paced: datagram.places > 0 && link.is_paced(now),
            tag: cargo.tag(),
        };
        let on_wire = size + usize::from(header);
        if let Some(rate) = link.pace() {
            link.pacer.on_sent(now, on_wire, rate);
        }
        link.sender.on_sent(now, sent);
        link.validation.on_sent(&datagram.path, size);
        link.last_sent = now;
        if datagram.eliciting {
            link.last_asked = now;
        }
        link.keepalive.on_traffic(now);
        link.told_global = datagram.global + u64::from(datagram.kind == Kind::Data);
        link.sent.count(size);
        link.on_wire.sent += on_wire as u64;
        Made::Sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_datagram_carried_is_remembered() {
        let cargoes = [
            Cargo::Plain,
            Cargo::Report(ReportToken(u32::MAX)),
            Cargo::Probe(1500),
            Cargo::Large(u16::MAX),
        ];
        for cargo in cargoes {
            assert_eq!(Cargo::from_tag(cargo.tag()), cargo);
        }
    }
}
