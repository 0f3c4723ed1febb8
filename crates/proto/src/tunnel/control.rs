//! What is said without packets: reports, joins, probes, marks, proofs of address, goodbyes.
//!
//! Frames that wait for a link leave together in one datagram; a report rides along. None of it waits for
//! the congestion window: it is little, and without it the window would never open.

use arrayvec::ArrayString;
use ropewalk_settings::{LinkPolicy, Order};

use super::Tunnel;
use super::close::FAREWELLS;
use super::link::Pending;
use super::session::{Datagram, Made};
use crate::ecn::Ecn;
use crate::link::carried::{Carried, SizeEvidence};
use crate::link::received::Report;
use crate::path::Path;
use crate::sink::TransmitSink;
use crate::time::Instant;
use crate::wire::cursor::{Truncated, Writer};
use crate::wire::frame::{Frame, MAX_NAME, PolicyFrame, emit, emit_report};
use crate::wire::header::{Kind, OVERHEAD, SEALED_LEN};

/// Room for the frames of one datagram: a report with a bitmap or a rekey message, and everything small, fit in the base size.
pub(super) const CONTROL_ROOM: usize = 1100;

/// A `Close` alone.
const CLOSE_LEN: usize = OVERHEAD + 2;

impl Tunnel {
    /// Sends what waits on every link. `false`: the batch is full.
    pub(super) fn send_control(&mut self, now: Instant, out: &mut impl TransmitSink) -> bool {
        (0..self.links.len())
            .all(|at| self.send_challenge(now, at, out) && self.send_frames(now, at, out))
            && self.send_report_copies(now, out)
            && self.send_fleet(now, out)
            && self.send_speed(now, out)
    }

    /// Links say how far the numbers were when they last spoke, up to this one: so the peer learns what was lost. Where he
    /// restores the order of flows he does not ask.
    pub(super) fn owed_global(&self) -> u64 {
        match self.session.order {
            Order::Global => self.egress.next_global(),
            Order::Flow => 0,
        }
    }

    fn send_challenge(&mut self, now: Instant, at: usize, out: &mut impl TransmitSink) -> bool {
        let global = self.egress.next_global();
        let link = &mut self.links[at];
        while link.paths.validation.is_asking() {
            let before = link.paths.validation;
            let Some((path, token)) = link.paths.validation.poll_challenge(now) else {
                return true;
            };
            let datagram = frames(path, global);
            let made = self.session.send(now, link, &datagram, out, |writer, _| {
                emit(writer, &Frame::PathChallenge(token)).map(|()| Carried::default())
            });
            if made == Made::Full {
                link.paths.validation = before;
                return false;
            }
        }
        true
    }

    /// Everything that waits on link `at`, in one datagram; unless that is more than an unproven address may
    /// get.
    fn send_frames(&mut self, now: Instant, at: usize, out: &mut impl TransmitSink) -> bool {
        let (next_global, owed) = (self.egress.next_global(), self.owed_global());
        let in_use = self.usage.is_on(now);
        let link = &mut self.links[at];
        let report = link.receiver.poll_report(now);
        let mark = link.mark_at(owed).is_some_and(|at| at <= now);
        let others = link.control.pending.others.is_some() && in_use;
        // A link that is down would only lose it; it is said when the link is back.
        let changed = link.control.policy.is_due() && link.life.is_up();
        if !link.control.pending.any() && report.is_none() && !mark && !others && !changed {
            return true;
        }
        if report.is_some() && link.wants_confirmation(now, in_use) {
            link.receiver.on_elicit(now);
            link.control.pending.ping = true;
        }
        let pending = link.control.pending.clone();
        let ride = report.or_else(|| link.receiver.poll_ride(now));
        if let Some(report) = ride.as_ref().filter(|_| link.life.is_down()) {
            self.outbox.copy_report(report);
        }
        let mut datagram = frames(link.path(), next_global);
        datagram.eliciting = pending.any() || pending.others.is_some() || changed;
        let has_policy = changed || pending.join && link.agreed.policy != LinkPolicy::default();
        let policy = has_policy.then(|| link.agreed.policy.clone());
        let number = link.sender.next_number();
        let words = Words {
            pending: &pending,
            name: link.name,
            policy: policy.as_ref(),
            ride: ride.as_ref(),
            rekey: self.rekey.frame(self.side),
            answer: Frame::RekeyResponse(&self.rekey.answer),
        };
        let validation = &link.paths.validation;
        if !validation.is_proven() && !validation.allows(OVERHEAD + words.len()) {
            link.control.held = true;
            return true;
        }
        let made = self.session.send(now, link, &datagram, out, |writer, receiver| {
            words.emit(writer)?;
            let report = ride.as_ref().map(|report| receiver.report_sent(now, report));
            Ok(Carried { report, ..Carried::default() })
        });
        if made != Made::Full {
            link.control.pending = Pending::default();
        }
        if made == Made::Sent && has_policy {
            link.control.policy.on_told(number);
        }
        made != Made::Full
    }

    /// A copy of the report of a link that does not answer goes over the best of the others, so that the
    /// peer learns what came on it.
    fn send_report_copies(&mut self, now: Instant, out: &mut impl TransmitSink) -> bool {
        while let Some(report) = self.outbox.poll_report_copy() {
            let best = self.links.best(Some(report.link));
            let Some(link) = best.and_then(|at| self.links.get_mut(at)) else { continue };
            let mut datagram = frames(link.path(), self.egress.next_global());
            datagram.eliciting = false;
            let made = self.session.send(now, link, &datagram, out, |writer, _| {
                emit_report(writer, &report).map(|()| Carried::default())
            });
            if made == Made::Full {
                self.outbox.put_back(report);
                return false;
            }
        }
        true
    }

    /// Path MTU probes: a ping padded to the size on trial. One that finds the batch full is not lost.
    pub(super) fn send_probes(&mut self, now: Instant, out: &mut impl TransmitSink) {
        let global = self.egress.next_global();
        for link in self.links.iter_mut() {
            while link.may_probe()
                && let Some(size) = link.mtu.search.poll_probe(now)
            {
                let mut datagram = frames(link.path(), global);
                let overhead = OVERHEAD + usize::from(datagram.path.header_len());
                datagram.room = usize::from(size).saturating_sub(overhead);
                let padded = SEALED_LEN + datagram.room;
                let made = self.session.send(now, link, &datagram, out, |writer, _| {
                    emit(writer, &Frame::Ping)?;
                    pad(writer, padded)?;
                    Ok(Carried { size: SizeEvidence::Probe(size), ..Carried::default() })
                });
                if made != Made::Sent {
                    return link.mtu.search.on_unsent();
                }
            }
        }
    }

    /// The last words, on each link.
    pub(super) fn send_close(&mut self, now: Instant, out: &mut impl TransmitSink) {
        while let Some((reason, said)) = self.ending.words() {
            let order = self.links.by_preference(&self.config);
            if said >= FAREWELLS * order.len() {
                return self.on_close_said(now);
            }
            let link = &mut self.links[order[said % order.len()]];
            let mut datagram = frames(link.path(), self.egress.next_global());
            datagram.eliciting = false;
            if link.paths.validation.allows(CLOSE_LEN) {
                let made = self.session.send(now, link, &datagram, out, |writer, _| {
                    emit(writer, &Frame::Close(reason)).map(|()| Carried::default())
                });
                if made == Made::Full {
                    return;
                }
            }
            self.ending.on_said();
        }
    }
}

/// The frames of one datagram.
struct Words<'a> {
    pending: &'a Pending,
    name: ArrayString<MAX_NAME>,
    policy: Option<&'a LinkPolicy>,
    ride: Option<&'a Report>,
    rekey: Frame<'a>,
    answer: Frame<'a>,
}

impl Words<'_> {
    /// Bytes of them all.
    fn len(&self) -> usize {
        let mut room = [0; CONTROL_ROOM];
        let mut writer = Writer::new(&mut room);
        // What does not fit is not sent either.
        self.emit(&mut writer).map_or(CONTROL_ROOM, |()| writer.len())
    }

    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), Truncated> {
        let pending = self.pending;
        if let Some(report) = self.ride {
            emit_report(writer, report)?;
        }
        let mut put = |wanted: bool, frame: &Frame<'_>| match wanted {
            true => emit(writer, frame),
            false => Ok(()),
        };
        put(pending.join, &Frame::Join { name: self.name.as_bytes() })?;
        if let Some(policy) = self.policy {
            put(true, &Frame::Policy(PolicyFrame::new(policy)))?;
        }
        put(pending.join_ack, &Frame::JoinAck)?;
        put(pending.ping, &Frame::Ping)?;
        pending.responses.iter().try_for_each(|token| put(true, &Frame::PathResponse(*token)))?;
        if let Some((token, delay_ms)) = pending.echo_after {
            put(true, &Frame::EchoAfter { token, delay_ms })?;
        }
        if let Some(token) = pending.echo {
            put(true, &Frame::Echo { token })?;
        }
        if let Some(mtu) = pending.mtu_hint {
            put(true, &Frame::MtuHint(mtu))?;
        }
        if let Some(kbps) = pending.others {
            put(true, &Frame::Others(kbps))?;
        }
        pending.leaves.iter().try_for_each(|halt| put(true, &Frame::Leave(*halt)))?;
        pending.downs.iter().try_for_each(|halt| put(true, &Frame::Down(*halt)))?;
        put(pending.rekey, &self.rekey)?;
        put(pending.rekey_answer, &self.answer)
    }
}

/// A datagram with frames on `path`.
pub(super) fn frames(path: Path, global: u64) -> Datagram {
    Datagram {
        path,
        kind: Kind::Frames,
        ecn: Ecn::NotEct,
        global,
        previous_on_link: 0,
        previous_of_flow: 0,
        room: CONTROL_ROOM,
        places: 0,
        eliciting: true,
    }
}

/// Fills up to `len` bytes with padding frames.
fn pad(writer: &mut Writer<'_>, len: usize) -> Result<(), Truncated> {
    while writer.room() > 0 && writer.len() < len {
        writer.u8(0)?;
    }
    Ok(())
}
