//! What time brings.
//!
//! | when | what |
//! | --- | --- |
//! | a packet has waited too long | it is dropped |
//! | a hole in the order has lasted too long | packets behind it are released |
//! | a link's window saw no confirmation | it closes (RFC 6298); later the link is down |
//! | a link is joining, down, or doubtful | it is asked again |
//! | a path on trial has answered, the one before has not | the link moves there |
//! | a link was silent | it says that it is there; its NAT stays open |
//! | others carried packets | an idle link says that nothing is under way on it |
//! | keys are old | fresh ones are made; dead ones are forgotten |
//! | backups have helped for a while | they rest if they were not needed |
//! | this end or the peer stops | the next step of that is taken |
//! | no packet came or went for a while | memory kept for packets is given back |

use super::Tunnel;
use super::feedback::settle;
use super::keepalive::Due;
use super::link::{Link, LinkState, Usage};
use crate::error::DropReason;
use crate::event::{DownReason, Event};
use crate::link::sent::Settled;
use crate::sink::PacketSink;
use crate::time::{Duration, Instant, earliest};
use crate::wire::frame::{Halt, low32};

/// A tunnel without packets keeps the memory of its last burst for this long: longer than the pauses
/// within one use of a page or a call, so that only a tunnel out of use allocates anew, and so short
/// that a proxy does not hold 26 MB for each of a thousand sleeping clients.
const IDLE_AFTER: Duration = Duration::from_secs(5);

impl Tunnel {
    /// When [`handle_timeout`](Self::handle_timeout) is due. Early calls are harmless.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.is_closed() {
            return None;
        }
        let can_seal = self.keys.can_seal();
        // What only a datagram ends would be due for ever.
        let links = self.links.iter().map(|link| match can_seal {
            true => link.poll_timeout(self.next_global, self.usage),
            false => link.poll_silent(),
        });
        let parts = [
            self.late_at(),
            self.opens_at(),
            self.reseq.poll_timeout(),
            self.poll_rekey(),
            self.keys.poll_timeout(),
            self.departed.poll_timeout(),
            self.ending.poll_timeout(),
            self.release_at(),
            self.poll_backups(),
        ];
        links.chain(parts).fold(None, earliest)
    }

    /// Does all that is due.
    pub fn handle_timeout(&mut self, now: Instant, sink: &mut impl PacketSink) {
        if self.late_at().is_some_and(|at| at <= now) {
            let late = self.queue.handle_timeout(now) + self.waiting.handle_timeout(now);
            self.drops.add(DropReason::QueueTimeout, late);
        }
        self.with_gate(sink, |reseq, gate| reseq.handle_timeout(now, gate));
        let due = |link: &&Link| link.keepalive_at().is_some_and(|at| at <= now);
        let rhythm = self.links.iter().find(due).and_then(|link| link.keepalive.interval());
        for at in 0..self.links.len() {
            if let Some(moved) = self.links[at].handle_timeout(now, self.usage, rhythm) {
                self.events.push_back(moved);
            }
            if self.links[at].pending.join {
                self.departed.announce(&mut self.links[at].pending.leaves);
            }
            if self.links[at].is_dead(now) {
                self.give_up(now, at, sink);
            }
        }
        self.call_backups(now);
        self.repeat_leaves(now);
        self.rekey_timeout(now);
        self.keys.handle_timeout(now);
        self.update_inner_mtu(now);
        self.release_memory(now);
        self.close_timeout(now, sink);
    }

    /// When the first packet will have waited too long. The last ones go out however old they are: nothing newer
    /// comes behind them.
    fn late_at(&self) -> Option<Instant> {
        let late = earliest(self.queue.poll_timeout(), self.waiting.poll_timeout());
        late.filter(|_| !self.ending.drains())
    }

    /// The machine stood still for a while: every link is asked at once whether it lives.
    pub fn ask_all(&mut self, now: Instant) {
        self.links.iter_mut().for_each(|link| link.ask_now(now));
    }

    /// When a paced link has room for what waits.
    fn opens_at(&self) -> Option<Instant> {
        let waits = !self.queue.is_empty() || self.waiting.held().0 > 0;
        let links = self.links.iter().filter(|_| waits);
        links.map(Link::opens_at).fold(None, earliest)
    }

    /// When memory kept for packets is given back: once after each use.
    fn release_at(&self) -> Option<Instant> {
        let queues = self.queue.has_spare() || self.waiting.spare_bytes() > 0;
        let has_spare = queues || self.reseq.has_spare();
        has_spare.then(|| self.usage.last_packet + IDLE_AFTER)
    }

    fn release_memory(&mut self, now: Instant) {
        if self.release_at().is_some_and(|at| at <= now) {
            self.queue.release_memory();
            self.waiting.release_memory();
            self.reseq.release_memory();
            self.scratch = Vec::new();
        }
    }

    /// Link `at` does not answer: it carries nothing until it does, and the peer is told over the others.
    fn give_up(&mut self, now: Instant, at: usize, sink: &mut impl PacketSink) {
        let link = &mut self.links[at];
        link.enter(now, LinkState::Down);
        let id = link.id;
        let halt = Halt { link: id, next: low32(link.sender.next_number()) };
        for other in self.links.iter_mut().filter(|other| other.id != id) {
            let _ = other.pending.downs.try_push(halt);
        }
        self.with_gate(sink, |reseq, gate| reseq.link_down(now, id, gate));
        self.events.push_back(Event::LinkDown(id, DownReason::NoAnswer));
    }
}

impl Link {
    /// Returns the event of a path that moved. Another link says after each `rhythm` of silence that it is there, and does
    /// so now: this one joins in.
    fn handle_timeout(
        &mut self,
        now: Instant,
        usage: Usage,
        rhythm: Option<Duration>,
    ) -> Option<Event> {
        let before = self.path();
        let moved = self.validation.handle_timeout(now);
        if moved {
            self.moved(now, before);
        }
        let (mtu, receiver) = (&mut self.mtu, &mut self.receiver);
        let settle = |settled: Settled| settle(now, &settled, Some(&mut *mtu), receiver);
        if self.sender.handle_timeout(now, settle) {
            self.sensing.on_fates(now, self.sender.fates());
        }
        self.mtu.handle_timeout(now);
        self.settle_by_time(now);
        self.retry(now);
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        self.pending.ping |= due(self.doubt_at()) || due(self.probe_at(usage));
        self.nudge(now);
        if let Some((token, _)) = self.echo_due.take_if(|(_, at)| *at <= now) {
            self.pending.echo = Some(token);
        }
        let near = self.keepalive.slack(rhythm);
        if self.keepalive_at().is_some_and(|at| at <= now + near) {
            match self.keepalive.handle_timeout(now) {
                Some(Due::Ping) => self.pending.ping = true,
                Some(Due::EchoAfter { token, delay }) => {
                    let delay_ms = u32::try_from(delay.as_millis()).unwrap_or(u32::MAX);
                    self.pending.echo_after = Some((token, delay_ms));
                }
                None => {}
            }
        }
        moved.then(|| Event::PathMoved(self.id, self.path()))
    }
}
