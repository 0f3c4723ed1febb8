//! Seconds and bytes as floating-point numbers: what models of links calculate with.

use crate::time::Instant;

/// Seconds since the beginning of the caller's clock.
pub(crate) fn seconds(at: Instant) -> f64 {
    at.since(Instant::ZERO).as_secs_f64()
}

/// A count of bytes or microseconds.
#[expect(clippy::cast_precision_loss, reason = "a rate needs no 53 bits of precision")]
pub(crate) fn real(count: u64) -> f64 {
    count as f64
}

/// What is nearest to it; none of it is negative or beyond the bounds of a count.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a conversion of `as` stays within the bounds"
)]
pub(crate) fn count(number: f64) -> u64 {
    number.round() as u64
}
