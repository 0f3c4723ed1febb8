//! The Internet checksum (RFC 1071): whole, corrected, and *partial*.
//!
//! The checksum of TCP and UDP is partial while its field holds the sum of the pseudo-header alone, uncomplemented: so
//! a kernel leaves it for a device to complete. A sum is kept in 64 bits, in the order of the network, and folded
//! once at the end.

/// Whether the checksum of a packet's TCP segment or UDP datagram can be looked at.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Checksum {
    /// As its sender left it: right, unless the packet was broken.
    #[default]
    Whole,
    /// It is partial: the packet was never broken, and whoever passes it on completes it or says so.
    Partial,
}

/// The one's complement sum of `bytes`, added to `sum`; an odd last byte counts as high, so only the last part of
/// something may be of odd length.
#[must_use]
pub fn sum(sum: u64, bytes: &[u8]) -> u64 {
    // Sums of whole words in the machine's own order, to be turned round once (RFC 1071 §2 B); eight at a time, which
    // the compiler makes into vectors.
    let mut lanes = [0_u64; 8];
    let (blocks, rest) = bytes.as_chunks::<32>();
    for block in blocks {
        for (lane, word) in lanes.iter_mut().zip(block.as_chunks::<4>().0) {
            *lane += u64::from(u32::from_ne_bytes(*word));
        }
    }
    let whole = u16::from_be(fold(lanes.iter().sum()));
    let (words, odd) = rest.as_chunks::<2>();
    let rest: u64 = words.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum();
    let odd = odd.first().map_or(0, |byte| u64::from(*byte) << 8);
    sum + u64::from(whole) + rest + odd
}

/// The sum as 16 bits, carries added back.
#[must_use]
pub fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).unwrap_or(u16::MAX)
}

/// A checksum after one 16-bit word below it changed: equation 3 of RFC 1624, which unlike that of
/// RFC 1141 never gives 0xffff for 0.
#[must_use]
pub fn corrected(checksum: u16, old: u16, new: u16) -> u16 {
    let sum = u64::from(!checksum) + u64::from(!old) + u64::from(new);
    !fold(sum)
}

/// The checksum whose sum this is, as TCP and UDP write it: never 0, which in UDP says that there is none and means the
/// same as 0xffff everywhere else.
#[must_use]
pub fn finished(sum: u64) -> u16 {
    match !fold(sum) {
        0 => 0xffff,
        checksum => checksum,
    }
}

/// Completes a partial checksum: `bytes` from `start` on are summed with the field `offset` bytes behind `start`, which
/// gets the checksum. `false`: the field is not in `bytes`, and nothing was changed.
#[must_use]
pub fn complete(bytes: &mut [u8], start: usize, offset: usize) -> bool {
    let Some(covered) = bytes.get_mut(start..) else { return false };
    let checksum = finished(sum(0, covered)).to_be_bytes();
    let field = covered.get_mut(offset..).and_then(<[u8]>::first_chunk_mut::<2>);
    field.map(|field| *field = checksum).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::tests::checksum_is_right;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_completed_checksum_is_right(mut bytes in proptest::collection::vec(any::<u8>(), 2..3000), at: usize) {
            let at = at % (bytes.len() - 1) / 2 * 2;
            bytes[at..at + 2].fill(0);
            prop_assert!(complete(&mut bytes, 0, at));
            prop_assert!(checksum_is_right(&[&bytes]));
            prop_assert!(bytes[at..at + 2] != [0, 0]);
        }

        #[test]
        fn a_sum_does_not_depend_on_where_it_is_parted(bytes in proptest::collection::vec(any::<u8>(), 0..200), at: usize) {
            let (front, back) = bytes.split_at(at % (bytes.len() + 1) / 2 * 2);
            let parted = fold(sum(sum(0, front), back));
            prop_assert_eq!(parted % 0xffff, fold(sum(0, &bytes)) % 0xffff);
        }
    }

    #[test]
    fn a_field_outside_the_bytes_changes_nothing() {
        let mut bytes = [7; 10];
        for (start, offset) in [(0, 9), (8, 1), (10, 0), (11, 0), (4, usize::MAX - 1)] {
            assert!(!complete(&mut bytes, start, offset), "{start} {offset}");
        }
        assert_eq!(bytes, [7; 10]);
    }
}
