//! Copies of the last packets of a burst, whose answer is late.
//!
//! Nothing follows the last packets of a burst, so nothing tells of their loss until an answer is overdue: several round trips later
//! on a link that is new, or whose delays vary. The first packets of a download are such a burst, and all that it brings waits for
//! them. So where nothing waits for a link, the first packets that are not confirmed go once more as soon as an answer should have
//! come, over the link of the others on which they are there soonest. (MPTCP does so over another path as well: Raiciu et al., NSDI
//! 2012, section 4.2. TCP probes its only one: RFC 8985 §7.)
//!
//! An early copy is sent where it arrives before what goes the same way when the answer is overdue, and is counted as a repair. It
//! may also be one from the middle of a flow that sends little. What all of them cost is bounded. Packets of a call are not copied:
//! the next of them, a moment later, tell what was lost. And none goes where either link shows a queue: an answer is late there because
//! others wait as well, and a copy would be one more of them. (Without this rule two links over one bottleneck had up to 4.1 times what
//! a plain connection beside them had; with it, as without copies, up to 2.9.)

use super::redundant::second_link;
use super::repair::{Repair, Unconfirmed, Way};
use super::resend::outgoing;
use super::{Egress, Outlet};
use crate::sink::TransmitSink;
use crate::time::{Duration, Instant};
use crate::tunnel::link::{Duty, Link};
use crate::tunnel::links::LinkSet;
use crate::tunnel::session::Made;

/// The first numbers that are not confirmed, among which late ones are looked for: what a burst ends with.
const FIRST: usize = 16;

/// How long a report is waited for beyond the round trip. It may take 25 ms, but what came in a burst is mostly reported at once: in
/// random pairs of links one TCP gained a third of what it gains with this when all of the 25 ms were waited for.
const REPORT: Duration = Duration::from_millis(5);

/// No link took a copy: the next try is so much later.
const PAUSE: Duration = Duration::from_millis(10);

/// Early copies may cost this part of the bytes that are sent.
const PART: usize = 16;

/// Most bytes of that which are saved up: eight full packets.
const MOST_CREDIT: usize = 12_000;

/// What early copies may cost, and when the next one is tried.
#[derive(Debug)]
pub(super) struct EarlyCopies {
    /// Bytes that were sent and not used up: a copy uses [`PART`] times its own.
    credit: usize,
    not_before: Instant,
}

impl EarlyCopies {
    /// All that may be saved up is.
    pub(super) const fn new(now: Instant) -> Self {
        Self { credit: MOST_CREDIT * PART, not_before: now }
    }

    /// A packet of so many bytes left for the first time.
    #[inline]
    pub(super) fn on_sent(&mut self, bytes: usize) {
        self.credit = (self.credit + bytes).min(MOST_CREDIT * PART);
    }

    const fn affords(&self, bytes: usize) -> bool {
        bytes * PART <= self.credit
    }

    const fn spend(&mut self, bytes: usize) {
        self.credit = self.credit.saturating_sub(bytes * PART);
    }
}

impl Egress {
    /// When the next early copy is due.
    pub(in crate::tunnel) fn early_copy_at(&self, links: &LinkSet) -> Option<Instant> {
        if self.waiting_for_links().0 > 0 || self.has_lost() {
            return None;
        }
        let carry = |link: &&Link| {
            let agreed = &link.agreed;
            agreed.duty() == Duty::Carries && agreed.terms.carries && link.life.is_up()
        };
        links.iter().filter(carry).nth(1)?;
        late(self.repair.as_ref()?, links, &self.early).map(|(_, due)| due).min()
    }

    /// Step 7: copies what is late. `false`: the batch is full.
    pub(super) fn send_early_copies<T: TransmitSink>(
        &mut self,
        now: Instant,
        to: &mut Outlet<'_, T>,
    ) -> bool {
        while self.early_copy_at(to.links).is_some_and(|at| at <= now) {
            match self.send_early_copy(now, to) {
                Some(Made::Sent) => {}
                Some(Made::Full) => return false,
                Some(Made::Refused) | None => self.early.not_before = now + PAUSE,
            }
        }
        true
    }

    /// The first packet that is late and that another link takes, and that link's place.
    fn first_late(&self, now: Instant, links: &LinkSet) -> Option<(u64, usize)> {
        let repair = self.repair.as_ref()?;
        let mut due = late(repair, links, &self.early).filter(|(_, due)| *due <= now);
        due.find_map(|(global, _)| {
            let kept = repair.kept(global)?;
            let at = second_link(now, links, kept)?;
            let takes = !links[at].shows_queue() && pays(now, links, kept, &links[at]);
            takes.then_some((global, at))
        })
    }

    /// Copies the first that is late. `None`: no link takes any.
    fn send_early_copy<T: TransmitSink>(
        &mut self,
        now: Instant,
        to: &mut Outlet<'_, T>,
    ) -> Option<Made> {
        let (global, at) = self.first_late(now, to.links)?;
        let repair = self.repair.as_mut()?;
        let kept = repair.kept(global)?;
        let link = &mut to.links[at];
        let way = Way { link: link.id, number: link.sender.next_number() };
        let bytes = kept.packet.len();
        let made = to.session.packet(now, link, &outgoing((global, kept)), None, to.out);
        if made == Made::Sent {
            if let Some(meter) = &mut self.meter {
                meter.count(kept.sent.flow, link.id, &kept.packet);
            }
            repair.on_copied_early(global, way);
            self.early.spend(bytes);
        }
        Some(made)
    }
}

/// The packets that may be copied once their answer is late, and when that is. What follows a packet that is of use for a moment only
/// tells of its loss: none of those.
fn late(
    repair: &Repair,
    links: &LinkSet,
    early: &EarlyCopies,
) -> impl Iterator<Item = (u64, Instant)> {
    repair.first(FIRST).filter_map(|(global, kept)| {
        let may_be_copied =
            kept.copy.is_none() && kept.sent.came.is_none() && early.affords(kept.packet.len());
        let answer =
            Answer::of(links, kept).filter(|answer| may_be_copied && !answer.link.shows_queue())?;
        Some((global, answer.late_at.max(early.not_before)))
    })
}

/// Whether what goes over the other link now arrives before what would go the same way when the answer is overdue: a copy that comes
/// later than that saves little.
fn pays(now: Instant, links: &LinkSet, kept: &Unconfirmed, other: &Link) -> bool {
    let Some(Answer { link, overdue_at, .. }) = Answer::of(links, kept) else { return false };
    let overdue_in = i64::try_from(overdue_at.since(now).as_micros()).unwrap_or(i64::MAX);
    let arrives_in = |link: &Link| link.view_with_arrival(now, kept.packet.len()).arrives_us;
    let ways = arrives_in(link).zip(arrives_in(other));
    ways.is_none_or(|(same, other)| other <= same.saturating_add(overdue_in))
}

/// When an answer to a packet should come.
struct Answer<'a> {
    /// The link that it went over.
    link: &'a Link,
    /// Where nothing is lost, it has come by then.
    late_at: Instant,
    /// The link is doubted then, if nothing that was sent later was answered.
    overdue_at: Instant,
}

impl<'a> Answer<'a> {
    fn of(links: &'a LinkSet, kept: &Unconfirmed) -> Option<Self> {
        let link = &links[links.position(kept.sent.link).ok()?];
        let left_at = link.sender.sent_at(kept.sent.number)?;
        let rtt = link.sender.rtt();
        let overdue_at = left_at + rtt.patience()?;
        // A quarter of the round trip is left to what overtakes, as everywhere (RFC 8985 §6.2).
        let late_at = left_at + rtt.srtt()? * 5 / 4 + rtt.rttvar()? + REPORT;
        Some(Self { link, late_at: late_at.min(overdue_at), overdue_at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_cost_a_sixteenth_of_what_is_sent_and_eight_packets_at_once() {
        let mut copies = EarlyCopies::new(Instant::ZERO);
        let spent = |copies: &mut EarlyCopies| {
            let mut bytes = 0;
            while copies.affords(1500) {
                copies.spend(1500);
                bytes += 1500;
            }
            bytes
        };
        assert_eq!(spent(&mut copies), MOST_CREDIT);
        assert!(!copies.affords(1));
        for (sent, most) in [(1500, 0), (22_500, 1500), (48_000, 3000), (1_000_000, MOST_CREDIT)] {
            copies.on_sent(sent);
            assert_eq!(spent(&mut copies), most, "{sent} bytes");
        }
    }
}
