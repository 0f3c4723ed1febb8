//! Why a state machine wants to be woken.
//!
//! `poll_timeout` says when and why, so that whoever looks at a machine that wakes a thousand times a second can read which
//! part asks for it.

use crate::time::Instant;
use crate::units::LinkId;

/// A deadline and what it is for.
pub type Wakeup = (Instant, Timer);

/// What a deadline is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Timer {
    /// When the client asks for a session, or asks again.
    Handshake,
    /// When a session that was never used, or has ended, is forgotten.
    Session,
    /// When a packet has waited too long for a link.
    QueueAge,
    /// When a paced link has room for what waits.
    Pacing,
    /// When an answer is overdue on a link, and what is under way there goes over the others.
    Suspicion,
    /// When the answer to the last packets of a burst is late, and they go over a second link.
    EarlyCopy,
    /// When the wait for a missing packet ends.
    Resequencing,
    /// When fresh keys are asked for, or asked for again.
    Rekey,
    /// When keys that were replaced are forgotten.
    KeyExpiry,
    /// When the peer is told again of a link that was removed.
    Leave,
    /// When the next step of the tunnel's end is taken.
    Close,
    /// When senders of TCP are told what has arrived, or what they wait to hear of is looked after.
    LocalAcknowledgement,
    /// When memory kept for packets is given back.
    Memory,
    /// When the help of backups is judged.
    Backup,
    /// When a speed test is asked for again, measures round trips, or is over.
    SpeedTest,
    /// When the proxy asks for no cookies any more.
    Calm,
    /// A timer of one link.
    Link(LinkId, LinkTimer),
}

/// What a deadline of a link is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LinkTimer {
    /// When all in flight counts as lost (RFC 6298).
    Retransmission,
    /// When the link has waited long enough for its path MTU, is asked in doubt or again, or is given up.
    Liveness,
    /// When an echo is due that the peer asked for.
    Echo,
    /// When the peer is told what came.
    Report,
    /// When the path MTU is probed, or a probe counts as lost.
    PathMtu,
    /// When an address is asked for its proof, or the path moves there.
    PathValidation,
    /// When NATs on the way must hear of the link.
    Keepalive,
    /// When an idle link says that nothing is under way on it.
    Mark,
    /// When a link that fell silent is asked whether its NAT still knows it.
    Silence,
    /// When an idle link is asked how it does.
    Sense,
}

/// The earlier of two optional deadlines; of two at one time the first.
#[must_use]
pub fn sooner(a: Option<Wakeup>, b: Option<Wakeup>) -> Option<Wakeup> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if b.0 < a.0 { b } else { a }),
        (a, b) => a.or(b),
    }
}

/// The earliest of some deadlines, each with what it is for.
pub(crate) fn soonest(
    timers: impl IntoIterator<Item = (Option<Instant>, Timer)>,
) -> Option<Wakeup> {
    timers.into_iter().fold(None, |least, (at, timer)| sooner(least, at.map(|at| (at, timer))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_deadline_is_told_with_its_reason_and_of_equal_ones_the_first() {
        let at = Instant::from_millis;
        let table = [
            (vec![], None),
            (vec![(None, Timer::Rekey)], None),
            (vec![(Some(at(2)), Timer::Rekey), (None, Timer::Leave)], Some((at(2), Timer::Rekey))),
            (
                vec![(Some(at(2)), Timer::Rekey), (Some(at(1)), Timer::Leave)],
                Some((at(1), Timer::Leave)),
            ),
            (
                vec![(Some(at(1)), Timer::Rekey), (Some(at(1)), Timer::Leave)],
                Some((at(1), Timer::Rekey)),
            ),
        ];
        for (timers, expected) in table {
            assert_eq!(soonest(timers.clone()), expected, "{timers:?}");
        }
    }
}
