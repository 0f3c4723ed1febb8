//! What one link's own order proves: which global numbers can no longer arrive on it.
//!
//! The sender gives global numbers in the order of sealing and local numbers in the order of sealing
//! on one link. Each datagram therefore makes a **claim** about the lower local numbers of its link; one with several
//! packets makes one for each of them:
//!
//! - *floor*: whatever was sealed on this link after it has a global number of at least `floor`
//!   (a packet's own number + 1, or the sender's next number on a datagram without data). So a number
//!   below `floor` that went on this link went in a lower local number, or before it in the same datagram;
//! - *previous*: the global number `p` went on this link, in a lower local number.
//!
//! A claim of datagram `n` is **mature** when no local number below `n` can still arrive: each arrived
//! or is given up. A missing one is given up when the link has delivered something more than
//! `tolerance.distance` above it *and* more than `tolerance.lateness` has passed since it was first
//! overtaken. Both must hold, because each is measured under one load and may be too small under
//! another; with zero tolerance (the paper's assumption, and where every link starts) the first higher
//! number is enough. A link whose path changed keeps its missing numbers for a while whatever its
//! tolerance: what is under way on the old path may be overtaken by the new one.
//!
//! Mature floors say what (b) of the parent module needs, mature previous numbers what (a) needs. The
//! number itself of a local gap says nothing: it may have been a report.
//!
//! Memory: the missing numbers are runs ([`Gap`]), each carrying the claims made between it and the
//! next gap. One floor (the highest) and one previous number suffice there: within a run without gaps
//! every previous number but the first one's has arrived.

use crate::link::reordering::Tolerance;
use crate::time::{Duration, Instant};
use std::collections::VecDeque;

/// Gaps remembered per link. More at once means reordering far beyond any tolerance; the two oldest
/// are then taken as one larger gap, which delays proofs and never makes a false one.
const MAX_GAPS: usize = 64;

/// What a datagram says about the lower local numbers of its link.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    /// What follows it on the link has a global number of at least this.
    pub(super) floor: u64,
    /// This global number went before it on the link and has not come.
    pub(super) previous: Option<u64>,
}

/// A run of local numbers that may still arrive, and the claims made right above it.
#[derive(Debug)]
struct Gap {
    start: u64,
    /// One above the last missing number.
    end: u64,
    /// When it was first overtaken.
    since: Instant,
    above: Claim,
}

/// The order of one link, as the receiver sees it.
#[derive(Debug)]
pub(super) struct LinkOrder {
    /// One above the highest local number that arrived.
    next: u64,
    /// Nothing below this global number can still arrive here.
    floor: u64,
    gaps: VecDeque<Gap>,
    tolerance: Tolerance,
    /// No missing number is given up before.
    patient_until: Option<Instant>,
}

impl LinkOrder {
    /// A link on which only global numbers from `first_global` on can ever come.
    pub(super) fn new(first_global: u64) -> Self {
        Self {
            next: 0,
            floor: first_global,
            gaps: VecDeque::new(),
            tolerance: Tolerance::default(),
            patient_until: None,
        }
    }

    pub(super) fn set_tolerance(&mut self, tolerance: Tolerance) {
        self.tolerance = tolerance;
    }

    /// Gives up no missing number before `until`.
    pub(super) fn be_patient(&mut self, until: Instant) {
        self.patient_until = Some(until);
    }

    /// Nothing below this global number can still arrive on this link.
    pub(super) fn floor(&self) -> u64 {
        self.floor
    }

    /// Whether every local number below `end` arrived or was given up.
    pub(super) fn is_complete_below(&self, end: u64) -> bool {
        self.gaps.is_empty() && self.next >= end
    }

    /// A datagram arrived. Global numbers that it proves lost by name are pushed on `proven`.
    pub(super) fn on_arrival(
        &mut self,
        now: Instant,
        local: u64,
        claim: Claim,
        proven: &mut Vec<u64>,
    ) {
        if local >= self.next {
            if local > self.next {
                let above = Claim { floor: 0, previous: None };
                self.gaps.push_back(Gap { start: self.next, end: local, since: now, above });
                self.bound();
            }
            self.next = local.saturating_add(1);
            self.claim_above(self.gaps.len(), claim, proven);
        } else if let Some(index) = self.gap_with(local) {
            self.fill(index, local, claim, proven);
        } else {
            // Another packet of a datagram that came: what it claims stands above the same gaps.
            let below = self.gaps.partition_point(|gap| gap.start <= local);
            self.claim_above(below, claim, proven);
        }
        self.mature(now, proven);
    }

    /// Gives up the missing numbers that are beyond the tolerance by now.
    #[inline]
    pub(super) fn mature(&mut self, now: Instant, proven: &mut Vec<u64>) {
        if !self.gaps.is_empty() {
            self.give_up(now, proven);
        }
    }

    fn give_up(&mut self, now: Instant, proven: &mut Vec<u64>) {
        while self.due().is_some_and(|due| now >= due) {
            let Some(gap) = self.gaps.pop_front() else { return };
            self.claim_above(0, gap.above, proven);
        }
    }

    /// When the oldest gap will be given up; `None` as long as a higher local number has to come
    /// first.
    pub(super) fn due(&self) -> Option<Instant> {
        let gap = self.gaps.front()?;
        let far_enough = self.next - gap.end > self.tolerance.distance;
        if !far_enough {
            return None;
        }
        let due = match self.tolerance.lateness {
            Duration::ZERO => gap.since,
            // "more than" the tolerance: what takes exactly as long is still awaited.
            lateness => gap.since + lateness + Duration::from_nanos(1),
        };
        // Lower gaps were overtaken no later than higher ones, so the first gap is always due first.
        Some(
            self.patient_until
                .filter(|until| gap.since < *until)
                .map_or(due, |until| due.max(until)),
        )
    }

    fn gap_with(&self, local: u64) -> Option<usize> {
        let index = self.gaps.partition_point(|gap| gap.start <= local).checked_sub(1)?;
        (local < self.gaps[index].end).then_some(index)
    }

    /// Takes `local` out of a gap, which may shrink, split or vanish.
    fn fill(&mut self, index: usize, local: u64, claim: Claim, proven: &mut Vec<u64>) {
        let gap = &mut self.gaps[index];
        match (local > gap.start, local + 1 < gap.end) {
            (true, true) => {
                let upper =
                    Gap { start: local + 1, end: gap.end, since: gap.since, above: gap.above };
                gap.end = local;
                gap.above = claim;
                self.gaps.insert(index + 1, upper);
                self.bound();
            }
            (true, false) => {
                gap.end = local;
                gap.above.merge(claim);
            }
            (false, true) => {
                gap.start = local + 1;
                self.claim_above(index, claim, proven);
            }
            (false, false) => {
                let mut above = gap.above;
                above.merge(claim);
                self.gaps.remove(index);
                self.claim_above(index, above, proven);
            }
        }
    }

    /// Notes a claim made above the first `gaps` gaps; above none it is mature.
    fn claim_above(&mut self, gaps: usize, claim: Claim, proven: &mut Vec<u64>) {
        if let Some(index) = gaps.checked_sub(1) {
            self.gaps[index].above.merge(claim);
        } else {
            self.floor = self.floor.max(claim.floor);
            if let Some(previous) = claim.previous {
                proven.push(previous);
            }
        }
    }

    fn bound(&mut self) {
        if self.gaps.len() > MAX_GAPS
            && let Some(oldest) = self.gaps.pop_front()
            && let Some(second) = self.gaps.front_mut()
        {
            second.start = oldest.start;
            second.above.merge(oldest.above);
        }
    }
}

impl Claim {
    fn merge(&mut self, other: Self) {
        self.floor = self.floor.max(other.floor);
        self.previous = self.previous.or(other.previous);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(global: u64, previous: Option<u64>) -> Claim {
        Claim { floor: global + 1, previous }
    }

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    #[test]
    fn in_a_link_that_keeps_its_order_each_datagram_proves_at_once() {
        let (mut link, mut proven) = (LinkOrder::new(0), Vec::new());
        link.on_arrival(at(0), 0, data(0, None), &mut proven);
        link.on_arrival(at(1), 5, data(9, Some(7)), &mut proven);
        assert_eq!((link.floor(), proven.as_slice()), (10, [7].as_slice()));
        assert!(link.gaps.is_empty());
    }

    #[test]
    fn within_the_tolerance_a_claim_waits_for_the_gap_below_it() {
        let (mut link, mut proven) = (LinkOrder::new(0), Vec::new());
        link.set_tolerance(Tolerance { distance: 2, lateness: Duration::ZERO });
        link.on_arrival(at(0), 0, data(0, None), &mut proven);
        link.on_arrival(at(1), 2, data(20, Some(10)), &mut proven);
        link.on_arrival(at(2), 3, data(30, None), &mut proven);
        assert_eq!((link.floor(), proven.len()), (1, 0), "number 1 may still come");
        link.on_arrival(at(3), 4, data(40, None), &mut proven);
        assert_eq!(
            (link.floor(), proven.as_slice()),
            (41, [10].as_slice()),
            "three above: given up"
        );
    }

    #[test]
    fn a_filled_gap_matures_what_stood_above_it() {
        let (mut link, mut proven) = (LinkOrder::new(0), Vec::new());
        link.set_tolerance(Tolerance { distance: 100, lateness: Duration::ZERO });
        for (local, global) in [(0, 0), (4, 40), (2, 20), (9, 90)] {
            link.on_arrival(at(local), local, data(global, None), &mut proven);
        }
        assert_eq!(link.floor(), 1);
        link.on_arrival(at(5), 1, data(10, None), &mut proven);
        assert_eq!(link.floor(), 21);
        link.on_arrival(at(6), 3, data(30, None), &mut proven);
        assert_eq!(link.floor(), 41);
    }

    #[test]
    fn each_packet_of_a_datagram_claims_for_itself_above_the_same_gaps() {
        let (mut link, mut proven) = (LinkOrder::new(0), Vec::new());
        link.set_tolerance(Tolerance { distance: 100, lateness: Duration::ZERO });
        // Numbers between those of a datagram went on other links.
        for (local, globals) in [(0, [0, 3]), (4, [40, 43]), (2, [20, 23])] {
            for global in globals {
                link.on_arrival(at(local), local, data(global, None), &mut proven);
            }
        }
        assert_eq!(link.floor(), 4);
        link.on_arrival(at(5), 1, data(10, None), &mut proven);
        assert_eq!(link.floor(), 24);
        link.on_arrival(at(6), 3, data(30, None), &mut proven);
        assert_eq!(link.floor(), 44);
    }

    #[test]
    fn of_a_lost_datagram_the_last_packet_is_proven_by_name_and_the_others_by_the_floor() {
        let (mut link, mut proven) = (LinkOrder::new(0), Vec::new());
        link.on_arrival(at(0), 0, data(0, None), &mut proven);
        // Number 1 carried 2 and 5.
        for (global, previous) in [(6, Some(5)), (9, Some(6))] {
            link.on_arrival(at(1), 2, data(global, previous), &mut proven);
        }
        assert_eq!((link.floor(), proven.first()), (10, Some(&5)));
    }

    #[test]
    fn both_distance_and_lateness_must_be_exceeded() {
        let tolerance = Tolerance { distance: 1, lateness: Duration::from_millis(10) };
        let (mut link, mut proven) = (LinkOrder::new(0), Vec::new());
        link.set_tolerance(tolerance);
        link.on_arrival(at(0), 1, data(5, None), &mut proven);
        assert_eq!(link.due(), None, "only one above");
        link.on_arrival(at(1), 2, data(6, None), &mut proven);
        assert_eq!(link.due(), Some(at(10) + Duration::from_nanos(1)));
        link.mature(at(10), &mut proven);
        assert_eq!(link.floor(), 0);
        link.mature(at(11), &mut proven);
        assert_eq!(link.floor(), 7);
    }

    #[test]
    fn after_a_change_of_path_nothing_is_given_up_for_a_while() {
        let (mut link, mut proven) = (LinkOrder::new(0), Vec::new());
        link.be_patient(at(500));
        link.on_arrival(at(0), 3, data(3, Some(2)), &mut proven);
        assert_eq!((link.floor(), proven.len()), (0, 0));
        link.mature(at(500), &mut proven);
        assert_eq!((link.floor(), proven.as_slice()), (4, [2].as_slice()));
        link.on_arrival(at(501), 9, data(9, None), &mut proven);
        assert_eq!(link.floor(), 10);
    }

    #[test]
    fn too_many_gaps_join_and_prove_later_but_nothing_false() {
        let (mut link, mut proven) = (LinkOrder::new(0), Vec::new());
        link.set_tolerance(Tolerance { distance: 10_000, lateness: Duration::ZERO });
        for local in 0..200 {
            link.on_arrival(at(local), local * 2 + 1, data(local * 2 + 1, None), &mut proven);
        }
        assert_eq!(link.gaps.len(), MAX_GAPS);
        assert_eq!((link.floor(), proven.len()), (0, 0));
        link.on_arrival(at(300), 20_000, data(20_000, None), &mut proven);
        assert_eq!(link.floor(), 399 + 1, "all but the last gap given up");
    }
}
