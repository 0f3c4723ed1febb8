//! Which links carry each flow: counted while somebody looks, and not at all otherwise.
//!
//! Counting begins when somebody asks for the first time and ends some seconds after the last time. A packet costs a look into
//! a small table meanwhile, and else nothing but the question whether anybody looks.

use std::collections::BTreeMap;
use std::mem;

use arrayvec::ArrayVec;

use crate::config::MAX_LINKS;
use crate::packet::{FiveTuple, FlowKey, PacketView};
use crate::time::{Duration, Instant};
use crate::units::LinkId;

/// Counting goes on for so long after somebody asked: a page asks every second.
const PATIENCE: Duration = Duration::from_secs(5);

/// Who asks within so short a time after somebody else has the counts of both times: several people may look at once.
const LEAST: Duration = Duration::from_millis(500);

/// Flows that are counted at once: some hundred kilobytes. What goes of others is counted as theirs together.
const MOST_FLOWS: usize = 1024;

/// Bytes by link.
pub type ByLink = ArrayVec<(LinkId, u64), MAX_LINKS>;

/// What was counted of a flow.
#[derive(Clone, Debug)]
pub(super) struct Metered {
    pub(super) tuple: FiveTuple,
    /// Bytes of its packets, those too that were sent again.
    pub(super) carried: ByLink,
}

/// What was counted since somebody asked.
#[derive(Debug)]
pub(super) struct FlowMeter {
    since: Instant,
    until: Instant,
    pub(super) flows: BTreeMap<FlowKey, Metered>,
    /// Bytes of flows for which there was no place.
    pub(super) beyond: u64,
}

impl FlowMeter {
    /// Counts from now on.
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, until: now + PATIENCE, flows: BTreeMap::new(), beyond: 0 }
    }

    /// A packet of this flow left on this link.
    pub(super) fn count(&mut self, flow: FlowKey, link: LinkId, packet: &[u8]) {
        let bytes = packet.len() as u64;
        let is_full = self.flows.len() >= MOST_FLOWS;
        let metered = match self.flows.get_mut(&flow) {
            Some(metered) => metered,
            None if is_full => return self.beyond += bytes,
            None => {
                // A part of a packet that went in two names nobody.
                let view = PacketView::parse(packet);
                let tuple = view.map_or(FiveTuple::UNKNOWN, |view| view.five_tuple());
                self.flows.entry(flow).or_insert(Metered { tuple, carried: ByLink::new() })
            }
        };
        match metered.carried.iter_mut().find(|(known, _)| *known == link) {
            Some((_, carried)) => *carried += bytes,
            // Ids change while links come and go; the first sixteen say enough.
            None => drop(metered.carried.try_push((link, bytes))),
        }
    }

    /// Whether nobody has asked for long.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        now >= self.until
    }

    /// What was counted, and over which time. Another time begins, unless this one was short.
    pub(super) fn read(&mut self, now: Instant) -> (Duration, BTreeMap<FlowKey, Metered>, u64) {
        self.until = now + PATIENCE;
        let over = now.since(self.since);
        if over < LEAST {
            return (over, self.flows.clone(), self.beyond);
        }
        self.since = now;
        (over, mem::take(&mut self.flows), mem::take(&mut self.beyond))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WLAN: LinkId = LinkId(0);
    const LTE: LinkId = LinkId(1);

    #[test]
    fn what_is_counted_is_told_once_by_flow_and_link() {
        let at = Instant::from_millis;
        let mut meter = FlowMeter::new(at(0));
        for (flow, link, len) in [(1, WLAN, 100), (1, LTE, 50), (2, LTE, 7), (1, WLAN, 100)] {
            meter.count(FlowKey(flow), link, &vec![0; len]);
        }
        let (over, flows, beyond) = meter.read(at(400));
        assert_eq!((over, flows.len(), beyond), (Duration::from_millis(400), 2, 0));
        assert_eq!(flows[&FlowKey(1)].carried[..], [(WLAN, 200), (LTE, 50)]);
        let (over, flows, _) = meter.read(at(1000));
        assert_eq!((over, flows.len()), (Duration::from_secs(1), 2), "the first time was short");
        let (over, flows, _) = meter.read(at(1600));
        assert_eq!((over, flows.len()), (Duration::from_millis(600), 0));
        assert_eq!([6599, 6600].map(|ms| meter.is_over(at(ms))), [false, true]);
    }

    #[test]
    fn the_table_has_an_end_and_what_is_beyond_it_is_counted_together() {
        let mut meter = FlowMeter::new(Instant::ZERO);
        for flow in 0..MOST_FLOWS as u64 + 3 {
            meter.count(FlowKey(flow), WLAN, &[0; 10]);
        }
        let (_, flows, beyond) = meter.read(Instant::from_millis(1000));
        assert_eq!((flows.len(), beyond), (MOST_FLOWS, 30));
    }
}
