//! Which connections a proxy takes, so that strangers cost little: by their number in all, by their source, and by how
//! fast they come. Pure.
//!
//! A stranger is a connection on which the proxy has sent no datagram of a session yet, and only the owner of a
//! client's key gets there. Each source has a loopback address of its own: from there its datagrams reach the core, whose
//! limits of first messages by address so hold for each source by itself, as if it had sent them by UDP.
//!
//! A source is remembered for [`REMEMBERED`] after its last connection, with its loopback address and with how fast it
//! came: whoever leaves and comes again gains nothing.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ropewalk_proto::time::{Duration, Instant};

/// Connections at a time. Each takes two descriptors, of which a process has 1,024 where nothing else is said.
pub const MOST: usize = 256;
/// Of one source: many clients may stand behind one address of a hotel.
pub const MOST_OF_SOURCE: usize = 64;
/// Strangers at a time.
pub const MOST_STRANGERS: usize = 64;
/// Of one source: its clients come one after the other, and each is a stranger for two round trips.
const MOST_STRANGERS_OF_SOURCE: usize = 8;

/// Connections taken in [`INTERVAL`], so that strangers cannot have the proxy do more handshakes of TLS than these; nearly
/// as many as there may be strangers, so that clients that come together are not held up.
const MOST_NEW: u32 = 50;
const INTERVAL: Duration = Duration::from_secs(1);

/// Connections of one source at once, after a pause: those that it may have as a stranger, twice.
const NEW_OF_SOURCE: u32 = 16;
/// From then on one in so long: the 64 clients behind one address of a hotel return within half a minute, and it takes
/// 25 such sources to use up [`MOST_NEW`].
const NEW_EVERY: Duration = Duration::from_millis(500);

/// How long a source is remembered after its last connection: what it used up here, and in the core under its loopback
/// address, is there again by then. With [`MOST_NEW`] and [`MOST`] that bounds what is remembered, to 3,306 sources.
const REMEMBERED: Duration = Duration::from_secs(60);

/// The loopback addresses that stand for sources are 127.77.0.1 to 127.77.255.254: nothing else is likely to use them.
const ALIASES: [u8; 2] = [127, 77];

/// Whose connections count together: an IPv4 address, or an IPv6 network of 64 bits, as that is what a host has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Source(IpAddr);

impl Source {
    pub(crate) fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V4(v4) => v4.into(),
            IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
        })
    }
}

/// How many connections there are and were.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// At present, of clients.
    pub clients: u64,
    /// At present, of which it is not known yet.
    pub strangers: u64,
    /// Refused because there were too many.
    pub refused: u64,
    /// Ended before they showed that they are a client's.
    pub unproven: u64,
}

/// One source, and its connections.
#[derive(Clone, Copy, Debug)]
struct Held {
    alias: Ipv4Addr,
    strangers: usize,
    clients: usize,
    /// When it may again have [`NEW_OF_SOURCE`] connections at once, if none comes until then.
    rested: Instant,
    /// When its last connection left; `None`: it has some.
    left: Option<Instant>,
}

/// All connections.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    sources: BTreeMap<Source, Held>,
    /// When the present interval began, and how many came in it.
    interval: Instant,
    new: u32,
    /// The last alias that was given.
    last: u16,
    counts: Counts,
}

impl Admission {
    /// A connection came. The loopback address that stands for its source, if it may stay.
    pub(crate) fn take(&mut self, now: Instant, source: Source) -> Option<Ipv4Addr> {
        if now.since(self.interval) >= INTERVAL {
            (self.interval, self.new) = (now, 0);
            self.sources.retain(|_, held| held.is_remembered(now));
        }
        let held = self.sources.get(&source).copied();
        let (strangers, all) = held.map_or((0, 0), |held| (held.strangers, held.all()));
        let rested = held.map_or(now, |held| held.rested.max(now)) + NEW_EVERY;
        let counts = &self.counts;
        let full = counts.strangers >= MOST_STRANGERS as u64
            || counts.strangers + counts.clients >= MOST as u64
            || strangers >= MOST_STRANGERS_OF_SOURCE
            || all >= MOST_OF_SOURCE
            || rested.since(now) > NEW_EVERY * NEW_OF_SOURCE
            || self.new >= MOST_NEW;
        if full {
            self.counts.refused += 1;
            return None;
        }
        self.new += 1;
        self.counts.strangers += 1;
        let alias = held.map_or_else(|| self.fresh_alias(), |held| held.alias);
        let fresh = Held { alias, strangers: 0, clients: 0, rested, left: None };
        let held = self.sources.entry(source).or_insert(fresh);
        held.strangers += 1;
        (held.rested, held.left) = (rested, None);
        Some(alias)
    }

    /// A stranger of this source has shown that it is a client.
    pub(crate) fn prove(&mut self, source: Source) {
        if let Some(held) = self.sources.get_mut(&source) {
            held.strangers = held.strangers.saturating_sub(1);
            held.clients += 1;
            self.counts.strangers = self.counts.strangers.saturating_sub(1);
            self.counts.clients += 1;
        }
    }

    /// A connection of this source is over.
    pub(crate) fn leave(&mut self, now: Instant, source: Source, proven: bool) {
        let Some(held) = self.sources.get_mut(&source) else { return };
        let (of_source, of_all) = match proven {
            true => (&mut held.clients, &mut self.counts.clients),
            false => (&mut held.strangers, &mut self.counts.strangers),
        };
        (*of_source, *of_all) = (of_source.saturating_sub(1), of_all.saturating_sub(1));
        if held.all() == 0 {
            held.left = Some(now);
        }
        self.counts.unproven += u64::from(!proven);
    }

    /// How many there are and were.
    pub(crate) const fn counts(&self) -> Counts {
        self.counts
    }

    /// An address that stands for no source, and stood for none lately: what the core remembers of one is not the next
    /// one's.
    fn fresh_alias(&mut self) -> Ipv4Addr {
        loop {
            // 0 and 65,535 would be the network and its broadcast address.
            self.last = if self.last >= u16::MAX - 1 { 1 } else { self.last + 1 };
            let [high, low] = self.last.to_be_bytes();
            let alias = Ipv4Addr::new(ALIASES[0], ALIASES[1], high, low);
            // There are twenty times as many as sources.
            if self.sources.values().all(|held| held.alias != alias) {
                return alias;
            }
        }
    }
}

impl Held {
    const fn all(&self) -> usize {
        self.strangers + self.clients
    }

    fn is_remembered(&self, now: Instant) -> bool {
        self.left.is_none_or(|left| now.since(left) < REMEMBERED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(number: u8) -> Source {
        Source::of([192, 0, 2, number].into())
    }

    /// Seconds are as far apart as the rate asks for, so that it takes part in nothing.
    fn at(seconds: u64) -> Instant {
        Instant::from_millis(seconds * 1000)
    }

    #[test]
    fn one_source_has_few_strangers_and_more_clients_and_leaves_room_for_others() {
        let mut admission = Admission::default();
        let crowd = source(1);
        for second in 0..8 {
            assert!(admission.take(at(second), crowd).is_some());
        }
        assert_eq!(admission.take(at(9), crowd), None, "a ninth stranger");
        assert!(admission.take(at(9), source(2)).is_some(), "another source");
        for second in 10..66 {
            admission.prove(crowd);
            assert!(admission.take(at(second), crowd).is_some(), "{second}");
        }
        admission.prove(crowd);
        assert_eq!(admission.take(at(70), crowd), None, "a sixty-fifth connection");
        assert_eq!(admission.counts().refused, 2);
        admission.leave(at(70), crowd, true);
        assert!(admission.take(at(71), crowd).is_some());
    }

    #[test]
    fn strangers_and_connections_are_bounded_in_all_and_in_a_second() {
        let mut admission = Admission::default();
        let taken = (0..200).filter(|n| admission.take(at(0), source(*n)).is_some()).count();
        assert_eq!(taken, 50, "in one second");
        let taken = (0..200).filter(|n| admission.take(at(1), source(*n)).is_some()).count();
        assert_eq!(taken, 14, "strangers in all");
        (0..50).for_each(|n| admission.prove(source(n)));
        let mut second = 2;
        while admission.counts().clients + admission.counts().strangers < MOST as u64 {
            let n = u8::try_from(second % 251).unwrap();
            assert!(admission.take(at(second), source(n)).is_some(), "{second}");
            admission.prove(source(n));
            second += 1;
        }
        assert_eq!(admission.take(at(second), source(255)), None, "connections in all");
    }

    #[test]
    fn what_left_is_counted() {
        let mut admission = Admission::default();
        for n in 0..100 {
            let (from, now) = (source(n), at(u64::from(n)));
            admission.take(now, from).unwrap();
            if n % 2 == 0 {
                admission.prove(from);
            }
            admission.leave(now, from, n % 2 == 0);
        }
        let counts = Counts { unproven: 50, ..Counts::default() };
        assert_eq!(admission.counts(), counts);
        admission.leave(at(100), source(200), true);
        admission.prove(source(200));
        assert_eq!(admission.counts(), counts, "of one that was never there");
    }

    #[test]
    fn a_source_that_comes_and_goes_has_its_share_and_keeps_nobody_out() {
        let mut admission = Admission::default();
        let mut taken = 0;
        for ms in 0..10_000 {
            let now = Instant::from_millis(ms);
            if admission.take(now, source(1)).is_some() {
                admission.leave(now, source(1), false);
                taken += 1;
            }
            if ms % 1000 == 999 {
                let other = source(2 + u8::try_from(ms / 1000).unwrap());
                assert!(admission.take(now, other).is_some(), "{ms}");
                admission.leave(now, other, false);
            }
        }
        assert_eq!(taken, 16 + 19, "at once, and one each half second");
        // After a pause it may come as often as at first.
        let taken = (0..20).filter(|_| admission.take(at(30), source(1)).is_some());
        assert_eq!(taken.count(), 8, "no more strangers of one source");
    }

    #[test]
    fn each_source_has_a_loopback_address_of_its_own_that_was_no_others_lately() {
        let mut admission = Admission::default();
        let first = admission.take(at(0), source(1)).unwrap();
        assert_eq!(first, Ipv4Addr::new(127, 77, 0, 1));
        assert_eq!(admission.take(at(0), source(1)), Some(first), "the same for all of a source");
        let mut before = admission.take(at(1), source(2)).unwrap();
        admission.leave(at(1), source(2), false);
        assert_eq!(admission.take(at(60), source(2)), Some(before), "it was away for 59 s");
        admission.leave(at(60), source(2), false);
        for minute in 2..70_000 {
            let now = at(60 * minute);
            let alias = admission.take(now, source(2)).unwrap();
            assert!(alias != first && alias != before && alias.is_loopback(), "{alias}");
            assert_ne!(alias.octets()[2..], [0, 0]);
            assert_ne!(alias.octets()[2..], [255, 255]);
            admission.leave(now, source(2), false);
            before = alias;
        }
    }

    #[test]
    fn sources_that_left_are_remembered_for_a_minute_and_so_within_bounds() {
        let mut admission = Admission::default();
        let mut most = 0;
        for second in 0..200_u32 {
            let now = at(second.into());
            for n in 0..100 {
                let from = Source::of(Ipv4Addr::from_bits(second * 100 + n).into());
                if admission.take(now, from).is_some() {
                    admission.leave(now, from, false);
                }
            }
            most = most.max(admission.sources.len());
        }
        assert_eq!(most, 50 * 60);
        admission.take(at(260), source(1)).unwrap();
        assert_eq!(admission.sources.len(), 1);
    }

    #[test]
    fn a_host_with_many_ipv6_addresses_is_one_source() {
        let of = |text: &str| Source::of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
    }
}
