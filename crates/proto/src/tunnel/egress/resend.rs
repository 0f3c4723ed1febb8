//! Sends what was lost again: before anything new, but for packets of sparse flows, as far as these go ahead of others.
//!
//! Each goes where it arrives soonest: a link that is closed for a moment is waited for, if it has the packet there sooner all
//! the same. Meanwhile another link takes one further behind, which arrives there in its turn. Small ones share a datagram, as new ones do ([`bundle`](super::bundle)), but take one place in the window: what a
//! silent link leaves behind is often a hundred acknowledgements.
//!
//! What is too old is given up in its place: that of a call depends on the link that it would take ([`real_time`](super::real_time)).

use super::bundle::{Load, MAX_PACKETS, is_small};
use super::outgoing::Outgoing;
use super::real_time::most_age;
use super::repair::{Attempt, Repair, Repairs, Unconfirmed};
use super::views::Views;
use super::{Egress, MOST_SPARE, Outlet, Step};
use crate::link::carried::Packets;
use crate::link::sent::Settled;
use crate::packet::Packet;
use crate::packet::buffer::PacketBuffer;
use crate::queue::MOST_AHEAD;
use crate::sched::{Pick, soonest};
use crate::sink::TransmitSink;
use crate::time::Instant;
use crate::units::LinkId;
use crate::wire::frame::PACKET_FRAME_HEADER;

impl Egress {
    /// The fate of a datagram on `link` is known.
    #[inline]
    pub(in crate::tunnel) fn on_settled(&mut self, now: Instant, link: LinkId, settled: &Settled) {
        if let Some(repair) = &mut self.repair {
            let spare = &mut self.spare;
            repair.settle(now, link, settled, |buffer| spare.put(buffer, MOST_SPARE));
            self.forget_given_up();
        }
    }

    /// Nothing is heard of `link` any more: what is under way there goes over the others, or its first packet once more. Returns
    /// how many packets go over others for it.
    pub(in crate::tunnel) fn reinject(&mut self, now: Instant, link: LinkId, all: bool) -> u64 {
        let Some(repair) = &mut self.repair else { return 0 };
        let spare = &mut self.spare;
        let moved = repair.reinject(now, link, all, |buffer| spare.put(buffer, MOST_SPARE));
        self.forget_given_up();
        moved
    }

    /// The next link from which packets were moved, of which one was confirmed.
    pub(in crate::tunnel) fn poll_resumed(&mut self) -> Option<LinkId> {
        self.repair.as_mut()?.poll_resumed()
    }

    /// No packet waits for one that was given up: the next of its flow does not name it.
    fn forget_given_up(&mut self) {
        let Some(repair) = &mut self.repair else { return };
        while let Some((flow, global)) = repair.poll_given_up() {
            self.numbering.forget(flow, global);
        }
    }

    /// What was sent again; `None`: nothing is.
    pub(in crate::tunnel) fn repairs(&self) -> Option<Repairs> {
        self.repair.as_ref().map(Repair::repairs)
    }

    /// A packet left, of which so much is known: it is kept until it is confirmed.
    #[inline]
    pub(super) fn keep(&mut self, now: Instant, packet: PacketBuffer, global: u64, sent: Attempt) {
        if self.has_lost() {
            self.ahead += packet.len();
        }
        if let Some(meter) = &mut self.meter {
            meter.count(sent.flow, sent.link, &packet);
        }
        let spare = &mut self.spare;
        match &mut self.repair {
            None => spare.put(packet, MOST_SPARE),
            Some(repair) => {
                self.early.on_sent(packet.len());
                if sent.is_redundant {
                    self.redundant.want(global);
                }
                let copy = Unconfirmed { packet, sent_at: now, sent, copy: None };
                repair.keep(now, global, copy, |buffer| spare.put(buffer, MOST_SPARE));
                self.forget_given_up();
            }
        }
    }

    /// Whether any packet is to be sent again.
    pub(super) fn has_lost(&self) -> bool {
        self.repair.as_ref().is_some_and(Repair::has_lost)
    }

    /// Whether what was lost has its turn before the next packet in the queue.
    pub(super) fn lost_goes_first(&self) -> bool {
        self.has_lost() && !(self.queue.is_next_sparse() && self.ahead < MOST_AHEAD)
    }

    /// The packet is too old, or fits no link any more: it will not be sent again.
    fn give_up(&mut self, global: u64) {
        let Some(repair) = &mut self.repair else { return };
        if let Some(buffer) = repair.give_up(global) {
            self.spare.put(buffer, MOST_SPARE);
        }
        self.forget_given_up();
    }

    /// Sends again what was lost first, in one datagram. [`Step::Waits`]: its link is closed for a moment.
    pub(super) fn send_lost<T: TransmitSink>(
        &mut self,
        now: Instant,
        views: &mut Views,
        to: &mut Outlet<'_, T>,
    ) -> Step {
        let Some(repair) = &mut self.repair else { return Step::Waits };
        let Some((global, lost)) = repair.next() else { return Step::Waits };
        let len = lost.packet.len();
        views.look_for(to.links, now, len);
        let fits = !views.links.is_empty() || to.links.too_big_for(now, len).is_none();
        if !fits || !lost.is_worth_sending(now) {
            self.give_up(global);
            return Step::Next;
        }
        let (index, ahead) = match soonest(&views.links) {
            Pick::Send(index) => (index, 0),
            Pick::SendBehind(index, ahead) => (index, ahead),
            Pick::Wait(_) | Pick::Blocked => return Step::Waits,
        };
        let Some(place) = repair.behind(ahead) else { return Step::Waits };
        let Some((global, lost)) = repair.lost().nth(place) else { return Step::Waits };
        let link = &mut to.links[views.places[index]];
        if lost.packet.len() > usize::from(link.inner_mtu()) || !lost.is_worth_sending(now) {
            return Step::Waits;
        }
        let (silence, most) = (self.silence, most_age(link));
        let is_outdated = |lost: &Unconfirmed| silence.outdates(now, lost.sent.came, most);
        if is_outdated(lost) {
            self.give_up(global);
            return Step::Next;
        }
        let len = lost.packet.len();
        let is_worth = |lost: &Unconfirmed| lost.is_worth_sending(now) && !is_outdated(lost);
        let run = run_of(repair, place, usize::from(link.inner_mtu()), is_worth);
        let number = link.sender.next_number();
        let made = if run.count > 1 {
            let packets = repair.lost().skip(place).take(run.count).map(outgoing);
            let last = packets.clone().last().map_or(global, |last| last.global);
            let packed = Packets::several(global, last, run.count);
            let load = Load { framed: run.framed, places: 1, ride: None, packets: packed };
            to.session.framed(now, link, &load, packets, to.out)
        } else {
            to.session.packet(now, link, &outgoing((global, lost)), None, to.out)
        };
        match Step::from(made) {
            Step::Next => {}
            other => return other,
        }
        let sent = run.count.max(1);
        if let Some(meter) = &mut self.meter {
            let again = repair.lost().skip(place).take(sent);
            again.for_each(|(_, lost)| meter.count(lost.sent.flow, link.id, &lost.packet));
        }
        repair.on_sent(place, sent, link.id, number);
        self.ahead = 0;
        views.refresh(index, to.links, now, len);
        Step::Next
    }
}

/// Small packets that are sent again in one datagram.
#[derive(Default)]
struct Run {
    count: usize,
    /// Their bytes with their frames.
    framed: usize,
}

/// Those from this place on, as far as they fit into `most` bytes and are worth it.
fn run_of(
    repair: &Repair,
    place: usize,
    most: usize,
    is_worth: impl Fn(&Unconfirmed) -> bool,
) -> Run {
    let (mut run, mut first, mut before) = (Run::default(), None, None);
    for (global, lost) in repair.lost().skip(place).take(MAX_PACKETS) {
        let framed = run.framed + PACKET_FRAME_HEADER + lost.packet.len();
        let (first, mark) = *first.get_or_insert((global, lost.sent.mark));
        let fits = is_small(lost.packet.len()) && framed <= most && lost.sent.mark == mark;
        // In a datagram numbers rise.
        let rises = before.replace(global).is_none_or(|before| before < global);
        let near = rises && global - first <= u64::from(u16::MAX);
        if !fits || !near || !is_worth(lost) {
            break;
        }
        run = Run { count: run.count + 1, framed };
    }
    run
}

pub(super) fn outgoing((global, lost): (u64, &Unconfirmed)) -> Outgoing<'_> {
    Outgoing {
        packet: Packet { bytes: &lost.packet, checksum: lost.sent.checksum },
        global,
        previous_of_flow: lost.sent.previous_of_flow,
        mark: lost.sent.mark,
    }
}
