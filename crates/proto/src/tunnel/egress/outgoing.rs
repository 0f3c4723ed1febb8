//! A packet that leaves in a datagram of its own, or a part of one.

use ropewalk_settings::Order;

use super::bundle::{Load, is_small, ride_on};
use crate::ecn::Ecn;
use crate::link::carried::{Carried, Packets, SizeEvidence};
use crate::link::mtu;
use crate::packet::Packet;
use crate::path::Path;
use crate::sink::TransmitSink;
use crate::time::Instant;
use crate::tunnel::link::Link;
use crate::tunnel::partial;
use crate::tunnel::parts::Part;
use crate::tunnel::session::{Datagram, Made, Session};
use crate::wire::frame::PACKET_FRAME_HEADER;
use crate::wire::header::{Kind, OVERHEAD, distance, distance_in_flow};

/// A packet that leaves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outgoing<'a> {
    pub(super) packet: Packet<'a>,
    pub(super) global: u64,
    /// The global number of the packet before it of its flow, if that is known.
    pub(super) previous_of_flow: Option<u64>,
    /// That of its datagram.
    pub(super) mark: Ecn,
}

impl Outgoing<'_> {
    /// What stands in the header of the packet, or in its frame, behind its number: how far the packets before it are, that
    /// on its link and that of its flow, or the latter alone in two bytes.
    pub(super) fn distances(&self, order: Order, previous_on_link: Option<u64>) -> [u8; 2] {
        let Self { global, previous_of_flow, .. } = *self;
        match order {
            Order::Global => {
                [distance(global, previous_on_link), distance(global, previous_of_flow)]
            }
            Order::Flow => distance_in_flow(global, previous_of_flow).to_be_bytes(),
        }
    }
}

impl Session {
    /// One packet, or a part of it. On a small one a report may ride along.
    pub(super) fn packet(
        &mut self,
        now: Instant,
        link: &mut Link,
        outgoing: &Outgoing<'_>,
        part: Option<Part>,
        out: &mut impl TransmitSink,
    ) -> Made {
        let Outgoing { packet: Packet { bytes, .. }, global, mark, .. } = *outgoing;
        if is_small(bytes.len()) && part.is_none() {
            let framed = PACKET_FRAME_HEADER + bytes.len();
            if let Some(report) = ride_on(now, link, framed) {
                let packets = std::iter::once(*outgoing);
                let one = Packets::one(global);
                let load = Load { framed, places: 1, ride: Some(&report), packets: one };
                return self.framed(now, link, &load, packets, out);
            }
        }
        let len = part.map_or(bytes.len(), |part| part.len(bytes.len()));
        let [previous_on_link, previous_of_flow] =
            outgoing.distances(self.order, link.numbering.previous);
        let datagram = Datagram {
            path: link.path(),
            kind: match self.order {
                Order::Global => Kind::Data,
                Order::Flow => Kind::FlowData,
            },
            ecn: mark,
            global,
            previous_on_link,
            previous_of_flow,
            room: len,
            places: 1,
            eliciting: true,
        };
        let size = evidence_of(&datagram.path, len);
        let carried = Carried { packets: Packets::one(global), report: None, size };
        let made = self.send(now, link, &datagram, out, |writer, _| {
            match part {
                Some(part) => part.emit(writer, bytes),
                None => partial::emit(writer, outgoing.packet),
            }?;
            Ok(carried)
        });
        if made == Made::Sent {
            link.numbering.previous = Some(global);
        }
        made
    }
}

/// Notes the datagrams that only fit because the path MTU is above its base.
pub(in crate::tunnel) fn evidence_of(path: &Path, packet_len: usize) -> SizeEvidence {
    let size = packet_len + OVERHEAD + usize::from(path.header_len());
    let size = u16::try_from(size).unwrap_or(u16::MAX);
    if size > mtu::BASE { SizeEvidence::Large(size) } else { SizeEvidence::None }
}
