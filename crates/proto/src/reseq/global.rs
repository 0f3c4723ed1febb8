//! The order of all packets: what waits behind a hole, and when the hole is skipped.
//!
//! `place` puts a packet out, into the buffer or away, `settle` applies what is proven, and `expire` ends a wait. All of them
//! end in `advance_to`, the one place where the expected number passes a hole.

use ropewalk_settings::{Order, Release};

use super::buffer::Slot;
use super::pool::Early;
use super::{Cause, Resequencer, deadline};
use crate::packet::Packet;
use crate::sink::PacketSink;
use crate::time::Instant;
use crate::units::LinkId;

/// The expiry in a row that gives up: it releases all.
const LAST_EXPIRY: u8 = 3;

impl Resequencer {
    /// Puts a packet in its place: out, into the buffer, or away.
    pub(super) fn place(
        &mut self,
        now: Instant,
        global: u64,
        delay_us: i64,
        packet: &Packet<'_>,
        out: &mut impl PacketSink,
    ) {
        let Some(offset) = global.checked_sub(self.expected) else {
            return self.place_behind(global, packet, out);
        };
        if offset == 0 && !matches!(self.buffer.slot(0), Some(Slot::Held(_))) {
            return self.pass_through(now, packet, out);
        }
        if matches!(self.buffer.slot(offset), Some(Slot::Held(_))) {
            self.stats.duplicates += 1;
            return;
        }
        self.buffer.unmark_lost(offset);
        match self.make_room(now, global, packet.bytes.len(), out) {
            Some(offset) => {
                self.buffer.store(offset, packet, global, now, delay_us);
                self.stats.held_peak = self.stats.held_peak.max(self.buffer.held());
            }
            None => self.pass_through(now, packet, out),
        }
    }

    /// A packet came on a link: if others wait for it, the link was waited for since the first of them came, or since
    /// the hole before was closed.
    pub(super) fn note_waited(&mut self, now: Instant, link: LinkId, global: u64) {
        let behind = self.buffer.first_behind().filter(|_| global == self.expected);
        if let Some(behind) = behind {
            self.links.on_waited(link, now.since(self.closed_at.max(behind.arrived)));
            self.closed_at = now;
        }
    }

    /// Delivers the expected packet from where it was received, and what it was waited for by.
    fn pass_through(&mut self, now: Instant, packet: &Packet<'_>, out: &mut impl PacketSink) {
        out.deliver(*packet);
        self.stats.in_order += 1;
        let _ = self.buffer.pop();
        self.expected += 1;
        self.progress();
        self.drain(now, out);
        self.finish_step();
    }

    /// Releases the lowest until there is room for `global`; returns its offset. `None`: it is itself
    /// the lowest, and has become the expected number.
    fn make_room(
        &mut self,
        now: Instant,
        global: u64,
        len: usize,
        out: &mut impl PacketSink,
    ) -> Option<usize> {
        loop {
            let offset = global - self.expected;
            let small = usize::try_from(offset).ok().filter(|o| *o < self.config.max_packets);
            if let Some(offset) = small
                && self.buffer.bytes() + len <= self.config.settings.buffer
            {
                return Some(offset);
            }
            match self.buffer.lowest() {
                Some(lowest) if lowest < offset => self.release_lowest(now, Cause::Full, out),
                _ => {
                    self.advance_to(now, global, Cause::Full, out);
                    return None;
                }
            }
            if self.expected >= global {
                return None;
            }
        }
    }

    /// Applies what is proven, but does not expect more than `limit`.
    pub(super) fn settle(&mut self, now: Instant, limit: u64, out: &mut impl PacketSink) {
        self.links.mature(now);
        match self.order {
            // What is proven lost may be sent again; before the first packet nobody knows.
            None | Some(Order::Flow) => {
                while self.links.take_proven().is_some() {}
                return;
            }
            Some(Order::Global) => {}
        }
        while let Some(lost) = self.links.take_proven() {
            // The packet in hand closed the gap that hid it: nothing is missing.
            if lost == limit {
                continue;
            }
            if let Some(offset) = lost.checked_sub(self.expected)
                && let Some(offset) = usize::try_from(offset).ok()
                && offset < self.config.max_packets
            {
                self.buffer.mark_lost(offset);
            }
        }
        let before = self.expected;
        let floor = self.links.floor().unwrap_or(0).min(self.next_unseen).min(limit);
        self.advance_to(now, floor, Cause::Proof, out);
        if self.expected > before || matches!(self.buffer.slot(0), Some(Slot::Lost)) {
            self.progress();
            self.drain(now, out);
        }
        // A packet in hand is not in the buffer yet, and marks before it must outlive this call.
        if limit == u64::MAX {
            self.finish_step();
        }
    }

    /// The deadline of the hole passed.
    pub(super) fn expire(&mut self, now: Instant, out: &mut impl PacketSink) {
        self.stats.expiries += 1;
        self.expiries += 1;
        if self.expiries < LAST_EXPIRY {
            self.release_lowest(now, Cause::Deadline, out);
            self.restarted = (self.config.settings.release == Release::One).then_some(now);
        } else {
            self.advance_to(now, self.expected + self.buffer.span(), Cause::Deadline, out);
        }
        self.finish_step();
    }

    /// When the hole has been waited for long enough; `None` if nothing waits.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let first = self.buffer.first_behind()?;
        let from = self.restarted.map_or(first.arrived, |at| at.max(first.arrived));
        Some(
            from + deadline::patience(
                self.links.worst_us(),
                first.delay_us,
                self.config.settings.max_wait,
            ),
        )
    }

    /// Skips the hole and delivers the packet behind it.
    fn release_lowest(&mut self, now: Instant, cause: Cause, out: &mut impl PacketSink) {
        let Some(lowest) = self.buffer.lowest() else { return };
        self.advance_to(now, self.expected + lowest + 1, cause, out);
        if self.config.settings.release == Release::Drain {
            self.drain(now, out);
        }
        self.buffer.trim(self.expected);
    }

    /// Delivers what directly follows, passing over what is proven lost.
    fn drain(&mut self, now: Instant, out: &mut impl PacketSink) {
        while let Some(Slot::Held(_) | Slot::Lost) = self.buffer.slot(0) {
            self.advance_to(now, self.expected + 1, Cause::Proof, out);
        }
    }

    /// Expects `target` next: delivers what waits below it and skips the rest.
    pub(super) fn advance_to(
        &mut self,
        now: Instant,
        target: u64,
        cause: Cause,
        out: &mut impl PacketSink,
    ) {
        while self.expected < target {
            let next = self.expected + 1;
            match self.buffer.pop() {
                Some(Slot::Held(early)) => self.deliver_early(now, early, out),
                Some(Slot::Lost) => self.skip_to(next, Cause::Proof),
                Some(Slot::Missing) => self.skip_to(next, cause),
                None => {
                    self.skip_to(target, cause);
                    self.expected = target;
                    return;
                }
            }
            self.expected = next;
        }
    }

    fn deliver_early(&mut self, now: Instant, early: Early, out: &mut impl PacketSink) {
        out.deliver(early.packet());
        self.stats.resequenced += 1;
        let micros = now.since(early.arrived).as_micros();
        self.waits.record(u64::try_from(micros).unwrap_or(u64::MAX));
        self.buffer.recycle(early, self.config.settings.buffer);
    }

    fn skip_to(&mut self, to: u64, cause: Cause) {
        let counter = match cause {
            Cause::Proof => &mut self.stats.skipped_by_proof,
            Cause::Deadline => &mut self.stats.skipped_by_deadline,
            Cause::Full => &mut self.stats.skipped_by_full,
        };
        *counter += to - self.expected;
        self.skipped.push(self.expected, to, cause);
    }

    /// A hole was closed by arrival or proof: expiries are no longer in a row.
    pub(super) fn progress(&mut self) {
        self.expiries = 0;
        self.restarted = None;
    }

    /// Brings the buffer and the state in line with the expected number.
    pub(super) fn finish_step(&mut self) {
        self.buffer.trim(self.expected);
        if self.buffer.held() == 0 {
            self.progress();
        }
    }
}
