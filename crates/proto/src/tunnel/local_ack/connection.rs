//! One TCP connection, as this end of the tunnel sees it: what its near end sends is acknowledged here and kept until the
//! far end has confirmed it. How it opens stands in `opening.rs`, what goes again in `again.rs`, and what is made of the last segments
//! of a burst in `tail.rs`.

mod again;
mod opening;
mod tail;

use arrayvec::ArrayVec;

use super::far_trip::FarTrip;
use super::far_window::{Explained, FarWindow};
use super::filled_window::FilledWindow;
use super::kept::{Kept, Store};
use super::near_trip::NearTrip;
use super::segment::{Answer, MOST_RANGES, Range, Segment, Times, beyond, flag};
use crate::packet::FiveTuple;
use crate::packet::buffer::PacketBuffer;
use crate::time::Instant;
use again::Recovery;
use opening::Opening;
use tail::Tail;

/// Ranges that may be ahead of a hole. What comes in one more is the far end's to acknowledge.
const MOST_EARLY: usize = 8;

/// What may wait of a connection of whose links nothing is known yet, bytes.
pub(super) const FIRST_ROOM: u32 = 256 * 1024;

/// A near end is told of a part of its window at a time: one in so many.
const WINDOW_PARTS: u32 = 4;

/// The largest window that there is (RFC 7323 §2.3).
const MOST_WINDOW: i32 = 1 << 30;

/// A window with room for less than this is full, bytes (RFC 9293 §3.8.6.2.2).
const FULL_SEGMENT: i32 = 1400;

/// Who sent a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum From {
    /// The end whose packets come from this side's TUN.
    Near,
    /// The end behind the tunnel.
    Far,
}

/// What becomes of a segment of the near end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum FromNear {
    /// It goes as it is.
    Pass,
    /// It goes, and does nothing but acknowledge up to this number.
    Acknowledges(u32),
    /// It goes, and is to be kept.
    Keep,
    /// It goes no further: it went before.
    Drop,
}

/// What becomes of a segment of the far end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FromFar {
    /// It goes as it is.
    Pass,
    /// It goes with this acknowledgement and window.
    Rewrite { ack: u32, window: u16 },
    /// It goes no further: the near end knows more.
    Absorb,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Connection {
    /// From the near end to the far one.
    pub(super) ends: FiveTuple,
    near: Option<Opening>,
    far: Option<Opening>,
    /// Both have said what they are, and neither has ended it.
    is_open: bool,
    /// The next number expected of the near end: all below is kept here, or the far end has it.
    next: u32,
    /// What came behind a hole and is kept.
    early: ArrayVec<Range, MOST_EARLY>,
    /// Behind the highest number that the near end has sent.
    sent: u32,
    /// The far end has all below.
    confirmed: u32,
    /// Behind the last number that the far end takes, and that the near end was told it may send.
    far_edge: u32,
    edge: u32,
    /// What `far_edge` was when the near end was last told, or nearly.
    looked_edge: u32,
    /// How much may be ahead of `next` when nothing waits.
    most: u32,
    /// Behind the highest number of the far end that went to the near one.
    far_next: u32,
    /// The near end has all of the far end below, and takes no more than up to here.
    near_ack: u32,
    near_edge: u32,
    /// The far end's clock, and the near end's to echo.
    times: Option<Times>,
    /// The near end's segments met congestion before they came here (RFC 3168), and it does not know yet.
    echoes_congestion: bool,
    kept: Store,
    /// When the far end last confirmed something, or there was nothing to confirm.
    progress_at: Instant,
    /// How often it was waited for in vain since.
    timeouts: u32,
    /// Acknowledgements one after the other that said nothing new, of a far end that tells no ranges.
    duplicates: u8,
    /// The far end said something that may show what it misses, or not all of that went at once.
    looks_for_holes: bool,
    /// Something that lies below is lost and went again, and the far end does not have all below yet (RFC 6582 `recover`).
    repairing: Option<u32>,
    /// The far end takes nothing at present (RFC 9293 §3.8.6.1).
    is_shut: bool,
    /// What is kept is to go again without waiting longer.
    goes_again: bool,
    /// What was not confirmed in time goes again from its first segment on.
    recovery: Option<Recovery>,
    /// The last segments that were kept.
    tail: Tail,
    /// What the near end said last of the far one's numbers: its window and clock.
    near_window: u16,
    near_time: Option<Times>,
    near_ended: bool,
    far_ended: bool,
    /// Another connection between the same ends, which one of them asked for while the near end relies on this one. It takes
    /// the place of this one when the other end agrees.
    successor: Option<Box<Connection>>,
    pub(super) near_trip: NearTrip,
    far_trip: FarTrip,
    far_window: FarWindow,
    filled_window: FilledWindow,
    pub(super) used_at: Instant,
    /// An acknowledgement is due.
    pub(super) is_due: bool,
    /// The near end may be waiting until less waits here.
    pub(super) is_limited: bool,
}

impl Connection {
    /// The near end hears that it may send more than up to `before`. One that could send nothing (RFC 9293 §3.8.6.2.1) answers at once.
    fn note_told(&mut self, now: Instant, before: u32) {
        let least = FULL_SEGMENT + (1 << self.scale());
        if beyond(before, self.next) < least && beyond(self.edge, before) >= least {
            self.near_trip.ask_beyond(now, before);
        }
    }

    /// By how many bits the far end's windows are shifted.
    fn scale(&self) -> u8 {
        let scale = |opening: Option<Opening>| opening.and_then(|opening| opening.scale);
        scale(self.near).and(scale(self.far)).unwrap_or(0)
    }

    /// By how many bits the near end's windows are shifted.
    fn near_scale(&self) -> u8 {
        let scale = |opening: Option<Opening>| opening.and_then(|opening| opening.scale);
        scale(self.far).and(scale(self.near)).unwrap_or(0)
    }

    fn has_sack(&self) -> bool {
        [self.near, self.far].iter().all(|opening| opening.is_some_and(|opening| opening.sack))
    }

    /// Bytes that were acknowledged here and not by the far end.
    fn outstanding(&self) -> u32 {
        self.next.wrapping_sub(self.confirmed)
    }

    /// Whether the far end has all that the near end need not send again.
    pub(super) fn is_settled(&self) -> bool {
        self.outstanding() == 0 && self.kept.is_empty()
    }

    /// Whether this reset is one that its receiver takes (RFC 5961 §3.2), or nobody relies on this end. Of any other nothing is
    /// believed: if an end is gone, it resets what is sent to it again, too.
    pub(super) fn is_ended_by(&self, from: From, segment: &Segment) -> bool {
        self.is_settled()
            || match from {
                From::Near => [self.sent, self.next, self.confirmed].contains(&segment.seq),
                From::Far => {
                    beyond(segment.seq, self.near_ack) >= 0
                        && beyond(self.far_next, segment.seq) >= 0
                }
            }
    }

    /// Whether the far end takes no full segment more until it has confirmed some.
    pub(super) fn fills_window(&self) -> bool {
        self.outstanding() > 0 && beyond(self.far_edge, self.next) < FULL_SEGMENT
    }

    /// Bytes that are under way of it at most, if the far end takes no more now; else the largest number.
    pub(super) fn most_under_way(&self) -> u32 {
        self.filled_window.most()
    }

    /// Whether nothing more is to be expected of it.
    pub(super) fn is_over(&self) -> bool {
        self.near_ended && self.far_ended && self.is_settled() && self.confirmed == self.sent
    }

    /// A segment of the near end. `may_keep`: there is room for it, and it came as it was sent.
    pub(super) fn on_near(
        &mut self,
        now: Instant,
        segment: &Segment,
        may_keep: impl FnOnce() -> bool,
    ) -> FromNear {
        self.used_at = now;
        self.near_trip.on_near(now, segment);
        if !self.is_open {
            return FromNear::Pass;
        }
        // A far end takes nothing there, but a question for its window (RFC 9293 §3.8.6.1).
        if beyond(segment.seq, self.far_edge) > 1 {
            return FromNear::Pass;
        }
        self.note_near_ack(segment);
        let fin = segment.has(flag::FIN);
        let behind = segment.end().wrapping_add(fin.into());
        if beyond(behind, self.sent) > 0 {
            self.sent = behind;
        }
        self.near_ended |= fin;
        if segment.has(flag::CWR) {
            self.echoes_congestion = false;
        }
        if segment.is_pure_ack() && !segment.has_ranges() {
            return FromNear::Acknowledges(segment.ack);
        }
        if segment.len == 0 || segment.has(flag::URG) {
            return FromNear::Pass;
        }
        if beyond(segment.end(), self.next) <= 0 {
            // With nothing outstanding it asks whether the far end is alive.
            if self.outstanding() == 0 {
                return FromNear::Pass;
            }
            self.is_due = true;
            return if fin { FromNear::Pass } else { FromNear::Drop };
        }
        // It was not told that it may send this: it asks for the window, and the far end answers.
        if beyond(segment.end(), self.edge) > 0 {
            return FromNear::Pass;
        }
        let range = (segment.seq, segment.end());
        if beyond(segment.seq, self.next) > 0 {
            return self.on_early(range, may_keep);
        }
        if !may_keep() {
            return FromNear::Pass;
        }
        self.advance(range.1);
        self.far_window.on_sent(now, self.confirmed, self.next);
        self.measure(now);
        if self.fills_window() {
            self.filled_window.on_filled();
        }
        if let (Some(own), Some(times)) = (&mut self.times, segment.times) {
            own.echo = times.value;
        }
        self.is_due = true;
        FromNear::Keep
    }

    /// What the near end has of the far one's, and still takes.
    fn note_near_ack(&mut self, segment: &Segment) {
        let is_news = beyond(segment.ack, self.near_ack) >= 0;
        if !segment.has(flag::ACK) || !is_news || beyond(segment.ack, self.near_edge) > 0 {
            return;
        }
        self.near_ack = segment.ack;
        self.near_window = segment.window;
        self.near_time = segment.times.or(self.near_time);
        let scale = self.near_scale();
        let edge = segment.ack.wrapping_add(u32::from(segment.window) << scale);
        if beyond(edge, self.near_edge) > 0 {
            self.near_edge = edge;
        }
        if beyond(self.near_ack, self.far_next) > 0 {
            self.far_next = self.near_ack;
        }
    }

    /// A segment of the near end behind a hole.
    fn on_early(&mut self, range: Range, may_keep: impl FnOnce() -> bool) -> FromNear {
        let contains =
            |other: &Range| beyond(range.0, other.0) >= 0 && beyond(other.1, range.1) >= 0;
        if self.early.iter().any(contains) {
            self.is_due = true;
            return FromNear::Drop;
        }
        let touches =
            |other: &Range| beyond(range.1, other.0) >= 0 && beyond(other.1, range.0) >= 0;
        let joins = self.early.iter().any(touches);
        if (!joins && self.early.is_full()) || !may_keep() {
            return FromNear::Pass;
        }
        let mut whole = range;
        self.early.retain(|other| {
            let joined = touches(other);
            if joined {
                whole.0 = if beyond(whole.0, other.0) > 0 { other.0 } else { whole.0 };
                whole.1 = if beyond(other.1, whole.1) > 0 { other.1 } else { whole.1 };
            }
            !joined
        });
        // The last one that changed is told first (RFC 2018 §4).
        self.early.insert(0, whole);
        self.is_due = true;
        FromNear::Keep
    }

    /// All below `end` is here, and what was early behind it.
    fn advance(&mut self, end: u32) {
        self.next = end;
        while let Some(at) = self.early.iter().position(|early| beyond(early.0, self.next) <= 0) {
            let (_, end) = self.early.remove(at);
            if beyond(end, self.next) > 0 {
                self.next = end;
            }
        }
    }

    /// Keeps a segment of the near end.
    pub(super) fn keep(&mut self, now: Instant, segment: &Segment, packet: PacketBuffer) {
        if self.kept.is_empty() {
            (self.progress_at, self.timeouts) = (now, 0);
        }
        self.tail.note_kept(now);
        self.kept.keep(Kept::new(segment.seq, segment.end(), packet));
    }

    /// The near end's segments met congestion on their way here.
    pub(super) fn note_congestion(&mut self) {
        self.echoes_congestion = true;
    }

    /// A segment of the far end. Buffers that are needed no more go to `free`.
    pub(super) fn on_far(
        &mut self,
        now: Instant,
        segment: &Segment,
        free: impl FnMut(PacketBuffer),
    ) -> FromFar {
        self.used_at = now;
        if !self.is_open {
            return FromFar::Pass;
        }
        // Of what the near end does not take, or has, nothing is believed (RFC 9293 §3.4, RFC 5961 §5), nor of an acknowledgement
        // of what was never sent.
        let fin = segment.has(flag::FIN);
        let behind = segment.end().wrapping_add(fin.into());
        if beyond(segment.seq, self.near_edge) > 0
            || beyond(behind, self.near_ack) < -1
            || !segment.has(flag::ACK)
            || beyond(segment.ack, self.sent) > 0
            || beyond(self.confirmed, segment.ack) > MOST_WINDOW
        {
            return FromFar::Pass;
        }
        if beyond(behind, self.far_next) > 0 {
            self.far_next = behind;
        }
        self.far_ended |= fin;
        if let (Some(own), Some(times)) = (&mut self.times, segment.times)
            && beyond(times.value, own.value) > 0
        {
            own.value = times.value;
        }
        self.on_ack(now, segment, free);
        if self.outstanding() == 0 {
            return self.limit(segment);
        }
        match segment.is_pure_ack() {
            // An end that asks for another connection hears that there is one.
            true if self.successor.is_some() => FromFar::Pass,
            true => FromFar::Absorb,
            false => FromFar::Rewrite { ack: self.next, window: self.window(self.next) },
        }
    }

    /// What the far end acknowledges.
    fn on_ack(&mut self, now: Instant, segment: &Segment, free: impl FnMut(PacketBuffer)) {
        let edge = segment.ack.wrapping_add(u32::from(segment.window) << self.scale());
        let is_wider = beyond(edge, self.far_edge) > 0;
        if is_wider {
            self.far_edge = edge;
            self.is_limited = true;
        }
        self.note_answer(segment, is_wider);
        if beyond(segment.ack, self.confirmed) >= 0 {
            self.note_window(segment);
            self.far_trip.on_confirmed(now, segment.ack);
            self.filled_window.on_offered(u32::from(segment.window) << self.scale());
        }
        let confirms = beyond(segment.ack, self.confirmed) > 0;
        if confirms {
            self.confirmed = segment.ack;
            self.recover(segment.ack);
            (self.progress_at, self.timeouts) = (now, 0);
            self.kept.confirm(segment.ack, free);
            if beyond(segment.ack, self.next) > 0 {
                self.advance(segment.ack);
                self.is_due |= self.outstanding() > 0;
            }
            self.far_window.on_confirmed(now, self.confirmed, self.next);
            self.note_repaired();
        }
        if segment.ack == self.confirmed {
            match self.has_sack() {
                true => self.note_ranges(segment),
                false if confirms || is_wider => {}
                false => self.note_duplicate(segment),
            }
        }
    }

    /// The far end's own words go to the near one, but for a window larger than what may wait here.
    fn limit(&mut self, segment: &Segment) -> FromFar {
        self.raise_edge(self.most);
        let window = self.window(segment.ack);
        // One that is not newer than what the near end knows says what it said.
        match window < segment.window && segment.ack == self.confirmed {
            true => FromFar::Rewrite { ack: segment.ack, window },
            false => FromFar::Pass,
        }
    }

    /// The near end may send so much ahead, if the far end takes it. What it may send is never taken back.
    fn raise_edge(&mut self, room: u32) {
        let own = self.next.wrapping_add(room);
        let edge = if beyond(self.far_edge, own) > 0 { own } else { self.far_edge };
        if beyond(edge, self.edge) > 0 {
            self.edge = edge;
        }
    }

    /// The window as it stands beside this acknowledgement.
    fn window(&self, ack: u32) -> u16 {
        let bytes = u32::try_from(beyond(self.edge, ack)).unwrap_or(0);
        u16::try_from(bytes >> self.scale()).unwrap_or(u16::MAX)
    }

    /// Whether the far end takes so much more that the near end may have to be told.
    pub(super) fn far_edge_moved(&mut self) -> bool {
        let moved = u32::try_from(beyond(self.far_edge, self.looked_edge)).unwrap_or(0);
        let is_worth_a_look = self.outstanding() > 0 && moved >= self.step();
        if is_worth_a_look {
            self.looked_edge = self.far_edge;
        }
        is_worth_a_look
    }

    /// How much more the near end must be allowed to send to be told so: a part of what it can have at most.
    fn step(&self) -> u32 {
        let of_far = u32::try_from(beyond(self.far_edge, self.confirmed)).unwrap_or(0);
        (self.most.min(of_far) / WINDOW_PARTS).max(1)
    }

    /// How much may wait or be under way of it, and how much of that there is room for, while `waiting` bytes wait of the `most`
    /// that may.
    pub(super) fn room(&mut self, explained: Explained, most: u32, waiting: u32) -> (u32, u32) {
        let room = most.saturating_sub(waiting);
        let under_way = self.outstanding();
        match self.far_window.most(explained, self.near_trip.least(), under_way) {
            None => (most, room),
            Some(far) => (most.min(far), room.min(far.saturating_sub(under_way))),
        }
    }

    /// While `waiting` bytes of it wait, and there is `room` for more, of the `most` that may be: whether the near end is to be told
    /// something.
    pub(super) fn has_news(&mut self, most: u32, waiting: u32, room: u32) -> bool {
        self.most = most;
        let before = self.edge;
        let ahead = u32::try_from(beyond(self.far_edge, self.next)).unwrap_or(0);
        self.is_limited = waiting > 0 && room < ahead;
        let own = room.min(ahead);
        let told = u32::try_from(beyond(before, self.next)).unwrap_or(0);
        // A little more is told with the next acknowledgement.
        self.is_due || own.saturating_sub(told) >= self.step()
    }

    /// The acknowledgement that is due, while so much may be sent ahead.
    pub(super) fn acknowledge(&mut self, now: Instant, room: u32) -> Answer {
        self.is_due = false;
        let before = self.edge;
        self.raise_edge(room);
        self.note_told(now, before);
        let has_sack = self.has_sack();
        let told = if has_sack { MOST_RANGES } else { 0 };
        Answer {
            ends: self.ends.reversed(),
            seq: self.far_next,
            ack: self.next,
            window: self.window(self.next),
            flags: if self.echoes_congestion { flag::ECE } else { 0 },
            times: self.times,
            sacks: self.early.iter().copied().take(told).collect(),
        }
    }

    /// Whether anything is kept.
    pub(super) fn keeps(&self) -> bool {
        !self.kept.is_empty()
    }

    /// The segment that ends the connection for the near end.
    pub(super) fn reset(&self) -> Answer {
        Answer {
            ends: self.ends.reversed(),
            seq: self.far_next,
            ack: self.next,
            window: 0,
            flags: flag::RST,
            times: None,
            sacks: ArrayVec::new(),
        }
    }

    /// What it kept is needed no more.
    pub(super) fn release(&mut self, free: impl FnMut(PacketBuffer)) {
        self.kept.clear(free);
    }
}
