//! Datagrams of a fast link leave in trains: one timer, one call of the kernel and one look at the queue are for all of a train.

use ropewalk_settings::Bitrate;

use crate::time::Duration;

/// How long a train takes: a few dozen datagrams at some Gbit/s, and no delay that anybody feels.
pub(crate) const TRAIN: Duration = Duration::from_micros(240);

/// Links that carry so much take trains, bit/s: two full datagrams within one.
const LEAST_RATE: u64 = 100_000_000;

/// Whether a link of this rate takes trains.
#[inline]
pub(crate) fn takes_trains(rate: Bitrate) -> bool {
    rate.as_bps() >= LEAST_RATE
}
