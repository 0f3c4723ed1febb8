//! What the application at the end of a UDP stream saw of it: the same figures whether the packets came in
//! virtual time or on a kernel.

use std::time::Duration;

use serde::Serialize;

use crate::per_second::PerSecond;
use crate::stalls::{self, Stall};
use crate::stats::{Percentiles, mbit, percent};

/// What a receiver saw. Packets are data packets.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct UdpReceived {
    /// As the sender's end says; otherwise the highest number seen and all below it.
    pub sent: u64,
    /// Different packets that came.
    pub received: u64,
    /// Packets that did not come.
    pub lost: u64,
    /// Packets that came again.
    pub duplicates: u64,
    /// Packets that came after one with a higher number (RFC 4737).
    pub reordered: u64,
    /// Packets received that did not come after a higher number, in percent of those received.
    pub in_order_percent: f64,
    /// UDP payload received between first and last packet.
    pub mbit: f64,
    /// From the first to the last packet.
    pub seconds: f64,
    /// The longest time between two packets, in milliseconds.
    pub longest_gap_ms: f64,
    /// Times without a packet, counted from the first one.
    #[serde(skip)]
    pub stalls: Vec<Stall>,
    /// One-way delay.
    pub delay: Percentiles,
    /// UDP payload since the first packet.
    pub per_second: PerSecond,
    /// The same of packets that did not come after a higher number.
    pub in_order_per_second: PerSecond,
}

/// Counts a stream packet by packet.
#[derive(Default)]
pub struct Tally {
    /// One bit a number.
    seen: Vec<u64>,
    next: u64,
    told: Option<u64>,
    received: u64,
    duplicates: u64,
    reordered: u64,
    bytes: u64,
    first_ns: Option<u64>,
    last_ns: Option<u64>,
    longest_gap_ns: u64,
    stalls: Vec<Stall>,
    delays: Vec<Duration>,
    per_second: PerSecond,
    in_order_per_second: PerSecond,
}

impl Tally {
    /// The largest number taken: a stream of 256 Mi packets, which need 32 MiB of `seen`.
    pub const MAX_NUMBER: u64 = 1 << 28;

    /// Packet `number`, sent at `sent_ns`, came at `now_ns` by the same clock with so many bytes of
    /// payload. Numbers beyond [`Self::MAX_NUMBER`] are ignored.
    pub fn packet(&mut self, now_ns: u64, number: u64, sent_ns: u64, bytes: u64) {
        if number >= Self::MAX_NUMBER {
            return;
        }
        let word = usize::try_from(number / 64).unwrap_or(usize::MAX);
        let bit = 1 << (number % 64);
        if self.seen.len() <= word {
            self.seen.resize(word + 1, 0);
        }
        if self.seen[word] & bit != 0 {
            self.duplicates += 1;
            return;
        }
        self.seen[word] |= bit;
        self.received += 1;
        // The first packet starts the time, so that its bytes are not in the rate over all of it.
        if self.first_ns.is_some() {
            self.bytes += bytes;
        }
        let first = *self.first_ns.get_or_insert(now_ns);
        let at = Duration::from_nanos(now_ns.saturating_sub(first));
        self.per_second.note(at, bytes);
        if number < self.next {
            self.reordered += 1;
        } else {
            self.in_order_per_second.note(at, bytes);
        }
        self.next = self.next.max(number + 1);
        if let Some(last) = self.last_ns.replace(now_ns) {
            let gap_ns = now_ns.saturating_sub(last);
            self.longest_gap_ns = self.longest_gap_ns.max(gap_ns);
            let length = Duration::from_nanos(gap_ns);
            if length >= stalls::SHORT {
                self.stalls.push(Stall { end: at, length });
            }
        }
        self.delays.push(Duration::from_nanos(now_ns.saturating_sub(sent_ns)));
    }

    /// The sender says how many it sent.
    pub fn end(&mut self, sent: u64) {
        self.told = Some(sent);
    }

    /// When the last packet came, if one did.
    #[must_use]
    pub fn last_ns(&self) -> Option<u64> {
        self.last_ns
    }

    /// The figures.
    #[must_use]
    pub fn finish(self) -> UdpReceived {
        let sent = self.told.unwrap_or(self.next).max(self.next);
        let time = self.first_ns.zip(self.last_ns).map_or(0, |(first, last)| last - first);
        let time = Duration::from_nanos(time);
        UdpReceived {
            sent,
            received: self.received,
            lost: sent - self.received,
            duplicates: self.duplicates,
            reordered: self.reordered,
            in_order_percent: percent(self.received - self.reordered, self.received),
            mbit: mbit(self.bytes, time),
            seconds: time.as_secs_f64(),
            longest_gap_ms: Duration::from_nanos(self.longest_gap_ns).as_secs_f64() * 1e3,
            stalls: self.stalls,
            delay: Percentiles::of(self.delays),
            per_second: self.per_second,
            in_order_per_second: self.in_order_per_second,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(numbers: &[u64], told: Option<u64>) -> UdpReceived {
        let mut tally = Tally::default();
        for (number, at) in numbers.iter().zip(1u64..) {
            tally.packet(at * 1_000_000, *number, at * 1_000_000 - 500_000, 100);
        }
        if let Some(sent) = told {
            tally.end(sent);
        }
        tally.finish()
    }

    #[test]
    fn lost_doubled_and_reordered_packets_are_counted_apart() {
        for (numbers, told, received, lost, duplicates, reordered) in [
            (&[0, 1, 2, 3][..], None, 4, 0, 0, 0),
            (&[0, 1, 2, 3], Some(6), 4, 2, 0, 0),
            (&[0, 2, 3], None, 3, 1, 0, 0),
            (&[0, 2, 1, 3], None, 4, 0, 0, 1),
            (&[3, 2, 1, 0], None, 4, 0, 0, 3),
            (&[0, 1, 1, 2], None, 3, 0, 1, 0),
            (&[], Some(3), 0, 3, 0, 0),
            (&[], None, 0, 0, 0, 0),
            (&[u64::MAX], None, 0, 0, 0, 0),
        ] {
            let seen = tally(numbers, told);
            let figures = (seen.received, seen.lost, seen.duplicates, seen.reordered);
            assert_eq!(figures, (received, lost, duplicates, reordered), "{numbers:?}");
        }
        let seen = tally(&[0, 2, 1, 3], None);
        assert_eq!(seen.in_order_percent, 75.0);
        assert_eq!(seen.per_second.mbit(1), [0.0032]);
        assert_eq!(seen.in_order_per_second.mbit(1), [0.0024]);
    }

    #[test]
    fn goodput_and_delay_come_from_the_stamps() {
        let seen = tally(&[0, 1, 2, 3, 4], None);
        // Four packets of 100 bytes in 4 ms.
        assert_eq!(seen.mbit, 0.8);
        assert_eq!((seen.delay.p50_ms, seen.delay.max_ms, seen.longest_gap_ms), (0.5, 0.5, 1.0));
    }
}
