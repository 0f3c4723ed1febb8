//! The previous packet of each flow, for the header's `flow` distance (PROTOCOL §3).
//!
//! A small table with one entry per slot: two flows that meet in a slot push each other out, which
//! costs a distance of 0 ("unknown"), never a wrong one, because the full hash is compared.

use crate::packet::FlowKey;

/// Slots; flows that matter at one moment are few.
const SLOTS: usize = 256;

/// Last global number by flow.
#[derive(Debug)]
pub(super) struct FlowTable(Box<[Option<Entry>; SLOTS]>);

#[derive(Clone, Copy, Debug)]
struct Entry {
    flow: FlowKey,
    global: u64,
}

impl Default for FlowTable {
    fn default() -> Self {
        Self(Box::new([None; SLOTS]))
    }
}

impl FlowTable {
    /// The last packet of `flow`, if it is known.
    pub(super) fn previous(&self, flow: FlowKey) -> Option<u64> {
        self.0[slot(flow)].filter(|entry| entry.flow == flow).map(|entry| entry.global)
    }

    /// Notes that packet `global` belongs to `flow`.
    pub(super) fn note(&mut self, flow: FlowKey, global: u64) {
        self.0[slot(flow)] = Some(Entry { flow, global });
    }
}

fn slot(flow: FlowKey) -> usize {
    usize::try_from(flow.0 % SLOTS as u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_finds_its_own_last_packet_and_never_another_flows() {
        let mut table = FlowTable::default();
        let (flow, rival) = (FlowKey(7), FlowKey(7 + SLOTS as u64));
        assert_eq!(table.previous(flow), None);
        table.note(flow, 1);
        assert_eq!(table.previous(flow), Some(1));
        assert_eq!(table.previous(rival), None);
        table.note(rival, 5);
        assert_eq!((table.previous(flow), table.previous(rival)), (None, Some(5)));
    }
}
