//! What a datagram carried, remembered until its fate is known.
//!
//! Whoever hears that a datagram arrived or was lost learns from this record what that means: which packets are gone, which
//! report the peer has, what the path MTU search has learnt. It is the counterpart of what QUIC implementations call
//! recovery tokens.

use super::receiver::ReportToken;

/// What one datagram carried.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Carried {
    /// Its packets.
    pub packets: Packets,
    /// The report that it carried on the link it was sent on.
    pub report: Option<ReportToken>,
    /// What its length says of the path MTU.
    pub size: SizeEvidence,
}

/// The packets of one datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Packets {
    /// The global number of the first.
    pub first: u64,
    /// How far the number of the last is above that: at most the number of places in a run, which is below 2^16. Numbers in
    /// between that are not its own went in other datagrams of the same moment.
    pub span: u16,
    /// How many there are; with none the numbers mean nothing.
    pub count: u8,
}

impl Packets {
    /// One packet, or a part of one.
    #[must_use]
    pub const fn one(global: u64) -> Self {
        Self { first: global, span: 0, count: 1 }
    }

    /// The global number of the last.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.first + u64::from(self.span)
    }

    /// So many packets, numbered from `first` to `last`.
    #[must_use]
    pub fn several(first: u64, last: u64, count: usize) -> Self {
        let span = u16::try_from(last.saturating_sub(first)).unwrap_or(u16::MAX);
        Self { first, span, count: u8::try_from(count).unwrap_or(u8::MAX) }
    }
}

/// What the length of a datagram says of the path MTU when its fate is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SizeEvidence {
    /// Nothing: it fits any path in use.
    #[default]
    None,
    /// It is larger than the base path MTU: so many bytes at IP level.
    Large(u16),
    /// It is a probe of so many bytes at IP level.
    Probe(u16),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_names_the_first_and_the_last_packet_and_how_many_there_were() {
        let table = [
            (Packets::one(7), (7, 0, 1)),
            (Packets::several(7, 7, 1), (7, 0, 1)),
            (Packets::several(u64::MAX - 9, u64::MAX, 3), (u64::MAX - 9, 9, 3)),
        ];
        for (packets, (first, span, count)) in table {
            assert_eq!((packets.first, packets.span, packets.count), (first, span, count));
            assert_eq!(packets.last(), first + u64::from(span));
        }
    }

    #[test]
    fn the_record_stays_small_for_it_is_kept_for_each_datagram_in_flight() {
        assert!(size_of::<Carried>() <= 32, "{} bytes", size_of::<Carried>());
    }
}
