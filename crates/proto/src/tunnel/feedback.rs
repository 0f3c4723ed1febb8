//! What the peer's frames do to a link: reports, joins, proofs, farewells.

use super::link::LinkState;
use super::seal::Cargo;
use super::{Side, Tunnel};
use crate::error::DropReason;
use crate::event::{DownReason, Event};
use crate::link::mtu::PathMtu;
use crate::link::receiver::LinkReceiver;
use crate::link::sender::Via;
use crate::link::sent::{Fate, Settled};
use crate::path::Path;
use crate::sink::PacketSink;
use crate::time::Instant;
use crate::units::LinkId;
use crate::wire::expand;
use crate::wire::frame::{Halt, ReportFrame};

impl Tunnel {
    /// A report came on link `at` from `path`, about that link or another.
    pub(super) fn on_report(
        &mut self,
        now: Instant,
        at: usize,
        path: Path,
        frame: &ReportFrame<'_>,
    ) {
        let via = if self.links[at].id == frame.link { Via::Own } else { Via::Other };
        let Ok(about) = self.position(frame.link) else { return };
        let link = &mut self.links[about];
        let Some(report) = frame.expand(link.sender.next_number()) else {
            return self.drops.count(DropReason::ReportInvalid);
        };
        let path_from = link.sender.path_from();
        let (mtu, receiver) = (&mut link.mtu, &mut link.receiver);
        let settle = |settled: Settled| {
            let mtu = (settled.number >= path_from).then_some(&mut *mtu);
            settle(now, &settled, mtu, receiver);
        };
        match link.sender.on_report(now, &report, via, settle) {
            Ok(outcome) if outcome.confirmed > 0 => {
                let (fates, shortest) = (link.sender.fates(), link.sender.rtt().min());
                link.sensing.on_report(now, &outcome, fates, shortest);
                self.on_confirmed(now, about, (via == Via::Own).then_some(path));
            }
            Ok(_) => {}
            Err(_) => self.drops.count(DropReason::ReportInvalid),
        }
    }

    /// Something sent on the link arrived, as was said on it at `path`: the link lives.
    fn on_confirmed(&mut self, now: Instant, at: usize, path: Option<Path>) {
        let link = &mut self.links[at];
        link.nudges = 0;
        if link.state == LinkState::Down && link.validation.is_proven() {
            if let Some(path) = path {
                link.settle_path(now, path);
            }
            link.enter(now, LinkState::Up);
            link.sender.on_return(now);
            self.events.push_back(Event::LinkUp(link.id));
        }
    }

    /// The proxy took the client's link.
    pub(super) fn on_join_ack(&mut self, now: Instant, at: usize, path: Path) {
        let link = &mut self.links[at];
        if self.side == Side::Client && link.state == LinkState::Joining {
            link.settle_path(now, path);
            link.enter(now, LinkState::Up);
            self.events.push_back(Event::LinkUp(link.id));
        }
    }

    /// The client proved that it receives at `path`.
    pub(super) fn on_path_response(&mut self, now: Instant, at: usize, path: Path, token: [u8; 8]) {
        let link = &mut self.links[at];
        let before = link.path();
        let Some(moved) = link.validation.on_response(now, path, token) else { return };
        if moved {
            link.moved(now, before);
            self.events.push_back(Event::PathMoved(link.id, link.path()));
        }
        if link.state == LinkState::Joining {
            link.enter(now, LinkState::Up);
            self.events.push_back(Event::LinkUp(link.id));
        }
    }

    /// The peer took a link out.
    pub(super) fn on_leave(&mut self, now: Instant, halt: Halt, sink: &mut impl PacketSink) {
        let Ok(at) = self.position(halt.link) else { return };
        let next_received = self.next_received(halt.link);
        let end = expand(next_received, u64::from(halt.next), 32);
        if end < next_received {
            return;
        }
        let link = self.links.remove(at);
        self.note_in_ledger(&link);
        self.departed.note(now, &link, None);
        self.with_gate(sink, |reseq, gate| reseq.link_left(now, halt.link, Some(end), gate));
        self.events.push_back(Event::LinkDown(halt.link, DownReason::Left));
    }

    /// The peer gave up what was in flight on a link; unless something newer came on it since. The other
    /// direction may be just as dead: asking finds out.
    pub(super) fn on_down(&mut self, now: Instant, halt: Halt, sink: &mut impl PacketSink) {
        let Ok(at) = self.position(halt.link) else { return };
        let next = self.next_received(halt.link);
        if expand(next, u64::from(halt.next), 32) >= next {
            self.links[at].pending.ping = true;
            self.with_gate(sink, |reseq, gate| reseq.link_down(now, halt.link, gate));
        }
    }

    fn next_received(&self, link: LinkId) -> u64 {
        self.next_received_at(self.position(link).ok())
    }

    /// One above the largest number that came on the link in this place of the list.
    pub(super) fn next_received_at(&self, place: Option<usize>) -> u64 {
        let largest = place.and_then(|at| self.links[at].receiver.largest());
        largest.map_or(0, |largest| largest.saturating_add(1))
    }
}

/// One datagram's fate is known: tells whom it concerns. No `mtu`: it went over another path.
pub(super) fn settle(
    now: Instant,
    settled: &Settled,
    mtu: Option<&mut PathMtu>,
    receiver: &mut LinkReceiver,
) {
    let arrived = matches!(settled.fate, Fate::Confirmed | Fate::ConfirmedLate);
    match (Cargo::from_tag(settled.sent.tag), mtu) {
        (Cargo::Report(token), _) if arrived => receiver.on_report_confirmed(now, token),
        (Cargo::Probe(size), Some(mtu)) if arrived => mtu.on_probe_acked(now, size),
        (Cargo::Probe(size), Some(mtu)) => mtu.on_probe_lost(now, size),
        (Cargo::Large(size), Some(mtu)) if arrived => mtu.on_acked(now, size),
        (Cargo::Large(size), Some(mtu)) => mtu.on_lost(now, size, 1),
        _ => {}
    }
}
