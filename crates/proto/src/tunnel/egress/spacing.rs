//! Flows whose packets come one by one, as those of a call or a game do: each is delivered when it comes.
//!
//! A packet that waits for a lost one before it is as late as that one, and whoever sends a packet every 20 ms has no use for order: the
//! application puts in order what it plays, and plays nothing that comes too late. So such a packet names none before it (PROTOCOL §8.1).
//!
//! Where several packets come at once, order is of use: a picture in many packets, and QUIC, which takes a packet for lost when three
//! later ones have come (RFC 9002, section 6.1.1). TCP always has it.

use crate::packet::{FlowKey, protocol};
use crate::queue::Label;
use crate::time::{Duration, Instant};

/// Packets so far apart come one by one. Calls send one each 10 to 60 ms, games each 8 to 50 ms.
const APART: Duration = Duration::from_millis(5);

/// A flow is known for its spacing after so many packets one by one in a row, and for twice as many at most: then two that come at once, as
/// when the sending machine was busy for a moment, change nothing.
const KNOWN_AFTER: u8 = 8;

/// Flows looked at. Those that meet in a place take turns in it, and have order.
const PLACES: usize = 256;

/// When the last packet of a flow came, and how many came one by one.
#[derive(Clone, Copy, Debug)]
struct Place {
    flow: FlowKey,
    at: Instant,
    one_by_one: u8,
}

/// What is known of the flows' spacing.
#[derive(Debug, Default)]
pub(super) struct Spacing {
    /// None before the first flow.
    places: Box<[Option<Place>]>,
}

impl Spacing {
    /// A packet comes. Returns whether those of its flow come one by one.
    #[inline]
    pub(super) fn comes_alone(&mut self, now: Instant, label: &Label) -> bool {
        label.meta.tuple.protocol != Some(protocol::TCP) && self.note(now, label.meta.flow)
    }

    fn note(&mut self, now: Instant, flow: FlowKey) -> bool {
        if self.places.is_empty() {
            self.places = vec![None; PLACES].into_boxed_slice();
        }
        let index = usize::try_from(flow.0 % PLACES as u64).unwrap_or(0);
        let known = self.places[index].filter(|place| place.flow == flow);
        let one_by_one = match known {
            Some(Place { at, one_by_one, .. }) if now.since(at) >= APART => {
                (one_by_one + 1).min(2 * KNOWN_AFTER)
            }
            Some(Place { one_by_one, .. }) => one_by_one / 2,
            None => 0,
        };
        self.places[index] = Some(Place { flow, at: now, one_by_one });
        one_by_one >= KNOWN_AFTER
    }

    /// Whether memory is kept that can be given back.
    pub(super) fn has_spare(&self) -> bool {
        !self.places.is_empty()
    }

    /// Forgets the flows, and gives the memory back.
    pub(super) fn release_memory(&mut self) {
        self.places = Box::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::label;
    use protocol::{TCP, UDP};

    /// Which of a flow's packets, that come at these times in ms, come alone.
    fn alone(protocol: u8, times: impl IntoIterator<Item = u64>) -> Vec<bool> {
        let mut label = label(FlowKey(1));
        label.meta.tuple.protocol = Some(protocol);
        let mut spacing = Spacing::default();
        let alone = |ms| spacing.comes_alone(Instant::from_millis(ms), &label);
        times.into_iter().map(alone).collect()
    }

    #[test]
    fn a_call_is_known_after_nine_packets() {
        let expected: Vec<_> = (0..20).map(|nth| nth >= 8).collect();
        assert_eq!(alone(UDP, (0..20).map(|nth| 20 * nth)), expected);
        assert_eq!(alone(UDP, (0..20).map(|nth| 5 * nth)), expected, "a game");
        assert_eq!(alone(UDP, (0..20).map(|nth| 4 * nth)), [false; 20]);
    }

    #[test]
    fn two_packets_of_a_call_at_once_change_nothing_and_three_do() {
        let calm = |from: u64| (0..20).map(move |nth| from + 20 * nth);
        let two = alone(UDP, calm(0).chain([380]).chain(calm(400)));
        assert_eq!(two[8..], [true; 33]);
        let three = alone(UDP, calm(0).chain([380, 380]).chain(calm(400)));
        assert_eq!(three[20..27], [true, false, false, false, false, true, true]);
    }

    #[test]
    fn bursts_have_order_and_tcp_always() {
        let bursts = (0..10).flat_map(|nth| [100 * nth; 10]);
        assert!(alone(UDP, bursts).into_iter().all(|alone| !alone));
        assert!(alone(TCP, (0..50).map(|nth| 20 * nth)).into_iter().all(|alone| !alone));
    }

    #[test]
    fn flows_that_meet_in_a_place_have_order_and_memory_is_given_back() {
        let mut spacing = Spacing::default();
        assert!(!spacing.has_spare());
        for nth in 0..50 {
            let now = Instant::from_millis(20 * nth);
            assert!(!spacing.note(now, FlowKey(1)));
            assert!(!spacing.note(now, FlowKey(1 + PLACES as u64)));
        }
        assert!(spacing.has_spare());
        spacing.release_memory();
        assert!(!spacing.has_spare());
    }
}
