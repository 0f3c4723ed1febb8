//! One packet leaves by itself: the head of a queue, a part of it, or one behind the head that overtakes it. It gets its
//! number, and once it is in the batch it leaves the queue and is kept until it is confirmed.

use super::bundle::mark_of;
use super::outgoing::Outgoing;
use super::repair::Attempt;
use super::{Egress, Outlet};
use crate::packet::buffer::PacketBuffer;
use crate::packet::{Packet, PacketView};
use crate::queue::{Numbers, Waiting};
use crate::sink::TransmitSink;
use crate::time::Instant;
use crate::tunnel::parts::{self, Half, Part};
use crate::tunnel::session::Made;

/// Where the next packet is taken from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Source {
    /// The tunnel's queue.
    Queue,
    /// The queue of packets that wait for the link.
    LinkQueue,
}

impl Egress {
    /// The next part of the head of the queue, if it may go in parts.
    pub(super) fn next_part(&self) -> Option<Part> {
        // The receiver expects one packet of a number that was given.
        let head = self.queue.head().filter(|head| head.numbers().is_none())?;
        let packet = PacketView::parse(head.packet()).ok()?;
        let begun = self.queue.is_head_begun();
        let may_split = parts::may_split(&packet, head.label().is_acknowledged);
        may_split.then(|| self.numbering.part(begun))
    }

    /// Step 5 for the head of a queue, or a part of it, on link `at`.
    pub(super) fn send_head<T: TransmitSink>(
        &mut self,
        now: Instant,
        at: usize,
        source: Source,
        part: Option<Part>,
        to: &mut Outlet<'_, T>,
    ) -> Made {
        let Some(link) = to.links.get_mut(at) else { return Made::Refused };
        if part.is_some() {
            self.queue.complete_head();
        }
        let head = match source {
            Source::Queue => self.queue.head(),
            Source::LinkQueue => self.waiting.of(link.id).and_then(|own| own.head()),
        };
        let Some(head) = head else { return Made::Refused };
        let label = head.label();
        let flow = label.meta.flow;
        let given = head.numbers();
        let Numbers { global, previous_of_flow } =
            given.unwrap_or_else(|| self.numbering.upcoming(label));
        let outgoing = Outgoing {
            packet: Packet { bytes: head.packet(), checksum: label.checksum },
            global,
            previous_of_flow,
            // The mark of one half could not be given to the whole.
            mark: mark_of(label, self.policy.ecn && part.is_none()),
        };
        let sent = Attempt {
            checksum: label.checksum,
            mark: outgoing.mark,
            flow,
            previous_of_flow: outgoing.previous_of_flow,
            is_sparse: source == Source::Queue && self.queue.is_next_sparse(),
            is_acknowledged: label.is_acknowledged,
            // A part is of no use alone.
            is_redundant: label.is_redundant && part.is_none(),
            came: head.real_time_since(),
            link: link.id,
            number: link.sender.next_number(),
            moved_from: None,
        };
        let made = to.session.packet(now, link, &outgoing, part, to.out);
        if made == Made::Sent {
            if given.is_none() {
                self.numbering.on_sent(flow, part);
            }
            let kept = part.map(|part| PacketBuffer::from(part.body(outgoing.packet.bytes)));
            let whole = match (part, source) {
                (Some(Part { half: Half::First, .. }), _) => {
                    self.queue.begin_head();
                    None
                }
                (_, Source::Queue) => self.queue.pop_packet(),
                (_, Source::LinkQueue) => self.waiting.take_head_of(sent.link),
            };
            let whole = whole.map(Waiting::into_packet);
            if let Some(packet) = kept.or(whole) {
                self.keep(now, packet, global, sent);
            }
        }
        made
    }

    /// Step 5 for the packet at this place behind the head of the queue, which it overtakes on link `at`.
    pub(super) fn send_behind<T: TransmitSink>(
        &mut self,
        now: Instant,
        at: usize,
        place: usize,
        to: &mut Outlet<'_, T>,
    ) -> Made {
        let Some(link) = to.links.get_mut(at) else { return Made::Refused };
        let fits = |waiting: &Waiting| waiting.packet().len() <= usize::from(link.inner_mtu());
        if !self.queue.at(place).is_some_and(fits) {
            return Made::Refused;
        }
        let numbering = &mut self.numbering;
        self.queue.number(place, |flow| numbering.take(flow));
        let Some(waiting) = self.queue.at(place) else { return Made::Refused };
        let Some(Numbers { global, previous_of_flow }) = waiting.numbers() else {
            return Made::Refused;
        };
        let label = waiting.label();
        let outgoing = Outgoing {
            packet: Packet { bytes: waiting.packet(), checksum: label.checksum },
            global,
            previous_of_flow,
            mark: mark_of(label, self.policy.ecn),
        };
        let sent = Attempt {
            checksum: label.checksum,
            mark: outgoing.mark,
            flow: label.meta.flow,
            previous_of_flow,
            is_sparse: false,
            is_acknowledged: label.is_acknowledged,
            is_redundant: label.is_redundant,
            came: waiting.real_time_since(),
            link: link.id,
            number: link.sender.next_number(),
            moved_from: None,
        };
        let made = to.session.packet(now, link, &outgoing, None, to.out);
        if made == Made::Sent
            && let Some(packet) = self.queue.take(place).map(Waiting::into_packet)
        {
            self.keep(now, packet, global, sent);
        }
        made
    }
}
