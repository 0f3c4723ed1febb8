//! Packets that wait, one behind the other, for a number that is missing.
//!
//! A *chain* is what waits for one missing number: its successor, that one's successor, and so on. Each packet has at most one,
//! so a packet joins a chain only at its ends, and both are found by number: nothing is ever looked through.
//!
//! A packet could wait for a deadline of its own. A chain has only the earliest of these, for all of it waits for the same
//! number.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::super::pool::Early;
use super::by_number::ByNumber;
use crate::time::{Duration, Instant};

/// Deadlines of chains that are no more are forgotten when there are so many beside as many as there are chains.
const SPARE_DEADLINES: usize = 64;

/// A packet that waits.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) global: u64,
    pub(super) early: Early,
}

/// What decides how long a chain waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait {
    /// When the packet came that is the first to run out of patience, and its one-way delay in µs.
    pub(super) arrived: Instant,
    pub(super) delay_us: i64,
    /// Until when it is patient.
    pub(super) deadline: Instant,
    /// When the first packet of the chain came.
    pub(super) since: Instant,
}

impl Wait {
    /// The wait of two chains that became one.
    fn join(self, other: Self) -> Self {
        let first = if other.deadline < self.deadline { other } else { self };
        Self { since: self.since.min(other.since), ..first }
    }

    /// Until when nothing in the chain has waited longer than `most`.
    pub(super) fn until(&self, most: Duration) -> Instant {
        self.since + most
    }
}

/// What waits for one number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    pub(super) wait: Wait,
    /// Its last packet.
    tail: u64,
    /// What it waited for came, and it waits for its next turn.
    is_paused: bool,
}

/// All packets that wait.
#[derive(Debug, Default)]
pub(super) struct Chains {
    /// By the number that each waits for.
    held: ByNumber<Held>,
    /// By the missing number.
    chains: ByNumber<Chain>,
    /// The missing number, by the last packet that waits for it.
    tails: ByNumber<u64>,
    /// Missing numbers, by when they are given up; also some that came or have another time, but never in front.
    deadlines: BinaryHeap<Reverse<(Instant, u64)>>,
    /// No missing number is lower.
    low: u64,
    /// Bytes of the packets.
    bytes: usize,
    /// Chains that wait for their next turn.
    paused: usize,
}

impl Chains {
    /// Packets that wait.
    pub(super) fn held(&self) -> usize {
        self.held.len()
    }

    /// Their bytes.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.held.len() == 0
    }

    /// Whether packets wait for their next turn.
    pub(super) const fn are_paused(&self) -> bool {
        self.paused > 0
    }

    /// Whether a packet waits for this number.
    pub(super) fn is_awaited(&self, number: u64) -> bool {
        self.held.contains(number)
    }

    /// Whether this packet waits.
    pub(super) fn holds(&self, global: u64) -> bool {
        // The last of a chain, or one that others wait for and that is not missing.
        self.tails.contains(global) || (self.held.contains(global) && !self.chains.contains(global))
    }

    /// A packet has to wait for a number that no other waits for.
    pub(super) fn push(&mut self, previous: u64, held: Held, wait: Wait) {
        let global = held.global;
        self.bytes += held.early.packet().bytes.len();
        self.held.insert(previous, held);
        // What waits for this packet waits with it from now on.
        let (mut wait, mut tail) = (wait, global);
        if let Some(behind) = self.take_chain(global) {
            (wait, tail) = (behind.wait.join(wait), behind.tail);
        }
        // What this packet waits for may wait itself.
        let missing = self.tails.remove(previous).unwrap_or(previous);
        let before = self.chains.get(missing).copied();
        if let Some(before) = before {
            wait = before.wait.join(wait);
        }
        let is_paused = before.is_some_and(|before| before.is_paused);
        self.put_chain(missing, Chain { wait, tail, is_paused });
        if before.is_none_or(|before| before.wait.deadline != wait.deadline) {
            self.note_deadline(wait.deadline, missing);
        }
    }

    /// The missing number that is given up next, and when.
    pub(super) fn next_due(&self) -> Option<(Instant, u64)> {
        self.deadlines.peek().map(|Reverse(first)| *first)
    }

    /// The lowest number that is waited for, if it is below this one. To be asked with numbers that rise.
    #[inline]
    pub(super) fn lowest_below(&mut self, number: u64) -> Option<u64> {
        while self.low < number && !self.is_empty() {
            if self.chains.contains(self.low) {
                return Some(self.low);
            }
            self.low += 1;
        }
        None
    }

    /// How long the chain behind a missing number waits.
    pub(super) fn wait(&self, missing: u64) -> Option<Wait> {
        self.chains.get(missing).map(|chain| chain.wait)
    }

    /// The chain behind a missing number waits until then.
    pub(super) fn postpone(&mut self, missing: u64, deadline: Instant) {
        if let Some(chain) = self.chains.get_mut(missing) {
            chain.wait.deadline = deadline;
            self.note_deadline(deadline, missing);
        }
    }

    /// The wait for a missing number is over: what waited for it is taken out one by one ([`take`](Self::take)). Returns
    /// that chain.
    pub(super) fn release(&mut self, missing: u64) -> Option<Chain> {
        let chain = self.take_chain(missing)?;
        self.paused -= usize::from(chain.is_paused);
        self.forget_old_deadlines();
        Some(chain)
    }

    /// What is left of a chain of which all up to this number were taken out waits until then.
    pub(super) fn pause(&mut self, taken: u64, chain: Chain, until: Instant) {
        if chain.tail != taken {
            let wait = Wait { deadline: until, ..chain.wait };
            self.put_chain(taken, Chain { wait, is_paused: true, ..chain });
            self.paused += 1;
            self.note_deadline(until, taken);
        }
    }

    /// Takes out the packet that waits for this number.
    #[inline]
    pub(super) fn take(&mut self, number: u64) -> Option<Held> {
        let held = self.held.remove(number)?;
        self.bytes -= held.early.packet().bytes.len();
        Some(held)
    }

    /// Takes out all that wait.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Held> + use<> {
        std::mem::take(self).held.into_values()
    }

    /// Gives the memory back, if nothing waits.
    pub(super) fn release_memory(&mut self) {
        if self.is_empty() {
            *self = Self::default();
        }
    }

    fn put_chain(&mut self, missing: u64, chain: Chain) {
        self.low = if self.chains.len() == 0 { missing } else { self.low.min(missing) };
        self.tails.insert(chain.tail, missing);
        self.chains.insert(missing, chain);
    }

    fn take_chain(&mut self, missing: u64) -> Option<Chain> {
        let chain = self.chains.remove(missing)?;
        self.tails.remove(chain.tail);
        Some(chain)
    }

    /// A chain has this deadline from now on.
    fn note_deadline(&mut self, deadline: Instant, missing: u64) {
        self.deadlines.push(Reverse((deadline, missing)));
        if self.deadlines.len() > 2 * self.chains.len() + SPARE_DEADLINES {
            let chains = self.chains.iter();
            self.deadlines =
                chains.map(|(missing, chain)| Reverse((chain.wait.deadline, missing))).collect();
        }
        self.forget_old_deadlines();
    }

    /// What is in front is the deadline of a chain.
    fn forget_old_deadlines(&mut self) {
        while let Some(&Reverse((deadline, missing))) = self.deadlines.peek()
            && self.chains.get(missing).is_none_or(|chain| chain.wait.deadline != deadline)
        {
            self.deadlines.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::pool::Pool;
    use super::*;
    use crate::packet::Packet;

    fn push(chains: &mut Chains, previous: u64, global: u64, came: u64, deadline: u64) {
        let arrived = Instant::from_millis(came);
        let early = Pool::default().copy(&Packet::whole(&[7; 10]), arrived);
        let deadline = Instant::from_millis(deadline);
        let wait = Wait { arrived, delay_us: 0, deadline, since: arrived };
        chains.push(previous, Held { global, early }, wait);
    }

    /// Numbers that are waited for, with the end of each chain and its deadline.
    fn shown(chains: &Chains) -> Vec<(u64, u64, Instant)> {
        let shown = chains.chains.iter();
        let shown = shown.map(|(missing, chain)| (missing, chain.tail, chain.wait.deadline));
        let mut shown: Vec<_> = shown.collect();
        shown.sort_unstable();
        assert_eq!(chains.tails.len(), shown.len());
        let first = shown.iter().map(|(missing, _, deadline)| (*deadline, *missing)).min();
        assert_eq!(chains.next_due(), first);
        shown
    }

    #[test]
    fn however_a_chain_comes_together_it_has_one_end_and_the_earliest_deadline() {
        let links = [(1, 3), (3, 4), (4, 8), (8, 9)];
        let orders = [[0, 1, 2, 3], [3, 2, 1, 0], [0, 2, 1, 3], [1, 3, 0, 2], [0, 3, 2, 1]];
        for order in orders {
            for first in 0..links.len() {
                let mut chains = Chains::default();
                for (came, place) in order.into_iter().enumerate() {
                    let (previous, global) = links[place];
                    let deadline = if place == first { 50 } else { 60 + place as u64 };
                    assert!(!chains.holds(global));
                    push(&mut chains, previous, global, came as u64, deadline);
                    assert!(chains.holds(global) && chains.is_awaited(previous));
                }
                assert_eq!(shown(&chains), [(1, 9, Instant::from_millis(50))], "{order:?}");
                assert_eq!((chains.held(), chains.bytes()), (4, 40));
                assert!([3, 4, 8, 9].iter().all(|global| chains.holds(*global)));
                assert!(!chains.holds(1), "it is missing");
                let since = chains.release(1).map(|chain| chain.wait.since);
                assert_eq!(since, Some(Instant::ZERO), "the first of all came then");
                let (mut next, mut taken) = (1, Vec::new());
                while let Some(held) = chains.take(next) {
                    next = held.global;
                    taken.push(next);
                }
                assert_eq!(taken, [3, 4, 8, 9]);
                assert!(chains.is_empty() && shown(&chains).is_empty());
            }
        }
    }

    #[test]
    fn chains_of_different_flows_do_not_touch() {
        let mut chains = Chains::default();
        push(&mut chains, 1, 3, 0, 70);
        push(&mut chains, 2, 4, 0, 60);
        let [early, late] = [60, 70].map(Instant::from_millis);
        assert_eq!(shown(&chains), [(1, 3, late), (2, 4, early)]);
        assert_eq!(chains.next_due(), Some((early, 2)));
        assert_eq!([1, 2].map(|number| chains.lowest_below(number)), [None, Some(1)]);
        chains.postpone(2, Instant::from_millis(80));
        assert_eq!(chains.next_due(), Some((late, 1)));
        assert!(chains.release(1).is_some());
        assert_eq!([2, 3].map(|number| chains.lowest_below(number)), [None, Some(2)]);
    }

    #[test]
    fn deadlines_of_chains_that_are_no_more_are_forgotten_also_behind_one_that_stays() {
        let mut chains = Chains::default();
        push(&mut chains, 1, 2, 0, 10);
        for number in 2..2_000 {
            push(&mut chains, 2 * number, 2 * number + 1, number, 100 + number);
            assert!(chains.release(2 * number).is_some() && chains.take(2 * number).is_some());
            assert_eq!(chains.next_due(), Some((Instant::from_millis(10), 1)));
            assert!(chains.deadlines.len() <= 2 * 2 + SPARE_DEADLINES);
        }
    }
}
