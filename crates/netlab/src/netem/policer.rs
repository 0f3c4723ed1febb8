//! A policer: a token bucket that drops what exceeds a rate, and lets nothing wait (RFC 2697 with one bucket).

use std::time::Duration;

use ropewalk_proto::time::Instant;
use ropewalk_settings::Bitrate;

/// What a policer lets pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policer {
    /// In the long run, at IP level.
    pub rate: Bitrate,
    /// The bucket: at once passes what the rate carries in this time, and never less than a full packet.
    pub burst: Duration,
}

/// One token lets a bit pass; counted in billionths, so that no nanosecond of a rate in bit/s is rounded.
const TOKEN: u128 = 1_000_000_000;
/// The bits of a full packet.
const FULL_PACKET: u128 = 1500 * 8;

/// How full the bucket is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    /// What it lacks.
    missing: u128,
    at: Instant,
}

impl Bucket {
    /// A full one.
    pub(super) const fn new(now: Instant) -> Self {
        Self { missing: 0, at: now }
    }

    /// Whether a packet of `size` bytes passes at `now`; if so its tokens are gone.
    pub(super) fn admit(&mut self, policer: &Policer, now: Instant, size: u64) -> bool {
        let rate = u128::from(policer.rate.as_bps());
        let whole = (rate * policer.burst.as_nanos()).max(FULL_PACKET * TOKEN);
        let filled = rate * now.since(self.at).as_nanos();
        self.at = self.at.max(now);
        self.missing = self.missing.saturating_sub(filled).min(whole);
        let missing = self.missing + u128::from(size) * 8 * TOKEN;
        let admitted = missing <= whole;
        if admitted {
            self.missing = missing;
        }
        admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_bucket_passes_at_once_and_then_only_the_rate() {
        let policer = Policer { rate: Bitrate::from_mbps(12), burst: Duration::from_millis(10) };
        let mut bucket = Bucket::new(Instant::ZERO);
        // 10 ms of 12 Mbit/s are ten full packets, and then one a millisecond.
        let passed = |bucket: &mut Bucket, at| {
            (0..100).filter(|_| bucket.admit(&policer, Instant::from_millis(at), 1500)).count()
        };
        let seen = [0, 0, 1, 4, 4, 1000].map(|at| passed(&mut bucket, at));
        assert_eq!(seen, [10, 0, 1, 3, 0, 10]);
    }

    #[test]
    fn a_bucket_smaller_than_a_packet_lets_one_pass_all_the_same() {
        let policer = Policer { rate: Bitrate::from_mbps(1), burst: Duration::ZERO };
        let mut bucket = Bucket::new(Instant::ZERO);
        let at = |ms| Instant::from_millis(ms);
        let seen = [0, 11, 12, 23, 24].map(|ms| bucket.admit(&policer, at(ms), 1500));
        assert_eq!(seen, [true, false, true, false, true]);
    }
}
