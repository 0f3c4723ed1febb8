//! The last step of a packet: parts are joined, and only what the peer may send passes to the TUN.

use super::filter::{InnerFilter, Refusal};
use crate::error::{DropCounters, DropReason};
use crate::packet::checksum::Checksum;
use crate::packet::transport::Transport;
use crate::packet::{Packet, PacketView};
use crate::sink::PacketSink;
use crate::time::Instant;
use crate::tunnel::link::Traffic;
use crate::tunnel::local_ack::LocalAcks;
use crate::tunnel::parts::{Came, Joiner};

/// What passes, and how much did.
#[derive(Debug)]
pub(super) struct Delivery {
    filter: InnerFilter,
    joiner: Joiner,
    /// Packets that came in two parts.
    joined: u64,
    /// Packets handed to the TUN.
    delivered: Traffic,
}

impl Delivery {
    pub(super) fn new(filter: InnerFilter) -> Self {
        Self { filter, joiner: Joiner::default(), joined: 0, delivered: Traffic::default() }
    }

    /// Packets come in the order of their flows.
    pub(super) fn let_flows_alternate(&mut self) {
        self.joiner.let_alternate();
    }

    pub(super) const fn delivered(&self) -> Traffic {
        self.delivered
    }

    pub(super) const fn joined(&self) -> u64 {
        self.joined
    }

    /// Passes a packet on that came out of the order; a part waits for its other.
    ///
    /// # Errors
    /// It is dropped, for this reason.
    fn pass(
        &mut self,
        now: Instant,
        packet: Packet<'_>,
        local_acks: &mut LocalAcks,
        sink: &mut impl PacketSink,
    ) -> Result<(), DropReason> {
        let came = match packet.checksum {
            Checksum::Whole => self.joiner.take(packet.bytes),
            // A part has no mark.
            Checksum::Partial => Came::Packet,
        };
        let packet = match came {
            Came::Packet => packet,
            Came::Joined(bytes) => {
                self.joined += 1;
                Packet::whole(bytes)
            }
            Came::Kept { alone: false } => return Ok(()),
            Came::Kept { alone: true } => return Err(DropReason::PartAlone),
            Came::Malformed => return Err(DropReason::PacketMalformed),
        };
        let view = PacketView::parse(packet.bytes).ok();
        if packet.checksum == Checksum::Partial && view.as_ref().and_then(Transport::of).is_none() {
            return Err(DropReason::PartialChecksum);
        }
        let view = view.ok_or(DropReason::PacketMalformed)?;
        self.filter.check(view.source(), view.destination()).map_err(|refusal| match refusal {
            Refusal::Source => DropReason::ForeignSource,
            Refusal::Destination => DropReason::RefusedDestination,
        })?;
        self.delivered.count(packet.bytes.len());
        if let Some(packet) = local_acks.on_far(now, packet) {
            sink.deliver(packet);
        }
        Ok(())
    }
}

/// Stands between the order and the TUN.
pub(super) struct DeliverySink<'a, S> {
    pub(super) now: Instant,
    pub(super) delivery: &'a mut Delivery,
    pub(super) local_acks: &'a mut LocalAcks,
    pub(super) drops: &'a mut DropCounters,
    pub(super) sink: &'a mut S,
}

impl<S: PacketSink> PacketSink for DeliverySink<'_, S> {
    fn deliver(&mut self, packet: Packet<'_>) {
        // One that was refused stands in the order with its number alone.
        if packet.bytes.is_empty() {
            return;
        }
        let Self { now, delivery, local_acks, .. } = self;
        if let Err(reason) = delivery.pass(*now, packet, local_acks, self.sink) {
            self.drops.count(reason);
        }
    }
}
