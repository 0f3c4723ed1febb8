//! The last segments of a burst: nothing comes behind them that would tell of their loss.
//!
//! A far end tells of a hole by what it has beyond it, and three segments are proof. Where fewer follow, a wait that is far shorter than
//! the timeout takes the place of the rest. It lasts two round trips (`PTO` of RFC 8985 §7.2) from the last segment or
//! confirmation, whichever is later: by then an acknowledgement is overdue, and a segment that was only reordered has come (RFC 8985
//! §6.2 allows for one round trip). What is due then happens at the next look.
//!
//! - **One or two beyond a hole**, or one or two acknowledgements that say nothing new, of a far end without ranges: the first hole is
//!   lost, as if there were three (RFC 5827 lowers the number, too, but has no wait).
//! - **None, and nothing confirmed**: the last segment goes once more, as a probe (TLP, RFC 8985 §7). If it alone was lost, all is
//!   repaired. If more was, the far end has something beyond the hole then, and the rule above finds that. New data need no rule:
//!   they are sent as they come.
//! - **One probe** for each tail, and none before the round trip was measured again (§7.3). If it is lost, too, the timeout remains. It
//!   comes when it would have come without a probe, but leaves that the time to be answered; one that comes sooner takes the probe's place.
//! - **Congestion**: what a probe repaired by itself was a loss like any other (§7.4.2). A far end that had all tells that the probe
//!   came twice (D-SACK, RFC 2883), or says nothing new: then nothing was lost.

use super::Connection;
use crate::time::{Duration, Instant};
use crate::tunnel::local_ack::segment::{Range, Segment, beyond};

/// Round trips that a far end may say nothing (RFC 8985 §7.2).
const ROUND_TRIPS: u32 = 2;

/// The shortest wait. RFC 8985 names none; the draft before it had this (draft-dukkipati-tcpm-tcp-loss-probe-01 §2.1), as clocks and
/// queues of a millisecond count for more than two round trips of a local network.
const LEAST: Duration = Duration::from_millis(10);

/// How long a far end may wait for a second segment before it acknowledges one (`TLP.max_ack_delay`). RFC 8985 leaves the value open,
/// RFC 1122 §4.2.3.2 allows 500 ms; Linux waits 200 ms at most, and its probes allow for as much.
const MOST_ACK_DELAY: Duration = Duration::from_millis(200);

/// A last segment that went once more.
#[derive(Clone, Copy, Debug)]
struct Probe {
    /// Where it begins.
    seq: u32,
    /// Behind the highest number that had been sent by then (`TLP.end_seq`).
    end: u32,
    /// The timeout does not end before.
    answered_by: Instant,
}

/// What is known of the last segments of one connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tail {
    /// When the last one came, or at a later look may just have left the tunnel's queue.
    sent_at: Instant,
    /// Some were in that queue at the last look.
    is_waiting: bool,
    /// Of which it is not known yet whether it was needed.
    probe: Option<Probe>,
}

/// What a look at the last segments finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// Nothing is overdue.
    Nothing,
    /// The first hole is lost. What of it went again less than this ago may still be answered.
    Hole(Duration),
    /// This is to go as a probe.
    Probe(Range),
}

impl Tail {
    /// A new segment is kept.
    pub(super) fn note_kept(&mut self, now: Instant) {
        self.sent_at = now;
    }

    /// What goes by a repair tells nothing of a probe (RFC 8985 §7.1).
    pub(super) fn forget_probe(&mut self) {
        self.probe = None;
    }

    /// By when a probe is answered that went.
    pub(super) fn answered_by(&self) -> Instant {
        self.probe.map_or(Instant::ZERO, |probe| probe.answered_by)
    }
}

impl Connection {
    /// All below `next` is taken over. While something goes again, its confirmation would say how long that takes.
    pub(super) fn measure(&mut self, now: Instant) {
        if !self.is_repairing() {
            self.far_trip.on_sent(now, self.next);
        }
    }

    /// A look: finds the hole for which a wait is proof enough, or the last segment.
    pub(super) fn look_at_tail(
        &mut self,
        now: Instant,
        round_trip: Duration,
        is_waiting: bool,
    ) -> Found {
        let was_waiting = std::mem::replace(&mut self.tail.is_waiting, is_waiting);
        if is_waiting || was_waiting {
            self.tail.sent_at = now;
        }
        if self.is_repairing() {
            self.tail.forget_probe();
            return Found::Nothing;
        }
        let Some(trip) = self.far_trip.smoothed() else { return Found::Nothing };
        if self.is_shut || self.goes_again || self.kept.is_empty() {
            return Found::Nothing;
        }
        // The last segments may have gone over the link that takes longest, and what was measured over another.
        let trip = trip.max(round_trip);
        let wait = (trip * ROUND_TRIPS).max(LEAST);
        let silent = now.since(self.progress_at.max(self.tail.sent_at));
        if silent < wait {
            return Found::Nothing;
        }
        if self.kept.begins_with_hole() || self.duplicates > 0 {
            self.looks_for_holes = true;
            self.repairing = Some(self.next);
            if !self.kept.has_marks() {
                self.far_window.on_loss();
            }
            return Found::Hole(wait);
        }
        self.probe(now, wait, silent).map_or(Found::Nothing, Found::Probe)
    }

    /// The last segment, if it is to go as a probe when the far end has said nothing for so long.
    fn probe(&mut self, now: Instant, wait: Duration, silent: Duration) -> Option<Range> {
        let is_alone = self.kept.len() == 1;
        let wait = if is_alone { wait + MOST_ACK_DELAY } else { wait };
        // A hole before the tunnel is the near end's to fill, and a far end without ranges could not tell of more holes.
        let may_go = silent >= wait
            && self.has_sack()
            && self.early.is_empty()
            && !self.kept.has_marks()
            && self.tail.probe.is_none()
            && self.far_trip.is_fresh();
        let (seq, end) = self.kept.last().filter(|_| may_go)?;
        self.tail.probe = Some(Probe { seq, end: self.sent, answered_by: now + wait });
        self.far_trip.on_probe();
        Some((seq, end))
    }

    /// Whether an acknowledgement tells that a probe was needed, or that it was not (RFC 8985 §7.4.2). To be asked before anything
    /// else is made of it.
    pub(super) fn note_answer(&mut self, segment: &Segment, is_wider: bool) {
        let Some(Probe { seq, end, .. }) = self.tail.probe else { return };
        let ahead = beyond(segment.ack, end);
        if ahead < 0 {
            return;
        }
        let came_twice = segment.sacks[0].is_some_and(|(from, to)| {
            beyond(from, seq) >= 0 && beyond(to, from) > 0 && beyond(end, to) >= 0
        });
        let says_nothing_new = segment.ack == self.confirmed
            && segment.is_pure_ack()
            && !segment.has_ranges()
            && !is_wider;
        if came_twice || (ahead == 0 && says_nothing_new) {
            self.tail.forget_probe();
        } else if ahead > 0 {
            self.tail.forget_probe();
            self.far_window.on_loss();
        }
    }

    /// Whether something goes again of which not all is confirmed.
    const fn is_repairing(&self) -> bool {
        self.repairing.is_some() || self.recovery.is_some()
    }
}
