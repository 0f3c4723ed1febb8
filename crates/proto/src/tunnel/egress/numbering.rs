//! The numbers of packets: their order over all links, the packet before each of the same flow, and which parts belong
//! together.

use ropewalk_settings::Order;

use super::flows::FlowTable;
use crate::packet::FlowKey;
use crate::queue::{Label, Numbers};
use crate::tunnel::parts::{Half, Part};

/// What the next packet will be numbered.
#[derive(Debug)]
pub(super) struct Numbering {
    next: u64,
    flows: FlowTable,
    /// Packets sent in two parts, modulo 2^16.
    split: u16,
}

impl Numbering {
    /// The first packet has the number 0.
    pub(super) fn new(order: Order) -> Self {
        Self { next: 0, flows: FlowTable::new(order), split: 0 }
    }

    /// The peer restores this order from now on: what went before is no packet's predecessor.
    pub(super) fn set_order(&mut self, order: Order) {
        self.flows = FlowTable::new(order);
    }

    /// The global number of the next packet.
    #[inline]
    pub(super) const fn next(&self) -> u64 {
        self.next
    }

    /// The number of the last packet of its flow, if it is known and this packet is to wait for it.
    #[inline]
    fn awaited_by(&self, label: &Label) -> Option<u64> {
        if label.is_alone { None } else { self.flows.previous(label.meta.flow) }
    }

    /// The packet `global` of this flow was given up.
    pub(super) fn forget(&mut self, flow: FlowKey, global: u64) {
        self.flows.forget(flow, global);
    }

    /// Gives back memory that only matters while packets go.
    pub(super) fn release_memory(&mut self) {
        self.flows.release_memory();
    }

    /// Whether there is such memory.
    pub(super) fn has_spare(&self) -> bool {
        self.flows.has_spare()
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

    /// The numbers of the next packet of this flow, which has them from now on.
    pub(super) fn take(&mut self, flow: FlowKey) -> Numbers {
        let numbers = Numbers { global: self.next, previous_of_flow: self.flows.previous(flow) };
        self.on_sent(flow, None);
        numbers
    }

    /// The numbers that the next packet would have, if it is this one.
    #[inline]
    pub(super) fn upcoming(&self, label: &Label) -> Numbers {
        Numbers { global: self.next, previous_of_flow: self.awaited_by(label) }
    }

    /// This packet, so far behind the next one, gets its number, as those before it did. Returns that of
    /// the packet before it of its flow.
    pub(super) fn number(&mut self, place: usize, label: &Label) -> Option<u64> {
        let previous = self.awaited_by(label);
        self.flows.note(label.meta.flow, self.next + place as u64);
        previous
    }

    /// So many packets have their numbers.
    pub(super) const fn advance(&mut self, packets: usize) {
        self.next += packets as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::checksum::Checksum;
    use crate::packet::tests::{UDP_V4, v4};
    use crate::packet::{PacketView, protocol};
    use crate::queue::label;

    #[test]
    fn a_packet_knows_the_one_before_it_of_its_flow_unless_it_comes_alone() {
        let mut numbering = Numbering::new(Order::Flow);
        let (call, download) = (label(FlowKey(1)), label(FlowKey(2)));
        let packets = [(call, None), (download, None), (download, Some(1)), (call, Some(0))];
        for (global, (label, before)) in (0..).zip(packets) {
            let numbers = Numbers { global, previous_of_flow: before };
            assert_eq!(numbering.upcoming(&label), numbers);
            numbering.on_sent(label.meta.flow, None);
        }
        // The same, for packets that leave together.
        let alone = Label { is_alone: true, ..call };
        let mut place = 0;
        let previous = [call, alone, call].map(|label| {
            place += 1;
            numbering.number(place - 1, &label)
        });
        assert_eq!(previous, [Some(3), None, Some(5)]);
        numbering.advance(3);
        assert_eq!((numbering.next(), numbering.number(0, &download)), (7, Some(2)));
    }

    /// What is read of a packet of this protocol between two addresses, with these two bytes where UDP has its source port and these
    /// where IPv4 says of which part it is.
    fn read(protocol: u8, port: [u8; 2], part: [u8; 2]) -> Label {
        let mut packet = v4(UDP_V4, 100);
        packet[9] = protocol;
        packet[20..22].copy_from_slice(&port);
        packet[6..8].copy_from_slice(&part);
        Label::of(&PacketView::parse(&packet).expect("a packet"), Checksum::Whole)
    }

    #[test]
    fn fragments_follow_those_of_their_addresses_and_icmp_follows_icmp() {
        const WHOLE: [u8; 2] = [0, 0];
        const FIRST: [u8; 2] = [0x20, 0];
        const LATER: [u8; 2] = [0, 9];
        use protocol::{ICMP, TCP, UDP};
        // Protocol, its first two bytes, the part; the packet before it of its flow.
        let table = [
            (UDP, [1, 1], WHOLE, None),
            (UDP, [1, 1], FIRST, None),
            (ICMP, [8, 0], WHOLE, None),
            (UDP, [1, 1], LATER, Some(1)),
            (UDP, [1, 1], WHOLE, Some(0)),
            (UDP, [2, 2], WHOLE, None),
            // Of another connection, and of another protocol.
            (TCP, [2, 2], FIRST, Some(3)),
            // An error beside echo requests.
            (ICMP, [3, 4], WHOLE, Some(2)),
            (ICMP, [8, 0], FIRST, Some(6)),
            (ICMP, [8, 0], WHOLE, Some(7)),
            (TCP, [1, 1], WHOLE, None),
            (UDP, [1, 1], WHOLE, Some(4)),
        ];
        let mut numbering = Numbering::new(Order::Flow);
        for (global, (protocol, port, part, before)) in (0..).zip(table) {
            let label = read(protocol, port, part);
            let numbers = Numbers { global, previous_of_flow: before };
            assert_eq!(numbering.upcoming(&label), numbers);
            numbering.on_sent(label.meta.flow, None);
        }
    }

    #[test]
    fn both_parts_of_a_packet_have_the_same_id_and_the_next_packet_another() {
        let mut numbering = Numbering::new(Order::Global);
        let mut ids = Vec::new();
        for begun in [false, true, false, true] {
            let part = numbering.part(begun);
            numbering.on_sent(FlowKey(1), Some(part));
            ids.push(part.id);
        }
        assert_eq!(ids, [1, 1, 2, 2]);
    }
}
