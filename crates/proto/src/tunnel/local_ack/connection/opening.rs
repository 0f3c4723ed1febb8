//! How a connection opens, and gives way to another between the same ends.

use arrayvec::ArrayVec;

use super::tail::Tail;
use super::{Connection, FIRST_ROOM, From};
use crate::packet::FiveTuple;
use crate::time::Instant;
use crate::tunnel::local_ack::far_trip::FarTrip;
use crate::tunnel::local_ack::far_window::FarWindow;
use crate::tunnel::local_ack::filled_window::FilledWindow;
use crate::tunnel::local_ack::kept::Store;
use crate::tunnel::local_ack::near_trip::NearTrip;
use crate::tunnel::local_ack::segment::{Segment, Times, flag};

/// What one end said of itself at first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opening {
    seq: u32,
    window: u16,
    pub(super) scale: Option<u8>,
    pub(super) sack: bool,
    time: Option<u32>,
}

impl Opening {
    /// `None`: it opens a connection whose acknowledgements mean something else here.
    fn of(segment: &Segment) -> Option<Self> {
        let is_plain = !segment.syn.is_foreign && segment.len == 0 && !segment.has(flag::FIN);
        is_plain.then_some(Self {
            seq: segment.seq,
            window: segment.window,
            scale: segment.syn.scale,
            sack: segment.syn.sack,
            time: segment.times.map(|times| times.value),
        })
    }
}

impl Connection {
    /// A connection that one end asks for. `None`: not one whose acknowledgements may be given here.
    pub(in crate::tunnel::local_ack) fn begin(
        now: Instant,
        ends: FiveTuple,
        from: From,
        segment: &Segment,
    ) -> Option<Self> {
        let opening = Opening::of(segment)?;
        let (near, far) = match from {
            From::Near => (Some(opening), None),
            From::Far => (None, Some(opening)),
        };
        let (mut near_trip, mut far_trip) = (NearTrip::default(), FarTrip::default());
        match from {
            From::Near => far_trip.on_sent(now, segment.seq.wrapping_add(1)),
            From::Far => near_trip.ask(now),
        }
        Some(Self {
            ends,
            near,
            far,
            is_open: false,
            next: 0,
            early: ArrayVec::new(),
            sent: 0,
            confirmed: 0,
            far_edge: 0,
            edge: 0,
            looked_edge: 0,
            most: FIRST_ROOM,
            far_next: 0,
            near_ack: 0,
            near_edge: 0,
            times: None,
            echoes_congestion: false,
            kept: Store::default(),
            progress_at: now,
            timeouts: 0,
            duplicates: 0,
            looks_for_holes: false,
            repairing: None,
            is_shut: false,
            goes_again: false,
            recovery: None,
            tail: Tail::default(),
            near_window: 0,
            near_time: None,
            near_ended: false,
            far_ended: false,
            successor: None,
            near_trip,
            far_trip,
            far_window: FarWindow::default(),
            filled_window: FilledWindow::default(),
            used_at: now,
            is_due: false,
            is_limited: false,
        })
    }

    /// Whether this asks for the connection that is followed: it may be repeated, and come late.
    pub(in crate::tunnel::local_ack) fn is_asked_by(&self, from: From, segment: &Segment) -> bool {
        let asked = if from == From::Near { self.near } else { self.far };
        asked.is_some_and(|asked| asked.seq == segment.seq)
    }

    /// The connection is asked for once more: only the answer to that says how far the near end is, and none how far the far end is
    /// (RFC 6298 §3).
    pub(in crate::tunnel::local_ack) fn ask_again(&mut self, now: Instant) {
        self.near_trip.ask_again(now);
        self.far_trip.forget_asked();
    }

    /// One end asks for another connection between the same ends. Anybody can forge that (RFC 5961 §4).
    pub(in crate::tunnel::local_ack) fn set_successor(&mut self, successor: Option<Self>) {
        self.successor = successor.map(Box::new);
    }

    /// The connection that takes the place of this one, if this answers it.
    pub(in crate::tunnel::local_ack) fn succeeded_by(
        &mut self,
        now: Instant,
        from: From,
        segment: &Segment,
    ) -> Option<Box<Self>> {
        self.successor.take_if(|successor| successor.answer(now, from, segment))
    }

    /// The other end answers. `false`: it is not to be acknowledged here.
    pub(in crate::tunnel::local_ack) fn answer(
        &mut self,
        now: Instant,
        from: From,
        segment: &Segment,
    ) -> bool {
        if self.is_open {
            // The answer once more, or forged: both ends know better. When it is confirmed says nothing.
            self.far_trip.forget_asked();
            return true;
        }
        self.used_at = now;
        let Some(opening) = Opening::of(segment) else { return false };
        let (asked, answered) = match from {
            From::Near => (&self.far, &mut self.near),
            From::Far => (&self.near, &mut self.far),
        };
        let is_answer = |asked: &Opening| segment.ack == asked.seq.wrapping_add(1);
        if !asked.as_ref().is_some_and(is_answer) {
            return false;
        }
        *answered = Some(opening);
        match from {
            From::Near => {
                self.near_trip.on_near(now, segment);
                self.far_trip.on_sent(now, segment.seq.wrapping_add(1));
            }
            From::Far => {
                self.far_trip.on_confirmed(now, segment.ack);
                self.near_trip.ask(now);
            }
        }
        if let (Some(near), Some(far)) = (self.near, self.far) {
            self.is_open = true;
            self.next = near.seq.wrapping_add(1);
            (self.sent, self.confirmed) = (self.next, self.next);
            self.edge = self.next.wrapping_add(far.window.into());
            (self.far_edge, self.looked_edge) = (self.edge, self.edge);
            self.far_next = far.seq.wrapping_add(1);
            self.near_ack = self.far_next;
            self.near_edge = self.near_ack.wrapping_add(near.window.into());
            self.times = near.time.zip(far.time).map(|(echo, value)| Times { value, echo });
        }
        true
    }
}
