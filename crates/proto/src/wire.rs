//! The wire format (PROTOCOL §2 to §4): what is in the clear, what is sealed, and the frames.
//!
//! Parsing is a view over borrowed bytes and never panics; writing goes into a slice that the
//! driver lends. Numbers are big-endian. Fields that are counters travel as their low bits and are
//! expanded by the receiver against the highest it knows (RFC 9000 A.3).

pub mod cursor;
pub mod frame;
pub mod header;
pub mod hello;

/// Restores a 64-bit number from its low `bits` bits: the candidate nearest to `expected`, which is
/// one more than the highest number known (RFC 9000 A.3). Never negative, never past `u64::MAX`.
#[must_use]
pub const fn expand(expected: u64, low: u64, bits: u32) -> u64 {
    let mask = (1_u64 << bits) - 1;
    // The nearest ones are those from half the space below what is expected; the space has two ends.
    let nearest = expected.saturating_sub(mask / 2);
    let first = if nearest > u64::MAX - mask { u64::MAX - mask } else { nearest };
    first + (low.wrapping_sub(first) & mask)
}

#[cfg(test)]
mod tests {
    use super::expand;
    use proptest::prelude::*;

    #[test]
    fn the_example_of_rfc_9000_holds() {
        assert_eq!(expand(0xa82f_30eb, 0x9b32, 16), 0xa82f_9b32);
    }

    #[test]
    fn numbers_wrap_without_a_jump() {
        let cases = [
            (0x00ff_ffff, 0xff_ffff, 0x00ff_ffff),
            (0x0100_0000, 0xff_fffe, 0x00ff_fffe),
            (0x0100_0000, 0x00_0001, 0x0100_0001),
            (0, 0xff_ffff, 0xff_ffff),
            (5, 0, 0),
            (u64::MAX, 0xff_ffff, u64::MAX),
            (u64::MAX, 0, u64::MAX - 0xff_ffff),
            (0x0100_0000, 0x80_0000, 0x0180_0000),
        ];
        for (expected, low, full) in cases {
            assert_eq!(expand(expected, low, 24), full, "expected {expected:#x}, low {low:#x}");
        }
    }

    proptest! {
        #[test]
        fn anything_within_half_the_space_is_restored(
            expected in 0..u64::MAX - (1 << 25), ahead in -(1_i64 << 23) + 1..(1_i64 << 23),
        ) {
            let Some(number) = expected.checked_add_signed(ahead) else { return Ok(()) };
            prop_assert_eq!(expand(expected, number & 0xff_ffff, 24), number);
        }

        #[test]
        fn any_input_is_safe(expected: u64, low: u64, bits in 1..33_u32) {
            let number = expand(expected, low, bits);
            prop_assert_eq!(number & ((1 << bits) - 1), low & ((1 << bits) - 1));
        }
    }
}
