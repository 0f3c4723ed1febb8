//! What time brings.
//!
//! | when | what |
//! | --- | --- |
//! | a packet has waited too long | it is dropped |
//! | a sender of TCP waits for an acknowledgement | it has it ([`local_ack`](super::local_ack)) |
//! | a hole in the order has lasted too long | packets behind it are released |
//! | a link's window saw no confirmation | it closes (RFC 6298); later the link is down |
//! | a link is joining, down, or doubtful | it is asked again |
//! | an answer is overdue on a link | what is under way there goes over the others |
//! | an answer to the last packets of a burst is late | they go over a second link, too ([`egress`](super::egress)) |
//! | a path on trial has answered, the one before has not | the link moves there |
//! | a link was silent | it says that it is there; its NAT stays open |
//! | others carried packets, in the global order | an idle link says that nothing is under way on it |
//! | keys are old | fresh ones are made; dead ones are forgotten |
//! | backups have helped for a while | they rest if they were not needed |
//! | this end or the peer stops | the next step of that is taken |
//! | a speed test goes on, or is not renewed | it is asked for again, round trips are measured; it ends |
//! | no packet came or went for a while | memory kept for packets is given back |

use super::Tunnel;
use super::link::Link;
use super::outages::{Gone, OutageCause};
use crate::error::DropReason;
use crate::event::{DownReason, Event};
use crate::link::sent::Settled;
use crate::packet::buffer::PacketBuffer;
use crate::queue::Label;
use crate::sink::PacketSink;
use crate::time::{Duration, Instant, earliest};
use crate::timer::{Timer, Wakeup, sooner, soonest};

/// A tunnel without packets keeps the memory of its last burst for this long: longer than the pauses
/// within one use of a page or a call, so that only a tunnel out of use allocates again, and so short
/// that a proxy does not hold 26 MB for each of a thousand sleeping clients.
const IDLE_AFTER: Duration = Duration::from_secs(5);

impl Tunnel {
    /// When [`handle_timeout`](Self::handle_timeout) is due, and why. Early calls are harmless.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Wakeup> {
        if self.is_closed() {
            return None;
        }
        let (owed, can_seal) = (self.owed_global(), self.session.keys.can_seal());
        let own = soonest([
            (self.late_at(), Timer::QueueAge),
            (earliest(self.opens_at(), self.fills_at()), Timer::Pacing),
            (self.overdue_at(), Timer::Suspicion),
            (self.early_copy_at(), Timer::EarlyCopy),
            (self.ingress.poll_timeout(), Timer::Resequencing),
            (self.poll_rekey(), Timer::Rekey),
            (self.session.keys.poll_timeout(), Timer::KeyExpiry),
            (self.ending.poll_timeout(), Timer::Close),
            (self.acknowledge_at(), Timer::LocalAcknowledgement),
            (self.release_at(), Timer::Memory),
            (self.speed_at(), Timer::SpeedTest),
        ]);
        sooner(self.links.poll_timeout(owed, self.usage, can_seal), own)
    }

    /// Does all that is due.
    pub fn handle_timeout(&mut self, now: Instant, sink: &mut impl PacketSink) {
        if self.late_at().is_some_and(|at| at <= now) {
            let late = self.egress.drop_late(now, &self.links);
            self.session.drops.add(DropReason::QueueTimeout, late);
        }
        self.ingress.handle_timeout(now, &mut self.session.drops, sink);
        let rhythm = self.links.keepalive_rhythm(now);
        for at in 0..self.links.len() {
            let (id, egress, fleet) = (self.links[at].id, &mut self.egress, &mut self.fleet);
            let told = |settled: &Settled| {
                egress.on_settled(now, id, settled);
                fleet.on_fate(id, settled);
            };
            if let Some(moved) = self.links[at].handle_timeout(now, self.usage, rhythm, told) {
                self.outbox.tell(moved);
            }
            self.suspect(now, at);
            self.links.announce_on_joining(at);
            if self.links[at].is_dead(now) {
                self.give_up(now, at, sink);
            }
        }
        self.note_resumed(now);
        self.acknowledge(now, sink);
        self.links.call_backups(now);
        self.links.repeat_leaves(now);
        self.speed_timeout(now);
        self.rekey_timeout(now);
        self.session.keys.handle_timeout(now);
        self.update_inner_mtu(now);
        self.release_memory(now);
        self.close_timeout(now, sink);
    }

    /// When the first packet will have waited too long. The last ones go out however old they are: nothing newer
    /// comes behind them.
    fn late_at(&self) -> Option<Instant> {
        self.egress.late_at().filter(|_| !self.ending.drains())
    }

    /// When a sender of TCP is to be told something.
    fn acknowledge_at(&self) -> Option<Instant> {
        self.ingress.local_acks.poll_timeout(self.egress.waiting_for_links().1)
    }

    /// Tells senders of TCP what has arrived, and sends again what their peers miss.
    fn acknowledge(&mut self, now: Instant, sink: &mut impl PacketSink) {
        if self.acknowledge_at().is_none_or(|at| at > now) {
            return;
        }
        let Self { egress, ingress, links, session, .. } = self;
        let backlog = egress.backlog(now, links);
        let mut again = Vec::new();
        let waits = |flow| egress.waiting_of(flow);
        let send = |packet: PacketBuffer, label: Label| again.push((packet, label));
        ingress.local_acks.handle_timeout(now, backlog, waits, sink, send);
        for (packet, label) in again {
            let label = Label { is_acknowledged: true, ..label };
            egress.take(now, packet, &label, links, &mut session.drops, sink);
        }
    }

    /// When an answer is overdue on a link, or it is asked again.
    fn overdue_at(&self) -> Option<Instant> {
        let overdue = || self.links.iter().filter_map(Link::overdue_at).min();
        self.egress.repairs().and_then(|_| overdue())
    }

    /// If an answer is overdue on link `at`: what is under way there goes over the others, and where there are none its first
    /// packet once more, by which the link shows that it lives.
    fn suspect(&mut self, now: Instant, at: usize) {
        if self.egress.repairs().is_some() && self.links[at].suspect(now) {
            let gone = Gone::of(now, &self.links[at]);
            let moved = self.leave_to_others(now, at);
            // Where nothing was to be moved, an answer may be late, and no more.
            if moved > 0 {
                self.note_silence(now, &gone, moved);
            }
        }
    }

    /// The machine stood still for a while: every link is asked at once whether it lives.
    pub fn ask_all(&mut self, now: Instant) {
        self.links.iter_mut().for_each(|link| link.ask_now(now));
    }

    /// When a paced link has room for what waits.
    fn opens_at(&self) -> Option<Instant> {
        self.egress.has_waiting().then(|| self.links.opens_at()).flatten()
    }

    /// When the last packets of a burst go over a second link, if anything may go.
    fn early_copy_at(&self) -> Option<Instant> {
        let sends = self.ending.receives() && self.ending.sends_packets();
        let may_go = self.session.keys.can_seal() && sends;
        may_go.then(|| self.egress.early_copy_at(&self.links)).flatten()
    }

    /// When memory kept for packets is given back: once after each use.
    fn release_at(&self) -> Option<Instant> {
        let has_spare = self.egress.has_spare() || self.ingress.has_spare();
        has_spare.then(|| self.usage.last_packet() + IDLE_AFTER)
    }

    fn release_memory(&mut self, now: Instant) {
        if self.release_at().is_some_and(|at| at <= now) {
            self.egress.release_memory(now);
            self.ingress.release_memory();
            self.links.iter_mut().for_each(|link| link.sender.release_memory(now));
        }
    }

    /// Link `at` does not answer.
    fn give_up(&mut self, now: Instant, at: usize, sink: &mut impl PacketSink) {
        let gone = Gone::of(now, &self.links[at]);
        let id = self.links.give_up(now, at);
        let moved = self.egress.reinject(now, id, true);
        self.note_outage(now, &gone, OutageCause::Silent, moved);
        self.ingress.link_down(now, id, &mut self.session.drops, sink);
        self.outbox.tell(Event::LinkDown(id, DownReason::NoAnswer));
    }
}
