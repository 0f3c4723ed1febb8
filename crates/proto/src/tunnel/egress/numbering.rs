//! The numbers of packets: their order over all links, the packet before each of the same flow, and which parts belong
//! together.

use super::flows::FlowTable;
use crate::packet::FlowKey;
use crate::tunnel::parts::{Half, Part};
use crate::wire::header::distance;

/// What the next packet will be numbered.
#[derive(Debug, Default)]
pub(super) struct Numbering {
    next: u64,
    flows: FlowTable,
    /// Packets sent in two parts, modulo 2^16.
    split: u16,
}

impl Numbering {
    /// The global number of the next packet.
    #[inline]
    pub(super) const fn next(&self) -> u64 {
        self.next
    }

    /// How far the packet `global` is from the one before it of its flow; 0: none or too far.
    #[inline]
    pub(super) fn previous_of_flow(&self, global: u64, flow: FlowKey) -> u8 {
        distance(global, self.flows.previous(flow))
    }

    /// The part of a packet that goes next; `begun`: its first has gone.
    pub(super) const fn part(&self, begun: bool) -> Part {
        match begun {
            false => Part { half: Half::First, id: self.split.wrapping_add(1) },
            true => Part { half: Half::Second, id: self.split },
        }
    }

    /// The next packet of this flow, or a part of it, has its number.
    #[inline]
    pub(super) fn on_sent(&mut self, flow: FlowKey, part: Option<Part>) {
        self.flows.note(flow, self.next);
        self.next += 1;
        if let Some(Part { half: Half::First, id }) = part {
            self.split = id;
        }
    }

    /// The packet so far behind the next one gets its number, as those before it did: how far behind the packet
    /// before it of its flow it stands.
    pub(super) fn number(&mut self, place: usize, flow: FlowKey) -> u8 {
        let global = self.next + place as u64;
        let distance = self.previous_of_flow(global, flow);
        self.flows.note(flow, global);
        distance
    }

    /// So many packets have their numbers.
    pub(super) const fn advance(&mut self, packets: usize) {
        self.next += packets as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_knows_how_far_the_one_before_it_of_its_flow_is() {
        let mut numbering = Numbering::default();
        let (call, download) = (FlowKey(1), FlowKey(2));
        for (flow, distance) in [(call, 0), (download, 0), (download, 1), (call, 3)] {
            assert_eq!(numbering.previous_of_flow(numbering.next(), flow), distance);
            numbering.on_sent(flow, None);
        }
        // The same, for packets that leave together.
        assert_eq!([numbering.number(0, call), numbering.number(1, call)], [1, 1]);
        numbering.advance(2);
        assert_eq!((numbering.next(), numbering.number(0, download)), (6, 4));
    }

    #[test]
    fn both_parts_of_a_packet_have_the_same_id_and_the_next_packet_another() {
        let mut numbering = Numbering::default();
        let mut ids = Vec::new();
        for begun in [false, true, false, true] {
            let part = numbering.part(begun);
            numbering.on_sent(FlowKey(1), Some(part));
            ids.push(part.id);
        }
        assert_eq!(ids, [1, 1, 2, 2]);
    }
}
