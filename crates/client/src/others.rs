//! What others send and receive on the links' interfaces: what the kernel counts there, less what is ours.
//!
//! Counted four times a second while the loop turns; an idle tunnel is not woken for it. Ours are the datagrams that the
//! core counts, with the headers that an Ethernet interface counts too. An interface without those, or one that takes
//! several datagrams as one and counts their headers once, makes others seem to send less, by at most 3 % of what
//! is ours.
//!
//! What we have sent by now the kernel may count a moment later. So what is missing in one count is owed to the next, and
//! neither makes others.

use std::collections::BTreeMap;

use ropewalk_link_io::counters::InterfaceCounters;
use ropewalk_proto::client::LinkKey;
use ropewalk_proto::fleet::FleetClient;
use ropewalk_proto::time::{Duration, Instant};
use ropewalk_proto::tunnel::Traffic;

use crate::links::{Link, Links};

/// Between two counts: a change is followed within a second, and a filter has a few counts to do it.
const INTERVAL: Duration = Duration::from_millis(250);

/// Bytes of an Ethernet header.
const ETHERNET: u64 = 14;

/// Bytes of a UDP header and the IP header below it.
const UDP_OVER_V4: u64 = 28;
const UDP_OVER_V6: u64 = 48;

/// At most so large a part of ours in an interval may the kernel count later, 31 ms: more is a difference of headers,
/// which must not hide others.
const MOST_OWED: u64 = 8;

/// Counts others' traffic.
#[derive(Debug)]
pub(crate) struct Others {
    /// `None`: this system does not tell.
    counters: Option<InterfaceCounters>,
    counted: Instant,
    links: BTreeMap<LinkKey, Counts>,
}

/// One link when last counted.
#[derive(Clone, Debug)]
struct Counts {
    interface: String,
    sent: Count,
    received: Count,
}

impl Others {
    /// Counts from now on.
    pub(crate) fn new(now: Instant) -> Self {
        let counters = InterfaceCounters::open().inspect_err(|error| {
            tracing::warn!("traffic of others on the links is not seen: {error}");
        });
        Self { counters: counters.ok(), counted: now, links: BTreeMap::new() }
    }

    /// Counts if it is time, and tells the core.
    pub(crate) fn count(&mut self, now: Instant, links: &Links, client: &mut FleetClient) {
        if now.since(self.counted) < INTERVAL {
            return;
        }
        self.counted = now;
        let Some(Ok(found)) = self.counters.as_mut().map(InterfaceCounters::read) else { return };
        let stats = client.stats();
        let mut before = std::mem::take(&mut self.links);
        for (interface, bytes) in found {
            let link = links.iter().find(|link| link.decision.interface == interface);
            // What goes over TLS has other headers, and acknowledgements that are nobody's else either.
            let link = link.filter(|link| link.tls_key().is_none());
            let Some(key) = link.and_then(Link::key) else { continue };
            let Some(ours) = stats.links.iter().find(|link| link.key == key) else { continue };
            let Some(core) = &ours.link else { continue };
            let udp = if core.path.remote.is_ipv4() { UDP_OVER_V4 } else { UDP_OVER_V6 };
            let total =
                |all, traffic| Total { at: now, all, ours: bytes_of(traffic, ETHERNET + udp) };
            let known = before.remove(&key).filter(|known| known.interface == interface);
            let mut counts = known.unwrap_or_else(|| Counts {
                interface: interface.to_owned(),
                sent: Count::default(),
                received: Count::default(),
            });
            if let Some((bytes, interval)) = counts.sent.others(total(bytes.sent, ours.sent)) {
                client.on_others(key, bytes, interval);
            }
            let received = counts.received.others(total(bytes.received, ours.received));
            if let Some((bytes, interval)) = received {
                client.tell_others(key, bytes, interval);
            }
            self.links.insert(key, counts);
        }
    }
}

/// Bytes of our datagrams as the interface counts them.
fn bytes_of(traffic: Traffic, headers: u64) -> u64 {
    traffic.bytes.saturating_add(traffic.datagrams.saturating_mul(headers))
}

/// What one direction has moved since it began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Total {
    at: Instant,
    /// As the kernel counts.
    all: u64,
    /// As the core counts.
    ours: u64,
}

/// One direction when last counted.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    last: Option<Total>,
    /// What of ours the kernel had not counted by then.
    owed: u64,
}

impl Count {
    /// What others moved since the last count, and how long ago that was. `None`: there was none; or a total fell,
    /// for the interface is another of the same name; or the kernel has not counted since: some drivers do once a
    /// second.
    fn others(&mut self, now: Total) -> Option<(u64, Duration)> {
        let last = *self.last.get_or_insert(now);
        if now.all == last.all && now.ours > last.ours {
            return None;
        }
        self.last = Some(now);
        let moved = now.all.checked_sub(last.all).zip(now.ours.checked_sub(last.ours));
        let Some((all, ours)) = moved else {
            self.owed = 0;
            return None;
        };
        let interval = now.at.since(last.at);
        let expected = ours.saturating_add(self.owed);
        self.owed = expected.saturating_sub(all).min(ours / MOST_OWED);
        (!interval.is_zero()).then(|| (all.saturating_sub(expected), interval))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What others moved by each count, from totals of the interface and of ours.
    fn others(totals: &[(u64, u64)]) -> Vec<Option<u64>> {
        let mut count = Count::default();
        let mut at = Instant::ZERO;
        let mut counted = |(all, ours)| {
            at += INTERVAL;
            count.others(Total { at, all, ours }).map(|(bytes, _)| bytes)
        };
        totals.iter().map(|total| counted(*total)).collect()
    }

    #[test]
    fn what_is_not_ours_is_others() {
        let counted = others(&[(1000, 900), (1500, 1400), (3500, 2400), (3600, 2400)]);
        assert_eq!(counted, [None, Some(0), Some(1000), Some(100)]);
    }

    #[test]
    fn ours_that_the_kernel_counts_a_moment_later_are_not_others() {
        let counted = others(&[(0, 0), (900, 1000), (2000, 2000), (2900, 3000), (4300, 4000)]);
        assert_eq!(counted, [None, Some(0), Some(0), Some(0), Some(300)]);
    }

    #[test]
    fn headers_that_are_counted_once_for_several_datagrams_hide_little_of_what_comes_later() {
        let totals = (0..100).map(|n| (n * 970, n * 1000)).chain([(99 * 970 + 6000, 100 * 1000)]);
        let counted = others(&totals.collect::<Vec<_>>());
        assert_eq!(counted[1..100], [Some(0); 99]);
        assert_eq!(counted[100], Some(4875));
    }

    #[test]
    fn an_interface_that_came_again_is_counted_from_then_on() {
        let counted = others(&[(5000, 100), (10, 200), (1010, 300), (1020, 250), (1030, 260)]);
        assert_eq!(counted, [None, None, Some(900), None, Some(0)]);
    }

    #[test]
    fn a_driver_that_counts_once_a_second_is_waited_for() {
        let mut count = Count::default();
        let mut seen = Vec::new();
        for quarter in 0..9 {
            let at = Instant::ZERO + INTERVAL * quarter;
            let (all, ours) = (u64::from(quarter / 4) * 6000, u64::from(quarter) * 1000);
            seen.extend(count.others(Total { at, all, ours }));
        }
        assert_eq!(seen, [(2000, INTERVAL * 4); 2]);
    }

    #[test]
    fn our_datagrams_are_counted_with_the_headers_below_them() {
        let traffic = Traffic { datagrams: 3, bytes: 300 };
        assert_eq!(bytes_of(traffic, ETHERNET + UDP_OVER_V4), 426);
    }
}
