//! First messages of the last seconds and what became of them.
//!
//! The same first message goes out over all links of a client at once. The first copy to arrive costs
//! the Diffie-Hellman operations; the others get the very same answer from here. So do replays: a
//! recorded first message costs one mac and one look-up.
//!
//! Only messages that were authentic are kept, so that garbage with a right mac1 (anyone who knows
//! the proxy's public key can make it) pushes nothing out. The mac1 serves as the digest: it was
//! checked and covers every byte.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::time::Instant;
use crate::wire::hello::MAC_LEN;

/// How long an answer is repeated: longer than the links' delays differ, shorter than a session that
/// was not confirmed may live.
pub(crate) const LIFETIME: Duration = Duration::from_secs(5);

/// Copies of a message that go out together come within this time of each other on most links, and those of the client's
/// next round later (PROTOCOL §6.6).
const ROUND: Duration = Duration::from_millis(100);

/// How many messages are kept; about 1 MB when full.
pub(crate) const CAPACITY: usize = 4_096;

/// The table of recent first messages.
#[derive(Debug, Default)]
pub(crate) struct RecentFirstMessages {
    answers: BTreeMap<[u8; MAC_LEN], Recent>,
    /// Oldest first.
    order: VecDeque<[u8; MAC_LEN]>,
}

#[derive(Debug)]
struct Recent {
    expires: Instant,
    outcome: Outcome,
}

/// What became of a first message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// It was answered so. Empty: it was met with silence.
    Answered(Vec<u8>),
    /// It was handed to the part of the proxy with this number, which answers.
    Handed(u16),
}

impl RecentFirstMessages {
    /// An empty table.
    #[must_use]
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// What became of the first message with this digest.
    #[must_use]
    pub(crate) fn outcome(&self, now: Instant, digest: &[u8; MAC_LEN]) -> Option<&Outcome> {
        let recent = self.answers.get(digest).filter(|recent| recent.expires > now)?;
        Some(&recent.outcome)
    }

    /// Remembers what became of an authentic first message. The oldest entry makes room. A digest that is known
    /// keeps its answer; one that was handed over or met with silence gets the answer if that is given here after all.
    pub(crate) fn insert(&mut self, now: Instant, digest: [u8; MAC_LEN], outcome: Outcome) {
        self.forget_expired(now);
        if let Some(known) = self.answers.get_mut(&digest) {
            if known.expires <= now {
                *known = Recent { expires: now + LIFETIME, outcome };
            } else if !matches!(&known.outcome, Outcome::Answered(answer) if !answer.is_empty()) {
                known.outcome = outcome;
            }
            return;
        }
        if self.order.len() >= CAPACITY {
            self.forget_oldest();
        }
        self.order.push_back(digest);
        self.answers.insert(digest, Recent { expires: now + LIFETIME, outcome });
    }

    /// A message that was to be handed over found no way: copies of the same round are not read again, those of the next
    /// one are.
    pub(crate) fn note_lost(&mut self, now: Instant, digest: &[u8; MAC_LEN]) {
        if let Some(known) = self.answers.get_mut(digest)
            && matches!(known.outcome, Outcome::Handed(_))
        {
            known.expires = known.expires.min(now + ROUND);
        }
    }

    /// How many messages are kept.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    fn forget_expired(&mut self, now: Instant) {
        let expired = |recent: Option<&Recent>| recent.is_none_or(|recent| recent.expires <= now);
        while self.order.front().is_some_and(|digest| expired(self.answers.get(digest))) {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some(digest) = self.order.pop_front() {
            self.answers.remove(&digest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(number: u32) -> [u8; MAC_LEN] {
        let mut digest = [0; MAC_LEN];
        digest[..4].copy_from_slice(&number.to_be_bytes());
        digest
    }

    #[test]
    fn a_copy_gets_the_same_answer_until_it_expires() {
        let mut recent = RecentFirstMessages::new();
        let answered = |byte| Outcome::Answered(vec![byte]);
        recent.insert(Instant::ZERO, digest(1), answered(7));
        recent.insert(Instant::from_millis(1), digest(1), answered(8));
        let end = Instant::ZERO + LIFETIME;
        let last = end - Duration::from_nanos(1);
        assert_eq!(recent.outcome(last, &digest(1)), Some(&answered(7)));
        assert_eq!(recent.outcome(end, &digest(1)), None);
        assert_eq!(recent.outcome(Instant::ZERO, &digest(2)), None);
    }

    #[test]
    fn what_was_handed_over_or_met_with_silence_takes_the_answer_that_comes_after_all() {
        for first in [Outcome::Handed(3), Outcome::Answered(Vec::new())] {
            let mut recent = RecentFirstMessages::new();
            recent.insert(Instant::ZERO, digest(1), first.clone());
            assert_eq!(recent.outcome(Instant::ZERO, &digest(1)), Some(&first));
            for outcome in [Outcome::Answered(vec![7]), Outcome::Handed(4)] {
                recent.insert(Instant::ZERO, digest(1), outcome);
                assert_eq!(
                    recent.outcome(Instant::ZERO, &digest(1)),
                    Some(&Outcome::Answered(vec![7]))
                );
            }
            assert_eq!(recent.len(), 1);
        }
    }

    #[test]
    fn what_found_no_way_is_forgotten_before_the_next_round_and_can_be_kept_again() {
        let mut recent = RecentFirstMessages::new();
        let at = Instant::from_millis;
        recent.insert(at(0), digest(1), Outcome::Handed(3));
        recent.insert(at(0), digest(2), Outcome::Answered(vec![7]));
        for number in 1..=3 {
            recent.note_lost(at(10), &digest(number));
        }
        assert_eq!(recent.outcome(at(109), &digest(1)), Some(&Outcome::Handed(3)));
        assert_eq!(recent.outcome(at(110), &digest(1)), None);
        assert_eq!(recent.outcome(at(110), &digest(2)), Some(&Outcome::Answered(vec![7])));
        recent.insert(at(200), digest(1), Outcome::Handed(4));
        assert_eq!(recent.outcome(at(5_199), &digest(1)), Some(&Outcome::Handed(4)));
        assert_eq!(recent.outcome(at(5_200), &digest(1)), None);
        assert_eq!(recent.len(), 2);
        recent.insert(at(5_200), digest(5), Outcome::Handed(4));
        assert_eq!((recent.len(), recent.answers.len()), (1, 1));
    }

    #[test]
    fn the_table_is_bounded_and_the_oldest_makes_room() {
        let mut recent = RecentFirstMessages::new();
        let more = u32::try_from(CAPACITY).unwrap() + 10;
        let silence = Outcome::Answered(Vec::new());
        (0..more).for_each(|number| recent.insert(Instant::ZERO, digest(number), silence.clone()));
        assert_eq!((recent.len(), recent.answers.len()), (CAPACITY, CAPACITY));
        assert_eq!(recent.outcome(Instant::ZERO, &digest(9)), None);
        assert_eq!(recent.outcome(Instant::ZERO, &digest(10)), Some(&silence));
        recent.insert(Instant::ZERO + LIFETIME, digest(0), silence);
        assert_eq!((recent.len(), recent.answers.len()), (1, 1));
    }
}
