//! The model reckons in seconds and bytes, as floating-point numbers.

use crate::time::Instant;

/// Seconds since the beginning of the caller's clock.
pub(super) fn seconds(at: Instant) -> f64 {
    at.since(Instant::ZERO).as_secs_f64()
}

/// A count of bytes or microseconds.
#[expect(clippy::cast_precision_loss, reason = "a rate needs no 53 bits of precision")]
pub(super) fn real(count: u64) -> f64 {
    count as f64
}

/// What is nearest to it; none of it is negative or beyond the bounds of a count.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a conversion of `as` stays within the bounds"
)]
pub(super) fn count(number: f64) -> u64 {
    number.round() as u64
}
