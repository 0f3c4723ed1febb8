//! The ciphers and the clock of a daemon, for the protocol core.

use ropewalk_link_io::clock::Sample;
use ropewalk_proto::crypto::{self, Capabilities, CipherSet};
use ropewalk_proto::time::{Duration, Instant};
use ropewalk_settings::Cipher;

/// The ciphers offered or accepted. `aes`: the processor has instructions for AES.
#[must_use]
pub fn ciphers(cipher: Cipher, aes: bool) -> CipherSet {
    match cipher {
        Cipher::Auto => CipherSet::offered(Capabilities { aes }),
        Cipher::Aes256Gcm => CipherSet::only(crypto::Cipher::Aes256Gcm),
        Cipher::ChaCha20Poly1305 => CipherSet::only(crypto::Cipher::ChaCha20Poly1305),
    }
}

/// The time since 1970 at the core's instant zero, so that the core can tell the date.
#[must_use]
pub fn wall_clock(sample: Sample) -> Duration {
    sample.unix.saturating_sub(sample.now.since(Instant::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aes_is_offered_where_it_is_fast_or_wished_for() {
        let aes = |cipher, has| ciphers(cipher, has).contains(crypto::Cipher::Aes256Gcm);
        for (cipher, has, expected) in [
            (Cipher::Auto, true, true),
            (Cipher::Auto, false, false),
            (Cipher::Aes256Gcm, false, true),
            (Cipher::ChaCha20Poly1305, true, false),
        ] {
            assert_eq!(aes(cipher, has), expected, "{cipher:?} {has}");
        }
    }

    #[test]
    fn the_wall_clock_is_that_of_the_cores_instant_zero() {
        let sample = |unix, now| Sample {
            unix: Duration::from_secs(unix),
            now: Instant::ZERO + Duration::from_secs(now),
        };
        assert_eq!(wall_clock(sample(1_000, 10)), Duration::from_secs(990));
        // A machine whose date was never set.
        assert_eq!(wall_clock(sample(5, 10)), Duration::ZERO);
    }
}
