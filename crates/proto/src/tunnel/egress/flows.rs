//! The previous packet of each flow, which a packet names by its distance (PROTOCOL §3).
//!
//! A small table of sets: flows that meet in a set push out the one that has been silent longest, which costs a distance of 0
//! ("unknown"), never a wrong one, because the full hash is compared. Where the receiver needs the distance to restore the
//! order, a set has room for several flows.

use ropewalk_settings::Order;

use crate::packet::FlowKey;

/// Sets; flows that matter at one moment are few.
const SETS: usize = 256;

/// Flows in a set that the receiver orders by. With 500 flows at once, one of 5,000 meets eight others: 48 KiB.
const WAYS: usize = 8;

/// Last global number by flow.
#[derive(Debug)]
pub(super) struct FlowTable {
    /// None before the first flow.
    entries: Box<[Option<Entry>]>,
    ways: usize,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    flow: FlowKey,
    global: u64,
}

impl FlowTable {
    /// Knows no flow.
    pub(super) fn new(order: Order) -> Self {
        let ways = match order {
            Order::Global => 1,
            Order::Flow => WAYS,
        };
        Self { entries: Box::default(), ways }
    }

    /// The last packet of `flow`, if it is known.
    pub(super) fn previous(&self, flow: FlowKey) -> Option<u64> {
        let first = self.first(flow);
        let set = self.entries.get(first..first + self.ways)?;
        set.iter().flatten().find(|entry| entry.flow == flow).map(|entry| entry.global)
    }

    /// The last packet of `flow` is not known any more if it is `global`.
    pub(super) fn forget(&mut self, flow: FlowKey, global: u64) {
        let first = self.first(flow);
        let set = self.entries.get_mut(first..first + self.ways).unwrap_or_default();
        let is_it = |entry: &Entry| entry.flow == flow && entry.global == global;
        set.iter_mut()
            .filter(|entry| entry.is_some_and(|entry| is_it(&entry)))
            .for_each(|entry| *entry = None);
    }

    /// Notes that packet `global` belongs to `flow`.
    pub(super) fn note(&mut self, flow: FlowKey, global: u64) {
        if self.entries.is_empty() {
            self.entries = vec![None; SETS * self.ways].into_boxed_slice();
        }
        let first = self.first(flow);
        let set = &mut self.entries[first..first + self.ways];
        if let Some(own) = set.iter_mut().flatten().find(|entry| entry.flow == flow) {
            own.global = global;
            return;
        }
        // One that is free, else that of the flow that was silent longest.
        let age = |entry: &Option<Entry>| entry.map(|entry| entry.global);
        if let Some(place) = set.iter_mut().min_by_key(|entry| age(entry)) {
            *place = Some(Entry { flow, global });
        }
    }

    /// Forgets the flows that the receiver orders by, for whatever was sent came or was given up, and gives the memory back.
    pub(super) fn release_memory(&mut self) {
        if self.has_spare() {
            self.entries = Box::default();
        }
    }

    /// Whether memory is kept that can be given back.
    pub(super) fn has_spare(&self) -> bool {
        self.ways > 1 && !self.entries.is_empty()
    }

    fn first(&self, flow: FlowKey) -> usize {
        usize::try_from(flow.0 % SETS as u64).unwrap_or(0) * self.ways
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Flows that meet in a set.
    fn rival(nth: u64) -> FlowKey {
        FlowKey(7 + nth * SETS as u64)
    }

    #[test]
    fn a_flow_finds_its_own_last_packet_and_never_another_flows() {
        let mut table = FlowTable::new(Order::Global);
        assert_eq!(table.previous(rival(0)), None);
        table.note(rival(0), 1);
        assert_eq!(table.previous(rival(0)), Some(1));
        assert_eq!(table.previous(rival(1)), None);
        table.note(rival(1), 5);
        assert_eq!((table.previous(rival(0)), table.previous(rival(1))), (None, Some(5)));
    }

    #[test]
    fn where_flows_are_ordered_the_one_that_was_silent_longest_makes_room() {
        let mut table = FlowTable::new(Order::Flow);
        for nth in 0..WAYS as u64 {
            table.note(rival(nth), nth);
        }
        table.note(rival(0), 100);
        table.note(rival(99), 101);
        let known = [0, 1, 2, 99].map(|nth| table.previous(rival(nth)));
        assert_eq!(known, [Some(100), None, Some(2), Some(101)]);
        table.forget(rival(2), 1);
        table.forget(rival(99), 101);
        assert_eq!([2, 99].map(|nth| table.previous(rival(nth))), [Some(2), None]);
        table.release_memory();
        assert_eq!((table.has_spare(), table.previous(rival(0))), (false, None));
        table.note(rival(0), 102);
        assert_eq!((table.has_spare(), table.previous(rival(0))), (true, Some(102)));
    }
}
