//! What the firewall has counted in all: its counters begin again whenever the table is replaced.

use std::collections::BTreeMap;

use ropewalk_control::api::ForwardTraffic;
use ropewalk_link_io::nft::Count;

use super::{Counts, TurnedAway};
use crate::firewall::{BOUNDED, REFUSED};
use crate::forward::rules::{Counted, counter};
use crate::forward::{Forwarded, Forwards, Key};

/// All that is counted.
#[derive(Debug, Default)]
pub(super) struct Totals {
    refused: Total,
    bounded: Total,
    forwards: BTreeMap<Key, OfForward>,
}

/// What one forward has carried.
#[derive(Debug, Default)]
struct OfForward {
    connections: Total,
    down_packets: Total,
    down_bytes: Total,
    up_packets: Total,
    up_bytes: Total,
}

/// One number.
#[derive(Clone, Copy, Debug, Default)]
struct Total {
    last: u64,
    total: u64,
}

impl Totals {
    /// Begins where the table of an earlier proxy stands, which has counted for that one.
    pub(super) fn from_now(counted: &BTreeMap<String, Count>) -> Self {
        let now = |name| Total { last: packets(counted, name), total: 0 };
        Self { refused: now(REFUSED), bounded: now(BOUNDED), forwards: BTreeMap::new() }
    }

    /// From now on these are forwarded, and no others.
    pub(super) fn follow(&mut self, forwards: &Forwards) {
        let keys = || forwards.active.iter().map(Forwarded::key);
        self.forwards.retain(|known, _| keys().any(|key| key == *known));
        for key in keys() {
            self.forwards.entry(key).or_default();
        }
    }

    /// The counters stand so now.
    pub(super) fn add(&mut self, counted: &BTreeMap<String, Count>) {
        self.refused.add(packets(counted, REFUSED));
        self.bounded.add(packets(counted, BOUNDED));
        for ((transport, first), total) in &mut self.forwards {
            let of = |what| {
                let name = counter(*transport, *first, what);
                counted.get(&name).copied().unwrap_or_default()
            };
            total.connections.add(of(Counted::New).packets);
            let (down, up) = (of(Counted::Down), of(Counted::Up));
            total.down_packets.add(down.packets);
            total.down_bytes.add(down.bytes);
            total.up_packets.add(up.packets);
            total.up_bytes.add(up.bytes);
        }
    }

    /// The table was replaced: all counters stand at zero.
    pub(super) fn begin_again(&mut self) {
        self.refused.last = 0;
        self.bounded.last = 0;
        for total in self.forwards.values_mut() {
            let OfForward { connections, down_packets, down_bytes, up_packets, up_bytes } = total;
            for one in [connections, down_packets, down_bytes, up_packets, up_bytes] {
                one.last = 0;
            }
        }
    }

    /// What was counted until now.
    pub(super) fn counts(&self) -> Counts {
        let traffic = |total: &OfForward| ForwardTraffic {
            connections: total.connections.total,
            down_packets: total.down_packets.total,
            down_bytes: total.down_bytes.total,
            up_packets: total.up_packets.total,
            up_bytes: total.up_bytes.total,
        };
        Counts {
            turned_away: TurnedAway { refused: self.refused.total, bounded: self.bounded.total },
            forwards: self.forwards.iter().map(|(key, total)| (*key, traffic(total))).collect(),
        }
    }
}

impl Total {
    fn add(&mut self, now: u64) {
        // Where it stands lower, it has begun again.
        let since = now.checked_sub(self.last).unwrap_or(now);
        self.last = now;
        self.total = self.total.saturating_add(since);
    }
}

fn packets(counted: &BTreeMap<String, Count>, name: &str) -> u64 {
    counted.get(name).map_or(0, |count| count.packets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allow::Transport;
    use crate::forward::testing::forwarded;

    fn counted(name: &str, packets: u64) -> BTreeMap<String, Count> {
        BTreeMap::from([(name.to_owned(), Count { packets, bytes: 100 * packets })])
    }

    #[test]
    fn a_total_goes_on_when_the_table_is_replaced_and_its_counters_begin_again() {
        let mut totals = Totals::from_now(&counted(REFUSED, 7));
        for (now, expected) in [(7, 0), (10, 3), (10, 3), (2, 5), (0, 5), (4, 9)] {
            totals.add(&counted(REFUSED, now));
            assert_eq!(totals.counts().turned_away.refused, expected, "{now}");
        }
        totals.begin_again();
        // More than before, and all of it is new.
        totals.add(&counted(REFUSED, 6));
        assert_eq!(totals.counts().turned_away.refused, 15);
        totals.add(&BTreeMap::new());
        assert_eq!(totals.counts().turned_away, TurnedAway { refused: 15, bounded: 0 });
    }

    #[test]
    fn a_forward_is_counted_for_as_long_as_it_is_there() {
        let mut totals = Totals::default();
        let active = vec![forwarded("udp 5000-5010 10.77.0.5 5000")];
        let forwards = Forwards { active, ..Forwards::default() };
        totals.follow(&forwards);
        let key = (Transport::Udp, 5000);
        let down = counted("forward_udp_5000_down", 3);
        totals.add(&down);
        totals.follow(&forwards);
        let expected =
            ForwardTraffic { down_packets: 3, down_bytes: 300, ..ForwardTraffic::default() };
        assert_eq!(totals.counts().forwards.get(&key), Some(&expected));
        totals.follow(&Forwards::default());
        totals.add(&down);
        assert!(totals.counts().forwards.is_empty());
    }
}
