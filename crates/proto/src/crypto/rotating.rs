//! A secret that is replaced from time to time, and the one before it, which still counts.

use std::time::Duration;

use rand::{CryptoRng, RngCore};
use zeroize::Zeroizing;

use crate::time::Instant;

/// The secret, and the one before.
pub(crate) struct RotatingSecret {
    current: Zeroizing<[u8; 32]>,
    previous: Zeroizing<[u8; 32]>,
    since: Instant,
    lifetime: Duration,
}

impl RotatingSecret {
    /// Fresh ones, each to be replaced after `lifetime`.
    pub(crate) fn new<R: RngCore + CryptoRng>(
        now: Instant,
        rng: &mut R,
        lifetime: Duration,
    ) -> Self {
        Self { current: draw(rng), previous: draw(rng), since: now, lifetime }
    }

    /// Replaces what is old enough. What was made under the present secret counts for at least one lifetime from now on, and
    /// for two at most.
    pub(crate) fn rotate<R: RngCore + CryptoRng>(&mut self, now: Instant, rng: &mut R) {
        let age = now.since(self.since);
        if age < self.lifetime {
            return;
        }
        self.previous = std::mem::replace(&mut self.current, draw(rng));
        if age >= 2 * self.lifetime {
            self.previous = draw(rng);
        }
        self.since = now;
    }

    /// The one to make things under.
    pub(crate) fn current(&self) -> &[u8; 32] {
        &self.current
    }

    /// Those under which things count, the newest first.
    pub(crate) fn both(&self) -> [&[u8; 32]; 2] {
        [&self.current, &self.previous]
    }
}

fn draw<R: RngCore + CryptoRng>(rng: &mut R) -> Zeroizing<[u8; 32]> {
    let mut secret = Zeroizing::new([0; 32]);
    rng.fill_bytes(secret.as_mut());
    secret
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    #[test]
    fn a_secret_counts_for_two_lifetimes_at_most_and_never_for_less_than_one() {
        let mut rng = StdRng::seed_from_u64(1);
        let lifetime = Duration::from_secs(120);
        let at = |seconds: u64| Instant::from_millis(seconds * 1_000);
        for (seconds, counts) in [(119, true), (120, true), (239, true), (240, false), (900, false)]
        {
            let mut secret = RotatingSecret::new(at(0), &mut rng, lifetime);
            let first = *secret.current();
            secret.rotate(at(seconds), &mut rng);
            assert_eq!(secret.both().contains(&&first), counts, "{seconds} s");
            assert_eq!(*secret.current() == first, seconds < 120, "{seconds} s");
        }
        let mut secret = RotatingSecret::new(at(0), &mut rng, lifetime);
        secret.rotate(at(130), &mut rng);
        let second = *secret.current();
        secret.rotate(at(249), &mut rng);
        assert_eq!(*secret.current(), second);
        secret.rotate(at(250), &mut rng);
        assert_eq!(secret.both()[1], &second);
    }
}
